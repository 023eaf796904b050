/*
 * part_shard_whole: attention of shards backward: the gradients of what all ranks have whole,
 * though each shard makes its part of them: a table of biases by distance, sinks, norms of heads.
 */
#include "model/stages/part_shard.h"

/* w and b of queries, then of keys. */
enum { HEAD_NORMS = 4 };

uint64_t attention_norm_elems(const struct attention_spec *s)
{
    return zinf_align_up((uint64_t)(HEAD_NORMS * s->head_dim), ZINF_MOST_SHARDS);
}

uint64_t attention_table_rows(const struct attention_spec *s)
{
    return (uint64_t)s->distance.n_buckets * (s->distance.both_ways ? 2 : 1);
}

/* As frame_grad, of the numbers of a shard's norms. */
static void norm_gradients(const struct zinf_frame *f, const struct attention_spec *s,
                           float *list[HEAD_NORMS])
{
    const int tensors[HEAD_NORMS] = {s->q_norm.w, s->q_norm.b, s->k_norm.w, s->k_norm.b};
    for (int i = 0; i < HEAD_NORMS; i++)
        list[i] = s->whole_norms ? NULL : frame_grad(f, 0, tensors[i]);
}

void attention_place_norms(const struct zinf_frame *f, struct attention_spec *part, float *own)
{
    float **const places[HEAD_NORMS] = {&part->q_norm.d_w, &part->q_norm.d_b, &part->k_norm.d_w,
                                        &part->k_norm.d_b};
    float *wanted[HEAD_NORMS];
    norm_gradients(f, part, wanted);
    for (int i = 0; own && i < HEAD_NORMS; i++)
        if (wanted[i])
            *places[i] = own + i * part->head_dim;
}

float *attention_table_gradient(const struct zinf_frame *f, const struct attention_spec *s)
{
    return s->distance.n_buckets ? frame_grad(f, s->distance.unit, s->distance.table) : NULL;
}

int attention_join_heads(struct zinf_frame *f, const struct attention_spec *s, float *found,
                         uint64_t rows, float *whole)
{
    const struct zinf_shards *c = &f->graph->shards;
    const int64_t heads = s->n_heads / c->of;
    const uint64_t part = rows * (uint64_t)heads;
    int code = shard_gather(f, found, c->n * part * sizeof *found);
    for (uint32_t i = 0; !code && i < c->of; i++) {
        const struct zinf_heads args = {
            .dtype = ZINF_DTYPE_F32,
            .rows = (int64_t)rows,
            .n_heads = 1,
            .cols = heads,
            .x = shard_at(f, found, i * part * sizeof *found),
            .x_ld = heads,
            .y = shard_at(f, whole, i * (uint64_t)heads * sizeof *whole),
            .y_ld = s->n_heads,
        };
        code = frame_heads(f, &args);
    }
    return code;
}

int attention_sum_norms(struct zinf_frame *f, const struct attention_spec *s, const float *found)
{
    const uint64_t bytes = (uint64_t)s->head_dim * sizeof *found, elems = attention_norm_elems(s);
    float *wanted[HEAD_NORMS], *total = frame_scratch(f, elems * sizeof *total);
    int code = shard_sum_found(f, found, elems, total);
    norm_gradients(f, s, wanted);
    for (uint64_t i = 0; !code && i < HEAD_NORMS; i++)
        if (wanted[i])
            code = frame_copy(f, wanted[i], shard_at(f, total, i * bytes), bytes);
    return code;
}

bool attention_wants_norms(const struct zinf_frame *f, const struct attention_spec *s)
{
    float *wanted[HEAD_NORMS];
    bool any = false;
    norm_gradients(f, s, wanted);
    for (int i = 0; i < HEAD_NORMS; i++)
        any |= wanted[i] != NULL;
    return any;
}
