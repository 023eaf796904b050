/*
 * transfer: the pieces with which weights and optimizer state go between files and tiers, for the
 * files of this folder that load, save and checkpoint. All of them work in one fixed region of the
 * host arena, a unit at a time, so that memory does not grow with the model.
 */
#ifndef ZINF_TRAIN_TRANSFER_H
#define ZINF_TRAIN_TRANSFER_H

#include "formats/formats.h"
#include "train/trainer.h"

/* The region: a unit in fp32, one tensor in fp32, a unit in the parameters' type if it is another.
 */
struct region {
    float *unit, *tensor;
    char *packed;
    uint64_t unit_elems, tensor_elems;
};
struct region trainer_region(const struct zinf_trainer *t);

/* What of a unit is streamed; from 0 on as in trainer_state_read. */
enum {
    PART_GRAD = -2,
    PART_PARAM = -1, /* in its own number type, then fp32 */
    PART_MASTER = 0,
};
/* Declares, begins, streams and finishes: every tensor of the model under its name in the file. */
int trainer_stream(struct zinf_trainer *t, int part, enum zinf_dtype dtype,
                   struct zinf_tensors_writer *writer);
/* The unit's tensors from the file (NULL: their initialisation) into r->unit, gaps zero. */
int trainer_gather_unit(const struct zinf_trainer *t, const struct zinf_tensors *file,
                        const struct zinf_unit_spec *unit, const struct region *r);
/* transfer_factors.c: moment 1 or 2 of MOMENTS_FACTORED, which has its own shapes. */
int trainer_stream_factors(struct zinf_trainer *t, int which, struct zinf_tensors_writer *writer);
int trainer_load_factors(struct zinf_trainer *t, int which, const struct zinf_tensors *file);
/* The document as folder/config.json, with the number type of the weights. */
int trainer_write_config(const cJSON *config, enum zinf_dtype dtype, const char *folder);

#endif
