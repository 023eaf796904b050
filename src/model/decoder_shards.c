/*
 * decoder_shards: cuts a block's tensors shard by shard for tensor parallelism (shards.h), and
 * refuses decoders that cannot be cut yet.
 */
#include "model/decoder_shards.h"
#include "model/shards.h"

/* ---- what is not cut ---- */

/* The first thing that stages of shards cannot compute, or NULL. */
static const char *not_cut(const struct decoder *d)
{
    const struct attention_spec *a = &d->attention;
    const struct {
        bool is_there;
        const char *what;
    } list[] = {
        {a->latent.kv_rank && d->parallel, "latent attention in parallel blocks"},
        {d->join_tiles, "an optimizer that needs whole matrices"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].is_there)
            return list[i].what;
    return NULL;
}

static int check_divides(const struct decoder *d, const char *name, int64_t value)
{
    const int64_t n = d->shards.of;
    return value % n == 0 ? 0
                          : zinf_fail(-EINVAL,
                                      "zinf.tensor_parts %lld: %s, %lld, is not a multiple of it "
                                      "(%s)",
                                      (long long)n, name, (long long)value, d->what);
}

/* Whether the layer has the usual feed-forward part. */
static bool has_dense_part(const struct decoder *d, int64_t layer)
{
    return !decoder_has_experts(d, layer) || d->experts.beside_before;
}

/* Heads of keys are dealt to the parts, or, where there are fewer heads than parts, shared by
 * them. */
static int check_keys(const struct decoder *d, const char *what, int64_t heads)
{
    const int64_t n = d->shards.of;
    if (!(heads % n) || !(n % heads))
        return 0;
    return zinf_fail(-EINVAL,
                     "zinf.tensor_parts %lld: %lld %s can neither be dealt to the parts nor shared "
                     "by them evenly (%s)",
                     (long long)n, (long long)heads, what, d->what);
}

static int check_mixer(const struct decoder *d)
{
    const struct mixer_spec *m = &d->mixer;
    if (m->gates)
        return check_divides(d, "the number of a convolution's columns", m->value_dim);
    int code = check_divides(d, "the number of a mixer's heads", m->value_heads);
    return code ? code : check_keys(d, "key heads of a mixer", m->key_heads);
}

static int check_heads(const struct decoder *d, const struct attention_spec *a)
{
    int code = check_divides(d, "the number of heads", a->n_heads);
    return code ? code : check_keys(d, "key and value heads", a->n_kv_heads);
}

static int check_sizes(const struct decoder *d)
{
    int code = 0;
    for (int64_t i = 0; !code && i < d->n_layers; i++) {
        const struct decoder of = decoder_of_layer(d, i);
        code = check_heads(d, &of.attention);
        if (!code && has_dense_part(d, i))
            code = check_divides(d, "the feed-forward size", of.ffn);
    }
    if (!code && d->mixed)
        code = check_mixer(d);
    return code || !d->experts.n ? code : check_divides(d, "the size of an expert", d->experts.ffn);
}

int decoder_cut(struct zinf_graph *graph, const struct decoder *d)
{
    const char *what = not_cut(d);
    const int64_t n = d->shards.of;
    if (!n)
        return 0;
    if (what)
        return zinf_fail(-ENOTSUP,
                         "zinf.tensor_parts %lld: %s has %s, which is not cut into parts; remove "
                         "the key",
                         (long long)n, d->what, what);
    const uint32_t others = graph->shards.groups; /* of the encoder, or of another decoder */
    graph->shards = d->shards;
    graph->shards.groups = others;
    for (int64_t i = 0; i < d->n_layers; i++) {
        const struct decoder of = decoder_of_layer(d, i);
        graph->shards.groups |= shard_groups_of(&d->shards, of.attention.n_kv_heads).shards;
    }
    return check_sizes(d);
}

/* ---- tensors ---- */

static struct shards_source source_of(const struct decoder_tensors *tensors,
                                      enum decoder_place place)
{
    struct shards_source s = {NULL, 0};
    for (size_t i = 0; i < tensors->n; i++)
        if (tensors->list[i].place == place) {
            s.first = s.n ? s.first : &tensors->list[i];
            s.n++;
        }
    return s;
}

/* Numbers of rows of a file that has, for each key and value head, its queries, its key and its
 * value. */
struct grouped {
    uint64_t dim, queries, all; /* rows of a key, of the queries of a group, of the whole group */
};

static struct grouped grouped_of(const struct decoder *d)
{
    const struct attention_spec *a = &d->attention;
    const uint64_t dim = (uint64_t)a->head_dim, n = (uint64_t)(a->n_heads / a->n_kv_heads);
    return (struct grouped){dim, n * dim, (n + 2) * dim};
}

/* Maps `rows` rows of queries: those of several groups, or a part of one group's. */
static struct zinf_row_map grouped_queries(const struct decoder *d, uint64_t first, uint64_t rows)
{
    const struct grouped g = grouped_of(d);
    const uint64_t run = rows < g.queries ? rows : g.queries;
    return (struct zinf_row_map){.file_first = first / g.queries * g.all + first % g.queries,
                                 .file_stride = g.all,
                                 .flat_stride = run,
                                 .rows = run,
                                 .count = rows / run};
}

/* Maps the keys, or the values, of n groups. */
static struct zinf_row_map grouped_keys(const struct decoder *d, uint64_t group, uint64_t n,
                                        bool values)
{
    const struct grouped g = grouped_of(d);
    return (struct zinf_row_map){.file_first = group * g.all + g.queries + (values ? g.dim : 0),
                                 .file_stride = g.all,
                                 .flat_first = values ? n * g.dim : 0,
                                 .flat_stride = g.dim,
                                 .rows = g.dim,
                                 .count = n};
}

/* Adds the queries of a shard's heads and then their gates. The file has a head's queries and then
 * its gate. */
static void add_gated(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                      const struct decoder_tensors *tensors, const struct shards_source *s,
                      uint32_t shard)
{
    const uint64_t dim = (uint64_t)d->attention.head_dim;
    const uint64_t heads = (uint64_t)d->attention.n_heads / d->shards.of;
    for (uint64_t gate = 0; gate < 2; gate++)
        shards_add_rows(graph, unit, s, tensors,
                        (struct zinf_row_map){.file_first = (2 * shard * heads + gate) * dim,
                                              .file_stride = 2 * dim,
                                              .flat_first = gate * heads * dim,
                                              .flat_stride = dim,
                                              .rows = dim,
                                              .count = heads});
}

static int add_queries(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                       const struct decoder_tensors *tensors, const struct shards_source *s)
{
    const struct zinf_shards *c = &d->shards;
    const uint64_t heads = (uint64_t)d->attention.n_heads / c->of;
    const uint64_t rows = heads * (uint64_t)d->attention.head_dim;
    const bool gated = s->first->order == DECODER_GATED;
    int first = -1;
    for (uint32_t i = c->first; i < c->first + c->n; i++) {
        const int at = shards_add_tensor(graph, unit, s, i, gated ? 2 * rows : rows);
        first = first < 0 ? at : first;
        if (gated) {
            add_gated(graph, unit, d, tensors, s, i);
            continue;
        }
        shards_add_rows(graph, unit, s, tensors,
                        s->first->order == DECODER_GROUPS
                            ? grouped_queries(d, i * rows, rows)
                            : (struct zinf_row_map){.file_first = i * rows, .rows = rows});
    }
    return first;
}

/* How many of keys and values the source has: 2, 1 where keys are the values as well, or 0. */
static uint64_t count_kinds(const struct decoder *d, const struct shards_source *s)
{
    const struct attention_spec *a = &d->attention;
    const bool own = s->first->place == DECODER_QKV_W || s->first->place == DECODER_QKV_B;
    const uint64_t each = (uint64_t)(a->n_heads * a->head_dim);
    const uint64_t queries = own ? (a->gated ? 2 * each : each) : 0;
    return (shards_rows(s) - queries) / (uint64_t)(a->n_kv_heads * a->head_dim);
}

/* Adds a tensor for each group of shards that share key heads: its keys and then its values, where
 * these are not the keys. Both are the last rows of the source. Returns the first tensor's number,
 * or -1 if the source has neither. */
static int add_keys(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                    const struct decoder_tensors *tensors, const struct shards_source *s)
{
    const struct attention_spec *a = &d->attention;
    const struct shard_groups groups = shard_groups_of(&d->shards, a->n_kv_heads);
    const uint64_t rows = (uint64_t)(groups.heads * a->head_dim);
    const uint64_t all = (uint64_t)(a->n_kv_heads * a->head_dim);
    const uint64_t kinds = count_kinds(d, s), keys = shards_rows(s) - kinds * all;
    int first = -1;
    for (uint32_t g = groups.first; kinds && g < groups.first + groups.n; g++) {
        const int at = shards_add_tensor(graph, unit, s, g * groups.shards, kinds * rows);
        first = first < 0 ? at : first;
        if (g * groups.shards < d->shards.first)
            zinf_unit_count_elsewhere(graph, unit, (uint32_t)at);
        for (uint64_t value = 0; value < kinds; value++) {
            const struct zinf_row_map plain = {.file_first = keys + value * all + g * rows,
                                               .flat_first = value * rows,
                                               .rows = rows};
            const uint64_t n = (uint64_t)groups.heads;
            shards_add_rows(graph, unit, s, tensors,
                            s->first->order == DECODER_GROUPS ? grouped_keys(d, g * n, n, value)
                                                              : plain);
        }
    }
    return first;
}

static bool takes_turns(const struct decoder_tensor *t)
{
    return t->order == DECODER_ROWS_BY_TURNS || t->order == DECODER_COLUMNS_BY_TURNS;
}

/* Adds a shard's rows of gate and then its rows of up. In the file the two may alternate row by
 * row. */
static int add_up(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                  const struct decoder_tensors *tensors, const struct shards_source *s)
{
    const struct zinf_shards *c = &d->shards;
    const uint64_t kinds = d->mlp.gated ? 2 : 1, ffn = shards_rows(s) / kinds, rows = ffn / c->of;
    int first = -1;
    for (uint32_t i = c->first; i < c->first + c->n; i++) {
        const int at = shards_add_tensor(graph, unit, s, i, kinds * rows);
        first = first < 0 ? at : first;
        for (uint64_t kind = 0; kind < kinds; kind++)
            shards_add_rows(graph, unit, s, tensors,
                            takes_turns(s->first)
                                ? (struct zinf_row_map){.file_first = 2 * i * rows + kind,
                                                        .file_stride = 2,
                                                        .flat_first = kind * rows,
                                                        .flat_stride = 1,
                                                        .rows = 1,
                                                        .count = rows}
                                : (struct zinf_row_map){.file_first = kind * ffn + i * rows,
                                                        .flat_first = kind * rows,
                                                        .rows = rows});
    }
    return first;
}

/* Adds a matrix whose inputs are cut. A shard has some inputs as rows, [in][out], so the file's
 * order is columns where it was rows, and the other way round. */
static int add_depth(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                     const struct decoder_tensors *tensors, const struct shards_source *s)
{
    const struct zinf_shards *c = &d->shards;
    const uint64_t rows = s->first->cols / c->of;
    const struct decoder_tensor turned = {
        .place = s->first->place,
        .name = s->first->name,
        .rows = s->first->cols,
        .cols = s->first->rows,
        .order = s->first->order == DECODER_ROWS ? DECODER_COLUMNS : DECODER_ROWS,
        .init = s->first->init,
        .std = s->first->std,
    };
    int first = -1;
    for (uint32_t i = c->first; i < c->first + c->n; i++) {
        const int at = shards_add_tensor(graph, unit, &(struct shards_source){&turned, 1}, i, rows);
        first = first < 0 ? at : first;
        zinf_unit_turn(graph, unit, (uint32_t)at);
        decoder_add_piece(graph, unit, &turned, tensors,
                          (struct zinf_row_map){.file_first = i * rows, .rows = rows, .count = 1});
    }
    return first;
}

/* Adds a matrix whose rows are by head, with as many heads in each shard. */
static int add_heads(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                     const struct decoder_tensors *tensors, const struct shards_source *s)
{
    const struct zinf_shards *c = &d->shards;
    const uint64_t rows = shards_rows(s) / c->of;
    int first = -1;
    for (uint32_t i = c->first; i < c->first + c->n; i++) {
        const int at = shards_add_tensor(graph, unit, s, i, rows);
        first = first < 0 ? at : first;
        shards_add_rows(graph, unit, s, tensors,
                        (struct zinf_row_map){.file_first = i * rows, .rows = rows});
    }
    return first;
}

static int add_all(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                   const struct decoder_tensors *tensors, const struct shards_source *s)
{
    (void)d;
    return shards_add_whole(graph, unit, tensors, s);
}

/* Adds latent attention's first matrices, which are not cut, except queries that have no low rank:
 * these are tensors apart. */
static int add_latent(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                      const struct decoder_tensors *tensors, const struct shards_source *s,
                      int at[DECODER_PLACES])
{
    const struct shards_source queries = {s->first, 1}, others = {s->first + 1, s->n - 1};
    if (d->attention.latent.q_rank)
        return shards_add_whole(graph, unit, tensors, s);
    const int first = add_heads(graph, unit, d, tensors, &queries);
    at[DECODER_KV_W] = shards_add_whole(graph, unit, tensors, &others);
    return first;
}

/* Returns the number of the first tensor of a place. Keys and values beside queries also get a
 * number in `at`. */
static int add_place(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                     const struct decoder_tensors *tensors, enum decoder_place place,
                     int at[DECODER_PLACES])
{
    const struct shards_source s = source_of(tensors, place);
    const bool latent = d->attention.latent.kv_rank > 0;
    switch (place) {
    case DECODER_QKV_W:
    case DECODER_QKV_B:
        if (latent && place == DECODER_QKV_B)
            return shards_add_whole(graph, unit, tensors, &s);
        if (latent)
            return add_latent(graph, unit, d, tensors, &s, at);
        at[place] = add_queries(graph, unit, d, tensors, &s);
        at[place == DECODER_QKV_W ? DECODER_KV_W : DECODER_KV_B] =
            add_keys(graph, unit, d, tensors, &s);
        return at[place];
    case DECODER_CROSS_Q_W:
    case DECODER_CROSS_Q_B:
    case DECODER_LATENT_Q_W:
    case DECODER_LATENT_KV_W:
        return add_heads(graph, unit, d, tensors, &s);
    case DECODER_CROSS_KV_W:
    case DECODER_CROSS_KV_B:
        return add_keys(graph, unit, d, tensors, &s);
    case DECODER_UP_W:
    case DECODER_UP_B:
        return add_up(graph, unit, d, tensors, &s);
    case DECODER_MIXER_IN_W:
    case DECODER_MIXER_IN_B:
    case DECODER_MIXER_CONV_W:
    case DECODER_MIXER_CONV_B:
        return shards_add_mixed(graph, unit, d, tensors, &s, at);
    case DECODER_MIXER_A_LOG:
    case DECODER_MIXER_STEP_BIAS:
    case DECODER_MIXER_SKIP:
        return add_heads(graph, unit, d, tensors, &s);
    case DECODER_MIXER_NORM:
        return (mixer_norm_is_cut(&d->mixer, d->shards.of) ? add_heads : add_all)(graph, unit, d,
                                                                                  tensors, &s);
    case DECODER_PROJ_W:
    case DECODER_CROSS_PROJ_W:
    case DECODER_MIXER_OUT_W:
    case DECODER_DOWN_W:
        return add_depth(graph, unit, d, tensors, &s);
    default:
        return shards_add_whole(graph, unit, tensors, &s);
    }
}

static void add_shards(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                       const struct decoder_tensors *tensors, int at[DECODER_PLACES])
{
    for (int place = 0; place < DECODER_PLACES; place++)
        at[place] = -1;
    for (size_t i = 0; i < tensors->n; i++) {
        const enum decoder_place place = tensors->list[i].place;
        if (at[place] < 0)
            at[place] = add_place(graph, unit, d, tensors, place, at);
    }
}

void decoder_add_parts(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                       const struct decoder_tensors *tensors, int at[DECODER_PLACES])
{
    (d->shards.of ? add_shards : decoder_add_tensors)(graph, unit, d, tensors, at);
}
