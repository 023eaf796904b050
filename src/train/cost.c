/*
 * cost: how long an operation takes alone on the machine, from what operations of its kind took:
 * seconds a flop, or a byte where it makes none. Rates come from a step that was run one operation
 * at a time; before that, from what is stated here.
 */
#include "train/trainer.h"

/* Guesses, until something was measured. */
#define HOST_FLOPS_A_THREAD 4e10
#define DEVICE_FLOPS 5e13
#define MEMORY_BYTES 6e9  /* a second */
#define DRIVE_BYTES 1.5e9 /* a second */
#define DRIVE_CPU 0.15    /* of one CPU while a drive lane is busy: submission, checksums */

static double work_of(const struct zinf_op *op)
{
    return op->flops > 0 ? op->flops : (double)op->bytes;
}

static bool is_compute(const struct zinf_op *op)
{
    return op->lane == ZINF_LANE_DEVICE;
}

void trainer_cost(const struct zinf_trainer *t, struct zinf_op *op)
{
    bool host_device = t->device->host_addressable;
    double threads = t->device->n_threads > 0 ? (double)t->device->n_threads : 1;
    op->seconds = t->rates.seconds[op->kind] * work_of(op);
    if (op->lane == ZINF_LANE_READ || op->lane == ZINF_LANE_WRITE)
        op->cpu = (float)(DRIVE_CPU / threads);
    else if (op->lane == ZINF_LANE_HOST)
        op->cpu = 1;
    else if (is_compute(op))
        op->cpu = host_device ? 1 : 0;
    else
        op->cpu = host_device ? (float)(1 / threads) : 0;
}

void trainer_default_rates(struct zinf_trainer *t)
{
    double threads = t->device->n_threads > 0 ? (double)t->device->n_threads : 1;
    double flops = t->device->host_addressable ? HOST_FLOPS_A_THREAD * threads : DEVICE_FLOPS;
    for (int kind = 0; kind < OP_KINDS; kind++) {
        bool computes = kind == OP_BLOCK || kind == OP_BLOCK_BACKWARD || kind == OP_HEAD_TILE ||
                        kind == OP_HEAD_ALL || kind == OP_HEAD_TILE_BACKWARD ||
                        kind == OP_ROW_LOGITS;
        t->rates.seconds[kind] = computes ? 1 / flops : 1 / MEMORY_BYTES;
    }
    t->rates.seconds[OP_READ] = t->rates.seconds[OP_WRITE] = 1 / DRIVE_BYTES;
    t->rates.seconds[OP_FLIP] = 0;
    t->machine = (struct zinf_machine){.read_beside_write = 0.5, .write_beside_read = 0.5};
}

void trainer_measured(void *context, const struct zinf_op *op, double seconds)
{
    struct zinf_trainer *t = context;
    if (!t->measuring)
        return;
    t->measured_seconds[op->kind] += seconds;
    t->measured_work[op->kind] += work_of(op);
}

void trainer_measure_begin(struct zinf_trainer *t)
{
    memset(t->measured_seconds, 0, sizeof t->measured_seconds);
    memset(t->measured_work, 0, sizeof t->measured_work);
    t->measuring = true;
}

void trainer_measure_end(struct zinf_trainer *t)
{
    t->measuring = false;
    for (int kind = 0; kind < OP_KINDS; kind++)
        if (t->measured_work[kind] > 0)
            t->rates.seconds[kind] = t->measured_seconds[kind] / t->measured_work[kind];
    if (t->durable.n) /* between steps so far */
        t->rates.seconds[OP_COMMIT] =
            t->durable.seconds / (double)t->durable.n / DURABLE_SCALARS_BYTES;
}
