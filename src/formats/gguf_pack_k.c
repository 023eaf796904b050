/*
 * gguf_pack_k: numbers into Q4_K and Q6_K. The layout is ggml's; which scales are stored is found
 * by a search of our own: candidates around the obvious scale are rounded, solved again by least
 * squares, and the one with the smallest weighted error stays.
 */
#include "formats/gguf.h"

#include <math.h>

#define WIDE 256
#define TRIES 9 /* candidates on either side of the obvious one */

static int clip(float x, int least, int most)
{
    return x < (float)least ? least : x > (float)most ? most : (int)lrintf(x);
}

static float put_half(float value, uint8_t *out)
{
    uint16_t half;
    zinf_convert(&half, ZINF_DTYPE_F16, &value, ZINF_DTYPE_F32, 1);
    memcpy(out, &half, sizeof half);
    zinf_convert(&value, ZINF_DTYPE_F32, &half, ZINF_DTYPE_F16, 1);
    return value;
}

/* Large numbers count more, and none counts nothing. */
static void weigh(const float *x, int n, float *weights)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        weights[i] = sqrtf(sum / (float)n) + fabsf(x[i]);
}

/* ---- Q4_K: x = scale q - least, q in 0 .. 15 ---- */

struct line {
    float scale, least;
    double error;
};

/* The line through (q, x) that errs least, with least >= 0. */
static struct line fit_line(const float *x, const float *weights, const int *q)
{
    double w = 0, wq = 0, wqq = 0, wx = 0, wqx = 0;
    struct line line = {0, 0, 0};
    for (int i = 0; i < 32; i++) {
        double weight = (double)weights[i], level = q[i], value = (double)x[i];
        w += weight;
        wq += weight * level;
        wqq += weight * level * level;
        wx += weight * value;
        wqx += weight * level * value;
    }
    double under = w * wqq - wq * wq;
    double scale = under > 0 ? (w * wqx - wq * wx) / under : 0;
    double least = under > 0 ? (wq * wqx - wqq * wx) / under : 0;
    if (least < 0 || under <= 0) {
        least = 0;
        scale = wqq > 0 ? wqx / wqq : 0;
    }
    line.scale = scale > 0 ? (float)scale : 0;
    line.least = (float)least;
    for (int i = 0; i < 32; i++) {
        double off = (double)(line.scale * (float)q[i] - line.least) - (double)x[i];
        line.error += (double)weights[i] * off * off;
    }
    return line;
}

static struct line find_line(const float *x)
{
    float weights[32], low = 0, high = x[0];
    struct line best = {0, 0, 0};
    int q[32];
    weigh(x, 32, weights);
    for (int i = 0; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    best.least = -low;
    if (!(high > low))
        return best;
    best.error = INFINITY;
    for (int t = -TRIES; t <= TRIES; t++) {
        float inverse = (15 + 0.1f * (float)t) / (high - low);
        for (int i = 0; i < 32; i++)
            q[i] = clip(inverse * (x[i] - low), 0, 15);
        struct line line = fit_line(x, weights, q);
        if (line.error < best.error)
            best = line;
    }
    return best;
}

void gguf_pack_q4_k(const float *x, uint8_t *out)
{
    struct line lines[8];
    float scale = 0, least = 0;
    uint8_t *s = out + 4, *nibbles = out + 16;
    memset(out, 0, 144);
    for (int g = 0; g < 8; g++) {
        lines[g] = find_line(x + 32 * g);
        scale = fmaxf(scale, lines[g].scale);
        least = fmaxf(least, lines[g].least);
    }
    scale = put_half(scale / 63, out);
    least = put_half(least / 63, out + 2);
    for (int g = 0; g < 8; g++) {
        int of_scale = scale > 0 ? clip(lines[g].scale / scale, 0, 63) : 0;
        int of_least = least > 0 ? clip(lines[g].least / least, 0, 63) : 0;
        float d = scale * (float)of_scale, m = least * (float)of_least;
        if (g < 4) {
            s[g] = (uint8_t)(s[g] | of_scale);
            s[g + 4] = (uint8_t)(s[g + 4] | of_least);
        } else {
            s[g + 4] = (uint8_t)((of_scale & 15) | (of_least & 15) << 4);
            s[g - 4] = (uint8_t)(s[g - 4] | of_scale >> 4 << 6);
            s[g] = (uint8_t)(s[g] | of_least >> 4 << 6);
        }
        for (int i = 0; i < 32 && d > 0; i++) {
            int q = clip((x[32 * g + i] + m) / d, 0, 15);
            nibbles[g / 2 * 32 + i] = (uint8_t)(nibbles[g / 2 * 32 + i] | q << 4 * (g % 2));
        }
    }
}

/* ---- Q6_K: x = scale q, q in -32 .. 31 ---- */

static float find_scale(const float *x)
{
    float weights[16], most = 0, best = 0;
    double least_error = INFINITY;
    weigh(x, 16, weights);
    for (int i = 0; i < 16; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    for (int t = -TRIES; t <= TRIES && most != 0; t++) {
        float inverse = -(32 + 0.1f * (float)t) / most;
        double wqq = 0, wqx = 0, error = 0;
        int q[16];
        for (int i = 0; i < 16; i++) {
            q[i] = clip(inverse * x[i], -32, 31);
            wqq += (double)weights[i] * q[i] * q[i];
            wqx += (double)weights[i] * q[i] * (double)x[i];
        }
        float scale = wqq > 0 ? (float)(wqx / wqq) : 0;
        for (int i = 0; i < 16; i++) {
            double off = (double)(scale * (float)q[i]) - (double)x[i];
            error += (double)weights[i] * off * off;
        }
        if (error < least_error) {
            least_error = error;
            best = scale;
        }
    }
    return best;
}

void gguf_pack_q6_k(const float *x, uint8_t *out)
{
    float scales[16], most = 0;
    memset(out, 0, 210);
    for (int g = 0; g < 16; g++) {
        scales[g] = find_scale(x + 16 * g);
        if (fabsf(scales[g]) > fabsf(most))
            most = scales[g];
    }
    const float whole = put_half(most / -128, out + 208);
    for (int e = 0; e < WIDE; e++) {
        int of_scale = whole != 0 ? clip(scales[e / 16] / whole, -128, 127) : 0;
        float d = whole * (float)of_scale;
        int half = e / 128, group = e % 128 / 32, i = e % 32;
        int q = 32 + (d != 0 ? clip(x[e] / d, -32, 31) : 0);
        uint8_t *low = &out[half * 64 + group % 2 * 32 + i], *high = &out[128 + half * 32 + i];
        out[192 + e / 16] = (uint8_t)(int8_t)of_scale;
        *low = (uint8_t)(*low | (q & 15) << 4 * (group / 2));
        *high = (uint8_t)(*high | q >> 4 << 2 * group);
    }
}
