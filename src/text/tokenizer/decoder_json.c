/* decoder_json: the "decoder" of a tokenizer.json. */
#include "text/tokenizer/tokenizer_json.h"

static int read_text(char **out, const cJSON *json, const char *what, const char *key,
                     const char *otherwise)
{
    int code = zinf_json_string(json, what, key, &otherwise);
    if (!code && !otherwise)
        code = zinf_fail(-EINVAL, "%s: a decoder has no \"%s\"", what, key);
    if (code)
        return code;
    *out = strdup(otherwise);
    return *out ? 0 : zinf_fail(-ENOMEM, "%s: no memory for a decoder", what);
}

static int read_metaspace(struct text_decoder *d, const cJSON *json, const char *what)
{
    const char *scheme = "always";
    bool prefix = true;
    int code = zinf_json_string(json, what, "prepend_scheme", &scheme);
    code = code ? code : zinf_json_bool(json, what, "add_prefix_space", &prefix);
    d->flag = prefix && strcmp(scheme, "never");
    return code ? code : read_text(&d->text, json, what, "replacement", "\xe2\x96\x81");
}

static int read_strip(struct text_decoder *d, const cJSON *json, const char *what)
{
    int code = zinf_json_int(json, what, "start", &d->start);
    code = code ? code : zinf_json_int(json, what, "stop", &d->stop);
    code = code ? code : read_text(&d->text, json, what, "content", NULL);
    if (!code && (!*d->text || d->start < 0 || d->stop < 0))
        code = zinf_fail(-EINVAL, "%s: the decoder Strip strips nothing", what);
    return code;
}

static int read_wordpiece(struct text_decoder *d, const cJSON *json, const char *what)
{
    d->flag = true;
    int code = zinf_json_bool(json, what, "cleanup", &d->flag);
    return code ? code : read_text(&d->text, json, what, "prefix", "##");
}

static int read_replace(struct text_decoder *d, const cJSON *json, const char *what)
{
    int code = read_text(&d->other, json, what, "content", NULL);
    return code ? code : text_json_read_pattern(&d->code, json, what);
}

static int read_suffix(struct text_decoder *d, const cJSON *json, const char *what)
{
    return read_text(&d->text, json, what, "suffix", "</w>");
}

static int read_nothing(struct text_decoder *d, const cJSON *json, const char *what)
{
    (void)d;
    (void)json;
    (void)what;
    return 0;
}

static const struct {
    const char *name;
    enum text_decoder_kind kind;
    int (*read)(struct text_decoder *, const cJSON *, const char *);
} kinds[] = {
    {"ByteLevel", TEXT_DECODE_BYTE_LEVEL, read_nothing},
    {"Metaspace", TEXT_DECODE_METASPACE, read_metaspace},
    {"ByteFallback", TEXT_DECODE_BYTE_FALLBACK, read_nothing},
    {"Fuse", TEXT_DECODE_FUSE, read_nothing},
    {"Strip", TEXT_DECODE_STRIP, read_strip},
    {"Replace", TEXT_DECODE_REPLACE, read_replace},
    {"WordPiece", TEXT_DECODE_WORDPIECE, read_wordpiece},
    {"BPEDecoder", TEXT_DECODE_BPE, read_suffix},
};

static int read_one(struct zinf_tokenizer *tokenizer, const cJSON *json, const char *what)
{
    const char *type = "of no type";
    int code = zinf_json_string(json, what, "type", &type);
    if (!code && tokenizer->n_decoders == TEXT_MAX_DECODERS)
        code = zinf_fail(-ENOTSUP, "%s: more than %d decoders", what, TEXT_MAX_DECODERS);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !code; i++)
        if (!strcmp(kinds[i].name, type)) {
            struct text_decoder *d = &tokenizer->decoders[tokenizer->n_decoders++];
            d->kind = kinds[i].kind;
            return kinds[i].read(d, json, what);
        }
    return code ? code
                : zinf_fail(-ENOTSUP, "%s: the decoder \"%.50s\" is not supported", what, type);
}

int text_json_read_decoder(struct zinf_tokenizer *tokenizer, const cJSON *json, const char *what)
{
    int code = 0;
    if (json && !cJSON_IsNull(json)) {
        const cJSON *member = text_json_first(json, "decoders");
        for (; member && !code; member = text_json_next(json, member))
            code = read_one(tokenizer, member, what);
    }
    bool byte_level =
        tokenizer->n_decoders == 1 && tokenizer->decoders[0].kind == TEXT_DECODE_BYTE_LEVEL;
    tokenizer->plain_decoder =
        tokenizer->bpe.alphabet && !tokenizer->n_written && (byte_level || !tokenizer->n_decoders);
    return code;
}
