/* plan_print: a plan in words, and its ledger. */
#include "formats/formats.h"
#include "train/plan/lines.h"

#include <math.h>
#include <stdio.h>

/* Of the first n units in the order of slots of their own. */
static int n_fetched(const struct plan *p, int n)
{
    int fetched = 0;
    for (int i = 0; i < n; i++)
        fetched += p->ways[p->setup->walk.by_own_order[i]].fetched;
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
            bytes += p->homes[u].in_files ? 0
                     : p->travel.sliced
                         ? zinf_layout_slice_bytes(&p->setup->layout, u, p->setup->dtype)
                         : zinf_layout_unit_bytes(&p->setup->layout, u, p->setup->dtype);
    fprintf(out, "plan: %u adapters have %llu parameters; the others are frozen",
            p->setup->graph->n_adapted, (unsigned long long)zinf_model_n_trained(p->setup->model));
    if (bytes)
        fprintf(out, ": %s of them are written to the drive at the start, and never again",
                zinf_size_format(size, sizeof size, bytes));
    if (has_waypoint(p->waypoints, FILE_STAGING))
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

static void print_ranks(const struct plan *p, FILE *out)
{
    const struct setup *s = p->setup;
    struct zinf_net_place at = zinf_net_place(s->mesh.all);
    if (at.seats > 1)
        fprintf(out, "plan: of one of %u seats: each has as much, of %s\n", at.seats,
                s->sliced ? "its slices" : "gradients and optimizer state its slices");
    else
        fprintf(out, "plan: of one of %u ranks\n", at.world);
    if (p->variant.by_link)
        fprintf(out, "plan: GPUs gather units and add gradients among themselves (NCCL)\n");
    if (plan_links_keys(p))
        fprintf(out, "plan: and keys, values and their gradients\n");
}

const char *plan_lost_text(const struct plan *p, char text[static 256])
{
    char more[16];
    if (!p->setup->spared_bytes)
        return NULL;
    snprintf(text, 256,
             "RAM takes a part of the optimizer state, so a run continues from its last checkpoint "
             "(--save-every); with zinf.durability \"step\" every step survives kill -9, and about "
             "%s more a step are read and written",
             zinf_size_format(more, sizeof more, p->setup->spared_bytes));
    return text;
}

static uint64_t overwritten_bytes(const struct plan *p)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        bytes += p->homes[u].overwritten ? plan_param_bytes(p, u) : 0;
    return bytes;
}

/* Of parameters that are packed in RAM. */
static uint64_t headed_bytes(const struct plan *p)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        bytes += p->homes[u].param_headed ? plan_param_bytes(p, u) : 0;
    return bytes;
}

const char *plan_filled_text(const struct plan *p, char text[static 256])
{
    const struct setup *s = p->setup;
    uint64_t params = 0, states = 0, grads = 0;
    char size[16];
    for (uint32_t u = 0; u < s->n_units; u++) {
        const struct zinf_home *home = &p->homes[u];
        if (home->param == ZINF_TIER_HOST && s->param_tier == ZINF_TIER_DRIVE)
            params += plan_param_bytes(p, u) * zinf_home_copies(home);
        if (home->state == ZINF_TIER_HOST && s->state_tier == ZINF_TIER_DRIVE)
            states += home->headed ? setup_unit_head_bytes(s, u)
                                   : setup_unit_state_bytes(s, u) * home->generations;
        if (sums_on(p, u, ZINF_TIER_HOST) && s->grad_tier == ZINF_TIER_DRIVE)
            grads += s->layout.units[u].slice_elems * sizeof(float);
    }
    const struct {
        const char *what;
        uint64_t bytes;
    } parts[] = {{"parameters", params}, {"optimizer state", states}, {"gradients", grads}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].bytes)
            used += (size_t)snprintf(text + used, 256 - used, "%s%s of %s", used ? ", " : "",
                                     zinf_size_format(size, sizeof size, parts[i].bytes),
                                     parts[i].what);
    if (!used)
        return NULL;
    snprintf(text + used, 256 - used,
             " that may go to the drive are in RAM; zinf.host_memory limits that, zinf.placement "
             "\"exact\" forbids it");
    return text;
}

static void print_chunks(const struct plan *p, FILE *out)
{
    const struct setup *s = p->setup;
    if (s->n_chunks == 1)
        return;
    fprintf(out, "plan: sequences of %lld tokens in %lld chunks of %lld\n", (long long)s->seq,
            (long long)s->n_chunks, (long long)s->chunk_seq);
    if (in_parts(s))
        fprintf(out, "plan: sequences in %lld parts, of which each of %u ranks has %lld\n",
                (long long)s->n_parts, context_axis(s)->world, (long long)setup_own_parts(s));
    if (carried_groups(p) > 1)
        fprintf(out, "plan: %s in groups of %lld, %u on the device\n", plan_carried_name(p),
                (long long)carried_span(p), carried_slots(p));
}

static void print_packing(const struct plan *p, FILE *out)
{
    char size[16];
    if (p->variant.packs)
        fprintf(out, "plan: %s on the drive %s packed\n",
                p->variant.packs == PACK_ALL ? "parameters, gradients and optimizer state"
                                             : "optimizer state",
                p->variant.packs == PACK_ALL ? "are" : "is");
    if (p->variant.packs_ram)
        fputs("plan: optimizer state in RAM is packed; what does not fit there is on the drive\n",
              out);
    if (p->variant.packs_frozen)
        fputs("plan: frozen parameters are packed\n", out);
    if (has_waypoint(p->waypoints, PACKED_SLOT))
        fputs("plan: packed parameters go to the device as they are, which unpacks them\n", out);
    if (headed_bytes(p))
        fprintf(out,
                "plan: parameters in RAM are packed, in %s; what does not fit there is on the "
                "drive\n",
                zinf_size_format(size, sizeof size, headed_bytes(p)));
}

/* Where there are slots of several sizes: how many of each. */
static void print_slots(const struct plan *p, FILE *out)
{
    char size[16];
    const uint32_t n = param_slot_sizes(p, &p->amounts);
    for (uint32_t i = 0; n > 1 && i < n; i++)
        fprintf(out, "%s%llu of %s%s", i ? ", " : "plan: parameter slots by size of units: ",
                (unsigned long long)param_slots(p, &p->amounts, i),
                zinf_size_format(size, sizeof size, p->slots[i].bytes), i + 1 < n ? "" : "\n");
}

static void print_codes(const struct plan *p, FILE *out)
{
    uint64_t bytes = 0;
    bool updated = false; /* the variant alone does not say so: not every unit's update can */
    char size[16];
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        bytes += p->homes[u].imaged ? p->setup->images[u].bytes : 0;
        updated |= p->homes[u].imaged && trains(p->setup) && unit_trains(p->setup, u);
    }
    if (has_waypoint(p->waypoints, CODE_SLOT))
        fputs("plan: matrices that are multiplied with in 8 bits go to the device in 8 bits\n",
              out);
    if (bytes)
        fprintf(out, "plan: %s of it are on the drive so, beside the parameters%s\n",
                zinf_size_format(size, sizeof size, bytes), updated ? "; updates write both" : "");
}

int plan_print(const struct plan *p, FILE *out)
{
    char filled[256];
    const struct amounts *c = &p->amounts;
    const struct setup *s = p->setup;
    fprintf(out, "plan: %s, %llu parameters in %s", s->device->name,
            (unsigned long long)zinf_model_n_params(s->model), zinf_dtype_name(s->dtype));
    print_homes(p, out);
    if (s->device->kind == ZINF_DEVICE_HOST)
        fputs("plan: the device is the CPU: its memory and the host's are the same RAM\n", out);
    if (s->mesh.all)
        print_ranks(p, out);
    print_adapters(p, out);
    if (plan_filled_text(p, filled))
        fprintf(out, "plan: %s\n", filled);
    if (plan_lost_text(p, filled))
        fprintf(out, "plan: %s\n", filled);
    if (overwritten_bytes(p))
        fprintf(out,
                "plan: %s of parameters in RAM have one generation there; an update that is taken "
                "back reads the older one from the drive\n",
                zinf_size_format(filled, 16, overwritten_bytes(p)));
    if (s->param_tier != ZINF_TIER_DEVICE)
        fprintf(out,
                "plan: look-ahead %d, %d of %d fetched units with a device slot of their own\n",
                c->look_ahead, n_fetched(p, c->n_own), n_fetched(p, (int)s->n_units));
    print_slots(p, out);
    print_packing(p, out);
    print_codes(p, out);
    if (n_device_updates(p) > 0)
        fprintf(out, "plan: the device updates %u of %u units itself\n", n_device_updates(p),
                s->n_units);
    if (s->n_micro > 1)
        fprintf(out, "plan: %lld micro-batches, %s\n", (long long)s->n_micro,
                goes_together(p) ? "all through a layer before the next layer"
                                 : "one after the other through all layers");
    print_chunks(p, out);
    if (p->variant.device_adds)
        fprintf(out, "plan: the device adds to the sums of gradients that are in RAM\n");
    print_fetches(p, out);
    if (s->walk.cache_bytes)
        fprintf(out, "plan: keys and values of %lld sequences of %lld tokens on %s\n",
                (long long)s->decoding.n_sequences, (long long)s->decoding.capacity,
                zinf_tier_name(c->host_cache ? ZINF_TIER_HOST : ZINF_TIER_DEVICE));
    if (s->decoding.n_sources)
        fprintf(out, "plan: and of %lld sources of %lld tokens\n", (long long)s->decoding.n_sources,
                (long long)s->decoding.source_capacity);
    if (has_backward(s))
        fprintf(out,
                "plan: %d of %u blocks keep their activations, the others recompute; "
                "head %s\n",
                c->n_kept, s->walk.n_recompute,
                c->whole ? "in one pass" : "by tiles, logits computed twice");
    return zinf_ledger_print(p->ledger, s->budget, out);
}
