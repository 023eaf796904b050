/*
 * quantized: weights of a linear layer in 4 or 8 bits, a part of kernels.h. A struct zinf_quantized
 * says how a matrix [rows][cols] lies in its *image*: codes, their scales and the tables of both,
 * one block of bytes that is stored and moved so. Numbers are made of it by the device's
 * `dequantize`, just before a product; images are made on the CPU, by zinf_quantize.
 *
 * Forms, bytes and values are those of bitsandbytes (Dettmers et al., arXiv 2305.14314 and
 * 2208.07339), as it computes them on a CPU. MXFP4 (Open Compute Project, Microscaling Formats,
 * version 1.0) and FP8 (DeepSeek-V3, arXiv 2412.19437, section 3.3) are read and never made. 4-bit
 * codes go through the matrix row by row, in blocks of 64 that do not care where a row ends; the
 * first of two is the high half of its byte.
 *
 * Threads: a struct zinf_quantized is a value; two calls may fill different parts of an image.
 */
#ifndef ZINF_KERNELS_QUANTIZED_H
#define ZINF_KERNELS_QUANTIZED_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_form {
    ZINF_FORM_PLAIN,      /* not quantised */
    ZINF_FORM_NF4,        /* 4 bits; an fp32 scale a block */
    ZINF_FORM_NF4_DOUBLE, /* and of the scales 8 bits, an fp32 scale for 256 of them, a mean */
    ZINF_FORM_INT8,       /* 8 bits, of weights rounded to fp16; an fp32 scale a row */
    ZINF_FORM_MXFP4,      /* 4 bits; 8 of an exponent for 32 of them, inside a row */
    ZINF_FORM_FP8,        /* floats of 8 bits (E4M3); an fp32 scale for 128 x 128 of them */
    ZINF_FORMS,
};
const char *zinf_form_name(enum zinf_form form); /* "nf4", "int8", "mxfp4", "fp8", "plain" */

#define ZINF_QUANT_BLOCK 64         /* values of a scale */
#define ZINF_QUANT_MX_BLOCK 32      /* of MXFP4 */
#define ZINF_QUANT_FP8_BLOCK 128    /* of FP8: rows, and columns */
#define ZINF_QUANT_SCALES 256       /* scales of a scale of theirs */
#define ZINF_QUANT_CODES_AT 2048    /* behind the tables */
#define ZINF_QUANT_NESTED_MAP_AT 64 /* float [256]: what 8 bits of a scale stand for */
#define ZINF_QUANT_OFFSET_AT 1088   /* float: the scales' mean */
/* INT8: a number is code * scale * this, 1 / 127 as bitsandbytes rounds it. */
#define ZINF_QUANT_INT8_STEP 7.874015718698502e-3f

/* An image: float [16] of what 4 bits stand for; the table and the mean above; codes; scales:
 * float [n_blocks], or of NF4_DOUBLE uint8_t [n_blocks] and then float [n_nested], or of INT8
 * float [rows], or of MXFP4 uint8_t [n_blocks], of powers of 2 from 2^-127 on, or of FP8 float
 * [ceil(rows / 128)][ceil(cols / 128)]. What a form does not have is zero. */
struct zinf_quantized {
    enum zinf_form form;
    uint64_t rows, cols, n_elems;
    uint64_t n_blocks, n_nested;   /* scales, scales of scales; of INT8: rows, 0 */
    uint64_t code_bytes;           /* from ZINF_QUANT_CODES_AT on */
    uint64_t scales_at, nested_at; /* bytes from the image's start */
    uint64_t bytes;                /* a multiple of ZINF_MEMORY_ALIGN */
};
/* Of MXFP4 columns are a multiple of 32. */
struct zinf_quantized zinf_quantized_of(enum zinf_form form, uint64_t rows, uint64_t cols);

/* Codes and fp32 scales of n elements from first on, which is a multiple of 64 whole rows (and n,
 * but at the matrix' end). scales: [n_blocks], of the whole matrix; zinf_quantize_finish puts them
 * and the tables into the image, whose other bytes become zero. */
void zinf_quantize(const struct zinf_quantized *quantized, const float *values, uint64_t first,
                   uint64_t n, void *image, float *scales);
void zinf_quantize_finish(const struct zinf_quantized *quantized, void *image, const float *scales);

/* Of MXFP4 and FP8: the image of a file's codes and scales, which are there as in the image, but
 * that the first of two 4-bit codes is the low half. The way back. */
void zinf_quantize_take(const struct zinf_quantized *quantized, const void *codes,
                        const void *scales, void *image);
void zinf_quantize_give(const struct zinf_quantized *quantized, const void *image, void *codes,
                        void *scales);

/* w[to(r)] = row from(r) of the matrix, r from 0 to count * rows, in fp32 and rounded once: run i
 * of `rows` rows begins at from_first + i * from_stride there and at to_first + i * to_stride in w.
 */
struct zinf_dequantize {
    struct zinf_quantized quantized;
    const void *image; /* on the device, 16-byte aligned */
    int64_t from_first, from_stride, to_first, to_stride, rows, count;
    enum zinf_dtype dtype;
    void *w; /* [...][cols] */
};

#ifdef __cplusplus
}
#endif
#endif
