/* matrix: see matrix.h. */
#include "train/rules/matrix.h"

uint64_t rule_matrix_rows(const struct zinf_piece *piece)
{
    return piece->rows.rows * piece->rows.count;
}

uint64_t rule_matrix_at(const struct matrix *x, uint64_t i)
{
    const struct zinf_row_map *map = &x->piece->rows;
    const uint64_t row = map->flat_first + i / map->rows * map->flat_stride + i % map->rows;
    return x->tensor->offset + row * x->cols - x->step->segment.base;
}

/* ---- products ---- */

struct zinf_matmul rule_product(uint64_t m, uint64_t n, uint64_t k)
{
    return (struct zinf_matmul){.m = (int64_t)m,
                                .n = (int64_t)n,
                                .k = (int64_t)k,
                                .a_dtype = ZINF_DTYPE_F32,
                                .b_dtype = ZINF_DTYPE_F32,
                                .c_dtype = ZINF_DTYPE_F32,
                                .ldc = (int64_t)n};
}

uint64_t rule_products_bytes(const struct setup *s, const struct zinf_matmul *all, int n)
{
    uint64_t most = 0;
    for (int i = 0; i < n; i++) {
        uint64_t bytes = s->cpu->ops->matmul_workspace(s->cpu, &all[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

void rule_matrix_products(const struct matrix *x, uint64_t own_bytes, uint64_t bytes)
{
    x->step->setup->cpu->ops->queue_set_workspace(x->queue, (char *)x->step->workspace + own_bytes,
                                                  bytes);
}

/* ---- the walk ---- */

static int step_matrix(const struct rule_step *s, struct zinf_queue *queue, uint32_t tensor,
                       uint32_t piece, int (*step)(struct matrix *x))
{
    const uint32_t u = s->setup->layout.groups[s->group].unit;
    const struct zinf_unit *unit = &s->setup->graph->units[u];
    const struct zinf_tensor *t = &unit->tensors[tensor];
    const struct tensor_rate *rate = &s->setup->rates[u][tensor];
    struct matrix x = {.step = s,
                       .tensor = t,
                       .piece = &t->pieces[piece],
                       .rows = rule_matrix_rows(&t->pieces[piece]),
                       .cols = t->cols,
                       .queue = queue,
                       .lr = (double)s->hyper.lr * rate->scale,
                       .weight_decay = rate->weight_decay};
    x.kept = (float *)(void *)(s->state + rule_kept_at(&s->segment, unit, tensor, piece));
    return step(&x);
}

static int step_tensors(const struct rule_step *s, struct zinf_queue *queue,
                        int (*step)(struct matrix *x))
{
    const struct zinf_unit *unit = &s->setup->graph->units[s->setup->layout.groups[s->group].unit];
    int code = 0;
    for (uint32_t i = 0; !code && i < unit->n_tensors; i++)
        for (uint32_t k = 0; !code && k < unit->tensors[i].n_pieces; k++)
            if (rule_has_piece(&s->segment, &unit->tensors[i], k))
                code = step_matrix(s, queue, i, k, step);
    return code;
}

int rule_each_matrix(const struct rule_step *s, int (*step)(struct matrix *x))
{
    const uint64_t width = zinf_dtype_bytes(s->setup->dtype), first = s->segment.first;
    struct zinf_device *cpu = s->setup->cpu;
    struct zinf_queue *queue = NULL;
    if (zinf_optim_find_nonfinite(s->grad + first, ZINF_DTYPE_F32, s->segment.n, cpu->n_threads) !=
        UINT64_MAX)
        return zinf_fail(-ERANGE, "a gradient is not finite");
    if (s->setup->form == ZINF_STATE_WHOLE) /* the gaps between tensors too */
        memset(s->param + first * width, 0, s->segment.n * width);
    int code = cpu->ops->queue_create(cpu, ZINF_QUEUE_COMPUTE, &queue);
    if (!code)
        code = step_tensors(s, queue, step);
    if (queue)
        cpu->ops->queue_destroy(queue);
    return code;
}

/* SGD without momentum knows all forms of a master, and takes a decay that the rate multiplies. */
int rule_matrix_apply(const struct matrix *x, const float *update, float *zeros, double rate,
                      double decay)
{
    const struct rule_step *s = x->step;
    const struct zinf_optim_hyper hyper = {.kind = ZINF_OPTIM_SGD,
                                           .lr = (float)rate,
                                           .weight_decay = rate > 0 ? (float)(decay / rate) : 0,
                                           .step = s->hyper.step};
    const uint64_t run = x->piece->rows.rows;
    int code = 0;
    memset(zeros, 0, x->rows * x->cols * sizeof *zeros);
    for (uint64_t i = 0; !code && i < x->rows; i += run) {
        const struct rule_masters own = rule_masters(s, rule_matrix_at(x, i));
        const struct zinf_optim_array array = {.n = run * x->cols,
                                               .master = own.master,
                                               .remainder = own.remainder,
                                               .param = own.param,
                                               .param_dtype = s->setup->dtype,
                                               .moment1 = zeros + i * x->cols,
                                               .grad = update + i * x->cols,
                                               .grad_dtype = ZINF_DTYPE_F32,
                                               .grad_scale = 1};
        code = zinf_optim_step(&hyper, &array, s->setup->cpu->n_threads);
    }
    return code;
}

/* ---- what it can be for ---- */

bool rule_is_matrix(const struct zinf_tensor *t)
{
    bool whole = t->rank == 2;
    for (uint32_t k = 0; k < t->n_pieces; k++) {
        const struct zinf_piece *p = &t->pieces[k];
        whole &=
            p->rank == 2 && !p->inner && p->shape[p->transposed ? 1 : 0] == rule_matrix_rows(p);
    }
    return whole;
}

static int check_tensor(const struct zinf_tensor *t, const char *type, const char *key)
{
    if (rule_is_matrix(t))
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: %s updates whole matrices, and %s is none here: give it another "
                     "optimizer",
                     key, type, t->n_pieces ? t->pieces[0].name : "a tensor");
}

int rule_check_matrices(const struct setup *s, const char *key)
{
    int code = 0;
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; !code && unit_trains(s, u) && i < s->graph->units[u].n_tensors; i++) {
            const struct update_rule *rule = setup_optimizer_of(s, u, i)->rule;
            if (rule->grain == GRAIN_MATRICES)
                code = check_tensor(&s->graph->units[u].tensors[i], rule->type, key);
        }
    return code;
}
