/*
 * decoder_units: a decoder's units: tiles of its vocabulary matrices, and lists of tensors with the
 * pieces that are tensors of the file.
 */
#ifndef ZINF_DECODER_UNITS_H
#define ZINF_DECODER_UNITS_H

#include "model/decoder.h"

/* Of a tile of the vocabulary: about a block's size, so that a slot that holds a block holds a
 * tile; even tiles. By the model alone, so that results do not depend on any budget. */
int64_t decoder_choose_tile_rows(const struct decoder *d);
/* At least so many rows a tile, so that the last one has rows for each shard. */
int64_t decoder_even_rows(const struct decoder *d, int64_t rows);
/* A tensor that is rows [first, first + rows) of `all` of one of the file. */
void decoder_add_rows(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                      const char *name, struct zinf_row_map rows, int64_t all);
/* So many rows of a matrix of the vocabulary, from row `first` of it on, to a unit: a tensor, or
 * one of each shard. */
void decoder_add_tile(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                      const char *name, int64_t first, int64_t rows);
/* The vocabulary matrix as units, one a tile; the first one's number. */
uint32_t decoder_add_tiles(struct zinf_graph *graph, const struct decoder *d, const char *unit_name,
                           const char *name);

/* Tensors of a unit, whose names in the file begin with prefix. */
struct decoder_tensors {
    const char *prefix;
    const struct decoder_tensor *list;
    size_t n;
    uint64_t n_slabs, slab; /* as in zinf_piece */
};
/* A piece of the unit's last tensor: these rows of the file's tensor t. */
void decoder_add_piece(struct zinf_graph *graph, uint32_t unit, const struct decoder_tensor *t,
                       const struct decoder_tensors *tensors, struct zinf_row_map rows);
/* Vectors to which Hugging Face's Trainer applies weight decay: by their names it knows no norm or
 * bias in them. */
bool decoder_decays(enum decoder_place place);
/* Whether a unit has the rows of such a tensor in the file's order. */
bool decoder_keeps_order(enum decoder_order order);
/* at[place] becomes the tensor's number, -1 where there is none. */
void decoder_add_tensors(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                         const struct decoder_tensors *tensors, int at[DECODER_PLACES]);

#endif
