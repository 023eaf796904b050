/* plan: budgets, the choice that fills them, and the ledger that says what it takes. */
#include "formats/formats.h"
#include "train/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

static int add_lines(struct zinf_trainer *t)
{
    struct plan_lines l;
    plan_collect(t, &t->choice, &l);
    int code = 0;
    for (int i = 0; !code && i < l.n; i++)
        code = zinf_ledger_add(t->ledger, l.line[i].tier, l.line[i].name, l.line[i].hint,
                               l.line[i].bytes, l.line[i].offset);
    return code;
}

/* What the process holds already, and what is taken outside of the arenas later. */
static int add_process(struct zinf_trainer *t)
{
    int code =
        zinf_ledger_add_outside(t->ledger, ZINF_MEMORY_HOST, "this program and its libraries", NULL,
                                zinf_memory_resident());
    if (!code)
        code = zinf_ledger_add_outside(t->ledger, ZINF_MEMORY_HOST, "panels of the BLAS",
                                       "--threads", trainer_blas_bytes(t));
    if (!code && has_backward(t))
        code = zinf_ledger_add_outside(t->ledger, ZINF_MEMORY_HOST, "saving: a block of the file",
                                       NULL, ZINF_TENSORS_WRITER_BYTES);
    return code;
}

static void set_budgets(struct zinf_trainer *t)
{
    uint64_t free_bytes = zinf_memory_available() + zinf_memory_resident();
    bool host_device = t->device->kind == ZINF_DEVICE_HOST;
    t->budget[ZINF_MEMORY_HOST] = t->config->host_memory ? t->config->host_memory : free_bytes;
    t->budget[ZINF_MEMORY_DEVICE] = t->config->device_memory;
    if (!t->config->device_memory)
        t->budget[ZINF_MEMORY_DEVICE] =
            host_device ? free_bytes / 10 * 7 : t->device->free_bytes / 20 * 19;
    t->budget[ZINF_MEMORY_DRIVE] = UINT64_MAX; /* the store checks free space itself */
}

/* The host device's arena is the same RAM: both together must be there. */
static int check_shared_ram(struct zinf_trainer *t)
{
    char need[16], have[16];
    uint64_t total = zinf_ledger_total_bytes(t->ledger, ZINF_MEMORY_DEVICE) +
                     zinf_ledger_total_bytes(t->ledger, ZINF_MEMORY_HOST);
    uint64_t available = zinf_memory_available() + zinf_memory_resident();
    if (t->device->kind != ZINF_DEVICE_HOST || total <= available)
        return 0;
    char *table = NULL;
    size_t table_bytes = 0;
    FILE *out = open_memstream(&table, &table_bytes);
    if (out) {
        zinf_ledger_print(t->ledger, t->budget, out);
        fclose(out);
    }
    zinf_fail(-ENOMEM,
              "the plan does not fit: the host device's memory and host memory together need %s of "
              "%s available RAM; lower zinf.device_memory, or move more to nvme "
              "(offload_param.device, offload_optimizer.device)\n%s",
              zinf_size_format(need, sizeof need, total),
              zinf_size_format(have, sizeof have, available), table ? table : "");
    free(table);
    return -ENOMEM;
}

static int plan_tiers(struct zinf_trainer *t)
{
    struct zinf_tiers_options tiers = {
        .layout = &t->layout,
        .dtype = t->dtype,
        .form = t->form,
        .n_moments = trains(t) ? trainer_n_moments(t) : -1,
        .state_bytes = t->state_bytes,
        .param_copies = t->durable.copies,
        .places = t->homes,
        .store = t->store,
    };
    int code = zinf_tiers_plan(&t->tiers, &tiers, t->ledger);
    uint64_t inputs = (t->n_layers + 1) * (uint64_t)t->n_x_micros;
    if (code || !has_backward(t) || t->x_tier != ZINF_TIER_DRIVE)
        return code;
    t->x_extents = calloc(inputs, sizeof *t->x_extents);
    if (!t->x_extents)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    for (uint64_t i = 0; !code && i < inputs; i++)
        code = zinf_store_add_extent(t->store, t->sizes.x, &t->x_extents[i]);
    return code;
}

int trainer_plan(struct zinf_trainer *t)
{
    int code = zinf_ledger_create(&t->ledger);
    if (code || (code = add_process(t)))
        return code;
    t->homes = calloc(t->n_units, sizeof *t->homes);
    if (!t->homes)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    set_budgets(t);
    plan_measure(t);
    plan_choose(t);
    code = plan_tiers(t);
    if (!code)
        code = add_lines(t);
    if (!code)
        code = zinf_ledger_check(t->ledger, t->budget);
    return code ? code : check_shared_ram(t);
}
