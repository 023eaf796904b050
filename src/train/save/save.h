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

/* Where weights and state are and what moves them: all that saving knows of a trainer. Every
 * pointer is borrowed, and nothing may change while a source is used. */
struct source {
    const struct setup *setup;
    const struct zinf_tiers *tiers;
    const struct zinf_device *device; /* its threads also compute for saving */
    struct zinf_queue *to_device, *to_host;
    const char *prefix; /* of tensor names, as in the folder of the weights */
    const char *folder; /* has what belongs beside the weights */
    char *memory;       /* the region, source_memory_bytes */
    uint64_t scratch_elems;
    /* For new adapters, while weights are loaded: the file of the base model and, for each adapted
     * module that has DoRA magnitudes, the norms of its weight's rows in the order of the unit. */
    const struct zinf_tensors *base;
    float **norms;
    uint64_t step, n_applied, base_sum;
    const cJSON *identity; /* what the run depends on (identity.h), as far as a trainer knows it */
    struct zinf_loss_scale loss_scale;
    struct zinf_net *net; /* collects from the other ranks what is written; NULL: there are none */
    struct collect *collect; /* the exchange under way, see transfer.h; or NULL */
};

/* ---- transfer.c ---- */

struct source trainer_source(const struct zinf_trainer *t);
uint64_t source_memory_bytes(const struct setup *setup);
/* Further bytes of the region if drives hold packed sub-groups. */
uint64_t source_packed_bytes(const struct setup *setup);

/* ---- products.c ---- */

#define PRODUCTS_FILE "products.json"
/* Settles by which algorithms the device multiplies: those of an earlier run's file, else those
 * that rank 0's GPU measures as fastest. All ranks take the same. Call after memory is allocated
 * and before anything is stored in it, since measuring overwrites it. */
int products_settle(struct zinf_trainer *t);
/* The list as folder/PRODUCTS_FILE, if there is anything in it. */
int products_write(const struct setup *s, const char *folder);

/* ---- transfer_load.c ---- */

int trainer_load(struct zinf_trainer *t);
/* Writes the images on the drive of all trained units, from their current parameters. Call when
 * something else than a step has changed these. */
int trainer_place_images(struct zinf_trainer *t);

/* ---- state_access.c ---- */

/* How checkpoints read and write optimizer state. flat: this rank's slice of a trained unit in
 * fp32, in the unit's order, aligned to ZINF_MEMORY_ALIGN. which 0: master weights; 1, 2: moments,
 * but not factored ones. All of these use the region's scratch. */
int state_read(const struct source *s, uint32_t unit, int which, float *flat);
/* which 0 also sets the parameter in its number type. */
int state_write(const struct source *s, uint32_t unit, int which, const float *flat);
/* Begins the state of a unit whose parameters are loaded: master weights from flat, moments zero.
 */
int state_begin(const struct source *s, uint32_t unit, const float *flat);

/* Numbers first to first + n - 1 of those that an optimizer keeps of one matrix of a trained unit
 * beside its moments (a projection, for instance). n is at most the region's scratch less
 * STATE_KEPT_PAGES, since whole pages around them are read into it. */
#define STATE_KEPT_PAGES (2 * ZINF_MEMORY_ALIGN / sizeof(float))
struct state_kept {
    uint32_t unit, tensor, piece;
    uint64_t first, n;
};
int state_read_kept(const struct source *s, const struct state_kept *kept, float *out);
int state_write_kept(const struct source *s, const struct state_kept *kept, const float *in);
/* Factored moments of a unit of this rank, which is then one sub-group. state_factors_bytes: their
 * size in whole pages, for a unit of any rank. */
uint64_t state_factors_bytes(const struct setup *s, uint32_t unit);
int state_read_factors(const struct source *s, uint32_t unit, float *out);
int state_write_factors(const struct source *s, uint32_t unit, const float *in);

/* ---- durable.c ---- */

#define DURABLE_SCALARS_BYTES (32u << 10) /* at most */

/* Steps that survive the end of the process. */
struct durable {
    struct zinf_steps *steps; /* NULL: steps do not survive the process */
    bool recovered;           /* the state was recovered from an earlier process */
    bool due;                 /* a step awaits its record, with these scalars */
    bool unmet; /* this rank has written the record, and does not know yet whether all have */
    char *scalars;
    uint64_t scalars_bytes;
    bool reported;             /* the log has said what commits cost */
    enum packing wants_packed; /* not 0: opening failed, since the earlier run has packed more than
                                  this one */
    uint64_t n;                /* commits by this process */
    double seconds;
};
/* Creates the setup's store, on what an earlier process of the run left in its folder. */
int durable_open_store(struct zinf_trainer *t, struct zinf_store_options *options);
/* Recovers the last committed step, or prepares for the first one. Call once the store and all
 * memory are there. */
int durable_open(struct zinf_trainer *t);
void durable_close(struct zinf_trainer *t);
/* The scalars of the step that was recovered; NULL: none was. */
const void *durable_recovered(const struct zinf_trainer *t, uint64_t *bytes);
/* Commits the step that was just done, or the state before the first step: it survives the process
 * from now on or, if updates were deferred, from when these are made. Not to be called after a
 * skipped step, which changed nothing. */
int durable_commit(struct zinf_trainer *t, const void *scalars, uint64_t bytes);
/* durable_record: writes the record that is due; nothing of the next step may have been written
 * before. durable_meet: waits until all ranks have written theirs; nothing of the next step may be
 * written before that. durable_finish: both, if they are due. */
int durable_record(struct zinf_trainer *t);
int durable_meet(struct zinf_trainer *t);
int durable_finish(struct zinf_trainer *t);
/* Removes the steps, once the results are saved. */
void durable_forget(struct zinf_trainer *t);

/* ---- copies.c ---- */

/* Parameters whose home is not the drive have a copy there. copies_write writes the current
 * generation of all units' copies; copies_read reads it back into the parameters. */
int copies_write(struct zinf_trainer *t);
int copies_read(struct zinf_trainer *t);
/* Writes the copies that are missing. Call before updates overwrite parameters that a step which is
 * taken back would need. */
int copies_ready(struct zinf_trainer *t);
/* Restores what such updates have overwritten. Only this rank's slices are restored: where a rank
 * has parameters whole, these are on the device. */
int copies_take_back(struct zinf_trainer *t);

/* ---- durable_ranks.c ---- */

/* Ranks agree on the newest step that every rank's store holds completely, and go on from it. Call
 * when each has opened its store. */
int durable_agree(struct zinf_trainer *t);
/* For ranks that each have all parameters (ZeRO 1 and 2): each has recovered its slices, and
 * receives those of the others. */
int durable_gather(struct zinf_trainer *t);

#endif
