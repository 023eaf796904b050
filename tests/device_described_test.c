/*
 * A GPU that is only described asks for the same workspaces as one that is there, of either
 * generation that the library treats apart, and nothing runs on it.
 */
#include "base/random.h"
#include "cuda_twin.h"

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

int main(void)
{
    TAP_RUN(test_same_workspaces_as_the_device);
    TAP_RUN(test_what_it_says_of_itself);
    return tap_done();
}
