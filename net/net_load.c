/*
 * net_load: finds the other ranks. Who started this process, and how many of it, stands in the
 * environment; only where there are several is the MPI module loaded, which alone links to an MPI.
 * It stays loaded until the process ends. What torchrun or deepspeed started has no MPI: its ranks
 * meet over sockets.
 */
#include "net/net_tcp.h"

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

/* ---- launchers without an MPI ---- */

static int fail_variable(const char *variable)
{
    return zinf_fail(-ENOTSUP,
                     "RANK and WORLD_SIZE say that torchrun or deepspeed started this process as "
                     "one of %u, but %s is not set, or is no number that is possible: start ranks "
                     "with torchrun --no-python, 'zinf launch --num-gpus %u -- train ...', mpirun "
                     "or srun; if this process is alone, unset RANK and WORLD_SIZE",
                     number_in("WORLD_SIZE"), variable, number_in("WORLD_SIZE"));
}

static bool read_number(const char *variable, uint32_t below, uint32_t *number)
{
    const char *text = getenv(variable);
    char *end = NULL;
    unsigned long n = text && *text ? strtoul(text, &end, 10) : 0;
    *number = (uint32_t)n;
    return end && !*end && n < below;
}

/* What is the same on all ranks of a run, and another for another. */
static uint64_t job_sum(const char *address, uint32_t port)
{
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    uint64_t sum = 0xcbf29ce484222325u ^ port;
    for (const char *c = address; *c; c++)
        sum = (sum ^ (unsigned char)*c) * 0x100000001b3u;
    for (const char *c = run ? run : ""; *c; c++)
        sum = (sum ^ (unsigned char)*c) * 0x100000001b3u;
    return sum;
}

/* torchrun itself listens at MASTER_PORT, and starts all anew after a failure: another port each
 * time. */
static int open_tcp(struct zinf_net **out, double seconds)
{
    struct net_tcp_start start = {
        .world = number_in("WORLD_SIZE"), .address = getenv("MASTER_ADDR"), .seconds = seconds};
    const char *secret = secure_getenv("ZINF_NET_SECRET");
    const char *local = getenv("LOCAL_WORLD_SIZE") ? "LOCAL_WORLD_SIZE" : "LOCAL_SIZE";
    uint32_t restarts = 0;
    if (!read_number("RANK", start.world, &start.rank))
        return fail_variable("RANK");
    if (!start.address || !*start.address)
        return fail_variable("MASTER_ADDR");
    if (!read_number("LOCAL_RANK", start.world, &start.local_rank))
        return fail_variable("LOCAL_RANK");
    if (!read_number(local, start.world + 1, &start.local_world) || !start.local_world)
        return fail_variable("LOCAL_WORLD_SIZE");
    if (getenv("ZINF_MASTER_PORT")) {
        if (!read_number("ZINF_MASTER_PORT", 65536, &start.port) || !start.port)
            return fail_variable("ZINF_MASTER_PORT");
    } else {
        read_number("TORCHELASTIC_RESTART_COUNT", 1000, &restarts);
        if (!read_number("MASTER_PORT", 65535 - restarts, &start.port) || !start.port)
            return fail_variable("MASTER_PORT");
        start.port += 1 + restarts;
    }
    start.job = job_sum(start.address, start.port);
    start.secret = secret ? secret : "";
    return net_tcp_open(out, &start);
}

/* Beside an MPI's own launcher their numbers are those of the machine, not of this process. */
static bool has_other_launcher(void)
{
    bool launched = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE");
    return !launched && getenv("RANK") && number_in("WORLD_SIZE") >= 2;
}

bool zinf_net_launched_as(uint32_t *rank, uint32_t *world)
{
    static const char *const of_mpi[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                         "SLURM_PROCID"};
    *world = zinf_net_launched();
    *rank = 0;
    if (*world < 2 && has_other_launcher()) {
        *world = number_in("WORLD_SIZE");
        return read_number("RANK", *world, rank);
    }
    for (size_t i = 0; *world > 1 && i < sizeof of_mpi / sizeof *of_mpi; i++)
        if (read_number(of_mpi[i], *world, rank))
            return true;
    return false;
}

int zinf_net_open(struct zinf_net **out, double seconds)
{
    char why[1024];
    uint32_t world = zinf_net_launched();
    *out = NULL;
    if (world < 2)
        return has_other_launcher() ? open_tcp(out, seconds) : 0;
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
