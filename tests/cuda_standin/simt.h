/*
 * simt: CUDA kernels on the CPU. kernels/cuda/kernel.cuh includes this where nvcc does not compile
 * it: the same vocabulary, every thread of a block a fiber. Threads run one at a time in a seeded
 * random order and change only at barriers and warp operations, so that a missing barrier shows as
 * a wrong result; dynamic shared memory begins as NaN.
 */
#ifndef STANDIN_SIMT_H
#define STANDIN_SIMT_H

#include "base/base.h"
#include "standin.h"

#ifdef __cplusplus
extern "C" {
#endif

struct simt_index {
    unsigned x, y, z;
};
extern struct simt_index threadIdx, blockIdx, blockDim, gridDim;

enum { SIMT_WORDS = 8 };

typedef void simt_body(const void *args);
/* Enqueues a grid; args (args_bytes) are copied. Checks the geometry. */
cudaError_t simt_launch(cudaStream_t stream, struct simt_index grid, struct simt_index block,
                        size_t shared_bytes, simt_body *body, const void *args, size_t args_bytes);
void *simt_shared_memory(void);
/* All live threads of the block; returns whether any gave true. */
bool simt_sync_block(bool predicate);
/* Every lane gives n words (at most SIMT_WORDS); what lane l gave is at result[l]. The result
 * lasts until the lane's next warp operation but one. */
typedef uint32_t simt_words[SIMT_WORDS];
const simt_words *simt_sync_warp(const uint32_t *words, int n);
int simt_lane(void);
/* Made at random now or when this thread waits; zeros if not wanted. */
void simt_copy_async(void *to, const void *from, size_t bytes, bool wanted);
void simt_wait_copies(void);

#ifdef __cplusplus
}

#define DEVICE static inline __attribute__((unused))
#define KERNEL(threads) static void
#define KERNEL_BESIDE(threads, blocks) static void
#define UNROLL
#define UNROLL_4
#define UNROLL_16
#define NO_UNROLL
#define SHARED_MEMORY(name) unsigned char *name = (unsigned char *)simt_shared_memory()
#define __shared__ static

DEVICE float to_float(float x)
{
    return x;
}
DEVICE float to_float(bf16 x)
{
    return zinf_bf16_to_f32(x.bits);
}
DEVICE float to_float(f16 x)
{
    return zinf_f16_to_f32(x.bits);
}
template <class T> DEVICE void numbers_of(uint32_t word, float &low, float &high, T)
{
    T a, b;
    a.bits = (uint16_t)word;
    b.bits = (uint16_t)(word >> 16);
    low = to_float(a);
    high = to_float(b);
}
DEVICE void from_number(bf16 &to, float x)
{
    to.bits = zinf_bf16_from_f32(x);
}
DEVICE void from_number(f16 &to, float x)
{
    to.bits = zinf_f16_from_f32(x);
}
template <class T> DEVICE uint32_t pair_of(float low, float high, T)
{
    T a, b;
    from_number(a, low);
    from_number(b, high);
    return (uint32_t)a.bits | (uint32_t)b.bits << 16;
}
DEVICE void from_float(float &to, float x)
{
    to = x;
}
DEVICE void from_float(bf16 &to, float x)
{
    to.bits = x != x ? 0x7fc0 : zinf_bf16_from_f32(x);
}
DEVICE void from_float(f16 &to, float x)
{
    to.bits = x != x ? 0x7e00 : zinf_f16_from_f32(x);
}
DEVICE float shuffle_xor(float x, int lane_mask)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    const simt_words *all = simt_sync_warp(&word, 1);
    memcpy(&x, &all[simt_lane() ^ lane_mask][0], sizeof x);
    return x;
}
DEVICE float shuffle_from(float x, uint32_t lane)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    const simt_words *all = simt_sync_warp(&word, 1);
    memcpy(&x, &all[lane % 32][0], sizeof x);
    return x;
}
DEVICE double shuffle_xor(double x, int lane_mask)
{
    uint32_t words[2];
    memcpy(words, &x, sizeof words);
    const simt_words *all = simt_sync_warp(words, 2);
    memcpy(&x, all[simt_lane() ^ lane_mask], sizeof x);
    return x;
}
DEVICE float fused(float a, float b, float c)
{
    return fmaf(a, b, c);
}
DEVICE float product(float a, float b)
{
    volatile float rounded = a * b;
    return rounded;
}
DEVICE float quotient(float a, float b)
{
    return a / b;
}
DEVICE float root(float x)
{
    return sqrtf(x);
}
DEVICE uint32_t vote_warp(bool predicate)
{
    uint32_t word = predicate, votes = 0;
    const simt_words *all = simt_sync_warp(&word, 1);
    for (int lane = 0; lane < 32; lane++)
        votes |= all[lane][0] << lane;
    return votes;
}
DEVICE void sync_block()
{
    simt_sync_block(false);
}
DEVICE bool sync_block_or(bool predicate)
{
    return simt_sync_block(predicate);
}
DEVICE uint32_t multiply_high(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
DEVICE int count_bits(uint32_t x)
{
    return __builtin_popcount(x);
}
DEVICE float exp2_near(float x)
{
    return exp2f(x);
}
template <class T> DEVICE T kept(T x)
{
    return x;
}
DEVICE float either(bool first, float a, float b)
{
    return first ? a : b;
}
DEVICE float reciprocal_near(float x)
{
    return 1.0f / x;
}
template <int BYTES> DEVICE void copy_async(void *to, const void *from, bool wanted)
{
    simt_copy_async(to, from, BYTES, wanted);
}
DEVICE void wait_copies()
{
    simt_wait_copies();
}

template <class Args> struct simt_call {
    void (*kernel)(Args);
    Args args;
    static void run(const void *payload)
    {
        simt_call call;
        memcpy((void *)&call, payload, sizeof call);
        call.kernel(call.args);
    }
};

template <class Args>
static cudaError_t launch(kernel_of<Args> kernel, dim3 grid, dim3 block, size_t shared_bytes,
                          cudaStream_t stream, const Args &args)
{
    cudaError_t error = standin_check_loaded((const void *)kernel.function, "a kernel");
    if (error != cudaSuccess)
        return error;
    simt_call<Args> call;
    memset((void *)&call, 0, sizeof call);
    call.kernel = kernel.function;
    call.args = args;
    note_launch(kernel.entry);
    if (standin_skips(kernel.entry->name) || standin_traps(kernel.entry->name))
        return cudaSuccess;
    return simt_launch(stream, simt_index{grid.x, grid.y, grid.z},
                       simt_index{block.x, block.y, block.z}, shared_bytes, simt_call<Args>::run,
                       &call, sizeof call);
}
#endif
#endif
