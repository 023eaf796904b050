/*
 * input: reads a source byte by byte, for documents.c and table.c. A document with an end of its
 * own is collected whole; of plain text only a window is in memory.
 */
#ifndef ZINF_TEXT_INPUT_H
#define ZINF_TEXT_INPUT_H

#include "text/internal.h"

struct text_input {
    struct text_source *source;
    const char *path, *column; /* of the file; of the field with the text */
    uint64_t offset;           /* of the next bytes to read, in the decompressed text */
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
/* The next byte, which stays; TEXT_END_OF_FILE; or below that -errno. */
int text_input_peek(struct text_input *input);
void text_input_step(struct text_input *input);
/* Moves the next byte to the document. */
int text_input_keep(struct text_input *input);

/* table.c: reads .csv and .tsv, whose first line names the columns. */
int text_read_table(struct text_input *input, char separator);

#endif
