/*
 * part_whole_norms: norms over all queries of a row, and over all keys, where shards have some of
 * the heads each: rows are gathered from all shards, normalised whole by every rank, and each takes
 * its own. So are gradients, from which every rank makes those of the weights. Where several shards
 * have the same keys, the gradient there is the sum of theirs, and the first of them gets it.
 */
#include "model/shards.h"

/* One of the two norms, and its columns. */
struct whole {
    const struct norm_spec *norm;
    struct norm_kept kept;
    int64_t cols;          /* of a shard */
    uint32_t n, n_sharing; /* groups of shards with other columns; shards of a group */
};

enum { QUERIES, KEYS, KINDS };

static struct whole whole_of(const struct zinf_frame *f, const struct attention_shards *kept,
                             int kind)
{
    const struct attention_spec *s = kept->s;
    const struct zinf_shards *c = &f->graph->shards;
    const struct shard_groups groups = shard_groups_of(c, s->n_kv_heads);
    if (kind == QUERIES)
        return (struct whole){&s->q_norm, kept->q_norm, s->n_heads / c->of * s->head_dim, c->of, 1};
    return (struct whole){&s->k_norm, kept->k_norm, groups.heads * s->head_dim,
                          c->of / groups.shards, groups.shards};
}

static struct shard_rows columns_of(const struct head_rows *rows, int kind)
{
    return (struct shard_rows){kind == QUERIES ? rows->q : rows->k, rows->ld};
}

/* Where a group's columns are in whole rows. */
static struct shard_rows group_at(const struct zinf_frame *f, const struct whole *w, void *rows,
                                  uint32_t group)
{
    return (struct shard_rows){shard_at(f, rows, group * (uint64_t)w->cols * frame_width(f)),
                               w->n * w->cols};
}

/* ---- whole rows ---- */

/* The first shard's columns become the sum over the group's; all [rows][cols], one after the
 * other. */
static int add_sharing(struct zinf_frame *f, const struct whole *w, void *all, uint32_t group)
{
    const uint64_t bytes = frame_rows_bytes(f, w->cols), first = group * w->n_sharing;
    int code = 0;
    for (uint64_t i = 1; !code && i < w->n_sharing; i++) {
        void *sum = shard_at(f, all, first * bytes);
        const struct zinf_residual args = {.dtype = f->compute->dtype,
                                           .n = frame_rows(f) * w->cols,
                                           .x = sum,
                                           .r = shard_at(f, all, (first + i) * bytes),
                                           .y = sum};
        code = frame_residual(f, &args);
    }
    return code;
}

/* All shards' columns to whole rows; sums: what shards of a group have is added up. */
static int make_whole(struct zinf_frame *f, const struct whole *w, const struct shard_rows *own,
                      bool sums, void *rows)
{
    const uint64_t mark = frame_mark(f), bytes = frame_rows_bytes(f, w->cols);
    void *all = frame_scratch(f, f->graph->shards.of * bytes);
    int code = shard_gather_rows(f, own, w->cols, all);
    for (uint32_t g = 0; !code && g < w->n; g++) {
        const struct shard_rows first = {shard_at(f, all, g * w->n_sharing * bytes), w->cols};
        code = sums ? add_sharing(f, w, all, g) : 0;
        if (!code)
            code = shard_copy_rows(f, w->cols, first, group_at(f, w, rows, g));
    }
    frame_release(f, mark);
    return code;
}

/* ---- the part ---- */

void whole_norms_keep(struct zinf_frame *f, const struct attention_spec *s,
                      struct attention_shards *kept)
{
    const struct zinf_shards *c = &f->graph->shards;
    const struct shard_groups groups = shard_groups_of(c, s->n_kv_heads);
    const int64_t cols = (s->n_heads / c->of + groups.heads) * s->head_dim;
    if (!s->whole_norms)
        return;
    kept->q_norm = part_norm_keep(f, &s->q_norm, 1);
    kept->k_norm = part_norm_keep(f, &s->k_norm, 1);
    for (uint32_t i = 0; !frame_decoding(f) && i < c->n; i++)
        kept->before[i] = frame_keep(f, frame_rows_bytes(f, cols));
}

/* A shard's queries and keys, which are beside each other in what is kept. */
static struct head_rows kept_rows(const struct zinf_frame *f, const struct attention_shards *kept,
                                  uint32_t shard)
{
    const struct whole q = whole_of(f, kept, QUERIES), k = whole_of(f, kept, KEYS);
    void *rows = kept->before[shard];
    return (struct head_rows){.q = rows,
                              .k = shard_at(f, rows, (uint64_t)q.cols * frame_width(f)),
                              .ld = q.cols + k.cols};
}

static int normalise(struct zinf_frame *f, const struct attention_shards *kept,
                     const struct head_rows *rows, int kind)
{
    const struct zinf_shards *c = &f->graph->shards;
    const struct whole w = whole_of(f, kept, kind);
    const uint64_t mark = frame_mark(f);
    void *all = frame_scratch(f, frame_rows_bytes(f, w.n * w.cols));
    struct shard_rows own[ZINF_MOST_SHARDS];
    int code = 0;
    for (uint32_t i = 0; !code && i < c->n; i++) {
        const struct head_rows before = kept_rows(f, kept, i);
        own[i] = columns_of(&rows[i], kind);
        code =
            frame_decoding(f) ? 0 : shard_copy_rows(f, w.cols, own[i], columns_of(&before, kind));
    }
    if (!code)
        code = make_whole(f, &w, own, false, all);
    struct zinf_norm norm = part_norm(f, w.norm, w.n * w.cols, all, w.kept);
    norm.y = all;
    if (!code)
        code = frame_norm(f, &norm);
    for (uint32_t i = 0; !code && i < c->n; i++)
        code =
            shard_copy_rows(f, w.cols, group_at(f, &w, all, (c->first + i) / w.n_sharing), own[i]);
    frame_release(f, mark);
    return code;
}

int whole_norms_forward(struct zinf_frame *f, const struct attention_shards *kept,
                        const struct head_rows *rows)
{
    int code = 0;
    for (int kind = 0; !code && kept->s->whole_norms && kind < KINDS; kind++)
        code = normalise(f, kept, rows, kind);
    return code;
}

static int normalise_backward(struct zinf_frame *f, const struct attention_shards *kept,
                              const struct head_rows *rows, int kind)
{
    const struct zinf_shards *c = &f->graph->shards;
    const struct whole w = whole_of(f, kept, kind);
    const uint64_t mark = frame_mark(f), bytes = frame_rows_bytes(f, w.n * w.cols);
    void *x = frame_scratch(f, bytes), *d = frame_scratch(f, bytes);
    struct shard_rows own[ZINF_MOST_SHARDS], before[ZINF_MOST_SHARDS];
    for (uint32_t i = 0; i < c->n; i++) {
        const struct head_rows products = kept_rows(f, kept, i);
        before[i] = columns_of(&products, kind);
        own[i] = columns_of(&rows[i], kind);
    }
    int code = make_whole(f, &w, before, false, x);
    if (!code)
        code = make_whole(f, &w, own, true, d);
    struct zinf_norm norm = part_norm(f, w.norm, w.n * w.cols, x, w.kept);
    norm.dy = norm.dx = d;
    norm.dw = frame_grad(f, 0, w.norm->w);
    norm.db = frame_grad(f, 0, w.norm->b);
    if (!code)
        code = frame_norm_backward(f, &norm);
    for (uint32_t i = 0; !code && i < c->n; i++) {
        const uint32_t all = c->first + i;
        const struct shard_rows from = group_at(f, &w, d, all / w.n_sharing), none = {NULL, 0};
        code = shard_copy_rows(f, w.cols, all % w.n_sharing ? none : from, own[i]);
    }
    frame_release(f, mark);
    return code;
}

int whole_norms_backward(struct zinf_frame *f, const struct attention_shards *kept,
                         const struct head_rows *rows)
{
    int code = 0;
    for (int kind = 0; !code && kept->s->whole_norms && kind < KINDS; kind++)
        code = normalise_backward(f, kept, rows, kind);
    return code;
}
