/* input: bytes of a source one at a time, and the document that is gathered of them. */
#include "text/samples/input.h"

#include <stdlib.h>

#define MAX_DOCUMENT_BYTES                                                                         \
    ((size_t)64 << 20) /* some copies of it are made on the way to tokens                          \
                        */

/* What the source has now, *n of it; 0 at its end. */
static int read_on(struct text_input *input, size_t *n)
{
    *n = 0;
    int code = text_source_read(input->source, input->buffer + input->end,
                                input->capacity - input->end, n);
    input->end += code ? 0 : *n;
    input->offset += code ? 0 : *n;
    return code;
}

int text_input_fill(struct text_input *input)
{
    size_t n = 1;
    int code = 0;
    while (!code && n && input->end < input->capacity)
        code = read_on(input, &n);
    return code;
}

int text_input_peek(struct text_input *input)
{
    if (input->at == input->end) {
        size_t n;
        input->at = input->end = 0;
        int code = read_on(input, &n);
        if (code)
            return code == TEXT_END_OF_FILE ? -EIO : code;
        if (!input->end)
            return TEXT_END_OF_FILE;
    }
    return (uint8_t)input->buffer[input->at];
}

void text_input_step(struct text_input *input)
{
    input->line += input->buffer[input->at++] == '\n';
}

int text_input_keep(struct text_input *input)
{
    if (input->document_bytes == input->document_capacity) {
        size_t capacity = input->document_capacity ? 2 * input->document_capacity : 4096;
        if (capacity > MAX_DOCUMENT_BYTES)
            return zinf_fail(-EFBIG,
                             "%s: line %ld: a row of more than %zu MiB: cut its text into several "
                             "rows",
                             input->path, input->line, MAX_DOCUMENT_BYTES >> 20);
        char *grown = realloc(input->document, capacity + 1);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a document of %zu bytes in %s", capacity,
                             input->path);
        grown[capacity] = 0; /* no search for a string's end leaves it */
        input->document = grown;
        input->document_capacity = capacity;
    }
    input->document[input->document_bytes++] = input->buffer[input->at];
    text_input_step(input);
    return 0;
}
