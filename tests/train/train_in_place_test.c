/*
 * A frozen model on the drive is read from its own folder: the same bits as from anywhere, in every
 * family's order of rows; not a byte of it is written or copied; a file that is changed under the
 * run is named; and where the folder has other numbers, or nobody wants it, it is copied.
 */
#include "saved.h"

#include <fcntl.h>
#include <xxhash.h>

#define ADAPTER ", \"adapter\": {\"r\": 3, \"lora_alpha\": 7}"

static bool reads_in_place(const struct zinf_trainer *t)
{
    uint32_t n = 0, frozen_units = 0;
    for (uint32_t u = 0; u < t->setup.n_units; u++) {
        bool is_frozen = !trains(&t->setup) || !unit_trains(&t->setup, u);
        n += t->plan.homes[u].in_files;
        frozen_units += is_frozen;
        CHECK(!t->plan.homes[u].in_files || is_frozen);
    }
    CHECK(n == 0 || n == frozen_units);
    return n;
}

static bool opens_in_place(const struct setting *s)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = open_trainer(s, config, model);
    bool in_place = t && reads_in_place(t);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return in_place;
}

/* ---- the same bits ---- */

static void test_same_bits_as_from_memory(void)
{
    static const char *const families[] = {"gpt2_a",     "llama_b", "bloom_a",
                                           "gpt_neox_a", "phi3_a",  "mixtral_a"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct setting s = setting_with(NULL, ADAPTER);
        struct outcome reference, other;
        take_fixture(families[i]);
        run(&s, "reference", &reference);
        s.param = "nvme";
        CHECKF(opens_in_place(&s), "%s", families[i]);
        for (int copies = 0; copies < 2; copies++) {
            s.copies = copies;
            s.look_ahead = copies ? "0" : NULL;
            run(&s, "other", &other);
            check_same(&reference, &other, families[i]);
        }
    }
}

static void test_schedules_and_orders(void)
{
    take_fixture("llama_b");
    check_all_schedules(setting_with(NULL, ADAPTER));
}

/* ---- not a byte ---- */

static uint64_t sum_of_file(const char *folder)
{
    char path[700], *data = NULL;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK(!zinf_file_read(path, 1 << 26, &data, &n));
    uint64_t sum = XXH3_64bits(data, n);
    free(data);
    return sum;
}

static void test_nothing_is_written(void)
{
    struct setting s = setting_with(NULL, ADAPTER);
    struct zinf_step_result r = {0};
    uint64_t adapters = 0, before;
    take_fixture("llama_b");
    s.param = "nvme";
    before = sum_of_file(model);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    for (uint32_t u = 0; t && u < t->setup.n_units; u++)
        if (unit_trains(&t->setup, u))
            adapters += zinf_layout_unit_bytes(&t->setup.layout, u, t->setup.dtype) *
                        t->plan.homes[u].generations;
    CHECK(t && zinf_store_planned_bytes(t->setup.store) == adapters);
    for (uint64_t step = 0; t && step < 3; step++) {
        CHECKF(!next_step(t, &s, step, &r), "%s", zinf_error());
        CHECKF(r.lane_bytes[ZINF_LANE_WRITE] <= adapters, "%llu bytes written, adapters have %llu",
               (unsigned long long)r.lane_bytes[ZINF_LANE_WRITE], (unsigned long long)adapters);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    CHECK(sum_of_file(model) == before);
}

/* Without training nothing is on a drive but the model itself. */
static void test_evaluation_takes_no_room(void)
{
    struct setting s = setting_with(NULL, NULL);
    int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    double sums[2];
    uint64_t count;
    take_fixture("llama_b");
    draw_tokens(&s, 1, ids, targets);
    for (int i = 0; i < 2; i++) {
        s.param = i ? "nvme" : "cpu";
        struct zinf_config *config = configure(&s);
        struct zinf_trainer_options options = trainer_options(&s, config);
        struct zinf_trainer *t = NULL;
        options.mode = ZINF_TRAINER_FORWARD;
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
        CHECK(t && (!i || (reads_in_place(t) && !zinf_store_planned_bytes(t->setup.store))));
        CHECKF(t && !zinf_trainer_loss(t, TOKENS(ids, targets), trainings.batch, &sums[i], &count),
               "%s", zinf_error());
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
    CHECKF(sums[0] == sums[1], "losses %.17g, %.17g", sums[0], sums[1]);
}

/* ---- a file that changes ---- */

static void test_changed_file_is_named(void)
{
    struct setting s = setting_with(NULL, ADAPTER);
    struct zinf_step_result r = {0};
    char command[1400], copy[600], path[700];
    take_fixture("llama_b");
    snprintf(command, sizeof command, "cp -r '%s' '%s'", model, in_work(copy, "changing"));
    CHECK(!system(command));
    snprintf(path, sizeof path, "%s/model.safetensors", copy);
    CHECK(!chmod(path, 0600));
    s.param = "nvme";
    s.device_memory = 440 << 10; /* no room for units to stay */
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, copy);
    CHECKF(t && reads_in_place(t), "%s", zinf_error());
    CHECKF(t && !next_step(t, &s, 0, &r), "%s", zinf_error());
    int fd = open(path, O_WRONLY);
    char byte = 0x5a;
    CHECK(fd >= 0 && pwrite(fd, &byte, 1, 9001) == 1 && !fsync(fd) && !close(fd));
    int code = t ? next_step(t, &s, 1, &r) : 0;
    CHECKF(code == -ESTALE, "%d: %s", code, zinf_error());
    CHECKF(strstr(zinf_error(), "model.safetensors") && strstr(zinf_error(), "reads otherwise"),
           "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- where it is copied ---- */

static void test_copied_where_it_must_be(void)
{
    struct setting s = setting_with(NULL, ADAPTER);
    take_fixture("llama_b");
    s.param = "nvme";
    CHECK(opens_in_place(&s));
    s.precision = bf16; /* the folder has fp32 */
    CHECK(!opens_in_place(&s));
    s.precision = NULL;
    s.extra = ADAPTER ", \"weights_in_place\": false";
    CHECK(!opens_in_place(&s));
    s.extra = ADAPTER ", \"quantize\": \"nf4\"";
    CHECK(!opens_in_place(&s));
    s.extra = NULL; /* all of it is trained */
    CHECK(!opens_in_place(&s));
    s.extra = ADAPTER;
    s.param = "cpu";
    CHECK(!opens_in_place(&s));
}

int main(void)
{
    begin_fixtures("in-place");
    TAP_RUN(test_same_bits_as_from_memory);
    TAP_RUN(test_schedules_and_orders);
    TAP_RUN(test_nothing_is_written);
    TAP_RUN(test_evaluation_takes_no_room);
    TAP_RUN(test_changed_file_is_named);
    TAP_RUN(test_copied_where_it_must_be);
    remove_work();
    return tap_done();
}
