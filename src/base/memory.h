/*
 * memory: a ledger lists every large use of memory before any is allocated. An arena is then one
 * mapping of exactly the listed size, in which each use has a fixed offset. Nothing large is
 * allocated afterwards. One thread builds a ledger; arenas are read-only once created.
 */
#ifndef ZINF_MEMORY_H
#define ZINF_MEMORY_H

#include "base/base.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_memory_tier {
    ZINF_MEMORY_DEVICE, /* the device's arena: GPU memory, or the host device's capped arena */
    /* the host arena (pinned if a device needs that), and the process's other memory */
    ZINF_MEMORY_HOST,
    ZINF_MEMORY_DRIVE, /* extents in the store's files */
    ZINF_MEMORY_TIERS,
};

#define ZINF_MEMORY_ALIGN 4096 /* O_DIRECT needs this for addresses, offsets and lengths */

struct zinf_ledger;
int zinf_ledger_create(struct zinf_ledger **out);
void zinf_ledger_destroy(struct zinf_ledger *ledger);
/* Adds a line and sets *offset (may be NULL) to its place in the tier's arena, aligned to
 * ZINF_MEMORY_ALIGN. hint names the configuration key that makes this line smaller; it may be
 * NULL. name is copied, hint is borrowed (a literal). */
int zinf_ledger_add(struct zinf_ledger *ledger, enum zinf_memory_tier tier, const char *name,
                    const char *hint, uint64_t bytes, uint64_t *offset);
/* Adds a line that is counted but not part of an arena, such as libraries' buffers. */
int zinf_ledger_add_outside(struct zinf_ledger *ledger, enum zinf_memory_tier tier,
                            const char *name, const char *hint, uint64_t bytes);
uint64_t zinf_ledger_arena_bytes(const struct zinf_ledger *ledger, enum zinf_memory_tier tier);
uint64_t zinf_ledger_total_bytes(const struct zinf_ledger *ledger, enum zinf_memory_tier tier);
/* Prints a table for each tier: line, size, and the key that makes it smaller. budget[tier]
 * UINT64_MAX: no limit. */
int zinf_ledger_print(const struct zinf_ledger *ledger, const uint64_t *budget, FILE *out);
/* 0 if every tier is within its budget, else -ENOMEM; the message is the whole table and names
 * the keys to change. */
int zinf_ledger_check(const struct zinf_ledger *ledger, const uint64_t *budget);

/* An anonymous mapping of bytes rounded up to a page, aligned to 2 MiB, with huge pages requested.
 * Its pages are not touched. -ENOMEM: the message has the size. */
struct zinf_arena {
    char *base;
    uint64_t bytes;
};
int zinf_arena_init(struct zinf_arena *arena, uint64_t bytes, const char *what);
void zinf_arena_fini(struct zinf_arena *arena);
/* Makes the whole pages within a range of private memory resident without changing them, so that
 * their first user need not wait for the kernel to clear them. Does nothing where the kernel
 * cannot. */
void zinf_memory_touch(void *base, uint64_t bytes);

/* zinf_memory_touch with other calls than the system's, for tests: the bytes that are available, a
 * short rest, and making pages resident. It goes in steps of ZINF_TOUCH_BYTES. Before a whole step
 * it rests while less than two steps are available, 40 times in all, so that memory which never
 * comes does not hold it up. */
#define ZINF_TOUCH_BYTES ((uint64_t)1 << 30)
struct zinf_memory_source {
    uint64_t (*available)(void *context);
    void (*rest)(void *context);
    void (*populate)(void *context, void *base, uint64_t bytes);
    void *context;
};
void zinf_memory_touch_from(const struct zinf_memory_source *source, void *base, uint64_t bytes);

/* Sets the preferred NUMA node of the whole pages within a range and moves them there. Does nothing
 * if node < 0 or there is one node. Returns the system's -errno, which affects only speed. */
int zinf_memory_place(void *memory, uint64_t bytes, int node);

/* Bytes that this process may still take: the smaller of MemAvailable and zinf_cgroup_memory_left.
 */
uint64_t zinf_memory_available(void);
uint64_t zinf_memory_resident(void);      /* VmRSS now */
uint64_t zinf_memory_peak_resident(void); /* VmHWM */

#ifdef __cplusplus
}
#endif
#endif
