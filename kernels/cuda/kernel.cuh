/*
 * kernel: what every .cu file stands on. Kernels are short, take one struct by value and use a
 * small vocabulary (threads, shuffles, barriers, 16-byte accesses, storage types) that has two
 * bodies: the GPU's here, and one for the CPU in tests/cuda_standin/simt.h, where the same files
 * are compiled as C++ and every thread of a block is a fiber. Nothing below the #else is CUDA.
 *
 * All arithmetic is fp32. An array is read 8 elements a thread: 16 bytes of a 16-bit type, two
 * times 16 bytes of fp32.
 */
#ifndef ZINF_CUDA_KERNEL_CUH
#define ZINF_CUDA_KERNEL_CUH

#include "kernels/cuda/launch.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

/* A kernel in the form that launch() takes. Only known<KERNEL>() makes one, and it also enters the
 * kernel into the list of those that a device loads when it is opened (launch.h). So every kernel
 * that can be launched is in that list. */
template <class Args> struct kernel_of {
    void (*function)(Args);
    kernel_entry *entry;
};
struct kernel_node : kernel_entry {
    kernel_node(const void *which, const char *words)
    {
        kernel = which;
        name = words;
        launched = false;
        next = kernel_entries;
        kernel_entries = this;
    }
};
template <auto WHICH> static const char *name_of()
{
    return __PRETTY_FUNCTION__;
}
template <auto WHICH> static kernel_node node_of((const void *)WHICH, name_of<WHICH>());
template <class Args> static kernel_of<Args> kernel_at(void (*function)(Args), kernel_node *node)
{
    return {function, node};
}
static inline void note_launch(kernel_entry *entry)
{
    __atomic_store_n(&entry->launched, true, __ATOMIC_RELAXED);
}
template <auto WHICH> static auto known()
{
    return kernel_at(WHICH, &node_of<WHICH>);
}

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define DEVICE static __device__ __forceinline__
#define KERNEL(threads) static __global__ void __launch_bounds__(threads, 1)
/* A kernel of which so many blocks are to fit a multiprocessor at once, so that the compiler keeps
 * it to fewer registers. On sm_75 there is no such limit: its code needs more registers. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
#define KERNEL_BESIDE(threads, blocks) KERNEL(threads)
#else
#define KERNEL_BESIDE(threads, blocks) static __global__ void __launch_bounds__(threads, blocks)
#endif
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#define UNROLL_16 _Pragma("unroll 16") /* for loops that start 16 loads before they use one */
#define NO_UNROLL _Pragma("unroll 1")  /* where copies of the body would not fit the registers */
/* The block's dynamic shared memory, aligned to 16 bytes. */
#define SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]

DEVICE float to_float(float x)
{
    return x;
}
DEVICE float to_float(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
DEVICE float to_float(f16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}
/* The two numbers of a word, the first in its lower half. The instructions stand here because the
 * compiler keeps such bits as integers, and then moves each of them between kinds of registers. */
DEVICE void numbers_of(uint32_t word, float &low, float &high, bf16)
{
    asm("shl.b32 %0, %1, 16;" : "=f"(low) : "r"(word));
    asm("and.b32 %0, %1, 0xffff0000;" : "=f"(high) : "r"(word));
}
DEVICE void numbers_of(uint32_t word, float &low, float &high, f16)
{
    low = __half2float(__ushort_as_half((uint16_t)word));
    high = __half2float(__ushort_as_half((uint16_t)(word >> 16)));
}
/* Rounds to the nearest number of 16 bits. A NaN stays a NaN, but not with certain bits. */
DEVICE void from_number(bf16 &to, float x)
{
    to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
DEVICE void from_number(f16 &to, float x)
{
    to.bits = __half_as_ushort(__float2half_rn(x));
}
/* Rounds two numbers by one instruction. The first goes to the lower half of the word. */
DEVICE uint32_t pair_of(float low, float high, bf16)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &both, sizeof word);
    return word;
}
DEVICE uint32_t pair_of(float low, float high, f16)
{
    const __half2 both = __floats2half2_rn(low, high);
    uint32_t word;
    memcpy(&word, &both, sizeof word);
    return word;
}
/* Rounds as from_number does, but every NaN becomes the one that the CPU writes, so that parameters
 * have the same bits wherever they were updated. The GPU's own NaN would be 0x7fff. */
DEVICE void from_float(float &to, float x)
{
    to = x;
}
DEVICE void from_float(bf16 &to, float x)
{
    from_number(to, x);
    to.bits = x != x ? (uint16_t)0x7fc0 : to.bits;
}
DEVICE void from_float(f16 &to, float x)
{
    from_number(to, x);
    to.bits = x != x ? (uint16_t)0x7e00 : to.bits;
}
DEVICE float shuffle_xor(float x, int lane_mask)
{
    float y; /* by assembly for the reason given at numbers_of */
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                 : "=f"(y)
                 : "f"(x), "r"(lane_mask));
    return y;
}
DEVICE double shuffle_xor(double x, int lane_mask)
{
    return __shfl_xor_sync(0xffffffffu, x, lane_mask);
}
/* The x of that lane. */
DEVICE float shuffle_from(float x, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, x, (int)lane);
}
/* Each of these operations rounds once. The compiler does not fuse them with others. */
DEVICE float fused(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
DEVICE float product(float a, float b)
{
    return __fmul_rn(a, b);
}
DEVICE float quotient(float a, float b)
{
    return __fdiv_rn(a, b);
}
DEVICE float root(float x)
{
    return __fsqrt_rn(x);
}
DEVICE uint32_t vote_warp(bool predicate)
{
    return __ballot_sync(0xffffffffu, predicate);
}
DEVICE void sync_block()
{
    __syncthreads();
}
DEVICE bool sync_block_or(bool predicate)
{
    return __syncthreads_or(predicate);
}
DEVICE uint32_t multiply_high(uint32_t a, uint32_t b)
{
    return __umulhi(a, b);
}
DEVICE int count_bits(uint32_t x)
{
    return __popc(x);
}
/* 2^x by the special function unit, to 2 units in the last place. The result is 0 for -infinity and
 * where it would be denormal. */
DEVICE float exp2_near(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Returns x and makes the compiler keep it in a register from here on. Otherwise it would compute x
 * again in each turn of a loop. */
DEVICE int kept(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}
DEVICE uint32_t kept(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}
DEVICE int64_t kept(int64_t x)
{
    asm volatile("" : "+l"(x));
    return x;
}
DEVICE const char *kept(const char *x)
{
    asm volatile("" : "+l"(x));
    return x;
}

/* a if first is true, else b. Both are computed; ?: becomes a branch where one of them is long. */
DEVICE float either(bool first, float a, float b)
{
    const uint32_t mask = -(uint32_t)first;
    return __uint_as_float((__float_as_uint(a) & mask) | (__float_as_uint(b) & ~mask));
}

/* 1 / x by the special function unit, to 1 unit in the last place. The result is 0 for infinity. */
DEVICE float reciprocal_near(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Copies BYTES, 4 or 16, from global to shared memory; both addresses are multiples of BYTES. The
 * bytes are there for this thread after its wait_copies, and for others after a barrier behind
 * that. If the bytes are not wanted, zeros are stored. */
template <int BYTES> DEVICE void copy_async(void *to, const void *from, bool wanted)
{
#if __CUDA_ARCH__ >= 800
    uint32_t address = (uint32_t)__cvta_generic_to_shared(to);
    int count = wanted ? BYTES : 0;
    if (BYTES == 16) /* not kept in the first-level cache: no thread here reads them again */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(address), "l"(from), "r"(count)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(address), "l"(from), "r"(count)
                     : "memory");
#else
    uint32_t words[BYTES / 4] = {};
    if (wanted)
        memcpy(words, __builtin_assume_aligned(from, BYTES), BYTES);
    memcpy(__builtin_assume_aligned(to, BYTES), words, BYTES);
#endif
}
DEVICE void wait_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

/* A kernel that takes more than 48 KiB of shared memory, static and dynamic together, has to ask
 * for it on each device; where that fails, the launch fails too and says so. check_ptxas.sh ends
 * the build if a kernel takes more static shared memory than STATIC_SHARED. */
enum { STATIC_SHARED = 8 * 1024 };
template <class Args>
static cudaError_t launch(kernel_of<Args> kernel, dim3 grid, dim3 block, size_t shared_bytes,
                          cudaStream_t stream, const Args &args)
{
    if (shared_bytes > 48 * 1024 - STATIC_SHARED) {
        cudaError_t error =
            cudaFuncSetAttribute((const void *)kernel.function,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error != cudaSuccess)
            return error;
    }
    note_launch(kernel.entry);
    kernel.function<<<grid, block, shared_bytes, stream>>>(args);
    return cudaGetLastError();
}

#else
#include <simt.h>
#endif

/* ---- 8 elements ---- */

enum { EACH = 8 };

struct alignas(16) words4 {
    uint32_t at[4];
};

DEVICE void load_vector(float (&to)[EACH], const float *from)
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        words4 raw = ((const words4 *)(const void *)from)[half];
        memcpy(&to[4 * half], &raw, sizeof raw);
    }
}
DEVICE void store_vector(float *to, const float (&from)[EACH])
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        words4 raw;
        memcpy(&raw, &from[4 * half], sizeof raw);
        ((words4 *)(void *)to)[half] = raw;
    }
}
/* Two floats by one access, at a multiple of 8 bytes. */
struct alignas(8) words2 {
    uint32_t at[2];
};
DEVICE void load_pair(float (&to)[2], const float *from)
{
    words2 raw = *(const words2 *)(const void *)from;
    memcpy(to, &raw, sizeof raw);
}
template <class T> DEVICE void unpack(float (&to)[EACH], const words4 &from)
{
    UNROLL for (int k = 0; k < EACH; k += 2) numbers_of(from.at[k / 2], to[k], to[k + 1], T());
}
template <class T> DEVICE void load_vector(float (&to)[EACH], const T *from)
{
    const words4 raw = *(const words4 *)(const void *)from;
    unpack<T>(to, raw);
}
/* Two numbers rounded to 16 bits each, as from_number does. */
template <class T> DEVICE uint32_t pack(float low, float high)
{
    return pair_of(low, high, T());
}
template <class T> DEVICE words4 pack_each(const float (&from)[EACH])
{
    words4 raw;
    UNROLL for (int k = 0; k < EACH; k += 2) raw.at[k / 2] = pack<T>(from[k], from[k + 1]);
    return raw;
}
template <class T> DEVICE void store_vector(T *to, const float (&from)[EACH])
{
    *(words4 *)(void *)to = pack_each<T>(from);
}
/* Stores x if that is wanted. Either way x becomes what its stored form says. */
DEVICE void store_rounded(float *to, float (&x)[EACH], bool wanted)
{
    if (wanted)
        store_vector(to, x);
}
template <class T> DEVICE void store_rounded(T *to, float (&x)[EACH], bool wanted)
{
    const words4 raw = pack_each<T>(x);
    if (wanted)
        *(words4 *)(void *)to = raw;
    unpack<T>(x, raw);
}

/* Loads count elements, at most 8; zeros take the place of those that are missing. vector says that
 * the address is a multiple of 16 bytes. */
template <class T>
DEVICE void load_each(float (&to)[EACH], const T *from, int64_t count, bool vector)
{
    if (vector && count >= EACH) {
        load_vector(to, from);
        return;
    }
    UNROLL for (int k = 0; k < EACH; k++) to[k] = k < count ? to_float(from[k]) : 0.0f;
}
template <class T>
DEVICE void store_each(T *to, const float (&from)[EACH], int64_t count, bool vector)
{
    if (vector && count >= EACH) {
        store_vector(to, from);
        return;
    }
    UNROLL for (int k = 0; k < EACH; k++) if (k < count) from_float(to[k], from[k]);
}

/* Stores parameters: as store_each does, but always with the NaN of from_float. */
template <class T>
DEVICE void store_params(T *to, const float (&from)[EACH], int64_t count, bool vector)
{
    words4 raw[sizeof(T) / 2];
    UNROLL for (int k = 0; k < EACH; k++) from_float(((T *)(void *)raw)[k], from[k]);
    if (vector && count >= EACH) {
        UNROLL for (unsigned i = 0; i < sizeof(T) / 2; i++)((words4 *)(void *)to)[i] = raw[i];
        return;
    }
    UNROLL for (int k = 0; k < EACH; k++) if (k < count) from_float(to[k], from[k]);
}

/* ---- sums ---- */

DEVICE float warp_sum(float x)
{
    UNROLL for (int mask = 16; mask; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}
DEVICE float warp_max(float x)
{
    UNROLL for (int mask = 16; mask; mask /= 2)
    {
        float other = shuffle_xor(x, mask);
        x = other > x ? other : x;
    }
    return x;
}

/* ---- for launchers ---- */

/* Runs a statement with T as the type that a dtype stands for. */
#define BY_DTYPE(dtype, ...)                                                                       \
    do {                                                                                           \
        if ((dtype) == ZINF_DTYPE_F32) {                                                           \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == ZINF_DTYPE_BF16) {                                                   \
            typedef bf16 T;                                                                        \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            typedef f16 T;                                                                         \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

static inline bool aligned16(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}
/* More blocks than 32 bits count are as many as no GPU launches, so that the launch fails. */
static inline unsigned blocks_for(uint64_t n, uint64_t each)
{
    const uint64_t blocks = n / each + (n % each != 0);
    return blocks < UINT32_MAX ? (unsigned)blocks : UINT32_MAX;
}
/* A block for each row. */
static inline dim3 grid_of_rows(int64_t rows)
{
    return dim3(blocks_for((uint64_t)rows, 1));
}

#endif
