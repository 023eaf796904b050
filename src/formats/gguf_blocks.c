/*
 * gguf_blocks: numbers in blocks of 32 with a scale in fp16, as ggml's reference has them: the
 * rounding decides bits, so each product is made in fp32 and in this order.
 */
#include "formats/formats.h"

#include <math.h>

static const struct form {
    const char *name;
    enum zinf_gguf_form form;
    uint16_t block, bytes;
} forms[] = {
    {"f32", ZINF_GGUF_F32, 1, 4},
    {"f16", ZINF_GGUF_F16, 1, 2},
    {"bf16", ZINF_GGUF_BF16, 1, 2},
    {"q8_0", ZINF_GGUF_Q8_0, ZINF_GGUF_BLOCK, 34},
    {"q4_0", ZINF_GGUF_Q4_0, ZINF_GGUF_BLOCK, 18},
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
        if (!strcmp(name, forms[i].name)) {
            *out = forms[i].form;
            return 0;
        }
    return zinf_fail(-EINVAL,
                     "'%s' is no form of GGUF that can be written: use f32, f16, bf16, "
                     "q8_0 or q4_0",
                     name);
}

uint64_t zinf_gguf_block_elems(enum zinf_gguf_form form)
{
    return row_of(form)->block;
}

uint64_t zinf_gguf_bytes(enum zinf_gguf_form form, uint64_t n)
{
    return n / row_of(form)->block * row_of(form)->bytes;
}

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

void zinf_gguf_pack(enum zinf_gguf_form form, const float *values, uint64_t n, void *out)
{
    uint8_t *to = out;
    switch (form) {
    case ZINF_GGUF_F16:
        zinf_convert(out, ZINF_DTYPE_F16, values, ZINF_DTYPE_F32, n);
        break;
    case ZINF_GGUF_BF16:
        zinf_convert(out, ZINF_DTYPE_BF16, values, ZINF_DTYPE_F32, n);
        break;
    case ZINF_GGUF_F32:
        memcpy(out, values, n * sizeof *values);
        break;
    case ZINF_GGUF_Q8_0:
        for (uint64_t i = 0; i < n; i += ZINF_GGUF_BLOCK)
            pack_q8_0(values + i, to + zinf_gguf_bytes(form, i));
        break;
    case ZINF_GGUF_Q4_0:
        for (uint64_t i = 0; i < n; i += ZINF_GGUF_BLOCK)
            pack_q4_0(values + i, to + zinf_gguf_bytes(form, i));
        break;
    }
}
