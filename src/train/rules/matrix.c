/* matrix: see matrix.h. */
#include "train/rules/matrix.h"

/* ---- parts ---- */

static const struct zinf_piece *piece_of(const struct matrix *x, const struct matrix_part *part)
{
    return &x->unit->tensors[part->tensor].pieces[part->piece];
}

struct part_shape rule_part_shape(const struct matrix *x, const struct matrix_part *part)
{
    return (struct part_shape){rule_matrix_rows(piece_of(x, part)),
                               x->unit->tensors[part->tensor].cols};
}

uint64_t rule_part_at(const struct matrix *x, const struct matrix_part *part, uint64_t i)
{
    const struct zinf_tensor *t = &x->unit->tensors[part->tensor];
    const struct zinf_row_map *map = &piece_of(x, part)->rows;
    const uint64_t row = map->flat_first + i / map->rows * map->flat_stride + i % map->rows;
    return t->offset + row * t->cols - x->step->segment.base;
}

/* The row of the file's matrix, or its column where the tensor is turned, that row i of a part is.
 */
static uint64_t place_of(const struct zinf_row_map *map, uint64_t i)
{
    return map->file_first + i / map->rows * map->file_stride + i % map->rows;
}

/* Columns of a turned part that a thread copies at a time: a cache line of the part. */
#define BLOCK 16

/* Copies n rows of a part from row `first` on, [n][cols of the part], into their places in whole,
 * or out of them. */
struct copy {
    const struct matrix *x;
    const struct matrix_part *part;
    uint64_t first, n;
    float *whole, *rows;
    bool out;
};

static void copy_some(const struct copy *c, uint64_t at, uint64_t place, uint64_t n)
{
    float *row = c->rows + at, *other = c->whole + place;
    memcpy(c->out ? row : other, c->out ? other : row, n * sizeof *row);
}

/* Columns [begin, end) of the part. A row of it is a column of the matrix. */
static void copy_turned(const struct copy *c, uint64_t begin, uint64_t end)
{
    const struct zinf_row_map *map = &piece_of(c->x, c->part)->rows;
    const uint64_t width = rule_part_shape(c->x, c->part).cols, cols = c->x->cols;
    for (uint64_t i = 0; i < c->n; i++) {
        float *row = c->rows + i * width, *column = c->whole + place_of(map, c->first + i);
        for (uint64_t k = begin; k < end && c->out; k++)
            row[k] = column[k * cols];
        for (uint64_t k = begin; k < end && !c->out; k++)
            column[k * cols] = row[k];
    }
}

static void copy_rows(const struct copy *c)
{
    const struct zinf_row_map *map = &piece_of(c->x, c->part)->rows;
    const uint64_t width = rule_part_shape(c->x, c->part).cols;
    const bool turned = c->x->unit->tensors[c->part->tensor].turned;
    const int threads = c->x->step->setup->cpu->n_threads;
#pragma omp parallel for num_threads(threads) schedule(static) if (turned)
    for (uint64_t k = 0; k < (turned ? width : 0); k += BLOCK)
        copy_turned(c, k, k + BLOCK < width ? k + BLOCK : width);
#pragma omp parallel for num_threads(threads) schedule(static) if (!turned)
    for (uint64_t i = 0; i < (turned ? 0 : c->n); i++)
        copy_some(c, i * width, place_of(map, c->first + i) * width, width);
}

void rule_matrix_gather(const struct matrix *x, const struct gathering *g)
{
    struct matrix_part part = {0};
    while (rule_next_part(x->unit, x->tensor, x->piece_number, &part)) {
        g->fill(g->context, &part, x->in_parts ? g->room : g->whole);
        const uint64_t rows = rule_part_shape(x, &part).rows;
        if (x->in_parts)
            copy_rows(&(struct copy){x, &part, 0, rows, g->whole, g->room, false});
    }
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
            if (rule_has_piece(&s->segment, &unit->tensors[i], k) && rule_leads(unit, i, k))
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

/* ---- the last step ---- */

/* SGD without momentum knows all forms of a master, and takes a decay that the rate multiplies. */
struct applying {
    const struct matrix *x;
    const struct matrix_part *part;
    struct zinf_optim_hyper hyper;
};

/* Of n rows of a part that lie behind each other in the unit; zeros: their first moments. */
static int apply_rows(const struct applying *a, uint64_t first, uint64_t n, const float *update,
                      float *zeros)
{
    const struct rule_step *s = a->x->step;
    const struct rule_masters own = rule_masters(s, rule_part_at(a->x, a->part, first));
    const struct zinf_optim_array array = {.n = n * rule_part_shape(a->x, a->part).cols,
                                           .master = own.master,
                                           .remainder = own.remainder,
                                           .param = own.param,
                                           .param_dtype = s->setup->dtype,
                                           .moment1 = zeros,
                                           .grad = update,
                                           .grad_dtype = ZINF_DTYPE_F32,
                                           .grad_scale = 1};
    memset(zeros, 0, array.n * sizeof *zeros);
    return zinf_optim_step(&a->hyper, &array, s->setup->cpu->n_threads);
}

static int apply_whole(const struct applying *a, const float *update, float *zeros)
{
    const struct part_shape shape = rule_part_shape(a->x, a->part);
    const uint64_t run = a->x->piece->rows.rows;
    int code = 0;
    for (uint64_t i = 0; !code && i < shape.rows; i += run)
        code = apply_rows(a, i, run, update + i * shape.cols, zeros + i * shape.cols);
    return code;
}

/* Some rows of the part at a time, so that a half of the room has their update and the other one
 * their moments. */
static int apply_part(const struct applying *a, float *update, float *room)
{
    const struct matrix *x = a->x;
    const struct part_shape shape = rule_part_shape(x, a->part);
    const uint64_t run = piece_of(x, a->part)->rows.rows, half = x->rows * x->cols / 2;
    int code = 0;
    for (uint64_t i = 0, n; !code && i < shape.rows; i += n) {
        n = run - i % run;
        n = n * shape.cols < half ? n : half / shape.cols;
        copy_rows(&(struct copy){x, a->part, i, n, update, room, true});
        code = apply_rows(a, i, n, room, room + n * shape.cols);
    }
    return code;
}

int rule_matrix_apply(const struct matrix *x, float *update, float *room, double rate, double decay)
{
    struct matrix_part part = {0};
    const struct applying a = {x,
                               &part,
                               {.kind = ZINF_OPTIM_SGD,
                                .lr = (float)rate,
                                .weight_decay = rate > 0 ? (float)(decay / rate) : 0,
                                .step = x->step->hyper.step}};
    int code = 0;
    while (!code && rule_next_part(x->unit, x->tensor, x->piece_number, &part))
        code = x->in_parts ? apply_part(&a, update, room) : apply_whole(&a, update, room);
    return code;
}
