/* decode: computes new rows of sequences that are continued, with logits of some rows. It first
 * notes which rows each sequence gets, which the transfers of caches go by. */
#include "train/decode.h"
#include "train/trainer.h"

#include <stdlib.h>

/* ---- what a call adds to which sequence ---- */

int trainer_begin_decoding(struct zinf_trainer *t)
{
    const struct zinf_decoding *d = &t->setup.decoding;
    size_t n = (size_t)d->n_sequences, n_sources = (size_t)d->n_sources;
    t->first_new = calloc(n, sizeof *t->first_new);
    t->n_cached = calloc(n, sizeof *t->n_cached);
    t->sources = calloc(n_sources + 1, sizeof *t->sources);
    t->source_documents = calloc((size_t)d->most_source_rows + 1, sizeof *t->source_documents);
    if (!t->first_new || !t->n_cached || !t->sources || !t->source_documents)
        return zinf_fail(-ENOMEM, "no memory for %zu sequences and %zu sources", n, n_sources);
    t->decoding = *d;
    rows_place(&t->decoding, (int32_t *)(void *)device_at(&t->plan, t->plan.at.d_rows));
    t->compute.decoding = &t->decoding;
    return 0;
}

void trainer_end_decoding(struct zinf_trainer *t)
{
    free(t->first_new);
    free(t->n_cached);
    free(t->sources);
    free(t->source_documents);
}

static int note_row(struct zinf_trainer *t, int64_t sequence, int64_t position)
{
    const struct zinf_decoding *d = &t->decoding;
    if (sequence < 0 || sequence >= d->n_sequences || position < 0 || position >= d->capacity)
        return zinf_fail(-EINVAL,
                         "position %lld of sequence %lld: there are %lld sequences of %lld tokens",
                         (long long)position, (long long)sequence, (long long)d->n_sequences,
                         (long long)d->capacity);
    if (position == 0)
        t->first_new[sequence] = t->n_cached[sequence] = 0;
    if (position != t->n_cached[sequence])
        return zinf_fail(-EINVAL, "position %lld of sequence %lld, which has %lld tokens",
                         (long long)position, (long long)sequence,
                         (long long)t->n_cached[sequence]);
    t->n_cached[sequence]++;
    return 0;
}

static int fail_source(const struct zinf_trainer *t, int64_t number, const char *why)
{
    return zinf_fail(-EINVAL, "source %lld %s; there are %lld sources of %lld tokens",
                     (long long)number, why, (long long)t->decoding.n_sources,
                     (long long)t->decoding.source_capacity);
}

/* Notes a token of a new source. */
static int note_source_row(struct zinf_trainer *t, const struct zinf_decode_rows *rows, int64_t row)
{
    int64_t number = rows->source_numbers[row];
    if (number < 0 || number >= t->decoding.n_sources)
        return fail_source(t, number, "is none");
    struct source_memory *source = &t->sources[number];
    if (!row || rows->source_numbers[row - 1] != number) {
        if (source->comes)
            return fail_source(t, number, "comes in pieces");
        *source = (struct source_memory){.comes = true};
    }
    return ++source->length <= t->decoding.source_capacity
               ? 0
               : fail_source(t, number, "is longer than there is room for");
}

static int note_sources(struct zinf_trainer *t, const struct zinf_decode_rows *rows)
{
    const struct zinf_decoding *d = &t->decoding;
    int code = 0;
    if (rows->n_source < 0 || rows->n_source > d->most_source_rows)
        return zinf_fail(-EINVAL, "%lld tokens of sources: at most %lld come with a call",
                         (long long)rows->n_source, (long long)d->most_source_rows);
    for (int64_t s = 0; s < d->n_sources; s++)
        t->sources[s].comes = t->sources[s].is_read = false;
    for (int64_t r = 0; !code && r < rows->n_source; r++)
        code = note_source_row(t, rows, r);
    for (int64_t r = 0; !code && d->n_sources && r < rows->n; r++) {
        int64_t number = rows->sources ? rows->sources[r] : -1;
        if (number < 0 || number >= d->n_sources || !t->sources[number].length)
            code = fail_source(t, number, "is read and has not come");
        else
            t->sources[number].is_read = true;
    }
    return code;
}

static int note_rows(struct zinf_trainer *t, const struct zinf_decode_rows *rows)
{
    int code = 0;
    if (!t->setup.compute.decoding)
        return zinf_fail(-EINVAL, "this trainer takes whole sequences and continues none");
    if (rows->n < 1 || rows->n > t->decoding.most_rows || rows->n_logits < 0 ||
        rows->n_logits > rows->n || rows->n_logits > t->decoding.n_sequences)
        return zinf_fail(-EINVAL, "%lld new tokens with logits of %lld: at most %lld of %lld",
                         (long long)rows->n, (long long)rows->n_logits,
                         (long long)t->decoding.most_rows, (long long)t->decoding.n_sequences);
    for (int64_t s = 0; s < t->decoding.n_sequences; s++)
        t->first_new[s] = t->n_cached[s];
    for (int64_t r = 0; !code && r < rows->n; r++)
        code = note_row(t, rows->sequences[r], rows->positions[r]);
    return code ? code : note_sources(t, rows);
}

/* ---- a call ---- */

/* Sets new sources, as documents of one sample, and the lengths of all. */
static void set_sources(struct zinf_trainer *t, const struct zinf_decode_rows *rows,
                        const struct zinf_decoding *to)
{
    int32_t *lengths = (int32_t *)(uintptr_t)to->source_lengths;
    int32_t *numbers = (int32_t *)(uintptr_t)to->source_numbers;
    int32_t *slots = (int32_t *)(uintptr_t)to->source_slots, slot = 0;
    for (int64_t s = 0; s < to->n_sources; s++)
        lengths[s] = (int32_t)t->sources[s].length;
    for (int64_t r = 0; r < rows->n_source; r++) {
        bool begins = !r || rows->source_numbers[r - 1] != rows->source_numbers[r];
        slots[r] = slot = begins ? 0 : slot + 1;
        numbers[r] = rows->source_numbers[r];
        t->source_documents[r] = numbers[r] + 1;
    }
}

static int set_rows(struct zinf_trainer *t, const struct zinf_decode_rows *rows)
{
    struct zinf_decoding to = t->decoding;
    const size_t bytes = (size_t)rows->n * sizeof(int32_t);
    rows_place(&to, (int32_t *)(void *)host_at(&t->plan, t->plan.at.h_rows));
    memcpy((int32_t *)(uintptr_t)to.sequences, rows->sequences, bytes);
    memcpy((int32_t *)(uintptr_t)to.positions, rows->positions, bytes);
    if (to.n_sources)
        memcpy((int32_t *)(uintptr_t)to.sources, rows->sources, bytes);
    set_sources(t, rows, &to);
    const struct zinf_batch batch = {
        .inputs = {[ZINF_INPUT_IDS] = rows->ids,
                   [ZINF_INPUT_TARGETS] = rows->ids,
                   [ZINF_INPUT_POSITIONS] = rows->positions,
                   [ZINF_INPUT_SOURCE_IDS] = rows->n_source ? rows->source_ids : rows->ids,
                   [ZINF_INPUT_SOURCE_SEGMENTS] = t->source_documents,
                   [ZINF_INPUT_SOURCE_POSITIONS] = to.source_slots}};
    t->compute.seq = rows->n;
    t->compute.source_seq = rows->n_source;
    return trainer_set_batch(t, &batch, 1, NULL);
}

int zinf_trainer_decode(struct zinf_trainer *t, const struct zinf_decode_rows *rows, float *logits)
{
    int code = note_rows(t, rows);
    if (!code)
        code = trainer_fill(t);
    if (!code)
        code = set_rows(t, rows);
    if (code)
        return code;
    t->compute.train = false;
    t->n_logits = rows->n_logits ? rows->n_logits : 1; /* a product has at least one row */
    t->logits_row = rows->n - t->n_logits;
    code = trainer_run(t, rows->n_source ? &t->plan.decode_sources : &t->plan.decode);
    return code ? code : trainer_take_logits(t, rows->n_logits, logits);
}

/* ---- a sequence twice ---- */

/* Copies the used slots of a sequence's cache, in every plane of a stage; those of a source are
 * apart. */
static int copy_cache(struct zinf_trainer *t, uint32_t stage, enum zinf_caches which, int64_t to,
                      int64_t from)
{
    const struct walk_stage *info = &t->setup.walk.stages[stage];
    const struct zinf_cache *c = &info->cache[which];
    const struct zinf_device_ops *ops = t->setup.device->ops;
    uint64_t used = (uint64_t)t->n_cached[from], n = used < c->slots ? used : c->slots;
    bool in_host = t->plan.amounts.host_cache;
    char *base = in_host ? host_at(&t->plan, t->plan.at.h_cache + info->cache_before)
                         : device_at(&t->plan, t->plan.at.d_cache + info->cache_before);
    int code = 0;
    base += info->cache_at[which];
    for (uint64_t plane = 0; !code && n && plane < c->planes; plane++) {
        uint64_t slots = c->slots * c->row_bytes, bytes = n * c->row_bytes;
        char *dst = base + ((uint64_t)to * c->planes + plane) * slots;
        const char *src = base + ((uint64_t)from * c->planes + plane) * slots;
        if (in_host)
            memcpy(dst, src, bytes);
        else
            code = ops->copy(t->queues[ZINF_LANE_DEVICE], dst, src, bytes);
    }
    return code;
}

int zinf_trainer_copy_sequence(struct zinf_trainer *t, int64_t to, int64_t from)
{
    int64_t n = t->setup.compute.decoding ? t->decoding.n_sequences : 0;
    if (to < 0 || to >= n || from < 0 || from >= n || to == from)
        return zinf_fail(-EINVAL, "sequence %lld as %lld: there are %lld sequences",
                         (long long)from, (long long)to, (long long)n);
    int code = 0;
    for (uint32_t s = 0; !code && s < t->setup.walk.graph->n_stages; s++)
        if (t->setup.walk.stages[s].cache_bytes) {
            code = copy_cache(t, s, ZINF_CACHE_SEQUENCES, to, from);
            if (!code)
                code = copy_cache(t, s, ZINF_CACHE_STATES, to, from);
        }
    if (!code)
        code = t->setup.device->ops->queue_synchronize(t->queues[ZINF_LANE_DEVICE]);
    if (!code)
        t->n_cached[to] = t->n_cached[from];
    return code;
}

const struct zinf_decode_shape *zinf_trainer_decode_shape(const struct zinf_trainer *t)
{
    return t->setup.compute.decoding ? &t->setup.options.decode : NULL;
}
