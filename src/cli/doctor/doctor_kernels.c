/*
 * doctor_kernels: every kernel that the GPU's module has, against the host, for `zinf doctor`. The
 * cases are those of the tests (cases.h), here in the few shapes that it takes to come to each
 * kernel in each type and size that it is compiled for. At the end the module itself says whether
 * one was forgotten.
 */
#include "cli/doctor/cases.h"
#include "cli/doctor/doctor.h"

#include "base/memory.h"

#define ARENA_BYTES ((uint64_t)80 << 20)

#define FOR_DTYPES(dtype)                                                                          \
    for (enum zinf_dtype dtype = ZINF_DTYPE_F32; dtype <= ZINF_DTYPE_F16; dtype++)

/* ---- shapes ---- */

static void run_products(struct twin *t)
{
    static const struct matmul_shape plain = {17, 24, 33, 3, 0}, shifted = {5, 3, 7, 0, 1};
    FOR_DTYPES(dtype)
    {
        const enum zinf_dtype types[] = {dtype, dtype, dtype};
        case_matmul(t, plain, types, false, true, 0.0f, true);
        case_matmul(t, plain, types, true, false, 1.0f, false);
        case_matmul(t, shifted, types, false, true, 0.0f, true);
    }
    for (int v = 0; v < 27; v++) { /* some become others, and biases are added apart */
        const enum zinf_dtype types[] = {all_dtypes[v % 3], all_dtypes[v / 3 % 3],
                                         all_dtypes[v / 9]};
        case_matmul(t, (struct matmul_shape){19, 26, 35, v % 4, (size_t)v % 5}, types, v & 1, v & 2,
                    v & 4 ? 1.0f : 0.0f, !(v & 4));
    }
    for (int v = 0; v < 8 && t->cuda->has_float8; v++) {
        case_float8(t, (struct matmul_shape){33, 80, 48, 0, 0}, v, false);
        case_float8(t, (struct matmul_shape){33, 48, 48, 0, 0}, v, true);
    }
}

/* A team of threads has a row, of a size of its own up to each of these; the last is not aligned.
 */
static void run_norms(struct twin *t)
{
    static const int64_t columns[] = {64, 128, 256, 384, 512, 520, 37};
    FOR_DTYPES(dtype)
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const enum zinf_norm_kind kind = i % 2 ? ZINF_NORM_RMS : ZINF_NORM_LAYER;
        case_norm(t, kind, dtype, (struct norm_shape){7, columns[i], 0, 0, 0, false}, 0.0f);
        case_residual_norm(t, kind, dtype, 5, columns[i], i % 2 ? 0.25f : 0.0f);
    }
    case_norm(t, ZINF_NORM_RMS, ZINF_DTYPE_F32, (struct norm_shape){17, 64, 3, 232, 1.0f, false},
              1.0f);
}

/* Heads of each size that kernels have, with each kind of scores. */
static void run_attention(struct twin *t)
{
    static const int64_t sizes[] = {32, 64, 128, 256, 512};
    FOR_DTYPES(dtype)
    for (int i = 0; i < 5; i++) {
        const int64_t seq = 35 - 4 * i, size = sizes[i];
        const bool biased = size <= 256 || dtype == ZINF_DTYPE_F32;
        const struct attention_special kinds[] = {
            {.shape = {1, seq, 2, 1, size, true, 0.0f, 0, 0.0f, false}},
            {.shape = {1, seq, 1, 1, size, false, 0.1f, 0, 0.0f, false}},
            {.shape = {1, seq, 2, 2, size, true, 0.0f, 9, 2.0f, false}},
            {.shape = {1, seq, 1, 1, size, true, 0.1f, 0, 0.0f, !biased}, .biased = biased},
        };
        for (int k = 0; k < 4; k++)
            case_attention(t, dtype, &kinds[k], NULL);
    }
}

static void run_other_attention(struct twin *t)
{
    static const int64_t sizes[] = {32, 64, 128, 256, 512}, relative[] = {16, 70, 130, 300};
    static const struct attention_special crosses = {
        .shape = {1, 40, 2, 2, 64, false, 0.1f, 0, 0, false}, .document = 9, .key_seq = 21};
    static const struct attention_special after = {
        .shape = {1, 40, 2, 1, 64, true, 0.1f, 0, 0, false}, .key_seq = 90};
    static const struct attention_part part = {50, 0, 200, true};
    FOR_DTYPES(dtype)
    {
        for (int i = 0; i < 5; i++)
            case_cached(t, dtype,
                        &(struct cached_shape){.n_heads = 2,
                                               .n_kv_heads = 1,
                                               .head_dim = sizes[i],
                                               .capacity = 40,
                                               .first = 20});
        case_attention(t, dtype, &crosses, NULL);
        case_attention(t, dtype, &after, &part);
        case_source(t, dtype, 4, 2, 20);
        case_distance_bias(t, dtype, dtype == ZINF_DTYPE_BF16);
        case_sinks(t, (struct zinf_sinks){.dtype = dtype, 2, 19, 4, 24}, 0);
    }
    for (int i = 0; i < 4; i++) {
        static const struct relative_part apart = {66, 64, 0, 78};
        const struct relative_shape shape = {.batch = 1,
                                             .seq = 14,
                                             .n_heads = 1,
                                             .head_dim = relative[i],
                                             .half = 6,
                                             .log = true,
                                             .queries = true,
                                             .keys = true};
        case_relative(t, &shape, NULL, all_dtypes[i % 3]);
        case_relative(t, &shape, &apart, all_dtypes[i % 3]);
    }
}

static void run_numbers(struct twin *t)
{
    case_add(t, 2049, 1);
    case_softcap(t, 515, 0);
    FOR_DTYPES(dtype)
    {
        FOR_DTYPES(to)
        case_convert(t, to, dtype, 2049, 0);
        case_residual(t, dtype, 515, 0.3f, 0);
        for (int kind = ZINF_ACTIVATION_GELU_TANH; kind < ZINF_ACTIVATIONS; kind++) {
            case_activation(t, (enum zinf_activation)kind, dtype, 515, (size_t)kind % 2);
            case_activation_sums(t, (enum zinf_activation)kind, dtype, 9, 72);
            case_gated(
                t,
                (struct zinf_gated){
                    .kind = (enum zinf_activation)kind, .dtype = dtype, .rows = 5, .cols = 44},
                0);
        }
        case_xielu(t, dtype, 5, 37, 0);
        case_column_sum(t, dtype, 65, 257, 0);
        case_noise(t, dtype, 515, 1);
    }
}

static void run_rows(struct twin *t)
{
    FOR_DTYPES(dtype)
    {
        struct zinf_heads heads = {.dtype = dtype, .rows = 7, .n_heads = 5, .cols = 64};
        case_embedding(t, dtype, 60, 133, 0.0f, false);
        case_embedding(t, dtype, 60, 64, 11.3125f, true);
        for (int variant = 0; variant < 4; variant++)
            case_rope(t, (struct rope_shape){9, 2, 100, 60, 5}, variant, dtype);
        case_unfold(t, dtype, true);
        heads.x_ld = 5 * 96, heads.x_step = 96, heads.y_ld = 5 * 72, heads.y_step = 72;
        case_heads(t, heads, false);
        heads.y_step = 0;
        case_heads(t, heads, false);
    }
}

/* Rows of up to 64 and 512 columns have sums by other kernels than wider ones. */
static void run_losses(struct twin *t)
{
    static const int64_t sizes[][2] = {{1201, 601}, {257, 257}, {64, 64}}; /* and of tiles */
    FOR_DTYPES(dtype)
    for (int v = 0; v < 6; v++)
        case_loss(t, &(struct loss_shape){.rows = 6,
                                          .vocabulary = sizes[v % 3][0],
                                          .tile = sizes[v % 3][1],
                                          .offset = 2.0f,
                                          .softcap = v < 3 ? 0.0f : 5.0f,
                                          .d_dtype = dtype,
                                          .more = dtype == ZINF_DTYPE_F32,
                                          .largest = v % 3 == 0});
    case_squared_error(t, 91);
    for (int kind = 0; kind < ZINF_PREFERENCES; kind++)
        case_preference(t, (enum zinf_preference_kind)kind, 5,
                        kind == ZINF_PREFERENCE_REWARD ? 1 : 40);
}

static void run_mixers(struct twin *t)
{
    FOR_DTYPES(dtype)
    {
        case_convolution(t, dtype, false, 4);
        case_convolution(t, dtype, true, 3);
        case_convolution_continued(t, dtype);
        case_scan(t, &(struct scan_shape){ZINF_RECURRENCE_DELTA, dtype, 1, 140, 1, 2, 9, 5, true});
        case_scan(t, &(struct scan_shape){ZINF_RECURRENCE_DECAY, dtype, 1, 70, 2, 2, 7, 6, false});
        case_scan_continued(t, ZINF_RECURRENCE_DELTA, dtype);
        case_scan_continued(t, ZINF_RECURRENCE_DECAY, dtype);
    }
}

static void run_experts(struct twin *t)
{
    const struct route_shape shape = {7, 60, 4};
    case_route(t, shape, true, true);
    case_balance(t, shape, true);
    for (int sigmoid = 0; sigmoid < 2; sigmoid++)
        case_grouped_route(t, (struct zinf_route){.rows = 11,
                                                  .cols = 256,
                                                  .n_chosen = 8,
                                                  .scale = 2.5f,
                                                  .sigmoid = sigmoid,
                                                  .n_groups = 8,
                                                  .n_groups_chosen = 4,
                                                  .group_top = 2});
    FOR_DTYPES(dtype)
    {
        case_chosen_rows(t, 72, 0, dtype, dtype);
        case_chosen_rows(t, 13, 0, dtype, ZINF_DTYPE_F32);
        case_weigh(t, 72, 0, dtype);
    }
}

static void run_weights(struct twin *t)
{
    FOR_DTYPES(dtype)
    {
        for (int form = ZINF_FORM_NF4; form < ZINF_FORMS; form++)
            case_dequantize(t, 37, form == ZINF_FORM_MXFP4 ? 96 : 203, (enum zinf_form)form, dtype,
                            form % 2, 0);
        case_unpack(t, PACKED_OUTLIERS, dtype, 17 * 512 + 7, true, 0);
        case_magnitude(t, 9, 321, 8, 0, dtype);
        case_columns(t, 33, 70, 0, dtype);
    }
    case_widen(t, 0);
}

static void run_updates(struct twin *t)
{
    for (int decoupled = 0; decoupled < 2; decoupled++) {
        case_adam(t, UPDATE_BARE, decoupled, ZINF_DTYPE_F32, 4097, 0);
        case_adam(t, UPDATE_SPLIT, decoupled, ZINF_DTYPE_BF16, 4097, 0);
        case_adam(t, UPDATE_WHOLE, decoupled, ZINF_DTYPE_BF16, 2048, 0);
        case_adam(t, UPDATE_WHOLE, decoupled, ZINF_DTYPE_F16, 2048, 1);
    }
    case_sum_squares(t, 4096 * 17 + 33, 0);
}

static const struct {
    const char *name;
    void (*run)(struct twin *t);
} groups[] = {
    {"products", run_products},      {"norms", run_norms},     {"attention", run_attention},
    {"cached", run_other_attention}, {"numbers", run_numbers}, {"rows", run_rows},
    {"losses", run_losses},          {"mixers", run_mixers},   {"experts", run_experts},
    {"weights", run_weights},        {"updates", run_updates},
};

/* ---- lines ---- */

struct look {
    struct doctor *d;
    const char *group;
    char operation[48]; /* the one that has a line last */
    int n_failures, n_lines;
};

/* A line for the first failure of each operation, so that none hides another. */
static void fail(struct twin *t, const char *text)
{
    struct look *l = t->context;
    const int n = (int)strcspn(text, ",:");
    l->n_failures++;
    if (n && !strncmp(text, l->operation, (size_t)n) && !l->operation[n])
        return;
    snprintf(l->operation, sizeof l->operation, "%.*s", n, text);
    l->n_lines++;
    doctor_line(l->d, l->group, DOCTOR_FAILED,
                "see the message; where numbers differ, do not train on this GPU, and report it "
                "with `zinf report` and this line",
                "%s", text);
}

static void check_group(struct doctor *d, struct twin *t, int group)
{
    struct look look = {.d = d, .group = groups[group].name};
    t->context = &look;
    t->n_cases = 0;
    t->worst = 0.0;
    groups[group].run(t);
    if (look.n_failures > look.n_lines)
        doctor_line(d, look.group, DOCTOR_FAILED, NULL, "and %d more of the same operations",
                    look.n_failures - look.n_lines);
    else if (!look.n_failures)
        doctor_line(d, look.group, DOCTOR_OK, NULL,
                    "%d cases as on the host; the largest difference is %.2f of what may be",
                    t->n_cases, t->worst);
}

struct count {
    int all, launched;
    char left[256]; /* one that was not launched */
};

static void count_kernel(void *arg, const char *name, bool launched)
{
    struct count *c = arg;
    c->all++;
    c->launched += launched;
    if (!launched)
        snprintf(c->left, sizeof c->left, "%s", name);
}

/* Only a GPU that has units for all types comes to all kernels. */
static void check_all(struct doctor *d, const struct twin *t)
{
    struct count c = {0};
    t->cuda->ops->each_kernel(t->cuda, count_kernel, &c);
    if (c.launched == c.all)
        doctor_line(d, "kernels", DOCTOR_OK, NULL, "all %d were run", c.all);
    else if (t->cuda->has_float8)
        doctor_line(d, "kernels", DOCTOR_WARNING, "report it with `zinf report` and this line",
                    "%d of %d were run, and not %s", c.launched, c.all, c.left);
    else
        doctor_line(d, "kernels", DOCTOR_OK, NULL, "%d of %d were run; others are for later GPUs",
                    c.launched, c.all);
}

/* Every group, up to a kernel that ends all work on the GPU. */
static void check_groups(struct doctor *d, struct twin *t)
{
    const size_t n = sizeof groups / sizeof *groups;
    for (size_t i = 0; i < n && !t->ended; i++)
        check_group(d, t, (int)i);
    if (t->ended)
        doctor_line(d, "the rest", DOCTOR_LEFT_OUT,
                    "`compute-sanitizer zinf doctor` says where the kernel above reads or writes",
                    "kernels that come behind: the GPU does nothing more in this process");
    else
        check_all(d, t);
}

void doctor_kernels(struct doctor *d)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    struct twin t = {.fail = fail};
    struct zinf_device *cuda = NULL;
    if (zinf_device_create(&cuda, &options) || twin_open(&t, cuda, ARENA_BYTES))
        doctor_line(d, "kernels", DOCTOR_LEFT_OUT, NULL, "%s", zinf_error());
    else
        check_groups(d, &t);
    twin_close(&t);
}
