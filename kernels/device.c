/* device: choosing a device, and the life of the host device: its arena and its table. */
#include "kernels/device.h"
#include "kernels/host.h"

#include <stdio.h>
#include <stdlib.h>

static void host_destroy(struct zinf_device *device)
{
    struct host_device *host = (struct host_device *)device;
    zinf_arena_fini(&host->arena);
    free(host);
}

static int host_take_memory(struct zinf_device *device, uint64_t bytes)
{
    struct host_device *host = (struct host_device *)device;
    if (device->memory)
        return zinf_fail(-EBUSY, "the device's memory has been taken already");
    int code = zinf_arena_init(&host->arena, bytes, "the host device");
    if (code)
        return code;
    device->memory = host->arena.base;
    device->memory_bytes = bytes;
    return 0;
}

/* Copies from the host to itself need no page-locked memory. */
static int host_register(struct zinf_device *device, void *base, uint64_t bytes)
{
    (void)device;
    (void)base;
    (void)bytes;
    return 0;
}

static void host_unregister(struct zinf_device *device, void *base)
{
    (void)device;
    (void)base;
}

static uint64_t host_pageable_copies(const struct zinf_device *device)
{
    (void)device;
    return 0;
}

#define HOST_ENTRY(name) .name = host_##name,

static const struct zinf_device_ops host_ops = {.destroy = host_destroy,
                                                .take_memory = host_take_memory,
                                                .copy_to_device = host_copy,
                                                .copy_to_host = host_copy,
                                                .attention_workspace = host_attention_workspace,
                                                .attention_cached_workspace =
                                                    host_attention_cached_workspace,
                                                .norm_workspace = host_norm_workspace,
                                                .scan_workspace = host_scan_workspace,
                                                .column_sum_workspace = host_column_sum_workspace,
                                                .host_register = host_register,
                                                .host_unregister = host_unregister,
                                                .pageable_copies = host_pageable_copies,
                                                OPERATIONS(HOST_ENTRY)};

void host_device_choose(struct host_device *host, enum zinf_isa isa)
{
    host->isa = isa;
    host->simd = host_simd_of(isa);
    snprintf(host->name, sizeof host->name, "host (%s, %d thread%s)", zinf_isa_name(isa),
             host->device.n_threads, host->device.n_threads > 1 ? "s" : "");
}

static int host_create(struct zinf_device **out, int n_threads)
{
    struct host_device *host = calloc(1, sizeof *host);
    if (!host)
        return zinf_fail(-ENOMEM, "no memory for the host device");
    host->device = (struct zinf_device){
        .ops = &host_ops,
        .kind = ZINF_DEVICE_HOST,
        .name = host->name,
        .free_bytes = zinf_memory_available(),
        .host_addressable = true,
        .has_float8 = true,
        .node = -1,
        .logit_rows = 256,
        .n_threads = n_threads > 0 ? n_threads : zinf_cpu_count(),
    };
    host_device_choose(host, zinf_isa());
    int code = host_matmul_setup();
    if (code)
        free(host);
    else
        *out = &host->device;
    return code;
}

int zinf_device_create(struct zinf_device **out, const struct zinf_device_options *options)
{
    static const struct zinf_device_options defaults;
    const char *why_not;
    *out = NULL;
    if (!options)
        options = &defaults;
    if (options->n_threads < 0)
        return zinf_fail(-EINVAL, "%d threads for a device: give 0 (all CPUs) or more",
                         options->n_threads);
    switch (options->kind) {
    case ZINF_DEVICE_HOST:
        return host_create(out, options->n_threads);
    case ZINF_DEVICE_CUDA:
        return cuda_device_load(out, options);
    case ZINF_DEVICE_AUTO:
        why_not = zinf_device_cuda_why_not();
        if (!why_not && !cuda_device_load(out, options))
            return 0;
        zinf_log(why_not ? ZINF_LOG_DEBUG : ZINF_LOG_WARN, "using the host device: %s",
                 why_not ? why_not : zinf_error());
        return host_create(out, options->n_threads);
    }
    return zinf_fail(-EINVAL, "unknown device kind %d", (int)options->kind);
}

void zinf_device_destroy(struct zinf_device *device)
{
    if (device)
        device->ops->destroy(device);
}

int zinf_device_take_memory(struct zinf_device *device, uint64_t bytes)
{
    return device->ops->take_memory(device, bytes);
}
