/* host_simd_scalar: the loops without instruction set flags: what every machine can run, and the
 * specification of the others. Four lanes is what a baseline compiler maps to a register. */
#include "base/random.h"
#include "kernels/host_simd.h"

#define HOST_SIMD host_simd_scalar
#define HOST_GEMM host_gemm_scalar
#define HOST_LANES 4

static void f16_to_f32(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = zinf_f16_to_f32(src[i]);
}

static void f16_from_f32(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = zinf_f16_from_f32(src[i]);
}

/* Words of blocks first .. first + PHILOX_BLOCKS - 1, in order. */
static void philox_blocks(uint32_t *words, const struct zinf_dropout *dropout, uint64_t first)
{
    for (uint64_t block = first; block < first + PHILOX_BLOCKS; block++, words += 4) {
        uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), dropout->step,
                               dropout->site};
        zinf_philox(counter, dropout->seed, words);
    }
}

/* Converts two codes at a time and returns how many it has converted. */
static size_t make_halves(float *y, const uint8_t *codes, const float *map, float scale, size_t n)
{
    for (size_t i = 0; i + 2 <= n; i += 2) {
        y[i] = map[codes[i / 2] >> 4] * scale;
        y[i + 1] = map[codes[i / 2] & 15] * scale;
    }
    return n / 2 * 2;
}

/* to[HOST_LANES][to_ld] = the transpose of from[HOST_LANES][ld]. */
static inline void turn_block(float *to, int64_t to_ld, const float *from, int64_t ld)
{
    for (int64_t i = 0; i < HOST_LANES; i++)
        for (int64_t j = 0; j < HOST_LANES; j++)
            to[i * to_ld + j] = from[j * ld + i];
}

#include "kernels/host_loops.h"
#include "kernels/host_tiles.h"

#include "kernels/host_tiles_forward.h"

#include "kernels/host_tiles_backward.h"

#include "kernels/host_gemm_lanes.h"
#include "kernels/host_rows.h"

#include "kernels/host_cached.h"
#include "kernels/host_quantized.h"
#include "kernels/host_scan_tile.h"

#include "kernels/host_scan_loops.h"

#include "kernels/host_scan_gradients.h"
#include "kernels/host_table.h"
