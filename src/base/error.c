/* error: one sentence per thread, so that a return value can stay an errno value. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

/* Large enough for the ledger's table, which is an error message when a plan does not fit. */
#define MESSAGE_BYTES 8192

static _Thread_local char message[MESSAGE_BYTES];

/* Bytes of the character at text if a terminal only shows it, else 0. */
static size_t shown_bytes(const unsigned char *text)
{
    size_t n = *text < 0x80 ? 1 : *text >= 0xf0 && *text < 0xf5 ? 4 : *text >= 0xe0 ? 3 : 2;
    if (n == 1)
        return *text == '\n' || *text == '\t' || (*text >= ' ' && *text != 0x7f);
    if (*text < 0xc2 || *text > 0xf4 || (*text == 0xc2 && text[1] < 0xa0)) /* C1 controls */
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

const char *zinf_show_text(char *out, size_t out_bytes, const char *text)
{
    size_t used = 0;
    while (*text) {
        size_t n = shown_bytes((const unsigned char *)text), wants = n ? n : sizeof "\\x1b" - 1;
        if (used + wants + 1 > out_bytes)
            break;
        if (n)
            memcpy(out + used, text, n);
        else
            snprintf(out + used, wants + 1, "\\x%02x", (unsigned char)*text);
        used += wants;
        text += n ? n : 1;
    }
    if (out_bytes)
        out[used] = 0;
    return out;
}

/* Set before there are threads. */
static zinf_speller *speller;

void zinf_spell_by(zinf_speller *by)
{
    speller = by;
}

/* Apart, so that only who has a speller needs the stack for it. */
__attribute__((noinline)) static void spell(char *out, size_t out_bytes, const char *text)
{
    char spelled[MESSAGE_BYTES];
    speller(spelled, sizeof spelled, text);
    zinf_show_text(out, out_bytes, spelled);
}

const char *zinf_spell(char *out, size_t out_bytes, const char *text)
{
    if (!speller)
        return zinf_show_text(out, out_bytes, text);
    spell(out, out_bytes, text);
    return out;
}

int zinf_fail(int code, const char *format, ...)
{
    /* A caller may pass zinf_error() itself as an argument: format into a second buffer. */
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    zinf_spell(message, sizeof message, text);
    return code;
}

int zinf_fail_in(int code, const char *format, ...)
{
    char context[1024], text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    snprintf(text, sizeof text, "%s: %.*s", context, (int)(MESSAGE_BYTES - 1100), message);
    zinf_spell(message, sizeof message, text);
    return code;
}

const char *zinf_error(void)
{
    return message;
}
