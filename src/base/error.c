/* error: one sentence per thread, so that a return value can stay an errno value. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

/* Large enough for the ledger's table, which is an error message when a plan does not fit. */
#define MESSAGE_BYTES 8192

static _Thread_local char message[MESSAGE_BYTES];

int zinf_fail(int code, const char *format, ...)
{
    /* A caller may pass zinf_error() itself as an argument: format into a second buffer. */
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(message, text, strlen(text) + 1);
    return code;
}

int zinf_fail_in(int code, const char *format, ...)
{
    char context[1024], text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    memcpy(text, message, sizeof text);
    snprintf(message, sizeof message, "%s: %.*s", context, (int)(MESSAGE_BYTES - 1100), text);
    return code;
}

const char *zinf_error(void)
{
    return message;
}
