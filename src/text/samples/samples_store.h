/*
 * samples_store: what the files of the store share. The samples of a data file are in a token
 * cache whose numbers are, in this order: the samples one by one (the source's ids, then the ids
 * with their marks in the upper bits), a place for each sample, and what became of the file's
 * rows. Inside this folder only.
 */
#ifndef ZINF_SAMPLES_STORE_H
#define ZINF_SAMPLES_STORE_H

#include "text/internal.h"
#include "text/samples/samples.h"

#include <pthread.h>

/* ---- samples_cache.c ---- */

/* A number in a cache has an id in the lower bits and marks above it. Ids end at TEXT_MAX_ID. */
#define SAMPLE_MARK_SHIFT 24
#define SAMPLE_ID_MASK 0xffffffu

/* What stays if a sample is cut. */
enum sample_keeps { SAMPLE_KEEPS_NOTHING, SAMPLE_KEEPS_LAST, SAMPLE_KEEPS_FRAME };

/* A whole sample in the cache. */
struct sample_place {
    uint32_t n_ids, n_source, n_counted;
    int32_t label;
    uint32_t keeps, source_keeps; /* enum sample_keeps */
    uint32_t row;                 /* number in the file, from 1; UINT32_MAX: larger than that */
};
struct sample_rows {
    uint64_t n_rows, n_bad, n_samples;
    char first_bad[256];
};

struct samples_cache {
    struct text_token_cache tokens;
    struct sample_rows rows;
    struct sample_place *places; /* [rows.n_samples] */
};
int samples_cache_open(struct samples_cache *cache, const char *path,
                       const struct zinf_samples_options *options);
void samples_cache_close(struct samples_cache *cache);

/* How many of n numbers are targets that count. The first one is no target. */
uint32_t samples_count(const int32_t *numbers, size_t n);

/* ---- samples_pack.c ---- */

/* Distributes samples to windows of `size` ids: best fit, the longest first; nothing else has an
 * influence. Sources, unless NULL, must fit into source_size as well. */
struct sample_packing {
    uint32_t *order;  /* [n] samples, window by window */
    uint64_t *firsts; /* [n_windows + 1] indices in order */
    uint64_t n_windows;
};
int samples_pack(struct sample_packing *out, const uint32_t *lengths, const uint32_t *sources,
                 uint64_t n, uint32_t size, uint32_t source_size);
void samples_packing_free(struct sample_packing *packing);

/* ---- samples_group.c ---- */

/* Orders a permutation of 0 .. n - 1 by length, as transformers' group_by_length does: pieces of
 * some steps of `batch` are sorted, the longest first, and the longest of all is moved to the
 * front. lengths: of the permuted things. room: [samples_group_piece] */
struct sample_length {
    uint64_t length;
    uint32_t row, place;
};
uint64_t samples_group_piece(uint64_t n, uint64_t batch);
void samples_group(uint32_t *order, uint64_t n, uint64_t batch, const uint64_t *lengths,
                   struct sample_length *room);

/* The order of an epoch's rows where they are grouped. A step may have the end of one epoch and the
 * beginning of the next. */
enum { SAMPLE_EPOCHS = 2 };
struct sample_grouping {
    uint64_t *lengths;             /* [n] */
    uint32_t *order;               /* [SAMPLE_EPOCHS][n] */
    uint64_t epoch[SAMPLE_EPOCHS]; /* number + 1 of the epoch with that order; 0: none */
    struct sample_length *room;
};

/* ---- the store ---- */

/* A sample that was not dropped. */
struct sample_entry {
    uint64_t first; /* of its first number in the cache */
    uint32_t file, place;
};
struct zinf_samples {
    struct zinf_samples_options options; /* its pointers are not used after opening */
    struct samples_cache *caches;        /* [n_caches] */
    int n_caches;
    struct sample_entry *entries; /* [facts.n_samples] */
    uint64_t capacity;
    struct zinf_samples_facts facts;
    uint32_t together;             /* windows of a row: 2 for pairs, else 1 */
    uint32_t stored;               /* samples that are kept of a row: 1 if rows rotate, else all */
    float *references;             /* [windows] in file order; NULL: none */
    struct sample_packing packing; /* n_windows 0: each sample is a window */
    pthread_mutex_t lock;          /* guards the fields below, which reading uses */
    struct sample_grouping grouping; /* order NULL: rows are not grouped */
    struct zinf_tokens numbers;      /* as they are in a cache */
    struct zinf_sample sample;       /* of the window that is being made */
    struct zinf_sample other;        /* where rows rotate: the sample whose answer it gets */
};

/* samples.c: the store's files, and a hash of what decides how samples become windows. */
uint32_t samples_n_files(const struct zinf_samples *samples);
const struct text_token_cache *samples_file(const struct zinf_samples *samples, uint32_t index);
uint64_t samples_order(const struct zinf_samples *samples);

/* What is left of n ids after a cut, and where it begins. */
struct sample_cut {
    uint32_t first, n;
    bool by_texts;    /* n ids are left of the whole sample, which is read for the cut */
    bool moves_last;  /* the last id replaces the last one that is left */
    uint32_t n_front; /* so many first ids replace the first ones that are left */
};
struct sample_cut samples_cut(const struct zinf_samples *samples, uint32_t n, uint32_t keeps);
/* Reads n numbers of a cache from `first` on, cut, to samples->numbers. */
int samples_read_cut(struct zinf_samples *samples, const struct text_token_cache *cache,
                     uint64_t first, uint32_t n, struct sample_cut cut);
/* As zinf_samples_read; the caller holds the lock. */
int samples_read(struct zinf_samples *samples, uint64_t index, struct zinf_sample *out);
/* Makes the prompt of one sample with the answer of another. */
int samples_read_rotated(struct zinf_samples *samples, uint64_t prompt, uint64_t answer,
                         struct zinf_sample *out);
struct sample_cut samples_cut_source(const struct zinf_samples *samples, uint32_t n,
                                     uint32_t keeps);

/* Number of positions of the sample in its window, and of its source. */
struct zinf_window_rows samples_rows(const struct zinf_samples *samples, uint64_t index);
/* samples_group.c: groups rows of `together` samples from now on; samples_grouped_row gives the row
 * at a position of the training. The caller holds the lock. */
int samples_begin_groups(struct zinf_samples *samples);
void samples_end_groups(struct zinf_samples *samples);
uint64_t samples_grouped_row(struct zinf_samples *samples, uint64_t position);

#endif
