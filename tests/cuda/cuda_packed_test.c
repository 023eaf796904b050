/* cuda_packed: packed arrays in a device's memory against what was packed, on the host device and
 * on the CUDA device, bit for bit: every number type, kinds of numbers that make every width and
 * every field of a block, whole blocks and odd ends, aligned and not. */
#include "base/packed.h"
#include "cpu_optim/pack.h"
#include "cuda_twin.h"

static void numbers(struct twin *t)
{
    static const uint64_t lengths[] = {1, 31, 511, 513, 4 * 512, 17 * 512 + 7};
    for (int kind = 0; kind < PACKED_KINDS; kind++)
        for (int d = 0; d < 3; d++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                case_unpack(t, (enum packed_kind)kind, all_dtypes[d], lengths[i], i % 2,
                            i % 3 == 1);
}

/* Three groups of blocks, so that the third begins behind two of other lengths. */
static void long_arrays(struct twin *t)
{
    case_unpack(t, PACKED_OUTLIERS, ZINF_DTYPE_BF16, 2 * 64 * 512 + 3 * 512 + 1, false, 0);
    case_unpack(t, PACKED_WIDE, ZINF_DTYPE_F32, 2 * 64 * 512 + 3 * 512 + 1, true, 0);
}

/* A bit of the payload that falls over: both sides say so, or it is in what the CPU looks at. */
static void damages(struct twin *t)
{
    static const uint64_t lengths[] = {3 * 512 + 5, 65 * 512, 64 * 512 + 3};
    for (size_t i = 0; i < 3; i++) {
        struct tensor plain = tensor_new(ZINF_DTYPE_BF16, lengths[i]);
        packed_fill(&plain, i == 2 ? PACKED_NARROW : PACKED_OUTLIERS, false);
        const struct zinf_pack_array array = {plain.data, plain.dtype, plain.n, false};
        const uint64_t bound = zinf_align_up(zinf_pack_bound(plain.dtype, plain.n), 64);
        char *image = aligned_alloc(64, bound);
        const int64_t bytes = zinf_pack(image, bound, &array, 1);
        const uint64_t begin = pack_payload_at((plain.n + 511) / 512);
        twin_case(t, "unpack", "%llu numbers, damaged", (unsigned long long)plain.n);
        struct pair out = pair_new(t, plain.dtype, plain.n, 0);
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
