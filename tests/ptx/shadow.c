/* shadow: the rules of order, and the shadows of the stand-in's allocations. */
#include "shadow.h"
#include "shadow_rules.h"

#include "tests/cuda_standin/standin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_RANGES = 64 };

/* ---- time ---- */

struct shadow_clock shadow_clock = {1, 1, 1};

static struct range {
    char *base;
    size_t bytes;
    struct shadow shadow;
} ranges[MOST_RANGES];
static struct range *last = ranges;

/* Segments have 21 bits: before they run out all moments become that of the host. */
static void start_time_again(void)
{
    for (int r = 0; r < MOST_RANGES; r++)
        for (size_t i = 0; ranges[r].base && i < ranges[r].bytes; i++) {
            ranges[r].shadow.writer[i] = ranges[r].shadow.writer[i] ? SHADOW_HOST : 0;
            ranges[r].shadow.reader[i] = 0;
        }
    shadow_clock.now = 1;
}

void shadow_begin_launch(void)
{
    if (shadow_clock.now > (3u << 30) >> SHADOW_BITS)
        start_time_again();
    shadow_clock.launch = shadow_clock.block = ++shadow_clock.now;
}

void shadow_begin_block(void)
{
    shadow_clock.block = ++shadow_clock.now;
}

void shadow_pass_barrier(void)
{
    shadow_clock.now++;
}

/* ---- rules ---- */

enum shadow_finding shadow_read(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                uint32_t *other)
{
    return n == 16 ? shadow_read_of(shadow_clock, s, at, 16, thread, other)
                   : shadow_read_of(shadow_clock, s, at, n, thread, other);
}

enum shadow_finding shadow_write(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                 uint32_t *other)
{
    return n == 16 ? shadow_write_of(shadow_clock, s, at, 16, thread, other)
                   : shadow_write_of(shadow_clock, s, at, n, thread, other);
}

enum shadow_finding shadow_start_copy(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                      uint32_t *other)
{
    const enum shadow_finding finding = shadow_write(s, at, n, thread, other);
    if (finding == SHADOW_GOOD)
        shadow_fill(s->writer + at, n, shadow_moment(shadow_clock, SHADOW_PENDING));
    return finding;
}

void shadow_end_copy(struct shadow *s, size_t at, unsigned n, unsigned thread)
{
    shadow_fill(s->writer + at, n, shadow_moment(shadow_clock, thread));
}

const char *shadow_says(enum shadow_finding finding)
{
    static const char *const says[] = {
        [SHADOW_GOOD] = "",
        [SHADOW_UNWRITTEN] = "reads what nobody has written",
        [SHADOW_LANDING] = "meets an asynchronous copy that nobody has waited for",
        [SHADOW_RACE_READ] = "reads what another thread writes, with no barrier between",
        [SHADOW_RACE_WRITE] = "writes what another thread reads or writes, with no barrier between",
    };
    return says[finding];
}

/* ---- global memory ---- */

static uint32_t *moments_for(size_t bytes)
{
    void *base = mmap(NULL, bytes * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

static void allocated(void *base, size_t bytes)
{
    for (int r = 0; r < MOST_RANGES; r++)
        if (!ranges[r].base) {
            ranges[r] = (struct range){base, bytes, {moments_for(bytes), moments_for(bytes)}};
            return;
        }
}

static void freed(void *base)
{
    for (int r = 0; r < MOST_RANGES; r++)
        if (ranges[r].base == base) {
            munmap(ranges[r].shadow.writer, ranges[r].bytes * sizeof(uint32_t));
            munmap(ranges[r].shadow.reader, ranges[r].bytes * sizeof(uint32_t));
            ranges[r] = (struct range){0};
        }
}

struct shadow *shadow_find(uint64_t address, size_t bytes, size_t *at)
{
    for (int tries = 0; tries <= MOST_RANGES; tries++) {
        uint64_t base = (uint64_t)(uintptr_t)last->base;
        if (base && address >= base && bytes <= last->bytes &&
            address - base <= last->bytes - bytes) {
            *at = (size_t)(address - base);
            return &last->shadow;
        }
        last = &ranges[tries % MOST_RANGES];
    }
    return NULL;
}

static void written(const void *base, size_t bytes)
{
    size_t at;
    struct shadow *shadow = shadow_find((uint64_t)(uintptr_t)base, bytes, &at);
    if (!shadow)
        return;
    for (size_t i = 0; i < bytes; i++)
        shadow->writer[at + i] = SHADOW_HOST;
}

static void copied(const void *to, const void *from, size_t bytes)
{
    size_t at, from_at;
    struct shadow *shadow = shadow_find((uint64_t)(uintptr_t)to, bytes, &at);
    struct shadow *source = shadow_find((uint64_t)(uintptr_t)from, bytes, &from_at);
    for (size_t i = 0; shadow && source && i < bytes; i++)
        shadow->writer[at + i] = source->writer[from_at + i] ? SHADOW_HOST : 0;
}

static bool known(const void *base, size_t bytes)
{
    size_t at;
    struct shadow *shadow = shadow_find((uint64_t)(uintptr_t)base, bytes, &at);
    for (size_t i = 0; shadow && i < bytes; i++)
        if (!shadow->writer[at + i])
            return false;
    return shadow != NULL;
}

void shadow_add(void *base, size_t bytes)
{
    allocated(base, bytes);
    written(base, bytes);
}

void shadow_watch(void)
{
    static const struct standin_watch watch = {allocated, freed, written, copied, known};
    standin_watch = &watch;
}
