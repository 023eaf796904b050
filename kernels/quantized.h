/*
 * quantized: weights of a linear layer in 4 or 8 bits. A struct zinf_quantized says where the
 * codes, scales and tables of a matrix [rows][cols] are in its *image*, one block of bytes that is
 * stored and moved. The device's `dequantize` makes numbers of it just before a product;
 * zinf_quantize makes images on the CPU. A part of kernels.h.
 *
 * Forms, bytes and values are those of bitsandbytes on a CPU (Dettmers et al., arXiv 2305.14314
 * and 2208.07339). MXFP4 (Open Compute Project, Microscaling Formats, version 1.0) and FP8
 * (DeepSeek-V3, arXiv 2412.19437, section 3.3) are only read. 4-bit codes follow each other row by
 * row, in blocks of 64 that may cross rows; the first of two codes is the high half of its byte.
 *
 * Threads: a struct zinf_quantized is a value; calls may fill different parts of an image at the
 * same time.
 */
#ifndef ZINF_KERNELS_QUANTIZED_H
#define ZINF_KERNELS_QUANTIZED_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_form {
    ZINF_FORM_PLAIN, /* not quantised */
    ZINF_FORM_NF4,   /* 4 bits; an fp32 scale for each block */
    /* 4 bits; 8-bit scales, with an fp32 scale for 256 of them and their mean */
    ZINF_FORM_NF4_DOUBLE,
    ZINF_FORM_INT8,  /* 8 bits of weights rounded to fp16; an fp32 scale for each row */
    ZINF_FORM_MXFP4, /* 4 bits; an 8-bit exponent for 32 numbers of a row */
    ZINF_FORM_FP8,   /* 8-bit floats (E4M3); an fp32 scale for 128 x 128 numbers */
    ZINF_FORMS,
};
const char *zinf_form_name(enum zinf_form form); /* "nf4", "int8", "mxfp4", "fp8", "plain" */

#define ZINF_QUANT_BLOCK 64         /* values of a scale */
#define ZINF_QUANT_MX_BLOCK 32      /* of MXFP4 */
#define ZINF_QUANT_FP8_BLOCK 128    /* of FP8: rows, and columns */
#define ZINF_QUANT_SCALES 256       /* scales with a scale in common */
#define ZINF_QUANT_CODES_AT 2048    /* behind the tables */
#define ZINF_QUANT_NESTED_MAP_AT 64 /* float [256]: values of 8-bit scales */
#define ZINF_QUANT_OFFSET_AT 1088   /* float: the mean of the scales */
/* INT8: a number is code * scale * this, which is 1 / 127 as bitsandbytes rounds it. */
#define ZINF_QUANT_INT8_STEP 7.874015718698502e-3f

/* Layout of an image: float [16] values of 4-bit codes; the table and the mean above; codes;
 * scales. Scales are float [n_blocks]; NF4_DOUBLE: uint8_t [n_blocks], then float [n_nested]; INT8:
 * float [rows]; MXFP4: uint8_t [n_blocks], powers of 2 from 2^-127 on; FP8: float [ceil(rows /
 * 128)][ceil(cols / 128)]. Parts that a form does not have are zero. */
struct zinf_quantized {
    enum zinf_form form;
    uint64_t rows, cols, n_elems;
    uint64_t n_blocks, n_nested;   /* number of scales, and of scales of scales; INT8: rows, 0 */
    uint64_t code_bytes;           /* from ZINF_QUANT_CODES_AT on */
    uint64_t scales_at, nested_at; /* bytes from the image's start */
    uint64_t bytes;                /* a multiple of ZINF_MEMORY_ALIGN */
};
/* The layout of a matrix. With MXFP4, cols must be a multiple of 32. */
struct zinf_quantized zinf_quantized_of(enum zinf_form form, uint64_t rows, uint64_t cols);

/* Makes the codes of n elements from first on, and their scales in scales [n_blocks], which is of
 * the whole matrix. first, and n except at the matrix's end, must be a multiple of 64 whole rows.
 * zinf_quantize_finish puts scales and tables into the image and zeros into its other bytes. */
void zinf_quantize(const struct zinf_quantized *quantized, const float *values, uint64_t first,
                   uint64_t n, void *image, float *scales);
void zinf_quantize_finish(const struct zinf_quantized *quantized, void *image, const float *scales);

/* For MXFP4 and FP8: make the image of a file's codes and scales, and the reverse. They are stored
 * as in the image, except that in a file the first of two 4-bit codes is the low half. */
void zinf_quantize_take(const struct zinf_quantized *quantized, const void *codes,
                        const void *scales, void *image);
void zinf_quantize_give(const struct zinf_quantized *quantized, const void *image, void *codes,
                        void *scales);

/* Makes numbers in w of rows of the matrix, computed in fp32 and rounded once. Run i of count runs,
 * of `rows` rows, begins at row from_first + i * from_stride of the matrix and at row to_first + i
 * * to_stride of w. */
struct zinf_dequantize {
    struct zinf_quantized quantized;
    const void *image; /* on the device, aligned to 16 bytes */
    int64_t from_first, from_stride, to_first, to_stride, rows, count;
    enum zinf_dtype dtype;
    void *w; /* [...][cols] */
};

#ifdef __cplusplus
}
#endif
#endif
