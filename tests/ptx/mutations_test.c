/*
 * mutations: faults planted into each kernel of the compiled module must show: in its results,
 * which are compared bit for bit with those of the kernel as it is, or by what the interpreter
 * checks. So it is seen that the tests of tests/ptx can fail. Also what a step of attention may
 * cost in branches.
 */
#include "cuda_twin.h"

#include "ptx/ptx.h"

#include <dlfcn.h>
#include <unistd.h>

static struct {
    void (*start)(const void *options);
    void (*mutate)(const char *word, enum ptx_mutation mutation, int nth);
    int (*mutated)(void), (*places)(void);
    int (*faults)(void);
    void (*counts)(const char *word, struct ptx_counts *counts);
} gpu;

static bool find_gpu(void)
{
    void *library = dlopen("libcudart.so." CUDA_MAJOR_TEXT, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return false;
    *(void **)&gpu.start = dlsym(library, "standin_start");
    *(void **)&gpu.mutate = dlsym(library, "ptx_mutate");
    *(void **)&gpu.mutated = dlsym(library, "ptx_mutated");
    *(void **)&gpu.places = dlsym(library, "ptx_mutation_places");
    *(void **)&gpu.faults = dlsym(library, "standin_faults");
    *(void **)&gpu.counts = dlsym(library, "ptx_counts");
    return gpu.start && gpu.mutate && gpu.mutated && gpu.places && gpu.faults && gpu.counts;
}

/* ---- a GPU with some arrays ---- */

enum { ARENA = 4 << 20, WORKSPACE = 10 << 20, IN = 64 << 10, N_IN = 12, OUT = 256 << 10 };

struct setup {
    struct zinf_device *device;
    const struct zinf_device_ops *ops;
    struct zinf_queue *q;
    char *in[N_IN]; /* normal numbers; [10] ids, [11] squares */
    char *out;      /* begins as zeros */
    char *free;     /* of out */
    enum zinf_dtype dtype;
};

static void fill(struct setup *s)
{
    for (int k = 0; k < N_IN; k++) {
        enum zinf_dtype dtype = k < 6 ? s->dtype : ZINF_DTYPE_F32;
        size_t n = IN / zinf_dtype_bytes(dtype);
        struct tensor t = tensor_random(dtype, n, (uint64_t)k + 1, 1.0f);
        for (size_t i = 0; k == 10 && i < n; i++)
            ((int32_t *)t.data)[i] = (int32_t)(i * 7 % 20) - 1;
        for (size_t i = 0; k == 11 && i < n; i++)
            ((float *)t.data)[i] *= ((float *)t.data)[i];
        s->in[k] = (char *)s->device->memory + k * IN;
        s->ops->copy_to_device(s->q, s->in[k], t.data, IN);
        tensor_free(&t);
    }
    s->out = s->free = (char *)s->device->memory + N_IN * IN;
    s->ops->fill_zero(s->q, s->out, OUT);
}

static void open_setup(struct setup *s, enum zinf_dtype dtype)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    memset(s, 0, sizeof *s);
    gpu.start(NULL);
    s->dtype = dtype;
    CHECKF(!zinf_device_create(&s->device, &options), "%s", zinf_error());
    s->ops = s->device->ops;
    CHECKF(!zinf_device_take_memory(s->device, ARENA + WORKSPACE), "%s", zinf_error());
    CHECK(!s->ops->queue_create(s->device, ZINF_QUEUE_COMPUTE, &s->q));
    s->ops->queue_set_workspace(s->q, (char *)s->device->memory + ARENA, WORKSPACE);
    fill(s);
}

static void close_setup(struct setup *s)
{
    s->ops->queue_destroy(s->q);
    zinf_device_destroy(s->device);
}

/* A part of out, for so many elements. */
static void *take(struct setup *s, size_t n, enum zinf_dtype dtype)
{
    char *part = s->free;
    s->free += zinf_align_up(n * zinf_dtype_bytes(dtype), 16) + 16;
    return part;
}

/* ---- kernels ---- */

static int norms(struct setup *s)
{
    const size_t rows = 9, cols = 72, n = rows * cols;
    struct zinf_norm a = {.dtype = s->dtype, .rows = rows, .cols = cols, .eps = 1e-5f};
    a.x = s->in[0], a.w = s->in[1], a.b = s->in[2], a.dy = s->in[3];
    a.y = take(s, n, s->dtype), a.dx = take(s, n, s->dtype);
    a.mean = take(s, rows, ZINF_DTYPE_F32), a.rstd = take(s, rows, ZINF_DTYPE_F32);
    a.dw = take(s, cols, ZINF_DTYPE_F32), a.db = take(s, cols, ZINF_DTYPE_F32);
    int code = s->ops->norm_forward(s->q, &a);
    return code ? code : s->ops->norm_backward(s->q, &a);
}

/* Heads of 64 over a sequence that ends within a tile; fp32 takes the kernels without mma. */
static int attention_of(struct setup *s, float p, float softcap, const float *slopes)
{
    const int64_t seq = s->dtype == ZINF_DTYPE_F32 ? 40 : 150, heads = 1, size = 64;
    struct zinf_attention a = {.dtype = s->dtype,
                               .batch = 1,
                               .seq = seq,
                               .n_heads = heads,
                               .n_kv_heads = heads,
                               .head_dim = size,
                               .causal = true,
                               .scale = 0.125f,
                               .softcap = softcap,
                               .slopes = slopes,
                               .dropout = {.p = p, .seed = 5}};
    size_t n = (size_t)(seq * heads * size);
    a.qkv = s->in[0], a.d_out = s->in[1];
    a.out = take(s, n, s->dtype), a.d_qkv = take(s, 3 * n, s->dtype);
    a.lse = take(s, (size_t)(seq * heads), ZINF_DTYPE_F32);
    int code = s->ops->attention_forward(s->q, &a);
    return code ? code : s->ops->attention_backward(s->q, &a);
}

static int attention(struct setup *s)
{
    return attention_of(s, 0.0f, 0.0f, NULL);
}

static int attention_with_dropout(struct setup *s)
{
    return attention_of(s, 0.2f, 0.0f, NULL);
}

static const float slope[1] = {0.1f};

static int sloped_attention(struct setup *s)
{
    return attention_of(s, 0.0f, 0.0f, slope);
}

static int capped_attention_with_dropout(struct setup *s)
{
    return attention_of(s, 0.2f, 1.5f, slope);
}

/* Five rows of one sequence over a cache of numbers. */
static int cached_attention(struct setup *s)
{
    const int64_t heads = 2, size = 64, rows = 5, slots = 50;
    int32_t numbers[2][5] = {{0, 0, 0, 0, 0}, {40, 41, 42, 43, 44}};
    struct zinf_attention_cached a = {.dtype = s->dtype,
                                      .rows = rows,
                                      .n_heads = heads,
                                      .n_kv_heads = heads,
                                      .head_dim = size,
                                      .n_sequences = 1,
                                      .capacity = slots,
                                      .scale = 0.125f};
    const size_t n = (size_t)(2 * heads * slots * size);
    char *at = take(s, 10, ZINF_DTYPE_F32);
    int code = s->ops->copy_to_device(s->q, at, numbers, sizeof numbers);
    a.sequences = (const int32_t *)(void *)at, a.positions = a.sequences + rows;
    a.qkv = s->in[0], a.cache = take(s, n, s->dtype);
    a.out = take(s, (size_t)(rows * heads * size), s->dtype);
    code = code ? code : s->ops->copy(s->q, a.cache, s->in[1], n * zinf_dtype_bytes(s->dtype));
    return code ? code : s->ops->attention_cached(s->q, &a);
}

static int embeddings(struct setup *s)
{
    const int64_t rows = 40, cols = 24, count = 17;
    struct zinf_embedding a = {.dtype = s->dtype, .rows = rows, .cols = cols, .count = count};
    a.ids = (int32_t *)(void *)s->in[10], a.table = s->in[0], a.dx = s->in[1];
    a.x = take(s, (size_t)(rows * cols), s->dtype);
    a.d_table = take(s, (size_t)(count * cols), ZINF_DTYPE_F32);
    int code = s->ops->embedding_forward(s->q, &a);
    return code ? code : s->ops->embedding_backward(s->q, &a);
}

static int losses_of(struct setup *s, float softcap)
{
    const int64_t rows = 5, cols = 300, ld = 304;
    struct zinf_cross_entropy a = {
        .rows = rows, .cols = cols, .ld = ld, .softcap = softcap, .scale = 0.5f};
    a.targets = (int32_t *)(void *)s->in[10];
    a.logits = take(s, (size_t)(rows * ld), ZINF_DTYPE_F32);
    a.max = take(s, (size_t)rows, ZINF_DTYPE_F32), a.sum = take(s, (size_t)rows, ZINF_DTYPE_F32);
    a.target_logit = take(s, (size_t)rows, ZINF_DTYPE_F32);
    a.loss = take(s, (size_t)rows, ZINF_DTYPE_F32);
    int code = s->ops->copy(s->q, a.logits, s->in[6], (uint64_t)(rows * ld) * sizeof(float));
    code = code ? code : s->ops->cross_entropy_start(s->q, &a);
    code = code ? code : s->ops->cross_entropy_update(s->q, &a);
    code = code ? code : s->ops->cross_entropy_finish(s->q, &a);
    return code ? code : s->ops->cross_entropy_backward(s->q, &a);
}

static int losses(struct setup *s)
{
    return losses_of(s, 0.0f);
}

static int capped_losses(struct setup *s)
{
    return losses_of(s, 3.0f);
}

static int squared_errors(struct setup *s)
{
    const struct zinf_squared_error a = {.rows = 300,
                                         .x = (float *)(void *)s->in[7],
                                         .labels = (float *)(void *)s->in[8],
                                         .loss = take(s, 300, ZINF_DTYPE_F32),
                                         .dx = take(s, 300, ZINF_DTYPE_F32),
                                         .scale = 0.5f};
    return s->ops->squared_error(s->q, &a);
}

static int softcaps(struct setup *s)
{
    float *x = take(s, 2051, ZINF_DTYPE_F32);
    int code = s->ops->copy(s->q, x, s->in[7], 2051 * sizeof(float));
    return code ? code : s->ops->softcap(s->q, x, 3.0f, 2051);
}

static int flat(struct setup *s)
{
    const uint64_t n = 2051;
    struct zinf_residual r = {.dtype = s->dtype, .n = (int64_t)n, .dropout = {.p = 0.3f}};
    float *sum = take(s, n, ZINF_DTYPE_F32);
    r.x = s->in[0], r.r = s->in[1], r.y = take(s, n, s->dtype);
    int code = s->ops->residual_add(s->q, &r);
    code = code ? code : s->ops->convert(s->q, sum, ZINF_DTYPE_F32, s->in[2], s->dtype, n);
    code = code ? code : s->ops->add(s->q, sum, (float *)(void *)s->in[7], n);
    for (int kind = 0; !code && kind < 4; kind++)
        code = s->ops->activation_backward(s->q, (enum zinf_activation)kind, s->dtype,
                                           take(s, n, s->dtype), s->in[3], s->in[4],
                                           take(s, n, s->dtype), n);
    return code ? code
                : s->ops->sum_squares(s->q, take(s, 2, ZINF_DTYPE_F32), (float *)(void *)s->in[8],
                                      n * 2);
}

static int gated(struct setup *s)
{
    struct zinf_gated a = {.dtype = s->dtype, .rows = 5, .cols = 45};
    a.x = s->in[0], a.dy = s->in[1];
    a.y = take(s, 5 * 45, s->dtype), a.dx = take(s, 5 * 90, s->dtype);
    a.y_out = take(s, 5 * 45, s->dtype);
    int code = s->ops->gated_forward(s->q, &a);
    return code ? code : s->ops->gated_backward(s->q, &a);
}

static int rotations(struct setup *s)
{
    static const float inv_freq[8] = {1.0f, 0.5f, 0.25f, 0.1f, 0.05f, 0.02f, 0.01f, 0.001f};
    struct zinf_rope a = {.dtype = s->dtype, .rows = 9, .n_heads = 2, .head_dim = 20, .ld = 40};
    a.rotary_dims = 16, a.inv_freq = inv_freq, a.scale = 1.0f;
    a.positions = (const int32_t *)(void *)s->in[10], a.x = take(s, 9 * 40, s->dtype);
    int code = s->ops->copy(s->q, a.x, s->in[0], 9 * 40 * zinf_dtype_bytes(s->dtype));
    return code ? code : s->ops->rope(s->q, &a);
}

static int optimizer(struct setup *s)
{
    const uint64_t n = 2051;
    struct zinf_adam a = {.n = n, .dtype = s->dtype, .grad_scale = 0.5f, .beta1 = 0.9f};
    a.one_minus_beta1 = 0.1f, a.beta2 = 0.99f, a.one_minus_beta2 = 0.01f;
    a.root_correction = 2.0f, a.eps = 1e-8f, a.step_size = 0.1f;
    a.master = take(s, n, ZINF_DTYPE_F32), a.param = take(s, n, s->dtype);
    a.moment1 = take(s, n, ZINF_DTYPE_F32), a.moment2 = take(s, n, ZINF_DTYPE_F32);
    a.grad = (float *)(void *)s->in[9];
    int code = s->ops->copy(s->q, a.master, s->in[8], n * sizeof(float));
    code = code ? code : s->ops->copy(s->q, a.moment2, s->in[11], n * sizeof(float));
    return code ? code : s->ops->adam(s->q, &a);
}

/* An operand of another type and a bias that is not aligned: rectangles before and behind. */
static int products(struct setup *s)
{
    struct zinf_matmul a = {.m = 5, .n = 19, .k = 9, .lda = 9, .ldb = 19, .ldc = 19};
    a.a = s->in[6], a.b = s->in[0], a.a_dtype = ZINF_DTYPE_F32;
    a.b_dtype = a.c_dtype = s->dtype;
    a.c = take(s, 5 * 19, s->dtype);
    a.bias = s->in[1] + zinf_dtype_bytes(s->dtype);
    return s->ops->matmul(s->q, &a);
}

/* ---- mutants ---- */

typedef int run_case(struct setup *s);
struct mutant_case {
    const char *kernel;
    run_case *run;
    enum zinf_dtype dtype;
    /* It guards shared memory that is used a second time: there is nothing to guard at first. */
    bool first_barrier_is_spare;
};

/* What the case leaves in out; false: it failed, or the GPU found a fault. */
static bool results(const struct mutant_case *c, char *out)
{
    struct setup s;
    open_setup(&s, c->dtype);
    int code = c->run(&s);
    code = code ? code : s.ops->copy_to_host(s.q, out, s.out, OUT);
    code = code ? code : s.ops->queue_synchronize(s.q);
    close_setup(&s);
    return !code && !gpu.faults();
}

static const char *const names[PTX_MUTATIONS] = {
    [PTX_DROP_BARRIER] = "a barrier left out",
    [PTX_DROP_WAIT] = "a wait for copies left out",
    [PTX_DROP_TRANSPOSE] = "a transposition dropped",
    [PTX_SWAP_WORDS] = "two words of A swapped",
    [PTX_SHIFT_SHUFFLE] = "a shuffle from the wrong lane",
    [PTX_SHIFT_STORE] = "a store beside its place",
};
static int n_planted[PTX_MUTATIONS], n_caught[PTX_MUTATIONS];

/* The nth place of a mutation: 0 there is none, or nothing comes there; 1 caught, -1 not. */
static int plant(const struct mutant_case *c, enum ptx_mutation mutation, int nth,
                 const char *as_is, int *places)
{
    static char out[OUT];
    gpu.mutate(c->kernel, mutation, nth);
    bool good = results(c, out);
    int planted = gpu.mutated();
    *places = gpu.places();
    gpu.mutate("", PTX_AS_IT_IS, 0);
    if (!planted)
        return 0;
    bool caught = !good || memcmp(out, as_is, OUT);
    n_planted[mutation]++;
    n_caught[mutation] += caught;
    return caught ? 1 : -1;
}

/* The first places, and then ever further apart. */
static void try_case(const struct mutant_case *c)
{
    static char as_is[OUT];
    CHECKF(results(c, as_is), "%s as it is: %s", c->kernel, zinf_error());
    for (int m = PTX_AS_IT_IS + 1; m < PTX_MUTATIONS; m++)
        for (int nth = 0, places = 1; nth < places; nth = nth * 3 + 1) {
            int found = plant(c, (enum ptx_mutation)m, nth, as_is, &places);
            bool spare = m == PTX_DROP_BARRIER && nth == 0 && c->first_barrier_is_spare;
            CHECKF(found >= 0 || spare, "%s (%s): number %d of %s was not caught", c->kernel,
                   zinf_dtype_name(c->dtype), nth, names[m]);
        }
}

static void test_mutants(void)
{
    static const struct mutant_case cases[] = {
        {"norm_forward", norms, ZINF_DTYPE_BF16, false},
        {"norm_dx", norms, ZINF_DTYPE_F32, false},
        {"columns_kernel", norms, ZINF_DTYPE_F16, true},
        {"finish", norms, ZINF_DTYPE_F32, false},
        {"attention_mma_forward", attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_forward", attention_with_dropout, ZINF_DTYPE_F16, false},
        {"attention_mma_dkv", attention, ZINF_DTYPE_F16, false},
        {"attention_mma_dkv", attention_with_dropout, ZINF_DTYPE_BF16, false},
        {"attention_mma_dq", attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_dq", attention_with_dropout, ZINF_DTYPE_F16, false},
        {"attention_mma_forward", sloped_attention, ZINF_DTYPE_F16, false},
        {"attention_mma_forward", capped_attention_with_dropout, ZINF_DTYPE_BF16, false},
        {"attention_mma_dkv", sloped_attention, ZINF_DTYPE_BF16, false},
        {"attention_mma_dkv", capped_attention_with_dropout, ZINF_DTYPE_F16, false},
        {"attention_mma_dq", sloped_attention, ZINF_DTYPE_F16, false},
        {"attention_mma_dq", capped_attention_with_dropout, ZINF_DTYPE_BF16, false},
        {"attention_plain_dkv", capped_attention_with_dropout, ZINF_DTYPE_F32, false},
        {"attention_delta", attention, ZINF_DTYPE_BF16, false},
        {"attention_plain_forward", attention, ZINF_DTYPE_F32, false},
        {"attention_plain_dkv", attention, ZINF_DTYPE_F32, false},
        {"attention_plain_dq", attention_with_dropout, ZINF_DTYPE_F32, false},
        {"attention_cached", cached_attention, ZINF_DTYPE_BF16, false},
        {"keep_kernel", cached_attention, ZINF_DTYPE_F32, false},
        {"embedding", embeddings, ZINF_DTYPE_BF16, false},
        {"loss_update", losses, ZINF_DTYPE_F32, true},
        {"loss_finish", losses, ZINF_DTYPE_F32, false},
        {"loss_backward", losses, ZINF_DTYPE_F32, false},
        {"loss_update", capped_losses, ZINF_DTYPE_F32, true},
        {"loss_backward", capped_losses, ZINF_DTYPE_F32, false},
        {"squared_error", squared_errors, ZINF_DTYPE_F32, false},
        {"softcap", softcaps, ZINF_DTYPE_F32, false},
        {"residual", flat, ZINF_DTYPE_F16, false},
        {"activation", flat, ZINF_DTYPE_BF16, false},
        {"convert", flat, ZINF_DTYPE_BF16, false},
        {"add_kernel", flat, ZINF_DTYPE_F32, false},
        {"sum_squares", flat, ZINF_DTYPE_F32, false},
        {"gated", gated, ZINF_DTYPE_BF16, false},
        {"rope", rotations, ZINF_DTYPE_F16, false},
        {"adam", optimizer, ZINF_DTYPE_BF16, false},
        {"rectangle", products, ZINF_DTYPE_BF16, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        try_case(&cases[i]);
    for (int m = 1; m < PTX_MUTATIONS; m++)
        printf("# %s: %d of %d caught\n", names[m], n_caught[m], n_planted[m]);
}

/* ---- branches ---- */

/* A branch for every score would be 32 to 48 products; what is left is loops and tiles. */
static void test_attention_has_no_branches(void)
{
    static const char *const kernels[] = {"attention_mma_forward", "attention_mma_dkv",
                                          "attention_mma_dq"};
    static run_case *const runs[] = {attention_with_dropout, sloped_attention,
                                     capped_attention_with_dropout};
    struct ptx_counts before, after;
    static char out[OUT];
    for (size_t i = 0; i < 9; i++) {
        const char *kernel = kernels[i % 3];
        const struct mutant_case c = {kernel, runs[i / 3], ZINF_DTYPE_BF16, false};
        gpu.counts(kernel, &before);
        CHECKF(results(&c, out), "%s", zinf_error());
        gpu.counts(kernel, &after);
        double branches = (double)(after.branches - before.branches);
        double products = (double)(after.products - before.products);
        printf("# %s: %.0f branches taken, %.0f products of a warp\n", kernel, branches, products);
        CHECKF(products > 0 && branches < 0.25 * products, "%.0f branches to %.0f products",
               branches, products);
    }
}

int main(void)
{
    const char *build = getenv("BUILDDIR");
    char path[1024];
    snprintf(path, sizeof path, "%s/.libs/zinf-cuda.so", build ? build : ".");
    setenv("ZINF_CUDA_MODULE", path, 0);
    snprintf(path, sizeof path, "%s/tests/ptx/lib", build ? build : ".");
    if (!getenv("ZINF_PTX_CHILD")) { /* the loader reads it when a process begins */
        setenv("ZINF_PTX_CHILD", "1", 1);
        setenv("LD_LIBRARY_PATH", path, 1);
        execl("/proc/self/exe", "mutations_test", (char *)NULL);
    }
    if (zinf_device_cuda_why_not() || !find_gpu()) {
        printf("Bail out! %s\n",
               zinf_device_cuda_why_not() ? zinf_device_cuda_why_not() : "not the interpreter");
        return 1;
    }
    TAP_RUN(test_attention_has_no_branches);
    TAP_RUN(test_mutants);
    return tap_done();
}
