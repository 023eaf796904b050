/*
 * gguf_blocks: numbers in blocks of 32 or 256 with scales, as ggml's reference has them: the
 * rounding decides bits, so each product is made in fp32 and in this order.
 */
#include "formats/gguf.h"

#include <math.h>

#define WIDE_BLOCK 256 /* of Q4_K and Q6_K */

static void put_scale(float scale, uint8_t *out)
{
    uint16_t half;
    zinf_convert(&half, ZINF_DTYPE_F16, &scale, ZINF_DTYPE_F32, 1);
    memcpy(out, &half, sizeof half);
}

/* The largest becomes 127. */
static void pack_q8_0(const float *x, uint8_t *out)
{
    float most = 0;
    for (int i = 0; i < ZINF_GGUF_BLOCK; i++)
        most = fmaxf(most, fabsf(x[i]));
    float scale = most / 127, inverse = scale != 0 ? 1 / scale : 0;
    put_scale(scale, out);
    for (int i = 0; i < ZINF_GGUF_BLOCK; i++)
        out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

static uint8_t quarter(float x)
{
    float moved = truncf(x + 8.5f);
    return moved < 0 ? 0 : moved > 15 ? 15 : (uint8_t)moved;
}

/* The one that is farthest from zero becomes -8. Low halves of bytes are the first 16. */
static void pack_q4_0(const float *x, uint8_t *out)
{
    float most = x[0];
    for (int i = 1; i < ZINF_GGUF_BLOCK; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    float scale = most / -8, inverse = scale != 0 ? 1 / scale : 0;
    put_scale(scale, out);
    for (int i = 0; i < ZINF_GGUF_BLOCK / 2; i++)
        out[2 + i] =
            (uint8_t)(quarter(x[i] * inverse) | quarter(x[ZINF_GGUF_BLOCK / 2 + i] * inverse) << 4);
}

/* ---- unpacking ---- */

static float get_scale(const uint8_t *at)
{
    float scale;
    zinf_convert(&scale, ZINF_DTYPE_F32, at, ZINF_DTYPE_F16, 1);
    return scale;
}

static void unpack_q8_0(const uint8_t *in, float *x)
{
    const float scale = get_scale(in);
    for (int i = 0; i < ZINF_GGUF_BLOCK; i++)
        x[i] = scale * (float)(int8_t)in[2 + i];
}

static void unpack_q4_0(const uint8_t *in, float *x)
{
    const float scale = get_scale(in);
    for (int i = 0; i < ZINF_GGUF_BLOCK / 2; i++) {
        x[i] = scale * (float)((in[2 + i] & 15) - 8);
        x[ZINF_GGUF_BLOCK / 2 + i] = scale * (float)((in[2 + i] >> 4) - 8);
    }
}

/* Eight groups of 32, each with a scale and a minimum of 6 bits: the low ones of the first four
 * stand whole, those of the others are split over the upper bits of these. */
static void unpack_q4_k(const uint8_t *in, float *x)
{
    const float scale = get_scale(in), least = get_scale(in + 2);
    const uint8_t *s = in + 4, *q = in + 16;
    for (int g = 0; g < 8; g++) {
        int of_scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 2 & 48);
        int of_least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 2 & 48);
        float d = scale * (float)of_scale, m = least * (float)of_least;
        for (int i = 0; i < 32; i++) {
            float product = d * (float)(q[g / 2 * 32 + i] >> 4 * (g % 2) & 15);
            x[g * 32 + i] = product - m;
        }
    }
}

/* Sixteen groups of 16 with a scale of 8 bits; of a number, 4 bits lie in one array and 2 in
 * another. */
static void unpack_q6_k(const uint8_t *in, float *x)
{
    const uint8_t *low = in, *high = in + 128;
    const int8_t *scales = (const int8_t *)in + 192;
    const float scale = get_scale(in + 208);
    for (int e = 0; e < WIDE_BLOCK; e++) {
        int half = e / 128, group = e % 128 / 32, i = e % 32;
        int q = low[half * 64 + group % 2 * 32 + i] >> 4 * (group / 2) & 15;
        q |= (high[half * 32 + i] >> 2 * group & 3) << 4;
        x[e] = scale * (float)scales[e / 16] * (float)(q - 32);
    }
}

/* ---- forms ---- */

static const struct form {
    const char *name;   /* of a whole file; NULL: some of its matrices alone have it */
    const char *stored; /* of a matrix */
    enum zinf_gguf_form form;
    uint16_t block, bytes;
    enum zinf_dtype dtype; /* where a block is a number */
    void (*pack)(const float *x, uint8_t *out);
    void (*unpack)(const uint8_t *in, float *x);
} forms[] = {
    {"f32", "F32", ZINF_GGUF_F32, 1, 4, ZINF_DTYPE_F32, NULL, NULL},
    {"f16", "F16", ZINF_GGUF_F16, 1, 2, ZINF_DTYPE_F16, NULL, NULL},
    {"bf16", "BF16", ZINF_GGUF_BF16, 1, 2, ZINF_DTYPE_BF16, NULL, NULL},
    {"q8_0", "Q8_0", ZINF_GGUF_Q8_0, ZINF_GGUF_BLOCK, 34, 0, pack_q8_0, unpack_q8_0},
    {"q4_0", "Q4_0", ZINF_GGUF_Q4_0, ZINF_GGUF_BLOCK, 18, 0, pack_q4_0, unpack_q4_0},
    {"q4_k_m", "Q4_K", ZINF_GGUF_Q4_K, WIDE_BLOCK, 144, 0, gguf_pack_q4_k, unpack_q4_k},
    {NULL, "Q6_K", ZINF_GGUF_Q6_K, WIDE_BLOCK, 210, 0, gguf_pack_q6_k, unpack_q6_k},
};
#define N_FORMS (sizeof forms / sizeof *forms)

static const struct form *row_of(enum zinf_gguf_form form)
{
    size_t i = 0;
    while (i < N_FORMS - 1 && forms[i].form != form)
        i++;
    return &forms[i];
}

int zinf_gguf_form_parse(const char *name, enum zinf_gguf_form *out)
{
    for (size_t i = 0; i < N_FORMS; i++)
        if (forms[i].name && !strcmp(name, forms[i].name)) {
            *out = forms[i].form;
            return 0;
        }
    return zinf_fail(-EINVAL,
                     "'%s' is no form of GGUF that can be written: use f32, f16, bf16, "
                     "q8_0, q4_0 or q4_k_m",
                     name);
}

const char *zinf_gguf_form_name(enum zinf_gguf_form form)
{
    return row_of(form)->stored;
}

bool zinf_gguf_form_known(uint32_t form)
{
    return row_of((enum zinf_gguf_form)form)->form == (enum zinf_gguf_form)form;
}

uint64_t zinf_gguf_block_elems(enum zinf_gguf_form form)
{
    return row_of(form)->block;
}

uint64_t zinf_gguf_bytes(enum zinf_gguf_form form, uint64_t n)
{
    return n / row_of(form)->block * row_of(form)->bytes;
}

void zinf_gguf_pack(enum zinf_gguf_form form, const float *values, uint64_t n, void *out)
{
    const struct form *f = row_of(form);
    uint8_t *to = out;
    if (!f->pack)
        zinf_convert(out, f->dtype, values, ZINF_DTYPE_F32, n);
    else
        for (uint64_t i = 0; i < n; i += f->block, to += f->bytes)
            f->pack(values + i, to);
}

void zinf_gguf_unpack(enum zinf_gguf_form form, const void *stored, uint64_t n, float *out)
{
    const struct form *f = row_of(form);
    const uint8_t *at = stored;
    if (!f->unpack)
        zinf_convert(out, ZINF_DTYPE_F32, stored, f->dtype, n);
    else
        for (uint64_t i = 0; i < n; i += f->block, at += f->bytes)
            f->unpack(at, out + i);
}
