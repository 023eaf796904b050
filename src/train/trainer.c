/* trainer: from options to a placed, loaded model with its programs. */
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>

/* Sub-groups on a drive are tiles of tens of MiB, whatever sub_group_size says: 4 Mi elements are
 * 48 MiB of AdamW state. */
#define MAX_GROUP_ELEMS ((uint64_t)4 << 20)

static enum zinf_tier tier_of(enum zinf_place place)
{
    static const enum zinf_tier tiers[] = {ZINF_TIER_DEVICE, ZINF_TIER_HOST, ZINF_TIER_DRIVE};
    return tiers[place];
}

static void choose_tiers(struct zinf_trainer *t)
{
    const struct zinf_config *c = t->setup.config;
    t->setup.param_tier = tier_of(c->offload_param.device);
    t->setup.state_tier = tier_of(c->offload_optimizer.device);
    t->setup.grad_tier = tier_of(c->grad_device);
    if (t->setup.options.mode != ZINF_TRAINER_TRAIN) {
        t->setup.state_tier = ZINF_TIER_HOST;
        t->setup.grad_tier = ZINF_TIER_HOST;
    }
    if (!strcmp(c->activation_device, "nvme"))
        t->plan.x_tier = ZINF_TIER_DRIVE;
    else if (!strcmp(c->activation_device, "cpu") || c->cpu_checkpointing)
        t->plan.x_tier = ZINF_TIER_HOST;
    t->setup.form = c->dtype == ZINF_DTYPE_F32    ? ZINF_STATE_BARE
                    : c->dtype == ZINF_DTYPE_BF16 ? ZINF_STATE_SPLIT
                                                  : ZINF_STATE_WHOLE;
    t->setup.fills =
        !strcmp(c->placement, "fill") || (!strcmp(c->placement, "auto") && c->host_memory);
}

static int check_tiers(const struct zinf_trainer *t)
{
    if (trains(&t->setup) && t->setup.grad_tier != t->setup.state_tier &&
        !(t->setup.grad_tier == ZINF_TIER_HOST && t->setup.state_tier == ZINF_TIER_DRIVE))
        return zinf_fail(-EINVAL,
                         "gradients on the %s tier with optimizer state on the %s tier: set "
                         "zinf.grad_device to that of offload_optimizer, or to cpu beside nvme",
                         zinf_tier_name(t->setup.grad_tier), zinf_tier_name(t->setup.state_tier));
    bool there =
        t->setup.state_tier == ZINF_TIER_DEVICE || t->setup.config->offload_optimizer.ratio < 1;
    if (trains(&t->setup) && there && device_is_far(&t->setup) && !setup_device_steps(&t->setup))
        return zinf_fail(-ENOTSUP,
                         "%s updates only Adam and AdamW with fp32 moments: set "
                         "zero_optimization.offload_optimizer.device to cpu or nvme, and its "
                         "ratio to 1",
                         t->setup.device->name);
    return 0;
}

static enum schedule wanted_schedule(const struct zinf_trainer *t)
{
    for (int i = SCHEDULE_SERIAL; i < SCHEDULES; i++)
        if (!strcmp(t->setup.config->schedule, schedule_name((enum schedule)i)))
            return (enum schedule)i;
    return SCHEDULE_AUTO;
}

static void choose_order(struct zinf_trainer *t)
{
    const char *order = t->setup.config->accumulation_order;
    bool possible = t->setup.n_micro > 1 && t->setup.n_micro <= MAX_LAYER_MAJOR;
    bool moves = t->setup.param_tier != ZINF_TIER_DEVICE || t->setup.grad_tier != ZINF_TIER_DEVICE;
    bool better = moves && !t->plan.variant.micro_major;
    t->plan.layer_major =
        possible && (!strcmp(order, "layer-major") || (!strcmp(order, "auto") && better));
    t->plan.n_x_micros = t->plan.layer_major ? t->setup.n_micro : 1;
}

/* What the step does, but for sizes. */
static void choose_step(struct zinf_trainer *t)
{
    t->setup.direct = t->setup.config->direct && t->setup.device->host_addressable;
    t->setup.wanted = wanted_schedule(t);
    t->plan.schedule = SCHEDULE_SERIAL;
    t->setup.generations =
        t->setup.wanted == SCHEDULE_AUTO || t->setup.wanted == SCHEDULE_UPDATE_IN_BACKWARD ? 2 : 1;
}

static int open_model(struct zinf_trainer *t)
{
    int code = zinf_model_open(&t->setup.model, t->setup.options.model_path);
    if (!code && t->setup.options.n_layers)
        code = zinf_model_set_layers(&t->setup.model, t->setup.options.n_layers);
    if (!code && t->setup.moments == MOMENTS_FACTORED)
        code = zinf_model_join_tiles(t->setup.model);
    if (code)
        return code;
    t->setup.spec_values = *zinf_model_spec(t->setup.model);
    if (t->setup.config->dropout >= 0) {
        float p = (float)t->setup.config->dropout;
        t->setup.spec_values.embedding_dropout = p;
        t->setup.spec_values.residual_dropout = p;
        t->setup.spec_values.attention_dropout = p;
    }
    t->setup.spec = &t->setup.spec_values;
    t->setup.n_units = (uint32_t)zinf_model_n_units(t->setup.model);
    t->setup.n_layers = (uint32_t)t->setup.spec->n_layers;
    t->setup.dtype = t->setup.config->dtype;
    t->setup.batch = t->setup.config->micro_batch;
    t->setup.n_micro =
        t->setup.options.mode == ZINF_TRAINER_TRAIN ? t->setup.config->accumulation : 1;
    t->setup.seq = t->setup.options.seq_len;
    if (!t->setup.seq)
        t->setup.seq = t->setup.spec->context < 1024 ? t->setup.spec->context : 1024;
    if (t->setup.seq < 1 || t->setup.seq > t->setup.spec->context)
        return zinf_fail(-EINVAL,
                         "--seq-len %lld: the model's context is %lld (n_positions in "
                         "config.json)",
                         (long long)t->setup.seq, (long long)t->setup.spec->context);
    t->setup.rows = (uint64_t)(t->setup.batch * t->setup.seq);
    t->setup.compute = (struct zinf_gpt2_compute){
        .spec = t->setup.spec,
        .dtype = t->setup.dtype,
        .batch = t->setup.batch,
        .seq = t->setup.seq,
        .train = t->setup.options.mode == ZINF_TRAINER_TRAIN,
        .seed = t->setup.options.seed,
    };
    t->compute = t->setup.compute;
    return 0;
}

static int lay_out(struct zinf_trainer *t)
{
    uint64_t *elems = calloc(t->setup.n_units, sizeof *elems), most = 0;
    if (!elems)
        return zinf_fail(-ENOMEM, "no memory for %u units", t->setup.n_units);
    for (uint32_t u = 0; u < t->setup.n_units; u++) {
        elems[u] = zinf_model_unit(t->setup.model, (int)u)->elems;
        most = elems[u] > most ? elems[u] : most;
    }
    uint64_t group = (uint64_t)t->setup.config->sub_group_size;
    group = group < MAX_GROUP_ELEMS ? group : MAX_GROUP_ELEMS;
    if (t->setup.moments == MOMENTS_FACTORED) /* tensors are not cut */
        group = most;
    int code = zinf_layout_init(&t->setup.layout, elems, t->setup.n_units, group, 0, 1);
    free(elems);
    return code ? code : setup_state_bytes(&t->setup);
}

const struct zinf_config_offload *trainer_drives(const struct zinf_config *c)
{
    bool state = c->offload_optimizer.device == ZINF_PLACE_NVME;
    return state && c->offload_optimizer.n_nvme_paths ? &c->offload_optimizer : &c->offload_param;
}

static int open_store(struct zinf_trainer *t)
{
    if (t->setup.param_tier != ZINF_TIER_DRIVE && t->setup.state_tier != ZINF_TIER_DRIVE &&
        t->setup.grad_tier != ZINF_TIER_DRIVE && t->plan.x_tier != ZINF_TIER_DRIVE)
        return 0;
    const struct zinf_config_offload *section = trainer_drives(t->setup.config);
    struct zinf_store_options counted = {.label = "plan", .plan_only = true};
    if (t->setup.options.plan_only)
        return zinf_store_create(&t->plan.store, &counted);
    const char *name =
        section == &t->setup.config->offload_param ? "offload_param" : "offload_optimizer";
    if (!section->n_nvme_paths)
        return zinf_fail(-EINVAL,
                         "zero_optimization.%s.device is nvme, but nvme_path is not set: "
                         "name a folder on a local drive",
                         name);
    struct zinf_store_options options = {
        .paths = (const char *const *)section->nvme_path,
        .n_paths = section->n_nvme_paths,
        .label = "train",
        .measure_paths = true,
        .checksums = t->setup.config->checksums,
    };
    int code = durable_open_store(t, &options);
    return code ? zinf_fail_in(code, "zero_optimization.%s.nvme_path", name) : 0;
}

static int open_device(struct zinf_trainer *t)
{
    static const enum zinf_queue_kind kinds[ZINF_LANES] = {
        [ZINF_LANE_H2D] = ZINF_QUEUE_TO_DEVICE,
        [ZINF_LANE_D2H] = ZINF_QUEUE_TO_HOST,
        [ZINF_LANE_DEVICE] = ZINF_QUEUE_COMPUTE,
    };
    int64_t threads = t->setup.config->threads;
    if (t->shadow_of) {
        t->setup.device = t->shadow_of->setup.device;
        t->setup.compute.device = t->compute.device = t->setup.device;
        return 0;
    }
    struct zinf_device_options options = {.kind = t->setup.options.device,
                                          .n_threads = threads > 0 ? (int)threads
                                                                   : zinf_optim_thread_count(0)};
    int code = zinf_device_create(&t->setup.device, &options);
    if (code && t->setup.options.plan_only && options.kind == ZINF_DEVICE_CUDA)
        code = trainer_describe_cuda(t);
    for (int lane = ZINF_LANE_H2D; !code && lane <= ZINF_LANE_DEVICE; lane++)
        code = t->setup.device->ops->queue_create(t->setup.device, kinds[lane], &t->queues[lane]);
    t->setup.compute.device = t->setup.device;
    t->compute.device = t->setup.device;
    t->compute.queue = t->queues[ZINF_LANE_DEVICE];
    return code;
}

static int take_arrays(struct zinf_trainer *t)
{
    size_t tiles = (size_t)zinf_model_n_tiles(t->setup.model);
    t->plan.kept =
        calloc((size_t)t->setup.n_layers * (size_t)t->plan.n_x_micros, sizeof *t->plan.kept);
    t->plan.heads = calloc((size_t)t->plan.n_x_micros, sizeof *t->plan.heads);
    t->plan.tile_places = calloc(tiles, sizeof *t->plan.tile_places);
    t->plan.tile_weights = calloc(tiles, sizeof *t->plan.tile_weights);
    t->plan.tile_grads = calloc(tiles, sizeof *t->plan.tile_grads);
    t->plan.tile_sums = calloc(tiles, sizeof *t->plan.tile_sums);
    t->plan.deferred = calloc(t->setup.n_units, sizeof *t->plan.deferred);
    t->pending = calloc(t->setup.n_units, sizeof *t->pending);
    if (!t->plan.kept || !t->plan.heads || !t->plan.tile_places || !t->plan.tile_weights ||
        !t->plan.tile_grads || !t->plan.tile_sums || !t->plan.deferred || !t->pending)
        return zinf_fail(-ENOMEM, "no memory for the trainer's tables");
    t->setup.head_rows = zinf_head_rows(t->setup.spec, (int64_t)t->setup.rows);
    return 0;
}

/* Copies overlap with what else there is only where the GPU knows the memory's pages. */
static void pin_host_memory(struct zinf_trainer *t)
{
    char size[16];
    if (!t->setup.device->needs_pinned ||
        !t->setup.device->ops->host_register(t->setup.device, t->plan.host_base,
                                             t->plan.host_bytes))
        return;
    zinf_log(
        ZINF_LOG_WARN,
        "%s of host memory cannot be page-locked, and copies will not overlap; raise the limit "
        "on locked memory (ulimit -l): %s",
        zinf_size_format(size, sizeof size, t->plan.host_bytes), zinf_error());
}

/* The first step is measured: it shall not be the one that waits for pages. */
static void touch_memory(struct zinf_trainer *t)
{
    if (!trains(&t->setup))
        return;
    zinf_memory_touch(t->plan.host_base, t->plan.host_bytes);
    if (t->setup.device->host_addressable)
        zinf_memory_touch(t->plan.device_base, t->setup.device->memory_bytes);
}

static int take_memory(struct zinf_trainer *t)
{
    uint64_t device = zinf_ledger_arena_bytes(t->plan.ledger, ZINF_MEMORY_DEVICE);
    uint64_t host = zinf_ledger_arena_bytes(t->plan.ledger, ZINF_MEMORY_HOST);
    int code = zinf_device_take_memory(t->setup.device, device);
    if (!code)
        code = zinf_arena_init(&t->host, host, "host memory");
    if (!code && t->plan.store)
        code = zinf_store_allocate(t->plan.store);
    if (code)
        return code;
    t->plan.device_base = t->setup.device->memory;
    t->plan.host_base = t->host.base;
    t->plan.host_bytes = t->host.bytes;
    plan_place(&t->plan);
    plan_place_state(&t->plan);
    touch_memory(t);
    pin_host_memory(t);
    t->setup.device->ops->queue_set_workspace(t->queues[ZINF_LANE_DEVICE],
                                              device_at(&t->plan, t->plan.at.d_workspace),
                                              t->plan.sizes.workspace);
    for (uint64_t i = 0; i < t->setup.rows; i++)
        t->plan.h_positions[i] = (int32_t)(i % (uint64_t)t->setup.seq);
    return durable_open(t);
}

static void set_io(struct zinf_trainer *t, struct zinf_aio_queue_options *queue)
{
    const struct zinf_config *c = t->setup.config;
    queue->block_bytes = (uint32_t)c->aio.block_size;
    queue->queue_depth = (uint32_t)c->aio.queue_depth;
    /* 1 is DeepSpeed's default, of threads that have many transfers in flight; ours has one. */
    queue->n_threads = c->aio.n_threads > 1 ? (uint32_t)c->aio.n_threads : 0;
    queue->single_submit = c->aio.single_submit;
    if (c->io_engine && !strcmp(c->io_engine, "uring"))
        queue->engine = ZINF_AIO_ENGINE_URING;
    else if (c->io_engine && !strcmp(c->io_engine, "threads"))
        queue->engine = ZINF_AIO_ENGINE_THREADS;
}

static int start_executor(struct zinf_trainer *t)
{
    struct zinf_executor_options options = {
        .run = trainer_run_op,
        .context = t,
        .op_name = trainer_op_name,
        .skip = trainer_skip_op,
        .measured = trainer_measured,
        .store = t->plan.store,
        .trace_path = t->setup.config->trace,
    };
    if (t->setup.device->kind != ZINF_DEVICE_HOST) {
        options.device = t->setup.device;
        memcpy(options.queues, t->queues, sizeof t->queues);
    }
    set_io(t, &options.read_queue);
    options.read_queue.faults = t->setup.options.faults;
    options.write_queue = options.read_queue;
    if (t->plan.store) {
        options.register_base = host_at(&t->plan, t->plan.at.h_transfer);
        options.register_bytes = t->plan.host_bytes - t->plan.at.h_transfer;
    }
    return zinf_executor_create(&t->executor, &options);
}

/* What is said of steps that outlive the process is said once. */
static void choose_durability(struct zinf_trainer *t)
{
    const struct zinf_trainer *of = t->shadow_of;
    if (!of) {
        durable_choose(t);
        return;
    }
    t->setup.durable = of->setup.durable;
    t->setup.durable_copies = of->setup.durable_copies;
    t->setup.generations = of->setup.generations;
    t->setup.fills = of->setup.fills;
}

static int create(struct zinf_trainer *t)
{
    int code = setup_optimizer(&t->setup);
    choose_tiers(t);
    if (!code)
        code = open_model(t);
    if (!code)
        code = open_device(t);
    if (!code) {
        choose_step(t);
        choose_durability(t);
        choose_order(t);
        code = check_tiers(t);
    }
    if (!code && !t->shadow_of) {
        trainer_search(t);
        choose_order(t);
    }
    if (!code)
        code = lay_out(t);
    if (!code)
        code = take_arrays(t);
    if (!code)
        code = open_store(t);
    if (!code)
        code = plan_memory(&t->plan);
    if (!code && t->setup.options.plan_only)
        return trainer_reserve(t);
    if (!code)
        code = take_memory(t);
    if (!code)
        code = plan_first_programs(&t->plan);
    if (!code)
        code = start_executor(t);
    return code ? code : trainer_load(t);
}

static int create_by(struct zinf_trainer **out, const struct zinf_trainer_options *options,
                     const struct zinf_trainer *shadow_of, const struct variant *variant)
{
    struct zinf_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return zinf_fail(-ENOMEM, "no memory for a trainer");
    t->setup.options = *options;
    t->shadow_of = shadow_of;
    t->plan.setup = &t->setup;
    t->plan.variant = *variant;
    t->setup.config = options->config;
    zinf_loss_scale_init(&t->loss_scale, &options->config->fp16);
    int code = create(t);
    if (code)
        zinf_trainer_destroy(t);
    else
        *out = t;
    return code;
}

int zinf_trainer_create(struct zinf_trainer **out, const struct zinf_trainer_options *options)
{
    const struct variant usual = {.host_grads_part = 4};
    return create_by(out, options, NULL, &usual);
}

int trainer_create_shadow(struct zinf_trainer **out, const struct zinf_trainer *of,
                          const struct variant *variant)
{
    struct zinf_trainer_options options = of->setup.options;
    options.plan_only = options.init = true;
    return create_by(out, &options, of, variant);
}

void zinf_trainer_destroy(struct zinf_trainer *t)
{
    if (!t)
        return;
    zinf_executor_destroy(t->executor);
    zinf_program_fini(&t->plan.gradients);
    zinf_program_fini(&t->plan.drain);
    zinf_program_fini(&t->plan.wait);
    zinf_program_fini(&t->plan.speculate);
    zinf_program_fini(&t->plan.forward);
    zinf_program_fini(&t->plan.logits);
    zinf_tiers_destroy(t->plan.tiers);
    durable_close(t);
    zinf_store_destroy(t->plan.store);
    for (int lane = 0; lane < ZINF_LANES; lane++)
        if (t->queues[lane])
            t->setup.device->ops->queue_destroy(t->queues[lane]);
    if (!t->shadow_of)
        zinf_device_destroy(t->setup.device);
    if (t->setup.options.plan_only)
        trainer_unreserve(t);
    else
        zinf_arena_fini(&t->host);
    zinf_ledger_destroy(t->plan.ledger);
    zinf_layout_fini(&t->setup.layout);
    zinf_model_close(t->setup.model);
    free(t->plan.homes);
    free(t->setup.state_bytes);
    free(t->plan.x_extents);
    free(t->plan.deferred);
    free(t->pending);
    free(t->plan.heads);
    free(t->plan.kept);
    free(t->plan.tile_places);
    free(t->plan.tile_weights);
    free(t->plan.tile_grads);
    free(t->plan.tile_sums);
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

const char *zinf_trainer_device_name(const struct zinf_trainer *t)
{
    return t->setup.device->name;
}

uint64_t zinf_trainer_planned_bytes(const struct zinf_trainer *t, int memory_tier)
{
    return zinf_ledger_total_bytes(t->plan.ledger, (enum zinf_memory_tier)memory_tier);
}

static int n_fetched(const struct zinf_trainer *t, uint32_t end)
{
    int n = 0;
    for (uint32_t u = 0; u < end; u++)
        n += unit_is_fetched(&t->plan, u);
    return n;
}

/* Units whose updates the device makes. */
static uint32_t updates_there(const struct zinf_trainer *t)
{
    uint32_t n = 0;
    for (uint32_t u = 0; trains(&t->setup) && u < t->setup.n_units; u++)
        n += t->plan.homes[u].state == ZINF_TIER_DEVICE;
    return n;
}

int zinf_trainer_print_plan(const struct zinf_trainer *t, FILE *out)
{
    const struct choice *c = &t->plan.choice;
    fprintf(out, "plan: %s, %llu parameters in %s: parameters on %s", t->setup.device->name,
            (unsigned long long)zinf_model_n_params(t->setup.model),
            zinf_dtype_name(t->setup.dtype), zinf_tier_name(t->setup.param_tier));
    if (t->setup.options.mode == ZINF_TRAINER_TRAIN)
        fprintf(out, ", optimizer state on %s, gradients on %s",
                zinf_tier_name(t->setup.state_tier), zinf_tier_name(t->setup.grad_tier));
    fputc('\n', out);
    if (t->setup.param_tier != ZINF_TIER_DEVICE)
        fprintf(out,
                "plan: look-ahead %d, %d of %d fetched units with a device slot of their own\n",
                c->look_ahead, n_fetched(t, (uint32_t)c->n_own), n_fetched(t, t->setup.n_units));
    if (updates_there(t) > 0)
        fprintf(out, "plan: the device updates %u of %u units itself\n", updates_there(t),
                t->setup.n_units);
    if (t->setup.n_micro > 1)
        fprintf(out, "plan: %lld micro-batches, %s\n", (long long)t->setup.n_micro,
                t->plan.layer_major ? "all through a layer before the next layer"
                                    : "one after the other through all layers");
    if (t->setup.options.mode != ZINF_TRAINER_FORWARD)
        fprintf(out,
                "plan: %d of %u blocks keep their activations, the others recompute; "
                "head %s\n",
                c->n_kept, t->setup.n_layers,
                c->head_all ? "in one pass" : "by tiles, logits computed twice");
    return zinf_ledger_print(t->plan.ledger, t->setup.budget, out);
}
