/*
 * setup_pipe: ranks that have stages of the model one after the other (zinf.mesh.pipe). Layers, as
 * people count them, are dealt to ranks in ranges; a rank's graph is that of its stages, so that
 * plan, ledger and programs know of nothing else. How layers are dealt changes no result.
 */
#include "train/plan/plan.h"
#include "train/plan/lines.h"
#include "train/setup_rates.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>

/* Layers of the model and what each takes; which begins each rank's range. */
struct deal {
    uint32_t *first; /* [n_layers + 1]: stages */
    double *cost;    /* [n_layers] */
    uint32_t *ends;  /* [n_ranks]: layers, one behind the last of each */
    uint32_t n_layers, n_ranks;
};

/* ---- what layers cost ---- */

static uint64_t params_of(const struct zinf_graph *g, const struct zinf_stage *stage)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < stage->units.n; i++)
        n += g->units[stage->units.at[i]].elems;
    for (uint32_t i = 0; i < stage->sweep.n; i++)
        n += g->units[stage->sweep.at[i]].elems;
    return n;
}

/* Seconds of a step, about: products of all micro-batches, and the update of what is trained. */
static int measure(const struct setup *s, struct deal *d)
{
    static const struct zinf_speeds unknown;
    const struct zinf_graph *g = s->stages;
    const struct plan p = {.setup = s};
    struct zinf_speeds used;
    struct walk walk;
    plan_speeds_of(&p, s->options.speeds ? s->options.speeds : &unknown, &used);
    int code = walk_init(&walk, g, &s->compute, has_backward(s));
    for (uint32_t l = 0; !code && l < d->n_layers; l++)
        for (uint32_t i = d->first[l]; i < d->first[l + 1]; i++) {
            const struct zinf_stage_size *size = walk.stages[i].size;
            const double visits = zinf_stage_visits(&g->stages[i]);
            const double work = size[ZINF_PASS_FORWARD].work + size[ZINF_PASS_BACKWARD].work + 1e-9;
            const double bytes = (double)params_of(g, &g->stages[i]) * sizeof(float) * 4;
            d->cost[l] += work * visits * (double)s->n_micro / used.device_flops;
            d->cost[l] += trains(s) ? bytes / used.optimizer_bytes : 0;
        }
    if (!code)
        walk_fini(&walk);
    return code;
}

/* DeepSpeed's words (partition_method): each layer counts alike, by its parameters, or if its name
 * matches. */
static int weigh(const struct setup *s, struct deal *d)
{
    const char *method = s->config->pipeline_method;
    const bool named = method && !strncasecmp(method, "type:", 5);
    const struct zinf_graph *g = s->stages;
    regex_t names;
    if (!method || !*method || !strcasecmp(method, "best"))
        return measure(s, d);
    if (!named && strcasecmp(method, "uniform") && strcasecmp(method, "parameters"))
        return zinf_fail(-EINVAL,
                         "pipeline.partition_method \"%s\": use \"uniform\", \"parameters\", "
                         "\"type:\" and a regular expression, or \"best\"",
                         method);
    if (named && regcomp(&names, method + 5, REG_EXTENDED | REG_ICASE | REG_NOSUB))
        return zinf_fail(
            -EINVAL,
            "pipeline.partition_method \"%s\": the text behind \"type:\" is not a valid "
            "regular expression",
            method);
    for (uint32_t l = 0; l < d->n_layers; l++) {
        const struct zinf_stage *begins = &g->stages[d->first[l]];
        d->cost[l] = named                            ? !regexec(&names, begins->name, 0, NULL, 0)
                     : !strcasecmp(method, "uniform") ? 1
                                                      : 0;
        for (uint32_t i = d->first[l]; !strcasecmp(method, "parameters") && i < d->first[l + 1];
             i++)
            d->cost[l] += (double)params_of(g, &g->stages[i]);
    }
    if (named)
        regfree(&names);
    return 0;
}

/* ---- ranges ---- */

/* Whether every rank can have at least one layer and none more than `most`; ends are set so. Ranks
 * take as much as they can, but leave a layer to each that follows. */
static bool can_deal(struct deal *d, double most)
{
    uint32_t l = 0;
    for (uint32_t r = 0; r < d->n_ranks; r++) {
        double sum = 0;
        const uint32_t behind = d->n_ranks - 1 - r, begin = l;
        while (l < d->n_layers - behind && (l == begin || sum + d->cost[l] <= most))
            sum += d->cost[l++];
        if (sum > most)
            return false;
        d->ends[r] = l;
    }
    return l == d->n_layers;
}

/* The largest sum becomes as small as it can be. */
static void balance(struct deal *d)
{
    double low = 0, high = 0;
    for (uint32_t l = 0; l < d->n_layers; l++)
        high += d->cost[l];
    high += high > 0 ? high * 1e-9 : 1;
    for (int i = 0; i < 60; i++) {
        const double middle = low + (high - low) / 2;
        if (can_deal(d, middle))
            high = middle;
        else
            low = middle;
    }
    can_deal(d, high);
}

static int take_parts(const struct setup *s, struct deal *d)
{
    cJSON *parts = cJSON_Parse(s->config->pipeline_parts);
    const int n = cJSON_GetArraySize(parts);
    double sum = 0;
    bool good = n == (int)d->n_ranks;
    for (int r = 0; good && r < n; r++) {
        const cJSON *part = cJSON_GetArrayItem(parts, r);
        good = cJSON_IsNumber(part) && part->valuedouble >= 1;
        sum += good ? floor(part->valuedouble) : 0;
        d->ends[r] = sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
    }
    cJSON_Delete(parts);
    if (good && d->ends[d->n_ranks - 1] == d->n_layers)
        return 0;
    return zinf_fail(-EINVAL,
                     "zinf.pipeline_parts is %s: write a number of layers for each of the %u "
                     "ranks of zinf.mesh.pipe, %u in all; the embedding and the head count as "
                     "one layer each, as a block does",
                     s->config->pipeline_parts, d->n_ranks, d->n_layers);
}

static int deal_layers(struct setup *s, struct deal *d)
{
    const char *parts = s->config->pipeline_parts;
    if (d->n_layers < d->n_ranks)
        return zinf_fail(-EINVAL,
                         "zinf.mesh.pipe is %u, but the model has %u layers, the embedding and "
                         "the head included: use fewer ranks",
                         d->n_ranks, d->n_layers);
    int code = parts && *parts ? take_parts(s, d) : weigh(s, d);
    if (!code && !(parts && *parts))
        balance(d);
    if (code || zinf_net_is_described(s->mesh.all))
        return code;
    return zinf_net_broadcast(s->mesh.all, 0, d->ends, d->n_ranks * sizeof *d->ends);
}

/* ---- neighbours ---- */

/* Nets of the ranks 2k and 2k + 1, then of 2k + 1 and 2k + 2. */
static int find_neighbours(struct setup *s)
{
    const struct zinf_axis *pipe = pipe_axis(s);
    int code = 0;
    for (uint32_t odd = 0; !code && odd < 2 && !zinf_net_is_described(pipe->net); odd++) {
        const uint32_t pair = (pipe->rank + odd) / 2, first = 2 * pair - odd;
        const bool alone = odd > pipe->rank || first + 1 >= pipe->world;
        code = zinf_net_split(pipe->net, alone ? ZINF_NET_NO_COLOUR : pair, pipe->rank,
                              &s->borders[pipe->rank == first]);
    }
    return code;
}

/* ---- what there is no way for ---- */

static int check_pipe(const struct setup *s)
{
    const uint32_t ranks = pipe_axis(s)->world;
    const char *what =
        s->stages->embeddings ? "the loss of embeddings compares embeddings of all samples" : NULL;
    for (uint32_t v = 0; !what && v < s->stages->n_values; v++)
        if (s->stages->values[v].kind == ZINF_VALUE_REFERENCE)
            what = "a reference model needs all layers";
    return what ? zinf_fail(-ENOTSUP, "zinf.mesh.pipe is %u, but %s: set the key to 1", ranks, what)
                : 0;
}

/* ---- cutting ---- */

static void find_owners(struct setup *s, const struct deal *d)
{
    for (uint32_t r = d->n_ranks, i = s->stages->n_stages; r-- > 0;)
        for (const uint32_t begin = r ? d->first[d->ends[r - 1]] : 0; i > begin; i--) {
            const struct zinf_stage *stage = &s->stages->stages[i - 1];
            for (uint32_t k = 0; k < stage->units.n; k++)
                s->owners[stage->units.at[k]] = r;
            for (uint32_t k = 0; k < stage->sweep.n; k++)
                s->owners[stage->sweep.at[k]] = r;
        }
}

static bool has_unit(const struct zinf_stage *stage, uint32_t unit)
{
    bool has = false;
    for (uint32_t k = 0; k < stage->units.n; k++)
        has |= stage->units.at[k] == unit;
    for (uint32_t k = 0; k < stage->sweep.n; k++)
        has |= stage->sweep.at[k] == unit;
    return has;
}

/* Ranks that have the unit, from the last one: as contributions to its gradient come. */
static uint32_t find_ranks(const struct setup *s, const struct deal *d, uint32_t unit,
                           uint32_t *ranks)
{
    uint32_t n = 0;
    for (uint32_t r = d->n_ranks; r-- > 0;) {
        bool has = false;
        for (uint32_t i = r ? d->first[d->ends[r - 1]] : 0; i < d->first[d->ends[r]]; i++)
            has |= has_unit(&s->stages->stages[i], unit);
        if (has)
            ranks[n++] = r;
    }
    return n;
}

static int find_shared(struct setup *s, const struct deal *d)
{
    s->shared = calloc(s->n_units + 1, sizeof *s->shared);
    if (!s->shared)
        return zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
    for (uint32_t u = 0; u < s->n_units; u++) {
        struct shared_unit *shared = &s->shared[s->n_shared];
        if (!unit_trains_anywhere(s, u))
            continue;
        if (!shared->ranks)
            shared->ranks = calloc(d->n_ranks, sizeof *shared->ranks);
        if (!shared->ranks)
            return zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
        shared->unit = u;
        shared->n = find_ranks(s, d, u, shared->ranks);
        s->n_shared += shared->n > 1;
    }
    return 0;
}

/* Sums that go from rank to rank are in host memory, and those of GPUs are not yet brought there.
 */
static int check_shared(const struct setup *s)
{
    if (!s->n_shared || !device_is_far(s) || !trains(s) || s->grad_tier == ZINF_TIER_DRIVE ||
        zinf_net_is_described(s->mesh.all))
        return 0;
    return zinf_fail(-ENOTSUP,
                     "zinf.mesh.pipe is %u: %s is of stages of several GPUs, and its gradient can "
                     "only go between them by the drive: set "
                     "zero_optimization.offload_optimizer.device to \"nvme\"",
                     pipe_axis(s)->world, s->stages->units[s->shared[0].unit].name);
}

static int cut(struct setup *s, const struct deal *d)
{
    const uint32_t rank = pipe_axis(s)->rank;
    const uint32_t first = rank ? d->first[d->ends[rank - 1]] : 0, end = d->first[d->ends[rank]];
    bool *flows = calloc(s->stages->n_values + 1, sizeof *flows);
    s->owners = calloc(s->n_units + 1, sizeof *s->owners);
    int code = flows && s->owners ? 0 : zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
    if (!code && has_backward(s))
        code = walk_flows(s->stages, flows);
    if (!code)
        code = zinf_model_set_range(s->model, first, end, flows);
    if (!code) {
        find_owners(s, d);
        code = find_shared(s, d);
        if (!code)
            code = check_shared(s);
    }
    s->graph = zinf_model_graph(s->model);
    free(flows);
    return code;
}

int setup_cut_stages(struct setup *s)
{
    const uint32_t n = s->stages->n_stages;
    struct deal d = {.n_ranks = pipe_axis(s)->world};
    if (!is_piped(s))
        return 0;
    d.first = calloc(n + 1, sizeof *d.first);
    d.cost = calloc(n + 1, sizeof *d.cost);
    d.ends = calloc(d.n_ranks, sizeof *d.ends);
    int code = d.first && d.cost && d.ends ? 0 : zinf_fail(-ENOMEM, "no memory for %u stages", n);
    if (!code) {
        d.n_layers = zinf_model_layers(s->model, d.first);
        code = deal_layers(s, &d);
    }
    if (!code)
        code = check_pipe(s);
    if (!code)
        code = cut(s, &d);
    if (!code)
        code = find_neighbours(s);
    free(d.first);
    free(d.cost);
    free(d.ends);
    return code;
}

/* ---- files ---- */

/* Units of all ranks, as those that have them cut them. */
static int lay_out_all(struct setup *s)
{
    struct zinf_layout_options all = {.n_units = s->n_units};
    uint64_t *elems = calloc(s->n_units + 1, sizeof *elems);
    int code = elems ? 0 : zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
    for (uint32_t u = 0; !code && u < s->n_units; u++)
        elems[u] = s->stages->units[u].elems;
    if (!code) /* parts of the vocabulary differ by a row: slices are cut alike on all */
        code = setup_agree_elems(s, elems);
    for (uint32_t u = 0; !code && u < s->n_units && whole_state(s); u++)
        elems[u] = zinf_align_up(elems[u], (uint64_t)ZINF_LAYOUT_ALIGN * data_axis(s)->world);
    setup_cuts(s, all.at);
    all.unit_elems = elems;
    if (!code)
        code = zinf_layout_init(&s->all_units, &all);
    free(elems);
    return code;
}

int setup_savers(struct setup *s)
{
    const struct zinf_axis *data = data_axis(s), *pipe = pipe_axis(s);
    s->savers = *data;
    if (!is_piped(s))
        return 0;
    s->savers = (struct zinf_axis){.rank = pipe->rank * data->world + data->rank,
                                   .world = pipe->world * data->world,
                                   .net = s->mesh.all};
    int code = lay_out_all(s);
    if (!code && tensor_axis(s)->world > 1 && !zinf_net_is_described(s->mesh.all))
        code = zinf_net_split(s->mesh.all, tensor_axis(s)->rank, s->savers.rank, &s->savers.net);
    return code;
}

void setup_free_pipe(struct setup *s)
{
    if (is_piped(s) && s->savers.net != s->mesh.all)
        zinf_net_close(s->savers.net);
    zinf_net_close(s->borders[1]);
    zinf_net_close(s->borders[0]);
    zinf_layout_fini(&s->all_units);
    for (uint32_t i = 0; s->shared && i <= s->n_shared; i++)
        free(s->shared[i].ranks);
    free(s->shared);
    free(s->owners);
}
