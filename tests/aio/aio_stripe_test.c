/* Stores over several paths: equal and unequal shares, where every byte comes back from, and random
 * requests against a model in memory. */
#include "build-config.h"

#include "aio/aio_store.h"
#include "aio_fixture.h"
#include "tap.h"

/* How often each path occurs, and that ranks count up within a path. */
static void check_shares(const double *rates, const char *wanted)
{
    static const char *const paths[] = {folder, folder, folder};
    struct zinf_store_options options = {
        .paths = paths, .n_paths = 3, .label = "test", .path_rates = rates};
    struct zinf_store *store = NULL;
    char text[64];
    zinf_extent extent;
    CHECKF(!zinf_store_create(&store, &options), "%s", zinf_error());
    CHECK(!zinf_store_add_extent(store, 4096, &extent));
    zinf_store_map_init(store);
    snprintf(text, sizeof text, "%u:%u:%u", store->per_path[0], store->per_path[1],
             store->per_path[2]);
    CHECKF(!strcmp(text, wanted), "%s, wanted %s", text, wanted);
    uint16_t ranks[3] = {0};
    for (uint32_t i = 0; i < store->pattern_length; i++)
        CHECK(store->rank[i] == ranks[store->pattern[i]]++);
    zinf_store_destroy(store);
}

static void test_shares_follow_bandwidth(void)
{
    check_shares(NULL, "1:1:1");
    check_shares((double[]){7e9, 7e9, 7e9}, "1:1:1");
    check_shares((double[]){1.02, 0.99, 1}, "1:1:1");
    check_shares((double[]){2, 1, 1}, "2:1:1");
    check_shares((double[]){14, 7, 3.5}, "4:2:1");
    check_shares((double[]){3, 2, 2}, "3:2:2");
    check_shares((double[]){100, 100, 0.001}, "1:1:0");
    const char *paths[] = {folder};
    struct zinf_store *store = NULL;
    struct zinf_store_options options = {
        .paths = paths, .n_paths = 1, .label = "test", .path_rates = (double[]){0}};
    CHECK(zinf_store_create(&store, &options) == -EINVAL && strstr(zinf_error(), folder));
}

/* Two folders stand for two drives; every byte must come back, and from both. */
static void stripe_over(const double *rates)
{
    static const uint64_t wanted[] = {22, 11, 3}; /* of 39 stripes */
    char one[600], two[600], three[600];
    snprintf(one, sizeof one, "%s", in_folder("one"));
    snprintf(two, sizeof two, "%s", in_folder("two"));
    snprintf(three, sizeof three, "%s", in_folder("three"));
    CHECK(!mkdir(one, 0777) && !mkdir(two, 0777) && !mkdir(three, 0777));
    const char *paths[] = {one, two, three};
    static const uint64_t sizes[] = {4096, 65536, 65536 * 7 + 4096, 12288, 65536 * 30};
    char *out[5], *back = aligned(65536 * 30);
    struct zinf_store *store = NULL;
    struct zinf_store_options options = {
        .paths = paths, .n_paths = 3, .label = "test", .stripe_bytes = 65536, .path_rates = rates};
    CHECK(!zinf_store_create(&store, &options));
    zinf_extent extent;
    for (int i = 0; i < 5; i++) {
        out[i] = aligned(sizes[i]);
        fill(out[i], sizes[i], (uint64_t)i + 1);
        CHECK(zinf_store_add_extent(store, sizes[i], &extent) == 0);
    }
    CHECK(zinf_store_allocate(store) == 0);
    uint64_t total = 0;
    for (int i = 0; i < 3; i++) {
        CHECK(store->paths[i].bytes == zinf_aio_file_bytes(store->paths[i].file));
        CHECK(store->paths[i].bytes / 65536 >= (rates ? wanted[i] : 12));
        total += store->paths[i].bytes;
    }
    CHECK(total == zinf_store_planned_bytes(store));
    for (uint32_t i = 0; i < 5; i++)
        CHECK(zinf_store_write(store, i, 0, out[i], sizes[i]) == 0);
    for (uint32_t i = 0; i < 5; i++) {
        CHECK(zinf_store_read(store, i, 0, back, sizes[i]) == 0);
        CHECKF(!memcmp(out[i], back, sizes[i]), "extent %u", i);
        CHECK(zinf_store_read(store, i, sizes[i] - 4096, back, 4096) == 0);
        CHECK(!memcmp(out[i] + sizes[i] - 4096, back, 4096));
        free(out[i]);
    }
    zinf_store_destroy(store);
    CHECK(!rmdir(one) && !rmdir(two) && !rmdir(three));
    free(back);
}

static void test_striping(void)
{
    stripe_over(NULL);
    stripe_over((double[]){6, 3, 1});
}

/* ---- random requests on unequal paths, two generations, against a model in memory ---- */

#define PIECE 16384u
#define PIECES 128u /* of each generation */

struct model {
    char *truth, *memory; /* [2][PIECES][PIECE] */
    struct zinf_aio_request requests[2 * PIECES];
    bool busy[2 * PIECES];
    uint64_t random;
    int wrong;
};

static void start_random(struct model *model, struct zinf_aio_queue *queue,
                         struct zinf_store *store)
{
    uint32_t slot = next_random(&model->random) % (2 * PIECES);
    struct zinf_aio_request *request = &model->requests[slot];
    if (model->busy[slot])
        return;
    *request = (struct zinf_aio_request){
        .op = next_random(&model->random) % 2 ? ZINF_AIO_OP_WRITE : ZINF_AIO_OP_READ,
        .store = store,
        .generation = (uint8_t)(slot / PIECES),
        .offset = slot % PIECES * PIECE,
        .bytes = PIECE,
        .memory = model->memory + (size_t)slot * PIECE,
    };
    if (request->op == ZINF_AIO_OP_WRITE) {
        fill(request->memory, PIECE, model->random);
        memcpy(model->truth + (size_t)slot * PIECE, request->memory, PIECE);
    } else {
        memset(request->memory, 0xA5, PIECE);
    }
    model->busy[slot] = !zinf_aio_submit(queue, request);
    model->wrong += !model->busy[slot];
}

static void finish_random(struct model *model, const struct zinf_aio_request *request)
{
    size_t slot = (size_t)(request - model->requests);
    model->busy[slot] = false;
    model->wrong += request->result != PIECE;
    if (request->op == ZINF_AIO_OP_READ)
        model->wrong += memcmp(request->memory, model->truth + slot * PIECE, PIECE) != 0;
}

static void run_random(enum zinf_aio_engine engine, struct zinf_store *store)
{
    struct zinf_aio_queue *queue = NULL;
    struct zinf_aio_queue_options options = {.engine = engine, .queue_depth = 24};
    struct model *model = calloc(1, sizeof *model);
    const size_t bytes = (size_t)2 * PIECES * PIECE;
    *model = (struct model){.truth = aligned(bytes), .memory = aligned(bytes), .random = 7};
    for (uint8_t generation = 0; generation < 2; generation++)
        CHECK(!zinf_store_read_generation(store, 0, generation, 0,
                                          model->truth + generation * bytes / 2, bytes / 2));
    CHECK(!zinf_aio_queue_create(&queue, &options));
    for (int i = 0; i < 10000; i++) {
        start_random(model, queue, store);
        bool full = zinf_aio_in_flight(queue) > PIECES;
        struct zinf_aio_request *request = zinf_aio_reap(queue, full ? UINT64_MAX : 0);
        if (request)
            finish_random(model, request);
    }
    for (struct zinf_aio_request *request; (request = zinf_aio_reap(queue, UINT64_MAX));)
        finish_random(model, request);
    CHECKF(!model->wrong, "%s: %d wrong", zinf_aio_engine_name(engine), model->wrong);
    zinf_aio_queue_destroy(queue);
    free(model->truth);
    free(model->memory);
    free(model);
}

static void test_random_requests(void)
{
    static const char *const paths[] = {folder, folder, folder};
    enum zinf_aio_engine engines[2];
    struct zinf_store *store = NULL;
    struct zinf_store_options options = {.paths = paths,
                                         .n_paths = 3,
                                         .label = "test",
                                         .stripe_bytes = 12288, /* a piece lies on two stripes */
                                         .checksums = true,
                                         .path_rates = (double[]){5, 2, 1}};
    zinf_extent extent;
    CHECK(!zinf_store_create(&store, &options));
    CHECK(!zinf_store_add_extent_pair(store, PIECES * PIECE, &extent));
    CHECKF(!zinf_store_allocate(store), "%s", zinf_error());
    for (int e = 0, n = moving_engines(engines); e < n; e++)
        run_random(engines[e], store);
    zinf_store_destroy(store);
}

int main(void)
{
    if (fixture_begin("aio_stripe_test"))
        return 99;
    TAP_RUN(test_shares_follow_bandwidth);
    TAP_RUN(test_striping);
    TAP_RUN(test_random_requests);
    fixture_end();
    return tap_done();
}
