/*
 * shared: memory of the stand-in that other processes see. It has no name, so that nothing is left
 * of it when the last process that has mapped it is gone, however it went: others reach it by its
 * maker's number and descriptor, as long as that one lives, which is how long a GPU's would be
 * there too.
 */
#ifndef STANDIN_SHARED_H
#define STANDIN_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What another process needs to find it. */
struct shared_place {
    int pid, fd;
    uint64_t serial; /* of the maker's mappings: descriptors come again */
    size_t bytes;
};

/* Mapped for reading and writing, all zero; NULL: there is no room. */
void *shared_create(struct shared_place *place, size_t bytes);
void shared_free(void *memory, const struct shared_place *place);
/* Another's, mapped once and kept; may_write: else it is only read. NULL: its maker is gone. */
void *shared_find(const struct shared_place *place, bool may_write);
/* Whether a process has ended; one that was not there to begin with has. */
bool shared_has_ended(int pid);

#endif
