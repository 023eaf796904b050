/* cases_update: what the GPU does in place of the CPU, with the CPU's bits: an optimizer's step,
 * the squares of a gradient's norm, and packed arrays. */
#include "cli/doctor/cases.h"

#include "base/packed.h"
#include "cpu_optim/optim.h"
#include "cpu_optim/pack.h"

#include <math.h>

/* ---- the optimizer ---- */

enum { N_STEPS = 3 };

struct update_pairs {
    struct pair master, remainder, param, moment1, moment2, grad;
};

/* Masters, and where they are split both halves of them. */
static struct update_pairs update_pairs_of(struct twin *t, enum update_form form,
                                           enum zinf_dtype dtype, size_t n, size_t shift)
{
    struct update_pairs p = {
        .master = pair_shifted(t, shift, ZINF_DTYPE_F32, n, 1, 1.0f),
        .remainder = pair_new(t, ZINF_DTYPE_BF16, n, shift),
        .param = pair_new(t, dtype, n, shift),
        .moment1 = pair_shifted(t, shift, ZINF_DTYPE_F32, n, 3, 0.1f),
        .moment2 = pair_shifted(t, shift, ZINF_DTYPE_F32, n, 4, 0.1f),
        .grad = pair_shifted(t, shift, ZINF_DTYPE_F32, n, 2, 1.0f),
    };
    float *squares = p.moment2.host.data;
    if (form == UPDATE_SPLIT)
        zinf_optim_split(p.param.host.data, p.remainder.host.data, p.master.host.data, n, 1);
    else
        zinf_convert(p.param.host.data, dtype, p.master.host.data, ZINF_DTYPE_F32, n);
    for (size_t i = 0; i < n; i++)
        squares[i] *= squares[i];
    pair_upload(t, &p.param);
    pair_upload(t, &p.remainder);
    pair_upload(t, &p.moment2);
    return p;
}

static int step_on_host(const struct update_pairs *p, enum update_form form,
                        const struct zinf_optim_hyper *hyper)
{
    struct zinf_optim_array a = {.n = p->grad.host.n,
                                 .moment1 = p->moment1.host.data,
                                 .moment2 = p->moment2.host.data,
                                 .grad = p->grad.host.data,
                                 .grad_dtype = ZINF_DTYPE_F32,
                                 .grad_scale = 0.3f,
                                 .param_dtype = p->param.host.dtype};
    a.master = form == UPDATE_SPLIT ? NULL : p->master.host.data;
    a.remainder = form == UPDATE_SPLIT ? p->remainder.host.data : NULL;
    a.param = form == UPDATE_BARE ? NULL : p->param.host.data;
    return zinf_optim_step(hyper, &a, 1);
}

static int step_on_gpu(struct twin *t, const struct update_pairs *p, enum update_form form,
                       const struct zinf_optim_hyper *hyper)
{
    struct zinf_optim_factors f;
    zinf_optim_factors(&f, hyper);
    struct zinf_adam a = {.n = p->grad.host.n,
                          .master = form == UPDATE_SPLIT ? NULL : p->master.device,
                          .remainder = form == UPDATE_SPLIT ? p->remainder.device : NULL,
                          .param = form == UPDATE_BARE ? NULL : p->param.device,
                          .dtype = p->param.host.dtype,
                          .moment1 = p->moment1.device,
                          .moment2 = p->moment2.device,
                          .grad = p->grad.device,
                          .grad_scale = 0.3f,
                          .beta1 = f.beta1,
                          .one_minus_beta1 = f.one_minus_beta1,
                          .beta2 = f.beta2,
                          .one_minus_beta2 = f.one_minus_beta2,
                          .root_correction = f.root_correction,
                          .eps = f.eps,
                          .decay = f.decay,
                          .decoupled = hyper->kind == ZINF_OPTIM_ADAMW,
                          .weight_decay = f.weight_decay,
                          .lr_decay = f.lr_decay,
                          .step_size = f.step_size};
    return t->cuda->ops->adam(t->q, &a);
}

void case_adam(struct twin *t, enum update_form form, bool decoupled, enum zinf_dtype dtype,
               size_t n, size_t shift)
{
    static const char *const names[] = {"the master alone", "a split master", "both"};
    struct zinf_optim_hyper hyper = {.kind = decoupled ? ZINF_OPTIM_ADAMW : ZINF_OPTIM_ADAM,
                                     .lr = 1e-2f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.999f,
                                     .eps = 1e-8f,
                                     .bias_correction = true};
    twin_case(t, decoupled ? "adamw" : "adam", "%s, %s, %zu numbers", names[form],
              zinf_dtype_name(dtype), n);
    struct update_pairs p = update_pairs_of(t, form, dtype, n, shift);
    for (hyper.step = 1; hyper.step <= N_STEPS; hyper.step++) {
        hyper.weight_decay = hyper.step == 2 ? 0.0f : 0.1f;
        if (step_on_host(&p, form, &hyper))
            twin_refused(t, SIDE_HOST);
        if (step_on_gpu(t, &p, form, &hyper))
            twin_refused(t, SIDE_CUDA);
    }
    PAIR_CHECK(t, &p.moment1, 0.0, 0.0);
    PAIR_CHECK(t, &p.moment2, 0.0, 0.0);
    PAIR_CHECK(t, &p.master, 0.0, 0.0);
    PAIR_CHECK(t, &p.param, 0.0, 0.0);
    PAIR_CHECK(t, &p.remainder, 0.0, 0.0);
}

/* A diverged gradient's NaN is the CPU's too, in the master and in the 16-bit parameter. */
void case_adam_not_finite(struct twin *t, enum zinf_dtype dtype)
{
    const struct zinf_optim_hyper hyper = {.kind = ZINF_OPTIM_ADAMW,
                                           .lr = 1e-2f,
                                           .beta1 = 0.9f,
                                           .beta2 = 0.999f,
                                           .eps = 1e-8f,
                                           .weight_decay = 0.1f,
                                           .bias_correction = true,
                                           .step = 1};
    twin_case(t, "adamw", "%s, NaN and infinity", zinf_dtype_name(dtype));
    struct update_pairs p = update_pairs_of(t, UPDATE_WHOLE, dtype, 20, 0);
    float *grad = p.grad.host.data;
    grad[3] = NAN;
    grad[11] = INFINITY;
    pair_upload(t, &p.grad);
    if (step_on_host(&p, UPDATE_WHOLE, &hyper) || step_on_gpu(t, &p, UPDATE_WHOLE, &hyper))
        twin_fail(t, "%s", zinf_error());
    struct tensor master = pair_download(t, &p.master), param = pair_download(t, &p.param);
    TWIN_CHECK(t, tensor_same_bits(&master, &p.master.host));
    TWIN_CHECK(t, tensor_same_bits(&param, &p.param.host));
}

void case_sum_squares(struct twin *t, size_t n, size_t shift)
{
    const size_t parts = (n + ZINF_SUM_BLOCK - 1) / ZINF_SUM_BLOCK;
    twin_case(t, "sum_squares", "%zu numbers", n);
    struct pair x = pair_shifted(t, shift, ZINF_DTYPE_F32, n, 5, 3.0f);
    struct pair sums = pair_new(t, ZINF_DTYPE_F32, 2 * parts, 0); /* doubles */
    double total = 0.0, want = zinf_optim_sum_squares(x.host.data, ZINF_DTYPE_F32, n, 1);
    if (t->cuda->ops->sum_squares(t->q, sums.device, x.device, n))
        twin_fail(t, "%s", zinf_error());
    struct tensor got = pair_download(t, &sums);
    for (size_t b = 0; b < parts; b++)
        total += ((double *)got.data)[b];
    if (total != want)
        twin_fail(t, "%.17g, on the host %.17g: no bit may differ", total, want);
}

/* ---- packed arrays ---- */

static uint16_t half_of_kind(enum packed_kind kind, uint64_t i, uint32_t random)
{
    const uint16_t sign = (uint16_t)(random >> 31 << 15);
    const uint16_t usual = (uint16_t)(0x3c00 + random % 0x300);
    switch (kind) {
    case PACKED_ZEROS:
        return 0;
    case PACKED_SPARSE:
        return random % 3 ? usual | sign : sign; /* zeros of both signs */
    case PACKED_POSITIVE:
        return usual;
    case PACKED_EVEN:
        return 0x3f80;
    case PACKED_WIDE: /* every width, block by block */
        return (uint16_t)(0x7fff - (random & ((1u << i / 512 % 16) - 1)));
    case PACKED_NOISE:
        return (uint16_t)(random >> 13);
    case PACKED_OUTLIERS:
        return random % 41 ? usual | sign : (uint16_t)(random >> 9);
    case PACKED_NARROW:
        return (uint16_t)(0x3c00 + random % 3) | sign;
    default:
        return usual | sign;
    }
}

/* Of fp32 numbers the kinds are those of their upper halves. */
void packed_fill(struct tensor *x, enum packed_kind kind, bool low)
{
    uint64_t state = 77 + kind;
    for (uint64_t i = 0; i < x->n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t random = (uint32_t)(state >> 32);
        const uint16_t half = half_of_kind(kind, i, random);
        const uint32_t bits = (uint32_t)half << 16 | (low ? random * 2654435761u >> 16 : 0);
        if (x->dtype == ZINF_DTYPE_F32)
            memcpy((char *)x->data + 4 * i, &bits, sizeof bits);
        else
            memcpy((char *)x->data + 2 * i, &half, sizeof half);
    }
}

void case_unpack(struct twin *t, enum packed_kind kind, enum zinf_dtype dtype, uint64_t n, bool low,
                 size_t shift)
{
    twin_case(t, "unpack", "%s, numbers of kind %d, %llu of them", zinf_dtype_name(dtype),
              (int)kind, (unsigned long long)n);
    struct pair plain = pair_new(t, dtype, n, 0), out = pair_new(t, dtype, n, shift);
    packed_fill(&plain.host, kind, low);
    const struct zinf_pack_array array = {plain.host.data, dtype, n, false};
    const uint64_t bound = zinf_align_up(zinf_pack_bound(dtype, n), 64);
    struct pair packed = pair_new(t, ZINF_DTYPE_F32, bound / sizeof(float), 0);
    const int64_t bytes = zinf_pack(packed.host.data, bound, &array, 1);
    if (bytes <= 0 || zinf_pack_check(&array, packed.host.data, (uint64_t)bytes) != bytes) {
        twin_fail(t, "%s", zinf_error());
        return;
    }
    /* what lies behind the image is not its */
    struct pair image = pair_new(t, ZINF_DTYPE_F32, (size_t)(bytes + 3) / sizeof(float), 0);
    memcpy(image.host.data, packed.host.data, (size_t)bytes);
    pair_upload(t, &image);
    struct pair mark = pair_new(t, ZINF_DTYPE_F32, 1, 0); /* nothing is damaged */
    struct zinf_packed_array a = {.dtype = dtype, .n = n};
    ON_BOTH(t, (a.image = at(&image, side), a.x = at(&out, side), a.damaged = at(&mark, side),
                ops->unpack(q, &a)));
    struct tensor marked = pair_download(t, &mark), got = pair_download(t, &out);
    TWIN_CHECK(t, get(&mark.host, 0) == 0 && get(&marked, 0) == 0);
    TWIN_CHECK(t, tensor_same_bits(&out.host, &plain.host));
    TWIN_CHECK(t, tensor_same_bits(&got, &plain.host));
}
