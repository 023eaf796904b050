/*
 * estimate_longest: the longest sequence with which a training fits a machine. Memory grows with
 * its length, so it is found by doubling, then by halving what is left.
 */
#include "cli/estimate/estimate.h"

#define FIRST 1024 /* the length that is tried first */

/* Lengths are multiples of it: of a chunk, where a sequence has several; else of the power of two
 * that is about one part in 64. */
static int64_t grain_of(int64_t length, int64_t chunk)
{
    int64_t grain = 1;
    if (chunk > 0 && length > chunk)
        return chunk;
    while (grain * 128 <= length)
        grain *= 2;
    return grain;
}

/* The length in the middle: a multiple of the grain above low, and below high; 0: there is none.
 * One token alone has nothing to foretell. */
static int64_t middle_of(int64_t low, int64_t high, int64_t chunk)
{
    const int64_t grain = grain_of(low + (high - low) / 2, chunk);
    int64_t middle = (low + (high - low) / 2) / grain * grain;
    if (middle <= low)
        middle = (low / grain + 1) * grain;
    return middle > 1 && middle < high ? middle : 0;
}

int estimate_longest(int (*fits)(void *arg, int64_t seq_len), void *arg, int64_t context,
                     int64_t chunk, int64_t *seq_len)
{
    int64_t low = 0, high = context < FIRST ? context : FIRST; /* low fits; high is tried next */
    int code = fits(arg, high);
    while (!code && high < context) {
        low = high;
        high = high * 2 < context ? high * 2 : context;
        code = fits(arg, high);
    }
    if (!code)
        low = high;
    for (int64_t middle; code == -ENOMEM && (middle = middle_of(low, high, chunk)) > 0;) {
        const int found = fits(arg, middle);
        if (found && found != -ENOMEM)
            return found;
        low = found ? low : middle;
        high = found ? middle : high;
    }
    if (code && code != -ENOMEM)
        return code;
    *seq_len = low;
    return low ? 0 : zinf_fail_in(code, "--longest: no sequence fits, however short");
}
