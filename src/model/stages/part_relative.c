/*
 * part_relative: how attention to relative positions begins (He et al., arXiv 2006.03654). Queries
 * and keys are made of rows of a table as they are of tokens: by the layer's own product, with the
 * table's rows behind those of the tokens, or by a product of their own. Either way they lie behind
 * qkv, and their gradients behind that of qkv. The table is a unit that all layers have at hand;
 * each normalises it for itself, which is little, and the sum of gradients is the unit's. Each
 * chunk of a sequence makes the rows once more, and gives the table a gradient of its own.
 */
#include "model/stages/stages.h"

static uint64_t table_rows(const struct attention_spec *s)
{
    return 2 * (uint64_t)s->relative.half;
}

static uint64_t head_cols(const struct attention_spec *s)
{
    return (uint64_t)(s->n_heads * s->head_dim);
}

static bool shares_product(const struct attention_spec *s)
{
    return s->relative.w < 0;
}

/* Columns of a row behind qkv. */
static uint64_t relative_cols(const struct attention_spec *s)
{
    const struct relative_spec *r = &s->relative;
    return head_cols(s) * (shares_product(s) ? 3 : (uint64_t)(r->queries + r->keys));
}

uint64_t relative_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    return table_rows(s) * relative_cols(s) * frame_width(f);
}

/* What lies so many bytes behind base; measuring: something that is not NULL. */
static void *behind(const struct zinf_frame *f, const void *base, uint64_t bytes)
{
    static char nothing;
    return f->queue ? (char *)(uintptr_t)base + bytes : &nothing;
}

static void *behind_qkv(const struct zinf_frame *f, const struct attention_spec *s, const void *qkv)
{
    return behind(f, qkv, (uint64_t)frame_rows(f) * 3 * head_cols(s) * frame_width(f));
}

struct zinf_relative relative_args(const struct zinf_frame *f, const struct attention_spec *s,
                                   const void *qkv, const void *d_qkv)
{
    const struct relative_spec *r = &s->relative;
    if (!r->half)
        return (struct zinf_relative){0};
    const uint64_t before = shares_product(s) || r->queries ? head_cols(s) * frame_width(f) : 0;
    const void *rows = behind_qkv(f, s, qkv), *d_rows = behind_qkv(f, s, d_qkv);
    struct zinf_relative args = {.half = r->half,
                                 .starts = r->starts,
                                 .ld = (int64_t)relative_cols(s),
                                 .queries = r->queries ? rows : NULL,
                                 .keys = r->keys ? behind(f, rows, before) : NULL};
    if (d_qkv || !f->queue) {
        args.d_queries = r->queries ? (void *)(uintptr_t)d_rows : NULL;
        args.d_keys = r->keys ? behind(f, d_rows, before) : NULL;
    }
    return args;
}

int relative_clear(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    return shares_product(s) ? frame_zero(f, behind_qkv(f, s, d_qkv), relative_bytes(f, s)) : 0;
}

/* ---- the table ---- */

static uint64_t row_bytes(const struct zinf_frame *f, const struct attention_spec *s, uint64_t rows)
{
    return rows * (uint64_t)s->hidden * frame_width(f);
}

/* One mask for all samples of a step, whichever micro-batch they are in. */
static int mask(struct zinf_frame *f, const struct attention_spec *s, void *rows)
{
    const struct zinf_residual args = {
        .dtype = f->compute->dtype,
        .n = (int64_t)table_rows(s) * s->hidden,
        .r = rows,
        .y = rows,
        .dropout = frame_dropout_at(f, s->relative.dropout, s->relative.site, 0),
    };
    return args.dropout.p > 0 ? frame_dropout(f, &args) : 0;
}

/* Its mean and rstd go into scratch. */
static struct zinf_norm norm_args(struct zinf_frame *f, const struct attention_spec *s)
{
    const struct relative_spec *r = &s->relative;
    return (struct zinf_norm){
        .kind = r->norm.kind,
        .dtype = f->compute->dtype,
        .rows = (int64_t)table_rows(s),
        .cols = s->hidden,
        .eps = r->norm.eps,
        .x = frame_weight(f, r->unit, r->table),
        .w = frame_weight(f, r->unit, r->norm.w),
        .b = frame_weight(f, r->unit, r->norm.b),
        .mean = frame_scratch(f, table_rows(s) * sizeof(float)),
        .rstd = frame_scratch(f, table_rows(s) * sizeof(float)),
    };
}

/* The table's rows, normalised and with dropout. */
static int make_rows(struct zinf_frame *f, const struct attention_spec *s, struct zinf_norm *norm,
                     void *rows)
{
    norm->y = rows;
    int code = s->relative.norm.w >= 0
                   ? frame_norm(f, norm)
                   : frame_copy(f, rows, norm->x, row_bytes(f, s, table_rows(s)));
    return code ? code : mask(f, s, rows);
}

/* d_rows, in place, to the gradients of the table and its norm, unless they are frozen. */
static int rows_backward(struct zinf_frame *f, const struct attention_spec *s,
                         struct zinf_norm *norm, void *d_rows)
{
    const struct relative_spec *r = &s->relative;
    float *d_table = frame_grad(f, r->unit, r->table);
    int code = d_table ? mask(f, s, d_rows) : 0;
    if (code || !d_table)
        return code;
    norm->dy = norm->dx = d_rows;
    norm->dw = frame_grad(f, r->unit, r->norm.w);
    norm->db = frame_grad(f, r->unit, r->norm.b);
    if (r->norm.w >= 0)
        code = frame_norm_backward(f, norm);
    return code ? code
                : frame_convert(f, d_table, ZINF_DTYPE_F32, d_rows, f->compute->dtype,
                                table_rows(s) * (uint64_t)s->hidden);
}

/* ---- the products ---- */

/* What a product takes, with the table's rows as its last ones: all of its rows, and how. */
struct taken {
    struct frame_linear linear;
    uint64_t tokens; /* rows in front of the table's */
    void *rows, *table_rows;
    struct zinf_norm norm;
};

static int take_rows(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                     struct taken *t)
{
    const struct relative_spec *r = &s->relative;
    const bool shared = shares_product(s);
    t->tokens = shared ? (uint64_t)frame_rows(f) : 0;
    t->linear = (struct frame_linear){0, shared ? s->qkv_w : r->w, shared ? s->qkv_b : r->b,
                                      (int64_t)(t->tokens + table_rows(s)), false};
    t->norm = norm_args(f, s);
    t->rows = frame_scratch(f, row_bytes(f, s, t->tokens + table_rows(s)));
    t->table_rows = behind(f, t->rows, row_bytes(f, s, t->tokens));
    int code = shared ? frame_copy(f, t->rows, x, row_bytes(f, s, t->tokens)) : 0;
    return code ? code : make_rows(f, s, &t->norm, t->table_rows);
}

int relative_enter(struct zinf_frame *f, const struct attention_spec *s, const void *x, void *qkv)
{
    const struct frame_linear own = {0, s->qkv_w, s->qkv_b, 0, false};
    const uint64_t start = frame_mark(f);
    const bool shared = shares_product(s);
    struct taken t;
    int code = shared ? 0 : frame_linear(f, &own, x, qkv);
    if (!code)
        code = take_rows(f, s, x, &t);
    if (!code)
        code = frame_linear(f, &t.linear, t.rows, shared ? qkv : behind_qkv(f, s, qkv));
    frame_release(f, start);
    return code;
}

/* d_x += what the tokens' rows of a product's input got. */
static int add_rows(struct zinf_frame *f, const struct attention_spec *s, const void *d_rows,
                    void *d_x)
{
    const struct zinf_residual sum = {.dtype = f->compute->dtype,
                                      .n = frame_rows(f) * s->hidden,
                                      .x = d_x,
                                      .r = d_rows,
                                      .y = d_x};
    return frame_residual(f, &sum);
}

/* Of the tokens' own product. */
static int own_backward(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                        const void *d_qkv, void *d_x)
{
    const struct frame_linear own = {0, s->qkv_w, s->qkv_b, 0, false};
    const uint64_t start = frame_mark(f);
    void *d_rows = frame_scratch(f, row_bytes(f, s, (uint64_t)frame_rows(f)));
    int code = frame_linear_backward_weight(f, &own, d_qkv, x);
    if (!code)
        code = frame_linear_backward_input(f, &own, d_qkv, d_rows);
    if (!code)
        code = add_rows(f, s, d_rows, d_x);
    frame_release(f, start);
    return code;
}

int relative_enter_backward(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                            const void *d_qkv, void *d_x)
{
    const uint64_t start = frame_mark(f);
    const bool shared = shares_product(s);
    const void *d_y = shared ? d_qkv : behind_qkv(f, s, d_qkv);
    struct taken t;
    int code = shared ? 0 : own_backward(f, s, x, d_qkv, d_x);
    if (!code)
        code = take_rows(f, s, x, &t);
    if (!code)
        code = frame_linear_backward_weight(f, &t.linear, d_y, t.rows);
    if (code)
        return code;
    /* the rows are no longer needed, but adapters may read them */
    void *d_rows = frame_scratch(f, row_bytes(f, s, t.tokens + table_rows(s)));
    code = frame_linear_backward_input(f, &t.linear, d_y, d_rows);
    if (!code && shared)
        code = add_rows(f, s, d_rows, d_x);
    if (!code)
        code = rows_backward(f, s, &t.norm, behind(f, d_rows, row_bytes(f, s, t.tokens)));
    frame_release(f, start);
    return code;
}

/* ---- shards ---- */

int relative_rows(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                  const void **rows)
{
    struct taken t;
    const int code = take_rows(f, s, x, &t);
    *rows = t.rows;
    return code;
}

int64_t relative_count(const struct zinf_frame *f, const struct attention_spec *s)
{
    return s->relative.half ? frame_rows(f) + (int64_t)table_rows(s) : 0;
}

int relative_rows_backward(struct zinf_frame *f, const struct attention_spec *s, void *d_rows)
{
    const uint64_t start = frame_mark(f);
    struct zinf_norm norm = norm_args(f, s);
    int code = make_rows(f, s, &norm, frame_scratch(f, row_bytes(f, s, table_rows(s))));
    if (!code)
        code =
            rows_backward(f, s, &norm, behind(f, d_rows, row_bytes(f, s, (uint64_t)frame_rows(f))));
    frame_release(f, start);
    return code;
}
