/*
 * norm_gradient: a norm's dx, dw and db in one pass over x and dy, by teams of threads (teams.cuh).
 * A block has a slab of rows, by their number alone, and its teams take turns at them. A thread
 * adds to its columns' sums of dw and db while a row is at hand for dx, so that no row is read
 * again; at the end of the slab its teams' sums are added in order, and a second kernel adds the
 * slabs' in an order that the shape alone decides (columns.cu). Where neither dw nor db is wanted
 * there are no sums. dx may be dy: the thread that writes an element has read it before.
 */
#include "kernels/cuda/teams.cuh"

enum { TEAM_ROWS = 4 }; /* of a slab for each team, or it has fewer teams */

template <class T> struct gradient_args {
    const T *x, *w, *dy;
    T *dx;
    const float *mean, *rstd;
    float *sums; /* [slabs][n_sums][cols]: dw, then db; NULL: not wanted */
    row_split split;
    int64_t rows, slab_rows;
    int cols, threads, n_sums; /* threads of a block */
    float w_add, share;        /* share: 1 / cols */
    bool centred, add;
};

/* A thread's columns of the row that it is at, and its sums over rows. */
template <int PIECES> struct gradient_columns {
    float normal[PIECES][EACH], g[PIECES][EACH]; /* (x - mean) rstd, dy w */
    float w[PIECES][EACH], dw[PIECES][EACH], db[PIECES][EACH];
};

/* 8 columns of a row: adds to the sums over rows and, of this thread's columns, g and g normal to
 * sum_g and sum_gx. */
template <class T, int PIECES>
DEVICE void load_columns(const gradient_args<T> &a, gradient_columns<PIECES> &s, int i, int64_t e,
                         float mean, float rstd, float &sum_g, float &sum_gx)
{
    load_vector(s.normal[i], a.x + e);
    load_vector(s.g[i], a.dy + e);
    UNROLL for (int k = 0; k < EACH; k++) s.normal[i][k] = (s.normal[i][k] - mean) * rstd;
    if (a.sums)
        UNROLL for (int k = 0; k < EACH; k++) s.dw[i][k] += s.g[i][k] * s.normal[i][k];
    if (a.n_sums > 1)
        UNROLL for (int k = 0; k < EACH; k++) s.db[i][k] += s.g[i][k];
    UNROLL for (int k = 0; k < EACH; k++)
    {
        s.g[i][k] *= s.w[i][k];
        sum_gx += s.g[i][k] * s.normal[i][k];
    }
    if (a.centred)
        UNROLL for (int k = 0; k < EACH; k++) sum_g += s.g[i][k];
}

/* dx (+)= rstd (g - mean_g - normal mean_gx), of 8 columns; from_g and from_normal are rstd times
 * the means. */
template <class T, int PIECES>
DEVICE void store_columns(const gradient_args<T> &a, const gradient_columns<PIECES> &s, int i,
                          int64_t e, float rstd, float from_g, float from_normal)
{
    float dx[EACH];
    UNROLL for (int k = 0; k < EACH; k++) dx[k] =
        s.g[i][k] * rstd - (s.normal[i][k] * from_normal + from_g);
    if (a.add) {
        float before[EACH];
        load_vector(before, a.dx + e);
        UNROLL for (int k = 0; k < EACH; k++) dx[k] += before[k];
    }
    store_vector(a.dx + e, dx);
}

template <class T, int LANES, int PIECES>
DEVICE void one_row(const gradient_args<T> &a, gradient_columns<PIECES> &s, int64_t row, bool there,
                    team_places &places, int &turn)
{
    const int64_t at = row_at(a.split, row);
    const float mean = a.centred && there ? a.mean[row] : 0.0f, rstd = there ? a.rstd[row] : 0.0f;
    float sum_g = 0.0f, sum_gx = 0.0f;
    UNROLL for (int i = 0; i < PIECES;
                i++) if (there && team_owns<LANES, PIECES>(i, a.threads, a.cols))
        load_columns(a, s, i, at + team_column<LANES>(i, a.threads), mean, rstd, sum_g, sum_gx);
    team_sums<LANES>(sum_g, sum_gx, places, turn, a.threads);
    const float each = rstd * a.share;
    UNROLL for (int i = 0; i < PIECES;
                i++) if (there && team_owns<LANES, PIECES>(i, a.threads, a.cols))
        store_columns(a, s, i, at + team_column<LANES>(i, a.threads), rstd, sum_g * each,
                      sum_gx * each);
}

/* The sums of 8 columns over all teams of the block, to where the slab has these columns. again:
 * what an earlier call has put into shared may still be read. */
template <class T, int LANES>
DEVICE void add_teams(const gradient_args<T> &a, int i, const float (&sum)[EACH], float *to,
                      float *shared, bool again)
{
    const int first = i * LANES * EACH;
    if (again)
        sync_block();
    store_vector(shared + threadIdx.x * EACH, sum);
    sync_block();
    for (int c = threadIdx.x; c < LANES * EACH && first + c < a.cols; c += a.threads) {
        float all = shared[c];
        for (int team = LANES * EACH; team < a.threads * EACH; team += LANES * EACH)
            all += shared[team + c];
        to[first + c] = all;
    }
}

template <class T, int LANES, int PIECES>
KERNEL(LANES <= 32 ? TEAM_THREADS : TEAM_BLOCK)
norm_gradient_kernel(gradient_args<T> a)
{
    __shared__ team_places places;
    alignas(16) __shared__ float shared[LANES <= 32 ? TEAM_THREADS * EACH : 1];
    gradient_columns<PIECES> s;
    team_weights<T, LANES>(a.w, a.w_add, a.cols, a.threads, s.w);
    UNROLL for (int i = 0; i < PIECES; i++) UNROLL for (int k = 0; k < EACH; k++) s.dw[i][k] =
        s.db[i][k] = s.normal[i][k] = s.g[i][k] = 0.0f;
    const int teams = TEAMS_OF(a.threads);
    int64_t row = (int64_t)blockIdx.x * a.slab_rows, end = row + a.slab_rows;
    if (end > a.rows)
        end = a.rows;
    /* a warp's teams make as many turns as its first has rows */
    int turn = 0, number = team_number<LANES>();
    start_places<LANES>(places, a.threads);
    for (; row < end; row += teams)
        one_row<T, LANES>(a, s, row + number, row + number < end, places, turn);
    if (!a.sums)
        return;
    float *to = a.sums + (int64_t)blockIdx.x * a.n_sums * a.cols;
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        const int c = team_column<LANES>(i, a.threads);
        if (LANES <= 32) {
            add_teams<T, LANES>(a, i, s.dw[i], to, shared, i > 0);
            if (a.n_sums > 1)
                add_teams<T, LANES>(a, i, s.db[i], to + a.cols, shared, true);
        } else if (c < a.cols) {
            store_vector(to + c, s.dw[i]);
            if (a.n_sums > 1)
                store_vector(to + a.cols + c, s.db[i]);
        }
    }
}

bool norm_gradient_serves(const struct zinf_norm *z)
{
    return teams_serve(z) && aligned16(z->dy) && aligned16(z->dx);
}

/* How the rows are cut: slabs with sums of their own, or as many blocks as there is work for. */
template <class T> static int64_t cut_rows(gradient_args<T> &a, int lanes)
{
    const int warps = TEAM_THREADS / 32;
    int64_t slabs = norm_gradient_slabs(a.rows);
    if (!a.sums)
        slabs = (a.rows * (lanes < TEAM_THREADS ? lanes : TEAM_THREADS) - 1) /
                    (TEAM_ROWS * TEAM_THREADS) +
                1;
    a.slab_rows = (a.rows + slabs - 1) / slabs;
    if (lanes <= 32) {
        const int64_t wanted = a.slab_rows * lanes / (32 * TEAM_ROWS);
        a.threads = 32 * (wanted < 1 ? 1 : wanted < warps ? (int)wanted : warps);
    }
    return slabs;
}

template <class T>
static cudaError_t norm_gradient_typed(cudaStream_t stream, void *workspace,
                                       const struct zinf_norm *z)
{
    gradient_args<T> a = {};
    a.x = (const T *)z->x;
    a.w = (const T *)z->w;
    a.dy = (const T *)z->dy;
    a.dx = (T *)z->dx;
    a.mean = z->mean;
    a.rstd = z->rstd;
    a.sums = z->dw ? (float *)workspace : NULL;
    a.split = row_split_of(z);
    a.rows = z->rows * a.split.heads;
    a.cols = (int)z->cols;
    a.threads = team_block(z->cols);
    a.n_sums = z->dw ? z->db ? 2 : 1 : 0;
    a.w_add = norm_w_add(z);
    a.share = 1.0f / (float)z->cols;
    a.centred = z->kind == ZINF_NORM_LAYER;
    a.add = z->beta_dx != 0.0f;
    BY_TEAM(a.cols, {
        const int64_t slabs = cut_rows(a, LANES);
        cudaError_t error = launch(known<norm_gradient_kernel<T, LANES, PIECES>>(),
                                   dim3((unsigned)slabs), dim3((unsigned)a.threads), 0, stream, a);
        const struct column_parts parts = {a.sums, {z->dw, z->db}, a.cols, slabs, a.n_sums};
        return error == cudaSuccess && a.sums ? launch_finish_columns(stream, &parts) : error;
    });
}

cudaError_t launch_norm_gradient(cudaStream_t stream, void *workspace, const struct zinf_norm *args)
{
    BY_DTYPE(args->dtype, return norm_gradient_typed<T>(stream, workspace, args));
}
