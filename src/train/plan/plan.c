/*
 * plan: from a setup and a variant to amounts that fill the budgets, the ledger that says what it
 * takes, and the place of everything.
 */
#include "formats/formats.h"
#include "train/plan/lines.h"
#include "train/step/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of experts: where fewer are left out, fetching does not wait until it is known which. */
#define LEAST_UNCHOSEN (1.0 / 64)
/* The address of arenas that are not allocated yet: above all that a process is given. */
#define NO_MEMORY ((char *)((uintptr_t)1 << (sizeof(uintptr_t) * 8 - 18)))

/* ---- what a plan is made of ---- */

bool plan_is_layer_major(const struct setup *s, const struct variant *variant)
{
    bool possible = s->n_micro > 1 && s->n_micro / s->own_chunks <= MAX_LAYER_MAJOR && !is_piped(s);
    bool moves = s->param_tier != ZINF_TIER_DEVICE || s->grad_tier != ZINF_TIER_DEVICE;
    /* A choice by budgets must not show in the sums. */
    bool better = moves && !variant->micro_major && !s->walk.order_counts;
    bool asked = s->order == ORDER_LAYER_MAJOR;
    return possible && (asked || (s->order == ORDER_AUTO && better));
}

static int take_arrays(struct plan *p)
{
    p->deferred = calloc(p->setup->n_units, sizeof *p->deferred);
    p->homes = calloc(p->setup->n_units, sizeof *p->homes);
    p->ways = calloc(p->setup->n_units, sizeof *p->ways);
    p->slot_size = calloc(p->setup->n_units, sizeof *p->slot_size);
    bool taken = p->deferred && p->homes && p->ways && p->slot_size;
    return taken ? 0 : zinf_fail(-ENOMEM, "no memory for a plan's tables");
}

static int take_store(struct plan *p)
{
    struct zinf_store_options options = {.label = "plan", .plan_only = true};
    int code = 0;
    if (!p->setup->store && setup_uses_drive(p->setup))
        code = zinf_store_create(&p->counted, &options);
    p->store = p->setup->store ? p->setup->store : p->counted;
    return code;
}

/* ---- choices ---- */

double plan_unchosen(const struct plan *p, uint32_t stage)
{
    const struct zinf_stage *s = &p->setup->graph->stages[stage];
    double ranks = p->setup->sliced ? data_axis(p->setup)->world : 1; /* any one's choice counts */
    double rows = (double)p->setup->rows * (double)p->itinerary.live * ranks;
    return pow(1 - (double)s->choice.n / (double)s->sweep.n, rows);
}

bool plan_keeps_chosen(const struct plan *p, uint32_t unit)
{
    /* another rank, which this one has not asked, may have chosen it */
    bool known = !data_axis(p->setup)->net || (p->setup->sliced && p->chosen_backward);
    /* a second contribution reads the first, also where the step has written none */
    return known && setup_turns(p->setup) == 1 && p->setup->walk.units[unit].chooser != WALK_NONE &&
           sums_on(p, unit, ZINF_TIER_DRIVE) && goes_once(p);
}

/* To wait for a choice is to fetch nothing ahead of it: worth it where enough is spared. Backward
 * knows the choices already. But where micro-batches go through the layers one after the other,
 * each would fetch anew what it cannot know to be there. */
static void choose_fetches(struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    bool together = goes_once(p);
    bool open = w->n_choices && together && p->setup->expert_fetch == EXPERT_FETCH_AUTO;
    double most = 0;
    for (uint32_t s = 0; s < w->graph->n_stages; s++)
        if (w->stages[s].choice != WALK_NONE)
            most = fmax(most, plan_unchosen(p, s));
    p->chosen_forward =
        p->setup->expert_fetch == EXPERT_FETCH_CHOSEN || (open && most >= LEAST_UNCHOSEN);
    p->chosen_backward =
        p->chosen_forward || (open && !data_axis(p->setup)->net); /* ranks must agree */
}

/* ---- lines ---- */

static int add_lines(struct plan *p)
{
    struct plan_lines l = {0};
    int code = plan_collect(p, &p->amounts, &l);
    for (int i = 0; !code && i < l.n; i++)
        code = zinf_ledger_add(p->ledger, l.line[i].tier, l.line[i].name, l.line[i].hint,
                               l.line[i].bytes, l.line[i].offset);
    free(l.line);
    return code;
}

/* What losses that compare samples keep of them. */
static int add_told(struct plan *p)
{
    const struct setup *s = p->setup;
    const uint64_t pairs = pairs_bytes(s), embeddings = embedded_bytes(s) + likeness_bytes(s);
    const char *hint = "gradient_accumulation_steps";
    int code =
        pairs ? zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "sums of pairs", hint, pairs)
              : 0;
    return code || !embeddings ? code
                               : zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST,
                                                         "embeddings of a step", hint, embeddings);
}

/* What sums over ranks take where their parts come from another process. */
static int add_pieces(struct plan *p)
{
    const struct setup *s = p->setup;
    const struct zinf_axis *data = data_axis(s), *tensor = tensor_axis(s);
    uint64_t unit = 0;
    for (uint32_t u = 0; u < s->n_units; u++)
        if (has_backward(s) && unit_trains(s, u) && s->layout.units[u].padded_elems > unit)
            unit = s->layout.units[u].padded_elems;
    const struct {
        const char *name;
        const struct zinf_axis *axis;
        uint64_t elems;
    } sums[] = {
        {"pieces of other ranks' gradients", data, unit / data->world},
        {"pieces of other ranks' gradients of keys", context_axis(s),
         (uint64_t)s->own_chunks * s->walk.carried[1] / sizeof(float)},
        {"pieces of other ranks' sums", tensor, s->walk.shared / sizeof(float) / tensor->world},
    };
    int code = 0;
    for (size_t i = 0; !code && i < sizeof sums / sizeof *sums; i++) {
        const struct zinf_net *net = sums[i].axis->net;
        const uint64_t bytes = net ? zinf_net_sum_bytes(net, sums[i].elems) : 0;
        if (bytes)
            code = zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, sums[i].name, NULL, bytes);
    }
    return code;
}

/* What the process holds already, and what is taken outside of the arenas later. */
static int add_process(struct plan *p, uint64_t operation_bytes)
{
    int code =
        zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "this program and its libraries", NULL,
                                p->setup->resident_bytes);
    if (!code)
        code = zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "panels of the BLAS",
                                       "--threads", p->setup->walk.outside);
    if (!code && operation_bytes)
        code = zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "operations of a step",
                                       p->setup->n_chunks > 1 ? "zinf.sequence_chunk"
                                                              : "gradient_accumulation_steps",
                                       operation_bytes);
    if (!code)
        code = add_told(p);
    if (!code)
        code = add_pieces(p);
    if (!code && has_backward(p->setup))
        /* one to write, and one to compare what was written */
        code = zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "saving: blocks of files", NULL,
                                       2 * (uint64_t)ZINF_TENSORS_WRITER_BYTES);
    return code;
}

/* The extents are planned. */
static int add_sums(struct plan *p)
{
    uint64_t planned = p->store ? zinf_store_planned_bytes(p->store) : 0;
    uint64_t bytes = plan_sums_bytes(p, planned + plan_files_bytes(p));
    return bytes ? zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "checksums of the drive",
                                           "zinf.checksums", bytes)
                 : 0;
}

/* The host device's arena is the same RAM: both together must be there. */
static int check_shared_ram(const struct plan *p)
{
    char need[16], have[16];
    uint64_t total = zinf_ledger_total_bytes(p->ledger, ZINF_MEMORY_DEVICE) +
                     zinf_ledger_total_bytes(p->ledger, ZINF_MEMORY_HOST);
    if (p->setup->device->kind != ZINF_DEVICE_HOST || total <= p->setup->ram_bytes)
        return 0;
    char *table = NULL;
    size_t table_bytes = 0;
    FILE *out = open_memstream(&table, &table_bytes);
    if (out) {
        zinf_ledger_print(p->ledger, p->setup->budget, out);
        fclose(out);
    }
    zinf_fail(-ENOMEM,
              "the plan does not fit: the host device's memory and host memory together need %s of "
              "%s available RAM; lower zinf.device_memory, or move more to nvme "
              "(offload_param.device, offload_optimizer.device)\n%s",
              zinf_size_format(need, sizeof need, total),
              zinf_size_format(have, sizeof have, p->setup->ram_bytes), table ? table : "");
    free(table);
    return -ENOMEM;
}

/* ---- tiers ---- */

static int add_carried_extents(struct plan *p)
{
    const uint64_t n = carried_homes(p, false);
    const uint64_t all = n + (has_backward(p->setup) ? carried_homes(p, true) : 0);
    const uint64_t bytes[] = {carried_home_bytes(p, false), carried_home_bytes(p, true)};
    int code = 0;
    p->carried_extents = calloc(all, sizeof *p->carried_extents);
    if (!p->carried_extents)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    for (uint64_t i = 0; !code && i < all; i++)
        if (bytes[i >= n])
            code = zinf_store_add_extent(p->store, bytes[i >= n], &p->carried_extents[i]);
    return code;
}

/* Of values that live on the drive between forward and backward. */
static int add_x_extents(struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    uint64_t n = (uint64_t)p->itinerary.live;
    int code = 0;
    p->x_extents = calloc(plan_n_leaving(p) * n + 1, sizeof *p->x_extents);
    if (!p->x_extents)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    uint32_t next = 0; /* a later value may share an earlier one's number, and so its extents */
    for (uint32_t v = 0; v < w->graph->n_values; v++) {
        const bool first = w->values[v].number == next;
        for (uint64_t m = 0; !code && m < n && first; m++)
            code = zinf_store_add_extent(p->store, w->values[v].bytes, &p->x_extents[next * n + m]);
        next += first;
    }
    const uint64_t kept_from = (w->n_leaving + w->n_places) * n;
    for (uint64_t i = w->n_leaving * n; !code && i < kept_from && i < plan_n_leaving(p) * n; i++)
        code = zinf_store_add_extent(p->store, w->places[i / n - w->n_leaving].bytes,
                                     &p->x_extents[i]);
    for (uint32_t s = 0; s < w->graph->n_stages; s++)
        for (uint64_t m = 0; !code && m < n && plan_kept_leaves(p, s); m++)
            code = zinf_store_add_extent(p->store, w->stages[s].kept,
                                         &p->x_extents[kept_from + w->stages[s].keeper * n + m]);
    const bool carried = carried_groups(p) > 1 && carried_tier(p) == ZINF_TIER_DRIVE;
    return code || !carried ? code : add_carried_extents(p);
}

/* Of what is read where it lies. A store that counts alone opens no files. */
static int add_file_extents(struct plan *p)
{
    const struct weight_files *w = p->setup->weights;
    uint32_t unused;
    int code = 0;
    if (!w || !p->store)
        return 0;
    p->files = calloc(w->n_units, sizeof *p->files);
    if (!p->files)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    for (uint32_t i = 0; !code && p->setup->store && i < w->n_paths; i++)
        code = zinf_store_open_file(p->store, w->paths[i], &unused);
    for (uint32_t u = 0; !code && u < w->n_units; u++)
        if (w->units[u].n_parts)
            code = zinf_store_add_files_extent(p->store, w->units[u].spans, w->units[u].n_spans,
                                               &p->files[u]);
    return code;
}

static int plan_tiers(struct plan *p)
{
    struct zinf_tiers_options tiers = {
        .layout = &p->setup->layout,
        .dtype = p->setup->dtype,
        .form = p->setup->form,
        .n_moments = trains(p->setup) ? setup_n_moments(p->setup) : -1,
        .state_bytes = p->setup->state_bytes,
        .head_bytes = p->setup->head_bytes,
        .param_head_bytes = p->setup->param_head_bytes,
        .image_bytes = p->setup->image_bytes,
        .param_copies = p->setup->durable_copies,
        .sliced = p->setup->sliced,
        .places = p->homes,
        .store = p->store,
    };
    int code = zinf_tiers_plan(&p->tiers, &tiers, p->ledger);
    const bool leave = plan_values_leave(p) && p->x_tier == ZINF_TIER_DRIVE;
    return code || !leave ? code : add_x_extents(p);
}

static int plan_memory(struct plan *p, uint64_t operation_bytes)
{
    int code = zinf_ledger_create(&p->ledger);
    if (!code)
        code = add_process(p, operation_bytes);
    if (code)
        return code;
    code = add_file_extents(p);
    if (code)
        return code;
    plan_measure(p);
    code = plan_choose(p);
    if (code)
        return code;
    choose_fetches(p);
    code = plan_tiers(p);
    if (!code)
        code = add_sums(p);
    if (!code)
        code = add_lines(p);
    if (!code)
        code = zinf_ledger_check(p->ledger, p->setup->budget);
    return code ? code : check_shared_ram(p);
}

int plan_lay_out(struct plan *p, const struct setup *setup, const struct variant *variant,
                 const struct plan_operations *operations)
{
    const bool all = plan_is_layer_major(setup, variant) || setup->n_chunks > 1;
    const int64_t together = is_piped(setup) ? setup->own_chunks : all ? setup->n_micro : 1;
    const struct grouping grouping = {setup->n_micro, together * setup_samples_together(setup),
                                      together};
    *p = (struct plan){
        .setup = setup,
        .variant = *variant,
        .travel = travel_of(setup, variant->by_link, variant->device_adds, variant->device_unpacks),
        .x_tier = setup->x_tier,
        .one_by_one = operations->one_by_one,
        .schedule = plan_first_schedule(setup),
    };
    int code = is_piped(setup) && has_backward(setup)
                   ? itinerary_make_pipe(&p->itinerary, &setup->walk, &grouping, pipe_axis(setup),
                                         setup->config->pipeline_overlap)
                   : itinerary_make(&p->itinerary, &setup->walk, setup->n_micro, together);
    if (!code)
        code = take_arrays(p);
    if (!code)
        code = take_store(p);
    if (!code)
        code = plan_memory(p, operations->bytes);
    if (code) {
        plan_fini(p);
        return code;
    }
    p->host_bytes = zinf_ledger_arena_bytes(p->ledger, ZINF_MEMORY_HOST);
    p->device_base = NO_MEMORY;
    p->host_base = NO_MEMORY + zinf_ledger_arena_bytes(p->ledger, ZINF_MEMORY_DEVICE);
    plan_place(p);
    return 0;
}

void plan_place(struct plan *p)
{
    zinf_tiers_place(p->tiers, p->device_base, p->host_base);
    p->norm_parts = (double *)(void *)host_at(p, p->at.h_scalars);
}

void *gradient_at(const struct plan *p, uint32_t value, int64_t micro)
{
    const struct walk *w = &p->setup->walk;
    uint32_t place = w->values[value].place;
    if (place == WALK_NONE || !w->values[value].flows)
        return NULL;
    const struct walk_place *at = &w->places[place];
    uint64_t copy = (uint64_t)(at->to_the_end ? micro : micro % p->itinerary.live);
    uint64_t offset = (uint64_t)p->setup->n_micro * at->end_before +
                      (uint64_t)p->itinerary.live * at->turn_before + copy * at->bytes;
    return device_at(p, p->at.d_gradients + offset);
}

void plan_add_rank(struct zinf_planned *all, uint32_t rank, const uint64_t bytes[3])
{
    for (int tier = 0; tier < ZINF_MEMORY_TIERS; tier++) {
        if (!rank || bytes[tier] > all->most[tier]) {
            all->most[tier] = bytes[tier];
            all->rank[tier] = rank;
        }
        if (!rank || bytes[tier] < all->least[tier])
            all->least[tier] = bytes[tier];
    }
}

/* An update that may have to be taken back needs a second generation, and where no update of a rank
 * has one, the schedules below remain. */
void plan_say_schedule(const struct plan *p, uint32_t rank)
{
    const enum schedule wanted = p->setup->wanted;
    char who[32] = "";
    if (wanted == SCHEDULE_AUTO || p->schedule == wanted || !trains(p->setup))
        return;
    if (p->setup->mesh.all)
        snprintf(who, sizeof who, "on rank %u ", rank);
    zinf_log_once(ZINF_LOG_WARN, "schedule",
                  "zinf.schedule is \"%s\", but steps run \"%s\", with the same results: %sno "
                  "update can be taken back, since none goes to a second generation beside the "
                  "old one; optimizer state on a drive has one "
                  "(zero_optimization.offload_optimizer.device \"nvme\"), and on a GPU also state "
                  "in RAM that zinf.host_memory has room for twice",
                  schedule_name(wanted), schedule_name(p->schedule), who);
}

void plan_fini(struct plan *p)
{
    struct zinf_program *programs[] = {&p->gradients,      &p->drain,  &p->wait, &p->speculate,
                                       &p->forward,        &p->logits, &p->fill, &p->decode,
                                       &p->decode_sources, &p->sweep};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        zinf_program_fini(programs[i]);
    zinf_tiers_destroy(p->tiers);
    zinf_store_destroy(p->counted);
    zinf_ledger_destroy(p->ledger);
    itinerary_fini(&p->itinerary);
    free(p->homes);
    free(p->files);
    free(p->ways);
    free(p->slot_size);
    free(p->x_extents);
    free(p->carried_extents);
    free(p->deferred);
    *p = (struct plan){0};
}
