/*
 * tap: a test program prints one line a case in the Test Anything Protocol. Usage:
 *   int main(void) { TAP_RUN(test_a); TAP_RUN(test_b); return tap_done(); }
 * A case is a function without arguments; CHECK records the first failure and goes on.
 */
#ifndef ZINF_TAP_H
#define ZINF_TAP_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int tap_count, tap_failures, tap_case_failures;
static char tap_reason[256];

__attribute__((format(printf, 3, 4), unused)) static void tap_check(int ok, const char *where,
                                                                    const char *format, ...)
{
    char text[512];
    va_list args;
    if (ok)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("# %s: %s\n", where, text);
    tap_case_failures++;
}

#define TAP_STRING_(x) #x
#define TAP_STRING(x) TAP_STRING_(x)
#define TAP_WHERE __FILE__ ":" TAP_STRING(__LINE__)
#define CHECK(condition) tap_check(!!(condition), TAP_WHERE, "%s", #condition)
/* CHECK with a message: CHECKF(a == b, "a is %d", a) */
#define CHECKF(condition, ...) tap_check(!!(condition), TAP_WHERE, __VA_ARGS__)

/* Inside a case: mark it skipped and leave it. */
#define SKIP(...)                                                                                  \
    do {                                                                                           \
        snprintf(tap_reason, sizeof tap_reason, __VA_ARGS__);                                      \
        return;                                                                                    \
    } while (0)

__attribute__((unused)) static void tap_run(const char *name, void (*test)(void))
{
    tap_case_failures = 0;
    tap_reason[0] = 0;
    test();
    tap_count++;
    tap_failures += tap_case_failures > 0;
    printf("%s %d - %s%s%s\n", tap_case_failures ? "not ok" : "ok", tap_count, name,
           tap_reason[0] ? " # SKIP " : "", tap_reason);
    fflush(stdout);
}
#define TAP_RUN(test) tap_run(#test, test)

__attribute__((unused)) static int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failures != 0;
}

#endif
