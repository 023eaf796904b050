/* dtype: storage types and conversion between them. Loops are plain so that the compiler's
 * vectoriser serves; F16C and AVX forms are in the per-ISA files of the folders that need speed. */
#include "base/base.h"

#include <strings.h>

size_t zinf_dtype_bytes(enum zinf_dtype dtype)
{
    return dtype == ZINF_DTYPE_F32 ? 4 : 2;
}

const char *zinf_dtype_name(enum zinf_dtype dtype)
{
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    return names[dtype];
}

int zinf_dtype_parse(const char *name, enum zinf_dtype *out)
{
    static const struct {
        const char *name;
        enum zinf_dtype dtype;
    } table[] = {
        {"fp32", ZINF_DTYPE_F32},    {"float32", ZINF_DTYPE_F32},   {"f32", ZINF_DTYPE_F32},
        {"bf16", ZINF_DTYPE_BF16},   {"bfloat16", ZINF_DTYPE_BF16}, {"fp16", ZINF_DTYPE_F16},
        {"float16", ZINF_DTYPE_F16}, {"f16", ZINF_DTYPE_F16},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcasecmp(name, table[i].name)) {
            *out = table[i].dtype;
            return 0;
        }
    return zinf_fail(-EINVAL, "'%s' is not a number type: use fp32, bf16 or fp16", name);
}

uint16_t zinf_f16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN: keep it quiet, keep the top payload bits */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    if (magnitude >= 0x477ff000u) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) { /* normal half */
        uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
        return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
    }
    if (magnitude <= 0x33000000u) /* at most 2^-25: rounds to even, zero */
        return (uint16_t)sign;
    uint32_t shift = 126u - (magnitude >> 23); /* 14 .. 24 */
    uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t half = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1u);
    uint32_t tie = 1u << (shift - 1);
    half += rest > tie || (rest == tie && (half & 1u));
    return (uint16_t)(sign | half);
}

float zinf_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    uint32_t bits;
    float value;
    if (exponent == 0) { /* zero or subnormal: exact by arithmetic */
        value = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u);
    } else {
        bits = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void to_f32(float *dst, const void *src, enum zinf_dtype dtype, size_t n)
{
    const uint16_t *half = src;
    if (dtype == ZINF_DTYPE_F32)
        memcpy(dst, src, n * sizeof *dst);
    else if (dtype == ZINF_DTYPE_BF16)
        for (size_t i = 0; i < n; i++)
            dst[i] = zinf_bf16_to_f32(half[i]);
    else
        for (size_t i = 0; i < n; i++)
            dst[i] = zinf_f16_to_f32(half[i]);
}

static void from_f32(void *dst, enum zinf_dtype dtype, const float *src, size_t n)
{
    uint16_t *half = dst;
    if (dtype == ZINF_DTYPE_F32)
        memcpy(dst, src, n * sizeof *src);
    else if (dtype == ZINF_DTYPE_BF16)
        for (size_t i = 0; i < n; i++)
            half[i] = zinf_bf16_from_f32(src[i]);
    else
        for (size_t i = 0; i < n; i++)
            half[i] = zinf_f16_from_f32(src[i]);
}

void zinf_convert(void *dst, enum zinf_dtype dst_dtype, const void *src, enum zinf_dtype src_dtype,
                  size_t n)
{
    if (dst_dtype == src_dtype) {
        memcpy(dst, src, n * zinf_dtype_bytes(src_dtype));
        return;
    }
    if (src_dtype == ZINF_DTYPE_F32) {
        from_f32(dst, dst_dtype, src, n);
        return;
    }
    if (dst_dtype == ZINF_DTYPE_F32) {
        to_f32(dst, src, src_dtype, n);
        return;
    }
    float block[256]; /* bf16 <-> fp16 by way of fp32 */
    for (size_t i = 0; i < n; i += 256) {
        size_t count = n - i < 256 ? n - i : 256;
        to_f32(block, (const uint16_t *)src + i, src_dtype, count);
        from_f32((uint16_t *)dst + i, dst_dtype, block, count);
    }
}
