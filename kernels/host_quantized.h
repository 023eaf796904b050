/*
 * host_quantized: makes numbers of quantised codes, and of 8-bit floats (kernels/float8.h) and
 * back. Included once by each per-ISA file that has defined make_halves(), behind host_loops.h. A
 * number is one fp32 product, so all instruction sets give the same bits.
 */

/* y[i] = scale map[4-bit code i] for i < n; the first code of a byte is its high half. */
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

/* y[i] = scale times the number of codes[i]. Exponent and fraction are moved to their fp32 places,
 * and the exponent corrected by 120; that is right for denormal numbers, too. The two NaN codes
 * become 480. */
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

/* The largest of n bf16 numbers as bits, without signs. */
static uint32_t float8_most(const uint16_t *x, size_t n)
{
    uint16_t most = 0;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        const uint16_t bits = x[i] & 0x7fffu;
        most = bits > most ? bits : most;
    }
    return most;
}

/* codes[i] = the E4M3 code nearest to up times the bf16 x[i]: adding a number whose last place is
 * E4M3's rounds x, and the bits of the sum count E4M3's numbers. */
static void float8_codes(uint8_t *codes, const uint16_t *x, float up, size_t n)
{
    const uint32_t least = 127 - 6, fraction = 3;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)(x[i] & 0x7fffu) << 16;
        float size, magic;
        uint32_t scaled, sum;
        memcpy(&size, &bits, sizeof size);
        size *= up;
        size = size > 448.0f ? 448.0f : size;
        memcpy(&scaled, &size, sizeof scaled);
        const uint32_t place = scaled >> 23 > least ? scaled >> 23 : least;
        const uint32_t unit = (place + 23 - fraction) << 23;
        memcpy(&magic, &unit, sizeof magic);
        magic += size;
        memcpy(&sum, &magic, sizeof sum);
        const uint32_t code = ((place - least) << fraction) + sum - unit;
        codes[i] = (uint8_t)((x[i] >> 8 & 0x80u) | (bits >= 0x7f800000u ? 0x7fu : code));
    }
}
