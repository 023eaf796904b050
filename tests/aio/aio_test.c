/* Queues on plain files: sizes, ends, offsets beyond 4 GiB, random requests against a model,
 * priorities, depth, timeouts. Every case runs on every engine that moves data. */
#include "build-config.h"

#include "aio/aio_queue.h"
#include "aio_fixture.h"
#include "base/memory.h"
#include "tap.h"

#include <fcntl.h>

static enum zinf_aio_engine engines[2];
static int n_engines;

static struct zinf_aio_queue *queue_of(enum zinf_aio_engine engine, uint32_t block, uint32_t depth)
{
    struct zinf_aio_queue *queue = NULL;
    struct zinf_aio_queue_options options = {
        .engine = engine, .block_bytes = block, .queue_depth = depth};
    if (zinf_aio_queue_create(&queue, &options))
        printf("# %s\n", zinf_error());
    return queue;
}

static void test_sizes(void)
{
    static const uint64_t sizes[] = {4096,    8192,    61440,   1048576 - 4096,
                                     1048576, 1052672, 7340032, 9 * 1048576 + 4096};
    size_t most = 10u << 20;
    char *out = aligned(most), *back = aligned(most);
    fill(out, most, 1);
    for (int e = 0; e < n_engines; e++) {
        for (int direct = 0; direct < 2; direct++) {
            struct zinf_aio_file *file = scratch_file(0, direct ? 0 : ZINF_AIO_BUFFERED);
            struct zinf_aio_queue *queue = queue_of(engines[e], direct ? 0 : 65536, 0);
            CHECK(zinf_aio_queue_engine(queue) == engines[e]);
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                uint64_t bytes = sizes[i], at = i * 4096;
                memset(back, 0, bytes);
                CHECK(move_now(queue, ZINF_AIO_OP_WRITE, file, at, out, bytes) == (int64_t)bytes);
                CHECK(move_now(queue, ZINF_AIO_OP_READ, file, at, back, bytes) == (int64_t)bytes);
                CHECKF(!memcmp(out, back, bytes), "%zu bytes differ", (size_t)bytes);
            }
            zinf_aio_queue_destroy(queue);
            zinf_aio_close(file);
        }
    }
    free(out);
    free(back);
}

static void test_refused_requests(void)
{
    char *memory = aligned(16384);
    struct zinf_aio_file *file = scratch_file(16384, 0);
    struct zinf_aio_queue *queue = queue_of(ZINF_AIO_ENGINE_AUTO, 0, 0);
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 1, memory, 4096) == -EINVAL);
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, memory, 4095) == -EINVAL);
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, memory + 8, 4096) == -EINVAL);
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, memory, 0) == -EINVAL);
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 1ull << 63, memory, 4096) == -EINVAL);
    CHECK(move_now(queue, ZINF_AIO_OP_READ, NULL, 0, memory, 4096) == -EINVAL);
    CHECK(zinf_aio_in_flight(queue) == 0);
    CHECK(zinf_aio_queue_error(queue, NULL) == 0);
    CHECK(zinf_aio_reap(queue, UINT64_MAX) == NULL);
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, memory, 4096) == 4096);
    zinf_aio_queue_destroy(queue);
    struct zinf_aio_queue_options odd = {.block_bytes = 5000};
    CHECK(zinf_aio_queue_create(&queue, &odd) == -EINVAL && strstr(zinf_error(), "block_size"));
    odd = (struct zinf_aio_queue_options){.queue_depth = 1u << 20};
    CHECK(zinf_aio_queue_create(&queue, &odd) == -EINVAL && strstr(zinf_error(), "queue_depth"));
    zinf_aio_close(file);
    free(memory);
}

static void test_open(void)
{
    struct zinf_aio_file *file = NULL;
    const char *path = in_folder("exclusive");
    CHECK(zinf_aio_open(&file, path, ZINF_AIO_READ) == -ENOENT && strstr(zinf_error(), path));
    CHECK(zinf_aio_open(&file, path, 0) == -EINVAL);
    CHECK(zinf_aio_open(&file, path, ZINF_AIO_WRITE | ZINF_AIO_CREATE) == 0);
    CHECK(zinf_aio_file_bytes(file) == 0);
    zinf_aio_close(file);
    CHECK(zinf_aio_open(&file, path, ZINF_AIO_WRITE | ZINF_AIO_CREATE) == -EEXIST);
    CHECK(truncate(path, 12345) == 0);
    CHECK(zinf_aio_open(&file, path, ZINF_AIO_READ | ZINF_AIO_BUFFERED) == 0);
    CHECK(zinf_aio_file_bytes(file) == 12345 && !zinf_aio_file_direct(file));
    zinf_aio_close(file);
    unlink(path);
}

static void test_end_of_file(void)
{
    char *memory = aligned(1 << 20);
    for (int e = 0; e < n_engines; e++) {
        struct zinf_aio_file *file = scratch_file(300001, 0);
        struct zinf_aio_queue *queue = queue_of(engines[e], 65536, 0);
        memset(memory, 1, 1 << 20);
        CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, memory, 1 << 20) == 300001);
        CHECK(memory[0] == 0 && memory[300000] == 0);
        CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 299008, memory, 4096) == 993);
        CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 1 << 20, memory, 4096) == 0);
        CHECK(zinf_aio_queue_error(queue, NULL) == 0);
        zinf_aio_queue_destroy(queue);
        zinf_aio_close(file);
    }
    free(memory);
}

static void test_offsets_beyond_4gib(void)
{
    static const uint64_t places[] = {(2ull << 30) - 4096, (4ull << 30) - 8192, 5ull << 30,
                                      (6ull << 30) - 65536};
    char *out = aligned(65536), *back = aligned(65536);
    for (int e = 0; e < n_engines; e++) {
        struct zinf_aio_file *file = scratch_file(6ull << 30, 0);
        struct zinf_aio_queue *queue = queue_of(engines[e], 16384, 0);
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            fill(out, 65536, i + 7);
            CHECK(move_now(queue, ZINF_AIO_OP_WRITE, file, places[i], out, 65536) == 65536);
        }
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            fill(out, 65536, i + 7);
            CHECK(move_now(queue, ZINF_AIO_OP_READ, file, places[i], back, 65536) == 65536);
            CHECK(!memcmp(out, back, 65536));
        }
        zinf_aio_queue_destroy(queue);
        zinf_aio_close(file);
    }
    free(out);
    free(back);
}

/* One request of more than 4 GiB. The memory is 2 MiB of pages mapped again and again, so that
 * the last piece read is what is found there. */
static void test_request_over_4gib(void)
{
    const uint64_t bytes = (4ull << 30) + (4u << 20), window = 2u << 20;
    int memory_fd = memfd_create("aio_test", 0);
    char *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *out = aligned(window);
    if (memory_fd < 0 || memory == MAP_FAILED || ftruncate(memory_fd, (off_t)window))
        SKIP("no address space for 4 GiB");
    for (uint64_t at = 0; at < bytes; at += window)
        CHECK(mmap(memory + at, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_fd,
                   0) != MAP_FAILED);
    struct zinf_aio_file *file = scratch_file(bytes, 0);
    struct zinf_aio_queue *queue = queue_of(ZINF_AIO_ENGINE_AUTO, 1u << 20, 1);
    fill(out, window, 11);
    CHECK(move_now(queue, ZINF_AIO_OP_WRITE, file, bytes - window, out, window) == (int64_t)window);
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, memory, bytes) == (int64_t)bytes);
    CHECK(!memcmp(out, memory, window));
    zinf_aio_queue_destroy(queue);
    zinf_aio_close(file);
    munmap(memory, bytes);
    close(memory_fd);
    free(out);
}

/* ---- random requests against a model in memory ---- */

#define REGIONS 96
#define REGION_BYTES 65536u
#define OPERATIONS 10000

struct model {
    char *truth, *memory; /* [REGIONS][REGION_BYTES] the file as it should be; transfer buffers */
    struct zinf_aio_request requests[REGIONS];
    bool busy[REGIONS];
    uint64_t random;
    int wrong;
};

/* One request at a time in a region, so that the order of completion cannot matter. */
static bool start_random(struct model *model, struct zinf_aio_queue *queue,
                         struct zinf_aio_file *file)
{
    uint32_t region = next_random(&model->random) % REGIONS;
    if (model->busy[region])
        return false;
    uint32_t pages = REGION_BYTES / 4096;
    uint32_t first = next_random(&model->random) % pages;
    uint32_t count = 1 + next_random(&model->random) % (pages - first);
    uint64_t offset = region * (uint64_t)REGION_BYTES + first * 4096u;
    struct zinf_aio_request *request = &model->requests[region];
    *request = (struct zinf_aio_request){.op = next_random(&model->random) % 2 ? ZINF_AIO_OP_WRITE
                                                                               : ZINF_AIO_OP_READ,
                                         .file = file,
                                         .offset = offset,
                                         .bytes = count * 4096u,
                                         .memory = model->memory + offset,
                                         .priority = (int)(next_random(&model->random) % 5) - 2};
    if (request->op == ZINF_AIO_OP_WRITE) {
        fill(request->memory, request->bytes, model->random);
        memcpy(model->truth + offset, request->memory, request->bytes);
    } else {
        memset(request->memory, 0xA5, request->bytes);
    }
    model->busy[region] = zinf_aio_submit(queue, request) == 0;
    model->wrong += !model->busy[region];
    return true;
}

static void finish_random(struct model *model, const struct zinf_aio_request *request)
{
    model->busy[request->offset / REGION_BYTES] = false;
    model->wrong += request->result != (int64_t)request->bytes;
    model->wrong += request->end_ns < request->begin_ns;
    if (request->op == ZINF_AIO_OP_READ)
        model->wrong +=
            memcmp(request->memory, model->truth + request->offset, request->bytes) != 0;
}

static void run_random(enum zinf_aio_engine engine, bool registered, bool sqpoll)
{
    size_t bytes = (size_t)REGIONS * REGION_BYTES;
    struct model *model = calloc(1, sizeof *model);
    struct zinf_aio_file *file = scratch_file(bytes, 0);
    struct zinf_aio_queue *queue = NULL;
    struct zinf_aio_queue_options options = {.engine = engine,
                                             .block_bytes = 16384,
                                             .queue_depth = 24,
                                             .sqpoll = sqpoll,
                                             .single_submit = !registered};
    *model = (struct model){.truth = aligned(bytes), .memory = aligned(bytes), .random = 42};
    memset(model->truth, 0, bytes);
    CHECK(zinf_aio_queue_create(&queue, &options) == 0);
    /* Two pieces with a gap, whose ends lie within blocks: some transfers must do without. */
    if (registered) {
        CHECK(zinf_aio_queue_register(queue, model->memory + bytes / 2 + 8192, bytes / 4) == 0);
        CHECK(zinf_aio_queue_register(queue, model->memory, bytes / 4 + 4096) == 0);
    }
    for (int started = 0; started < OPERATIONS;) {
        started += start_random(model, queue, file);
        bool full = zinf_aio_in_flight(queue) > REGIONS / 2;
        struct zinf_aio_request *request = zinf_aio_reap(queue, full ? UINT64_MAX : 0);
        if (request)
            finish_random(model, request);
    }
    for (struct zinf_aio_request *request; (request = zinf_aio_reap(queue, UINT64_MAX));)
        finish_random(model, request);
    CHECKF(!model->wrong, "%s: %d wrong", zinf_aio_engine_name(engine), model->wrong);
    CHECK(zinf_aio_in_flight(queue) == 0);
    zinf_aio_queue_destroy(queue);
    zinf_aio_close(file);
    free(model->truth);
    free(model->memory);
    free(model);
}

static void test_random_requests(void)
{
    for (int e = 0; e < n_engines; e++)
        run_random(engines[e], false, false);
}

static void test_random_requests_registered(void)
{
    if (n_engines < 2)
        SKIP("io_uring is refused here");
    run_random(ZINF_AIO_ENGINE_URING, true, false);
}

static void test_random_requests_sqpoll(void)
{
    if (n_engines < 2)
        SKIP("io_uring is refused here");
    run_random(ZINF_AIO_ENGINE_URING, true, true);
}

/* ---- order and depth ---- */

static void run_priorities(enum zinf_aio_engine engine)
{
    enum { QUEUED = 12, BLOCK = 4096, BLOCKS = 4 };
    char *memory = aligned(BLOCK * BLOCKS * (QUEUED + 2));
    struct zinf_aio_request requests[QUEUED + 2];
    struct zinf_aio_file *file = scratch_file(1 << 20, 0);
    /* Every transfer takes 2 ms, so that nothing finishes before all are queued. */
    struct zinf_aio_faults slow = {.seed = 1, .delay_ppm = 1000000, .delay_us = 2000};
    struct zinf_aio_queue_options options = {
        .engine = engine, .block_bytes = BLOCK, .queue_depth = 1, .around = {AIO_FAULTS(&slow)}};
    struct zinf_aio_queue *queue = NULL;
    CHECK(zinf_aio_queue_create(&queue, &options) == 0);
    for (int i = 0; i < QUEUED + 2; i++) {
        /* Prefetches of equal priority, then a demand, then one that may wait. */
        int priority = i < QUEUED ? 0 : i == QUEUED ? 9 : -1;
        requests[i] = (struct zinf_aio_request){.op = ZINF_AIO_OP_READ,
                                                .file = file,
                                                .memory = memory + i * BLOCK * BLOCKS,
                                                .bytes = BLOCK * BLOCKS,
                                                .priority = priority};
        CHECK(zinf_aio_submit(queue, &requests[i]) == 0);
    }
    CHECK(zinf_aio_reap(queue, UINT64_MAX) == &requests[QUEUED]);
    for (int i = 0; i < QUEUED; i++)
        CHECK(zinf_aio_reap(queue, UINT64_MAX) == &requests[i]);
    CHECK(zinf_aio_reap(queue, UINT64_MAX) == &requests[QUEUED + 1]);
    zinf_aio_queue_destroy(queue);
    zinf_aio_close(file);
    free(memory);
}

static void test_priorities(void)
{
    for (int e = 0; e < n_engines; e++)
        run_priorities(engines[e]);
    run_priorities(ZINF_AIO_ENGINE_NULL);
}

/* Small requests on two files and a large one together keep every block busy. */
static void test_depth_is_full(void)
{
    enum { DEPTH = 16 };
    char *memory = aligned(1 << 20);
    struct zinf_aio_request requests[9];
    struct zinf_aio_file *files[2] = {scratch_file(1 << 20, 0), scratch_file(1 << 20, 0)};
    struct zinf_aio_faults slow = {.seed = 1, .delay_ppm = 1000000, .delay_us = 3000};
    struct zinf_aio_queue_options options = {
        .block_bytes = 4096, .queue_depth = DEPTH, .around = {AIO_FAULTS(&slow)}};
    struct zinf_aio_queue *queue = NULL;
    CHECK(zinf_aio_queue_create(&queue, &options) == 0);
    for (int i = 0; i < 9; i++) {
        requests[i] = (struct zinf_aio_request){.op = ZINF_AIO_OP_READ,
                                                .file = files[i % 2],
                                                .memory = memory + 4096 * i,
                                                .bytes = i < 8 ? 4096 : 40 * 4096};
        CHECK(zinf_aio_submit(queue, &requests[i]) == 0);
    }
    CHECKF(queue->blocks_in_flight == DEPTH, "%u in flight", queue->blocks_in_flight);
    for (int i = 0; i < 8; i++) {
        CHECK(zinf_aio_reap(queue, UINT64_MAX) != NULL);
        CHECKF(queue->blocks_in_flight == DEPTH, "%u in flight", queue->blocks_in_flight);
    }
    zinf_aio_queue_destroy(queue); /* waits for the large one */
    CHECK(requests[8].done_bytes == 40 * 4096);
    zinf_aio_close(files[0]);
    zinf_aio_close(files[1]);
    free(memory);
}

static void test_request_limit(void)
{
    char *memory = aligned(4096);
    struct zinf_aio_request requests[5];
    struct zinf_aio_file *file = scratch_file(1 << 20, 0);
    struct zinf_aio_queue_options options = {.max_requests = 4};
    struct zinf_aio_queue *queue = NULL;
    CHECK(zinf_aio_queue_create(&queue, &options) == 0);
    for (int i = 0; i < 5; i++) {
        requests[i] = (struct zinf_aio_request){
            .op = ZINF_AIO_OP_READ, .file = file, .memory = memory, .bytes = 4096};
        CHECK(zinf_aio_submit(queue, &requests[i]) == (i < 4 ? 0 : -EAGAIN));
    }
    CHECK(zinf_aio_in_flight(queue) == 4);
    CHECK(zinf_aio_reap(queue, UINT64_MAX) != NULL);
    CHECK(zinf_aio_submit(queue, &requests[4]) == 0);
    zinf_aio_queue_destroy(queue);
    zinf_aio_close(file);
    free(memory);
}

/* ---- waiting ---- */

static void test_reap_timeout(void)
{
    char *memory = aligned(4096);
    struct zinf_aio_file *file = scratch_file(4096, 0);
    for (int e = 0; e < n_engines; e++) {
        struct zinf_aio_faults slow = {.seed = 1, .delay_ppm = 1000000, .delay_us = 60000};
        struct zinf_aio_queue_options options = {.engine = engines[e],
                                                 .around = {AIO_FAULTS(&slow)}};
        struct zinf_aio_queue *queue = NULL;
        struct zinf_aio_request request = {
            .op = ZINF_AIO_OP_READ, .file = file, .memory = memory, .bytes = 4096};
        CHECK(zinf_aio_queue_create(&queue, &options) == 0);
        uint64_t begin = zinf_now_ns();
        CHECK(zinf_aio_reap(queue, UINT64_MAX) == NULL); /* nothing is in flight */
        CHECK(zinf_aio_submit(queue, &request) == 0);
        struct zinf_aio_request *got = zinf_aio_reap(queue, 0);
        CHECK(got == NULL || zinf_now_ns() - begin >= 60000000); /* this thread was held up */
        if (!got) {
            got = zinf_aio_reap(queue, 5000000);
            CHECK(zinf_now_ns() - begin >= (got ? 60000000U : 5000000U));
        }
        if (!got)
            got = zinf_aio_reap(queue, UINT64_MAX);
        CHECK(got == &request && request.result == 4096);
        CHECK(zinf_now_ns() - begin >= 60000000);
        zinf_aio_queue_destroy(queue);
    }
    zinf_aio_close(file);
    free(memory);
}

/* A thread that only looks, without ever waiting, gets its data too. */
static void test_looking_makes_progress(void)
{
    char *memory = aligned(64 * 4096);
    struct zinf_aio_file *file = scratch_file(64 * 4096, 0);
    for (int e = 0; e < n_engines; e++) {
        struct zinf_aio_queue *queue = queue_of(engines[e], 4096, 4);
        struct zinf_aio_request request = {
            .op = ZINF_AIO_OP_READ, .file = file, .memory = memory, .bytes = 64 * 4096};
        struct zinf_aio_request *back = NULL;
        /* A hole would be read without a drive. */
        fill(memory, 64 * 4096, 1);
        CHECK(move_now(queue, ZINF_AIO_OP_WRITE, file, 0, memory, 64 * 4096) == 64 * 4096);
        uint64_t begin = zinf_now_ns();
        CHECK(zinf_aio_submit(queue, &request) == 0);
        while (!back && zinf_now_ns() - begin < 10000000000u)
            back = zinf_aio_reap(queue, 0);
        CHECKF(back == &request && request.result == 64 * 4096, "%s does not come to an end",
               zinf_aio_engine_name(engines[e]));
        zinf_aio_queue_destroy(queue);
    }
    zinf_aio_close(file);
    free(memory);
}

/* A read of an empty pipe stays in the kernel until someone writes: the real wait of a ring. */
static void test_uring_waits_in_kernel(void)
{
    if (n_engines < 2)
        SKIP("io_uring is refused here");
    char *memory = aligned(4096), path[600];
    struct zinf_aio_file *file = NULL;
    snprintf(path, sizeof path, "%s", in_folder("pipe"));
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(zinf_aio_open(&file, path, ZINF_AIO_READ | ZINF_AIO_WRITE | ZINF_AIO_BUFFERED) == 0);
    int writer = open(path, O_WRONLY | O_CLOEXEC);
    struct zinf_aio_queue *queue = queue_of(ZINF_AIO_ENGINE_URING, 0, 0);
    struct zinf_aio_request request = {
        .op = ZINF_AIO_OP_READ, .file = file, .memory = memory, .bytes = 4096};
    CHECK(zinf_aio_submit(queue, &request) == 0);
    uint64_t begin = zinf_now_ns();
    CHECK(zinf_aio_reap(queue, 0) == NULL);
    CHECK(zinf_aio_reap(queue, 10000000) == NULL);
    uint64_t waited = zinf_now_ns() - begin;
    CHECKF(waited >= 10000000 && waited < 9000000000u, "waited %zu ns", (size_t)waited);
    memset(memory, 0, 4096);
    char out[4096];
    memset(out, 7, sizeof out);
    CHECK(write(writer, out, sizeof out) == 4096);
    CHECK(zinf_aio_reap(queue, UINT64_MAX) == &request && request.result == 4096);
    CHECK(memory[4095] == 7);
    zinf_aio_queue_destroy(queue);
    close(writer);
    zinf_aio_close(file);
    unlink(path);
    free(memory);
}

static void test_null_moves_nothing(void)
{
    struct zinf_aio_file *file = scratch_file(0, 0);
    struct zinf_aio_queue *queue = queue_of(ZINF_AIO_ENGINE_NULL, 0, 0);
    /* No memory stands behind this address. */
    void *nowhere = (void *)(uintptr_t)ZINF_AIO_ALIGN;
    int64_t bytes = 9ll << 30;
    CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, nowhere, (uint64_t)bytes) == bytes);
    CHECK(move_now(queue, ZINF_AIO_OP_WRITE, file, 0, nowhere, (uint64_t)bytes) == bytes);
    CHECK(zinf_aio_file_bytes(file) == 0);
    zinf_aio_queue_destroy(queue);
    zinf_aio_close(file);
}

static void test_describe(void)
{
    char text[1024], little[20];
    CHECK(zinf_aio_describe_path(folder, text, sizeof text) == 0);
    CHECK(strstr(text, "file system") && strstr(text, "direct I/O"));
    printf("# %s\n", text);
    CHECK(zinf_aio_describe_path(folder, little, sizeof little) == 0);
    CHECK(strlen(little) == sizeof little - 1);
    CHECK(zinf_aio_describe_path("/nonexistent", text, sizeof text) == -ENOENT);
}

int main(void)
{
    if (fixture_begin("aio_test"))
        return 99;
    n_engines = moving_engines(engines);
    TAP_RUN(test_sizes);
    TAP_RUN(test_refused_requests);
    TAP_RUN(test_open);
    TAP_RUN(test_end_of_file);
    TAP_RUN(test_offsets_beyond_4gib);
    TAP_RUN(test_request_over_4gib);
    TAP_RUN(test_random_requests);
    TAP_RUN(test_random_requests_registered);
    TAP_RUN(test_random_requests_sqpoll);
    TAP_RUN(test_priorities);
    TAP_RUN(test_depth_is_full);
    TAP_RUN(test_request_limit);
    TAP_RUN(test_reap_timeout);
    TAP_RUN(test_looking_makes_progress);
    TAP_RUN(test_uring_waits_in_kernel);
    TAP_RUN(test_null_moves_nothing);
    TAP_RUN(test_describe);
    fixture_end();
    return tap_done();
}
