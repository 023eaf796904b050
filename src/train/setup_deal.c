/*
 * setup_deal: layers, as people count them, are divided into ranges: as the configuration says, or
 * by what layers take of time and of memory. What is counted here is about what plans take, which
 * are made of the ranges later.
 */
#include "train/setup_deal.h"
#include "train/plan/plan.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>

#define UNDER_WAY 7         /* arrays as large as a sub-group's gradient, while it is updated */
#define LOADING (16u << 20) /* bytes of files, about, beside units that are loaded */

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

/* What of a unit is in a memory as configured. Of a tree of n contributions to a gradient that come
 * one by one, log2(n) sums are kept; of parameters in RAM whose state is on a drive, two
 * generations. */
static double bytes_in(const struct setup *s, const struct zinf_unit *unit, enum zinf_tier tier)
{
    const double n = (double)unit->elems, ranks = data_axis(s)->world;
    const double sums = s->n_micro > 3 ? floor(log2((double)s->n_micro)) : 1;
    const uint64_t state = zinf_state_bytes(s->form, setup_n_moments(s), unit->elems);
    const bool trained = unit->trained && trains(s);
    const bool pair = trained && tier == ZINF_TIER_HOST && s->state_tier == ZINF_TIER_DRIVE;
    double bytes = 0;
    if (s->param_tier == tier)
        bytes += n * (double)zinf_dtype_bytes(s->dtype) / (s->sliced ? ranks : 1) *
                 (pair ? s->generations : 1);
    if (!trained)
        return bytes;
    if (s->grad_tier == tier)
        bytes += n * sizeof(float) * sums / ranks;
    if (s->state_tier == tier)
        bytes += (double)state / ranks;
    return bytes;
}

static void weigh_unit(const struct setup *s, struct deal *d, uint32_t layer, uint32_t unit)
{
    const struct zinf_unit *u = &s->stages->units[unit];
    d->rooms[DEVICE_ROOM].bytes[layer] += bytes_in(s, u, ZINF_TIER_DEVICE);
    d->rooms[HOST_ROOM].bytes[layer] += bytes_in(s, u, ZINF_TIER_HOST);
}

static void weigh_memory(const struct setup *s, struct deal *d, const struct walk *walk, uint32_t l)
{
    const struct zinf_graph *g = s->stages;
    struct room *device = &d->rooms[DEVICE_ROOM], *host = &d->rooms[HOST_ROOM];
    struct room *common = &d->rooms[COMMON_ROOM];
    for (uint32_t i = d->first[l]; i < d->first[l + 1]; i++) {
        const struct zinf_stage *stage = &g->stages[i];
        for (uint32_t u = 0; u < stage->units.n; u++)
            weigh_unit(s, d, l, stage->units.at[u]);
        for (uint32_t u = 0; u < stage->sweep.n; u++)
            weigh_unit(s, d, l, stage->sweep.at[u]);
        for (uint32_t v = 0; v < stage->out.n && s->x_tier != ZINF_TIER_DRIVE; v++)
            (s->x_tier == ZINF_TIER_DEVICE ? device : host)->live_bytes[l] +=
                (double)walk->values[stage->out.at[v]].bytes;
        device->live_bytes[l] += s->recompute == RECOMPUTE_NEVER ? (double)walk->stages[i].kept : 0;
    }
    common->bytes[l] = device->bytes[l] + host->bytes[l];
    common->live_bytes[l] = device->live_bytes[l] + host->live_bytes[l];
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

/* Of RAM, about, what is not of layers: blocks of files that are written, and the largest unit on
 * its way: its gradient and the state of its sub-groups under way, or all of it that is loaded. */
static double host_reserve(const struct setup *s)
{
    const uint64_t group = (uint64_t)s->config->sub_group_size;
    double trained = 0, any = 0;
    for (uint32_t u = 0; u < s->stages->n_units; u++) {
        const uint64_t elems = s->stages->units[u].elems;
        any = fmax(any, (double)elems * sizeof(float));
        if (s->stages->units[u].trained && trains(s))
            trained = fmax(trained, (double)(elems < group ? elems : group) * sizeof(float));
    }
    return 2 * (double)ZINF_TENSORS_WRITER_BYTES + fmax(UNDER_WAY * trained, 2 * any + LOADING);
}

/* A twentieth of what is left of each memory is for the rest. All ranks have the least of any. */
static int find_room(const struct setup *s, struct deal *d)
{
    const bool common = s->device->kind == ZINF_DEVICE_HOST;
    const uint64_t ram = setup_ram_bytes(s), device = setup_device_budget(s);
    const uint64_t host = s->config->host_memory / setup_seats(s);
    int64_t most[ROOMS] = {[DEVICE_ROOM] = -(int64_t)(device ? device : ram / 10 * 7),
                           [HOST_ROOM] = -(int64_t)(host ? host : ram),
                           [COMMON_ROOM] = common ? -(int64_t)ram : 0};
    const bool alone = zinf_net_is_described(s->mesh.all);
    const int code = alone ? 0 : zinf_net_max(s->mesh.all, most, ROOMS);
    for (int i = 0; i < ROOMS; i++) {
        const double left = -(double)most[i] - (i == DEVICE_ROOM ? 0 : host_reserve(s));
        d->rooms[i].limit = most[i] ? fmax(0.95 * left, 1) * d->n_ranks / d->n_ranges : 0;
    }
    d->n_micro = has_backward(s) ? s->n_micro : 1;
    d->overlaps = s->config->pipeline_overlap;
    return code;
}

static int measure_all(const struct setup *s, struct deal *d)
{
    const int code = find_room(s, d);
    return code ? code : measure(s, d);
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
static double bytes_of(const struct deal *d, int room, uint32_t range, uint32_t layer)
{
    const uint32_t to_last = d->n_ranks - rank_of(d, range);
    const uint32_t most = d->n_ranges > d->n_ranks ? 2 * d->n_ranks
                          : d->overlaps            ? 2 * to_last
                                                   : to_last;
    const double live = d->n_micro < (int64_t)most ? (double)d->n_micro : most;
    return d->rooms[room].bytes[layer] + live * d->rooms[room].live_bytes[layer];
}

/* Whether a range that has taken so much has room for one more layer, which is added then. */
static bool take_layer(const struct deal *d, uint32_t range, uint32_t layer, bool anyway,
                       double taken[ROOMS])
{
    bool fits = true;
    for (int i = 0; i < ROOMS; i++)
        fits &=
            d->rooms[i].limit <= 0 || taken[i] + bytes_of(d, i, range, layer) <= d->rooms[i].limit;
    for (int i = 0; (fits || anyway) && i < ROOMS; i++)
        taken[i] += bytes_of(d, i, range, layer);
    return fits || anyway;
}

/* Whether every range can have at least one layer and none more than `most`; ends are set so.
 * Ranges take as much as they can, but leave a layer to each that follows. */
static bool can_deal(struct deal *d, double most)
{
    uint32_t l = 0;
    for (uint32_t r = 0; r < d->n_ranges; r++) {
        double sum = 0, taken[ROOMS] = {0};
        const uint32_t behind = d->n_ranges - 1 - r, begin = l;
        while (l < d->n_layers - behind && (l == begin || sum + d->cost[l] <= most) &&
               take_layer(d, r, l, l == begin, taken))
            sum += d->cost[l++];
        if (sum > most)
            return false;
        d->ends[r] = l;
    }
    return l == d->n_layers;
}

static void log_ranges(const struct deal *d)
{
    char device[16], host[16];
    for (uint32_t r = 0, l = 0; r < d->n_ranges; r++) {
        double bytes[ROOMS] = {0};
        const uint32_t first = l;
        for (; l < d->ends[r]; l++)
            for (int i = 0; i < ROOMS; i++)
                bytes[i] += bytes_of(d, i, r, l);
        zinf_size_format(device, sizeof device, (uint64_t)bytes[DEVICE_ROOM]);
        zinf_size_format(host, sizeof host, (uint64_t)bytes[HOST_ROOM]);
        zinf_log(ZINF_LOG_DEBUG,
                 "pipeline: layers %u to %u on rank %u take about %s of the device and %s of RAM",
                 first, l - 1, rank_of(d, r), device, host);
    }
}

/* The rank of the largest range, and what it takes. */
static void warn_of(const struct deal *d, int room, double limit)
{
    static const char *const names[ROOMS] = {"device memory (zinf.device_memory)",
                                             "RAM (zinf.host_memory)",
                                             "RAM, of which the device's memory is a part"};
    char need[16], have[16];
    double most = 0;
    uint32_t at = 0;
    for (uint32_t r = 0, l = 0; r < d->n_ranges; r++) {
        double bytes = 0;
        for (; l < d->ends[r]; l++)
            bytes += bytes_of(d, room, r, l);
        at = bytes > most ? r : at;
        most = bytes > most ? bytes : most;
    }
    zinf_size_format(need, sizeof need, (uint64_t)most);
    zinf_size_format(have, sizeof have, (uint64_t)limit);
    if (most > limit)
        zinf_log(ZINF_LOG_WARN,
                 "no cut of %u layers into %u ranges seems to fit: a range of rank %u needs about "
                 "%s of %s, and has %s; use more ranks (--pipeline-parallel), more ranks along "
                 "zinf.mesh.data with stage 3, or nvme for more of it (offload_param.device, "
                 "offload_optimizer.device)",
                 d->n_layers, d->n_ranges, rank_of(d, at), need, names[room], have);
}

/* The largest sum becomes as small as it can be. Where memory is too small for any cut, the one of
 * least time is taken, and the plan says what is missing. */
static void balance(struct deal *d, bool says)
{
    double low = 0, high = 0, limits[ROOMS];
    for (uint32_t l = 0; l < d->n_layers; l++)
        high += d->cost[l];
    high += high > 0 ? high * 1e-9 : 1;
    const bool fits = can_deal(d, high);
    for (int i = 0; i < ROOMS; i++) {
        limits[i] = d->rooms[i].limit;
        d->rooms[i].limit = fits ? limits[i] : 0;
    }
    for (int i = 0; i < 60; i++) {
        const double middle = low + (high - low) / 2;
        if (can_deal(d, middle))
            high = middle;
        else
            low = middle;
    }
    can_deal(d, high);
    if (says)
        log_ranges(d);
    for (int i = 0; !fits && says && i < ROOMS; i++)
        if (limits[i] > 0)
            warn_of(d, i, limits[i]);
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

/* ---- units that several ranks have ---- */

static bool has_unit(const struct zinf_stage *stage, uint32_t unit)
{
    bool has = false;
    for (uint32_t k = 0; k < stage->units.n; k++)
        has |= stage->units.at[k] == unit;
    for (uint32_t k = 0; k < stage->sweep.n; k++)
        has |= stage->sweep.at[k] == unit;
    return has;
}

uint32_t deal_ranks_of(const struct setup *s, const struct deal *d, uint32_t unit, uint32_t *ranks)
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

bool deal_comes_again(const uint32_t *ranks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (ranks[i] == ranks[k])
                return true;
    return false;
}

/* Whether any trained unit does. The ends are layers. */
static int find_again(const struct setup *s, const struct deal *d, bool *again)
{
    struct deal of_stages = *d;
    uint32_t *ends = calloc(2 * (size_t)d->n_ranges, sizeof *ends), *ranks = ends + d->n_ranges;
    *again = false;
    if (!ends)
        return zinf_fail(-ENOMEM, "no memory for %u ranges", d->n_ranges);
    for (uint32_t k = 0; k < d->n_ranges; k++)
        ends[k] = d->first[d->ends[k]];
    of_stages.ends = ends;
    for (uint32_t u = 0; !*again && u < s->n_units; u++)
        *again = unit_trains_anywhere(s, u) &&
                 deal_comes_again(ranks, deal_ranks_of(s, &of_stages, u, ranks));
    free(ends);
    return 0;
}

/* The first `middle` layers are dealt to the ranks' first ranges, the others to their second. */
static void deal_halves(struct deal *d, uint32_t middle)
{
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t begin = half ? middle : 0;
        struct deal part = *d;
        part.n_ranges = d->n_ranks;
        part.n_layers = half ? d->n_layers - middle : middle;
        part.ends += half * d->n_ranks;
        part.cost += begin;
        for (int i = 0; i < ROOMS; i++) {
            part.rooms[i].bytes += begin;
            part.rooms[i].live_bytes += begin;
        }
        balance(&part, false);
        for (uint32_t r = 0; r < part.n_ranges; r++)
            part.ends[r] += begin;
    }
}

/* An encoder and a decoder, each of which has a tensor that all of its layers use, are each dealt
 * once around the ranks. Where that does not help, the cut is refused. */
static int deal_around(const struct setup *s, struct deal *d)
{
    bool again;
    int code = find_again(s, d, &again);
    if (code || !again || d->n_ranges != 2 * d->n_ranks)
        return code;
    for (uint32_t m = d->n_ranks; !code && again && m + d->n_ranks <= d->n_layers; m++) {
        deal_halves(d, m);
        code = find_again(s, d, &again);
    }
    if (again)
        balance(d, false);
    return code;
}

int deal_layers(const struct setup *s, struct deal *d)
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
    if (!code && !(parts && *parts)) {
        balance(d, !pipe_axis(s)->rank);
        code = deal_around(s, d);
    }
    if (code || zinf_net_is_described(s->mesh.all))
        return code;
    return zinf_net_broadcast(s->mesh.all, 0, d->ends, d->n_ranges * sizeof *d->ends);
}
