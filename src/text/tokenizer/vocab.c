/*
 * vocab: the table of tokens, by id and by bytes. Tokens are kept as the bytes they stand for, not
 * as the letters of the byte-level alphabet in which the files spell them: decoding is then a copy.
 */
#include "text/internal.h"

#include <stdlib.h>
#include <xxhash.h>

int text_vocab_init(struct text_vocab *vocab, uint32_t size, size_t n_findable, size_t bytes)
{
    *vocab = (struct text_vocab){.size = size, .n_slots = 2, .capacity = bytes};
    while (vocab->n_slots < 2 * n_findable)
        vocab->n_slots *= 2;
    vocab->lengths = malloc(size * sizeof *vocab->lengths + 1);
    vocab->offsets = calloc(size + 1, sizeof *vocab->offsets);
    vocab->slots = calloc(vocab->n_slots, sizeof *vocab->slots);
    vocab->bytes = malloc(bytes + 1);
    if (!vocab->lengths || !vocab->offsets || !vocab->slots || !vocab->bytes) {
        text_vocab_fini(vocab);
        return zinf_fail(-ENOMEM, "no memory for a vocabulary of %u tokens", size);
    }
    memset(vocab->lengths, 0xff, size * sizeof *vocab->lengths);
    return 0;
}

void text_vocab_fini(struct text_vocab *vocab)
{
    free(vocab->lengths);
    free(vocab->offsets);
    free(vocab->slots);
    free(vocab->bytes);
    *vocab = (struct text_vocab){0};
}

bool text_vocab_has(const struct text_vocab *vocab, uint32_t id)
{
    return id < vocab->size && vocab->lengths[id] != UINT32_MAX;
}

/* The slot that holds these bytes, or the free one where they belong. */
static size_t slot_of(const struct text_vocab *vocab, const char *bytes, size_t n)
{
    size_t mask = vocab->n_slots - 1, slot = XXH3_64bits(bytes, n) & mask;
    for (; vocab->slots[slot]; slot = (slot + 1) & mask) {
        uint32_t id = vocab->slots[slot] - 1;
        if (vocab->lengths[id] == n && !memcmp(vocab->bytes + vocab->offsets[id], bytes, n))
            break;
    }
    return slot;
}

int text_vocab_add(struct text_vocab *vocab, uint32_t id, const char *bytes, size_t n,
                   bool findable)
{
    if (id >= vocab->size || n > vocab->capacity - vocab->used)
        return zinf_fail(-EINVAL, "token %u does not fit the vocabulary's table", id);
    size_t slot = findable ? slot_of(vocab, bytes, n) : 0;
    if (findable && vocab->slots[slot])
        return zinf_fail(-EINVAL, "ids %u and %u have the same token", vocab->slots[slot] - 1, id);
    memcpy(vocab->bytes + vocab->used, bytes, n);
    vocab->offsets[id] = vocab->used;
    vocab->lengths[id] = (uint32_t)n;
    vocab->used += n;
    if (findable)
        vocab->slots[slot] = id + 1;
    return 0;
}

int64_t text_vocab_find(const struct text_vocab *vocab, const char *bytes, size_t n)
{
    return (int64_t)vocab->slots[slot_of(vocab, bytes, n)] - 1;
}

/* ---- byte-level alphabet (GPT-2) ---- */

/* Printable bytes are their own letter; the 68 others take U+0100 and up, in order. */
static bool is_own_letter(unsigned c)
{
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

size_t text_alphabet_put(uint8_t byte, char *out)
{
    uint32_t letter = byte;
    if (!is_own_letter(byte)) {
        letter = 0x100;
        for (unsigned c = 0; c < byte; c++)
            letter += !is_own_letter(c);
    }
    return text_utf8_put(letter, out);
}

static int byte_of_letter(int32_t letter)
{
    if (letter >= 0 && letter < 0x100)
        return is_own_letter((unsigned)letter) ? letter : -1;
    if (letter < 0x100)
        return -1;
    if (letter <= 0x120) /* 0x00 .. 0x20 */
        return letter - 0x100;
    if (letter <= 0x142) /* 0x7f .. 0xa0 */
        return letter - 0x121 + 0x7f;
    return letter == 0x143 ? 0xad : -1;
}

bool text_alphabet_decode(const char *text, size_t n, char *out, size_t *out_bytes)
{
    size_t written = 0;
    for (size_t at = 0, used; at < n; at += used) {
        int byte = byte_of_letter(text_utf8_next(text + at, n - at, &used));
        if (byte < 0)
            return false;
        out[written++] = (char)byte;
    }
    *out_bytes = written;
    return true;
}
