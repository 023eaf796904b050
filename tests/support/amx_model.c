/*
 * amx_model: the kernel's own source, compiled with functions in place of the instructions for
 * tiles. What they do is what the Intel SDM, volume 2, writes of each; a tile register is memory of
 * the thread. Only palette 1 is known: eight registers of at most 16 rows of 64 bytes.
 */
#include "amx_model.h"

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { REGISTERS = 8, ROWS = 16, BYTES = 64 };

struct tile_state {
    bool configured;
    int rows[REGISTERS], row_bytes[REGISTERS];
    unsigned char data[REGISTERS][ROWS][BYTES];
};
static _Thread_local struct tile_state state;
static atomic_int faults, holders;

int amx_model_faults(void)
{
    return atomic_load(&faults);
}

int amx_model_holders(void)
{
    return atomic_load(&holders);
}

/* True, and counted, if one of the registers has no shape. */
static bool is_fault(int first, int second, int third)
{
    const bool bad =
        !state.configured || !state.rows[first] || !state.rows[second] || !state.rows[third];
    atomic_fetch_add(&faults, bad);
    return bad;
}

static void load_config(const void *memory)
{
    const unsigned char *config = memory;
    bool bad = config[0] != 1 || config[1] != 0;
    atomic_fetch_add(&holders, !state.configured);
    memset(&state, 0, sizeof state);
    for (int i = 0; i < 16; i++) {
        const int row_bytes = config[16 + 2 * i] | config[17 + 2 * i] << 8, rows = config[48 + i];
        bad |= row_bytes > BYTES || rows > ROWS || !row_bytes != !rows;
        bad |= i >= REGISTERS && rows;
        if (!bad && i < REGISTERS) {
            state.rows[i] = rows;
            state.row_bytes[i] = row_bytes;
        }
    }
    for (int i = 2; i < 16; i++)
        bad |= config[i] != 0;
    atomic_fetch_add(&faults, bad);
    state.configured = !bad;
}

static void release(void)
{
    atomic_fetch_sub(&holders, state.configured);
    memset(&state, 0, sizeof state);
}

static void zero(int tile)
{
    if (!is_fault(tile, tile, tile))
        memset(state.data[tile], 0, sizeof state.data[tile]);
}

static void load(int tile, const void *base, long stride)
{
    if (is_fault(tile, tile, tile))
        return;
    memset(state.data[tile], 0, sizeof state.data[tile]);
    for (int i = 0; i < state.rows[tile]; i++)
        memcpy(state.data[tile][i], (const char *)base + i * stride, (size_t)state.row_bytes[tile]);
}

static void store(int tile, void *base, long stride)
{
    if (is_fault(tile, tile, tile))
        return;
    for (int i = 0; i < state.rows[tile]; i++)
        memcpy((char *)base + i * stride, state.data[tile][i], (size_t)state.row_bytes[tile]);
}

static float flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

static float bf16_of(int tile, int row, int element)
{
    uint16_t half;
    memcpy(&half, &state.data[tile][row][2 * element], sizeof half);
    return flush(zinf_bf16_to_f32(half));
}

/* c += a b: even and odd elements of k are summed apart. */
static void dot_bf16(int c, int a, int b)
{
    if (is_fault(c, a, b))
        return;
    atomic_fetch_add(&faults, state.rows[b] != state.row_bytes[a] / 4 ||
                                  state.rows[c] != state.rows[a] ||
                                  state.row_bytes[c] != state.row_bytes[b]);
    for (int m = 0; m < state.rows[c]; m++)
        for (int n = 0; n < state.row_bytes[c] / 4; n++) {
            float even = 0.0f, odd = 0.0f, sum;
            for (int k = 0; k < state.row_bytes[a] / 4; k++) {
                even = flush(fmaf(bf16_of(a, m, 2 * k), bf16_of(b, k, 2 * n), even));
                odd = flush(fmaf(bf16_of(a, m, 2 * k + 1), bf16_of(b, k, 2 * n + 1), odd));
            }
            memcpy(&sum, &state.data[c][m][4 * n], sizeof sum);
            sum = flush(flush(sum) + flush(even + odd));
            memcpy(&state.data[c][m][4 * n], &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig load_config
#define _tile_release release
#define _tile_zero zero
#define _tile_loadd load
#define _tile_stored store
#define _tile_dpbf16ps dot_bf16
#define host_gemm_amx_bf16 host_gemm_amx_model
#include "kernels/host_gemm_amx_bf16.c"
