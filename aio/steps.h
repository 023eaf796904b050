/*
 * steps: a store whose steps outlive the process. Created with options.run, a store leaves its
 * files to the next process of that run instead of removing them; that process plans the same
 * extents and finds them, in zinf_store_allocate, as they were. Extents with two generations are
 * the two banks of aio/commit.h; which generation is true is what zinf_steps_open says.
 *
 * A training calls, in this order:
 *   zinf_store_create (options.run, checksums), zinf_store_add_extent_pair ..., zinf_store_allocate
 *   zinf_steps_open       -> zinf_steps_recovered: the state is there, in which generation, and the
 *                            caller's scalars; else write everything into generation 0
 *   zinf_steps_begin      -> before the first write of a step's new state: its generation
 *   zinf_steps_end        -> after the last write of it completed: the step is safe
 *   zinf_steps_forget     -> the results are saved elsewhere: destroying the store removes its
 * files
 *
 * One thread at a time; it may be another than the one that moves the data, if begin and end are
 * called when nothing of the step is in flight.
 */
#ifndef ZINF_STEPS_H
#define ZINF_STEPS_H

#include "aio/aio.h"

#ifdef __cplusplus
extern "C" {
#endif

struct zinf_steps_options {
    uint64_t layout; /* a number that changes whenever the extents' bytes mean another thing */
    uint64_t payload_bytes; /* most scalars that an end may be given */
    bool flush;             /* steps survive a power cut too, at two flushes each */
};
struct zinf_steps;
/* The store, allocated, with checksums, stays the caller's and must live longer. Reads and compares
 * all of a committed step. -EBADMSG: it is damaged; -EINVAL: it is another model's or plan's. */
int zinf_steps_open(struct zinf_steps **out, struct zinf_store *store,
                    const struct zinf_steps_options *options);
void zinf_steps_close(struct zinf_steps *steps); /* NULL is allowed */
/* True: *generation is the true one of every pair, and its checksums are known again. payload is
 * valid until the next end. */
bool zinf_steps_recovered(const struct zinf_steps *steps, int *generation, const void **payload,
                          uint64_t *bytes);
/* The step before the newest is the newest again, whose generation and scalars zinf_steps_recovered
 * then has: see zinf_commit_go_back. Before the first begin. */
int zinf_steps_go_back(struct zinf_steps *steps);
/* The generation that the next step writes; never the one that is committed. */
int zinf_steps_begin(struct zinf_steps *steps, int *generation);
/* Commits: every pair's other generation is the true one now, with these scalars. After an error
 * no further step can be committed; see zinf_commit_end. */
int zinf_steps_end(struct zinf_steps *steps, const void *payload, uint64_t bytes);
/* Commits so far, over all processes; 0: none. */
uint64_t zinf_steps_count(const struct zinf_steps *steps);
/* From now on destroying the store removes it. */
void zinf_steps_forget(struct zinf_store *store);

/* ---- looking, without taking anything ---- */

struct zinf_steps_info {
    const char *folder;  /* the run folder */
    const char *problem; /* NULL, or why not all of what follows is known: something is damaged, or
                          * of another version, or could not be read */
    bool named;          /* run is known */
    uint8_t run[16];
    int path, n_paths;
    bool alive;       /* its process lives */
    bool committed;   /* path 0: a step is; its pages were not looked at */
    bool flushed;     /* it was made to survive a power cut */
    bool same_boot;   /* there was none since */
    uint64_t commits; /* so far */
    const void *payload;
    uint64_t payload_bytes, store_bytes;
};
/* Calls see for every run folder under path that outlives its process. */
int zinf_steps_list(const char *path, void (*see)(void *arg, const struct zinf_steps_info *info),
                    void *arg);

/* ---- comparing, and repairing ---- */

struct zinf_steps_verdict {
    int newest;           /* 0: all of the newest step is what was written; else why not */
    char problem[1024];   /* the sentence for that */
    int kept;             /* 0: a step can be gone on from: the newest, or the one before it */
    bool none;            /* no step was ever committed */
    uint64_t commits;     /* up to the one that can be gone on from */
    char payload[262144]; /* its scalars */
    uint64_t payload_bytes;
    uint64_t bytes; /* of a step: that much was read */
};
/* Reads and compares all that run left on these paths. repair: where the newest step is damaged and
 * the one before it is whole, that becomes the newest; and descriptions of which one copy is left
 * are written twice again. 0 if that could be found out, whatever it is; -EBUSY: the run lives; or
 * what kept it from being found out. */
int zinf_steps_verify(struct zinf_steps_verdict *verdict, const char *const *paths, int n_paths,
                      const uint8_t run[16], bool repair);

#ifdef __cplusplus
}
#endif
#endif
