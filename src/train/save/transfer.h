/*
 * transfer: moves weights and optimizer state between files and tiers, for the files of this folder
 * that load, save and checkpoint. A file has the tensor names, shapes and row order of the model's
 * family; a tier has one flat buffer for each unit; model/tensors.h converts between them. All
 * functions work in one fixed region of the host arena, one unit at a time, so that memory does not
 * grow with the model.
 */
#ifndef ZINF_TRAIN_TRANSFER_H
#define ZINF_TRAIN_TRANSFER_H

#include "formats/formats.h"
#include "train/trainer.h"

/* The parts of the region. unit: a unit in fp32; scratch: room for a part of one. */
struct region {
    float *unit, *scratch;
    char *packed, *image; /* a unit in the parameters' number type if that is not fp32; if weights
                             are quantised, the image of one matrix */
    char *slot, *unpacked, *param; /* for a sub-group that drives hold packed: its packed slot, its
                                      state unpacked, its parameters */
    char *given;                   /* if there are other ranks: a slice for each */
    float *whole;                  /* with tensor parallelism: a unit of all shards */
    float *band; /* rows of a file's tensor that are transposed, if the file map needs it */
    uint64_t unit_elems, scratch_elems, band_elems; /* multiples of ZINF_LAYOUT_ALIGN */
};
struct region source_region(const struct source *s);
int source_read(const struct source *s, const struct zinf_location *where, uint64_t offset,
                void *memory, uint64_t bytes);
int source_write(const struct source *s, const struct zinf_location *where, uint64_t offset,
                 const void *memory, uint64_t bytes);
/* Read what this rank has of a unit's, or of a sub-group's, parameters or kept gradient, and unpack
 * it. */
int source_read_unit(const struct source *s, uint32_t unit, enum zinf_packable what, void *memory);
int source_read_group(const struct source *s, uint32_t group, enum zinf_packable what,
                      void *memory);
/* Reads this rank's slice of a unit whose parameters it has whole. */
int source_read_slice(const struct source *s, uint32_t unit, void *memory);
/* Notes that the sub-group's parameters are stored unpacked. Call before writing them so. */
void source_forget_packed(const struct source *s, uint32_t group);
/* Writes a range of a whole unit's parameters, which begins at byte `at`: all of it, or the part
 * that lies in this rank's slice. */
int source_write_unit(const struct source *s, uint32_t unit, uint64_t at, const void *memory,
                      uint64_t bytes);

/* Packs the sub-groups that this rank has of a frozen unit whose parameters were written unpacked.
 * plain: the whole unit. Does nothing if the unit is not to be packed. Trained units need no call:
 * their updates pack what they write. */
int source_pack_unit(const struct source *s, uint32_t unit, const void *plain);

/* Writes the image beside a unit's parameters on the drive, by way of the region's unit, which it
 * overwrites. params: the whole unit in the parameters' type. Does nothing where there is no image.
 */
int source_write_image(const struct source *s, uint32_t unit, const void *params);

/* Whether any part of the file's tensor is trained. */
bool transfer_trains(const struct setup *setup, const struct zinf_file_tensor *tensor);
/* Whether a checkpoint's part holds the tensor: a moment only if the optimizer of any of its parts
 * has it; parameters and master weights always. */
bool transfer_has(const struct setup *setup, const struct zinf_file_tensor *tensor, int part);
/* The number type in which a file of that type stores the tensor: fp32 for those that must stay
 * exact. */
enum zinf_dtype transfer_file_dtype(const struct zinf_file_tensor *tensor, enum zinf_dtype dtype);
/* The i-th tensor in the order in which a file is written, i < 2 n_tensors: first tensors that are
 * always fp32, so that every tensor is aligned to its type, then all others. NULL: there is none at
 * i. */
const struct zinf_file_tensor *transfer_ordered(const struct zinf_file_map *files, uint32_t i);
int transfer_declare(struct zinf_tensors_writer *writer, const struct zinf_file_tensor *tensor,
                     const char *prefix, enum zinf_dtype dtype);

/* Which part of a unit a file holds. Values from 0 on are those of state_read: master weights and
 * moments. */
enum {
    PART_FACTORS = -4, /* all moments of a unit whose moments are factored */
    PART_KEPT = -3,    /* what an optimizer keeps of one matrix beside moments */
    PART_GRAD = -2,
    PART_PARAM = -1, /* parameters, in their own number type or in fp32 */
    PART_MASTER = 0,
};

/* weights.c: compares a folder's tensors with those that config.json asks for. -ENOENT, -EINVAL:
 * some are missing or have other shapes; the message names the first few of each kind and how many
 * there are. Tensors that are not used are a warning. */
int weights_check(const struct setup *s, const struct zinf_tensors *file);
/* Whether a tensor of the model's head begins with its initialisation: the file does not have it,
 * or the number of classes has changed. */
bool transfer_is_fresh(const struct setup *s, const struct zinf_tensor *tensor, bool in_file);
/* transfer_load.c: fills the region's unit with the unit's tensors from a file; file NULL: with
 * their initialisation. Gaps between tensors become zero, and so do moments that a tensor's
 * optimizer does not have. */
int transfer_gather(const struct source *s, const struct zinf_tensors *file, uint32_t unit,
                    int part);

/* transfer_quantized.c: writes the quantised images of a unit's weights to their places. *sum: a
 * running checksum, to which theirs are added. */
int transfer_quantize(const struct source *s, uint32_t unit, const struct zinf_gather *gather,
                      const struct zinf_tensors *file, uint64_t *sum);
/* Rows are quantised in bands of this many, or of a multiple: no block of numbers with one scale
 * spans a multiple of 64 rows. */
#define TRANSFER_BAND_ROWS 64
/* The name of another tensor of a file's quantised weight, its scales for instance, written to
 * buffer. */
const char *transfer_quantized_name(char buffer[200], const char *weight, const char *part);
/* Reads a weight that the file holds quantised, in any form but MXFP4, and stores its image. path:
 * the folder, for messages. */
int transfer_read_quantized(const struct zinf_quantized *as, const struct zinf_tensors *file,
                            const char *path, const char *weight, void *image);
/* weights.c: the quantised weight that a tensor of the folder belongs to, or NULL. bare: the
 * tensor's name without the family's prefix. */
const struct zinf_file_tensor *transfer_quantized_of(const struct zinf_model *model,
                                                     const struct zinf_file_map *map,
                                                     const char *bare);

/* transfer_save.c: writes one file with a part of every tensor of the model, under its name in the
 * file. writer NULL: this rank writes no file, and only sends what it has to the rank that does.
 * Parts other than PART_PARAM leave out tensors that are not trained, and moments those whose
 * optimizer has none. If only some rows of a tensor are trained, the others are zero; in
 * PART_MASTER they are the parameters. A rank that writes alone among several has gradients and
 * state of its slice, and zeros elsewhere. */
int transfer_stream(const struct source *s, int part, enum zinf_dtype dtype,
                    struct zinf_tensors_writer *writer);

/* transfer_carried.c: tensors of the model folder that are no part of the trained model and are
 * copied as they are. open: *out is NULL if there are none, or if part is not PART_PARAM. carry:
 * declares them in the writer, or appends their bytes; wide: those of numbers of 4 bytes and more,
 * else the others. from NULL: does nothing. */
int transfer_carried_open(const struct source *s, int part, struct zinf_tensors **out);
int transfer_carry(const struct source *s, const struct zinf_tensors *from, bool wide,
                   bool declares, struct zinf_tensors_writer *to);
/* Appends one tensor as it is stored, through a block of memory of at least 8 bytes. */
int transfer_copy_tensor(const struct zinf_tensors *from, const struct zinf_tensor_info *info,
                         struct zinf_tensors_writer *to, void *block, uint64_t block_bytes);

/* transfer_magnitude.c: the norms with which new DoRA magnitudes begin; only with source.norms.
 * note_norms takes the rows of the region's unit, note_image those of the region's image of the
 * file's tensor `name`. put_norms writes what was noted into the region's unit, which is one of
 * adapters. */
int transfer_note_norms(const struct source *s, uint32_t unit);
int transfer_note_image(const struct source *s, uint32_t unit, const char *name);
void transfer_put_norms(const struct source *s, uint32_t unit);

/* collect.c: several ranks write one file each at the same time, of units of which every rank has a
 * slice. Between begin and end a rank calls collect_part for as many arrays as it needs; meanwhile,
 * and in collect_end, it sends the others what they need. collect_end returns when all ranks have
 * called it: 0, or the first failure of any rank, which ends the others' calls as well. Without
 * other ranks the calls are allowed and do nothing. */
struct collect {
    struct wanted *all; /* [world] */
    bool over;
};
int collect_begin(struct source *s, struct collect *c);
/* Reads one whole array of a unit, with the slices of all ranks, into the region; parameters in
 * their number type. */
int collect_part(const struct source *s, uint32_t unit, int part);
/* Reads what an optimizer keeps of a matrix, from the rank that owns the matrix into the region's
 * unit: at most as many numbers as a rank's slice of the largest unit has. */
int collect_kept(const struct source *s, const struct state_kept *kept);
int collect_end(struct source *s, int code);
/* 0, or the first failure of any rank, on all ranks. Not between begin and end. */
int collect_agree(const struct source *s, int code);
bool collect_is_first(const struct source *s);
/* Whether this rank goes through the tensors of a file that rank 0 writes: rank 0 does, and so do
 * those that hold other shards of its tensors. */
bool collect_streams(const struct source *s);

/* whole_unit.c: with tensor parallelism, puts a whole unit together from the shards of all ranks.
 * own: this rank's shard; whole: receives all of it. */
int whole_unit(const struct source *s, uint32_t unit, const float *own, float *whole);

/* transfer_factors.c: factored moments, whose shapes are their own. which: moment 1 or 2 of a file.
 * transfer_read_factors reads all of a unit of this rank. */
int transfer_read_factors(const struct source *s, uint32_t unit, float *moments);
int transfer_stream_factors(const struct source *s, int which, struct zinf_tensors_writer *writer);
int transfer_load_factors(const struct source *s, int which, const struct zinf_tensors *file);

/* transfer_kept.c: what optimizers keep of matrices beside moments: the checkpoint part
 * setup_kept_part. transfer_kept_bytes: its size. */
int transfer_stream_kept(const struct source *s, struct zinf_tensors_writer *writer);
int transfer_load_kept(const struct source *s, const struct zinf_tensors *file);
uint64_t transfer_kept_bytes(const struct setup *s);

/* transfer_save.c: writes what belongs beside the weights of a model or an adapter: configuration,
 * tokenizer, licence. own: XXH3 of an adapter's file of weights. */
int transfer_write_rest(const struct source *s, const char *folder, uint64_t own);

/* transfer_new.c: writes config as folder/config.json, with the number type of the weights. */
int transfer_write_config(const cJSON *config, enum zinf_dtype dtype, const char *folder);

#endif
