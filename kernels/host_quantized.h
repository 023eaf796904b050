/*
 * host_quantized: numbers from quantised codes, to be included once by each per-ISA file after it
 * has defined make_halves() and behind host_loops.h. A number is one product in fp32, so every
 * instruction set gives the same bits.
 */

/* y[i] = scale map[half i of codes], i from 0 to n, the first half of a byte being the high one. */
static void dequantize_nf4(float *y, const uint8_t *codes, const float *map, float scale, size_t n)
{
    size_t whole = make_halves(y, codes, map, scale, n);
    for (size_t i = whole; i < n; i++)
        y[i] = map[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4] * scale;
}

/* y[i] = codes[i] scale / 127, in two products */
static void dequantize_int8(float *y, const int8_t *codes, float scale, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = (float)codes[i] * scale * ZINF_QUANT_INT8_STEP;
}

/* y[i] = the number of codes[i], times scale. Exponent and fraction are put where fp32 has them,
 * whose exponents are 120 greater; numbers with no leading one are such there too. The two codes
 * that are NaN become 480. */
static void dequantize_fp8(float *y, const uint8_t *codes, float scale, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const uint32_t code = codes[i], bits = (code & 0x80u) << 24 | (code & 0x7fu) << 20;
        float x;
        memcpy(&x, &bits, sizeof x);
        y[i] = x * 0x1p120f * scale;
    }
}
