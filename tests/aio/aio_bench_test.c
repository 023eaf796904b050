/* The drive bench as a function: what it moves and where, that its figures are of what it moved,
 * and that a drive that fails is no figure. */
#include "build-config.h"

#include "aio/drive_bench.h"
#include "aio_fixture.h"
#include "tap.h"

#define MIB (1u << 20)
#define BLOCK 65536u

static enum zinf_aio_engine engines[2];
static int n_engines;

static struct zinf_aio_bench_options options_for(struct zinf_aio_file *file)
{
    return (struct zinf_aio_bench_options){
        .file = file, .bytes = 4 * MIB, .queue = {.block_bytes = BLOCK, .queue_depth = 8}};
}

static void check_figures(const struct zinf_aio_bench_result *r)
{
    double bytes = (double)(r->bytes_read + r->bytes_written);
    CHECK(r->seconds > 0 && r->cpu_seconds >= 0);
    CHECK(zinf_aio_bench_rate(r) > 0 && zinf_aio_bench_rate(r) * r->seconds < bytes * 1.001);
    CHECKF(r->p50_ns && r->p50_ns <= r->p99_ns && r->p99_ns <= r->p999_ns &&
               r->p999_ns <= r->max_ns,
           "%lu %lu %lu %lu", (unsigned long)r->p50_ns, (unsigned long)r->p99_ns,
           (unsigned long)r->p999_ns, (unsigned long)r->max_ns);
    CHECK((double)r->max_ns <= r->seconds * 1e9);
}

/* How many blocks of the file are not zeros. */
static int written_blocks(struct zinf_aio_file *file, uint64_t from, uint64_t end)
{
    int n = 0;
    char *memory = aligned(BLOCK);
    struct zinf_aio_queue *queue = NULL;
    CHECK(!zinf_aio_queue_create(&queue, &(struct zinf_aio_queue_options){0}));
    for (uint64_t at = from; at < end; at += BLOCK) {
        CHECK(move_now(queue, ZINF_AIO_OP_READ, file, at, memory, BLOCK) == BLOCK);
        bool zeros = true;
        for (uint32_t i = 0; i < BLOCK && zeros; i++)
            zeros = !memory[i];
        n += !zeros;
    }
    zinf_aio_queue_destroy(queue);
    free(memory);
    return n;
}

static void test_a_pass(void)
{
    for (int e = 0; e < n_engines; e++) {
        for (int random = 0; random < 2; random++) {
            struct zinf_aio_file *file = scratch_file(4 * MIB, 0);
            struct zinf_aio_bench_options options = options_for(file);
            struct zinf_aio_bench_result r;
            options.queue.engine = engines[e];
            options.random = random;
            CHECKF(!zinf_aio_bench(&options, &r), "%s", zinf_error());
            CHECK(r.bytes_read == 4 * MIB && r.bytes_written == 0 && r.engine == engines[e]);
            check_figures(&r);
            CHECK(written_blocks(file, 0, 4 * MIB) == 0);
            /* Mixed: the first half stays, all of the second is written. */
            options.mix = ZINF_AIO_BENCH_MIXED;
            CHECKF(!zinf_aio_bench(&options, &r), "%s", zinf_error());
            CHECK(r.bytes_read == 2 * MIB && r.bytes_written == 2 * MIB);
            check_figures(&r);
            CHECK(written_blocks(file, 0, 2 * MIB) == 0);
            CHECK(written_blocks(file, 2 * MIB, 4 * MIB) == 32);
            options.mix = ZINF_AIO_BENCH_WRITE;
            options.n_jobs = 3; /* 21 blocks each */
            CHECKF(!zinf_aio_bench(&options, &r), "%s", zinf_error());
            CHECK(r.bytes_read == 0 && r.bytes_written == 63 * BLOCK);
            check_figures(&r);
            CHECK(written_blocks(file, 0, 4 * MIB) == 64);
            zinf_aio_close(file);
        }
    }
}

static void test_a_time(void)
{
    struct zinf_aio_file *file = scratch_file(4 * MIB, 0);
    struct zinf_aio_bench_options options = options_for(file);
    struct zinf_aio_bench_result r;
    options.seconds = 0.05;
    options.mix = ZINF_AIO_BENCH_MIXED;
    CHECKF(!zinf_aio_bench(&options, &r), "%s", zinf_error());
    CHECK(r.seconds >= 0.05);
    int64_t more = (int64_t)(r.bytes_read - r.bytes_written);
    CHECKF(more == 0 || more == BLOCK, "%ld bytes more read than written", (long)more);
    zinf_aio_close(file);
}

/* Every block comes back 5 ms late, so that is the least that latencies can say. */
static void test_latency(void)
{
    struct zinf_aio_file *file = scratch_file(4 * MIB, 0);
    struct zinf_aio_bench_options options = options_for(file);
    struct zinf_aio_bench_result r;
    struct zinf_aio_faults faults = {.seed = 1, .delay_ppm = 1000000, .delay_us = 5000};
    options.queue.around[0] = AIO_FAULTS(&faults);
    CHECKF(!zinf_aio_bench(&options, &r), "%s", zinf_error());
    CHECKF(r.p50_ns >= 5000000, "%lu ns", (unsigned long)r.p50_ns);
    check_figures(&r);
    zinf_aio_close(file);
}

static void test_refusals(void)
{
    struct zinf_aio_file *file = scratch_file(4 * MIB, 0);
    struct zinf_aio_bench_options options = options_for(file);
    struct zinf_aio_bench_result r;
    struct zinf_aio_faults faults = {.seed = 1, .eio_ppm = 50000};
    options.n_jobs = 65;
    CHECK(zinf_aio_bench(&options, &r) == -EINVAL && strstr(zinf_error(), "too few"));
    options.n_jobs = 2;
    options.queue.around[0] = AIO_FAULTS(&faults);
    CHECK(zinf_aio_bench(&options, &r) == -EIO);
    CHECKF(strstr(zinf_error(), "offset") && strstr(zinf_error(), "scratch"), "%s", zinf_error());
    options.file = NULL;
    CHECK(zinf_aio_bench(&options, &r) == -EINVAL);
    zinf_aio_close(file);
}

static void test_a_path(void)
{
    struct zinf_aio_bench_rates rates;
    CHECKF(!zinf_aio_bench_path(folder, 8 * MIB, false, &rates), "%s", zinf_error());
    CHECK(rates.read > 0 && rates.write > 0 && rates.mixed > 0);
    CHECK(rates.bytes_written == (8 + 8 + 4) * MIB);
    CHECK(zinf_aio_bench_path(in_folder("none"), 8 * MIB, false, &rates) == -ENOENT);
}

int main(void)
{
    if (fixture_begin("aio_bench_test"))
        return 99;
    n_engines = moving_engines(engines);
    TAP_RUN(test_a_pass);
    TAP_RUN(test_a_time);
    TAP_RUN(test_latency);
    TAP_RUN(test_refusals);
    TAP_RUN(test_a_path);
    fixture_end();
    return tap_done();
}
