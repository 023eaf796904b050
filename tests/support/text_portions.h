/* text_portions: a tokenizer that is fed in portions of drawn lengths. */
#ifndef ZINF_TESTS_TEXT_PORTIONS_H
#define ZINF_TESTS_TEXT_PORTIONS_H

#include "base/random.h"
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>

static inline uint32_t random_below(uint32_t *counter, uint32_t n)
{
    uint32_t block[4] = {(*counter)++}, out[4];
    zinf_philox(block, 7, out);
    return out[0] % n;
}

/* Feeds text in portions of 1 .. most bytes, 0: most of 1 .. 6 and some of 1 .. 80, each window in
 * memory of its own, so that a look outside is seen by the sanitizers. */
static inline int encode_in_portions(const struct zinf_tokenizer *tokenizer, const char *text,
                                     size_t bytes, uint32_t most, uint32_t *counter,
                                     struct zinf_tokens *tokens)
{
    struct text_encoder encoder;
    size_t at = 0, have = 0;
    int code = text_encoder_init(&encoder, tokenizer, tokens);
    for (bool last = false; !code && !last;) {
        have += 1 + random_below(counter, most ? most : random_below(counter, 4) ? 6 : 80);
        have = have < bytes ? have : bytes;
        last = have == bytes;
        size_t from = at > TEXT_CONTEXT ? at - TEXT_CONTEXT : 0, consumed;
        char *window = malloc(have - from + 1);
        memcpy(window, text + from, have - from);
        code = text_encoder_feed(&encoder, window, at - from, have - from, last, &consumed);
        at = from + consumed;
        free(window);
    }
    text_encoder_fini(&encoder);
    return code ? code : at == bytes ? 0 : -EINVAL;
}

#endif
