/*
 * part_cached: attention of new rows of sequences that are continued, over what the stage
 * remembers: keys and values of the tokens before them, or those of the source that a sequence
 * reads, which are made once, when the source comes. And where a mixer remembers its state.
 */
#include "model/stages/stages.h"

/* What attention of new rows over a cache of so many slots is in any case. */
static struct zinf_attention_cached cached_args(struct zinf_frame *f,
                                                const struct attention_spec *s,
                                                enum zinf_caches which, int64_t slots,
                                                const struct attention_kept *kept)
{
    const struct zinf_cache shape = {
        .planes = 2 * (uint64_t)s->n_kv_heads,
        .slots = (uint64_t)slots,
        .row_bytes = (uint64_t)s->head_dim * frame_width(f),
    };
    return (struct zinf_attention_cached){
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .capacity = slots,
        .scale = s->scale,
        .softcap = s->softcap,
        .cache = frame_cache(f, which, &shape),
        .lse = s->sinks >= 0 ? kept->lse : NULL,
    };
}

/* The bias of keys up to so many tokens before their query. */
static int take_cached_bias(struct zinf_frame *f, const struct attention_spec *s,
                            struct zinf_attention_cached *attention)
{
    if (!s->distance.n_buckets)
        return 0;
    struct zinf_distance_bias args = distance_args(f, s);
    args.n_queries = attention->capacity;
    args.n_keys = 1;
    attention->bias = args.bias =
        frame_scratch(f, (uint64_t)(s->n_heads * zinf_distances(&args)) * sizeof(float));
    int code = distance_table(f, s, &args);
    return code ? code : frame_distance_bias(f, &args);
}

/* Of new rows, over what the stage remembers of their sequences. With a window it need not
 * remember more than that and the rows of a call. */
static int attend_own(struct zinf_frame *f, const struct attention_spec *s,
                      const struct attention_kept *kept, const void *qkv)
{
    const struct zinf_decoding *d = frame_decoding(f);
    int64_t window = s->window < d->capacity ? s->window : 0, slots = d->capacity;
    if (s->both_ways || s->relative.half)
        return zinf_fail(-ENOTSUP,
                         "stage %s: keys and values of this attention cannot be "
                         "remembered from token to token",
                         f->stage->name);
    if (window && window + d->most_rows < slots)
        slots = window + d->most_rows;
    struct zinf_attention_cached args = cached_args(f, s, ZINF_CACHE_SEQUENCES, slots, kept);
    args.n_sequences = d->n_sequences;
    args.window = window;
    args.piece = s->piece;
    args.slopes = s->slopes;
    args.sequences = d->sequences;
    args.positions = d->positions;
    args.qkv = qkv;
    args.out = kept->out;
    int code = take_cached_bias(f, s, &args);
    return code ? code : frame_attention_cached(f, &args);
}

/* Of new rows, over the keys and values of the sources that they read; those that came with the
 * call are remembered first. */
static int attend_source(struct zinf_frame *f, const struct attention_spec *s,
                         const struct attention_kept *kept, const void *queries)
{
    const struct zinf_decoding *d = frame_decoding(f);
    const struct zinf_cached_source source = {
        .lengths = d->source_lengths,
        .rows = f->compute->batch * f->compute->source_seq,
        .sequences = d->source_numbers,
        .slots = d->source_slots,
        .kv = kept->kv,
    };
    if (!d->n_sources)
        return zinf_fail(-EINVAL, "stage %s reads a source, and the decode shape has none",
                         f->stage->name);
    struct zinf_attention_cached args =
        cached_args(f, s, ZINF_CACHE_SOURCES, d->source_capacity, kept);
    args.n_sequences = d->n_sources;
    args.sequences = d->sources;
    args.source = &source;
    args.qkv = queries;
    args.out = kept->out;
    return frame_attention_cached(f, &args);
}

int attention_cached(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept, const void *qkv)
{
    return (s->source ? attend_source : attend_own)(f, s, kept, qkv);
}

struct zinf_remembered mixer_memory(struct zinf_frame *f, const struct attention_spec *s,
                                    uint64_t state, int64_t cols, bool rows)
{
    const struct zinf_decoding *d = frame_decoding(f);
    const uint64_t bytes = (uint64_t)((s->mixer.width - 1) * cols) * frame_width(f);
    const uint32_t pieces = s->carried_pieces ? s->carried_pieces : 1;
    const struct zinf_cache shape = {
        .planes = pieces, .slots = 1, .row_bytes = zinf_align_up(state + bytes, 256)};
    char *at = frame_cache(f, ZINF_CACHE_STATES, &shape);
    if (at) /* NULL: measuring */
        at += s->carried_piece * shape.row_bytes + (rows ? state : 0);
    return (struct zinf_remembered){.sequences = d->sequences,
                                    .positions = d->positions,
                                    .state = at,
                                    .bytes = pieces * shape.row_bytes};
}
