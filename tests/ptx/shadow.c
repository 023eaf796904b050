/* shadow: the rules of order, and the shadows of the stand-in's allocations. */
#include "shadow.h"

#include "cuda_standin/standin.h"

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

static uint32_t moment(unsigned thread)
{
    return shadow_clock.now << SHADOW_BITS | thread;
}

/* Whether an access at that moment is unordered with one of this thread now. */
static bool races(uint32_t then, unsigned thread)
{
    uint32_t segment = then >> SHADOW_BITS, who = then & ((1u << SHADOW_BITS) - 1);
    if (segment < shadow_clock.launch)
        return false;
    if (who == SHADOW_BLOCKS || segment < shadow_clock.block)
        return true; /* of another block */
    return segment == shadow_clock.now && who != thread;
}

static bool is_pending(uint32_t then)
{
    return (then & ((1u << SHADOW_BITS) - 1)) == SHADOW_PENDING &&
           then >> SHADOW_BITS >= shadow_clock.block;
}

/* The last readers, with this one. */
static uint32_t with_reader(uint32_t then, unsigned thread)
{
    uint32_t segment = then >> SHADOW_BITS, who = then & ((1u << SHADOW_BITS) - 1);
    if (segment >= shadow_clock.launch && (who == SHADOW_BLOCKS || segment < shadow_clock.block))
        return moment(SHADOW_BLOCKS);
    return moment(segment == shadow_clock.now && who != thread ? SHADOW_MANY : thread);
}

/* Whether n moments are one and the same, as they are for the bytes of an element. */
static bool same(const uint32_t *moments, unsigned n)
{
    uint32_t different = 0;
    for (unsigned i = 1; i < n; i++)
        different |= moments[i] ^ moments[0];
    return !different;
}

static void fill(uint32_t *moments, unsigned n, uint32_t with)
{
    for (unsigned i = 0; i < n; i++)
        moments[i] = with;
}

enum shadow_finding shadow_read(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                uint32_t *other)
{
    uint32_t *writer = s->writer + at, *reader = s->reader + at;
    unsigned each = same(writer, n) && same(reader, n) ? n : 1;
    for (unsigned i = 0; i < n; i += each) {
        *other = writer[i];
        if (!writer[i])
            return SHADOW_UNWRITTEN;
        if (is_pending(writer[i]))
            return SHADOW_LANDING;
        if (races(writer[i], thread))
            return SHADOW_RACE_READ;
        fill(reader + i, each, with_reader(reader[i], thread));
    }
    return SHADOW_GOOD;
}

static enum shadow_finding write_as(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                    uint32_t as, uint32_t *other)
{
    uint32_t *writer = s->writer + at, *reader = s->reader + at;
    unsigned each = same(writer, n) && same(reader, n) ? n : 1;
    for (unsigned i = 0; i < n; i += each) {
        *other = writer[i];
        if (is_pending(writer[i]))
            return SHADOW_LANDING;
        if (races(writer[i], thread))
            return SHADOW_RACE_WRITE;
        *other = reader[i];
        if (reader[i] && races(reader[i], thread))
            return SHADOW_RACE_WRITE;
        fill(writer + i, each, as);
    }
    return SHADOW_GOOD;
}

enum shadow_finding shadow_write(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                 uint32_t *other)
{
    return write_as(s, at, n, thread, moment(thread), other);
}

enum shadow_finding shadow_start_copy(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                      uint32_t *other)
{
    return write_as(s, at, n, thread, moment(SHADOW_PENDING), other);
}

void shadow_end_copy(struct shadow *s, size_t at, unsigned n, unsigned thread)
{
    fill(s->writer + at, n, moment(thread));
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
