/* philox: the host's counter-based random numbers (base/random.h) in device code, and dropout
 * factors from them: the same masks on every device. */
#ifndef ZINF_CUDA_PHILOX_CUH
#define ZINF_CUDA_PHILOX_CUH

#include "kernels/cuda/kernel.cuh"

/* What a kernel needs of a zinf_dropout: the threshold is uniform >= p in integers, exactly. */
struct dropout_rule {
    uint64_t seed, first;
    uint32_t step, site, threshold;
    float keep;
};

static inline dropout_rule dropout_rule_of(const struct zinf_dropout &d)
{
    dropout_rule rule = {d.seed,
                         d.element_first,
                         d.step,
                         d.site,
                         (uint32_t)ceilf(d.p * 16777216.0f),
                         1.0f / (1.0f - d.p)};
    return rule;
}

DEVICE void philox_round(uint32_t (&c)[4], uint32_t k0, uint32_t k1)
{
    uint32_t high0 = multiply_high(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
    uint32_t high1 = multiply_high(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
    c[0] = high1 ^ c[1] ^ k0;
    c[2] = high0 ^ c[3] ^ k1;
    c[1] = low1;
    c[3] = low0;
}

/* The four words of block number e / 4. */
DEVICE void philox_block(uint32_t (&c)[4], const dropout_rule &rule, uint64_t block)
{
    uint32_t k0 = (uint32_t)rule.seed, k1 = (uint32_t)(rule.seed >> 32);
    c[0] = (uint32_t)block;
    c[1] = (uint32_t)(block >> 32);
    c[2] = rule.step;
    c[3] = rule.site;
    UNROLL for (int round = 0; round < 10; round++)
    {
        philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Whether the four elements of block number e / 4 are kept, a bit each. */
DEVICE uint32_t dropout_bits(const dropout_rule &rule, uint64_t block)
{
    uint32_t c[4], bits = 0;
    philox_block(c, rule, block);
    UNROLL for (int k = 0; k < 4; k++) bits |= (uint32_t)((c[k] >> 8) >= rule.threshold) << k;
    return bits;
}

/* Factors of elements first .. first + N - 1 counted from the step's first element; one block for
 * every four where first is a multiple of 4, which all but odd tensors are. */
template <int N>
DEVICE void dropout_factors(float (&factors)[N], const dropout_rule &rule, uint64_t first)
{
    uint64_t e = rule.first + first, have = ~(uint64_t)0;
    uint32_t bits = 0;
    UNROLL for (int k = 0; k < N; k++)
    {
        if ((e + k) / 4 != have) {
            have = (e + k) / 4;
            bits = dropout_bits(rule, have);
        }
        factors[k] = bits >> (e + k) % 4 & 1 ? rule.keep : 0.0f;
    }
}

/* Whether elements first .. first + n - 1 are kept, a bit each; n is a multiple of 4, at most 32. */
DEVICE uint32_t dropout_word(const dropout_rule &rule, uint64_t first, int n)
{
    uint64_t e = rule.first + first, wide = 0;
    NO_UNROLL for (int block = 0; block <= n / 4; block += 3)
    {
        UNROLL for (int more = 0; more < 3; more++) wide |=
            (uint64_t)dropout_bits(rule, e / 4 + block + more) << (4 * (block + more));
    }
    return (uint32_t)(wide >> e % 4);
}

#endif
