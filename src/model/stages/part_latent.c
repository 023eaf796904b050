/*
 * part_latent: queries, keys and values of latent attention (DeepSeek-AI, arXiv 2405.04434). The
 * entry's product has a row of low rank for the queries and one for keys and values, and one key of
 * few columns that all heads share, which alone is rotated. Both rows are normalised and multiplied
 * up to heads. Here a head is [rotated columns][the others][zeros], so that the rotation and
 * attention are those of any other part; scores do not depend on the order of columns.
 *
 * Kept is the entry's product alone, which is small; what is made of it is made again in backward.
 */
#include "model/stages/stages.h"

static int64_t query_cols(const struct attention_spec *s)
{
    return s->n_heads * (s->latent.rotated + s->latent.plain);
}

static int64_t kv_cols(const struct attention_spec *s)
{
    return s->n_heads * (s->latent.plain + s->latent.value);
}

/* Columns in front of those of keys and values. */
static int64_t first_cols(const struct attention_spec *s)
{
    return s->latent.q_rank ? s->latent.q_rank : query_cols(s);
}

int64_t latent_entry_cols(const struct attention_spec *s)
{
    return first_cols(s) + s->latent.kv_rank + s->latent.rotated;
}

static void *take_rows(struct zinf_frame *f, int64_t cols)
{
    return frame_scratch(f, frame_rows_bytes(f, cols));
}

/* ---- columns ---- */

/* Columns of heads: where, elements from row to row and from head to head. */
struct columns {
    void *at;
    int64_t ld, step;
};

static struct columns columns_at(const struct zinf_frame *f, void *rows, int64_t first, int64_t ld,
                                 int64_t step)
{
    void *at = rows ? (char *)rows + (uint64_t)first * frame_width(f) : NULL; /* NULL: measuring */
    return (struct columns){at, ld, step};
}

struct move {
    int64_t n_heads, cols;
    struct columns from, to;
};

static int copy(struct zinf_frame *f, const struct move *m, bool back)
{
    const struct columns *from = back ? &m->to : &m->from, *to = back ? &m->from : &m->to;
    const struct zinf_heads args = {
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = m->n_heads,
        .cols = m->cols,
        .x = from->at,
        .x_ld = from->ld,
        .x_step = from->step,
        .y = to->at,
        .y_ld = to->ld,
        .y_step = to->step,
    };
    return m->cols ? frame_heads(f, &args) : 0;
}

/* What heads are put together of. */
enum { MOVES = 5 };

static void list_moves(const struct zinf_frame *f, const struct attention_spec *s,
                       const struct latent_rows *r, struct move list[MOVES])
{
    const struct latent_spec *l = &s->latent;
    const int64_t n = s->n_heads, dim = s->head_dim, all = r->all_heads, ld = 3 * all * dim;
    const int64_t in_q = l->plain + l->rotated, in_kv = l->plain + l->value, ld_kv = n * in_kv;
    const int64_t first = r->first_head * dim, keys = first + all * dim;
    const struct move moves[MOVES] = {
        {n, l->rotated, columns_at(f, r->queries, l->plain, r->queries_ld, in_q),
         columns_at(f, r->qkv, first, ld, dim)},
        {n, l->plain, columns_at(f, r->queries, 0, r->queries_ld, in_q),
         columns_at(f, r->qkv, first + l->rotated, ld, dim)},
        {n, l->rotated, columns_at(f, r->key, 0, r->key_ld, 0),
         columns_at(f, r->qkv, keys, ld, dim)},
        {n, l->plain, columns_at(f, r->kv, 0, ld_kv, in_kv),
         columns_at(f, r->qkv, keys + l->rotated, ld, dim)},
        {n, l->value, columns_at(f, r->kv, l->plain, ld_kv, in_kv),
         columns_at(f, r->qkv, keys + all * dim, ld, dim)},
    };
    for (int i = 0; i < MOVES; i++)
        list[i] = moves[i];
}

/* Columns of n heads behind the first `used` ones become 0. */
static int zero_rest(struct zinf_frame *f, const struct attention_spec *s, int64_t n, int64_t used,
                     struct columns of)
{
    const int64_t rest = s->head_dim - used;
    const struct move zeros = {n, rest, {NULL, 0, 0}, columns_at(f, of.at, used, of.ld, of.step)};
    return copy(f, &zeros, false);
}

int latent_put(struct zinf_frame *f, const struct attention_spec *s, const struct latent_rows *r)
{
    const struct latent_spec *l = &s->latent;
    const int64_t dim = s->head_dim, all = r->all_heads * dim, first = r->first_head * dim;
    const int64_t used[] = {l->rotated + l->plain, l->rotated + l->plain, l->value};
    struct move moves[MOVES];
    int code = 0;
    list_moves(f, s, r, moves);
    for (int i = 0; !code && i < MOVES; i++)
        code = copy(f, &moves[i], false);
    for (int i = 0; !code && i < 3; i++)
        code = zero_rest(f, s, s->n_heads, used[i],
                         columns_at(f, r->qkv, i * all + first, 3 * all, dim));
    return code;
}

int latent_take(struct zinf_frame *f, const struct attention_spec *s, const struct latent_rows *r)
{
    struct move moves[MOVES];
    int code = 0;
    list_moves(f, s, r, moves);
    for (int i = 0; !code && i < MOVES; i++)
        code = copy(f, &moves[i], true);
    return code;
}

/* Of all heads; entry: the entry's product or its gradient. */
static struct latent_rows rows_of(struct zinf_frame *f, const struct attention_spec *s, void *entry,
                                  void *qkv)
{
    const int64_t low = s->latent.q_rank, cols = latent_entry_cols(s);
    return (struct latent_rows){
        .queries = low ? take_rows(f, query_cols(s)) : entry,
        .queries_ld = low ? query_cols(s) : cols,
        .key = columns_at(f, entry, first_cols(s) + s->latent.kv_rank, 0, 0).at,
        .key_ld = cols,
        .kv = take_rows(f, kv_cols(s)),
        .qkv = qkv,
        .all_heads = s->n_heads,
    };
}

/* ---- rows of low rank ---- */

/* One of the two: the norm, and the product behind it. */
struct low {
    const struct norm_spec *norm;
    struct norm_kept kept;
    struct frame_linear linear;
    int64_t first, rank; /* columns of the entry */
};

static int list_low(const struct attention_spec *s, const struct attention_kept *kept,
                    struct low list[2])
{
    const struct latent_spec *l = &s->latent;
    int n = 0;
    list[n++] = (struct low){
        &l->kv_norm, kept->k_norm, {0, l->kv_w, -1, 0, false}, first_cols(s), l->kv_rank};
    if (l->q_rank)
        list[n++] = (struct low){&l->q_norm, kept->q_norm, {0, l->q_w, -1, 0, false}, 0, l->q_rank};
    return n;
}

static struct move low_move(const struct zinf_frame *f, const struct attention_spec *s,
                            const struct low *low, void *entry, void *rows)
{
    return (struct move){1, low->rank, columns_at(f, entry, low->first, latent_entry_cols(s), 0),
                         columns_at(f, rows, 0, low->rank, 0)};
}

/* The rows as the product left them, and normalised; they may be one. */
static int normalise(struct zinf_frame *f, const struct attention_spec *s, const struct low *low,
                     void *entry, void *raw, void *rows)
{
    struct zinf_norm norm = part_norm(f, low->norm, low->rank, raw, low->kept);
    const struct move move = low_move(f, s, low, entry, raw);
    norm.y = rows;
    int code = copy(f, &move, false);
    return code ? code : frame_norm(f, &norm);
}

/* ---- forward ---- */

struct norm_kept latent_keep_q(struct zinf_frame *f, const struct attention_spec *s)
{
    struct norm_kept none = {0};
    return s->latent.q_rank ? part_norm_keep(f, &s->latent.q_norm, 1) : none;
}

int latent_prepare(struct zinf_frame *f, const struct attention_spec *s,
                   const struct attention_kept *kept, void **qkv)
{
    struct low low[2];
    const int n_low = list_low(s, kept, low);
    *qkv = take_rows(f, 3 * s->n_heads * s->head_dim);
    const uint64_t start = frame_mark(f);
    const struct latent_rows r = rows_of(f, s, kept->qkv, *qkv);
    int code = 0;
    for (int i = 0; !code && i < n_low; i++) {
        const uint64_t mark = frame_mark(f);
        void *rows = take_rows(f, low[i].rank);
        code = normalise(f, s, &low[i], kept->qkv, rows, rows);
        if (!code)
            code = frame_linear(f, &low[i].linear, rows, i ? r.queries : r.kv);
        frame_release(f, mark);
    }
    if (!code)
        code = latent_put(f, s, &r);
    frame_release(f, start);
    return code;
}

/* What the product behind attention takes of its heads, or gives to them. */
static struct move result_move(const struct zinf_frame *f, const struct attention_spec *s,
                               void *heads, void *values)
{
    const int64_t n = s->n_heads, dim = s->head_dim, value = s->latent.value;
    return (struct move){n, value, columns_at(f, heads, 0, n * dim, dim),
                         columns_at(f, values, 0, n * value, value)};
}

int latent_result(struct zinf_frame *f, const struct attention_spec *s, void *heads, void **values)
{
    *values = heads;
    if (s->latent.value == s->head_dim)
        return 0;
    *values = take_rows(f, s->n_heads * s->latent.value);
    const struct move move = result_move(f, s, heads, *values);
    return copy(f, &move, false);
}

int latent_result_backward(struct zinf_frame *f, const struct attention_spec *s, void *values,
                           void *heads)
{
    const struct move move = result_move(f, s, heads, values);
    int code = copy(f, &move, true);
    return code ? code : zero_rest(f, s, s->n_heads, s->latent.value, move.from);
}

/* ---- backward ---- */

/* Of a row of low rank: gradients of its weights, and at the entry's columns. */
static int low_backward(struct zinf_frame *f, const struct attention_spec *s, const struct low *low,
                        void *entry, const void *d_product, void *d_entry)
{
    const uint64_t start = frame_mark(f);
    void *raw = take_rows(f, low->rank), *rows = take_rows(f, low->rank);
    void *d_rows = take_rows(f, low->rank);
    struct zinf_norm norm = part_norm(f, low->norm, low->rank, raw, low->kept);
    const struct move move = low_move(f, s, low, d_entry, d_rows);
    norm.dy = norm.dx = d_rows;
    norm.dw = frame_grad(f, 0, low->norm->w);
    int code = normalise(f, s, low, entry, raw, rows);
    if (!code)
        code = frame_linear_backward_weight(f, &low->linear, d_product, rows);
    if (!code)
        code = frame_linear_backward_input(f, &low->linear, d_product, d_rows);
    if (!code)
        code = frame_norm_backward(f, &norm);
    if (!code)
        code = copy(f, &move, true);
    frame_release(f, start);
    return code;
}

int latent_prepare_backward(struct zinf_frame *f, const struct attention_spec *s,
                            const struct attention_kept *kept, void *d_qkv, void *d_entry)
{
    const uint64_t start = frame_mark(f);
    struct low low[2];
    const int n_low = list_low(s, kept, low);
    const struct latent_rows d = rows_of(f, s, d_entry, d_qkv);
    int code = latent_take(f, s, &d);
    for (int i = 0; !code && i < n_low; i++)
        code = low_backward(f, s, &low[i], kept->qkv, i ? d.queries : d.kv, d_entry);
    frame_release(f, start);
    return code;
}
