/*
 * Ways, of every home by every machine there can be: whoever makes a leg reaches both of its ends,
 * legs begin where something has come to, and a way ends where it should. So a way that no machine
 * here has been tried on is one that could be gone.
 */
#include "tap.h"

#include "train/plan/way.h"

#include <string.h>

static int n_ways, n_bad;

/* Finds fault with a way; the first of them is described. */
static void fault(const char *what, const struct legs *l)
{
    if (!n_bad++) {
        printf("# %s:", what);
        for (int i = 0; i < l->n; i++)
            printf(" %s %d %d.%d>%d.%d", zinf_lane_name(l->leg[i].lane), l->leg[i].kind,
                   (int)l->leg[i].from.place, (int)l->leg[i].from.portion, (int)l->leg[i].to.place,
                   (int)l->leg[i].to.portion);
        printf("\n");
    }
}

static void expect(bool good, const char *what, const struct legs *l)
{
    if (!good)
        fault(what, l);
}

/* The tier of a place, for things with these homes. */
static enum zinf_tier tier_of(enum waypoint place, const struct zinf_home *home)
{
    switch (place) {
    case PARAM_HOME:
        return home->param;
    case STATE_HOME:
        return home->state;
    case GRAD_HOME:
    case VALUE_HOME:
        return home->grad;
    case PARAM_BACKING:
    case STATE_TAIL:
    case PARAM_TAIL:
        return ZINF_TIER_DRIVE;
    case PARAM_SLOT:
    case PACKED_SLOT:
    case CODE_SLOT:
    case GRAD_SLOT:
    case GRAD_SLOT_2:
    case SQUARES:
    case VALUE_SLOT:
        return ZINF_TIER_DEVICE;
    default:
        return ZINF_TIER_HOST;
    }
}

static bool reaches(const struct travel *t, enum actor actor, enum zinf_tier tier)
{
    return tier != ZINF_TIER_DRIVE &&
           t->reach[actor][tier == ZINF_TIER_DEVICE ? ON_DEVICE : ON_HOST];
}

static bool can_go(const struct travel *t, const struct zinf_home *home, const struct leg *leg)
{
    enum zinf_tier from = tier_of(leg->from.place, home), to = tier_of(leg->to.place, home);
    bool by_cpu = reaches(t, BY_CPU, from) && reaches(t, BY_CPU, to);
    /* without kernels of its own a device is the CPU by another name */
    bool by_device = !t->own_kernels || (reaches(t, BY_DEVICE, from) && reaches(t, BY_DEVICE, to));
    switch (leg->lane) {
    case ZINF_LANE_READ:
        return from == ZINF_TIER_DRIVE && reaches(t, BY_DRIVE, to);
    case ZINF_LANE_WRITE:
        return to == ZINF_TIER_DRIVE && reaches(t, BY_DRIVE, from);
    case ZINF_LANE_H2D:
        return from == ZINF_TIER_HOST && to == ZINF_TIER_DEVICE;
    case ZINF_LANE_D2H:
        return from == ZINF_TIER_DEVICE && to == ZINF_TIER_HOST;
    case ZINF_LANE_DEVICE:
        return by_device;
    case ZINF_LANE_NET:
        if (leg->kind == OP_PULL)
            return t->reach[BY_DEVICE][OTHERS_HOST] && from == ZINF_TIER_HOST;
        if (leg->kind == OP_LINK_GATHER || leg->kind == OP_LINK_SCATTER)
            return t->reach[BY_DEVICE][OTHERS_DEVICES] && from == to && to == ZINF_TIER_DEVICE;
        return t->reach[BY_CPU][OTHERS_HOST] && by_cpu;
    default:
        return by_cpu;
    }
}

/* Legs that can be gone, one from where another has been. */
static void check_legs(const struct travel *t, const struct zinf_home *home, const struct legs *l,
                       enum waypoint begin)
{
    uint32_t known = 1u << begin | 1u << PARAM_HOME | 1u << STATE_HOME | 1u << GRAD_HOME;
    known |= home->headed ? 1u << STATE_TAIL : 0;
    known |= home->param_headed ? 1u << PARAM_TAIL : 0;
    n_ways++;
    expect(l->n <= MAX_LEGS, "too many legs", l);
    for (int i = 0; i < l->n; i++) {
        expect(can_go(t, home, &l->leg[i]), "nobody can go there", l);
        expect(has_waypoint(known, l->leg[i].from.place), "it was never there", l);
        known |= 1u << l->leg[i].to.place;
        if (l->leg[i].kind == OP_UPDATE) /* it makes new parameters there */
            known |= 1u << PARAM_TILE | 1u << COPY_TILE;
    }
}

static int count(const struct legs *l, enum zinf_lane lane, int kind)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        n += l->leg[i].lane == lane && (kind < 0 || l->leg[i].kind == kind);
    return n;
}

static void check_params(const struct travel *t, const struct zinf_home *home)
{
    struct legs fetch = way_fetch(t, home), spread = way_spread(t, home);
    check_legs(t, home, &fetch, PARAM_HOME);
    check_legs(t, home, &spread, PARAM_HOME);
    if (!fetch.n)
        expect(!t->sliced && reaches(t, BY_DEVICE, home->param), "it cannot stay", &fetch);
    else
        expect(fetch.end.place == PARAM_SLOT && fetch.end.portion == WHOLE, "is not there", &fetch);
    expect(count(&fetch, ZINF_LANE_NET, -1) == t->sliced, "slices meet once", &fetch);
    expect(count(&fetch, ZINF_LANE_HOST, OP_UNPACK) +
                   count(&fetch, ZINF_LANE_DEVICE, OP_DEVICE_UNPACK) ==
               (home->packed || home->param_headed),
           "unpacked once", &fetch);
    if (t->device_unpacks && (!t->sliced || t->reach[BY_DEVICE][OTHERS_DEVICES]))
        expect(!count(&fetch, ZINF_LANE_HOST, OP_UNPACK), "unpacked by the device", &fetch);
    const bool passes = count(&fetch, ZINF_LANE_H2D, OP_COPY_IN) &&
                        fetch.leg[fetch.n - 1].to.portion == WHOLE &&
                        !count(&fetch, ZINF_LANE_NET, OP_LINK_GATHER);
    const int n_coded = home->coded && passes;
    expect(count(&fetch, ZINF_LANE_HOST, OP_ENCODE) == n_coded &&
               count(&fetch, ZINF_LANE_DEVICE, OP_WIDEN) == n_coded,
           "codes are made and widened", &fetch);
    for (int i = 0; i < fetch.n && n_coded; i++)
        expect(fetch.leg[i].to.place != CODE_STAGING || fetch.leg[i].kind == OP_ENCODE,
               "only codes are among codes", &fetch);
    expect(!home->coded || fetch.by_cpu.place != PARAM_SLOT || !n_coded,
           "updates read what is not rounded", &fetch);
    if (fetch.by_cpu.place != NOWHERE)
        expect(reaches(t, BY_CPU, tier_of(fetch.by_cpu.place, home)), "CPU reads", &fetch);
    expect(count(&spread, ZINF_LANE_NET, -1) == (t->several && !t->sliced && !t->for_all),
           "updates are told once", &spread);
    expect(spread.end.place == PARAM_HOME, "updates are told at home", &spread);
}

static void check_update(const struct travel *t, const struct zinf_home *home, struct end grad,
                         bool at_hand)
{
    struct legs l = way_update(t, home, grad, at_hand);
    int updates = 0;
    check_legs(t, home, &l, grad.place);
    for (int i = 0; i < l.n; i++)
        updates += l.leg[i].kind == OP_UPDATE || l.leg[i].kind == OP_DEVICE_UPDATE;
    expect(updates == 1, "one update", &l);
    expect(count(&l, ZINF_LANE_WRITE, OP_WRITE) ==
               (home->state == ZINF_TIER_DRIVE || home->headed) +
                   (home->param == ZINF_TIER_DRIVE || home->param_headed) + home->backed,
           "what is on the drive is written", &l);
    for (int i = 0; i < l.n; i++)
        if (l.leg[i].to.place == PARAM_BACKING)
            expect(l.leg[i].from.place == (home->packs_copy ? COPY_TILE : PARAM_HOME),
                   "a copy is written from where it is", &l);
    const bool out_of_reach = home->param == ZINF_TIER_DEVICE && home->state != ZINF_TIER_DEVICE &&
                              !t->reach[BY_CPU][ON_DEVICE];
    expect(count(&l, ZINF_LANE_H2D, OP_COPY_IN) == out_of_reach, "new parameters go back", &l);
}

static void check_gradient(const struct travel *t, const struct zinf_home *home, struct turn turn)
{
    struct legs l = way_contribution(t, home, turn);
    enum zinf_tier at = tier_of(l.end.place, home);
    bool kept = turn.first && way_sums_in_place(t, home);
    check_legs(t, home, &l, GRAD_SLOT);
    expect(count(&l, ZINF_LANE_NET, -1) == t->several, "ranks add up once", &l);
    expect(count(&l, ZINF_LANE_HOST, OP_NORM_PART) + count(&l, ZINF_LANE_DEVICE, OP_NORM_PART) ==
               turn.last,
           "one norm, of the whole sum", &l);
    /* RAM is not read for what the device has: nobody else has added to it there */
    const bool there = t->own_kernels && !t->reach[BY_CPU][ON_DEVICE] &&
                       (!t->several || t->reach[BY_DEVICE][OTHERS_DEVICES]);
    const bool alone = turn.first && turn.last;
    if (there && turn.last && (alone || home->grad == ZINF_TIER_DEVICE))
        expect(count(&l, ZINF_LANE_DEVICE, OP_SQUARES) == 1, "squares on the device", &l);
    expect(count(&l, ZINF_LANE_HOST, OP_PACK) ==
               (home->packs_grad ? count(&l, ZINF_LANE_WRITE, OP_WRITE) : 0),
           "packed as often as it is written", &l);
    expect(count(&l, ZINF_LANE_HOST, OP_UNPACK) ==
               (home->packs_grad ? count(&l, ZINF_LANE_READ, OP_READ) : 0),
           "unpacked as often as it is read", &l);
    for (int i = 0; i < l.n; i++)
        kept |= l.leg[i].to.place == GRAD_HOME && l.leg[i].kind != OP_NORM_PART;
    if (home->keeps_grad && !(turn.last && turn.eager))
        expect(kept, "it is not kept", &l);
    if (!turn.last || !turn.eager || home->state == ZINF_TIER_DEVICE)
        return;
    expect(reaches(t, BY_CPU, at), "who updates cannot read it", &l);
    for (int i = 0; i < 2; i++)
        check_update(t, home, l.end, i);
}

static void check_home(const struct travel *t, const struct zinf_home *home)
{
    uint32_t once = way_waypoints(t, home, true, false, true);
    uint32_t often = way_waypoints(t, home, true, true, true);
    struct legs legs;
    check_params(t, home);
    for (int i = 0; home->keeps_grad && i < 2; i++)
        check_update(t, home, (struct end){GRAD_HOME, ALONE}, i);
    for (int i = 0; i < 8; i++) {
        struct turn turn = {.first = i & 1, .last = i & 2, .eager = i & 4};
        if (!home->keeps_grad && !(turn.first && turn.last))
            continue;
        check_gradient(t, home, turn);
        legs = way_contribution(t, home, turn);
        uint32_t counted = turn.first && turn.last ? once : often;
        expect(!(legs_waypoints(legs) & ~counted), "a plan counts its memory", &legs);
    }
    legs = way_fetch(t, home);
    expect(!(legs_waypoints(legs) & ~once), "and that of fetches", &legs);
}

static void check_homes(const struct travel *t)
{
    for (int i = 0; i < 2 * 6912; i++) {
        struct zinf_home home = {.param = i % 3,
                                 .state = i / 3 % 3,
                                 .grad = i / 9 % 3,
                                 .keeps_grad = i / 27 % 2,
                                 .in_files = i / 54 % 2,
                                 .backed = i / 108 % 2,
                                 .packed = i / 216 % 2,
                                 .packs_grad = i / 432 % 2,
                                 .packs_copy = i / 864 % 2,
                                 .headed = i / 1728 % 2,
                                 .param_headed = i / 3456 % 2,
                                 .coded = i / 6912};
        bool by_device = home.state == ZINF_TIER_DEVICE;
        if (home.in_files && (home.param != ZINF_TIER_DRIVE || t->sliced))
            continue;
        /* what RAM has beside state that outlives the process */
        if (home.backed && (home.param != ZINF_TIER_HOST || home.state != ZINF_TIER_DRIVE))
            continue;
        if ((home.packs_copy && !home.backed) || (home.headed && home.state != ZINF_TIER_HOST))
            continue;
        /* on a drive, for the CPU's updates */
        if (home.packed && (home.param != ZINF_TIER_DRIVE || home.in_files || by_device))
            continue;
        if (home.packs_grad && (home.grad != ZINF_TIER_DRIVE || !home.keeps_grad || by_device))
            continue;
        /* in RAM, for the same; a copy is what is there */
        if (home.param_headed && (home.param != ZINF_TIER_HOST || by_device ||
                                  home.backed != home.packs_copy || (t->several && !t->sliced)))
            continue;
        /* a GPU updates what it has */
        if (t->own_kernels && by_device && (home.param || home.grad))
            continue;
        if (t->several && !t->sliced && home.param == ZINF_TIER_DRIVE) /* stage 3 alone */
            continue;
        if (t->sliced && home.param == ZINF_TIER_DEVICE && !t->reach[BY_CPU][ON_DEVICE] &&
            !t->reach[BY_DEVICE][OTHERS_DEVICES]) /* a setup refuses it */
            continue;
        check_home(t, &home);
    }
    for (int tier = ZINF_TIER_HOST; tier <= ZINF_TIER_DRIVE; tier++) {
        struct zinf_home home = {.grad = tier};
        struct legs out = way_value_out(t, home.grad), back = way_value_back(t, home.grad);
        check_legs(t, &home, &out, VALUE_SLOT);
        check_legs(t, &home, &back, VALUE_HOME);
        expect(out.end.place == VALUE_HOME && back.end.place == VALUE_SLOT, "values", &out);
    }
}

/* A machine and a training, by the bits of a number. */
static struct travel travel_by(int bits)
{
    struct travel t = {.backward = true, .updates = true};
    bool ranks = bits & 8;
    t.reach[BY_DRIVE][ON_HOST] = t.reach[BY_CPU][ON_HOST] = t.reach[BY_DEVICE][ON_DEVICE] = true;
    t.reach[BY_DRIVE][ON_DEVICE] = bits & 1;
    t.reach[BY_CPU][ON_DEVICE] = bits & 2;
    t.reach[BY_DEVICE][ON_HOST] = bits & 4;
    t.several = t.cut = t.reach[BY_CPU][OTHERS_HOST] = ranks;
    t.sliced = ranks && bits & 16;
    t.reach[BY_DEVICE][OTHERS_HOST] = ranks && bits & 32 && !(bits & 2);
    t.reach[BY_DEVICE][OTHERS_DEVICES] = ranks && bits & 64 && !(bits & 2);
    t.own_kernels = !(bits & 2) && bits & 128;
    t.reads_params = bits & 256;
    t.device_adds = bits & 512;
    t.device_unpacks = t.own_kernels && bits & 512;
    t.for_all = ranks && !t.sliced && bits & 1024 && !t.reach[BY_DEVICE][OTHERS_DEVICES];
    return t;
}

static void test_every_leg_can_be_gone(void)
{
    for (int bits = 0; bits < 2048; bits++) {
        struct travel t = travel_by(bits);
        int before = n_bad;
        check_homes(&t);
        if (n_bad > before && !before)
            printf("# by a machine of bits %d\n", bits);
    }
    CHECKF(n_ways > 100000 && n_bad == 0, "%d of %d ways", n_bad, n_ways);
}

int main(void)
{
    TAP_RUN(test_every_leg_can_be_gone);
    return tap_done();
}
