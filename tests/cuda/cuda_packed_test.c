/* cuda_packed: packed arrays in a device's memory against what was packed, on the host device and
 * on the CUDA device, bit for bit: every number type, kinds of numbers that make every width and
 * every field of a block, whole blocks and odd ends, aligned and not. */
#include "base/packed.h"
#include "cpu_optim/pack.h"
#include "cuda_twin.h"

/* Numbers as bits; of fp32 the kinds are those of their upper halves, with lower ones or not. */
enum kind { NORMAL, ZEROS, SPARSE, POSITIVE, EVEN, WIDE, NOISE, OUTLIERS, NARROW, KINDS };

static uint16_t half_of_kind(enum kind kind, uint64_t i, uint32_t random)
{
    const uint16_t sign = random >> 31 ? 0x8000 : 0;
    const uint16_t usual = (uint16_t)(0x3c00 + random % 0x300);
    switch (kind) {
    case ZEROS:
        return 0;
    case SPARSE:
        return random % 3 ? usual | sign : sign; /* zeros of both signs */
    case POSITIVE:
        return usual;
    case EVEN:
        return 0x3f80;
    case WIDE: /* every width, block by block */
        return (uint16_t)(0x7fff - (random & ((1u << i / 512 % 16) - 1)));
    case NOISE:
        return (uint16_t)(random >> 13);
    case OUTLIERS:
        return random % 41 ? usual | sign : (uint16_t)(random >> 9);
    case NARROW:
        return (uint16_t)(0x3c00 + random % 3) | sign;
    default:
        return usual | sign;
    }
}

static void fill_kind(struct tensor *x, enum kind kind, bool low)
{
    uint64_t state = 77 + kind;
    for (uint64_t i = 0; i < x->n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t random = (uint32_t)(state >> 32);
        const uint16_t half = half_of_kind(kind, i, random);
        const uint32_t bits = (uint32_t)half << 16 | (low ? random * 2654435761u >> 16 : 0);
        if (x->dtype == ZINF_DTYPE_F32)
            memcpy((char *)x->data + 4 * i, &bits, sizeof bits);
        else
            memcpy((char *)x->data + 2 * i, &half, sizeof half);
    }
}

static void unpack_case(struct twin *t, enum kind kind, enum zinf_dtype dtype, uint64_t n, bool low,
                        size_t shift)
{
    struct tensor plain = tensor_new(dtype, n);
    fill_kind(&plain, kind, low);
    const struct zinf_pack_array array = {plain.data, dtype, n, false};
    const uint64_t bound = zinf_align_up(zinf_pack_bound(dtype, n), 64);
    void *packed = aligned_alloc(64, bound);
    const int64_t bytes = zinf_pack(packed, bound, &array, 1);
    CHECKF(bytes > 0 && zinf_pack_check(&array, packed, (uint64_t)bytes) == bytes, "%s",
           zinf_error());
    /* what lies behind the image is not its */
    struct tensor image = tensor_new(ZINF_DTYPE_F32, (uint64_t)(bytes + 3) / 4);
    memcpy(image.data, packed, (size_t)bytes);
    struct pair in = pair_of(t, image);
    struct pair out = pair_shifted(t, tensor_new(dtype, n), shift);
    struct tensor zero = tensor_new(ZINF_DTYPE_F32, 1);
    struct pair mark = pair_of(t, zero); /* the sums are looked at, and nothing is damaged */
    struct zinf_packed_array a = {.dtype = dtype, .n = n};
    ON_BOTH(t, (a.image = side == SIDE_HOST ? packed : at(&in, side), a.x = at(&out, side),
                a.damaged = at(&mark, side), ops->unpack(q, &a)));
    struct tensor marked = pair_download(t, &mark);
    CHECKF(get(&mark.host, 0) == 0 && get(&marked, 0) == 0, "kind %d is said to be damaged",
           (int)kind);
    tensor_free(&marked);
    pair_free(&mark);
    struct tensor got = pair_download(t, &out);
    CHECKF(tensor_same_bits(&out.host, &plain) && tensor_same_bits(&got, &plain),
           "kind %d, %s, %llu elements: other bits", (int)kind, zinf_dtype_name(dtype),
           (unsigned long long)n);
    tensor_free(&got);
    free(packed);
    tensor_free(&plain);
    pair_free(&in);
    pair_free(&out);
    twin_reset(t);
}

static void numbers(struct twin *t)
{
    static const uint64_t lengths[] = {1, 31, 511, 513, 4 * 512, 17 * 512 + 7};
    for (int kind = 0; kind < KINDS; kind++)
        for (int d = 0; d < 3; d++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                unpack_case(t, (enum kind)kind, all_dtypes[d], lengths[i], i % 2, i % 3 == 1);
}

/* Three groups of blocks, so that the third begins behind two of other lengths. */
static void long_arrays(struct twin *t)
{
    unpack_case(t, OUTLIERS, ZINF_DTYPE_BF16, 2 * 64 * 512 + 3 * 512 + 1, false, 0);
    unpack_case(t, WIDE, ZINF_DTYPE_F32, 2 * 64 * 512 + 3 * 512 + 1, true, 0);
}

/* A bit of the payload that falls over: both sides say so, or it is in what the CPU looks at. */
static void damages(struct twin *t)
{
    static const uint64_t lengths[] = {3 * 512 + 5, 65 * 512, 64 * 512 + 3};
    for (size_t i = 0; i < 3; i++) {
        struct tensor plain = tensor_new(ZINF_DTYPE_BF16, lengths[i]);
        fill_kind(&plain, i == 2 ? NARROW : OUTLIERS, false);
        const struct zinf_pack_array array = {plain.data, plain.dtype, plain.n, false};
        const uint64_t bound = zinf_align_up(zinf_pack_bound(plain.dtype, plain.n), 64);
        char *image = aligned_alloc(64, bound);
        const int64_t bytes = zinf_pack(image, bound, &array, 1);
        const uint64_t begin = pack_payload_at((plain.n + 511) / 512);
        struct pair out = pair_of(t, tensor_new(plain.dtype, plain.n));
        char *there = (char *)t->cuda->memory + t->used;
        for (uint64_t k = 0; k < 40; k++) { /* the first bits, some, the last ones */
            const uint64_t all = 8 * ((uint64_t)bytes - begin);
            const uint64_t bit = k < 8 ? k : k < 16 ? all - 1 - (k - 8) : k * 7919 * 31 % all;
            uint32_t mark = 0, *mark_there = (uint32_t *)(void *)(there + bound);
            image[begin + bit / 8] ^= (char)(1 << bit % 8);
            const bool by_cpu = zinf_pack_check(&array, image, (uint64_t)bytes) < 0;
            twin_transfer(t, there, image, (uint64_t)bytes, true);
            twin_transfer(t, mark_there, &mark, sizeof mark, true);
            struct zinf_packed_array a = {.dtype = plain.dtype, .n = plain.n};
            ON_BOTH(t, (a.image = side == SIDE_HOST ? image : there, a.x = at(&out, side),
                        a.damaged = side == SIDE_HOST ? &mark : mark_there, ops->unpack(q, &a)));
            CHECKF(by_cpu || mark == 1, "host: bit %llu of %llu", (unsigned long long)bit,
                   (unsigned long long)all);
            twin_transfer(t, mark_there, &mark, sizeof mark, false);
            CHECKF(by_cpu || mark == 1, "device: bit %llu of %llu", (unsigned long long)bit,
                   (unsigned long long)all);
            image[begin + bit / 8] ^= (char)(1 << bit % 8);
        }
        free(image);
        tensor_free(&plain);
        pair_free(&out);
        twin_reset(t);
    }
}

static void refusals(struct twin *t)
{
    struct zinf_packed_array a = {.n = 5, .dtype = ZINF_DTYPE_BF16};
    CHECK(t->cuda->ops->unpack(t->q, &a) == -EINVAL && strstr(zinf_error(), "unpack"));
    a.x = t->cuda->memory;
    a.image = (char *)t->cuda->memory + 32;
    CHECK(t->cuda->ops->unpack(t->q, &a) == -EINVAL);
    a.n = (uint64_t)1 << 32;
    a.image = t->cuda->memory;
    CHECK(t->cuda->ops->unpack(t->q, &a) == -EINVAL);
    a.n = 0;
    a.image = NULL;
    CHECK(!t->cuda->ops->unpack(t->q, &a) && !t->host->ops->unpack(t->host_q, &a));
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(numbers)
CASE(long_arrays)
CASE(damages)
CASE(refusals)

int main(void)
{
    TAP_RUN(test_numbers);
    TAP_RUN(test_long_arrays);
    TAP_RUN(test_damages);
    TAP_RUN(test_refusals);
    return tap_done();
}
