/* pickle: from a data.pkl to its values, in one pass, and looking at them. */
#include "formats/pickle_machine.h"
#include "formats/safetensors.h"

#include <stdlib.h>

struct zinf_pickle {
    struct machine machine;
};

static int run(struct machine *m)
{
    int code = 0;
    while (!code && !m->stopped) {
        if (m->at == m->bytes)
            return machine_fail(m, "there is no end");
        uint8_t opcode = m->data[m->at];
        const struct operation *operation = &machine_operations[opcode];
        if (!operation->run)
            return zinf_fail(-ENOTSUP,
                             "%s: byte %llu of its pickle is opcode 0x%02x, which torch.save does "
                             "not use for tensors: load it where you trust it, and save its "
                             "state_dict with safetensors.torch.save_file",
                             m->what, (unsigned long long)m->at, opcode);
        m->at++;
        code = operation->run(m, operation->argument);
    }
    return code;
}

int zinf_pickle_create(struct zinf_pickle **out, const char *what, const void *data, uint64_t bytes)
{
    struct zinf_pickle *pickle = calloc(1, sizeof *pickle);
    if (!pickle)
        return zinf_fail(-ENOMEM, "%s: no memory for its pickle", what);
    struct machine *m = &pickle->machine;
    *m = (struct machine){.what = what, .data = data, .bytes = bytes};
    /* Value 0 is none. */
    int code = machine_push(m, (struct value){.kind = VALUE_NONE});
    m->stack.n = 0;
    if (!code && bytes > ZINF_PICKLE_MAX_BYTES)
        code = machine_fail(m, "there is too much");
    if (!code)
        code = run(m);
    if (code)
        zinf_pickle_destroy(pickle);
    else
        *out = pickle;
    return code;
}

void zinf_pickle_destroy(struct zinf_pickle *pickle)
{
    if (!pickle)
        return;
    struct machine *m = &pickle->machine;
    struct array *arrays[] = {&m->values, &m->items, &m->pairs,    &m->stack,
                              &m->memo,   &m->marks, &m->storages, &m->tensors};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]->items);
    free(pickle);
}

/* ---- looking ---- */

zinf_pickled zinf_pickle_root(const struct zinf_pickle *pickle)
{
    return pickle->machine.root;
}

bool zinf_pickle_walk(const struct zinf_pickle *pickle, zinf_pickled of,
                      struct zinf_pickled_part *at)
{
    const struct value *value = machine_value(&pickle->machine, of);
    const struct pair *pairs = pickle->machine.pairs.items;
    if (value->kind != VALUE_DICT && value->kind != VALUE_LIST && value->kind != VALUE_OBJECT)
        return false;
    uint32_t pair = at->begun ? at->next : value->dict.first;
    if (!pair)
        return false;
    *at = (struct zinf_pickled_part){pairs[pair].key, pairs[pair].value, pairs[pair].next, true};
    return true;
}

bool zinf_pickle_integer(const struct zinf_pickle *pickle, zinf_pickled value, int64_t *out)
{
    const struct value *v = machine_value(&pickle->machine, value);
    if (v->kind == VALUE_INT)
        *out = v->integer;
    return v->kind == VALUE_INT;
}

bool zinf_pickle_text(const struct zinf_pickle *pickle, zinf_pickled value,
                      struct zinf_pickled_text *out)
{
    const struct machine *m = &pickle->machine;
    const struct value *v = machine_value(m, value);
    if (v->kind == VALUE_TEXT)
        *out = (struct zinf_pickled_text){(const char *)m->data + v->text.at, v->text.bytes};
    return v->kind == VALUE_TEXT;
}

zinf_pickled zinf_pickle_get(const struct zinf_pickle *pickle, zinf_pickled of, const char *key)
{
    struct zinf_pickled_part at = {0};
    struct zinf_pickled_text text;
    while (zinf_pickle_walk(pickle, of, &at))
        if (zinf_pickle_text(pickle, at.key, &text) && text.bytes == strlen(key) &&
            !memcmp(text.at, key, text.bytes))
            return at.value;
    return 0;
}

zinf_pickled zinf_pickle_get_number(const struct zinf_pickle *pickle, zinf_pickled of, int64_t key)
{
    struct zinf_pickled_part at = {0};
    int64_t number;
    while (zinf_pickle_walk(pickle, of, &at))
        if (zinf_pickle_integer(pickle, at.key, &number) && number == key)
            return at.value;
    return 0;
}

int zinf_pickle_shape(const struct zinf_pickle *pickle, zinf_pickled value,
                      uint64_t shape[ZINF_TENSOR_MAX_RANK])
{
    const struct machine *m = &pickle->machine;
    const struct value *tuple = machine_value(m, value);
    if (tuple->kind != VALUE_TUPLE || tuple->tuple.n > ZINF_TENSOR_MAX_RANK)
        return -1;
    for (uint32_t i = 0; i < tuple->tuple.n; i++) {
        const struct value *size = machine_part(m, tuple, i);
        if (size->kind != VALUE_INT || size->integer < 0)
            return -1;
        shape[i] = (uint64_t)size->integer;
    }
    return (int)tuple->tuple.n;
}

const struct zinf_pickled_tensor *zinf_pickle_tensor(const struct zinf_pickle *pickle,
                                                     zinf_pickled value)
{
    const struct machine *m = &pickle->machine;
    const struct value *v = machine_value(m, value);
    const struct zinf_pickled_tensor *all = m->tensors.items;
    return v->kind == VALUE_TENSOR ? &all[v->index] : NULL;
}

/* ---- a dictionary of tensors ---- */

static const char *kind_name(const struct value *value)
{
    static const char *const words[] = {"None",   "a boolean", "a number", "a number",
                                        "text",   "a tuple",   "a list",   "a dictionary",
                                        "a type", "a storage", "a tensor", "an object"};
    return words[value->kind];
}

static int fail_no_tensor(const struct machine *m, const struct zinf_pickled_text *name,
                          const struct value *value)
{
    char text[200];
    return zinf_fail(-EINVAL,
                     "%s: '%s' in it is %s, not a tensor: a checkpoint of a training holds more "
                     "than weights; save model.state_dict() alone",
                     m->what, machine_printable(name, text, sizeof text), kind_name(value));
}

static int list_tensors(const struct zinf_pickle *pickle, struct zinf_pickled_tensor *list,
                        uint64_t *n)
{
    const struct machine *m = &pickle->machine;
    struct zinf_pickled_part at = {0};
    for (*n = 0; zinf_pickle_walk(pickle, m->root, &at);) {
        const struct zinf_pickled_tensor *tensor = zinf_pickle_tensor(pickle, at.value);
        struct zinf_pickled_text name;
        if (!zinf_pickle_text(pickle, at.key, &name))
            return machine_fail(m, "a tensor's name is no text");
        if (machine_value(m, at.value)->kind == VALUE_NONE) /* as modules without state leave it */
            continue;
        if (!tensor)
            return fail_no_tensor(m, &name, machine_value(m, at.value));
        list[*n] = *tensor;
        list[(*n)++].name = name;
    }
    return 0;
}

int zinf_pickle_list_tensors(const struct zinf_pickle *pickle, struct zinf_pickled_tensor **tensors,
                             uint64_t *n)
{
    const struct machine *m = &pickle->machine;
    const struct value *root = machine_value(m, m->root);
    struct zinf_pickled_part at = {0};
    uint64_t count = 0;
    if (root->kind != VALUE_DICT)
        return zinf_fail(-EINVAL, "%s holds %s, not a state_dict: save model.state_dict()", m->what,
                         kind_name(root));
    while (zinf_pickle_walk(pickle, m->root, &at))
        count++;
    if (count > ZINF_SAFETENSORS_MAX_TENSORS)
        return machine_fail(m, "there are more tensors than any model has");
    *tensors = calloc(count + 1, sizeof **tensors);
    if (!*tensors)
        return zinf_fail(-ENOMEM, "%s: no memory for %llu tensors", m->what,
                         (unsigned long long)count);
    int code = list_tensors(pickle, *tensors, n);
    if (code) {
        free(*tensors);
        *tensors = NULL;
    }
    return code;
}
