/* sample: a sample in the making. */
#include "text/samples/samples.h"

#include <stdlib.h>

/* Room for the marks of ids that were just appended; the arrays grow together. */
static int mark_from(struct zinf_sample *sample, size_t first, size_t room_before, unsigned marks)
{
    if (!sample->marks || sample->ids.capacity != room_before) {
        uint8_t *grown = realloc(sample->marks, sample->ids.capacity + 1);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a sample of %zu tokens", sample->ids.count);
        sample->marks = grown;
    }
    memset(sample->marks + first, (int)marks, sample->ids.count - first);
    return 0;
}

int zinf_sample_add_ids(struct zinf_sample *sample, const int32_t *ids, size_t n, unsigned marks)
{
    struct zinf_tokens *tokens = &sample->ids;
    size_t first = tokens->count, room = tokens->capacity;
    if (n > tokens->capacity - first) {
        size_t capacity = 2 * tokens->capacity + n;
        int32_t *grown = realloc(tokens->ids, capacity * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a sample of %zu tokens", first + n);
        tokens->ids = grown;
        tokens->capacity = capacity;
    }
    if (n)
        memcpy(tokens->ids + first, ids, n * sizeof *ids);
    tokens->count += n;
    return mark_from(sample, first, room, marks);
}

int zinf_sample_add_text(struct zinf_sample *sample, const struct zinf_tokenizer *tokenizer,
                         const char *text, size_t bytes, unsigned marks)
{
    size_t first = sample->ids.count, room = sample->ids.capacity;
    int code = zinf_tokenizer_encode(tokenizer, text, bytes, &sample->ids);
    return code ? code : mark_from(sample, first, room, marks);
}

void zinf_sample_clear(struct zinf_sample *sample)
{
    sample->ids.count = sample->source.count = 0;
    sample->source_head = sample->source_tail = 0;
    sample->label = -1;
    sample->keeps_last = sample->source_keeps_last = sample->keeps_frame = sample->cut = false;
}

void zinf_sample_free(struct zinf_sample *sample)
{
    zinf_tokens_free(&sample->ids);
    zinf_tokens_free(&sample->source);
    free(sample->marks);
    *sample = (struct zinf_sample)ZINF_SAMPLE_EMPTY;
}
