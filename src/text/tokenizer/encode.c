/*
 * encode: drives a window of text through added tokens, normalizers and pre-tokenizers. When more
 * text is to follow, only what no continuation can change is turned into ids; what is left waits
 * for the next window.
 */
#include "base/pulse.h"
#include "text/tokenizer/tokenizer.h"

int text_encoder_init(struct text_encoder *encoder, const struct zinf_tokenizer *tokenizer,
                      struct zinf_tokens *tokens)
{
    *encoder = (struct text_encoder){.tokenizer = tokenizer, .tokens = tokens};
    if (tokenizer->kind == TEXT_MODEL_BYTES)
        return 0;
    int code = text_matcher_init(&encoder->matcher);
    code = code ? code : text_scratch_create(&encoder->scratch);
    if (code)
        text_encoder_fini(encoder);
    return code;
}

void text_encoder_fini(struct text_encoder *encoder)
{
    text_matcher_fini(&encoder->matcher);
    text_scratch_destroy(encoder->scratch);
    for (int i = 0; i < TEXT_MAX_STAGES; i++) {
        text_buffer_free(&encoder->dressed[i]);
        text_buffer_free(&encoder->spelled_parts[i]);
    }
    text_buffer_free(&encoder->spelled);
    text_buffer_free(&encoder->normal);
    text_buffer_free(&encoder->work[0]);
    text_buffer_free(&encoder->work[1]);
    *encoder = (struct text_encoder){0};
}

void text_encoder_restart(struct text_encoder *encoder)
{
    encoder->place = TEXT_AT_START;
    encoder->skip[0] = encoder->skip[1] = 0;
    encoder->normal.count = encoder->normal_done = 0;
    encoder->in_stretch = encoder->moved = encoder->begun = false;
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
            struct text_piece piece = {text, valid, unsure, encoder->place != TEXT_INSIDE,
                                       encoder->place == TEXT_AT_START && !encoder->moved};
            code = text_stage_run(encoder, 0, piece, &done);
        } else if (!unsure) { /* a byte that is no UTF-8 stands for itself */
            code = text_model_encode(tokenizer, text, 1, encoder->scratch, encoder->tokens);
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
                        bool open, size_t *consumed);

/* The last TEXT_CONTEXT of the consumed bytes stay, for words and white space before a token. */
static void forget_consumed(struct text_encoder *encoder, bool all)
{
    struct text_buffer *normal = &encoder->normal;
    size_t done = encoder->normal_done;
    size_t drop = all ? normal->count : done > TEXT_CONTEXT ? done - TEXT_CONTEXT : 0;
    memmove(normal->bytes, normal->bytes + drop, normal->count - drop);
    normal->count -= drop;
    encoder->normal_done = all ? 0 : done - drop;
}

/* A stretch between tokens of the first set: what of it has a normal form of its own is normalized,
 * and goes on as text of the second level, where not all may be consumed yet. */
static int encode_normalized(struct text_encoder *encoder, size_t begin, size_t end, bool open,
                             size_t *consumed)
{
    const struct text_normalizers *normalizers = &encoder->tokenizer->normalizers;
    const char *raw = encoder->text;
    struct text_buffer *normal = &encoder->normal, *result;
    bool moved, beginning = encoder->place == TEXT_AT_START && !encoder->begun;
    size_t n = open ? text_normalizers_cut(normalizers, raw + begin, end - begin) : end - begin;
    struct text_passage passage = {raw + begin, n, !encoder->in_stretch};
    *consumed = begin + n;
    if (!n && open)
        return 0;
    int code =
        text_normalize(normalizers, &passage, &encoder->matcher, encoder->work, &result, &moved);
    code = code ? code : text_buffer_add(normal, result->bytes, result->count);
    if (code)
        return code;
    encoder->moved = beginning ? moved : encoder->moved;
    encoder->begun = true;
    encoder->in_stretch = open;
    encoder->text = normal->bytes ? normal->bytes : "";
    if (encoder->normal_done < normal->count)
        code = encode_level(encoder, 1, encoder->normal_done, normal->count, open,
                            &encoder->normal_done);
    encoder->text = raw;
    if (normal->count)
        forget_consumed(encoder, !open);
    return code;
}

static int encode_level(struct text_encoder *encoder, int level, size_t begin, size_t end,
                        bool open, size_t *consumed)
{
    const bool direct = encoder->tokenizer->direct;
    if (level == 2)
        return encode_text(encoder, begin, end, open, consumed);
    const struct text_added_set *set = &encoder->tokenizer->added[level];
    bool at_start = (encoder->place == TEXT_AT_START && !(level == 0 && encoder->begun)) ||
                    (level == 1 && encoder->place == TEXT_AFTER_FIRST);
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
        bool goes_on = !found && !closed;
        if (level == 0 && !direct && (piece < to || (!goes_on && encoder->in_stretch)))
            code = encode_normalized(encoder, piece, to, goes_on, &reached);
        else if (piece < to)
            code = encode_level(encoder, level + 1, piece, to, goes_on, &reached);
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
    if (encoder->tokenizer->kind != TEXT_MODEL_BYTES)
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
    int code = zinf_pulse_beat();
    if (!code)
        code = text_encoder_init(&encoder, tokenizer, tokens);
    if (code)
        return code;
    code = text_encoder_feed(&encoder, text, 0, bytes, true, &consumed);
    if (code)
        tokens->count = before;
    text_encoder_fini(&encoder);
    return code;
}
