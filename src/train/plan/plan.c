/*
 * plan: from a setup and a variant to a choice that fills the budgets, the ledger that says what it
 * takes, and the place of everything.
 */
#include "formats/formats.h"
#include "train/plan/lines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Where the arenas are while nobody has taken them: beyond what a process is given. */
#define LEAST_UNCHOSEN (1.0 / 64) /* of experts, for which fetching waits for the choice */
#define NO_MEMORY ((char *)((uintptr_t)1 << (sizeof(uintptr_t) * 8 - 18)))

/* ---- what a plan is made of ---- */

bool plan_is_layer_major(const struct setup *s, const struct variant *variant)
{
    bool possible = s->n_micro > 1 && s->n_micro <= MAX_LAYER_MAJOR;
    bool moves = s->param_tier != ZINF_TIER_DEVICE || s->grad_tier != ZINF_TIER_DEVICE;
    /* A choice by budgets must not show in the sums. */
    bool better = moves && !variant->micro_major && !s->walk.order_counts;
    return possible && (s->order == ORDER_LAYER_MAJOR || (s->order == ORDER_AUTO && better));
}

static int take_arrays(struct plan *p)
{
    p->deferred = calloc(p->setup->n_units, sizeof *p->deferred);
    p->homes = calloc(p->setup->n_units, sizeof *p->homes);
    p->routes = calloc(p->setup->n_units, sizeof *p->routes);
    bool taken = p->deferred && p->homes && p->routes;
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
    double rows = (double)p->setup->rows * (double)p->n_x_micros;
    return pow(1 - (double)s->choice.n / (double)s->sweep.n, rows);
}

bool plan_keeps_chosen(const struct plan *p, uint32_t unit)
{
    /* another rank may have chosen it */
    return !p->setup->net && p->setup->walk.units[unit].chooser != WALK_NONE &&
           p->routes[unit].gradient == GRADIENT_SUM_ON_DRIVE &&
           (p->layer_major || p->setup->n_micro == 1);
}

/* To wait for a choice is to fetch nothing ahead of it: worth it where enough is spared. Backward
 * knows the choices already. But where micro-batches go through the layers one after the other,
 * each would fetch anew what it cannot know to be there. */
static void choose_fetches(struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    bool together = p->layer_major || p->setup->n_micro == 1;
    bool open = w->n_choices && together && p->setup->expert_fetch == EXPERT_FETCH_AUTO &&
                !p->setup->net; /* all give their slices of a unit, or none */
    double most = 0;
    for (uint32_t s = 0; s < w->graph->n_stages; s++)
        if (w->stages[s].choice != WALK_NONE)
            most = fmax(most, plan_unchosen(p, s));
    p->chosen_forward =
        p->setup->expert_fetch == EXPERT_FETCH_CHOSEN || (open && most >= LEAST_UNCHOSEN);
    p->chosen_backward = p->chosen_forward || open;
}

/* ---- lines ---- */

static int add_lines(struct plan *p)
{
    struct plan_lines l = {0};
    int code = plan_collect(p, &p->choice, &l);
    for (int i = 0; !code && i < l.n; i++)
        code = zinf_ledger_add(p->ledger, l.line[i].tier, l.line[i].name, l.line[i].hint,
                               l.line[i].bytes, l.line[i].offset);
    free(l.line);
    return code;
}

/* What the process holds already, and what is taken outside of the arenas later. */
static int add_process(struct plan *p)
{
    int code =
        zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "this program and its libraries", NULL,
                                p->setup->resident_bytes);
    if (!code)
        code = zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "panels of the BLAS",
                                       "--threads", p->setup->walk.outside);
    if (!code && p->setup->net)
        code =
            zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "pieces of other ranks' gradients",
                                    NULL, zinf_net_memory_bytes(n_ranks(p->setup)));
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

/* Of values that live on the drive between forward and backward. */
static int add_x_extents(struct plan *p)
{
    const struct walk *w = &p->setup->walk;
    uint64_t n = (uint64_t)p->n_x_micros;
    int code = 0;
    p->x_extents = calloc(w->n_leaving * n + 1, sizeof *p->x_extents);
    if (!p->x_extents)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    for (uint32_t v = 0; v < w->graph->n_values; v++)
        for (uint64_t m = 0; !code && m < n && w->values[v].number != WALK_NONE; m++)
            code = zinf_store_add_extent(p->store, w->values[v].bytes,
                                         &p->x_extents[w->values[v].number * n + m]);
    return code;
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
        .param_copies = p->setup->durable_copies,
        .sliced = p->setup->sliced,
        .places = p->homes,
        .store = p->store,
    };
    int code = zinf_tiers_plan(&p->tiers, &tiers, p->ledger);
    return code || !has_backward(p->setup) || p->x_tier != ZINF_TIER_DRIVE ? code
                                                                           : add_x_extents(p);
}

static int plan_memory(struct plan *p)
{
    int code = zinf_ledger_create(&p->ledger);
    if (!code)
        code = add_process(p);
    if (code)
        return code;
    code = add_file_extents(p);
    if (code)
        return code;
    plan_measure(p);
    plan_choose(p);
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

int plan_make(struct plan *p, const struct setup *setup, const struct variant *variant)
{
    bool layer_major = plan_is_layer_major(setup, variant);
    *p = (struct plan){
        .setup = setup,
        .variant = *variant,
        .x_tier = setup->x_tier,
        .layer_major = layer_major,
        .n_x_micros = layer_major ? setup->n_micro : 1,
        .schedule = plan_first_schedule(setup),
    };
    int code = take_arrays(p);
    if (!code)
        code = take_store(p);
    if (!code)
        code = plan_memory(p);
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

void plan_fini(struct plan *p)
{
    struct zinf_program *programs[] = {&p->gradients, &p->drain,  &p->wait, &p->speculate,
                                       &p->forward,   &p->logits, &p->fill, &p->decode};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        zinf_program_fini(programs[i]);
    zinf_tiers_destroy(p->tiers);
    zinf_store_destroy(p->counted);
    zinf_ledger_destroy(p->ledger);
    free(p->homes);
    free(p->files);
    free(p->routes);
    free(p->x_extents);
    free(p->deferred);
    *p = (struct plan){0};
}

/* ---- in words ---- */

/* Of the first n units in the order of slots of their own. */
static int n_fetched(const struct plan *p, int n)
{
    int fetched = 0;
    for (int i = 0; i < n; i++)
        fetched += p->routes[p->setup->walk.by_own_order[i]].fetch != FETCH_STAYS;
    return fetched;
}

/* Units whose updates the device makes. */
static uint32_t n_device_updates(const struct plan *p)
{
    uint32_t n = 0;
    for (uint32_t u = 0; trains(p->setup) && u < p->setup->n_units; u++)
        n += unit_trains(p->setup, u) && p->homes[u].state == ZINF_TIER_DEVICE;
    return n;
}

/* What of a frozen model lies on a drive is copied there once, and not a byte of it again. */
static void print_adapters(const struct plan *p, FILE *out)
{
    uint64_t bytes = 0;
    char size[16];
    if (!is_adapted(p->setup))
        return;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        if (!unit_trains(p->setup, u) && p->homes[u].param == ZINF_TIER_DRIVE)
            bytes += p->homes[u].in_files
                         ? 0
                         : zinf_layout_unit_bytes(&p->setup->layout, u, p->setup->dtype);
    fprintf(out, "plan: %u adapters have %llu parameters; the others are frozen",
            p->setup->graph->n_adapted, (unsigned long long)zinf_model_n_trained(p->setup->model));
    if (bytes)
        fprintf(out, ": %s of them are written to the drive at the start, and never again",
                zinf_size_format(size, sizeof size, bytes));
    if (plan_has_files(p))
        fputs(": read from the model's own folder, nothing of them is written", out);
    fputc('\n', out);
}

static void print_fetches(const struct plan *p, FILE *out)
{
    const struct walk *w = &p->setup->walk;
    double most = 0;
    for (uint32_t s = 0; s < w->graph->n_stages; s++)
        if (w->stages[s].choice != WALK_NONE)
            most = fmax(most, plan_unchosen(p, s));
    if (!w->n_choices)
        return;
    fprintf(out, "plan: experts: %s",
            p->chosen_forward    ? "only chosen ones are fetched"
            : p->chosen_backward ? "all are fetched, in backward only chosen ones"
                                 : "all are fetched");
    if (p->chosen_backward)
        fprintf(out, " (expected: %.1f %% are not chosen, if all are equally likely)", 100 * most);
    fputc('\n', out);
}

/* Where they are, which may be nearer than the configuration asks for: "host and drive". */
static void print_tiers(const unsigned on[3], const char *what, FILE *out)
{
    const char *between = "";
    fprintf(out, "%s on ", what);
    for (int tier = 0; tier < 3; tier++) {
        if (!on[tier])
            continue;
        fprintf(out, "%s%s", between, zinf_tier_name((enum zinf_tier)tier));
        between = " and ";
    }
}

static void print_homes(const struct plan *p, FILE *out)
{
    unsigned params[3] = {0}, states[3] = {0}, grads[3] = {0};
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        bool trained = trains(p->setup) && unit_trains(p->setup, u);
        params[p->homes[u].param]++;
        states[p->homes[u].state] += trained;
        grads[p->homes[u].grad] += trained;
    }
    print_tiers(params, ": parameters", out);
    if (trains(p->setup)) {
        print_tiers(states, ", optimizer state", out);
        print_tiers(grads, ", gradients", out);
    }
    fputc('\n', out);
}

int plan_print(const struct plan *p, FILE *out)
{
    const struct choice *c = &p->choice;
    const struct setup *s = p->setup;
    fprintf(out, "plan: %s, %llu parameters in %s", s->device->name,
            (unsigned long long)zinf_model_n_params(s->model), zinf_dtype_name(s->dtype));
    print_homes(p, out);
    print_adapters(p, out);
    if (s->param_tier != ZINF_TIER_DEVICE)
        fprintf(out,
                "plan: look-ahead %d, %d of %d fetched units with a device slot of their own\n",
                c->look_ahead, n_fetched(p, c->n_own), n_fetched(p, (int)s->n_units));
    if (n_device_updates(p) > 0)
        fprintf(out, "plan: the device updates %u of %u units itself\n", n_device_updates(p),
                s->n_units);
    if (s->n_micro > 1)
        fprintf(out, "plan: %lld micro-batches, %s\n", (long long)s->n_micro,
                p->layer_major ? "all through a layer before the next layer"
                               : "one after the other through all layers");
    print_fetches(p, out);
    if (s->walk.cache_bytes)
        fprintf(out, "plan: keys and values of %lld sequences of %lld tokens on %s\n",
                (long long)s->decoding.n_sequences, (long long)s->decoding.capacity,
                zinf_tier_name(c->host_cache ? ZINF_TIER_HOST : ZINF_TIER_DEVICE));
    if (has_backward(s))
        fprintf(out,
                "plan: %d of %u blocks keep their activations, the others recompute; "
                "head %s\n",
                c->n_kept, s->walk.n_recompute,
                c->whole ? "in one pass" : "by tiles, logits computed twice");
    return zinf_ledger_print(p->ledger, s->budget, out);
}
