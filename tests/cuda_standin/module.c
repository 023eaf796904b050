/*
 * module: what makes the stand-in the CUDA module of a program that knows nothing of it
 * (ZINF_CUDA_MODULE): whole trainings run on it. Beside kernels/cuda/module.c it only begins as
 * the environment says; a test may begin anew by standin_start, which it finds in the module.
 */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ZINF_STANDIN_NCCL_TROUBLE: what, and at which launch: "dies 9". */
static void make_trouble(void)
{
    static const char *const names[] = {[STANDIN_NCCL_HANGS] = "hangs",
                                        [STANDIN_NCCL_FAILS] = "fails",
                                        [STANDIN_NCCL_LOSES] = "loses",
                                        [STANDIN_NCCL_DIES] = "dies",
                                        [STANDIN_NCCL_STOPS] = "stops",
                                        [STANDIN_NCCL_REFUSES] = "refuses",
                                        [STANDIN_NCCL_NEVER_COMES] = "never-comes",
                                        [STANDIN_NCCL_STICKS] = "sticks"};
    const char *text = getenv("ZINF_STANDIN_NCCL_TROUBLE");
    char name[20];
    int launch = 1;
    if (!text || sscanf(text, "%19s %d", name, &launch) < 1)
        return;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(names[i], name))
            standin_nccl_fail(-1, launch, (enum standin_nccl_trouble)i);
}

/* Misuse that the program did not notice, where that is to be a failure. */
__attribute__((destructor)) static void finish(void)
{
    if (!number("ZINF_STANDIN_STRICT", 0) || !standin_faults())
        return;
    printf("# %d faults of the stand-in\n", standin_faults());
    fflush(stdout);
    _exit(99);
}

__attribute__((constructor)) static void start(void)
{
    struct standin_options options = {
        .seed = number("ZINF_STANDIN_SEED", 0),
        .memory_bytes = (size_t)number("ZINF_STANDIN_MEMORY", 1u << 30),
        .context_bytes = (size_t)number("ZINF_STANDIN_CONTEXT", 0),
        .capability = (int)number("ZINF_STANDIN_CAPABILITY", 0),
        .gpus = (int)number("ZINF_STANDIN_GPUS", 1),
        .no_peers = number("ZINF_STANDIN_NO_PEERS", 0),
        .old_driver = number("ZINF_STANDIN_OLD_DRIVER", 0),
        .no_pinning = number("ZINF_STANDIN_NO_PINNING", 0),
        .no_epilogues = number("ZINF_STANDIN_NO_EPILOGUES", 0),
        .no_algorithms = number("ZINF_STANDIN_NO_ALGORITHMS", 0),
        .adds_first = number("ZINF_STANDIN_ADDS_FIRST", 0),
        .algorithms = (int)number("ZINF_STANDIN_ALGORITHMS", 0),
        .speeds = number("ZINF_STANDIN_SPEEDS", 0),
        .blas_version = number("ZINF_STANDIN_BLAS_VERSION", 0),
        .nccl_version = (int)number("ZINF_STANDIN_NCCL_VERSION", 0),
        .processes = number("ZINF_STANDIN_PROCESSES", 0),
        .dawdle_us = (unsigned)number("ZINF_STANDIN_DAWDLE_US", 0),
        .skips = getenv("ZINF_STANDIN_SKIPS"),
        .traps = getenv("ZINF_STANDIN_TRAPS"),
    };
    standin_start(&options);
    make_trouble();
}
