/*
 * cuda_model: a whole step of a small GPT-2 on the host device and on the CUDA device: weights come
 * in unit by unit on one queue, the model's own code computes on another, gradients leave on a
 * third. Loss and every gradient must agree; a second run must give the same bits.
 */
#include "cuda_twin.h"
#include "model/model.h"

enum { MAX_UNITS = 8, MAX_LAYERS = 4, BATCH = 3, SEQ = 13, ROWS = BATCH * SEQ };
#define ARENA_BYTES ((uint64_t)64 << 20)
#define PINNED_BYTES ((uint64_t)4 << 20)

/* One device with all that a step needs on it. */
struct machine {
    struct zinf_device *device;
    const struct zinf_device_ops *ops;
    struct zinf_queue *in, *q, *out;
    struct zinf_event *filled[MAX_UNITS], *made[2 * MAX_UNITS];
    const struct zinf_model *model;
    struct zinf_gpt2_compute compute;
    uint64_t arena_used, pinned_used;
    char *pinned;
    /* on the device */
    void *weights[MAX_UNITS];
    float *grads[2 * MAX_UNITS]; /* the table has two: of the head and of the embedding */
    void *x[MAX_LAYERS + 1], *d_x;
    struct zinf_block_kept kept[MAX_LAYERS];
    struct zinf_block_scratch scratch;
    struct zinf_head head;
    int32_t *ids, *positions, *targets;
    /* page-locked */
    char *host_weights[MAX_UNITS];
    float *host_grads[2 * MAX_UNITS], *host_loss;
    int32_t *host_ids; /* [3][ROWS]: ids, positions, targets */
};

static uint64_t least_workspace(const struct machine *m)
{
    return zinf_model_workspace(&m->compute, m->model, zinf_head_rows(m->compute.spec, ROWS), true);
}

static void *on_device(struct machine *m, uint64_t bytes)
{
    void *at = (char *)m->device->memory + m->arena_used;
    m->arena_used += zinf_align_up(bytes, 256);
    CHECK(m->arena_used <= ARENA_BYTES);
    return at;
}

static void *on_host(struct machine *m, uint64_t bytes)
{
    void *at = m->pinned + m->pinned_used;
    m->pinned_used += zinf_align_up(bytes, 256);
    CHECK(m->pinned_used <= PINNED_BYTES);
    return at;
}

static const struct zinf_unit_spec *unit_of(const struct machine *m, int u)
{
    return zinf_model_unit(m->model, u % MAX_UNITS);
}

/* Every place of the step; grads at MAX_UNITS + u are the embedding's of tile u. */
static void lay_out(struct machine *m)
{
    const struct zinf_gpt2_compute *c = &m->compute;
    uint64_t width = zinf_dtype_bytes(c->dtype), workspace = least_workspace(m);
    uint64_t x_bytes = (uint64_t)(ROWS * c->spec->hidden) * width;
    m->ops->queue_set_workspace(m->q, on_device(m, workspace), workspace);
    for (int u = 0; u < zinf_model_n_units(m->model); u++) {
        uint64_t elems = unit_of(m, u)->elems;
        m->weights[u] = on_device(m, elems * width);
        m->host_weights[u] = on_host(m, elems * width);
    }
    for (int u = 0; u < MAX_UNITS + zinf_model_n_tiles(m->model); u++)
        if (u < zinf_model_n_units(m->model) || u >= MAX_UNITS) {
            m->grads[u] = on_device(m, unit_of(m, u)->elems * sizeof(float));
            m->host_grads[u] = on_host(m, unit_of(m, u)->elems * sizeof(float));
        }
    for (int l = 0; l <= c->spec->n_layers; l++)
        m->x[l] = on_device(m, x_bytes);
    m->d_x = on_device(m, x_bytes);
    for (int l = 0; l < c->spec->n_layers; l++)
        zinf_block_kept_layout(c, on_device(m, zinf_block_kept_layout(c, NULL, &m->kept[l])),
                               &m->kept[l]);
    zinf_block_scratch_layout(
        c, on_device(m, zinf_block_scratch_layout(c, NULL, &m->scratch, true)), &m->scratch, true);
    int tiles = zinf_model_n_tiles(m->model);
    zinf_head_layout(c, on_device(m, zinf_head_layout(c, NULL, &m->head, tiles, true)), &m->head,
                     tiles, true);
    m->ids = on_device(m, 3 * ROWS * sizeof *m->ids);
    m->positions = m->ids + ROWS;
    m->targets = m->positions + ROWS;
    m->host_ids = on_host(m, 3 * ROWS * sizeof *m->ids);
    m->host_loss = on_host(m, ROWS * sizeof *m->host_loss);
    m->head.targets = m->targets;
    m->head.scale = 1.0f / ROWS;
}

/* The same weights and tokens on both devices. */
static void fill(struct machine *m)
{
    for (int u = 0; u < zinf_model_n_units(m->model); u++) {
        struct tensor t =
            tensor_random(m->compute.dtype, unit_of(m, u)->elems, 10 + (uint64_t)u, 0.2f);
        memcpy(m->host_weights[u], t.data, t.n * zinf_dtype_bytes(t.dtype));
        tensor_free(&t);
    }
    for (int i = 0; i < ROWS; i++) {
        m->host_ids[i] = (i * 29 + 3) % (int)m->compute.spec->vocab;
        m->host_ids[ROWS + i] = i % SEQ;
        m->host_ids[2 * ROWS + i] = i % 7 == 6 ? -100 : (i * 17) % (int)m->compute.spec->vocab;
    }
}

static void machine_open(struct machine *m, struct zinf_device *device,
                         const struct zinf_model *model, enum zinf_dtype dtype)
{
    memset(m, 0, sizeof *m);
    m->device = device;
    m->ops = device->ops;
    m->model = model;
    CHECKF(!zinf_device_take_memory(device, ARENA_BYTES), "%s", zinf_error());
    CHECK(!m->ops->queue_create(device, ZINF_QUEUE_TO_DEVICE, &m->in));
    CHECK(!m->ops->queue_create(device, ZINF_QUEUE_COMPUTE, &m->q));
    CHECK(!m->ops->queue_create(device, ZINF_QUEUE_TO_HOST, &m->out));
    for (int u = 0; u < MAX_UNITS; u++)
        CHECK(!m->ops->event_create(device, &m->filled[u]));
    for (int u = 0; u < 2 * MAX_UNITS; u++)
        CHECK(!m->ops->event_create(device, &m->made[u]));
    m->pinned = aligned_alloc(4096, PINNED_BYTES);
    CHECK(!m->ops->host_register(device, m->pinned, PINNED_BYTES));
    m->compute = (struct zinf_gpt2_compute){.device = device,
                                            .queue = m->q,
                                            .spec = zinf_model_spec(model),
                                            .dtype = dtype,
                                            .batch = BATCH,
                                            .seq = SEQ,
                                            .train = true,
                                            .seed = 7,
                                            .step = 3};
    lay_out(m);
    fill(m);
}

static void machine_close(struct machine *m)
{
    m->ops->host_unregister(m->device, m->pinned);
    for (int u = 0; u < MAX_UNITS; u++)
        m->ops->event_destroy(m->filled[u]);
    for (int u = 0; u < 2 * MAX_UNITS; u++)
        m->ops->event_destroy(m->made[u]);
    m->ops->queue_destroy(m->in);
    m->ops->queue_destroy(m->q);
    m->ops->queue_destroy(m->out);
    zinf_device_destroy(m->device);
    free(m->pinned);
}

/* ---- a step ---- */

/* All copies in, enqueued at once; the last is the tokens, which compute waits for first. */
static void send(struct machine *m)
{
    for (int u = -1; u < zinf_model_n_units(m->model); u++) {
        uint64_t width = zinf_dtype_bytes(m->compute.dtype);
        CHECK(!(u < 0 ? m->ops->copy_to_device(m->in, m->ids, m->host_ids, 3 * ROWS * 4)
                      : m->ops->copy_to_device(m->in, m->weights[u], m->host_weights[u],
                                               unit_of(m, u)->elems * width)));
        if (u >= 0)
            CHECK(!m->ops->event_record(m->in, m->filled[u]));
    }
}

static void *wait_for(struct machine *m, int u)
{
    CHECK(!m->ops->queue_wait(m->q, m->filled[u]));
    return m->weights[u];
}

/* A gradient leaves as soon as it is made. */
static void give(struct machine *m, int u)
{
    CHECK(!m->ops->event_record(m->q, m->made[u]));
    CHECK(!m->ops->queue_wait(m->out, m->made[u]));
    CHECK(!m->ops->copy_to_host(m->out, m->host_grads[u], m->grads[u],
                                unit_of(m, u)->elems * sizeof(float)));
}

static int forward(struct machine *m)
{
    const struct zinf_gpt2_compute *c = &m->compute;
    int tiles = zinf_model_n_tiles(m->model), first = zinf_model_first_block(m->model), code = 0;
    for (int u = 0; !code && u < tiles; u++)
        code = zinf_embed_tile(c, unit_of(m, u), wait_for(m, u), m->ids, m->x[0]);
    if (!code)
        code = zinf_embed_position(c, unit_of(m, tiles), wait_for(m, tiles), m->positions, m->x[0]);
    for (int l = 0; !code && l < c->spec->n_layers; l++)
        code = zinf_block_forward(c, unit_of(m, first + l), wait_for(m, first + l), m->x[l],
                                  m->x[l + 1], &m->kept[l], &m->scratch);
    return code;
}

static int head(struct machine *m)
{
    const struct zinf_gpt2_compute *c = &m->compute;
    int last = zinf_model_n_units(m->model) - 1;
    void *x = m->x[c->spec->n_layers];
    int code = zinf_head_norm(c, unit_of(m, last), wait_for(m, last), x, &m->head);
    if (!code)
        code = zinf_head_all(c, m->model, (const void *const *)m->weights, m->grads, &m->head);
    for (int u = 0; u < zinf_model_n_tiles(m->model); u++)
        give(m, u);
    if (!code)
        code = zinf_head_norm_backward(c, unit_of(m, last), m->weights[last], m->grads[last], x,
                                       m->d_x, &m->head);
    give(m, last);
    CHECK(!m->ops->copy_to_host(m->out, m->host_loss, m->head.loss, ROWS * sizeof(float)));
    return code;
}

static int backward(struct machine *m)
{
    const struct zinf_gpt2_compute *c = &m->compute;
    int tiles = zinf_model_n_tiles(m->model), first = zinf_model_first_block(m->model), code = 0;
    for (int64_t l = c->spec->n_layers - 1; !code && l >= 0; l--) {
        int u = first + (int)l;
        code = zinf_block_backward(c, unit_of(m, u), m->weights[u], m->grads[u], m->x[l], m->d_x,
                                   &m->kept[l], &m->scratch);
        give(m, u);
    }
    if (!code)
        code = zinf_embed_dropout_backward(c, m->d_x);
    for (int u = 0; !code && u < tiles; u++) {
        code = zinf_embed_tile_backward(c, unit_of(m, u), m->grads[MAX_UNITS + u], m->ids, m->d_x,
                                        false);
        give(m, MAX_UNITS + u);
    }
    if (!code)
        code = zinf_embed_position_backward(c, unit_of(m, tiles), m->grads[tiles], m->positions,
                                            m->d_x, false);
    give(m, tiles);
    return code;
}

static void run(struct machine *m)
{
    send(m);
    int code = forward(m);
    if (!code)
        code = head(m);
    if (!code)
        code = backward(m);
    CHECKF(!code, "%s: %s", m->device->name, zinf_error());
    CHECK(!m->ops->queue_synchronize(m->out));
}

/* ---- comparison ---- */

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

static void compare(const struct machine *cuda, const struct machine *host, double bound)
{
    double loss = distance(cuda->host_loss, host->host_loss, ROWS);
    CHECKF(loss < bound, "loss differs by %.3g", loss);
    for (int u = 0; u < 2 * MAX_UNITS; u++) {
        if (!host->grads[u])
            continue;
        double d = distance(cuda->host_grads[u], host->host_grads[u], unit_of(host, u)->elems);
        CHECKF(d < bound, "%s%s: gradient differs by %.3g of its norm", unit_of(host, u)->name,
               u >= MAX_UNITS ? " (embedding)" : "", d);
    }
}

static struct zinf_model *open_model(void)
{
    char path[1024];
    cJSON *config = NULL;
    struct zinf_model *model = NULL;
    snprintf(path, sizeof path, "%s/tests/fixtures/gpt2_a/config.json", getenv("SRCDIR"));
    if (zinf_json_read_file(path, 1 << 20, ZINF_JSON_STRICT, &config)) {
        printf("Bail out! %s\n", zinf_error());
        exit(1);
    }
    static const char *const dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
    for (size_t i = 0; i < 3; i++)
        cJSON_ReplaceItemInObject(config, dropouts[i], cJSON_CreateNumber(0.1));
    CHECKF(!zinf_model_from_json(&model, config, "fixture"), "%s", zinf_error());
    cJSON_Delete(config);
    return model;
}

static void step_case(enum zinf_dtype dtype, double bound, uint64_t seed)
{
    static struct machine cuda, host;
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 2};
    struct zinf_device *device = twin_open_cuda(80, seed);
    if (!device)
        SKIP("%s", twin_missing ? twin_missing : "no CUDA device");
    if (dtype == ZINF_DTYPE_BF16 && strstr(device->name, "sm_75")) {
        zinf_device_destroy(device);
        SKIP("bf16 begins with sm_80");
    }
    struct zinf_model *model = open_model();
    machine_open(&cuda, device, model, dtype);
    CHECK(!zinf_device_create(&device, &options));
    machine_open(&host, device, model, dtype);
    run(&host);
    run(&cuda);
    compare(&cuda, &host, bound);
    char *first = malloc(PINNED_BYTES);
    memcpy(first, cuda.pinned, PINNED_BYTES);
    memset(cuda.host_loss, 0xff, ROWS * sizeof(float));
    run(&cuda);
    CHECKF(!memcmp(first, cuda.pinned, cuda.pinned_used), "a second run has other bits");
    free(first);
    machine_close(&cuda);
    machine_close(&host);
    zinf_model_close(model);
#ifdef CUDA_STANDIN
    CHECKF(!standin_faults(), "%d faults of the stand-in", standin_faults());
    CHECKF(!standin_live(), "%d objects left", standin_live());
#endif
}

static void test_step_fp32(void)
{
    step_case(ZINF_DTYPE_F32, 2e-5, 1);
}

static void test_step_bf16(void)
{
    step_case(ZINF_DTYPE_BF16, 3e-2, 2);
}

static void test_step_fp16(void)
{
    step_case(ZINF_DTYPE_F16, 6e-3, 3);
}

int main(void)
{
    TAP_RUN(test_step_fp32);
    TAP_RUN(test_step_bf16);
    TAP_RUN(test_step_fp16);
    return tap_done();
}
