/*
 * host_tiles_forward: attention's forward over tiles of query rows and keys. Keys of a sequence may
 * come by several calls: sums go from tile to tile of the whole sequence, and go on within one that
 * a call has cut, so that the order of sums is that of one call. Included once by each per-ISA
 * file, behind host_tiles.h.
 */

/* A row's sums of exp(score) 2^-base. Steps of a base are exact, and so are the same digits summed
 * in the same order, however keys are dealt to calls. */
struct row_sums {
    float base, sum;
    float lanes[HOST_SUM_LANES]; /* of one tile of keys, every so manieth */
};
_Static_assert(sizeof(struct row_sums) == ZINF_ATTENTION_NUMBERS * sizeof(float),
               "a row's sums are its numbers between calls");

/* Scores beyond MATH_FAR, as a run that diverges has them, are taken off each other in double. The
 * base of such a row is its largest score times 2^64, which no integer of other rows comes near. */
#define FAR_BASE 0x1p64f

static inline bool is_far(float base)
{
    return fabsf(base) > 0x1p40f && base != -INFINITY;
}

static inline float base_of(float score)
{
    return fabsf(score) > MATH_FAR && score != -INFINITY ? score * FAR_BASE : exponent_f32(score);
}

/* The score whose exponential is 1 above a base. */
static inline double score_of(float base)
{
    return is_far(base) ? (double)base / (double)FAR_BASE : (double)base * M_LN2;
}

static void far_exponentials(float *scores, struct row_sums *s)
{
    const double base = score_of(s->base);
    for (int j = 0; j < HOST_TILE_KEYS; j++) {
        scores[j] = (float)exp((double)scores[j] - base);
        s->lanes[j % HOST_SUM_LANES] += scores[j];
    }
}

/* Raises the base of what a row has so far. part: of a tile that is cut, or NULL. */
static inline void raise_base(struct row_sums *s, float base, float *out, float *part,
                              int64_t width)
{
    if (!(base > s->base))
        return;
    const float shrink = is_far(s->base) || is_far(base)
                             ? (float)exp(score_of(s->base) - score_of(base))
                             : shrink_f32(s->base - base);
    s->base = base;
    s->sum *= shrink;
    for (int l = 0; l < HOST_SUM_LANES; l++)
        s->lanes[l] *= shrink;
#pragma omp simd
    for (int64_t c = 0; c < width; c++)
        out[c] *= shrink;
    for (int64_t c = 0; part && c < width; c++)
        part[c] *= shrink;
}

/* Replaces a row of scores by their exponentials. */
static void softmax_row(float *scores, struct visible visible, struct row_sums *s, float *out,
                        float *part, int64_t width)
{
    float top = -INFINITY;
    if (visible.first == visible.end) {
        memset(scores, 0, HOST_TILE_KEYS * sizeof *scores);
        return;
    }
    mask_row(scores, visible);
#pragma omp simd reduction(max : top)
    for (int j = 0; j < HOST_TILE_KEYS; j++)
        top = scores[j] > top ? scores[j] : top;
    raise_base(s, base_of(top), out, part, width);
    const float base = s->base;
    if (is_far(base)) {
        far_exponentials(scores, s);
        return;
    }
    for (int j = 0; j < HOST_TILE_KEYS; j += HOST_SUM_LANES)
#pragma omp simd
        for (int l = 0; l < HOST_SUM_LANES; l++) {
            scores[j + l] = exp_above_f32(scores[j + l], base);
            s->lanes[l] += scores[j + l];
        }
}

/* At the end of a tile. */
static inline void join_lanes(struct row_sums *s)
{
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int l = 0; l < HOST_SUM_LANES; l++)
        total += s->lanes[l];
    s->sum += total;
    memset(s->lanes, 0, sizeof s->lanes);
}

struct forward_scratch {
    float *keys;   /* [places / tile][dim][HOST_TILE_KEYS] */
    float *values; /* [places][width] */
    float *query, *out, *part;
    float *scores, *factors;
    struct relative *relative;
    int64_t front; /* places of the first tile that are before key 0 */
};

/* Rows of a head, from i on. */
struct forward_rows {
    const struct zinf_attention *args;
    const struct forward_scratch *s;
    int64_t b, head, i, n, width;
    struct row_sums sums[HOST_TILE_ROWS];
};

/* Scores of the tile's keys become probabilities that are not yet divided. */
static void tile_probabilities(struct forward_rows *f, const struct tile *tile, bool cut)
{
    const struct zinf_attention *args = f->args;
    const struct forward_scratch *s = f->s;
    const int64_t at = tile->j + s->front;
    struct product qk = {s->scores,      s->query,       s->keys + at * args->head_dim,
                         HOST_TILE_KEYS, f->width,       1,
                         HOST_TILE_KEYS, args->head_dim, false,
                         false};
    multiply_tiles(&qk, f->n, HOST_TILE_KEYS);
    for (int64_t r = 0; r < f->n; r++) {
        float *row = s->scores + r * HOST_TILE_KEYS;
        shape_scores(args, f->head, f->i + r, tile->j, row, NULL);
        relative_add(s->relative, tile, r, row);
        softmax_row(row, mask_documents(tile, r, visible_keys(tile, r), row), &f->sums[r],
                    s->out + r * f->width, cut ? s->part + r * f->width : NULL, f->width);
        if (args->dropout.p > 0.0f) {
            tile_factors(s->factors, args, f->b, f->head, f->i + r, tile->j);
            loop_multiply(row, row, s->factors, HOST_TILE_KEYS);
        }
    }
}

/* Of a tile that several calls have parts of: it has ended. */
static void join_part(struct forward_rows *f)
{
    for (int64_t r = 0; r < f->n; r++)
        join_lanes(&f->sums[r]);
    loop_add(f->s->out, f->s->part, (size_t)(f->n * f->width));
    memset(f->s->part, 0, (size_t)(f->n * f->width) * sizeof(float));
}

/* The tile that begins at a place; rows see no key from `end` on. */
static void forward_tile(struct forward_rows *f, int64_t at, int64_t end)
{
    const struct forward_scratch *s = f->s;
    const int64_t places = zinf_attention_keys(f->args) + s->front;
    const bool begun = at < s->front, ends = at + HOST_TILE_KEYS <= places;
    const bool cut = f->args->running && (begun || !ends);
    const struct tile tile = tile_at(f->args, f->b, f->i, at - s->front);
    if (tile_matters(&tile)) {
        struct product pv = {.c = cut ? s->part : s->out,
                             .a = s->scores,
                             .b = s->values + at * f->width,
                             .c_stride = f->width,
                             .row_stride = HOST_TILE_KEYS,
                             .depth_stride = 1,
                             .b_stride = f->width,
                             .depth = min_i64(HOST_TILE_KEYS, end + s->front - at),
                             .add = !cut,
                             .goes_on = cut};
        tile_probabilities(f, &tile, cut);
        multiply_tiles(&pv, f->n, f->width);
        for (int64_t r = 0; !cut && r < f->n; r++)
            join_lanes(&f->sums[r]);
    }
    if (cut && ends)
        join_part(f);
}

/* ---- keys of several calls ---- */

/* Where a row's sums are between calls. */
static struct head running_at(const struct forward_rows *f, float *sums)
{
    const int64_t dim = f->args->head_dim, heads = f->args->n_heads;
    return (struct head){.base = (char *)(sums + (f->b * f->args->seq * heads + f->head) * dim),
                         .dtype = ZINF_DTYPE_F32,
                         .stride = heads * dim,
                         .dim = dim,
                         .padded_dim = f->width};
}

static struct row_sums *numbers_at(const struct forward_rows *f)
{
    const struct zinf_attention *args = f->args;
    const int64_t row = (f->b * args->n_heads + f->head) * args->seq + f->i;
    return (struct row_sums *)(void *)(args->running->numbers + row * ZINF_ATTENTION_NUMBERS);
}

static void begin_rows(struct forward_rows *f)
{
    const struct zinf_attention_running *running = f->args->running;
    const size_t bytes = (size_t)(HOST_TILE_ROWS * f->width) * sizeof(float);
    memset(f->s->out, 0, bytes);
    memset(f->sums, 0, sizeof f->sums);
    for (int64_t r = 0; r < f->n; r++)
        f->sums[r].base = -INFINITY;
    if (running)
        memset(f->s->part, 0, bytes);
    if (!running || running->first)
        return;
    const struct head sums = running_at(f, running->sums);
    memcpy(f->sums, numbers_at(f), (size_t)f->n * sizeof *f->sums);
    pack_rows(f->s->out, &sums, f->i, f->n, f->n, 1.0f);
    if (f->s->front) {
        const struct head part = running_at(f, running->part);
        pack_rows(f->s->part, &part, f->i, f->n, f->n, 1.0f);
    }
}

static void leave_rows(struct forward_rows *f)
{
    const struct zinf_attention_running *running = f->args->running;
    const struct head sums = running_at(f, running->sums);
    memcpy(numbers_at(f), f->sums, (size_t)f->n * sizeof *f->sums);
    unpack_rows(&sums, f->i, f->n, f->s->out, 1.0f);
    if (running->part) {
        const struct head part = running_at(f, running->part);
        unpack_rows(&part, f->i, f->n, f->s->part, 1.0f);
    }
}

static void finish_rows(struct forward_rows *f)
{
    const struct zinf_attention *args = f->args;
    const struct head out = out_at(args->out, args, f->b, f->head);
    float *lse = args->lse + (f->b * args->n_heads + f->head) * args->seq + f->i;
    for (int64_t r = 0; r < f->n; r++) {
        const struct row_sums *s = &f->sums[r];
        const bool blind = s->sum == 0.0f; /* a row that has seen a key has at least 0.7 */
        unpack_rows(&out, f->i + r, 1, f->s->out + r * f->width, blind ? 0.0f : 1.0f / s->sum);
        lse[r] = blind ? 0.0f : (float)(score_of(s->base) + (double)logf(s->sum));
    }
}

/* ---- all of a head ---- */

static void forward_rows(struct forward_rows *f)
{
    const struct zinf_attention *args = f->args;
    const int64_t keys = zinf_attention_keys(args), front = f->s->front;
    const int64_t first = first_tile(args, f->i, front);
    const int64_t end =
        args->causal ? min_i64(keys, f->i + zinf_attention_ahead(args) + f->n) : keys;
    begin_rows(f);
    f->s->relative->first_query = f->i;
    relative_see_keys(f->s->relative, f->s->query, f->i, f->n);
    if (front && first) /* which others may have begun */
        forward_tile(f, 0, end);
    for (int64_t at = first; at < end + front || at < front; at += HOST_TILE_KEYS)
        forward_tile(f, at, end);
    if (args->running && !args->running->last) {
        leave_rows(f);
        return;
    }
    if (args->running && (keys + front) % HOST_TILE_KEYS)
        join_part(f);
    finish_rows(f);
}

/* The packed keys and values are one for all threads of a team. */
static void forward_scratch_init(struct forward_scratch *s, const struct host_team *team,
                                 int64_t padded_keys, int64_t width)
{
    s->keys = team->scratch;
    s->values = s->keys + padded_keys * width;
    s->query = team_scratch(team, team->thread) + 2 * padded_keys * width;
    s->out = s->query + HOST_TILE_KEYS * width;
    s->part = s->out + HOST_TILE_ROWS * width;
    s->scores = s->part + HOST_TILE_ROWS * width;
    s->factors = s->scores + HOST_TILE_ROWS * HOST_TILE_KEYS;
}

static void tiles_attention_forward(const struct zinf_attention *args, int64_t b, int64_t head,
                                    const struct host_team *team)
{
    const int64_t seq = args->seq, keys = zinf_attention_keys(args);
    const int64_t front = host_attention_front(args);
    const int64_t padded_keys = (int64_t)zinf_align_up((uint64_t)(keys + front), HOST_TILE_KEYS);
    const int64_t kv_head = head / (args->n_heads / args->n_kv_heads);
    const struct sources from = {args->qkv, args->kv};
    struct head query = query_at(args->qkv, args, b, head);
    struct head key = key_at(from, args, b, kv_head), value = value_at(from, args, b, kv_head);
    const int64_t width = query.padded_dim, rows = (int64_t)team->n_threads * HOST_TILE_ROWS;
    const struct range own = team_range(team, keys + front);
    struct relative relative = relative_open(args, head, false, team_scratch(team, team->thread));
    struct forward_scratch s = {.relative = &relative, .front = front};
    struct forward_rows f = {.args = args, .s = &s, .b = b, .head = head, .width = width};
    forward_scratch_init(&s, team, padded_keys, width);
    for (int64_t at = own.first; at < own.end; at += HOST_TILE_KEYS) {
        /* query has room for a tile of keys and is not used yet */
        pack_behind(s.query, &key, (struct range){at, at + HOST_TILE_KEYS}, keys, front);
        transpose_keys(s.keys + at * args->head_dim, s.query, args->head_dim, width);
        const int64_t j = at - front;
        relative_see_queries(&relative, s.query, j, min_i64(HOST_TILE_KEYS, keys - j));
    }
    pack_behind(s.values + own.first * width, &value, own, keys, front);
    team_wait(team);
    /* in turn, since the last rows of a causal head see the most keys */
    for (f.i = team->thread * HOST_TILE_ROWS; f.i < seq; f.i += rows) {
        f.n = min_i64(HOST_TILE_ROWS, seq - f.i);
        pack_rows(s.query, &query, f.i, f.n, HOST_TILE_ROWS, args->scale);
        forward_rows(&f);
    }
    team_wait(team); /* the next head's keys take the place of these */
}
