/*
 * mma: one warp's product of small matrices on tensor cores: mma.sync m16n8k16, 16-bit operands,
 * fp32 sums. Lane 4g + t holds, in PTX's layout,
 *   A 16 x 16: a[0] (g, 2t..) a[1] (g+8, 2t..) a[2] (g, 2t+8..) a[3] (g+8, 2t+8..), two a word
 *   B 16 x 8:  b0 (k = 2t.., n = g)  b1 (k = 2t+8.., n = g)
 *   C 16 x 8:  c[0], c[1] (g, 2t..)  c[2], c[3] (g+8, 2t..)
 * so C of two neighbouring 16 x 8 results, packed to 16 bits, is an A. The CPU's bodies of what
 * differs there are in tests/cuda_standin/simt_mma.h.
 */
#ifndef ZINF_CUDA_MMA_CUH
#define ZINF_CUDA_MMA_CUH

#include "kernels/cuda/kernel.cuh"

#ifdef __CUDACC__

DEVICE int lane_id()
{
    return threadIdx.x % 32;
}
DEVICE constexpr bool is_f16(f16)
{
    return true;
}
DEVICE constexpr bool is_f16(bf16)
{
    return false;
}

/* An address in shared memory, to which bytes are added. */
typedef uint32_t tile_place;
DEVICE tile_place place_of(const void *address)
{
    return (uint32_t)__cvta_generic_to_shared(address);
}

/* Four 8 x 8 matrices from shared memory: lane l gives the address of row l % 8 of matrix l / 8;
 * transposed where asked. Addresses are multiples of 16 bytes. */
template <bool TRANSPOSE> DEVICE void load_matrices(uint32_t (&r)[4], tile_place address)
{
    if (TRANSPOSE)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
}

/* False in code for sm_75 that sm_75 is never given (attention_mma_serves): not worth compiling. */
template <class T> DEVICE constexpr bool compiles(int head)
{
#if __CUDA_ARCH__ >= 800
    return head > 0;
#else
    return head <= 64 && is_f16(T());
#endif
}

/* c += A B. volatile: all lanes of the warp take part, so that it must not move into a branch. The
 * old c and the new one have registers of their own: a sum that begins at 0 takes none for that. */
DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16)
{
#if __CUDA_ARCH__ >= 800
    const float old[4] = {c[0], c[1], c[2], c[3]};
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(old[0]), "f"(old[1]),
          "f"(old[2]), "f"(old[3]));
#else
    __trap();
#endif
}

DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16)
{
#if __CUDA_ARCH__ >= 800
    const float old[4] = {c[0], c[1], c[2], c[3]};
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(old[0]), "f"(old[1]),
          "f"(old[2]), "f"(old[3]));
#else /* sm_75 has half of it: the same registers in two steps of k */
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

#else
#include <simt_mma.h>
#endif

/* This lane's row of a 16 x 16 tile, as A or, transposed, as two B that lie [k][n]. */
template <class T> DEVICE const T *row_of_a(const T *tile, int pitch)
{
    int lane = lane_id();
    return tile + lane % 16 * pitch + lane / 16 * 8;
}

/* The same for two B that lie [n][k]. */
template <class T> DEVICE const T *row_of_b(const T *tile, int pitch)
{
    int lane = lane_id();
    return tile + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
}

/* This lane's rows of a tile: as two B that lie [n][k], and from a column on as two that lie
 * [k][n]. */
struct lane_rows {
    tile_place by_key, by_row;
};
template <bool KEPT, class T> DEVICE lane_rows lane_rows_of(const T *tile, int pitch, int column)
{
    lane_rows rows = {place_of(row_of_b(tile, pitch)), place_of(row_of_a(tile + column, pitch))};
    if (KEPT) {
        rows.by_key = kept(rows.by_key);
        rows.by_row = kept(rows.by_row);
    }
    return rows;
}

/* A from two neighbouring 16 x 8 results. */
template <class T>
DEVICE void pack_a(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4])
{
    a[0] = pack<T>(left[0], left[1]);
    a[1] = pack<T>(left[2], left[3]);
    a[2] = pack<T>(right[0], right[1]);
    a[3] = pack<T>(right[2], right[3]);
}

template <class T> DEVICE constexpr int bytes_of(int elems)
{
    return elems * (int)sizeof(T);
}

/* A warp's 16 rows that many products have on the left: held in registers, or, where these would
 * not do, read from shared memory each time. */
template <int DEPTH, bool HELD> struct left_rows {
    uint32_t held[HELD ? DEPTH / 16 : 1][4];
    tile_place first; /* this lane's row, to be read from */
};
template <int DEPTH, bool HELD, class T>
DEVICE void hold(left_rows<DEPTH, HELD> &rows, const T *a, int pitch)
{
    rows.first = place_of(row_of_a(a, pitch));
    UNROLL for (int k = 0; HELD && k < DEPTH; k += 16)
        load_matrices<false>(rows.held[HELD ? k / 16 : 0], rows.first + bytes_of<T>(k));
}

template <int DEPTH, bool HELD, int H, class T>
DEVICE void hold(left_rows<DEPTH, HELD> (&rows)[H], const T *a, int pitch)
{
    UNROLL for (int h = 0; h < H; h++) hold(rows[h], a + h * 16 * pitch, pitch);
}

/* c += A B^T over DEPTH, H times 16 x 8 N: rows of b at b[8 N][pitch], of which first is this
 * lane's by row_of_b. What is loaded of b meets all rows of A. */
template <class T, int H, int N, int DEPTH, bool HELD>
DEVICE void multiply_rows(float (&c)[H][N][4], const left_rows<DEPTH, HELD> (&rows)[H],
                          tile_place first, int pitch)
{
    UNROLL for (int k = 0; k < DEPTH; k += 16)
    {
        uint32_t left[H][4], right[4];
        UNROLL for (int h = 0; h < H; h++) if (HELD)
            memcpy(left[h], rows[h].held[HELD ? k / 16 : 0], sizeof left[h]);
        else load_matrices<false>(left[h], rows[h].first + bytes_of<T>(k));
        UNROLL for (int n = 0; n < N; n += 2)
        {
            load_matrices<false>(right, first + bytes_of<T>(n * 8 * pitch + k));
            UNROLL for (int h = 0; h < H; h++)
            {
                multiply(c[h][n], left[h], right[0], right[1], T());
                multiply(c[h][n + 1], left[h], right[2], right[3], T());
            }
        }
    }
}

/* c += P B, H times 16 x 8 N: P (16 x 8 K) from results p[K][4], B at b[8 K][pitch], of which first
 * is this lane's row by row_of_a. */
template <class T, int H, int N, int K>
DEVICE void multiply_results(float (&c)[H][N][4], const float (&p)[H][K][4], tile_place first,
                             int pitch)
{
    UNROLL for (int k = 0; k < K; k += 2)
    {
        uint32_t left[H][4], right[4];
        UNROLL for (int h = 0; h < H; h++) pack_a<T>(left[h], p[h][k], p[h][k + 1]);
        UNROLL for (int n = 0; n < N; n += 2)
        {
            load_matrices<true>(right, first + bytes_of<T>(k * 8 * pitch + n * 8));
            UNROLL for (int h = 0; h < H; h++)
            {
                multiply(c[h][n], left[h], right[0], right[1], T());
                multiply(c[h][n + 1], left[h], right[2], right[3], T());
            }
        }
    }
}

#endif
