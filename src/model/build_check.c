/*
 * build_check: sets the places of tensors, and checks that a graph is what graph.h promises. So a
 * mistake in a family is reported when the graph is built, and no step computes nonsense.
 */
#include "model/build_check.h"

#include <stdlib.h>

#define TENSOR_ALIGN 64 /* elements; a tensor begins on a cache line in any number type */
#define DECAY_ALIGN 256 /* elements; no block of 8-bit moments has both kinds */

/* Finds the place of the image of this tensor of the file if an earlier piece of the unit has the
 * same one: several tensors, or runs of rows, may be of one tensor of the file. */
static bool find_image(const struct zinf_unit *unit, const struct zinf_piece *wanted, uint64_t *at)
{
    for (uint32_t i = 0; i < unit->n_tensors; i++)
        for (uint32_t p = 0; p < unit->tensors[i].n_pieces; p++) {
            const struct zinf_piece *piece = &unit->tensors[i].pieces[p];
            if (piece == wanted)
                return false;
            if (unit->tensors[i].form == ZINF_FORM_PLAIN || strcmp(piece->name, wanted->name))
                continue;
            *at = piece->image_at;
            return true;
        }
    return false;
}

static void place_images(struct zinf_unit *unit)
{
    unit->image_bytes = 0;
    for (uint32_t i = 0; i < unit->n_tensors; i++) {
        const struct zinf_tensor *t = &unit->tensors[i];
        for (uint32_t p = 0; t->form != ZINF_FORM_PLAIN && p < t->n_pieces; p++) {
            struct zinf_piece *piece = &t->pieces[p];
            if (find_image(unit, piece, &piece->image_at))
                continue;
            piece->image_at = unit->image_bytes;
            unit->image_bytes += zinf_piece_quantized(t, piece).bytes;
        }
    }
}

void build_place_tensors(struct zinf_unit *unit, bool cut)
{
    const uint64_t align = cut ? ZINF_SUM_BLOCK : TENSOR_ALIGN;
    uint64_t at = 0;
    place_images(unit);
    for (int decay = 1; decay >= 0; decay--) {
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            struct zinf_tensor *t = &unit->tensors[i];
            t->elems = t->moved ? 0 : t->rows * t->cols;
            if (t->decay != (bool)decay || t->form != ZINF_FORM_PLAIN || t->moved)
                continue;
            t->offset = at;
            at = zinf_align_up(at + t->elems, align);
        }
        if (decay)
            at = unit->decay_elems = zinf_align_up(at, cut ? align : DECAY_ALIGN);
    }
    unit->elems = at;
}

/* ---- tensors ---- */

/* Rows and columns of a piece's tensor in the file, seen as [out][in]. */
static uint64_t file_rows(const struct zinf_piece *piece)
{
    return piece->shape[piece->transposed ? 1 : 0];
}

static uint64_t file_cols(const struct zinf_piece *piece)
{
    return piece->rank == 2 ? piece->shape[piece->transposed ? 0 : 1] : 1;
}

/* The number behind the last row of the runs. */
static uint64_t runs_end(uint64_t first, uint64_t stride, const struct zinf_row_map *map)
{
    return first + (map->count - 1) * stride + map->rows;
}

static int check_piece(const struct zinf_unit *unit, const struct zinf_tensor *tensor,
                       const struct zinf_piece *piece)
{
    const struct zinf_row_map *map = &piece->rows;
    bool shaped = (piece->rank ? piece->rank : 1) == tensor->rank &&
                  (piece->rank == 2 || !piece->transposed) && file_cols(piece) == tensor->cols;
    if (!shaped)
        return zinf_fail(-EINVAL, "unit %s: tensor %s does not have the shape of its place",
                         unit->name, piece->name);
    bool inside = map->rows && map->count &&
                  runs_end(map->file_first, map->file_stride, map) <= file_rows(piece) &&
                  runs_end(map->flat_first, map->flat_stride, map) <= tensor->rows;
    if (!inside)
        return zinf_fail(-EINVAL, "unit %s: the rows of tensor %s lie outside of its place",
                         unit->name, piece->name);
    return 0;
}

static int check_unit(const struct zinf_unit *unit)
{
    if (!unit->n_tensors)
        return zinf_fail(-EINVAL, "unit %s has no tensors", unit->name);
    for (uint32_t i = 0; i < unit->n_tensors; i++) {
        const struct zinf_tensor *t = &unit->tensors[i];
        uint64_t rows = 0;
        if (t->rank < 1 || t->rank > 2 || !t->rows || !t->cols || (t->rank == 1 && t->cols != 1))
            return zinf_fail(-EINVAL, "unit %s: tensor %u has no shape", unit->name, i);
        for (uint32_t p = 0; p < t->n_pieces; p++) {
            int code = check_piece(unit, t, &t->pieces[p]);
            if (code)
                return code;
            rows += t->pieces[p].rows.rows * t->pieces[p].rows.count;
        }
        if (rows != zinf_tensor_file_rows(t) && !t->moved)
            return zinf_fail(-EINVAL,
                             "unit %s: the file has %llu rows of tensor %u, which has %llu",
                             unit->name, (unsigned long long)rows, i, (unsigned long long)t->rows);
    }
    return 0;
}

/* ---- stages ---- */

/* What stages up to the current one have. */
struct met {
    bool *made;       /* [n_values]: it is an input or an earlier stage has made it */
    bool *needed;     /* [n_units]: a stage needs it */
    uint32_t n_units; /* how many units are needed, which is the number of the next one */
};

static int check_values(const struct zinf_graph *g, const struct zinf_stage *stage, struct met *met)
{
    if (!stage->in.n || !stage->out.n)
        return zinf_fail(-EINVAL, "stage %s has no values", stage->name);
    for (uint32_t i = 0; i < stage->in.n; i++) {
        const struct zinf_value *value = &g->values[stage->in.at[i]];
        uint32_t made = value->kind == ZINF_VALUE_REFERENCE ? value->of : stage->in.at[i];
        if (made >= g->n_values || !met->made[made])
            return zinf_fail(-EINVAL, "stage %s takes %s, which no stage before makes", stage->name,
                             value->name);
    }
    for (uint32_t i = 0; i < stage->out.n; i++) {
        if (met->made[stage->out.at[i]])
            return zinf_fail(-EINVAL, "stage %s makes %s, which is there already", stage->name,
                             g->values[stage->out.at[i]].name);
        met->made[stage->out.at[i]] = true;
    }
    return 0;
}

/* Units of a sweep that rows choose are of one stage alone, whose value says for all of them which
 * rows have chosen them. */
static int check_choice(const struct zinf_graph *g, const struct zinf_stage *stage,
                        const struct met *met)
{
    const struct zinf_choice *choice = &stage->choice;
    if (!choice->n)
        return 0;
    const struct zinf_value *of =
        choice->of < stage->in.n ? &g->values[stage->in.at[choice->of]] : NULL;
    if (!of || of->kind != ZINF_VALUE_ACTIVATION || of->element != ZINF_ELEMENT_F32 ||
        of->rows_of != g->values[stage->out.at[0]].rows_of || of->cols != stage->sweep.n ||
        choice->n > stage->sweep.n || of->leaves)
        return zinf_fail(-EINVAL, "stage %s has no value to choose %u of %u visits by", stage->name,
                         choice->n, stage->sweep.n);
    for (uint32_t i = 0; i < stage->sweep.n; i++)
        if (met->needed[stage->sweep.at[i]])
            return zinf_fail(-EINVAL, "stage %s chooses among units that another one has",
                             stage->name);
    return 0;
}

static int check_units(const struct zinf_graph *g, const struct zinf_stage *stage,
                       const struct zinf_ids *units, struct met *met)
{
    for (uint32_t i = 0; i < units->n; i++) {
        uint32_t u = units->at[i];
        if (met->needed[u])
            continue;
        if (u != met->n_units++)
            return zinf_fail(-EINVAL, "stage %s needs unit %s before those with smaller numbers",
                             stage->name, g->units[u].name);
        met->needed[u] = true;
    }
    return 0;
}

static int check_stages(const struct zinf_graph *g, struct met *met)
{
    int code = 0;
    for (uint32_t v = 0; v < g->n_values; v++)
        met->made[v] = g->values[v].kind == ZINF_VALUE_INPUT;
    for (uint32_t s = 0; !code && s < g->n_stages; s++) {
        const struct zinf_stage *stage = &g->stages[s];
        if (stage->ops->recomputes && stage->sweep.n)
            return zinf_fail(-EINVAL, "stage %s can be recomputed and has a sweep", stage->name);
        if ((code = check_values(g, stage, met)) || (code = check_choice(g, stage, met)) ||
            (code = check_units(g, stage, &stage->units, met)))
            return code;
        code = check_units(g, stage, &stage->sweep, met);
    }
    if (!code && met->n_units != g->n_units)
        code = zinf_fail(-EINVAL, "unit %s is in no stage", g->units[met->n_units].name);
    if (!code && !met->made[g->loss])
        code = zinf_fail(-EINVAL, "no stage makes the loss");
    return code;
}

static int check_ends(const struct zinf_graph *g)
{
    if (!g->n_stages || !g->n_units)
        return zinf_fail(-EINVAL, "the graph is empty");
    if (g->loss >= g->n_values || g->values[g->loss].kind != ZINF_VALUE_LOSS)
        return zinf_fail(-EINVAL, "the graph has no loss");
    if (g->targets >= g->n_values || g->values[g->targets].kind != ZINF_VALUE_INPUT)
        return zinf_fail(-EINVAL, "the graph has no targets");
    return 0;
}

int build_check(const struct zinf_graph *g)
{
    int code = check_ends(g);
    for (uint32_t u = 0; !code && u < g->n_units; u++)
        code = check_unit(&g->units[u]);
    if (code)
        return code;
    struct met met = {calloc(g->n_values, sizeof *met.made), calloc(g->n_units, sizeof *met.needed),
                      0};
    if (met.made && met.needed)
        code = check_stages(g, &met);
    else
        code = zinf_fail(-ENOMEM, "no memory to check a model's graph");
    free(met.made);
    free(met.needed);
    return code;
}
