/* memory: the ledger of planned bytes, and mappings of exactly that size. */
#include "base/memory.h"

#include "base/cgroup.h"
#include "base/pulse.h"

#include <numa.h>
#include <numaif.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct line {
    char *name;
    const char *hint;
    uint64_t bytes;
    enum zinf_memory_tier tier;
    bool outside;
};

struct zinf_ledger {
    struct line *lines;
    size_t count, capacity;
    uint64_t arena_bytes[ZINF_MEMORY_TIERS];
};

static const char *name_of(enum zinf_memory_tier tier)
{
    static const char *const names[] = {"device", "host", "drive"};
    return names[tier];
}

int zinf_ledger_create(struct zinf_ledger **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : zinf_fail(-ENOMEM, "no memory for the ledger");
}

void zinf_ledger_destroy(struct zinf_ledger *ledger)
{
    if (!ledger)
        return;
    for (size_t i = 0; i < ledger->count; i++)
        free(ledger->lines[i].name);
    free(ledger->lines);
    free(ledger);
}

static int add_line(struct zinf_ledger *ledger, struct line line)
{
    if (ledger->count == ledger->capacity) {
        size_t capacity = ledger->capacity ? 2 * ledger->capacity : 32;
        struct line *lines = realloc(ledger->lines, capacity * sizeof *lines);
        if (!lines)
            return zinf_fail(-ENOMEM, "no memory for the ledger");
        ledger->lines = lines;
        ledger->capacity = capacity;
    }
    line.name = strdup(line.name);
    if (!line.name)
        return zinf_fail(-ENOMEM, "no memory for the ledger");
    ledger->lines[ledger->count++] = line;
    return 0;
}

int zinf_ledger_add(struct zinf_ledger *ledger, enum zinf_memory_tier tier, const char *name,
                    const char *hint, uint64_t bytes, uint64_t *offset)
{
    struct line line = {(char *)name, hint, zinf_align_up(bytes, ZINF_MEMORY_ALIGN), tier, false};
    int code = add_line(ledger, line);
    if (code)
        return code;
    if (offset)
        *offset = ledger->arena_bytes[tier];
    ledger->arena_bytes[tier] += line.bytes;
    return 0;
}

int zinf_ledger_add_outside(struct zinf_ledger *ledger, enum zinf_memory_tier tier,
                            const char *name, const char *hint, uint64_t bytes)
{
    return add_line(ledger, (struct line){(char *)name, hint, bytes, tier, true});
}

uint64_t zinf_ledger_arena_bytes(const struct zinf_ledger *ledger, enum zinf_memory_tier tier)
{
    return ledger->arena_bytes[tier];
}

uint64_t zinf_ledger_total_bytes(const struct zinf_ledger *ledger, enum zinf_memory_tier tier)
{
    uint64_t total = 0;
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->lines[i].tier == tier)
            total += ledger->lines[i].bytes;
    return total;
}

static bool over(const struct zinf_ledger *ledger, const uint64_t *budget, int tier)
{
    return budget && zinf_ledger_total_bytes(ledger, (enum zinf_memory_tier)tier) > budget[tier];
}

/* Most keys are in one section, which would make every line too long for a terminal. */
static const char *key_text(const char *hint)
{
    static const char section[] = "zero_optimization.";
    return strncmp(hint, section, strlen(section)) ? hint : hint + strlen(section);
}

static int name_cols(const struct zinf_ledger *ledger)
{
    size_t cols = 0;
    for (size_t i = 0; i < ledger->count; i++)
        cols = strlen(ledger->lines[i].name) > cols ? strlen(ledger->lines[i].name) : cols;
    return (int)cols;
}

static void print_tier(const struct zinf_ledger *ledger, int tier, const uint64_t *budget,
                       FILE *out)
{
    const char *tier_name = name_of((enum zinf_memory_tier)tier);
    char size[16], limit[16];
    uint64_t total = zinf_ledger_total_bytes(ledger, (enum zinf_memory_tier)tier);
    int cols = name_cols(ledger);
    if (!total)
        return;
    for (size_t i = 0; i < ledger->count; i++) {
        const struct line *line = &ledger->lines[i];
        if ((int)line->tier != tier || !line->bytes)
            continue;
        fprintf(out, "  %-6s %-*s %10s%s%s\n", tier_name, cols, line->name,
                zinf_size_format(size, sizeof size, line->bytes), line->hint ? "  " : "",
                line->hint ? key_text(line->hint) : "");
    }
    fprintf(out, "  %-6s %-*s %10s", tier_name, cols, "total",
            zinf_size_format(size, sizeof size, total));
    if (budget && budget[tier] != UINT64_MAX)
        fprintf(out, "  of %s%s", zinf_size_format(limit, sizeof limit, budget[tier]),
                over(ledger, budget, tier) ? "  DOES NOT FIT" : "");
    fputc('\n', out);
}

int zinf_ledger_print(const struct zinf_ledger *ledger, const uint64_t *budget, FILE *out)
{
    fprintf(out, "  %-6s %-*s %10s  %s\n", "tier", name_cols(ledger), "what", "size", "changed by");
    for (int tier = 0; tier < ZINF_MEMORY_TIERS; tier++)
        print_tier(ledger, tier, budget, out);
    return ferror(out) ? zinf_fail(-EIO, "cannot print the ledger") : 0;
}

int zinf_ledger_check(const struct zinf_ledger *ledger, const uint64_t *budget)
{
    static const char *const keys[] = {
        "zinf.device_memory (or --device-memory)",
        "zinf.host_memory (or --host-memory)",
        "the free space under nvme_path",
    };
    char *table = NULL, need[16], have[16], lacks[256] = "", raise[256] = "";
    size_t table_bytes = 0, lacking = 0, raised = 0;
    for (int tier = 0; tier < ZINF_MEMORY_TIERS; tier++) {
        if (!over(ledger, budget, tier))
            continue;
        uint64_t total = zinf_ledger_total_bytes(ledger, (enum zinf_memory_tier)tier);
        const char *and = lacking ? " and " : "";
        lacking += (size_t)snprintf(
            lacks + lacking, sizeof lacks - lacking, "%s%s memory needs %s of %s", and,
            name_of((enum zinf_memory_tier)tier), zinf_size_format(need, sizeof need, total),
            zinf_size_format(have, sizeof have, budget[tier]));
        raised += (size_t)snprintf(raise + raised, sizeof raise - raised, "%s%s", and, keys[tier]);
    }
    if (!lacking)
        return 0;
    FILE *out = open_memstream(&table, &table_bytes);
    if (!out)
        return zinf_fail(-ENOMEM, "no memory for the ledger's table");
    zinf_ledger_print(ledger, budget, out);
    fclose(out);
    zinf_fail(-ENOMEM,
              "the plan does not fit: %s; raise %s, or shrink the lines below by the keys beside "
              "them\n%s",
              lacks, raise, table);
    free(table);
    return -ENOMEM;
}

#define HUGE_BYTES ((uint64_t)2 << 20)

int zinf_arena_init(struct zinf_arena *arena, uint64_t bytes, const char *what)
{
    char size[16];
    memset(arena, 0, sizeof *arena);
    if (!bytes)
        return 0;
    /* One huge page more than asked, so that the start can be aligned; the slack is given back. */
    uint64_t length = zinf_align_up(bytes, ZINF_MEMORY_ALIGN);
    char *raw = mmap(NULL, length + HUGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return zinf_fail(-ENOMEM, "cannot map %s for %s: %s",
                         zinf_size_format(size, sizeof size, length), what, strerror(errno));
    char *start = (char *)zinf_align_up((uintptr_t)raw, HUGE_BYTES);
    if (start > raw)
        munmap(raw, (size_t)(start - raw));
    munmap(start + length, (size_t)(raw + HUGE_BYTES - start));
    madvise(start, length, MADV_HUGEPAGE); /* advice: a refusal costs speed only */
    arena->base = start;
    arena->bytes = length;
    return 0;
}

void zinf_arena_fini(struct zinf_arena *arena)
{
    if (arena->base)
        munmap(arena->base, arena->bytes);
    memset(arena, 0, sizeof *arena);
}

/* Virtual machines whose memory grows as it is used need a moment for that: pages are not taken
 * faster than they come, or the kernel ends the process. It is waited for so many times in all. */
static void let_memory_grow(const struct zinf_memory_source *source, uint64_t bytes, int *patience)
{
    while (*patience > 0 && source->available(source->context) < 2 * bytes) {
        source->rest(source->context);
        --*patience;
    }
}

void zinf_memory_touch_from(const struct zinf_memory_source *source, void *base, uint64_t bytes)
{
    int patience = 40;
    for (uint64_t at = 0; at < bytes; at += ZINF_TOUCH_BYTES) {
        uint64_t n = bytes - at < ZINF_TOUCH_BYTES ? bytes - at : ZINF_TOUCH_BYTES;
        zinf_pulse_beat(); /* hundreds of GiB take minutes */
        if (n == ZINF_TOUCH_BYTES)
            let_memory_grow(source, n, &patience);
        source->populate(source->context, (char *)base + at, n);
    }
}

#ifdef MADV_POPULATE_WRITE
static uint64_t system_available(void *context)
{
    (void)context;
    return zinf_memory_available();
}

static void system_rest(void *context)
{
    const struct timespec moment = {.tv_nsec = 50000000}; /* 40 of them are 2 s */
    (void)context;
    nanosleep(&moment, NULL);
}

static void system_populate(void *context, void *base, uint64_t bytes)
{
    (void)context;
    madvise(base, bytes, MADV_POPULATE_WRITE);
}
#endif

void zinf_memory_touch(void *base, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    const struct zinf_memory_source system = {
        .available = system_available, .rest = system_rest, .populate = system_populate};
    zinf_memory_touch_from(&system, base, bytes);
#else
    (void)base;
    (void)bytes;
#endif
}

int zinf_memory_place(void *memory, uint64_t bytes, int node)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const unsigned bits = 8 * sizeof(unsigned long);
    uintptr_t begin = zinf_align_up((uintptr_t)memory, page);
    uintptr_t end = ((uintptr_t)memory + bytes) / page * page;
    unsigned long mask[64] = {0};
    if (numa_available() < 0 || numa_max_node() < 1)
        return 0;
    if (begin >= end || node < 0 || (unsigned)node >= sizeof mask * 8)
        return 0;
    mask[(unsigned)node / bits] = 1ul << (unsigned)node % bits;
    if (mbind((void *)begin, end - begin, MPOL_PREFERRED, mask, sizeof mask * 8, MPOL_MF_MOVE))
        return zinf_fail(-errno, "cannot place %zu bytes on NUMA node %d: %s",
                         (size_t)(end - begin), node, strerror(errno));
    return 0;
}

static uint64_t field_of(const char *path, const char *field)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, field, strlen(field))) {
            sscanf(line + strlen(field), " %llu", &kib);
            break;
        }
    fclose(file);
    return (uint64_t)kib << 10;
}

uint64_t zinf_memory_available(void)
{
    uint64_t available = field_of("/proc/meminfo", "MemAvailable:");
    if (!available)
        available = UINT64_MAX;
    uint64_t left = zinf_cgroup_memory_left("");
    return left < available ? left : available;
}

uint64_t zinf_memory_resident(void)
{
    return field_of("/proc/self/status", "VmRSS:");
}

uint64_t zinf_memory_peak_resident(void)
{
    return field_of("/proc/self/status", "VmHWM:");
}
