/*
 * fuzz target: any bytes as a tokenizer.model. If it is taken, a text with a bit of everything must
 * encode to ids within the vocabulary, and decode.
 */
#include "text/tokenizer/tokenizer_json.h"
#include "fuzz.h"

#include <stdlib.h>

static const char sample[] = "The fox's 42 <s> jumps\r\n\r\n  over\t<mask>  na\xc3\xafve "
                             "\xf0\x9f\x98\x80\xff\xe2\x82 you'll aab abab!\xe3\x80\x80";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text_sentencepiece_files files = {
        .model = (const char *)data, .what = "fuzz", .model_bytes = size};
    struct zinf_tokenizer *tokenizer;
    struct zinf_tokens tokens = {0};
    char *text;
    size_t bytes;
    if (text_tokenizer_create(&tokenizer))
        return 0;
    if (!text_sentencepiece_read(tokenizer, &files) &&
        !zinf_tokenizer_encode(tokenizer, sample, sizeof sample - 1, &tokens)) {
        for (size_t i = 0; i < tokens.count; i++)
            if (tokens.ids[i] < 0 || (uint32_t)tokens.ids[i] >= zinf_tokenizer_vocab(tokenizer))
                abort();
        if (!zinf_tokenizer_decode(tokenizer, tokens.ids, tokens.count, &text, &bytes))
            free(text);
    }
    zinf_tokens_free(&tokens);
    zinf_tokenizer_close(tokenizer);
    return 0;
}
