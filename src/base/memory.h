/*
 * memory: the ledger says where every large byte goes before any is taken; an arena is then one
 * mapping of exactly that size, and every user gets a fixed offset in it. Nothing large is
 * allocated after that. One thread builds a ledger; arenas are read-only once created.
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
    ZINF_MEMORY_HOST,   /* host arena (pinned where a device asks for it) and the process itself */
    ZINF_MEMORY_DRIVE,  /* extents in the store's files */
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
/* A line that is no part of an arena (the program itself, libraries' buffers): counted, no offset.
 */
int zinf_ledger_add_outside(struct zinf_ledger *ledger, enum zinf_memory_tier tier,
                            const char *name, const char *hint, uint64_t bytes);
uint64_t zinf_ledger_arena_bytes(const struct zinf_ledger *ledger, enum zinf_memory_tier tier);
uint64_t zinf_ledger_total_bytes(const struct zinf_ledger *ledger, enum zinf_memory_tier tier);
/* Table by tier: line, size, key that shrinks it. budget[tier] = UINT64_MAX means no limit. */
int zinf_ledger_print(const struct zinf_ledger *ledger, const uint64_t *budget, FILE *out);
/* 0 if every tier is within its budget, else -ENOMEM; the message is the whole table and names
 * the keys to change. */
int zinf_ledger_check(const struct zinf_ledger *ledger, const uint64_t *budget);

/* An anonymous mapping of exactly bytes (rounded up to a page), 2 MiB aligned, huge pages asked
 * for, not touched. -ENOMEM with the size in the message. */
struct zinf_arena {
    char *base;
    uint64_t bytes;
};
int zinf_arena_init(struct zinf_arena *arena, uint64_t bytes, const char *what);
void zinf_arena_fini(struct zinf_arena *arena);
/* Makes whole pages of private memory resident, as they are: what uses them first does not wait
 * for the kernel to find and clear them. Where that is not possible nothing happens. */
void zinf_memory_touch(void *base, uint64_t bytes);

/* The same with other calls than the system's, for tests: bytes that are to be had, a moment's
 * rest, and pages made resident. Steps are of ZINF_TOUCH_BYTES. Before a whole step there is a look
 * at what is to be had, and rests while that is less than two steps: 40 of them in all, so that
 * memory which never comes holds nobody up. */
#define ZINF_TOUCH_BYTES ((uint64_t)1 << 30)
struct zinf_memory_source {
    uint64_t (*available)(void *context);
    void (*rest)(void *context);
    void (*populate)(void *context, void *base, uint64_t bytes);
    void *context;
};
void zinf_memory_touch_from(const struct zinf_memory_source *source, void *base, uint64_t bytes);

/* The whole pages in it prefer a NUMA node, and those that are elsewhere are moved to it. Node
 * below 0, or a machine with one node: nothing is done. -errno of the system: a matter of speed
 * alone. */
int zinf_memory_place(void *memory, uint64_t bytes, int node);

/* What this process may take: the smaller of MemAvailable and what its cgroup leaves. */
uint64_t zinf_memory_available(void);
uint64_t zinf_memory_resident(void);      /* VmRSS now */
uint64_t zinf_memory_peak_resident(void); /* VmHWM */

#ifdef __cplusplus
}
#endif
#endif
