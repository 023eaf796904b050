/*
 * input: a source read by the byte, for the readers of documents.c and table.c. A document is
 * gathered byte by byte where it has an end of its own; of a text only a window is in memory.
 */
#ifndef ZINF_TEXT_INPUT_H
#define ZINF_TEXT_INPUT_H

#include "text/internal.h"

struct text_input {
    struct text_source *source;
    const char *path, *column; /* of the file; of the field that is the text */
    uint64_t offset;           /* in the unpacked bytes, of what is read next */
    char *buffer;
    size_t at, end, capacity;
    long line; /* of buffer[at] */
    char *document;
    size_t document_bytes, document_capacity;
    struct text_sink *sink;
};

#define TEXT_END_OF_FILE (-1)
/* Fills buffer[end, capacity) as far as the file goes. */
int text_input_fill(struct text_input *input);
/* The next byte, left in place; TEXT_END_OF_FILE; below that -errno. */
int text_input_peek(struct text_input *input);
void text_input_step(struct text_input *input);
/* Moves the byte at hand to the document. */
int text_input_keep(struct text_input *input);

/* table.c: .csv and .tsv, whose first line names the columns. */
int text_read_table(struct text_input *input, char separator);

#endif
