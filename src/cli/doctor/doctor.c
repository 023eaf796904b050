/* doctor: the table of `zinf doctor`, a line at a time. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>

static const char *const states[] = {
    [DOCTOR_OK] = "ok",
    [DOCTOR_WARNING] = "warning",
    [DOCTOR_FAILED] = "FAILED",
    [DOCTOR_LEFT_OUT] = "left out",
};

void doctor_line(struct doctor *d, const char *what, enum doctor_state state, const char *remedy,
                 const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    d->failed = d->failed || state == DOCTOR_FAILED;
    if (d->lines) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "what", what);
        cJSON_AddStringToObject(line, "state", states[state]);
        cJSON_AddStringToObject(line, "found", text);
        if (remedy)
            cJSON_AddStringToObject(line, "remedy", remedy);
        cJSON_AddItemToArray(d->lines, line);
        return;
    }
    printf("%-10s %-9s %s\n", what, states[state], text);
    if (remedy)
        printf("%-20s remedy: %s\n", "", remedy);
    fflush(stdout);
}
