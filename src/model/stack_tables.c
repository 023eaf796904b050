/* stack_tables: what a stack has beside its layers: tables that layers share, a convolution, a
 * projection behind the lookup; and the first row of a table. */
#include "model/stack_parts.h"

#include <math.h>
#include <stdio.h>

int stack_add_tensor(struct zinf_graph *graph, uint32_t unit, const struct stack_tensor *t,
                     float std)
{
    const bool vector = !t->cols;
    const struct zinf_tensor tensor = {
        .rank = vector ? 1 : 2,
        .rows = t->rows,
        .cols = vector ? 1 : t->cols,
        .decay = !vector,
        .init = t->init,
        .init_std = t->init == ZINF_INIT_NORMAL ? std : 0,
        .may_be_fresh = t->may_be_fresh,
    };
    struct zinf_piece piece = {.rank = tensor.rank,
                               .shape = {t->rows, t->cols},
                               .inner = t->inner,
                               .rows = {.rows = t->rows, .count = 1},
                               .plain_name = t->plain};
    snprintf(piece.name, sizeof piece.name, "%s", t->name);
    int number = (int)zinf_graph_add_tensor(graph, unit, &tensor);
    zinf_graph_add_piece(graph, unit, &piece);
    return number;
}

/* Adds a norm's weight and bias. Their numbers are -1 where they do not exist. */
static void add_norm(struct zinf_graph *graph, uint32_t unit, const char *w, const char *b,
                     const struct stack *k, struct norm_spec *norm)
{
    const uint64_t h = (uint64_t)k->d.hidden;
    *norm = k->d.attention.norm;
    norm->w = norm->b = -1;
    if (!w)
        return;
    norm->w = stack_add_tensor(graph, unit, &(struct stack_tensor){w, h, .init = ZINF_INIT_ONE}, 0);
    norm->b =
        stack_add_tensor(graph, unit, &(struct stack_tensor){b, h, .init = ZINF_INIT_ZERO}, 0);
}

/* ---- tables ---- */

static uint32_t add_distances(struct zinf_graph *graph, const struct stack *k)
{
    const uint64_t rows = (uint64_t)k->distance.n_buckets * (k->distance.both_ways ? 2 : 1);
    const struct zinf_tensor tensor = {
        .rank = 2,
        .rows = rows,
        .cols = (uint64_t)k->d.attention.n_heads,
        .init = ZINF_INIT_NORMAL,
        .init_std = k->distance.std,
    };
    struct zinf_piece piece = {
        .rank = 2, .shape = {tensor.rows, tensor.cols}, .rows = {.rows = rows, .count = 1}};
    uint32_t unit =
        zinf_graph_add_unit(graph, true, k->d.source ? "source_distances.0" : "distances.0");
    snprintf(piece.name, sizeof piece.name, "%s", k->distance.table);
    zinf_graph_add_tensor(graph, unit, &tensor);
    zinf_graph_add_piece(graph, unit, &piece);
    return unit;
}

/* The unit has the table and then the norm's tensors. */
static uint32_t add_relative(struct zinf_graph *graph, const struct stack *k)
{
    uint32_t unit = zinf_graph_add_unit(graph, true, "relative.0");
    const struct stack_tensor table = {k->relative.table, 2 * (uint64_t)k->relative.half,
                                       (uint64_t)k->d.hidden, .init = ZINF_INIT_NORMAL};
    struct norm_spec norm;
    stack_add_tensor(graph, unit, &table, k->d.init_std);
    add_norm(graph, unit, k->relative.norm_w, k->relative.norm_b, k, &norm);
    return unit;
}

uint32_t stack_add_table(struct zinf_graph *graph, const struct stack *k)
{
    return k->relative.half ? add_relative(graph, k) : add_distances(graph, k);
}

struct relative_spec stack_relative_spec(const struct stack *k)
{
    struct relative_spec s = {
        .half = k->relative.half,
        .starts = k->relative.starts,
        .queries = k->relative.queries,
        .keys = k->relative.keys,
        .unit = 1,
        .table = 0,
        .norm = k->d.attention.norm,
        .dropout = k->relative.dropout,
    };
    s.norm.w = k->relative.norm_w ? 1 : -1;
    s.norm.b = k->relative.norm_w ? 2 : -1;
    return s;
}

/* The published formula in fp32, as the models were trained with it. */
static int64_t bucket_of(int64_t n_buckets, int64_t max_distance, int64_t n)
{
    const int64_t exact = n_buckets / 2;
    if (n <= exact)
        return n;
    const float share =
        logf((float)n / (float)exact) / logf((float)((double)(max_distance - 1) / (double)exact));
    return exact + (int64_t)ceilf(share * (float)(exact - 1));
}

const int32_t *stack_relative_starts(struct zinf_graph *graph, int64_t n_buckets,
                                     int64_t max_distance)
{
    const int64_t half = n_buckets ? n_buckets : max_distance;
    int32_t *starts = zinf_graph_take(graph, (size_t)(half + 1) * sizeof *starts);
    int64_t next = 0;
    for (int64_t n = 0; starts && next <= half && n <= max_distance; n++)
        while (next <= half && (n_buckets ? bucket_of(n_buckets, max_distance, n) : n) >= next)
            starts[next++] = (int32_t)n;
    while (starts && next <= half)
        starts[next++] = INT32_MAX;
    return starts;
}

/* ---- stages ---- */

void stack_add_convolution(struct zinf_graph *graph, const struct stack *k, struct stack_shared *v,
                           uint32_t taken)
{
    const struct stack_convolution *c = &k->convolution;
    const uint64_t h = (uint64_t)k->d.hidden, width = (uint64_t)c->width;
    uint32_t unit = zinf_graph_add_unit(graph, true, "convolution.0");
    const struct stack_tensor w = {c->w, h, h * width, width, .init = ZINF_INIT_NORMAL};
    const struct stack_tensor b = {c->b, h, .init = ZINF_INIT_ZERO};
    struct convolution_spec spec = {
        .hidden = k->d.hidden,
        .width = c->width,
        .activation = c->activation,
        .w = stack_add_tensor(graph, unit, &w, k->d.init_std),
        .b = stack_add_tensor(graph, unit, &b, 0),
        .dropout = c->dropout,
        .site = k->d.first_site + 1,
    };
    add_norm(graph, unit, c->norm_w, c->norm_b, k, &spec.norm);
    uint32_t out = decoder_add_hidden(graph, &k->d, "convolved");
    uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_convolution, &spec, sizeof spec, "convolution");
    const uint32_t in[] = {v->x, taken, v->segments};
    for (int i = 0; i < 3; i++)
        zinf_stage_append(graph, stage, ZINF_STAGE_IN, in[i]);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    graph->stages[stage].carried = 1;
    v->x = out;
}

uint32_t stack_add_projection(struct zinf_graph *graph, const struct stack *k, uint32_t x)
{
    const struct decoder *d = &k->d;
    uint32_t unit = zinf_graph_add_unit(graph, true, "projection.0");
    const struct stack_tensor w = {k->projection, (uint64_t)d->hidden, (uint64_t)d->embedding,
                                   .init = ZINF_INIT_NORMAL};
    const struct project_spec spec = {.w = stack_add_tensor(graph, unit, &w, d->init_std), .b = -1};
    uint32_t out = decoder_add_hidden(graph, d, "projected");
    uint32_t stage =
        zinf_graph_add_stage(graph, &zinf_stage_project, &spec, sizeof spec, "projection");
    zinf_stage_append(graph, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(graph, stage, ZINF_STAGE_OUT, out);
    zinf_stage_append(graph, stage, ZINF_STAGE_UNITS, unit);
    return out;
}
