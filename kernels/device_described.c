/*
 * device_described: a GPU that is not here. It says how large a workspace its operations would
 * need, which is all that a plan asks; it has no memory, no queues and no operations. The formulas
 * are those of the CUDA device itself.
 */
#include "kernels/cuda/workspace.h"

#include <stdlib.h>

/* The newest generation that kernels are made for. Its library asks for the largest workspace. */
#define USUAL_CAPABILITY 90

struct described_device {
    struct zinf_device device; /* first, so that a pointer to it is a pointer to the struct */
    int capability;
};

static void described_destroy(struct zinf_device *device)
{
    free(device);
}

static int not_here(const struct zinf_device *device)
{
    return zinf_fail(-ENODEV, "%s is only described: plans can be made for it, nothing runs on it",
                     device->name);
}

static int described_take_memory(struct zinf_device *device, uint64_t bytes)
{
    (void)bytes;
    return not_here(device);
}

static int described_queue_create(struct zinf_device *device, enum zinf_queue_kind kind,
                                  struct zinf_queue **out)
{
    (void)kind;
    *out = NULL;
    return not_here(device);
}

static uint64_t described_matmul_workspace(struct zinf_device *device,
                                           const struct zinf_matmul *args)
{
    return matmul_workspace_bytes(((struct described_device *)device)->capability, args);
}

/* Plans call no others: the rest need memory and queues. */
static const struct zinf_device_ops described_ops = {
    .destroy = described_destroy,
    .take_memory = described_take_memory,
    .queue_create = described_queue_create,
    .matmul_workspace = described_matmul_workspace,
    .attention_workspace = gpu_attention_workspace,
    .attention_cached_workspace = gpu_attention_cached_workspace,
    .norm_workspace = gpu_norm_workspace,
    .scan_workspace = gpu_scan_workspace,
    .column_sum_workspace = gpu_column_sum_workspace,
};

int zinf_device_describe(struct zinf_device **out, const struct zinf_device_description *gpu)
{
    struct described_device *described = calloc(1, sizeof *described);
    *out = NULL;
    if (!described)
        return zinf_fail(-ENOMEM, "no memory to describe a GPU");
    described->capability = gpu->capability ? gpu->capability : USUAL_CAPABILITY;
    described->device = (struct zinf_device){
        .ops = &described_ops,
        .kind = ZINF_DEVICE_CUDA,
        .name = gpu->name ? gpu->name : "a GPU that is not here",
        .free_bytes = gpu->memory_bytes,
        .needs_pinned = true,
        .node = -1,
        .rounds_operands = true,
        .has_tf32 = described->capability >= TF32_CAPABILITY,
        .has_float8 = described->capability >= FLOAT8_CAPABILITY,
        .logit_rows = GPU_LOGIT_ROWS,
        .n_threads = gpu->n_threads > 0 ? gpu->n_threads : zinf_cpu_count(),
    };
    *out = &described->device;
    return 0;
}
