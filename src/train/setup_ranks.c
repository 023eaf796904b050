/*
 * setup_ranks: what a setup knows of other ranks. All ranks make the same plan and the same
 * programs, each for its own slices, or they would not meet in collectives: so what plans follow
 * from is agreed here, before the first.
 */
#include "train/estimate.h"
#include "train/setup_rates.h"

#include <stdlib.h>

/* Sub-groups on a drive are tiles of tens of MiB, whatever sub_group_size says: 4 Mi elements are
 * 48 MiB of AdamW state. */
#define MAX_GROUP_ELEMS ((uint64_t)4 << 20)

/* As zinf.mesh says; the order is that of enum zinf_axis_kind. */
static int take_mesh(struct setup *s)
{
    uint32_t worlds[ZINF_AXES];
    for (int a = 0; a < ZINF_AXES; a++)
        worlds[a] = (uint32_t)s->config->mesh[a];
    worlds[ZINF_DATA] *= worlds[ZINF_CONTEXT];
    worlds[ZINF_CONTEXT] = 1; /* these are ranks along DATA, too */
    int code = zinf_mesh_init(&s->mesh, s->options.net, worlds);
    if (!code)
        code = setup_take_context(s);
    if (!code && s->mesh.all && zinf_net_is_described(s->mesh.all)) {
        s->mesh.at[ZINF_PIPE].rank = s->options.pipe_rank;
        s->mesh.at[ZINF_TENSOR].rank = s->options.tensor_rank;
    }
    return code;
}

int setup_take_net(struct setup *s)
{
    int code = take_mesh(s);
    s->sliced = data_axis(s)->net && s->config->zero_stage == 3;
    s->exact = s->mesh.all || !strcmp(s->config->gradient_sum, "tree");
    return code;
}

uint32_t setup_local_ranks(const struct setup *s)
{
    return s->mesh.all ? zinf_net_place(s->mesh.all).local_world : 1;
}

uint32_t setup_seats(const struct setup *s)
{
    return s->mesh.all ? zinf_net_place(s->mesh.all).seats : 1;
}

bool setup_is_one_process(const struct setup *s)
{
    const struct zinf_net *net = s->mesh.all;
    return !net || zinf_net_place(net).seats == zinf_net_place(net).world;
}

int setup_own_threads(const struct setup *s)
{
    int64_t asked = s->config->threads;
    int threads = zinf_optim_thread_count(0) / (int)setup_local_ranks(s);
    return asked > 0 ? (int)asked : threads > 1 ? threads : 1;
}

/* A launcher that gives each process GPUs of its own (srun --gpus-per-task) hides the others': they
 * count from 0 in each. */
static int number_of_gpu(const struct zinf_net_place *at)
{
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    int visible = mask && *mask ? zinf_device_cuda_count() : 0;
    bool own = visible >= (int)at->seats && visible < (int)at->local_world;
    return (int)(own ? at->seat : at->local_rank);
}

uint64_t setup_device_budget(const struct setup *s)
{
    if (s->config->device_memory)
        return s->config->device_memory;
    return s->device->kind == ZINF_DEVICE_HOST ? 0 : s->device->free_bytes / 20 * 19;
}

uint64_t setup_without_system(uint64_t ram_bytes)
{
    uint64_t gib = (uint64_t)1 << 30, kept = ram_bytes / 32;
    kept = kept < gib ? gib : kept > 8 * gib ? 8 * gib : kept;
    return ram_bytes - (kept < ram_bytes / 4 ? kept : ram_bytes / 4);
}

uint64_t setup_resident_bytes(const struct setup *s)
{
    const uint64_t given = s->options.resident_bytes;
    return s->options.described ? 0 : (given ? given : zinf_memory_resident()) / setup_seats(s);
}

uint64_t setup_ram_bytes(const struct setup *s)
{
    const uint64_t available = s->options.described
                                   ? setup_without_system(s->options.described->ram_bytes)
                                   : zinf_memory_available();
    return available / setup_local_ranks(s) + setup_resident_bytes(s);
}

void setup_choose_gpu(const struct setup *s, struct zinf_device_options *options)
{
    struct zinf_net_place at = {0};
    if (s->mesh.all)
        at = zinf_net_place(s->mesh.all);
    if (s->options.gpu)
        options->index = *s->options.gpu;
    else if (s->mesh.all &&
             options->kind != ZINF_DEVICE_HOST) /* AUTO is a GPU where there is one */
        options->index = number_of_gpu(&at);
}

/* ---- links ---- */

/* Why this rank's GPU cannot be linked to others'; NULL: it can. What an estimate describes could.
 */
static const char *no_link(const struct setup *s)
{
    if (!data_axis(s)->net)
        return "there is one rank alone";
    if (whole_state(s))
        return "sums of gradients are for every rank (an optimizer of whole tensors)";
    if (s->device->kind != ZINF_DEVICE_CUDA)
        return "only GPUs have a way to each other, and the device is the host";
    return zinf_net_is_described(s->mesh.all) ? NULL : zinf_link_why_not();
}

/* All ranks can, or none does. */
static int check_links(struct setup *s)
{
    const char *why_not = no_link(s);
    int64_t cannot = why_not != NULL;
    bool alone = !s->mesh.all || zinf_net_is_described(s->mesh.all);
    int code = s->may_link && !alone ? zinf_net_max(s->mesh.all, &cannot, 1) : 0;
    if (!code && cannot && s->must_link && data_axis(s)->net)
        code = zinf_fail(-ENOTSUP, "zinf.gather \"device\": %s; set it to auto or host",
                         why_not ? why_not : "another rank's host has no NCCL");
    s->may_link &= !cannot;
    s->must_link &= !cannot;
    return code;
}

/* ---- slices ---- */

/* Tensors of a coarse grain are not cut: their unit is one sub-group. */
static bool is_whole(const struct setup *s, uint32_t unit)
{
    bool whole = false;
    for (uint32_t i = 0; unit_trains(s, unit) && i < s->graph->units[unit].n_tensors; i++)
        whole |= setup_optimizer_of(s, unit, i)->rule->grain != GRAIN_ELEMENTS;
    return whole;
}

void setup_cuts(const struct setup *s, struct zinf_axis at[ZINF_AXES])
{
    memcpy(at, s->mesh.at, sizeof s->mesh.at);
    at[ZINF_CONTEXT] = (struct zinf_axis){.world = 1}; /* along DATA they have slices */
    if (whole_state(s))
        at[ZINF_DATA] = (struct zinf_axis){.world = 1};
}

static int lay_out(struct setup *s, uint64_t *elems, bool *whole)
{
    struct zinf_layout_options options = {.unit_elems = elems,
                                          .whole = whole,
                                          .n_units = s->n_units,
                                          .group_elems = (uint64_t)s->config->sub_group_size};
    setup_cuts(s, options.at);
    if (options.group_elems > MAX_GROUP_ELEMS)
        options.group_elems = MAX_GROUP_ELEMS;
    for (uint32_t u = 0; u < s->n_units; u++)
        elems[u] = s->graph->units[u].elems;
    int code = setup_agree_elems(s, elems);
    if (code)
        return code;
    for (uint32_t u = 0; u < s->n_units; u++) {
        whole[u] = is_whole(s, u);
        if (whole_state(s)) /* gradients are summed in slices, and brought together again */
            elems[u] = zinf_align_up(elems[u], (uint64_t)ZINF_LAYOUT_ALIGN * data_axis(s)->world);
    }
    return zinf_layout_init(&s->layout, &options);
}

int setup_lay_out(struct setup *s)
{
    uint64_t *elems = calloc(s->n_units, sizeof *elems);
    bool *whole = calloc(s->n_units, sizeof *whole);
    int code = elems && whole ? lay_out(s, elems, whole)
                              : zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
    free(elems);
    free(whole);
    for (uint32_t u = 0; !code && u < s->n_units; u++)
        s->layout.units[u].front_bytes = s->graph->units[u].image_bytes;
    return code ? code : setup_state_bytes(s);
}

/* ---- what there is no way for ---- */

/* Sums in a tree take the parts of a gradient one after the other, layer by layer. The other order
 * adds ranks before micro-batches, which rounds otherwise: it is taken where one asks for it, or
 * where nothing else fits. */
static int check_order(struct setup *s)
{
    if (!s->exact || s->n_micro < 2 || is_piped(s))
        return 0;
    if (s->order == ORDER_AUTO) {
        s->order = ORDER_LAYER_MAJOR;
        s->order_is_open = s->mesh.all != NULL && s->n_chunks == 1;
    }
    if (s->order == ORDER_LAYER_MAJOR && s->n_micro / s->own_chunks > MAX_LAYER_MAJOR)
        return zinf_fail(
            -ENOTSUP,
            "gradient_accumulation_steps %lld: with several ranks, or zinf.gradient_sum "
            "\"tree\", at most %d are possible; raise train_micro_batch_size_per_gpu, or "
            "set zinf.accumulation_order to micro-major and zinf.gradient_sum to auto",
            (long long)(s->n_micro / s->own_chunks), MAX_LAYER_MAJOR);
    if (s->order == ORDER_MICRO_MAJOR && !s->mesh.all && s->n_micro > 2)
        return zinf_fail(
            -ENOTSUP,
            "zinf.gradient_sum \"tree\" needs whole copies of the gradient where "
            "zinf.accumulation_order is \"micro-major\": set that to layer-major or auto");
    return 0;
}

int setup_check_ranks(struct setup *s)
{
    const struct zinf_config *c = s->config;
    int code = check_order(s);
    if (!code)
        code = check_links(s);
    if (code || !s->mesh.all)
        return code;
    if (s->options.mode == ZINF_TRAINER_GRADIENTS)
        return zinf_fail(-ENOTSUP, "several ranks train and evaluate: gradients to look at are one "
                                   "rank's");
    if (whole_state(s) && trains(s))
        zinf_log_once(ZINF_LOG_INFO, "whole state",
                      "optimizer %s: each rank has all of its state, which is small, "
                      "and makes all updates itself",
                      s->optimizers[0].rule->type);
    else if (c->zero_stage == 0 && trains(s))
        zinf_log_once(ZINF_LOG_INFO, "stage 0",
                      "zero_optimization.stage 0: each rank has its slice of the optimizer state "
                      "all the same, as at stage 1: the result is that of whole states");
    const bool on_devices =
        s->sliced && s->param_tier == ZINF_TIER_DEVICE && !s->reach[BY_CPU][ON_DEVICE];
    if (on_devices && s->may_link)
        s->must_link = true; /* there is no other way, whatever its rate */
    if (on_devices && !s->must_link)
        return zinf_fail(-ENOTSUP, "slices of parameters go between ranks through host memory: set "
                                   "zero_optimization.offload_param.device to cpu or nvme, or "
                                   "zinf.gather to device");
    return 0;
}

/* ---- facts of all machines ---- */

int setup_agree(struct setup *s)
{
    uint64_t *least[] = {&s->ram_bytes, &s->budget[ZINF_MEMORY_HOST],
                         &s->budget[ZINF_MEMORY_DEVICE]};
    int64_t most[4] = {(int64_t)s->resident_bytes};
    for (int i = 0; i < 3; i++)
        most[i + 1] = -(int64_t)*least[i];
    bool alone = !s->mesh.all || zinf_net_is_described(s->mesh.all);
    int code = alone ? 0 : zinf_net_max(s->mesh.all, most, 4);
    if (code || alone)
        return code;
    s->resident_bytes = (uint64_t)most[0];
    for (int i = 0; i < 3; i++)
        *least[i] = (uint64_t)-most[i + 1];
    return 0;
}
