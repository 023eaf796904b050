/*
 * doctor_kernels: every operation of the device's table on small shapes, on the GPU and on the
 * host, for `zinf doctor`. Both have an arena with the same numbers at the same offsets; an
 * operation names what it writes, and that is compared by its norm. Shapes are odd on purpose.
 */
#include "cli/doctor.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

#define INPUT_BYTES ((uint64_t)64 << 10)
#define OUTPUT_BYTES ((uint64_t)256 << 10)
#define WORKSPACE_BYTES ((uint64_t)48 << 20)
enum { N_INPUTS = 8, IDS = 6, SQUARES = 7, MOST_RESULTS = 16 };
#define ARENA_BYTES (N_INPUTS * INPUT_BYTES + OUTPUT_BYTES + WORKSPACE_BYTES)

/* One of the two devices. */
struct side {
    struct zinf_device *device;
    const struct zinf_device_ops *ops;
    struct zinf_queue *q;
    char *in[N_INPUTS]; /* normal numbers: 0 to 3 in dtype, 4 and 5 in fp32 */
    char *out;
    uint64_t used; /* of out */
    enum zinf_dtype dtype;
};

/* What an operation wrote: the same on both sides. */
struct results {
    struct {
        uint64_t at, n;
        enum zinf_dtype dtype;
    } list[MOST_RESULTS];
    int n;
};

struct pair {
    struct side cuda, host;
    struct results results;
    struct side *recording; /* whose results are listed */
    char *got;
    double worst[3]; /* by dtype */
};
static struct pair *current;

static void *result(struct side *s, uint64_t n, enum zinf_dtype dtype)
{
    struct results *r = &current->results;
    uint64_t at = s->used;
    s->used = zinf_align_up(at + n * zinf_dtype_bytes(dtype), 64);
    if (s == current->recording && r->n < MOST_RESULTS) {
        r->list[r->n].at = at;
        r->list[r->n].n = n;
        r->list[r->n++].dtype = dtype;
    }
    return s->out + at;
}

/* ---- operations ---- */

static int run_matmul(struct side *s)
{
    struct zinf_matmul a = {.m = 13, .n = 24, .k = 40, .lda = 40, .ldb = 40, .ldc = 24};
    a.trans_b = true;
    a.a = s->in[0], a.b = s->in[1], a.bias = s->in[2];
    a.a_dtype = a.b_dtype = a.c_dtype = s->dtype;
    a.c = result(s, 13 * 24, s->dtype);
    return s->ops->matmul(s->q, &a);
}

static int run_norm(struct side *s)
{
    struct zinf_norm a = {.dtype = s->dtype, .rows = 7, .cols = 72, .eps = 1e-5f};
    a.x = s->in[0], a.w = s->in[1], a.b = s->in[2], a.dy = s->in[3];
    a.y = result(s, 7 * 72, s->dtype), a.dx = result(s, 7 * 72, s->dtype);
    a.mean = result(s, 7, ZINF_DTYPE_F32), a.rstd = result(s, 7, ZINF_DTYPE_F32);
    a.dw = result(s, 72, ZINF_DTYPE_F32), a.db = result(s, 72, ZINF_DTYPE_F32);
    int code = s->ops->norm_forward(s->q, &a);
    return code ? code : s->ops->norm_backward(s->q, &a);
}

static int attention_of(struct side *s, float softcap, const float *slopes)
{
    const int64_t seq = 37, heads = 2, size = 64;
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
                               .dropout = {.p = 0.1f, .seed = 3}};
    uint64_t n = (uint64_t)(seq * heads * size);
    a.qkv = s->in[0], a.d_out = s->in[1];
    a.out = result(s, n, s->dtype), a.d_qkv = result(s, 3 * n, s->dtype);
    a.lse = result(s, (uint64_t)(seq * heads), ZINF_DTYPE_F32);
    int code = s->ops->attention_forward(s->q, &a);
    return code ? code : s->ops->attention_backward(s->q, &a);
}

static int run_attention(struct side *s)
{
    static const float slopes[] = {0.5f, 0.0625f};
    int code = attention_of(s, 0, NULL);
    code = code ? code : attention_of(s, 0, slopes);
    return code ? code : attention_of(s, 2, slopes);
}

static int run_softcap(struct side *s)
{
    float *x = result(s, 515, ZINF_DTYPE_F32);
    int code = s->ops->copy(s->q, x, s->in[4], 515 * sizeof *x);
    return code ? code : s->ops->softcap(s->q, x, 1.5f, 515);
}

static int run_activations(struct side *s)
{
    int code = 0;
    for (int kind = ZINF_ACTIVATION_GELU_TANH; !code && kind < ZINF_ACTIVATIONS; kind++)
        code = s->ops->activation_backward(s->q, (enum zinf_activation)kind, s->dtype,
                                           result(s, 515, s->dtype), s->in[0], s->in[1],
                                           result(s, 515, s->dtype), 515);
    return code;
}

static int run_gated(struct side *s)
{
    struct zinf_gated a = {.kind = ZINF_ACTIVATION_SILU, .dtype = s->dtype, .rows = 5, .cols = 44};
    a.x = s->in[0], a.dy = s->in[1];
    a.y = result(s, 5 * 44, s->dtype), a.dx = result(s, 5 * 88, s->dtype);
    int code = s->ops->gated_forward(s->q, &a);
    return code ? code : s->ops->gated_backward(s->q, &a);
}

static int run_rope(struct side *s)
{
    static float inv_freq[8];
    struct zinf_rope a = {.dtype = s->dtype, .rows = 9, .n_heads = 2, .head_dim = 16, .ld = 32};
    for (int i = 0; i < 8; i++)
        inv_freq[i] = 1.0f / (float)(1 << i);
    a.rotary_dims = 16, a.inv_freq = inv_freq, a.scale = 1.0f;
    a.positions = (const int32_t *)(const void *)s->in[IDS];
    a.x = result(s, 9 * 32, s->dtype);
    int code = s->ops->copy(s->q, a.x, s->in[0], 9 * 32 * zinf_dtype_bytes(s->dtype));
    return code ? code : s->ops->rope(s->q, &a);
}

static int run_residual(struct side *s)
{
    struct zinf_residual a = {.dtype = s->dtype, .n = 515, .dropout = {.p = 0.3f, .seed = 9}};
    a.x = s->in[0], a.r = s->in[1], a.y = result(s, 515, s->dtype);
    return s->ops->residual_add(s->q, &a);
}

static int run_sums(struct side *s)
{
    float *sum = result(s, 515, ZINF_DTYPE_F32), *columns = result(s, 40, ZINF_DTYPE_F32);
    int code = s->ops->convert(s->q, sum, ZINF_DTYPE_F32, s->in[0], s->dtype, 515);
    code = code ? code : s->ops->add(s->q, sum, (const float *)(const void *)s->in[4], 515);
    return code ? code : s->ops->column_sum(s->q, columns, s->in[1], s->dtype, 33, 40);
}

static int run_embedding(struct side *s)
{
    struct zinf_embedding a = {.dtype = s->dtype, .rows = 40, .cols = 24, .count = 17};
    a.ids = (const int32_t *)(const void *)s->in[IDS], a.table = s->in[0], a.dx = s->in[1];
    a.x = result(s, 40 * 24, s->dtype), a.d_table = result(s, 17 * 24, ZINF_DTYPE_F32);
    int code = s->ops->embedding_forward(s->q, &a);
    return code ? code : s->ops->embedding_backward(s->q, &a);
}

static int run_loss(struct side *s)
{
    struct zinf_cross_entropy a = {.rows = 5, .cols = 300, .ld = 304, .scale = 0.5f};
    a.targets = (const int32_t *)(const void *)s->in[IDS];
    a.logits = result(s, 5 * 304, ZINF_DTYPE_F32);
    a.max = result(s, 5, ZINF_DTYPE_F32), a.sum = result(s, 5, ZINF_DTYPE_F32);
    a.target_logit = result(s, 5, ZINF_DTYPE_F32), a.loss = result(s, 5, ZINF_DTYPE_F32);
    int code = s->ops->copy(s->q, a.logits, s->in[4], 5 * 304 * sizeof(float));
    code = code ? code : s->ops->cross_entropy_start(s->q, &a);
    code = code ? code : s->ops->cross_entropy_update(s->q, &a);
    code = code ? code : s->ops->cross_entropy_finish(s->q, &a);
    return code ? code : s->ops->cross_entropy_backward(s->q, &a);
}

static const struct {
    const char *name;
    int (*run)(struct side *s);
} operations[] = {
    {"matmul", run_matmul},
    {"norm", run_norm},
    {"attention", run_attention},
    {"activation", run_activations},
    {"gated activation", run_gated},
    {"rope", run_rope},
    {"residual and dropout", run_residual},
    {"sums", run_sums},
    {"embedding", run_embedding},
    {"loss", run_loss},
    {"softcap", run_softcap},
};
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

/* ---- both sides ---- */

static int open_side(struct side *s, enum zinf_device_kind kind)
{
    struct zinf_device_options options = {.kind = kind};
    int code = zinf_device_create(&s->device, &options);
    if (code)
        return code;
    s->ops = s->device->ops;
    code = zinf_device_take_memory(s->device, ARENA_BYTES);
    code = code ? code : s->ops->queue_create(s->device, ZINF_QUEUE_COMPUTE, &s->q);
    if (code)
        return code;
    char *base = s->device->memory;
    for (int k = 0; k < N_INPUTS; k++)
        s->in[k] = base + (uint64_t)k * INPUT_BYTES;
    s->out = base + N_INPUTS * INPUT_BYTES;
    s->ops->queue_set_workspace(s->q, s->out + OUTPUT_BYTES, WORKSPACE_BYTES);
    return 0;
}

static void close_side(struct side *s)
{
    if (s->q)
        s->ops->queue_destroy(s->q);
    zinf_device_destroy(s->device);
}

/* The host's arena is its own memory: filled there, and copied to the GPU's. */
static int fill(struct pair *p, enum zinf_dtype dtype)
{
    const uint64_t most = INPUT_BYTES / sizeof(float);
    float *numbers = malloc(INPUT_BYTES);
    if (!numbers)
        return zinf_fail(-ENOMEM, "no memory for numbers");
    for (int k = 0; k < N_INPUTS; k++) {
        enum zinf_dtype as = k < 4 ? dtype : ZINF_DTYPE_F32;
        zinf_normal_fill(numbers, 0, most, (uint64_t)k, 0, 0.0f, 1.0f);
        if (k == IDS)
            for (uint64_t i = 0; i < most; i++)
                ((int32_t *)(void *)p->host.in[k])[i] = (int32_t)(i * 7 % 20);
        else
            zinf_convert(p->host.in[k], as, numbers, ZINF_DTYPE_F32, most);
    }
    free(numbers);
    memset(p->host.out, 0, OUTPUT_BYTES);
    p->host.dtype = p->cuda.dtype = dtype;
    int code = p->cuda.ops->copy_to_device(p->cuda.q, p->cuda.in[0], p->host.in[0],
                                           N_INPUTS * INPUT_BYTES + OUTPUT_BYTES);
    return code ? code : p->cuda.ops->queue_synchronize(p->cuda.q);
}

static double distance(const char *got, const char *want, uint64_t n, enum zinf_dtype dtype)
{
    double above = 0.0, below = 1e-30;
    for (uint64_t i = 0; i < n; i++) {
        float x, y;
        zinf_convert(&x, ZINF_DTYPE_F32, got + i * zinf_dtype_bytes(dtype), dtype, 1);
        zinf_convert(&y, ZINF_DTYPE_F32, want + i * zinf_dtype_bytes(dtype), dtype, 1);
        above += (double)(x - y) * (double)(x - y);
        below += (double)y * (double)y;
    }
    return sqrt(above / below);
}

/* The largest distance of an operation's results; negative after an error. */
static double run_both(struct pair *p, int operation)
{
    double worst = 0.0;
    p->results.n = 0;
    p->cuda.used = p->host.used = 0;
    p->recording = &p->host;
    memset(p->host.out, 0, OUTPUT_BYTES);
    int code = p->cuda.ops->fill_zero(p->cuda.q, p->cuda.out, OUTPUT_BYTES);
    code = code ? code : operations[operation].run(&p->host);
    code = code ? code : operations[operation].run(&p->cuda);
    code = code ? code : p->cuda.ops->copy_to_host(p->cuda.q, p->got, p->cuda.out, OUTPUT_BYTES);
    code = code ? code : p->cuda.ops->queue_synchronize(p->cuda.q);
    if (code)
        return -1.0;
    for (int k = 0; k < p->results.n; k++) {
        double d = distance(p->got + p->results.list[k].at, p->host.out + p->results.list[k].at,
                            p->results.list[k].n, p->results.list[k].dtype);
        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

/* Sums in another order, and for 16 bits a rounding or two of what is between. */
static double bound_of(enum zinf_dtype dtype)
{
    return dtype == ZINF_DTYPE_F32 ? 1e-5 : dtype == ZINF_DTYPE_BF16 ? 0x1p-6 : 0x1p-9;
}

/* false, with a line, where an operation fails or differs. */
static bool check_type(struct doctor *d, struct pair *p, enum zinf_dtype dtype)
{
    bool good = true;
    if (fill(p, dtype)) {
        doctor_line(d, "operations", DOCTOR_FAILED, "see the message", "%s", zinf_error());
        return false;
    }
    for (int k = 0; k < N_OPERATIONS; k++) {
        double worst = run_both(p, k);
        if (worst >= 0.0 && worst <= bound_of(dtype)) {
            p->worst[dtype] = worst > p->worst[dtype] ? worst : p->worst[dtype];
            continue;
        }
        good = false;
        if (worst < 0.0)
            doctor_line(d, "operations", DOCTOR_FAILED, "see the message", "%s in %s: %s",
                        operations[k].name, zinf_dtype_name(dtype), zinf_error());
        else
            doctor_line(d, "operations", DOCTOR_FAILED,
                        "do not train on this GPU: report it with `zinf report` and the figures",
                        "%s in %s: %.2g of the norm away from the host, %.2g is usual",
                        operations[k].name, zinf_dtype_name(dtype), worst, bound_of(dtype));
    }
    return good;
}

static void check_types(struct doctor *d, struct pair *p)
{
    bool has_bf16 = !strstr(p->cuda.device->name, "sm_75"), good = true;
    good = check_type(d, p, ZINF_DTYPE_F32) && good;
    good = (!has_bf16 || check_type(d, p, ZINF_DTYPE_BF16)) && good;
    good = check_type(d, p, ZINF_DTYPE_F16) && good;
    if (good)
        doctor_line(d, "operations", DOCTOR_OK, NULL,
                    "%d kinds as on the host, to %.1g of the norm in fp32, %.1g in bf16%s, %.1g in "
                    "fp16",
                    N_OPERATIONS, p->worst[ZINF_DTYPE_F32], p->worst[ZINF_DTYPE_BF16],
                    has_bf16 ? "" : " (left out)", p->worst[ZINF_DTYPE_F16]);
}

void doctor_kernels(struct doctor *d)
{
    struct pair p = {.got = malloc(OUTPUT_BYTES)};
    current = &p;
    if (!p.got || open_side(&p.host, ZINF_DEVICE_HOST) || open_side(&p.cuda, ZINF_DEVICE_CUDA))
        doctor_line(d, "operations", DOCTOR_LEFT_OUT, NULL, "%s", zinf_error());
    else
        check_types(d, &p);
    close_side(&p.cuda);
    close_side(&p.host);
    free(p.got);
    current = NULL;
}
