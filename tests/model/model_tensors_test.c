/*
 * Tensors between files and units: random maps (fused, by heads, transposed, in tiles, split into
 * several tensors) are gathered and compared element by element with the row maps read naively,
 * then streamed back to the same files; maps that are not one to one are refused.
 */
#include "base/random.h"
#include "model/build.h"
#include "model/tensors.h"
#include "tap.h"

#include <stdlib.h>

static uint32_t seed, draws;

static uint32_t draw(uint32_t below)
{
    uint32_t counter[4] = {draws++, seed, 0, 0}, out[4];
    zinf_philox(counter, 5, out);
    return out[0] % below;
}

/* ---- random models ---- */

static int no_pass(struct zinf_frame *f)
{
    (void)f;
    return 0;
}

static const struct zinf_stage_ops no_ops = {"none", .forward = no_pass, .backward = no_pass};

/* A graph whose units are all in one stage. */
static int finish(struct zinf_graph *g)
{
    struct zinf_value in = {.name = "in", .kind = ZINF_VALUE_INPUT, .cols = 1};
    struct zinf_value loss = {.name = "loss", .kind = ZINF_VALUE_LOSS, .cols = 1};
    uint32_t stage = zinf_graph_add_stage(g, &no_ops, "", 1, "all");
    g->targets = zinf_graph_add_value(g, &in);
    g->loss = zinf_graph_add_value(g, &loss);
    zinf_stage_append(g, stage, ZINF_STAGE_IN, g->targets);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, g->loss);
    for (uint32_t u = 0; u < g->n_units; u++)
        zinf_stage_append(g, stage, ZINF_STAGE_UNITS, u);
    return zinf_graph_finish(g);
}

struct shape {
    uint64_t rows, cols; /* of the file's tensor as [out][in]; cols 0: a vector */
    bool transposed;
};

static struct shape draw_shape(void)
{
    struct shape s = {1 + draw(40), draw(4) ? 1 + draw(70) : 0, false};
    s.transposed = s.cols && draw(2);
    return s;
}

static void add_tensor(struct zinf_graph *g, uint32_t unit, uint64_t rows, uint64_t cols)
{
    struct zinf_tensor t = {.rank = cols ? 2 : 1, .rows = rows, .cols = cols ? cols : 1};
    t.decay = draw(2);
    zinf_graph_add_tensor(g, unit, &t);
}

static void add_piece(struct zinf_graph *g, uint32_t unit, int name, const struct shape *s,
                      struct zinf_row_map rows)
{
    struct zinf_piece p = {.rank = s->cols ? 2 : 1, .transposed = s->transposed, .rows = rows};
    p.shape[0] = s->transposed ? s->cols : s->rows;
    p.shape[1] = s->transposed ? s->rows : s->cols;
    snprintf(p.name, sizeof p.name, "t%d", name);
    zinf_graph_add_piece(g, unit, &p);
}

/* Several tensors of the file one below the other in one of the unit's. */
static void add_fused(struct zinf_graph *g, uint32_t unit, int *name)
{
    struct shape parts[4] = {draw_shape()};
    int n = 1 + (int)draw(4);
    uint64_t rows = 0, first = 0;
    for (int i = 0; i < n; i++) {
        parts[i] = parts[0];
        parts[i].rows = 1 + draw(30);
        parts[i].transposed = parts[0].cols && draw(2);
        rows += parts[i].rows;
    }
    add_tensor(g, unit, rows, parts[0].cols);
    for (int i = 0; i < n; first += parts[i++].rows)
        add_piece(g, unit, (*name)++, &parts[i],
                  (struct zinf_row_map){.flat_first = first, .rows = parts[i].rows, .count = 1});
}

/* One tensor of the file whose rows are by head, `kinds` kinds in each: to one tensor of the unit
 * by kind, or to one a kind. */
static void add_by_heads(struct zinf_graph *g, uint32_t unit, int *name)
{
    struct shape s = draw_shape();
    uint64_t heads = 1 + draw(5), dim = 1 + draw(6), kinds = 1 + draw(3);
    bool apart = draw(2);
    s.rows = heads * dim * kinds;
    if (!apart)
        add_tensor(g, unit, s.rows, s.cols);
    for (uint64_t k = 0; k < kinds; k++) {
        if (apart)
            add_tensor(g, unit, heads * dim, s.cols);
        add_piece(g, unit, *name, &s,
                  (struct zinf_row_map){.file_first = k * dim,
                                        .file_stride = kinds * dim,
                                        .flat_first = apart ? 0 : k * heads * dim,
                                        .flat_stride = dim,
                                        .rows = dim,
                                        .count = heads});
    }
    ++*name;
}

/* One tensor of the file in units of their own, tile by tile. */
static void add_tiles(struct zinf_graph *g, int *name)
{
    struct shape s = draw_shape();
    uint64_t tile = 1 + draw(20);
    for (uint64_t first = 0; first < s.rows; first += tile) {
        uint64_t n = s.rows - first < tile ? s.rows - first : tile;
        uint32_t unit = zinf_graph_add_unit(g, true, "tile.%d", (int)first);
        add_tensor(g, unit, n, s.cols);
        add_piece(g, unit, *name, &s,
                  (struct zinf_row_map){.file_first = first, .rows = n, .count = 1});
    }
    ++*name;
}

static struct zinf_graph *draw_graph(void)
{
    struct zinf_graph *g = NULL;
    int name = 0, n_units = 1 + (int)draw(3);
    CHECK(!zinf_graph_create(&g));
    if (draw(2))
        add_tiles(g, &name);
    for (int u = 0; u < n_units; u++) {
        uint32_t unit = zinf_graph_add_unit(g, true, "unit.%d", u);
        int n_tensors = 1 + (int)draw(draw(20) ? 6 : 200);
        for (int i = 0; i < n_tensors; i++)
            (draw(2) ? add_fused : add_by_heads)(g, unit, &name);
    }
    if (draw(2))
        add_tiles(g, &name);
    CHECKF(!finish(g), "%s", zinf_error());
    return g;
}

/* ---- files that hold a different number at every place ---- */

struct files {
    const struct zinf_file_map *map;
    uint64_t *start; /* number of a tensor's first element */
    uint64_t n;
    float **flats;
    uint64_t at; /* streaming: the next number */
    bool good;
};

static uint64_t file_elems(const struct zinf_file_tensor *t)
{
    return t->shape[0] * t->shape[1];
}

static uint64_t start_of(const struct files *f, const char *name)
{
    const struct zinf_file_tensor *t = zinf_file_map_find(f->map, name);
    CHECKF(t != NULL, "%s is not found", name);
    return t ? f->start[t - f->map->tensors] : 0;
}

static int read_numbers(void *context, const struct zinf_tensor *tensor,
                        const struct zinf_piece *piece, uint64_t first, uint64_t n, float *out)
{
    uint64_t start = start_of(context, piece->name);
    (void)tensor;
    for (uint64_t i = 0; i < n; i++)
        out[i] = (float)(start + first + i);
    return 0;
}

static int give_flat(void *context, uint32_t unit, const float **flat)
{
    *flat = ((struct files *)context)->flats[unit];
    return 0;
}

static int take_numbers(void *context, const float *values, uint64_t n)
{
    struct files *f = context;
    for (uint64_t i = 0; i < n; i++)
        f->good &= values[i] == (float)f->at++;
    return 0;
}

static void open_files(struct files *f, const struct zinf_graph *g, const struct zinf_file_map *map)
{
    *f = (struct files){.map = map, .n = 1, .good = true};
    f->start = calloc(map->n_tensors, sizeof *f->start);
    f->flats = calloc(g->n_units, sizeof *f->flats);
    for (uint32_t i = 0; i < map->n_tensors; i++) {
        f->start[i] = f->n;
        f->n += file_elems(&map->tensors[i]);
    }
    CHECK(f->n < 1 << 24); /* exact in fp32 */
}

static void close_files(struct files *f, const struct zinf_graph *g)
{
    for (uint32_t u = 0; u < g->n_units; u++)
        free(f->flats[u]);
    free(f->flats);
    free(f->start);
}

/* The map, read as it is written. */
static void check_piece(const struct files *f, const struct zinf_tensor *t,
                        const struct zinf_piece *p, const float *flat)
{
    uint64_t start = start_of(f, p->name), wrong = 0;
    for (uint64_t i = 0; i < p->rows.count; i++)
        for (uint64_t r = 0; r < p->rows.rows; r++)
            for (uint64_t c = 0; c < t->cols; c++) {
                uint64_t file = p->rows.file_first + i * p->rows.file_stride + r;
                uint64_t ours = p->rows.flat_first + i * p->rows.flat_stride + r;
                uint64_t at = p->transposed ? c * p->shape[1] + file : file * t->cols + c;
                wrong += flat[t->offset + ours * t->cols + c] != (float)(start + at);
            }
    CHECKF(!wrong, "%s: %llu elements are elsewhere", p->name, (unsigned long long)wrong);
}

static void gather_all(struct files *f, const struct zinf_graph *g, struct zinf_scratch scratch)
{
    struct zinf_gather gather = {.read = read_numbers, .context = f, .scratch = scratch};
    uint64_t sum = 0, n_numbers = 0;
    for (uint32_t u = 0; u < g->n_units; u++) {
        const struct zinf_unit *unit = &g->units[u];
        f->flats[u] = malloc(unit->elems * sizeof(float));
        memset(f->flats[u], 0xff, unit->elems * sizeof(float));
        CHECKF(!zinf_unit_gather(unit, &gather, f->flats[u]), "%s", zinf_error());
        for (uint32_t i = 0; i < unit->n_tensors; i++)
            for (uint32_t p = 0; p < unit->tensors[i].n_pieces; p++)
                check_piece(f, &unit->tensors[i], &unit->tensors[i].pieces[p], f->flats[u]);
        for (uint64_t e = 0; e < unit->elems; e++) {
            sum += (uint64_t)f->flats[u][e]; /* NaN in a gap would show here */
            n_numbers += f->flats[u][e] != 0;
        }
    }
    CHECK(n_numbers == f->n - 1 && sum == f->n * (f->n - 1) / 2);
}

static void round_trip(const struct zinf_graph *g, const struct zinf_file_map *map)
{
    struct files f;
    struct zinf_scratch scratch = {.elems = map->scratch_elems + draw(500)};
    scratch.base = malloc((scratch.elems + 1) * sizeof(float));
    open_files(&f, g, map);
    gather_all(&f, g, scratch);
    struct zinf_stream stream = {give_flat, take_numbers, &f, scratch};
    for (uint32_t i = 0; i < map->n_tensors; i++) {
        f.at = f.start[i];
        CHECKF(!zinf_file_tensor_stream(&map->tensors[i], &stream), "%s", zinf_error());
        CHECKF(f.good && f.at == f.start[i] + file_elems(&map->tensors[i]),
               "%s comes back differently", map->tensors[i].name);
    }
    close_files(&f, g);
    free(scratch.base);
}

static void test_round_trips(void)
{
    for (seed = 0; seed < 150; seed++) {
        struct zinf_file_map *map = NULL;
        draws = 0;
        struct zinf_graph *g = draw_graph();
        CHECKF(!zinf_file_map_create(&map, g), "seed %u: %s", seed, zinf_error());
        if (map)
            round_trip(g, map);
        if (tap_case_failures) {
            printf("# seed %u\n", seed);
            return;
        }
        zinf_file_map_destroy(map);
        zinf_graph_destroy(g);
    }
}

static void test_one_number_a_row(void)
{
    struct zinf_piece p = {.rows = {1, 4, 0, 2, 2, 3}}; /* rows 1 2 5 6 9 10 are ours 0 to 5 */
    float file[12] = {0}, unit[6] = {1, 2, 3, 4, 5, 6}, again[6] = {0};
    static const float want[12] = {0, 1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0};
    zinf_piece_rows_to_file(&p, unit, file);
    CHECK(!memcmp(file, want, sizeof want));
    zinf_piece_rows_to_unit(&p, file, again);
    CHECK(!memcmp(again, unit, sizeof unit));
}

/* ---- refusals ---- */

struct wrong {
    const char *says;
    struct zinf_row_map maps[2];
    uint32_t units[2];
};

/* A tensor of 8 rows in the file, in pieces; each unit's tensor has 4. */
static void test_refusals(void)
{
    static const struct wrong list[] = {
        {"row 4 of tensor t0", {{0, 0, 0, 0, 4, 1}, {5, 0, 0, 0, 3, 1}}, {0, 1}},
        {"of tensor t0 is not in exactly one", {{0, 0, 0, 0, 4, 1}, {3, 0, 0, 0, 4, 1}}, {0, 1}},
        {"of unit u0 is not in exactly one", {{0, 0, 0, 0, 4, 1}, {4, 0, 2, 0, 4, 1}}, {0, 0}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct zinf_graph *g = NULL;
        struct zinf_file_map *map = NULL;
        struct shape s = {8, 3, false};
        CHECK(!zinf_graph_create(&g));
        for (uint32_t p = 0; p < 2; p++) {
            uint64_t rows = list[i].maps[p].rows * list[i].maps[p].count;
            bool again = p && list[i].units[1] == list[i].units[0];
            uint32_t u = again ? 0 : zinf_graph_add_unit(g, true, "u%u", p);
            if (!again)
                add_tensor(g, u, list[i].units[0] == list[i].units[1] ? 8 : rows, 3);
            add_piece(g, u, 0, &s, list[i].maps[p]);
        }
        CHECKF(!finish(g), "%s", zinf_error());
        CHECK(zinf_file_map_create(&map, g) == -EINVAL);
        CHECKF(strstr(zinf_error(), list[i].says) != NULL, "%zu: %s", i, zinf_error());
        zinf_graph_destroy(g);
    }
}

int main(void)
{
    TAP_RUN(test_round_trips);
    TAP_RUN(test_one_number_a_row);
    TAP_RUN(test_refusals);
    return tap_done();
}
