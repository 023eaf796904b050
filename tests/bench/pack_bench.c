/*
 * pack_bench: how fast arrays are packed and unpacked, by one thread with each instruction set, in
 * turns with a copy of the same bytes; or what the tensors of files become.
 *
 * pack_bench [ELEMENTS [ROUNDS]]     normal numbers; GB/s are of plain bytes
 * pack_bench --files FILE...         bits an element as they are, and of fp32 rounded to bf16
 */
#include "base/random.h"
#include "cpu_optim/pack_internal.h"
#include "formats/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_ROUNDS 101

static void quit(void)
{
    fprintf(stderr, "pack_bench: %s\n", zinf_error());
    exit(1);
}

#define HUGE_PAGE (2u << 20)

static void *memory(uint64_t bytes)
{
    bytes = zinf_align_up(bytes, HUGE_PAGE);
    void *p = aligned_alloc(HUGE_PAGE, bytes);
    if (!p) {
        zinf_fail(-ENOMEM, "no memory for the arrays");
        quit();
    }
    madvise(p, bytes, MADV_HUGEPAGE); /* as a training's arenas are; no harm where it is refused */
    memset(p, 0, bytes);
    return p;
}

/* ---- rates ---- */

enum part { COPY, PACK, UNPACK, PARTS };

struct rates {
    double seconds[PARTS][MAX_ROUNDS];
    int64_t bytes;
};

/* Of this thread's own time, which others on the machine do not count in. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void round_of(const struct pack_ops *ops, const struct zinf_pack_array *array, void *image,
                     void *back, struct rates *r, int round)
{
    struct zinf_pack_array to = *array;
    uint64_t plain = array->n * zinf_dtype_bytes(array->dtype);
    double begin = now();
    to.x = back;
    memcpy(back, array->x, plain);
    r->seconds[COPY][round] = now() - begin;
    begin = now();
    r->bytes = pack_with(ops, image, array, 1);
    r->seconds[PACK][round] = now() - begin;
    begin = now();
    if (unpack_with(ops, &to, image, (uint64_t)r->bytes, 1) < 0)
        quit();
    r->seconds[UNPACK][round] = now() - begin;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(enum zinf_dtype dtype, const float *values, uint64_t n, int rounds)
{
    uint64_t bound = zinf_pack_bound(dtype, n), plain = n * zinf_dtype_bytes(dtype);
    void *image = memory(bound), *back = memory(plain);
    struct zinf_pack_array array = {.x = memory(plain), .dtype = dtype, .n = n};
    static struct rates rates[ZINF_ISA_AVX512 + 1];
    int isas = (int)zinf_isa() < ZINF_ISA_AVX512 ? (int)zinf_isa() : ZINF_ISA_AVX512;
    zinf_convert(array.x, dtype, values, ZINF_DTYPE_F32, n);
    for (int round = 0; round < rounds; round++)
        for (int isa = 0; isa <= isas; isa++)
            round_of(pack_ops_of((enum zinf_isa)isa), &array, image, back, &rates[isa], round);
    for (int isa = 0; isa <= isas; isa++) {
        double rate[PARTS];
        for (int part = 0; part < PARTS; part++) {
            qsort(rates[isa].seconds[part], (size_t)rounds, sizeof(double), compare);
            rate[part] = (double)plain / rates[isa].seconds[part][rounds / 2] * 1e-9;
        }
        printf("%-5s %-8s %9.2f %9.2f %9.2f %9.2f\n", zinf_dtype_name(dtype),
               zinf_isa_name((enum zinf_isa)isa), rate[COPY], rate[PACK], rate[UNPACK],
               (double)rates[isa].bytes * 8 / (double)n);
    }
    free(image);
    free(back);
    free(array.x);
}

static int bench_rates(uint64_t n, int rounds)
{
    float *values = memory(n * sizeof *values);
    zinf_normal_fill(values, 0, n, 1, 2, 0, 0.02f);
    printf("%d rounds, medians, GB/s of plain bytes, one thread\n%-5s %-8s %9s %9s %9s %9s\n",
           rounds, "", "", "copy", "pack", "unpack", "bits");
    measure(ZINF_DTYPE_BF16, values, n, rounds);
    measure(ZINF_DTYPE_F32, values, n, rounds);
    free(values);
    return 0;
}

/* ---- files ---- */

static double bits_of(const float *values, uint64_t n, enum zinf_dtype dtype)
{
    void *x = memory(n * 4), *image = memory(zinf_pack_bound(dtype, n));
    struct zinf_pack_array array = {.x = x, .dtype = dtype, .n = n};
    zinf_convert(x, dtype, values, ZINF_DTYPE_F32, n);
    int64_t bytes = zinf_pack(image, zinf_pack_bound(dtype, n), &array, 1);
    free(x);
    free(image);
    if (bytes < 0)
        quit();
    return (double)bytes * 8 / (double)n;
}

/* All tensors as one array, as a unit's lie behind each other. */
static void bench_file(const char *path)
{
    struct zinf_tensors *tensors;
    uint64_t n = 0, at = 0;
    if (zinf_tensors_open(&tensors, path))
        quit();
    for (uint64_t i = 0; i < zinf_tensors_count(tensors); i++)
        n += zinf_tensors_at(tensors, i)->n_elems;
    float *values = memory(n * sizeof *values);
    for (uint64_t i = 0; i < zinf_tensors_count(tensors); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(tensors, i);
        if (zinf_tensors_read_f32(tensors, info, 0, info->n_elems, values + at))
            quit();
        at += info->n_elems;
    }
    printf("%12llu elements  fp32 %6.2f  bf16 %6.2f  %s\n", (unsigned long long)n,
           bits_of(values, n, ZINF_DTYPE_F32), bits_of(values, n, ZINF_DTYPE_BF16), path);
    free(values);
    zinf_tensors_close(tensors);
}

int main(int argc, char **argv)
{
    uint64_t n = 1u << 24;
    int rounds = argc > 2 ? atoi(argv[2]) : 15;
    if (argc > 2 && !strcmp(argv[1], "--files")) {
        for (int i = 2; i < argc; i++)
            bench_file(argv[i]);
        return 0;
    }
    if (rounds < 1 || rounds > MAX_ROUNDS || (argc > 1 && (zinf_size_parse(argv[1], &n) || !n))) {
        fputs("usage: pack_bench [ELEMENTS [ROUNDS]] | --files FILE...\n", stderr);
        return 2;
    }
    return bench_rates(n, rounds);
}
