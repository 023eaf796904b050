/* size: sizes as people write and read them. Binary units are the meaning of a bare letter. */
#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

uint64_t zinf_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int zinf_size_parse(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {
        {"", 1},         {"b", 1},      {"k", 0x1p10},   {"kib", 0x1p10}, {"m", 0x1p20},
        {"mib", 0x1p20}, {"g", 0x1p30}, {"gib", 0x1p30}, {"t", 0x1p40},   {"tib", 0x1p40},
        {"kb", 1e3},     {"mb", 1e6},   {"gb", 1e9},     {"tb", 1e12},
    };
    char *end;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value) || value < 0)
        return zinf_fail(-EINVAL, "'%s' is not a size: write 4GiB, 500MB or a number of bytes",
                         text);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(end, units[i].suffix))
            continue;
        value *= units[i].factor;
        if (value >= 0x1p63)
            return zinf_fail(-EINVAL, "size '%s' is too large", text);
        *bytes = (uint64_t)value;
        return 0;
    }
    return zinf_fail(-EINVAL, "'%s' is not a size: the unit '%s' is unknown; write 4GiB or 500MB",
                     text, end);
}

const char *zinf_size_format(char *buffer, size_t buffer_bytes, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, buffer_bytes, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}
