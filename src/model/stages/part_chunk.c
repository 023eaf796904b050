/*
 * part_chunk: attention of a chunk's rows over the keys and values of their sequence so far, which
 * the stage carries from chunk to chunk: a row of them for each token. Backward adds the gradients
 * at those of the chunks before to what later chunks have left there, in fp32; those of the chunk's
 * own are complete then, since no chunk before it sees them.
 *
 * Where chunks are dealt in parts, or rows see later ones or another sequence, a chunk's own keys
 * and values are complete only when all chunks have added to them: attention leaves them out, and a
 * pass of its own goes back through them.
 */
#include "model/stages/stages.h"

static uint64_t kv_cols(const struct attention_spec *s)
{
    return (uint64_t)(2 * s->n_kv_heads * s->head_dim);
}

static int64_t query_cols(const struct attention_spec *s)
{
    return s->n_heads * s->head_dim;
}

/* How far back a row looks, itself included; 0: to the first. */
static int64_t reach_of(const struct attention_spec *s)
{
    return s->window ? s->window : s->piece;
}

/* Of what attention takes: queries alone where keys are of another sequence. */
static int64_t entry_cols(const struct attention_spec *s)
{
    return query_cols(s) + (s->source ? 0 : (int64_t)kv_cols(s));
}

static int check(const struct zinf_frame *f, const struct attention_spec *s)
{
    const bool ahead = s->both_ways && !f->compute->chunk.keys_first;
    const bool cut = s->carried_pieces && (s->source || s->both_ways || s->distance.n_buckets);
    const char *what = ahead ? "attention to later tokens"
                       : cut ? "an encoder, or attention to one, in parts of tensors"
                       : !f->stage->ops->carry ? "keys and values that it cannot hand over"
                                               : NULL;
    return what ? frame_refuse_chunks(f, what) : 0;
}

/* ---- what the stage carries ----
 *
 * Of a chunk's rows piece by piece, since parts of one stage, such as shards, have keys and values
 * of their own. */

static uint64_t pieces_of(const struct attention_spec *s)
{
    return s->carried_pieces ? s->carried_pieces : 1;
}

/* Numbers in front of this part's, in each chunk. */
static uint64_t numbers_before(const struct zinf_frame *f, const struct attention_spec *s)
{
    return s->carried_piece * (uint64_t)f->compute->seq * kv_cols(s);
}

/* Of the chunk that begins at the sequence's row. */
static void *carried(struct zinf_frame *f, const struct attention_spec *s, int64_t row)
{
    char *rows = frame_carried(f, pieces_of(s) * kv_cols(s), row);
    return rows ? rows + numbers_before(f, s) * frame_width(f) : NULL;
}

static float *d_carried(struct zinf_frame *f, const struct attention_spec *s, int64_t row)
{
    float *rows = frame_d_carried(f, pieces_of(s) * kv_cols(s), row);
    return rows ? rows + numbers_before(f, s) : NULL;
}

/* The segments of the chunk's keys, which later chunks compare with those of their rows. Parts of a
 * stage have the same. */
static int carry_documents(struct zinf_frame *f, const struct attention_spec *s, bool source)
{
    const struct zinf_compute *c = f->compute;
    const int64_t rows = source ? c->source_seq : frame_length(f);
    int32_t *to = s->segments ? frame_carried_documents(f, source, frame_chunk(f)) : NULL;
    return s->segments && !s->carried_piece
               ? frame_copy(f, to, f->in[source ? s->source_segments : s->segments],
                            (uint64_t)rows * sizeof *to)
               : 0;
}

/* ---- columns ---- */

/* Columns of qkv, or of its gradient, from those behind `first`, to rows of their own. */
static struct zinf_heads columns(const struct zinf_frame *f, const struct attention_spec *s,
                                 const void *qkv, int64_t first, int64_t cols, void *rows)
{
    return (struct zinf_heads){
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = 1,
        .cols = cols,
        .x = (const char *)qkv + (uint64_t)first * frame_width(f),
        .x_ld = entry_cols(s),
        .y = rows,
        .y_ld = cols,
    };
}

/* And back. */
static struct zinf_heads columns_back(const struct zinf_frame *f, const struct attention_spec *s,
                                      void *qkv, int64_t first, int64_t cols, const void *rows)
{
    struct zinf_heads a = columns(f, s, qkv, first, cols, qkv);
    a.y = (char *)qkv + (uint64_t)first * frame_width(f);
    a.y_ld = a.x_ld;
    a.x = rows;
    a.x_ld = cols;
    return a;
}

int attention_chunk_append(struct zinf_frame *f, const struct attention_spec *s, const void *qkv)
{
    void *own = carried(f, s, f->compute->chunk.first);
    const struct zinf_heads kv = columns(f, s, qkv, query_cols(s), (int64_t)kv_cols(s), own);
    int code = check(f, s);
    frame_reach(f, reach_of(s));
    if (!code)
        code = carry_documents(f, s, false);
    return code ? code : frame_heads(f, &kv);
}

int attention_chunk_append_source(struct zinf_frame *f, const struct attention_spec *s)
{
    return carry_documents(f, s, true);
}

/* Keys are taken a chunk at a time, whatever is at hand: sums over them are then the same. */
struct keys {
    int64_t row, end, step; /* of their sequence */
    int64_t first;          /* the first that any row of the chunk sees, of all parts */
    int64_t whole;          /* rows of their sequence */
};

/* Of all chunks that are visited. */
static struct keys all_keys(const struct zinf_frame *f, const struct attention_spec *s)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const int64_t step = s->source ? f->compute->source_seq : frame_length(f);
    const int64_t whole = s->source ? c->source_whole : c->whole;
    const int64_t chunks = (whole + step - 1) / step;
    return (struct keys){0, (chunks < c->visited ? chunks : c->visited) * step, step, 0, whole};
}

static struct keys keys_at_hand(const struct zinf_frame *f, const struct attention_spec *s)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    struct keys keys = all_keys(f, s);
    if (s->both_ways)
        return keys;
    const int64_t reach = reach_of(s), behind = reach ? c->first + 1 - reach : 0;
    keys.first = behind > 0 ? behind / keys.step * keys.step : 0;
    keys.row = keys.first > c->near ? keys.first : c->near;
    keys.end = c->ends ? c->first + keys.step : c->near_end;
    return keys;
}

static bool is_last(const struct keys *keys)
{
    return keys->row + keys->step >= keys->end;
}

/* The arguments of attention to the chunk of keys. Those before a row end where its own chunk does;
 * of all, the last chunk's end with their sequence. */
static void set_keys(struct zinf_frame *f, const struct attention_spec *s,
                     struct zinf_attention *args, const struct keys *keys)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const int64_t left = keys->whole - keys->row, chunk = keys->row / keys->step;
    args->key_seq = s->both_ways && left < keys->step ? left : keys->step;
    args->first_query = c->first;
    args->first_key = keys->row;
    args->whole_seq = c->whole;
    args->whole_keys = s->source ? keys->whole : 0;
    args->key_segments = s->segments ? frame_carried_documents(f, s->source, chunk) : NULL;
    args->kv = s->source ? frame_carried_source(f, kv_cols(s), chunk) : carried(f, s, keys->row);
    args->d_kv_sums =
        s->source ? frame_d_carried_source(f, kv_cols(s), chunk) : d_carried(f, s, keys->row);
}

/* Queries by themselves. */
static int take_queries(struct zinf_frame *f, const struct attention_spec *s,
                        struct zinf_attention *args)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const uint64_t keys = (uint64_t)(s->source ? c->source_whole : c->whole);
    void *queries = frame_scratch(f, (uint64_t)(frame_rows(f) * query_cols(s)) * frame_width(f));
    const struct zinf_heads apart = columns(f, s, args->qkv, 0, query_cols(s), queries);
    args->qkv = queries;
    args->dropout.element_first =
        f->compute->first_sample * (uint64_t)s->n_heads * (uint64_t)c->whole * keys;
    return frame_heads(f, &apart);
}

/* What attention keeps from one chunk of keys to the next. */
static struct zinf_attention_running running_of(struct zinf_frame *f,
                                                const struct attention_spec *s, int64_t step)
{
    const uint64_t rows = (uint64_t)frame_rows(f), elems = rows * (uint64_t)query_cols(s);
    const uint64_t numbers = rows * (uint64_t)s->n_heads * ZINF_ATTENTION_NUMBERS;
    struct zinf_attention_running running = {.sums = frame_scratch(f, elems * sizeof(float))};
    running.numbers = frame_scratch(f, numbers * sizeof(float));
    if (step % ZINF_ATTENTION_TILE)
        running.part = frame_scratch(f, elems * sizeof(float));
    return running;
}

static int attend(struct zinf_frame *f, const struct attention_spec *s,
                  const struct zinf_attention *whole)
{
    struct keys keys = keys_at_hand(f, s);
    struct zinf_attention_running running = running_of(f, s, keys.step);
    struct zinf_attention args = *whole;
    struct distance_chunks distances = {0};
    int code = take_queries(f, s, &args);
    args.running = &running;
    if (!code)
        code = distance_chunks_make(f, s, false, &distances);
    for (; !code && keys.row < keys.end; keys.row += keys.step) {
        set_keys(f, s, &args, &keys);
        running.first = keys.row == keys.first;
        running.last = f->compute->chunk.ends && is_last(&keys);
        code = distance_chunks_take(f, s, &distances, &args);
        if (!code)
            code = frame_attention(f, &args);
    }
    return code;
}

int attention_chunk(struct zinf_frame *f, const struct attention_spec *s,
                    const struct zinf_attention *args)
{
    const uint64_t start = frame_mark(f);
    int code = check(f, s);
    frame_part_begin(f);
    if (!code && f->compute->chunk.ends && !f->compute->chunk.keys_first)
        code = attention_chunk_append(f, s, args->qkv);
    if (!code)
        code = attend(f, s, args);
    frame_part_end(f);
    frame_release(f, start);
    return code;
}

/* The gradient of the chunk's own keys and values, of which nobody will see more, to d_qkv. */
static int take_own(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    const uint64_t start = frame_mark(f), n = (uint64_t)frame_rows(f) * kv_cols(s);
    const float *sums = d_carried(f, s, f->compute->chunk.first);
    void *own = frame_scratch(f, n * frame_width(f));
    const struct zinf_heads back =
        columns_back(f, s, d_qkv, query_cols(s), (int64_t)kv_cols(s), own);
    int code = frame_convert(f, own, f->compute->dtype, sums, ZINF_DTYPE_F32, n);
    if (!code)
        code = frame_heads(f, &back);
    frame_release(f, start);
    return code;
}

static int attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct zinf_attention *whole)
{
    const uint64_t n = (uint64_t)(frame_rows(f) * query_cols(s));
    struct zinf_attention_running running = {.sums = frame_scratch(f, n * sizeof(float))};
    struct zinf_attention args = *whole;
    if (args.relative)
        running.rows = frame_scratch(f, zinf_relative_sums(&args) * sizeof(float));
    void *d_queries = args.d_qkv = frame_scratch(f, n * frame_width(f));
    struct distance_chunks distances = {0};
    int code = take_queries(f, s, &args);
    if (!code)
        code = distance_chunks_make(f, s, true, &distances);
    args.running = &running;
    struct keys keys = keys_at_hand(f, s);
    for (; !code && keys.row < keys.end; keys.row += keys.step) {
        set_keys(f, s, &args, &keys);
        running.first = keys.row == keys.first;
        running.last = f->compute->chunk.ends && is_last(&keys);
        code = distance_chunks_take(f, s, &distances, &args);
        if (!code)
            code = frame_attention_backward(f, &args);
        if (!code)
            code = distance_chunks_add(f, s, &distances, &args);
    }
    if (!code)
        code = distance_chunks_end(f, s, &distances);
    const struct zinf_heads back = columns_back(f, s, whole->d_qkv, 0, query_cols(s), d_queries);
    return code || !f->compute->chunk.ends ? code : frame_heads(f, &back);
}

static int clear_rows(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    const uint64_t bytes = (uint64_t)(frame_rows(f) * entry_cols(s)) * frame_width(f);
    return frame_zero(f, d_qkv, bytes);
}

int attention_chunk_clear(struct zinf_frame *f)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    /* the first row at hand is where all of them begin */
    return c->fresh ? frame_zero(f, frame_d_carried(f, f->carried_elems, c->near),
                                 frame_d_carried_bytes(f, f->carried_elems))
                    : 0;
}

int attention_chunk_backward(struct zinf_frame *f, const struct attention_spec *s,
                             const struct zinf_attention *args)
{
    const uint64_t start = frame_mark(f);
    const struct zinf_chunk *c = &f->compute->chunk;
    int code = check(f, s);
    frame_part_begin(f);
    if (!code && !c->keys_first && !s->carried_piece) { /* else it has been done */
        f->carried_elems = pieces_of(s) * kv_cols(s);
        code = attention_chunk_clear(f);
    }
    if (!code && zinf_chunk_keys_first(c))
        code = clear_rows(f, s, args->d_qkv);
    if (!code)
        code = attend_backward(f, s, args);
    frame_part_end(f); /* all parts take the same scratch */
    if (!code && !zinf_chunk_keys_first(c))
        code = take_own(f, s, args->d_qkv);
    frame_release(f, start);
    return code;
}

int attention_chunk_source(struct zinf_frame *f, const struct attention_spec *s, void *d_kv)
{
    const uint64_t rows = (uint64_t)(f->compute->batch * f->compute->source_seq);
    const float *sums = frame_d_carried_source(f, kv_cols(s), frame_chunk(f));
    return frame_convert(f, d_kv, f->compute->dtype, sums, ZINF_DTYPE_F32, rows * kv_cols(s));
}

int attention_chunk_own(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    const int code = clear_rows(f, s, d_qkv);
    return code ? code : take_own(f, s, d_qkv);
}
