/*
 * cuda_model: a whole step of small models on the host device and on the CUDA device, the stages'
 * own code on both: GPT-2 with dropout, decoders with rotary positions, grouped queries, norms of
 * heads and a window, and what other families do differently. Losses and every gradient must agree;
 * a second run must give the same bits.
 */
#include "base/json.h"
#include "cuda_twin.h"
#include "model_frames.h"

enum { BATCH = 3, SEQ = 13, ROWS = BATCH * SEQ };

static struct zinf_model *open_model(const char *fixture)
{
    char path[1024];
    struct zinf_model *model = NULL;
    snprintf(path, sizeof path, "%s/tests/fixtures/%s", getenv("SRCDIR"), fixture);
    CHECKF(!zinf_model_open(&model, path), "%s", zinf_error());
    CHECKF(!zinf_model_set_dropout(model, 0.1f), "%s", zinf_error());
    return model;
}

/* Rows of logits at a time on the GPU; 0: as many as it says itself. */
static int64_t logit_rows;

static void put_inputs(struct frames *w)
{
    int32_t ids[3][ROWS];
    for (int i = 0; i < ROWS; i++) {
        ids[0][i] = (i * 29 + 3) % (int)w->graph->vocab;
        ids[1][i] = i % SEQ;
        ids[2][i] = i % 7 == 6 ? -100 : (i * 17) % (int)w->graph->vocab;
    }
    frames_put_input(w, ZINF_INPUT_IDS, ids[0]);
    frames_put_input(w, ZINF_INPUT_POSITIONS, ids[1]);
    frames_put_input(w, ZINF_INPUT_TARGETS, ids[2]);
}

/* The same weights and tokens on both devices. */
static void start(struct frames *w, struct zinf_device *device, const struct zinf_model *model,
                  enum zinf_dtype dtype)
{
    memset(w, 0, sizeof *w);
    w->device = device;
    w->graph = zinf_model_graph(model);
    w->whole = true;
    w->loss_scale = 1.0f / ROWS;
    w->compute = (struct zinf_compute){
        .dtype = dtype, .batch = BATCH, .seq = SEQ, .train = true, .seed = 7, .step = 3};
    frames_open(w);
    put_inputs(w);
    for (uint32_t u = 0; u < w->graph->n_units; u++) {
        struct tensor t =
            tensor_random(ZINF_DTYPE_F32, w->graph->units[u].elems, 10 + (uint64_t)u, 0.2f);
        frames_put_weights(w, u, t.data);
        tensor_free(&t);
    }
}

/* ---- a step ---- */

/* What comes out: the losses, then every unit's gradient, one after the other. */
struct result {
    float *values;
    uint64_t n;
};

static struct result step(struct frames *w)
{
    const struct zinf_graph *g = w->graph;
    struct result r = {.n = ROWS};
    for (uint32_t u = 0; u < g->n_units; u++)
        r.n += g->units[u].elems;
    r.values = malloc(r.n * sizeof *r.values);
    frames_forward(w);
    frames_backward(w);
    frames_get(w, r.values, w->values[g->loss], ROWS * sizeof(float));
    for (uint64_t u = 0, at = ROWS; u < g->n_units; at += g->units[u++].elems)
        frames_get(w, r.values + at, w->grads[u], g->units[u].elems * sizeof(float));
    return r;
}

/* |a - b| / |b|; NaN where either has one. */
static double distance(const float *a, const float *b, uint64_t n)
{
    double above = 0.0, below = 1e-30;
    for (uint64_t i = 0; i < n; i++) {
        above += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        below += (double)b[i] * (double)b[i];
    }
    return sqrt(above / below);
}

static void compare(const struct zinf_graph *g, const struct result *cuda,
                    const struct result *host, double bound)
{
    double loss = distance(cuda->values, host->values, ROWS);
    CHECKF(loss < bound, "loss differs by %.3g", loss);
    for (uint64_t u = 0, at = ROWS; u < g->n_units; at += g->units[u++].elems) {
        double d = distance(cuda->values + at, host->values + at, g->units[u].elems);
        CHECKF(d < bound || !g->units[u].trained, "%s: gradient differs by %.3g of its norm",
               g->units[u].name, d);
    }
}

static void step_case(const char *fixture, enum zinf_dtype dtype, double bound, uint64_t seed)
{
    struct frames cuda, host;
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 2};
    struct zinf_device *device = twin_open_cuda(80, seed), *twin = NULL;
    if (!device)
        SKIP("%s", twin_missing ? twin_missing : "no CUDA device");
    if (dtype == ZINF_DTYPE_BF16 && strstr(device->name, "sm_75")) {
        zinf_device_destroy(device);
        SKIP("bf16 begins with sm_80");
    }
    device->logit_rows = logit_rows ? logit_rows : device->logit_rows;
    struct zinf_model *model = open_model(fixture);
    CHECK(!zinf_device_create(&twin, &options));
    start(&cuda, device, model, dtype);
    start(&host, twin, model, dtype);
    struct result ours = step(&cuda), theirs = step(&host), again = step(&cuda);
    compare(cuda.graph, &ours, &theirs, bound);
    CHECKF(!memcmp(ours.values, again.values, ours.n * sizeof(float)),
           "a second run has other bits");
    frames_close(&cuda);
    frames_close(&host);
    zinf_model_close(model);
    free(ours.values);
    free(theirs.values);
    free(again.values);
#ifdef CUDA_STANDIN
    CHECKF(!standin_faults(), "%d faults of the stand-in", standin_faults());
    CHECKF(!standin_live(), "%d objects left", standin_live());
#endif
}

static void test_step_fp32(void)
{
    step_case("gpt2_a", ZINF_DTYPE_F32, 2e-5, 1);
}

static void test_step_bf16(void)
{
    step_case("gpt2_a", ZINF_DTYPE_BF16, 3e-2, 2);
}

static void test_step_fp16(void)
{
    step_case("gpt2_a", ZINF_DTYPE_F16, 6e-3, 3);
}

static void test_rotary_step_fp32(void)
{
    step_case("llama_b", ZINF_DTYPE_F32, 2e-5, 4);
}

static void test_window_step_bf16(void)
{
    step_case("mistral_a", ZINF_DTYPE_BF16, 3e-2, 5);
}

static void test_head_norms_step_fp32(void)
{
    step_case("qwen3_a", ZINF_DTYPE_F32, 2e-5, 6);
}

/* ALiBi, rotation of a part of a head and of pairs side by side, soft caps, norms behind parts and
 * of whole rows, parallel parts behind one norm and two, unit rows, positions from row 2 on. */
static void test_families_fp32(void)
{
    static const char *const fixtures[] = {
        "bloom_a",       "falcon_a",      "falcon_b",      "falcon_d",
        "gpt_neox_a",    "chatglm_a",     "gemma2_a",      "gemma3_text_a",
        "olmo2_a",       "opt_a",         "baichuan_b",    "phi3_c",
        "starcoder2_a",  "smollm3_a",     "granite_a",     "hunyuan_v1_dense_a",
        "cohere_a",      "stablelm_a",    "nemotron_a",    "gpt_bigcode_a",
        "gemma4_text_a", "gemma4_text_c", "gemma4_text_d", "apertus_a",
        "ministral3_c"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        step_case(fixtures[i], ZINF_DTYPE_F32, 2e-5, 10 + i);
}

static void test_families_bf16(void)
{
    static const char *const fixtures[] = {"bloom_a", "gemma2_a", "gpt_neox_a", "chatglm_a"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        step_case(fixtures[i], ZINF_DTYPE_BF16, 3e-2, 30 + i);
}

/* With the loss that balances them, and with one that all rows have. */
static void test_experts_fp32(void)
{
    static const char *const fixtures[] = {
        "mixtral_a",     "mixtral_c",     "qwen2_moe_a",   "qwen3_moe_a",     "olmoe_a",
        "gpt_oss_a",     "gpt_oss_b",     "glm4_moe_a",    "glm4_moe_b",      "granitemoe_a",
        "deepseek_v2_a", "deepseek_v2_b", "deepseek_v3_a", "glm4_moe_lite_a", "llama4_text_a",
        "llama4_text_c", "gemma4_text_e"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        step_case(fixtures[i], ZINF_DTYPE_F32, 2e-5, 40 + i);
}

/* Convolutions and scans, beside attention, experts and layers of one part. */
static void test_mixers_fp32(void)
{
    static const char *const fixtures[] = {
        "qwen3_next_a", "granitemoehybrid_c", "nemotron_h_a",  "nemotron_h_c", "falcon_h1_a",
        "falcon_h1_c",  "granitemoehybrid_e", "olmo_hybrid_a", "lfm2_a",       "lfm2_b"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        step_case(fixtures[i], ZINF_DTYPE_F32, 2e-5, 70 + i);
}

/* More rows than are made at a time, and a rest. */
static void test_logits_in_chunks(void)
{
    logit_rows = 16;
    step_case("gpt2_a", ZINF_DTYPE_F32, 2e-5, 50);
    step_case("gpt2_a", ZINF_DTYPE_BF16, 3e-2, 51);
    step_case("gemma2_a", ZINF_DTYPE_F16, 6e-3, 52);
    logit_rows = 0;
}

int main(void)
{
    TAP_RUN(test_step_fp32);
    TAP_RUN(test_step_bf16);
    TAP_RUN(test_step_fp16);
    TAP_RUN(test_rotary_step_fp32);
    TAP_RUN(test_window_step_bf16);
    TAP_RUN(test_head_norms_step_fp32);
    TAP_RUN(test_families_fp32);
    TAP_RUN(test_families_bf16);
    TAP_RUN(test_experts_fp32);
    TAP_RUN(test_mixers_fp32);
    TAP_RUN(test_logits_in_chunks);
    return tap_done();
}
