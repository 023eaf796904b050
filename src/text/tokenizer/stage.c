/*
 * stage: runs a text without added tokens through the pre-tokenizers. Each cuts what it gets and
 * hands the parts to the next; behind the last stands the model. The end of an open text is cut
 * only where no continuation can change it: an expression is then run with PCRE2's hard partial
 * matching, which reports any look at the end instead of deciding by it.
 */
#include "text/tokenizer/tokenizer.h"

void text_stage_fini(struct text_stage *stage)
{
    pcre2_code_free(stage->code);
    stage->code = NULL;
}

/* ---- the model behind the last stage ---- */

static int encode_piece(struct text_encoder *encoder, const char *text, size_t bytes)
{
    const struct zinf_tokenizer *tokenizer = encoder->tokenizer;
    encoder->place = TEXT_INSIDE;
    if (tokenizer->respell) {
        encoder->spelled.count = 0;
        int code = text_buffer_reserve(&encoder->spelled, bytes);
        if (code)
            return code;
        size_t n = 0;
        if (!text_alphabet_decode(text, bytes, encoder->spelled.bytes, &n))
            return zinf_fail(-EINVAL, "a piece is not spelled in the byte-level alphabet");
        text = encoder->spelled.bytes;
        bytes = n;
    }
    return text_model_encode(tokenizer, text, bytes, encoder->scratch, encoder->tokens);
}

static int spell(struct text_encoder *encoder, struct text_buffer *out, struct text_piece *piece)
{
    out->count = 0;
    int code = text_buffer_reserve(out, 2 * piece->bytes);
    if (code)
        return code;
    for (size_t i = 0; i < piece->bytes; i++)
        out->count += text_alphabet_put((uint8_t)piece->text[i], out->bytes + out->count);
    (void)encoder;
    piece->text = out->bytes;
    piece->bytes = out->count;
    return 0;
}

/* ---- cutting ---- */

struct cutter {
    struct text_encoder *encoder;
    int index;
    const struct text_piece *piece;
    size_t begin, end; /* of the part that waits for what follows it */
    bool waits, ends_in_match;
};

static int emit(struct cutter *c, size_t begin, size_t end)
{
    struct text_encoder *encoder = c->encoder;
    struct text_piece part = {c->piece->text + begin, end - begin, false, true,
                              c->piece->first && begin == 0};
    size_t done;
    int code = 0;
    if (begin == end)
        return 0;
    if (encoder->tokenizer->stages[c->index].spell) {
        /* The stage's own buffer may hold what is being cut; the next one's is free now. */
        struct text_buffer *out = &encoder->spelled_parts[c->index];
        code = spell(encoder, out, &part);
    }
    return code ? code : text_stage_run(encoder, c->index + 1, part, &done);
}

static int flush(struct cutter *c)
{
    bool waits = c->waits;
    c->waits = false;
    return waits ? emit(c, c->begin, c->end) : 0;
}

/* Takes the next part, a match or what lies between two, and says what it joins. */
static int take(struct cutter *c, size_t begin, size_t end, bool is_match)
{
    const struct text_stage *stage = &c->encoder->tokenizer->stages[c->index];
    bool joins = false;
    is_match ^= stage->invert;
    switch (stage->behavior) {
    case TEXT_ISOLATED:
        return emit(c, begin, end);
    case TEXT_REMOVED:
        return is_match ? 0 : emit(c, begin, end);
    case TEXT_CONTIGUOUS:
        joins = is_match == c->ends_in_match;
        break;
    case TEXT_MERGED_WITH_PREVIOUS:
        joins = is_match && !c->ends_in_match;
        break;
    case TEXT_MERGED_WITH_NEXT:
        joins = !is_match && c->ends_in_match;
        break;
    }
    int code = joins && c->waits ? 0 : flush(c);
    c->begin = joins && c->waits ? c->begin : begin;
    c->end = end;
    c->ends_in_match = is_match;
    c->waits = true;
    return code;
}

static int cut(struct text_encoder *encoder, int index, const struct text_piece *piece,
               size_t *consumed)
{
    const struct text_stage *stage = &encoder->tokenizer->stages[index];
    struct cutter c = {.encoder = encoder, .index = index, .piece = piece};
    size_t at = 0;
    int code = 0;
    while (at < piece->bytes && !code) {
        int found =
            text_match(&encoder->matcher, stage->code, piece->text, piece->bytes, at, piece->open);
        if (found == PCRE2_ERROR_INTERNAL)
            return -EIO;
        if (found == PCRE2_ERROR_PARTIAL || (found < 0 && piece->open))
            break;
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(encoder->matcher.data);
        size_t begin = found < 0 ? piece->bytes : range[0];
        size_t end = found < 0 ? piece->bytes : range[1];
        if (begin > at)
            code = take(&c, at, begin, false);
        if (end > begin && !code)
            code = take(&c, begin, end, true);
        at = end;
    }
    *consumed = piece->open && c.waits ? c.begin : at;
    return code || piece->open ? code : flush(&c);
}

/* Before each mark that follows something else. */
static int cut_words(struct text_encoder *encoder, int index, const struct text_piece *piece,
                     size_t *consumed)
{
    struct cutter c = {.encoder = encoder, .index = index, .piece = piece};
    const char *mark = encoder->tokenizer->stages[index].mark;
    size_t n = strlen(mark), begin = 0;
    int code = 0;
    while (begin < piece->bytes && !code) {
        size_t end = begin;
        while (end + n <= piece->bytes && !memcmp(piece->text + end, mark, n))
            end += n;
        const char *next =
            end < piece->bytes ? memmem(piece->text + end, piece->bytes - end, mark, n) : NULL;
        if (!next && piece->open)
            break;
        end = next ? (size_t)(next - piece->text) : piece->bytes;
        code = emit(&c, begin, end);
        begin = end;
    }
    *consumed = begin;
    return code;
}

/* ---- one stage ---- */

/* Puts the mark for spaces and before the piece. *prefix: how many bytes came before it. */
static int dress(struct text_encoder *encoder, int index, struct text_piece *piece, size_t *prefix)
{
    const struct text_stage *stage = &encoder->tokenizer->stages[index];
    struct text_buffer *out = &encoder->dressed[index];
    size_t n = strlen(stage->mark);
    bool has = (stage->replace_spaces && piece->text[0] == ' ') ||
               (piece->bytes >= n && !memcmp(piece->text, stage->mark, n));
    bool wants = stage->prepend == TEXT_PREPEND_ALWAYS  ? piece->fresh
                 : stage->prepend == TEXT_PREPEND_FIRST ? piece->first
                                                        : false;
    *prefix = wants && !has ? n : 0;
    if (!*prefix && !stage->replace_spaces)
        return 0;
    out->count = 0;
    int code = text_buffer_add(out, stage->mark, *prefix);
    for (size_t at = 0, end; at < piece->bytes && !code; at = end) {
        const char *space = stage->replace_spaces && piece->text[at] != ' '
                                ? memchr(piece->text + at, ' ', piece->bytes - at)
                                : NULL;
        end = space ? (size_t)(space - piece->text) : piece->bytes;
        if (stage->replace_spaces && piece->text[at] == ' ') {
            end = at + 1;
            code = text_buffer_add(out, stage->mark, n);
        } else
            code = text_buffer_add(out, piece->text + at, end - at);
    }
    piece->text = out->bytes;
    piece->bytes = out->count;
    return code;
}

/* How much of the piece before it was dressed n bytes of it after are. */
static size_t undressed(const struct text_stage *stage, const char *text, size_t prefix, size_t n)
{
    size_t after = prefix, at = 0;
    if (n <= prefix)
        return 0;
    if (!stage->replace_spaces)
        return n - prefix;
    for (; after < n; at++)
        after += text[at] == ' ' ? strlen(stage->mark) : 1;
    return at;
}

int text_stage_run(struct text_encoder *encoder, int index, struct text_piece piece,
                   size_t *consumed)
{
    const struct zinf_tokenizer *tokenizer = encoder->tokenizer;
    const char *text = piece.text;
    size_t prefix;
    *consumed = 0;
    if (index == tokenizer->n_stages) {
        if (piece.open || !piece.bytes)
            return 0;
        *consumed = piece.bytes;
        return encode_piece(encoder, piece.text, piece.bytes);
    }
    const struct text_stage *stage = &tokenizer->stages[index];
    int code = dress(encoder, index, &piece, &prefix);
    if (code)
        return code;
    if (stage->code)
        code = cut(encoder, index, &piece, consumed);
    else if (stage->words)
        code = cut_words(encoder, index, &piece, consumed);
    else if (!stage->spell)
        code = text_stage_run(encoder, index + 1, piece, consumed);
    else if (!piece.open) {
        struct cutter whole = {.encoder = encoder, .index = index, .piece = &piece};
        *consumed = piece.bytes;
        code = emit(&whole, 0, piece.bytes);
    }
    *consumed = undressed(stage, text, prefix, *consumed);
    return code;
}
