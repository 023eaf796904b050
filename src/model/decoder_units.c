/* decoder_units: maps rows of the file's tensors to rows of units' tensors. */
#include "model/decoder_units.h"

#include <stdio.h>

#define TILE_ALIGN 64 /* rows of a tile of the vocabulary are multiples of it */

static int64_t align_rows(int64_t rows)
{
    return (rows + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
}

int64_t decoder_even_rows(const struct decoder *d, int64_t rows)
{
    while (d->vocab % rows && d->vocab % rows < d->shards.of)
        rows += TILE_ALIGN;
    return rows;
}

int64_t decoder_choose_tile_rows(const struct decoder *d)
{
    const struct attention_spec *a = &d->attention;
    int64_t qkv = (a->n_heads + 2 * a->n_kv_heads) * a->head_dim;
    int64_t mlp = (d->mlp.gated ? 3 : 2) * (d->experts.n ? d->experts.ffn : d->ffn);
    int64_t block = d->hidden * (qkv + a->n_heads * a->head_dim + mlp);
    int64_t tiles = (d->vocab * d->hidden + block - 1) / block;
    int64_t rows = align_rows(d->join_tiles ? d->vocab : (d->vocab + tiles - 1) / tiles);
    if (d->shards.tile_rows && !d->join_tiles)
        rows = align_rows(d->shards.tile_rows);
    return decoder_even_rows(d, rows);
}

void decoder_add_rows(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                      const char *name, struct zinf_row_map rows, int64_t all)
{
    const bool narrow = d->embedding && name != d->head;
    const uint64_t cols = (uint64_t)(narrow ? d->embedding : d->hidden);
    struct zinf_tensor tensor = {
        .rank = 2,
        .rows = rows.rows,
        .cols = cols,
        .decay = true,
        .init = ZINF_INIT_NORMAL,
        .init_std = d->init_std,
        .cut = d->shards.of && name != d->positions && name != d->types,
    };
    struct zinf_piece piece = {
        .rank = 2,
        .plain_name = name == d->head && !d->head_prefixed,
        .shape = {(uint64_t)all, cols},
        .rows = rows,
    };
    snprintf(piece.name, sizeof piece.name, "%s", name);
    zinf_graph_add_tensor(graph, unit, &tensor);
    zinf_graph_add_piece(graph, unit, &piece);
}

/* Adds what is added to the logits of a tile's ids. */
static void add_tile_bias(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                          struct zinf_row_map rows)
{
    const struct zinf_tensor tensor = {.rank = 1,
                                       .rows = rows.rows,
                                       .cols = 1,
                                       .init = ZINF_INIT_ZERO,
                                       .may_be_fresh = true,
                                       .cut = d->shards.of};
    struct zinf_piece piece = {
        .rank = 1, .plain_name = true, .shape = {(uint64_t)d->vocab, 1}, .rows = rows};
    snprintf(piece.name, sizeof piece.name, "%s", d->tile_bias);
    zinf_graph_add_tensor(graph, unit, &tensor);
    zinf_graph_add_piece(graph, unit, &piece);
}

/* The rows that a shard has of the tile that begins at row `first`. */
static struct zinf_row_map shard_of_tile(const struct zinf_shards *c, int64_t first, uint64_t tile,
                                         uint32_t shard)
{
    const uint64_t skipped = zinf_shard_row(c, tile, shard);
    return (struct zinf_row_map){.file_first = (uint64_t)first + skipped,
                                 .rows = zinf_shard_row(c, tile, shard + 1) - skipped,
                                 .count = 1};
}

void decoder_add_tile(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                      const char *name, int64_t first, int64_t rows)
{
    const struct zinf_shards whole = {.of = 1, .n = 1}, *c = d->shards.of ? &d->shards : &whole;
    const bool biased = d->tile_bias && (name == d->head || !d->head);
    const int64_t left = d->vocab - first;
    const uint64_t tile = (uint64_t)(left < rows ? left : rows);
    for (uint32_t i = c->first; i < c->first + c->n; i++) {
        decoder_add_rows(graph, unit, d, name, shard_of_tile(c, first, tile, i), d->vocab);
        zinf_unit_set_shard(graph, unit, i);
    }
    for (uint32_t i = c->first; biased && i < c->first + c->n; i++) {
        add_tile_bias(graph, unit, d, shard_of_tile(c, first, tile, i));
        zinf_unit_set_shard(graph, unit, i);
    }
}

uint32_t decoder_add_tiles(struct zinf_graph *graph, const struct decoder *d, const char *unit_name,
                           const char *name)
{
    int64_t rows = decoder_choose_tile_rows(d);
    uint32_t before = graph->n_units;
    for (int64_t first = 0; first < d->vocab; first += rows) {
        uint32_t unit =
            zinf_graph_add_unit(graph, true, "%s.%lld", unit_name, (long long)(first / rows));
        decoder_add_tile(graph, unit, d, name, first, rows);
    }
    return before;
}

bool decoder_keeps_order(enum decoder_order order)
{
    return order == DECODER_ROWS || order == DECODER_COLUMNS;
}

void decoder_add_piece(struct zinf_graph *graph, uint32_t unit, const struct decoder_tensor *t,
                       const struct decoder_tensors *tensors, struct zinf_row_map rows)
{
    uint64_t cols = t->cols ? t->cols : 1;
    bool by_column = t->order == DECODER_COLUMNS || t->order == DECODER_COLUMNS_BY_TURNS;
    struct zinf_piece piece = {
        .rank = t->order == DECODER_SCALAR ? 0
                : t->cols                  ? 2
                                           : 1,
        .shape = {by_column ? cols : t->rows, by_column ? t->rows : cols},
        .inner = t->order == DECODER_DEEP ? cols : 0,
        .transposed = by_column,
        .in_order = decoder_keeps_order(t->order),
        .n_slabs = tensors->n_slabs,
        .slab = tensors->slab,
        .rows = rows,
        .init_std = t->std,
    };
    snprintf(piece.name, sizeof piece.name, "%s%s", tensors->prefix, t->name);
    zinf_graph_add_piece(graph, unit, &piece);
}

/* Groups of rows in the file, and how many rows of each kind a group has; 0 ends the kinds. */
struct groups {
    uint64_t n, kinds[5];
};

static struct groups groups_of(const struct decoder *d, enum decoder_order order)
{
    const struct attention_spec *a = &d->attention;
    const struct mixer_spec *m = &d->mixer;
    const uint64_t dim = (uint64_t)a->head_dim, key = (uint64_t)m->key_dim;
    if (order == DECODER_GATED)
        return (struct groups){(uint64_t)a->n_heads, {dim, dim}};
    if (order == DECODER_GROUPS)
        return (struct groups){(uint64_t)a->n_kv_heads,
                               {(uint64_t)(a->n_heads / a->n_kv_heads) * dim, dim, dim}};
    const uint64_t heads = (uint64_t)(m->value_heads / m->key_heads);
    const uint64_t values = heads * (uint64_t)m->value_dim;
    if (order == DECODER_MIXED_NUMBERS)
        return (struct groups){(uint64_t)m->key_heads, {heads, heads}};
    return (struct groups){(uint64_t)m->key_heads, {key, key, values, values}};
}

static bool is_grouped(enum decoder_order order)
{
    return order == DECODER_GROUPS || order == DECODER_GATED || order == DECODER_MIXED_GROUPS ||
           order == DECODER_MIXED_NUMBERS;
}

/* Adds rows that the file has group by group. The unit has all rows of a kind together, from row
 * `first` on. */
static void add_groups(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                       const struct decoder_tensor *t, const struct decoder_tensors *tensors,
                       uint64_t first)
{
    const struct groups g = groups_of(d, t->order);
    uint64_t group = 0, in_group = 0;
    for (size_t i = 0; g.kinds[i]; i++)
        group += g.kinds[i];
    for (size_t i = 0; g.kinds[i]; in_group += g.kinds[i++])
        decoder_add_piece(graph, unit, t, tensors,
                          (struct zinf_row_map){
                              .file_first = in_group,
                              .file_stride = group,
                              .flat_first = first + g.n * in_group,
                              .flat_stride = g.kinds[i],
                              .rows = g.kinds[i],
                              .count = g.n,
                          });
}

/* Rows that follow each other here from `first` on. Those that take turns in the file are two
 * pieces. */
static void add_run(struct zinf_graph *graph, uint32_t unit, const struct decoder_tensor *t,
                    const struct decoder_tensors *tensors, uint64_t first)
{
    const uint64_t half = t->rows / 2;
    if (t->order != DECODER_ROWS_BY_TURNS && t->order != DECODER_COLUMNS_BY_TURNS) {
        decoder_add_piece(graph, unit, t, tensors,
                          (struct zinf_row_map){.flat_first = first, .rows = t->rows, .count = 1});
        return;
    }
    for (uint64_t odd = 0; odd < 2; odd++)
        decoder_add_piece(graph, unit, t, tensors,
                          (struct zinf_row_map){.file_first = odd,
                                                .file_stride = 2,
                                                .flat_first = first + odd * half,
                                                .flat_stride = 1,
                                                .rows = 1,
                                                .count = half});
}

bool decoder_decays(enum decoder_place place)
{
    return place == DECODER_MIXER_A_LOG || place == DECODER_MIXER_SKIP ||
           place == DECODER_GATE_NORM || place == DECODER_ALPHAS;
}

void decoder_add_tensors(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                         const struct decoder_tensors *tensors, int at[DECODER_PLACES])
{
    const struct decoder_tensor *list = tensors->list;
    for (int place = 0; place < DECODER_PLACES; place++)
        at[place] = -1;
    for (size_t i = 0, next; i < tensors->n; i = next) {
        struct zinf_tensor tensor = {
            .rank = list[i].cols ? 2 : 1,
            .cols = list[i].cols ? list[i].cols : 1,
            .decay = list[i].cols != 0 || decoder_decays(list[i].place),
            .init = list[i].init,
            .init_std = list[i].std,
        };
        for (next = i; next < tensors->n && list[next].place == list[i].place; next++)
            tensor.rows += list[next].rows;
        at[list[i].place] = (int)zinf_graph_add_tensor(graph, unit, &tensor);
        for (uint64_t first = 0; i < next; first += list[i++].rows)
            if (is_grouped(list[i].order))
                add_groups(graph, unit, d, &list[i], tensors, first);
            else
                add_run(graph, unit, &list[i], tensors, first);
    }
}
