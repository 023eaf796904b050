/*
 * setup_pipe: ranks that have stages of the model one after the other (zinf.mesh.pipe). Layers, as
 * people count them, are divided into ranges, and these are dealt to the ranks in turn, one or more
 * to each (zinf.pipeline_ranges); a rank's graph is that of its stages, so that plan, ledger and
 * programs know of nothing else. How layers are dealt changes no result.
 */
#include "train/plan/plan.h"
#include "train/plan/lines.h"
#include "train/setup_rates.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>

/* Layers of the model and what each takes; where each range ends. */
struct deal {
    uint32_t *first; /* [n_layers + 1]: stages */
    double *cost;    /* [n_layers] */
    uint32_t *ends;  /* [n_ranges]: layers, then stages, one behind the last of each */
    uint32_t n_layers, n_ranges, n_ranks;
    /* Of the device's memory, about: what a layer takes, what it takes for each micro-batch that is
     * under way [n_layers], and what a range may take; 0: any. */
    double *bytes, *live_bytes, room;
    int64_t n_micro;
};
static uint32_t rank_of(const struct deal *d, uint32_t range)
{
    return range % d->n_ranks;
}
static uint32_t first_stage(const struct deal *d, uint32_t range)
{
    return range ? d->ends[range - 1] : 0;
}

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

/* What of a unit is on the device as configured. Of a tree of n contributions to a gradient that
 * come one by one, log2(n) sums are kept. */
static double device_bytes(const struct setup *s, const struct zinf_unit *unit)
{
    const double n = (double)unit->elems, ranks = data_axis(s)->world;
    const double sums = s->n_micro > 3 ? floor(log2((double)s->n_micro)) : 1;
    const uint64_t state = zinf_state_bytes(s->form, setup_n_moments(s), unit->elems);
    double bytes = 0;
    if (s->param_tier == ZINF_TIER_DEVICE)
        bytes += n * (double)zinf_dtype_bytes(s->dtype) / (s->sliced ? ranks : 1);
    if (!unit->trained || !trains(s))
        return bytes;
    if (s->grad_tier == ZINF_TIER_DEVICE)
        bytes += n * sizeof(float) * sums / ranks;
    if (s->state_tier == ZINF_TIER_DEVICE)
        bytes += (double)state / ranks;
    return bytes;
}

static void weigh_memory(const struct setup *s, struct deal *d, const struct walk *walk, uint32_t l)
{
    const struct zinf_graph *g = s->stages;
    for (uint32_t i = d->first[l]; i < d->first[l + 1]; i++) {
        const struct zinf_stage *stage = &g->stages[i];
        for (uint32_t u = 0; u < stage->units.n; u++)
            d->bytes[l] += device_bytes(s, &g->units[stage->units.at[u]]);
        for (uint32_t u = 0; u < stage->sweep.n; u++)
            d->bytes[l] += device_bytes(s, &g->units[stage->sweep.at[u]]);
        for (uint32_t v = 0; v < stage->out.n && s->x_tier == ZINF_TIER_DEVICE; v++)
            d->live_bytes[l] += (double)walk->values[stage->out.at[v]].bytes;
        d->live_bytes[l] += s->recompute == RECOMPUTE_NEVER ? (double)walk->stages[i].kept : 0;
    }
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
    for (uint32_t l = 0; !code && l < d->n_layers; l++) {
        weigh_memory(s, d, &walk, l);
        for (uint32_t i = d->first[l]; i < d->first[l + 1]; i++) {
            const struct zinf_stage_size *size = walk.stages[i].size;
            const double visits = zinf_stage_visits(&g->stages[i]);
            const double work = size[ZINF_PASS_FORWARD].work + size[ZINF_PASS_BACKWARD].work + 1e-9;
            const double bytes = (double)params_of(g, &g->stages[i]) * sizeof(float) * 4;
            d->cost[l] += work * visits * (double)s->n_micro / used.device_flops;
            d->cost[l] += trains(s) ? bytes / used.optimizer_bytes : 0;
        }
    }
    if (!code)
        walk_fini(&walk);
    return code;
}

/* Memory counts where its limit is known now; a twentieth is for what is not of layers. */
static int measure_all(const struct setup *s, struct deal *d)
{
    d->room = 0.95 * (double)setup_device_budget(s) * d->n_ranks / d->n_ranges;
    d->n_micro = has_backward(s) ? s->n_micro : 1;
    return measure(s, d);
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
        return measure_all(s, d);
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

/* As many micro-batches are under way as there are ranks from this one to the last; twice as many
 * as there are ranks where these have several ranges. */
static double bytes_of(const struct deal *d, uint32_t range, uint32_t layer)
{
    const uint32_t most =
        d->n_ranges > d->n_ranks ? 2 * d->n_ranks : d->n_ranks - rank_of(d, range);
    const double live = d->n_micro < (int64_t)most ? (double)d->n_micro : most;
    return d->bytes[layer] + live * d->live_bytes[layer];
}

/* Whether every range can have at least one layer and none more than `most`; ends are set so.
 * Ranges take as much as they can, but leave a layer to each that follows. */
static bool can_deal(struct deal *d, double most)
{
    uint32_t l = 0;
    for (uint32_t r = 0; r < d->n_ranges; r++) {
        double sum = 0, bytes = 0;
        const uint32_t behind = d->n_ranges - 1 - r, begin = l;
        while (l < d->n_layers - behind && (l == begin || sum + d->cost[l] <= most) &&
               (l == begin || d->room <= 0 || bytes + bytes_of(d, r, l) <= d->room)) {
            bytes += bytes_of(d, r, l);
            sum += d->cost[l++];
        }
        if (sum > most)
            return false;
        d->ends[r] = l;
    }
    return l == d->n_layers;
}

/* The largest sum becomes as small as it can be. Where memory is too small for any cut, the one of
 * least time is taken, and the plan says what is missing. */
static void balance(struct deal *d)
{
    double low = 0, high = 0;
    for (uint32_t l = 0; l < d->n_layers; l++)
        high += d->cost[l];
    high += high > 0 ? high * 1e-9 : 1;
    d->room = can_deal(d, high) ? d->room : 0;
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
    bool good = n == (int)d->n_ranges;
    for (int r = 0; good && r < n; r++) {
        const cJSON *part = cJSON_GetArrayItem(parts, r);
        good = cJSON_IsNumber(part) && part->valuedouble >= 1;
        sum += good ? floor(part->valuedouble) : 0;
        d->ends[r] = sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
    }
    cJSON_Delete(parts);
    if (good && d->ends[d->n_ranges - 1] == d->n_layers)
        return 0;
    return zinf_fail(-EINVAL,
                     "zinf.pipeline_parts is %s: write a number of layers for each of the %u "
                     "%s, %u in all; the embedding and the head count as one layer each, as a "
                     "block does",
                     s->config->pipeline_parts, d->n_ranges,
                     d->n_ranges > d->n_ranks
                         ? "ranges of zinf.mesh.pipe times zinf.pipeline_ranges"
                         : "ranks of zinf.mesh.pipe",
                     d->n_layers);
}

static int deal_layers(struct setup *s, struct deal *d)
{
    const char *parts = s->config->pipeline_parts;
    if (d->n_layers < d->n_ranges)
        return zinf_fail(-EINVAL,
                         "zinf.mesh.pipe is %u%s, but the model has %u layers, the embedding and "
                         "the head included: use fewer ranks%s",
                         d->n_ranks,
                         d->n_ranges > d->n_ranks ? ", with several ranges (zinf.pipeline_ranges)"
                                                  : "",
                         d->n_layers, d->n_ranges > d->n_ranks ? " or ranges" : "");
    int code = parts && *parts ? take_parts(s, d) : weigh(s, d);
    if (!code && !(parts && *parts))
        balance(d);
    if (code || zinf_net_is_described(s->mesh.all))
        return code;
    return zinf_net_broadcast(s->mesh.all, 0, d->ends, d->n_ranges * sizeof *d->ends);
}

/* ---- neighbours ---- */

/* Of ranks with several ranges the last one's neighbour is the first. The later of two is number 1.
 */
static int close_ring(struct setup *s)
{
    const struct zinf_axis *pipe = pipe_axis(s);
    const bool first = !pipe->rank, last = pipe->rank + 1 == pipe->world;
    struct zinf_net *net = NULL;
    const int code = zinf_net_split(pipe->net, first || last ? 0 : ZINF_NET_NO_COLOUR, first, &net);
    if (first || last)
        s->borders[last] = net;
    return code;
}

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
    if (!code && s->graph->n_ranges > 1 && !zinf_net_is_described(pipe->net))
        code = close_ring(s);
    return code;
}

/* ---- what there is no way for ---- */

static int check_pipe(const struct setup *s)
{
    const uint32_t ranks = pipe_axis(s)->world;
    const char *what =
        s->stages->embeddings ? "the loss of embeddings compares embeddings of all samples" : NULL;
    return what ? zinf_fail(-ENOTSUP, "zinf.mesh.pipe is %u, but %s: set the key to 1", ranks, what)
                : 0;
}

/* ---- cutting ---- */

static void find_owners(struct setup *s, const struct deal *d)
{
    for (uint32_t k = d->n_ranges; k-- > 0;)
        for (uint32_t i = first_stage(d, k); i < d->ends[k]; i++) {
            const struct zinf_stage *stage = &s->stages->stages[i];
            for (uint32_t u = 0; u < stage->units.n; u++)
                s->owners[stage->units.at[u]] = rank_of(d, k);
            for (uint32_t u = 0; u < stage->sweep.n; u++)
                s->owners[stage->sweep.at[u]] = rank_of(d, k);
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

/* Ranks that have the unit, in the order in which contributions to its gradient come: each once,
 * but where contributions of another rank come between two of its own. */
static uint32_t find_ranks(const struct setup *s, const struct deal *d, uint32_t unit,
                           uint32_t *ranks)
{
    uint32_t n = 0;
    for (uint32_t k = d->n_ranges; k-- > 0;) {
        bool has = false;
        for (uint32_t i = first_stage(d, k); i < d->ends[k]; i++)
            has |= has_unit(&s->stages->stages[i], unit);
        if (has && (!n || ranks[n - 1] != rank_of(d, k)))
            ranks[n++] = rank_of(d, k);
    }
    return n;
}

/* Sums go from rank to rank once. */
static int check_ranks(const struct setup *s, const struct deal *d,
                       const struct shared_unit *shared)
{
    for (uint32_t i = 0; i < shared->n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (shared->ranks[i] == shared->ranks[k])
                return zinf_fail(-ENOTSUP,
                                 "zinf.pipeline_ranges is %u, but layers in several ranges of "
                                 "each rank use %s: set the key to 1",
                                 d->n_ranges / d->n_ranks, s->stages->units[shared->unit].name);
    return 0;
}

static int find_shared(struct setup *s, const struct deal *d)
{
    s->shared = calloc(s->n_units + 1, sizeof *s->shared);
    if (!s->shared)
        return zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
    int code = 0;
    for (uint32_t u = 0; !code && u < s->n_units; u++) {
        struct shared_unit *shared = &s->shared[s->n_shared];
        if (!unit_trains_anywhere(s, u))
            continue;
        if (!shared->ranks)
            shared->ranks = calloc(d->n_ranges, sizeof *shared->ranks);
        if (!shared->ranks)
            return zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
        shared->unit = u;
        shared->n = find_ranks(s, d, u, shared->ranks);
        code = check_ranks(s, d, shared);
        s->n_shared += shared->n > 1;
    }
    return code;
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
    bool *flows = calloc(2 * (size_t)s->stages->n_values + 1, sizeof *flows);
    bool *referred = flows + s->stages->n_values;
    const struct zinf_ranges ranges = {.ends = d->ends,
                                       .n = d->n_ranges,
                                       .rank = pipe_axis(s)->rank,
                                       .n_ranks = d->n_ranks,
                                       .flows = flows,
                                       .referred = referred};
    s->owners = calloc(s->n_units + 1, sizeof *s->owners);
    int code = flows && s->owners ? 0 : zinf_fail(-ENOMEM, "no memory for %u units", s->n_units);
    if (!code && has_backward(s))
        code = walk_flows(s->stages, flows);
    if (!code)
        code = walk_referred(s->stages, referred);
    if (!code)
        code = zinf_model_set_ranges(s->model, &ranges);
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

/* Ranges without a pipeline are a mistake in a training, and no matter in an evaluation. */
static int check_alone(const struct setup *s)
{
    const struct zinf_config *c = s->config;
    const bool layers = c->pipeline_range_layers > 0;
    const char *key = layers ? "zinf.pipeline_range_layers" : "zinf.pipeline_ranges";
    if (!has_backward(s) || (!layers && c->pipeline_ranges < 2))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s is %lld, but there is no pipeline: ranges of layers are of its ranks; set "
                     "zinf.mesh.pipe (--pipeline-parallel) to 2 or more, or leave out %s",
                     key, (long long)(layers ? c->pipeline_range_layers : c->pipeline_ranges), key);
}

/* As Megatron-LM counts, where a number of blocks is given: the embedding and the head are none. */
static int count_ranges(const struct setup *s, struct deal *d)
{
    const struct zinf_config *c = s->config;
    const int64_t each = c->pipeline_range_layers;
    const int64_t blocks = d->n_layers > 2 ? (int64_t)d->n_layers - 2 : 0;
    d->n_ranges = d->n_ranks * (uint32_t)c->pipeline_ranges;
    if (!each)
        return 0;
    if (c->pipeline_ranges > 1)
        return zinf_fail(
            -EINVAL,
            "zinf.pipeline_ranges is %lld and zinf.pipeline_range_layers is %lld: each "
            "of them says how many ranges of layers a rank has; leave out one",
            (long long)c->pipeline_ranges, (long long)each);
    if (!blocks || blocks % (each * d->n_ranks))
        return zinf_fail(-EINVAL,
                         "zinf.pipeline_range_layers is %lld, but the model's %lld blocks are not "
                         "%u ranks' ranges of so many blocks: use a divisor of blocks / ranks",
                         (long long)each, (long long)blocks, d->n_ranks);
    d->n_ranges = (uint32_t)(blocks / each);
    return 0;
}

int setup_cut_stages(struct setup *s)
{
    const uint32_t n = s->stages->n_stages;
    struct deal d = {.n_ranks = pipe_axis(s)->world};
    if (!is_piped(s))
        return check_alone(s);
    d.first = calloc(n + 1, sizeof *d.first);
    d.cost = calloc(3 * (size_t)n + 3, sizeof *d.cost);
    d.bytes = d.cost + n + 1;
    d.live_bytes = d.bytes + n + 1;
    int code = d.first && d.cost ? 0 : zinf_fail(-ENOMEM, "no memory for %u stages", n);
    if (!code) {
        d.n_layers = zinf_model_layers(s->model, d.first);
        code = count_ranges(s, &d);
    }
    d.ends = code ? NULL : calloc(d.n_ranges, sizeof *d.ends);
    if (!code)
        code = d.ends ? deal_layers(s, &d) : zinf_fail(-ENOMEM, "no memory for %u stages", n);
    for (uint32_t k = 0; !code && k < d.n_ranges; k++)
        s->own_layers += rank_of(&d, k) == pipe_axis(s)->rank ? d.ends[k] - first_stage(&d, k) : 0;
    for (uint32_t k = 0; !code && k < d.n_ranges; k++)
        d.ends[k] = d.first[d.ends[k]];
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

/* Two ranks end what they have in common together, so all come to it in one order: between the last
 * rank and the first one first. */
static void close_neighbours(struct setup *s)
{
    const struct zinf_axis *pipe = pipe_axis(s);
    const bool first = !pipe->rank, last = pipe->rank + 1 == pipe->world;
    if (first || last) {
        zinf_net_close(s->borders[last]);
        s->borders[last] = NULL;
    }
    zinf_net_close(s->borders[1]);
    zinf_net_close(s->borders[0]);
}

void setup_free_pipe(struct setup *s)
{
    if (is_piped(s) && s->savers.net != s->mesh.all)
        zinf_net_close(s->savers.net);
    close_neighbours(s);
    zinf_layout_fini(&s->all_units);
    for (uint32_t i = 0; s->shared && i <= s->n_shared; i++)
        free(s->shared[i].ranks);
    free(s->shared);
    free(s->owners);
}
