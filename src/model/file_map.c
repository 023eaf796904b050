/*
 * file_map: sorts a graph's pieces into tensors of the file, and checks that the maps between both
 * are one to one: every row of either side is in exactly one piece.
 */
#include "model/tensors.h"

#include <stdio.h>
#include <stdlib.h>

/* A band has at least so many rows of the file, so that transposition reads whole cache lines. */
#define BAND_ROWS 32
#define MOST_BANDS 4 /* of a transposed tensor of several units */

/* A piece while the list is sorted. */
struct entry {
    struct zinf_file_part part;
    uint32_t number; /* its place in the order of units */
};

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = strcmp(x->part.piece->name, y->part.piece->name);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* Orders tensors by their first pieces. */
static int by_first(const void *a, const void *b)
{
    const struct zinf_file_tensor *x = a, *y = b;
    if (x->parts[0].unit != y->parts[0].unit)
        return x->parts[0].unit < y->parts[0].unit ? -1 : 1;
    if (x->parts[0].tensor != y->parts[0].tensor)
        return x->parts[0].tensor < y->parts[0].tensor ? -1 : 1;
    return (x->parts[0].piece > y->parts[0].piece) - (x->parts[0].piece < y->parts[0].piece);
}

static uint32_t count_pieces(const struct zinf_graph *graph)
{
    uint32_t n = 0;
    for (uint32_t u = 0; u < graph->n_units; u++)
        for (uint32_t i = 0; i < graph->units[u].n_tensors; i++)
            n += graph->units[u].tensors[i].n_pieces;
    return n;
}

static void list_pieces(const struct zinf_graph *graph, struct entry *entries)
{
    uint32_t n = 0;
    for (uint32_t u = 0; u < graph->n_units; u++)
        for (uint32_t i = 0; i < graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *tensor = &graph->units[u].tensors[i];
            for (uint32_t p = 0; p < tensor->n_pieces; p++, n++)
                entries[n] = (struct entry){{u, tensor, &tensor->pieces[p]}, n};
        }
}

int zinf_piece_shape(const struct zinf_piece *piece, uint64_t shape[3])
{
    int rank = 0;
    if (!piece->rank)
        return 0;
    if (piece->n_slabs)
        shape[rank++] = piece->n_slabs;
    shape[rank++] = piece->shape[0];
    if (piece->rank == 2)
        shape[rank++] = piece->inner ? piece->shape[1] / piece->inner : piece->shape[1];
    if (piece->inner)
        shape[rank++] = piece->inner;
    return rank;
}

/* Makes tensors of the sorted entries, each with its parts. */
static void group(struct zinf_file_map *map, const struct entry *entries, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct zinf_piece *piece = entries[i].part.piece;
        map->parts[i] = entries[i].part;
        if (i && !strcmp(piece->name, entries[i - 1].part.piece->name)) {
            map->tensors[map->n_tensors - 1].n_parts++;
            continue;
        }
        map->tensors[map->n_tensors++] = (struct zinf_file_tensor){
            .name = piece->name,
            .plain_name = piece->plain_name,
            .rank = piece->rank,
            .shape = {piece->shape[0], piece->rank == 2 ? piece->shape[1] : 1},
            .n_slabs = piece->n_slabs ? piece->n_slabs : 1,
            .transposed = piece->transposed,
            .parts = &map->parts[i],
            .n_parts = 1,
        };
    }
}

/* ---- one to one ---- */

/* One side of a piece's runs: rows of the unit (flat) or of the file. */
struct side {
    const struct zinf_row_map *map;
    bool flat;
};

/* The length of the run that begins at this row of the side; 0 if none does. */
static uint64_t run_from(const struct side *side, uint64_t row)
{
    const struct zinf_row_map *m = side->map;
    uint64_t first = side->flat ? m->flat_first : m->file_first;
    uint64_t stride = side->flat ? m->flat_stride : m->file_stride;
    if (row < first)
        return 0;
    if (m->count == 1 || !stride)
        return row == first ? m->rows : 0;
    uint64_t i = (row - first) / stride;
    return i < m->count && first + i * stride == row ? m->rows : 0;
}

/* The first row at which no run begins although it should, or several do. rows: there is no such
 * row. */
static uint64_t walk(const struct side *sides, uint32_t n, uint64_t rows)
{
    uint64_t row = 0, covered = 0;
    for (uint32_t i = 0; i < n; i++)
        covered += sides[i].map->rows * sides[i].map->count;
    while (row < rows) {
        uint64_t found = 0;
        for (uint32_t i = 0; i < n && !found; i++)
            found = run_from(&sides[i], row);
        if (!found)
            return row;
        row += found;
    }
    /* Runs follow each other over all rows and have no more rows together than that, so no two runs
     * share a row. */
    return row == rows && covered == rows ? rows : 0;
}

/* Checks that the parts agree on the tensor's shape and order. */
static int check_parts(const struct zinf_file_tensor *t)
{
    const struct zinf_piece *first = t->parts[0].piece;
    for (uint32_t p = 0; p < t->n_parts; p++) {
        const struct zinf_piece *piece = t->parts[p].piece;
        bool same = piece->rank == first->rank && piece->transposed == first->transposed &&
                    piece->plain_name == first->plain_name && piece->shape[0] == first->shape[0] &&
                    piece->inner == first->inner && piece->n_slabs == first->n_slabs &&
                    (piece->rank < 2 || piece->shape[1] == first->shape[1]);
        if (!same)
            return zinf_fail(-EINVAL, "tensor %s has two shapes", t->name);
        if (t->parts[p].tensor->init != t->parts[0].tensor->init ||
            t->parts[p].tensor->init_std != t->parts[0].tensor->init_std)
            return zinf_fail(-EINVAL, "tensor %s begins in two ways", t->name);
    }
    return 0;
}

uint32_t zinf_file_slab_parts(const struct zinf_file_tensor *t, uint32_t first)
{
    uint32_t n = 0;
    while (first + n < t->n_parts && t->parts[first + n].piece->slab == t->parts[first].piece->slab)
        n++;
    return n;
}

/* Checks each slab by itself, in order, so that none is missing or there twice. */
static int check_slabs(const struct zinf_file_tensor *t, struct side *sides)
{
    uint64_t slab = 0, rows = t->shape[t->transposed ? 1 : 0];
    int code = 0;
    for (uint32_t p = 0, n; !code && p < t->n_parts; p += n, slab++) {
        struct zinf_file_tensor one = *t;
        n = zinf_file_slab_parts(t, p);
        one.parts += p;
        one.n_parts = n;
        if (one.parts[0].piece->slab != slab)
            return zinf_fail(-EINVAL, "slab %llu of tensor %s is not where it should be",
                             (unsigned long long)slab, t->name);
        for (uint32_t i = 0; i < n; i++)
            sides[i] = (struct side){&one.parts[i].piece->rows, false};
        uint64_t row = walk(sides, n, rows);
        if (row != rows)
            return zinf_fail(-EINVAL, "row %llu of tensor %s is not in exactly one unit",
                             (unsigned long long)row, t->name);
    }
    if (!code && slab != t->n_slabs)
        code = zinf_fail(-EINVAL, "%llu of %llu slabs of tensor %s are in no unit",
                         (unsigned long long)(t->n_slabs - slab), (unsigned long long)t->n_slabs,
                         t->name);
    return code;
}

static int check_flat(const struct zinf_graph *graph, struct side *sides)
{
    for (uint32_t u = 0; u < graph->n_units; u++)
        for (uint32_t i = 0; i < graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *tensor = &graph->units[u].tensors[i];
            if (tensor->moved)
                continue;
            for (uint32_t p = 0; p < tensor->n_pieces; p++)
                sides[p] = (struct side){&tensor->pieces[p].rows, true};
            uint64_t rows = zinf_tensor_file_rows(tensor),
                     row = walk(sides, tensor->n_pieces, rows);
            if (row != rows)
                return zinf_fail(-EINVAL,
                                 "row %llu of tensor %u of unit %s is not in exactly one tensor of "
                                 "the file",
                                 (unsigned long long)row, i, graph->units[u].name);
        }
    return 0;
}

static int check(const struct zinf_file_map *map, const struct zinf_graph *graph, uint32_t n_pieces)
{
    struct side *sides = malloc((n_pieces + 1) * sizeof *sides);
    int code = sides ? 0 : zinf_fail(-ENOMEM, "no memory to check %u tensors", n_pieces);
    for (uint32_t i = 0; !code && i < map->n_tensors; i++) {
        code = check_parts(&map->tensors[i]);
        if (!code)
            code = check_slabs(&map->tensors[i], sides);
    }
    if (!code)
        code = check_flat(graph, sides);
    free(sides);
    return code;
}

/* ---- the map ---- */

/* A row of a transposed file has elements of every unit that has a part of the tensor, so each of
 * these units is read once for every band. */
static uint64_t band_elems(const struct zinf_file_tensor *t)
{
    const bool several = t->parts[0].unit != t->parts[zinf_file_slab_parts(t, 0) - 1].unit;
    const uint64_t rows = (t->shape[0] + MOST_BANDS - 1) / MOST_BANDS;
    return several ? rows * t->shape[1] : 0;
}

/* Tensors are sorted by name so far; this puts them into the order of units. */
static void sort_tensors(struct zinf_file_map *map)
{
    qsort(map->tensors, map->n_tensors, sizeof *map->tensors, by_first);
    for (uint32_t i = 0; i < map->n_tensors; i++) {
        const struct zinf_file_tensor *t = &map->tensors[i];
        uint64_t rows = t->shape[0] < BAND_ROWS ? t->shape[0] : BAND_ROWS;
        if (t->transposed && rows * t->shape[1] > map->scratch_elems)
            map->scratch_elems = rows * t->shape[1];
        if (t->transposed && band_elems(t) > map->band_elems)
            map->band_elems = band_elems(t);
    }
}

/* Parts are sorted by name, so the place of its first part is a tensor's place among names. */
static void sort_names(struct zinf_file_map *map, uint32_t *place, uint32_t n_pieces)
{
    for (uint32_t i = 0; i < n_pieces; i++)
        place[i] = UINT32_MAX;
    for (uint32_t i = 0; i < map->n_tensors; i++)
        place[map->tensors[i].parts - map->parts] = i;
    for (uint32_t i = 0, n = 0; i < n_pieces; i++)
        if (place[i] != UINT32_MAX)
            map->by_name[n++] = place[i];
}

int zinf_file_map_create(struct zinf_file_map **out, const struct zinf_graph *graph)
{
    uint32_t n = count_pieces(graph);
    struct zinf_file_map *map = calloc(1, sizeof *map);
    struct entry *entries = calloc(n + 1, sizeof *entries);
    uint32_t *place = calloc(n + 1, sizeof *place);
    int code = 0;
    if (map) {
        map->tensors = calloc(n + 1, sizeof *map->tensors);
        map->parts = calloc(n + 1, sizeof *map->parts);
        map->by_name = calloc(n + 1, sizeof *map->by_name);
    }
    if (!map || !entries || !place || !map->tensors || !map->parts || !map->by_name) {
        code = zinf_fail(-ENOMEM, "no memory for a list of %u tensors", n);
        goto out;
    }
    list_pieces(graph, entries);
    qsort(entries, n, sizeof *entries, by_name);
    group(map, entries, n);
    sort_tensors(map);
    sort_names(map, place, n);
    code = check(map, graph, n);
out:
    free(entries);
    free(place);
    if (code)
        zinf_file_map_destroy(map);
    else
        *out = map;
    return code;
}

void zinf_file_map_destroy(struct zinf_file_map *map)
{
    if (!map)
        return;
    free(map->tensors);
    free(map->parts);
    free(map->by_name);
    free(map);
}

const struct zinf_file_tensor *zinf_file_map_find(const struct zinf_file_map *map, const char *name)
{
    uint32_t low = 0, high = map->n_tensors;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct zinf_file_tensor *t = &map->tensors[map->by_name[middle]];
        int order = strcmp(name, t->name);
        if (!order)
            return t;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Writes a tensor's name. A prefix may end with "model.", the part of a file that the model itself
 * is. The name of a tensor outside of that follows what is in front of "model.". */
static const char *write_name(const char *name, bool plain, const char *prefix, char *buffer,
                              size_t bytes)
{
    static const char tail[] = "model.";
    size_t front = strlen(prefix);
    if (plain && !strncmp(name, "base_model.", strlen("base_model."))) {
        front = 0; /* names of adapters have no prefix */
    } else if (plain) {
        const size_t n = sizeof tail - 1;
        const bool ends = front >= n && !strcmp(prefix + front - n, tail);
        const bool whole = ends && (front == n || prefix[front - n - 1] == '.');
        front = whole ? front - n : 0;
    }
    snprintf(buffer, bytes, "%.*s%s", (int)front, prefix, name);
    return buffer;
}

const char *zinf_piece_name(const struct zinf_piece *piece, const char *prefix, char *buffer,
                            size_t buffer_bytes)
{
    return write_name(piece->name, piece->plain_name, prefix, buffer, buffer_bytes);
}

const char *zinf_file_tensor_name(const struct zinf_file_tensor *tensor, const char *prefix,
                                  char *buffer, size_t buffer_bytes)
{
    return write_name(tensor->name, tensor->plain_name, prefix, buffer, buffer_bytes);
}
