/* kernels_attention: forward against a plain softmax in double; backward against finite
 * differences of that; windows; dropout by the counter; bits that repeat. */
#include "kernels_testing.h"

struct problem {
    struct zinf_attention args;
    struct tensor qkv, out, lse, d_out, d_qkv;
};

static void problem_open(struct problem *p, enum zinf_dtype dtype, int64_t batch, int64_t seq,
                         int64_t n_heads, int64_t n_kv_heads, int64_t head_dim, bool causal,
                         float dropout)
{
    size_t rows = (size_t)(batch * seq);
    size_t row = (size_t)((n_heads + 2 * n_kv_heads) * head_dim);
    size_t out_row = (size_t)(n_heads * head_dim);
    p->qkv = tensor_random(dtype, rows * row, 1, 1.0f);
    p->out = tensor_new(dtype, rows * out_row);
    p->lse = tensor_new(ZINF_DTYPE_F32, (size_t)(batch * n_heads * seq));
    p->d_out = tensor_random(dtype, rows * out_row, 2, 1.0f);
    p->d_qkv = tensor_random(dtype, rows * row, 3, 1.0f); /* to be overwritten */
    p->args = (struct zinf_attention){
        .dtype = dtype,
        .batch = batch,
        .seq = seq,
        .n_heads = n_heads,
        .n_kv_heads = n_kv_heads,
        .head_dim = head_dim,
        .causal = causal,
        .scale = 1.0f / sqrtf((float)head_dim),
        .dropout = {.p = dropout, .seed = 99, .step = 3, .site = 7, .element_first = 4321},
        .qkv = p->qkv.data,
        .out = p->out.data,
        .lse = p->lse.data,
        .d_out = p->d_out.data,
        .d_qkv = p->d_qkv.data,
    };
}

static void problem_close(struct problem *p)
{
    tensor_free(&p->qkv);
    tensor_free(&p->out);
    tensor_free(&p->lse);
    tensor_free(&p->d_out);
    tensor_free(&p->d_qkv);
}

/* One output row of one head: softmax(scale q K^T) V, with dropout. Returns the log-sum-exp. */
static double reference_row(const struct zinf_attention *a, const double *qkv, int64_t b, int64_t h,
                            int64_t i, double *out, double *p)
{
    const int64_t d = a->head_dim, row = (a->n_heads + 2 * a->n_kv_heads) * d;
    const int64_t kv = h / (a->n_heads / a->n_kv_heads), n = a->causal ? i + 1 : a->seq;
    const int64_t first = a->window && i >= a->window ? i + 1 - a->window : 0;
    const double *q = qkv + (b * a->seq + i) * row + h * d;
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = first; j < n; j++) {
        const double *k = qkv + (b * a->seq + j) * row + (a->n_heads + kv) * d;
        p[j] = 0.0;
        for (int64_t c = 0; c < d; c++)
            p[j] += q[c] * k[c];
        p[j] *= (double)a->scale;
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = first; j < n; j++)
        sum += p[j] = exp(p[j] - max);
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t j = first; j < n; j++) {
        const double *v = qkv + (b * a->seq + j) * row + (a->n_heads + a->n_kv_heads + kv) * d;
        uint64_t e = (uint64_t)(((b * a->n_heads + h) * a->seq + i) * a->seq + j);
        double weight = p[j] / sum * dropout_factor(&a->dropout, a->dropout.element_first + e);
        for (int64_t c = 0; c < d; c++)
            out[c] += weight * v[c];
    }
    return max + log(sum);
}

/* out and lse of batch b, or the loss sum(out * d_out) over that batch where they are NULL. */
static double reference_batch(const struct zinf_attention *a, const double *qkv,
                              const double *d_out, int64_t b, double *out, double *lse)
{
    const int64_t d = a->head_dim;
    double *row = malloc((size_t)d * sizeof *row), *p = malloc((size_t)a->seq * sizeof *p);
    double loss = 0.0;
    for (int64_t h = 0; h < a->n_heads; h++)
        for (int64_t i = 0; i < a->seq; i++) {
            int64_t at = ((b * a->seq + i) * a->n_heads + h) * d;
            double l = reference_row(a, qkv, b, h, i, row, p);
            if (out) {
                memcpy(out + at, row, (size_t)d * sizeof *row);
                lse[(b * a->n_heads + h) * a->seq + i] = l;
            }
            for (int64_t c = 0; c < d; c++)
                loss += row[c] * d_out[at + c];
        }
    free(row);
    free(p);
    return loss;
}

/* Central differences of the reference at up to n_probes elements of qkv. */
static void check_gradient(struct fixture *f, struct problem *p, int n_probes, double absolute,
                           double relative)
{
    const struct zinf_attention *a = &p->args;
    double *qkv = tensor_doubles(&p->qkv), *d_out = tensor_doubles(&p->d_out);
    const size_t batch_elements = p->qkv.n / (size_t)a->batch;
    const double step = 1e-5;
    for (int probe = 0; probe < n_probes && (size_t)probe < p->qkv.n; probe++) {
        size_t i = zinf_permute((uint64_t)probe, p->qkv.n, 5);
        int64_t b = (int64_t)(i / batch_elements);
        double x = qkv[i];
        qkv[i] = x + step;
        double above = reference_batch(a, qkv, d_out, b, NULL, NULL);
        qkv[i] = x - step;
        double below = reference_batch(a, qkv, d_out, b, NULL, NULL);
        qkv[i] = x;
        double want = (above - below) / (2.0 * step), got = get(&p->d_qkv, i);
        CHECKF(near(got, want, absolute, relative), "%s %s d_qkv[%zu] is %.9g, want %.9g", f->name,
               zinf_dtype_name(a->dtype), i, got, want);
    }
    free(qkv);
    free(d_out);
}

/* d_qkv of every element, for what a few probes would not meet. */
static double *reference_gradient(const struct zinf_attention *a, const double *qkv,
                                  const double *d_out)
{
    const int64_t d = a->head_dim, heads = a->n_heads + 2 * a->n_kv_heads, row = heads * d;
    double *d_qkv = calloc((size_t)(a->batch * a->seq * row), sizeof *d_qkv);
    double *out = malloc((size_t)d * sizeof *out), *p = malloc((size_t)a->seq * sizeof *p);
    for (int64_t unit = 0; unit < a->batch * a->n_heads * a->seq; unit++) {
        const int64_t i = unit % a->seq, h = unit / a->seq % a->n_heads;
        const int64_t b = unit / a->seq / a->n_heads, kv = h / (a->n_heads / a->n_kv_heads);
        const int64_t query = (b * a->seq + i) * row + h * d;
        const double *dy = d_out + ((b * a->seq + i) * a->n_heads + h) * d;
        double lse = reference_row(a, qkv, b, h, i, out, p), delta = 0.0;
        for (int64_t c = 0; c < d; c++)
            delta += out[c] * dy[c];
        int64_t j = a->window && i >= a->window ? i + 1 - a->window : 0;
        for (; j < (a->causal ? i + 1 : a->seq); j++) {
            const int64_t key = (b * a->seq + j) * row + (a->n_heads + kv) * d;
            const int64_t value = key + a->n_kv_heads * d;
            double score = 0.0, dp = 0.0;
            for (int64_t c = 0; c < d; c++) {
                score += (double)a->scale * qkv[query + c] * qkv[key + c];
                dp += dy[c] * qkv[value + c];
            }
            const uint64_t e = a->dropout.element_first + (uint64_t)(unit * a->seq + j);
            double share = exp(score - lse), factor = dropout_factor(&a->dropout, e);
            double ds = share * (dp * factor - delta) * (double)a->scale;
            for (int64_t c = 0; c < d; c++) {
                d_qkv[query + c] += ds * qkv[key + c];
                d_qkv[key + c] += ds * qkv[query + c];
                d_qkv[value + c] += share * factor * dy[c];
            }
        }
    }
    free(out);
    free(p);
    return d_qkv;
}

static void check_problem(struct fixture *f, struct problem *p, int n_probes)
{
    const struct zinf_attention *a = &p->args;
    double *qkv = tensor_doubles(&p->qkv), *d_out = tensor_doubles(&p->d_out);
    double *out = malloc(p->out.n * sizeof *out), *lse = malloc(p->lse.n * sizeof *lse);
    /* Rounding of out and d_qkv to storage, and of out inside the backward formula. */
    double epsilon = dtype_epsilon(a->dtype);
    CHECK(!f->ops->attention_forward(f->q, a));
    for (int64_t b = 0; b < a->batch; b++)
        reference_batch(a, qkv, d_out, b, out, lse);
    CHECK_NEAR(f, &p->out, out, 2e-6, 1.01 * epsilon + 2e-6);
    CHECK_NEAR(f, &p->lse, lse, 3e-6, 1e-6);
    CHECK(!f->ops->attention_backward(f->q, a));
    check_gradient(f, p, n_probes, 2e-5 + 8.0 * epsilon, 2e-5 + 2.0 * epsilon);
    double *d_qkv = reference_gradient(a, qkv, d_out);
    CHECK_NEAR(f, &p->d_qkv, d_qkv, 2e-5 + 8.0 * epsilon, 2e-5 + 2.0 * epsilon);
    double *all[] = {qkv, d_out, out, lse, d_qkv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void small_shapes(struct fixture *f)
{
    static const int64_t shapes[][5] = {
        /* batch, seq, heads, key heads, head size */
        {1, 1, 1, 1, 1},
        {2, 7, 4, 2, 5},
        {1, 33, 2, 1, 16},
        {1, 65, 3, 3, 24},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < 3; d++)
            for (int variant = 0; variant < 4; variant++) {
                struct problem p;
                const int64_t *n = shapes[s];
                problem_open(&p, all_dtypes[d], n[0], n[1], n[2], n[3], n[4], variant & 1,
                             variant & 2 ? 0.3f : 0.0f);
                check_problem(f, &p, s < 2 ? 24 : 4);
                problem_close(&p);
            }
}

static void test_small_shapes_match_the_reference(void)
{
    for_each_device(small_shapes);
}

static void several_tiles(struct fixture *f)
{
    struct problem p;
    problem_open(&p, ZINF_DTYPE_F32, 2, 150, 4, 2, 40, true, 0.1f);
    check_problem(f, &p, 6);
    problem_close(&p);
    problem_open(&p, ZINF_DTYPE_BF16, 1, 130, 2, 2, 64, false, 0.0f);
    check_problem(f, &p, 6);
    problem_close(&p);
}

static void test_several_tiles_match_the_reference(void)
{
    for_each_device(several_tiles);
}

/* Windows within a tile, of a tile and across several; one key head, some, and one a query head. */
static void windows(struct fixture *f)
{
    static const int64_t cases[][4] = {
        /* seq, window, key heads, head size */
        {40, 1, 4, 8}, {70, 33, 2, 80}, {150, 64, 1, 64}, {300, 66, 2, 96}, {200, 199, 4, 128},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t *n = cases[c];
        struct problem p;
        problem_open(&p, c % 2 ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32, 1, n[0], 4, n[2], n[3], true,
                     c % 3 ? 0.0f : 0.2f);
        p.args.window = n[1];
        check_problem(f, &p, 3);
        problem_close(&p);
    }
}

static void test_windows_match_the_reference(void)
{
    for_each_device(windows);
}

static void whole_window(struct fixture *f)
{
    struct problem all, window;
    problem_open(&all, ZINF_DTYPE_BF16, 1, 150, 4, 2, 40, true, 0.1f);
    problem_open(&window, ZINF_DTYPE_BF16, 1, 150, 4, 2, 40, true, 0.1f);
    static const int64_t wide[] = {150, 151, INT64_MAX};
    CHECK(!f->ops->attention_forward(f->q, &all.args));
    CHECK(!f->ops->attention_backward(f->q, &all.args));
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        window.args.window = wide[i];
        CHECK(!f->ops->attention_forward(f->q, &window.args));
        CHECK(!f->ops->attention_backward(f->q, &window.args));
        CHECK(tensor_same_bits(&all.out, &window.out) && tensor_same_bits(&all.lse, &window.lse));
        CHECK(tensor_same_bits(&all.d_qkv, &window.d_qkv));
    }
    problem_close(&all);
    problem_close(&window);
}

static void test_a_window_over_everything_changes_no_bit(void)
{
    for_each_device(whole_window);
}

static void far_scores(struct fixture *f)
{
    struct problem p;
    problem_open(&p, ZINF_DTYPE_F32, 1, 70, 1, 1, 8, true, 0.0f);
    float *qkv = p.qkv.data;
    for (size_t i = 0; i < p.qkv.n; i++)
        qkv[i] *= 12.0f; /* scores of several hundred: exp without the maximum would overflow */
    CHECK(!f->ops->attention_forward(f->q, &p.args));
    CHECK(!f->ops->attention_backward(f->q, &p.args));
    for (size_t i = 0; i < p.out.n; i++)
        CHECK(isfinite(get(&p.out, i)));
    for (size_t i = 0; i < p.d_qkv.n; i++)
        CHECK(isfinite(get(&p.d_qkv, i)));
    qkv[24 * 40] = NAN; /* row 40's query: an overflow upstream must stay visible */
    CHECK(!f->ops->attention_forward(f->q, &p.args));
    CHECK(isnan(get(&p.out, 8 * 40)) && isfinite(get(&p.out, 8 * 39)));
    problem_close(&p);
}

static void test_large_scores_are_safe_and_nan_is_kept(void)
{
    for_each_device(far_scores);
}

/* ---- determinism ---- */

static void run_attention(struct worker *w)
{
    struct problem *p = w->problem;
    for (int i = 0; i < 5; i++) {
        w->f->ops->attention_forward(w->q, &p->args);
        w->f->ops->attention_backward(w->q, &p->args);
    }
}

static void test_two_queues_at_once_give_the_same_bits(void)
{
    struct fixture f;
    struct problem alone, beside[2];
    fixture_open(&f, zinf_isa(), 2);
    problem_open(&alone, ZINF_DTYPE_BF16, 2, 100, 4, 2, 32, true, 0.2f);
    CHECK(!f.ops->attention_forward(f.q, &alone.args));
    CHECK(!f.ops->attention_backward(f.q, &alone.args));
    for (int i = 0; i < 2; i++)
        problem_open(&beside[i], ZINF_DTYPE_BF16, 2, 100, 4, 2, 32, true, 0.2f);
    run_on_two_queues(&f, f.ops->attention_workspace(f.device, &alone.args), run_attention,
                      (void *[]){&beside[0], &beside[1]});
    for (int i = 0; i < 2; i++) {
        CHECK(tensor_same_bits(&beside[i].out, &alone.out));
        CHECK(tensor_same_bits(&beside[i].d_qkv, &alone.d_qkv));
        problem_close(&beside[i]);
    }
    problem_close(&alone);
    fixture_close(&f);
}

static void test_one_key_head_per_query_head_equals_repeated_keys(void)
{
    struct fixture f;
    struct problem grouped, full;
    const int64_t seq = 40, d = 12;
    fixture_open(&f, zinf_isa(), 1);
    problem_open(&grouped, ZINF_DTYPE_F32, 1, seq, 4, 2, d, true, 0.0f);
    problem_open(&full, ZINF_DTYPE_F32, 1, seq, 4, 4, d, true, 0.0f);
    const float *from = grouped.qkv.data;
    float *to = full.qkv.data;
    for (int64_t i = 0; i < seq; i++)
        for (int64_t head = 0; head < 12; head++) {
            int64_t source = head < 4 ? head : head < 8 ? 4 + (head - 4) / 2 : 6 + (head - 8) / 2;
            memcpy(to + (i * 12 + head) * d, from + (i * 8 + source) * d, (size_t)d * sizeof *to);
        }
    CHECK(!f.ops->attention_forward(f.q, &grouped.args));
    CHECK(!f.ops->attention_forward(f.q, &full.args));
    CHECK(tensor_same_bits(&grouped.out, &full.out));
    problem_close(&grouped);
    problem_close(&full);
    fixture_close(&f);
}

static void test_bad_arguments_are_refused(void)
{
    struct fixture f;
    struct problem p;
    fixture_open(&f, zinf_isa(), 2);
    problem_open(&p, ZINF_DTYPE_F32, 1, 8, 4, 2, 4, true, 0.0f);
    struct zinf_attention bad = p.args;
    bad.n_kv_heads = 3;
    CHECK(f.ops->attention_forward(f.q, &bad) == -EINVAL);
    CHECK(strstr(zinf_error(), "key heads") != NULL);
    bad = p.args;
    bad.head_dim = 0;
    CHECK(f.ops->attention_backward(f.q, &bad) == -EINVAL);
    bad = p.args;
    bad.window = -1;
    CHECK(f.ops->attention_forward(f.q, &bad) == -EINVAL);
    bad.window = 4;
    bad.causal = false;
    CHECK(f.ops->attention_forward(f.q, &bad) == -EINVAL);
    CHECK(strstr(zinf_error(), "causal") != NULL);
    bad = p.args;
    bad.dropout.p = 1.0f;
    CHECK(f.ops->attention_forward(f.q, &bad) == -EINVAL);
    uint64_t bytes = f.ops->attention_workspace(f.device, &p.args);
    f.ops->queue_set_workspace(f.q, f.workspace, bytes - 1);
    CHECK(f.ops->attention_forward(f.q, &p.args) == -EINVAL);
    CHECK(strstr(zinf_error(), "workspace") != NULL);
    f.ops->queue_set_workspace(f.q, f.workspace, bytes);
    CHECK(!f.ops->attention_forward(f.q, &p.args));
    problem_close(&p);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_small_shapes_match_the_reference);
    TAP_RUN(test_several_tiles_match_the_reference);
    TAP_RUN(test_windows_match_the_reference);
    TAP_RUN(test_a_window_over_everything_changes_no_bit);
    TAP_RUN(test_large_scores_are_safe_and_nan_is_kept);
    TAP_RUN(test_two_queues_at_once_give_the_same_bits);
    TAP_RUN(test_one_key_head_per_query_head_equals_repeated_keys);
    TAP_RUN(test_bad_arguments_are_refused);
    return tap_done();
}
