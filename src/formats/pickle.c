/* pickle: from a data.pkl to its tensors, in one pass. */
#include "formats/pickle_machine.h"

#include <stdlib.h>

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

int zinf_pickle_read(struct zinf_pickle *out, const char *what, const void *data, uint64_t bytes)
{
    struct machine m = {.what = what, .data = data, .bytes = bytes};
    struct array *arrays[] = {&m.values, &m.items, &m.pairs,    &m.stack,
                              &m.memo,   &m.marks, &m.storages, &m.tensors};
    *out = (struct zinf_pickle){0};
    int code = bytes > ZINF_PICKLE_MAX_BYTES ? machine_fail(&m, "there is too much") : run(&m);
    if (!code)
        code = machine_list_tensors(&m, machine_value(&m, machine_top(&m, 0)), out);
    if (code)
        zinf_pickle_fini(out);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]->items);
    return code;
}

void zinf_pickle_fini(struct zinf_pickle *pickle)
{
    free(pickle->tensors);
    *pickle = (struct zinf_pickle){0};
}
