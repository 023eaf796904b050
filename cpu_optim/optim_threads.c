/*
 * optim_threads: how many threads, what each has of an array, and where that memory is. The same
 * cut of an array into slices serves the placement of its pages and the threads that step it, so
 * that a slice is near its thread. With one node nothing of this happens, not even a system call.
 */
#include "base/memory.h"
#include "cpu_optim/optim_internal.h"

#include <fenv.h>
#include <numa.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_NODES 64
/* Below this a thread costs more to wake than it saves: about 10 us of memory traffic. */
#define THREAD_ELEMS 16384u

/* ---- threads ---- */

static int env_int(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long value = text ? strtol(text, &end, 10) : 0;
    return text && end != text && value > 0 && value <= 1 << 20 ? (int)value : 0;
}

static int env_local_ranks(void)
{
    static const char *const names[] = {"LOCAL_WORLD_SIZE", "LOCAL_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (env_int(names[i]))
            return env_int(names[i]);
    return 1;
}

int zinf_optim_thread_count(int local_ranks)
{
    int cpus = zinf_cpu_count(), inherited = env_int("OMP_NUM_THREADS");
    if (local_ranks <= 0)
        local_ranks = env_local_ranks();
    /* A mask smaller than the host is a launcher's: this rank's share already. */
    if (cpus == sysconf(_SC_NPROCESSORS_ONLN))
        cpus = cpus / local_ranks > 0 ? cpus / local_ranks : 1;
    if (inherited && inherited < cpus)
        zinf_log_once(
            ZINF_LOG_INFO, "optim-threads",
            "OMP_NUM_THREADS=%d is not followed by the CPU optimizer: it uses %d threads, "
            "by the affinity mask and the ranks of this host",
            inherited, cpus);
    return cpus;
}

/* ---- nodes ---- */

int optim_node_of_slice(const int *cpus_of_node, int n_nodes, uint64_t slice, uint64_t n_slices)
{
    uint64_t cpus = 0, before = 0;
    for (int node = 0; node < n_nodes; node++)
        cpus += (uint64_t)cpus_of_node[node];
    /* The CPU that this slice would get if CPUs were dealt out evenly and in order. */
    const uint64_t cpu = slice * cpus / n_slices;
    for (int node = 0; node < n_nodes - 1; node++) {
        before += (uint64_t)cpus_of_node[node];
        if (cpu < before)
            return node;
    }
    return n_nodes - 1;
}

static struct {
    pthread_once_t once;
    int n_nodes;         /* that this process has CPUs on; 1 where there is no NUMA */
    int id[MAX_NODES];   /* the system's number */
    int cpus[MAX_NODES]; /* of this process */
    cpu_set_t set[MAX_NODES];
} topology = {.once = PTHREAD_ONCE_INIT};

static void topology_read(void)
{
    cpu_set_t mask;
    if (numa_available() >= 0 && numa_max_node() > 0 && !sched_getaffinity(0, sizeof mask, &mask))
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            int id = CPU_ISSET(cpu, &mask) ? numa_node_of_cpu(cpu) : -1, at = 0;
            while (at < topology.n_nodes && topology.id[at] != id)
                at++;
            if (id < 0 || at == MAX_NODES)
                continue;
            if (at == topology.n_nodes)
                topology.id[topology.n_nodes++] = id;
            topology.cpus[at]++;
            CPU_SET(cpu, &topology.set[at]);
        }
    if (topology.n_nodes < 2)
        topology.n_nodes = 1;
}

struct node_visit {
    bool moved;
    cpu_set_t before;
};

/* Keeps the calling thread on the node of its slice until node_leave. Does nothing on one node. */
static void node_enter(struct node_visit *visit, uint64_t slice, uint64_t n_slices)
{
    visit->moved = false;
    pthread_once(&topology.once, topology_read);
    if (topology.n_nodes < 2 || sched_getaffinity(0, sizeof visit->before, &visit->before))
        return;
    int node = optim_node_of_slice(topology.cpus, topology.n_nodes, slice, n_slices);
    visit->moved = !sched_setaffinity(0, sizeof topology.set[node], &topology.set[node]);
}

static void node_leave(const struct node_visit *visit)
{
    if (visit->moved)
        sched_setaffinity(0, sizeof visit->before, &visit->before);
}

/* ---- slices side by side ---- */

static void run_slice(void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg,
                      uint64_t begin, uint64_t end)
{
    fenv_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    body(arg, begin, end);
    fesetenv(&saved);
}

int optim_useful_threads(uint64_t n, int n_threads)
{
    if (n_threads > 1 && (uint64_t)n_threads > n / THREAD_ELEMS)
        n_threads = (int)(n / THREAD_ELEMS);
    return n_threads > 1 ? n_threads : 1;
}

struct optim_slice optim_slice_of(uint64_t n, uint64_t unit, uint64_t index, uint64_t team)
{
    const uint64_t units = (n + unit - 1) / unit;
    struct optim_slice s = {units * index / team * unit, units * (index + 1) / team * unit};
    if (s.end > n)
        s.end = n;
    return s;
}

/* Units of unit elements, of which the last may be short. */
static void run_parallel(uint64_t n, uint64_t unit, int n_threads,
                         void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg)
{
    if (n_threads <= 1) {
        if (n)
            run_slice(body, arg, 0, n);
        return;
    }
#pragma omp parallel num_threads(n_threads)
    {
        uint64_t index = (uint64_t)omp_get_thread_num(), team = (uint64_t)omp_get_num_threads();
        struct optim_slice slice = optim_slice_of(n, unit, index, team);
        struct node_visit visit;
        node_enter(&visit, index, team);
        if (slice.begin < slice.end)
            run_slice(body, arg, slice.begin, slice.end);
        node_leave(&visit);
    }
}

void optim_parallel(uint64_t n, int n_threads,
                    void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg)
{
    run_parallel(n, OPTIM_BLOCK_ELEMS, optim_useful_threads(n, n_threads), body, arg);
}

void optim_parallel_units(uint64_t units, int n_threads,
                          void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg)
{
    run_parallel(units, 1, n_threads, body, arg);
}

struct team_call {
    void (*body)(void *arg);
    void *arg;
};

static void call_once(void *arg, uint64_t begin, uint64_t end)
{
    const struct team_call *call = arg;
    (void)begin, (void)end;
    call->body(call->arg);
}

void optim_team(int n_threads, void (*body)(void *arg), void *arg)
{
    struct team_call call = {body, arg};
    run_parallel((uint64_t)(n_threads > 1 ? n_threads : 1), 1, n_threads, call_once, &call);
}

/* ---- pages ---- */

int zinf_optim_place(void *memory, uint64_t n, size_t element_bytes, int n_threads)
{
    int rc = 0;
    pthread_once(&topology.once, topology_read);
    if (topology.n_nodes < 2)
        return 0;
    const uint64_t team = (uint64_t)optim_useful_threads(n, n_threads);
    for (uint64_t slice = 0; slice < team && !rc; slice++) {
        struct optim_slice s = optim_slice_of(n, OPTIM_BLOCK_ELEMS, slice, team);
        int node = optim_node_of_slice(topology.cpus, topology.n_nodes, slice, team);
        rc = zinf_memory_place((char *)memory + s.begin * element_bytes,
                               (s.end - s.begin) * element_bytes, topology.id[node]);
    }
    return rc;
}
