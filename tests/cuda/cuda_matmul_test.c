/* cuda_matmul: products of the CUDA device against the host's: every transposition, type, beta and
 * bias, rows further apart than they are long, and odd shapes. */
#include "cuda_twin.h"

static void one_type(struct twin *t)
{
    static const struct matmul_shape shapes[] = {
        {1, 1, 1, 0, 0}, {5, 3, 7, 0, 1}, {17, 24, 33, 3, 0}, {64, 40, 16, 8, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int v = 0; v < 36; v++) {
            enum zinf_dtype type = all_dtypes[v / 12];
            enum zinf_dtype types[] = {type, type, v & 8 ? ZINF_DTYPE_F32 : type};
            case_matmul(t, &(struct matmul_case){.shape = shapes[i],
                                                 .types = types,
                                                 .trans_a = v & 1,
                                                 .trans_b = v & 2,
                                                 .bias = !(v & 4) && v % 3,
                                                 .beta = v & 4 ? 1.0f : 0.0f});
        }
}

static void mixed_types(struct twin *t)
{
    for (int v = 0; v < 27; v++) {
        enum zinf_dtype types[] = {all_dtypes[v % 3], all_dtypes[v / 3 % 3], all_dtypes[v / 9]};
        case_matmul(t, &(struct matmul_case){.shape = {19, 26, 35, v % 4, (size_t)v % 5},
                                             .types = types,
                                             .trans_a = v & 1,
                                             .trans_b = v & 2,
                                             .bias = !(v & 4),
                                             .beta = v & 4 ? 1.0f : 0.0f});
    }
}

static void refusals(struct twin *t)
{
    struct zinf_matmul a = {.m = 2, .n = 2, .k = 2, .lda = 1, .ldb = 2, .ldc = 2};
    CHECK(t->cuda->ops->matmul(t->q, &a) == -EINVAL);
    a.lda = 2;
    t->cuda->ops->queue_set_workspace(t->q, t->cuda->memory,
                                      t->cuda->ops->matmul_workspace(t->cuda, &a) - 1);
    CHECK(t->cuda->ops->matmul(t->q, &a) == -EINVAL);
    CHECK(strstr(zinf_error(), "workspace") != NULL);
}

/* Many shapes, two times: the second finds what the first has kept. */
static void many_shapes(struct twin *t)
{
    const enum zinf_dtype types[] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_BF16};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 70; i++)
            case_matmul(t, &(struct matmul_case){.shape = {1 + i % 7, 1 + i / 7, 3, 0, 0},
                                                 .types = types,
                                                 .trans_b = true,
                                                 .bias = true});
}

#ifdef CUDA_STANDIN
static struct standin_options machine;

static void open_machine(struct twin *t)
{
    twin_machine = &machine;
    CHECK(twin_open_for(t, machine.capability, 1));
    twin_machine = NULL;
}

/* A library that finds no algorithm with a bias: it is added behind the product. */
static void test_no_epilogues(void)
{
    struct twin t;
    machine = (struct standin_options){.capability = 80, .no_epilogues = true};
    open_machine(&t);
    for (int round = 0; round < 2; round++)
        for (int v = 0; v < 3; v++) {
            const enum zinf_dtype types[] = {all_dtypes[v], all_dtypes[v], all_dtypes[v]};
            case_matmul(&t, &(struct matmul_case){.shape = {16, 24, 32, 0, 0},
                                                  .types = types,
                                                  .trans_b = true,
                                                  .bias = true});
        }
    twin_end(&t);
}

/* One that finds none at all says which product it was, every time. */
static void test_no_algorithms(void)
{
    struct twin t;
    machine = (struct standin_options){.capability = 80, .no_algorithms = true};
    open_machine(&t);
    char *memory = (char *)t.cuda->memory + t.used;
    struct zinf_matmul a = {.m = 2, .n = 3, .k = 4, .lda = 4, .ldb = 3, .ldc = 3};
    a.a = a.b = memory, a.c = memory + 4096;
    for (int round = 0; round < 2; round++) {
        CHECK(t.cuda->ops->matmul(t.q, &a) == -EIO);
        CHECKF(strstr(zinf_error(), "2 x 3 x 4") && strstr(zinf_error(), "fp32"), "%s",
               zinf_error());
    }
    twin_end(&t);
}

/* Experts get other numbers of rows at each visit: the library is asked once for each. */
static void test_algorithms_are_kept(void)
{
    static const enum zinf_dtype types[] = {ZINF_DTYPE_F32, ZINF_DTYPE_F32, ZINF_DTYPE_F32};
    struct standin_products before, after;
    struct twin t;
    machine = (struct standin_options){.capability = 80};
    open_machine(&t);
    standin_products(&before);
    for (int visit = 0; visit < 3; visit++)
        for (int rows = 1; rows <= 200; rows++)
            case_matmul(&t, &(struct matmul_case){.shape = {rows, 3, 2, 0, 0}, .types = types});
    standin_products(&after);
    uint64_t asked = after.questions - before.questions;
    CHECKF(asked < 220, "%llu questions for 200 shapes", (unsigned long long)asked);
    for (int rows = 1; rows <= 1000; rows++) /* more than are kept */
        case_matmul(&t, &(struct matmul_case){.shape = {rows % 500 + 1, 2, rows / 500 + 1, 0, 0},
                                              .types = types});
    for (int rows = 1; rows <= 200; rows++)
        case_matmul(&t, &(struct matmul_case){.shape = {rows, 3, 2, 0, 0}, .types = types});
    twin_end(&t);
}

/* The three products of a vocabulary's tile that is no multiple of 8 tokens: logits, the gradient
 * of hidden rows, that of the tile; of an odd width, too. */
static void test_odd_extents_are_cut(void)
{
    enum { ROWS = 520, TOKENS = 1031, WIDTH = 1023 };
    static const struct {
        struct matmul_shape shape; /* with a gap of one element, all rows begin well */
        bool trans_a, trans_b;
    } products[] = {
        {{ROWS, TOKENS, WIDTH, 1, 0}, false, true},
        {{ROWS, WIDTH, TOKENS, 1, 0}, false, false},
        {{TOKENS, WIDTH, ROWS, 1, 0}, true, false},
    };
    struct standin_products before, after;
    struct twin t;
    machine = (struct standin_options){.capability = 80};
    open_machine(&t);
    standin_products(&before);
    for (size_t i = 0; i < 3; i++) {
        const enum zinf_dtype types[] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_F32};
        case_matmul(&t, &(struct matmul_case){.shape = products[i].shape,
                                              .types = types,
                                              .trans_a = products[i].trans_a,
                                              .trans_b = products[i].trans_b,
                                              .bias = !i,
                                              .beta = i ? 1.0f : 0.0f});
    }
    standin_products(&after);
    CHECKF(after.launches - before.launches == 9 && after.odd == before.odd,
           "%llu products, %llu odd", (unsigned long long)(after.launches - before.launches),
           (unsigned long long)(after.odd - before.odd));
    twin_end(&t);
}

/* ---- one of several algorithms ---- */

/* A product's result, made by a GPU on which the algorithms are as fast as speeds says, with the
 * choice of list; NULL: with none. Returns the milliseconds that it took. */
static double made(uint64_t speeds, struct zinf_products *list, bool times, float *out)
{
    enum { M = 24, N = 16, K = 300 };
    struct zinf_matmul a = {.m = M, .n = N, .k = K, .lda = K, .ldb = K, .ldc = N, .trans_b = true};
    struct standin_products before, after;
    struct twin t;
    machine = (struct standin_options){.capability = 80, .algorithms = 6, .speeds = speeds};
    open_machine(&t);
    const struct zinf_device_ops *ops = t.cuda->ops;
    if (times) {
        ops->products_note(t.cuda, list);
        ops->matmul_workspace(t.cuda, &a);
        ops->matmul_workspace(t.cuda, &a);
        ops->products_note(t.cuda, NULL);
        CHECKF(list->n == 1 && !list->items[0].chosen, "%u products", list->n);
        CHECKF(!ops->products_time(t.q, list), "%s", zinf_error());
        CHECK(list->items[0].chosen);
    }
    if (list)
        CHECKF(!ops->products_use(t.cuda, list), "%s", zinf_error());
    struct pair pa = pair_random(&t, ZINF_DTYPE_F32, M * K, 1, 1.0f);
    struct pair pb = pair_random(&t, ZINF_DTYPE_F32, N * K, 2, 1.0f);
    struct pair pc = pair_random(&t, ZINF_DTYPE_F32, M * N, 3, 1.0f);
    a.a = pa.device, a.b = pb.device, a.c = pc.device;
    CHECK(!ops->queue_synchronize(t.q));
    standin_products(&before);
    CHECKF(!ops->matmul(t.q, &a), "%s", zinf_error());
    CHECK(!ops->copy_to_host(t.q, out, pc.device, M * N * sizeof *out));
    CHECK(!ops->queue_synchronize(t.q));
    standin_products(&after);
    twin_end(&t);
    return after.milliseconds - before.milliseconds;
}

/* The fastest is taken, and another GPU that is given the choice makes the same bits. */
static void test_the_fastest_algorithm(void)
{
    enum { ELEMS = 24 * 16, SPEEDS = 12 };
    static float first[ELEMS], own[ELEMS], given[ELEMS];
    double gained = 0.0;
    int other = 0;
    for (uint64_t speeds = 1; speeds <= SPEEDS; speeds++) {
        struct zinf_products list = {0};
        double slow = made(speeds, NULL, false, first), fast = made(speeds, &list, true, own);
        CHECKF(fast <= slow, "%g ms, the first proposal %g ms", fast, slow);
        gained += slow - fast;
        other += memcmp(first, own, sizeof own) != 0;
        made(speeds + 100, &list, false, given);
        CHECK(!memcmp(own, given, sizeof own));
        free(list.items);
    }
    CHECKF(gained > 0.1 * SPEEDS && other > SPEEDS / 2, "%g ms gained, %d of other bits", gained,
           other);
}

/* One that the library does not know is not tried: products are made by its first proposal. */
static void test_an_unknown_algorithm(void)
{
    static float plain[24 * 16], unknown[24 * 16];
    struct zinf_products list = {0};
    made(3, &list, true, unknown);
    for (int i = 0; i < 8; i++)
        list.items[0].way[i] ^= 0x55;
    made(3, NULL, false, plain);
    made(3, &list, false, unknown);
    CHECK(!memcmp(plain, unknown, sizeof plain));
    free(list.items);
}

/* ---- products that add to sums ---- */

enum { SUM_ROWS = 24, SUM_COLS = 16, SUM_ELEMS = SUM_ROWS * SUM_COLS };

/* sum + product by one call, or product and sum by two. */
static void add_gradient(struct twin *t, struct zinf_matmul a, bool at_once, float *out)
{
    const struct zinf_device_ops *ops = t->cuda->ops;
    struct pair sum = pair_random(t, ZINF_DTYPE_F32, SUM_ELEMS, 3, 1.0f);
    struct pair part = pair_random(t, ZINF_DTYPE_F32, SUM_ELEMS, 4, 1.0f);
    a.c = at_once ? sum.device : part.device;
    a.beta = at_once ? 1.0f : 0.0f;
    a.adds_after = at_once;
    CHECKF(!ops->matmul(t->q, &a), "%s", zinf_error());
    if (!at_once)
        CHECK(!ops->add(t->q, sum.device, part.device, SUM_ELEMS));
    CHECK(!ops->copy_to_host(t->q, out, sum.device, SUM_ELEMS * sizeof *out));
    CHECK(!ops->queue_synchronize(t->q));
}

/* What products_add says is so, by other numbers than those that it has seen. */
static void sums_of(uint64_t speeds, enum zinf_dtype dtype, bool adds_first)
{
    enum { K = 300 };
    static float at_once[SUM_ELEMS], apart[SUM_ELEMS];
    struct zinf_matmul a = {.m = SUM_ROWS,
                            .n = SUM_COLS,
                            .k = K,
                            .a_dtype = dtype,
                            .b_dtype = dtype,
                            .trans_a = true,
                            .lda = SUM_ROWS,
                            .ldb = SUM_COLS,
                            .ldc = SUM_COLS};
    struct zinf_products list = {0};
    struct twin t;
    bool adds = true;
    machine = (struct standin_options){
        .capability = 80, .algorithms = 6, .speeds = speeds, .adds_first = adds_first};
    open_machine(&t);
    const struct zinf_device_ops *ops = t.cuda->ops;
    ops->products_note(t.cuda, &list);
    ops->matmul_workspace(t.cuda, &a);
    ops->products_note(t.cuda, NULL);
    CHECKF(!ops->products_use(t.cuda, &list) && !ops->products_add(t.q, &list, &adds), "%s",
           zinf_error());
    CHECK(!adds); /* there is no choice yet */
    CHECKF(!ops->products_time(t.q, &list) && !ops->products_use(t.cuda, &list) &&
               !ops->products_add(t.q, &list, &adds),
           "%s", zinf_error());
    struct pair pa = pair_random(&t, dtype, SUM_ROWS * K, 1, 1.0f);
    struct pair pb = pair_random(&t, dtype, SUM_COLS * K, 2, 1.0f);
    a.a = pa.device, a.b = pb.device;
    add_gradient(&t, a, true, at_once);
    add_gradient(&t, a, false, apart);
    CHECKF(adds == !adds_first, "said %d", adds);
    CHECK(adds == !memcmp(at_once, apart, sizeof apart));
    free(list.items);
    twin_end(&t);
}

static void test_products_add_to_sums(void)
{
    for (uint64_t speeds = 1; speeds <= 3; speeds++)
        for (int adds_first = 0; adds_first < 2; adds_first++) {
            sums_of(speeds, ZINF_DTYPE_F32, adds_first);
            sums_of(speeds, ZINF_DTYPE_BF16, adds_first);
        }
}

/* bf16 is refused before the memory is taken, not in the first step. */
static void test_bf16_on_sm_75(void)
{
    struct standin_options old = {.capability = 75};
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    struct zinf_device *device = NULL;
    struct zinf_matmul a = {.m = 2, .n = 3, .k = 4, .lda = 4, .ldb = 3, .ldc = 3};
    a.a_dtype = a.b_dtype = a.c_dtype = ZINF_DTYPE_F16;
    standin_start(&old);
    CHECKF(!cuda_device_create(&device, &options), "%s", zinf_error());
    device->ops->matmul_workspace(device, &a);
    a.a_dtype = a.b_dtype = ZINF_DTYPE_BF16;
    device->ops->matmul_workspace(device, &a);
    CHECK(zinf_device_take_memory(device, 1 << 20) == -ENOTSUP);
    CHECKF(strstr(zinf_error(), "fp16") && strstr(zinf_error(), "sm_75"), "%s", zinf_error());
    zinf_device_destroy(device);
    CHECK(!standin_faults() && !standin_live());
}
#endif

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(one_type)
CASE(mixed_types)
CASE(refusals)
CASE(many_shapes)

int main(void)
{
    TAP_RUN(test_one_type);
    TAP_RUN(test_mixed_types);
    TAP_RUN(test_refusals);
    TAP_RUN(test_many_shapes);
#ifdef CUDA_STANDIN
    TAP_RUN(test_no_epilogues);
    TAP_RUN(test_no_algorithms);
    TAP_RUN(test_algorithms_are_kept);
    TAP_RUN(test_odd_extents_are_cut);
    TAP_RUN(test_the_fastest_algorithm);
    TAP_RUN(test_an_unknown_algorithm);
    TAP_RUN(test_products_add_to_sums);
    TAP_RUN(test_bf16_on_sm_75);
#endif
    return tap_done();
}
