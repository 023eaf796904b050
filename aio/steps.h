/*
 * steps: a store whose committed steps outlive the process. With options.run, a store leaves its
 * files to the next process of that run. That process plans the same extents and finds them as
 * they were (zinf_store_allocate). Extents with two generations are the two banks of aio/commit.h;
 * zinf_steps_recovered says which generation is valid.
 *
 * A training calls, in this order: zinf_store_create with run and checksums,
 * zinf_store_add_extent_pair for each extent, zinf_store_allocate; zinf_steps_open;
 * zinf_steps_recovered, and if it is false writes everything into generation 0; for each step
 * zinf_steps_begin before the first write of new state and zinf_steps_end after the last one has
 * completed; zinf_steps_forget once the results are saved elsewhere.
 *
 * One thread at a time. It may be another one than the thread that moves data, if no transfer of
 * the step is in flight during begin and end.
 */
#ifndef ZINF_STEPS_H
#define ZINF_STEPS_H

#include "aio/aio.h"

#ifdef __cplusplus
extern "C" {
#endif

struct zinf_steps_options {
    uint64_t layout; /* a number that changes whenever the meaning of the extents' bytes changes */
    uint64_t payload_bytes; /* most bytes of scalars of a step */
    bool flush;             /* steps survive a power cut too, which costs two flushes each */
};
struct zinf_steps;
/* Opens the commit area of an allocated store with checksums, which must live longer. Reads and
 * compares all of a committed step. -EBADMSG: it is damaged; -EINVAL: it is of another model or
 * plan. */
int zinf_steps_open(struct zinf_steps **out, struct zinf_store *store,
                    const struct zinf_steps_options *options);
void zinf_steps_close(struct zinf_steps *steps); /* NULL is allowed */
/* Whether a step was recovered. *generation is then the valid one of every extent pair, its
 * checksums are known, and *payload has the step's scalars until the next zinf_steps_end. */
bool zinf_steps_recovered(const struct zinf_steps *steps, int *generation, const void **payload,
                          uint64_t *bytes);
/* Goes back to the step before the newest (zinf_commit_go_back); zinf_steps_recovered then tells
 * its generation and scalars. Only before the first begin. */
int zinf_steps_go_back(struct zinf_steps *steps);
/* Gives the generation that the next step must write, which is never the committed one. */
int zinf_steps_begin(struct zinf_steps *steps, int *generation);
/* Commits: the generation that begin gave is the valid one from now on, with these scalars. After
 * an error no further step can be committed; see zinf_commit_end. */
int zinf_steps_end(struct zinf_steps *steps, const void *payload, uint64_t bytes);
/* Number of commits by all processes of the run. */
uint64_t zinf_steps_count(const struct zinf_steps *steps);
/* From now on zinf_store_destroy removes the store. */
void zinf_steps_forget(struct zinf_store *store);

/* ---- looking, without taking anything ---- */

struct zinf_steps_info {
    const char *folder; /* the run folder */
    /* NULL, or why some of the fields below are not known: damaged, of another version, or
     * unreadable */
    const char *problem;
    bool named; /* `run` is known */
    uint8_t run[16];
    int path, n_paths;
    bool alive;       /* its process lives */
    bool committed;   /* path 0: a step was committed; its data were not read */
    bool flushed;     /* the step was written so as to survive a power cut */
    bool same_boot;   /* the machine was not restarted since */
    uint64_t commits; /* number of commits */
    const void *payload;
    uint64_t payload_bytes, store_bytes;
};
/* Calls see for every run folder under path that outlives its process. info is valid during the
 * call. */
int zinf_steps_list(const char *path, void (*see)(void *arg, const struct zinf_steps_info *info),
                    void *arg);

/* ---- comparing, and repairing ---- */

struct zinf_steps_verdict {
    int newest;           /* 0: all of the newest step is as it was written; else -errno */
    char problem[1024];   /* the sentence of that error */
    int kept;             /* 0: a step is usable, the newest or the one before it; else -errno */
    bool none;            /* no step was committed */
    uint64_t commits;     /* number of commits up to the usable step */
    char payload[262144]; /* scalars of the usable step */
    uint64_t payload_bytes;
    uint64_t bytes; /* bytes of a step that were read and compared */
};
/* Reads and compares what `run` left on these paths. repair: if the newest step is damaged and the
 * one before it is whole, that one becomes the newest; descriptions with one good copy get two
 * again. 0: the verdict is known, whatever it is; -EBUSY: a process of the run lives; or the error
 * that kept it from being known. */
int zinf_steps_verify(struct zinf_steps_verdict *verdict, const char *const *paths, int n_paths,
                      const uint8_t run[16], bool repair);

#ifdef __cplusplus
}
#endif
#endif
