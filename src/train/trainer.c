/* trainer: from options to a placed, loaded model with its programs, and its end. */
#include "train/trainer.h"

#include "aio/drive_bench.h"
#include "base/pulse.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- drives, queues, lanes ---- */

/* The configuration was refused where parameters or state have no path. */
static int fail_pathless(const struct setup *s)
{
    const bool values = s->x_tier == ZINF_TIER_DRIVE;
    return zinf_fail(-EINVAL,
                     "%s is \"nvme\", but no key names a folder on a drive: set "
                     "zero_optimization.offload_param.nvme_path to one",
                     values ? "zinf.activation_device" : "zero_optimization.offload_param.device");
}

static int open_store(struct zinf_trainer *t)
{
    const struct zinf_config *c = t->setup.config;
    const struct zinf_config_offload *section = setup_drives(c);
    const char *name = section == &c->offload_param ? "offload_param" : "offload_optimizer";
    if (!setup_uses_drive(&t->setup))
        return 0;
    if (!section->n_nvme_paths)
        return fail_pathless(&t->setup);
    struct zinf_store_options options = {
        .paths = (const char *const *)section->nvme_path,
        .n_paths = section->n_nvme_paths,
        .label = "train",
        .measure_path = zinf_aio_bench_path,
        .checksums = c->checksums,
    };
    int code = durable_open_store(t, &options);
    return code ? zinf_fail_in(code, "zero_optimization.%s.nvme_path", name) : 0;
}

/* What goes to each rank of a pipeline in one exchange, and comes from it. */
static int open_share(struct zinf_trainer *t)
{
    const uint32_t world = pipe_axis(&t->setup)->world;
    struct share_arrays *a = &t->share;
    a->out = calloc(2 * (size_t)world, sizeof *a->out);
    a->out_bytes = calloc(2 * (size_t)world, sizeof *a->out_bytes);
    if (!a->out || !a->out_bytes)
        return zinf_fail(-ENOMEM, "no memory for %u ranks", world);
    a->in = a->out + world;
    a->in_bytes = a->out_bytes + world;
    return 0;
}

static int open_queues(struct zinf_trainer *t)
{
    static const enum zinf_queue_kind kinds[ZINF_LANES] = {
        [ZINF_LANE_H2D] = ZINF_QUEUE_TO_DEVICE,
        [ZINF_LANE_D2H] = ZINF_QUEUE_TO_HOST,
        [ZINF_LANE_DEVICE] = ZINF_QUEUE_COMPUTE,
    };
    struct zinf_device *device = t->setup.device;
    uint32_t world = data_axis(&t->setup)->world;
    int code = 0;
    for (int lane = ZINF_LANE_H2D; !code && lane <= ZINF_LANE_DEVICE; lane++)
        code = device->ops->queue_create(device, kinds[lane], &t->queues[lane]);
    if (!code &&
        (way_stages_slices(&t->plan.travel) ||
         (device_is_far(&t->setup) && (is_piped(&t->setup) || context_axis(&t->setup)->world > 1))))
        code = device->ops->queue_create(device, ZINF_QUEUE_TO_DEVICE, &t->pull);
    t->lent = calloc(world, sizeof *t->lent);
    t->slice_bytes = calloc(world, sizeof *t->slice_bytes);
    if (!code && (!t->lent || !t->slice_bytes))
        code = zinf_fail(-ENOMEM, "no memory for %u ranks", world);
    t->compute = t->setup.compute;
    t->visited = t->setup.n_chunks;
    if (!code)
        code = open_share(t);
    trainer_open_shards(t);
    return code;
}

/* The lane NET enqueues and waits; its sums are made in a queue of their own. Ranks that share
 * sequences have a communicator beside that of all. */
static int open_link(struct zinf_trainer *t)
{
    struct zinf_axis *data = &t->setup.mesh.at[ZINF_DATA];
    struct zinf_axis *context = &t->setup.mesh.at[ZINF_CONTEXT];
    const struct zinf_device_ops *ops = t->setup.device->ops;
    struct zinf_device *of = t->setup.device;
    int code = t->plan.variant.by_link ? ops->queue_create(of, ZINF_QUEUE_COMPUTE, &t->adds) : 0;
    for (int i = 0; !code && t->adds && i < 4; i++)
        code = ops->event_create(of, &t->sum_events[i]);
    if (code || !t->adds)
        return code;
    struct zinf_link_device device = {.queue = t->pull,
                                      .sums = t->adds,
                                      .came = {t->sum_events[0], t->sum_events[1]},
                                      .added = {t->sum_events[2], t->sum_events[3]},
                                      .record = ops->event_record,
                                      .wait = ops->queue_wait,
                                      .stream = ops->queue_stream,
                                      .poll = ops->queue_poll,
                                      .finish = ops->queue_finish,
                                      .add = ops->add,
                                      .copy = ops->copy,
                                      .seconds = t->setup.config->timeout};
    code = zinf_link_create(&data->link, data->net, &device);
    return code || !plan_links_keys(&t->plan)
               ? code
               : zinf_link_create(&context->link, context->net, &device);
}

/* ---- memory ---- */

/* A refusal costs speed alone. */
static void place_array(const struct setup *s, char *memory, uint64_t n, size_t width)
{
    if (zinf_optim_place(memory, n, width, s->device->n_threads))
        zinf_log_once(ZINF_LOG_WARN, "state pages", "%s", zinf_error());
}

/* After the arenas exist and before they are touched: where there are several NUMA nodes, host
 * memory is near the GPU that copies from and to it, but state in RAM near the threads that step
 * it. */
static void place_memory(const struct zinf_trainer *t)
{
    const struct setup *s = &t->setup;
    if (zinf_memory_place(t->plan.host_base, t->plan.host_bytes, s->device->node))
        zinf_log_once(ZINF_LOG_WARN, "host pages", "%s", zinf_error());
    size_t master = zinf_state_bytes(s->form, 0, 1);
    for (uint32_t g = 0; trains(s) && g < s->layout.n_groups; g++) {
        struct zinf_location where = zinf_tiers_group_state(t->plan.tiers, g, 0);
        uint64_t n = s->layout.groups[g].n;
        if (where.tier != ZINF_TIER_HOST || where.head)
            continue;
        for (int generation = 0; generation < (where.stride ? 2 : 1); generation++) {
            char *state = where.memory + (uint64_t)generation * where.stride;
            if (master)
                place_array(s, state, n, master);
            struct rule_segment segment = {0};
            while (rule_next_segment(s, g, &segment))
                for (uint32_t i = 1;
                     segment.of->rule->moment_bytes && i <= segment.of->rule->n_moments; i++)
                    place_array(s, state + rule_moment_at(&segment, (int)i), segment.n,
                                segment.of->rule->moment_bytes);
        }
    }
}

/* Copies overlap with what else there is only where the GPU knows the memory's pages. */
static bool pin_part(const struct zinf_trainer *t, uint64_t at, uint64_t bytes)
{
    char size[16];
    if (!t->setup.device->ops->host_register(t->setup.device, t->plan.host_base + at, bytes))
        return true;
    zinf_log(ZINF_LOG_WARN,
             "host memory (%s) cannot be page-locked as a whole, and copies of the rest will not "
             "overlap with computing; where a container limits memory, page-locked memory counts: "
             "lower zinf.host_memory, or raise that limit: %s",
             zinf_size_format(size, sizeof size, t->plan.host_bytes), zinf_error());
    return false;
}

#define READY_BYTES ((uint64_t)4 << 30)

/* The first step is measured: it shall not be the one that waits for pages. A part is page-locked
 * as soon as its pages are there, so that nothing large is done at once. */
static void ready_memory(struct zinf_trainer *t)
{
    bool touches = trains(&t->setup), pins = t->setup.device->needs_pinned;
    for (uint64_t at = 0; at < t->plan.host_bytes; at += READY_BYTES) {
        uint64_t left = t->plan.host_bytes - at, n = left < READY_BYTES ? left : READY_BYTES;
        zinf_pulse_beat();
        if (touches)
            zinf_memory_touch(t->plan.host_base + at, n);
        pins = pins && pin_part(t, at, n);
    }
    if (touches && t->setup.device->host_addressable)
        zinf_memory_touch(t->plan.device_base, t->setup.device->memory_bytes);
}

/* Of damage: none has been found. */
static int clear_marks(struct zinf_trainer *t)
{
    const struct zinf_device_ops *ops = t->setup.device->ops;
    const uint64_t bytes = plan_damage_bytes(&t->plan);
    struct zinf_queue *queue = t->queues[ZINF_LANE_DEVICE];
    if (!bytes)
        return 0;
    int code = ops->fill_zero(queue, device_at(&t->plan, t->plan.at.d_damage), bytes);
    return code ? code : ops->queue_synchronize(queue);
}

static int take_memory(struct zinf_trainer *t)
{
    uint64_t device = zinf_ledger_arena_bytes(t->plan.ledger, ZINF_MEMORY_DEVICE);
    uint64_t host = zinf_ledger_arena_bytes(t->plan.ledger, ZINF_MEMORY_HOST);
    int code = zinf_device_take_memory(t->setup.device, device);
    if (!code)
        code = zinf_arena_init(&t->host, host, "host memory");
    if (!code && t->setup.store)
        code = zinf_store_allocate(t->setup.store);
    if (code)
        return code;
    t->plan.device_base = t->setup.device->memory;
    t->plan.host_base = t->host.base;
    t->plan.host_bytes = t->host.bytes;
    plan_place(&t->plan);
    place_memory(t);
    ready_memory(t);
    t->setup.device->ops->queue_set_workspace(t->queues[ZINF_LANE_DEVICE],
                                              device_at(&t->plan, t->plan.at.d_workspace),
                                              t->setup.walk.workspace);
    code = clear_marks(t);
    if (code)
        return code;
    t->numbers = (struct zinf_numbers){
        .memory = t->plan.amounts.numbers ? device_at(&t->plan, t->plan.at.d_numbers) : NULL,
        .bytes = t->plan.amounts.numbers ? plan_numbers_bytes(&t->plan) : 0,
    };
    code = products_settle(t);
    return code ? code : durable_open(t);
}

/* ---- the executor ---- */

static void set_io(struct zinf_trainer *t, struct zinf_aio_queue_options *queue)
{
    const struct zinf_config *c = t->setup.config;
    queue->block_bytes = (uint32_t)c->aio.block_size;
    queue->queue_depth = (uint32_t)c->aio.queue_depth;
    /* 1 is DeepSpeed's default, of threads that have many transfers in flight; ours has one. */
    queue->n_threads = c->aio.n_threads > 1 ? (uint32_t)c->aio.n_threads : 0;
    queue->single_submit = c->aio.single_submit;
    queue->engine = t->setup.io_engine;
}

static int start_executor(struct zinf_trainer *t)
{
    struct zinf_executor_options options = {
        .run = trainer_run_op,
        .context = t,
        .op_name = trainer_op_name,
        .skip = trainer_skip_op,
        .moved = trainer_moved,
        .measured = trainer_measured,
        .net = t->setup.mesh.all,
        .store = t->setup.store,
        .trace_path = t->setup.config->trace,
        .trace_file = t->setup.options.trace,
        .seat = t->setup.mesh.all ? zinf_net_place(t->setup.mesh.all).seat : 0,
    };
    if (t->setup.device->kind != ZINF_DEVICE_HOST) {
        options.device = t->setup.device;
        memcpy(options.queues, t->queues, sizeof t->queues);
    }
    set_io(t, &options.read_queue);
    options.read_queue.around[0] = t->setup.options.around;
    options.write_queue = options.read_queue;
    if (t->setup.store) {
        options.register_base = host_at(&t->plan, t->plan.at.h_transfer);
        options.register_bytes = t->plan.host_bytes - t->plan.at.h_transfer;
    }
    return zinf_executor_create(&t->executor, &options);
}

/* ---- life ---- */

static int create(struct zinf_trainer *t, const struct zinf_trainer_options *options,
                  enum packing packed)
{
    struct variant variant;
    char text[256];
    int code = setup_init(&t->setup, options, false);
    if (code)
        return code;
    if (packed) {
        t->setup.pack_is_open = false;
        t->setup.may_pack = packed;
    }
    t->pending = calloc(t->setup.n_units, sizeof *t->pending);
    t->chosen = calloc(t->setup.n_units, sizeof *t->chosen);
    t->copied = calloc(t->setup.n_units, sizeof *t->copied);
    t->encoded = calloc(t->setup.n_units, sizeof *t->encoded);
    if (!t->pending || !t->chosen || !t->copied || !t->encoded)
        return zinf_fail(-ENOMEM, "no memory for %u units", t->setup.n_units);
    code = trainer_take_frame(t);
    if (code)
        return code;
    plan_settle_durability(&t->setup);
    code = agree_durability(&t->setup);
    if (code)
        return code;
    plan_search(&t->setup, &variant, NULL);
    code = agree_variant(&t->setup, &variant);
    if (!code)
        code = open_store(t);
    if (!code)
        code = plan_make(&t->plan, &t->setup, &variant);
    if (!code)
        code = trainer_take_chunks(t);
    t->setup.packs = code ? PACK_OFF : variant.packs;
    if (!code && trains(&t->setup) && plan_lost_text(&t->plan, text))
        zinf_log_once(ZINF_LOG_INFO, "durability", "%s", text);
    if (!code)
        code = open_queues(t);
    if (!code)
        code = open_link(t);
    if (!code)
        code = take_memory(t);
    if (!code)
        code = plan_first_programs(&t->plan);
    if (!code)
        code = agree_programs(t);
    if (!code)
        code = agree_planned(t);
    if (!code)
        code = start_executor(t);
    if (!code && t->setup.compute.decoding)
        code = trainer_begin_decoding(t);
    return code ? code : trainer_load(t);
}

static int create_one(struct zinf_trainer **out, const struct zinf_trainer_options *options,
                      enum packing packed, enum packing *wants_packed)
{
    struct zinf_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return zinf_fail(-ENOMEM, "no memory for a trainer");
    zinf_loss_scale_init(&t->loss_scale, &options->config->fp16);
    int code = create(t, options, packed);
    *wants_packed = code && t->setup.pack_is_open ? t->durable.wants_packed : PACK_OFF;
    if (code && options->net && !*wants_packed)
        zinf_net_tell(options->net, zinf_error());
    if (code)
        zinf_trainer_destroy(t);
    else
        *out = t;
    return code;
}

/* A plan is made before what a run left is read: where that is packed and the plan has chosen
 * otherwise, as it may with other RAM, it is made again. */
int zinf_trainer_create(struct zinf_trainer **out, const struct zinf_trainer_options *options)
{
    enum packing wants_packed, again;
    int code = create_one(out, options, PACK_OFF, &wants_packed);
    return wants_packed ? create_one(out, options, wants_packed, &again) : code;
}

void zinf_trainer_destroy(struct zinf_trainer *t)
{
    if (!t)
        return;
    zinf_executor_destroy(t->executor);
    zinf_link_close(t->setup.mesh.at[ZINF_CONTEXT].link);
    zinf_link_close(t->setup.mesh.at[ZINF_DATA].link);
    durable_close(t);
    cJSON_Delete(t->identity);
    plan_fini(&t->plan);
    zinf_store_destroy(t->setup.store);
    for (int lane = 0; lane < ZINF_LANES; lane++)
        if (t->queues[lane])
            t->setup.device->ops->queue_destroy(t->queues[lane]);
    if (t->pull)
        t->setup.device->ops->queue_destroy(t->pull);
    if (t->adds)
        t->setup.device->ops->queue_destroy(t->adds);
    for (int i = 0; i < 4; i++)
        if (t->sum_events[i])
            t->setup.device->ops->event_destroy(t->sum_events[i]);
    trainer_release_chunks(t);
    setup_fini(&t->setup);
    zinf_arena_fini(&t->host); /* the device may hold it page-locked */
    free(t->lent);
    free(t->slice_bytes);
    free(t->share.out);
    free(t->share.out_bytes);
    free(t->pending);
    free(t->chosen);
    free(t->copied);
    free(t->encoded);
    free(t->likeness);
    trainer_end_decoding(t);
    trainer_release_frame(t);
    free(t);
}

const struct zinf_model *zinf_trainer_model(const struct zinf_trainer *t)
{
    return t->setup.model;
}

int64_t zinf_trainer_seq_len(const struct zinf_trainer *t)
{
    return t->setup.seq;
}

const char *zinf_trainer_gpu(const struct zinf_trainer *t)
{
    return device_is_far(&t->setup) ? t->setup.device->name : NULL;
}

uint64_t zinf_trainer_planned_bytes(const struct zinf_trainer *t, int memory_tier)
{
    return zinf_ledger_total_bytes(t->plan.ledger, (enum zinf_memory_tier)memory_tier);
}

struct zinf_planned zinf_trainer_planned(const struct zinf_trainer *t)
{
    return t->all;
}

bool zinf_trainer_filled(const struct zinf_trainer *t, char text[static 256])
{
    return plan_filled_text(&t->plan, text) != NULL;
}

int zinf_trainer_print_plan(const struct zinf_trainer *t, FILE *out)
{
    return plan_print(&t->plan, out);
}
