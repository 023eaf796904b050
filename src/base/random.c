/* random: normal numbers and shuffles as pure functions of key and index. */
#include "base/random.h"

#include <math.h>

void zinf_normal_fill(float *dst, uint64_t first, uint64_t n, uint64_t key, uint64_t stream,
                      float mean, float std)
{
    /* A block gives four numbers; block b covers elements 4b .. 4b+3, so any cut is the same. */
    for (uint64_t i = 0; i < n;) {
        uint64_t element = first + i, block = element / 4;
        uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                               (uint32_t)(stream >> 32)};
        uint32_t bits[4];
        float normal[4];
        zinf_philox(counter, key, bits);
        for (int pair = 0; pair < 4; pair += 2) {
            double u = ((double)bits[pair] + 1.0) * 0x1p-32; /* (0, 1]: the log is finite */
            double angle = (double)bits[pair + 1] * (6.283185307179586 * 0x1p-32);
            double radius = sqrt(-2.0 * log(u));
            normal[pair] = (float)(radius * cos(angle));
            normal[pair + 1] = (float)(radius * sin(angle));
        }
        for (unsigned lane = element % 4; lane < 4 && i < n; lane++, i++)
            dst[i] = mean + std * normal[lane];
    }
}

uint64_t zinf_permute(uint64_t index, uint64_t n, uint64_t key)
{
    unsigned half_bits = 1;
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < n)
        half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    do { /* the network permutes [0, 4^half_bits), at most 4n: walk until inside */
        uint64_t left = index >> half_bits, right = index & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t counter[4] = {(uint32_t)right, (uint32_t)(right >> 32), round, 0x5afe};
            uint32_t bits[4];
            zinf_philox(counter, key, bits);
            uint64_t next = left ^ (bits[0] & mask);
            left = right;
            right = next;
        }
        index = left << half_bits | right;
    } while (index >= n);
    return index;
}
