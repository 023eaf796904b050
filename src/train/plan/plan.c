/* plan: budgets, the choice that fills them, and the ledger that says what it takes. */
#include "formats/formats.h"
#include "train/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

static int add_lines(struct plan *p)
{
    struct plan_lines l;
    plan_collect(p, &p->choice, &l);
    int code = 0;
    for (int i = 0; !code && i < l.n; i++)
        code = zinf_ledger_add(p->ledger, l.line[i].tier, l.line[i].name, l.line[i].hint,
                               l.line[i].bytes, l.line[i].offset);
    return code;
}

/* What the process holds already, and what is taken outside of the arenas later. */
static int add_process(struct plan *p)
{
    int code =
        zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "this program and its libraries", NULL,
                                zinf_memory_resident());
    if (!code)
        code = zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "panels of the BLAS",
                                       "--threads", plan_blas_bytes(p));
    if (!code && has_backward(p->setup))
        code = zinf_ledger_add_outside(p->ledger, ZINF_MEMORY_HOST, "saving: a block of the file",
                                       NULL, ZINF_TENSORS_WRITER_BYTES);
    return code;
}

static void set_budgets(struct plan *p)
{
    uint64_t free_bytes = zinf_memory_available() + zinf_memory_resident();
    bool host_device = p->setup->device->kind == ZINF_DEVICE_HOST;
    p->setup->budget[ZINF_MEMORY_HOST] =
        p->setup->config->host_memory ? p->setup->config->host_memory : free_bytes;
    p->setup->budget[ZINF_MEMORY_DEVICE] = p->setup->config->device_memory;
    if (!p->setup->config->device_memory)
        p->setup->budget[ZINF_MEMORY_DEVICE] =
            host_device ? free_bytes / 10 * 7 : p->setup->device->free_bytes / 20 * 19;
    p->setup->budget[ZINF_MEMORY_DRIVE] = UINT64_MAX; /* the store checks free space itself */
}

/* The host device's arena is the same RAM: both together must be there. */
static int check_shared_ram(struct plan *p)
{
    char need[16], have[16];
    uint64_t total = zinf_ledger_total_bytes(p->ledger, ZINF_MEMORY_DEVICE) +
                     zinf_ledger_total_bytes(p->ledger, ZINF_MEMORY_HOST);
    uint64_t available = zinf_memory_available() + zinf_memory_resident();
    if (p->setup->device->kind != ZINF_DEVICE_HOST || total <= available)
        return 0;
    char *table = NULL;
    size_t table_bytes = 0;
    FILE *out = open_memstream(&table, &table_bytes);
    if (out) {
        zinf_ledger_print(p->ledger, p->setup->budget, out);
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

static int plan_tiers(struct plan *p)
{
    struct zinf_tiers_options tiers = {
        .layout = &p->setup->layout,
        .dtype = p->setup->dtype,
        .form = p->setup->form,
        .n_moments = trains(p->setup) ? setup_n_moments(p->setup) : -1,
        .state_bytes = p->setup->state_bytes,
        .param_copies = p->setup->durable_copies,
        .places = p->homes,
        .store = p->store,
    };
    int code = zinf_tiers_plan(&p->tiers, &tiers, p->ledger);
    uint64_t inputs = (p->setup->n_layers + 1) * (uint64_t)p->n_x_micros;
    if (code || !has_backward(p->setup) || p->x_tier != ZINF_TIER_DRIVE)
        return code;
    p->x_extents = calloc(inputs, sizeof *p->x_extents);
    if (!p->x_extents)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    for (uint64_t i = 0; !code && i < inputs; i++)
        code = zinf_store_add_extent(p->store, p->sizes.x, &p->x_extents[i]);
    return code;
}

int plan_memory(struct plan *p)
{
    int code = zinf_ledger_create(&p->ledger);
    if (code || (code = add_process(p)))
        return code;
    p->homes = calloc(p->setup->n_units, sizeof *p->homes);
    if (!p->homes)
        return zinf_fail(-ENOMEM, "no memory for a plan");
    set_budgets(p);
    plan_measure(p);
    plan_choose(p);
    code = plan_tiers(p);
    if (!code)
        code = add_lines(p);
    if (!code)
        code = zinf_ledger_check(p->ledger, p->setup->budget);
    return code ? code : check_shared_ram(p);
}
