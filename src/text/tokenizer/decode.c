/*
 * decode: ids to text. Byte-level tokens may hold a part of a character, so their bytes are joined
 * first and read as UTF-8 after; each malformed part becomes one U+FFFD. Other tokenizers have a
 * list of decoders, each of which makes other strings of the tokens' strings. Ids without a token
 * (a model's padding rows) stand for nothing.
 */
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>

#define REPLACEMENT "\xef\xbf\xbd"

void text_decoders_fini(struct zinf_tokenizer *tokenizer)
{
    for (int i = 0; i < tokenizer->n_decoders; i++) {
        free(tokenizer->decoders[i].text);
        free(tokenizer->decoders[i].other);
        pcre2_code_free(tokenizer->decoders[i].code);
    }
    for (size_t i = 0; i < tokenizer->n_written; i++)
        free(tokenizer->written[i].text);
    free(tokenizer->written);
}

/* ---- lists of strings ---- */

struct strings {
    struct text_buffer text;
    size_t *ends; /* of each in text */
    size_t count, capacity;
};

static int end_string(struct strings *s)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 256;
        size_t *grown = realloc(s->ends, capacity * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory to decode %zu tokens", s->count);
        s->ends = grown;
        s->capacity = capacity;
    }
    s->ends[s->count++] = s->text.count;
    return 0;
}

static void strings_free(struct strings *s)
{
    text_buffer_free(&s->text);
    free(s->ends);
}

struct string {
    const char *text;
    size_t bytes;
};

static struct string string_at(const struct strings *s, size_t i)
{
    size_t begin = i ? s->ends[i - 1] : 0;
    return (struct string){s->text.bytes ? s->text.bytes + begin : "", s->ends[i] - begin};
}

/* ---- the tokens' own strings ---- */

static const char *written(const struct zinf_tokenizer *tokenizer, int32_t id)
{
    for (size_t i = 0; i < tokenizer->n_written; i++)
        if (tokenizer->written[i].id == id)
            return tokenizer->written[i].text;
    return NULL;
}

/* As the tokenizer's file spells it. */
static int add_token(const struct zinf_tokenizer *tokenizer, int32_t id, struct strings *out)
{
    const struct text_vocab *vocab = &tokenizer->vocab;
    if (id < 0 || !text_vocab_has(vocab, (uint32_t)id))
        return 0;
    const char *text = vocab->bytes + vocab->offsets[id], *other = written(tokenizer, id);
    size_t n = vocab->lengths[id];
    int code = 0;
    if (other)
        code = text_buffer_add(&out->text, other, strlen(other));
    else if (!tokenizer->bpe.alphabet || text_vocab_find(vocab, text, n) != id)
        code = text_buffer_add(&out->text, text, n);
    else
        for (size_t i = 0; i < n && !code; i++) {
            char letter[4];
            code = text_buffer_add(&out->text, letter, text_alphabet_put((uint8_t)text[i], letter));
        }
    return code ? code : end_string(out);
}

/* ---- decoders: each string alone ---- */

static int put_replaced(struct text_buffer *out, struct string s, const char *what, const char *by)
{
    size_t n = strlen(what), at = 0;
    int code = 0;
    while (n && !code) {
        const char *found = at < s.bytes ? memmem(s.text + at, s.bytes - at, what, n) : NULL;
        if (!found)
            break;
        size_t begin = (size_t)(found - s.text);
        code = text_buffer_add(out, s.text + at, begin - at);
        code = code ? code : text_buffer_add(out, by, strlen(by));
        at = begin + n;
    }
    return code ? code : text_buffer_add(out, s.text + at, s.bytes - at);
}

static int put_metaspace(const struct text_decoder *d, struct string s, size_t index,
                         struct text_buffer *out)
{
    return put_replaced(out, s, d->text, index == 0 && d->flag ? "" : " ");
}

static int put_stripped(const struct text_decoder *d, struct string s, struct text_buffer *out)
{
    size_t n = strlen(d->text);
    for (int64_t i = 0; i < d->start && s.bytes >= n && !memcmp(s.text, d->text, n); i++) {
        s.text += n;
        s.bytes -= n;
    }
    for (int64_t i = 0; i < d->stop && s.bytes >= n && !memcmp(s.text + s.bytes - n, d->text, n);
         i++)
        s.bytes -= n;
    return text_buffer_add(out, s.text, s.bytes);
}

static int put_matched(const struct text_decoder *d, struct text_matcher *matcher, struct string s,
                       struct text_buffer *out)
{
    size_t at = 0;
    int code = 0;
    while (at < s.bytes && !code) {
        int found = text_match(matcher, d->code, s.text, s.bytes, at, false);
        if (found == PCRE2_ERROR_INTERNAL)
            return -EIO;
        if (found < 0)
            break;
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(matcher->data);
        size_t end = range[1];
        code = text_buffer_add(out, s.text + at, range[0] - at);
        code = code ? code : text_buffer_add(out, d->other, strlen(d->other));
        at = end;
    }
    return code ? code : text_buffer_add(out, s.text + at, s.bytes - at);
}

/* Spaces that only stood between tokens, as Hugging Face's decoder of WordPiece takes them out. */
static int clean_up(struct text_buffer *text, size_t begin)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    struct text_buffer other = {0};
    int code = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !code; i++) {
        struct string s = {text->bytes + begin, text->count - begin};
        if (!text->count || !memmem(s.text, s.bytes, pairs[i][0], strlen(pairs[i][0])))
            continue;
        other.count = 0;
        code = put_replaced(&other, s, pairs[i][0], pairs[i][1]);
        text->count = begin;
        code = code ? code : text_buffer_add(text, other.bytes, other.count);
    }
    text_buffer_free(&other);
    return code;
}

static int put_wordpiece(const struct text_decoder *d, struct string s, size_t index,
                         struct text_buffer *out)
{
    size_t begin = out->count, n = strlen(d->text);
    int code = 0;
    if (index && s.bytes >= n && !memcmp(s.text, d->text, n)) {
        s.text += n;
        s.bytes -= n;
    } else if (index)
        code = text_buffer_add(out, " ", 1);
    code = code ? code : text_buffer_add(out, s.text, s.bytes);
    return code || !d->flag ? code : clean_up(out, begin);
}

/* ---- decoders: all strings ---- */

static int byte_of(struct string s)
{
    char *end, digits[3] = {0};
    if (s.bytes != 6 || memcmp(s.text, "<0x", 3) || s.text[5] != '>')
        return -1;
    memcpy(digits, s.text + 3, 2);
    if (!strchr("0123456789abcdefABCDEF", digits[0]) && digits[0] != '+')
        return -1;
    long value = strtol(digits, &end, 16);
    return *end ? -1 : (int)value;
}

/* A row of <0x..> tokens is their bytes if those are UTF-8, else as many U+FFFD. */
static int end_bytes(struct text_buffer *bytes, struct strings *out)
{
    int32_t stopped_at;
    int code = 0;
    if (!bytes->count)
        return 0;
    if (text_utf8_valid(bytes->bytes, bytes->count, &stopped_at) == bytes->count) {
        code = text_buffer_add(&out->text, bytes->bytes, bytes->count);
        code = code ? code : end_string(out);
    } else
        for (size_t i = 0; i < bytes->count && !code; i++) {
            code = text_buffer_add(&out->text, REPLACEMENT, 3);
            code = code ? code : end_string(out);
        }
    bytes->count = 0;
    return code;
}

static int join_bytes(const struct strings *in, struct strings *out)
{
    struct text_buffer bytes = {0};
    int code = 0;
    for (size_t i = 0; i < in->count && !code; i++) {
        struct string s = string_at(in, i);
        int value = byte_of(s);
        char byte = (char)value;
        if (value >= 0) {
            code = text_buffer_add(&bytes, &byte, 1);
            continue;
        }
        code = end_bytes(&bytes, out);
        code = code ? code : text_buffer_add(&out->text, s.text, s.bytes);
        code = code ? code : end_string(out);
    }
    code = code ? code : end_bytes(&bytes, out);
    text_buffer_free(&bytes);
    return code;
}

static int join_letters(const struct strings *in, struct strings *out)
{
    struct text_buffer bytes = {0};
    int code = 0;
    for (size_t i = 0; i < in->count && !code; i++) {
        struct string s = string_at(in, i);
        size_t n;
        code = text_buffer_reserve(&bytes, s.bytes);
        if (code)
            break;
        if (text_alphabet_decode(s.text, s.bytes, bytes.bytes + bytes.count, &n))
            bytes.count += n;
        else
            code = text_buffer_add(&bytes, s.text, s.bytes);
    }
    code = code ? code : text_buffer_repair(&out->text, bytes.bytes, bytes.count);
    text_buffer_free(&bytes);
    return code ? code : end_string(out);
}

static int decode_one(const struct text_decoder *d, struct text_matcher *matcher,
                      const struct strings *in, struct strings *out)
{
    int code = 0;
    for (size_t i = 0; i < in->count && !code; i++) {
        struct string s = string_at(in, i);
        if (d->kind == TEXT_DECODE_METASPACE)
            code = put_metaspace(d, s, i, &out->text);
        else if (d->kind == TEXT_DECODE_STRIP)
            code = put_stripped(d, s, &out->text);
        else if (d->kind == TEXT_DECODE_REPLACE)
            code = put_matched(d, matcher, s, &out->text);
        else if (d->kind == TEXT_DECODE_WORDPIECE)
            code = put_wordpiece(d, s, i, &out->text);
        else if (d->kind == TEXT_DECODE_BPE)
            code = put_replaced(&out->text, s, d->text, i + 1 == in->count ? "" : " ");
        else
            code = text_buffer_add(&out->text, s.text, s.bytes);
        if (!code && (d->kind != TEXT_DECODE_FUSE || i + 1 == in->count))
            code = end_string(out);
    }
    return code;
}

/* ---- the whole ---- */

static int run_decoders(const struct zinf_tokenizer *tokenizer, struct strings work[2],
                        struct strings **result)
{
    struct strings *in = &work[0], *out = &work[1];
    struct text_matcher matcher;
    int code = text_matcher_init(&matcher);
    for (int i = 0; i < tokenizer->n_decoders && !code; i++) {
        const struct text_decoder *d = &tokenizer->decoders[i];
        out->text.count = out->count = 0;
        code = d->kind == TEXT_DECODE_BYTE_LEVEL      ? join_letters(in, out)
               : d->kind == TEXT_DECODE_BYTE_FALLBACK ? join_bytes(in, out)
                                                      : decode_one(d, &matcher, in, out);
        struct strings *swap = in;
        in = out;
        out = swap;
    }
    text_matcher_fini(&matcher);
    *result = in;
    return code;
}

static int join_strings(const struct strings *in, const char *between, struct text_buffer *out)
{
    int code = 0;
    for (size_t i = 0; i < in->count && !code; i++) {
        struct string s = string_at(in, i);
        code = i ? text_buffer_add(out, between, strlen(between)) : 0;
        code = code ? code : text_buffer_add(out, s.text, s.bytes);
    }
    return code;
}

static int decode_strings(const struct zinf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                          struct text_buffer *out)
{
    struct strings work[2] = {0}, *result = &work[0];
    int code = 0;
    for (size_t i = 0; i < count && !code; i++)
        code = add_token(tokenizer, ids[i], &work[0]);
    code = code ? code : run_decoders(tokenizer, work, &result);
    code = code ? code : join_strings(result, tokenizer->n_decoders ? "" : " ", out);
    strings_free(&work[0]);
    strings_free(&work[1]);
    return code;
}

/* Byte-level tokens are kept as their bytes; added ones as they are written, which may be spelled
 * in the alphabet all the same. */
static int decode_bytes(const struct zinf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        struct text_buffer *out)
{
    const struct text_vocab *vocab = &tokenizer->vocab;
    struct text_buffer raw = {0};
    int code = 0;
    for (size_t i = 0; i < count && !code; i++) {
        if (ids[i] < 0 || !text_vocab_has(vocab, (uint32_t)ids[i]))
            continue;
        const char *text = vocab->bytes + vocab->offsets[ids[i]];
        size_t n = vocab->lengths[ids[i]], spelled;
        code = text_buffer_reserve(&raw, n);
        if (!code && text_vocab_find(vocab, text, n) != ids[i] &&
            text_alphabet_decode(text, n, raw.bytes + raw.count, &spelled))
            raw.count += spelled;
        else if (!code)
            code = text_buffer_add(&raw, text, n);
    }
    code = code ? code : text_buffer_repair(out, raw.bytes, raw.count);
    text_buffer_free(&raw);
    return code;
}

int zinf_tokenizer_decode(const struct zinf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                          char **text, size_t *bytes)
{
    struct text_buffer out = {0};
    int code = tokenizer->plain_decoder   ? decode_bytes(tokenizer, ids, count, &out)
               : tokenizer->sentencepiece ? text_sentencepiece_join(tokenizer, ids, count, &out)
                                          : decode_strings(tokenizer, ids, count, &out);
    code = code ? code : text_buffer_add(&out, "", 1);
    if (code) {
        text_buffer_free(&out);
        return code;
    }
    *text = out.bytes;
    *bytes = out.count - 1;
    return 0;
}
