/*
 * A GPU that is only described asks for the same workspaces as one that is there, of either
 * generation that the library treats apart, and nothing runs on it.
 */
#include "base/random.h"
#include "cuda_twin.h"
#include "kernels/cuda/workspace.h"
#include "model/frame.h"
#include "model_texts.h"

enum { CASES = 200 };

static uint32_t drawn;

static int64_t draw(int64_t end)
{
    uint32_t counter[4] = {drawn++, 0, 0, 0}, bits[4];
    zinf_philox(counter, 17, bits);
    return bits[0] % (uint32_t)end;
}

static struct zinf_matmul draw_matmul(void)
{
    static const enum zinf_dtype dtypes[] = {ZINF_DTYPE_F32, ZINF_DTYPE_BF16, ZINF_DTYPE_F16};
    struct zinf_matmul m = {.m = 1 + draw(300),
                            .n = 1 + draw(300),
                            .k = 1 + draw(300),
                            .a_dtype = dtypes[draw(3)],
                            .b_dtype = dtypes[draw(3)],
                            .c_dtype = dtypes[draw(3)],
                            .trans_a = draw(2),
                            .trans_b = draw(2)};
    m.lda = m.trans_a ? m.m : m.k;
    m.ldb = m.trans_b ? m.k : m.n;
    m.ldc = m.n;
    return m;
}

static void compare(struct zinf_device *a, struct zinf_device *b)
{
    const struct zinf_device_ops *x = a->ops, *y = b->ops;
    struct zinf_matmul plain = {.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1};
    int n_equal = 0, n_converting = 0;
    for (int i = 0; i < CASES; i++) {
        struct zinf_matmul m = draw_matmul();
        struct zinf_norm norm = {.rows = draw(40000), .cols = 1 + draw(500), .heads = draw(4)};
        struct zinf_attention attention = {.batch = 1 + draw(4),
                                           .seq = 1 + draw(2000),
                                           .n_heads = 1 + draw(32),
                                           .n_kv_heads = 1,
                                           .head_dim = 64};
        int64_t rows = draw(40000), cols = 1 + draw(500);
        uint64_t bytes = y->matmul_workspace(b, &m);
        n_converting += bytes > y->matmul_workspace(b, &plain);
        n_equal += x->matmul_workspace(a, &m) == bytes &&
                   x->norm_workspace(a, &norm) == y->norm_workspace(b, &norm) &&
                   x->attention_workspace(a, &attention) == y->attention_workspace(b, &attention) &&
                   x->column_sum_workspace(a, rows, cols) == y->column_sum_workspace(b, rows, cols);
    }
    CHECKF(n_equal == CASES, "%d of %d", n_equal, CASES);
    CHECK(a->logit_rows == b->logit_rows && a->rounds_operands == b->rounds_operands);
    CHECKF(n_converting > CASES / 2, "only %d products convert an operand", n_converting);
}

static void test_same_workspaces_as_the_device(void)
{
    static const int capabilities[] = {80, 90};
    for (int i = 0; i < 2; i++) {
        struct zinf_device_description gpu = {.capability = capabilities[i]};
        struct zinf_device *described, *cuda = twin_open_cuda(capabilities[i], 1);
        CHECKF(!zinf_device_describe(&described, &gpu), "%s", zinf_error());
        compare(cuda, described);
        zinf_device_destroy(described);
        zinf_device_destroy(cuda);
    }
}

static void test_what_it_says_of_itself(void)
{
    struct zinf_device_description gpu = {.memory_bytes = (uint64_t)24 << 30, .n_threads = 3};
    struct zinf_device *device;
    struct zinf_queue *queue;
    CHECKF(!zinf_device_describe(&device, &gpu), "%s", zinf_error());
    CHECK(device->kind == ZINF_DEVICE_CUDA && !device->host_addressable && device->needs_pinned);
    CHECK(device->free_bytes == (uint64_t)24 << 30 && device->n_threads == 3);
    CHECK(zinf_device_take_memory(device, 4096) == -ENODEV);
    CHECK(device->ops->queue_create(device, ZINF_QUEUE_COMPUTE, &queue) == -ENODEV && !queue);
    CHECKF(strstr(zinf_error(), "only described"), "%s", zinf_error());
    zinf_device_destroy(device);
}

/* ---- what the head of a model costs ---- */

/* An H200, as published: so many operations and bytes a second. */
#define PRODUCTS_A_SECOND 7.2e14
#define BYTES_A_SECOND 4.8e12

/* Adds up how long the products that are asked about would take it. */
struct counting_device {
    struct zinf_device device;
    double seconds;
};

static uint64_t count_product(struct zinf_device *device, const struct zinf_matmul *m)
{
    const struct packed_product packed = packed_product(m);
    const double a = (double)(m->m * m->k), b = (double)(m->k * m->n), c = (double)(m->m * m->n);
    const double bytes = a * (double)zinf_dtype_bytes(packed.a.dtype) +
                         b * (double)zinf_dtype_bytes(packed.b.dtype) +
                         c * (double)zinf_dtype_bytes(packed.c.dtype) * (m->beta != 0.0f ? 2 : 1);
    const double products = 2.0 * (double)m->k * c / PRODUCTS_A_SECOND;
    const double converted = (packed.a.bytes ? a * 6.0 : 0.0) + (packed.b.bytes ? b * 6.0 : 0.0);
    double *seconds = &((struct counting_device *)device)->seconds;
    *seconds += bytes / BYTES_A_SECOND > products ? bytes / BYTES_A_SECOND : products;
    *seconds += converted / BYTES_A_SECOND;
    return matmul_workspace_bytes(90, m);
}

/* Logits of 16 samples of GPT-2 XL, their loss and gradients: near what the products alone take. */
static void test_the_head_is_bound_by_its_products(void)
{
    struct zinf_device *described;
    struct zinf_device_description gpu = {.capability = 90};
    struct zinf_model *model = model_of(&(struct zinf_model_shape){.arch = "gpt2", .size = "xl"});
    const struct zinf_graph *graph = zinf_model_graph(model);
    CHECKF(!zinf_device_describe(&described, &gpu), "%s", zinf_error());
    struct counting_device counting = {.device = *described};
    struct zinf_device_ops ops = *described->ops;
    ops.matmul_workspace = count_product;
    counting.device.ops = &ops;
    struct zinf_compute compute = {.device = &counting.device,
                                   .dtype = ZINF_DTYPE_BF16,
                                   .batch = 16,
                                   .seq = 1024,
                                   .train = true};
    struct zinf_stage_size size;
    const uint32_t head = graph->n_stages - 1;
    CHECK(!strcmp(graph->stages[head].ops->name, "head"));
    CHECKF(!zinf_stage_measure(&size, &compute, graph, head, ZINF_PASS_WHOLE), "%s", zinf_error());
    const double least = size.flops / PRODUCTS_A_SECOND;
    const double seconds = counting.seconds + size.bytes / BYTES_A_SECOND;
    printf("# %.1f ms, %.1f of them in products; at best %.1f\n", seconds * 1e3,
           counting.seconds * 1e3, least * 1e3);
    CHECKF(counting.seconds < 1.1 * least && seconds < 1.5 * least, "%.1f ms, at best %.1f",
           seconds * 1e3, least * 1e3);
    zinf_model_close(model);
    zinf_device_destroy(described);
}

int main(void)
{
    TAP_RUN(test_same_workspaces_as_the_device);
    TAP_RUN(test_what_it_says_of_itself);
    TAP_RUN(test_the_head_is_bound_by_its_products);
    return tap_done();
}
