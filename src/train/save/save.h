/*
 * save: what becomes of a trainer's weights and state outside of a step. Weights come from model
 * folders and go to them (transfer*.c); checkpoints hold the state too (checkpoint.h); committed
 * steps outlive the process in the store itself (durable.c); a run's output folder is locked and
 * changed by renames (output.h).
 *
 * All see a trainer as a *source* and work through one region of the host arena, places.h_transfer,
 * between steps and in the trainer's thread. Only a background save has a thread, and a region, of
 * its own.
 */
#ifndef ZINF_TRAIN_SAVE_H
#define ZINF_TRAIN_SAVE_H

#include "train/save/identity.h"
#include "train/setup.h"
#include "train/step/scales.h"

struct zinf_trainer;

/* Where weights and state are, and what moves them: what saving knows of a trainer. Everything is
 * borrowed, and nothing changes while it is used. */
struct source {
    const struct setup *setup;
    const struct zinf_tiers *tiers;
    const struct zinf_device *device; /* whose threads compute, too */
    struct zinf_queue *to_device, *to_host;
    const char *prefix; /* of tensor names: as the folder of the weights has them */
    const char *folder; /* has what belongs beside the weights */
    char *memory;       /* the region, source_memory_bytes */
    uint64_t scratch_elems;
    /* Of fresh adapters, while weights are loaded: the base's file, and of each adapted module that
     * has magnitudes the norms of its rows, in our order. */
    const struct zinf_tensors *base;
    float **norms;
    uint64_t step, n_applied, base_sum;
    const cJSON *identity; /* what this stands on, as far as a trainer knows it */
    struct zinf_loss_scale loss_scale;
    struct zinf_net *net; /* of other ranks, or NULL: by which all that is written comes together */
    struct collect *collect; /* what is being written together, see transfer.h; or NULL */
};

/* ---- transfer.c ---- */

struct source trainer_source(const struct zinf_trainer *t);
uint64_t source_memory_bytes(const struct setup *setup);
/* And where drives have sub-groups packed. */
uint64_t source_packed_bytes(const struct setup *setup);

/* ---- products.c ---- */

#define PRODUCTS_FILE "products.json"
/* After memory is taken and before anything is in it: by which algorithms the device multiplies,
 * from the files and the GPU of rank 0. */
int products_settle(struct zinf_trainer *t);
/* The list as folder/PRODUCTS_FILE, if there is anything in it. */
int products_write(const struct setup *s, const char *folder);

/* ---- transfer_load.c ---- */

int trainer_load(struct zinf_trainer *t);

/* ---- state_access.c ---- */

/* What checkpoints see of the state. flat: the rank's slice of a trained unit in fp32, in flat
 * order, aligned to ZINF_MEMORY_ALIGN. which 0: master, 1, 2: moments, not of factored ones. All
 * use the region's scratch. */
int state_read(const struct source *s, uint32_t unit, int which, float *flat);
/* which 0 also sets the parameter in its number type. */
int state_write(const struct source *s, uint32_t unit, int which, const float *flat);
/* Masters of parameters that are there already, and moments of zero. */
int state_begin(const struct source *s, uint32_t unit, const float *flat);

/* n of the numbers, from `first` on, that the rule of one of a trained unit's matrices keeps of it
 * beside moments; two pages of numbers less than the region's scratch, in which they are read. */
#define STATE_KEPT_PAGES (2 * ZINF_MEMORY_ALIGN / sizeof(float))
struct state_kept {
    uint32_t unit, tensor, piece;
    uint64_t first, n;
};
int state_read_kept(const struct source *s, const struct state_kept *kept, float *out);
int state_write_kept(const struct source *s, const struct state_kept *kept, const float *in);
/* All factored moments of a unit that lives here, which is one sub-group; and their bytes, of any
 * unit, in whole pages. */
uint64_t state_factors_bytes(const struct setup *s, uint32_t unit);
int state_read_factors(const struct source *s, uint32_t unit, float *out);
int state_write_factors(const struct source *s, uint32_t unit, const float *in);

/* ---- durable.c ---- */

#define DURABLE_SCALARS_BYTES (32u << 10) /* at most */

/* Steps that outlive the process. */
struct durable {
    struct zinf_steps *steps; /* NULL: steps end with the process */
    bool recovered;           /* the state is that of an earlier process */
    bool due;                 /* a step awaits its record, with these scalars */
    bool unmet;               /* this rank has written it; do the others have theirs? */
    char *scalars;
    uint64_t scalars_bytes;
    bool reported;             /* what they cost */
    enum packing wants_packed; /* not 0: it cannot be opened, since a run left more packed */
    uint64_t n;                /* commits by this process */
    double seconds;
};
/* Takes the setup's store; what an earlier process left of it too. */
int durable_open_store(struct zinf_trainer *t, struct zinf_store_options *options);
/* With the store and all memory there: recovers the last step, or stands ready for the first. */
int durable_open(struct zinf_trainer *t);
void durable_close(struct zinf_trainer *t);
/* Scalars of the step that an earlier process committed last; NULL: there is none. */
const void *durable_recovered(const struct zinf_trainer *t, uint64_t *bytes);
/* The step that was just done, or the state before the first, outlives the process from now on, or
 * from when its late updates are made. Not after a skipped step, which changed nothing. */
int durable_commit(struct zinf_trainer *t, const void *scalars, uint64_t bytes);
/* Writes the record that is due; nothing of the next step may have been written. Then waits until
 * all ranks have theirs: nothing of the next step may be written before. Both, where they are due.
 */
int durable_record(struct zinf_trainer *t);
int durable_meet(struct zinf_trainer *t);
int durable_finish(struct zinf_trainer *t);
/* The results are saved: nothing stays. */
void durable_forget(struct zinf_trainer *t);

/* ---- copies.c ---- */

/* Between parameters that are not on the drive and their copies there, of the current generation:
 * of all units. */
int copies_write(struct zinf_trainer *t);
int copies_read(struct zinf_trainer *t);
/* Before updates overwrite parameters that may be taken back: writes copies that are not there. */
int copies_ready(struct zinf_trainer *t);
/* What such updates have overwritten, as it was before. Slices alone: where each rank has
 * parameters whole, they are on the device. */
int copies_take_back(struct zinf_trainer *t);

/* ---- durable_ranks.c ---- */

/* Of several ranks' stores, each opened: all go on from the newest step that all have whole. */
int durable_agree(struct zinf_trainer *t);
/* Of ranks that have parameters whole: each has recovered its slices, and gets the others'. */
int durable_gather(struct zinf_trainer *t);

#endif
