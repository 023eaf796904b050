/*
 * attention_mma: what the tensor-core attention kernels share. Tiles of rows lie in shared memory
 * in their 16-bit type, [rows][D + 8]: 16 bytes more than a power of two, so that the 8 rows of a
 * matrix fall on different banks. D is the head size rounded up to 32, 64, 128, 256 or 512; what
 * is beyond the head size, and beyond the sequence, is zero and so adds nothing.
 *
 * Tiles that a loop walks have two places where shared memory has room: the next one's copies are
 * on their way while the tensor cores have this one. A step of such a loop waits for its own
 * copies, meets the block's other threads, who then are also done with the tile before, and begins
 * the next one's copies into that tile's place.
 */
#ifndef ZINF_CUDA_ATTENTION_MMA_CUH
#define ZINF_CUDA_ATTENTION_MMA_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

/* Rows of a warp, 16 each: with two of them, what is loaded of keys and values meets twice as many
 * rows. Wider heads, and scores that are more than scaled, leave no registers for that. */
template <int D, class ARGS> struct warp_halves {
    static const int n = 1;
};
template <int D> struct warp_halves<D, attention_args> {
    static const int n = D <= 64 ? 2 : 1;
};

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

template <class T, int D> struct tile_of {
    static const int pitch = D + 8;
    static const int bytes_per_row = pitch * (int)sizeof(T);
    static const int blocks = D <= 64 ? 3 : 1; /* beside each other */
};

/* Begins a step of such a loop: with one place, its tile is only fetched now. fetch(n) begins the
 * copies of step n; n_steps of them. */
template <int PLACES, class Step, class Fetch>
DEVICE void begin_step(Step n, Step n_steps, const Fetch &fetch)
{
    if (PLACES == 1) {
        sync_block();
        fetch(n);
    }
    wait_copies();
    sync_block();
    if (PLACES == 2 && n + 1 < n_steps)
        fetch(n + 1);
}

/* Before a loop that begins with that step. */
template <int PLACES, class Fetch>
DEVICE void begin_loop(int begin, int n_steps, const Fetch &fetch)
{
    if (PLACES == 2 && begin < n_steps)
        fetch(begin);
}

/* Between the block's threads, where there is something to wait for. */
DEVICE void sync_where(bool needed)
{
    if (needed)
        sync_block();
}

/* How a thread copies tiles that a head fills, rows and columns: a fourth of the instructions of
 * fetch_head. */
template <class T, int D, int THREADS_> struct whole_tiles {
    static const int at_once = THREADS_ / (D / 8), pitch = tile_of<T, D>::pitch;
    const char *at; /* its first 16 bytes of row 0 */
    int row;        /* bytes from a row to the next */
    int place;      /* where they go in the tile, in elements */
    int end;        /* the rows there are, 0 of a head that does not fill a tile's columns */
};
template <class T, int D, int THREADS_>
DEVICE whole_tiles<T, D, THREADS_> whole_tiles_of(const struct zinf_attention &z,
                                                  head_rows<const T> from)
{
    typedef whole_tiles<T, D, THREADS_> tiles;
    const int row = threadIdx.x / (D / 8), col = threadIdx.x % (D / 8) * 8;
    tiles some;
    some.at = kept((const char *)(from.base + row * from.stride + col));
    some.row = (int)from.stride * (int)sizeof(T);
    some.place = row * tiles::pitch + col;
    some.end = z.head_dim == D ? (int)from.rows : 0;
    return some;
}
/* Of ROWS rows from first on, or of those of another head so many bytes apart. */
template <int ROWS, class T, int D, int THREADS_>
DEVICE void fetch_whole(const whole_tiles<T, D, THREADS_> &some, T *tile, int first, int64_t apart)
{
    typedef whole_tiles<T, D, THREADS_> tiles;
    const char *at = some.at + (int64_t)first * some.row + apart;
    static_assert(ROWS % tiles::at_once == 0, "no thread goes beyond the tile");
    UNROLL for (int k = 0; k < ROWS; k += tiles::at_once)
    {
        copy_async<16>(tile + some.place + k * tiles::pitch, at, true);
        at += (int64_t)some.row * tiles::at_once;
    }
}

/* Begins to copy ROWS rows of a head from first on, 16 bytes a thread. */
template <class T, int D, int ROWS, int THREADS_>
DEVICE void fetch_head(const struct zinf_attention &z, T *tile, head_rows<const T> from,
                       int64_t first)
{
    const int AT_ONCE = THREADS_ / (D / 8), pitch = tile_of<T, D>::pitch;
    static_assert(ROWS % AT_ONCE == 0, "no thread goes beyond the tile");
    const int row = threadIdx.x / (D / 8), col = threadIdx.x % (D / 8) * 8;
    const int left = from.rows - first < ROWS ? (int)(from.rows - first) : ROWS;
    const int rows = col < z.head_dim ? left - row : 0; /* in this thread's columns */
    const T *at = from.base + (first + row) * from.stride + col;
    UNROLL for (int k = 0; k < ROWS; k += AT_ONCE)
    {
        const bool wanted = k < rows;
        copy_async<16>(tile + (row + k) * pitch + col, wanted ? at : from.base, wanted);
        at += AT_ONCE * from.stride;
    }
}

/* Of keys and, behind them in shared memory, of values. */
template <class T, int D, int KEYS, int THREADS_>
DEVICE void fetch_pair(const struct zinf_attention &z, T *key, head_rows<const T> keys,
                       head_rows<const T> values, int64_t first)
{
    fetch_head<T, D, KEYS, THREADS_>(z, key, keys, first);
    fetch_head<T, D, KEYS, THREADS_>(z, key + KEYS * tile_of<T, D>::pitch, values, first);
}

/* Steps' keys and values. */
template <class T, int D, int KEYS, int THREADS_> struct key_tiles {
    head_rows<const T> keys, values;
    whole_tiles<T, D, THREADS_> whole; /* of keys */
    int64_t apart;                     /* bytes from a key to its value */
};
template <class T, int D, int KEYS, int THREADS_, class ARGS>
DEVICE key_tiles<T, D, KEYS, THREADS_> key_tiles_of(const ARGS &a, int64_t b, int64_t kv)
{
    key_tiles<T, D, KEYS, THREADS_> some;
    some.keys = key_rows<const T>(a, keys_in(a), b, kv);
    some.values = key_rows<const T>(a, keys_in(a), b, kv + a.z.n_kv_heads);
    some.whole = whole_tiles_of<T, D, THREADS_>(a.z, some.keys);
    some.apart = kept((int64_t)((const char *)some.values.base - (const char *)some.keys.base));
    return some;
}
template <class T, int D, int KEYS, int THREADS_>
DEVICE void fetch_step(const struct zinf_attention &z, T *key,
                       const key_tiles<T, D, KEYS, THREADS_> &from, int first)
{
    /* wider heads have no registers to spare, and more products in a step */
    if (D > 128 || first + KEYS > from.whole.end) {
        fetch_pair<T, D, KEYS, THREADS_>(z, key, from.keys, from.values, first);
        return;
    }
    fetch_whole<KEYS>(from.whole, key, first, 0);
    fetch_whole<KEYS>(from.whole, key + KEYS * tile_of<T, D>::pitch, first, from.apart);
}

template <class T, int D, int ROWS, int THREADS_>
DEVICE void store_head(const struct zinf_attention &z, const T *tile, head_rows<T> to,
                       int64_t first)
{
    const int AT_ONCE = THREADS_ / (D / 8), pitch = tile_of<T, D>::pitch;
    const int thread = kept((int)threadIdx.x); /* not what the loop before has of it */
    const int row = thread / (D / 8), col = thread % (D / 8) * 8;
    const int left = to.rows - first < ROWS ? (int)(to.rows - first) : ROWS;
    const int rows = col < z.head_dim ? left - row : 0; /* in this thread's columns */
    T *at = to.base + (first + row) * to.stride + col;
    UNROLL for (int k = 0; k < ROWS; k += AT_ONCE)
    {
        if (k < rows)
            *(words4 *)(void *)at = *(const words4 *)(const void *)(tile + (row + k) * pitch + col);
        at += AT_ONCE * to.stride;
    }
}

struct word_of_two {
    uint32_t bits;
};

/* A warp's 16 x 8 N result, times a factor for each of its two rows, into a tile. */
template <int N, class T>
DEVICE void put_results(T *tile, int pitch, const float (&c)[N][4], float factor0, float factor1)
{
    int g = lane_id() / 4, t = lane_id() % 4;
    UNROLL for (int n = 0; n < N; n++)
    {
        T *above = tile + g * pitch + n * 8 + 2 * t, *below = above + 8 * pitch;
        *(word_of_two *)(void *)above = {pack<T>(c[n][0] * factor0, c[n][1] * factor0)};
        *(word_of_two *)(void *)below = {pack<T>(c[n][2] * factor1, c[n][3] * factor1)};
    }
}

/* A lane's numbers in the first or the second of its rows, from the lane's place `at` in a row of
 * sums on, of which so many columns are left: takes what a call before has left, or leaves it. */
template <int N>
DEVICE void move_sums(float *at, float (&c)[N][4], int r, int columns, bool takes)
{
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 2; e++)
    {
        if (n * 8 >= columns)
            continue;
        if (takes)
            c[n][2 * r + e] = at[n * 8 + e];
        else
            at[n * 8 + e] = c[n][2 * r + e];
    }
}

template <int N> DEVICE void clear(float (&c)[N][4])
{
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) c[n][e] = 0.0f;
}

template <int H, int N> DEVICE void clear(float (&c)[H][N][4])
{
    UNROLL for (int h = 0; h < H; h++) clear(c[h]);
}

/* The steps of a loop over tiles before `end` are a warp's; before `from` and from `to` on some of
 * its rows do not see some of the tile's keys. Worked out once, so that a step asks by two
 * comparisons. */
struct warp_steps {
    int end, from, to;
};
/* Of a block: its first step, and one past its last. */
struct block_steps {
    int begin, end;
};
template <class ARGS>
DEVICE block_steps steps_of_block(const ARGS &a, int64_t i, int rows, int keys)
{
    block_steps steps;
    steps.begin = (int)(first_key(a, i) / keys);
    steps.end = (int)((end_of_keys(a, i + rows) + keys - 1) / keys);
    return steps;
}
DEVICE bool has_unseen(const warp_steps &steps, int n)
{
    return (n < steps.from) | (n >= steps.to);
}
DEVICE int64_t at_least(int64_t x, int64_t least)
{
    return x < least ? least : x;
}

/* Of tiles of so many keys, for so many rows from i on. */
template <class ARGS> DEVICE warp_steps steps_of(const ARGS &a, int64_t i, int rows, int keys)
{
    const struct zinf_attention &z = a.z;
    const int64_t all = n_keys(a), up_to = i + ahead_of(a); /* of the first row */
    const int64_t seen = z.causal && up_to + 1 < all ? at_least(up_to + 1, 0) : all;
    warp_steps steps;
    steps.end = kept((int)((at_least(end_of_keys(a, i + rows), 0) + keys - 1) / keys));
    steps.from = kept((int)((at_least(up_to + rows - z.window, 0) + keys - 1) / keys));
    steps.to = kept(i + rows > z.seq ? 0 : (int)(seen / keys));
    return steps;
}

/* Whether some of the rows i.. do not see some of the keys j... */
template <class ARGS>
DEVICE bool has_unseen(const ARGS &a, int64_t i, int64_t rows, int64_t j, int64_t keys)
{
    const struct zinf_attention &z = a.z;
    const int64_t up_to = i + ahead_of(a); /* one branch on all of it */
    return (i + rows > z.seq) | (j + keys > n_keys(a)) | (z.causal & (j + keys - 1 > up_to)) |
           (up_to + rows - 1 - j >= z.window);
}

/* Scores that a row may not see become -infinity: row and j are a lane's first. */
template <int N, class ARGS>
DEVICE void mask_scores(const ARGS &a, float (&s)[N][4], int64_t row, int64_t j)
{
    const struct zinf_attention &z = a.z;
    const int64_t left = n_keys(a) - j;
    const int first = 2 * (lane_id() % 4), keys = left < 8 * N ? (int)left : 8 * N;
    UNROLL for (int r = 0; r < 2; r++)
    {
        const int64_t up_to = row + ahead_of(a) + 8 * r - j + 1;
        const int seen = z.causal && up_to < keys ? (int)up_to : keys;
        const int from = up_to > z.window ? (int)(up_to - z.window) : 0;
        UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 2; e++)
        {
            const int k = n * 8 + first + e;
            s[n][2 * r + e] = k >= from && k < seen ? s[n][2 * r + e] : -INFINITY;
        }
    }
}

/* ---- what scores have beside q.k ---- */

/* What shared memory has of it for a tile of QUERIES by KEYS: what is added to a score, by the
 * number of its key less that of its query, both counted in the tile, and QUERIES - 1; and the
 * documents of the tile's keys or queries, whichever change from step to step; 0: beyond the last.
 * Each of the block's threads has a place of both, so that none has to ask. Two places, as of
 * tiles. Scores that are only scaled have nothing of it. */
template <class ARGS, int QUERIES, int KEYS, int THREADS_> struct beside_tile {
    static const int n = (QUERIES + KEYS + THREADS_ - 1) / THREADS_ * THREADS_;
    float bias[n], spare[n]; /* where goes what would be bias and is not */
    int32_t documents[THREADS_];
};
template <int QUERIES, int KEYS, int THREADS_>
struct beside_tile<attention_args, QUERIES, KEYS, THREADS_> {
    float bias[1];
    int32_t documents[1];
};

/* The documents of so many rows of a sample, and the first of a tile's. Where samples are not
 * packed there are no rows, and any address. */
struct tokens {
    const int32_t *documents;
    int64_t first, rows;
};
DEVICE tokens queries_from(const struct zinf_attention &z, int64_t b, int64_t first)
{
    const bool packed = z.segments != NULL;
    tokens some = {packed ? z.segments : (const int32_t *)z.qkv, first, packed ? z.seq : 0};
    some.documents += packed ? b * z.seq : 0;
    return some;
}
/* As shaped_args have them; of others nothing is read. */
DEVICE tokens keys_from(const attention_args &, int64_t, int64_t first)
{
    tokens some = {NULL, first, 0};
    return some;
}
DEVICE tokens keys_from(const shaped_args &a, int64_t b, int64_t first)
{
    const struct zinf_attention &z = a.z;
    const bool packed = z.segments != NULL;
    tokens some = {packed ? z.key_segments : (const int32_t *)z.qkv, first, packed ? a.keys : 0};
    some.documents += packed ? b * a.keys : 0;
    return some;
}

/* Begins to fetch the documents of a tile, a thread's each; 0: beyond the last. */
DEVICE void fetch_documents(const attention_args &, int32_t *, const tokens &)
{
}
DEVICE void fetch_documents(const shaped_args &, int32_t *to, const tokens &from)
{
    const int at = (int)from.first + threadIdx.x;
    const bool wanted = at < (int)from.rows;
    copy_async<4>(to + threadIdx.x, from.documents + (wanted ? at : 0), wanted);
}

/* Begins to fetch what queries i.. and keys j.. of a head have beside; others are the first of
 * those whose documents change from step to step. */
template <int QUERIES, int KEYS, int THREADS_>
DEVICE void fetch_beside(const attention_args &,
                         beside_tile<attention_args, QUERIES, KEYS, THREADS_> &, const tokens &,
                         int64_t, int64_t, int64_t)
{
}
template <int QUERIES, int KEYS, int THREADS_, class ARGS>
DEVICE void fetch_beside(const ARGS &a, beside_tile<ARGS, QUERIES, KEYS, THREADS_> &to,
                         const tokens &others, int64_t head, int64_t i, int64_t j)
{
    const int distances = (int)(a.z.seq + a.keys) - 1, first = (int)(j - i) - (QUERIES - 1);
    UNROLL for (int k = 0; k < to.n; k += THREADS_)
    {
        const int e = k + threadIdx.x, at = first + e + (int)a.z.seq - 1;
        const bool wanted = (at >= 0) & (at < distances) & (a.z.bias != NULL);
        copy_async<4>((a.z.bias ? to.bias : to.spare) + e,
                      (a.z.bias ? a.z.bias : (const float *)a.z.qkv) +
                          (wanted ? head * distances + at : 0),
                      wanted);
        (a.z.bias ? to.spare : to.bias)[e] = slope_of(a, head) * (float)(first + e - (int)a.ahead);
    }
    fetch_documents(a, to.documents, others);
}

/* Whether samples may be several documents: asked beside the edges of tiles. */
DEVICE bool has_documents(const attention_args &)
{
    return false;
}
DEVICE bool has_documents(const shaped_args &a)
{
    return a.z.segments != NULL;
}

/* Scores of two tokens that are not of one document become -infinity: own is that of a lane's first
 * row, others those of the tile's columns. A branch of a whole tile. */
template <int N>
DEVICE void mask_documents(const attention_args &, float (&)[N][4], const int32_t *,
                           const int32_t *)
{
}
template <int N>
DEVICE void mask_documents(const shaped_args &a, float (&s)[N][4], const int32_t *own,
                           const int32_t *others)
{
    if (!a.z.segments)
        return;
    /* padding is of none */
    const int32_t mine[2] = {own[0] ? own[0] : -1, own[8] ? own[8] : -1};
    const int32_t *theirs = others + 2 * (lane_id() % 4);
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) s[n][e] =
        theirs[n * 8 + e % 2] == mine[e / 2] ? s[n][e] : -INFINITY;
}

/* All of the tile's keys that the rows of a warp, from mine on in the block, do not see, where
 * there are any: their scores become -infinity. */
template <int H, int N, class ARGS>
DEVICE void mask_keys(const ARGS &a, float (&s)[H][N][4], const int32_t *own,
                      const int32_t *documents, int mine, int64_t i, int64_t j, bool unseen)
{
    if (unseen)
        UNROLL for (int h = 0; h < H; h++)
        {
            const int row = mine + 16 * h + lane_id() / 4;
            mask_scores(a, s[h], i + row, j);
            mask_documents(a, s[h], own + row, documents);
        }
}

/* The score, before any mask, of s = q.k beside which there is so much. slope: its derivative by
 * scale s. */
DEVICE float shape_score(const shaped_args &a, float s, float bias, float &slope)
{
    slope = 1.0f;
    return fused(s, a.z.scale, bias);
}
DEVICE float shape_score(const capped_args &a, float s, float bias, float &slope)
{
    return softcap_of(s * a.z.scale, a.z.softcap, a.inverse_cap, slope) + bias;
}

/* What shape_scores leaves is multiplied by this to be a score in base 2. */
DEVICE float scale_left(const attention_args &a)
{
    return a.z.scale * LOG2_E;
}
DEVICE float scale_left(const shaped_args &)
{
    return LOG2_E;
}

/* q.k becomes scores where that is more than a scale; bias: of a lane's first row and key. */
template <int N> DEVICE void shape_scores(const attention_args &, float (&)[N][4], const float *)
{
}
template <int N, class ARGS>
DEVICE void shape_scores(const ARGS &a, float (&s)[N][4], const float *bias)
{
    float slope;
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) s[n][e] =
        shape_score(a, s[n][e], bias[n * 8 + e % 2 - e / 2 * 8], slope);
}

/* Which probabilities of rows i.. and keys j.. are kept, a bit each: [ROWS][words_of(KEYS)]. One
 * look at the random numbers for four of them, where a lane's own would take one for each. */
DEVICE constexpr int words_of(int keys)
{
    return (keys + 31) / 32;
}
template <int ROWS_, int KEYS, int THREADS_, class ARGS>
DEVICE void make_mask(const ARGS &a, uint32_t *mask, int64_t b, int64_t head, int64_t i, int64_t j)
{
    const int words = words_of(KEYS);
    for (int e = threadIdx.x; e < ROWS_ * words; e += THREADS_) {
        const int row = e % ROWS_, word = e / ROWS_, keys = KEYS - 32 * word;
        mask[row * words + word] = dropout_word(
            a.rule, dropout_place(a, b, head, i + row, j + 32 * word), keys < 32 ? keys : 32);
    }
}
template <int KEYS> DEVICE bool is_kept(const uint32_t *mask, int row, int key)
{
    return mask[row * words_of(KEYS) + key / 32] >> key % 32 & 1;
}
template <int KEYS>
DEVICE float mask_factor(const attention_args &a, const uint32_t *mask, int row, int key)
{
    return is_kept<KEYS>(mask, row, key) ? a.rule.keep : 0.0f;
}

/* ---- for launchers ---- */

/* Does something with the type T and the constant D that a call stands for. */
#define BY_HEAD(z, ...)                                                                            \
    do {                                                                                           \
        if ((z)->dtype == ZINF_DTYPE_BF16) {                                                       \
            typedef bf16 T;                                                                        \
            BY_HEAD_SIZE(z, __VA_ARGS__);                                                          \
        } else {                                                                                   \
            typedef f16 T;                                                                         \
            BY_HEAD_SIZE(z, __VA_ARGS__);                                                          \
        }                                                                                          \
    } while (0)
#define BY_HEAD_SIZE(z, ...)                                                                       \
    if ((z)->head_dim <= 32) {                                                                     \
        const int D = 32;                                                                          \
        __VA_ARGS__;                                                                               \
    } else if ((z)->head_dim <= 64) {                                                              \
        const int D = 64;                                                                          \
        __VA_ARGS__;                                                                               \
    } else if ((z)->head_dim <= 128) {                                                             \
        const int D = 128;                                                                         \
        __VA_ARGS__;                                                                               \
    } else if ((z)->head_dim <= 256) {                                                             \
        const int D = 256;                                                                         \
        __VA_ARGS__;                                                                               \
    } else {                                                                                       \
        const int D = 512;                                                                         \
        __VA_ARGS__;                                                                               \
    }

/* One block for each tile of rows, head and sample. */
static inline dim3 head_grid(const struct zinf_attention *z, int64_t heads, int64_t rows, int tile)
{
    return dim3(blocks_for((uint64_t)rows, (uint64_t)tile), (unsigned)heads, (unsigned)z->batch);
}

#endif
