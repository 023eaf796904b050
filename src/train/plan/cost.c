/*
 * cost: how long an operation takes alone on the machine: seconds a flop, or a byte where it makes
 * none, by its kind. Rates are measured (calibrate.c), or follow from speeds that somebody stated.
 */
#include "train/plan/plan.h"
#include "train/save/save.h"

/* Guesses, for what is not known. */
#define HOST_FLOPS_A_THREAD 6e10
#define CUDA_FLOPS 5e13
#define MEMORY_BYTES 6e9 /* a second, of the host's memory by one lane */
#define CUDA_BYTES 6e11  /* of a GPU's */
#define LINK_BYTES 1.2e10
#define DRIVE_BYTES 1.5e9
#define NET_BYTES 2e9       /* from one rank to the others */
#define RECORD_SECONDS 3e-4 /* two small writes, one after the other */
#define DRIVE_CPU 0.15      /* of one CPU while a drive lane is busy: submission, checksums */
#define BESIDE 0.55         /* speed of reads beside writes, and of these beside those */

static double threads_of(const struct plan *p)
{
    return p->setup->device->n_threads > 0 ? (double)p->setup->device->n_threads : 1;
}

void plan_cost(const struct plan *p, struct zinf_op *op)
{
    bool host_device = p->setup->device->host_addressable;
    double work = op->flops > 0 ? op->flops : (double)op->bytes;
    op->seconds = p->rates.seconds[op->kind] * work * (1 - op->left_out);
    if (op->lane == ZINF_LANE_READ || op->lane == ZINF_LANE_WRITE)
        op->cpu = (float)(DRIVE_CPU / threads_of(p));
    else if (op->lane == ZINF_LANE_HOST)
        op->cpu = 1;
    else if (op->lane == ZINF_LANE_DEVICE)
        op->cpu = host_device ? 1 : 0;
    else
        op->cpu = host_device ? (float)(1 / threads_of(p)) : 0;
}

void plan_cost_again(const struct plan *p, struct zinf_program *program)
{
    for (uint32_t i = 0; i < program->n_ops; i++)
        plan_cost(p, &program->ops[i]);
}

struct zinf_machine plan_machine(const struct plan *p)
{
    return (struct zinf_machine){.read_beside_write = p->rates.read_beside_write,
                                 .write_beside_read = p->rates.write_beside_read};
}

static double a_second(double known, double guess)
{
    return 1 / (known > 0 ? known : guess);
}

/* Whether stages of this kind make products, as one of them at least does. */
static bool makes_products(const struct walk *w, int kind)
{
    for (uint32_t s = 0; s < w->graph->n_stages; s++)
        if (w->stages[s].kind == kind_sort(kind) && w->stages[s].size[kind_pass(kind)].flops > 0)
            return true;
    return false;
}

/* Reads and writes at once get the half of a mix each. */
static double beside(double alone, double mixed)
{
    double share = alone > 0 && mixed > 0 ? mixed / 2 / alone : BESIDE;
    return share < 0.1 ? 0.1 : share > 1 ? 1 : share;
}

void plan_rates_of(const struct plan *p, const struct zinf_speeds *s, struct zinf_rates *rates)
{
    bool host_device = p->setup->device->host_addressable;
    double flops = host_device ? HOST_FLOPS_A_THREAD * threads_of(p) : CUDA_FLOPS;
    double guess = host_device ? MEMORY_BYTES : CUDA_BYTES; /* of the device's memory */
    double bytes = !host_device && s->device_bytes > 0 ? s->device_bytes : guess;
    double optimizer = a_second(s->optimizer_bytes, MEMORY_BYTES);
    const double by_cost[] = {
        [COST_NONE] = 0,
        [COST_LINK] = a_second(s->link_bytes, host_device ? MEMORY_BYTES : LINK_BYTES),
        [COST_OPTIMIZER] = optimizer,
        [COST_HOST_ADD] = 3 * optimizer, /* of the bytes of one of three */
        [COST_DEVICE_ADD] = 3 / bytes,
        [COST_DEVICE_MEMORY] = 1 / bytes,
        [COST_RECORD] = RECORD_SECONDS / DURABLE_SCALARS_BYTES,
        [COST_DRIVE_READ] = a_second(s->drive_read_bytes, DRIVE_BYTES),
        [COST_DRIVE_WRITE] = a_second(s->drive_write_bytes, DRIVE_BYTES),
        [COST_NET] = 1 / NET_BYTES,
        [COST_STAGE] = 1 / bytes,
    };
    memset(rates, 0, sizeof *rates);
    for (int kind = 0; kind < ZINF_RATE_KINDS; kind++) {
        bool products = kind >= OP_STAGES && makes_products(&p->setup->walk, kind);
        rates->seconds[kind] =
            products ? a_second(s->device_flops, flops) : by_cost[op_kind_cost(kind)];
    }
    rates->read_beside_write = beside(s->drive_read_bytes, s->drive_mixed_bytes);
    rates->write_beside_read = beside(s->drive_write_bytes, s->drive_mixed_bytes);
}
