/*
 * sentencepiece_check: looks through a tokenizer.model before the library gets it. The library
 * trusts the table of replacements (precompiled_charsmap) in it: a damaged one would send it out of
 * bounds. So each state of the table that text can lead to is visited here. The file is a protocol
 * buffer, of which two fields are followed: normalizer_spec (3) and denormalizer_spec (5), and in
 * each precompiled_charsmap (2).
 */
#include "text/tokenizer/tokenizer_json.h"

#include "base/protobuf.h"

#include <stdlib.h>

#define MOST_UNITS (1u << 22) /* 64 times the largest table in use */

/* ---- the table ---- */

struct table {
    const uint8_t *units; /* little-endian, 4 bytes each */
    uint32_t n_units, texts_bytes;
    uint32_t *waiting; /* states to be visited */
    uint32_t n_waiting;
    bool *seen;
};

static uint32_t unit_at(const struct table *t, uint32_t i)
{
    const uint8_t *p = t->units + 4 * (size_t)i;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Takes the step behind a unit: its state must have room for every byte. */
static bool enter(struct table *t, uint32_t at)
{
    uint32_t unit = unit_at(t, at), state = at ^ ((unit >> 10) << ((unit & 1u << 9) >> 6));
    if ((state | 0xff) >= t->n_units)
        return false;
    if (unit & 1u << 8 && (unit_at(t, state) & 0x7fffffff) >= t->texts_bytes)
        return false;
    if (!t->seen[state])
        t->waiting[t->n_waiting++] = state;
    t->seen[state] = true;
    return true;
}

static bool visit_all(struct table *t)
{
    if (!enter(t, 0))
        return false;
    while (t->n_waiting) {
        uint32_t state = t->waiting[--t->n_waiting];
        for (uint32_t byte = 0; byte < 256; byte++)
            if ((unit_at(t, state ^ byte) & (1u << 31 | 0xff)) == byte && !enter(t, state ^ byte))
                return false;
    }
    return true;
}

static int check_table(struct zinf_message blob, const char *what)
{
    size_t n = (size_t)(blob.end - blob.at);
    struct table t = {.units = blob.at};
    if (!n)
        return 0;
    uint32_t bytes = n > 4 ? unit_at(&t, 0) : 0;
    t = (struct table){.units = blob.at + 4, .n_units = bytes / 4};
    bool good = bytes && bytes % 4 == 0 && bytes < n - 4 && t.n_units <= MOST_UNITS &&
                n <= UINT32_MAX && !blob.end[-1];
    if (good) {
        t.texts_bytes = (uint32_t)(n - 4 - bytes);
        t.waiting = malloc(t.n_units * sizeof *t.waiting);
        t.seen = calloc(t.n_units, sizeof *t.seen);
        if (!t.waiting || !t.seen) {
            free(t.waiting);
            free(t.seen);
            return zinf_fail(-ENOMEM, "%s: no memory to check the model", what);
        }
        good = visit_all(&t);
        free(t.waiting);
        free(t.seen);
    }
    return good ? 0
                : zinf_fail(-EINVAL, "%s: SentencePiece's \"precompiled_charsmap\" is damaged",
                            what);
}

int text_sentencepiece_check(const char *model, size_t bytes, const char *what)
{
    struct zinf_message top = {(const uint8_t *)model, (const uint8_t *)model + bytes};
    struct zinf_field spec, blob;
    int more, code = 0;
    while (!code && (more = zinf_message_next(&top, &spec)) > 0) {
        if ((spec.number != 3 && spec.number != 5) || !spec.is_nested)
            continue;
        while (!code && (more = zinf_message_next(&spec.body, &blob)) > 0)
            if (blob.number == 2 && blob.is_nested)
                code = check_table(blob.body, what);
        if (more < 0)
            break;
    }
    if (!code && more < 0)
        code = zinf_fail(-EINVAL, "%s: is no SentencePiece model", what);
    return code;
}
