/* adapter_parts: what every adapter is made of: tensors of its unit, and a note in the graph. */
#include "model/adapters/adapter_attach.h"

#include <math.h>

uint32_t attach_add_a(struct attaching *at, uint32_t unit, uint64_t rows, uint64_t cols,
                      int64_t rank)
{
    bool gaussian = at->choice->gaussian;
    struct zinf_tensor tensor = {
        .rank = 2,
        .rows = rows,
        .cols = cols,
        .decay = true,
        .init = gaussian ? ZINF_INIT_NORMAL : ZINF_INIT_UNIFORM,
        .init_std = gaussian ? 1.0f / (float)rank : 1.0f / sqrtf((float)cols),
    };
    return zinf_graph_add_tensor(at->graph, companion_of(&at->second, unit), &tensor);
}

uint32_t attach_add_b(struct attaching *at, uint32_t unit, uint64_t rows, uint64_t cols)
{
    struct zinf_tensor tensor = {
        .rank = 2, .rows = rows, .cols = cols, .decay = true, .init = ZINF_INIT_ZERO};
    return zinf_graph_add_tensor(at->graph, companion_of(&at->second, unit), &tensor);
}

int attach_note(struct attaching *at, const struct zinf_adapted *adapted)
{
    struct zinf_graph *g = at->graph;
    struct zinf_adapted *list = g->adapted;
    bool full = (g->n_adapted & (g->n_adapted - 1)) == 0; /* doubled at powers of two */
    if (full) {
        list = zinf_graph_take(g, 2 * ((size_t)g->n_adapted + 1) * sizeof *list);
        if (!list)
            return zinf_fail(-ENOMEM, "no memory to adapt a model");
        if (g->n_adapted)
            memcpy(list, g->adapted, g->n_adapted * sizeof *list);
        g->adapted = list;
    }
    struct zinf_unit *unit = &g->units[adapted->unit];
    unit->first_adapted = unit->n_adapted++ ? unit->first_adapted : g->n_adapted;
    list[g->n_adapted++] = *adapted;
    return 0;
}
