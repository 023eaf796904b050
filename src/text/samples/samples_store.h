/*
 * samples_store: what the files of the store share. The samples of one data file lie in a token
 * cache, whose numbers are, in this order, the samples one by one (the source's ids, then the ids
 * with their marks above them), a place for each sample, and what became of the file's rows. Inside
 * this folder only.
 */
#ifndef ZINF_SAMPLES_STORE_H
#define ZINF_SAMPLES_STORE_H

#include "text/internal.h"
#include "text/samples/samples.h"

#include <pthread.h>

/* ---- samples_cache.c ---- */

/* A number of a cache: an id, and above it the marks. Ids end at TEXT_MAX_ID. */
#define SAMPLE_MARK_SHIFT 24
#define SAMPLE_ID_MASK 0xffffffu

/* What a cut leaves in place. */
enum sample_keeps { SAMPLE_KEEPS_NOTHING, SAMPLE_KEEPS_LAST, SAMPLE_KEEPS_FRAME };

/* Of a sample as it is kept, whole. */
struct sample_place {
    uint32_t n_ids, n_source, n_counted;
    int32_t label;
    uint32_t keeps, source_keeps; /* enum sample_keeps */
    uint32_t row;                 /* of the file, from 1; UINT32_MAX: beyond it */
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

/* Numbers among n that are targets which count; the first is nobody's target. */
uint32_t samples_count(const int32_t *numbers, size_t n);

/* ---- samples_pack.c ---- */

/* Samples into windows of size ids, best fit, the longest first, which
 * depends on nothing else. Sources, unless NULL, have
 * to fit into source_size too. */
struct sample_packing {
    uint32_t *order;  /* [n]: samples, window by window */
    uint64_t *firsts; /* [n_windows + 1] into order */
    uint64_t n_windows;
};
int samples_pack(struct sample_packing *out, const uint32_t *lengths, const uint32_t *sources,
                 uint64_t n, uint32_t size, uint32_t source_size);
void samples_packing_free(struct sample_packing *packing);

/* ---- samples_group.c ---- */

/* A permutation of 0 .. n - 1 becomes one by length, as transformers' group_by_length makes it:
 * pieces of it, of as many steps of `batch` as make sense, are sorted each, the longest first, and
 * the longest of all comes first of all. lengths: by what is permuted. room: [samples_group_piece]
 */
struct sample_length {
    uint64_t length;
    uint32_t row, place;
};
uint64_t samples_group_piece(uint64_t n, uint64_t batch);
void samples_group(uint32_t *order, uint64_t n, uint64_t batch, const uint64_t *lengths,
                   struct sample_length *room);

/* The order of an epoch's rows where they are grouped; a step may see the end of one epoch and the
 * beginning of the next. */
enum { SAMPLE_EPOCHS = 2 };
struct sample_grouping {
    uint64_t *lengths;             /* [n] */
    uint32_t *order;               /* [SAMPLE_EPOCHS][n] */
    uint64_t epoch[SAMPLE_EPOCHS]; /* whose order that is, + 1; 0: nobody's */
    struct sample_length *room;
};

/* ---- the store ---- */

/* A sample that was not dropped. */
struct sample_entry {
    uint64_t first; /* of its numbers in the cache */
    uint32_t file, place;
};
struct zinf_samples {
    struct zinf_samples_options options; /* its pointers are not used after opening */
    struct samples_cache *caches;        /* [n_caches] */
    int n_caches;
    struct sample_entry *entries; /* [facts.n_samples] */
    uint64_t capacity;
    struct zinf_samples_facts facts;
    uint32_t together;               /* windows of a row: 2 of pairs, else 1 */
    uint32_t stored;                 /* samples of a row: 1 where rows rotate, else as many */
    float *references;               /* [windows], in the files' order; NULL: there are none */
    struct sample_packing packing;   /* n_windows 0: a sample is a window */
    pthread_mutex_t lock;            /* guards what is below, which reading uses */
    struct sample_grouping grouping; /* order NULL: rows are not grouped */
    struct zinf_tokens numbers;      /* as they lie in a cache */
    struct zinf_sample sample;       /* of the window at hand */
    struct zinf_sample other;        /* where rows rotate: whose answer it has */
};

/* samples.c: its files, and what decides how their samples become windows. */
uint32_t samples_n_files(const struct zinf_samples *samples);
const struct text_token_cache *samples_file(const struct zinf_samples *samples, uint32_t index);
uint64_t samples_order(const struct zinf_samples *samples);

/* What a cut leaves of n ids of which the last may have to stay, and where it begins. */
struct sample_cut {
    uint32_t first, n;
    bool by_texts;    /* n are left of the whole, which is read for that */
    bool moves_last;  /* the last id takes the place of the last that is left */
    uint32_t n_front; /* so many of the first ids take the places of the first that are left */
};
struct sample_cut samples_cut(const struct zinf_samples *samples, uint32_t n, uint32_t keeps);
/* n numbers of a cache from first on, as the cut leaves them, to samples->numbers. */
int samples_read_cut(struct zinf_samples *samples, const struct text_token_cache *cache,
                     uint64_t first, uint32_t n, struct sample_cut cut);
/* As zinf_samples_read, under the lock. */
int samples_read(struct zinf_samples *samples, uint64_t index, struct zinf_sample *out);
/* The prompt of one sample with the answer of another. */
int samples_read_rotated(struct zinf_samples *samples, uint64_t prompt, uint64_t answer,
                         struct zinf_sample *out);
struct sample_cut samples_cut_source(const struct zinf_samples *samples, uint32_t n,
                                     uint32_t keeps);

/* Rows that are positions of sample index in its window, and of its source. */
struct zinf_window_rows samples_rows(const struct zinf_samples *samples, uint64_t index);
/* samples_group.c: rows (of `together` samples) are grouped from now on. The number of the row at a
 * place among all epochs', under the lock. */
int samples_begin_groups(struct zinf_samples *samples);
void samples_end_groups(struct zinf_samples *samples);
uint64_t samples_grouped_row(struct zinf_samples *samples, uint64_t position);

#endif
