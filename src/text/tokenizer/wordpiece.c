/*
 * wordpiece: a word as the longest token that begins it, then the longest that continues, and so on
 * (Schuster and Nakajima, "Japanese and Korean Voice Search", 2012). A word of which a part matches
 * nothing is unknown as a whole.
 */
#include "text/tokenizer/model.h"

#include <stdlib.h>

void text_wordpiece_fini(struct text_wordpiece *wordpiece)
{
    text_trie_fini(&wordpiece->trie);
    free(wordpiece->unknown_name);
    *wordpiece = (struct text_wordpiece){0};
}

static int push_unknown(const struct text_wordpiece *wordpiece, const char *word, size_t bytes,
                        struct zinf_tokens *tokens)
{
    if (wordpiece->unknown >= 0)
        return text_tokens_push(tokens, wordpiece->unknown);
    return zinf_fail(-EINVAL,
                     "the tokenizer does not know \"%.*s\", and its \"unk_token\" \"%.50s\" is not "
                     "in the vocabulary",
                     (int)(bytes < 100 ? bytes : 100), word, wordpiece->unknown_name);
}

int text_wordpiece_encode(const struct text_wordpiece *wordpiece, const char *piece, size_t bytes,
                          struct zinf_tokens *tokens)
{
    const struct text_trie *trie = &wordpiece->trie;
    size_t before = tokens->count;
    int64_t characters = 0;
    int code = 0;
    for (size_t i = 0; i < bytes; i++)
        characters += ((uint8_t)piece[i] & 0xc0) != 0x80;
    if (characters > wordpiece->longest)
        return push_unknown(wordpiece, piece, bytes, tokens);
    for (size_t at = 0, end = 0; at < bytes && !code; at = end) {
        uint32_t node = at ? wordpiece->continued : 0;
        int32_t id = -1;
        for (size_t i = at; i < bytes && node != UINT32_MAX; i++) {
            node = text_trie_step(trie, node, (uint8_t)piece[i]);
            if (!node)
                break;
            if (trie->ids[node] >= 0) {
                id = trie->ids[node];
                end = i + 1;
            }
        }
        if (id < 0) {
            tokens->count = before;
            return push_unknown(wordpiece, piece, bytes, tokens);
        }
        code = text_tokens_push(tokens, id);
    }
    return code;
}
