/* decoder_shards: how the files that cut a decoder's tensors add them. Inside src/model only. */
#ifndef ZINF_DECODER_SHARDS_H
#define ZINF_DECODER_SHARDS_H

#include "model/decoder_parts.h"

/* ---- decoder_shard_rows.c ---- */

/* Neighbours in a unit's list with the same place: one after the other they are one tensor, whose
 * rows are counted over all of them. */
struct shards_source {
    const struct decoder_tensor *first;
    size_t n;
};
uint64_t shards_rows(const struct shards_source *s);
/* Whether a unit that is not cut has the rows of all of them in the files' order. */
bool shards_keep_order(const struct shards_source *s);

/* Each returns the number of the tensor in its unit. One of a shard, or of a group that several
 * have; one that all ranks have, with its rows. */
int shards_add_tensor(struct zinf_graph *graph, uint32_t unit, const struct shards_source *s,
                      uint32_t shard, uint64_t rows);
int shards_add_whole(struct zinf_graph *graph, uint32_t unit, const struct decoder_tensors *tensors,
                     const struct shards_source *s);
/* Rows of the source to the unit's last tensor; they must not go from one of its tensors to the
 * next one. map.count 0: 1. */
void shards_add_rows(struct zinf_graph *graph, uint32_t unit, const struct shards_source *s,
                     const struct decoder_tensors *tensors, struct zinf_row_map map);

/* ---- decoder_mixer_shards.c ---- */

/* The entry of a recurrent mixer, or its convolution: of each shard what it
 * has by itself, whose first number is returned, and where several shards share a key head, the
 * rows of all keys, whose number goes to `at`. */
int shards_add_mixed(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                     const struct decoder_tensors *tensors, const struct shards_source *s,
                     int at[DECODER_PLACES]);

#endif
