/*
 * cost: how long an operation takes alone on the machine: seconds a flop, or a byte where it makes
 * none, by its kind. Rates are measured (calibrate.c), or follow from speeds that somebody stated.
 */
#include "train/plan/plan.h"
#include "train/rules/rules.h"
#include "train/save/save.h"

#include <math.h>

/* Guesses, for what is not known. */
#define HOST_FLOPS_A_THREAD 6e10
#define CUDA_FLOPS 5e13
#define MEMORY_BYTES 6e9 /* a second, of the host's memory by one lane */
#define CUDA_BYTES 6e11  /* of a GPU's */
#define LINK_BYTES 1.2e10
#define DRIVE_BYTES 1.5e9
#define NET_BYTES 2e9       /* from one rank to the others */
#define PEER_BYTES 2e10     /* from one GPU to the others */
#define RECORD_SECONDS 3e-4 /* two small writes, one after the other */
#define DRIVE_CPU 0.15      /* of one CPU while a drive lane is busy: submission, checksums */
/* Bytes of state that a thread unpacks and packs again in a second with AVX-512, and how many bytes
 * an update moves in the time of one, where memory limits both (BENCHMARKS.md). Numbers of 16 bits
 * take the time of as many of 32; unpacking takes the smaller half. */
#define PACK_BYTES 2.7e9
#define PACK_WORK 1.3
#define HALF_BYTES 0.5
#define UNPACKED_MEANWHILE 2.5
#define BESIDE 0.55 /* speed of reads beside writes, and of these beside those */
/* Of a GPU. Kernels that are enqueued one behind the other start no faster than the CPU can launch
 * them, 4 to 6 microseconds each (pegainfer's "From Launch Overhead to CUDA Graph"), and about one
 * passes between the end of one and the next (3.8 for one of 2.9: A. Gray, "Getting Started with
 * CUDA Graphs", NVIDIA). 128 cores make tiles of 128 x 128: a GeForce RTX 4090 has as many, an A100
 * 108, an H100 132. */
#define SHORTEST_KERNEL 4e-6
#define BETWEEN_KERNELS 1e-6
#define WAVE (128.0 * 128 * 128)
/* Attention that keeps its scores on the chip, beside products: 72 % of an A100's rate forward and
 * 63 % backward, where products have up to 85 % (Dao, "FlashAttention-2", arXiv 2307.08691, section
 * 4.1). A CPU's is that of products, until it was measured. */
#define ATTENTION (0.72 / 0.85)
#define ATTENTION_BACKWARD (0.63 / 0.85)
#define CPU_ATTENTION_BACKWARD 1.25
/* Products that backward makes for each of forward's. */
#define BACKWARD_PRODUCTS 2.5

static double threads_of(const struct plan *p)
{
    return p->setup->device->n_threads > 0 ? (double)p->setup->device->n_threads : 1;
}

uint64_t plan_added_numbers(const struct plan *p, const struct zinf_op *op)
{
    const struct walk *w = &p->setup->walk;
    uint64_t n = 0;
    if (!(op->flags & OP_ONTO) || !p->setup->sums_by_products)
        return 0;
    if (op->kind < OP_STAGES) {
        const uint64_t all = op->bytes / sizeof(float);
        n = w->units[op->unit].added_elems;
        return n < all ? n : all;
    }
    const struct zinf_ids *units = &w->graph->stages[op->stage].units;
    for (uint32_t i = 0; i < units->n; i++)
        n += w->units[units->at[i]].added_elems;
    return n;
}

/* A product that adds to a sum reads it, and the operation behind it adds the rest. */
static double added_work(const struct plan *p, const struct zinf_op *op)
{
    const double bytes = (double)plan_added_numbers(p, op) * sizeof(float);
    return op->kind < OP_STAGES ? -bytes : bytes * p->setup->compute.pace.flops_a_byte;
}

/* By which an update is longer because the thing is packed. A kept gradient is unpacked alone, and
 * takes the time of as many numbers of 16 bits. */
static double update_work(const struct rule_thing *t)
{
    const struct pack_work *work = &t->setup->pack_work;
    const struct rule_numbers *state = &t->setup->state_numbers[t->group];
    const double bytes = (double)rule_plain_bytes(t);
    switch (t->what) {
    case ZINF_PACKABLE_STATE:
        return work->wide * (double)state->wide + work->half * (double)state->half;
    case ZINF_PACKABLE_PARAM:
        return bytes * (t->setup->dtype == ZINF_DTYPE_F32 ? work->wide : work->half);
    default:
        return work->unpack * bytes / 2;
    }
}

/* Of an operation that packs or unpacks numbers and does nothing else. */
static double coder_work(const struct rule_thing *t, bool packs)
{
    const struct pack_work *work = &t->setup->pack_work;
    const bool wide = t->what == ZINF_PACKABLE_GRAD || t->setup->dtype == ZINF_DTYPE_F32;
    const double bytes = (double)rule_plain_bytes(t);
    return packs ? bytes * (wide ? work->wide : work->half) : bytes * work->unpack / (wide ? 2 : 1);
}

/* What is behind packed data, such as copies of parameters, is not packed. */
static double packed_work(double work, const struct rule_thing *t)
{
    return work - (double)rule_plain_bytes(t) + (double)rule_packed_expected(t);
}

double plan_work(const struct plan *p, const struct zinf_op *op)
{
    double work = op->flops > 0 ? op->flops : (double)op->bytes;
    if (op->kind == OP_HAND && !op->visit) /* the rank that takes it waits */
        return 0;
    work += added_work(p, op);
    const uint32_t group = (uint32_t)op->arg;
    const bool updates = op->kind == OP_UPDATE || op->kind == OP_MATRIX_UPDATE;
    if (op->kind == OP_MATRIX_UPDATE)
        work += setup_matrix_bytes(p->setup, group);
    const struct zinf_home *home = op->unit < 0 ? NULL : &p->homes[op->unit];
    if (updates && home->headed) /* packed, then copied */
        work += 2 * (double)p->setup->head_bytes[group];
    if (updates && home->param_headed)
        work += 2 * (double)p->setup->param_head_bytes[group];
    const bool moves = op->kind == OP_READ || op->kind == OP_WRITE;
    if (moves && op->where->head) /* what it has room for is what is expected */
        return 0;
    const uint16_t flags[] = {OP_PACKED, OP_PARAM, OP_GRAD};
    for (int what = 0; what < ZINF_PACKABLES; what++) {
        const struct rule_thing t = {p->setup, (enum zinf_packable)what, group, false};
        if (!(op->flags & flags[what]) || p->variant.packs < packing_of(t.what))
            continue;
        if (op->kind == OP_PACK || op->kind == OP_UNPACK)
            return coder_work(&t, op->kind == OP_PACK);
        work = updates ? work + update_work(&t) : packed_work(work, &t);
    }
    return work;
}

struct crossed plan_crossed(const struct plan *p, const struct zinf_op *op)
{
    struct crossed of = {0, 0};
    if (op->flags & OP_MEETS) /* in host memory */
        of.sent = (double)rule_meeting_sent(p->setup, (uint32_t)op->arg);
    if (op->kind < OP_STAGES || tensor_axis(p->setup)->world < 2)
        return of;
    const struct zinf_stage_size *all = p->setup->walk.stages[op->stage].size;
    const struct zinf_stage_size *size = &all[kind_pass(op->kind)],
                                 *back = &all[ZINF_PASS_BACKWARD];
    const bool again = op->flags & OP_RECOMPUTES;
    const double visits = zinf_stage_visits(&p->setup->walk.graph->stages[op->stage]);
    if (!again || kind_pass(op->kind) == ZINF_PASS_BACKWARD)
        of = (struct crossed){size->crossed, size->sent};
    if (again) {
        of.bytes += back->crossed_again;
        of.sent += back->sent_again;
    }
    of.bytes /= visits;
    of.sent /= visits;
    return of;
}

/* What GPUs bring together goes to the host and back. Ranks of one host add in its memory, all at
 * once. */
double plan_crossed_seconds(const struct plan *p, const struct zinf_op *op)
{
    static const struct zinf_speeds unknown;
    const struct setup *s = p->setup;
    const struct crossed of = plan_crossed(p, op);
    struct zinf_speeds used;
    if (of.sent == 0 || !zinf_net_is_described(s->mesh.all))
        return 0;
    plan_speeds_of(p, s->options.speeds ? s->options.speeds : &unknown, &used);
    const struct zinf_net_place at = zinf_net_place(tensor_axis(s)->net),
                                all = zinf_net_place(s->mesh.all);
    const bool near = at.local_world == at.world;
    const double beside =
        (double)all.local_world / at.local_world; /* that cross at the same time */
    const double each = near ? 3 / used.optimizer_bytes : beside / used.net_bytes;
    return of.sent * each + of.bytes * (device_is_far(s) ? 2 / used.link_bytes : 0);
}

/* What an operation uses of the CPUs, before that is measured: of a GPU's and of copies to one
 * nothing. */
static double usual_cpu(const struct plan *p, enum zinf_lane lane)
{
    const bool host_device = p->setup->device->host_addressable;
    switch (lane) {
    case ZINF_LANE_READ:
    case ZINF_LANE_WRITE:
        return DRIVE_CPU / threads_of(p);
    case ZINF_LANE_HOST:
        return 1;
    case ZINF_LANE_DEVICE:
        return host_device;
    default:
        return host_device ? 1 / threads_of(p) : 0;
    }
}

void plan_cost(const struct plan *p, struct zinf_op *op)
{
    const bool meets = op->flags & OP_MEETS; /* an update of the CPU, in the device's lane */
    const double usual = meets ? 1 : usual_cpu(p, op->lane), measured = p->rates.cpu[op->kind];
    op->seconds = p->rates.seconds[op->kind] * plan_work(p, op) * (1 - op->left_out) +
                  plan_crossed_seconds(p, op);
    op->cpu = (float)(usual > 0 && measured > 0 ? measured : usual);
}

void plan_cost_again(const struct plan *p, struct zinf_program *program)
{
    if (program->pieces) /* get their seconds as they are made */
        program->pieces->predicted = false;
    for (uint32_t i = 0; i < program->n_ops; i++)
        plan_cost(p, &program->ops[i]);
}

struct zinf_machine plan_machine(const struct plan *p)
{
    struct zinf_machine machine = {.read_beside_write = p->rates.read_beside_write,
                                   .write_beside_read = p->rates.write_beside_read,
                                   .drive_beside_cpus = p->rates.drive_beside_cpus};
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        const bool enqueues =
            device_is_far(p->setup) && lane >= ZINF_LANE_H2D && lane <= ZINF_LANE_DEVICE;
        const bool moves = lane == ZINF_LANE_READ || lane == ZINF_LANE_WRITE;
        machine.waking_seconds[lane] =
            (enqueues ? 0 : p->rates.waking_seconds) + (moves ? p->rates.drive_answer_seconds : 0);
    }
    return machine;
}

double plan_least_seconds(const struct plan *p, const struct zinf_program *first,
                          const struct zinf_program *second)
{
    struct zinf_machine machine = plan_machine(p);
    struct zinf_work work = {0};
    zinf_work_add(&work, first);
    if (second)
        zinf_work_add(&work, second);
    return work.n_ops ? zinf_work_least_seconds(&work, &machine) : INFINITY;
}

static double known_or(double known, double guess)
{
    return known > 0 ? known : guess;
}

/* Reads and writes together, where nobody measured them so. */
static double mixed_of(const struct zinf_speeds *s)
{
    return BESIDE * (s->drive_read_bytes + s->drive_write_bytes);
}

/* Ranks on this one's host, itself included: they share its memory, CPUs and drives. Those of a
 * training must all count alike, or they would order operations otherwise: only where one host has
 * all of them is that known to each. */
static double sharers_of(const struct plan *p)
{
    const struct zinf_net *all = p->setup->mesh.all;
    if (!all)
        return 1;
    const struct zinf_net_place at = zinf_net_place(all);
    return zinf_net_is_described(all) || at.local_world == at.world ? at.local_world : 1;
}

/* The part of what all threads that were measured compute which this rank's threads do: those of
 * several ranks are no more than there are CPUs. */
static double threads_part(const struct plan *p)
{
    const struct setup *s = p->setup;
    const double sharers = sharers_of(p);
    const double cpus = s->options.described ? s->options.described->n_threads : zinf_cpu_count();
    if (sharers < 2 || !(cpus > 0))
        return 1;
    return fmin(threads_of(p), cpus / sharers) /
           (s->config->threads > 0 ? (double)s->config->threads : cpus);
}

/* What all ranks of a host have of each at once, unless somebody knows better: all that goes to
 * devices passes its memory as well. */
static void share(const struct plan *p, struct zinf_speeds *used)
{
    const double n = sharers_of(p);
    if (n < 2)
        return;
    used->root_bytes = known_or(used->root_bytes, used->optimizer_bytes);
    used->optimizer_bytes /= n;
    used->pack_bytes /= n;
    used->pack_half_bytes /= n;
    used->unpack_bytes /= n;
    used->drive_read_bytes /= n;
    used->drive_write_bytes /= n;
    used->drive_mixed_bytes /= n;
    used->link_bytes = fmin(used->link_bytes, used->root_bytes / n);
    if (p->setup->device->host_addressable)
        used->device_bytes /= n;
}

/* Seconds of a byte that a collective of some kind takes, as it is counted: of what a rank has of
 * others, whoever is near. */
struct between {
    double gather, pull, sum;
    double peer; /* of either, between devices */
};

/* Ranks of one process pull units as a copy from RAM does, all at once; what is copied or added up
 * in RAM is a read or two and a write. */
static struct between between_seats(const struct plan *p, const struct zinf_speeds *used)
{
    double n = data_axis(p->setup)->world, link = used->link_bytes;
    return (struct between){2 / used->optimizer_bytes, n / (n - 1) / link,
                            3 / used->optimizer_bytes, 1 / used->peer_bytes};
}

/* Some are on the rank's host, and all of its host's processes share the network to the rest: what
 * all get alike crosses it once for each process, and so do sums of those in one process that are a
 * subtree. */
static struct between between_of(const struct plan *p, const struct zinf_speeds *used)
{
    const struct zinf_net *net = data_axis(p->setup)->net;
    if (net && zinf_net_place(net).seats == zinf_net_place(net).world)
        return between_seats(p, used);
    if (!net || !zinf_net_is_described(net))
        return (struct between){1 / NET_BYTES, 1 / NET_BYTES, 1 / NET_BYTES, 1 / used->peer_bytes};
    struct zinf_net_place at = zinf_net_place(net);
    double far = (double)(at.world - at.local_world) / (at.world - 1);
    double near = (1 - far) / NET_BYTES, alike = far * at.local_world / at.seats / used->net_bytes;
    double each = far * at.local_world / used->net_bytes;
    double sum = zinf_net_adds_first(net) ? alike : each;
    return (struct between){fmax(near, alike), 0, fmax(near, sum),
                            fmax((1 - far) / used->peer_bytes, each)};
}

/* Of a byte between neighbours in a pipeline, whose hosts' other ranks cross at the same time. */
static double crossing_of(const struct plan *p, const struct zinf_speeds *used)
{
    const struct zinf_net *net = pipe_axis(p->setup)->net;
    if (!net || !zinf_net_is_described(net))
        return 1 / NET_BYTES;
    const struct zinf_net_place at = zinf_net_place(net), all = zinf_net_place(p->setup->mesh.all);
    const double beside = (double)all.local_world / at.local_world;
    return at.local_world == at.world ? 1 / NET_BYTES : beside / used->net_bytes;
}

/* Of a rank that is alone on its host, but has threads_part of the CPUs. */
static void complete(const struct plan *p, const struct zinf_speeds *s, double cpu,
                     struct zinf_speeds *used)
{
    const bool host_device = p->setup->device->host_addressable;
    const double flops = host_device ? HOST_FLOPS_A_THREAD * threads_of(p) : CUDA_FLOPS;
    const double device = host_device ? cpu : 1;
    *used = (struct zinf_speeds){
        .device_flops = known_or(device * s->device_flops, flops),
        .device_bytes = known_or(s->device_bytes, host_device ? MEMORY_BYTES : CUDA_BYTES),
        .link_bytes = known_or(s->link_bytes, host_device ? MEMORY_BYTES : LINK_BYTES),
        .optimizer_bytes = known_or(s->optimizer_bytes, MEMORY_BYTES),
        .host_flops = known_or(cpu * s->host_flops, HOST_FLOPS_A_THREAD * threads_of(p)),
        .drive_read_bytes = known_or(s->drive_read_bytes, DRIVE_BYTES),
        .drive_write_bytes = known_or(s->drive_write_bytes, DRIVE_BYTES),
        .drive_least = s->drive_least,
        .drive_most = s->drive_most,
        .drive_busy = s->drive_busy,
        .kernels = host_device ? s->kernels : 0,
        .wakings = s->wakings,
        .drive_answers = s->drive_answers,
        .sum_bytes = s->sum_bytes,
        .drive_cpu_bytes = s->drive_cpu_bytes,
        .net_bytes = known_or(s->net_bytes, NET_BYTES),
        .root_bytes = s->root_bytes,
        .peer_bytes = known_or(s->peer_bytes, PEER_BYTES),
    };
    used->pack_bytes = known_or(
        s->pack_bytes, fmin(PACK_BYTES * threads_of(p), used->optimizer_bytes / PACK_WORK));
    used->pack_half_bytes = known_or(s->pack_half_bytes, HALF_BYTES * used->pack_bytes);
    used->unpack_bytes = known_or(s->unpack_bytes, UNPACKED_MEANWHILE * used->pack_half_bytes);
    for (int i = 0; i < ZINF_ATTENTION_LENGTHS; i++)
        used->attention[i] =
            (struct zinf_attention_speed){s->attention[i].tokens, device * s->attention[i].forward,
                                          device * s->attention[i].backward};
    for (int i = 0; i < ZINF_PRODUCTS && host_device; i++)
        used->products[i] = s->products[i];
    used->wide_flops = host_device ? s->wide_flops : 0;
    used->attention_flops =
        known_or(device * s->attention_flops, used->device_flops * (host_device ? 1 : ATTENTION));
    used->attention_backward_flops =
        known_or(device * s->attention_backward_flops,
                 used->device_flops * (host_device ? CPU_ATTENTION_BACKWARD : ATTENTION_BACKWARD));
    used->drive_mixed_bytes = known_or(s->drive_mixed_bytes, mixed_of(used));
}

void plan_speeds_of(const struct plan *p, const struct zinf_speeds *s, struct zinf_speeds *used)
{
    complete(p, s, threads_part(p), used);
    share(p, used);
}

_Static_assert(ZINF_ATTENTION_PACES >= ZINF_ATTENTION_LENGTHS, "each length has a pace");

/* The machine's own, whoever shares it: what only their ratio counts of is the same on all ranks.
 */
static void speeds_alone(const struct setup *s, struct zinf_speeds *used)
{
    static const struct zinf_speeds unknown;
    const struct plan p = {.setup = s};
    complete(&p, s->options.speeds ? s->options.speeds : &unknown, 1, used);
}

/* A row of a causal sequence sees half of it, in the mean, and its last tile has an edge. */
static void take_attention(const struct zinf_speeds *used, struct zinf_pace *pace)
{
    const double flops = used->device_flops;
    while (pace->n_attention < ZINF_ATTENTION_LENGTHS &&
           used->attention[pace->n_attention].tokens > 0) {
        const struct zinf_attention_speed *of = &used->attention[pace->n_attention];
        const double keys = (of->tokens + 1) / 2;
        pace->attention[pace->n_attention++] =
            (struct zinf_attention_pace){keys + ZINF_ATTENTION_EDGE, keys * flops / of->forward,
                                         keys * BACKWARD_PRODUCTS * flops / of->backward};
    }
    if (pace->n_attention)
        return;
    pace->n_attention = 1;
    pace->attention[0] =
        (struct zinf_attention_pace){1, flops / used->attention_flops,
                                     BACKWARD_PRODUCTS * flops / used->attention_backward_flops};
}

static void take_products(const struct zinf_speeds *used, struct zinf_pace *pace)
{
    const double flops = used->device_flops;
    for (int i = 0; i < ZINF_PRODUCTS && used->products[i].flops > 0; i++)
        pace->products[i] = (struct zinf_product_pace){flops / used->products[i].flops,
                                                       flops / used->products[i].bytes,
                                                       flops / used->products[i].calls};
    pace->wide_flop = used->wide_flops > 0 ? flops / used->wide_flops : 0;
}

struct zinf_pace setup_pace(const struct setup *s)
{
    struct zinf_speeds used;
    speeds_alone(s, &used);
    double flops = used.device_flops;
    struct zinf_pace pace = {.flops_a_byte = flops / used.device_bytes};
    take_attention(&used, &pace);
    take_products(&used, &pace);
    if (used.kernels > 0)
        pace.between = flops / used.kernels;
    if (device_is_far(s)) {
        pace.shortest = SHORTEST_KERNEL * flops;
        pace.between = BETWEEN_KERNELS * flops;
        pace.wave = WAVE;
    }
    return pace;
}

double setup_bytes_a_flop(const struct setup *s)
{
    struct zinf_speeds used;
    speeds_alone(s, &used);
    return used.optimizer_bytes / used.host_flops;
}

struct pack_work setup_pack_work(const struct setup *s)
{
    struct zinf_speeds used;
    speeds_alone(s, &used);
    return (struct pack_work){used.optimizer_bytes / used.pack_bytes,
                              used.optimizer_bytes / used.pack_half_bytes,
                              used.optimizer_bytes / used.unpack_bytes};
}

double setup_matrix_bytes(const struct setup *s, uint32_t group)
{
    const struct rule_work *work = &s->group_work[group];
    return work->bytes + (work->flops + work->loops) * s->bytes_a_flop;
}

/* Reads and writes at once get the half of a mix each. */
static double beside_of(double alone, double mixed)
{
    double share = alone > 0 && mixed > 0 ? mixed / 2 / alone : BESIDE;
    return share < 0.1 ? 0.1 : share > 1 ? 1 : share;
}

/* What a drive lane uses of the CPUs at its full rate: submission, completion and checksums; 0: not
 * known. */
static double drive_cpu(const struct plan *p, const struct zinf_speeds *used, double rate)
{
    if (!(used->drive_cpu_bytes > 0))
        return 0;
    const bool sums = p->setup->config->checksums && used->sum_bytes > 0;
    return fmin(rate * (1 / used->drive_cpu_bytes + (sums ? 1 / used->sum_bytes : 0)), 1) /
           threads_of(p);
}

void plan_rates_of(const struct plan *p, const struct zinf_speeds *s, struct zinf_rates *rates)
{
    struct zinf_speeds used;
    plan_speeds_of(p, s, &used);
    const struct between between = between_of(p, &used);
    const double by_cost[] = {
        [COST_NONE] = 0,
        [COST_LINK] = 1 / used.link_bytes,
        [COST_OPTIMIZER] = 1 / used.optimizer_bytes,
        [COST_HOST_ADD] = 3 / used.optimizer_bytes, /* of the bytes of one of three */
        [COST_DEVICE_ADD] = 3 / used.device_bytes,
        [COST_DEVICE_MEMORY] = 1 / used.device_bytes,
        [COST_RECORD] = RECORD_SECONDS / DURABLE_SCALARS_BYTES,
        [COST_DRIVE_READ] = 1 / used.drive_read_bytes,
        [COST_DRIVE_WRITE] = 1 / used.drive_write_bytes,
        [COST_GATHER] = between.gather,
        [COST_PULL] = between.pull,
        [COST_SUM] = between.sum,
        [COST_PEER] = between.peer,
        [COST_CROSS] = crossing_of(p, &used),
        [COST_STAGE] = 1 / used.device_flops,
    };
    memset(rates, 0, sizeof *rates);
    for (int kind = 0; kind < ZINF_RATE_KINDS; kind++) {
        rates->seconds[kind] = by_cost[op_kind_cost(kind)];
    }
    rates->cpu[OP_READ] = drive_cpu(p, &used, used.drive_read_bytes);
    rates->cpu[OP_WRITE] = drive_cpu(p, &used, used.drive_write_bytes);
    rates->drive_beside_cpus = used.drive_busy;
    rates->waking_seconds = used.wakings > 0 ? 1 / used.wakings : 0;
    rates->drive_answer_seconds = used.drive_answers > 0 ? 1 / used.drive_answers : 0;
    rates->read_beside_write = beside_of(s->drive_read_bytes, s->drive_mixed_bytes);
    rates->write_beside_read = beside_of(s->drive_write_bytes, s->drive_mixed_bytes);
}
