/*
 * normalize: see normalize.h. Each normalizer reads one buffer and writes the other. The rules,
 * down to the odd ones, are those of Hugging Face's `tokenizers`.
 */
#include "text/tokenizer/normalize.h"

#include <stdlib.h>

/* What normalizers may make of a text: those that are in use add a mark, or spell a character in
 * some others. A chain of replacements could make anything of a few bytes. */
#define MOST_TIMES 8
#define MOST_MORE ((size_t)32 << 20)

struct step {
    const struct text_normalizer *normalizer;
    const struct text_passage *passage;
    struct text_matcher *matcher;
    const char *text;
    size_t bytes;
    struct text_buffer *out;
    bool moved;
};

/* ---- character by character ---- */

static int replace_characters(struct step *s, const struct text_normalizer *n,
                              int (*put)(struct step *, const struct text_normalizer *, uint32_t,
                                         const char *, size_t))
{
    int code = text_buffer_reserve(s->out, s->bytes);
    for (size_t at = 0, used; at < s->bytes && !code; at += used) {
        int32_t c = text_utf8_next(s->text + at, s->bytes - at, &used);
        size_t before = s->out->count;
        code = put(s, n, (uint32_t)c, s->text + at, used);
        s->moved |= at == 0 && s->out->count == before;
    }
    return code;
}

static int put_lower(struct step *s, const struct text_normalizer *n, uint32_t c, const char *text,
                     size_t used)
{
    (void)n;
    if (c >= 0x80)
        return text_lower(c, s->out);
    char lower = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    (void)text;
    return text_buffer_add(s->out, &lower, used);
}

static int put_unmarked(struct step *s, const struct text_normalizer *n, uint32_t c,
                        const char *text, size_t used)
{
    bool mark = c >= 0x80 && uset_contains(n->marks, (UChar32)c);
    return mark ? 0 : text_buffer_add(s->out, text, used);
}

static int put_clean(struct step *s, const struct text_normalizer *n, uint32_t c, const char *text,
                     size_t used)
{
    if (c == 0 || c == 0xfffd || uset_contains(n->control, (UChar32)c))
        return 0;
    if (text_is_white_space((int32_t)c))
        return text_buffer_add(s->out, " ", 1);
    return text_buffer_add(s->out, text, used);
}

/* The blocks of CJK ideographs as BERT's first tokenizer named them. */
static bool is_ideograph(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
           (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

static int put_spaced(struct step *s, const struct text_normalizer *n, uint32_t c, const char *text,
                      size_t used)
{
    (void)n;
    if (!is_ideograph(c))
        return text_buffer_add(s->out, text, used);
    int code = text_buffer_add(s->out, " ", 1);
    code = code ? code : text_buffer_add(s->out, text, used);
    return code ? code : text_buffer_add(s->out, " ", 1);
}

/* The clean-up of Google's neural machine translation, from before its table of replacements. */
static int put_nmt(struct step *s, const struct text_normalizer *n, uint32_t c, const char *text,
                   size_t used)
{
    (void)n;
    bool control = (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
                   c == 0x8f || c == 0x9f;
    bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                 (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                 c == 0xfeff || c == 0xfffd;
    if (control)
        return 0;
    return space ? text_buffer_add(s->out, " ", 1) : text_buffer_add(s->out, text, used);
}

static int put_letters(struct step *s, const struct text_normalizer *n, uint32_t c,
                       const char *text, size_t used)
{
    char letters[8];
    size_t written = 0;
    (void)n;
    (void)c;
    for (size_t i = 0; i < used; i++)
        written += text_alphabet_put((uint8_t)text[i], letters + written);
    return text_buffer_add(s->out, letters, written);
}

/* ---- whole passages ---- */

static int strip(struct step *s)
{
    const char *text = s->text;
    size_t begin = 0, end = s->bytes, used, start;
    while (s->normalizer->left && s->passage->start && begin < end &&
           text_is_white_space(text_utf8_next(text + begin, end - begin, &used)))
        begin += used;
    while (s->normalizer->right && end > begin &&
           text_is_white_space(text_utf8_previous(text, begin, end, &start)))
        end = start;
    s->moved |= begin > 0;
    return text_buffer_add(s->out, text + begin, end - begin);
}

static int prepend(struct step *s)
{
    int code = 0;
    if (s->bytes && s->passage->start)
        code = text_buffer_add(s->out, s->normalizer->content, strlen(s->normalizer->content));
    return code ? code : text_buffer_add(s->out, s->text, s->bytes);
}

static int replace(struct step *s)
{
    const struct text_normalizer *n = s->normalizer;
    size_t at = 0;
    int code = 0;
    while (at < s->bytes && !code) {
        int found = text_match(s->matcher, n->code, s->text, s->bytes, at, false);
        if (found == PCRE2_ERROR_INTERNAL)
            return -EIO;
        if (found < 0)
            break;
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->matcher->data);
        size_t begin = range[0], end = range[1], first;
        code = text_buffer_add(s->out, s->text + at, begin - at);
        code = code ? code : text_buffer_add(s->out, n->content, strlen(n->content));
        if (begin == 0) { /* the replacement counts as the match's last character */
            text_utf8_next(s->text, s->bytes, &first);
            s->moved |= end > first || !*n->content;
        }
        at = end;
    }
    return code ? code : text_buffer_add(s->out, s->text + at, s->bytes - at);
}

/* The result of the last step becomes the text of the next. */
static void turn(struct step *s, struct text_buffer work[2])
{
    s->text = s->out->bytes ? s->out->bytes : "";
    s->bytes = s->out->count;
    s->out = s->out == &work[0] ? &work[1] : &work[0];
    s->out->count = 0;
}

static int bert(struct step *s, struct text_buffer work[2])
{
    const struct text_normalizer *n = s->normalizer;
    int code = 0,
        (*puts[4])(struct step *, const struct text_normalizer *, uint32_t, const char *,
                   size_t) = {n->clean ? put_clean : NULL, n->chinese ? put_spaced : NULL,
                              n->accents ? put_unmarked : NULL, n->lower ? put_lower : NULL};
    bool any = false;
    for (int i = 0; i < 4 && !code; i++) {
        if (!puts[i])
            continue;
        if (any)
            turn(s, work);
        any = true;
        if (puts[i] == put_unmarked) {
            code = text_form_apply(&n->form, s->text, s->bytes, s->out);
            turn(s, work);
        }
        code = code ? code : replace_characters(s, n, puts[i]);
    }
    return any ? code : text_buffer_add(s->out, s->text, s->bytes);
}

static int run_step(struct step *s, struct text_buffer work[2])
{
    const struct text_normalizer *n = s->normalizer;
    switch (n->kind) {
    case TEXT_NORMALIZE_FORM:
        return text_form_apply(&n->form, s->text, s->bytes, s->out);
    case TEXT_NORMALIZE_LOWERCASE:
        return replace_characters(s, n, put_lower);
    case TEXT_NORMALIZE_STRIP_ACCENTS:
        return replace_characters(s, n, put_unmarked);
    case TEXT_NORMALIZE_STRIP:
        return strip(s);
    case TEXT_NORMALIZE_PREPEND:
        return prepend(s);
    case TEXT_NORMALIZE_REPLACE:
        return replace(s);
    case TEXT_NORMALIZE_PRECOMPILED:
        return text_charsmap_apply(&n->map, s->matcher, s->text, s->bytes, s->out);
    case TEXT_NORMALIZE_BERT:
        return bert(s, work);
    case TEXT_NORMALIZE_NMT:
        return replace_characters(s, n, put_nmt);
    case TEXT_NORMALIZE_BYTE_LEVEL:
        return replace_characters(s, n, put_letters);
    }
    return -EINVAL;
}

int text_normalize(const struct text_normalizers *normalizers, const struct text_passage *passage,
                   struct text_matcher *matcher, struct text_buffer work[2],
                   struct text_buffer **out, bool *moved)
{
    struct step s = {.passage = passage, .matcher = matcher, .out = &work[0]};
    work[0].count = work[1].count = 0;
    work[0].limit = work[1].limit = MOST_TIMES * passage->bytes + MOST_MORE;
    int code = text_buffer_repair(s.out, passage->text, passage->bytes);
    for (int i = 0; i < normalizers->count && !code; i++) {
        s.normalizer = &normalizers->items[i];
        turn(&s, work);
        code = run_step(&s, work);
    }
    *out = s.out;
    *moved = s.moved;
    if (code == -E2BIG)
        return zinf_fail_in(code, "normalizer %d of the tokenizer makes of a text of %zu bytes",
                            s.normalizer ? (int)(s.normalizer - normalizers->items) + 1 : 0,
                            passage->bytes);
    return code;
}

/* ---- cuts ---- */

static bool is_printable(char c)
{
    return c > 0x20 && c < 0x7f;
}

size_t text_normalizers_cut(const struct text_normalizers *normalizers, const char *text,
                            size_t bytes)
{
    if (normalizers->cut == TEXT_CUT_NOWHERE)
        return 0;
    for (size_t at = bytes; at-- > 1;) {
        bool word = text[at] == ' ' && at + 1 < bytes && is_printable(text[at - 1]) &&
                    is_printable(text[at + 1]);
        if (word || (normalizers->cut == TEXT_CUT_LINES && text[at - 1] == '\n'))
            return at;
    }
    return 0;
}

void text_normalizers_fini(struct text_normalizers *normalizers)
{
    for (int i = 0; i < normalizers->count; i++) {
        struct text_normalizer *n = &normalizers->items[i];
        free(n->content);
        pcre2_code_free(n->code);
        text_form_close(&n->form);
        uset_close(n->marks);
        uset_close(n->control);
        text_charsmap_close(&n->map);
    }
    free(normalizers->items);
    *normalizers = (struct text_normalizers){0};
}
