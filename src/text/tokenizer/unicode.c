/*
 * unicode: ICU behind a few calls. ICU speaks UTF-16, so text goes through it in pieces that end
 * between two ASCII characters, where no normal form reaches across; ASCII itself never changes and
 * never goes there.
 */
#include "text/tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <unicode/uchar.h>
#include <unicode/ustring.h>

/* Single characters are those whose category has changed since the library's Unicode. */
const char text_set_punctuation[] = "[[[:P:]&[:age=8.0:]][$+<=>\\^`|~]\\u166D\\U000111C9]";
const char text_set_control[] = "[[[:Cc:][:Cf:][:Co:]]&[:age=8.0:]-[\\u0009\\u000A\\u000D]]";
const char text_set_nonspacing[] =
    "[[[:Mn:]&[:age=8.0:]-[\\u1885\\u1886\\uA9BD\\U000111C9]]\\u1734]";
const char text_set_marks[] = "[[[:M:]&[:age=9.0:]-[\\U000111C9]]\\u1CF2\\u1CF3]";

static int fail_icu(const char *what, UErrorCode error)
{
    return zinf_fail(error == U_MEMORY_ALLOCATION_ERROR ? -ENOMEM : -EIO, "ICU: %s: %s", what,
                     u_errorName(error));
}

int text_set_open(USet **out, const char *notation)
{
    UChar wide[512];
    UErrorCode error = U_ZERO_ERROR;
    u_uastrncpy(wide, notation, sizeof wide / sizeof *wide);
    USet *set = uset_openPattern(wide, (int32_t)strlen(notation), &error);
    if (U_FAILURE(error))
        return fail_icu(notation, error);
    uset_freeze(set);
    *out = set;
    return 0;
}

int text_set_as_class(const char *notation, struct text_buffer *out)
{
    USet *set;
    int code = text_set_open(&set, notation);
    if (code)
        return code;
    code = text_buffer_add(out, "[", 1);
    for (int32_t i = 0, n = uset_getItemCount(set); i < n && !code; i++) {
        char range[40];
        UErrorCode error = U_ZERO_ERROR;
        UChar32 first, last;
        if (uset_getItem(set, i, &first, &last, NULL, 0, &error) || U_FAILURE(error))
            continue; /* a string, which no class of characters has */
        int written =
            snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last);
        code = text_buffer_add(out, range, (size_t)written);
    }
    uset_close(set);
    return code ? code : text_buffer_add(out, "]", 1);
}

/* ---- normal forms ---- */

int text_form_open(struct text_form *form, const char *name)
{
    UErrorCode error = U_ZERO_ERROR;
    UNormalization2Mode mode = name[strlen(name) - 1] == 'C' ? UNORM2_COMPOSE : UNORM2_DECOMPOSE;
    const UNormalizer2 *all =
        unorm2_getInstance(NULL, name[2] == 'K' ? "nfkc" : "nfc", mode, &error);
    if (U_FAILURE(error))
        return fail_icu(name, error);
    int code = text_set_open(&form->known, "[:age=9.0:]");
    if (code)
        return code;
    form->normalizer = unorm2_openFiltered(all, form->known, &error);
    if (U_FAILURE(error)) {
        form->normalizer = NULL;
        text_form_close(form);
        return fail_icu(name, error);
    }
    return 0;
}

void text_form_close(struct text_form *form)
{
    unorm2_close(form->normalizer);
    uset_close(form->known);
    *form = (struct text_form){0};
}

/* Through UTF-16 and back. */
static int apply_wide(const struct text_form *form, const char *text, size_t bytes,
                      struct text_buffer *out)
{
    UErrorCode error = U_ZERO_ERROR;
    int32_t n = (int32_t)bytes, n_wide, n_done, n_bytes, room = 4 * n + 64;
    UChar *wide = malloc(((size_t)n + (size_t)room) * sizeof *wide), *done = wide + n;
    if (!wide)
        return zinf_fail(-ENOMEM, "no memory to normalize %zu bytes", bytes);
    u_strFromUTF8(wide, n, &n_wide, text, n, &error);
    n_done = unorm2_normalize(form->normalizer, wide, n_wide, done, room, &error);
    if (error == U_BUFFER_OVERFLOW_ERROR) { /* a ligature may become 18 letters */
        room = n_done;
        error = U_ZERO_ERROR;
        UChar *grown = realloc(wide, ((size_t)n + (size_t)room) * sizeof *wide);
        wide = grown ? grown : wide;
        done = wide + n;
        error = grown ? U_ZERO_ERROR : U_MEMORY_ALLOCATION_ERROR;
        n_done = unorm2_normalize(form->normalizer, wide, n_wide, done, room, &error);
    }
    int code = U_FAILURE(error) ? fail_icu("normal form", error)
                                : text_buffer_reserve(out, 3 * (size_t)n_done);
    if (!code) {
        u_strToUTF8(out->bytes + out->count, 3 * n_done, &n_bytes, done, n_done, &error);
        error = error == U_STRING_NOT_TERMINATED_WARNING ? U_ZERO_ERROR : error;
        code = U_FAILURE(error) ? fail_icu("normal form", error) : 0;
        out->count += code ? 0 : (size_t)n_bytes;
    }
    free(wide);
    return code;
}

static size_t ascii_run(const char *text, size_t at, size_t bytes)
{
    while (at < bytes && (uint8_t)text[at] < 0x80)
        at++;
    return at;
}

int text_form_apply(const struct text_form *form, const char *text, size_t bytes,
                    struct text_buffer *out)
{
    int code = 0;
    for (size_t at = 0; at < bytes && !code;) {
        size_t ascii = ascii_run(text, at, bytes);
        /* The last of a run may take a mark that follows. */
        size_t plain = ascii < bytes && ascii > at ? ascii - 1 : ascii;
        code = text_buffer_add(out, text + at, plain - at);
        at = plain;
        size_t end = at;
        while (end < bytes &&
               ((uint8_t)text[end] >= 0x80 || (end + 1 < bytes && (uint8_t)text[end + 1] >= 0x80)))
            end++;
        if (end - at > INT32_MAX / 16)
            return zinf_fail(-EFBIG, "%zu bytes without ASCII are too many to normalize", end - at);
        if (end > at && !code)
            code = apply_wide(form, text + at, end - at, out);
        at = end;
    }
    return code;
}

int text_lower(uint32_t code_point, struct text_buffer *out)
{
    char bytes[8];
    /* The only letter whose lower case is two characters. */
    if (code_point == 0x130)
        return text_buffer_add(out, "i\xcc\x87", 3);
    uint32_t lower = (uint32_t)u_tolower((UChar32)code_point);
    lower = lower == code_point ? text_newer_lower(code_point) : lower;
    return text_buffer_add(out, bytes, text_utf8_put(lower, bytes));
}
