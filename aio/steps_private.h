/* steps_private: what steps.c and steps_verify.c share. For files of aio/ only. */
#ifndef ZINF_STEPS_PRIVATE_H
#define ZINF_STEPS_PRIVATE_H

#include "aio/aio_store.h"
#include "aio/commit_record.h"
#include "aio/steps.h"

#pragma GCC visibility push(hidden)

struct zinf_steps {
    struct zinf_store *store;
    struct zinf_commit *commit;
    struct zinf_aio_file *area;
    bool recovered;
};

/* Opens and locks the commit area. anew: creates an empty one. */
int steps_open_area(struct zinf_steps *steps, bool anew);
/* The options of a commit except layout, payload_bytes and flush. */
struct zinf_commit_options steps_commit_options(struct zinf_steps *steps);

#pragma GCC visibility pop
#endif
