/* cpu: what this processor and this process may use. Compiled without ISA flags. */
#include "build-config.h"
#include "base/base.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports knows F16C: leaf 1, ECX bit 29. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1);
}
#endif

#ifdef ZINF_HAVE_AVX512_BF16
/* CPUID leaf 7, subleaf 1, EAX bit 5. */
static bool has_avx512_bf16(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1);
}
#endif

#ifdef ZINF_HAVE_AMX_BF16
/* Leaf 7, subleaf 0, EDX bits 22 (bf16) and 24 (tiles). The registers of tiles are 8 KiB a thread,
 * so a process gets them by asking only (Linux, Documentation/arch/x86/xstate.rst). */
static bool has_amx_bf16(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx >> 22 & 1) && (edx >> 24 & 1) &&
           !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
}
#endif

static enum zinf_isa probe(void)
{
    enum zinf_isa best = ZINF_ISA_SCALAR;
#if defined(__x86_64__)
    __builtin_cpu_init();
#ifdef ZINF_HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        best = ZINF_ISA_AVX2;
#endif
#ifdef ZINF_HAVE_AVX512
    if (best == ZINF_ISA_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        best = ZINF_ISA_AVX512;
#endif
#ifdef ZINF_HAVE_AVX512_BF16
    if (best == ZINF_ISA_AVX512 && has_avx512_bf16())
        best = ZINF_ISA_AVX512_BF16;
#endif
#ifdef ZINF_HAVE_AMX_BF16
    if (best == ZINF_ISA_AVX512_BF16 && has_amx_bf16())
        best = ZINF_ISA_AMX_BF16;
#endif
#endif
    return best;
}

const char *zinf_isa_name(enum zinf_isa isa)
{
    static const char *const names[] = {"scalar", "avx2", "avx512", "avx512_bf16", "amx_bf16"};
    return names[isa];
}

enum zinf_isa zinf_isa(void)
{
    static atomic_int resolved = -1;
    int isa = atomic_load_explicit(&resolved, memory_order_relaxed);
    if (isa >= 0)
        return (enum zinf_isa)isa;
    enum zinf_isa best = probe();
    const char *wanted = getenv("ZINF_CPU");
    if (wanted && *wanted) {
        int found = -1;
        for (int i = ZINF_ISA_SCALAR; i <= ZINF_ISA_AMX_BF16; i++)
            if (!strcmp(wanted, zinf_isa_name((enum zinf_isa)i)))
                found = i;
        if (found < 0 || found > (int)best)
            zinf_log_once(ZINF_LOG_WARN, "isa", "ZINF_CPU=%s is %s here; using %s", wanted,
                          found < 0 ? "unknown (scalar, avx2, avx512, avx512_bf16, amx_bf16)"
                                    : "not available",
                          zinf_isa_name(best));
        else
            best = (enum zinf_isa)found;
    }
    atomic_store_explicit(&resolved, (int)best, memory_order_relaxed);
    return best;
}

/* CPUs that the cgroup's quota amounts to, rounded up; 0 without a quota. */
static int cgroup_cpus(void)
{
    char text[64];
    double quota, period;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (!file)
        return 0;
    int cpus = 0;
    if (fgets(text, sizeof text, file) && sscanf(text, "%lf %lf", &quota, &period) == 2 &&
        period > 0)
        cpus = (int)((quota + period - 1) / period);
    fclose(file);
    return cpus;
}

int zinf_cpu_count(void)
{
    cpu_set_t set;
    int cpus = 1;
    if (!sched_getaffinity(0, sizeof set, &set))
        cpus = CPU_COUNT(&set);
    int quota = cgroup_cpus();
    if (quota > 0 && quota < cpus)
        cpus = quota;
    return cpus > 0 ? cpus : 1;
}

/* A list as the kernel writes it, "0-3,8": those of it that are also in allowed. */
static int read_cpus(FILE *file, const cpu_set_t *allowed, cpu_set_t *out)
{
    int first, last;
    CPU_ZERO(out);
    while (fscanf(file, "%d", &first) == 1) {
        int next = fgetc(file);
        last = first;
        if (next == '-' && fscanf(file, "%d", &last) == 1)
            next = fgetc(file);
        for (int cpu = first < 0 ? 0 : first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, allowed))
                CPU_SET(cpu, out);
        if (next != ',')
            break;
    }
    return CPU_COUNT(out);
}

void zinf_thread_near(const char *sysfs, int node)
{
    char path[256];
    cpu_set_t allowed, near;
    snprintf(path, sizeof path, "%s/devices/system/node/node%d/cpulist", sysfs, node);
    FILE *file = node < 0 ? NULL : fopen(path, "r");
    if (!file)
        return;
    if (!sched_getaffinity(0, sizeof allowed, &allowed) && read_cpus(file, &allowed, &near))
        sched_setaffinity(0, sizeof near, &near);
    fclose(file);
}

/* One file of a CPU's cache, without its newline; "" where there is none. */
static void read_cache(int cpu, int index, const char *name, char text[256])
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index, name);
    FILE *file = fopen(path, "r");
    *text = 0;
    if (file && fgets(text, 256, file))
        text[strcspn(text, "\n")] = 0;
    if (file)
        fclose(file);
}

/* The bytes of a CPU's largest level, and which CPUs share it. */
static uint64_t last_cache(int cpu, char sharers[256])
{
    char text[256];
    uint64_t bytes = 0;
    int most = 0;
    for (int index = 0; index < 8; index++) {
        read_cache(cpu, index, "level", text);
        int level = atoi(text);
        if (level <= most)
            continue;
        most = level;
        read_cache(cpu, index, "size", text);
        bytes = strtoull(text, NULL, 10) << 10;
        read_cache(cpu, index, "shared_cpu_list", sharers);
    }
    return bytes;
}

/* The first CPU of a list such as "0-3,8" that is in the set. */
static int first_of(const char *list, const cpu_set_t *set)
{
    int first, last, used;
    for (; sscanf(list, "%d%n", &first, &used) == 1; list += *list == ',') {
        list += used;
        last = first;
        if (sscanf(list, "-%d%n", &last, &used) == 1)
            list += used;
        for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, set))
                return cpu;
    }
    return -1;
}

uint64_t zinf_cache_bytes(void)
{
    cpu_set_t set;
    uint64_t bytes = 0;
    char sharers[256] = "";
    if (sched_getaffinity(0, sizeof set, &set))
        return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        uint64_t more = CPU_ISSET(cpu, &set) ? last_cache(cpu, sharers) : 0;
        if (more && first_of(sharers, &set) == cpu) /* once for all that share it */
            bytes += more;
    }
    return bytes;
}
