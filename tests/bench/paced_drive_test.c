/* A drive of set rates: what it lets through is right, complete and in order, never sooner than the
 * rates allow; how late a busy machine sees it is no matter of a test. */
#include "aio_fixture.h"
#include "bench/paced_drive.h"
#include "tap.h"

#define FILE_BYTES (4u << 20)
#define REQUEST_BYTES (FILE_BYTES / 4)

static const struct zinf_drive_rates fast = {.read_bytes = 2e9, .write_bytes = 1e9};

static struct zinf_paced_drive *make_drive(const struct zinf_drive_rates *rates)
{
    struct zinf_paced_drive *drive = NULL;
    CHECKF(!zinf_paced_drive_create(&drive, rates), "%s", zinf_error());
    return drive;
}

static struct zinf_aio_queue *make_queue(enum zinf_aio_engine engine,
                                         struct zinf_paced_drive *drive,
                                         const struct zinf_aio_faults *faults)
{
    struct zinf_aio_queue *queue = NULL;
    struct zinf_aio_queue_options options = {.engine = engine,
                                             .block_bytes = 65536,
                                             .queue_depth = 8,
                                             .around = {PACED_BY(drive), AIO_FAULTS(faults)}};
    CHECKF(!zinf_aio_queue_create(&queue, &options), "%s", zinf_error());
    return queue;
}

static double work_of(struct zinf_paced_drive *drive, enum zinf_aio_op op)
{
    double seconds[2];
    zinf_paced_drive_work(drive, seconds);
    return seconds[op];
}

static void check_engine(enum zinf_aio_engine engine, const struct zinf_aio_faults *faults)
{
    char *out = aligned(FILE_BYTES), *back = aligned(FILE_BYTES);
    struct zinf_paced_drive *drive = make_drive(&fast);
    struct zinf_aio_queue *queue = make_queue(engine, drive, faults);
    struct zinf_aio_file *file = scratch_file(FILE_BYTES, 0);
    fill(out, FILE_BYTES, 7);
    memset(back, 0, FILE_BYTES);
    uint64_t begin = zinf_now_ns();
    CHECK(move_now(queue, ZINF_AIO_OP_WRITE, file, 0, out, FILE_BYTES) == FILE_BYTES);
    uint64_t written = zinf_now_ns();
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, back, FILE_BYTES) == FILE_BYTES);
    uint64_t read = zinf_now_ns();
    CHECKF(!memcmp(out, back, FILE_BYTES), "%s: data differ", zinf_aio_engine_name(engine));
    double least = FILE_BYTES / 1e9 * 0.999; /* seconds */
    CHECKF((double)(written - begin) * 1e-9 >= least, "written in %llu ns",
           (unsigned long long)(written - begin));
    CHECKF((double)(read - written) * 1e-9 >= least / 2, "read in %llu ns",
           (unsigned long long)(read - written));
    CHECK(work_of(drive, ZINF_AIO_OP_WRITE) >= least);
    zinf_aio_queue_destroy(queue);
    zinf_paced_drive_destroy(drive);
    zinf_aio_close(file);
    free(out);
    free(back);
}

static void test_bytes_are_moved_by_the_engine_below(void)
{
    enum zinf_aio_engine engines[2];
    int n = moving_engines(engines);
    for (int i = 0; i < n; i++)
        check_engine(engines[i], NULL);
}

static void test_faults_go_on_top(void)
{
    enum zinf_aio_engine engines[2];
    struct zinf_aio_faults faults = {
        .seed = 5, .short_ppm = 200000, .delay_ppm = 100000, .delay_us = 200, .reorder = true};
    int n = moving_engines(engines);
    for (int i = 0; i < n; i++)
        check_engine(engines[i], &faults);
}

/* Lines are worked off from their heads: without other reasons requests end as they were given. */
static void test_requests_of_a_line_end_in_order(void)
{
    struct zinf_paced_drive *drive = make_drive(&fast);
    struct zinf_aio_queue *queue = make_queue(ZINF_AIO_ENGINE_NULL, drive, NULL);
    struct zinf_aio_file *file = scratch_file(FILE_BYTES, 0);
    struct zinf_aio_request requests[4];
    char *memory = aligned(FILE_BYTES);
    for (int i = 0; i < 4; i++) {
        requests[i] = (struct zinf_aio_request){.op = ZINF_AIO_OP_READ,
                                                .file = file,
                                                .offset = (uint64_t)i * REQUEST_BYTES,
                                                .bytes = REQUEST_BYTES,
                                                .memory = memory};
        CHECKF(!zinf_aio_submit(queue, &requests[i]), "%s", zinf_error());
    }
    for (int i = 0; i < 4; i++) {
        struct zinf_aio_request *back = zinf_aio_reap(queue, UINT64_MAX);
        CHECKF(back == &requests[i] && back->result == REQUEST_BYTES, "request %d", i);
    }
    CHECK(!zinf_aio_in_flight(queue) && !zinf_aio_reap(queue, UINT64_MAX));
    double work = work_of(drive, ZINF_AIO_OP_READ), whole = FILE_BYTES / fast.read_bytes;
    CHECKF(work > 0.9999 * whole && work < 1.0001 * whole, "%g s of reads instead of %g", work,
           whole);
    CHECK(work_of(drive, ZINF_AIO_OP_WRITE) == 0);
    zinf_aio_queue_destroy(queue);
    zinf_paced_drive_destroy(drive);
    zinf_aio_close(file);
    free(memory);
}

static struct zinf_aio_queue *whole_queue(struct zinf_paced_drive *drive)
{
    struct zinf_aio_queue *queue = NULL;
    struct zinf_aio_queue_options options = {.engine = ZINF_AIO_ENGINE_NULL,
                                             .block_bytes = 65536,
                                             .queue_depth = FILE_BYTES / 65536,
                                             .around = {PACED_BY(drive)}};
    CHECKF(!zinf_aio_queue_create(&queue, &options), "%s", zinf_error());
    return queue;
}

/* With halves beside each other both together take what they take one after the other, and while
 * both go on neither has moved more than its half. */
static void test_lines_slow_each_other(void)
{
    const double rate = 1e8, alone = FILE_BYTES / rate;
    struct zinf_drive_rates rates = {rate, rate, 0.5, 0.5, 1e-4};
    struct zinf_aio_file *file = scratch_file(FILE_BYTES, 0);
    struct zinf_paced_drive *drive = make_drive(&rates);
    struct zinf_aio_queue *queues[2];
    struct zinf_aio_request requests[2];
    char *memory = aligned(FILE_BYTES);
    uint64_t begin = zinf_now_ns(), both = 0;
    for (int op = 0; op < 2; op++) {
        queues[op] = whole_queue(drive);
        requests[op] = (struct zinf_aio_request){
            .op = (enum zinf_aio_op)op, .file = file, .bytes = FILE_BYTES, .memory = memory};
        begin = op ? begin : zinf_now_ns();
        CHECKF(!zinf_aio_submit(queues[op], &requests[op]), "%s", zinf_error());
        both = zinf_now_ns();
    }
    usleep(5000);
    double most = (double)(both - begin) * 1e-9, seconds[2];
    zinf_paced_drive_work(drive, seconds);
    most += (double)(zinf_now_ns() - both) * 1e-9 / 2;
    CHECKF(seconds[0] <= most + 1e-6 || seconds[0] + seconds[1] > alone,
           "%g s of reads where half of them leave %g", seconds[0], most);
    for (int op = 0; op < 2; op++)
        CHECK(zinf_aio_reap(queues[op], UINT64_MAX) == &requests[op]);
    double taken = (double)(zinf_now_ns() - begin) * 1e-9;
    CHECKF(taken >= 2 * alone * 0.999, "both in %g s, each alone in %g", taken, alone);
    for (int op = 0; op < 2; op++)
        zinf_aio_queue_destroy(queues[op]);
    zinf_paced_drive_destroy(drive);
    zinf_aio_close(file);
    free(memory);
}

/* A plan's extents can be asked for where nothing moves, and nowhere else. */
static void test_a_planned_store_needs_no_space(void)
{
    struct zinf_store_options options = {.label = "plan", .plan_only = true};
    struct zinf_store *store = NULL;
    zinf_extent extent = 0;
    CHECKF(!zinf_store_create(&store, &options), "%s", zinf_error());
    CHECK(!zinf_store_add_extent_pair(store, FILE_BYTES, &extent));
    struct zinf_paced_drive *drive = make_drive(&fast);
    struct zinf_aio_queue *null = make_queue(ZINF_AIO_ENGINE_NULL, drive, NULL);
    struct zinf_aio_queue *threads = make_queue(ZINF_AIO_ENGINE_THREADS, drive, NULL);
    struct zinf_aio_request request = {.op = ZINF_AIO_OP_WRITE,
                                       .store = store,
                                       .extent = extent,
                                       .generation = 1,
                                       .bytes = FILE_BYTES,
                                       .memory = (void *)((uintptr_t)1 << 40)};
    CHECKF(!zinf_aio_submit(null, &request), "%s", zinf_error());
    CHECK(zinf_aio_reap(null, UINT64_MAX) == &request && request.result == FILE_BYTES);
    CHECK(zinf_aio_submit(threads, &request) == -EINVAL && strstr(zinf_error(), "no space yet"));
    request.generation = 0;
    request.offset = 4096;
    CHECK(zinf_aio_submit(null, &request) == -EINVAL && strstr(zinf_error(), "leave extent"));
    zinf_aio_queue_destroy(null);
    zinf_aio_queue_destroy(threads);
    zinf_paced_drive_destroy(drive);
    zinf_store_destroy(store);
}

static void test_rates_that_no_drive_has(void)
{
    struct zinf_paced_drive *drive;
    struct zinf_drive_rates none = {.read_bytes = 1e9};
    struct zinf_drive_rates more = {
        .read_bytes = 1e9, .write_bytes = 1e9, .read_beside_write = 1.5};
    CHECK(zinf_paced_drive_create(&drive, &none) == -EINVAL && !drive);
    CHECK(strstr(zinf_error(), "rates must be above 0"));
    CHECK(zinf_paced_drive_create(&drive, &more) == -EINVAL && !drive);
}

int main(void)
{
    zinf_log_set_level(ZINF_LOG_ERROR);
    if (fixture_begin("paced"))
        printf("Bail out! no folder\n");
    TAP_RUN(test_bytes_are_moved_by_the_engine_below);
    TAP_RUN(test_faults_go_on_top);
    TAP_RUN(test_requests_of_a_line_end_in_order);
    TAP_RUN(test_lines_slow_each_other);
    TAP_RUN(test_a_planned_store_needs_no_space);
    TAP_RUN(test_rates_that_no_drive_has);
    fixture_end();
    return tap_done();
}
