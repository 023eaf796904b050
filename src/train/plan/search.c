/*
 * search: what a configuration leaves open is tried, and the variant whose simulated step is
 * shortest is taken. Speeds are those that the caller knows, else stated defaults, never measured
 * here: so an estimate and the run that follows it have one plan. The usual variant stays where no
 * other is clearly shorter.
 */
#include "train/rules/rules.h"
#include "train/step/step.h"

#include <math.h>

#define CLEARLY 0.98       /* of the time of the best so far */
#define AT_ALL 0.995       /* the same where not being slower is the point */
#define IF_ANY 1           /* where it moves fewer bytes or waits less, by however little */
#define SOMEWHAT 0.99      /* and of what takes more memory elsewhere */
#define ANYWAY 1e9         /* and of what is asked for */
#define DRIVE_SHARE 0.3    /* of a step that the drive is busy, at least, where packing is tried */
#define HALF 4             /* steps of a quarter of an octave */
#define NO_GRADS (1 << 20) /* layers of one whose gradient is in RAM, at most */

struct search {
    const struct setup *setup;
    struct variant best;
    struct plan plan; /* of the best; setup NULL: there is none */
    double least;     /* seconds of its step; 0: not known yet */
};

/* Whether two plans of a setup are one, as far as its step can tell. */
static bool is_same(const struct plan *a, const struct plan *b)
{
    return a->setup && !memcmp(&a->amounts, &b->amounts, sizeof a->amounts) &&
           a->itinerary.together == b->itinerary.together && a->x_tier == b->x_tier &&
           a->variant.by_link == b->variant.by_link && a->variant.packs == b->variant.packs &&
           a->variant.device_adds == b->variant.device_adds &&
           a->variant.overwrites == b->variant.overwrites &&
           a->variant.packs_ram == b->variant.packs_ram &&
           a->variant.packs_fronts == b->variant.packs_fronts &&
           a->variant.packs_frozen == b->variant.packs_frozen &&
           a->variant.device_unpacks == b->variant.device_unpacks &&
           a->variant.codes == b->variant.codes &&
           a->variant.updates_codes == b->variant.updates_codes;
}

/* The plan of a candidate with its programs; predicted_seconds is INFINITY where it cannot take
 * less than limit, or is that of the best so far. */
static int make(const struct search *s, const struct variant *variant, double limit,
                struct plan *out)
{
    const struct setup *setup = s->setup;
    static const struct zinf_speeds unknown;
    const struct zinf_speeds *speeds = setup->options.speeds ? setup->options.speeds : &unknown;
    int code = plan_make(out, setup, variant);
    if (code)
        return code;
    plan_rates_of(out, speeds, &out->rates);
    if (is_same(&s->plan, out))
        out->predicted_seconds = INFINITY;
    else
        code = plan_schedules(out, limit);
    if (code)
        plan_fini(out);
    return code;
}

/* Takes the plan of a variant that is shorter than a share of the best so far; any, at first. One
 * that does not fit takes for ever. */
static double consider(struct search *s, const struct variant *variant, double share)
{
    struct plan candidate;
    bool first = !(s->least > 0);
    double limit = first ? INFINITY : share * s->least, seconds = INFINITY;
    if (!make(s, variant, limit, &candidate)) {
        seconds = candidate.predicted_seconds;
        if (seconds < limit) {
            if (s->plan.setup)
                plan_fini(&s->plan);
            s->plan = candidate;
            s->best = *variant;
        } else {
            plan_fini(&candidate);
        }
    }
    if (first || seconds < limit)
        s->least = seconds;
    return seconds;
}

/* NULL: it does not fit. */
static const struct plan *best_plan(struct search *s)
{
    if (!(s->least > 0)) {
        struct variant usual = s->best;
        consider(s, &usual, 1);
    }
    return s->plan.setup ? &s->plan : NULL;
}

static void try_for(struct search *s, struct variant variant, double share, const char *what)
{
    best_plan(s);
    double before = s->least, seconds = consider(s, &variant, share);
    zinf_log(ZINF_LOG_DEBUG, "plan: %s would take %.3f s a step, the best so far %.3f s", what,
             seconds, before);
}

static void try(struct search *s, struct variant variant, const char *what)
{
    try_for(s, variant, CLEARLY, what);
}

/* Whether the sums of micro-batches' gradients could be on a GPU, and their updates elsewhere. */
static bool sums_are_free(const struct setup *s)
{
    return s->n_micro > 1 && trains(s) && device_is_far(s) && s->grad_tier != ZINF_TIER_DEVICE &&
           !s->mesh.all;
}

static void try_orders(struct search *s)
{
    struct variant other = s->best;
    bool layer_major = plan_is_layer_major(s->setup, &s->best);
    bool free = layer_major && s->setup->order == ORDER_AUTO;
    other.micro_major = free;
    if (free)
        try(s, other, "micro-batches one after the other");
    for (int part = 2; part <= 4 && sums_are_free(s->setup) && (free || !layer_major); part += 2) {
        other.device_grads = part;
        try(s, other, "sums of gradients on the device");
    }
}

/* What a GPU need not have gives room to activations that are not made twice. Values between stages
 * can be in RAM. So can sums of micro-batches' gradients, if the GPU adds to them: the CPU, which
 * is to update at that time, is spared that. */
static void try_spared_device(struct search *s)
{
    const struct setup *setup = s->setup;
    bool far = device_is_far(setup) && has_backward(setup);
    bool free = setup->order == ORDER_AUTO || !plan_is_layer_major(setup, &s->best);
    bool adds =
        far && free && setup->n_micro > 1 && setup->grad_tier == ZINF_TIER_HOST && !setup->mesh.all;
    for (int i = 1; i < 4; i++) {
        struct variant other = s->best;
        other.x_on_host |= (i & 1) != 0;
        if (i & 2) {
            other.device_adds = other.micro_major = true;
            other.device_grads = 0;
        }
        if (far && (setup->x_is_open || !(i & 1)) && (adds || !(i & 2)))
            try_for(s, other, SOMEWHAT,
                    i & 2 ? "sums in RAM added to by the device" : "values between stages in RAM");
    }
}

/* Whether it may be the way from the device to the host that limits a step: all gradients take it,
 * and in the backward alone. By what is stated, before anything is built. */
static bool returns_may_limit(const struct setup *s)
{
    const struct zinf_speeds *speeds = s->options.speeds;
    double flops = 3 * s->walk.flops, bytes = (double)s->layout.total_elems * sizeof(float);
    return trains(s) && s->n_micro == 1 && !s->mesh.all && device_is_far(s) &&
           s->grad_tier == ZINF_TIER_HOST && speeds && speeds->link_bytes > 0 &&
           speeds->device_flops > 0 &&
           bytes / speeds->link_bytes > flops / speeds->device_flops / 2;
}

/* Gradients of the last layers wait on the device, and come to the host during the next forward. */
static void try_waiting_grads(struct search *s)
{
    struct variant other = s->best;
    for (int part = 1; part <= 3 && returns_may_limit(s->setup); part++) {
        other.device_grads = part;
        try(s, other, "gradients that wait on the device");
    }
}

/* What each lane has to do in a step. */
static struct zinf_work work_of(const struct plan *p)
{
    const struct zinf_program *programs[2];
    struct zinf_work work = {0};
    for (int n = plan_step_programs(p, programs); n-- > 0;)
        zinf_work_add(&work, programs[n]);
    return work;
}

static double drive_seconds(const struct zinf_work *work)
{
    return fmax(work->lane_seconds[ZINF_LANE_READ], work->lane_seconds[ZINF_LANE_WRITE]);
}

/* Whether the drive has more to do in a step than that lane. */
static bool drive_exceeds(const struct plan *p, enum zinf_lane lane)
{
    const struct zinf_work work = work_of(p);
    return drive_seconds(&work) > work.lane_seconds[lane];
}

/* What takes from RAM asks more of the drive. */
static bool drive_limits(const struct plan *p)
{
    return drive_exceeds(p, ZINF_LANE_DEVICE);
}

/* More RAM may ask for less in it: state there that has no second generation is updated after the
 * backward, and on the drive it has one. So less state is tried, and the plans of machines with
 * down to half as much RAM. */
static void try_less_ram(struct search *s)
{
    struct variant other = s->best;
    bool filled = s->plan.setup && s->plan.amounts.n_host_states > 0 && !drive_limits(&s->plan);
    for (int quarters = 3; filled && quarters > 0; quarters--) {
        other.host_states = quarters;
        try_for(s, other, AT_ALL, "less optimizer state in RAM");
    }
    other.host_states = 4;
    for (int steps = 1; filled && steps <= HALF; steps++) {
        other.host_quarters = steps;
        try_for(s, other, AT_ALL, "less of RAM");
    }
}

/* Parameters that exist once in RAM leave room for state, if the drive has a copy of them, which
 * every step then writes. */
static void try_overwriting(struct search *s)
{
    const struct setup *setup = s->setup;
    struct variant other = s->best;
    bool pairs = setup->generations == 2 && !setup->durable && setup->state_tier == ZINF_TIER_DRIVE;
    other.overwrites = true;
    if (trains(setup) && setup->fills && pairs)
        try_for(s, other, AT_ALL, "one generation of parameters in RAM");
}

/* Only if the rate between devices is known: otherwise the driver may copy by way of the host. */
static void try_link(struct search *s)
{
    const struct zinf_speeds *speeds = s->setup->options.speeds;
    struct variant other = s->best;
    other.by_link = true;
    if (s->setup->may_link && !s->setup->must_link && speeds && speeds->peer_bytes > 0)
        try(s, other, "units gathered by the GPUs");
}

static enum packing packs_always(const struct setup *s)
{
    return s->pack_is_open ? PACK_OFF : s->may_pack;
}

/* The same RAM has more state, and none of it is moved; its updates are more work. */
static void try_packed_ram(struct search *s)
{
    const struct setup *setup = s->setup;
    struct variant other = s->best;
    const bool possible = trains(setup) && s->best.packs && setup->fills && !setup->durable &&
                          setup->state_tier == ZINF_TIER_DRIVE;
    const struct plan *plan = possible ? best_plan(s) : NULL;
    other.packs_ram = true;
    if (plan && plan->amounts.n_host_states > 0)
        try_for(s, other, AT_ALL, "optimizer state packed in RAM");
}

/* Parameters in RAM in place of gradients of layers, in one generation and packed where they can
 * be: a change that may be worth it where none of its parts is. */
static void try_fronts_for_grads(struct search *s)
{
    const struct setup *setup = s->setup;
    struct variant other = s->best;
    if (!trains(setup) || !setup_is_one_process(setup) || !setup->fills || setup->durable ||
        setup->generations != 2 || setup->grad_tier != ZINF_TIER_DRIVE ||
        setup->state_tier != ZINF_TIER_DRIVE)
        return;
    other.host_grads_part = NO_GRADS;
    other.overwrites = true;
    other.packs_fronts = s->best.packs == PACK_ALL;
    try_for(s, other, AT_ALL, "parameters in RAM in place of gradients");
}

/* Whether the best plan has trained parameters in RAM in one generation. */
static bool has_fronts(const struct search *s)
{
    bool has = false;
    for (uint32_t u = 0; s->plan.setup && u < s->setup->n_units; u++)
        has |= unit_trains(s->setup, u) && s->plan.homes[u].param == ZINF_TIER_HOST &&
               zinf_home_copies(&s->plan.homes[u]) == 1;
    return has;
}

/* And parameters, which then take one generation: where an update may be taken back, the older one
 * is read from the drive. Fetches are more work. */
static void try_packed_fronts(struct search *s)
{
    const struct setup *setup = s->setup;
    const bool drive = setup->state_tier == ZINF_TIER_DRIVE || setup->param_tier == ZINF_TIER_DRIVE;
    const bool asked = setup->options.packs_fronts;
    struct variant other = s->best;
    other.packs_fronts = true;
    other.device_unpacks = device_is_far(setup);
    if (!trains(setup) || s->best.packs != PACK_ALL || !setup->fills || !drive || !best_plan(s))
        return;
    if (asked)
        other.overwrites = setup->generations == 2 && setup->state_tier == ZINF_TIER_DRIVE;
    if (asked || has_fronts(s))
        try_for(s, other, asked ? ANYWAY : AT_ALL, "parameters packed in RAM");
}

/* Of a model that is frozen what is in RAM, or on the drive where no file has it as it is used. */
static bool has_frozen(const struct plan *p)
{
    bool has = false;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        has |= !unit_trains(p->setup, u) && setup_can_pack_params(p->setup, u) &&
               p->homes[u].param != ZINF_TIER_DEVICE && !p->homes[u].in_files;
    return has;
}

/* That is packed once, and unpacked by every fetch. */
static void try_packed_frozen(struct search *s)
{
    const bool asked = s->setup->options.packs_fronts;
    struct variant other = s->best;
    other.packs_frozen = true;
    other.device_unpacks = device_is_far(s->setup);
    const struct plan *plan = trains(s->setup) && s->best.packs == PACK_ALL ? best_plan(s) : NULL;
    if (plan && has_frozen(plan))
        try_for(s, other, asked ? ANYWAY : AT_ALL, "frozen parameters packed");
}

/* Fewer bytes of the link and less work of the CPU; but what the CPU has not unpacked it reads once
 * more for updates. */
static void try_device_unpacking(struct search *s)
{
    struct variant other = s->best;
    const bool possible = trains(s->setup) && s->best.packs == PACK_ALL &&
                          device_is_far(s->setup) && !s->best.device_unpacks;
    const struct plan *plan = possible ? best_plan(s) : NULL;
    other.device_unpacks = true;
    if (plan && !(drive_limits(plan) && drive_exceeds(plan, ZINF_LANE_H2D) &&
                  drive_exceeds(plan, ZINF_LANE_HOST)))
        try_for(s, other, AT_ALL, "packed parameters unpacked by the device");
}

/* Whether the best step is clearly longer than its work needs on the busiest lane. */
static bool waits_somewhere(const struct search *s)
{
    const struct zinf_program *programs[2] = {NULL, NULL};
    if (!s->plan.setup)
        return false;
    plan_step_programs(&s->plan, programs);
    const bool two = s->plan.schedule < SCHEDULE_UPDATE_IN_FORWARD;
    return plan_least_seconds(&s->plan, programs[0], two ? programs[1] : NULL) < AT_ALL * s->least;
}

/* Reads that go on while the device works on what is there: slots for more units, and of several
 * sizes, so that small units take no more room than they need. */
static void try_ahead(struct search *s)
{
    struct variant other = s->best;
    const bool open = s->setup->config->look_ahead < 0 && device_is_far(s->setup);
    const struct plan *plan = open ? best_plan(s) : NULL;
    if (!plan || !plan_fetches_beyond(plan, plan->amounts.n_own))
        return;
    for (other.ahead = 4; other.ahead <= MOST_AHEAD && waits_somewhere(s); other.ahead *= 2)
        try_for(s, other, AT_ALL, "reading further ahead");
}

/* Reads of groups of chunks that do not wait for writes, for some of RAM. */
static void try_more_staging(struct search *s)
{
    struct variant other = s->best;
    const struct plan *plan = s->setup->n_chunks > 1 ? best_plan(s) : NULL;
    other.more_staging = true;
    if (plan && plan_streams_carried(plan) && plan->amounts.x_stagings < MORE_X_STAGINGS &&
        waits_somewhere(s))
        try_for(s, other, IF_ANY, "more values on their way to and from the drive");
}

/* Whether updates write parameters to a drive that come back as codes, or could: not those that
 * ranks share. */
static bool may_update_codes(const struct search *s)
{
    const struct plan *p = &s->plan;
    bool may = false;
    if (!p->setup || !trains(p->setup) || p->travel.cut)
        return false;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        may |= p->homes[u].coded && p->homes[u].param == ZINF_TIER_DRIVE && !p->homes[u].imaged &&
               unit_trains(p->setup, u);
    return may;
}

/* Half the bytes of the link, for work of the CPU and two more buffers. Half the bytes of fetches
 * from a drive, too, for a quarter more that updates write. */
static void try_codes(struct search *s)
{
    const bool asked = s->setup->options.codes;
    struct variant other = s->best;
    other.codes = true;
    if (!s->setup->images || !(asked || device_is_far(s->setup)) || !best_plan(s))
        return;
    other.device_unpacks &= !asked;
    try_for(s, other, asked ? ANYWAY : AT_ALL, "matrices in 8 bits on their way to the device");
    other = s->best;
    other.updates_codes = true;
    if (best_plan(s) && may_update_codes(s))
        try_for(s, other, asked ? ANYWAY : AT_ALL, "matrices in 8 bits on the drive");
}

struct variant plan_usual(const struct setup *setup)
{
    return (struct variant){.by_link = setup->must_link,
                            .packs = packs_always(setup),
                            .ahead = setup->config->look_ahead > 0,
                            .host_grads_part = 4,
                            .host_states = 4};
}

void plan_settle_durability(struct setup *setup)
{
    const struct variant usual = plan_usual(setup);
    struct plan filled;
    if (!setup->durable || !setup->durability_is_open)
        return;
    setup->durable = false;
    setup->durable = plan_make(&filled, setup, &usual) != 0;
    if (setup->durable)
        return;
    for (uint32_t u = 0; u < setup->n_units; u++)
        if (filled.homes[u].state == ZINF_TIER_HOST && unit_trains(setup, u))
            setup->spared_bytes += 2 * setup_unit_state_bytes(setup, u);
    plan_fini(&filled);
    setup->durable = !setup->spared_bytes;
}

/* What pays with as much packed as the search has now. Ranks have other matrices, and so other
 * state, of which each packs its own. */
static void try_packed_places(struct search *s)
{
    if (setup_is_one_process(s->setup) || s->setup->grain == GRAIN_ELEMENTS)
        try_packed_ram(s);
    try_fronts_for_grads(s);
    try_packed_fronts(s);
    try_packed_frozen(s);
    try_device_unpacking(s);
}

/* Whether all that packing takes and saves has a known rate, and the drive has enough to do. */
static bool packing_may_pay(struct search *s)
{
    const struct zinf_speeds *speeds = s->setup->options.speeds;
    if (!speeds || !(speeds->drive_read_bytes > 0 && speeds->drive_write_bytes > 0 &&
                     speeds->device_flops > 0 && speeds->optimizer_bytes > 0))
        return false;
    const struct plan *plan = best_plan(s);
    if (!plan)
        return true;
    const struct zinf_work work = work_of(plan);
    return drive_seconds(&work) > DRIVE_SHARE * s->least;
}

/* Fewer bytes for more work of the CPU and some memory. What is in RAM beside it depends on what
 * is packed, so each amount has its own search, and the shortest step of each is compared. */
static void try_fewer_bytes(struct search *s)
{
    const struct variant unpacked = s->best;
    try_packed_places(s);
    if (s->best.packs >= s->setup->may_pack || !packing_may_pay(s))
        return;
    for (enum packing packs = s->best.packs + 1; packs <= s->setup->may_pack; packs++) {
        struct search packed = {.setup = s->setup, .best = unpacked};
        packed.best.packs = packs;
        if (best_plan(&packed))
            try_packed_places(&packed);
        zinf_log(ZINF_LOG_DEBUG, "plan: %s packed would take %.3f s a step, the best so far %.3f s",
                 packs == PACK_ALL ? "all" : "optimizer state", packed.least, s->least);
        if (packed.plan.setup && packed.least < SOMEWHAT * s->least) {
            struct search other = *s;
            *s = packed;
            packed = other;
        }
        if (packed.plan.setup)
            plan_fini(&packed.plan);
    }
}

void plan_search(const struct setup *setup, struct variant *best, struct plan *plan)
{
    struct search s = {.setup = setup, .best = plan_usual(setup)};
    try_link(&s);
    /* All processes must choose the same, and none knows what the others, with other stages of the
     * model, have room for. */
    if (setup_is_one_process(setup)) {
        try_orders(&s);
        try_spared_device(&s);
        try_waiting_grads(&s);
        struct variant other = s.best;
        if (trains(setup) && setup->fills && setup->grad_tier == ZINF_TIER_DRIVE) {
            other.host_grads_part = 3 * s.best.host_grads_part;
            try_for(&s, other, IF_ANY, "fewer gradients in RAM");
            other.host_grads_part = NO_GRADS;
            try_for(&s, other, IF_ANY, "no gradients of layers in RAM");
        }
        try_overwriting(&s);
        if (trains(setup) && setup->fills && setup->state_tier == ZINF_TIER_DRIVE)
            try_less_ram(&s); /* where it has any */
        other = s.best;
        for (int part = 1; part <= 3 && setup_shares_updates(setup); part++) {
            other.device_states = part;
            try(&s, other, "state on the device before activations");
        }
        try_fewer_bytes(&s);
        try_codes(&s);
        try_ahead(&s);
        try_more_staging(&s);
    } else if (!is_piped(setup)) {
        try_fewer_bytes(&s);
        try_codes(&s);
    }
    *best = s.best;
    if (plan)
        *plan = s.plan;
    else if (s.plan.setup)
        plan_fini(&s.plan);
}
