/* cuda_float8: products of 8-bit floats of the CUDA device against the host's. The codes are the
 * same to the bit, which a product with a diagonal of ones shows; sums are added in other orders.
 */
#include "cuda_twin.h"

static void check_twin(void (*check)(struct twin *t))
{
    struct twin t;
    if (!twin_open_for(&t, 89, 1))
        SKIP("%s", twin_missing ? twin_missing : "no CUDA device");
    const bool has = t.cuda->has_float8;
    if (has)
        check(&t);
    twin_end(&t);
    if (!has)
        SKIP("the GPU has no units for floats of 8 bits");
}

/* Tiles and blocks with rests, rows apart, unaligned; more of them than one block's share. */
static const struct matmul_shape shapes[] = {{1, 16, 16, 0, 0},
                                             {33, 80, 48, 0, 0},
                                             {70, 16, 144, 8, 0},
                                             {9, 48, 32, 3, 1},
                                             {64, 64, 64, 0, 0}};

static void codes(struct twin *t)
{
    for (int v = 0; v < 12; v++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct matmul_shape s = shapes[i];
            s.n = s.k;
            case_float8(t, s, v, true);
        }
    case_float8(t, (struct matmul_shape){300, 64, 64, 0, 0}, 0, true);
}

static void test_codes_are_the_hosts(void)
{
    check_twin(codes);
}

static void products(struct twin *t)
{
    for (int v = 0; v < 30; v++)
        case_float8(t, shapes[v % 5], v, false);
}

static void test_products(void)
{
    check_twin(products);
}

static void widens(struct twin *t)
{
    for (int v = 0; v < 3; v++)
        case_widen(t, v);
}

static void test_images_are_widened(void)
{
    check_twin(widens);
}

#ifdef CUDA_STANDIN
/* An older GPU says so; its plans know before. */
static void test_older_gpus(void)
{
    struct twin t;
    CHECK(twin_open_for(&t, 80, 1));
    char *memory = (char *)t.cuda->memory + t.used;
    struct zinf_matmul a = {.m = 16, .n = 16, .k = 16, .lda = 16, .ldb = 16, .ldc = 16};
    a.a_dtype = a.b_dtype = a.c_dtype = ZINF_DTYPE_BF16, a.float8 = ZINF_FLOAT8_E4M3;
    a.a = a.b = memory, a.c = memory + 4096;
    CHECK(!t.cuda->has_float8 && t.cuda->ops->matmul(t.q, &a) == -ENOTSUP);
    CHECKF(strstr(zinf_error(), "sm_80") && strstr(zinf_error(), "zinf.matmul_type"), "%s",
           zinf_error());
    twin_end(&t);
}

/* A library without an epilogue, or with another workspace, makes the same. */
static void test_no_epilogues(void)
{
    static const struct standin_options machine = {.no_epilogues = true};
    struct twin t;
    twin_machine = &machine;
    CHECK(twin_open_for(&t, 90, 2));
    twin_machine = NULL;
    for (int v = 0; v < 6; v++)
        case_float8(&t, shapes[1], v, false);
    twin_end(&t);
}
#endif

int main(void)
{
    TAP_RUN(test_codes_are_the_hosts);
    TAP_RUN(test_products);
    TAP_RUN(test_images_are_widened);
#ifdef CUDA_STANDIN
    TAP_RUN(test_older_gpus);
    TAP_RUN(test_no_epilogues);
#endif
    return tap_done();
}
