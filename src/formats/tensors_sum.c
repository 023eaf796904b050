/*
 * tensors_sum: sums of all bytes of a model's tensors, made while they are read. A tensor that is
 * read from its first element to its last, in any cuts, is summed on the way; one that is not is
 * read once more when its sum is asked for. A tensor's sum begins with its name, type and shape and
 * a file's is that of its tensors, so that neither order, nor places in a file, nor how tensors are
 * dealt to files counts.
 */
#include "formats/tensors_reader.h"

#include <stdlib.h>
#include <xxhash.h>

struct tensors_sum {
    XXH3_state_t *state; /* NULL: nothing of it was read, or it is done */
    uint64_t next, sum;  /* elements that the state has; once all are there, their sum */
    bool done;
};

static uint64_t layout_of(const struct zinf_tensor_info *info)
{
    const uint64_t numbers[] = {(uint64_t)info->dtype, (uint64_t)info->rank, info->n_elems};
    uint64_t sum = XXH3_64bits(info->name, strlen(info->name));
    sum = XXH3_64bits_withSeed(numbers, sizeof numbers, sum);
    return XXH3_64bits_withSeed(info->shape, (size_t)info->rank * sizeof *info->shape, sum);
}

uint64_t zinf_tensors_layout(const struct zinf_tensors *tensors)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < tensors->count; i++)
        sum += layout_of(&tensors->list[i]);
    return sum;
}

int zinf_tensors_sum_begin(struct zinf_tensors *tensors)
{
    if (!tensors->sums)
        tensors->sums = calloc(tensors->count + 1, sizeof *tensors->sums);
    return tensors->sums ? 0 : zinf_fail(-ENOMEM, "no memory for sums of tensors");
}

static void begin(struct tensors_sum *s, const struct zinf_tensor_info *info)
{
    if (!s->state)
        s->state = XXH3_createState();
    if (s->state)
        XXH3_64bits_reset_withSeed(s->state, layout_of(info));
    s->next = 0;
}

void tensors_sum_note(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                      uint64_t first, uint64_t n, const void *data)
{
    struct tensors_sum *s = &tensors->sums[info - tensors->list];
    if (s->done || first > s->next)
        return;
    if (!first && (!s->state || s->next))
        begin(s, info);
    if (!s->state || first != s->next) /* it was read before, or no memory: read again at the end */
        return;
    XXH3_64bits_update(s->state, data, n * zinf_file_dtype_bytes(info->dtype));
    s->next += n;
    if (s->next < info->n_elems)
        return;
    s->sum = XXH3_64bits_digest(s->state);
    s->done = true;
    XXH3_freeState(s->state);
    s->state = NULL;
}

bool tensors_sum_of(const struct zinf_tensors *tensors, uint64_t index, uint64_t *sum)
{
    *sum = tensors->sums[index].sum;
    return tensors->sums[index].done;
}

void tensors_sum_free(struct zinf_tensors *tensors)
{
    for (uint64_t i = 0; tensors->sums && i < tensors->count; i++)
        XXH3_freeState(tensors->sums[i].state);
    free(tensors->sums);
    tensors->sums = NULL;
}
