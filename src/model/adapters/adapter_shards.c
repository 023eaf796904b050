/*
 * adapter_shards: adapters of tensors that tensor parallel cuts. Of a module whose outputs are cut
 * all shards have one A, and each has its rows of B. Of one whose depth is cut each shard has its
 * columns of A, as rows of the transposed, and all have one B. What all have is one tensor of the
 * adapter's unit.
 */
#include "model/adapters/adapter_attach.h"

#include <math.h>
#include <stdio.h>

/* From the dropout of a shard's part of a module to that of the next one's. */
#define SHARD_SITES ((uint32_t)1 << 16)

/* Every rank has all of a head of classes, which each adapter of a classifier names. */
static bool saves_more_than_heads(const struct adapter_choice *choice)
{
    const cJSON *item;
    bool more = false;
    cJSON_ArrayForEach(item, choice->saved.list)
    {
        more = more || !adapter_is_head(item->valuestring);
    }
    return more;
}

const char *adapter_not_cut(const struct adapter_choice *choice)
{
    return choice->has_magnitude               ? "adapters with magnitudes (use_dora)"
           : choice->bias != ADAPTER_BIAS_NONE ? "biases beside adapters (bias)"
           : saves_more_than_heads(choice)     ? "modules that are trained whole (modules_to_save)"
           : choice->parameters.list           ? "adapters of all experts (target_parameters)"
                                               : NULL;
}

/* A shard's part of a module. */
struct part {
    const struct zinf_tensor *weight;
    uint32_t unit, tensor;
    uint64_t first, rows; /* of the weight's tensor */
    uint64_t in, out;     /* of the whole module */
    uint64_t rank;
    bool in_order; /* as in zinf_piece */
    const char *path;
};

static bool is_same_file(const struct zinf_piece *a, const struct zinf_piece *b)
{
    return !strcmp(a->name, b->name);
}

static struct part part_of(const struct attaching *at, uint32_t unit, uint32_t tensor,
                           uint32_t piece)
{
    const struct zinf_tensor *t = &at->graph->units[unit].tensors[tensor];
    const struct zinf_piece *p = &t->pieces[piece];
    const uint64_t whole = p->shape[p->transposed ? 1 : 0];
    struct part part = {.weight = t,
                        .unit = unit,
                        .tensor = tensor,
                        .first = p->rows.flat_first,
                        .in_order = p->in_order};
    for (uint32_t i = 0; i < t->n_pieces; i++)
        if (is_same_file(p, &t->pieces[i]))
            part.rows += t->pieces[i].rows.rows * t->pieces[i].rows.count;
    part.in = t->turned ? whole : t->cols;
    part.out = t->turned ? t->cols : whole;
    return part;
}

static void name_piece(const struct part *part, const char *which, struct zinf_piece *piece)
{
    snprintf(piece->name, sizeof piece->name, ADAPTER_KEY_PREFIX "%.*s%s",
             (int)(sizeof piece->name - 40), part->path, which);
}

/* The module's part that came before this one; NULL: this is the first. */
static const struct zinf_adapted *find_before(const struct attaching *at, const struct part *part)
{
    const struct zinf_unit *u = &at->graph->units[part->unit];
    struct zinf_piece a;
    name_piece(part, ".lora_A.weight", &a);
    for (uint32_t i = u->n_adapted; i-- > 0;) {
        const struct zinf_adapted *e = &at->graph->adapted[u->first_adapted + i];
        if (is_same_file(&a, &at->graph->units[e->adapter].tensors[e->a].pieces[0]))
            return e;
    }
    return NULL;
}

/* The tensor is that shard's alone. A factor has its rows as the module has them, whatever is
 * beside the module in the weight's tensor. */
static void mark_own(struct attaching *at, const struct part *part, uint32_t number)
{
    const uint32_t home = companion_of(&at->second, part->unit);
    const struct zinf_tensor *weight = &at->graph->units[part->unit].tensors[part->tensor];
    struct zinf_tensor *own = &at->graph->units[home].tensors[number];
    own->cut = true;
    own->joins = part->in_order;
    own->shard = weight->shard;
    own->counted_elsewhere = weight->counted_elsewhere;
}

/* A factor's rows of the module: all, or those of the shard's rows of the weight. */
static void add_rows(struct attaching *at, const struct part *part, struct zinf_piece *piece,
                     bool own)
{
    const uint32_t home = companion_of(&at->second, part->unit);
    const struct zinf_tensor *t = &at->graph->units[part->unit].tensors[part->tensor];
    const struct zinf_piece *first = NULL;
    piece->plain_name = true;
    piece->rank = 2;
    for (uint32_t i = 0; own && i < t->n_pieces; i++) {
        if (t->pieces[i].rows.flat_first == part->first)
            first = &t->pieces[i];
        if (!first || !is_same_file(first, &t->pieces[i]))
            continue;
        piece->rows = t->pieces[i].rows;
        piece->rows.flat_first -= part->first;
        zinf_graph_add_piece(at->graph, home, piece);
    }
    if (!own) {
        piece->rows = (struct zinf_row_map){.rows = piece->shape[0], .count = 1};
        zinf_graph_add_piece(at->graph, home, piece);
    }
}

/* [rank][in], or of a depth that is cut this shard's rows of [in][rank], which begin as the file's
 * [rank][in] does. */
static uint32_t add_a(struct attaching *at, const struct part *part)
{
    const bool turned = part->weight->turned;
    struct zinf_piece piece = {.shape = {part->rank, part->in}, .transposed = turned};
    const uint32_t number =
        turned ? attach_add_a(at, part->unit, part->rows, part->rank, (int64_t)part->rank)
               : attach_add_a(at, part->unit, part->rank, part->in, (int64_t)part->rank);
    const uint32_t home = companion_of(&at->second, part->unit);
    struct zinf_tensor *t = &at->graph->units[home].tensors[number];
    if (turned && !at->choice->gaussian)
        t->init_std = 1.0f / sqrtf((float)part->in);
    t->turned = turned;
    name_piece(part, ".lora_A.weight", &piece);
    if (turned)
        mark_own(at, part, number);
    add_rows(at, part, &piece, turned);
    return number;
}

static uint32_t add_b(struct attaching *at, const struct part *part)
{
    const bool own = !part->weight->turned;
    struct zinf_piece piece = {.shape = {part->out, part->rank}};
    const uint32_t number = attach_add_b(at, part->unit, own ? part->rows : part->out, part->rank);
    name_piece(part, ".lora_B.weight", &piece);
    if (own)
        mark_own(at, part, number);
    add_rows(at, part, &piece, own);
    return number;
}

static int check_part(const struct attaching *at, const struct part *part,
                      const struct zinf_adapted *before)
{
    const uint64_t side = part->out < part->in ? part->out : part->in;
    const struct zinf_tensor *tensors = at->graph->units[part->unit].tensors;
    if (part->rank > side)
        return zinf_fail(-EINVAL,
                         "%s: rank %llu is above the smaller side of %s, which is %llu: take a "
                         "smaller r, or one in rank_pattern",
                         at->choice->what, (unsigned long long)part->rank, part->path,
                         (unsigned long long)side);
    /* Parts of one kind of tensor come in the order of shards. */
    if (before && tensors[before->tensor].shard >= part->weight->shard)
        return zinf_fail(-ENOTSUP,
                         "%s: %s has queries, keys and values in one matrix, which is cut into "
                         "parts: it cannot be adapted beside zinf.tensor_parts; name other "
                         "target_modules",
                         at->choice->what, part->path);
    return 0;
}

int attach_shard(struct attaching *at, uint32_t unit, uint32_t tensor, uint32_t piece,
                 const char *path, const struct adapter_module *how)
{
    struct part part = part_of(at, unit, tensor, piece);
    part.path = path;
    part.rank = (uint64_t)how->rank;
    const struct zinf_adapted *before = find_before(at, &part);
    const bool turned = part.weight->turned;
    const uint32_t shard = part.weight->shard, apart = turned ? SHARD_SITES : 0;
    int code = check_part(at, &part, before);
    if (code)
        return code;
    struct zinf_adapted adapted = {
        .unit = unit,
        .tensor = tensor,
        .first_row = turned ? 0 : (uint32_t)part.first,
        .rows = (uint32_t)(turned ? part.out : part.rows),
        .adapter = companion_of(&at->second, unit),
        .rank = (uint32_t)part.rank,
        .scale = (float)how->scale,
        .dropout = (float)at->choice->dropout,
    };
    if (before) {
        const uint32_t first = at->graph->units[unit].tensors[before->tensor].shard;
        adapted.site = before->site + (shard - first) * apart;
    } else {
        adapted.site = ATTACH_FIRST_SITE + at->n_sites++ + shard * apart;
    }
    adapted.a = before && !turned ? before->a : add_a(at, &part);
    adapted.b = before && turned ? before->b : add_b(at, &part);
    return attach_note(at, &adapted);
}
