/*
 * frame_cost: how long kernels take, in the time of products at the device's full rate. A kernel
 * takes as long as its arithmetic or as its reads and writes, whichever is longer, and at least as
 * long as it takes to start it. Products are made in whole tiles, and their last tiles leave cores
 * idle. So a pass over 16 tokens takes as long as reading its weights does, and a thin adapter
 * takes longer than its flops.
 */
#include "model/frame_cost.h"

#include <math.h>

#define TILE 64   /* rows and columns of the smallest tile of a product */
#define ALIGNED 8 /* elements of 16 bytes: tensor cores are slow on rows of no multiple of it */
#define UNALIGNED                                                                                  \
    2 /* times as long, by figure 2 of NVIDIA's "Matrix Multiplication Background                  \
       * User's Guide" for cuBLAS 11 */
#define TAIL                                                                                       \
    0.25 /* of a wave of tiles: what the last one leaves idle, in the mean (section 4.1            \
          * of it has the two; a choice of tiles by the library halves the half) */
/* Tensor cores multiply two times as many numbers of 8 bits as of 16 in the same time (NVIDIA's
 * tables of Ada, Hopper and Blackwell). */
#define FLOAT8 0.5
#define FLOAT8_READS 2
/* Assumed: kernels that look each value up and scale it reach about two thirds of a copy's rate. */
#define UNPACKING 1.5

void frame_cost(struct zinf_frame *f, double flops, double bytes)
{
    const struct zinf_pace *pace = &f->compute->pace;
    f->work += fmax(fmax(flops, bytes * pace->flops_a_byte), pace->shortest) + pace->between;
}

static double tiles(double extent, double tile)
{
    return tile > 0 ? ceil(extent / tile) * tile : extent;
}

static bool is_aligned(const struct zinf_matmul *args)
{
    return args->lda % ALIGNED == 0 && args->ldb % ALIGNED == 0 &&
           args->ldc * (int64_t)zinf_dtype_bytes(args->c_dtype) % 16 == 0;
}

/* Where rows choose visits, each visit is counted with its share of the rows. */
static double of_rows(const struct zinf_frame *f, int64_t extent)
{
    bool rows = f->rows_share > 0 && extent == f->n_chosen;
    return (double)extent * (rows ? f->rows_share : 1);
}

/* A CPU packs its operands, which takes the longer part of a product of few rows, and gives it to
 * its threads. */
static const struct zinf_product_pace *product_pace(const struct zinf_frame *f,
                                                    const struct zinf_matmul *args)
{
    const int kind = args->trans_a   ? ZINF_PRODUCT_DW
                     : args->trans_b ? ZINF_PRODUCT_FORWARD
                                     : ZINF_PRODUCT_DX;
    const struct zinf_product_pace *pace = &f->compute->pace.products[kind];
    return pace->flop > 0 ? pace : NULL;
}

static double flop_pace(const struct zinf_frame *f, const struct zinf_matmul *args,
                        const struct zinf_product_pace *own)
{
    const double wide = f->compute->pace.wide_flop;
    const bool is_wide = args->a_dtype == ZINF_DTYPE_F32 || args->b_dtype == ZINF_DTYPE_F32;
    return wide > 0 && is_wide && f->compute->dtype != ZINF_DTYPE_F32 ? wide : own->flop;
}

void frame_cost_product(struct zinf_frame *f, const struct zinf_matmul *args)
{
    const struct zinf_pace *pace = &f->compute->pace;
    double tile = pace->wave > 0 ? TILE : 0, m = of_rows(f, args->m);
    double n = (double)args->n, k = m < (double)args->m ? (double)args->k : of_rows(f, args->k);
    double flops = 2 * k * (tiles(m, tile) * tiles(n, tile) + TAIL * pace->wave);
    if (args->float8) /* each operand is read twice, and its codes are written */
        frame_cost(f, 0, (2 * FLOAT8_READS + 1) * (m + n) * k);
    const double of_a = args->float8 ? 1 : (double)zinf_dtype_bytes(args->a_dtype);
    const double of_b = args->float8 ? 1 : (double)zinf_dtype_bytes(args->b_dtype);
    double bytes = m * k * of_a + k * n * of_b +
                   m * n * (double)zinf_dtype_bytes(args->c_dtype) * (args->beta != 0 ? 2 : 1);
    const struct zinf_product_pace *own = product_pace(f, args);
    if (own) {
        f->work += own->call + flops * flop_pace(f, args, own) + bytes * own->byte;
        return;
    }
    if (pace->wave > 0)
        flops *= args->float8 ? FLOAT8 : is_aligned(args) ? 1 : UNALIGNED;
    frame_cost(f, flops, bytes);
}

static double pace_of(const struct zinf_attention_pace *at, bool backward)
{
    return backward ? at->backward : at->forward;
}

/* The time of a row, of which a part does not depend on its keys. Between two lengths that were
 * measured it grows evenly, and beyond them as between the nearest two; short rows are not faster
 * for each key than the shortest that was measured. */
static double row_time(const struct zinf_pace *pace, const struct attention_extent *extent,
                       bool backward)
{
    const struct zinf_attention_pace *at = pace->attention;
    const double keys = extent->keys + extent->edges * ZINF_ATTENTION_EDGE;
    uint32_t i = 1;
    if (pace->n_attention < 2)
        return extent->keys * (pace->n_attention ? pace_of(at, backward) / at->keys : 1);
    while (i + 1 < pace->n_attention && at[i].keys < keys)
        i++;
    const double end = pace_of(&at[i], backward), beyond = keys - at[i].keys;
    double grows = end - pace_of(&at[i - 1], backward);
    if (beyond > 0) /* what a busy machine measured does not make long rows free */
        grows = fmax(grows, 0);
    const double time = end + grows * beyond / (at[i].keys - at[i - 1].keys);
    const double shortest = pace_of(at, backward) / at->keys;
    return keys < at->keys ? fmax(time, shortest * keys) : time;
}

void frame_cost_attention(struct zinf_frame *f, const struct attention_extent *extent, double bytes,
                          bool backward)
{
    const double time = row_time(&f->compute->pace, extent, backward);
    frame_cost(f, time * extent->flops, (backward ? 2.5 : 1) * bytes);
}

void frame_cost_unpacked(struct zinf_frame *f, double bytes)
{
    frame_cost(f, 0, bytes * (f->compute->pace.wave > 0 ? UNPACKING : 1));
}
