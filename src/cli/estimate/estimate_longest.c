/*
 * estimate_longest: the longest sequence with which a training fits a machine. Memory grows with
 * its length, so it is found by halving.
 */
#include "cli/estimate/estimate.h"

/* Lengths are multiples of it, unless the model's context is shorter. */
#define STEP 1024

/* 1: it fits; 0: it does not. */
static int fits(struct zinf_estimate_options *options, int64_t seq_len)
{
    struct zinf_estimate unused;
    options->trainer.seq_len = seq_len;
    int code = zinf_estimate(&unused, options);
    return code && code != -ENOMEM ? code : !code;
}

int estimate_longest(const struct zinf_estimate_options *given, int64_t context, int64_t *seq_len)
{
    struct zinf_estimate_options options = *given;
    const int64_t step = context < STEP ? context : STEP;
    int64_t low = 1, high = 2; /* in steps; low is the least, or fits */
    int good = fits(&options, step);
    while (good > 0 && high * step <= context && (good = fits(&options, high * step)) > 0) {
        low = high;
        high *= 2;
    }
    if (good > 0) /* what is left is the context */
        high = context / step + 1;
    while (good >= 0 && high - low > 1 && (high - low) * 64 > low) {
        const int64_t middle = low + (high - low) / 2;
        good = fits(&options, middle * step);
        low = good > 0 ? middle : low;
        high = good > 0 ? high : middle;
    }
    *seq_len = low * step;
    return good < 0 ? good : 0;
}
