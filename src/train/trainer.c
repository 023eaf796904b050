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
    const struct zinf_config *c = t->config;
    t->param_tier = tier_of(c->offload_param.device);
    t->state_tier = tier_of(c->offload_optimizer.device);
    t->grad_tier = tier_of(c->grad_device);
    if (t->options.mode != ZINF_TRAINER_TRAIN) {
        t->state_tier = ZINF_TIER_HOST;
        t->grad_tier = ZINF_TIER_HOST;
    }
    if (!strcmp(c->activation_device, "nvme"))
        t->x_tier = ZINF_TIER_DRIVE;
    else if (!strcmp(c->activation_device, "cpu") || c->cpu_checkpointing)
        t->x_tier = ZINF_TIER_HOST;
    t->form = c->dtype == ZINF_DTYPE_F32    ? ZINF_STATE_BARE
              : c->dtype == ZINF_DTYPE_BF16 ? ZINF_STATE_SPLIT
                                            : ZINF_STATE_WHOLE;
    t->fills = !strcmp(c->placement, "fill") || (!strcmp(c->placement, "auto") && c->host_memory);
}

static int check_tiers(const struct zinf_trainer *t)
{
    if (trains(t) && t->grad_tier != t->state_tier &&
        !(t->grad_tier == ZINF_TIER_HOST && t->state_tier == ZINF_TIER_DRIVE))
        return zinf_fail(-EINVAL,
                         "gradients on the %s tier with optimizer state on the %s tier: set "
                         "zinf.grad_device to that of offload_optimizer, or to cpu beside nvme",
                         zinf_tier_name(t->grad_tier), zinf_tier_name(t->state_tier));
    bool there = t->state_tier == ZINF_TIER_DEVICE || t->config->offload_optimizer.ratio < 1;
    if (trains(t) && there && device_is_far(t) && !trainer_device_steps(t))
        return zinf_fail(-ENOTSUP,
                         "%s updates only Adam and AdamW with fp32 moments: set "
                         "zero_optimization.offload_optimizer.device to cpu or nvme, and its "
                         "ratio to 1",
                         t->device->name);
    return 0;
}

static enum schedule wanted_schedule(const struct zinf_trainer *t)
{
    for (int i = SCHEDULE_SERIAL; i < SCHEDULES; i++)
        if (!strcmp(t->config->schedule, schedule_name((enum schedule)i)))
            return (enum schedule)i;
    return SCHEDULE_AUTO;
}

static void choose_order(struct zinf_trainer *t)
{
    const char *order = t->config->accumulation_order;
    bool possible = t->n_micro > 1 && t->n_micro <= MAX_LAYER_MAJOR;
    bool moves = t->param_tier != ZINF_TIER_DEVICE || t->grad_tier != ZINF_TIER_DEVICE;
    bool better = moves && !t->wish.micro_major;
    t->layer_major =
        possible && (!strcmp(order, "layer-major") || (!strcmp(order, "auto") && better));
    t->n_x_micros = t->layer_major ? t->n_micro : 1;
}

/* What the step does, but for sizes. */
static void choose_step(struct zinf_trainer *t)
{
    t->direct = t->config->direct && t->device->host_addressable;
    t->wanted = wanted_schedule(t);
    t->schedule = SCHEDULE_SERIAL;
    t->generations = t->wanted == SCHEDULE_AUTO || t->wanted == SCHEDULE_UPDATE_IN_BACKWARD ? 2 : 1;
}

static int open_model(struct zinf_trainer *t)
{
    int code = zinf_model_open(&t->model, t->options.model_path);
    if (!code && t->options.n_layers)
        code = zinf_model_set_layers(&t->model, t->options.n_layers);
    if (!code && t->moments == MOMENTS_FACTORED)
        code = zinf_model_join_tiles(t->model);
    if (code)
        return code;
    t->spec_values = *zinf_model_spec(t->model);
    if (t->config->dropout >= 0) {
        float p = (float)t->config->dropout;
        t->spec_values.embedding_dropout = p;
        t->spec_values.residual_dropout = p;
        t->spec_values.attention_dropout = p;
    }
    t->spec = &t->spec_values;
    t->n_units = (uint32_t)zinf_model_n_units(t->model);
    t->n_layers = (uint32_t)t->spec->n_layers;
    t->dtype = t->config->dtype;
    t->batch = t->config->micro_batch;
    t->n_micro = t->options.mode == ZINF_TRAINER_TRAIN ? t->config->accumulation : 1;
    t->seq = t->options.seq_len;
    if (!t->seq)
        t->seq = t->spec->context < 1024 ? t->spec->context : 1024;
    if (t->seq < 1 || t->seq > t->spec->context)
        return zinf_fail(-EINVAL,
                         "--seq-len %lld: the model's context is %lld (n_positions in "
                         "config.json)",
                         (long long)t->seq, (long long)t->spec->context);
    t->rows = (uint64_t)(t->batch * t->seq);
    t->compute = (struct zinf_gpt2_compute){
        .spec = t->spec,
        .dtype = t->dtype,
        .batch = t->batch,
        .seq = t->seq,
        .train = t->options.mode == ZINF_TRAINER_TRAIN,
        .seed = t->options.seed,
    };
    return 0;
}

static int lay_out(struct zinf_trainer *t)
{
    uint64_t *elems = calloc(t->n_units, sizeof *elems), most = 0;
    if (!elems)
        return zinf_fail(-ENOMEM, "no memory for %u units", t->n_units);
    for (uint32_t u = 0; u < t->n_units; u++) {
        elems[u] = zinf_model_unit(t->model, (int)u)->elems;
        most = elems[u] > most ? elems[u] : most;
    }
    uint64_t group = (uint64_t)t->config->sub_group_size;
    group = group < MAX_GROUP_ELEMS ? group : MAX_GROUP_ELEMS;
    if (t->moments == MOMENTS_FACTORED) /* tensors are not cut */
        group = most;
    int code = zinf_layout_init(&t->layout, elems, t->n_units, group, 0, 1);
    free(elems);
    return code ? code : trainer_measure_state(t);
}

const struct zinf_config_offload *trainer_drives(const struct zinf_config *c)
{
    bool state = c->offload_optimizer.device == ZINF_PLACE_NVME;
    return state && c->offload_optimizer.n_nvme_paths ? &c->offload_optimizer : &c->offload_param;
}

static int open_store(struct zinf_trainer *t)
{
    if (t->param_tier != ZINF_TIER_DRIVE && t->state_tier != ZINF_TIER_DRIVE &&
        t->grad_tier != ZINF_TIER_DRIVE && t->x_tier != ZINF_TIER_DRIVE)
        return 0;
    const struct zinf_config_offload *section = trainer_drives(t->config);
    struct zinf_store_options counted = {.label = "plan", .plan_only = true};
    if (t->options.plan_only)
        return zinf_store_create(&t->store, &counted);
    const char *name = section == &t->config->offload_param ? "offload_param" : "offload_optimizer";
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
        .checksums = t->config->checksums,
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
    int64_t threads = t->config->threads;
    if (t->shadow_of) {
        t->compute.device = t->device = t->shadow_of->device;
        return 0;
    }
    struct zinf_device_options options = {.kind = t->options.device,
                                          .n_threads = threads > 0 ? (int)threads
                                                                   : zinf_optim_thread_count(0)};
    int code = zinf_device_create(&t->device, &options);
    if (code && t->options.plan_only && options.kind == ZINF_DEVICE_CUDA)
        code = trainer_describe_cuda(t);
    for (int lane = ZINF_LANE_H2D; !code && lane <= ZINF_LANE_DEVICE; lane++)
        code = t->device->ops->queue_create(t->device, kinds[lane], &t->queues[lane]);
    t->compute.device = t->device;
    t->compute.queue = t->queues[ZINF_LANE_DEVICE];
    return code;
}

static int take_arrays(struct zinf_trainer *t)
{
    size_t tiles = (size_t)zinf_model_n_tiles(t->model);
    t->kept = calloc((size_t)t->n_layers * (size_t)t->n_x_micros, sizeof *t->kept);
    t->heads = calloc((size_t)t->n_x_micros, sizeof *t->heads);
    t->tile_places = calloc(tiles, sizeof *t->tile_places);
    t->tile_weights = calloc(tiles, sizeof *t->tile_weights);
    t->tile_grads = calloc(tiles, sizeof *t->tile_grads);
    t->tile_sums = calloc(tiles, sizeof *t->tile_sums);
    t->deferred = calloc(t->n_units, sizeof *t->deferred);
    t->pending = calloc(t->n_units, sizeof *t->pending);
    if (!t->kept || !t->heads || !t->tile_places || !t->tile_weights || !t->tile_grads ||
        !t->tile_sums || !t->deferred || !t->pending)
        return zinf_fail(-ENOMEM, "no memory for the trainer's tables");
    t->head_rows = zinf_head_rows(t->spec, (int64_t)t->rows);
    return 0;
}

/* Copies overlap with what else there is only where the GPU knows the memory's pages. */
static void pin_host_memory(struct zinf_trainer *t)
{
    char size[16];
    if (!t->device->needs_pinned ||
        !t->device->ops->host_register(t->device, t->host.base, t->host.bytes))
        return;
    zinf_log(
        ZINF_LOG_WARN,
        "%s of host memory cannot be page-locked, and copies will not overlap; raise the limit "
        "on locked memory (ulimit -l): %s",
        zinf_size_format(size, sizeof size, t->host.bytes), zinf_error());
}

/* The first step is measured: it shall not be the one that waits for pages. */
static void touch_memory(struct zinf_trainer *t)
{
    if (!trains(t))
        return;
    zinf_memory_touch(t->host.base, t->host.bytes);
    if (t->device->host_addressable)
        zinf_memory_touch(t->device_base, t->device->memory_bytes);
}

static int take_memory(struct zinf_trainer *t)
{
    uint64_t device = zinf_ledger_arena_bytes(t->ledger, ZINF_MEMORY_DEVICE);
    uint64_t host = zinf_ledger_arena_bytes(t->ledger, ZINF_MEMORY_HOST);
    int code = zinf_device_take_memory(t->device, device);
    if (!code)
        code = zinf_arena_init(&t->host, host, "host memory");
    if (!code && t->store)
        code = zinf_store_allocate(t->store);
    if (code)
        return code;
    t->device_base = t->device->memory;
    trainer_place(t);
    trainer_place_state(t);
    touch_memory(t);
    pin_host_memory(t);
    t->device->ops->queue_set_workspace(t->queues[ZINF_LANE_DEVICE],
                                        device_at(t, t->at.d_workspace), t->sizes.workspace);
    for (uint64_t i = 0; i < t->rows; i++)
        t->h_positions[i] = (int32_t)(i % (uint64_t)t->seq);
    return durable_open(t);
}

static void set_io(struct zinf_trainer *t, struct zinf_aio_queue_options *queue)
{
    const struct zinf_config *c = t->config;
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
        .store = t->store,
        .trace_path = t->config->trace,
    };
    if (t->device->kind != ZINF_DEVICE_HOST) {
        options.device = t->device;
        memcpy(options.queues, t->queues, sizeof t->queues);
    }
    set_io(t, &options.read_queue);
    options.read_queue.faults = t->options.faults;
    options.write_queue = options.read_queue;
    if (t->store) {
        options.register_base = host_at(t, t->at.h_transfer);
        options.register_bytes = t->host.bytes - t->at.h_transfer;
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
    t->durable.wanted = of->durable.wanted;
    t->durable.copies = of->durable.copies;
    t->generations = of->generations;
    t->fills = of->fills;
}

static int create(struct zinf_trainer *t)
{
    int code = trainer_choose_optimizer(t);
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
        code = trainer_plan(t);
    if (!code && t->options.plan_only)
        return trainer_reserve(t);
    if (!code)
        code = take_memory(t);
    if (!code)
        code = trainer_build_programs(t);
    if (!code)
        code = start_executor(t);
    return code ? code : trainer_load(t);
}

static int create_by(struct zinf_trainer **out, const struct zinf_trainer_options *options,
                     const struct zinf_trainer *shadow_of, const struct wish *wish)
{
    struct zinf_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return zinf_fail(-ENOMEM, "no memory for a trainer");
    t->options = *options;
    t->shadow_of = shadow_of;
    t->wish = *wish;
    t->config = options->config;
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
    const struct wish usual = {.host_grads_part = 4};
    return create_by(out, options, NULL, &usual);
}

int trainer_create_shadow(struct zinf_trainer **out, const struct zinf_trainer *of,
                          const struct wish *wish)
{
    struct zinf_trainer_options options = of->options;
    options.plan_only = options.init = true;
    return create_by(out, &options, of, wish);
}

void zinf_trainer_destroy(struct zinf_trainer *t)
{
    if (!t)
        return;
    zinf_executor_destroy(t->executor);
    zinf_program_fini(&t->gradients);
    zinf_program_fini(&t->drain);
    zinf_program_fini(&t->wait);
    zinf_program_fini(&t->speculate);
    zinf_program_fini(&t->forward);
    zinf_program_fini(&t->logits);
    zinf_tiers_destroy(t->tiers);
    durable_close(t);
    zinf_store_destroy(t->store);
    for (int lane = 0; lane < ZINF_LANES; lane++)
        if (t->queues[lane])
            t->device->ops->queue_destroy(t->queues[lane]);
    if (!t->shadow_of)
        zinf_device_destroy(t->device);
    if (t->options.plan_only)
        trainer_unreserve(t);
    else
        zinf_arena_fini(&t->host);
    zinf_ledger_destroy(t->ledger);
    zinf_layout_fini(&t->layout);
    zinf_model_close(t->model);
    free(t->homes);
    free(t->state_bytes);
    free(t->x_extents);
    free(t->deferred);
    free(t->pending);
    free(t->heads);
    free(t->kept);
    free(t->tile_places);
    free(t->tile_weights);
    free(t->tile_grads);
    free(t->tile_sums);
    free(t);
}

const struct zinf_model *zinf_trainer_model(const struct zinf_trainer *t)
{
    return t->model;
}

int64_t zinf_trainer_seq_len(const struct zinf_trainer *t)
{
    return t->seq;
}

const char *zinf_trainer_device_name(const struct zinf_trainer *t)
{
    return t->device->name;
}

uint64_t zinf_trainer_planned_bytes(const struct zinf_trainer *t, int memory_tier)
{
    return zinf_ledger_total_bytes(t->ledger, (enum zinf_memory_tier)memory_tier);
}

static int n_fetched(const struct zinf_trainer *t, uint32_t end)
{
    int n = 0;
    for (uint32_t u = 0; u < end; u++)
        n += unit_is_fetched(t, u);
    return n;
}

/* Units whose updates the device makes. */
static uint32_t updates_there(const struct zinf_trainer *t)
{
    uint32_t n = 0;
    for (uint32_t u = 0; trains(t) && u < t->n_units; u++)
        n += t->homes[u].state == ZINF_TIER_DEVICE;
    return n;
}

int zinf_trainer_print_plan(const struct zinf_trainer *t, FILE *out)
{
    const struct choice *c = &t->choice;
    fprintf(out, "plan: %s, %llu parameters in %s: parameters on %s", t->device->name,
            (unsigned long long)zinf_model_n_params(t->model), zinf_dtype_name(t->dtype),
            zinf_tier_name(t->param_tier));
    if (t->options.mode == ZINF_TRAINER_TRAIN)
        fprintf(out, ", optimizer state on %s, gradients on %s", zinf_tier_name(t->state_tier),
                zinf_tier_name(t->grad_tier));
    fputc('\n', out);
    if (t->param_tier != ZINF_TIER_DEVICE)
        fprintf(out,
                "plan: look-ahead %d, %d of %d fetched units with a device slot of their own\n",
                c->look_ahead, n_fetched(t, (uint32_t)c->n_own), n_fetched(t, t->n_units));
    if (updates_there(t) > 0)
        fprintf(out, "plan: the device updates %u of %u units itself\n", updates_there(t),
                t->n_units);
    if (t->n_micro > 1)
        fprintf(out, "plan: %lld micro-batches, %s\n", (long long)t->n_micro,
                t->layer_major ? "all through a layer before the next layer"
                               : "one after the other through all layers");
    if (t->options.mode != ZINF_TRAINER_FORWARD)
        fprintf(out,
                "plan: %d of %u blocks keep their activations, the others recompute; "
                "head %s\n",
                c->n_kept, t->n_layers,
                c->head_all ? "in one pass" : "by tiles, logits computed twice");
    return zinf_ledger_print(t->ledger, t->budget, out);
}
