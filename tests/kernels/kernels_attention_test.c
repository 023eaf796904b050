/* kernels_attention: forward against a plain softmax in double; backward against finite
 * differences of that; windows; documents; dropout by the counter; bits that repeat. */
#include "attention_reference.h"

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

/* ---- documents ---- */

/* Documents of 1 to most tokens, one after the other, padding behind them and now and then between;
 * the second sample is nothing but padding. */
static int32_t *make_segments(int64_t batch, int64_t seq, uint32_t most)
{
    int32_t *segments = calloc((size_t)(batch * seq), sizeof *segments), document = 0;
    for (int64_t b = 0; b < batch; b += 2)
        for (int64_t t = 0; t < seq - seq / 8;) {
            uint32_t counter[4] = {(uint32_t)t, (uint32_t)b, 0, 0}, bits[4];
            zinf_philox(counter, 17, bits);
            document++;
            for (int64_t end = t + 1 + bits[0] % most; t < seq && t < end; t++)
                segments[b * seq + t] = bits[1] % 8 ? document : 0;
        }
    return segments;
}

static void check_padding(struct fixture *f, const struct problem *p)
{
    const struct zinf_attention *a = &p->args;
    const size_t out = (size_t)(a->n_heads * a->head_dim);
    const size_t row = (size_t)((a->n_heads + 2 * a->n_kv_heads) * a->head_dim);
    for (int64_t t = 0; t < a->batch * a->seq; t++)
        for (size_t c = 0; c < row && a->segments[t] == 0; c++)
            CHECKF(get(&p->d_qkv, (size_t)t * row + c) == 0 &&
                       (c >= out || get(&p->out, (size_t)t * out + c) == 0),
                   "%s: padding at %d has a result or a gradient", f->name, (int)t);
}

static void documents(struct fixture *f)
{
    static const struct {
        int64_t batch, seq, n_heads, n_kv_heads, head_dim, window;
        uint32_t most;
        bool causal;
        float dropout;
    } cases[] = {
        {2, 7, 4, 2, 5, 0, 3, true, 0.0f},      {2, 7, 4, 2, 5, 0, 3, false, 0.2f},
        {1, 65, 3, 3, 24, 0, 40, false, 0.0f},  {2, 150, 4, 1, 40, 0, 30, true, 0.1f},
        {1, 300, 2, 2, 16, 0, 90, false, 0.0f}, {1, 200, 2, 1, 64, 33, 120, true, 0.0f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem p;
        int32_t *segments = make_segments(cases[i].batch, cases[i].seq, cases[i].most);
        problem_open(&p, all_dtypes[i % 3], cases[i].batch, cases[i].seq, cases[i].n_heads,
                     cases[i].n_kv_heads, cases[i].head_dim, cases[i].causal, cases[i].dropout);
        p.args.window = cases[i].window;
        p.args.segments = segments;
        check_problem(f, &p, 3);
        check_padding(f, &p);
        problem_close(&p);
        free(segments);
    }
}

static void test_documents_match_the_reference(void)
{
    for_each_device(documents);
}

static void one_document(struct fixture *f)
{
    int32_t ones[2 * 150];
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        ones[i] = 1;
    for (int causal = 0; causal < 2; causal++) {
        struct problem all, packed;
        problem_open(&all, ZINF_DTYPE_BF16, 2, 150, 4, 2, 40, causal, 0.1f);
        problem_open(&packed, ZINF_DTYPE_BF16, 2, 150, 4, 2, 40, causal, 0.1f);
        packed.args.segments = ones;
        CHECK(!f->ops->attention_forward(f->q, &all.args));
        CHECK(!f->ops->attention_backward(f->q, &all.args));
        CHECK(!f->ops->attention_forward(f->q, &packed.args));
        CHECK(!f->ops->attention_backward(f->q, &packed.args));
        CHECK(tensor_same_bits(&all.out, &packed.out) && tensor_same_bits(&all.lse, &packed.lse));
        CHECK(tensor_same_bits(&all.d_qkv, &packed.d_qkv));
        problem_close(&all);
        problem_close(&packed);
    }
}

static void test_one_document_changes_no_bit(void)
{
    for_each_device(one_document);
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

/* Heads that are too few for the threads are shared: a head by all of them, or the last of several.
 */
static const struct shared {
    int64_t seq, n_heads, n_kv_heads, head_dim;
    bool causal;
    float dropout;
    int64_t window;
} shared[] = {{300, 1, 1, 128, true, 0.0f, 0},    {200, 3, 1, 64, true, 0.0f, 70},
              {257, 5, 5, 32, false, 0.2f, 0},    {513, 3, 3, 16, true, 0.1f, 0},
              {64 * 7, 2, 1, 48, false, 0.0f, 0}, {130, 1, 1, 8, true, 0.0f, 9}};

static void run_shared(const struct shared *s, int n_threads, struct problem *out)
{
    struct fixture f;
    fixture_open(&f, zinf_isa(), n_threads);
    problem_open(out, ZINF_DTYPE_BF16, 1, s->seq, s->n_heads, s->n_kv_heads, s->head_dim, s->causal,
                 s->dropout);
    out->args.window = s->window;
    CHECK(!f.ops->attention_forward(f.q, &out->args));
    CHECK(!f.ops->attention_backward(f.q, &out->args));
    fixture_close(&f);
}

static void test_threads_that_share_a_head_change_no_bit(void)
{
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        struct problem alone, together;
        run_shared(&shared[i], 1, &alone);
        for (int n_threads = 2; n_threads <= 8; n_threads += n_threads < 4 ? 1 : 2) {
            run_shared(&shared[i], n_threads, &together);
            CHECKF(tensor_same_bits(&together.out, &alone.out) &&
                       tensor_same_bits(&together.lse, &alone.lse) &&
                       tensor_same_bits(&together.d_qkv, &alone.d_qkv),
                   "case %zu, %d threads", i, n_threads);
            problem_close(&together);
        }
        problem_close(&alone);
    }
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
    TAP_RUN(test_documents_match_the_reference);
    TAP_RUN(test_one_document_changes_no_bit);
    TAP_RUN(test_large_scores_are_safe_and_nan_is_kept);
    TAP_RUN(test_two_queues_at_once_give_the_same_bits);
    TAP_RUN(test_threads_that_share_a_head_change_no_bit);
    TAP_RUN(test_one_key_head_per_query_head_equals_repeated_keys);
    TAP_RUN(test_bad_arguments_are_refused);
    return tap_done();
}
