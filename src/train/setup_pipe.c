/*
 * setup_pipe: ranks that have stages of the model one after the other (zinf.mesh.pipe). Layers
 * are dealt to the ranks (setup_deal.c), in one range or more for each (zinf.pipeline_ranges); a
 * rank's graph is that of its stages, so that plan, ledger and programs know of nothing else. How
 * layers are dealt changes no result.
 */
#include "train/plan/plan.h"
#include "train/plan/lines.h"
#include "train/setup_deal.h"
#include "train/setup_rates.h"

#include <stdlib.h>

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
int setup_find_neighbours(const struct zinf_axis *axis, struct zinf_net *nets[2])
{
    int code = 0;
    for (uint32_t odd = 0; !code && odd < 2 && !zinf_net_is_described(axis->net); odd++) {
        const uint32_t pair = (axis->rank + odd) / 2, first = 2 * pair - odd;
        const bool alone = odd > axis->rank || first + 1 >= axis->world;
        code = zinf_net_split(axis->net, alone ? ZINF_NET_NO_COLOUR : pair, axis->rank,
                              &nets[axis->rank == first]);
    }
    return code;
}

static int find_neighbours(struct setup *s)
{
    const struct zinf_axis *pipe = pipe_axis(s);
    int code = setup_find_neighbours(pipe, s->borders);
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

/* Sums go from rank to rank once. */
static int check_ranks(const struct setup *s, const struct deal *d,
                       const struct shared_unit *shared)
{
    if (!deal_comes_again(shared->ranks, shared->n))
        return 0;
    return zinf_fail(-ENOTSUP,
                     "zinf.pipeline_ranges is %u, but layers in several ranges of each rank use "
                     "%s: set the key to 1",
                     d->n_ranges / d->n_ranks, s->stages->units[shared->unit].name);
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
        shared->n = deal_ranks_of(s, d, u, shared->ranks);
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
    d.cost = calloc((1 + 2 * ROOMS) * ((size_t)n + 1), sizeof *d.cost);
    for (int i = 0; i < ROOMS && d.cost; i++) {
        d.rooms[i].bytes = d.cost + (size_t)(1 + 2 * i) * (n + 1);
        d.rooms[i].live_bytes = d.rooms[i].bytes + n + 1;
    }
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
