/* config: small configurations of our own, one for each way in which public ones of DeepSpeed's
 * users differ from its documentation. Each either loads to the value that DeepSpeed has, with a
 * note, or is refused with the remedy; and Hjson means what Python's hjson makes of it. */
#include "config/config_private.h"
#include "config_support.h"

struct row {
    const char *file;
    bool accepted;
    const char *says[3];     /* pieces of the error, or of what is logged */
    const char *key, *value; /* of an accepted one */
};

#define REFUSED(file_, ...)                                                                        \
    {                                                                                              \
        .file = file_, .says = { __VA_ARGS__ }                                                     \
    }
#define ACCEPTED(file_, ...)                                                                       \
    {                                                                                              \
        .file = file_, .accepted = true, .says = { __VA_ARGS__ }                                   \
    }
#define MEANS(file_, key_, value_, ...)                                                            \
    {                                                                                              \
        .file = file_, .accepted = true, .key = key_, .value = value_, .says = { __VA_ARGS__ }     \
    }
static const struct row rows[] = {
    REFUSED("lamb", "\"Lamb\" is not supported here; use AdamW"),
    REFUSED("onebit_adam", "\"OneBitAdam\" is not supported here"),
    REFUSED("template", "json:2: train_batch_size is \"GBSIZE,\"", "template not filled in?"),
    MEANS("sub_group_zero", "zero_optimization.sub_group_size", "1", ""),
    ACCEPTED("compression_off", "compression_training.weight_quantization"),
    REFUSED("compression_on",
            "compression_training.sparse_pruning.shared_parameters.enabled is true"),
    ACCEPTED("foreign_keys", "\"cuda_visible_devices\" is no key", "\"log\" is", "\"min_lr\" is"),
    ACCEPTED("foreign_keys", "\"logging\" is", "\"comms_config\" is", "\"monitor_config\" is"),
    ACCEPTED("foreign_keys", "json:9: \"dynamic_train\" is no key of DeepSpeed or zinf: ignored"),
    ACCEPTED("bf16_loss_scale", "bf16.loss_scale, ", "bf16.min_loss_scale: bf16 has no loss scale"),
    REFUSED("eight_ranks",
            "json: the file is for 8 ranks; with 1, --accumulate 8 keeps the batch of 32."),
    MEANS("min_loss_scale", "fp16.min_loss_scale", "1e-10", ""),
    MEANS("offload_param_stage2", "zero_optimization.offload_param.device", "\"none\"",
          "json:5: ", "is only read at zero_optimization.stage 3 (it is 2)"),
    MEANS("commented_key", "train_batch_size", "1",
          "is a comment: _train_batch_size, zero_optimization._offload_optimizer"),
    ACCEPTED("autotp_off", ""),
    REFUSED("autotp_on", "autotp_size is 2", "this run has 1 rank"),
    MEANS("missing_comma", "train_batch_size", "6", ""),
    MEANS("hjson", "train_batch_size", "6", ""),
    MEANS("hjson", "optimizer.params.betas", "[0.9, 0.95]", ""),
    MEANS("steps_per_print", "steps_per_print", "20000000000000000", ""),
    MEANS("aio_in_zero", "aio.queue_depth", "32", "old names and places",
          "zero_optimization.aio.queue_depth -> aio.queue_depth"),
    MEANS("aio_in_zero", "aio.block_size", "262144 (256.00 KiB)", ""),
    REFUSED("typo", "json:3: unknown key \"bp16\"", "\"bf16\"", "\"fp16\""),
    REFUSED("word_order", "did you mean \"zero_optimization.overlap_comm\"?", "--lenient"),
    REFUSED("misplaced_old", "\"cpu_offload\" belongs in \"zero_optimization\"", "remove it"),
    REFUSED("max_grad_norm", "max_grad_norm is 1", "gradient_clipping"),
    REFUSED("number_as_text", "is \"8\", but must be an integer"),
    REFUSED("other_feature", "elasticity.enabled is true"),
    ACCEPTED("wandb", "wandb.enabled is ignored", "tensorboard.enabled", "wandb sync"),
    MEANS("accelerate.yaml", "zero_optimization.offload_param.device", "\"cpu\"",
          "\"num_processes\" is not of the configuration"),
    MEANS("accelerate.yaml", "bf16.enabled", "true", ""),
    MEANS("zero3_trl.yaml", "zero_optimization.stage", "3", ""),
    REFUSED("accelerate_file.yaml", "--config zero3.json"),
    REFUSED("accelerate_fsdp.yaml", "distributed_type is \"FSDP\""),
    MEANS("stages.yaml", "zinf.mesh.data", "2", "\"n_epoches\"", "--epochs"),
    MEANS("stages.yaml", "zinf.pipeline_parts", "[34]", ""),
    MEANS("stages.yaml", "optimizer.params.lr", "2e-05", ""),
    MEANS("stages_z.yaml", "zinf.max_z_loss", "0.0002", ""),
    MEANS("stages.yaml", "zinf.mesh.pipe", "1", "\"use_grad_ckpt\" is not of",
          "attention is always"),
    MEANS("document", "train_batch_size", "4", ""),
    MEANS("plain.yaml", "zero_optimization.stage", "3", ""),
    REFUSED("section_case.yaml", "yaml:3: unknown key \"ZeRO_optimization\"",
            "did you mean \"zero_optimization\"?"),
    REFUSED("alias.yaml", "yaml:2: references to other places"),
    REFUSED("broken.yaml", "yaml:2: this is no YAML"),
    ACCEPTED("idle_keys", "json:2: \"memory_efficient_linear\" is no key", "(ignored)",
             "\"checkpoint.async_io\" is no key of DeepSpeed or zinf"),
    REFUSED("section_case", "json:2: unknown key \"ZeRO_optimization\"",
            "did you mean \"zero_optimization\"?"),
    MEANS("no_optimizer", "optimizer.params.lr", "5e-05", "leaves the optimizer to Trainer",
          "AdamW, lr 5e-05, linear decay to 0 over 200 steps"),
    MEANS("no_optimizer", "scheduler.type", "\"linear\"",
          "\"auto\": Trainer's default of 8 is taken (--micro-batch)"),
    MEANS("all_auto", "optimizer.params.lr", "5e-05", "leaves the learning rate to Trainer"),
    MEANS("all_auto", "scheduler.params.total_num_steps", "200", ""),
    MEANS("torch_adam", "optimizer.params.weight_decay", "0.01", ""),
    ACCEPTED("train_batch_alone", "one micro-batch of 512, as in DeepSpeed: --micro-batch 8 cuts"),
};

static void path_of(const char *file, char *path, size_t bytes)
{
    const char *source = getenv("SRCDIR");
    snprintf(path, bytes, "%s/tests/fixtures/config_corpus/%s%s", source ? source : ".", file,
             strchr(file, '.') ? "" : ".json");
}

static void test_rows(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_config *config = NULL;
        char path[512];
        path_of(rows[i].file, path, sizeof path);
        logged[0] = 0;
        int code = zinf_config_load(&config, path, CONTEXT(NOTHING, .steps = 200, .dtype = "BF16"));
        CHECKF(!code == rows[i].accepted, "%s: %s", rows[i].file, zinf_error());
        const char *said = code ? zinf_error() : logged;
        for (int j = 0; j < 3 && rows[i].says[j]; j++)
            CHECKF(strstr(said, rows[i].says[j]), "%s: no '%s' in: %s", rows[i].file,
                   rows[i].says[j], said);
        if (rows[i].key && !code) {
            char *line = printed(config, rows[i].key);
            const char *start = line ? line + strspn(line, " ") : "";
            CHECKF(!strncmp(start, rows[i].value, strlen(rows[i].value)), "%s: %s is %s",
                   rows[i].file, rows[i].key, start);
            free(line);
        }
        zinf_config_destroy(config);
    }
}

/* Shown, an "auto" that waits for an option is no error and no number. */
static void test_shown_autos_stay_open(void)
{
    static const char *const keys[][2] = {
        {"optimizer.params.lr", "--lr"},
        {"train_micro_batch_size_per_gpu", "--micro-batch"},
        {"train_batch_size", "--micro-batch"},
        {"scheduler.params.total_num_steps", "--steps"},
        {"scheduler.params.warmup_max_lr", "--lr"},
        {"bf16.enabled", "--model"},
    };
    struct zinf_config *config;
    char path[512], wanted[64];
    path_of("all_auto", path, sizeof path);
    logged[0] = 0;
    int code = zinf_config_load(&config, path, CONTEXT(NOTHING, .show = true));
    CHECKF(code == 0, "%s", zinf_error());
    CHECKF(!logged[0], "%s", logged);
    for (size_t i = 0; !code && i < sizeof keys / sizeof *keys; i++) {
        char *line = printed(config, keys[i][0]);
        snprintf(wanted, sizeof wanted, " auto (unresolved: %s) ", keys[i][1]);
        CHECKF(line && strstr(line, wanted), "%s: %s", keys[i][0], line ? line : "absent");
        free(line);
    }
    char *text = code ? NULL : zinf_config_text(config, false);
    CHECK(text && strstr(text, "\"lr\":\t\"auto\""));
    cJSON_free(text);
    if (!code)
        zinf_config_destroy(config);
}

/* ---- options of the command line ---- */

static void test_options_of_training(void)
{
    struct zinf_config *config;
    int code =
        parse(&config, "{\"train_batch_size\": 2}",
              CONTEXT(NOTHING, .steps = 100,
                      SETTINGS(5, {"scheduler.params.warmup_num_steps", NULL, 10, "--warmup-steps"},
                               {"optimizer.params.weight_decay", NULL, 0.1, "--weight-decay"},
                               {"optimizer.type", "Lion", 0, "--optimizer"},
                               {"scheduler.type", "cosine", 0, "--lr-scheduler"},
                               {"optimizer.params.lr", NULL, 1e-3, "--lr"})));
    CHECKF(code == 0, "%s", zinf_error());
    if (code)
        return;
    CHECK(!strcmp(config->optimizer.type, "Lion") && config->optimizer.weight_decay == 0.1);
    CHECK(config->scheduler.kind == ZINF_SCHEDULER_COSINE);
    CHECK(config->scheduler.warmup_num_steps == 10 && config->scheduler.total_num_steps == 100);
    zinf_config_destroy(config);
    /* A schedule of the file gives way with its parameters. */
    code = parse(&config,
                 "{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"OneCycle\", \"params\": "
                 "{\"cycle_min_lr\": 0, \"cycle_max_lr\": 1}}}",
                 CONTEXT(NOTHING, .steps = 9,
                         SETTINGS(1, {"scheduler.type", "constant", 0, "--lr-scheduler"})));
    CHECKF(code == 0 && config->scheduler.kind == ZINF_SCHEDULER_NONE, "%s", zinf_error());
    if (!code)
        zinf_config_destroy(config);
    CHECK(parse(&config, "{\"train_batch_size\": 2}",
                CONTEXT(NOTHING, .steps = 9,
                        SETTINGS(1, {"scheduler.type", "sideways", 0, "--lr-scheduler"}))) < 0);
    CHECKF(strstr(zinf_error(), "--lr-scheduler") && strstr(zinf_error(), "\"linear\""), "%s",
           zinf_error());
}

/* ---- Hjson ---- */

/* Text, and what Python's hjson 3.1 reads of it as JSON; NULL: it refuses it. */
static const char *const hjson_rows[][2] = {
    {"a: 1\nb: x, y\n", "{\"a\":1,\"b\":\"x, y\"}"},
    {"{'a': '''\n  x\n  y\n  '''}", "{\"a\":\"x\\ny\"}"},
    {"{\n  a:\n    '''\n    one\n      two\n    '''\n  b: 2}", "{\"a\":\"one\\n  two\",\"b\":2}"},
    {"{\"a\": [a, b]\n]}", "{\"a\":[\"a, b]\"]}"},
    {"{\"a\": GBSIZE,\n\"b\":1}", "{\"a\":\"GBSIZE,\",\"b\":1}"},
    {"{\"a\": \"x\\'y\"}", "{\"a\":\"x'y\"}"},
    {"{'a': 'say \"hi\"'}", "{\"a\":\"say \\\"hi\\\"\"}"},
    {"{\"a\": 1 /* c */, b: 2}", "{\"a\":1,\"b\":2}"},
    {"{\"a\": x # no comment\n}", "{\"a\":\"x # no comment\"}"},
    {"{\"a\": 1e5 # c\n}", "{\"a\":1e5}"},
    {"{\"a\": [1, 2,],}", "{\"a\":[1,2]}"},
    {"{a: ''}", "{\"a\":\"\"}"},
    {"", "{}"},
    {"# c\n", "{}"},
    {"\xef\xbb\xbf{\"a\": null}", "{\"a\":null}"},
    {"{\"a\": 1 \"b\": 2}", NULL},
    {"{\"a\":01}", NULL},
    {"{a b: 1}", NULL},
    {"{,}", NULL},
    {"{\"a\":1,,}", NULL},
    {"{a: 1} x", NULL},
    {"{\"a\": \"x\ny\"}", NULL},
    {"{\"a\": [1", NULL},
    {"{\"a\"", NULL},
    {"{\"a\":", NULL},
    {"/* c", NULL},
    {"{a: '''x", NULL},
};

static void test_hjson_as_python_reads_it(void)
{
    for (size_t i = 0; i < sizeof hjson_rows / sizeof *hjson_rows; i++) {
        const char *text = hjson_rows[i][0], *wanted = hjson_rows[i][1];
        char *json = NULL;
        size_t bytes = 0;
        int code = zinf_config_hjson(text, strlen(text), "ds.json", &json, &bytes);
        CHECKF(!code == (wanted != NULL), "%s: %s", text, code ? zinf_error() : "accepted");
        cJSON *a = code ? NULL : cJSON_Parse(json), *b = cJSON_Parse(wanted ? wanted : "0");
        CHECKF(code || cJSON_Compare(a, b, true), "%s: %s", text, json ? json : "-");
        cJSON_Delete(a);
        cJSON_Delete(b);
        free(json);
    }
}

static void test_values_stay_in_their_lines(void)
{
    static const char text[] = "# 1\na: 1 /* 2\n3 */\nb: '''x\ny'''\nc: {\n\n d: true }\n";
    char *json = NULL;
    size_t bytes;
    CHECK(zinf_config_hjson(text, sizeof text - 1, "ds.json", &json, &bytes) == 0);
    CHECKF(zinf_json_line_of(json, bytes, "a") == 2, "%s", json);
    CHECKF(zinf_json_line_of(json, bytes, "b") == 4, "%s", json);
    CHECKF(zinf_json_line_of(json, bytes, "c.d") == 8, "%s", json);
    free(json);
    CHECK(zinf_config_hjson("{\n\"a\": x }\n", 11, "ds.json", &json, &bytes) < 0);
    CHECKF(strstr(zinf_error(), "ds.json: line 1: ") &&
               strstr(zinf_error(), "line 2 has no quotes"),
           "%s", zinf_error());
}

int main(void)
{
    zinf_log_set_sink(catch_log, NULL);
    zinf_log_set_level(ZINF_LOG_INFO);
    TAP_RUN(test_rows);
    TAP_RUN(test_shown_autos_stay_open);
    TAP_RUN(test_options_of_training);
    TAP_RUN(test_hjson_as_python_reads_it);
    TAP_RUN(test_values_stay_in_their_lines);
    return tap_done();
}
