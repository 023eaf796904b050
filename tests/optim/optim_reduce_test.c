/* cpu_optim: sum of squares, search for non-finite values and accumulation give the same bits from
 * every instruction set and thread count, and count beyond 2^31 elements. */
#include "optim_support.h"

#include <sys/mman.h>
#include <unistd.h>

static double sum_plain(const float *x, uint64_t n)
{
    double total = 0;
    for (uint64_t start = 0; start < n; start += 4096) {
        double lane[16] = {0};
        for (uint64_t i = start; i < n && i < start + 4096; i++)
            lane[i % 16] += (double)x[i] * (double)x[i];
        for (int half = 8; half; half /= 2)
            for (int j = 0; j < half; j++)
                lane[j] += lane[j + half];
        total += lane[0];
    }
    return total;
}

static void test_reductions(void)
{
    enum { ROOM = 100000 };
    float *values = malloc(ROOM * sizeof *values), *wide = malloc(ROOM * sizeof *wide);
    void *x = malloc(ROOM * sizeof(float));
    const uint64_t lengths[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 33333, 90001};
    random_fill(values, ROOM, 77, false);
    for (int dtype = 0; dtype < ZINF_DTYPE_COUNT; dtype++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            uint64_t n = lengths[l];
            enum zinf_dtype type = (enum zinf_dtype)dtype;
            zinf_convert(x, type, values, ZINF_DTYPE_F32, ROOM);
            zinf_convert(wide, ZINF_DTYPE_F32, x, type, ROOM);
            double expected = sum_plain(wide, n);
            for (int isa = 0; isa <= (int)zinf_isa(); isa++)
                for (int threads = 1; threads <= 3; threads++) {
                    const struct optim_ops *ops = optim_ops_of((enum zinf_isa)isa);
                    double sum = optim_sum_with(ops, x, type, n, threads);
                    CHECKF(sum == expected, "%s %d: %a, not %a", zinf_isa_name((enum zinf_isa)isa),
                           (int)n, sum, expected);
                    CHECK(optim_find_with(ops, x, type, n, threads) == UINT64_MAX);
                }
        }
    free(values);
    free(wide);
    free(x);
}

static void test_nonfinite_is_found(void)
{
    enum { N = 70000 };
    static float values[N], wide[N];
    const float bad[] = {INFINITY, -INFINITY, NAN};
    const uint64_t places[] = {0, 1, 7, 31, 4097, 40000, N - 1};
    for (int dtype = 0; dtype < ZINF_DTYPE_COUNT; dtype++)
        for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
            memset(values, 0, sizeof values);
            values[places[place]] = bad[place % 3];
            values[N - 1] = NAN;
            zinf_convert(wide, (enum zinf_dtype)dtype, values, ZINF_DTYPE_F32, N);
            for (int isa = 0; isa <= (int)zinf_isa(); isa++)
                for (int threads = 1; threads <= 3; threads++) {
                    const struct optim_ops *ops = optim_ops_of((enum zinf_isa)isa);
                    CHECK(optim_find_with(ops, wide, (enum zinf_dtype)dtype, N, threads) ==
                          places[place]);
                    CHECK(!isfinite(optim_sum_with(ops, wide, (enum zinf_dtype)dtype, N, threads)));
                }
        }
    for (int i = 0; i < N; i++)
        values[i] = 3.4e38f; /* their squares overflow fp32, not the sum */
    CHECK(isfinite(zinf_optim_sum_squares(values, ZINF_DTYPE_F32, N, 2)));
}

static void test_accumulate(void)
{
    enum { N = 40003 };
    static float start[N], source[N], half[N], expected[N], actual[N];
    random_fill(start, N, 1, true);
    random_fill(source, N, 2, true);
    for (int dtype = 0; dtype < ZINF_DTYPE_COUNT; dtype++)
        for (int isa = 0; isa <= (int)zinf_isa(); isa++)
            for (int threads = 1; threads <= 3; threads++) {
                zinf_convert(half, (enum zinf_dtype)dtype, source, ZINF_DTYPE_F32, N);
                zinf_convert(expected, ZINF_DTYPE_F32, half, (enum zinf_dtype)dtype, N);
                memcpy(actual, start, sizeof actual);
                optim_accumulate_with(optim_ops_of((enum zinf_isa)isa), actual, half,
                                      (enum zinf_dtype)dtype, N, threads);
                for (int i = 0; i < N; i++) {
                    float sum = start[i] + expected[i];
                    CHECKF(isnan(sum) ? isnan(actual[i]) : !memcmp(&sum, &actual[i], 4),
                           "%s element %d", zinf_isa_name((enum zinf_isa)isa), i);
                }
            }
}

/* ---- more than 2^31 elements ---- */

#define TILE_BYTES ((size_t)2 << 20)

/* bytes of address space: one shared tile again and again, and a last tile of its own. */
static char *map_tiles(size_t bytes)
{
    int fd = memfd_create("tiles", 0);
    char *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fd < 0 || base == MAP_FAILED || ftruncate(fd, 2 * TILE_BYTES))
        goto fail;
    for (size_t at = 0; at < bytes; at += TILE_BYTES)
        if (mmap(base + at, TILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                 at + TILE_BYTES < bytes ? 0 : TILE_BYTES) == MAP_FAILED)
            goto fail;
    close(fd);
    return base;
fail:
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void test_more_than_two_to_the_31(void)
{
    const uint64_t n = ((uint64_t)1 << 31) + TILE_BYTES / 2, tile = TILE_BYTES / 2;
    const size_t bytes = n * 2;
    if (zinf_isa() == ZINF_ISA_SCALAR)
        SKIP("too slow in scalar form");
    uint16_t *grad = (uint16_t *)(void *)map_tiles(bytes);
    if (!grad)
        SKIP("cannot map %zu bytes of address space", bytes);
    for (uint64_t i = 0; i < tile; i++)
        grad[i] = 0x3f80; /* 1.0 */
    grad[n - 5] = 0x7f80;
    CHECK(zinf_optim_find_nonfinite(grad, ZINF_DTYPE_BF16, n, 2) == n - 5);
    grad[n - 5] = 0x4000; /* 2.0 */
    CHECK(zinf_optim_sum_squares(grad, ZINF_DTYPE_BF16, n, 2) == (double)(n - tile) + 4);
    munmap(grad, bytes);
}

int main(void)
{
    TAP_RUN(test_reductions);
    TAP_RUN(test_nonfinite_is_found);
    TAP_RUN(test_accumulate);
    TAP_RUN(test_more_than_two_to_the_31);
    return tap_done();
}
