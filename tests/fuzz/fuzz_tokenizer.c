/*
 * fuzz target: any bytes as a tokenizer.json. If it is taken, a text with a bit of everything must
 * encode and decode within bounds, and in two portions to the same ids as at once.
 */
#include "text/tokenizer/tokenizer.h"
#include "fuzz.h"

#include <stdlib.h>

static const char sample[] = "The fox's 42 <|endoftext|> jumps\r\n\r\n  over\t<mask>  na\xc3\xafve "
                             "\xf0\x9f\x98\x80\xff\xe2\x82 you'll aab abab!\xe3\x80\x80";

static int encode_twice(const struct zinf_tokenizer *tokenizer, struct zinf_tokens *tokens)
{
    struct text_encoder encoder;
    size_t half = sizeof sample / 2, consumed;
    int code = text_encoder_init(&encoder, tokenizer, tokens);
    if (code)
        return code;
    code = text_encoder_feed(&encoder, sample, 0, half, false, &consumed);
    if (!code)
        code = text_encoder_feed(&encoder, sample, consumed, sizeof sample - 1, true, &consumed);
    text_encoder_fini(&encoder);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zinf_tokenizer *tokenizer;
    struct zinf_tokens whole = {0}, halves = {0};
    char *text;
    size_t bytes;
    if (zinf_tokenizer_from_json(&tokenizer, (const char *)data, size, "fuzz"))
        return 0;
    if (!zinf_tokenizer_encode(tokenizer, sample, sizeof sample - 1, &whole)) {
        if (encode_twice(tokenizer, &halves) || halves.count != whole.count ||
            (whole.count && memcmp(halves.ids, whole.ids, whole.count * sizeof *whole.ids)))
            abort();
        for (size_t i = 0; i < whole.count; i++)
            if (whole.ids[i] < 0 || (uint32_t)whole.ids[i] >= zinf_tokenizer_vocab(tokenizer))
                abort();
        if (!zinf_tokenizer_decode(tokenizer, whole.ids, whole.count, &text, &bytes))
            free(text);
    }
    zinf_tokens_free(&whole);
    zinf_tokens_free(&halves);
    zinf_tokenizer_close(tokenizer);
    return 0;
}
