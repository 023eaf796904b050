/*
 * net_load: finds the other ranks. Who started this process, and how many of it, stands in the
 * environment; only where there are several is the MPI module loaded, which alone links to an MPI.
 * It stays loaded until the process ends.
 */
#include "net/net_engine.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- who started this process ---- */

static uint32_t number_in(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    unsigned long n = text && *text ? strtoul(text, &end, 10) : 0;
    return end && !*end && n <= ZINF_NET_MOST_RANKS ? (uint32_t)n : 0;
}

/* MPI before Slurm: an mpirun within an allocation leaves the allocation's numbers there. A number
 * of tasks counts only in a step of Slurm's. */
uint32_t zinf_net_launched(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (number_in(variables[i]))
            return number_in(variables[i]);
    uint32_t tasks = getenv("SLURM_STEP_ID") ? number_in("SLURM_STEP_NUM_TASKS") : 0;
    return tasks ? tasks : 1;
}

/* ---- the module ---- */

/* Its MPI looks for symbols of its own in plugins that it loads: they must be global. */
static net_module_start *find_start(char *why, size_t bytes)
{
    const char *path = secure_getenv("ZINF_MPI_MODULE");
    if (!path || !*path)
        path = ZINF_PKGLIBDIR "/zinf-mpi.so";
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!module) {
        snprintf(why, bytes, "no MPI module (%s); build with --with-mpi and install it", dlerror());
        return NULL;
    }
    net_module_start *start = (net_module_start *)(uintptr_t)dlsym(module, NET_MODULE_ENTRY);
    if (!start)
        snprintf(why, bytes, "%s is no MPI module of this version: install it again", path);
    return start;
}

const char *zinf_net_mpi_why_not(void)
{
    static char why[1024];
    return find_start(why, sizeof why) ? NULL : why;
}

/* torchrun's and deepspeed's numbers come without an MPI; beside one of its own launchers they are
 * those of the machine, not of this process. */
static int check_other_launchers(void)
{
    bool launched = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE");
    uint32_t world = getenv("RANK") ? number_in("WORLD_SIZE") : 0;
    if (launched || world < 2)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "RANK and WORLD_SIZE say that torchrun or deepspeed started this process as "
                     "one of %u: start ranks with 'zinf launch --num-gpus %u -- train ...', mpirun "
                     "or srun; if this process is alone, unset RANK and WORLD_SIZE",
                     world, world);
}

int zinf_net_open(struct zinf_net **out)
{
    char why[1024];
    uint32_t world = zinf_net_launched();
    *out = NULL;
    if (world < 2)
        return check_other_launchers();
    net_module_start *start = find_start(why, sizeof why);
    if (!start)
        return zinf_fail(-ENOTSUP, "this is one of %u processes that a launcher started: %s", world,
                         why);
    struct zinf_net *net = calloc(1, sizeof *net);
    if (!net)
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", world);
    int code = start(net, NET_MODULE_VERSION, world);
    if (code) {
        code = zinf_fail(code, "%s", net->why);
        free(net);
        return code;
    }
    code = net_init(net, net->place.rank, net->place.world);
    if (code) {
        zinf_net_tell(net, zinf_error());
        zinf_net_close(net);
        return code;
    }
    *out = net;
    return 0;
}
