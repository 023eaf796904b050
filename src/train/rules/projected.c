/*
 * projected: rules that keep Adam's moments of a gradient's image in few dimensions, which are
 * chosen anew every so many steps; as their authors' programs have them.
 *
 * GaLore (Zhao et al., arXiv 2403.03507): along the leading singular vectors of the gradient; the
 * update is brought back from there. APOLLO (Zhu et al., arXiv 2412.05270): along random vectors,
 * which are a function of the seed, the matrix' name and the step, and so are kept nowhere; the
 * gradient itself is the update, each channel of it, or all of it, scaled by how Adam scales its
 * image, and its norm grows by a hundredth a step at most.
 *
 * Moments stay what they are when the vectors change. What is kept of a matrix: GaLore's vectors
 * [rank][side]; first and second moments of the image, [rows][rank] or [rank][cols]; APOLLO's last
 * norm.
 */
#include "base/random.h"
#include "train/rules/leading.h"

#include <math.h>
#include <xxhash.h>

#define MOST_GROWTH 1.01
/* Loops' times (struct rule_work): of an element that is copied, and that is scaled; of a number of
 * the image, and of the factors that are found by it; of a random number. */
#define COPY_LOOP 115
#define SCALE_LOOP 365
#define IMAGE_LOOP 1150
#define FACTOR_LOOP 350
#define NORMAL_LOOP 1800
static const double least_norm = 1e-8;

/* What is as wide as the matrix, and which of its sides is the short one of the image. */
struct image {
    uint64_t rank, side, n; /* n numbers */
    bool across;            /* along rows of the unit's matrix: [rows][rank] */
};

struct projected {
    const struct matrix *of;
    struct image image;
    float *vectors;           /* [rank][side] */
    float *moment1, *moment2; /* [n] */
    float *x, *y;             /* [rows][cols] */
    float *low, *scaled;      /* [n]: the image, and Adam's of it */
    double *sums;             /* [rows] or [cols], by channels; behind them [rows] */
    void *rest;               /* GaLore's search */
};

static const struct zinf_config_optimizer *keys_of(const struct matrix *x)
{
    return x->step->segment.of->keys;
}

static struct image image_of(const struct zinf_config_optimizer *o, uint64_t rows, uint64_t cols,
                             bool transposed)
{
    const bool tall = transposed ? cols >= rows : rows >= cols; /* in the file */
    const bool right = o->proj_type == ZINF_PROJ_RIGHT || (o->proj_type == ZINF_PROJ_STD && tall) ||
                       (o->proj_type == ZINF_PROJ_REVERSE_STD && !tall);
    struct image m = {.across = right != transposed};
    m.side = m.across ? cols : rows;
    m.rank = (uint64_t)o->rank < m.side ? (uint64_t)o->rank : m.side;
    m.n = m.rank * (m.across ? rows : cols);
    return m;
}

static struct image image_of_shape(const struct optimizer *of, const struct matrix_shape *shape)
{
    return image_of(of->keys, shape->rows, shape->cols, shape->transposed);
}

uint64_t rule_galore_kept(const struct optimizer *of, const struct matrix_shape *shape)
{
    const struct image m = image_of_shape(of, shape);
    return m.rank * m.side + 2 * m.n;
}

uint64_t rule_apollo_kept(const struct optimizer *of, const struct matrix_shape *shape)
{
    return 2 * image_of_shape(of, shape).n + 1;
}

static struct leading search_of(const struct setup *s, const struct image *m, uint64_t rows,
                                uint64_t cols)
{
    return (struct leading){
        .setup = s, .rows = rows, .cols = cols, .right = m->across, .rank = m->rank};
}

/* ---- operations ---- */

/* Of each element: the gradient is read once more and copied. Of each number of the image: it is
 * written, read, and Adam's of it is written. */
static struct rule_work image_work(const struct image *m, const struct matrix_shape *shape)
{
    const double elems = (double)(shape->rows * shape->cols), parts = shape->in_parts ? elems : 0;
    return (struct rule_work){
        .flops = 2 * (double)m->side * (double)m->n,
        .bytes = (8 + MATRIX_APPLY_BYTES) * elems + 12 * (double)m->n + MATRIX_PARTS_BYTES * parts,
        .loops = COPY_LOOP * elems + IMAGE_LOOP * (double)m->n + MATRIX_PARTS_LOOP * parts,
    };
}

struct rule_work rule_galore_work(const struct optimizer *of, const struct matrix_shape *shape)
{
    const struct image m = image_of_shape(of, shape);
    const struct leading search = search_of(NULL, &m, shape->rows, shape->cols);
    const struct rule_work most = leading_work(&search);
    const double gap = (double)of->keys->update_proj_gap;
    struct rule_work work = image_work(&m, shape);
    work.flops = 2 * work.flops + most.flops / gap;
    work.bytes += most.bytes / gap;
    work.loops += most.loops / gap;
    return work;
}

/* The vectors are made anew and written, factors are found from the image and Adam's of it, and the
 * gradient is read and written when it is scaled. */
struct rule_work rule_apollo_work(const struct optimizer *of, const struct matrix_shape *shape)
{
    const double elems = (double)(shape->rows * shape->cols);
    const struct image m = image_of_shape(of, shape);
    const double vectors = (double)(m.rank * m.side);
    struct rule_work work = image_work(&m, shape);
    work.bytes += 8 * elems + 8 * (double)m.n + 4 * vectors;
    work.loops += SCALE_LOOP * elems + FACTOR_LOOP * (double)m.n + NORMAL_LOOP * vectors;
    return work;
}

/* ---- workspace: x, y, the images, vectors, sums, and GaLore's search ---- */

static uint64_t lines(uint64_t floats)
{
    return zinf_align_up(floats, 16);
}

static uint64_t own_bytes(const struct image *m, uint64_t rows, uint64_t cols)
{
    const uint64_t floats = 2 * lines(rows * cols) + 2 * lines(m->n) + lines(m->rank * m->side);
    const uint64_t channels = m->across ? rows : cols;
    return zinf_align_up(floats * sizeof(float) + (channels + rows) * sizeof(double),
                         ZINF_MEMORY_ALIGN);
}

static struct zinf_matmul image_product(const struct projected *p, uint64_t rows, uint64_t cols)
{
    const struct image *m = &p->image;
    struct zinf_matmul product =
        m->across ? rule_product(rows, m->rank, cols) : rule_product(m->rank, cols, rows);
    product.a = m->across ? p->x : p->vectors;
    product.b = m->across ? p->vectors : p->x;
    product.c = p->low;
    product.lda = (int64_t)(m->across ? cols : m->side);
    product.ldb = (int64_t)(m->across ? m->side : cols);
    product.trans_b = m->across;
    return product;
}

static struct zinf_matmul back_product(const struct projected *p, uint64_t rows, uint64_t cols)
{
    const struct image *m = &p->image;
    struct zinf_matmul product = rule_product(rows, cols, m->rank);
    product.a = m->across ? p->scaled : p->vectors;
    product.b = m->across ? p->vectors : p->scaled;
    product.c = p->x;
    product.lda = (int64_t)(m->across ? m->rank : m->side);
    product.ldb = (int64_t)(m->across ? m->side : cols);
    product.trans_a = !m->across;
    return product;
}

static uint64_t products_bytes(const struct setup *s, const struct image *m, uint64_t rows,
                               uint64_t cols)
{
    const struct projected p = {.image = *m};
    const struct leading search = search_of(s, m, rows, cols);
    const struct zinf_matmul all[] = {image_product(&p, rows, cols), back_product(&p, rows, cols)};
    const uint64_t bytes = rule_products_bytes(s, all, 2), other = leading_products_bytes(&search);
    return bytes > other ? bytes : other;
}

static uint64_t workspace(const struct setup *s, const struct zinf_unit *unit, uint32_t tensor,
                          bool searches)
{
    const struct zinf_tensor *t = &unit->tensors[tensor];
    uint64_t most = 0;
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        const struct matrix_shape of = rule_matrix_shape(t, &t->pieces[i]);
        const struct image m = image_of(&s->config->optimizer, of.rows, of.cols, of.transposed);
        const struct leading search = search_of(s, &m, of.rows, of.cols);
        uint64_t bytes = own_bytes(&m, of.rows, of.cols) + (searches ? leading_bytes(&search) : 0) +
                         products_bytes(s, &m, of.rows, of.cols);
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t rule_galore_workspace(const struct setup *s, const struct zinf_unit *unit, uint32_t tensor)
{
    return workspace(s, unit, tensor, true);
}

uint64_t rule_apollo_workspace(const struct setup *s, const struct zinf_unit *unit, uint32_t tensor)
{
    return workspace(s, unit, tensor, false);
}

static struct projected projected_of(const struct matrix *x, bool searches)
{
    struct projected p = {
        .of = x,
        .image = image_of(keys_of(x), x->rows, x->cols, x->transposed),
        .x = x->step->workspace,
    };
    const struct image *m = &p.image;
    const struct setup *s = x->step->setup;
    const struct leading search = search_of(s, m, x->rows, x->cols);
    const uint64_t own = own_bytes(m, x->rows, x->cols);
    p.y = p.x + lines(x->rows * x->cols);
    p.low = p.y + lines(x->rows * x->cols);
    p.scaled = p.low + lines(m->n);
    p.vectors = searches ? x->kept : p.scaled + lines(m->n);
    p.sums = (double *)(void *)(p.scaled + lines(m->n) + lines(m->rank * m->side));
    p.moment1 = searches ? x->kept + m->rank * m->side : x->kept;
    p.moment2 = p.moment1 + m->n;
    p.rest = (char *)x->step->workspace + own;
    rule_matrix_products(x, own + (searches ? leading_bytes(&search) : 0),
                         products_bytes(s, m, x->rows, x->cols));
    return p;
}

/* ---- both ---- */

static void take_part(const struct matrix *x, const struct matrix_part *part, float *out,
                      double *sums)
{
    (void)sums;
    const struct part_shape shape = rule_part_shape(x, part);
#pragma omp parallel for num_threads(x->step->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < shape.rows; i++) {
        const float *grad = x->step->grad + rule_part_at(x, part, i);
        for (uint64_t k = 0; k < shape.cols; k++)
            out[i * shape.cols + k] = grad[k] * x->step->grad_scale;
    }
}

static int take_gradient(const struct projected *p)
{
    return rule_matrix_gather(p->of, p->x, p->y, NULL);
}

/* Adam's moments of the image, and the image over the root of the second. */
static int step_image(const struct projected *p)
{
    const struct rule_step *s = p->of->step;
    const struct zinf_matmul product = image_product(p, p->of->rows, p->of->cols);
    const float beta1 = s->hyper.beta1, beta2 = s->hyper.beta2, eps = s->hyper.eps;
    const float rest1 = (float)(1 - (double)beta1), rest2 = (float)(1 - (double)beta2);
    int code = s->setup->cpu->ops->matmul(p->of->queue, &product);
#pragma omp parallel for num_threads(s->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < p->image.n; i++) {
        const float g = p->low[i];
        p->moment1[i] = beta1 * p->moment1[i] + rest1 * g;
        p->moment2[i] = beta2 * p->moment2[i] + rest2 * (g * g);
        p->scaled[i] = p->moment1[i] / (sqrtf(p->moment2[i]) + eps);
    }
    return code;
}

/* p <- (p - rate u) (1 - lr decay): decay comes last. */
static int apply(const struct projected *p, double factor)
{
    const struct rule_step *s = p->of->step;
    const double steps = (double)s->hyper.step, decay = p->of->lr * (double)p->of->weight_decay;
    double rate = p->of->lr * factor * (1 - decay);
    if (s->hyper.bias_correction)
        rate *=
            sqrt(1 - pow((double)s->hyper.beta2, steps)) / (1 - pow((double)s->hyper.beta1, steps));
    return rule_matrix_apply(p->of, p->x, p->y, rate, decay);
}

/* Steps before this one, of which every gap-th chooses vectors. */
static uint64_t steps_before(const struct matrix *x)
{
    return (uint64_t)x->step->hyper.step - 1;
}

/* ---- GaLore ---- */

static int choose_leading(const struct projected *p)
{
    const struct matrix *x = p->of;
    struct leading search = search_of(x->step->setup, &p->image, x->rows, x->cols);
    search.queue = x->queue;
    search.x = p->x;
    search.out = p->vectors;
    search.workspace = p->rest;
    return leading_find(&search);
}

static int step_galore(struct matrix *x)
{
    const struct projected p = projected_of(x, true);
    int code = take_gradient(&p);
    if (!code && steps_before(x) % (uint64_t)keys_of(x)->update_proj_gap == 0)
        code = choose_leading(&p);
    if (!code)
        code = step_image(&p);
    const struct zinf_matmul back = back_product(&p, x->rows, x->cols);
    if (!code)
        code = x->step->setup->cpu->ops->matmul(x->queue, &back);
    return code ? code : apply(&p, keys_of(x)->scale);
}

int rule_step_galore(const struct rule_step *s)
{
    static const struct matrix_rule galore = {take_part, step_galore};
    return rule_each_matrix(s, &galore);
}

/* ---- APOLLO ---- */

static void choose_random(const struct projected *p)
{
    const struct image *m = &p->image;
    const struct matrix *x = p->of;
    const struct setup *s = x->step->setup;
    const uint64_t period = steps_before(x) / (uint64_t)keys_of(x)->update_proj_gap;
    const uint64_t stream =
        XXH3_64bits_withSeed(x->piece->name, strlen(x->piece->name), x->piece->slab);
    const float std = (float)(1 / sqrt((double)m->rank));
#pragma omp parallel for num_threads(s->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < m->rank; i++)
        zinf_normal_fill(p->vectors + i * m->side, (period * m->rank + i) * m->side, m->side,
                         s->options.seed, stream, 0, std);
}

/* Squares of the image and of what Adam makes of it, over its short side. */
static double channel_factor(const struct projected *p, uint64_t channel)
{
    const struct image *m = &p->image;
    const uint64_t stride = m->across ? 1 : p->of->cols;
    const uint64_t first = m->across ? channel * m->rank : channel;
    double before = 0, after = 0;
    for (uint64_t i = 0; i < m->rank; i++) {
        const double g = (double)p->low[first + i * stride],
                     n = (double)p->scaled[first + i * stride];
        before += g * g;
        after += n * n;
    }
    return sqrt(after) / (sqrt(before) + least_norm);
}

static double tensor_factor(const struct projected *p)
{
    double before = 0, after = 0;
    for (uint64_t i = 0; i < p->image.n; i++) {
        before += (double)p->low[i] * (double)p->low[i];
        after += (double)p->scaled[i] * (double)p->scaled[i];
    }
    return sqrt(after) / (sqrt(before) + least_norm);
}

static void find_factors(const struct projected *p)
{
    const struct matrix *x = p->of;
    const uint64_t n = p->image.across ? x->rows : x->cols;
    const bool one = keys_of(x)->scale_by_tensor;
    const double all = one ? tensor_factor(p) : 0;
#pragma omp parallel for num_threads(x->step->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < n; i++)
        p->sums[i] = one ? all : channel_factor(p, i);
}

/* The gradient scaled in place; its norm. */
static double scale_gradient(const struct projected *p)
{
    const struct matrix *x = p->of;
    const double *factors = p->sums;
    double *squares = p->sums + (p->image.across ? x->rows : x->cols), sum = 0;
#pragma omp parallel for num_threads(x->step->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < x->rows; i++) {
        float *row = p->x + i * x->cols;
        double own = 0;
        for (uint64_t k = 0; k < x->cols; k++) {
            row[k] *= (float)factors[p->image.across ? i : k];
            own += (double)row[k] * (double)row[k];
        }
        squares[i] = own;
    }
    for (uint64_t i = 0; i < x->rows; i++)
        sum += squares[i];
    return sqrt(sum);
}

/* What the update is divided by, so that its norm grows little (Fira, arXiv 2410.01623). One that
 * was 0 limits nothing. */
static double limit(const struct projected *p, double norm)
{
    const struct zinf_config_optimizer *o = keys_of(p->of);
    float *last = p->moment2 + p->image.n;
    double limiter = 1;
    if (o->disable_nl)
        return 1;
    if (*last > 0)
        limiter = fmax(norm / ((double)*last + least_norm), MOST_GROWTH) / MOST_GROWTH;
    *last = (float)(norm / limiter);
    return limiter;
}

static int step_apollo(struct matrix *x)
{
    const struct projected p = projected_of(x, false);
    const struct zinf_config_optimizer *o = keys_of(x);
    const double scale = sqrt(o->scale);
    int code = take_gradient(&p);
    if (!code)
        choose_random(&p);
    if (!code)
        code = step_image(&p);
    if (code)
        return code;
    find_factors(&p);
    const double norm = scale_gradient(&p);
    return apply(&p, scale / limit(&p, o->scale_front ? norm * scale : norm));
}

int rule_step_apollo(const struct rule_step *s)
{
    static const struct matrix_rule apollo = {take_part, step_apollo};
    return rule_each_matrix(s, &apollo);
}
