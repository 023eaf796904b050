/* config: complete configurations as people have them must load, and what zinf_config_write makes
 * of them must load again to the same struct, bit for bit. */
#include "config/config_private.h"
#include "config_support.h"

#include <unistd.h>

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static void check_same_offload(const struct zinf_config_offload *a,
                               const struct zinf_config_offload *b)
{
    CHECK(a->device == b->device && a->n_nvme_paths == b->n_nvme_paths);
    for (int i = 0; i < a->n_nvme_paths && i < b->n_nvme_paths; i++)
        CHECK(same_text(a->nvme_path[i], b->nvme_path[i]));
    CHECK(a->pin_memory == b->pin_memory && a->buffer_count == b->buffer_count);
    CHECK(a->buffer_size == b->buffer_size && a->max_in_cpu == b->max_in_cpu);
    CHECK(a->pipeline_read == b->pipeline_read && a->pipeline_write == b->pipeline_write);
    CHECK(a->ratio == b->ratio);
}

static void check_same(const struct zinf_config *a, const struct zinf_config *b)
{
    CHECK(a->train_batch_size == b->train_batch_size && a->micro_batch == b->micro_batch);
    CHECK(a->accumulation == b->accumulation && a->world_size == b->world_size);
    CHECK(!memcmp(&a->optimizer, &b->optimizer, sizeof a->optimizer));
    CHECK(!memcmp(&a->scheduler, &b->scheduler, sizeof a->scheduler));
    CHECK(!memcmp(&a->fp16, &b->fp16, sizeof a->fp16) && a->bf16 == b->bf16);
    CHECK(a->gradient_clipping == b->gradient_clipping && a->dtype == b->dtype);
    CHECK(a->bf16_check_overflow == b->bf16_check_overflow && a->zero_stage == b->zero_stage);
    CHECK(a->sub_group_size == b->sub_group_size);
    CHECK(a->prefetch_bucket_size == b->prefetch_bucket_size);
    CHECK(a->param_persistence_threshold == b->param_persistence_threshold);
    check_same_offload(&a->offload_param, &b->offload_param);
    check_same_offload(&a->offload_optimizer, &b->offload_optimizer);
    CHECK(!memcmp(&a->aio, &b->aio, sizeof a->aio));
    CHECK(a->cpu_checkpointing == b->cpu_checkpointing);
    CHECK(a->steps_per_print == b->steps_per_print);
    CHECK(a->wall_clock_breakdown == b->wall_clock_breakdown);
    CHECK(a->csv_enabled == b->csv_enabled && same_text(a->csv_job_name, b->csv_job_name));
    CHECK(same_text(a->csv_output_path, b->csv_output_path) && same_text(a->trace, b->trace));
    CHECK(a->device_memory == b->device_memory && a->host_memory == b->host_memory);
    CHECK(a->look_ahead == b->look_ahead && a->threads == b->threads);
    CHECK(a->sequence_chunk == b->sequence_chunk);
    CHECK(same_text(a->io_engine, b->io_engine) && a->checksums == b->checksums);
    CHECK(a->grad_device == b->grad_device && a->dropout == b->dropout);
    CHECK(same_text(a->activation_checkpointing, b->activation_checkpointing));
}

static void check_round_trip(const struct zinf_config *config)
{
    char path[] = "/tmp/zinf_config_XXXXXX", *text = NULL;
    struct zinf_config *again = NULL;
    size_t bytes;
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    CHECKF(zinf_config_write(config, path) == 0, "%s", zinf_error());
    CHECK(zinf_file_read(path, 1 << 20, &text, &bytes) == 0);
    CHECK(text && strstr(text, "\"_sources\""));
    free(text);
    logged[0] = 0;
    int code = zinf_config_load(&again, path, CONTEXT(NOTHING, .world_size = config->world_size));
    CHECKF(code == 0, "%s", zinf_error());
    CHECKF(!logged[0], "reading it back is silent: %s", logged);
    if (!code)
        check_same(config, again);
    zinf_config_destroy(again);
    unlink(path);
}

static void test_complete_configurations(void)
{
    static const char *const names[] = {
        "hf_zero3_nvme_auto", "hf_zero3_cpu_auto", "zero2_cpu_offload_old_names",
        "zero_true",          "minimal_fp32",      "zero3_stage3_short_names",
        "tuned_aio_strings",  "monitors",          "pretrain_megatron_style",
        "lr_range_test_sgd",  "one_cycle_lion",    "adagrad_defaults",
        "accelerate_style",   "zinf_section",      "hostile_nulls",
    };
    const char *source = getenv("SRCDIR");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct zinf_config *config;
        char path[512];
        snprintf(path, sizeof path, "%s/tests/fixtures/config/%s.json", source ? source : ".",
                 names[i]);
        bool automatic = strstr(names[i], "_auto") || strstr(names[i], "accelerate");
        int code = zinf_config_load(
            &config, path,
            CONTEXT(NOTHING, .world_size = 1, .hidden_size = 768, .steps = 100, .dtype = "F16",
                    SETTINGS(automatic ? 2 : 0,
                             {"train_micro_batch_size_per_gpu", NULL, 4, "--micro-batch"},
                             {"optimizer.params.lr", NULL, 1.0 / 3, "--lr"})));
        CHECKF(code == 0, "%s: %s", names[i], zinf_error());
        if (code)
            continue;
        check_round_trip(config);
        zinf_config_destroy(config);
    }
}

/* What the length of a sequence decides is "auto" wherever it is written. */
static void test_a_chunk_that_is_left_open(void)
{
    static const char text[] = "{\"train_micro_batch_size_per_gpu\": 1,\n"
                               " \"zinf\": {\"sequence_chunk\": %s}}";
    static const char *const values[] = {"\"auto\"", "16"};
    for (size_t i = 0; i < 2; i++) {
        char file[128];
        struct zinf_config *config;
        snprintf(file, sizeof file, text, values[i]);
        logged[0] = 0;
        int code = zinf_config_parse(
            &config, file, strlen(file), "x.json",
            CONTEXT(NOTHING, .world_size = 1,
                    SETTINGS(i, {"zinf.sequence_chunk", "auto", 0, "--sequence-chunk"})));
        CHECKF(code == 0, "%s", zinf_error());
        if (code)
            continue;
        CHECK(config->sequence_chunk < 0);
        CHECKF(!i ||
                   strstr(logged, "x.json:2: zinf.sequence_chunk is 16, but --sequence-chunk says "
                                  "auto: auto is used"),
               "%s", logged);
        check_round_trip(config);
        zinf_config_destroy(config);
    }
}

static void test_what_the_fixtures_mean(void)
{
    struct zinf_config *config;
    char path[512];
    const char *source = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/tests/fixtures/config/zinf_section.json",
             source ? source : ".");
    int code = zinf_config_load(&config, path, NULL);
    CHECKF(code == 0, "%s", zinf_error());
    if (code)
        return;
    CHECK(config->offload_param.n_nvme_paths == 2);
    CHECK(!strcmp(config->offload_param.nvme_path[1], "/mnt/b"));
    CHECK(config->device_memory == 20ull << 30 && config->host_memory == 16ull << 30);
    CHECK(config->look_ahead == 3 && config->threads == 12 && !config->checksums);
    CHECK(!strcmp(config->io_engine, "uring") && config->grad_device == ZINF_PLACE_CPU);
    CHECK(config->dropout == 0 && !strcmp(config->trace, "run.json"));
    CHECK(!strcmp(config->activation_checkpointing, "always"));
    zinf_config_destroy(config);
}

static void test_round_trip_keeps_every_bit(void)
{
    struct zinf_config *config;
    CHECK(parse(&config,
                "{\"gradient_accumulation_steps\": 4194304, "
                "\"train_micro_batch_size_per_gpu\": 2147483647,"
                "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": "
                "0.30000000000000004, \"betas\": [0.1, 0.99999999999999989], "
                "\"eps\": 5e-324, \"adam_w_mode\": false}},"
                "\"zinf\": {\"trace\": \"a\\n\\\"\\u00e9.json\", "
                "\"adapter\": {\"r\": 4, \"alpha_pattern\": {\"a\\\"b\": 0.30000000000000004}}}}",
                NULL) == 0);
    CHECK(config->train_batch_size == 2147483647ll * 4194304);
    check_round_trip(config);
    zinf_config_destroy(config);
}

/* ---- the man page ---- */

static char *read_man_page(void)
{
    char path[512], *text = NULL;
    const char *source = getenv("SRCDIR");
    size_t bytes;
    snprintf(path, sizeof path, "%s/man/zinf-config.5", source ? source : ".");
    CHECKF(zinf_file_read(path, 1 << 20, &text, &bytes) == 0, "%s", zinf_error());
    return text;
}

/* The name that the page must have for a path: its last part, or the section where the page names
 * sections without what is in them. */
static const char *name_on_page(const char *path, char *name, size_t name_bytes)
{
    static const char *const whole[] = {"tensorboard.",    "wandb.",        "timers.",
                                        "flops_profiler.", "comms_logger.", "bfloat16."};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (!strncmp(path, whole[i], strlen(whole[i]))) {
            snprintf(name, name_bytes, "%.*s", (int)strlen(whole[i]) - 1, path);
            return name;
        }
    if (!dot)
        return path;
    if (strcmp(dot, ".*"))
        return dot + 1;
    snprintf(name, name_bytes, "%.*s", (int)(dot - path), path);
    dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Where a key's paragraph ends: at the next one that does not stand within it. */
static const char *paragraph_end(const char *begin)
{
    const char *at = strstr(begin, "\n.TP"), *inner = strstr(begin, "\n.RS");
    while (at && inner && inner < at) {
        const char *out = strstr(inner, "\n.RE");
        at = out ? strstr(out, "\n.TP") : NULL;
        inner = out ? strstr(out, "\n.RS") : NULL;
    }
    return at;
}

/* The words of a key are in its paragraph, where it has one of its own. */
static void check_words(const char *page, const struct zinf_config_key *key)
{
    char head[160], paragraph[8192] = "";
    snprintf(head, sizeof head, "\n.BR %s ", key->path);
    const char *begin = strstr(page, head), *end = begin ? paragraph_end(begin) : NULL;
    if (end)
        snprintf(paragraph, sizeof paragraph, "%.*s", (int)(end - begin), begin);
    for (int i = 0; key->use == KEY_USED && key->choices && key->choices[i]; i++)
        CHECKF(strstr(end ? paragraph : page, key->choices[i]), "%s: the page lacks \"%s\"",
               key->path, key->choices[i]);
}

/* The page writes a minus as \\- and a blank as \\~. */
static void strip(char *page)
{
    char *to = page;
    for (const char *at = page; *at; at++)
        if (at[0] == '\\' && at[1] == '~')
            *to++ = ' ', at++;
        else if (at[0] != '\\' || at[1] != '-')
            *to++ = *at;
    *to = 0;
}

static void test_man_page_names_every_key(void)
{
    char *page = read_man_page(), name[128];
    if (page)
        strip(page);
    for (size_t i = 0; page && i < zinf_config_n_keys; i++) {
        const char *path = zinf_config_keys[i].path;
        CHECKF(strstr(page, name_on_page(path, name, sizeof name)), "%s is not there", path);
        check_words(page, &zinf_config_keys[i]);
    }
    for (size_t i = 0; page && i < zinf_config_n_aliases; i++) {
        const char *path = zinf_config_aliases[i].path;
        CHECKF(strstr(page, name_on_page(path, name, sizeof name)), "%s is not there", path);
    }
    free(page);
}

static void test_man_page_example_loads(void)
{
    char *page = read_man_page();
    char *examples = page ? strstr(page, "\n.SH EXAMPLE\n") : NULL;
    char *begin = examples ? strstr(examples, "\n.EX\n") : NULL,
         *end = begin ? strstr(begin, "\n.EE") : NULL;
    struct zinf_config *config;
    size_t bytes = 0;
    CHECK(begin && end);
    for (char *at = end ? begin + 5 : NULL; at && at < end; at++)
        if (*at != '\\') /* the page writes a minus as \- */
            begin[bytes++] = *at;
    int code =
        end ? zinf_config_parse(&config, begin, bytes, "example", CONTEXT(NOTHING, .steps = 1000))
            : -ENOENT;
    CHECKF(code == 0, "%s", zinf_error());
    if (!code) {
        CHECK(config->offload_param.n_nvme_paths == 2 && config->accumulation == 8);
        check_round_trip(config);
        zinf_config_destroy(config);
    }
    free(page);
}

int main(void)
{
    zinf_log_set_sink(catch_log, NULL);
    zinf_log_set_level(ZINF_LOG_INFO);
    TAP_RUN(test_complete_configurations);
    TAP_RUN(test_a_chunk_that_is_left_open);
    TAP_RUN(test_what_the_fixtures_mean);
    TAP_RUN(test_round_trip_keeps_every_bit);
    TAP_RUN(test_man_page_names_every_key);
    TAP_RUN(test_man_page_example_loads);
    return tap_done();
}
