/*
 * checksum_bench: what checksums cost where the drive is the limit. As in a step, one thread reads
 * sub-groups of state from one generation and another writes the other, each with a queue of its
 * own; on a store with checksums and on one without, in turns.
 *
 * checksum_bench FOLDER [SIZE [ROUNDS [REQUEST]]]     SIZE: of a generation
 */
#include "aio/drive_bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ROUNDS 101
#define DEPTH 16 /* operations that a lane of the executor has under way */

static void quit(void)
{
    fprintf(stderr, "checksum_bench: %s\n", zinf_error());
    exit(1);
}

/* Two extents stand for the two generations. */
static struct zinf_store *make_store(const char *path, bool checksums, uint64_t bytes)
{
    struct zinf_store_options options = {
        .paths = &path, .n_paths = 1, .label = "bench", .checksums = checksums};
    struct zinf_store *store = NULL;
    zinf_extent extent;
    if (zinf_store_create(&store, &options) || zinf_store_add_extent(store, bytes, &extent) ||
        zinf_store_add_extent(store, bytes, &extent) || zinf_store_allocate(store))
        quit();
    return store;
}

struct lane {
    struct zinf_aio_bench_options options;
    struct zinf_aio_bench_result result;
};

static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    if (zinf_aio_bench(&lane->options, &lane->result))
        quit();
    return NULL;
}

static struct lane lane_of(struct zinf_store *store, zinf_extent extent,
                           enum zinf_aio_bench_mix mix, uint64_t bytes, uint32_t request)
{
    return (struct lane){.options = {.store = store,
                                     .extent = extent,
                                     .bytes = bytes,
                                     .mix = mix,
                                     .queue = {.block_bytes = request, .queue_depth = DEPTH}}};
}

/* Both lanes at once. Each one's CPU time is the process's, so the longer one's is that of both. */
static void run_step(struct zinf_store *store, uint64_t bytes, uint32_t request, double *rate,
                     double *cpu)
{
    struct lane read = lane_of(store, 0, ZINF_AIO_BENCH_READ, bytes, request);
    struct lane write = lane_of(store, 1, ZINF_AIO_BENCH_WRITE, bytes, request);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_lane, &read))
        quit();
    run_lane(&write);
    pthread_join(thread, NULL);
    const struct zinf_aio_bench_result *longer =
        read.result.seconds > write.result.seconds ? &read.result : &write.result;
    double moved = (double)(read.result.bytes_read + write.result.bytes_written) * 1e-9;
    *rate = moved / longer->seconds;
    *cpu = longer->cpu_seconds / moved;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

int main(int argc, char **argv)
{
    uint64_t bytes = 1ull << 30, request = 8u << 20;
    int rounds = argc > 3 ? atoi(argv[3]) : 9;
    double rate[2][MAX_ROUNDS], cpu[2][MAX_ROUNDS];
    if (argc < 2 || rounds < 1 || rounds > MAX_ROUNDS ||
        (argc > 2 && zinf_size_parse(argv[2], &bytes)) ||
        (argc > 4 && zinf_size_parse(argv[4], &request))) {
        fputs("usage: checksum_bench FOLDER [SIZE [ROUNDS [REQUEST]]]\n", stderr);
        return 2;
    }
    struct zinf_store *stores[2] = {make_store(argv[1], false, bytes),
                                    make_store(argv[1], true, bytes)};
    for (int with = 0; with < 2; with++) { /* data, whose checksums are then known */
        struct lane first =
            lane_of(stores[with], 0, ZINF_AIO_BENCH_WRITE, bytes, (uint32_t)request);
        run_lane(&first);
    }
    for (int round = 0; round < rounds; round++)
        for (int with = 0; with < 2; with++)
            run_step(stores[with], bytes, (uint32_t)request, &rate[with][round], &cpu[with][round]);
    zinf_store_destroy(stores[0]);
    zinf_store_destroy(stores[1]);
    double without = median(rate[0], rounds), with = median(rate[1], rounds);
    printf("%d rounds, medians\n%-10s %6s %9s\n", rounds, "checksums", "GB/s", "CPU s/GB");
    printf("%-10s %6.3f %9.4f\n", "off", without, median(cpu[0], rounds));
    printf("%-10s %6.3f %9.4f\n", "on", with, median(cpu[1], rounds));
    printf("cost in speed: %.1f %%\n", (without / with - 1) * 100);
    return 0;
}
