/*
 * decoder_mixer_shards: which rows of a recurrent mixer's tensors in the file are a shard's. A
 * shard has some of the value heads and their key heads. Its rows come in the order q, k, v, gate,
 * b, a, whatever order the file has. Where there are fewer key heads than shards, q and k of all
 * heads are one more tensor, which is not cut: the q and then the k of each key head.
 */
#include "model/decoder_shards.h"

/* Kinds of rows. A convolution between gates has three parts, which are V, GATE and B here. */
enum kind { Q, K, V, GATE, B, A, KINDS };

/* The rows of a kind in the source: a run in each group of rows. */
struct runs {
    uint64_t all; /* number of rows; 0: the mixer has no such rows */
    uint64_t first, rows, stride;
};

struct layout {
    struct runs of[KINDS];
    bool shares; /* keys are not cut */
};

static bool is_convolution(const struct shards_source *s)
{
    return s->first->place == DECODER_MIXER_CONV_W || s->first->place == DECODER_MIXER_CONV_B;
}

static void count_rows(const struct mixer_spec *m, bool convolution, uint64_t all[KINDS])
{
    const bool delta = m->rule == ZINF_RECURRENCE_DELTA;
    const uint64_t keys = (uint64_t)(m->key_heads * m->key_dim), heads = (uint64_t)m->value_heads;
    const uint64_t values = heads * (uint64_t)m->value_dim;
    all[Q] = all[K] = m->gates ? 0 : keys;
    all[V] = values;
    all[GATE] = convolution ? 0 : values;
    all[B] = convolution ? 0 : m->gates ? values : delta ? heads : 0;
    all[A] = convolution || m->gates ? 0 : heads;
}

/* The file has all rows of a kind, then those of the next one. */
static void lay_out_plain(const struct mixer_spec *m, struct layout *l)
{
    static const enum kind delta[KINDS] = {Q, K, V, GATE, B, A},
                           decay[KINDS] = {GATE, V, K, Q, A, B};
    const bool own = m->gates || m->rule == ZINF_RECURRENCE_DELTA;
    uint64_t at = 0;
    for (int i = 0; i < KINDS; i++) {
        struct runs *r = &l->of[own ? delta[i] : decay[i]];
        r->first = at;
        r->rows = r->stride = r->all;
        at += r->all;
    }
}

/* The file has rows by key head: q, k, v and gates of each in the first tensor, b and a in the
 * second one. */
static void lay_out_groups(const struct mixer_spec *m, uint64_t first_rows, struct layout *l)
{
    const uint64_t groups = (uint64_t)m->key_heads;
    uint64_t at = 0, ends[2] = {0, 0};
    for (int i = 0; i < KINDS; i++) {
        struct runs *r = &l->of[i];
        at = i == B ? 0 : at;
        r->rows = r->all / groups;
        r->first = at + (i < B ? 0 : first_rows);
        ends[i >= B] = at += r->rows;
    }
    for (int i = 0; i < KINDS; i++)
        l->of[i].stride = ends[i >= B];
}

static struct layout layout_of(const struct decoder *d, const struct shards_source *s)
{
    const struct mixer_spec *m = &d->mixer;
    struct layout l = {.shares = mixer_shares_keys(m, d->shards.of)};
    uint64_t all[KINDS];
    count_rows(m, is_convolution(s), all);
    for (int i = 0; i < KINDS; i++)
        l.of[i].all = all[i];
    if (s->first->order == DECODER_MIXED_GROUPS)
        lay_out_groups(m, s->first->rows, &l);
    else
        lay_out_plain(m, &l);
    return l;
}

/* Maps n rows of a kind from row `from` on: several runs, or a part of one. */
static struct zinf_row_map map_rows(const struct runs *r, uint64_t from, uint64_t n)
{
    const uint64_t run = n < r->rows ? n : r->rows;
    return (struct zinf_row_map){.file_first =
                                     r->first + from / r->rows * r->stride + from % r->rows,
                                 .file_stride = r->stride,
                                 .flat_stride = run,
                                 .rows = run,
                                 .count = n / run};
}

/* Returns the number of the first shard's tensor. */
static int add_own(struct zinf_graph *graph, uint32_t unit, const struct zinf_shards *c,
                   const struct decoder_tensors *tensors, const struct shards_source *s,
                   const struct layout *l)
{
    const int begin = l->shares ? V : Q;
    uint64_t rows = 0;
    int first = -1;
    for (int i = begin; i < KINDS; i++)
        rows += l->of[i].all / c->of;
    for (uint32_t shard = c->first; shard < c->first + c->n; shard++) {
        const int number = shards_add_tensor(graph, unit, s, shard, rows);
        uint64_t at = 0;
        first = first < 0 ? number : first;
        for (int i = begin; i < KINDS; i++) {
            const uint64_t n = l->of[i].all / c->of;
            if (!n)
                continue;
            struct zinf_row_map map = map_rows(&l->of[i], shard * n, n);
            map.flat_first = at;
            shards_add_rows(graph, unit, s, tensors, map);
            at += n;
        }
    }
    return first;
}

static int add_keys(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                    const struct decoder_tensors *tensors, const struct shards_source *s,
                    const struct layout *l)
{
    const uint64_t cols = s->first->cols, dim = (uint64_t)d->mixer.key_dim;
    const struct zinf_tensor tensor = {.rank = cols ? 2 : 1,
                                       .rows = l->of[Q].all + l->of[K].all,
                                       .cols = cols ? cols : 1,
                                       .decay = cols != 0,
                                       .init = s->first->init,
                                       .init_std = s->first->std,
                                       .joins = cols && shards_keep_order(s),
                                       .dealt = true};
    const int number = (int)zinf_graph_add_tensor(graph, unit, &tensor);
    for (uint64_t head = 0; head < (uint64_t)d->mixer.key_heads; head++)
        for (uint64_t key = 0; key < 2; key++) {
            struct zinf_row_map map = map_rows(&l->of[key ? K : Q], head * dim, dim);
            map.flat_first = (2 * head + key) * dim;
            shards_add_rows(graph, unit, s, tensors, map);
        }
    return number;
}

int shards_add_mixed(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                     const struct decoder_tensors *tensors, const struct shards_source *s,
                     int at[DECODER_PLACES])
{
    static const enum decoder_place keys[DECODER_PLACES] = {
        [DECODER_MIXER_IN_W] = DECODER_MIXER_KEYS_W,
        [DECODER_MIXER_IN_B] = DECODER_MIXER_KEYS_B,
        [DECODER_MIXER_CONV_W] = DECODER_MIXER_KEYS_CONV_W,
        [DECODER_MIXER_CONV_B] = DECODER_MIXER_KEYS_CONV_B,
    };
    const struct layout l = layout_of(d, s);
    const int first = add_own(graph, unit, &d->shards, tensors, s, &l);
    if (l.shares)
        at[keys[s->first->place]] = add_keys(graph, unit, d, tensors, s, &l);
    return first;
}
