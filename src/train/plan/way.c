/* way: legs from a home, by who reaches which memory. */
#include "train/plan/way.h"

#define END(place, portion) ((struct end){place, portion})

static void leg(struct legs *l, enum zinf_lane lane, int kind, struct end from, struct end to)
{
    l->leg[l->n++] = (struct leg){lane, (uint16_t)kind, ZINF_DATA, from, to};
    l->end = to;
}

/* From where the thing is. Slices and samples are dealt out along the first axis alone. */
static void go(struct legs *l, enum zinf_lane lane, int kind, struct end to)
{
    leg(l, lane, kind, l->end, to);
}

static void copy_in(struct legs *l, struct end to)
{
    go(l, ZINF_LANE_H2D, OP_COPY_IN, to);
}

/* An image with matrices as codes, to the device and widened there. */
static void copy_image(struct legs *l)
{
    copy_in(l, END(CODE_SLOT, WHOLE));
    go(l, ZINF_LANE_DEVICE, OP_WIDEN, END(PARAM_SLOT, WHOLE));
}

/* From host memory to the device: as it is, or matrices as codes. */
static void copy_params(struct legs *l, const struct zinf_home *home)
{
    if (home->coded) {
        go(l, ZINF_LANE_HOST, OP_ENCODE, END(CODE_STAGING, WHOLE));
        copy_image(l);
    } else {
        copy_in(l, END(PARAM_SLOT, WHOLE));
    }
}

static void copy_out(struct legs *l, struct end to)
{
    go(l, ZINF_LANE_D2H, OP_COPY_OUT, to);
}

struct travel travel_of(const struct setup *s, bool by_link, bool device_adds, bool device_unpacks)
{
    struct travel t = {
        .backward = has_backward(s),
        .updates = trains(s),
        .several = data_axis(s)->net,
        .cut = data_axis(s)->world > 1,
        .for_all = whole_state(s),
        .sliced = s->sliced,
        .own_kernels = device_is_far(s),
        .reads_params = s->form != ZINF_STATE_WHOLE,
        .device_adds = device_adds,
        .device_unpacks = device_unpacks && device_is_far(s),
    };
    memcpy(t.reach, s->reach, sizeof t.reach);
    t.reach[BY_DEVICE][OTHERS_DEVICES] = by_link;
    return t;
}

/* ---- parameters to the device ---- */

/* Whether parameters are unpacked before use. */
static bool unpacks(const struct zinf_home *home)
{
    return home->packed || home->param_headed;
}

/* Whether a drive has them, or may have some of them. */
static bool is_read(const struct zinf_home *home)
{
    return home->param == ZINF_TIER_DRIVE || home->param_headed;
}

/* Off the drive to `to`; what the model's folder has, or what is there in fewer bytes, by the CPU.
 * Of what RAM has in fewer bytes the rest is read. */
static void read_in(struct legs *l, const struct zinf_home *home, struct end to)
{
    if (home->in_files) {
        go(l, ZINF_LANE_READ, OP_READ, END(FILE_STAGING, WHOLE));
        go(l, ZINF_LANE_HOST, OP_ASSEMBLE, to);
    } else if (unpacks(home)) {
        l->end.place = home->param_headed ? PARAM_TAIL : PARAM_HOME;
        go(l, ZINF_LANE_READ, OP_READ, END(PACKED_STAGING, to.portion));
        go(l, ZINF_LANE_HOST, OP_UNPACK, to);
    } else {
        go(l, ZINF_LANE_READ, OP_READ, to);
    }
}

/* As they are stored, to be unpacked there: fewer bytes of the link, and no work of the CPU. */
static void fetch_packed(struct legs *l, const struct zinf_home *home, enum portion portion)
{
    l->end.place = home->param_headed ? PARAM_TAIL : PARAM_HOME;
    go(l, ZINF_LANE_READ, OP_READ, END(PACKED_STAGING, portion));
    go(l, ZINF_LANE_H2D, OP_PACKED_IN, END(PACKED_SLOT, portion));
    go(l, ZINF_LANE_DEVICE, OP_DEVICE_UNPACK, END(PARAM_SLOT, portion));
}

/* The drive has it as the link takes it. */
static void fetch_image(struct legs *l)
{
    l->end = END(IMAGE_HOME, WHOLE);
    go(l, ZINF_LANE_READ, OP_READ, END(CODE_STAGING, WHOLE));
    copy_image(l);
}

/* Units that this rank has whole. */
static void fetch_whole(struct legs *l, const struct travel *t, const struct zinf_home *home)
{
    if (home->imaged) {
        fetch_image(l);
        return;
    }
    if (t->device_unpacks && unpacks(home)) {
        fetch_packed(l, home, WHOLE);
        return;
    }
    enum actor writer = home->in_files || unpacks(home) ? BY_CPU : BY_DRIVE;
    enum waypoint to = t->reach[writer][ON_DEVICE] ? PARAM_SLOT : PARAM_STAGING;
    if (is_read(home))
        read_in(l, home, END(to, WHOLE));
    if (l->end.place != PARAM_SLOT)
        copy_params(l, home);
}

/* This rank's slice to its place in the whole on the device, then the others' beside it. */
static void fetch_by_devices(struct legs *l, const struct travel *t, const struct zinf_home *home)
{
    const bool unpacked_there = t->device_unpacks && unpacks(home);
    if (unpacked_there)
        fetch_packed(l, home, SLICE);
    else if (is_read(home))
        read_in(l, home, END(PARAM_STAGING, ALONE));
    if (home->param != ZINF_TIER_DEVICE && !unpacked_there)
        copy_in(l, END(PARAM_SLOT, SLICE));
    go(l, ZINF_LANE_NET, OP_LINK_GATHER, END(PARAM_SLOT, WHOLE));
}

/* The device copies each slice from where its rank has it. */
static void fetch_by_pull(struct legs *l, const struct zinf_home *home)
{
    if (is_read(home))
        read_in(l, home, END(PARAM_STAGING, ALONE));
    go(l, ZINF_LANE_NET, OP_PULL, END(PARAM_SLOT, WHOLE));
}

/* Slices meet in memory that the CPU writes. */
static void fetch_by_cpu(struct legs *l, const struct travel *t, const struct zinf_home *home)
{
    bool there = t->reach[BY_CPU][ON_DEVICE] &&
                 (!is_read(home) || unpacks(home) || t->reach[BY_DRIVE][ON_DEVICE]);
    enum waypoint to = there ? PARAM_SLOT : PARAM_STAGING;
    if (is_read(home))
        read_in(l, home, END(to, SLICE));
    go(l, ZINF_LANE_NET, OP_GATHER, END(to, WHOLE));
    if (!there)
        copy_params(l, home);
}

static bool stays(const struct travel *t, const struct zinf_home *home)
{
    return !t->sliced && !home->param_headed &&
           (home->param == ZINF_TIER_DEVICE ||
            (home->param == ZINF_TIER_HOST && t->reach[BY_DEVICE][ON_HOST]));
}

struct legs way_fetch(const struct travel *t, const struct zinf_home *home)
{
    struct legs l = {.end = {PARAM_HOME, t->sliced ? ALONE : WHOLE}, .by_cpu = {NOWHERE, WHOLE}};
    if (stays(t, home))
        return l;
    if (!t->sliced)
        fetch_whole(&l, t, home);
    else if (t->reach[BY_DEVICE][OTHERS_DEVICES])
        fetch_by_devices(&l, t, home);
    else if (t->reach[BY_DEVICE][OTHERS_HOST])
        fetch_by_pull(&l, home);
    else
        fetch_by_cpu(&l, t, home);
    for (int i = 0; i < l.n && l.leg[i].kind != OP_ENCODE; i++) /* what comes then is rounded */
        if (l.leg[i].to.place == PARAM_STAGING || t->reach[BY_CPU][ON_DEVICE])
            l.by_cpu = l.leg[i].to;
    return l;
}

bool way_stages_slices(const struct travel *t)
{
    return t->reach[BY_DEVICE][OTHERS_DEVICES] || t->reach[BY_DEVICE][OTHERS_HOST];
}

/* ---- gradients to their sum ---- */

static bool sums_on(const struct zinf_home *home, enum zinf_tier tier)
{
    return home->keeps_grad && home->grad == tier;
}

/* The whole unit's gradient is computed: a rank that keeps a slice has it elsewhere. */
bool way_sums_in_place(const struct travel *t, const struct zinf_home *home)
{
    return sums_on(home, ZINF_TIER_DEVICE) && !t->cut;
}

static bool is_on_host(struct end end)
{
    return end.place == GRAD_STAGING;
}

/* To memory that the CPU, and the drive if that writes it, reads; if it is not there. */
static void to_host(struct legs *l, const struct travel *t, enum portion portion, bool is_written)
{
    bool read = t->reach[BY_CPU][ON_DEVICE] && (!is_written || t->reach[BY_DRIVE][ON_DEVICE]);
    if (!read && !is_on_host(l->end))
        copy_out(l, END(GRAD_STAGING, portion));
}

/* This rank's slice of all ranks' sum: to where it is kept, or where it was. */
static void share(struct legs *l, const struct travel *t, bool to_home)
{
    if (t->reach[BY_DEVICE][OTHERS_DEVICES]) {
        go(l, ZINF_LANE_NET, OP_LINK_SCATTER, END(l->end.place, SLICE));
        return;
    }
    to_host(l, t, WHOLE, false);
    go(l, ZINF_LANE_NET, t->for_all ? OP_SUM_FOR_ALL : OP_SCATTER,
       to_home ? END(GRAD_HOME, ALONE) : END(l->end.place, SLICE));
}

static int add_kind(const struct travel *t, enum zinf_lane lane)
{
    return lane == ZINF_LANE_DEVICE && t->own_kernels ? OP_DEVICE_ADD : OP_GRAD_ADD;
}

static void norm_by_cpu(struct legs *l, enum zinf_lane lane)
{
    go(l, lane, OP_NORM_PART, l->end);
}

/* Parts of the sum of squares on the device, their sum on the CPU. */
static void norm_by_device(struct legs *l)
{
    struct end grad = l->end;
    go(l, ZINF_LANE_DEVICE, OP_SQUARES, END(SQUARES, ALONE));
    copy_out(l, END(SQUARES_STAGING, ALONE));
    norm_by_cpu(l, ZINF_LANE_HOST);
    l->end = grad;
}

static void sum_on_device(struct legs *l, const struct travel *t, struct turn turn)
{
    struct end home = END(GRAD_HOME, ALONE);
    if (is_on_host(l->end) && !t->reach[BY_DEVICE][ON_HOST])
        copy_in(l, END(GRAD_SLOT_2, ALONE));
    if (l->end.place != GRAD_HOME)
        go(l, ZINF_LANE_DEVICE, turn.first ? OP_DEVICE_COPY : add_kind(t, ZINF_LANE_DEVICE), home);
    if (turn.last && t->own_kernels)
        norm_by_device(l);
    else if (turn.last)
        norm_by_cpu(l, ZINF_LANE_DEVICE);
    if (turn.last && turn.eager)
        to_host(l, t, ALONE, false);
}

static void write_sum(struct legs *l, const struct zinf_home *home)
{
    if (home->packs_grad)
        go(l, ZINF_LANE_HOST, OP_PACK, END(GRAD_PACKED, ALONE));
    go(l, ZINF_LANE_WRITE, OP_WRITE, END(GRAD_HOME, ALONE));
}

/* A sum that is on the device is read there for its norm, where the CPU does not reach it: RAM is
 * slower, and busy with updates. The rank's part of it, once ranks have added up theirs. */
static bool has_norm_on_device(const struct travel *t, struct end grad)
{
    return t->own_kernels && (grad.place == GRAD_SLOT || grad.place == GRAD_SLOT_2) &&
           grad.portion != WHOLE;
}

/* One contribution alone: kept, or used from where the CPU can read it. */
static void sum_of_one(struct legs *l, const struct travel *t, const struct zinf_home *home,
                       struct turn turn)
{
    bool in_ram = sums_on(home, ZINF_TIER_HOST) && !turn.eager;
    bool written = sums_on(home, ZINF_TIER_DRIVE) && !turn.eager;
    bool by_device = has_norm_on_device(t, l->end);
    if (by_device)
        norm_by_device(l);
    if (!in_ram || t->reach[BY_CPU][ON_DEVICE])
        to_host(l, t, ALONE, written && !home->packs_grad);
    struct end at_hand = l->end;
    if (in_ram && l->end.place != GRAD_HOME)
        copy_out(l, END(GRAD_HOME, ALONE));
    else if (written)
        write_sum(l, home);
    if (!in_ram || t->reach[BY_CPU][ON_DEVICE])
        l->end = at_hand;
    if (!by_device)
        norm_by_cpu(l, ZINF_LANE_HOST);
}

/* On the drive a sum is read, added to and written back; the first is only written, the last only
 * read. */
static void sum_on_drive(struct legs *l, const struct travel *t, const struct zinf_home *at,
                         struct turn turn)
{
    struct end home = END(GRAD_HOME, ALONE), sum = END(SUM_STAGING, ALONE), grad = l->end;
    l->end = home;
    if (!turn.first && at->packs_grad)
        go(l, ZINF_LANE_READ, OP_READ, END(GRAD_PACKED, ALONE));
    if (!turn.first)
        go(l, at->packs_grad ? ZINF_LANE_HOST : ZINF_LANE_READ,
           at->packs_grad ? OP_UNPACK : OP_READ, sum);
    l->end = grad;
    to_host(l, t, ALONE, turn.first && !at->packs_grad);
    if (!turn.first)
        go(l, ZINF_LANE_HOST, OP_GRAD_ADD, sum);
    struct end at_hand = l->end;
    if (!turn.goes_on && (!turn.last || !turn.eager))
        write_sum(l, at);
    l->end = at_hand;
    if (turn.last)
        norm_by_cpu(l, ZINF_LANE_HOST);
}

static void sum_in_ram(struct legs *l, const struct travel *t, struct turn turn)
{
    struct end home = END(GRAD_HOME, ALONE), there = END(GRAD_SLOT_2, ALONE), grad = l->end;
    bool by_device = false;
    if (turn.first && l->end.place != GRAD_HOME) {
        copy_out(l, home);
    } else if (!turn.first && t->device_adds && !t->reach[BY_CPU][ON_DEVICE] && !is_on_host(grad)) {
        leg(l, ZINF_LANE_H2D, OP_COPY_IN, home, there);
        leg(l, ZINF_LANE_DEVICE, add_kind(t, ZINF_LANE_DEVICE), grad, there);
        by_device = turn.last && has_norm_on_device(t, there);
        if (by_device)
            norm_by_device(l);
        copy_out(l, home);
    } else if (!turn.first) {
        to_host(l, t, ALONE, false);
        go(l, ZINF_LANE_HOST, OP_GRAD_ADD, home);
    }
    if (turn.last && !by_device)
        norm_by_cpu(l, ZINF_LANE_HOST);
}

struct legs way_contribution(const struct travel *t, const struct zinf_home *home, struct turn turn)
{
    bool in_ram = sums_on(home, ZINF_TIER_HOST);
    struct legs l = {.end = {GRAD_SLOT, t->several ? WHOLE : SLICE}};
    if (turn.first && !turn.apart && way_sums_in_place(t, home))
        l.end = END(GRAD_HOME, ALONE);
    if (t->several)
        share(&l, t, turn.first && in_ram && !(turn.last && turn.eager));
    if (sums_on(home, ZINF_TIER_DEVICE))
        sum_on_device(&l, t, turn);
    else if (turn.first && turn.last)
        sum_of_one(&l, t, home, turn);
    else if (in_ram)
        sum_in_ram(&l, t, turn);
    else
        sum_on_drive(&l, t, home, turn);
    return l;
}

enum waypoint way_fold_from(const struct zinf_home *home)
{
    return sums_on(home, ZINF_TIER_DEVICE) ? GRAD_SLOT : GRAD_STAGING;
}

struct legs way_fold(const struct travel *t, const struct zinf_home *home, struct turn turn)
{
    struct legs l = {.end = {way_fold_from(home), ALONE}};
    if (sums_on(home, ZINF_TIER_DEVICE))
        sum_on_device(&l, t, turn);
    else if (sums_on(home, ZINF_TIER_HOST))
        sum_in_ram(&l, t, turn);
    else
        sum_on_drive(&l, t, home, turn);
    return l;
}

struct leg way_join(const struct travel *t)
{
    enum portion portion = t->several ? WHOLE : SLICE;
    return (struct leg){.lane = ZINF_LANE_DEVICE,
                        .kind = (uint16_t)add_kind(t, ZINF_LANE_DEVICE),
                        .from = END(GRAD_SLOT, portion),
                        .to = END(GRAD_SLOT_2, portion)};
}

/* ---- updates ---- */

/* The state decides who makes the update; what else that needs and is not at hand comes through the
 * tile. */
struct legs way_update(const struct travel *t, const struct zinf_home *home, struct end grad,
                       bool at_hand)
{
    const bool by_cpu = home->state != ZINF_TIER_DEVICE;
    const bool reaches = t->reach[BY_CPU][ON_DEVICE] || !by_cpu;
    const bool state_on_drive = home->state == ZINF_TIER_DRIVE || home->headed;
    const bool param_on_drive = is_read(home);
    const bool param_far = home->param == ZINF_TIER_DEVICE && !reaches;
    const struct end param[2] = {{home->param_headed ? PARAM_TAIL : PARAM_HOME, ALONE},
                                 {PARAM_TILE, ALONE}};
    const struct end state[2] = {{home->headed ? STATE_TAIL : STATE_HOME, ALONE},
                                 {STATE_TILE, ALONE}};
    const bool late = grad.place == GRAD_HOME;
    struct legs l = {.end = grad};
    if (late && sums_on(home, ZINF_TIER_DRIVE))
        go(&l, ZINF_LANE_READ, OP_READ, END(GRAD_TILE, ALONE));
    else if (late && sums_on(home, ZINF_TIER_DEVICE) && !reaches)
        copy_out(&l, END(GRAD_TILE, ALONE));
    grad = l.end;
    if (state_on_drive)
        leg(&l, ZINF_LANE_READ, OP_READ, state[0], state[1]);
    if (t->reads_params && !at_hand && param_on_drive)
        leg(&l, ZINF_LANE_READ, OP_READ, param[0], param[1]);
    else if (t->reads_params && !at_hand && param_far)
        leg(&l, ZINF_LANE_D2H, OP_COPY_OUT, param[0], param[1]);
    leg(&l, by_cpu ? ZINF_LANE_HOST : ZINF_LANE_DEVICE,
        !by_cpu && t->own_kernels ? OP_DEVICE_UPDATE : OP_UPDATE, grad, state[state_on_drive]);
    if (state_on_drive)
        leg(&l, ZINF_LANE_WRITE, OP_WRITE, state[1], state[0]);
    if (param_on_drive)
        leg(&l, ZINF_LANE_WRITE, OP_WRITE, param[1], param[0]);
    else if (param_far)
        leg(&l, ZINF_LANE_H2D, OP_COPY_IN, param[1], param[0]);
    if (home->backed)
        leg(&l, ZINF_LANE_WRITE, OP_WRITE, home->packs_copy ? END(COPY_TILE, ALONE) : param[0],
            END(PARAM_BACKING, ALONE));
    return l;
}

struct legs way_image(void)
{
    struct legs l = {.end = {PARAM_UPDATED, WHOLE}};
    go(&l, ZINF_LANE_HOST, OP_ENCODE, END(CODE_STAGING, WHOLE));
    go(&l, ZINF_LANE_WRITE, OP_WRITE, END(IMAGE_HOME, WHOLE));
    return l;
}

/* Through host memory where the CPU does not reach them: the slice out, the whole back. */
struct legs way_spread(const struct travel *t, const struct zinf_home *home)
{
    struct legs l = {.end = {PARAM_HOME, SLICE}};
    bool on_device = home->param == ZINF_TIER_DEVICE;
    if (!t->several || t->sliced || t->for_all)
        return l;
    if (on_device && t->reach[BY_DEVICE][OTHERS_DEVICES]) {
        go(&l, ZINF_LANE_NET, OP_LINK_GATHER, END(PARAM_HOME, WHOLE));
    } else if (!on_device || t->reach[BY_CPU][ON_DEVICE]) {
        go(&l, ZINF_LANE_NET, OP_GATHER, END(PARAM_HOME, WHOLE));
    } else {
        copy_out(&l, END(PARAM_STAGING, SLICE));
        go(&l, ZINF_LANE_NET, OP_GATHER, END(PARAM_STAGING, WHOLE));
        copy_in(&l, END(PARAM_HOME, WHOLE));
    }
    return l;
}

/* ---- values between stages ---- */

struct legs way_value_out(const struct travel *t, enum zinf_tier home)
{
    struct legs l = {.end = {VALUE_SLOT, WHOLE}};
    bool on_drive = home == ZINF_TIER_DRIVE;
    if (!on_drive || !t->reach[BY_DRIVE][ON_DEVICE])
        copy_out(&l, END(on_drive ? VALUE_STAGING : VALUE_HOME, WHOLE));
    if (on_drive)
        go(&l, ZINF_LANE_WRITE, OP_WRITE, END(VALUE_HOME, WHOLE));
    return l;
}

struct legs way_value_back(const struct travel *t, enum zinf_tier home)
{
    struct legs l = {.end = {VALUE_HOME, WHOLE}};
    enum waypoint to = t->reach[BY_DRIVE][ON_DEVICE] ? VALUE_SLOT : VALUE_STAGING;
    if (home == ZINF_TIER_DRIVE)
        go(&l, ZINF_LANE_READ, OP_READ, END(to, WHOLE));
    if (l.end.place != VALUE_SLOT)
        copy_in(&l, END(VALUE_SLOT, WHOLE));
    return l;
}

/* ---- what a plan must have room for ---- */

bool legs_meet(struct legs l)
{
    bool meet = false;
    for (int i = 0; i < l.n; i++)
        meet |= l.leg[i].lane == ZINF_LANE_NET;
    return meet;
}

uint32_t legs_waypoints(struct legs l)
{
    uint32_t places = 0;
    for (int i = 0; i < l.n; i++)
        places |= 1u << l.leg[i].from.place | 1u << l.leg[i].to.place;
    return places;
}

uint32_t way_waypoints(const struct travel *t, const struct zinf_home *home, bool trained,
                       bool several, bool eager)
{
    uint32_t places = legs_waypoints(way_fetch(t, home));
    if (trained && t->updates)
        places |= legs_waypoints(way_update(t, home, END(GRAD_HOME, ALONE), false)) |
                  legs_waypoints(way_spread(t, home));
    if (trained && t->updates && home->imaged)
        places |= legs_waypoints(way_image());
    for (int turn = 0; trained && t->backward && turn < 8; turn++) {
        struct turn of = {.first = turn & 1, .last = turn & 2, .eager = turn & 4};
        if ((several || (of.first && of.last)) && !(several && of.first && of.last) &&
            (eager || !of.eager))
            places |= legs_waypoints(way_contribution(t, home, of));
        if (several && of.first && of.last) /* there may be one alone after all */
            places |= legs_waypoints(way_contribution(t, home, of)) &
                      (1u << SQUARES | 1u << SQUARES_STAGING);
        if (home->grad_sums > 1 && !of.first && (eager || !of.eager))
            places |= legs_waypoints(way_fold(t, home, of));
    }
    return places;
}
