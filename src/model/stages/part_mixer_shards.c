/*
 * part_mixer_shards: a recurrent mixer, shard by shard, as tensor parallel cuts it: each shard has
 * some of the heads, with their columns of the convolution, and the product behind them is a sum
 * over shards. Where key heads are fewer than shards, several shards make the queries and keys of
 * one, of weights that all ranks have whole; the gradients of these are sums over shards, to which
 * each adds at its key head's place.
 *
 * A norm over columns of several shards is made of whole rows, which are gathered from all of them:
 * every rank normalises them and takes its own, and makes the gradients of its weights.
 */
#include "model/stages/part_shard.h"

/* ---- a shard's part of the spec: without the norm, which is of whole rows ---- */

static bool shares_keys(const struct zinf_frame *f, const struct attention_spec *s)
{
    return mixer_shares_keys(&s->mixer, f->graph->shards.of);
}

/* Whether the norm behind the scan is over columns of several shards. */
static bool norm_spans(const struct zinf_frame *f, const struct attention_spec *s)
{
    return s->mixer.norm.w >= 0 && s->mixer.norm_groups % (int64_t)f->graph->shards.of;
}

/* Factors in the order of a shard's columns; those of the spec are gate, v, k, q, a. */
static struct scales_spec scales_of(const struct scales_spec *all, const struct mixer_spec *part)
{
    const int64_t keys = part->key_heads * part->key_dim, heads = part->value_heads;
    const int64_t values = heads * part->value_dim;
    if (!all->n)
        return *all;
    return (struct scales_spec){5,
                                {{keys, all->ranges[3].factor},
                                 {keys, all->ranges[2].factor},
                                 {values, all->ranges[1].factor},
                                 {values, all->ranges[0].factor},
                                 {heads, all->ranges[4].factor}}};
}

static struct attention_spec part_of(const struct zinf_frame *f, const struct attention_spec *s,
                                     uint32_t shard)
{
    const struct zinf_shards *c = &f->graph->shards;
    const int64_t n = c->of;
    struct attention_spec part = *s;
    struct mixer_spec *m = &part.mixer;
    part.norm.w = part.after.w = -1;
    part.carried_pieces = c->n;
    part.carried_piece = shard;
    m->conv_w = shard_tensor(m->conv_w, shard);
    m->conv_b = shard_tensor(m->conv_b, shard);
    if (m->gates) {
        m->value_dim /= n;
        return part;
    }
    m->keys_first = true;
    m->value_heads /= n;
    m->key_heads = shares_keys(f, s) ? 1 : m->key_heads / n;
    m->a_log = shard_tensor(m->a_log, shard);
    m->step_bias = shard_tensor(m->step_bias, shard);
    m->skip = shard_tensor(m->skip, shard);
    m->norm.w = norm_spans(f, s)                      ? -1
                : mixer_norm_is_cut(&s->mixer, c->of) ? shard_tensor(m->norm.w, shard)
                                                      : m->norm.w;
    m->norm_groups = m->norm.w < 0 ? 1 : m->norm_groups / n;
    part.scales = scales_of(&s->scales, m);
    return part;
}

/* A shard's rows of what the projection takes, in scratch. */
static void *take_results(struct zinf_frame *f, const struct attention_spec *part)
{
    return frame_scratch(f, frame_rows_bytes(f, mixer_result_cols(part)));
}

void mixer_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                       struct attention_shards *kept)
{
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, s, i);
        kept->of[i] = attention_keep(f, &part);
    }
}

/* ---- queries and keys that several shards have ---- */

/* Their columns in a row of the entry, which are the first; 0: they are among the shard's own. */
static int64_t key_cols(const struct zinf_frame *f, const struct attention_spec *s)
{
    return shares_keys(f, s) ? 2 * s->mixer.key_dim : 0;
}

/* The first of the shard's rows in tensors of all key heads. */
static int64_t first_key(const struct zinf_frame *f, const struct attention_spec *s, uint32_t shard)
{
    const struct zinf_shards *c = &f->graph->shards;
    return (c->first + shard) * s->mixer.key_heads / c->of * key_cols(f, s);
}

/* Numbers of which each shard has some and others are 0, one behind the other: gradients of what
 * all ranks have whole, but the weight of keys. */
struct whole {
    uint64_t biases, taps, tap_biases, norms, all;
};

static struct whole whole_of(const struct zinf_frame *f, const struct attention_spec *s)
{
    const struct mixer_spec *m = &s->mixer;
    const uint64_t keys = (uint64_t)(m->key_heads * key_cols(f, s));
    const bool norms =
        m->norm.w >= 0 && !norm_spans(f, s) && !mixer_norm_is_cut(m, f->graph->shards.of);
    struct whole w;
    w.biases = 0;
    w.taps = w.biases + (s->kv_b >= 0 ? keys : 0);
    w.tap_biases = w.taps + keys * (uint64_t)m->width;
    w.norms = w.tap_biases + (m->keys_conv_b >= 0 ? keys : 0);
    w.all = zinf_align_up(w.norms + (norms ? (uint64_t)m->value_dim : 0), ZINF_MOST_SHARDS);
    return w;
}

/* The convolution's weights or biases, in scratch: those of keys, then the shard's own. */
static int join_taps(struct zinf_frame *f, int keys, int own, int64_t first, int64_t n_keys,
                     int64_t n_own, const void **out)
{
    const uint64_t width = frame_width(f);
    void *all = frame_scratch(f, (uint64_t)(n_keys + n_own) * width);
    const void *from = frame_weight(f, 0, keys);
    int code =
        frame_copy(f, all, shard_at(f, from, (uint64_t)first * width), (uint64_t)n_keys * width);
    if (!code)
        code = frame_copy(f, shard_at(f, all, (uint64_t)n_keys * width), frame_weight(f, 0, own),
                          (uint64_t)n_own * width);
    *out = all;
    return code;
}

/* What the shard's convolution takes where its weights are two tensors. */
static int take_taps(struct zinf_frame *f, const struct attention_spec *s, uint32_t shard,
                     struct attention_spec *part)
{
    struct mixer_spec *m = &part->mixer;
    const int64_t keys = key_cols(f, s), own = m->value_heads * m->value_dim, width = m->width;
    const int64_t first = first_key(f, s, shard);
    if (!keys)
        return 0;
    int code =
        join_taps(f, m->keys_conv_w, m->conv_w, first * width, keys * width, own * width, &m->taps);
    if (!code && m->conv_b >= 0)
        code = join_taps(f, m->keys_conv_b, m->conv_b, first, keys, own, &m->tap_biases);
    return code;
}

/* ---- products ---- */

struct call {
    const struct attention_spec *s;
    const struct attention_shards *kept;
    const void *rows;       /* backward: what the products take */
    void *const *gradients; /* of the shards' products */
    void *const *results;   /* [shards]: what the projections take */
};

/* Behind the columns of keys. */
static struct shard_product own_columns(const struct zinf_frame *f, const struct call *c,
                                        uint32_t shard)
{
    const struct attention_spec part = part_of(f, c->s, shard);
    const int64_t all = mixer_entry_cols(&part);
    return (struct shard_product){.weight = shard_tensor(c->s->qkv_w, shard),
                                  .bias = shard_tensor(c->s->qkv_b, shard),
                                  .rows = all - key_cols(f, c->s),
                                  .ld = all};
}

static void *own_rows(const struct zinf_frame *f, const struct call *c, void *entry)
{
    return shard_at(f, entry, (uint64_t)key_cols(f, c->s) * frame_width(f));
}

static struct shard_product key_columns(const struct zinf_frame *f, const struct call *c,
                                        uint32_t shard)
{
    const struct attention_spec part = part_of(f, c->s, shard);
    return (struct shard_product){.weight = c->s->kv_w,
                                  .bias = c->s->kv_b,
                                  .rows = key_cols(f, c->s),
                                  .first = first_key(f, c->s, shard),
                                  .ld = mixer_entry_cols(&part)};
}

/* The sum's first part has the bias. */
static struct shard_product project(const struct zinf_frame *f, const struct call *c,
                                    uint32_t shard)
{
    const struct attention_spec part = part_of(f, c->s, shard);
    const int64_t rows = mixer_result_cols(&part);
    const bool first = !(f->graph->shards.first + shard);
    return (struct shard_product){.weight = shard_tensor(c->s->proj_w, shard),
                                  .bias = first ? c->s->proj_b : -1,
                                  .rows = rows,
                                  .ld = rows};
}

/* ---- forward ---- */

/* A shard's entry, and from there to what its scan gives. */
static int attend(struct zinf_frame *f, const struct call *c, uint32_t shard)
{
    struct attention_spec part = part_of(f, c->s, shard);
    const struct attention_kept *kept = &c->kept->of[shard];
    const struct shard_product own = own_columns(f, c, shard), keys = key_columns(f, c, shard);
    const uint64_t mark = frame_mark(f);
    int code = shard_columns(f, &own, c->rows, own_rows(f, c, kept->qkv));
    if (!code && keys.rows)
        code = shard_columns(f, &keys, c->rows, kept->qkv);
    if (!code)
        code = part_scale_columns(f, &part.scales, own.ld, kept->qkv);
    if (!code)
        code = take_taps(f, c->s, shard, &part);
    if (!code)
        code = mixer_attend(f, &part, kept);
    frame_release(f, mark);
    return code;
}

static int attend_all(struct zinf_frame *f, const struct call *c)
{
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++)
        code = attend(f, c, i);
    return code;
}

/* Rows of all shards beside each other, [rows][all columns], in scratch. */
static int gather_whole(struct zinf_frame *f, const struct attention_spec *s, void *const *own,
                        void **whole)
{
    const uint32_t n = f->graph->shards.of;
    const int64_t all = mixer_result_cols(s), cols = all / n;
    const uint64_t bytes = frame_rows_bytes(f, cols);
    struct shard_rows rows[ZINF_MOST_SHARDS];
    *whole = frame_scratch(f, n * bytes);
    const uint64_t mark = frame_mark(f);
    void *apart = frame_scratch(f, n * bytes);
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        rows[i] = (struct shard_rows){own[i], cols};
    int code = shard_gather_rows(f, rows, cols, apart);
    for (uint32_t i = 0; !code && i < n; i++)
        code = shard_copy_rows(
            f, cols, (struct shard_rows){shard_at(f, apart, i * bytes), cols},
            (struct shard_rows){shard_at(f, *whole, i * (uint64_t)cols * frame_width(f)), all});
    frame_release(f, mark);
    return code;
}

/* This rank's columns of whole rows back. */
static int take_own(struct zinf_frame *f, const struct attention_spec *s, void *whole,
                    void *const *own)
{
    const struct zinf_shards *c = &f->graph->shards;
    const int64_t all = mixer_result_cols(s), cols = all / c->of;
    int code = 0;
    for (uint32_t i = 0; !code && i < c->n; i++) {
        const uint64_t at = (c->first + i) * (uint64_t)cols * frame_width(f);
        code = shard_copy_rows(f, cols, (struct shard_rows){shard_at(f, whole, at), all},
                               (struct shard_rows){own[i], cols});
    }
    return code;
}

/* A norm that spans shards: of x [shards], to y, which may be x. */
static int normalise_whole(struct zinf_frame *f, const struct attention_spec *s, void *const *x,
                           void *const *y)
{
    const uint64_t mark = frame_mark(f);
    void *whole;
    int code = gather_whole(f, s, x, &whole);
    if (!code)
        code = mixer_normalise(f, s, whole, whole);
    if (!code)
        code = take_own(f, s, whole, y);
    frame_release(f, mark);
    return code;
}

/* And from dy to the gradient at x, in its place. */
static int normalise_whole_backward(struct zinf_frame *f, const struct attention_spec *s,
                                    void *const *x, void *const *dy)
{
    const uint64_t mark = frame_mark(f);
    void *whole, *d_whole;
    int code = gather_whole(f, s, x, &whole);
    if (!code)
        code = gather_whole(f, s, dy, &d_whole);
    if (!code)
        code = mixer_normalise_backward(f, s, whole, d_whole, d_whole);
    if (!code)
        code = take_own(f, s, d_whole, dy);
    frame_release(f, mark);
    return code;
}

/* What scans gave, [shards]. */
static void scanned(const struct zinf_frame *f, const struct call *c, void *out[ZINF_MOST_SHARDS])
{
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        out[i] = c->kept->of[i].out;
}

/* Of each shard, from what its scan gave to what the norm within shards, or none, makes of it and
 * the gate; a norm in front of the gate that spans shards has been made, in results. */
static int gate_all(struct zinf_frame *f, const struct call *c)
{
    const bool normed = norm_spans(f, c->s) && !c->s->mixer.gate_first;
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, c->s, i);
        struct attention_kept kept = c->kept->of[i];
        kept.out = normed ? c->results[i] : kept.out;
        code = mixer_result(f, &part, &kept, c->results[i]);
    }
    return code;
}

/* What the projections take. */
static int make_results(struct zinf_frame *f, const struct call *c)
{
    const bool spans = norm_spans(f, c->s), gate_first = c->s->mixer.gate_first;
    void *own[ZINF_MOST_SHARDS] = {NULL};
    scanned(f, c, own);
    int code = spans && !gate_first ? normalise_whole(f, c->s, own, c->results) : 0;
    if (!code)
        code = gate_all(f, c);
    if (!code && spans && gate_first)
        code = normalise_whole(f, c->s, c->results, c->results);
    return code;
}

static int projection_input(struct zinf_frame *f, const void *call, uint32_t shard, const void **x)
{
    const struct call *c = call;
    (void)f;
    *x = c->results[shard];
    return 0;
}

static int make_projection(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct shard_product p = project(f, c, shard);
    return shard_depth(f, &p, c->results[shard], out);
}

int mixer_shards_forward(struct zinf_frame *f, const struct attention_shards *kept,
                         const void *rows, const void *x, void *y, bool again)
{
    void *results[ZINF_MOST_SHARDS];
    struct call c = {.s = kept->s, .kept = kept, .results = results};
    const struct part_entry e = attention_shards_entry(kept);
    const struct part_exit leave = attention_shards_exit(kept);
    const struct shard_sum sum = {make_projection, &c, attention_x_elems(f, kept->s)};
    const uint64_t mark = frame_mark(f);
    int code = part_rows(f, &e, rows, &c.rows);
    if (!code)
        code = attend_all(f, &c);
    frame_release(f, mark);
    if (code || (again && kept->s->after.w < 0))
        return code;
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct attention_spec part = part_of(f, kept->s, i);
        results[i] = take_results(f, &part);
    }
    code = make_results(f, &c);
    if (!code)
        code = shard_add_branch(f, &leave, &sum, x, y, again);
    frame_release(f, mark);
    return code;
}

int mixer_shards_carry(struct zinf_frame *f, const struct attention_shards *kept)
{
    struct call c = {.s = kept->s, .kept = kept};
    const struct part_entry e = attention_shards_entry(kept);
    int code = part_rows(f, &e, f->in[0], &c.rows);
    return code ? code : attend_all(f, &c);
}

/* ---- backward ---- */

/* Gradients on the way from behind the sum to the shards' products, [shards] each. */
struct leaving {
    const void *d_y;
    void *const *d_results; /* at what the projections take */
    void *const *d_out;     /* at what scans gave */
    float *whole;           /* [shards][whole_of(...).all] */
};

/* The projection's, and that at what it takes. */
static int project_backward(struct zinf_frame *f, const struct call *c, const struct leaving *l)
{
    struct shard_product p[ZINF_MOST_SHARDS];
    const void *d_y = l->d_y;
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        p[i] = project(f, c, i);
        code = shard_depth_input(f, &p[i], d_y, l->d_results[i]);
        if (!code)
            code = shard_depth_weight(f, &p[i], c->results[i], d_y);
    }
    const struct shard_adapters out = {.p = p, .dy = &d_y, .input = projection_input, .call = c};
    return code ? code : shard_depth_adapt_weights(f, &out);
}

/* From there to what scans gave, and to the gates' columns. */
static int results_backward(struct zinf_frame *f, const struct call *c, const struct leaving *l)
{
    const struct attention_spec *s = c->s;
    const bool spans = norm_spans(f, s), gate_first = s->mixer.gate_first;
    const struct whole w = whole_of(f, s);
    void *own[ZINF_MOST_SHARDS] = {NULL};
    int code = 0;
    scanned(f, c, own);
    if (spans && gate_first) {
        code = gate_all(f, c);
        if (!code)
            code = normalise_whole_backward(f, s, c->results, l->d_results);
    } else if (spans) {
        code = normalise_whole(f, s, own, c->results);
    }
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        struct attention_spec part = part_of(f, s, i);
        struct attention_kept kept = c->kept->of[i];
        kept.out = spans && !gate_first ? c->results[i] : kept.out;
        if (l->whole && frame_grad(f, 0, part.mixer.norm.w) &&
            !mixer_norm_is_cut(&s->mixer, f->graph->shards.of))
            part.mixer.norm.d_w = l->whole + i * w.all + w.norms;
        code =
            mixer_result_backward(f, &part, &kept, l->d_results[i], l->d_out[i], c->gradients[i]);
    }
    return code || !spans || gate_first ? code : normalise_whole_backward(f, s, own, l->d_out);
}

/* The gradients of a shard's convolution, to its own tensor and its place among those of keys. */
struct taps {
    float *all, *own, *keys;
    int64_t n_keys, n_own;
};

static int part_taps(struct zinf_frame *f, const struct taps *t)
{
    const uint64_t keys = (uint64_t)t->n_keys * sizeof(float);
    int code = t->all ? frame_copy(f, t->keys, t->all, keys) : 0;
    return code || !t->all ? code
                           : frame_copy(f, t->own, shard_at(f, t->all, keys),
                                        (uint64_t)t->n_own * sizeof(float));
}

/* Through the scan and the convolution of a shard. */
static int attend_backward(struct zinf_frame *f, const struct call *c, const struct leaving *l,
                           uint32_t shard)
{
    struct attention_spec part = part_of(f, c->s, shard);
    struct mixer_spec *m = &part.mixer;
    const struct whole w = whole_of(f, c->s);
    const int64_t keys = key_cols(f, c->s), own = m->value_heads * m->value_dim;
    const int64_t first = first_key(f, c->s, shard), width = m->width;
    const uint64_t mark = frame_mark(f), all = (uint64_t)(keys + own) * sizeof(float);
    float *whole = l->whole ? l->whole + shard * w.all : NULL;
    struct taps taps = {
        .own = frame_grad(f, 0, m->conv_w), .n_keys = keys * width, .n_own = own * width};
    struct taps biases = {.own = frame_grad(f, 0, m->conv_b), .n_keys = keys, .n_own = own};
    if (keys && taps.own) {
        taps.all = m->d_taps = frame_scratch(f, all * (uint64_t)width);
        taps.keys = whole + w.taps + first * width;
    }
    if (keys && biases.own) {
        biases.all = m->d_tap_biases = frame_scratch(f, all);
        biases.keys = whole + w.tap_biases + first;
    }
    int code = take_taps(f, c->s, shard, &part);
    if (!code)
        code = mixer_attend_backward(f, &part, &c->kept->of[shard], l->d_out[shard],
                                     c->gradients[shard]);
    if (!code)
        code = part_taps(f, &taps);
    if (!code)
        code = part_taps(f, &biases);
    if (!code)
        code = part_scale_columns(f, &part.scales, mixer_entry_cols(&part), c->gradients[shard]);
    frame_release(f, mark);
    return code;
}

/* Of a shard's own columns of the entry, and of its biases. */
static int own_weight(struct zinf_frame *f, const struct call *c, const struct leaving *l,
                      uint32_t shard)
{
    const struct shard_product own = own_columns(f, c, shard);
    const struct whole w = whole_of(f, c->s);
    const uint64_t keys = (uint64_t)key_cols(f, c->s) * sizeof(float), mark = frame_mark(f);
    float *dw = frame_grad(f, 0, own.weight), *db = frame_grad(f, 0, own.bias);
    void *d_entry = c->gradients[shard];
    int code = dw ? shard_columns_weight(f, &own, own_rows(f, c, d_entry), c->rows, dw) : 0;
    if (code || !db)
        return code;
    float *sums = frame_scratch(f, (uint64_t)own.ld * sizeof *sums);
    code = frame_column_sum(f, sums, d_entry, f->compute->dtype, frame_rows(f), own.ld);
    if (!code)
        code = frame_copy(f, db, shard_at(f, sums, keys), (uint64_t)own.rows * sizeof *db);
    if (!code && keys)
        code = frame_copy(f, l->whole + shard * w.all + w.biases + first_key(f, c->s, shard), sums,
                          keys);
    frame_release(f, mark);
    return code;
}

/* A shard's part of the gradient of the rows of all keys. */
static int make_key_weight(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct call *c = call;
    const struct shard_product keys = key_columns(f, c, shard);
    const uint64_t row = (uint64_t)c->s->hidden * sizeof *out;
    int code = frame_zero(f, out, (uint64_t)(c->s->mixer.key_heads * keys.rows) * row);
    return code ? code
                : shard_columns_weight(f, &keys, c->gradients[shard], c->rows,
                                       shard_at(f, out, (uint64_t)keys.first * row));
}

/* n numbers of the sum to the gradient of a tensor. */
static int give(struct zinf_frame *f, int tensor, const float *total, uint64_t n)
{
    float *to = frame_grad(f, 0, tensor);
    return to && n ? frame_copy(f, to, total, n * sizeof *to) : 0;
}

static int sum_whole(struct zinf_frame *f, const struct attention_spec *s, const float *found)
{
    const struct whole w = whole_of(f, s);
    const uint64_t mark = frame_mark(f);
    float *total = frame_scratch(f, w.all * sizeof *total);
    const uint64_t keys = (uint64_t)(s->mixer.key_heads * key_cols(f, s));
    int code = shard_sum_found(f, found, w.all, total);
    if (!code)
        code = give(f, s->kv_b, total + w.biases, keys);
    if (!code)
        code = give(f, s->mixer.keys_conv_w, total + w.taps, keys * (uint64_t)s->mixer.width);
    if (!code)
        code = give(f, s->mixer.keys_conv_b, total + w.tap_biases, keys);
    if (!code && !norm_spans(f, s) && !mixer_norm_is_cut(&s->mixer, f->graph->shards.of))
        code = give(f, s->mixer.norm.w, total + w.norms, (uint64_t)s->mixer.value_dim);
    frame_release(f, mark);
    return code;
}

/* Of all that has weights in front of the scans, from the gradients of the shards' products. */
static int weights_backward(struct zinf_frame *f, const struct call *c, const struct leaving *l)
{
    const uint32_t n = f->graph->shards.n;
    const uint64_t keys = (uint64_t)(c->s->mixer.key_heads * key_cols(f, c->s));
    const struct shard_sum key_weight = {make_key_weight, c, keys * (uint64_t)c->s->hidden};
    struct shard_product p[ZINF_MOST_SHARDS];
    const void *d_own[ZINF_MOST_SHARDS];
    float *dw = frame_grad(f, 0, c->s->kv_w);
    int code = 0;
    for (uint32_t i = 0; !code && i < n; i++) {
        p[i] = own_columns(f, c, i);
        d_own[i] = own_rows(f, c, c->gradients[i]);
        code = own_weight(f, c, l, i);
    }
    if (!code && dw && keys)
        code = shard_sum(f, &key_weight, dw);
    if (!code && l->whole)
        code = sum_whole(f, c->s, l->whole);
    const struct shard_adapters own = {.p = p, .dy = d_own, .x = c->rows, .per_weight = 1};
    return code ? code : shard_columns_adapt_weights(f, &own);
}

/* From the gradient behind the sum to those of the shards' products. */
static int leave_all(struct zinf_frame *f, const struct call *c, const void *d_y,
                     const struct part_entry *e, const void *x)
{
    const struct whole w = whole_of(f, c->s);
    const uint32_t n = f->graph->shards.n;
    const uint64_t mark = frame_mark(f), bytes = n * w.all * sizeof(float);
    void *d_results[ZINF_MOST_SHARDS], *d_out[ZINF_MOST_SHARDS];
    struct call rows = *c;
    struct leaving l = {.d_y = d_y, .d_results = d_results, .d_out = d_out};
    const bool trained = frame_grad(f, 0, c->s->qkv_w);
    l.whole = w.all && trained ? frame_scratch(f, bytes) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        const struct attention_spec part = part_of(f, c->s, i);
        d_results[i] = take_results(f, &part);
        d_out[i] = take_results(f, &part);
    }
    int code = l.whole ? frame_zero(f, l.whole, bytes) : 0;
    if (!code)
        code = make_results(f, c);
    if (!code)
        code = project_backward(f, c, &l);
    if (!code)
        code = results_backward(f, c, &l);
    for (uint32_t i = 0; !code && i < n; i++)
        code = attend_backward(f, c, &l, i);
    if (!code)
        code = part_rows(f, e, x, &rows.rows);
    if (!code)
        code = weights_backward(f, &rows, &l);
    frame_release(f, mark);
    return code;
}

int mixer_shards_leave(struct zinf_frame *f, const struct attention_shards *kept, const void *x,
                       const void *d_y, struct shard_gradients *gradients)
{
    const struct attention_spec *s = kept->s, part = part_of(f, s, 0);
    const struct part_entry e = attention_shards_entry(kept);
    const struct part_exit leave = attention_shards_exit(kept);
    void *results[ZINF_MOST_SHARDS];
    const struct call c = {.s = s, .kept = kept, .gradients = gradients->of, .results = results};
    const void *d_branch;
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        gradients->of[i] = frame_scratch(f, attention_entry_bytes(f, &part));
    const uint64_t mark = frame_mark(f);
    for (uint32_t i = 0; i < f->graph->shards.n; i++)
        results[i] = take_results(f, &part);
    int code = part_leave_backward(f, &leave, d_y, &d_branch);
    if (!code)
        code = shard_bias_gradient(f, s->proj_b, s->hidden, d_branch);
    if (!code)
        code = leave_all(f, &c, d_branch, &e, x);
    frame_release(f, mark);
    return code;
}

int mixer_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                       const struct shard_gradients *gradients, uint32_t shard, float *out,
                       float beta)
{
    const struct call c = {.s = kept->s, .kept = kept};
    const struct shard_product own = own_columns(f, &c, shard), keys = key_columns(f, &c, shard);
    void *d_entry = gradients->of[shard];
    int code = shard_columns_input(f, &own, own_rows(f, &c, d_entry), out, beta);
    return code || !keys.rows ? code : shard_columns_input(f, &keys, d_entry, out, 1);
}
