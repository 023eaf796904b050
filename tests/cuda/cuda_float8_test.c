/* cuda_float8: products of 8-bit floats of the CUDA device against the host's. The codes are the
 * same to the bit, which a product with a diagonal of ones shows; sums are added in other orders.
 */
#include "cuda_twin.h"

struct shape {
    int64_t m, n, k, gap; /* gap: elements between rows */
    size_t shift;         /* elements off alignment */
};

/* The host's product and the GPU's of the same operands; ones: b is a diagonal. */
static void product(struct twin *t, struct shape s, int v, bool ones)
{
    const enum zinf_dtype bf16 = ZINF_DTYPE_BF16;
    struct zinf_matmul a = {.m = s.m, .n = s.n, .k = s.k, .trans_b = v & 1};
    a.a_dtype = a.b_dtype = bf16, a.c_dtype = v & 2 ? ZINF_DTYPE_F32 : bf16;
    a.float8 = v & 4 ? ZINF_FLOAT8_E5M2 : ZINF_FLOAT8_E4M3;
    a.beta = v % 3 == 2 ? 1.0f : 0.0f;
    a.lda = s.k + s.gap, a.ldb = (a.trans_b ? s.k : s.n) + s.gap, a.ldc = s.n + s.gap;
    struct tensor b_host = tensor_random(bf16, (size_t)((a.trans_b ? s.n : s.k) * a.ldb), 2, 3.0f);
    for (int64_t i = 0; ones && i < (int64_t)b_host.n; i++)
        ((uint16_t *)b_host.data)[i] = zinf_bf16_from_f32(i / a.ldb == i % a.ldb);
    struct pair pa = pair_shifted(
        t, tensor_random(bf16, (size_t)(s.m * a.lda), 1, v % 5 ? 1e-4f : 900.0f), s.shift);
    struct pair pb = pair_shifted(t, b_host, s.shift);
    struct pair pc = pair_shifted(t, tensor_random(a.c_dtype, (size_t)(s.m * a.ldc), 3, 1.0f), 0);
    struct pair pbias = pair_shifted(t, tensor_random(bf16, (size_t)s.n, 4, 1.0f), s.shift);
    ON_BOTH(t, (a.a = at(&pa, side), a.b = at(&pb, side), a.c = at(&pc, side),
                a.bias = v % 3 == 1 ? at(&pbias, side) : NULL, ops->matmul(q, &a)));
    double size = v % 5 ? 1e-4 : 900.0;
    if (ones)
        PAIR_CHECK(t, &pc, 0, 0);
    else
        PAIR_CHECK(t, &pc, 3.0 * size * sqrt((double)s.k) * 1e-5, 2.0 * dtype_epsilon(a.c_dtype));
    pair_free(&pa);
    pair_free(&pb);
    pair_free(&pc);
    pair_free(&pbias);
    twin_reset(t);
}

static void check_twin(void (*check)(struct twin *t))
{
    struct twin t;
    if (!twin_open_for(&t, 89, 1))
        SKIP("%s", twin_missing ? twin_missing : "no CUDA device");
    const bool has = t.cuda->has_float8;
    if (has)
        check(&t);
    twin_close(&t);
    if (!has)
        SKIP("%s has no units for floats of 8 bits", t.label.name);
}

/* Tiles and blocks with rests, rows apart, unaligned; more of them than one block's share. */
static const struct shape shapes[] = {{1, 16, 16, 0, 0},
                                      {33, 80, 48, 0, 0},
                                      {70, 16, 144, 8, 0},
                                      {9, 48, 32, 3, 1},
                                      {64, 64, 64, 0, 0}};

static void codes(struct twin *t)
{
    for (int v = 0; v < 12; v++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct shape s = shapes[i];
            s.n = s.k;
            product(t, s, v, true);
        }
    product(t, (struct shape){300, 64, 64, 0, 0}, 0, true);
}

static void test_codes_are_the_hosts(void)
{
    check_twin(codes);
}

static void products(struct twin *t)
{
    for (int v = 0; v < 30; v++)
        product(t, shapes[v % 5], v, false);
}

static void test_products(void)
{
    check_twin(products);
}

/* Parameters with matrices as codes: what encode makes is widened to the same bits, with numbers
 * that are none, zeros and denormal numbers among them. */
static void widens(struct twin *t)
{
    enum { N = 16 * 5000 };
    struct zinf_float8_run runs[] = {{.to = 0, .n = 16, .coded = 1},
                                     {.to = 16, .n = 16 * 300},
                                     {.to = 16 * 301, .n = 16 * 4600, .coded = 1},
                                     {.to = 16 * 4901, .n = 16 * 99, .coded = 1}};
    struct zinf_float8_image image = {runs, 4, zinf_float8_head(4), 16 * 4600};
    for (int r = 0; r < 4; r++) {
        runs[r].from = image.bytes;
        image.bytes += runs[r].n * (runs[r].coded ? 1 : 2);
    }
    for (int v = 0; v < 3; v++) {
        struct tensor values = tensor_random(ZINF_DTYPE_BF16, N, 5 + (uint64_t)v, v ? 1e-20f : 3);
        uint16_t *bits = values.data;
        for (int i = 0; i < 99 * 16; i++)
            bits[16 * 4901 + i] = (uint16_t)(v < 2 ? i * 41 % 0x7f80 : i * 83); /* all, or none */
        struct tensor made = tensor_new(ZINF_DTYPE_F32, image.bytes / 4);
        zinf_float8_encode(&image, values.data, made.data, 1 + v);
        struct pair in = pair_of(t, made);
        struct pair out = pair_shifted(t, tensor_new(ZINF_DTYPE_BF16, N), 0);
        struct zinf_widen a = {.n_runs = 4, .most = image.most};
        ON_BOTH(t, (a.image = at(&in, side), a.params = at(&out, side), ops->widen(q, &a)));
        struct tensor got = pair_download(t, &out);
        CHECKF(tensor_same_bits(&out.host, &got), "%d: other bits", v);
        CHECK(!memcmp((uint16_t *)out.host.data + 16, bits + 16, 16 * 300 * 2));
        tensor_free(&got);
        pair_free(&in);
        pair_free(&out);
        tensor_free(&values);
        twin_reset(t);
    }
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
    twin_close(&t);
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
        product(&t, shapes[1], v, false);
    twin_close(&t);
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
