/*
 * merge: one module of an adapter beside the base's tensor that it changes. Inside merge*.c only.
 */
#ifndef ZINF_TRAIN_MERGE_H
#define ZINF_TRAIN_MERGE_H

#include "train/checkpoints.h"
#include "train/save/transfer.h"

struct merging {
    const struct zinf_merge_options *options;
    const char *folder; /* of the adapter */
    char *base;
    struct zinf_model *model;    /* the base's, adapted */
    struct zinf_file_map *files; /* of the model */
    struct zinf_tensors *weights, *adapter;
    struct zinf_tensors_writer *to;
    struct zinf_device *device;
    struct zinf_queue *queue;
    void *workspace;
    float *block, *a, *b;
    float *gain; /* of one module's rows; NULL: none */
    /* B of all experts of a layer, as the adapter's file has it: the last two that were needed. */
    struct {
        const struct zinf_tensor_info *info;
        float *values;
    } stacks[2];
    const struct zinf_tensor_info *slabs; /* the tensor whose slab is at hand; NULL: none is */
    uint64_t slab_at;                     /* elements in front of that */
    void *packed;
    uint64_t block_elems;
    uint32_t n_merged, n_copied;
    struct zinf_quantized as; /* of the tensor at hand, where the base has it quantised and the */
    void *image;              /* model not; NULL: the file has its numbers */
    cJSON *opened;            /* names of the modules of all such */
};

/* What becomes of a tensor of the base's file. */
enum merge_fate {
    MERGE_NUMBERS, /* it is read as numbers and written so */
    MERGE_KEPT,    /* as it is: it belongs to a quantised weight that nothing changes */
    MERGE_OPENED,  /* it is a quantised weight, whose numbers are written */
    MERGE_DROPPED, /* it belongs to such a one */
    MERGE_REFUSED,
};
/* plain: the tensor as it is written, but for its number type; its name is the model's. */
enum merge_fate merge_fate_of(const struct merging *m, const struct zinf_tensor_info *info,
                              struct zinf_tensor_info *plain);
/* Between these merge_read_base reads the weight, and not the file. */
int merge_open_weight(struct merging *m, const struct zinf_tensor_info *plain);
void merge_close_weight(struct merging *m);
/* Elements [at, at + n) of the base's tensor, whole rows of what is quantised, into the block. */
int merge_read_base(const struct merging *m, const struct zinf_tensor_info *info, uint64_t at,
                    uint64_t n);
/* The base's config.json for what was written: modules that were opened are among those that are
 * not quantised; where all were, it says nothing of quantisation. The caller frees. */
cJSON *merge_config(const struct merging *m);

/* An adapter's folder from what names it: itself, a checkpoint, whose checksums are compared, or an
 * output folder with checkpoints. Caller frees, after a failure too. */
int merge_find_folder(const char *named, char **folder);

/* The folder of an adapter's base, on the heap: as named, or as its config says where that is NULL.
 */
int merge_find_base(const char *folder, const cJSON *config, const char *named, char **base);

/* The piece of the base's weight that the module is of. */
const struct zinf_piece *merge_piece_of(const struct zinf_graph *g, const struct zinf_adapted *of);
/* The module whose weight a tensor of the base's file is, or a slab of it or rows of that; or NULL.
 */
const struct zinf_adapted *merge_find_adapted(const struct merging *m, const char *name,
                                              uint64_t slab);
/* How often that finds one, over all tensors of the base and their slabs. */
uint32_t merge_count_adapted(const struct zinf_graph *g);
/* The adapter's copy of a tensor of the base's file, which takes its place, or NULL. */
const struct zinf_tensor_info *merge_find_copy(const struct merging *m, const char *name);
/* A, B and, with blocks of step elements of the base's tensor, gains of rows that have magnitudes,
 * into merging. Of a slab info has the two dimensions. */
int merge_read_module(struct merging *m, const struct zinf_adapted *of,
                      const struct zinf_tensor_info *info, uint64_t step);
void merge_free_module(struct merging *m);
/* Elements [at, at + n), which are whole rows of the file's tensor, of W + scale B A, scaled, into
 * the block. */
int merge_read_block(const struct merging *m, const struct zinf_adapted *of,
                     const struct zinf_tensor_info *info, uint64_t at, uint64_t n);

#endif
