/*
 * staged_kernels: steps over moments that are not kept in fp32. A tile of them is widened into the
 * first-level cache, the plain kernel runs over it, and the tile is narrowed back: still one pass
 * over memory. Widening and narrowing are integer arithmetic, the same on every instruction set;
 * each compiles this text to vectors of its own.
 *
 * Included by each per-ISA file after optim_kernels.h.
 */
#include "base/random.h"

#define STAGED_ELEMS 1024u
#define RANDOM_GROUP 128u /* elements that 16 Philox blocks serve */
#define RANDOM_LANES 16u

/* Ten rounds of zinf_philox on 16 counters side by side: word[j][lane]. */
static __attribute__((noinline)) void philox_group(uint64_t group, uint32_t counter2,
                                                   uint32_t counter3, uint64_t key,
                                                   uint32_t word[4][RANDOM_LANES])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (unsigned lane = 0; lane < RANDOM_LANES; lane++) {
        word[0][lane] = (uint32_t)(group * RANDOM_LANES) + lane;
        word[1][lane] = (uint32_t)(group * RANDOM_LANES >> 32);
        word[2][lane] = counter2;
        word[3][lane] = counter3;
    }
    for (int round = 0; round < 10; round++) {
        for (unsigned lane = 0; lane < RANDOM_LANES; lane++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * word[0][lane];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * word[2][lane];
            word[0][lane] = (uint32_t)(p1 >> 32) ^ word[1][lane] ^ k0;
            word[2][lane] = (uint32_t)(p0 >> 32) ^ word[3][lane] ^ k1;
            word[1][lane] = (uint32_t)p1;
            word[3][lane] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The 16 random bits of elements element .. element + count, as optim.h lays them out. */
static void random_halves(uint16_t *out, uint64_t element, uint64_t count, uint64_t key,
                          uint64_t step, unsigned moment)
{
    const uint64_t end = element + count;
    for (uint64_t group = element / RANDOM_GROUP; group * RANDOM_GROUP < end; group++) {
        uint32_t word[4][RANDOM_LANES];
        uint16_t half[RANDOM_GROUP];
        uint64_t base = group * RANDOM_GROUP;
        philox_group(group, (uint32_t)step, (uint32_t)(step >> 32) << 1 | moment, key, word);
        for (unsigned j = 0; j < 4; j++)
            for (unsigned lane = 0; lane < RANDOM_LANES; lane++) {
                half[j * 32 + lane] = (uint16_t)word[j][lane];
                half[j * 32 + 16 + lane] = (uint16_t)(word[j][lane] >> 16);
            }
        uint64_t from = base > element ? base : element;
        uint64_t to = base + RANDOM_GROUP < end ? base + RANDOM_GROUP : end;
        memcpy(out + (from - element), half + (from - base), (to - from) * sizeof *out);
    }
}

static void widen(float *to, const uint16_t *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

/* To nearest even. NaNs are canonical by now, so nothing carries into the sign. */
static void narrow_nearest(uint16_t *to, const float *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        to[i] = (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
}

/* What the format holds stays: infinities, canonical NaNs and bf16 values have 16 zeros below. */
static void narrow_stochastic(uint16_t *to, const float *from, const uint16_t *random,
                              uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        to[i] = (uint16_t)((bits + random[i]) >> 16);
    }
}

static void narrow(uint16_t *to, const float *from, uint64_t count, uint64_t i, unsigned moment,
                   const struct optim_scalars *s, const struct zinf_optim_array *a)
{
    uint16_t random[STAGED_ELEMS];
    if (!a->stochastic_rounding) {
        narrow_nearest(to, from, count);
        return;
    }
    random_halves(random, a->first_element + i, count, a->rounding_key, s->step, moment);
    narrow_stochastic(to, from, random, count);
}

/* Elements i .. of the array, with moments in the given buffers. */
static struct zinf_optim_array tile_of(const struct zinf_optim_array *a, uint64_t i, float *moment1,
                                       float *moment2)
{
    struct zinf_optim_array tile = *a;
    tile.master = a->master ? a->master + i : NULL;
    tile.moment1 = moment1;
    tile.moment2 = moment2;
    tile.grad = element_at(a->grad, a->grad_dtype, i);
    tile.param =
        a->param ? (char *)a->param + i * (a->param_dtype == ZINF_DTYPE_F32 ? 4 : 2) : NULL;
    tile.remainder = a->remainder ? a->remainder + i : NULL;
    return tile;
}

static void step_half_moments(const struct optim_scalars *s, const struct zinf_optim_array *a,
                              uint64_t begin, uint64_t end)
{
    _Alignas(CACHE_LINE) float moment1[STAGED_ELEMS], moment2[STAGED_ELEMS];
    for (uint64_t i = begin; i < end; i += STAGED_ELEMS) {
        uint64_t count = end - i < STAGED_ELEMS ? end - i : STAGED_ELEMS;
        struct zinf_optim_array tile = tile_of(a, i, moment1, a->half_moment2 ? moment2 : NULL);
        widen(moment1, a->half_moment1 + i, count);
        if (a->half_moment2)
            widen(moment2, a->half_moment2 + i, count);
        step_plain(s, &tile, 0, count);
        narrow(a->half_moment1 + i, moment1, count, i, 0, s, a);
        if (a->half_moment2)
            narrow(a->half_moment2 + i, moment2, count, i, 1, s, a);
    }
}

static void step(const struct optim_scalars *s, const struct zinf_optim_array *a, uint64_t begin,
                 uint64_t end)
{
    if (a->half_moment1)
        step_half_moments(s, a, begin, end);
    else
        step_plain(s, a, begin, end);
    line_stream_end();
}
