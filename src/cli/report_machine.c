/* report_machine: kernel, processor, NUMA and memory of `zinf report`, from /proc and libnuma. */
#include "cli/report.h"

#include "base/memory.h"

#include <numa.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

void report_add(cJSON *facts, const char *key, const char *format, ...)
{
    char value[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    cJSON_AddStringToObject(facts, key, value);
}

bool report_read_line(const char *path, char *buffer, size_t bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool good = fgets(buffer, (int)bytes, file) != NULL;
    fclose(file);
    if (good)
        buffer[strcspn(buffer, "\n")] = 0;
    return good;
}

bool report_read_field(const char *path, const char *name, char sep, char *buffer, size_t bytes)
{
    char line[8192]; /* the flags of a processor are about 2,000 characters */
    size_t length = strlen(name);
    bool found = false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file)) {
        char *rest = line + length;
        if (strncmp(line, name, length))
            continue;
        rest += strspn(rest, " \t");
        if (*rest != sep)
            continue;
        rest += 1 + strspn(rest + 1, " \t\"");
        rest[strcspn(rest, "\"\n")] = 0;
        snprintf(buffer, bytes, "%s", rest);
        found = true;
    }
    fclose(file);
    return found;
}

static void add_system(cJSON *facts)
{
    struct utsname name;
    char distribution[256];
    if (!uname(&name)) /* nodename is left out: it names the host */
        report_add(facts, "kernel", "%s %s %s", name.sysname, name.release, name.machine);
    if (!report_read_field("/etc/os-release", "PRETTY_NAME", '=', distribution,
                           sizeof distribution))
        snprintf(distribution, sizeof distribution, "unknown (no /etc/os-release)");
    report_add(facts, "distribution", "%s", distribution);
}

/* Those of the processor's flags that decide which code runs, or will. */
static void add_simd(cJSON *facts)
{
    static const char *const wanted[] = {
        "avx2",        "fma",         "f16c",        "avx512f",  "avx512bw", "avx512vl", "avx512dq",
        "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "asimd",    "sve",
    };
    char flags[8192], available[512] = "";
    size_t used = 0;
    if (!report_read_field("/proc/cpuinfo", "flags", ':', flags, sizeof flags) &&
        !report_read_field("/proc/cpuinfo", "Features", ':', flags, sizeof flags))
        flags[0] = 0;
    for (char *rest, *flag = strtok_r(flags, " ", &rest); flag; flag = strtok_r(NULL, " ", &rest))
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (!strcmp(flag, wanted[i]) && used + 16 < sizeof available)
                used += (size_t)snprintf(available + used, sizeof available - used, "%s%s",
                                         used ? " " : "", flag);
    const char *forced = getenv("ZINF_CPU");
    report_add(facts, "simd_in_use", "%s%s%s%s", zinf_isa_name(zinf_isa()),
               forced ? " (ZINF_CPU=" : "", forced ? forced : "", forced ? ")" : "");
    report_add(facts, "simd_available", "%s", used ? available : "unknown");
}

static void add_cpus(cJSON *facts)
{
    char model[256];
    cpu_set_t set;
    int affinity = sched_getaffinity(0, sizeof set, &set) ? -1 : CPU_COUNT(&set);
    if (!report_read_field("/proc/cpuinfo", "model name", ':', model, sizeof model))
        snprintf(model, sizeof model, "unknown");
    report_add(facts, "cpu", "%s", model);
    add_simd(facts);
    report_add(facts, "cpus", "%d used by zinf, %d in the affinity mask, %ld online, %ld present",
               zinf_cpu_count(), affinity, sysconf(_SC_NPROCESSORS_ONLN),
               sysconf(_SC_NPROCESSORS_CONF));
}

static void add_numa(cJSON *facts)
{
    char nodes[1024] = "", size[16];
    size_t used = 0;
    if (numa_available() < 0) {
        report_add(facts, "numa", "not available");
        return;
    }
    for (int node = 0; node <= numa_max_node() && used + 32 < sizeof nodes; node++) {
        long long bytes = numa_node_size64(node, NULL);
        if (bytes >= 0)
            used += (size_t)snprintf(nodes + used, sizeof nodes - used, ", node %d: %s", node,
                                     zinf_size_format(size, sizeof size, (uint64_t)bytes));
    }
    report_add(facts, "numa", "%d configured%s", numa_num_configured_nodes(), nodes);
}

static uint64_t memory_field(const char *name)
{
    char text[64];
    if (!report_read_field("/proc/meminfo", name, ':', text, sizeof text))
        return 0;
    return strtoull(text, NULL, 10) << 10; /* "12345 kB", which are KiB */
}

static void add_memory(cJSON *facts)
{
    char total[16], available[16], swap[16], ours[16];
    report_add(facts, "ram", "%s, %s available, swap %s",
               zinf_size_format(total, sizeof total, memory_field("MemTotal")),
               zinf_size_format(available, sizeof available, memory_field("MemAvailable")),
               zinf_size_format(swap, sizeof swap, memory_field("SwapTotal")));
    report_add(facts, "ram_for_zinf", "%s",
               zinf_size_format(ours, sizeof ours, zinf_memory_available()));
}

void report_machine(cJSON *facts)
{
    add_system(facts);
    add_cpus(facts);
    add_numa(facts);
    add_memory(facts);
}
