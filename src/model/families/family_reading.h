/* family_reading: what the files share that make a decoder of a description and config.json:
 * family_described.c, family_layers.c, family_tensors.c. */
#ifndef ZINF_FAMILY_READING_H
#define ZINF_FAMILY_READING_H

#include "model/families/family_described.h"

enum { NAME_BYTES = 64, NAMES = 224 };
/* Kinds of blocks, by bits. */
enum { UNWINDOWED = 1, TAKES_KEYS = 2, BLOCK_KINDS = 4 };

/* What a decoder borrows until its graph is made. */
struct reading {
    struct decoder d;
    /* Of blocks with attention, with a mixer, of the feed-forward part alone, and of the kinds of
     * blocks where there are such. */
    struct family_list list, mixed, alone, lists[BLOCK_KINDS];
    struct decoder_kind block_kinds[BLOCK_KINDS];
    struct attention_spec other; /* numbers of layers without a window */
    bool takes;                  /* what is listed takes keys and values of another layer */
    const struct described *of;
    bool qkv_bias, proj_bias, mlp_bias, head_norms, interleaved;
    struct rope_spec windowed_rope;
    char names[NAMES][NAME_BYTES]; /* of tensors */
    int n_names;
};

/* family_layers.c: which layers have a window and which rotate, and how. Windows come first. */
int reading_windows(struct zinf_graph *graph, const struct zinf_model_source *source,
                    struct reading *r);
int reading_rotation(struct zinf_graph *graph, const struct zinf_model_source *source,
                     struct reading *r);

/* family_tensors.c: the tensors of blocks, into the decoder, once all numbers are known. */
int reading_tensors(struct zinf_graph *graph, const struct zinf_model_source *source,
                    struct reading *r);

#endif
