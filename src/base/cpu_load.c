/* cpu_load: busy time by /proc/stat, a line for each CPU, less this process's own by getrusage.
 * Both count in ticks of 10 ms. */
#include "base/cpu_load.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LEAST_SECONDS 0.2 /* an error of a tick on each CPU is then at most 5 % */

static double seconds_of(int who)
{
    struct rusage used;
    if (getrusage(who, &used))
        return 0;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Adds a line such as "cpu3 user nice system idle iowait irq softirq steal". Time that a hypervisor
 * steals is that of others. */
static void add_line(const char *line, const cpu_set_t *allowed, struct zinf_cpu_load *load)
{
    unsigned long long ticks[8] = {0};
    int cpu, n = 0;
    if (strncmp(line, "cpu", 3) || line[3] < '0' || line[3] > '9' || /* "cpu " is their sum */
        sscanf(line, "cpu%d %n", &cpu, &n) != 1 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, allowed))
        return;
    const int found = sscanf(line + n, "%llu %llu %llu %llu %llu %llu %llu %llu", ticks, ticks + 1,
                             ticks + 2, ticks + 3, ticks + 4, ticks + 5, ticks + 6, ticks + 7);
    if (found < 4)
        return;
    load->busy +=
        (double)(ticks[0] + ticks[1] + ticks[2] + ticks[7]) / (double)sysconf(_SC_CLK_TCK);
    load->cpus++;
}

struct zinf_cpu_load zinf_cpu_load_now(const char *stat)
{
    struct zinf_cpu_load load = {.own = seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN),
                                 .seconds = 1e-9 * (double)zinf_now_ns()};
    cpu_set_t allowed;
    char line[1024];
    FILE *file = fopen(stat ? stat : "/proc/stat", "re");
    if (file && !sched_getaffinity(0, sizeof allowed, &allowed))
        while (fgets(line, sizeof line, file))
            add_line(line, &allowed, &load);
    if (file)
        fclose(file);
    if (!load.cpus)
        load.busy = -1;
    return load;
}

double zinf_cpu_load_others(const struct zinf_cpu_load *begin, const struct zinf_cpu_load *end)
{
    const double seconds = end->seconds - begin->seconds;
    if (begin->busy < 0 || end->busy < 0 || begin->cpus != end->cpus || seconds < LEAST_SECONDS)
        return -1;
    const double others = (end->busy - begin->busy) - (end->own - begin->own);
    const double part = others / (seconds * end->cpus);
    return part < 0 ? 0 : part > 1 ? 1 : part;
}
