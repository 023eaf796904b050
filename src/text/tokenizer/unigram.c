/*
 * unigram: the path of highest score through a piece, a score being the sum of its tokens' log
 * probabilities (Kudo, "Subword Regularization", 2018), found from left to right. Of equal sums the
 * one found first stays: shorter tokens come first, as in Hugging Face's `tokenizers`. A character
 * that is no token by itself may be unknown, at a penalty below the least score.
 */
#include "text/tokenizer/model.h"

#include <stdlib.h>

struct text_path { /* the best way to an end */
    double score;
    uint32_t start; /* of its last token; UINT32_MAX: nothing ends here */
    int32_t id;
};

void text_unigram_fini(struct text_unigram *unigram)
{
    text_trie_fini(&unigram->trie);
    free(unigram->scores);
    *unigram = (struct text_unigram){0};
}

static int reserve(struct text_scratch *scratch, size_t bytes)
{
    if (bytes + 1 <= scratch->n_paths)
        return 0;
    if (bytes > INT32_MAX / 4)
        return zinf_fail(-EFBIG, "%zu bytes without a place to cut are too many to tokenize",
                         bytes);
    size_t n = 2 * bytes + 256;
    free(scratch->paths);
    scratch->paths = malloc(n * sizeof *scratch->paths);
    scratch->n_paths = scratch->paths ? n : 0;
    return scratch->paths ? 0 : zinf_fail(-ENOMEM, "no memory for a piece of %zu bytes", bytes);
}

static void offer(struct text_path *path, double score, size_t start, int32_t id)
{
    if (path->start == UINT32_MAX || score > path->score)
        *path = (struct text_path){score, (uint32_t)start, id};
}

static int find_paths(const struct text_unigram *unigram, const char *piece, size_t bytes,
                      struct text_path *paths)
{
    const struct text_trie *trie = &unigram->trie;
    for (size_t i = 0; i <= bytes; i++)
        paths[i] = (struct text_path){0, UINT32_MAX, 0};
    for (size_t at = 0, used; at < bytes; at += used) {
        double here = paths[at].score;
        bool alone = false;
        uint32_t node = 0;
        text_utf8_next(piece + at, bytes - at, &used);
        for (size_t end = at; end < bytes;) {
            node = text_trie_step(trie, node, (uint8_t)piece[end++]);
            if (!node)
                break;
            int32_t id = trie->ids[node];
            if (id < 0)
                continue;
            offer(&paths[end], unigram->scores[id] + here, at, id);
            alone |= end - at == used;
        }
        if (!alone && unigram->unknown < 0)
            return zinf_fail(-EINVAL,
                             "the text has \"%.*s\", which the tokenizer does not know, and the "
                             "tokenizer has no \"unk_id\"",
                             (int)used, piece + at);
        if (!alone)
            offer(&paths[at + used], unigram->unknown_score + here, at, unigram->unknown);
    }
    return 0;
}

/* An unknown part: a token all the same where it is spelled like one, else its bytes, else the
 * unknown token. */
static int push_unknown(const struct text_unigram *unigram, const struct text_vocab *vocab,
                        const char *part, size_t bytes, struct zinf_tokens *tokens)
{
    int64_t id = text_vocab_find(vocab, part, bytes);
    bool fall_back = id < 0 && unigram->byte_fallback;
    int code = 0;
    for (size_t i = 0; i < bytes && fall_back; i++)
        fall_back = unigram->fallback_ids[(uint8_t)part[i]] >= 0;
    if (!fall_back)
        return text_tokens_push(tokens, id >= 0 ? (int32_t)id : unigram->unknown);
    for (size_t i = 0; i < bytes && !code; i++)
        code = text_tokens_push(tokens, unigram->fallback_ids[(uint8_t)part[i]]);
    return code;
}

int text_unigram_encode(const struct text_unigram *unigram, const struct text_vocab *vocab,
                        const char *piece, size_t bytes, struct text_scratch *scratch,
                        struct zinf_tokens *tokens)
{
    int code = reserve(scratch, bytes);
    code = code ? code : find_paths(unigram, piece, bytes, scratch->paths);
    if (code)
        return code;
    struct text_path *paths = scratch->paths;
    /* The path is known from its end; turned round in place, paths[i].start says where the token
     * that begins at i ends. */
    uint32_t end = (uint32_t)bytes, next = UINT32_MAX;
    int32_t next_id = 0;
    for (;;) {
        struct text_path path = paths[end];
        paths[end] = (struct text_path){0, next, next_id};
        if (!end)
            break;
        next = end;
        next_id = path.id;
        end = path.start;
    }
    for (uint32_t at = 0, stop; at < bytes && !code; at = stop) {
        stop = paths[at].start;
        if (paths[at].id != unigram->unknown) {
            code = text_tokens_push(tokens, paths[at].id);
            continue;
        }
        while (stop < bytes && paths[stop].id == unigram->unknown)
            stop = paths[stop].start;
        code = push_unknown(unigram, vocab, piece + at, stop - at, tokens);
    }
    return code;
}
