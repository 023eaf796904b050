/*
 * encode: drives a window of text through added tokens, expressions and merges. When more text is
 * to follow, only what no continuation can change is turned into ids: an expression is run with
 * PCRE2's hard partial matching, which reports any look at the end of the window instead of
 * deciding by it. What is left waits for the next window.
 */
#include "text/internal.h"

#include <stdlib.h>

int text_tokens_push(struct zinf_tokens *tokens, int32_t id)
{
    if (tokens->count == tokens->capacity) {
        size_t capacity = tokens->capacity ? 2 * tokens->capacity : 256;
        int32_t *grown = realloc(tokens->ids, capacity * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for %zu token ids", capacity);
        tokens->ids = grown;
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = id;
    return 0;
}

void zinf_tokens_free(struct zinf_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct zinf_tokens){0};
}

int text_encoder_init(struct text_encoder *encoder, const struct zinf_tokenizer *tokenizer,
                      struct zinf_tokens *tokens)
{
    *encoder = (struct text_encoder){.tokenizer = tokenizer, .tokens = tokens};
    if (tokenizer->is_bytes)
        return 0;
    encoder->match = pcre2_match_data_create(1, NULL);
    encoder->context = pcre2_match_context_create(NULL);
    if (!encoder->match || !encoder->context) {
        text_encoder_fini(encoder);
        return zinf_fail(-ENOMEM, "no memory to tokenize");
    }
    pcre2_set_heap_limit(encoder->context, 256 * 1024); /* KiB; only without JIT */
    return 0;
}

void text_encoder_fini(struct text_encoder *encoder)
{
    pcre2_match_data_free(encoder->match);
    pcre2_match_context_free(encoder->context);
    text_bpe_scratch_free(&encoder->scratch);
    free(encoder->prefixed);
    *encoder = (struct text_encoder){0};
}

void text_encoder_restart(struct text_encoder *encoder)
{
    encoder->place = TEXT_AT_START;
    encoder->skip[0] = encoder->skip[1] = 0;
}

/* ---- expressions: valid UTF-8 into pieces ---- */

struct piece {
    const char *text;
    size_t bytes;
    bool open;  /* the text goes on */
    bool fresh; /* begins where a prefix space belongs */
};

static int run_stage(struct text_encoder *encoder, int index, struct piece piece, size_t *consumed);

static int match_next(struct text_encoder *encoder, const struct text_stage *stage,
                      const struct piece *piece, size_t at)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | (piece->open ? PCRE2_PARTIAL_HARD : 0);
    PCRE2_SPTR text = (PCRE2_SPTR)piece->text;
    /* Enough for any pattern that does not explode; a long run of one kind may be walked back. */
    uint64_t limit = 10000000 + 8 * (uint64_t)piece->bytes;
    pcre2_set_match_limit(encoder->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    int found =
        pcre2_match(stage->code, text, piece->bytes, at, options, encoder->match, encoder->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(stage->code, text, piece->bytes, at, options | PCRE2_NO_JIT,
                            encoder->match, encoder->context);
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH || found == PCRE2_ERROR_PARTIAL)
        return found;
    char reason[128];
    pcre2_get_error_message(found, (PCRE2_UCHAR *)reason, sizeof reason);
    zinf_fail(-EIO, "the tokenizer's pattern gives up on this text: %s", reason);
    return PCRE2_ERROR_INTERNAL;
}

static int split(struct text_encoder *encoder, int index, const struct piece *piece,
                 size_t *consumed)
{
    const struct text_stage *stage = &encoder->tokenizer->stages[index];
    size_t at = 0, done;
    int code = 0;
    while (at < piece->bytes && !code) {
        int found = match_next(encoder, stage, piece, at);
        if (found == PCRE2_ERROR_INTERNAL)
            return -EIO;
        if (found == PCRE2_ERROR_PARTIAL || (found < 0 && piece->open))
            break;
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(encoder->match);
        size_t begin = found < 0 ? piece->bytes : range[0];
        size_t end = found < 0 ? piece->bytes : range[1];
        if (begin > at && !stage->drop_gaps)
            code = run_stage(encoder, index + 1,
                             (struct piece){piece->text + at, begin - at, false, true}, &done);
        if (end > begin && !code)
            code = run_stage(encoder, index + 1,
                             (struct piece){piece->text + begin, end - begin, false, true}, &done);
        at = end;
    }
    *consumed = at;
    return code;
}

static int put_prefix(struct text_encoder *encoder, struct piece *piece)
{
    if (piece->bytes + 1 > encoder->prefixed_capacity) {
        size_t capacity = 2 * piece->bytes + 64;
        free(encoder->prefixed);
        encoder->prefixed = malloc(capacity);
        encoder->prefixed_capacity = encoder->prefixed ? capacity : 0;
        if (!encoder->prefixed)
            return zinf_fail(-ENOMEM, "no memory to tokenize %zu bytes", piece->bytes);
    }
    encoder->prefixed[0] = ' ';
    memcpy(encoder->prefixed + 1, piece->text, piece->bytes);
    piece->text = encoder->prefixed;
    piece->bytes++;
    return 0;
}

static int run_stage(struct text_encoder *encoder, int index, struct piece piece, size_t *consumed)
{
    const struct zinf_tokenizer *tokenizer = encoder->tokenizer;
    *consumed = 0;
    if (index == tokenizer->n_stages) {
        if (piece.open)
            return 0;
        *consumed = piece.bytes;
        return text_bpe_encode(&tokenizer->bpe, &tokenizer->vocab, piece.text, piece.bytes,
                               &encoder->scratch, encoder->tokens);
    }
    /* The prefix space is never a piece alone: GPT-2's pattern takes it with what follows. */
    const struct text_stage *stage = &tokenizer->stages[index];
    bool prefix = stage->add_prefix_space && piece.fresh && piece.text[0] != ' ';
    int code = prefix ? put_prefix(encoder, &piece) : 0;
    if (code)
        return code;
    if (stage->code)
        code = split(encoder, index, &piece, consumed);
    else
        code = run_stage(encoder, index + 1, piece, consumed);
    if (prefix && *consumed)
        (*consumed)--;
    return code;
}

/* ---- text between added tokens ---- */

static int encode_text(struct text_encoder *encoder, size_t begin, size_t end, bool open,
                       size_t *consumed)
{
    const struct zinf_tokenizer *tokenizer = encoder->tokenizer;
    int code = 0;
    while (begin < end && !code) {
        int32_t stopped_at;
        size_t done = 0;
        const char *text = encoder->text + begin;
        size_t valid = text_utf8_valid(text, end - begin, &stopped_at);
        bool unsure = open && stopped_at != TEXT_UTF8_INVALID;
        if (valid) {
            struct piece piece = {text, valid, unsure, encoder->place != TEXT_INSIDE};
            code = run_stage(encoder, 0, piece, &done);
        } else if (!unsure) { /* a byte that is no UTF-8 stands for itself */
            code = text_bpe_encode(&tokenizer->bpe, &tokenizer->vocab, text, 1, &encoder->scratch,
                                   encoder->tokens);
            done = 1;
        }
        if (!done)
            break;
        encoder->place = TEXT_INSIDE;
        begin += done;
        if (unsure)
            break;
    }
    *consumed = begin;
    return code;
}

/* ---- added tokens: level 0 over the whole text, level 1 over what lies between those ---- */

static int encode_level(struct text_encoder *encoder, int level, size_t begin, size_t end,
                        bool open, size_t *consumed)
{
    if (level == 2)
        return encode_text(encoder, begin, end, open, consumed);
    const struct text_added_set *set = &encoder->tokenizer->added[level];
    bool at_start =
        encoder->place == TEXT_AT_START || (level == 1 && encoder->place == TEXT_AFTER_FIRST);
    struct text_added_scan scan = {
        .text = encoder->text,
        .sentence = at_start ? begin : 0,
        .piece = begin,
        .scan = begin + encoder->skip[level],
        .end = end,
        .open = open,
    };
    int found = 1, code = 0;
    size_t reached = begin;
    while (found > 0 && !code) {
        struct text_added_match match;
        size_t limit, piece = scan.piece;
        bool closed;
        found = text_added_next(set, &scan, &match, &limit, &closed);
        if (found < 0)
            return found;
        size_t to = found ? match.begin : limit;
        reached = piece;
        if (piece < to)
            code = encode_level(encoder, level + 1, piece, to, !found && !closed, &reached);
        if (!found || code)
            break;
        code = text_tokens_push(encoder->tokens, match.token->id);
        encoder->place = level == 0 ? TEXT_AFTER_FIRST : TEXT_AFTER_SECOND;
    }
    encoder->skip[level] = open && scan.scan > reached ? scan.scan - reached : 0;
    *consumed = reached;
    return code;
}

int text_encoder_feed(struct text_encoder *encoder, const char *text, size_t begin, size_t end,
                      bool last, size_t *consumed)
{
    int code = 0;
    encoder->text = text;
    *consumed = begin;
    if (!encoder->tokenizer->is_bytes)
        return encode_level(encoder, 0, begin, end, !last, consumed);
    for (; *consumed < end && !code; ++*consumed)
        code = text_tokens_push(encoder->tokens, (uint8_t)text[*consumed]);
    return code;
}

int zinf_tokenizer_encode(const struct zinf_tokenizer *tokenizer, const char *text, size_t bytes,
                          struct zinf_tokens *tokens)
{
    struct text_encoder encoder;
    size_t before = tokens->count, consumed;
    int code = text_encoder_init(&encoder, tokenizer, tokens);
    if (code)
        return code;
    code = text_encoder_feed(&encoder, text, 0, bytes, true, &consumed);
    if (code)
        tokens->count = before;
    text_encoder_fini(&encoder);
    return code;
}
