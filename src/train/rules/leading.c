/*
 * leading: subspace iteration (Halko, Martinsson, Tropp, arXiv 0909.4061, algorithm 4.4) from fixed
 * random vectors, until what it finds grows no more, then the eigenvectors of the small Gram matrix
 * by Jacobi's rotations. Where a side is short the Gram matrix of all of it is small enough.
 * Sums are in double and in one order; pairs of rotations that are made at once touch different
 * rows, so that threads change nothing.
 */
#include "train/rules/leading.h"
#include "base/random.h"

#include <math.h>

#define SHORT_SIDE 256    /* up to there without iterating */
#define LEAST_GROWTH 1e-8 /* of the energy, whose error is the square of the vectors' */
#define MOST_SWEEPS 30
#define USUAL_SWEEPS 8
/* Loops' times (struct rule_work) for a number: of a pair of rows in an iteration, of the Gram
 * matrix, of its rows in a sweep, of a vector that is found. */
#define PAIR_LOOP 170
#define GRAM_LOOP 240
#define TURN_LOOP 365
#define VECTOR_LOOP 285
#define LEAST_REST 1e-26 /* of the squares beside the diagonal, of all */

struct space {
    const struct leading *of;
    uint64_t k, side, other;
    float *v, *y;            /* [k][side] */
    float *w;                /* X's part along each vector: [other][k] if right, else [k][other] */
    double *gram, *turns;    /* [k][k]; rows of the second become eigenvectors */
    double *cosines, *sines; /* [k / 2] of a round */
};

static uint64_t lines(uint64_t floats)
{
    return zinf_align_up(floats, 16);
}

static struct space space_of(const struct leading *l)
{
    struct space s = {.of = l, .side = l->right ? l->cols : l->rows};
    const uint64_t more = l->rank / 8 > 16 ? l->rank / 8 : 16;
    s.other = l->right ? l->rows : l->cols;
    s.k = s.side <= SHORT_SIDE || l->rank + more > s.side ? s.side : l->rank + more;
    s.v = l->workspace;
    s.y = s.v + lines(s.k * s.side);
    s.w = s.y + lines(s.k * s.side);
    s.gram = (double *)(void *)(s.w + lines(s.k * s.other));
    s.turns = s.gram + s.k * s.k;
    s.cosines = s.turns + s.k * s.k;
    s.sines = s.cosines + (s.k + 1) / 2;
    return s;
}

uint64_t leading_bytes(const struct leading *l)
{
    const struct space s = space_of(l);
    const uint64_t floats = 2 * lines(s.k * s.side) + lines(s.k * s.other);
    return zinf_align_up(floats * sizeof(float) + (2 * s.k * s.k + s.k + 1) * sizeof(double),
                         ZINF_MEMORY_ALIGN);
}

/* ---- products ---- */

static struct zinf_matmul along_of(const struct space *s)
{
    const struct leading *l = s->of;
    struct zinf_matmul p =
        l->right ? rule_product(l->rows, s->k, l->cols) : rule_product(s->k, l->cols, l->rows);
    p.a = l->right ? l->x : s->v;
    p.b = l->right ? s->v : l->x;
    p.c = s->w;
    p.lda = (int64_t)(l->right ? l->cols : s->side);
    p.ldb = (int64_t)(l->right ? s->side : l->cols);
    p.trans_b = l->right;
    return p;
}

/* The vectors' images under the Gram matrix of X, in y. */
static struct zinf_matmul image_of(const struct space *s)
{
    const struct leading *l = s->of;
    struct zinf_matmul p = rule_product(s->k, s->side, s->other);
    p.a = s->w;
    p.b = l->x;
    p.c = s->y;
    p.lda = (int64_t)(l->right ? s->k : s->other);
    p.ldb = (int64_t)l->cols;
    p.trans_a = l->right;
    p.trans_b = !l->right;
    return p;
}

uint64_t leading_products_bytes(const struct leading *l)
{
    const struct space s = space_of(l);
    const struct zinf_matmul all[] = {along_of(&s), image_of(&s)};
    return s.k == s.side ? 0 : rule_products_bytes(l->setup, all, 2);
}

/* Rows are made orthonormal at first and in each iteration, twice, pair by pair. */
struct rule_work leading_work(const struct leading *l)
{
    const struct space s = space_of(l);
    const double k = (double)s.k, side = (double)s.side, other = (double)s.other;
    const double made = 1 + LEADING_MOST_ITERATIONS;
    struct rule_work work = {.loops = GRAM_LOOP * k * k * other +
                                      TURN_LOOP * USUAL_SWEEPS * k * k * k +
                                      VECTOR_LOOP * k * side * (double)l->rank};
    if (s.k == s.side)
        return work;
    work.flops = (made + LEADING_MOST_ITERATIONS) * 2 * k * side * other;
    work.loops += made * PAIR_LOOP * k * k * side;
    return work;
}

/* ---- iterations ---- */

static double dot(const float *a, const float *b, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Gram and Schmidt's, each row taken from all that follow. Twice is enough. */
static void make_orthonormal(const struct space *s, float *rows)
{
    const uint64_t n = s->side;
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t i = 0; i < s->k; i++) {
            float *row = rows + i * n;
            const double norm = sqrt(dot(row, row, n));
            for (uint64_t k = 0; norm > 0 && k < n; k++)
                row[k] = (float)((double)row[k] / norm);
#pragma omp parallel for num_threads(s->of->setup->cpu->n_threads) schedule(static)
            for (uint64_t j = i + 1; j < s->k; j++) {
                const double along = dot(row, rows + j * n, n);
                for (uint64_t k = 0; k < n; k++)
                    rows[j * n + k] -= (float)(along * (double)row[k]);
            }
        }
}

static double energy(const struct space *s)
{
    double sum = 0;
    for (uint64_t i = 0; i < s->k * s->other; i++)
        sum += (double)s->w[i] * (double)s->w[i];
    return sum;
}

/* v, and in w what X has along it. */
static int iterate(struct space *s)
{
    const struct zinf_device_ops *ops = s->of->setup->cpu->ops;
    double found = 0;
    zinf_normal_fill(s->v, 0, s->k * s->side, 0, s->side, 0, 1);
    make_orthonormal(s, s->v);
    for (int i = 0;; i++) {
        const struct zinf_matmul along = along_of(s);
        int code = ops->matmul(s->of->queue, &along);
        const double before = found;
        found = energy(s);
        if (code || i == LEADING_MOST_ITERATIONS || !(found > before * (1 + LEAST_GROWTH)))
            return code;
        const struct zinf_matmul image = image_of(s);
        code = ops->matmul(s->of->queue, &image);
        if (code)
            return code;
        float *other = s->v;
        s->v = s->y;
        s->y = other;
        make_orthonormal(s, s->v);
    }
}

/* ---- the Gram matrix of w, and its eigenvectors ---- */

static void fill_gram(const struct space *s, const float *w)
{
    const bool right = s->of->right;
    const uint64_t k = s->k, n = s->other;
#pragma omp parallel for num_threads(s->of->setup->cpu->n_threads) schedule(static)
    for (uint64_t i = 0; i < k; i++) {
        double *row = s->gram + i * k;
        memset(row, 0, k * sizeof *row);
        for (uint64_t j = 0; !right && j < k; j++)
            row[j] = dot(w + i * n, w + j * n, n);
        for (uint64_t o = 0; right && o < n; o++)
            for (uint64_t j = 0; j < k; j++)
                row[j] += (double)w[o * k + i] * (double)w[o * k + j];
    }
}

/* Pair number i of a round: of a tournament in which each meets each, once. n is even. */
static void pair_of(uint64_t n, uint64_t round, uint64_t i, uint64_t *p, uint64_t *q)
{
    const uint64_t turn = n - 1;
    const uint64_t a = i ? (round + i) % turn : turn, b = (round + turn - i) % turn;
    *p = a < b ? a : b;
    *q = a < b ? b : a;
}

/* So that the pair's entry becomes 0. */
static void find_turn(const struct space *s, uint64_t i, uint64_t p, uint64_t q)
{
    const uint64_t k = s->k;
    const double beside = q < k ? s->gram[p * k + q] : 0;
    s->cosines[i] = 1;
    s->sines[i] = 0;
    if (beside == 0)
        return;
    const double half = (s->gram[q * k + q] - s->gram[p * k + p]) / (2 * beside);
    const double tangent = copysign(1, half) / (fabs(half) + sqrt(1 + half * half));
    s->cosines[i] = 1 / sqrt(1 + tangent * tangent);
    s->sines[i] = tangent * s->cosines[i];
}

static void turn(double *a, double *b, double cosine, double sine)
{
    const double x = *a, y = *b;
    *a = cosine * x - sine * y;
    *b = sine * x + cosine * y;
}

static void make_round(const struct space *s, uint64_t round)
{
    const uint64_t k = s->k, n = k + k % 2;
    const int threads = s->of->setup->cpu->n_threads;
    uint64_t p, q;
    for (uint64_t i = 0; i < n / 2; i++) {
        pair_of(n, round, i, &p, &q);
        find_turn(s, i, p, q);
    }
#pragma omp parallel for num_threads(threads) schedule(static) private(p, q)
    for (uint64_t i = 0; i < n / 2; i++) {
        pair_of(n, round, i, &p, &q);
        for (uint64_t j = 0; s->sines[i] != 0 && j < k; j++) {
            turn(&s->gram[p * k + j], &s->gram[q * k + j], s->cosines[i], s->sines[i]);
            turn(&s->turns[p * k + j], &s->turns[q * k + j], s->cosines[i], s->sines[i]);
        }
    }
#pragma omp parallel for num_threads(threads) schedule(static) private(p, q)
    for (uint64_t j = 0; j < k; j++)
        for (uint64_t i = 0; i < n / 2; i++) {
            pair_of(n, round, i, &p, &q);
            if (s->sines[i] != 0)
                turn(&s->gram[j * k + p], &s->gram[j * k + q], s->cosines[i], s->sines[i]);
        }
}

static bool is_diagonal(const struct space *s)
{
    double all = 0, beside = 0;
    for (uint64_t i = 0; i < s->k; i++)
        for (uint64_t j = 0; j < s->k; j++) {
            const double square = s->gram[i * s->k + j] * s->gram[i * s->k + j];
            all += square;
            beside += i == j ? 0 : square;
        }
    return beside <= LEAST_REST * all;
}

static void find_eigenvectors(const struct space *s)
{
    const uint64_t rounds = s->k + s->k % 2 - 1;
    memset(s->turns, 0, s->k * s->k * sizeof *s->turns);
    for (uint64_t i = 0; i < s->k; i++)
        s->turns[i * (s->k + 1)] = 1;
    for (int sweep = 0; sweep < MOST_SWEEPS && !is_diagonal(s); sweep++)
        for (uint64_t round = 0; round < rounds; round++)
            make_round(s, round);
}

/* ---- what is found ---- */

/* Row number `which` of the eigenvectors, in terms of v; none: v is the identity. */
static void put_vector(const struct space *s, uint64_t which, bool of_v, float *out)
{
    const double *row = s->turns + which * s->k;
    double largest = 0;
    for (uint64_t i = 0; i < s->side; i++) {
        double sum = of_v ? 0 : row[i];
        for (uint64_t j = 0; of_v && j < s->k; j++)
            sum += row[j] * (double)s->v[j * s->side + i];
        out[i] = (float)sum;
        largest = fabs(sum) > fabs(largest) ? sum : largest;
    }
    for (uint64_t i = 0; largest < 0 && i < s->side; i++)
        out[i] = -out[i];
}

int leading_find(const struct leading *l)
{
    struct space s = space_of(l);
    const bool iterates = s.k < s.side;
    int code = iterates ? iterate(&s) : 0;
    if (code)
        return code;
    fill_gram(&s, iterates ? s.w : l->x);
    find_eigenvectors(&s);
    for (uint64_t r = 0; r < l->rank; r++) {
        uint64_t best = 0;
        for (uint64_t i = 1; i < s.k; i++)
            if (s.gram[i * (s.k + 1)] > s.gram[best * (s.k + 1)])
                best = i;
        put_vector(&s, best, iterates, l->out + r * s.side);
        s.gram[best * (s.k + 1)] = -1;
    }
    return 0;
}
