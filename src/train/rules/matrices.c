/*
 * matrices: Muon (Jordan et al., kellerjordan.github.io/posts/muon), as torch.optim.Muon has it:
 * the momentum of a whole matrix, made nearly orthogonal by five Newton-Schulz steps, is the
 * update. A matrix is what is one in the model's files: of a tensor of ours that several of these
 * make up, each is updated by itself.
 *
 * With m rows and n columns, m <= n, a step is X <- a X + (b A + c A A) X where A = X X^T; of a
 * tall matrix A = X^T X stands on the right. All of it in fp32, by the host's products, so that the
 * bits are those of every placement.
 */
#include "cpu_optim/optim.h"
#include "train/rules/rules.h"
#include "train/setup_rates.h"

#include <math.h>

#define NEWTON_SCHULZ_STEPS 5
static const float a = 3.4445f, b = -4.775f, c = 2.0315f;
static const float least_norm = 1e-7f;

struct matrix {
    const struct rule_step *step;
    const struct zinf_tensor *tensor;
    const struct zinf_piece *piece;
    uint64_t rows, cols, side; /* as they lie in the unit; the shorter of the two */
    float *x, *y;              /* [rows][cols] */
    float *gram, *square;      /* [side][side] */
    double *sums;              /* [rows] */
    struct zinf_queue *queue;
};

static uint64_t piece_rows(const struct zinf_piece *piece)
{
    return piece->rows.rows * piece->rows.count;
}

/* Row i of the matrix, in the unit's tensor. */
static uint64_t flat_row(const struct zinf_piece *piece, uint64_t i)
{
    const struct zinf_row_map *map = &piece->rows;
    return map->flat_first + i / map->rows * map->flat_stride + i % map->rows;
}

/* ---- workspace: x, y, gram, square, sums, and what a product needs ---- */

static uint64_t matrix_bytes(uint64_t rows, uint64_t cols)
{
    const uint64_t side = rows < cols ? rows : cols;
    const uint64_t floats = 2 * zinf_align_up(rows * cols, 16) + 2 * zinf_align_up(side * side, 16);
    return zinf_align_up(floats * sizeof(float) + rows * sizeof(double), ZINF_MEMORY_ALIGN);
}

static struct zinf_matmul product(uint64_t m, uint64_t n, uint64_t k)
{
    return (struct zinf_matmul){.m = (int64_t)m,
                                .n = (int64_t)n,
                                .k = (int64_t)k,
                                .a_dtype = ZINF_DTYPE_F32,
                                .b_dtype = ZINF_DTYPE_F32,
                                .c_dtype = ZINF_DTYPE_F32,
                                .ldc = (int64_t)n};
}

/* X X^T or X^T X. */
static struct zinf_matmul gram_of(const struct matrix *x)
{
    bool wide = x->rows <= x->cols;
    struct zinf_matmul p = product(x->side, x->side, wide ? x->cols : x->rows);
    p.a = p.b = x->x;
    p.c = x->gram;
    p.lda = p.ldb = (int64_t)x->cols;
    p.trans_a = !wide;
    p.trans_b = wide;
    return p;
}

static struct zinf_matmul square_of(const struct matrix *x)
{
    struct zinf_matmul p = product(x->side, x->side, x->side);
    p.a = p.b = x->gram;
    p.c = x->square;
    p.lda = p.ldb = (int64_t)x->side;
    p.alpha = c;
    return p;
}

/* The next X, in y. */
static struct zinf_matmul next_of(const struct matrix *x)
{
    bool wide = x->rows <= x->cols;
    struct zinf_matmul p = product(x->rows, x->cols, x->side);
    p.a = wide ? x->square : x->x;
    p.b = wide ? x->x : x->square;
    p.c = x->y;
    p.lda = (int64_t)(wide ? x->side : x->cols);
    p.ldb = (int64_t)(wide ? x->cols : x->side);
    return p;
}

static uint64_t products_bytes(struct zinf_device *cpu, uint64_t rows, uint64_t cols)
{
    const struct matrix x = {.rows = rows, .cols = cols, .side = rows < cols ? rows : cols};
    const struct zinf_matmul all[] = {gram_of(&x), square_of(&x), next_of(&x)};
    uint64_t most = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t bytes = cpu->ops->matmul_workspace(cpu, &all[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t rule_matrices_workspace(const struct setup *s, const struct zinf_unit *unit,
                                 uint32_t tensor)
{
    const struct zinf_tensor *t = &unit->tensors[tensor];
    uint64_t most = 0;
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        uint64_t rows = piece_rows(&t->pieces[i]);
        uint64_t bytes = matrix_bytes(rows, t->cols) + products_bytes(s->cpu, rows, t->cols);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- step ---- */

/* The new momentum, and into x what is made orthogonal: by Nesterov a step further. */
static void take_momentum(const struct matrix *x)
{
    const struct rule_step *s = x->step;
    const struct rule_segment *segment = &s->segment;
    const float momentum = s->hyper.beta1, rest = (float)(1 - (double)momentum);
    float *moments = (float *)(void *)(s->state + rule_moment_at(segment, 1));
#pragma omp parallel for num_threads(s->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < x->rows; i++) {
        const uint64_t at = x->tensor->offset + flat_row(x->piece, i) * x->cols;
        const float *grad = s->grad + at;
        float *m = moments + (at - segment->first), *out = x->x + i * x->cols;
        double sum = 0;
        for (uint64_t k = 0; k < x->cols; k++) {
            float g = grad[k] * s->grad_scale;
            m[k] += rest * (g - m[k]);
            out[k] = m[k] - (m[k] - g) * rest;
            sum += (double)out[k] * (double)out[k];
        }
        x->sums[i] = sum;
    }
}

static void scale_to_one(const struct matrix *x)
{
    double sum = 0;
    for (uint64_t i = 0; i < x->rows; i++)
        sum += x->sums[i];
    float norm = fmaxf((float)sqrt(sum), least_norm);
    for (uint64_t i = 0; i < x->rows * x->cols; i++)
        x->x[i] /= norm;
}

static int make_orthogonal(struct matrix *x)
{
    const struct zinf_device_ops *ops = x->step->setup->cpu->ops;
    int code = 0;
    scale_to_one(x);
    for (int step = 0; !code && step < NEWTON_SCHULZ_STEPS; step++) {
        const struct zinf_matmul gram = gram_of(x), square = square_of(x), next = next_of(x);
        code = ops->matmul(x->queue, &gram);
        if (!code)
            code = ops->matmul(x->queue, &square);
        for (uint64_t i = 0; i < x->side * x->side; i++)
            x->square[i] += b * x->gram[i];
        for (uint64_t i = 0; i < x->side; i++)
            x->square[i * (x->side + 1)] += a;
        if (!code)
            code = ops->matmul(x->queue, &next);
        float *other = x->x;
        x->x = x->y;
        x->y = other;
    }
    return code;
}

/* p <- p (1 - lr decay) - lr s x, where s is by the matrix' shape in the file: SGD with the rate
 * lr s, which knows all forms of a master. */
static int apply(const struct matrix *x, double lr, float weight_decay)
{
    const struct rule_step *s = x->step;
    const double outputs = x->piece->transposed ? (double)x->cols : (double)x->rows;
    const double inputs = x->piece->transposed ? (double)x->rows : (double)x->cols;
    const double longer = sqrt(fmax(1, outputs / inputs)), rate = lr * longer;
    const struct zinf_optim_hyper hyper = {.kind = ZINF_OPTIM_SGD,
                                           .lr = (float)rate,
                                           .weight_decay = (float)(weight_decay / longer),
                                           .step = s->hyper.step};
    const uint64_t run = x->piece->rows.rows;
    int code = 0;
    memset(x->y, 0, x->rows * x->cols * sizeof *x->y);
    for (uint64_t i = 0; !code && i < x->rows; i += run) {
        const struct rule_masters own =
            rule_masters(s, x->tensor->offset + flat_row(x->piece, i) * x->cols);
        const struct zinf_optim_array array = {.n = run * x->cols,
                                               .master = own.master,
                                               .remainder = own.remainder,
                                               .param = own.param,
                                               .param_dtype = s->setup->dtype,
                                               .moment1 = x->y + i * x->cols,
                                               .grad = x->x + i * x->cols,
                                               .grad_dtype = ZINF_DTYPE_F32,
                                               .grad_scale = 1};
        code = zinf_optim_step(&hyper, &array, s->setup->cpu->n_threads);
    }
    return code;
}

static int step_matrix(const struct rule_step *s, struct zinf_queue *queue, uint32_t tensor,
                       const struct zinf_piece *piece)
{
    const uint32_t u = s->setup->layout.groups[s->group].unit;
    const struct zinf_tensor *t = &s->setup->graph->units[u].tensors[tensor];
    struct matrix x = {.step = s,
                       .tensor = t,
                       .piece = piece,
                       .rows = piece_rows(piece),
                       .cols = t->cols,
                       .x = s->workspace,
                       .queue = queue};
    x.side = x.rows < x.cols ? x.rows : x.cols;
    x.y = x.x + zinf_align_up(x.rows * x.cols, 16);
    x.gram = x.y + zinf_align_up(x.rows * x.cols, 16);
    x.square = x.gram + zinf_align_up(x.side * x.side, 16);
    x.sums = (double *)(void *)(x.square + zinf_align_up(x.side * x.side, 16));
    s->setup->cpu->ops->queue_set_workspace(queue,
                                            (char *)s->workspace + matrix_bytes(x.rows, x.cols),
                                            products_bytes(s->setup->cpu, x.rows, x.cols));
    take_momentum(&x);
    int code = make_orthogonal(&x);
    const struct tensor_rate *rate = &s->setup->rates[u][tensor];
    return code ? code : apply(&x, (double)s->hyper.lr * rate->scale, rate->weight_decay);
}

static int step_tensors(const struct rule_step *s, struct zinf_queue *queue)
{
    const uint32_t u = s->setup->layout.groups[s->group].unit;
    const struct zinf_unit *unit = &s->setup->graph->units[u];
    int code = 0;
    for (uint32_t i = 0; !code && i < unit->n_tensors; i++) {
        const struct zinf_tensor *t = &unit->tensors[i];
        const bool here = t->n_pieces && t->offset >= s->segment.first &&
                          t->offset < s->segment.first + s->segment.n;
        for (uint32_t k = 0; here && !code && k < t->n_pieces; k++)
            code = step_matrix(s, queue, i, &t->pieces[k]);
    }
    return code;
}

/* Nothing has changed where a gradient is not finite. */
int rule_step_matrices(const struct rule_step *s)
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
        code = step_tensors(s, queue);
    if (queue)
        cpu->ops->queue_destroy(queue);
    return code;
}

/* ---- what it can be for ---- */

bool rule_is_matrix(const struct zinf_tensor *t)
{
    bool whole = t->rank == 2;
    for (uint32_t k = 0; k < t->n_pieces; k++) {
        const struct zinf_piece *p = &t->pieces[k];
        whole &= p->rank == 2 && !p->inner && p->shape[p->transposed ? 1 : 0] == piece_rows(p);
    }
    return whole;
}

static int check_tensor(const struct zinf_tensor *t, const char *key)
{
    if (rule_is_matrix(t))
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: Muon updates whole matrices, and %s is none here: give it another "
                     "optimizer",
                     key, t->n_pieces ? t->pieces[0].name : "a tensor");
}

int rule_check_matrices(const struct setup *s, const char *key)
{
    int code = 0;
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; !code && unit_trains(s, u) && i < s->graph->units[u].n_tensors; i++)
            if (setup_optimizer_of(s, u, i)->rule->step == rule_step_matrices)
                code = check_tensor(&s->graph->units[u].tensors[i], key);
    return code;
}
