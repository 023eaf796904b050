/* pack: every bit comes back, from the same bytes of every instruction set and thread count;
 * damaged images are refused, and nothing is read or written outside, whatever an image holds. */
#include "cpu_optim/pack_internal.h"
#include "optim_support.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define A_LITTLE 700u /* elements; a new image overwrites as much of the next piece */
#define MOST 70000u   /* elements: more than two groups of blocks */
#define GOLDEN 0x58d66072645f001dull /* hash of an image, test_format */

static size_t size_of(enum zinf_dtype dtype)
{
    return dtype == ZINF_DTYPE_F32 ? 4 : 2;
}

/* Memory that ends, and begins, where nothing may be touched. */
struct guarded {
    char *pages;
    size_t bytes, page;
};

static struct guarded guarded_make(size_t bytes)
{
    struct guarded g = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    g.bytes = zinf_align_up(bytes, g.page);
    g.pages = mmap(NULL, g.bytes + 2 * g.page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    mprotect(g.pages, g.page, PROT_NONE);
    mprotect(g.pages + g.page + g.bytes, g.page, PROT_NONE);
    return g;
}

/* The last bytes of it, where what is behind is forbidden. */
static void *last_bytes(const struct guarded *g, size_t bytes)
{
    return g->pages + g->page + g->bytes - bytes;
}

static void guarded_free(struct guarded *g)
{
    munmap(g->pages, g->bytes + 2 * g->page);
}

/* ---- numbers ---- */

enum fill {
    NORMAL,      /* as parameters are */
    SQUARES,     /* as second moments: no signs */
    SPECIAL,     /* every exponent, infinities, NaNs, denormals, zeros */
    ANY_BITS,    /* every bit pattern */
    ZEROS,       /* all zero */
    MINUS_ZEROS, /* all zero, some negative */
    ZERO_ROWS,   /* normal numbers with stretches of zeros */
    ONE_FAR,     /* one number in 700 is far smaller than the others */
    MANY_FAR,    /* one in 9: as many exceptions as there may be */
    EQUAL,       /* one value */
    ROUNDED,     /* fp32 numbers that bf16 holds */
    FILLS,
};

static float number(enum fill fill, uint64_t i)
{
    uint32_t counter[4] = {(uint32_t)i, (uint32_t)fill}, bits[4];
    zinf_philox(counter, 5, bits);
    float normal = 0.02f * sqrtf(-2 * logf(zinf_uniform(bits[0]) + 1e-9f)) *
                   cosf(6.2831853f * zinf_uniform(bits[1]));
    switch (fill) {
    case SQUARES:
        return normal * normal;
    case SPECIAL:
        return random_value(i, 3, true);
    case ZEROS:
        return 0;
    case MINUS_ZEROS:
        return bits[2] % 2 ? -0.0f : 0.0f;
    case ZERO_ROWS:
        return i / 300 % 2 ? 0 : normal;
    case ONE_FAR:
        return bits[2] % 700 ? 1 + fabsf(normal) : 1e-30f * normal;
    case MANY_FAR:
        return bits[2] % 9 ? 1 + fabsf(normal) : 1e-9f * normal;
    case EQUAL:
        return -0.7182f;
    case ROUNDED:
        return zinf_bf16_to_f32(zinf_bf16_from_f32(normal));
    default:
        return normal;
    }
}

static void fill_array(void *x, enum zinf_dtype dtype, enum fill fill, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t counter[4] = {(uint32_t)i}, bits[4];
        float value = number(fill, i);
        zinf_philox(counter, 11, bits);
        char *to = (char *)x + i * size_of(dtype);
        if (fill == ANY_BITS)
            memcpy(to, bits, size_of(dtype));
        else
            zinf_convert(to, dtype, &value, ZINF_DTYPE_F32, 1);
    }
}

/* ---- there and back ---- */

struct trial {
    struct zinf_pack_array array;
    struct guarded from, to, image;
    char *first; /* the image of the scalar form */
    int64_t first_bytes;
};

static void trial_init(struct trial *t, enum zinf_dtype dtype, uint64_t n)
{
    uint64_t bound = zinf_pack_bound(dtype, n);
    *t = (struct trial){.array = {.dtype = dtype, .n = n},
                        .from = guarded_make(n * size_of(dtype)),
                        .to = guarded_make(n * size_of(dtype)),
                        .image = guarded_make(bound),
                        .first = aligned_alloc(64, zinf_align_up(bound, 64))};
    t->array.x = last_bytes(&t->from, n * size_of(dtype));
}

static void trial_fini(struct trial *t)
{
    guarded_free(&t->from);
    guarded_free(&t->to);
    guarded_free(&t->image);
    free(t->first);
}

/* Whether the numbers come back and the bytes are those of the scalar form. */
static bool try_ops(struct trial *t, const struct pack_ops *ops, int n_threads)
{
    uint64_t bytes = t->array.n * size_of(t->array.dtype);
    uint64_t bound = zinf_pack_bound(t->array.dtype, t->array.n);
    struct zinf_pack_array back = t->array;
    /* At the end of the memory, so that not a byte more is touched. */
    char *image = (char *)((uintptr_t)last_bytes(&t->image, bound) / 64 * 64);
    int64_t length = pack_with(ops, image, &t->array, n_threads);
    if (length <= 0 || (uint64_t)length > bound)
        return false;
    if (ops == &pack_ops_scalar && n_threads == 1) {
        memcpy(t->first, image, (size_t)length);
        t->first_bytes = length;
    }
    if (length != t->first_bytes || memcmp(image, t->first, (size_t)length))
        return false;
    /* The image alone, too. */
    char *end = last_bytes(&t->image, (size_t)length);
    char *moved = (char *)((uintptr_t)end / 64 * 64);
    memmove(moved, image, (size_t)length);
    back.x = last_bytes(&t->to, bytes);
    memset(back.x, 0x5a, bytes);
    return unpack_with(ops, &back, moved, (uint64_t)length, n_threads) == length &&
           !memcmp(back.x, t->array.x, bytes);
}

static void try_all(struct trial *t, enum fill fill)
{
    fill_array(t->array.x, t->array.dtype, fill, t->array.n);
    for (int isa = 0; isa <= (int)zinf_isa() && isa <= ZINF_ISA_AVX512; isa++)
        for (int threads = 1; threads <= 3; threads += 2)
            CHECKF(try_ops(t, pack_ops_of((enum zinf_isa)isa), threads),
                   "%s, %d threads: dtype %d, fill %d, %d elements",
                   zinf_isa_name((enum zinf_isa)isa), threads, t->array.dtype, fill,
                   (int)t->array.n);
}

static void test_every_bit_comes_back(void)
{
    const uint64_t lengths[] = {0, 1, 2, 16, 31, 32, 33, 511, 512, 513, 1024, 5000, 32768, 32769};
    for (int dtype = 0; dtype < ZINF_DTYPE_COUNT; dtype++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            struct trial t;
            trial_init(&t, (enum zinf_dtype)dtype, lengths[l]);
            for (int fill = 0; fill < FILLS; fill++)
                try_all(&t, (enum fill)fill);
            trial_fini(&t);
        }
}

static void test_threads(void)
{
    for (int dtype = 0; dtype < ZINF_DTYPE_COUNT; dtype++) {
        struct trial t;
        trial_init(&t, (enum zinf_dtype)dtype, 20 * MOST + 17); /* enough for three threads */
        try_all(&t, NORMAL);
        try_all(&t, MANY_FAR);
        trial_fini(&t);
    }
}

/* All halves, in blocks of like and of unlike ones. */
static void test_every_half(void)
{
    struct trial t;
    trial_init(&t, ZINF_DTYPE_BF16, 65536);
    for (uint32_t step = 1; step < 70000; step = step * 7 + 2) {
        uint16_t *x = t.array.x;
        for (uint32_t i = 0; i < 65536; i++)
            x[i] = (uint16_t)(i * step);
        for (int isa = 0; isa <= (int)zinf_isa() && isa <= ZINF_ISA_AVX512; isa++)
            CHECK(try_ops(&t, pack_ops_of((enum zinf_isa)isa), 1));
    }
    trial_fini(&t);
}

/* Blocks whose numbers lie between two magnitudes: every width, with and without signs. */
static void test_every_width(void)
{
    struct trial t;
    bool seen[2][17] = {{false}};
    trial_init(&t, ZINF_DTYPE_BF16, 512);
    for (int sign = 0; sign < 2; sign++)
        for (int bits = 0; bits <= 15; bits++) {
            uint16_t *x = t.array.x;
            for (uint32_t i = 0; i < 512; i++) {
                uint32_t counter[4] = {i, (uint32_t)bits}, random[4];
                zinf_philox(counter, 1, random);
                x[i] = (uint16_t)(random[0] % (1u << bits) + (bits < 15 ? 0x4000 : 0));
                x[i] = (uint16_t)(x[i] | (sign && random[1] % 2 ? 0x8000 : 0));
            }
            for (int isa = 0; isa <= (int)zinf_isa() && isa <= ZINF_ISA_AVX512; isa++)
                CHECKF(try_ops(&t, pack_ops_of((enum zinf_isa)isa), 1), "%d bits", bits);
            uint32_t entry;
            memcpy(&entry, t.first + 64, sizeof entry);
            seen[sign][entry >> 16 & 31] = true;
        }
    for (int width = 0; width <= 14; width++)
        CHECKF(seen[0][width] && seen[1][width + 1], "width %d was not tried", width);
    trial_fini(&t);
}

/* ---- what it gains, and the bytes as they are ---- */

static double bits_of(enum zinf_dtype dtype, enum fill fill)
{
    struct trial t;
    trial_init(&t, dtype, MOST);
    fill_array(t.array.x, dtype, fill, MOST);
    int64_t bytes = pack_with(pack_ops_of(zinf_isa()), t.first, &t.array, 1);
    trial_fini(&t);
    return (double)bytes * 8 / MOST;
}

static void test_gain(void)
{
    const struct {
        enum zinf_dtype dtype;
        enum fill fill;
        double most;
    } cases[] = {
        {ZINF_DTYPE_BF16, NORMAL, 11.5},   {ZINF_DTYPE_BF16, SQUARES, 11.5},
        {ZINF_DTYPE_F32, NORMAL, 27.5},    {ZINF_DTYPE_F32, SQUARES, 27.5},
        {ZINF_DTYPE_F32, ZEROS, 0.1},      {ZINF_DTYPE_BF16, EQUAL, 1.1},
        {ZINF_DTYPE_F32, ROUNDED, 11.5},   {ZINF_DTYPE_BF16, ZERO_ROWS, 11.9},
        {ZINF_DTYPE_BF16, ANY_BITS, 16.1}, {ZINF_DTYPE_F32, ANY_BITS, 32.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double bits = bits_of(cases[i].dtype, cases[i].fill);
        printf("# dtype %d, fill %d: %.2f bits\n", cases[i].dtype, cases[i].fill, bits);
        CHECKF(bits <= cases[i].most, "%.2f bits instead of %.2f", bits, cases[i].most);
    }
}

/* What an older version wrote must be read by a newer one, so the bytes may not change. */
static void test_format(void)
{
    struct trial t;
    trial_init(&t, ZINF_DTYPE_F32, 1100);
    uint32_t *x = t.array.x;
    for (uint32_t i = 0; i < 1100; i++)
        x[i] = 0x3c000000u + i * 2654435761u % 0x03000000u + (i % 5 == 0) * 0x80000000u;
    CHECK(try_ops(&t, &pack_ops_scalar, 1));
    uint64_t hash = XXH3_64bits(t.first, (size_t)t.first_bytes);
    CHECKF(hash == GOLDEN, "%d bytes with hash 0x%llx", (int)t.first_bytes,
           (unsigned long long)hash);
    trial_fini(&t);
}

/* ---- damage ---- */

/* An image of some blocks with codes, exceptions, plain halves and a short end. */
static void damage_init(struct trial *t, enum zinf_dtype dtype)
{
    trial_init(t, dtype, 1700);
    size_t size = size_of(dtype), block = 512 * size;
    fill_array(t->array.x, dtype, ONE_FAR, 1700);
    fill_array((char *)t->array.x + block, dtype, ANY_BITS, 512);
    fill_array((char *)t->array.x + 2 * block, dtype, MINUS_ZEROS, 512);
    t->first_bytes = pack_with(&pack_ops_scalar, t->first, &t->array, 1);
}

/* Unpacks the first bytes of an image, which end where memory ends. */
static int64_t unpack_guarded(struct trial *t, const char *image, size_t bytes)
{
    char *at = (char *)((uintptr_t)last_bytes(&t->image, bytes) / 64 * 64);
    struct zinf_pack_array back = t->array;
    back.x = last_bytes(&t->to, back.n * size_of(back.dtype));
    memcpy(at, image, bytes);
    return zinf_unpack(&back, at, bytes, 1);
}

static void test_every_bit_damaged(void)
{
    for (int dtype = 0; dtype < ZINF_DTYPE_COUNT; dtype++) {
        struct trial t;
        int64_t accepted = 0;
        damage_init(&t, (enum zinf_dtype)dtype);
        CHECK(unpack_guarded(&t, t.first, (size_t)t.first_bytes) == t.first_bytes);
        for (int64_t bit = 0; bit < t.first_bytes * 8; bit++) {
            t.first[bit / 8] = (char)(t.first[bit / 8] ^ 1 << bit % 8);
            accepted += unpack_guarded(&t, t.first, (size_t)t.first_bytes) != -EBADMSG;
            t.first[bit / 8] = (char)(t.first[bit / 8] ^ 1 << bit % 8);
        }
        CHECKF(!accepted, "%d damaged images were taken", (int)accepted);
        CHECK(strstr(zinf_error(), "packed array is damaged"));
        for (int64_t bytes = 0; bytes < t.first_bytes; bytes++)
            CHECKF(unpack_guarded(&t, t.first, (size_t)bytes) == -EBADMSG, "%d bytes", (int)bytes);
        trial_fini(&t);
    }
}

/* The checksums of an image as it is now, so that only what is behind them can refuse it. */
static void seal(char *image, uint64_t n, uint64_t bytes)
{
    uint64_t n_blocks = (n + 511) / 512, sums = zinf_align_up(64 + 4 * n_blocks, 8);
    uint64_t payload = zinf_align_up(sums + (n_blocks + 63) / 64 * 8, 64), of[2];
    uint64_t sum = XXH3_64bits(image + payload, bytes - payload); /* one group */
    memcpy(image + sums, &sum, 8);
    memset(image + 32, 0, 8);
    of[0] = XXH3_64bits(image, 64);
    of[1] = XXH3_64bits(image + 64, payload - 64);
    sum = XXH3_64bits(of, sizeof of);
    memcpy(image + 32, &sum, 8);
}

/* Images that are wrong with checksums that are right: refused or not, all stays inside. */
static void test_forged(void)
{
    int rounds = getenv("ZINF_TEST_PACK") ? atoi(getenv("ZINF_TEST_PACK")) : 20000, refused = 0;
    for (int dtype = 0; dtype < ZINF_DTYPE_COUNT; dtype++) {
        struct trial t;
        damage_init(&t, (enum zinf_dtype)dtype);
        char *image = malloc((size_t)t.first_bytes);
        for (int round = 0; round < rounds; round++) {
            uint32_t counter[4] = {(uint32_t)round, (uint32_t)dtype}, bits[4];
            memcpy(image, t.first, (size_t)t.first_bytes);
            for (int i = 0; i < 1 + round % 4; i++) {
                counter[2] = (uint32_t)i;
                zinf_philox(counter, 21, bits);
                uint32_t range = bits[1] % 4 ? 96 : (uint32_t)t.first_bytes;
                uint32_t at = 16 + bits[0] % (range - 16);
                image[at] = (char)(bits[2] % 3 ? (uint32_t)image[at] ^ 1u << bits[3] % 8 : bits[3]);
            }
            seal(image, t.array.n, (uint64_t)t.first_bytes);
            refused += unpack_guarded(&t, image, (size_t)t.first_bytes) == -EBADMSG;
        }
        free(image);
        trial_fini(&t);
    }
    printf("# %d of %d forged images were refused\n", refused, rounds * ZINF_DTYPE_COUNT);
    CHECK(refused > rounds / 2 && refused < rounds * ZINF_DTYPE_COUNT);
}

static void test_refusals(void)
{
    struct trial t;
    damage_init(&t, ZINF_DTYPE_F32);
    uint64_t bound = zinf_pack_bound(ZINF_DTYPE_F32, t.array.n);
    CHECK(zinf_pack(t.first, bound - 1, &t.array, 1) == -EINVAL);
    CHECK(zinf_pack(t.first + 4, bound, &t.array, 1) == -EINVAL);
    CHECK(zinf_pack_bound(ZINF_DTYPE_F32, UINT64_MAX) == 0);
    CHECK(zinf_pack(t.first, bound, &t.array, 1) == t.first_bytes);
    struct zinf_pack_array other = t.array;
    other.n--;
    CHECK(zinf_unpack(&other, t.first, bound, 1) == -EBADMSG);
    other = t.array;
    other.dtype = ZINF_DTYPE_BF16;
    CHECK(zinf_unpack(&other, t.first, bound, 1) == -EBADMSG);
    CHECK(zinf_unpack(&t.array, t.first, bound, 1) == t.first_bytes); /* others follow it */
    trial_fini(&t);
}

/* ---- numbers that change in their images ---- */

enum { CHANGING = 4 };

/* Of each array the numbers, what they become, and the images of both. */
struct changes {
    enum zinf_dtype dtypes[CHANGING];
    uint64_t n;
    char *x[CHANGING], *new_x[CHANGING], *in[CHANGING], *out[CHANGING], *expected[CHANGING];
    int64_t in_bytes[CHANGING], expected_bytes[CHANGING];
    uint32_t ahead; /* pieces of a thread that may wait for their places */
};

/* An array beside another one, so that pieces that do not belong together are seen. */
static void change_some(const enum zinf_dtype *dtypes, uint64_t first, uint64_t n, void *const x[])
{
    for (int a = 0; a < CHANGING; a++) {
        const size_t size = size_of(dtypes[a]), next = size_of(dtypes[(a + 1) % CHANGING]);
        for (uint64_t i = 0; i < n; i++) {
            char *at = (char *)x[a] + i * size;
            at[0] =
                (char)(at[0] ^ ((const char *)x[(a + 1) % CHANGING])[i * next] ^ (int)(first + i));
        }
    }
}

static int change_piece(void *context, uint64_t first, uint64_t n, void *const x[])
{
    const struct changes *c = context;
    change_some(c->dtypes, first, n, x);
    return 0;
}

/* Some pieces take long, so that others are packed before them. */
static int change_unevenly(void *context, uint64_t first, uint64_t n, void *const x[])
{
    if (first / ZINF_PACK_PIECE % 5 == 1)
        usleep(2000);
    return change_piece(context, first, n, x);
}

static int change_fails(void *context, uint64_t first, uint64_t n, void *const x[])
{
    (void)context, (void)n, (void)x;
    return first >= 5 * ZINF_PACK_PIECE ? zinf_fail(-ERANGE, "at %llu", (unsigned long long)first)
                                        : 0;
}

/* The first numbers of the images are zeros, which pack into nothing. */
static void changes_init(struct changes *c, uint64_t n, uint64_t zeros)
{
    static const enum fill fills[CHANGING] = {NORMAL, SQUARES, ANY_BITS, MANY_FAR};
    *c = (struct changes){
        .dtypes = {ZINF_DTYPE_F32, ZINF_DTYPE_F32, ZINF_DTYPE_BF16, ZINF_DTYPE_BF16}, .n = n};
    for (int a = 0; a < CHANGING; a++) {
        const uint64_t bytes = n * size_of(c->dtypes[a]), bound = zinf_pack_bound(c->dtypes[a], n);
        c->x[a] = malloc(bytes);
        c->new_x[a] = malloc(bytes);
        c->in[a] = aligned_alloc(64, zinf_align_up(bound, 64));
        c->out[a] = aligned_alloc(64, zinf_align_up(bound, 64));
        c->expected[a] = aligned_alloc(64, zinf_align_up(bound, 64));
        fill_array(c->x[a], c->dtypes[a], fills[a], n);
        if (a < 2)
            memset(c->x[a], 0, (zeros < n ? zeros : n) * size_of(c->dtypes[a]));
        memcpy(c->new_x[a], c->x[a], bytes);
    }
    change_some(c->dtypes, 0, n, (void *const *)c->new_x);
    for (int a = 0; a < CHANGING; a++) {
        const struct zinf_pack_array old = {c->x[a], c->dtypes[a], n, a == 1};
        const struct zinf_pack_array new = {c->new_x[a], c->dtypes[a], n, a == 1};
        c->in_bytes[a] = pack_with(&pack_ops_scalar, c->in[a], &old, 1);
        c->expected_bytes[a] = pack_with(&pack_ops_scalar, c->expected[a], &new, 1);
    }
}

static void changes_fini(struct changes *c)
{
    for (int a = 0; a < CHANGING; a++) {
        free(c->x[a]);
        free(c->new_x[a]);
        free(c->in[a]);
        free(c->out[a]);
        free(c->expected[a]);
    }
}

/* Where new images are placed, if not beside all that is old. */
enum placing { BESIDE, OVER_OLD, IN_HALF, IN_OUT };

static void give_place(struct zinf_pack_changing *a, char *old, enum placing placing)
{
    const uint64_t bound = zinf_pack_bound(a->array.dtype, a->array.n);
    if (placing == BESIDE || !a->out)
        return;
    a->place = placing == IN_OUT || !a->in ? a->out : old;
    a->place_bytes = placing == IN_HALF && a->in ? a->in_bytes / 2 : bound;
    if (placing == OVER_OLD && a->in)
        a->place_bytes = zinf_align_up(a->in_bytes, 64);
}

/* Images 0 and 1 change; array 2 goes from where it is into one, array 3 changes where it is. */
static int change_all(struct changes *c, int n_threads, enum placing placing,
                      struct zinf_pack_changing arrays[CHANGING],
                      int (*change)(void *, uint64_t, uint64_t, void *const[]))
{
    struct zinf_pack_change all = {
        .arrays = arrays, .n_arrays = CHANGING, .change = change, .context = c, .ahead = c->ahead};
    for (int a = 0; a < CHANGING; a++) {
        arrays[a] = (struct zinf_pack_changing){
            .array = {a < 2 ? NULL : c->x[a], c->dtypes[a], c->n, a == 1},
            .in = a < 2 ? c->in[a] : NULL,
            .in_bytes = (uint64_t)c->in_bytes[a],
            .in_place = a == 3,
            .out = a < 3 ? c->out[a] : NULL};
        give_place(&arrays[a], c->in[a], placing);
    }
    all.n_threads = n_threads;
    all.room = aligned_alloc(64, zinf_pack_change_room(&all));
    int code = zinf_pack_change(&all);
    free(all.room);
    return code;
}

/* Images are collected into another's memory, where they are, or where they were placed. */
static char *collected_at(const struct changes *c, const struct zinf_pack_changing *a, int i)
{
    return a->place ? a->place : i == 1 ? c->in[i] : c->out[i];
}

static void try_change(uint64_t n, int n_threads, uint32_t ahead, enum placing placing,
                       uint64_t zeros)
{
    struct changes c;
    struct zinf_pack_changing arrays[CHANGING];
    changes_init(&c, n, zeros);
    c.ahead = ahead;
    char *old = memcpy(malloc(n * 2), c.x[2], n * 2);
    CHECKF(
        !change_all(&c, n_threads, placing, arrays, n_threads > 1 ? change_unevenly : change_piece),
        "%s", zinf_error());
    for (int a = 0; a < 3; a++) {
        char *to = collected_at(&c, &arrays[a], a);
        if (a == 0 && placing == IN_HALF) /* of an image in two places, together in a third */
            to = c.out[a];
        zinf_pack_collect(&arrays[a], to, n_threads);
        CHECKF(arrays[a].bytes == c.expected_bytes[a] &&
                   !memcmp(to, c.expected[a], (size_t)arrays[a].bytes),
               "%llu elements, %d threads, %u ahead, places %d: image %d", (unsigned long long)n,
               n_threads, ahead, placing, a);
    }
    CHECK(placing != OVER_OLD || n < 20 * 32768 || (zeros < n) == (arrays[0].n_placed > 2));
    CHECK(placing != IN_HALF || arrays[0].n_placed * ZINF_PACK_PIECE < n);
    CHECK(placing != IN_OUT || arrays[0].n_placed * ZINF_PACK_PIECE >= n);
    CHECK(!memcmp(c.x[2], old, n * 2) && !memcmp(c.x[3], c.new_x[3], n * 2));
    free(old);
    changes_fini(&c);
}

static void test_change(void)
{
    static const uint64_t lengths[] = {1, 700, 32768, 32769, 20 * 32768 + 17, 70 * 32768};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int threads = 1; threads <= 3; threads += 2)
            for (uint32_t ahead = 1; ahead <= ZINF_PACK_AHEAD; ahead += ZINF_PACK_AHEAD - 1) {
                for (int placing = BESIDE; placing <= IN_OUT; placing++)
                    try_change(lengths[i], threads, ahead, (enum placing)placing, 0);
                try_change(lengths[i], threads, ahead, OVER_OLD, lengths[i]);
                try_change(lengths[i], threads, ahead, OVER_OLD, A_LITTLE);
            }
}

/* A page that whoever reads it is kept from until the fourth piece is changed; that thread has
 * copied by then what of its pieces had a place. */
static struct guarded slow;
static atomic_bool is_read, is_passed;

static void await(const atomic_bool *what)
{
    for (int ms = 0; !atomic_load(what) && ms < 60000; ms++)
        usleep(1000);
}

static void open_late(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    atomic_store(&is_read, true);
    await(&is_passed);
    mprotect(slow.pages, slow.bytes, PROT_READ | PROT_WRITE);
}

/* The thread that has the second piece goes on once the other one unpacks the third. */
static int change_beside(void *context, uint64_t first, uint64_t n, void *const x[])
{
    if (first == ZINF_PACK_PIECE)
        await(&is_read);
    if (first == 3 * ZINF_PACK_PIECE)
        atomic_store(&is_passed, true);
    return change_piece(context, first, n, x);
}

/* A thread takes long to unpack the third piece: of image 0, so that of image 1 it has nothing yet.
 * The second piece of that image overwrites a little of what it will unpack, and must wait. */
static void test_slow_unpacking(void)
{
    struct changes c;
    struct zinf_pack_changing arrays[CHANGING];
    struct sigaction late = {.sa_sigaction = open_late, .sa_flags = SA_SIGINFO}, before;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    changes_init(&c, 20 * ZINF_PACK_PIECE, A_LITTLE);
    c.ahead = ZINF_PACK_AHEAD;
    const uintptr_t third = (uintptr_t)c.in[0] + (uint64_t)c.in_bytes[0] * 5 / 40;
    slow = (struct guarded){.pages = (char *)zinf_align_up(third, page), .bytes = page};
    sigaction(SIGSEGV, &late, &before);
    mprotect(slow.pages, slow.bytes, PROT_NONE);
    CHECKF(!change_all(&c, 2, OVER_OLD, arrays, change_beside), "%s", zinf_error());
    CHECK(is_read && is_passed);
    sigaction(SIGSEGV, &before, NULL);
    zinf_pack_collect(&arrays[1], arrays[1].place, 2);
    CHECK(arrays[1].n_placed > 2 && arrays[1].bytes == c.expected_bytes[1] &&
          !memcmp(arrays[1].place, c.expected[1], (size_t)arrays[1].bytes));
    changes_fini(&c);
}

static void test_change_refuses(void)
{
    struct changes c;
    struct zinf_pack_changing arrays[CHANGING];
    changes_init(&c, 20 * 32768, 0);
    c.ahead = 2;
    CHECK(change_all(&c, 2, OVER_OLD, arrays, change_fails) == -ERANGE &&
          !strncmp(zinf_error(), "at ", 3));
    c.in[0][c.in_bytes[0] / 2] ^= 4;
    CHECK(change_all(&c, 2, OVER_OLD, arrays, change_piece) == -EBADMSG);
    CHECK(strstr(zinf_error(), "packed array is damaged"));
    c.in[0][c.in_bytes[0] / 2] ^= 4;
    c.in[1][70] ^= 1; /* the table: it has a checksum in every image */
    CHECK(change_all(&c, 2, OVER_OLD, arrays, change_piece) == -EBADMSG);
    changes_fini(&c);
}

/* The same numbers, without checksums of the payload; what it damages is whoever stores it's. */
static void test_unsummed(void)
{
    struct trial t;
    trial_init(&t, ZINF_DTYPE_F32, MOST);
    fill_array(t.array.x, t.array.dtype, NORMAL, MOST);
    t.array.unsummed = true;
    CHECK(try_ops(&t, &pack_ops_scalar, 1) && try_ops(&t, pack_ops_of(zinf_isa()), 1));
    const int64_t bytes = pack_with(&pack_ops_scalar, t.first, &t.array, 1);
    struct zinf_pack_array back = t.array;
    back.unsummed = false; /* the image says it */
    back.x = last_bytes(&t.to, MOST * 4);
    t.first[bytes - 1] ^= 1;
    CHECK(zinf_unpack(&back, t.first, (uint64_t)bytes, 1) == bytes);
    CHECK(memcmp(back.x, t.array.x, MOST * 4));
    t.first[66] ^= 1;
    CHECK(zinf_unpack(&back, t.first, (uint64_t)bytes, 1) == -EBADMSG);
    trial_fini(&t);
}

/* ---- the checks themselves: a table with one mistake is found ---- */

static struct pack_block narrower(const uint16_t *halves)
{
    struct pack_block block = pack_ops_scalar.choose(halves);
    block.width = (uint8_t)(block.width > block.sign ? block.width - 1 : block.width);
    return block;
}

static struct pack_block without_zeros(const uint16_t *halves)
{
    struct pack_block block = pack_ops_scalar.choose(halves);
    block.zero = false;
    return block;
}

static struct pack_block without_exceptions(const uint16_t *halves)
{
    struct pack_block block = pack_ops_scalar.choose(halves);
    block.exceptions = 0;
    return block;
}

static struct pack_block without_signs(const uint16_t *halves)
{
    struct pack_block block = pack_ops_scalar.choose(halves);
    block.width = (uint8_t)(block.width - block.sign);
    block.sign = false;
    return block;
}

static bool low_forgotten(uint16_t *high, uint16_t *low, const void *x)
{
    pack_ops_scalar.split(high, low, x);
    return false;
}

static void last_row_late(uint16_t *halves, const void *in, const struct pack_block *block)
{
    pack_ops_scalar.decode(halves, in, block);
    halves[511] = halves[510];
}

static void without_low(void *x, const void *low, const void *in, const struct pack_block *block)
{
    (void)low;
    pack_ops_scalar.decode_wide(x, NULL, in, block);
}

static void test_mutants(void)
{
    enum { HALVES = 5, MUTANTS = 7 }; /* HALVES: a mistake in what fp32 does not use */
    struct pack_ops mutants[MUTANTS];
    for (int m = 0; m < MUTANTS; m++)
        mutants[m] = pack_ops_scalar;
    mutants[0].choose = narrower;
    mutants[1].choose = without_zeros;
    mutants[2].choose = without_exceptions;
    mutants[3].choose = without_signs;
    mutants[4].split = low_forgotten;
    mutants[HALVES].decode = last_row_late;
    mutants[6].decode_wide = without_low;
    for (int m = 0; m < MUTANTS; m++) {
        int found = 0;
        struct trial t;
        trial_init(&t, m == HALVES ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32, 5000);
        for (int fill = 0; fill < FILLS; fill++) {
            fill_array(t.array.x, t.array.dtype, (enum fill)fill, t.array.n);
            CHECK(try_ops(&t, &pack_ops_scalar, 1));
            found += !try_ops(&t, &mutants[m], 1);
        }
        CHECKF(found, "mutant %d was not found", m);
        trial_fini(&t);
    }
}

int main(void)
{
    TAP_RUN(test_every_bit_comes_back);
    TAP_RUN(test_threads);
    TAP_RUN(test_every_half);
    TAP_RUN(test_every_width);
    TAP_RUN(test_gain);
    TAP_RUN(test_format);
    TAP_RUN(test_every_bit_damaged);
    TAP_RUN(test_forged);
    TAP_RUN(test_refusals);
    TAP_RUN(test_change);
    TAP_RUN(test_slow_unpacking);
    TAP_RUN(test_change_refuses);
    TAP_RUN(test_unsummed);
    TAP_RUN(test_mutants);
    return tap_done();
}
