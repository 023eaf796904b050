/* check: the argument checks of check.h. Also part of the CUDA module: no state, only base. */
#include "kernels/check.h"

#include <limits.h>
#include <math.h>

typedef long long ll;

/* wanted: 0, which says that there is no cap, is refused too. */
static int check_cap(float cap, bool wanted, const char *operation)
{
    if (isfinite(cap) && (cap > 0.0f || (cap == 0.0f && !wanted)))
        return 0;
    return zinf_fail(-EINVAL, "%s: a softcap of %g: it must be above 0", operation, (double)cap);
}

int check_softcap(float cap, const char *operation)
{
    return check_cap(cap, true, operation);
}

int check_squared_error(const struct zinf_squared_error *a)
{
    if (a->rows >= 0)
        return 0;
    return zinf_fail(-EINVAL, "squared_error: %lld rows", (ll)a->rows);
}

int check_preference(const struct zinf_preference *a)
{
    bool referenced = zinf_preference_has_reference(a->kind);
    if (a->pairs < 0 || a->seq < 1)
        return zinf_fail(-EINVAL, "preference: %lld pairs of sequences of %lld tokens",
                         (ll)a->pairs, (ll)a->seq);
    if ((unsigned)a->kind >= ZINF_PREFERENCES || referenced != (a->reference || a->sums) ||
        (a->reference && a->sums))
        return zinf_fail(-EINVAL, "preference: kind %d %s a reference", (int)a->kind,
                         a->reference || a->sums ? "with" : "without");
    if (a->kind == ZINF_PREFERENCE_REWARD && (a->seq != 1 || a->beta != 1.0f || !a->margins))
        return zinf_fail(-EINVAL, "preference: scores have one number a sequence, and margins");
    if (a->kind == ZINF_PREFERENCE_KTO && !(a->desirable >= 0.0f && a->undesirable >= 0.0f))
        return zinf_fail(-EINVAL, "preference: sequences count %g and %g", (double)a->desirable,
                         (double)a->undesirable);
    if (!(a->beta > 0.0f) || !(a->smoothing >= 0.0f && a->smoothing < 1.0f))
        return zinf_fail(-EINVAL, "preference: beta %g, label smoothing %g", (double)a->beta,
                         (double)a->smoothing);
    return 0;
}

int check_noise(const struct zinf_noise *a)
{
    if (a->n >= 0)
        return 0;
    return zinf_fail(-EINVAL, "noise: %lld elements", (ll)a->n);
}

static int check_float8(const struct zinf_matmul *m)
{
    if (m->float8 == ZINF_FLOAT8_NONE)
        return 0;
    if ((unsigned)m->float8 > ZINF_FLOAT8_E5M2 || m->a_dtype != ZINF_DTYPE_BF16 ||
        m->b_dtype != ZINF_DTYPE_BF16 || m->trans_a || m->few_rows)
        return zinf_fail(-EINVAL, "matmul: 8-bit floats are made of two bf16 matrices, the first "
                                  "not transposed, of many rows");
    if (m->n % ZINF_FLOAT8_EXTENT || m->k % ZINF_FLOAT8_EXTENT)
        return zinf_fail(-EINVAL,
                         "matmul: n %lld, k %lld of a product of 8-bit floats: they must be "
                         "multiples of %d",
                         (ll)m->n, (ll)m->k, ZINF_FLOAT8_EXTENT);
    /* sixteens of both are counted in 32 bits */
    if (m->m * m->k >> 36 || m->n * m->k >> 36)
        return zinf_fail(-EINVAL,
                         "matmul: m %lld, n %lld, k %lld of a product of 8-bit floats: the "
                         "matrices may have 2^36 numbers each",
                         (ll)m->m, (ll)m->n, (ll)m->k);
    return 0;
}

int check_matmul(const struct zinf_matmul *m)
{
    int64_t a_columns = m->trans_a ? m->m : m->k, b_columns = m->trans_b ? m->k : m->n;
    if (m->m < 0 || m->n < 0 || m->k < 1 || m->m > INT_MAX || m->n > INT_MAX || m->k > INT_MAX)
        return zinf_fail(-EINVAL, "matmul: m %lld, n %lld, k %lld", (ll)m->m, (ll)m->n, (ll)m->k);
    if (m->lda < a_columns || m->ldb < b_columns || m->ldc < m->n || m->lda > INT_MAX ||
        m->ldb > INT_MAX || m->ldc > INT_MAX)
        return zinf_fail(-EINVAL, "matmul: rows %lld, %lld, %lld apart for m %lld, n %lld, k %lld",
                         (ll)m->lda, (ll)m->ldb, (ll)m->ldc, (ll)m->m, (ll)m->n, (ll)m->k);
    if (m->beta != 0.0f && (m->beta != 1.0f || m->bias))
        return zinf_fail(-EINVAL, "matmul: beta is %g%s; it must be 0, or 1 without a bias",
                         (double)m->beta, m->bias ? " with a bias" : "");
    if (m->symmetric &&
        (m->m != m->n || m->beta != 0.0f || m->bias || m->a_dtype != ZINF_DTYPE_F32 ||
         m->b_dtype != ZINF_DTYPE_F32 || m->c_dtype != ZINF_DTYPE_F32))
        return zinf_fail(-EINVAL, "matmul: m %lld, n %lld, and C is to be symmetric, in fp32",
                         (ll)m->m, (ll)m->n);
    return check_float8(m);
}

int check_norm(const struct zinf_norm *a, const char *operation)
{
    if (a->rows < 0 || a->cols < 1)
        return zinf_fail(-EINVAL, "%s: %lld rows of %lld columns", operation, (ll)a->rows,
                         (ll)a->cols);
    if (a->heads < 0 || a->ld < 0 || norm_ld(a) < norm_heads(a) * a->cols)
        return zinf_fail(-EINVAL, "%s: %lld heads of %lld columns in rows %lld apart", operation,
                         (ll)a->heads, (ll)a->cols, (ll)a->ld);
    if ((unsigned)a->kind > ZINF_NORM_RMS)
        return zinf_fail(-EINVAL, "%s: unknown norm %d", operation, (int)a->kind);
    if (a->beta_dx != 0.0f && a->beta_dx != 1.0f)
        return zinf_fail(-EINVAL, "%s: beta_dx is %g, not 0 or 1", operation, (double)a->beta_dx);
    if (!a->w && a->b)
        return zinf_fail(-EINVAL, "%s: a bias without weights", operation);
    if (!a->dw && a->db)
        return zinf_fail(-EINVAL, "%s: a bias's gradient without that of weights", operation);
    return 0;
}

static int check_relative(const struct zinf_attention *a, const char *operation)
{
    const struct zinf_relative *r = a->relative;
    const bool other = a->key_seq && (!a->whole_seq || a->whole_keys);
    const bool alone = !a->causal && !a->window && !other && !a->bias && !a->slopes &&
                       a->softcap == 0.0f && a->n_heads == a->n_kv_heads;
    bool rises = r->half >= 1 && r->half <= ZINF_RELATIVE_MAX_HALF && !r->starts[0];
    for (int64_t b = 1; rises && b <= r->half; b++)
        rises = r->starts[b] >= r->starts[b - 1];
    if (!alone)
        return zinf_fail(-EINVAL,
                         "%s: relative positions beside a causal mask, a window, another sequence, "
                         "shared keys or another change of scores",
                         operation);
    if (rises && r->ld >= a->n_heads * a->head_dim && (r->queries || r->keys))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: 2 x %lld relative positions, of 2 x %d at most and starting from 0, in "
                     "rows of %lld for %lld heads of size %lld",
                     operation, (ll)r->half, ZINF_RELATIVE_MAX_HALF, (ll)r->ld, (ll)a->n_heads,
                     (ll)a->head_dim);
}

/* Checks the numbers that place a call's queries and keys in a longer sequence. */
static int check_parts(const struct zinf_attention *a, const char *operation)
{
    if (a->first_query < 0 || a->first_key < 0 || a->whole_seq < 0 || a->whole_keys < 0)
        return zinf_fail(-EINVAL,
                         "%s: %lld queries from token %lld on and %lld keys from %lld on of a "
                         "sequence of %lld",
                         operation, (ll)a->seq, (ll)a->first_query, (ll)a->key_seq,
                         (ll)a->first_key, (ll)a->whole_seq);
    if (!a->key_seq && (a->first_query || a->first_key || a->whole_seq || a->d_kv_sums))
        return zinf_fail(-EINVAL, "%s: queries of a part of a sequence need key_seq", operation);
    if (a->whole_keys && !a->whole_seq)
        return zinf_fail(-EINVAL, "%s: whole_keys needs whole_seq", operation);
    return 0;
}

/* Keys of several calls. */
static int check_running(const struct zinf_attention *a, const char *operation)
{
    const struct zinf_attention_running *running = a->running;
    const int64_t end = a->first_key + a->key_seq, tile = ZINF_ATTENTION_TILE;
    if (!a->key_seq)
        return zinf_fail(-EINVAL, "%s: keys of several calls need key_seq", operation);
    if (a->relative && !running->numbers && !running->rows)
        return zinf_fail(-EINVAL,
                         "%s: relative positions and keys of several calls need memory for the "
                         "gradients of rows",
                         operation);
    if (running->numbers && !running->part &&
        (a->first_key % tile || (!running->last && end % tile)))
        return zinf_fail(-EINVAL,
                         "%s: keys from %lld to %lld, which are not between tiles of %lld, need "
                         "memory for a part of one",
                         operation, (ll)a->first_key, (ll)end, (ll)tile);
    return 0;
}

static int check_dropout(const struct zinf_dropout *dropout, const char *operation)
{
    if (dropout->p >= 0.0f && dropout->p < 1.0f)
        return 0;
    return zinf_fail(-EINVAL, "%s: dropout of %g: it must be at least 0 and below 1", operation,
                     (double)dropout->p);
}

int check_attention(const struct zinf_attention *a, const char *operation)
{
    if (a->batch < 0 || a->seq < 1 || a->head_dim < 1 || a->n_heads < 1 || a->n_kv_heads < 1)
        return zinf_fail(
            -EINVAL, "%s: batch %lld, seq %lld, %lld heads, %lld key heads of size %lld", operation,
            (ll)a->batch, (ll)a->seq, (ll)a->n_heads, (ll)a->n_kv_heads, (ll)a->head_dim);
    if (a->n_heads % a->n_kv_heads)
        return zinf_fail(-EINVAL, "%s: %lld heads cannot share %lld key heads evenly", operation,
                         (ll)a->n_heads, (ll)a->n_kv_heads);
    if (a->window < 0 || (a->window && !a->causal))
        return zinf_fail(-EINVAL, "%s: a window of %lld%s; it must be 0 or more, and causal",
                         operation, (ll)a->window, a->causal ? "" : " without a causal mask");
    if (a->key_seq < 0)
        return zinf_fail(-EINVAL, "%s: %lld keys of another sequence", operation, (ll)a->key_seq);
    if (a->key_seq && !a->segments != !a->key_segments)
        return zinf_fail(-EINVAL, "%s: documents of queries or of keys alone", operation);
    if (a->bias && (a->softcap != 0.0f || a->slopes))
        return zinf_fail(-EINVAL, "%s: a bias by distance beside a soft cap or slopes", operation);
    if (a->slopes && a->n_heads > ZINF_ATTENTION_MAX_SLOPES)
        return zinf_fail(-EINVAL, "%s: slopes for %lld heads; at most %d can have them", operation,
                         (ll)a->n_heads, ZINF_ATTENTION_MAX_SLOPES);
    int code = check_cap(a->softcap, false, operation);
    if (!code)
        code = check_parts(a, operation);
    if (!code && a->relative)
        code = check_relative(a, operation);
    if (!code && a->running)
        code = check_running(a, operation);
    return code ? code : check_dropout(&a->dropout, operation);
}

int check_attention_cached(const struct zinf_attention_cached *a)
{
    if (a->rows < 0 || a->head_dim < 1 || a->n_heads < 1 || a->n_kv_heads < 1 ||
        a->n_heads % a->n_kv_heads)
        return zinf_fail(-EINVAL,
                         "attention_cached: %lld rows, %lld heads, %lld key heads of size %lld",
                         (ll)a->rows, (ll)a->n_heads, (ll)a->n_kv_heads, (ll)a->head_dim);
    if (a->n_sequences < 1 || a->capacity < 1 || a->window < 0 || a->window > a->capacity)
        return zinf_fail(-EINVAL,
                         "attention_cached: %lld sequences of %lld slots for a window of %lld",
                         (ll)a->n_sequences, (ll)a->capacity, (ll)a->window);
    if (a->piece < 0 || (a->piece && (a->window || a->source)))
        return zinf_fail(-EINVAL,
                         "attention_cached: pieces of %lld positions; it must be 0 or more, and 0 "
                         "beside a window or a source",
                         (ll)a->piece);
    if (a->bias && (a->window || a->softcap != 0.0f || a->slopes || a->source))
        return zinf_fail(-EINVAL, "attention_cached: a bias by distance beside a window, a soft "
                                  "cap, slopes or a source");
    if (a->source && (a->window || a->slopes || a->source->rows < 0))
        return zinf_fail(-EINVAL,
                         "attention_cached: %lld rows of a source beside a window or slopes",
                         (ll)a->source->rows);
    return 0;
}

int check_sinks(const struct zinf_sinks *a, const char *operation)
{
    if (a->batch >= 0 && a->seq >= 1 && a->n_heads >= 1 && a->head_dim >= 1 &&
        a->head_dim <= ZINF_SINKS_MAX_HEAD_DIM)
        return 0;
    return zinf_fail(-EINVAL, "%s: %lld samples of %lld rows of %lld heads of size %lld", operation,
                     (ll)a->batch, (ll)a->seq, (ll)a->n_heads, (ll)a->head_dim);
}

int check_heads(const struct zinf_heads *a)
{
    const int64_t y = (a->n_heads - 1) * a->y_step + a->cols;
    const int64_t x = a->x ? (a->n_heads - 1) * a->x_step + a->cols : 0;
    if (a->rows >= 0 && a->n_heads >= 1 && a->cols >= 1 && a->y_ld >= y && a->x_ld >= x &&
        (!zinf_heads_sum(a) || (a->x && a->cols <= ZINF_HEADS_MAX_SUM && !zinf_heads_scaled(a))))
        return 0;
    if (zinf_heads_sum(a) && zinf_heads_scaled(a))
        return zinf_fail(-EINVAL, "copy_heads: a sum over %lld heads cannot be scaled",
                         (ll)a->n_heads);
    return zinf_fail(-EINVAL,
                     "copy_heads: %lld rows of %lld heads of %lld columns, %lld and %lld elements "
                     "from row to row",
                     (ll)a->rows, (ll)a->n_heads, (ll)a->cols, (ll)a->x_ld, (ll)a->y_ld);
}

int check_distance_bias(const struct zinf_distance_bias *a, const char *operation)
{
    bool rises = a->n_buckets >= 1 && a->n_buckets <= ZINF_DISTANCE_MAX_BUCKETS && !a->starts[0];
    for (int i = 1; rises && i < a->n_buckets; i++)
        rises = a->starts[i] > a->starts[i - 1];
    if (rises && a->n_heads >= 1 && a->n_queries >= 1 && a->n_keys >= 1 && a->batch >= 0)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: %d buckets, of %d at most and rising from 0, for %lld heads, %lld "
                     "queries and %lld keys",
                     operation, a->n_buckets, ZINF_DISTANCE_MAX_BUCKETS, (ll)a->n_heads,
                     (ll)a->n_queries, (ll)a->n_keys);
}

int check_activation(enum zinf_activation kind)
{
    if ((unsigned)kind < ZINF_ACTIVATIONS)
        return 0;
    return zinf_fail(-EINVAL, "unknown activation %d", (int)kind);
}

int check_activation_sums(const struct zinf_activation_sums *a)
{
    if (a->rows < 0 || a->cols < 0)
        return zinf_fail(-EINVAL, "activation_sums: %lld rows of %lld columns", (ll)a->rows,
                         (ll)a->cols);
    return check_activation(a->kind);
}

int check_gated(const struct zinf_gated *a, const char *operation)
{
    if (a->rows < 0 || a->cols < 1 || (a->gate_ld && a->gate_ld < a->cols))
        return zinf_fail(-EINVAL, "%s: %lld rows of %lld columns, gates %lld apart", operation,
                         (ll)a->rows, (ll)a->cols, (ll)a->gate_ld);
    return check_activation(a->kind);
}

int check_unfold(const struct zinf_unfold *a, const char *operation)
{
    if (a->batch >= 0 && a->seq >= 1 && a->cols >= 1 && a->width >= 1 && a->width % 2 &&
        a->width <= ZINF_UNFOLD_MAX_WIDTH && (a->beta_dx == 0.0f || a->beta_dx == 1.0f))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: batch %lld, seq %lld, %lld columns, %lld rows side by side (odd, at most "
                     "%d), beta_dx %g (0 or 1)",
                     operation, (ll)a->batch, (ll)a->seq, (ll)a->cols, (ll)a->width,
                     ZINF_UNFOLD_MAX_WIDTH, (double)a->beta_dx);
}

/* Whether an operation may take rows that continue those of another call: of one sequence, and with
 * all that the ends ask for. */
static bool may_go_on(int64_t batch, const struct zinf_remembered *remembered,
                      const struct zinf_ends *ends, bool backward)
{
    const bool whole = !ends || (ends->rows >= 0 && (!ends->rows || ends->before) &&
                                 !(backward && ends->rows && !ends->d_before));
    return (!remembered && !ends) || (batch == 1 && !(remembered && (ends || backward)) && whole);
}

int check_convolution(const struct zinf_convolution *a, bool backward)
{
    const char *operation = backward ? "convolution_backward" : "convolution_forward";
    if (a->batch >= 0 && a->seq >= 1 && a->cols >= 1 && a->ld >= a->cols && a->width >= 1 &&
        a->width <= ZINF_CONVOLUTION_MAX_WIDTH &&
        may_go_on(a->batch, a->remembered, a->ends, backward))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: batch %lld, seq %lld, %lld columns of %lld, %lld rows in view (at most "
                     "%d)%s%s",
                     operation, (ll)a->batch, (ll)a->seq, (ll)a->cols, (ll)a->ld, (ll)a->width,
                     ZINF_CONVOLUTION_MAX_WIDTH, a->remembered ? ", remembered" : "",
                     a->ends ? ", a piece of a sequence" : "");
}

int check_scan(const struct zinf_scan *a, const char *operation)
{
    const bool shaped = a->key_heads >= 1 && a->value_heads >= 1 && a->key_dim >= 1 &&
                        a->value_dim >= 1 && a->key_dim <= ZINF_SCAN_MAX_DIM &&
                        a->value_dim <= ZINF_SCAN_MAX_DIM && a->value_heads % a->key_heads == 0;
    const int64_t widest = a->key_heads * a->key_dim > a->value_heads * a->value_dim
                               ? a->key_heads * a->key_dim
                               : a->value_heads * a->value_dim;
    if (shaped && a->batch >= 0 && a->seq >= 1 && a->ld >= widest && a->gate_ld >= a->value_heads &&
        (unsigned)a->rule <= ZINF_RECURRENCE_DECAY &&
        may_go_on(a->batch, a->remembered, a->ends, a->backward))
        return 0;
    return zinf_fail(
        -EINVAL,
        "%s: batch %lld, seq %lld, %lld key heads of size %lld and %lld value heads of "
        "size %lld (each at most %d), rows %lld and %lld apart%s%s",
        operation, (ll)a->batch, (ll)a->seq, (ll)a->key_heads, (ll)a->key_dim, (ll)a->value_heads,
        (ll)a->value_dim, ZINF_SCAN_MAX_DIM, (ll)a->ld, (ll)a->gate_ld,
        a->remembered ? ", remembered" : "", a->ends ? ", a piece of a sequence" : "");
}

int check_xielu(const struct zinf_xielu *a, const char *operation)
{
    if (a->rows >= 0 && a->cols >= 1)
        return 0;
    return zinf_fail(-EINVAL, "%s: %lld rows of %lld columns", operation, (ll)a->rows, (ll)a->cols);
}

int check_rope(const struct zinf_rope *a)
{
    if (a->rows < 0 || a->n_heads < 1 || a->head_dim < 1 || a->ld < a->n_heads * a->head_dim)
        return zinf_fail(-EINVAL, "rope: %lld rows %lld apart of %lld heads of size %lld",
                         (ll)a->rows, (ll)a->ld, (ll)a->n_heads, (ll)a->head_dim);
    if (a->growth != 0 &&
        (a->growth_every < 1 || a->growth_ahead < 0 || a->rotary_dims != a->head_dim))
        return zinf_fail(
            -EINVAL, "rope: growth every %lld positions, %lld ahead, of %lld of %lld dimensions",
            (ll)a->growth_every, (ll)a->growth_ahead, (ll)a->rotary_dims, (ll)a->head_dim);
    if (a->rotary_dims < 2 || a->rotary_dims % 2 || a->rotary_dims > a->head_dim ||
        a->rotary_dims / 2 > ZINF_ROPE_MAX_PAIRS)
        return zinf_fail(-EINVAL,
                         "rope: %lld rotary dimensions in heads of size %lld: give an even number "
                         "from 2 to %d and not above the head's size",
                         (ll)a->rotary_dims, (ll)a->head_dim, 2 * ZINF_ROPE_MAX_PAIRS);
    return 0;
}

int check_embedding(const struct zinf_embedding *a, const char *operation)
{
    if (a->rows < 0 || a->cols < 1 || a->count < 0 || a->first < 0)
        return zinf_fail(-EINVAL, "%s: %lld rows of %lld columns from a table of %lld at %lld",
                         operation, (ll)a->rows, (ll)a->cols, (ll)a->count, (ll)a->first);
    return 0;
}

int check_route(const struct zinf_route *a, const char *operation)
{
    if (a->rows < 0 || a->cols < 1 || a->cols > ZINF_ROUTE_MAX_COLS || a->n_chosen < 1 ||
        a->n_chosen > a->cols)
        return zinf_fail(-EINVAL,
                         "%s: %lld rows choose %lld of %lld experts; up to %d experts are possible",
                         operation, (ll)a->rows, (ll)a->n_chosen, (ll)a->cols, ZINF_ROUTE_MAX_COLS);
    const int64_t groups = a->n_groups, chosen = a->n_groups_chosen;
    if (groups && (groups < 1 || groups > ZINF_ROUTE_MAX_GROUPS || a->cols % groups || chosen < 1 ||
                   chosen > groups || a->group_top < 1 || a->group_top > a->cols / groups ||
                   a->group_top > 2 || a->n_chosen > a->cols / groups * chosen))
        return zinf_fail(-EINVAL,
                         "%s: rows choose %lld of %lld groups, and %lld of %lld experts from these",
                         operation, (ll)chosen, (ll)groups, (ll)a->n_chosen, (ll)a->cols);
    return 0;
}

int check_shares(const struct zinf_shares *a)
{
    if (a->samples < 0 || a->seq < 1 || a->cols < 1 || a->cols > ZINF_ROUTE_MAX_COLS)
        return zinf_fail(-EINVAL, "route_shares: %lld samples of %lld rows, %lld experts",
                         (ll)a->samples, (ll)a->seq, (ll)a->cols);
    return 0;
}

int check_balance(const struct zinf_balance *a)
{
    if (a->samples < 0 || a->cols < 1 || a->cols > ZINF_ROUTE_MAX_COLS)
        return zinf_fail(-EINVAL, "route_balance: %lld samples, %lld experts", (ll)a->samples,
                         (ll)a->cols);
    return 0;
}

int check_rows(const struct zinf_rows *a, const char *operation)
{
    if (a->n < 0 || a->cols < 1)
        return zinf_fail(-EINVAL, "%s: %lld rows of %lld columns", operation, (ll)a->n,
                         (ll)a->cols);
    if (a->y_dtype != a->x_dtype && a->y_dtype != ZINF_DTYPE_F32)
        return zinf_fail(-EINVAL, "%s: sums in %s of rows in %s", operation,
                         zinf_dtype_name(a->y_dtype), zinf_dtype_name(a->x_dtype));
    return 0;
}

int check_weigh(const struct zinf_weigh *a)
{
    if (a->n < 0 || a->cols < 1 || a->ld < 1)
        return zinf_fail(-EINVAL, "weigh_rows: %lld rows of %lld columns, weights %lld apart",
                         (ll)a->n, (ll)a->cols, (ll)a->ld);
    return 0;
}

int check_magnitude(const struct zinf_magnitude *a)
{
    if (a->rows < 0 || (a->w && (a->cols < 1 || a->rank < 1)))
        return zinf_fail(-EINVAL, "magnitude: %lld rows of %lld columns, rank %lld", (ll)a->rows,
                         (ll)a->cols, (ll)a->rank);
    return 0;
}

int check_column_scale(const struct zinf_column_scale *a)
{
    if (a->rows < 0 || a->cols < 1)
        return zinf_fail(-EINVAL, "scale_columns: %lld rows of %lld columns", (ll)a->rows,
                         (ll)a->cols);
    return 0;
}

int check_column_dot(const struct zinf_column_dot *a)
{
    if (a->rows < 0 || a->cols < 1 || a->ld < a->cols)
        return zinf_fail(-EINVAL, "dot_columns: %lld rows of %lld columns, %lld apart", (ll)a->rows,
                         (ll)a->cols, (ll)a->ld);
    return 0;
}

int check_loss(const struct zinf_cross_entropy *a, bool tile, const char *operation)
{
    if (a->rows < 0)
        return zinf_fail(-EINVAL, "%s: %lld rows", operation, (ll)a->rows);
    if (tile && (a->cols < 1 || a->ld < a->cols || a->first < 0))
        return zinf_fail(-EINVAL, "%s: a tile of %lld columns at %lld with rows %lld apart",
                         operation, (ll)a->cols, (ll)a->first, (ll)a->ld);
    if (!(a->smoothing >= 0.0f && a->smoothing < 1.0f) || (a->smoothing != 0.0f && a->vocab < 1))
        return zinf_fail(-EINVAL, "%s: label smoothing of %g over %lld ids", operation,
                         (double)a->smoothing, (ll)a->vocab);
    if (!(a->z_loss >= 0.0f))
        return zinf_fail(-EINVAL, "%s: z-loss of %g: it must be at least 0", operation,
                         (double)a->z_loss);
    if (!(a->max_z_loss >= 0.0f) || (a->max_z_loss != 0.0f && !a->max_at))
        return zinf_fail(-EINVAL, "%s: loss of the largest logit of %g%s", operation,
                         (double)a->max_z_loss, a->max_at ? "" : ", which is not kept");
    return check_cap(a->softcap, false, operation);
}

int check_residual(const struct zinf_residual *a, const char *operation)
{
    if (a->n < 0)
        return zinf_fail(-EINVAL, "%s: %lld elements", operation, (ll)a->n);
    return check_dropout(&a->dropout, operation);
}

int check_residual_norm(const struct zinf_residual *sum, const struct zinf_norm *norm)
{
    int code = check_residual(sum, "residual_norm");
    if (!code)
        code = check_norm(norm, "residual_norm");
    if (code)
        return code;
    const bool plain = norm_heads(norm) == 1 && norm_ld(norm) == norm->cols;
    if (plain && norm->x == sum->y && norm->dtype == sum->dtype &&
        sum->n == norm->rows * norm->cols)
        return 0;
    return zinf_fail(-EINVAL,
                     "residual_norm: a norm of %lld rows of %lld columns is not of the sum of "
                     "%lld elements alone",
                     (ll)norm->rows, (ll)norm->cols, (ll)sum->n);
}

int check_column_sum(int64_t rows, int64_t cols)
{
    if (rows < 0 || cols < 0)
        return zinf_fail(-EINVAL, "column_sum: %lld rows of %lld columns", (ll)rows, (ll)cols);
    return 0;
}

int check_dequantize(const struct zinf_dequantize *a)
{
    const struct zinf_quantized *p = &a->quantized;
    bool inside = a->rows >= 0 && a->count >= 0 && a->from_first >= 0 && a->from_stride >= 0 &&
                  a->to_first >= 0 && a->to_stride >= 0;
    if (inside && a->rows && a->count)
        inside = a->from_first + (a->count - 1) * a->from_stride + a->rows <= (ll)p->rows;
    if (!inside || p->form == ZINF_FORM_PLAIN)
        return zinf_fail(-EINVAL,
                         "dequantize: %lld runs of %lld rows from row %lld on of %llu in %s",
                         (ll)a->count, (ll)a->rows, (ll)a->from_first, (unsigned long long)p->rows,
                         p->form == ZINF_FORM_PLAIN ? "no quantised form" : "a quantised form");
    if (p->form == ZINF_FORM_MXFP4 && p->cols % ZINF_QUANT_MX_BLOCK)
        return zinf_fail(-EINVAL,
                         "dequantize: rows of %llu numbers of MXFP4: they are multiples of %d",
                         (unsigned long long)p->cols, ZINF_QUANT_MX_BLOCK);
    return 0;
}

int check_unpack(const struct zinf_packed_array *a)
{
    /* words of 4 bytes are counted in 32 bits */
    if (!a->n || (a->n >> 32 == 0 && a->x && a->image && (uintptr_t)a->image % 64 == 0))
        return 0;
    return zinf_fail(-EINVAL, "unpack: %llu elements, or an image that is not on a multiple of 64",
                     (unsigned long long)a->n);
}

int check_widen(const struct zinf_widen *a)
{
    /* A grid has at most 65535 blocks along its second dimension, one for each run. */
    if (!a->n_runs || (a->n_runs < 65536 && a->most >> 36 == 0 && a->image && a->params &&
                       ((uintptr_t)a->image | (uintptr_t)a->params) % 16 == 0))
        return 0;
    return zinf_fail(-EINVAL,
                     "widen: %u runs of up to %llu elements, or memory that is not on a multiple "
                     "of 16",
                     a->n_runs, (unsigned long long)a->most);
}

int check_workspace(uint64_t have, uint64_t bytes, const char *operation)
{
    if (bytes <= have)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s needs a workspace of %llu bytes and the queue has %llu: plan the size "
                     "that the device's workspace query returns",
                     operation, (unsigned long long)bytes, (unsigned long long)have);
}
