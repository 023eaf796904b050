/*
 * bpe: byte-pair merging of one piece. The adjacent pair whose merge was learned first is joined,
 * the leftmost of equals, until none is left (Sennrich et al., "Neural Machine Translation of Rare
 * Words with Subword Units", 2016). Candidates wait in a heap; one whose symbols have changed in
 * the meantime is recognised when it comes up and dropped, so a piece of n bytes costs n log n.
 */
#include "text/internal.h"

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
    *bpe = (struct text_bpe){.n_slots = 2, .unknown = -1};
    while (bpe->n_slots < 2 * n_merges)
        bpe->n_slots *= 2;
    bpe->merges = malloc(bpe->n_slots * sizeof *bpe->merges);
    if (!bpe->merges)
        return zinf_fail(-ENOMEM, "no memory for %zu merges", n_merges);
    memset(bpe->merges, 0xff, bpe->n_slots * sizeof *bpe->merges);
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        bpe->byte_ids[byte] = (int32_t)text_vocab_find(vocab, &text, 1);
    }
    return 0;
}

void text_bpe_fini(struct text_bpe *bpe)
{
    free(bpe->merges);
    bpe->merges = NULL;
}

/* The id of letters[0, n), which the caller has as letters of the alphabet. */
static int64_t id_of_letters(const struct text_vocab *vocab, const char *letters, size_t n,
                             char *bytes)
{
    size_t count;
    return text_alphabet_decode(letters, n, bytes, &count) ? text_vocab_find(vocab, bytes, count)
                                                           : -1;
}

int text_bpe_add_merge(struct text_bpe *bpe, const struct text_vocab *vocab, const char *left,
                       size_t left_bytes, const char *right, size_t right_bytes)
{
    uint32_t rank = bpe->n_merges;
    size_t total = left_bytes + right_bytes;
    char *joined = malloc(2 * total + 1);
    if (!joined)
        return zinf_fail(-ENOMEM, "no memory for a merge of %zu bytes", total);
    char *bytes = joined + total;
    memcpy(joined, left, left_bytes);
    memcpy(joined + left_bytes, right, right_bytes);
    int64_t a = id_of_letters(vocab, left, left_bytes, bytes);
    int64_t b = id_of_letters(vocab, right, right_bytes, bytes);
    int64_t result = id_of_letters(vocab, joined, total, bytes);
    free(joined);
    if (a < 0 || b < 0)
        return zinf_fail(-EINVAL, "merge %u: \"%.*s\" is not in the vocabulary", rank,
                         (int)(a < 0 ? left_bytes : right_bytes), a < 0 ? left : right);
    if (result < 0)
        return zinf_fail(-EINVAL, "merge %u: its result \"%.*s%.*s\" is not in the vocabulary",
                         rank, (int)left_bytes, left, (int)right_bytes, right);
    uint64_t pair = (uint64_t)a << 32 | (uint64_t)b;
    /* A pair that is listed twice has the rank of its last line, as in Hugging Face. */
    bpe->merges[merge_slot(bpe, pair)] = (struct text_merge){pair, rank, (uint32_t)result};
    bpe->n_merges++;
    return 0;
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

void text_bpe_scratch_free(struct text_bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct text_bpe_scratch){0};
}

static int reserve(struct text_bpe_scratch *scratch, size_t bytes)
{
    if (bytes <= scratch->capacity)
        return 0;
    if (bytes > INT32_MAX / 4)
        return zinf_fail(-EFBIG, "%zu bytes without a place to cut are too many to tokenize",
                         bytes);
    size_t capacity = bytes < 256 ? 256 : bytes + bytes / 2;
    text_bpe_scratch_free(scratch);
    scratch->symbols = malloc(capacity * sizeof *scratch->symbols);
    /* n - 1 pairs at first, and each of at most n - 1 joins adds two and has taken one. */
    scratch->heap = malloc(2 * capacity * sizeof *scratch->heap);
    if (!scratch->symbols || !scratch->heap) {
        text_bpe_scratch_free(scratch);
        return zinf_fail(-ENOMEM, "no memory to tokenize a piece of %zu bytes", bytes);
    }
    scratch->capacity = capacity;
    return 0;
}

/* The piece's bytes as symbols. Returns how many. */
static int32_t spell(const struct text_bpe *bpe, const char *piece, size_t bytes,
                     struct text_symbol *symbols)
{
    int32_t count = 0;
    bool after_unknown = false;
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = bpe->byte_ids[(uint8_t)piece[i]];
        bool unknown = id < 0;
        if (unknown && (bpe->unknown < 0 || (after_unknown && bpe->fuse_unknown)))
            continue;
        symbols[count] = (struct text_symbol){unknown ? bpe->unknown : id, count - 1, count + 1};
        after_unknown = unknown;
        count++;
    }
    if (count)
        symbols[count - 1].next = -1;
    return count;
}

static void offer(const struct text_bpe *bpe, struct text_bpe_scratch *scratch, size_t *n_heap,
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

static void join_all(const struct text_bpe *bpe, struct text_bpe_scratch *scratch, int32_t count)
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
                    size_t bytes, struct text_bpe_scratch *scratch, struct zinf_tokens *tokens)
{
    if (bpe->ignore_merges) {
        int64_t id = text_vocab_find(vocab, piece, bytes);
        if (id >= 0)
            return text_tokens_push(tokens, (int32_t)id);
    }
    int code = reserve(scratch, bytes);
    if (code)
        return code;
    int32_t count = spell(bpe, piece, bytes, scratch->symbols);
    join_all(bpe, scratch, count);
    for (int32_t i = 0; i < count && i >= 0 && !code; i = scratch->symbols[i].next)
        code = text_tokens_push(tokens, scratch->symbols[i].id);
    return code;
}
