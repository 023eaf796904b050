/*
 * pickle_machine: the arrays and the stack. No number of a pickle is an index or a size before it
 * was compared with what is there.
 */
#include "formats/pickle_machine.h"

#include <stdlib.h>

/* Of any array. A tensor takes about 25 values, so there is room for 2^18 of them, as many as a
 * safetensors header may list. */
#define MAX_ITEMS (1u << 23)

/* ---- arrays, values ---- */

int machine_fail(const struct machine *m, const char *how)
{
    return zinf_fail(-EINVAL,
                     "%s: %s at byte %llu of its pickle; the file is damaged, or torch.save did "
                     "not write it: fetch or write it again",
                     m->what, how, (unsigned long long)m->at);
}

void *machine_add(struct machine *m, struct array *array, size_t size, int *code)
{
    if (array->n == array->capacity) {
        uint32_t capacity = array->capacity ? 2 * array->capacity : 64;
        if (capacity > MAX_ITEMS) {
            *code = machine_fail(m, "there are more values than any model has");
            return NULL;
        }
        void *items = realloc(array->items, capacity * size);
        if (!items) {
            *code = zinf_fail(-ENOMEM, "%s: no memory for its pickle", m->what);
            return NULL;
        }
        array->items = items;
        array->capacity = capacity;
    }
    return memset((char *)array->items + array->n++ * size, 0, size);
}

int machine_add_number(struct machine *m, struct array *array, uint32_t number)
{
    int code = 0;
    uint32_t *slot = machine_add(m, array, sizeof *slot, &code);
    if (slot)
        *slot = number;
    return code;
}

int machine_push(struct machine *m, struct value value)
{
    int code = 0;
    struct value *slot = machine_add(m, &m->values, sizeof *slot, &code);
    if (!slot)
        return code;
    *slot = value;
    return machine_add_number(m, &m->stack, m->values.n - 1);
}

struct value *machine_value(const struct machine *m, uint32_t number)
{
    return (struct value *)m->values.items + number;
}

const struct value *machine_part(const struct machine *m, const struct value *tuple, uint32_t i)
{
    return machine_value(m, ((const uint32_t *)m->items.items)[tuple->tuple.first + i]);
}

/* ---- the stack ---- */

/* What lies below the last mark belongs to whoever set it. */
static uint32_t floor_of(const struct machine *m)
{
    return m->marks.n ? ((const uint32_t *)m->marks.items)[m->marks.n - 1] : 0;
}

uint32_t machine_top(const struct machine *m, uint32_t below)
{
    return ((const uint32_t *)m->stack.items)[m->stack.n - 1 - below];
}

int machine_need(const struct machine *m, uint32_t n)
{
    return m->stack.n - floor_of(m) >= n ? 0 : machine_fail(m, "the stack is empty");
}

int machine_pop_mark(struct machine *m, uint32_t *n)
{
    if (!m->marks.n)
        return machine_fail(m, "a mark is missing");
    *n = m->stack.n - floor_of(m);
    m->marks.n--;
    return 0;
}
