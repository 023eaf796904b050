/* masking: how much is masked and by what, what never is, and what decides about it. */
#include "text/samples/masking.h"
#include "text/samples/samples.h"
#include "tap.h"

#include <math.h>

enum { N = 200000, VOCAB = 1000, MASK = 4, SPECIAL = 2 };
static int32_t ids[N], targets[N], plain[N];
static uint8_t marks[N];

static const struct zinf_masking masking = {.probability = 0.15,
                                            .seed = 11,
                                            .mask = MASK,
                                            .vocab = VOCAB,
                                            .special = {MASK, SPECIAL},
                                            .n_special = 2};

static void draw(const struct zinf_masking *m, uint64_t epoch, uint64_t sample, bool marked)
{
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = plain[i] = i % 10 ? (int32_t)(5 + i * 7 % (VOCAB - 5)) : SPECIAL;
        marks[i] = i % 10 == 1 ? ZINF_MARK_FRAME : ZINF_MARK_COUNTS;
    }
    const struct zinf_masked a = {.epoch = epoch,
                                  .sample = sample,
                                  .n = N,
                                  .marks = marked ? marks : NULL,
                                  .ids = ids,
                                  .targets = targets};
    zinf_masking_apply(m, &a);
}

static void test_shares(void)
{
    double chosen = 0, by_mask = 0, kept = 0;
    draw(&masking, 0, 3, true);
    for (int i = 0; i < N; i++) {
        CHECK(targets[i] == -1 || targets[i] == plain[i]);
        CHECK(targets[i] >= 0 || ids[i] == plain[i]);
        CHECK(ids[i] >= 0 && ids[i] < VOCAB);
        if (i % 10 < 2)
            CHECKF(targets[i] == -1, "token %d is special, or of the frame", i);
        chosen += targets[i] >= 0;
        by_mask += targets[i] >= 0 && ids[i] == MASK;
        kept += targets[i] >= 0 && ids[i] == plain[i];
    }
    CHECKF(fabs(chosen / (N * 0.8) - 0.15) < 0.004, "%g of the tokens", chosen / (N * 0.8));
    CHECKF(fabs(by_mask / chosen - 0.8) < 0.01, "%g by the mask", by_mask / chosen);
    CHECKF(fabs(kept / chosen - 0.1) < 0.01, "%g as they are", kept / chosen);
}

/* Numbers of tokens that are masked alike. */
static int alike(uint64_t seed, uint64_t epoch, uint64_t sample)
{
    static int32_t first[N];
    struct zinf_masking other = masking;
    int n = 0;
    other.seed = seed;
    draw(&masking, 1, 3, false);
    memcpy(first, targets, sizeof first);
    draw(&other, epoch, sample, false);
    for (int i = 0; i < N; i++)
        n += first[i] == targets[i];
    return n;
}

static void test_keys(void)
{
    CHECK(alike(11, 1, 3) == N);
    CHECK(alike(12, 1, 3) < N - N / 10);
    CHECK(alike(11, 2, 3) < N - N / 10);
    CHECK(alike(11, 1, 4) < N - N / 10);
    CHECK(alike(11, 1, 3 + ((uint64_t)1 << 32)) < N - N / 10);
    struct zinf_masking none = masking, more = masking;
    none.probability = 0;
    more.probability = 0.3;
    CHECK(zinf_masking_key(&none, 5) == 5);
    CHECK(zinf_masking_key(&masking, 5) != 5);
    CHECK(zinf_masking_key(&masking, 5) != zinf_masking_key(&more, 5));
}

int main(void)
{
    TAP_RUN(test_shares);
    TAP_RUN(test_keys);
    return tap_done();
}
