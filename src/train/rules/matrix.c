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

static void copy_some(const struct part_copy *c, uint64_t at, uint64_t place, uint64_t n)
{
    float *row = c->rows + at, *other = c->whole + place;
    memcpy(c->out ? row : other, c->out ? other : row, n * sizeof *row);
}

/* Columns [begin, end) of the part. */
static void copy_turned(const struct part_copy *c, uint64_t begin, uint64_t end)
{
    for (uint64_t i = 0; i < c->n; i++) {
        float *row = c->rows + i * c->width;
        float *column = c->whole + place_of(c->map, c->first + i);
        for (uint64_t k = begin; k < end && c->out; k++)
            row[k] = column[k * c->cols];
        for (uint64_t k = begin; k < end && !c->out; k++)
            column[k * c->cols] = row[k];
    }
}

void rule_copy_part(const struct part_copy *c)
{
    const uint64_t width = c->width;
#pragma omp parallel for num_threads(c->threads) schedule(static) if (c->turned)
    for (uint64_t k = 0; k < (c->turned ? width : 0); k += BLOCK)
        copy_turned(c, k, k + BLOCK < width ? k + BLOCK : width);
#pragma omp parallel for num_threads(c->threads) schedule(static) if (!c->turned)
    for (uint64_t i = 0; i < (c->turned ? 0 : c->n); i++)
        copy_some(c, i * width, place_of(c->map, c->first + i) * width, width);
}

struct part_copy rule_part_copy(const struct matrix *x, const struct matrix_part *part,
                                float *whole, float *rows)
{
    const struct part_shape shape = rule_part_shape(x, part);
    return (struct part_copy){.map = &piece_of(x, part)->rows,
                              .n = shape.rows,
                              .width = shape.cols,
                              .cols = x->cols,
                              .turned = x->unit->tensors[part->tensor].turned,
                              .whole = whole,
                              .rows = rows,
                              .threads = x->step->setup->cpu->n_threads};
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

static int apply_all_rows(const struct applying *a, const float *update, float *zeros)
{
    const struct part_shape shape = rule_part_shape(a->x, a->part);
    const uint64_t run = piece_of(a->x, a->part)->rows.rows;
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
    struct part_copy copy = rule_part_copy(x, a->part, update, room);
    int code = 0;
    copy.out = true;
    for (uint64_t i = 0; !code && i < shape.rows; i += copy.n) {
        copy.first = i;
        copy.n = run - i % run;
        copy.n = copy.n * shape.cols < half ? copy.n : half / shape.cols;
        rule_copy_part(&copy);
        code = apply_rows(a, i, copy.n, room, room + copy.n * shape.cols);
    }
    return code;
}

static struct applying applying_of(const struct matrix *x, const struct matrix_part *part,
                                   double rate, double decay)
{
    return (struct applying){x,
                             part,
                             {.kind = ZINF_OPTIM_SGD,
                              .lr = (float)rate,
                              .weight_decay = rate > 0 ? (float)(decay / rate) : 0,
                              .step = x->step->hyper.step}};
}

int rule_part_apply(const struct matrix *x, const struct matrix_part *part, const float *update,
                    float *zeros, double rate, double decay)
{
    const struct applying a = applying_of(x, part, rate, decay);
    return apply_all_rows(&a, update, zeros);
}

int rule_parts_apply(const struct matrix *x, float *update, float *room, double rate, double decay)
{
    struct matrix_part part = {0};
    const struct applying a = applying_of(x, &part, rate, decay);
    int code = 0;
    while (!code && rule_next_part(x->unit, x->tensor, x->piece_number, &part))
        code = x->in_parts ? apply_part(&a, update, room) : apply_all_rows(&a, update, room);
    return code;
}
