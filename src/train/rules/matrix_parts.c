/*
 * matrix_parts: which matrices of the model's files a unit has. Most are one tensor, or a piece of
 * one. Where tensor parallel cuts a model (zinf_shards), a unit has each matrix in pieces of
 * several tensors: of some of its outputs, or, turned, of some of its inputs. Its update is that of
 * the whole, which the pieces are brought together for; the first of them stands for it.
 */
#include "train/rules/rules.h"
#include "train/setup_rates.h"

uint64_t rule_matrix_rows(const struct zinf_piece *piece)
{
    return piece->rows.rows * piece->rows.count;
}

static bool same_matrix(const struct zinf_piece *a, const struct zinf_piece *b)
{
    return a->slab == b->slab && !strcmp(a->name, b->name);
}

struct matrix_shape rule_matrix_shape(const struct zinf_tensor *t, const struct zinf_piece *piece)
{
    const uint64_t rows = rule_matrix_rows(piece);
    const uint64_t whole = t->joins ? piece->shape[piece->transposed ? 1 : 0] : rows;
    return (struct matrix_shape){.rows = t->turned ? t->cols : whole,
                                 .cols = t->turned ? whole : t->cols,
                                 .transposed = piece->transposed != t->turned,
                                 .in_parts = t->joins && (t->turned || rows != whole)};
}

/* ---- parts ---- */

bool rule_next_part(const struct zinf_unit *unit, uint32_t tensor, uint32_t piece,
                    struct matrix_part *part)
{
    const struct zinf_tensor *first = &unit->tensors[tensor];
    if (!part->n || !first->joins) {
        const bool is_first = !part->n;
        *part = (struct matrix_part){tensor, piece, part->n + 1};
        return is_first;
    }
    uint32_t k = part->piece + 1;
    for (uint32_t i = part->tensor; i < unit->n_tensors; i++, k = 0)
        for (; unit->tensors[i].joins && k < unit->tensors[i].n_pieces; k++)
            if (same_matrix(&first->pieces[piece], &unit->tensors[i].pieces[k])) {
                *part = (struct matrix_part){i, k, part->n + 1};
                return true;
            }
    return false;
}

bool rule_leads(const struct zinf_unit *unit, uint32_t tensor, uint32_t piece)
{
    const struct zinf_tensor *t = &unit->tensors[tensor];
    for (uint32_t i = 0; t->joins && i <= tensor; i++)
        for (uint32_t k = 0; unit->tensors[i].joins && k < unit->tensors[i].n_pieces; k++)
            if (same_matrix(&t->pieces[piece], &unit->tensors[i].pieces[k]))
                return i == tensor && k == piece;
    return true;
}

/* The last tensor that has a part of one of this tensor's matrices. */
static uint32_t last_sharing(const struct zinf_unit *unit, uint32_t tensor)
{
    uint32_t last = tensor;
    for (uint32_t k = 0; unit->tensors[tensor].joins && k < unit->tensors[tensor].n_pieces; k++) {
        struct matrix_part part = {tensor, k, 1};
        while (rule_next_part(unit, tensor, k, &part))
            last = part.tensor > last ? part.tensor : last;
    }
    return last;
}

uint32_t rule_run_end(const struct zinf_unit *unit, uint32_t tensor)
{
    uint32_t end = tensor + 1;
    for (uint32_t i = tensor; i < end; i++) {
        const uint32_t last = last_sharing(unit, i);
        end = last + 1 > end ? last + 1 : end;
    }
    return end;
}

/* ---- what it can be for ---- */

/* Whether the unit has all rows of a file's matrix of which this piece has some. */
static bool has_whole(const struct zinf_unit *unit, const struct zinf_piece *piece)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < unit->n_tensors; i++)
        for (uint32_t k = 0; unit->tensors[i].joins && k < unit->tensors[i].n_pieces; k++)
            if (same_matrix(piece, &unit->tensors[i].pieces[k]))
                rows += rule_matrix_rows(&unit->tensors[i].pieces[k]);
    return rows == piece->shape[piece->transposed ? 1 : 0];
}

bool rule_is_matrix(const struct zinf_unit *unit, const struct zinf_tensor *t)
{
    bool whole = t->rank == 2;
    for (uint32_t k = 0; k < t->n_pieces; k++) {
        const struct zinf_piece *p = &t->pieces[k];
        whole &= p->rank == 2 && !p->inner &&
                 (t->joins ? has_whole(unit, p)
                           : p->shape[p->transposed ? 1 : 0] == rule_matrix_rows(p));
    }
    return whole;
}

static int check_tensor(const struct zinf_unit *unit, const struct zinf_tensor *t, const char *type,
                        const char *key)
{
    if (rule_is_matrix(unit, t))
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: %s updates whole matrices, and %s is none here: give it another "
                     "optimizer",
                     key, type, t->n_pieces ? t->pieces[0].name : "a tensor");
}

/* As a shard has of a matrix of the file that is several here, one behind the other. */
static bool has_rows_apart(const struct zinf_tensor *t)
{
    bool has = false;
    for (uint32_t k = 1; t->joins && k < t->n_pieces; k++)
        for (uint32_t i = 0; i < k; i++)
            has |= same_matrix(&t->pieces[i], &t->pieces[k]);
    return has;
}

/* The parts of a matrix must lie behind each other among an optimizer's elements, and change alike:
 * so do the tensors from this one to `end`. */
static int check_run(const struct setup *s, uint32_t u, uint32_t tensor, uint32_t end,
                     const char *key)
{
    const struct zinf_unit *unit = &s->graph->units[u];
    bool alike = true;
    if (has_rows_apart(&unit->tensors[tensor]))
        return zinf_fail(-ENOTSUP,
                         "%s: each of zinf.tensor_parts has rows of %s from several places, which "
                         "cannot be updated as one matrix: give it AdamW by zinf.learning_rates, "
                         "or remove zinf.tensor_parts",
                         key, unit->tensors[tensor].pieces[0].name);
    for (uint32_t k = 0; k < unit->tensors[tensor].n_pieces;
         k++) /* or parts before are another's */
        alike &= rule_leads(unit, tensor, k);
    for (uint32_t i = tensor; i < end; i++) {
        const struct tensor_rate *a = &s->rates[u][tensor], *b = &s->rates[u][i];
        const bool moves = unit->tensors[i].decay && unit->tensors[i].elems;
        alike &=
            !moves || (unit->tensors[i].joins ? same_rate(a, b) : a->optimizer == b->optimizer);
    }
    if (alike)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: %s, which is cut into parts that are updated together, lies beside "
                     "tensors that have another optimizer or rate: give them the same, or remove "
                     "zinf.tensor_parts",
                     key, unit->tensors[tensor].pieces[0].name);
}

int rule_check_matrices(const struct setup *s, const char *key)
{
    int code = 0;
    for (uint32_t u = 0; u < s->n_units; u++) {
        const struct zinf_unit *unit = &s->graph->units[u];
        uint32_t end = 0; /* of the run that was checked last */
        for (uint32_t i = 0; !code && unit_trains(s, u) && i < unit->n_tensors; i++) {
            const struct update_rule *rule = setup_optimizer_of(s, u, i)->rule;
            if (rule->grain != GRAIN_MATRICES)
                continue;
            code = check_tensor(unit, &unit->tensors[i], rule->type, key);
            if (code || !s->rates || i < end)
                continue;
            end = rule_run_end(unit, i);
            code = check_run(s, u, i, end, key);
        }
    }
    return code;
}
