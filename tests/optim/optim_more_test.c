/*
 * cpu_optim: what a step does beside the update (the search for non-finite gradients, zeroing, the
 * sum of squares of the new masters), more than 2^31 elements, threads and NUMA nodes.
 */
#include "optim_support.h"
#include <sys/mman.h>
#include <unistd.h>

enum { N = 3 * 4096 + 1234, MARGIN = 64 };

static float master[N + MARGIN], moment1[N + MARGIN], moment2[N + MARGIN], wide_grad[N + MARGIN];
static float plain_master[N + MARGIN];
static uint16_t grad[N + MARGIN], param[N + MARGIN], remainder16[N + MARGIN];

static void fill(void)
{
    zinf_normal_fill(master, 0, N + MARGIN, 1, 0, 0, 1);
    zinf_normal_fill(wide_grad, 0, N + MARGIN, 2, 0, 0, 1);
    memset(moment1, 0, sizeof moment1);
    memset(moment2, 0, sizeof moment2);
    zinf_convert(grad, ZINF_DTYPE_BF16, wide_grad, ZINF_DTYPE_F32, N + MARGIN);
    zinf_optim_split(param, remainder16, master, N + MARGIN, 1);
}

static struct zinf_optim_array view(bool split, uint64_t from)
{
    return (struct zinf_optim_array){.n = N,
                                     .master = split ? NULL : master + from,
                                     .moment1 = moment1 + from,
                                     .moment2 = moment2 + from,
                                     .grad = grad + from,
                                     .grad_dtype = ZINF_DTYPE_BF16,
                                     .grad_scale = 0.5f,
                                     .param = split ? param + from : NULL,
                                     .param_dtype = ZINF_DTYPE_BF16,
                                     .remainder = split ? remainder16 + from : NULL};
}

/* ---- beside the update ---- */

static void compare_extras(enum zinf_isa isa, bool split, uint64_t from, int n_threads)
{
    struct optim_scalars scalars;
    double squares = -1;
    optim_scalars_init(&scalars, &usual, 0.5f);
    fill();
    struct zinf_optim_array array = view(false, from);
    optim_step_with(&optim_ops_scalar, &scalars, &array, 1);
    memcpy(plain_master, master, sizeof master);
    fill();
    array = view(split, from);
    array.zero_grad = true;
    array.sum_squares = &squares;
    optim_step_with(optim_ops_of(isa), &scalars, &array, n_threads);
    if (split)
        zinf_optim_join(master, param, remainder16, N + MARGIN, 1);
    CHECK(!memcmp(master, plain_master, sizeof master));
    double expected = zinf_optim_sum_squares(plain_master + from, ZINF_DTYPE_F32, N, 1);
    CHECKF(squares == expected, "%s, split %d: %a, not %a", zinf_isa_name(isa), split, squares,
           expected);
    if (split)
        CHECK(zinf_optim_sum_squares_split(param + from, remainder16 + from, N, 2) == expected);
    int left = 0, lost = 0;
    for (uint64_t i = 0; i < N + MARGIN; i++) {
        bool inside = i >= from && i < from + N;
        left += inside && grad[i];
        lost += !inside && grad[i] != zinf_bf16_from_f32(wide_grad[i]);
    }
    CHECKF(!left && !lost, "%d gradients left, %d beside them zeroed", left, lost);
}

static void test_zeroing_and_squares(void)
{
    for (int isa = 0; isa <= (int)zinf_isa(); isa++)
        for (int split = 0; split < 2; split++) {
            compare_extras((enum zinf_isa)isa, split, 0, 1);
            compare_extras((enum zinf_isa)isa, split, 7, 2);
        }
}

/* More blocks than are held at a time. */
static void test_squares_in_batches(void)
{
    const uint64_t n = (uint64_t)OPTIM_SUM_BLOCKS * OPTIM_BLOCK_ELEMS + 5000;
    float *x = calloc(2 * n, sizeof *x);
    uint16_t *g = malloc(n * sizeof *g);
    double squares = 0;
    for (uint64_t i = 0; i < n; i++)
        g[i] = (uint16_t)(0x3f80 + i % 64);
    struct zinf_optim_hyper h = usual;
    h.kind = ZINF_OPTIM_SGD;
    struct zinf_optim_array array = {.n = n,
                                     .master = x,
                                     .moment1 = x + n,
                                     .grad = g,
                                     .grad_dtype = ZINF_DTYPE_BF16,
                                     .grad_scale = 1,
                                     .sum_squares = &squares};
    CHECK(!zinf_optim_step(&h, &array, 2));
    CHECK(squares > 0 && squares == zinf_optim_sum_squares(x, ZINF_DTYPE_F32, n, 1));
    array.n = 0;
    CHECK(!zinf_optim_step(&h, &array, 2) && squares == 0);
    free(g);
    free(x);
}

static void test_nonfinite_changes_nothing(void)
{
    const uint16_t bad[] = {0x7f80, 0xff80, 0x7fc1};
    const uint64_t places[] = {0, 4099, N - 1};
    for (int i = 0; i < 3; i++) {
        uint64_t found = 5;
        fill();
        memcpy(plain_master, master, sizeof master);
        grad[places[i]] = bad[i];
        struct zinf_optim_array array = view(false, 0);
        array.nonfinite = &found;
        array.zero_grad = true;
        CHECK(zinf_optim_step(&usual, &array, 2) == -ERANGE && found == places[i]);
        CHECK(!memcmp(plain_master, master, sizeof master) && grad[places[i]] == bad[i]);
        CHECK(moment1[0] == 0 && moment2[0] == 0);
        grad[places[i]] = 0;
        CHECK(!zinf_optim_step(&usual, &array, 2) && found == UINT64_MAX);
        CHECK(memcmp(plain_master, master, sizeof master));
    }
}

/* ---- several arrays ---- */

enum { MANY = 7, MOST = 200001 };
static const uint64_t many_lengths[MANY] = {70001, 0, 65536, 1, MOST, 66000, 3};

/* Arrays of several kinds and forms in room: [MANY][5][MOST] floats of random numbers. */
static void make_arrays(struct zinf_optim_hyper *hypers, struct zinf_optim_array *arrays,
                        float *room)
{
    zinf_normal_fill(room, 0, (uint64_t)MANY * 5 * MOST, 1, 0, 0, 1);
    for (uint64_t i = 0; i < MANY; i++) {
        float *at[5];
        for (uint64_t a = 0; a < 5; a++)
            at[a] = room + (i * 5 + a) * MOST;
        hypers[i] = usual;
        hypers[i].kind = (enum zinf_optim_kind)(i % ZINF_OPTIM_KINDS);
        hypers[i].step = i + 1;
        hypers[i].lr *= (float)(i + 1);
        bool byte = hypers[i].kind == ZINF_OPTIM_ADAMW && i;
        memset(at[2], 0, sizeof *room * MOST);
        arrays[i] = (struct zinf_optim_array){.n = many_lengths[i],
                                              .master = at[0],
                                              .moment1 = byte ? NULL : at[1],
                                              .moment2 = byte ? NULL : at[2],
                                              .grad = at[3],
                                              .grad_dtype = ZINF_DTYPE_F32,
                                              .grad_scale = 0.5f,
                                              .param = at[4],
                                              .param_dtype = ZINF_DTYPE_BF16,
                                              .byte_moment1 = byte ? (int8_t *)at[1] : NULL,
                                              .byte_moment2 = byte ? (uint8_t *)at[2] : NULL,
                                              .scale1 = byte ? at[1] + MOST / 2 : NULL,
                                              .scale2 = byte ? at[2] + MOST / 2 : NULL};
        if (byte) /* codes: scales would be NaN of random bytes */
            memset(at[1], 0, sizeof *room * MOST);
    }
}

static void test_several_arrays(void)
{
    const uint64_t bytes = sizeof(float) * MANY * 5 * MOST;
    float *alone = malloc(bytes), *together = malloc(bytes);
    struct zinf_optim_hyper hypers[MANY];
    struct zinf_optim_array arrays[MANY];
    make_arrays(hypers, arrays, alone);
    for (int i = 0; i < MANY; i++)
        CHECK(!zinf_optim_step(&hypers[i], &arrays[i], 1));
    for (int threads = 0; threads < 5; threads++) {
        make_arrays(hypers, arrays, together);
        CHECK(!zinf_optim_step_arrays(hypers, arrays, MANY, threads));
        CHECKF(!memcmp(alone, together, bytes), "%d threads", threads);
    }
    uint64_t found;
    make_arrays(hypers, arrays, alone);
    make_arrays(hypers, arrays, together);
    arrays[MANY - 1].nonfinite = &found;
    CHECK(zinf_optim_step_arrays(hypers, arrays, MANY, 2) == -EINVAL);
    arrays[MANY - 1].nonfinite = NULL;
    arrays[MANY - 1].grad = NULL;
    CHECK(zinf_optim_step_arrays(hypers, arrays, MANY, 2) == -EINVAL);
    CHECK(!memcmp(alone, together, bytes));
    CHECK(!zinf_optim_step_arrays(NULL, NULL, 0, 2));
    free(together);
    free(alone);
}

/* ---- more than 2^31 elements ---- */

#define TILE_BYTES ((size_t)8 << 20)

/* bytes of address space: one shared tile again and again, and a last tile of its own. */
static void *map_tiles(size_t bytes)
{
    int fd = memfd_create("tiles", 0);
    char *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fd < 0 || base == MAP_FAILED || ftruncate(fd, 2 * TILE_BYTES))
        return NULL;
    for (size_t at = 0; at < bytes; at += TILE_BYTES)
        if (mmap(base + at, TILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                 at + TILE_BYTES < bytes ? 0 : TILE_BYTES) == MAP_FAILED)
            return NULL;
    close(fd);
    return base;
}

/* All arrays of 16 bits: Lion on split masters with a bf16 moment. The tiles before the last are
 * stepped many times over; the last is stepped once and must be what a short array becomes. */
static void test_more_than_two_to_the_31(void)
{
    const uint64_t tile = TILE_BYTES / 2, n = ((uint64_t)1 << 31) + tile - 3;
    const size_t bytes = zinf_align_up(n * 2, TILE_BYTES);
    const uint64_t last = bytes / 2 - tile, rest = n - last;
    uint16_t *arrays[4], *copies = malloc(4 * 2 * tile);
    if (zinf_isa() == ZINF_ISA_SCALAR)
        SKIP("too slow in scalar form");
    for (int a = 0; a < 4; a++) {
        arrays[a] = map_tiles(bytes);
        if (!arrays[a])
            SKIP("cannot map %zu bytes of address space", bytes);
        for (uint64_t i = 0; i < tile; i++)
            arrays[a][i] = arrays[a][last + i] = (uint16_t)(0x3c00 + (i * (uint64_t)(a + 3)) % 509);
        memcpy(copies + (uint64_t)a * tile, arrays[a] + last, 2 * tile);
    }
    struct zinf_optim_hyper h = usual;
    h.kind = ZINF_OPTIM_LION;
    struct zinf_optim_array array = {.n = n,
                                     .grad = arrays[0],
                                     .grad_dtype = ZINF_DTYPE_BF16,
                                     .grad_scale = 1,
                                     .param = arrays[1],
                                     .param_dtype = ZINF_DTYPE_BF16,
                                     .remainder = arrays[2],
                                     .half_moment1 = arrays[3]};
    struct zinf_optim_array small = array;
    small.n = rest;
    small.grad = copies;
    small.param = copies + tile;
    small.remainder = copies + 2 * tile;
    small.half_moment1 = copies + 3 * tile;
    CHECK(!zinf_optim_step(&h, &small, 1));
    CHECK(!zinf_optim_step(&h, &array, 2));
    for (int a = 0; a < 4; a++) {
        CHECKF(!memcmp(arrays[a] + last, copies + (uint64_t)a * tile, 2 * tile), "array %d", a);
        munmap(arrays[a], bytes);
    }
    free(copies);
}

/* ---- threads and nodes ---- */

static void test_slices_to_nodes(void)
{
    const int even[] = {8, 8}, uneven[] = {2, 6}, empty[] = {4, 0, 4};
    for (uint64_t slice = 0; slice < 16; slice++) {
        CHECK(optim_node_of_slice(even, 2, slice, 16) == (int)(slice / 8));
        CHECK(optim_node_of_slice(uneven, 2, slice, 16) == (slice >= 4));
        CHECK(optim_node_of_slice(even, 1, slice, 16) == 0);
        CHECK(optim_node_of_slice(empty, 3, slice, 16) == (slice < 8 ? 0 : 2));
    }
    CHECK(optim_node_of_slice(even, 2, 0, 1) == 0);
    CHECK(optim_node_of_slice(even, 2, 1, 2) == 1);
    CHECK(optim_node_of_slice(even, 2, 63, 64) == 1);
}

static void test_slices_cover_the_array(void)
{
    const uint64_t lengths[] = {1, 4096, 4097, 100000, ((uint64_t)1 << 33) + 77};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (uint64_t team = 1; team < 9; team++) {
            uint64_t at = 0;
            for (uint64_t i = 0; i < team; i++) {
                struct optim_slice s = optim_slice_of(lengths[l], OPTIM_BLOCK_ELEMS, i, team);
                CHECK(s.begin == at && (s.end % OPTIM_BLOCK_ELEMS == 0 || s.end == lengths[l]));
                at = s.end;
            }
            CHECK(at == lengths[l]);
        }
}

static int said;

static void listen(enum zinf_log_level level, const char *line, void *arg)
{
    (void)level;
    (void)arg;
    said += strstr(line, "OMP_NUM_THREADS=1 ") != NULL;
}

static void test_threads(void)
{
    int cpus = zinf_cpu_count(), online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    zinf_log_set_sink(listen, NULL);
    unsetenv("LOCAL_WORLD_SIZE");
    setenv("OMP_NUM_THREADS", "1", 1);
    CHECK(zinf_optim_thread_count(1) == cpus);
    CHECK(zinf_optim_thread_count(0) == cpus);
    CHECKF(said == (cpus > 1), "said %d times", said);
    CHECK(zinf_optim_thread_count(1 << 20) == (cpus == online ? 1 : cpus));
    setenv("LOCAL_WORLD_SIZE", "1000000", 1);
    CHECK(zinf_optim_thread_count(0) == (cpus == online ? 1 : cpus));
    zinf_log_set_sink(NULL, NULL);
}

static void test_place(void)
{
    fill();
    CHECK(!zinf_optim_place(master, N, sizeof *master, 4));
    CHECK(!zinf_optim_place(NULL, 0, 4, 4));
    CHECK(master[0] == plain_master[0] || master[0] != 0); /* pages move, values stay */
}

int main(void)
{
    TAP_RUN(test_zeroing_and_squares);
    TAP_RUN(test_squares_in_batches);
    TAP_RUN(test_nonfinite_changes_nothing);
    TAP_RUN(test_several_arrays);
    TAP_RUN(test_more_than_two_to_the_31);
    TAP_RUN(test_slices_to_nodes);
    TAP_RUN(test_slices_cover_the_array);
    TAP_RUN(test_threads);
    TAP_RUN(test_place);
    return tap_done();
}
