/*
 * cuda_queues: the order that a training step makes with queues and events, on a GPU that runs
 * nothing before it must and then whatever it may. Layers come in by one queue into two slots,
 * compute runs on another, gradients leave by a third into two host buffers. With every wait in
 * place the result is exact under any seed; with any one of them forgotten some seed shows it.
 *
 * With CUDA_RACES everything runs at once under the thread sanitizer, which reports the same: each
 * forgotten wait is a race, every time.
 */
#include "cuda_twin.h"

/* Races are reported for every 8 bytes that they concern. The sanitizer keeps the last few accesses
 * of each and may forget one that matters, but not of all of them. */
enum { LAYERS = 6, SLOTS = 2, N = CUDA_RACES ? 32 : 512 };

struct step {
    struct twin twin;
    struct zinf_queue *in, *out;
    struct zinf_event *filled[SLOTS], *emptied[SLOTS]; /* a weight slot */
    struct zinf_event *made[SLOTS], *gone[SLOTS];      /* a gradient slot */
    float *weights[SLOTS], *grads[SLOTS], *x;          /* on the GPU */
    float *host_weights, *host_grads;                  /* [LAYERS][N], page-locked */
    float result[LAYERS][N];
};

static void make_events(struct step *s, bool create)
{
    const struct zinf_device_ops *ops = s->twin.cuda->ops;
    struct zinf_event **all[] = {s->filled, s->emptied, s->made, s->gone};
    for (size_t i = 0; i < 4; i++)
        for (int slot = 0; slot < SLOTS; slot++)
            if (create)
                CHECK(!ops->event_create(s->twin.cuda, &all[i][slot]));
            else
                ops->event_destroy(all[i][slot]);
}

static bool step_open(struct step *s, uint64_t seed)
{
    struct twin *t = &s->twin;
    if (!twin_open_for(t, 80, seed))
        return false;
    const struct zinf_device_ops *ops = t->cuda->ops;
    char *memory = (char *)t->cuda->memory + t->workspace_bytes;
    CHECK(!ops->queue_create(t->cuda, ZINF_QUEUE_TO_DEVICE, &s->in));
    CHECK(!ops->queue_create(t->cuda, ZINF_QUEUE_TO_HOST, &s->out));
    make_events(s, true);
    for (int slot = 0; slot < SLOTS; slot++) {
        s->weights[slot] = (float *)(memory + slot * N * 4);
        s->grads[slot] = (float *)(memory + (SLOTS + slot) * N * 4);
    }
    s->x = (float *)(memory + 2 * SLOTS * N * 4);
    s->host_weights = (float *)t->staging;
    s->host_grads = s->host_weights + LAYERS * N;
    for (int i = 0; i < LAYERS * N; i++)
        s->host_weights[i] = (float)(i % 251 + 1);
    return true;
}

static void step_close(struct step *s)
{
    const struct zinf_device_ops *ops = s->twin.cuda->ops;
    make_events(s, false);
    ops->queue_destroy(s->in);
    ops->queue_destroy(s->out);
    twin_end(&s->twin);
}

/* Brings layer's weights into its slot once the layer before the last has been computed. */
static void fetch(struct step *s, int layer)
{
    const struct zinf_device_ops *ops = s->twin.cuda->ops;
    int slot = layer % SLOTS;
    CHECK(!ops->queue_wait(s->in, s->emptied[slot]));
    CHECK(!ops->copy_to_device(s->in, s->weights[slot], s->host_weights + layer * N, N * 4));
    CHECK(!ops->event_record(s->in, s->filled[slot]));
}

/* x = weights; gradient = x: stands for a layer's forward and backward. */
static void compute(struct step *s, int layer)
{
    const struct zinf_device_ops *ops = s->twin.cuda->ops;
    int slot = layer % SLOTS;
    CHECK(!ops->queue_wait(s->twin.q, s->filled[slot]));
    CHECK(!ops->queue_wait(s->twin.q, s->gone[slot]));
    CHECK(!ops->copy(s->twin.q, s->x, s->weights[slot], N * 4));
    CHECK(!ops->event_record(s->twin.q, s->emptied[slot]));
    CHECK(!ops->copy(s->twin.q, s->grads[slot], s->x, N * 4));
    CHECK(!ops->event_record(s->twin.q, s->made[slot]));
}

static void offload(struct step *s, int layer)
{
    const struct zinf_device_ops *ops = s->twin.cuda->ops;
    int slot = layer % SLOTS;
    CHECK(!ops->queue_wait(s->out, s->made[slot]));
    CHECK(!ops->copy_to_host(s->out, s->host_grads + slot * N, s->grads[slot], N * 4));
    CHECK(!ops->event_record(s->out, s->gone[slot]));
}

/* The host reads a gradient once it has arrived, and its buffer may then be used again. */
static void receive(struct step *s, int layer)
{
    int slot = layer % SLOTS;
    CHECK(!s->twin.cuda->ops->event_synchronize(s->gone[slot]));
    memcpy(s->result[layer], s->host_grads + slot * N, sizeof s->result[layer]);
}

static void run_step(struct step *s)
{
    memset(s->host_grads, 0xff, SLOTS * N * 4);
    for (int layer = 0; layer < LAYERS; layer++) {
        fetch(s, layer);
        compute(s, layer);
        if (layer >= SLOTS)
            receive(s, layer - SLOTS);
        offload(s, layer);
    }
    for (int layer = LAYERS - SLOTS; layer < LAYERS; layer++)
        receive(s, layer);
}

/* Elements of the result that are not the layer's weights. */
static int wrong_elements(const struct step *s)
{
    int wrong = 0;
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < N; i++)
            wrong += s->result[layer][i] != (float)((layer * N + i) % 251 + 1);
    return wrong;
}

/* ---- the thread sanitizer ---- */

static volatile int n_races; /* reports so far */

#ifdef __SANITIZE_THREAD__
/* Called by the sanitizer, which prints the report too. */
void __tsan_on_report(void *report);
void __tsan_on_report(void *report)
{
    (void)report;
    n_races++;
}

/* Reports are counted, and alike ones too. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "exitcode=0:suppress_equal_stacks=0:suppress_equal_addresses=0";
}
#endif

/* ---- cases ---- */

static void test_waits_in_place_are_enough(void)
{
    for (uint64_t seed = 1; seed <= (CUDA_RACES ? 1 : 20); seed++) {
        static struct step s;
        if (!step_open(&s, seed))
            SKIP("%s", twin_missing ? twin_missing : "no CUDA device");
        run_step(&s);
        CHECKF(!wrong_elements(&s), "seed %d: %d wrong", (int)seed, wrong_elements(&s));
        step_close(&s);
    }
    CHECKF(!n_races, "%d races", n_races);
}

#ifdef CUDA_STANDIN

/* Whether some seed shows that wait number skip is missing. */
static bool loss_of_wait_shows(int skip, uint64_t seeds)
{
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        static struct step s;
        bool shows;
        CHECK(step_open(&s, seed));
        standin_skip_wait(skip);
        n_races = 0;
        run_step(&s);
        shows = CUDA_RACES ? n_races > 0 : wrong_elements(&s) > 0;
        CHECK(!CUDA_RACES || !wrong_elements(&s));
        step_close(&s);
        if (shows)
            return true;
    }
    return false;
}

/* All but the waits for events that have not been recorded yet, which order nothing. */
static void test_every_wait_is_needed(void)
{
    int number = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        const bool is_needed[] = {layer >= SLOTS, true, layer >= SLOTS, true};
        static const char *const names[] = {"emptied", "filled", "gone", "made"};
        for (int i = 0; i < 4; i++) {
            bool shows = loss_of_wait_shows(++number, CUDA_RACES ? 1 : is_needed[i] ? 60 : 3);
            CHECKF(shows == is_needed[i], "layer %d, wait for %s: its loss %s", layer, names[i],
                   shows ? "shows" : "does not show");
        }
    }
}

static void test_host_reading_too_early_shows(void)
{
    static struct step s;
    CHECK(step_open(&s, 1));
    memset(s.host_grads, 0xff, SLOTS * N * 4);
    fetch(&s, 0);
    compute(&s, 0);
    offload(&s, 0);
    n_races = 0;
    if (!CUDA_RACES)
        CHECK(isnan(s.host_grads[0])); /* nothing has run */
    else
        CHECK(s.host_grads[0] == 1.0f && n_races > 0); /* all has, but who says so? */
    CHECK(!s.twin.cuda->ops->event_synchronize(s.gone[0]));
    CHECK(s.host_grads[0] == 1.0f);
    step_close(&s);
}

/* The host puts other weights where a copy may still read them. */
static void test_host_writing_too_early_shows(void)
{
    static struct step s;
    CHECK(step_open(&s, 1));
    fetch(&s, 0);
    n_races = 0;
    s.host_weights[0] = 2.0f;
    CHECK((n_races > 0) == CUDA_RACES);
    n_races = 0;
    compute(&s, 0);
    offload(&s, 0);
    receive(&s, 0);
    CHECK(s.result[0][0] == (CUDA_RACES ? 1.0f : 2.0f));
    s.host_weights[0] = 3.0f;
    CHECK(!n_races);
    step_close(&s);
}

static void test_misuse_is_a_fault(void)
{
    static struct step s;
    CHECK(step_open(&s, 1));
    cudaStream_t stream;
    static char unregistered[64];
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMemcpyAsync(s.x, unregistered, 64, cudaMemcpyHostToDevice, stream) != cudaSuccess);
    CHECK(cudaMemcpyAsync(unregistered, s.x, 64, cudaMemcpyHostToDevice, stream) != cudaSuccess);
    CHECK(standin_faults() == 2);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    make_events(&s, false);
    s.twin.cuda->ops->queue_destroy(s.in);
    s.twin.cuda->ops->queue_destroy(s.out);
    standin_forgive();
    twin_end(&s.twin);
}

#endif

/* More than there is: the message says what was asked and what is free. */
static void test_out_of_memory_names_sizes(void)
{
    struct zinf_device *device = twin_open_cuda(80, 1);
    if (!device)
        SKIP("%s", twin_missing ? twin_missing : "no CUDA device");
    CHECK(zinf_device_take_memory(device, (uint64_t)1 << 50) == -ENOMEM);
    CHECKF(strstr(zinf_error(), "asked") && strstr(zinf_error(), "free on the GPU") &&
               strstr(zinf_error(), "arena"),
           "%s", zinf_error());
    CHECK(!zinf_device_take_memory(device, 12345));
    CHECK((uintptr_t)device->memory % ((uintptr_t)2 << 20) == 0 && device->memory_bytes == 12345);
    CHECK(zinf_device_take_memory(device, 1) == -EBUSY);
    CHECK(device->needs_pinned && !device->host_addressable && device->kind == ZINF_DEVICE_CUDA);
    zinf_device_destroy(device);
}

int main(void)
{
#ifndef __SANITIZE_THREAD__
    if (CUDA_RACES) {
        printf("1..0 # SKIP not built with the thread sanitizer of gcc\n");
        return 0;
    }
#endif
    TAP_RUN(test_waits_in_place_are_enough);
#ifdef CUDA_STANDIN
    TAP_RUN(test_every_wait_is_needed);
    TAP_RUN(test_host_reading_too_early_shows);
    TAP_RUN(test_host_writing_too_early_shows);
    TAP_RUN(test_misuse_is_a_fault);
#endif
    TAP_RUN(test_out_of_memory_names_sizes);
    return tap_done();
}
