/*
 * setup: from options to facts. The order matters: the optimizer decides how the model is cut into
 * units, the device what the CPU can do with its memory, both whether steps can outlive the
 * process, and that what a plan may fill.
 */
#include "train/estimate.h"
#include "train/op.h"
#include "train/setup.h"
#include "train/setup_rates.h"

#include <stdlib.h>

/* ---- words of the configuration; it has checked them ---- */

const char *schedule_name(enum schedule schedule)
{
    static const char *const names[] = {
        "auto", "serial", "prefetch", "update-in-forward", "update-in-backward", "update-in-place"};
    return names[schedule];
}

/* Places of words that no field keeps. */
struct places {
    int placement, x_device, durability, pack;
};

/* Enums have their members in the order of the configuration's words. */
static int read_words(struct setup *s, struct places *places)
{
    const struct zinf_config *c = s->config;
    int fetch, order, recompute, engine, updater, gather, schedule;
    const struct {
        const char *key, *word;
        int *place;
    } words[] = {
        {"zinf.expert_fetch", c->expert_fetch, &fetch},
        {"zinf.accumulation_order", c->accumulation_order, &order},
        {"zinf.activation_checkpointing", c->activation_checkpointing, &recompute},
        {"zinf.io_engine", c->io_engine, &engine},
        {"zinf.optimizer_device", c->optimizer_device, &updater},
        {"zinf.gather", c->gather, &gather},
        {"zinf.schedule", c->schedule, &schedule},
        {"zinf.placement", c->placement, &places->placement},
        {"zinf.activation_device", c->activation_device, &places->x_device},
        {"zinf.durability", c->durability, &places->durability},
        {"zinf.pack", c->pack, &places->pack},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int code = zinf_config_key_word(words[i].key, words[i].word, words[i].place);
        if (code)
            return code;
    }
    s->expert_fetch = (enum expert_fetch)fetch;
    s->order = (enum accumulation_order)order;
    s->recompute = (enum recompute)recompute;
    s->io_engine = (enum zinf_aio_engine)engine;
    s->wanted = (enum schedule)schedule;
    s->offers_updates = updater;
    s->may_link = gather != 1; /* "host" */
    s->must_link = gather == 2;
    return 0;
}

/* ---- where things live ---- */

static enum zinf_tier tier_of(enum zinf_place place)
{
    static const enum zinf_tier tiers[] = {ZINF_TIER_DEVICE, ZINF_TIER_HOST, ZINF_TIER_DRIVE};
    return tiers[place];
}

static void choose_tiers(struct setup *s, const struct places *places)
{
    const int placement = places->placement, x_device = places->x_device;
    static const enum zinf_tier x_tiers[] = {ZINF_TIER_DEVICE, ZINF_TIER_DEVICE, ZINF_TIER_HOST,
                                             ZINF_TIER_DRIVE};
    const struct zinf_config *c = s->config;
    s->param_tier = tier_of(c->offload_param.device);
    s->state_tier = trains(s) ? tier_of(c->offload_optimizer.device) : ZINF_TIER_HOST;
    s->grad_tier = trains(s) ? tier_of(c->grad_device) : ZINF_TIER_HOST;
    if (!trains(s) && s->param_tier == ZINF_TIER_DEVICE && !s->must_link)
        s->sliced = false; /* nothing is saved by it but what the device has room for anyway */
    s->x_tier = x_tiers[x_device];
    if (c->cpu_checkpointing && s->x_tier != ZINF_TIER_DRIVE)
        s->x_tier = ZINF_TIER_HOST;
    s->x_is_open = !x_device && !c->cpu_checkpointing;
    s->form = c->dtype == ZINF_DTYPE_F32    ? ZINF_STATE_BARE
              : c->dtype == ZINF_DTYPE_BF16 ? ZINF_STATE_SPLIT
                                            : ZINF_STATE_WHOLE;
    bool drives = s->param_tier == ZINF_TIER_DRIVE || s->state_tier == ZINF_TIER_DRIVE ||
                  s->grad_tier == ZINF_TIER_DRIVE;
    s->fills = placement == 2 || (placement == 0 && (c->host_memory || drives));
}

static int check_tiers(const struct setup *s)
{
    if (trains(s) && s->grad_tier != s->state_tier &&
        !(s->grad_tier == ZINF_TIER_HOST && s->state_tier == ZINF_TIER_DRIVE))
        return zinf_fail(-EINVAL,
                         "gradients on the %s tier with optimizer state on the %s tier: set "
                         "zinf.grad_device to that of offload_optimizer, or to cpu beside nvme",
                         zinf_tier_name(s->grad_tier), zinf_tier_name(s->state_tier));
    bool there = s->state_tier == ZINF_TIER_DEVICE || s->config->offload_optimizer.ratio < 1;
    if (trains(s) && there && device_is_far(s) && !setup_device_steps(s))
        return zinf_fail(-ENOTSUP,
                         "%s updates only Adam and AdamW with fp32 moments: set "
                         "zero_optimization.offload_optimizer.device to cpu or nvme, and its "
                         "ratio to 1",
                         s->device->name);
    if (trains(s) && s->state_tier == ZINF_TIER_DEVICE && s->param_tier != ZINF_TIER_DEVICE &&
        device_is_far(s))
        zinf_log_once(
            ZINF_LOG_INFO, "parameters of trained units",
            "offload_param.device moves frozen parameters alone: trained ones stay on the "
            "device, which updates them, until offload_optimizer.device is cpu or nvme");
    return 0;
}

bool setup_uses_drive(const struct setup *s)
{
    return s->param_tier == ZINF_TIER_DRIVE || s->state_tier == ZINF_TIER_DRIVE ||
           s->grad_tier == ZINF_TIER_DRIVE || s->x_tier == ZINF_TIER_DRIVE;
}

const struct zinf_config_offload *setup_drives(const struct zinf_config *c)
{
    const struct zinf_config_offload *state = &c->offload_optimizer, *param = &c->offload_param;
    bool first = state->device == ZINF_PLACE_NVME || !param->n_nvme_paths;
    return first && state->n_nvme_paths ? state : param;
}

/* ---- rows of a micro-batch: of whole sequences, or new ones of sequences that are continued ----
 */

static int check_length(const char *option, int64_t n, int64_t context)
{
    if (n >= 1 && n <= context)
        return 0;
    return zinf_fail(-EINVAL, "%s %lld: the model's context is %lld (see its config.json)", option,
                     (long long)n, (long long)context);
}

static int set_shape(struct setup *s)
{
    int64_t context = zinf_model_facts(s->model)->context;
    s->batch = s->config->micro_batch * (s->options.pairs          ? 2
                                         : s->options.together > 1 ? s->options.together
                                                                   : 1);
    s->seq = setup_sequence(s);
    int64_t source = s->options.source_len ? s->options.source_len : s->config->source_length;
    s->source_seq = source ? source : s->seq;
    int code = check_length("--seq-len", s->seq, context);
    s->rows = (uint64_t)(s->batch * s->seq);
    return code ? code : check_length("--source-len", s->source_seq, context);
}

/* A call's rows are those of one sample, whatever sequences they belong to. */
static int set_decoding(struct setup *s)
{
    const struct zinf_decode_shape *d = &s->options.decode;
    int64_t context = zinf_model_facts(s->model)->context;
    if (has_backward(s) || d->sequences < 1 || d->rows < d->sequences)
        return zinf_fail(-EINVAL, "%lld sequences continued by %lld rows at once",
                         (long long)d->sequences, (long long)d->rows);
    if (d->sources && (d->sources < 0 || d->source_rows < d->source_capacity))
        return zinf_fail(-EINVAL, "%lld sources of %lld tokens by %lld rows at once",
                         (long long)d->sources, (long long)d->source_capacity,
                         (long long)d->source_rows);
    s->decoding = (struct zinf_decoding){
        .n_sequences = d->sequences,
        .capacity = d->capacity,
        .most_rows = d->rows,
        .n_sources = d->sources,
        .source_capacity = d->source_capacity,
        .most_source_rows = d->sources ? d->source_rows : 0,
    };
    s->batch = 1;
    s->seq = d->rows;
    s->source_seq = d->sources ? d->source_rows : d->rows;
    s->rows = (uint64_t)d->rows;
    int code = check_length("sequences of", d->capacity, context);
    return code || !d->sources ? code : check_length("sources of", d->source_capacity, context);
}

/* Numbers of tokens and of micro-batches that what runs a step can count. With chunks there are
 * more micro-batches than the configuration says: setup_check_chunks. */
static int check_counts(const struct setup *s)
{
    const int64_t longest = s->seq > s->source_seq ? s->seq : s->source_seq;
    if (s->n_chunks > 1)
        return 0;
    if (s->batch > INT32_MAX / longest)
        return zinf_fail(-EINVAL,
                         "train_micro_batch_size_per_gpu %lld: %lld sequences of %lld tokens are "
                         "more than %d tokens at once: lower it (--micro-batch)",
                         (long long)s->config->micro_batch, (long long)s->batch, (long long)longest,
                         INT32_MAX);
    if (s->n_micro > MOST_MICROS)
        return zinf_fail(-EINVAL,
                         "gradient_accumulation_steps %lld: a step has at most %d micro-batches: "
                         "raise train_micro_batch_size_per_gpu (--micro-batch), or lower "
                         "train_batch_size (--global-batch)",
                         (long long)s->n_micro, MOST_MICROS);
    return 0;
}

static int choose_shape(struct setup *s)
{
    int code = s->options.decode.sequences ? set_decoding(s) : set_shape(s);
    if (code)
        return code;
    setup_cut_sequences(s);
    code = setup_check_context(s);
    if (!code)
        code = setup_check_chunks(s);
    return code ? code : check_counts(s);
}

/* ---- model and device ---- */

/* The first key that adds something to cross-entropy; NULL: none does. */
static const char *has_more_loss(const struct zinf_config *c)
{
    return c->label_smoothing > 0 ? "zinf.label_smoothing"
           : c->z_loss > 0        ? "zinf.z_loss"
           : c->max_z_loss > 0    ? "zinf.max_z_loss"
                                  : NULL;
}

/* A number has no labels to smooth. */
static int check_objective(const struct setup *s)
{
    const struct zinf_config *c = s->config;
    const bool number = s->graph->values[s->graph->targets].element == ZINF_ELEMENT_F32;
    if (!number || !trains(s) || !has_more_loss(c))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s is of the loss of tokens and classes, and %s learns a number: set it to 0",
                     has_more_loss(c), s->options.model_path);
}

/* What calls of stages are told, of a chunk in the middle. */
static void set_compute(struct setup *s)
{
    s->compute = (struct zinf_compute){
        .dtype = s->dtype,
        .float8 = !strcmp(s->config->matmul_type, "fp8"),
        .batch = s->batch,
        .seq = s->chunk_seq,
        .source_seq = s->chunk_source,
        .chunk = {.whole = s->n_chunks > 1 ? s->seq : 0,
                  .first = s->n_chunks / 2 * s->chunk_seq, /* walk_sizes.c takes the mean of all */
                  .near_end = (s->n_chunks / 2 + 1) * s->chunk_seq,
                  .begins = true,
                  .ends = true,
                  .n = s->n_chunks,
                  .parts = s->n_parts,
                  .source_whole = s->source_seq,
                  .visited = s->n_chunks},
        .train = trains(s),
        .seed = s->options.seed,
        .objective = {(float)s->config->label_smoothing, (float)s->config->z_loss,
                      (float)s->config->neftune_alpha, (float)s->config->max_z_loss},
        .decoding = s->decoding.n_sequences ? &s->decoding : NULL,
    };
}

/* The model as it is to be trained. */
static int read_model(struct setup *s)
{
    int code = zinf_model_open(&s->model, s->options.model_path);
    if (!code && s->options.n_layers)
        code = zinf_model_set_layers(&s->model, s->options.n_layers);
    if (!code && s->options.classes)
        code = zinf_model_set_classes(s->model, s->options.classes);
    if (!code)
        code = zinf_model_set_head(s->model, s->options.head);
    if (!code && s->grain == GRAIN_TENSORS)
        code = zinf_model_join_tiles(s->model);
    if (!code && s->config->dropout >= 0)
        code = zinf_model_set_dropout(s->model, (float)s->config->dropout);
    if (!code && s->options.packed)
        code = zinf_model_set_packed(s->model);
    if (!code)
        code = setup_cut_model(s);
    if (!code)
        code = setup_quantize(s);
    if (!code)
        code = setup_adapt(s);
    if (!code)
        code = setup_freeze(s);
    return code ? code : setup_pairs(s);
}

static int open_model(struct setup *s)
{
    int code = read_model(s);
    if (code)
        return code;
    s->dtype = s->config->dtype;
    s->n_micro = trains(s) ? s->config->accumulation : 1;
    s->graph = s->stages = zinf_model_stages(s->model);
    s->whole = zinf_model_whole(s->model);
    s->n_units = s->graph->n_units;
    code = setup_check_quantized(s);
    if (!code)
        code = check_objective(s);
    if (!code)
        code = setup_rates(s);
    if (!code)
        code = zinf_file_map_create(&s->files, s->whole);
    if (!code)
        code = choose_shape(s);
    if (!code) /* chunks have sums that are those of any number of ranks */
        code = setup_place_matrices(s);
    if (!code)
        code = setup_deal_updates(s);
    set_compute(s);
    return code;
}

static bool wants_tf32(const struct setup *s)
{
    return !strcmp(s->config->matmul_type, "tf32");
}

/* A CPU makes products of fp32 as they are, which is no worse. */
static int check_tf32(const struct setup *s)
{
    if (!wants_tf32(s) || s->device->has_tf32)
        return 0;
    if (s->device->kind == ZINF_DEVICE_CUDA)
        return zinf_fail(
            -ENOTSUP,
            "zinf.matmul_type \"tf32\": %s has no units for TF32, which GPUs have from "
            "sm_80 (Ampere) on: leave the key out",
            s->device->name);
    zinf_log_once(ZINF_LOG_INFO, "tf32",
                  "zinf.matmul_type \"tf32\" changes nothing on a CPU: products of fp32 are as "
                  "without the key");
    return 0;
}

/* A slice of a matrix would have a scale of its own. */
static int check_float8(const struct setup *s)
{
    static const char key[] = "zinf.matmul_type \"fp8\"";
    if (!s->compute.float8)
        return 0;
    if (s->dtype != ZINF_DTYPE_BF16)
        return zinf_fail(-EINVAL,
                         "%s makes products of bf16 parameters alone: set \"bf16\": {\"enabled\": "
                         "true}, or leave it out",
                         key);
    if (s->config->mesh[ZINF_TENSOR] > 1 || s->config->tensor_parts > 1)
        return zinf_fail(-EINVAL,
                         "%s needs whole matrices: set zinf.tensor_parts and zinf.mesh.tensor to 1",
                         key);
    if (!s->device->has_float8)
        return zinf_fail(
            -ENOTSUP,
            "%s: %s multiplies no floats of 8 bits, which GPUs do from sm_89 (Ada) on: "
            "leave it out",
            key, s->device->name);
    return 0;
}

bool setup_lists_products(const struct setup *s)
{
    return trains(s) && s->device->products_by;
}

/* Of ranks with stages of the model the last has the one. */
static bool makes_logits(const struct zinf_graph *stages)
{
    bool makes = false;
    for (uint32_t i = 0; i < stages->n_stages; i++)
        makes |= stages->stages[i].ops->row != NULL;
    return makes;
}

/* What the model's stages take, on this device. */
static int walk_model(struct setup *s)
{
    int code = check_tf32(s);
    if (!code)
        code = check_float8(s);
    if (!code)
        code = setup_cut_stages(s);
    if (code)
        return code;
    if (setup_lists_products(s))
        s->device->ops->products_note(s->device, &s->products);
    code = walk_init(&s->walk, s->graph, &s->compute, has_backward(s));
    if (setup_lists_products(s))
        s->device->ops->products_note(s->device, NULL);
    if (!code && s->decoding.n_sequences && !makes_logits(s->stages))
        code =
            zinf_fail(-ENOTSUP, "%s makes no logits to continue a text by", s->options.model_path);
    if (!code && s->walk.n_kinds > MAX_STAGE_SORTS)
        code = zinf_fail(-ENOTSUP, "%s has %u sorts of stages; at most %d are possible",
                         s->options.model_path, s->walk.n_kinds, (int)MAX_STAGE_SORTS);
    return code;
}

static int describe_gpu(struct setup *s, int n_threads)
{
    struct zinf_device_description gpu = {.memory_bytes = s->config->device_memory,
                                          .n_threads = n_threads};
    if (!gpu.memory_bytes)
        return zinf_fail(-ENODEV, "no GPU is here to look at: say how large it is "
                                  "(--device-memory 24GiB)");
    return zinf_device_describe(&s->device, &gpu);
}

/* Instead of what is here; the host device as it would be with that many threads. */
static int open_described(struct setup *s, const struct zinf_described_machine *machine)
{
    int64_t given = s->config->threads;
    int shared = machine->n_threads / (int)setup_local_ranks(s);
    int threads = given > 0 ? (int)given : shared > 1 ? shared : 1;
    const struct zinf_device_description gpu = {.name = machine->name,
                                                .memory_bytes = machine->gpu_bytes,
                                                .capability = machine->capability,
                                                .n_threads = threads};
    struct zinf_device_options host = {.kind = ZINF_DEVICE_HOST, .n_threads = threads};
    return machine->gpu_bytes && s->options.device != ZINF_DEVICE_HOST
               ? zinf_device_describe(&s->device, &gpu)
               : zinf_device_create(&s->device, &host);
}

static int open_device(struct setup *s, bool plan_only)
{
    if (s->options.described) {
        int described = open_described(s, s->options.described);
        s->compute.device = s->device;
        return described;
    }
    struct zinf_device_options options = {
        .kind = s->options.device, .n_threads = setup_own_threads(s), .tf32 = wants_tf32(s)};
    setup_choose_gpu(s, &options);
    int code = zinf_device_create(&s->device, &options);
    if (code && plan_only && options.kind == ZINF_DEVICE_CUDA)
        code = describe_gpu(s, options.n_threads);
    s->compute.device = s->device;
    return code;
}

/* ---- steps ---- */

/* A device that is the host has its memory in common with drive and CPU, unless the configuration
 * wants copies. */
static void find_reach(struct setup *s)
{
    bool common = s->config->direct && s->device->host_addressable;
    for (int actor = 0; actor < ACTORS; actor++)
        s->reach[actor][ON_DEVICE] = s->reach[actor][ON_HOST] = common;
    s->reach[BY_DRIVE][ON_HOST] = s->reach[BY_CPU][ON_HOST] = s->reach[BY_DEVICE][ON_DEVICE] = true;
    s->reach[BY_CPU][OTHERS_HOST] = data_axis(s)->net;
    s->reach[BY_DEVICE][OTHERS_HOST] = s->sliced && !common && zinf_net_lends(data_axis(s)->net);
}

static void choose_step(struct setup *s)
{
    bool speculates = s->wanted == SCHEDULE_AUTO || s->wanted == SCHEDULE_UPDATE_IN_BACKWARD;
    find_reach(s);
    s->generations = speculates ? 2 : 1;
    s->in_place = trains(s) && s->wanted == SCHEDULE_UPDATE_IN_PLACE;
}

/* An update that is made before the norm is known must not depend on it. */
static int check_in_place(const struct setup *s)
{
    const struct zinf_config *c = s->config;
    if (!s->in_place)
        return 0;
    if (c->gradient_clipping > 0)
        return zinf_fail(-EINVAL,
                         "zinf.schedule \"update-in-place\" updates before the norm of the "
                         "gradient is known: set gradient_clipping to 0, or choose "
                         "\"update-in-backward\"");
    if (c->dtype == ZINF_DTYPE_F16)
        return zinf_fail(-EINVAL, "zinf.schedule \"update-in-place\" cannot skip a step that "
                                  "overflows: set bf16.enabled instead of fp16.enabled, or choose "
                                  "\"update-in-backward\"");
    return 0;
}

/* Why steps cannot outlive the process; NULL: they can. */
static const char *hindrance(const struct setup *s, bool asked)
{
    if (s->state_tier != ZINF_TIER_DRIVE)
        return "the optimizer state is not on a drive (offload_optimizer.device)";
    if (s->config->offload_optimizer.ratio < 1)
        return "a part of the optimizer state is on the device (offload_optimizer.ratio)";
    if (!s->config->checksums)
        return "zinf.checksums is false";
    if (s->in_place)
        return "zinf.schedule updates in place";
    if (!asked && s->param_tier != ZINF_TIER_DRIVE)
        return "parameters would be written twice";
    if (!asked && s->generations != 2)
        return "zinf.schedule keeps one generation";
    return NULL;
}

static void choose_durability(struct setup *s, int wanted, bool plan_only)
{
    enum { AUTO, NONE, STEP };
    bool recovers = s->options.run && !s->options.anew, asked = wanted == STEP || recovers;
    if (!trains(s) || !(s->options.run || plan_only) || wanted == NONE)
        return;
    const char *why_not = hindrance(s, asked);
    s->durable = !why_not;
    if (s->durable) {
        s->durable_copies = s->param_tier != ZINF_TIER_DRIVE;
        s->durability_is_open = !asked && s->fills;
        s->generations = 2;
    } else if (asked) {
        zinf_log_once(
            ZINF_LOG_WARN, "durability",
            "zinf.durability is \"step\", but %s: after a crash this run continues from its "
            "last checkpoint (--save-every)",
            why_not);
    }
}

/* Without vector instructions packing is slower than any drive. */
static void choose_packing(struct setup *s, int wanted)
{
    enum { AUTO, OFF, STATE, ALL };
    const bool all =
        wanted != STATE && (s->param_tier == ZINF_TIER_DRIVE || s->grad_tier == ZINF_TIER_DRIVE);
    const bool state = s->state_tier == ZINF_TIER_DRIVE;
    s->pack_is_open = wanted == AUTO;
    if (trains(s) && wanted != OFF && (wanted != AUTO || zinf_isa() >= ZINF_ISA_AVX2))
        s->may_pack = all ? PACK_ALL : state ? PACK_STATE : PACK_OFF;
}

/* Filling leaves what the system needs, and to a device whose memory is the same RAM its own: what
 * is named for it, else half. */
static void set_fill(struct setup *s)
{
    const struct zinf_config *c = s->config;
    uint64_t ram = setup_without_system(s->ram_bytes), device = 0;
    if (s->options.described)
        ram = s->ram_bytes; /* without the system's already */
    if (s->device->kind == ZINF_DEVICE_HOST)
        device = c->device_memory ? c->device_memory : ram / 2;
    s->common_bytes = s->device->kind == ZINF_DEVICE_HOST ? s->ram_bytes : UINT64_MAX;
    s->fill_bytes = c->host_memory ? s->budget[ZINF_MEMORY_HOST] : ram > device ? ram - device : 0;
}

/* A budget may not be larger than the memory of the machine that is described. */
static int check_described(const struct setup *s)
{
    const struct zinf_described_machine *m = s->options.described;
    char asked[16], there[16];
    bool device = m->gpu_bytes && s->config->device_memory > m->gpu_bytes;
    if (!device && s->config->host_memory <= m->ram_bytes)
        return 0;
    zinf_size_format(asked, sizeof asked,
                     device ? s->config->device_memory : s->config->host_memory);
    zinf_size_format(there, sizeof there, device ? m->gpu_bytes : m->ram_bytes);
    return zinf_fail(-ENOMEM, "%s is %s, and %s has %s%s: lower it",
                     device ? "zinf.device_memory (--device-memory)"
                            : "zinf.host_memory (--host-memory)",
                     asked, m->name, there, device ? "" : " of RAM");
}

/* What there is now: plans that are made later compare, and are made, by the same figures. */
static int set_budgets(struct setup *s)
{
    const struct zinf_config *c = s->config;
    int code = s->options.described ? check_described(s) : 0;
    if (code)
        return code;
    s->resident_bytes = setup_resident_bytes(s);
    s->ram_bytes = setup_ram_bytes(s);
    s->budget[ZINF_MEMORY_HOST] = c->host_memory ? c->host_memory / setup_seats(s) : s->ram_bytes;
    s->budget[ZINF_MEMORY_DEVICE] = setup_device_budget(s);
    if (!c->device_memory && s->device->kind == ZINF_DEVICE_HOST)
        s->budget[ZINF_MEMORY_DEVICE] = s->ram_bytes / 10 * 7;
    s->budget[ZINF_MEMORY_DRIVE] = UINT64_MAX; /* the store checks free space itself */
    code = setup_agree(s);
    set_fill(s);
    return code;
}

/* Up to the sizes of the model's stages. */
static int begin(struct setup *s, const struct zinf_trainer_options *options, bool plan_only,
                 struct places *places)
{
    *s = (struct setup){.options = *options, .config = options->config};
    int code = setup_take_net(s);
    if (!code)
        code = setup_optimizer(s);
    if (!code)
        code = read_words(s, places);
    if (code)
        return code;
    choose_tiers(s, places);
    code = open_model(s);
    if (!code)
        code = open_device(s, plan_only);
    if (!code) {
        s->compute.pace = setup_pace(s);
        s->bytes_a_flop = setup_bytes_a_flop(s);
        s->pack_work = setup_pack_work(s);
        choose_step(s);
        code = walk_model(s);
    }
    return code;
}

/* What ranks tell each other of their parts of matrices follows from the configuration, so one of
 * them finds what all would say. see: takes what another one along TENSOR says. */
static int see_described(struct setup *s, int (*see)(struct setup *s, struct setup *other))
{
    const struct zinf_axis *axis = tensor_axis(s);
    int code = 0;
    for (uint32_t rank = 0; !code && rank < axis->world; rank++) {
        struct zinf_trainer_options options = s->options;
        struct setup other;
        struct places places;
        if (rank == axis->rank)
            continue;
        options.tensor_rank = rank;
        code = begin(&other, &options, true, &places);
        if (!code)
            code = see(s, &other);
        setup_fini(&other);
    }
    return code;
}

static int see_sizes(struct setup *s, struct setup *other)
{
    return setup_take_sizes(s, other);
}

/* Call once the sizes of all are known. */
static int see_state(struct setup *s, struct setup *other)
{
    other->most_elems = calloc(s->n_units + 1, sizeof *other->most_elems);
    if (!other->most_elems)
        return zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
    for (uint32_t u = 0; u < s->n_units; u++)
        other->most_elems[u] = s->most_elems[u] > s->stages->units[u].elems
                                   ? s->most_elems[u]
                                   : s->stages->units[u].elems;
    const int code = setup_lay_out(other);
    return code ? code : setup_agree_state(s, other);
}

/* Cuts units, alike on all ranks along TENSOR. */
static int lay_out(struct setup *s)
{
    const bool several = tensor_axis(s)->world > 1;
    const bool described = several && zinf_net_is_described(s->mesh.all);
    int code = described ? see_described(s, see_sizes) : 0;
    if (!code)
        code = setup_lay_out(s);
    if (!code && described && s->uneven)
        code = see_described(s, see_state);
    else if (!code && several && !described)
        code = setup_agree_state(s, NULL);
    return code ? code : setup_state_work(s);
}

int setup_init(struct setup *s, const struct zinf_trainer_options *options, bool plan_only)
{
    struct places places;
    int code = begin(s, options, plan_only, &places);
    if (code)
        return code;
    s->sums_by_products = trains(s) && device_is_far(s) && s->config->time_products;
    choose_durability(s, places.durability, plan_only);
    choose_packing(s, places.pack);
    code = check_tiers(s);
    if (!code)
        code = setup_check_ranks(s);
    if (!code)
        code = setup_check_tensor(s);
    if (!code && context_axis(s)->world > 1 && s->walk.in_order)
        code = setup_find_neighbours(context_axis(s), s->handing);
    if (!code && s->options.pairs)
        code = setup_find_tellers(s);
    if (!code)
        code = check_in_place(s);
    if (!code)
        code = lay_out(s);
    if (!code)
        code = setup_savers(s);
    if (!code)
        code = set_budgets(s);
    if (!code)
        code = setup_find_codes(s);
    return code ? code : setup_find_files(s);
}

void setup_fini(struct setup *s)
{
    for (size_t i = 0; i < sizeof s->sharing / sizeof *s->sharing; i++)
        zinf_net_close(s->sharing[i]);
    zinf_net_close(s->handing[1]); /* a neighbour closes it as the one before it */
    zinf_net_close(s->handing[0]);
    zinf_net_close(s->telling);
    setup_free_pipe(s);
    zinf_mesh_fini(&s->mesh);
    if (s->cpu != s->device)
        zinf_device_destroy(s->cpu);
    zinf_device_destroy(s->device);
    setup_free_codes(s);
    setup_free_files(s);
    setup_free_updaters(s);
    setup_free_rates(s);
    zinf_layout_fini(&s->layout);
    walk_fini(&s->walk);
    free(s->products.items);
    zinf_file_map_destroy(s->files);
    zinf_model_close(s->model);
    free(s->most_elems);
    free(s->state_bytes);
    free(s->head_bytes);
    free(s->param_head_bytes);
    free(s->group_work);
    free(s->state_shares);
    free(s->state_expected);
    free(s->state_numbers);
    *s = (struct setup){0};
}
