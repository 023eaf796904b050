/*
 * matrix_walk: the update of a segment, matrix by matrix, with the ranks that share some of them;
 * and what rules call of a matrix wherever its parts are.
 */
#include "train/rules/matrix_ranks.h"

int rule_matrix_gather(const struct matrix *x, float *whole, float *room, double *sums)
{
    struct matrix_part part = {0};
    if (x->updater != EVERY_RANK)
        return meeting_gather(x, whole);
    while (rule_next_part(x->unit, x->tensor, x->piece_number, &part)) {
        x->rule->fill(x, &part, x->in_parts ? room : whole, x->in_parts ? NULL : sums);
        const struct part_copy copy = rule_part_copy(x, &part, whole, room);
        if (x->in_parts)
            rule_copy_part(&copy);
    }
    return 0;
}

int rule_matrix_apply(const struct matrix *x, float *update, float *room, double rate, double decay)
{
    if (x->updater == EVERY_RANK)
        return rule_parts_apply(x, update, room, rate, decay);
    meeting_return(x, update, rate, decay);
    return 0;
}

/* ---- the walk ---- */

static struct matrix matrix_of(const struct rule_step *s, uint32_t tensor, uint32_t piece)
{
    const uint32_t u = s->setup->layout.groups[s->group].unit;
    const struct zinf_unit *unit = &s->setup->graph->units[u];
    const struct zinf_tensor *t = &unit->tensors[tensor];
    const struct tensor_rate *rate = &s->setup->rates[u][tensor];
    const struct matrix_shape shape = rule_matrix_shape(t, &t->pieces[piece]);
    struct matrix x = {.step = s,
                       .unit = unit,
                       .tensor = tensor,
                       .piece_number = piece,
                       .piece = &t->pieces[piece],
                       .rows = shape.rows,
                       .cols = shape.cols,
                       .transposed = shape.transposed,
                       .in_parts = shape.in_parts,
                       .lr = (double)s->hyper.lr * rate->scale,
                       .weight_decay = rate->weight_decay,
                       .updater = setup_matrix_updater(s->setup, u, tensor, piece)};
    x.kept = (float *)(void *)(s->state + rule_kept_at(&s->segment, unit, tensor, piece));
    return x;
}

/* The matrices of a segment, one after the other. */
struct walk_matrices {
    const struct rule_step *step;
    const struct matrix_rule *rule;
    const struct meeting *meeting;
    struct zinf_queue *queue;
};

static int visit_each(const struct walk_matrices *w, int (*visit)(struct matrix *x))
{
    const struct rule_step *s = w->step;
    const struct zinf_unit *unit = &s->setup->graph->units[s->setup->layout.groups[s->group].unit];
    uint64_t messages[ZINF_MOST_SHARDS] = {0};
    int code = 0;
    for (uint32_t i = 0; !code && i < unit->n_tensors; i++)
        for (uint32_t k = 0; !code && k < unit->tensors[i].n_pieces; k++) {
            if (!rule_has_piece(&s->segment, &unit->tensors[i], k) || !rule_leads(unit, i, k))
                continue;
            struct matrix x = matrix_of(s, i, k);
            x.rule = w->rule;
            x.queue = w->queue;
            x.meeting = w->meeting;
            x.message = x.updater == EVERY_RANK ? 0 : messages[x.updater];
            code = visit(&x);
            if (x.updater != EVERY_RANK)
                messages[x.updater] += meeting_message_bytes(unit, i, k);
        }
    return code;
}

static int update(struct matrix *x)
{
    const bool here = x->updater == EVERY_RANK || x->updater == tensor_axis(x->step->setup)->rank;
    return here ? x->rule->step(x) : 0;
}

/* Ranks that share matrices give each other their parts, and then the updates of these. */
static int update_all(const struct walk_matrices *w)
{
    const bool meets = meeting_is_held(w->meeting);
    int code = meets ? visit_each(w, meeting_give) : 0;
    if (!code && meets)
        code = meeting_trade(w->meeting, false);
    if (!code)
        code = visit_each(w, update);
    if (!code && meets)
        code = meeting_trade(w->meeting, true);
    return code || !meets ? code : visit_each(w, meeting_take);
}

int rule_each_matrix(const struct rule_step *s, const struct matrix_rule *rule)
{
    const uint64_t width = zinf_dtype_bytes(s->setup->dtype), first = s->segment.first;
    const struct meeting meeting = meeting_of(s);
    struct zinf_device *cpu = s->setup->cpu;
    struct walk_matrices walk = {s, rule, &meeting, NULL};
    if (zinf_optim_find_nonfinite(s->grad + first, ZINF_DTYPE_F32, s->segment.n, cpu->n_threads) !=
        UINT64_MAX)
        return zinf_fail(-ERANGE, "a gradient is not finite");
    if (s->setup->form == ZINF_STATE_WHOLE) /* the gaps between tensors too */
        memset(s->param + first * width, 0, s->segment.n * width);
    int code = cpu->ops->queue_create(cpu, ZINF_QUEUE_COMPUTE, &walk.queue);
    if (!code)
        code = update_all(&walk);
    if (walk.queue)
        cpu->ops->queue_destroy(walk.queue);
    return code;
}
