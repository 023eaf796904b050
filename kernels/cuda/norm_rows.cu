/*
 * norm_rows: the forward of norms whose rows a team of threads can keep (teams.cuh), which is all
 * of them but unaligned and very wide ones; and the same with the sum in front of it, whose rows are
 * then normalised before they leave the registers. A row is read once. The variance is made of
 * distances from the row's mean; what rounding leaves of their mean is taken off both, so that a
 * mean far above the deviation costs nothing.
 */
#include "kernels/cuda/residual.cuh"
#include "kernels/cuda/teams.cuh"

enum { ROWS_BLOCKS = 512 }; /* from so many blocks on a team has several rows, with the same w, b */
enum { MOST_ROWS = 8 };

template <class T> struct norm_rows_args {
    const T *x, *w, *b;
    T *y;
    float *mean, *rstd;
    row_split split;
    int64_t rows;
    int cols, threads, rows_each; /* threads of a block */
    float eps, share, w_add;      /* share: 1 / cols */
    bool centred;
    residual_rule<T> sum; /* of which x is the result */
};

/* x: 8 elements, from element e on, or zeros if these are not this thread's; of a sum they are also
 * stored. */
template <class T, bool ADDS>
DEVICE void take_columns(const norm_rows_args<T> &a, int64_t e, bool own, float (&x)[EACH])
{
    if (!ADDS) {
        load_own(x, a.x + e, own);
        return;
    }
    float r[EACH];
    load_own(r, a.sum.r + e, own);
    load_own(x, a.sum.x + e, own);
    residual_of(a.sum, (uint64_t)e, x, r);
    store_rounded(a.sum.y + e, x, own);
}

/* x, whose columns add up to sum, loses its mean as far as rounding lets it. Returns what is to be
 * added to x rstd, so that the mean of that is 0. */
template <class T, int LANES, int PIECES>
DEVICE float row_statistics(const norm_rows_args<T> &a, float (&x)[PIECES][EACH], float sum,
                            team_places &places, int &turn, float &mean, float &rstd)
{
    float squares = 0.0f;
    mean = a.centred ? team_sum<LANES>(sum, places, turn, a.threads) * a.share : 0.0f;
    sum = 0.0f;
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        UNROLL for (int k = 0; k < EACH; k++) x[i][k] -= mean;
        if (team_column<LANES>(i, a.threads) < a.cols)
            UNROLL for (int k = 0; k < EACH; k++)
            {
                sum += x[i][k];
                squares += x[i][k] * x[i][k];
            }
    }
    team_sums<LANES>(sum, squares, places, turn, a.threads);
    const float left = a.centred ? sum * a.share : 0.0f; /* of the mean */
    const float variance = squares * a.share - left * left;
    rstd = 1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + a.eps);
    mean += left;
    return -left * rstd;
}

template <class T, int LANES, int PIECES, bool ADDS>
KERNEL(LANES <= 32 ? TEAM_THREADS : TEAM_BLOCK) norm_rows_kernel(norm_rows_args<T> a)
{
    __shared__ team_places places;
    float x[PIECES][EACH], w[PIECES][EACH], b[PIECES][EACH];
    const int teams = TEAMS_OF(a.threads);
    team_weights<T, LANES>(a.w, a.w_add, a.cols, a.threads, w);
    team_weights<T, LANES>(a.b, 0.0f, a.cols, a.threads, b);
    int64_t row = (int64_t)blockIdx.x * a.rows_each * teams + team_number<LANES>();
    int turn = 0;
    NO_UNROLL for (int k = 0; k < a.rows_each; k++, row += teams)
    {
        const int64_t at = row_at(a.split, row);
        float mean, rstd, sum = 0.0f;
        UNROLL for (int i = 0; i < PIECES; i++)
        {
            const int c = team_column<LANES>(i, a.threads);
            take_columns<T, ADDS>(a, at + c, row < a.rows && c < a.cols, x[i]);
            UNROLL for (int j = 0; j < EACH; j++) sum += x[i][j];
        }
        const float shift = row_statistics<T, LANES>(a, x, sum, places, turn, mean, rstd);
        if (row < a.rows && team_column<LANES>(0, a.threads) == 0) {
            if (a.centred)
                a.mean[row] = mean;
            a.rstd[row] = rstd;
        }
        UNROLL for (int i = 0; i < PIECES; i++)
        {
            const int c = team_column<LANES>(i, a.threads);
            UNROLL for (int j = 0; j < EACH; j++) x[i][j] =
                fused(fused(x[i][j], rstd, shift), w[i][j], b[i][j]);
            if (row < a.rows && c < a.cols)
                store_vector(a.y + at + c, x[i]);
        }
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
        const int64_t each = a.rows / (teams * ROWS_BLOCKS);
        a.rows_each = each < 1 ? 1 : each < MOST_ROWS ? (int)each : MOST_ROWS;
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
