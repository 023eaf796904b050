/*
 * norm_rows: the forward pass of norms whose rows a team of threads can keep in registers
 * (teams.cuh): all rows but unaligned and very wide ones. A second form of the kernel first adds a
 * branch to the row (residual.cuh) and then normalises the sum before it leaves the registers. Each
 * row is read once. The first form loads the next row while a row is worked on; the second would
 * need so many registers for that, that fewer warps would have room. The variance is made of
 * distances from the row's mean. Rounding leaves these a small mean of their own, which is taken
 * off the mean and the variance, so that a mean far above the deviation costs no digits.
 */
#include "kernels/cuda/residual.cuh"
#include "kernels/cuda/teams.cuh"

/* A team has several rows, for which it loads w and b once, if that leaves work for so many warps:
 * two blocks of 8 warps on each of 128 multiprocessors are 2048. */
enum { NORM_WARPS = 2048, NORM_MOST_ROWS = 8 };

template <class T> struct norm_rows_args {
    const T *x, *w, *b;
    T *y;
    float *mean, *rstd;
    row_split split;
    int64_t rows;
    int cols, threads; /* threads: of a block */
    int rows_each;     /* the most rows of a team */
    float eps, w_add;
    float share; /* 1 / cols */
    bool centred;
    residual_rule<T> sum; /* the sum that makes x, where there is one */
};

/* 8 elements of a row as they lie in memory. */
template <class T> struct stored_columns {
    words4 at[sizeof(T) / 2];
};

template <class T> DEVICE void load_stored(stored_columns<T> &to, const T *from)
{
    UNROLL for (unsigned i = 0; i < sizeof(T) / 2; i++) to.at[i] =
        ((const words4 *)(const void *)from)[i];
}
template <class T> DEVICE void unpack_stored(float (&to)[EACH], const stored_columns<T> &from)
{
    unpack<T>(to, from.at[0]);
}
DEVICE void unpack_stored(float (&to)[EACH], const stored_columns<float> &from)
{
    memcpy(to, from.at, sizeof to);
}

/* The columns that a thread keeps: x of the row at hand, w and b of all rows, and what is being
 * loaded of the next row, unless that is a sum. owns says which pieces of columns a row has; the
 * others are never read. */
template <class T, int PIECES> struct team_row {
    float x[PIECES][EACH], w[PIECES][EACH], b[PIECES][EACH];
    stored_columns<T> fetched[PIECES];
    bool owns[PIECES];
};

/* The first element of a piece. e is the first element of piece 0. */
template <int LANES> DEVICE int64_t piece_at(int64_t e, int piece, int threads)
{
    return e + piece * (LANES <= 32 ? LANES : threads) * EACH;
}

/* Starts the loads of a row. */
template <class T, int LANES, int PIECES>
DEVICE void fetch_row(const norm_rows_args<T> &a, team_row<T, PIECES> &s, int64_t e)
{
    UNROLL for (int i = 0; i < PIECES; i++) if (s.owns[i])
        load_stored(s.fetched[i], a.x + piece_at<LANES>(e, i, a.threads));
}

/* Loads 8 elements of both terms of a sum, makes the sum and stores it. */
template <class T>
DEVICE void take_sum(const norm_rows_args<T> &a, float (&x)[EACH], int64_t e, bool there)
{
    stored_columns<T> first = {}, branch = {};
    float r[EACH];
    if (there) {
        load_stored(first, a.sum.x + e);
        load_stored(branch, a.sum.r + e);
    }
    unpack_stored(x, first);
    unpack_stored(r, branch);
    residual_of(a.sum, (uint64_t)e, x, r);
    store_rounded(a.sum.y + e, x, there);
}

/* Makes x of what has been fetched, or of a sum, and returns the sum of this thread's columns. */
template <class T, int LANES, int PIECES, bool ADDS>
DEVICE float take_row(const norm_rows_args<T> &a, team_row<T, PIECES> &s, int64_t e, bool there)
{
    float sum = 0.0f;
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        if (!s.owns[i])
            continue;
        if (ADDS)
            take_sum(a, s.x[i], piece_at<LANES>(e, i, a.threads), there);
        else
            unpack_stored(s.x[i], s.fetched[i]);
        UNROLL for (int k = 0; k < EACH; k++) sum += s.x[i][k];
    }
    return sum;
}

/* Makes a row's mean and rstd, and takes the mean off x. sum is that of this thread's columns.
 * Rounding leaves x a small mean; returned is what has to be added to x rstd against it. */
template <class T, int LANES, int PIECES>
DEVICE float row_statistics(const norm_rows_args<T> &a, team_row<T, PIECES> &s, float sum,
                            team_places &places, int &turn, float &mean, float &rstd)
{
    float squares = 0.0f;
    mean = a.centred ? team_sum<LANES>(sum, places, turn, a.threads) * a.share : 0.0f;
    sum = 0.0f;
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        if (!s.owns[i])
            continue;
        if (a.centred)
            UNROLL for (int k = 0; k < EACH; k++) sum += s.x[i][k] -= mean;
        UNROLL for (int k = 0; k < EACH; k++) squares += s.x[i][k] * s.x[i][k];
    }
    team_sums<LANES>(sum, squares, places, turn, a.threads);
    const float left = a.centred ? sum * a.share : 0.0f; /* what is left of the mean */
    const float variance = squares * a.share - left * left;
    rstd = 1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + a.eps);
    mean += left;
    return -left * rstd;
}

/* Writes y = (x rstd + shift) w + b. */
template <class T, int LANES, int PIECES>
DEVICE void store_row(const norm_rows_args<T> &a, team_row<T, PIECES> &s, int64_t e, float rstd,
                      float shift)
{
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        if (!s.owns[i])
            continue;
        UNROLL for (int k = 0; k < EACH; k++) s.x[i][k] =
            fused(fused(s.x[i][k], rstd, shift), s.w[i][k], s.b[i][k]);
        store_vector(a.y + piece_at<LANES>(e, i, a.threads), s.x[i]);
    }
}

/* How many rows a team has whose first row is this one; each further row is step behind. */
template <class T> DEVICE int rows_of_team(const norm_rows_args<T> &a, int64_t row, int step)
{
    const int64_t left = (a.rows - row + step - 1) / step;
    return left < a.rows_each ? (int)left : a.rows_each;
}

template <class T, int LANES, int PIECES, bool ADDS>
KERNEL(LANES <= 32 ? TEAM_THREADS : TEAM_BLOCK)
norm_rows_kernel(norm_rows_args<T> a)
{
    __shared__ team_places places;
    team_row<T, PIECES> s = {};
    const int teams = LANES <= 32 ? TEAM_THREADS / LANES : 1;
    const int first = team_column<LANES>(0, a.threads);
    int64_t row = (int64_t)blockIdx.x * a.rows_each * teams + team_number<LANES>();
    const int rows = rows_of_team(a, row, teams);
    int64_t e = row_at(a.split, row) + first;
    UNROLL for (int i = 0; i < PIECES; i++) s.owns[i] =
        team_owns<LANES, PIECES>(i, a.threads, a.cols);
    if (!ADDS && rows > 0)
        fetch_row<T, LANES>(a, s, e);
    team_weights<T, LANES>(a.w, a.w_add, a.cols, a.threads, s.w);
    team_weights<T, LANES>(a.b, 0.0f, a.cols, a.threads, s.b);
    start_places<LANES>(places, a.threads);
    int turn = 0;
    /* teams that share a warp make the same number of turns; there says that this one has a row */
    NO_UNROLL for (int k = 0; k < (LANES <= 32 ? a.rows_each : rows); k++)
    {
        const bool there = LANES > 32 || k < rows;
        float mean, rstd, sum = take_row<T, LANES, PIECES, ADDS>(a, s, e, there);
        const int64_t next = row_at(a.split, row + teams) + first;
        if (!ADDS && k + 1 < rows)
            fetch_row<T, LANES>(a, s, next);
        const float shift = row_statistics<T, LANES, PIECES>(a, s, sum, places, turn, mean, rstd);
        if (there && first == 0) {
            if (a.centred)
                a.mean[row] = mean;
            a.rstd[row] = rstd;
        }
        if (there)
            store_row<T, LANES>(a, s, e, rstd, shift);
        row += teams;
        e = next;
    }
}

bool norm_rows_serves(const struct zinf_norm *z, const struct zinf_residual *sum)
{
    return teams_serve(z) && aligned16(z->y) &&
           (!sum || (aligned16(sum->x) && aligned16(sum->r) && aligned16(sum->y)));
}

template <class T, bool ADDS>
static cudaError_t norm_rows_typed(cudaStream_t stream, const struct zinf_norm *z,
                                   const residual_rule<T> &sum)
{
    norm_rows_args<T> a = {};
    a.x = (const T *)z->x;
    a.w = (const T *)z->w;
    a.b = (const T *)z->b;
    a.y = (T *)z->y;
    a.mean = z->mean;
    a.rstd = z->rstd;
    a.split = row_split_of(z);
    a.rows = z->rows * a.split.heads;
    a.cols = (int)z->cols;
    a.eps = z->eps;
    a.share = 1.0f / (float)z->cols;
    a.w_add = norm_w_add(z);
    a.centred = z->kind == ZINF_NORM_LAYER;
    a.sum = sum;
    BY_TEAM(a.cols, {
        a.threads = LANES <= 32 ? TEAM_THREADS : team_block(a.cols);
        const int64_t teams = TEAMS_OF(a.threads);
        const int64_t each = a.rows * (a.threads / 32) / (teams * NORM_WARPS);
        a.rows_each = each < 1 ? 1 : each < NORM_MOST_ROWS ? (int)each : NORM_MOST_ROWS;
        return launch(known<norm_rows_kernel<T, LANES, PIECES, ADDS>>(),
                      dim3(blocks_for((uint64_t)a.rows, (uint64_t)(teams * a.rows_each))),
                      dim3((unsigned)a.threads), 0, stream, a);
    });
}

cudaError_t launch_norm_rows(cudaStream_t stream, const struct zinf_norm *z)
{
    BY_DTYPE(z->dtype, return (norm_rows_typed<T, false>(stream, z, residual_rule<T>{})));
}

cudaError_t launch_residual_norm(cudaStream_t stream, const struct zinf_residual *sum,
                                 const struct zinf_norm *z)
{
    BY_DTYPE(z->dtype,
             return (norm_rows_typed<T, true>(stream, z, residual_rule_of<T>(sum, sum->x))));
}
