/*
 * staged_kernels: steps over moments that are not kept in fp32. A tile of them is widened into the
 * first-level cache, the plain kernel runs over it, and the tile is narrowed back: still one pass
 * over memory. Widening and narrowing are integer arithmetic.
 *
 * Included by each per-ISA file after optim_kernels.h. Beside its names the file has defined
 *   ivec                     LANES unsigned integers of 32 bits
 *   ivec_set1 _xor _count_from(x): x, x + 1, ...   _mul_wide(a, b, &high, &low)
 *   ivec_store_halves(low, high, x)                the halves of each lane, apart
 *   vec_store_bf16_random(to, x, random)           16 random bits are added below the cut
 */
#define STAGED_ELEMS 1024u
#define RANDOM_GROUP 64u /* elements that 16 Philox blocks serve */
#define RANDOM_LANES 16u

/* Ten rounds of zinf_philox on LANES counters side by side; the first word of the counter differs
 * by one from lane to lane. */
ALWAYS_INLINE void philox_lanes(uint64_t first, uint64_t step, uint64_t key, ivec word[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    ivec c0 = ivec_count_from((uint32_t)first), c1 = ivec_set1((uint32_t)(first >> 32));
    ivec c2 = ivec_set1((uint32_t)step), c3 = ivec_set1((uint32_t)(step >> 32));
    for (int round = 0; round < 10; round++) {
        ivec high0, low0, high1, low1;
        ivec_mul_wide(c0, 0xD2511F53u, &high0, &low0);
        ivec_mul_wide(c2, 0xCD9E8D57u, &high1, &low1);
        c0 = ivec_xor(ivec_xor(high1, c1), ivec_set1(k0));
        c2 = ivec_xor(ivec_xor(high0, c3), ivec_set1(k1));
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

/* The random bits of elements element .. element + count, as optim.h lays them out. */
static void random_halves(uint16_t *low, uint16_t *high, uint64_t element, uint64_t count,
                          uint64_t step, uint64_t key)
{
    const uint64_t end = element + count;
    for (uint64_t base = element / RANDOM_GROUP * RANDOM_GROUP; base < end; base += RANDOM_GROUP) {
        uint16_t group_low[RANDOM_GROUP], group_high[RANDOM_GROUP];
        for (unsigned lane = 0; lane < RANDOM_LANES; lane += LANES) {
            ivec word[4];
            philox_lanes(base / RANDOM_GROUP * RANDOM_LANES + lane, step, key, word);
            for (unsigned j = 0; j < 4; j++)
                ivec_store_halves(group_low + j * RANDOM_LANES + lane,
                                  group_high + j * RANDOM_LANES + lane, word[j]);
        }
        uint64_t from = base > element ? base : element;
        uint64_t to = base + RANDOM_GROUP < end ? base + RANDOM_GROUP : end;
        memcpy(low + (from - element), group_low + (from - base), (to - from) * sizeof *low);
        memcpy(high + (from - element), group_high + (from - base), (to - from) * sizeof *high);
    }
}

static void widen(float *to, const uint16_t *from, uint64_t count)
{
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        vec_store(to + i, vec_load_bf16(from + i));
    for (; i < count; i++)
        to[i] = zinf_bf16_to_f32(from[i]);
}

/* To nearest even. */
static void narrow_nearest(uint16_t *to, const float *from, uint64_t count)
{
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        vec_store_bf16(to + i, vec_load(from + i));
    for (; i < count; i++)
        to[i] = zinf_bf16_from_f32(from[i]);
}

/* What bf16 holds stays: its values, infinities and canonical NaNs have 16 zeros below. */
static void narrow_stochastic(uint16_t *to, const float *from, const uint16_t *random,
                              uint64_t count)
{
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        vec_store_bf16_random(to + i, vec_load(from + i), random + i);
    for (; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        to[i] = (uint16_t)((bits + random[i]) >> 16);
    }
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
    uint16_t low[STAGED_ELEMS], high[STAGED_ELEMS];
    uint16_t *half1 = a->half_moment1, *half2 = a->half_moment2;
    for (uint64_t i = begin; i < end; i += STAGED_ELEMS) {
        uint64_t count = end - i < STAGED_ELEMS ? end - i : STAGED_ELEMS;
        struct zinf_optim_array tile = tile_of(a, i, moment1, half2 ? moment2 : NULL);
        widen(moment1, half1 + i, count);
        if (half2)
            widen(moment2, half2 + i, count);
        step_plain(s, &tile, 0, count);
        if (a->stochastic_rounding) {
            random_halves(low, high, a->first_element + i, count, s->step, a->rounding_key);
            narrow_stochastic(half1 + i, moment1, low, count);
            if (half2)
                narrow_stochastic(half2 + i, moment2, high, count);
        } else {
            narrow_nearest(half1 + i, moment1, count);
            if (half2)
                narrow_nearest(half2 + i, moment2, count);
        }
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
