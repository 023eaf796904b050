/*
 * bpe: byte-pair merging of one piece. The adjacent pair whose merge was learned first is joined,
 * the leftmost of equals, until none is left (Sennrich et al., "Neural Machine Translation of Rare
 * Words with Subword Units", 2016). Candidates wait in a heap; one whose symbols have changed in
 * the meantime is recognised when it comes up and dropped, so a piece of n bytes costs n log n.
 */
#include "text/tokenizer/model.h"

#include <stdio.h>
#include <stdlib.h>

struct text_symbol {
    int32_t id; /* -1: joined to the symbol before */
    int32_t previous, next;
};

struct text_candidate {
    uint64_t order; /* rank << 32 | position: least first */
    uint32_t id;    /* what the merge gives */
};

/* ---- merges ---- */

static size_t merge_slot(const struct text_bpe *bpe, uint64_t pair)
{
    uint64_t hash = pair * 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio spreads both halves */
    size_t mask = bpe->n_slots - 1, slot = (hash ^ hash >> 32) & mask;
    while (bpe->merges[slot].id != UINT32_MAX && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & mask;
    return slot;
}

static const struct text_merge *find_merge(const struct text_bpe *bpe, int32_t left, int32_t right)
{
    size_t slot = merge_slot(bpe, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    return bpe->merges[slot].id == UINT32_MAX ? NULL : &bpe->merges[slot];
}

int text_bpe_init(struct text_bpe *bpe, const struct text_vocab *vocab, size_t n_merges)
{
    bpe->n_slots = 2;
    bpe->unknown = -1;
    while (bpe->n_slots < 2 * n_merges)
        bpe->n_slots *= 2;
    bpe->merges = malloc(bpe->n_slots * sizeof *bpe->merges);
    if (!bpe->merges)
        return zinf_fail(-ENOMEM, "no memory for %zu merges", n_merges);
    memset(bpe->merges, 0xff, bpe->n_slots * sizeof *bpe->merges);
    for (int byte = 0; byte < 256; byte++) {
        char text[8] = {(char)byte};
        bpe->byte_ids[byte] = (int32_t)text_vocab_find(vocab, text, 1);
        snprintf(text, sizeof text, "<0x%02X>", byte);
        bpe->fallback_ids[byte] = (int32_t)text_vocab_find(vocab, text, 6);
    }
    return 0;
}

void text_bpe_fini(struct text_bpe *bpe)
{
    free(bpe->merges);
    free(bpe->prefix);
    free(bpe->suffix);
    *bpe = (struct text_bpe){0};
}

/* The id of a token as the file spells it; bytes is scratch for n of them. */
static int64_t id_of_token(const struct text_bpe *bpe, const struct text_vocab *vocab,
                           const char *token, size_t n, char *bytes)
{
    size_t count;
    if (!bpe->alphabet)
        return text_vocab_find(vocab, token, n);
    return text_alphabet_decode(token, n, bytes, &count) ? text_vocab_find(vocab, bytes, count)
                                                         : -1;
}

int text_bpe_add_merge(struct text_bpe *bpe, const struct text_vocab *vocab, const char *left,
                       size_t left_bytes, const char *right, size_t right_bytes)
{
    uint32_t rank = bpe->n_merges;
    size_t total = left_bytes + right_bytes, cut = bpe->prefix ? strlen(bpe->prefix) : 0;
    if (cut > right_bytes)
        return zinf_fail(-EINVAL, "merge %u: \"%.*s\" does not begin with \"%s\"", rank,
                         (int)right_bytes, right, bpe->prefix);
    char *joined = malloc(2 * total + 1);
    if (!joined)
        return zinf_fail(-ENOMEM, "no memory for a merge of %zu bytes", total);
    char *bytes = joined + total;
    memcpy(joined, left, left_bytes);
    memcpy(joined + left_bytes, right + cut, right_bytes - cut);
    int64_t a = id_of_token(bpe, vocab, left, left_bytes, bytes);
    int64_t b = id_of_token(bpe, vocab, right, right_bytes, bytes);
    int64_t result = id_of_token(bpe, vocab, joined, total - cut, bytes);
    free(joined);
    if (a < 0 || b < 0)
        return zinf_fail(-EINVAL, "merge %u: \"%.*s\" is not in the vocabulary", rank,
                         (int)(a < 0 ? left_bytes : right_bytes), a < 0 ? left : right);
    if (result < 0)
        return zinf_fail(-EINVAL, "merge %u: its result \"%.*s%.*s\" is not in the vocabulary",
                         rank, (int)left_bytes, left, (int)(right_bytes - cut), right + cut);
    uint64_t pair = (uint64_t)a << 32 | (uint64_t)b;
    /* A pair that is listed twice has the rank of its last line, as in Hugging Face. */
    bpe->merges[merge_slot(bpe, pair)] = (struct text_merge){pair, rank, (uint32_t)result};
    bpe->n_merges++;
    return 0;
}

bool text_bpe_cuts_at(const struct text_bpe *bpe, const struct text_vocab *vocab, const char *mark)
{
    size_t n = strlen(mark);
    if (text_vocab_find(vocab, mark, n) < 0)
        return false; /* an unknown symbol may be fused with the one before */
    for (size_t i = 0; i < bpe->n_slots; i++) {
        const struct text_merge *merge = &bpe->merges[i];
        if (merge->id == UINT32_MAX)
            continue;
        uint32_t left = (uint32_t)(merge->pair >> 32), right = (uint32_t)merge->pair;
        const char *l = vocab->bytes + vocab->offsets[left] + vocab->lengths[left];
        const char *r = vocab->bytes + vocab->offsets[right];
        bool begins = vocab->lengths[right] >= n && !memcmp(r, mark, n);
        bool ends = vocab->lengths[left] >= n && !memcmp(l - n, mark, n);
        if (begins && !ends)
            return false;
    }
    return true;
}

/* ---- heap of candidates ---- */

static void heap_push(struct text_candidate *heap, size_t *count, struct text_candidate item)
{
    size_t at = (*count)++;
    while (at && heap[(at - 1) / 2].order > item.order) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = item;
}

static struct text_candidate heap_pop(struct text_candidate *heap, size_t *count)
{
    struct text_candidate top = heap[0], last = heap[--*count];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < *count) {
        if (child + 1 < *count && heap[child + 1].order < heap[child].order)
            child++;
        if (last.order <= heap[child].order)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* ---- one piece ---- */

static int reserve(struct text_scratch *scratch, size_t bytes)
{
    if (bytes <= scratch->capacity)
        return 0;
    if (bytes > INT32_MAX / 4)
        return zinf_fail(-EFBIG, "%zu bytes without a place to cut are too many to tokenize",
                         bytes);
    size_t capacity = bytes < 256 ? 256 : bytes + bytes / 2;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->capacity = 0;
    scratch->symbols = malloc(capacity * sizeof *scratch->symbols);
    /* n - 1 pairs at first, and each of at most n - 1 joins adds two and has taken one. */
    scratch->heap = malloc(2 * capacity * sizeof *scratch->heap);
    if (!scratch->symbols || !scratch->heap)
        return zinf_fail(-ENOMEM, "no memory to tokenize a piece of %zu bytes", bytes);
    scratch->capacity = capacity;
    return 0;
}

struct speller {
    const struct text_bpe *bpe;
    const struct text_vocab *vocab;
    struct text_symbol *symbols;
    int32_t count;
    bool unknown; /* one waits, to be fused with those that follow */
};

static void put_symbol(struct speller *s, int32_t id)
{
    s->symbols[s->count] = (struct text_symbol){id, s->count - 1, s->count + 1};
    s->count++;
}

static void put_unknown(struct speller *s)
{
    if (s->unknown)
        put_symbol(s, s->bpe->unknown);
    s->unknown = false;
}

/* A symbol with the prefix or suffix that its place in the piece asks for. */
static int64_t find_dressed(const struct speller *s, const char *unit, size_t n, bool first,
                            bool last)
{
    char dressed[2 * TEXT_MAX_AFFIX + 4];
    const char *prefix = first || !s->bpe->prefix ? "" : s->bpe->prefix;
    const char *suffix = last && s->bpe->suffix ? s->bpe->suffix : "";
    size_t a = strlen(prefix), b = strlen(suffix);
    memcpy(dressed, prefix, a);
    memcpy(dressed + a, unit, n);
    memcpy(dressed + a + n, suffix, b);
    return text_vocab_find(s->vocab, dressed, a + n + b);
}

/* With byte_fallback: the unit's bytes, if all are tokens, with what it was dressed with. */
static bool fall_back(struct speller *s, const char *unit, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s->bpe->fallback_ids[(uint8_t)unit[i]] < 0)
            return false;
    for (size_t i = 0; i < n; i++)
        put_symbol(s, s->bpe->fallback_ids[(uint8_t)unit[i]]);
    return true;
}

/* The piece's bytes, or characters, as symbols. An unknown one is put when the next known one is,
 * so that those of byte_fallback come before it: so does Hugging Face. */
static void spell(struct speller *s, const char *piece, size_t bytes)
{
    const struct text_bpe *bpe = s->bpe;
    bool dressed = bpe->prefix || bpe->suffix;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = 1;
        if (!bpe->alphabet && (uint8_t)piece[at] >= 0x80)
            text_utf8_next(piece + at, bytes - at, &n);
        int64_t id = dressed  ? find_dressed(s, piece + at, n, at == 0, at + n == bytes)
                     : n == 1 ? bpe->byte_ids[(uint8_t)piece[at]]
                              : text_vocab_find(s->vocab, piece + at, n);
        if (id >= 0) {
            put_unknown(s);
            put_symbol(s, (int32_t)id);
        } else if (!bpe->byte_fallback || !fall_back(s, piece + at, n)) {
            if (!bpe->fuse_unknown)
                put_unknown(s);
            s->unknown = bpe->unknown >= 0;
        }
    }
    put_unknown(s);
    if (s->count)
        s->symbols[s->count - 1].next = -1;
}

static void offer(const struct text_bpe *bpe, struct text_scratch *scratch, size_t *n_heap,
                  int32_t left)
{
    int32_t right = left < 0 ? -1 : scratch->symbols[left].next;
    if (right < 0)
        return;
    const struct text_merge *merge =
        find_merge(bpe, scratch->symbols[left].id, scratch->symbols[right].id);
    if (merge)
        heap_push(scratch->heap, n_heap,
                  (struct text_candidate){(uint64_t)merge->rank << 32 | (uint32_t)left, merge->id});
}

static void join_all(const struct text_bpe *bpe, struct text_scratch *scratch, int32_t count)
{
    struct text_symbol *symbols = scratch->symbols;
    size_t n_heap = 0;
    for (int32_t i = 0; i + 1 < count; i++)
        offer(bpe, scratch, &n_heap, i);
    while (n_heap) {
        struct text_candidate top = heap_pop(scratch->heap, &n_heap);
        int32_t left = (int32_t)(uint32_t)top.order, right = symbols[left].next;
        if (symbols[left].id < 0 || right < 0)
            continue;
        /* Hugging Face takes a candidate for current when its result is; so the same here. */
        const struct text_merge *merge = find_merge(bpe, symbols[left].id, symbols[right].id);
        if (!merge || merge->id != top.id)
            continue;
        symbols[left].id = (int32_t)top.id;
        symbols[left].next = symbols[right].next;
        symbols[right].id = -1;
        if (symbols[left].next >= 0)
            symbols[symbols[left].next].previous = left;
        offer(bpe, scratch, &n_heap, symbols[left].previous);
        offer(bpe, scratch, &n_heap, left);
    }
}

int text_bpe_encode(const struct text_bpe *bpe, const struct text_vocab *vocab, const char *piece,
                    size_t bytes, struct text_scratch *scratch, struct zinf_tokens *tokens)
{
    if (bpe->ignore_merges) {
        int64_t id = text_vocab_find(vocab, piece, bytes);
        if (id >= 0)
            return text_tokens_push(tokens, (int32_t)id);
    }
    int code = reserve(scratch, bytes);
    if (code)
        return code;
    struct speller speller = {bpe, vocab, scratch->symbols, 0, false};
    spell(&speller, piece, bytes);
    int32_t count = speller.count;
    join_all(bpe, scratch, count);
    for (int32_t i = 0; i < count && i >= 0 && !code; i = scratch->symbols[i].next)
        code = text_tokens_push(tokens, scratch->symbols[i].id);
    return code;
}
