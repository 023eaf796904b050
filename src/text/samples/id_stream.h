/* id_stream: files of text or tokens as one stream of ids. Inside this folder only. */
#ifndef ZINF_TEXT_SAMPLES_ID_STREAM_H
#define ZINF_TEXT_SAMPLES_ID_STREAM_H

#include "text/internal.h"

/* Empty if all fields are 0. Several threads may read at once. */
struct text_ids {
    struct segment *segments;
    size_t n_segments;
    uint64_t n_tokens;
    uint32_t vocab;    /* all ids are below it */
    int32_t separator; /* id between files of documents; 0: none */
};

/* Opens the files of the options with their tokenizer and vocabulary. After an error there is
 * nothing to close. */
int text_ids_open(struct text_ids *ids, const struct zinf_dataset_options *options);

/* Makes a stream of a copy of n ids; name is for messages. After an error there is nothing to
 * close. */
int text_ids_of_memory(struct text_ids *ids, const char *name, uint32_t vocab, const int32_t *from,
                       uint64_t n);
void text_ids_close(struct text_ids *ids); /* an empty stream is allowed, NULL is not */

/* Reads ids [first, first + n). -EINVAL: they are not all in the stream; -ERANGE: an id is not in
 * the vocabulary. */
int text_ids_read(const struct text_ids *ids, uint64_t first, uint64_t n, int32_t *out);

uint32_t text_ids_n_files(const struct text_ids *ids);
int text_ids_file(const struct text_ids *ids, uint32_t index, struct zinf_data_file *out);

#endif
