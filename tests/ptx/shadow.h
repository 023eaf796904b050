/*
 * shadow: what is known of every byte of memory: who wrote it last and who has read it since. A
 * thread's place in time is its segment: one begins at every barrier of a block, at every block and
 * every launch. Two accesses of which one is a write are ordered if an earlier launch made the
 * first, if the same thread made both, or if a barrier of their block lies between; else they are a
 * race, whatever came of it.
 */
#ifndef PTX_SHADOW_H
#define PTX_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A moment: segment << 11 | thread. 0 is never; SHADOW_HOST a time before all. */
enum { SHADOW_BITS = 11, SHADOW_MANY = 1024, SHADOW_BLOCKS = 1025, SHADOW_PENDING = 1026 };
enum { SHADOW_HOST = 1 };

struct shadow {
    uint32_t *writer, *reader; /* a moment each for every byte */
};

/* The segments now. */
struct shadow_clock {
    uint32_t now, block, launch; /* the first of the running block and launch */
};
extern struct shadow_clock shadow_clock;
void shadow_begin_launch(void);
void shadow_begin_block(void);
void shadow_pass_barrier(void);

enum shadow_finding {
    SHADOW_GOOD,
    SHADOW_UNWRITTEN,
    SHADOW_LANDING,    /* an asynchronous copy is on its way there */
    SHADOW_RACE_READ,  /* with a write, of a thread that reads */
    SHADOW_RACE_WRITE, /* with a write or a read, of a thread that writes */
};
const char *shadow_says(enum shadow_finding finding);

/* A thread's access to n bytes from at on; other gets the moment of the access that it meets. */
enum shadow_finding shadow_read(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                uint32_t *other);
enum shadow_finding shadow_write(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                 uint32_t *other);
/* A copy begins, which is a write at an unknown time; it has landed. */
enum shadow_finding shadow_start_copy(struct shadow *s, size_t at, unsigned n, unsigned thread,
                                      uint32_t *other);
void shadow_end_copy(struct shadow *s, size_t at, unsigned n, unsigned thread);

/* ---- global memory ---- */

/* The allocation that holds the bytes; NULL: none does. at gets the place in its shadow. */
struct shadow *shadow_find(uint64_t address, size_t bytes, size_t *at);
/* Memory that is no allocation of the user's, and has been written. */
void shadow_add(void *base, size_t bytes);
/* Tells the stand-in to keep the shadow: allocations, and what the host and cuBLASLt write. */
void shadow_watch(void);

#endif
