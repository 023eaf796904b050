/*
 * doctor_kernels: every operation of the device's table on small shapes, on the GPU and on the
 * host, for `zinf doctor`. Both have an arena with the same numbers at the same offsets; an
 * operation names what it writes, and that is compared by its norm. Shapes are odd on purpose.
 */
#include "cli/doctor/doctor.h"
#include "cli/doctor/doctor_operations.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>

#define WORKSPACE_BYTES ((uint64_t)48 << 20)
#define ARENA_BYTES (DOCTOR_INPUTS * DOCTOR_INPUT_BYTES + DOCTOR_OUTPUT_BYTES + WORKSPACE_BYTES)

struct pair {
    struct doctor_side cuda, host;
    struct doctor_results results;
    char *got;
    double worst[3]; /* by dtype */
};

/* ---- both sides ---- */

static int open_side(struct doctor_side *s, enum zinf_device_kind kind)
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
    for (int k = 0; k < DOCTOR_INPUTS; k++)
        s->in[k] = base + (uint64_t)k * DOCTOR_INPUT_BYTES;
    s->out = base + DOCTOR_INPUTS * DOCTOR_INPUT_BYTES;
    s->ops->queue_set_workspace(s->q, s->out + DOCTOR_OUTPUT_BYTES, WORKSPACE_BYTES);
    return 0;
}

static void close_side(struct doctor_side *s)
{
    if (s->q)
        s->ops->queue_destroy(s->q);
    zinf_device_destroy(s->device);
}

/* The host's arena is its own memory: filled there, and copied to the GPU's. */
static int fill(struct pair *p, enum zinf_dtype dtype)
{
    const uint64_t most = DOCTOR_INPUT_BYTES / sizeof(float);
    float *numbers = malloc(DOCTOR_INPUT_BYTES);
    if (!numbers)
        return zinf_fail(-ENOMEM, "no memory for numbers");
    for (int k = 0; k < DOCTOR_INPUTS; k++) {
        enum zinf_dtype as = k < 4 ? dtype : ZINF_DTYPE_F32;
        zinf_normal_fill(numbers, 0, most, (uint64_t)k, 0, 0.0f, 1.0f);
        if (k == DOCTOR_IDS)
            for (uint64_t i = 0; i < most; i++)
                ((int32_t *)(void *)p->host.in[k])[i] = (int32_t)(i * 7 % 20);
        else
            zinf_convert(p->host.in[k], as, numbers, ZINF_DTYPE_F32, most);
    }
    free(numbers);
    memset(p->host.out, 0, DOCTOR_OUTPUT_BYTES);
    p->host.dtype = p->cuda.dtype = dtype;
    int code =
        p->cuda.ops->copy_to_device(p->cuda.q, p->cuda.in[0], p->host.in[0],
                                    DOCTOR_INPUTS * DOCTOR_INPUT_BYTES + DOCTOR_OUTPUT_BYTES);
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
    p->host.results = &p->results;
    memset(p->host.out, 0, DOCTOR_OUTPUT_BYTES);
    int code = p->cuda.ops->fill_zero(p->cuda.q, p->cuda.out, DOCTOR_OUTPUT_BYTES);
    code = code ? code : doctor_operations[operation].run(&p->host);
    code = code ? code : doctor_operations[operation].run(&p->cuda);
    code = code ? code
                : p->cuda.ops->copy_to_host(p->cuda.q, p->got, p->cuda.out, DOCTOR_OUTPUT_BYTES);
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
    for (int k = 0; k < doctor_n_operations; k++) {
        double worst = run_both(p, k);
        if (worst >= 0.0 && worst <= bound_of(dtype)) {
            p->worst[dtype] = worst > p->worst[dtype] ? worst : p->worst[dtype];
            continue;
        }
        good = false;
        if (worst < 0.0)
            doctor_line(d, "operations", DOCTOR_FAILED, "see the message", "%s in %s: %s",
                        doctor_operations[k].name, zinf_dtype_name(dtype), zinf_error());
        else
            doctor_line(d, "operations", DOCTOR_FAILED,
                        "do not train on this GPU: report it with `zinf report` and the figures",
                        "%s in %s: %.2g of the norm away from the host, %.2g is usual",
                        doctor_operations[k].name, zinf_dtype_name(dtype), worst, bound_of(dtype));
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
                    doctor_n_operations, p->worst[ZINF_DTYPE_F32], p->worst[ZINF_DTYPE_BF16],
                    has_bf16 ? "" : " (left out)", p->worst[ZINF_DTYPE_F16]);
}

void doctor_kernels(struct doctor *d)
{
    struct pair p = {.got = malloc(DOCTOR_OUTPUT_BYTES)};
    if (!p.got || open_side(&p.host, ZINF_DEVICE_HOST) || open_side(&p.cuda, ZINF_DEVICE_CUDA))
        doctor_line(d, "operations", DOCTOR_LEFT_OUT, NULL, "%s", zinf_error());
    else
        check_types(d, &p);
    close_side(&p.cuda);
    close_side(&p.host);
    free(p.got);
}
