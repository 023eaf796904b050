/*
 * deepspeed_shards: whole parameters of the shards that AutoTP's ranks have. Which way a parameter
 * is cut stands in the checkpoint, under the keys that its converter to universal checkpoints reads
 * (deepspeed/checkpoint/constants.py, from 0.18 on): as regular expressions, each of one name. A
 * matrix that is cut by columns is made of a piece of each rank for every row.
 */
#include "formats/deepspeed_table.h"
#include "formats/file_span.h"
#include "formats/safetensors.h"

#include <stdlib.h>

#define INFO "universal_checkpoint_info"
#define CONVERT                                                                                    \
    "make a universal checkpoint of it with python3 -m deepspeed.checkpoint.ds_to_universal"

/* ---- how parameters are cut ---- */

/* "^a\\.b$" as "a.b", on the heap; NULL: it is more than one name, or there is no memory. */
static char *name_of(const struct zinf_pickled_text *pattern)
{
    const char *at = pattern->at, *end = at + pattern->bytes;
    char *name = malloc(pattern->bytes + 1), *to = name;
    bool plain = name && pattern->bytes > 2 && *at == '^' && end[-1] == '$';
    for (at++, end--; plain && at < end; at++) {
        const bool escaped = *at == '\\' && at + 1 < end;
        at += escaped;
        plain = *at && (escaped || !strchr("\\.^$*+?{}[]|()", *at));
        *to++ = *at;
    }
    if (!plain) {
        free(name);
        return NULL;
    }
    *to = 0;
    return name;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_names(const struct zinf_pickle *pickle, zinf_pickled list, char ***names, size_t *n,
                      const char *path)
{
    struct zinf_pickled_part at = {0};
    struct zinf_pickled_text text;
    size_t capacity = 0;
    while (zinf_pickle_walk(pickle, list, &at)) {
        if (*n == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            char **grown = capacity > ZINF_SAFETENSORS_MAX_TENSORS
                               ? NULL
                               : realloc(*names, capacity * sizeof *grown);
            if (!grown)
                return zinf_fail(-ENOMEM, "%s: no memory for so many names", path);
            *names = grown;
        }
        char *name = zinf_pickle_text(pickle, at.value, &text) ? name_of(&text) : NULL;
        if (!name)
            return zinf_fail(-ENOTSUP, "%s: " INFO " has a pattern that is not one name: " CONVERT,
                             path);
        (*names)[(*n)++] = name;
    }
    if (*n)
        qsort(*names, *n, sizeof **names, compare_names);
    return 0;
}

static bool is_empty(const struct zinf_pickle *pickle, zinf_pickled info, const char *key)
{
    struct zinf_pickled_part at = {0};
    return !zinf_pickle_walk(pickle, zinf_pickle_get(pickle, info, key), &at);
}

int deepspeed_read_cuts(struct deepspeed_cuts *out, const struct zinf_pickle *pickle,
                        const char *path)
{
    static const char *const others[] = {
        "parameter_with_sub_params", "autotp_unsupported_parameter_patterns",
        "parameter_to_average_patterns", "parameter_with_2_sub_params_cat_dim_0"};
    zinf_pickled info = zinf_pickle_get(pickle, zinf_pickle_root(pickle), INFO);
    *out = (struct deepspeed_cuts){0};
    if (!info)
        return zinf_fail(-ENOTSUP,
                         "%s is a part of a model that is cut by tensors, and does not say how "
                         "(DeepSpeed does so from 0.18 on): " CONVERT,
                         path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!is_empty(pickle, info, others[i]))
            return zinf_fail(-ENOTSUP,
                             "%s: %s in " INFO " has parameters that are cut in several parts, or "
                             "in a way that is not known: " CONVERT,
                             path, others[i]);
    int code = read_names(pickle, zinf_pickle_get(pickle, info, "tp_replicated_parameter_patterns"),
                          &out->whole, &out->n_whole, path);
    if (!code)
        code = read_names(pickle,
                          zinf_pickle_get(pickle, info, "parameter_with_row_parallelism_patterns"),
                          &out->columns, &out->n_columns, path);
    return code;
}

void deepspeed_cuts_free(struct deepspeed_cuts *cuts)
{
    for (size_t i = 0; i < cuts->n_whole; i++)
        free(cuts->whole[i]);
    for (size_t i = 0; i < cuts->n_columns; i++)
        free(cuts->columns[i]);
    free(cuts->whole);
    free(cuts->columns);
    *cuts = (struct deepspeed_cuts){0};
}

static bool has_name(char *const *names, size_t n, const char *name)
{
    return n && bsearch(&name, names, n, sizeof *names, compare_names);
}

/* ---- joining ---- */

int deepspeed_add_piece(struct parameter *p, const struct zinf_tensor_piece *piece,
                        enum zinf_file_dtype dtype, const char *path)
{
    if (!piece->n_elems)
        return 0;
    if (piece->n_elems > p->n_elems - p->n_found || (p->n_found && dtype != p->dtype))
        return zinf_fail(-EINVAL,
                         "%s: the parts of '%s' are more than its shape has: the files are not of "
                         "one checkpoint",
                         path, p->name);
    if (p->n_pieces == p->capacity) {
        uint32_t capacity = p->capacity ? 2 * p->capacity : 4;
        struct zinf_tensor_piece *pieces = realloc(p->pieces, capacity * sizeof *pieces);
        if (!pieces)
            return zinf_fail(-ENOMEM, "%s: no memory for its parameters", path);
        p->pieces = pieces;
        p->capacity = capacity;
    }
    p->pieces[p->n_pieces++] = *piece;
    p->n_found += piece->n_elems;
    p->dtype = dtype;
    return 0;
}

/* Where a shard is read on. */
struct shard {
    const struct parameter *p;
    uint32_t piece;
    uint64_t at; /* elements of the piece that are taken */
};

/* Its next n elements are the next of the whole. */
static int take(struct parameter *to, struct shard *s, uint64_t n, const char *folder)
{
    int code = 0;
    while (!code && n) {
        struct zinf_tensor_piece piece = s->p->pieces[s->piece];
        const uint64_t left = piece.n_elems - s->at, part = n < left ? n : left;
        piece.file_offset += s->at * zinf_file_dtype_bytes(s->p->dtype);
        piece.n_elems = part;
        code = deepspeed_add_piece(to, &piece, s->p->dtype, folder);
        n -= part;
        s->at += part;
        if (s->at == s->p->pieces[s->piece].n_elems) {
            s->piece++;
            s->at = 0;
        }
    }
    return code;
}

static int fail_shards(const char *folder, const char *name)
{
    return zinf_fail(-EINVAL,
                     "%s: the shards of '%s' do not belong together: the files of some "
                     "tensor-parallel ranks are of another checkpoint, or missing",
                     folder, name);
}

/* The shape of the whole, whose shards differ in `axis` alone. */
static int join_shapes(struct parameter *to, const struct shard *shards, uint32_t n, int axis,
                       const char *folder)
{
    struct zinf_tensor_info info = {.dtype = ZINF_FILE_F32, .rank = shards[0].p->rank};
    memcpy(info.shape, shards[0].p->shape, sizeof info.shape);
    if (axis >= info.rank)
        return fail_shards(folder, to->name);
    for (uint32_t s = 1; s < n; s++) {
        const struct parameter *p = shards[s].p;
        bool same = p->rank == info.rank && p->trained == shards[0].p->trained;
        for (int d = 0; same && d < info.rank; d++)
            same = d == axis || p->shape[d] == info.shape[d];
        if (!same || __builtin_add_overflow(info.shape[axis], p->shape[axis], &info.shape[axis]))
            return fail_shards(folder, to->name);
    }
    if (!zinf_tensor_size(&info))
        return fail_shards(folder, to->name);
    memcpy(to->shape, info.shape, sizeof to->shape);
    to->n_elems = info.n_elems;
    return 0;
}

/* shards[0].p is *whole as it was; it becomes the whole. */
static int join_parameter(struct parameter *whole, struct shard *shards, uint32_t n, int axis,
                          const char *folder)
{
    struct parameter joined = *whole, first = *whole;
    joined.pieces = NULL;
    joined.n_pieces = joined.capacity = 0;
    joined.n_found = 0;
    shards[0].p = &first;
    int code = join_shapes(&joined, shards, n, axis, folder);
    const uint64_t rounds = axis ? joined.shape[0] : 1;
    for (uint64_t r = 0; !code && r < rounds; r++)
        for (uint32_t s = 0; !code && s < n; s++)
            code = take(&joined, &shards[s], shards[s].p->n_elems / rounds, folder);
    if (code) {
        free(joined.pieces);
        return code;
    }
    free(first.pieces);
    *whole = joined;
    return 0;
}

static int join_at(struct zinf_deepspeed_table *const *tables, uint32_t n, uint64_t i,
                   const struct deepspeed_cuts *cuts, struct shard *shards, const char *folder)
{
    struct parameter *whole = &tables[0]->all[i];
    for (uint32_t s = 0; s < n; s++) {
        const struct parameter *p = &tables[s]->all[i];
        if (strcmp(p->name, whole->name) != 0 || p->n_found != p->n_elems)
            return p->n_found || p->n_pieces || p->trained ? fail_shards(folder, whole->name) : 0;
        shards[s] = (struct shard){.p = p};
    }
    if (has_name(cuts->whole, cuts->n_whole, whole->name))
        return 0;
    const int axis = has_name(cuts->columns, cuts->n_columns, whole->name);
    return axis && whole->rank != 2 ? fail_shards(folder, whole->name)
                                    : join_parameter(whole, shards, n, axis, folder);
}

int deepspeed_join(struct zinf_deepspeed_table *const *tables, uint32_t n,
                   const struct deepspeed_cuts *cuts, const char *folder)
{
    struct shard *shards = calloc(n, sizeof *shards);
    int code = shards ? 0 : zinf_fail(-ENOMEM, "no memory to join the shards of %s", folder);
    for (uint32_t s = 1; !code && s < n; s++)
        if (tables[s]->n != tables[0]->n)
            code = fail_shards(folder, "all parameters");
    for (uint64_t i = 0; !code && i < tables[0]->n; i++)
        code = join_at(tables, n, i, cuts, shards, folder);
    free(shards);
    return code;
}
