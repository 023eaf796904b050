/*
 * matrices: Muon (Jordan et al., kellerjordan.github.io/posts/muon), as torch.optim.Muon has it:
 * the momentum of a whole matrix, made nearly orthogonal by five Newton-Schulz steps, is the
 * update. A matrix is what is one in the model's files: of a tensor of ours that several of these
 * make up, each is updated by itself. NorMuon (arXiv 2510.05491) then divides each neuron's part of
 * the update by the root of a running mean of its squares.
 *
 * With m rows and n columns, m <= n, a step is X <- a X + (b A + c A A) X where A = X X^T; of a
 * tall matrix A = X^T X stands on the right. All of it in fp32, by the host's products, so that the
 * bits are those of every placement.
 */
#include "train/rules/matrix.h"

#include <math.h>

#define NEWTON_SCHULZ_STEPS 5
/* Loops' times (struct rule_work) for an element: of the momentum and its scaling, of a Gram matrix
 * in a Newton-Schulz step, of the norm of a matrix in parts, of NorMuon's means. */
#define MOMENTUM_LOOP 960
#define TERMS_LOOP 185
#define SQUARES_LOOP 75
#define NEURONS_LOOP 330
static const float a = 3.4445f, b = -4.775f, c = 2.0315f;
static const float least_norm = 1e-7f;
static const double least_root = 1e-10; /* NorMuon's epsilon, as its authors' code has it */
static const double adam_rms = 0.2;     /* of AdamW's updates (arXiv 2502.16982) */

struct momentum {
    const struct matrix *of;
    uint64_t side;        /* the shorter of both */
    float *x, *y;         /* [rows][cols] */
    float *gram, *square; /* [side][side] */
    double *sums;         /* [rows] */
};

/* ---- workspace: x, y, gram, square, sums, and what a product needs ---- */

static uint64_t matrix_bytes(uint64_t rows, uint64_t cols)
{
    const uint64_t side = rows < cols ? rows : cols;
    const uint64_t floats = 2 * zinf_align_up(rows * cols, 16) + 2 * zinf_align_up(side * side, 16);
    return zinf_align_up(floats * sizeof(float) + rows * sizeof(double), ZINF_MEMORY_ALIGN);
}

/* X X^T or X^T X. */
static struct zinf_matmul gram_of(const struct momentum *x)
{
    bool wide = x->of->rows <= x->of->cols;
    struct zinf_matmul p = rule_product(x->side, x->side, wide ? x->of->cols : x->of->rows);
    p.a = p.b = x->x;
    p.c = x->gram;
    p.lda = p.ldb = (int64_t)x->of->cols;
    p.trans_a = !wide;
    p.trans_b = wide;
    p.symmetric = true;
    return p;
}

static struct zinf_matmul square_of(const struct momentum *x)
{
    struct zinf_matmul p = rule_product(x->side, x->side, x->side);
    p.a = p.b = x->gram;
    p.c = x->square;
    p.lda = p.ldb = (int64_t)x->side;
    p.alpha = c;
    p.symmetric = true;
    return p;
}

/* The next X, in y. */
static struct zinf_matmul next_of(const struct momentum *x)
{
    bool wide = x->of->rows <= x->of->cols;
    struct zinf_matmul p = rule_product(x->of->rows, x->of->cols, x->side);
    p.a = wide ? x->square : x->x;
    p.b = wide ? x->x : x->square;
    p.c = x->y;
    p.lda = (int64_t)(wide ? x->side : x->of->cols);
    p.ldb = (int64_t)(wide ? x->of->cols : x->side);
    return p;
}

static uint64_t products_bytes(const struct setup *s, uint64_t rows, uint64_t cols)
{
    const struct matrix of = {.rows = rows, .cols = cols};
    const struct momentum x = {.of = &of, .side = rows < cols ? rows : cols};
    const struct zinf_matmul all[] = {gram_of(&x), square_of(&x), next_of(&x)};
    return rule_products_bytes(s, all, 3);
}

uint64_t rule_matrices_workspace(const struct setup *s, const struct zinf_unit *unit,
                                 uint32_t tensor)
{
    const struct zinf_tensor *t = &unit->tensors[tensor];
    uint64_t most = 0;
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        const struct matrix_shape m = rule_matrix_shape(t, &t->pieces[i]);
        uint64_t bytes = matrix_bytes(m.rows, m.cols) + products_bytes(s, m.rows, m.cols);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static struct momentum momentum_of(const struct matrix *x)
{
    struct momentum m = {
        .of = x, .side = x->rows < x->cols ? x->rows : x->cols, .x = x->step->workspace};
    m.y = m.x + zinf_align_up(x->rows * x->cols, 16);
    m.gram = m.y + zinf_align_up(x->rows * x->cols, 16);
    m.square = m.gram + zinf_align_up(m.side * m.side, 16);
    m.sums = (double *)(void *)(m.square + zinf_align_up(m.side * m.side, 16));
    return m;
}

/* Of what is symmetric a half is computed. Of each element: the gradient is read once more, X is
 * written, and read and written when it is scaled, of one in parts also read for its norm; a step
 * ends as rule_matrix_apply says. Of each element of a Gram matrix two are read and one is
 * written. */
struct rule_work rule_muon_work(const struct optimizer *of, const struct matrix_shape *shape)
{
    const double rows = (double)shape->rows, cols = (double)shape->cols;
    const double side = rows < cols ? rows : cols, all = rows * cols, square = side * side;
    const double parts = shape->in_parts ? all : 0;
    (void)of;
    return (struct rule_work){
        .flops = NEWTON_SCHULZ_STEPS * (3 * all * side + square * side),
        .bytes = (16 + MATRIX_APPLY_BYTES) * all + NEWTON_SCHULZ_STEPS * 12 * square +
                 (4 + MATRIX_PARTS_BYTES) * parts,
        .loops = MOMENTUM_LOOP * all + NEWTON_SCHULZ_STEPS * TERMS_LOOP * square +
                 (SQUARES_LOOP + MATRIX_PARTS_LOOP) * parts,
    };
}

/* ---- step ---- */

/* The new momentum of a part, and into out what is made orthogonal: by Nesterov a step further. Of
 * a whole matrix also the rows' sums of squares. */
static void take_part(const struct matrix *x, const struct matrix_part *part, float *out,
                      double *sums)
{
    const struct rule_step *s = x->step;
    const struct rule_segment *segment = &s->segment;
    const bool nesterov = segment->of->nesterov;
    const float momentum = s->hyper.beta1, rest = (float)(1 - (double)momentum);
    float *moments = (float *)(void *)(s->state + rule_moment_at(segment, 1));
    const struct part_shape shape = rule_part_shape(x, part);
#pragma omp parallel for num_threads(s->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < shape.rows; i++) {
        const uint64_t at = rule_part_at(x, part, i);
        const float *grad = s->grad + at;
        float *m = moments + (at - segment->first), *row = out + i * shape.cols;
        double sum = 0;
        for (uint64_t k = 0; k < shape.cols; k++) {
            float g = grad[k] * s->grad_scale;
            m[k] += rest * (g - m[k]);
            row[k] = nesterov ? m[k] - (m[k] - g) * rest : m[k];
            sum += (double)row[k] * (double)row[k];
        }
        if (sums)
            sums[i] = sum;
    }
}

static void sum_rows(const struct momentum *x)
{
    const uint64_t cols = x->of->cols;
#pragma omp parallel for num_threads(x->of->step->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < x->of->rows; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < cols; k++)
            sum += (double)x->x[i * cols + k] * (double)x->x[i * cols + k];
        x->sums[i] = sum;
    }
}

static int take_momentum(const struct momentum *x)
{
    const int code = rule_matrix_gather(x->of, x->x, x->y, x->sums);
    if (!code && x->of->in_parts)
        sum_rows(x);
    return code;
}

static void scale_to_one(const struct momentum *x)
{
    double sum = 0;
    for (uint64_t i = 0; i < x->of->rows; i++)
        sum += x->sums[i];
    float norm = fmaxf((float)sqrt(sum), least_norm);
#pragma omp parallel for num_threads(x->of->step->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < x->of->rows * x->of->cols; i++)
        x->x[i] /= norm;
}

/* a + b A + c A A, of which the last is in square. */
static void add_terms(const struct momentum *x)
{
#pragma omp parallel for num_threads(x->of->step->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < x->side; i++) {
        float *row = x->square + i * x->side;
        for (uint64_t k = 0; k < x->side; k++)
            row[k] += b * x->gram[i * x->side + k];
        row[i] += a;
    }
}

static int make_orthogonal(struct momentum *x)
{
    const struct zinf_device_ops *ops = x->of->step->setup->cpu->ops;
    int code = 0;
    scale_to_one(x);
    for (int step = 0; !code && step < NEWTON_SCHULZ_STEPS; step++) {
        const struct zinf_matmul gram = gram_of(x), square = square_of(x), next = next_of(x);
        code = ops->matmul(x->of->queue, &gram);
        if (!code)
            code = ops->matmul(x->of->queue, &square);
        add_terms(x);
        if (!code)
            code = ops->matmul(x->of->queue, &next);
        float *other = x->x;
        x->x = x->y;
        x->y = other;
    }
    return code;
}

/* What the rate of a matrix is multiplied by, by its shape in the file: "original" or, so that the
 * RMS of updates is AdamW's, "match_rms_adamw". */
static double shape_factor(const struct matrix *x)
{
    const double rows = (double)matrix_file_rows(x), cols = (double)matrix_file_cols(x);
    return x->step->segment.of->match_rms ? adam_rms * sqrt(fmax(rows, cols))
                                          : sqrt(fmax(1, rows / cols));
}

/* p <- p (1 - lr decay) - lr s x. */
static int apply(const struct momentum *x, double factor)
{
    const double lr = x->of->lr;
    return rule_matrix_apply(x->of, x->x, x->y, lr * factor, lr * (double)x->of->weight_decay);
}

static int orthogonal_step(struct matrix *of, struct momentum *x)
{
    *x = momentum_of(of);
    rule_matrix_products(of, matrix_bytes(of->rows, of->cols),
                         products_bytes(of->step->setup, of->rows, of->cols));
    const int code = take_momentum(x);
    return code ? code : make_orthogonal(x);
}

static int step_muon(struct matrix *of)
{
    struct momentum x;
    int code = orthogonal_step(of, &x);
    return code ? code : apply(&x, shape_factor(of));
}

int rule_step_muon(const struct rule_step *s)
{
    static const struct matrix_rule muon = {take_part, step_muon};
    return rule_each_matrix(s, &muon);
}

/* ---- NorMuon: a neuron is a row of the unit's matrix, whatever the file has ---- */

/* A row is read, and written while a cache has it. */
struct rule_work rule_normuon_work(const struct optimizer *of, const struct matrix_shape *shape)
{
    const double all = (double)(shape->rows * shape->cols);
    struct rule_work work = rule_muon_work(of, shape);
    work.bytes += 8 * all;
    work.loops += NEURONS_LOOP * all;
    return work;
}

uint64_t rule_neurons_kept(const struct optimizer *of, const struct matrix_shape *shape)
{
    (void)of;
    return shape->rows;
}

/* The norms of X before and after. */
static void normalise_rows(const struct momentum *x, double *before, double *after)
{
    const struct matrix *of = x->of;
    const float rest = (float)(1 - of->step->segment.of->keys->row_beta2);
    double squares = 0, scaled = 0;
#pragma omp parallel for num_threads(of->step->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < of->rows; i++) {
        float *row = x->x + i * of->cols;
        double sum = 0;
        for (uint64_t k = 0; k < of->cols; k++)
            sum += (double)row[k] * (double)row[k];
        x->sums[i] = sum;
        of->kept[i] += rest * ((float)(sum / (double)of->cols) - of->kept[i]);
        const float scale = (float)(1 / (sqrt((double)of->kept[i]) + least_root));
        for (uint64_t k = 0; k < of->cols; k++)
            row[k] *= scale;
    }
    for (uint64_t i = 0; i < of->rows; i++) {
        const double scale = 1 / (sqrt((double)of->kept[i]) + least_root);
        squares += x->sums[i];
        scaled += x->sums[i] * scale * scale;
    }
    *before = sqrt(squares);
    *after = sqrt(scaled);
}

/* By the paper updates have AdamW's RMS, whatever Newton-Schulz steps leave of them; by its
 * authors' code ("original") their norm is that of before. */
static int step_normuon(struct matrix *of)
{
    struct momentum x;
    double before, after;
    int code = orthogonal_step(of, &x);
    if (code)
        return code;
    normalise_rows(&x, &before, &after);
    const double factor = of->step->segment.of->match_rms
                              ? adam_rms * sqrt((double)of->rows * (double)of->cols)
                              : before * shape_factor(of);
    return apply(&x, after > 0 ? factor / after : 0);
}

int rule_step_normuon(const struct rule_step *s)
{
    static const struct matrix_rule normuon = {take_part, step_normuon};
    return rule_each_matrix(s, &normuon);
}
