/*
 * transfer: the pieces with which weights and optimizer state go between files and tiers, for the
 * files of this folder that load, save and checkpoint. Files have the family's names, shapes and
 * order of rows, tiers have flat buffers; model/tensors.h is the way between. All work in one fixed
 * region of the host arena, a unit at a time, so that memory does not grow with the model.
 */
#ifndef ZINF_TRAIN_TRANSFER_H
#define ZINF_TRAIN_TRANSFER_H

#include "formats/formats.h"
#include "train/trainer.h"

/* The region: a unit in fp32, room for a part of one, a unit in the parameters' type if it is
 * another. */
struct region {
    float *unit, *scratch;
    char *packed, *image;          /* the second where weights are quantised: of one matrix */
    char *slot, *unpacked, *param; /* of a sub-group that drives have packed: as it is there, its
                                    * state, its parameters */
    char *given;                   /* where there are other ranks: a slice for each */
    float *whole;                  /* where ranks share tensors: a unit of all of them */
    float *band;                   /* where the file map asks for one */
    uint64_t unit_elems, scratch_elems, band_elems; /* multiples of ZINF_LAYOUT_ALIGN */
};
struct region source_region(const struct source *s);
int source_read(const struct source *s, const struct zinf_location *where, uint64_t offset,
                void *memory, uint64_t bytes);
int source_write(const struct source *s, const struct zinf_location *where, uint64_t offset,
                 const void *memory, uint64_t bytes);
/* Reads what this rank has of a unit's parameters or kept gradient; or of a sub-group's. */
int source_read_unit(const struct source *s, uint32_t unit, enum zinf_packable what, void *memory);
int source_read_group(const struct source *s, uint32_t group, enum zinf_packable what,
                      void *memory);
/* This rank's slice of parameters that it has whole. */
int source_read_slice(const struct source *s, uint32_t unit, void *memory);
/* The sub-group's parameters are not packed, or will not be after what is written next. */
void source_forget_packed(const struct source *s, uint32_t group);
/* Of a whole unit's bytes from `at` on those that live here: all, or what is of the rank's slice.
 */
int source_write_unit(const struct source *s, uint32_t unit, uint64_t at, const void *memory,
                      uint64_t bytes);

/* Of the whole unit's parameters, written there as they are, the sub-groups here, where they are to
 * be packed: of what is frozen, since updates pack what they change. */
int source_pack_unit(const struct source *s, uint32_t unit, const void *plain);

/* The image beside a unit's parameters on the drive, of all of them, in the parameters' type; over
 * the region's unit. Nothing where there is none. */
int source_write_image(const struct source *s, uint32_t unit, const void *params);

/* Whether any of it is. */
bool transfer_trains(const struct setup *setup, const struct zinf_file_tensor *tensor);
/* Whether its optimizer, or that of any of it, has the moment; a master, a gradient: it has. */
bool transfer_has(const struct setup *setup, const struct zinf_file_tensor *tensor, int part);
/* The type that a file of numbers of this type has of the tensor. */
enum zinf_dtype transfer_file_dtype(const struct zinf_file_tensor *tensor, enum zinf_dtype dtype);
/* Tensors in the order in which a file is written, whose larger numbers come first: of i below
 * 2 n_tensors, NULL where there is none. */
const struct zinf_file_tensor *transfer_ordered(const struct zinf_file_map *files, uint32_t i);
int transfer_declare(struct zinf_tensors_writer *writer, const struct zinf_file_tensor *tensor,
                     const char *prefix, enum zinf_dtype dtype);

/* What of a unit is streamed; from 0 on as in state_read. */
enum {
    PART_FACTORS = -4, /* all moments of a unit with factored ones */
    PART_KEPT = -3,    /* not of units, but of a matrix, beside moments */
    PART_GRAD = -2,
    PART_PARAM = -1, /* in its own number type, then fp32 */
    PART_MASTER = 0,
};

/* weights.c: -ENOENT, -EINVAL where tensors are missing or others than config.json asks for, with
 * the first few of each kind and how many there are. What is not used is a warning. */
int weights_check(const struct setup *s, const struct zinf_tensors *file);
/* Whether a tensor of a head is to begin with its initialisation, whatever the file has. */
bool transfer_is_fresh(const struct setup *s, const struct zinf_tensor *tensor, bool in_file);
/* transfer_load.c: the unit's tensors from the file (NULL: their initialisation) into the region's
 * unit, gaps zero, as are moments that a tensor's optimizer does not have. */
int transfer_gather(const struct source *s, const struct zinf_tensors *file, uint32_t unit,
                    int part);

/* transfer_quantized.c: the images of a unit to their places; sum becomes that of itself and them.
 */
int transfer_quantize(const struct source *s, uint32_t unit, const struct zinf_gather *gather,
                      const struct zinf_tensors *file, uint64_t *sum);
/* It packs as many rows at once, or a multiple: blocks begin anew with every 64 rows. */
#define TRANSFER_BAND_ROWS 64
/* Of a quantised weight of a file the name of one more of its tensors. */
const char *transfer_quantized_name(char buffer[200], const char *weight, const char *part);
/* The image of a weight that the file has quantised, in any form but MXFP4; path is the folder. */
int transfer_read_quantized(const struct zinf_quantized *as, const struct zinf_tensors *file,
                            const char *path, const char *weight, void *image);
/* weights.c: the weight that the folder has quantised and that this tensor of it, named without the
 * family's prefix, is or is a part of; or NULL. */
const struct zinf_file_tensor *transfer_quantized_of(const struct zinf_model *model,
                                                     const struct zinf_file_map *map,
                                                     const char *bare);

/* transfer_save.c: declares, begins, streams and finishes (writer NULL: gives another rank, which
 * does, what it shares): every tensor of the model under its name
 * in the file. What is not PART_PARAM leaves out tensors that are not trained, a moment those whose
 * optimizer has none; of those that are
 * trained in part, the rest is zero, or the parameter where it is PART_MASTER. Of a rank among
 * several, gradients and state are those of its slice, and zero elsewhere. */
int transfer_stream(const struct source *s, int part, enum zinf_dtype dtype,
                    struct zinf_tensors_writer *writer);

/* transfer_carried.c: tensors of the folder that are only carried along. open: NULL where there are
 * none, or the part is no folder's. carry: those of numbers of 4 bytes and more, or the others, are
 * declared or appended; from NULL: nothing is. */
int transfer_carried_open(const struct source *s, int part, struct zinf_tensors **out);
int transfer_carry(const struct source *s, const struct zinf_tensors *from, bool wide,
                   bool declares, struct zinf_tensors_writer *to);
/* Appends one as it is stored, by a block of memory of at least 8 bytes. */
int transfer_copy_tensor(const struct zinf_tensors *from, const struct zinf_tensor_info *info,
                         struct zinf_tensors_writer *to, void *block, uint64_t block_bytes);

/* transfer_magnitude.c: with source.norms: of the region's unit, whose plain weights it has; of the
 * region's image, which is that of the file's tensor of this name; and what was noted for a unit of
 * adapters, to the region's unit. */
int transfer_note_norms(const struct source *s, uint32_t unit);
int transfer_note_image(const struct source *s, uint32_t unit, const char *name);
void transfer_put_norms(const struct source *s, uint32_t unit);

/* collect.c: several ranks write files at once, each its own, of units that all have slices of.
 * Between begin and end a rank asks for arrays of units, as many as it likes, and in both gives the
 * others what they ask for; so end returns when all ranks have come to it: 0, or the first failure
 * of any, which ends the others' calls as well. Without other ranks none of these is needed, and
 * all may be called. */
struct collect {
    struct wanted *all; /* [world] */
    bool over;
};
int collect_begin(struct source *s, struct collect *c);
/* One array of a unit, as transfer_save reads it, into the region: parameters in their number
 * type. */
int collect_part(const struct source *s, uint32_t unit, int part);
/* Numbers that a rule keeps of a matrix, no more than a rank's slice of the largest unit has, from
 * the rank that owns it into the region's unit. */
int collect_kept(const struct source *s, const struct state_kept *kept);
int collect_end(struct source *s, int code);
/* Outside of begin and end: 0, or the first failure of any rank. */
int collect_agree(const struct source *s, int code);
bool collect_is_first(const struct source *s);
/* Whether this rank goes through the tensors of a file that the first one writes: it, and those
 * that share tensors with it. */
bool collect_streams(const struct source *s);

/* whole_unit.c: the unit of all ranks that share tensors, together, from that of this one. */
int whole_unit(const struct source *s, uint32_t unit, const float *own, float *whole);

/* transfer_factors.c: moment 1 or 2 of factored moments, which has its own shapes; and all of a
 * unit that lives here. */
int transfer_read_factors(const struct source *s, uint32_t unit, float *moments);
int transfer_stream_factors(const struct source *s, int which, struct zinf_tensors_writer *writer);
int transfer_load_factors(const struct source *s, int which, const struct zinf_tensors *file);

/* transfer_kept.c: what rules keep of matrices beside moments, the part behind all moments
 * (setup_kept_part), and its bytes. */
int transfer_stream_kept(const struct source *s, struct zinf_tensors_writer *writer);
int transfer_load_kept(const struct source *s, const struct zinf_tensors *file);
uint64_t transfer_kept_bytes(const struct setup *s);

/* transfer_save.c: what belongs beside the weights of a model or of an adapter. own: XXH3 of an
 * adapter's file of weights. */
int transfer_write_rest(const struct source *s, const char *folder, uint64_t own);

/* transfer_new.c: the document as folder/config.json, with the number type of the weights. */
int transfer_write_config(const cJSON *config, enum zinf_dtype dtype, const char *folder);

#endif
