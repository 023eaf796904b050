/*
 * A training that was cut in two by a checkpoint gives the bits of the one that was not: losses,
 * gradient norms, weights, for every pair of placements, in every number type, with shuffled data,
 * accumulation, dropout and a loss scale that moves, in the middle of an epoch. And what is damaged
 * or does not belong is refused by name.
 */
#include "train_support.h"

#include "train/checkpoint.h"
#include "train/output.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define STEPS 5
#define CUT 2 /* of 5 windows a step and 12 an epoch: mid-epoch, and an epoch ends behind it */
#define SEQ 16

static char model[600], drive[600], text[600];
static struct zinf_tokenizer *tokenizer;

struct place {
    const char *param, *optimizer;
};
static const struct place places[] = {
    {"none", "none"}, {"none", "cpu"},  {"none", "nvme"}, {"cpu", "none"},  {"cpu", "cpu"},
    {"cpu", "nvme"},  {"nvme", "none"}, {"nvme", "cpu"},  {"nvme", "nvme"},
};
#define N_PLACES (sizeof places / sizeof *places)

static const char *const precisions[] = {
    "",
    "\"bf16\": {\"enabled\": true},",
    /* Overflows at first, then grows again: scale and skipped steps are part of the state. */
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 23, \"hysteresis\": 1,"
    "\"loss_scale_window\": 2},",
};

/* ---- runs ---- */

struct setting {
    const struct place *place;
    const char *precision, *output, *resume, *optimizer;
    const char *data, *model; /* NULL: the usual ones */
    uint64_t steps, save_every, limit, seed;
    bool no_shuffle, background;
};
struct outcome {
    double loss[STEPS + 1], norm[STEPS + 1]; /* [step] */
    bool skipped[STEPS + 1];
    uint64_t n_saved;
};

static void on_stepped(void *arg, const struct zinf_step_result *r, uint64_t steps)
{
    struct outcome *out = arg;
    (void)steps;
    out->loss[r->step] = r->loss;
    out->norm[r->step] = r->grad_norm;
    out->skipped[r->step] = r->skipped;
}

static void on_saved(void *arg, uint64_t step, const char *folder)
{
    struct outcome *out = arg;
    (void)step;
    out->n_saved += strstr(folder, "/checkpoint-") != NULL;
}

static struct zinf_config *configure(const struct setting *s)
{
    char json[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    snprintf(json, sizeof json,
             "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 5, %s"
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 1e-3}},"
             "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": 3, "
             "\"warmup_min_lr\": 1e-4,"
             "\"total_num_steps\": 9}},"
             "\"csv_monitor\": {\"enabled\": true, \"output_path\": \"%s/csv\"},"
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 20000,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}},"
             "\"zinf\": {\"threads\": 1, \"async_save\": %s}}",
             s->precision, s->optimizer ? s->optimizer : "AdamW", s->output, s->place->param, drive,
             s->place->optimizer, drive, s->background ? "true" : "false");
    CHECKF(!zinf_config_parse(&config, json, strlen(json), "test", &context), "%s", zinf_error());
    return config;
}

static int run(const struct setting *s, struct outcome *out)
{
    struct outcome none;
    struct zinf_config *config = configure(s);
    struct zinf_dataset *data =
        open_bytes(s->data ? s->data : text, tokenizer, SEQ, !s->no_shuffle, s->seed);
    memset(out ? out : &none, 0, sizeof none);
    struct zinf_run_options options = {
        .trainer = {.mode = ZINF_TRAINER_TRAIN,
                    .model_path = s->model ? s->model : model,
                    .seed = s->seed,
                    .config = config,
                    .seq_len = SEQ,
                    .device = ZINF_DEVICE_HOST},
        .output = s->output,
        .data = data,
        .steps = s->steps,
        .save_every = s->save_every,
        .save_total_limit = s->limit,
        .resume = s->resume,
        .events = {.stepped = on_stepped, .saved = on_saved, .arg = out ? out : &none},
    };
    int code = config && data ? zinf_run_train(&options) : -EINVAL;
    zinf_dataset_close(data);
    zinf_config_destroy(config);
    return code;
}

static bool same_bits(double a, double b)
{
    return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b));
}

static void check_same(const struct outcome *whole, const struct outcome *rest, const char *what)
{
    for (int i = CUT + 1; i <= STEPS; i++) {
        CHECKF(same_bits(whole->loss[i], rest->loss[i]), "%s: loss %d: %.17g, %.17g", what, i,
               whole->loss[i], rest->loss[i]);
        CHECKF(same_bits(whole->norm[i], rest->norm[i]), "%s: norm %d: %.17g, %.17g", what, i,
               whole->norm[i], rest->norm[i]);
    }
}

/* ---- exact resume ---- */

/* Of the 81 pairs each number type takes a third, and together they take all; with ZINF_TEST_ALL
 * each takes all. */
static bool pair_is_due(size_t i, size_t j, const char *precision)
{
    size_t kind = strstr(precision, "bf16") ? 1 : strstr(precision, "fp16") ? 2 : 0;
    return getenv("ZINF_TEST_ALL") || (i + j) % 3 == kind;
}

static void check_pairs(const char *precision)
{
    char whole_path[600], cut_path[600], rest_path[600], from[700];
    struct outcome whole, rest;
    struct setting s = {.place = &places[0],
                        .precision = precision,
                        .output = in_work(whole_path, "whole"),
                        .steps = STEPS,
                        .seed = 7};
    output_remove(whole_path);
    CHECKF(!run(&s, &whole), "%s", zinf_error());
    in_work(cut_path, "cut");
    in_work(rest_path, "rest");
    snprintf(from, sizeof from, "%s/checkpoint-%d", cut_path, CUT);
    for (size_t i = 0; i < N_PLACES; i++) {
        output_remove(cut_path);
        s = (struct setting){&places[i],   precision,         cut_path,
                             .steps = CUT, .save_every = CUT, .seed = 7};
        CHECKF(!run(&s, NULL), "%s", zinf_error());
        for (size_t j = 0; j < N_PLACES; j++) {
            char what[100];
            if (!pair_is_due(i, j, precision))
                continue;
            snprintf(what, sizeof what, "%s/%s to %s/%s", places[i].param, places[i].optimizer,
                     places[j].param, places[j].optimizer);
            output_remove(rest_path);
            s = (struct setting){&places[j], precision, rest_path, from, .steps = STEPS, .seed = 7};
            CHECKF(!run(&s, &rest), "%s: %s", what, zinf_error());
            check_same(&whole, &rest, what);
            CHECKF(same_file(whole_path, rest_path, "model/model.safetensors"),
                   "%s: weights differ", what);
        }
    }
    if (strstr(precision, "fp16"))
        CHECKF(whole.skipped[1] && !whole.skipped[STEPS], "the loss scale does not move");
}

static void test_pairs_fp32(void)
{
    check_pairs(precisions[0]);
}

static void test_pairs_bf16(void)
{
    check_pairs(precisions[1]);
}

static void test_pairs_fp16(void)
{
    check_pairs(precisions[2]);
}

/* Also the whole state at the end, under each optimizer's number and form of moments. */
static void check_state(const char *optimizer, const char *precision, int n_moments)
{
    static const char *const files[] = {"model.safetensors", "optimizer/master.safetensors",
                                        "optimizer/moment1.safetensors",
                                        "optimizer/moment2.safetensors"};
    char a[600], b[600], end_a[700], end_b[700], from[700];
    struct outcome whole, rest;
    struct setting s = {&places[8],     precision,         in_work(a, "a"),
                        .steps = STEPS, .save_every = CUT, .optimizer = optimizer};
    output_remove(a);
    output_remove(in_work(b, "b"));
    CHECKF(!run(&s, &whole), "%s", zinf_error());
    CHECK(whole.n_saved == 3); /* 2, 4 and the last */
    snprintf(from, sizeof from, "%s/checkpoint-%d", a, CUT);
    s.output = b;
    s.resume = from;
    s.place = &places[4];
    CHECKF(!run(&s, &rest), "%s", zinf_error());
    check_same(&whole, &rest, optimizer);
    snprintf(end_a, sizeof end_a, "%s/checkpoint-%d", a, STEPS);
    snprintf(end_b, sizeof end_b, "%s/checkpoint-%d", b, STEPS);
    for (int k = 0; k < 2 + n_moments; k++)
        if (k != 1 || *precision) /* in fp32 the model is the master */
            CHECKF(same_file(end_a, end_b, files[k]), "%s %s: %s differs", optimizer, precision,
                   files[k]);
}

static void test_state_is_exact(void)
{
    check_state("AdamW", precisions[1], 2);
    check_state("Lion", precisions[1], 1);
    check_state("Adagrad", precisions[1], 1);
    check_state("SGD", precisions[1], 1);
}

/* Of a matrix as the file has it: a mean for each row, and one for each column; a vector is whole.
 */
static void check_factors(const char *folder)
{
    char path[800];
    struct zinf_tensors *moment = NULL, *weights = NULL;
    CHECKF(!zinf_tensors_open(&weights, folder), "%s", zinf_error());
    for (int which = 1; weights && which <= 2; which++) {
        snprintf(path, sizeof path, "%s/optimizer/moment%d.safetensors", folder, which);
        CHECKF(!zinf_tensors_open(&moment, path), "%s", zinf_error());
        for (uint64_t i = 0; moment && i < zinf_tensors_count(weights); i++) {
            const struct zinf_tensor_info *w = zinf_tensors_at(weights, i);
            const struct zinf_tensor_info *m = zinf_tensors_find(moment, w->name);
            uint64_t n = w->rank == 2 || which == 1 ? w->shape[which - 1] : 0;
            CHECKF((m ? m->n_elems : 0) == n, "%s: moment %d has %llu elements", w->name, which,
                   (unsigned long long)(m ? m->n_elems : 0));
        }
        zinf_tensors_close(moment);
    }
    zinf_tensors_close(weights);
}

static void test_small_state_is_exact(void)
{
    for (int i = 0; i < 3; i++) {
        char folder[700];
        check_state("AdamW8bit", precisions[i], 2);
        check_state("Adafactor", precisions[i], 2);
        snprintf(folder, sizeof folder, "%s/a/checkpoint-%d", work, STEPS);
        check_factors(folder);
    }
}

/* ---- the output folder ---- */

static void count_lines(const char *path, int *n, char *last, size_t bytes)
{
    char *data = NULL, *rest;
    size_t size;
    *n = 0;
    if (zinf_file_read(path, 1 << 20, &data, &size))
        return;
    for (char *line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        snprintf(last, bytes, "%s", line);
        ++*n;
    }
    free(data);
}

static void test_same_folder_goes_on(void)
{
    char out[600], path[700], from[700], last[1024];
    struct outcome whole, rest;
    uint64_t *steps = NULL, latest = 0;
    uint32_t n = 0;
    int lines;
    struct setting s = {&places[8],     precisions[0],   in_work(out, "same"),
                        .steps = STEPS, .save_every = 1, .limit = 3};
    CHECKF(!run(&s, &whole), "%s", zinf_error());
    CHECK(!output_checkpoints(out, &steps, &n) && n == 3 && steps[0] == 3 && steps[2] == 5);
    CHECK(!output_latest(out, &latest) && latest == 5);
    free(steps);

    CHECK(run(&s, NULL) == -EEXIST && strstr(zinf_error(), "--resume"));

    /* Back to step 3: what was logged and saved behind it is of another past. */
    snprintf(from, sizeof from, "%s/checkpoint-3", out);
    s.resume = from;
    s.steps = 4;
    s.limit = 2;
    CHECKF(!run(&s, &rest), "%s", zinf_error());
    CHECK(same_bits(whole.loss[4], rest.loss[4]) && rest.loss[3] == 0);
    CHECK(!output_latest(out, &latest) && latest == 4);
    CHECK(!output_checkpoints(out, &steps, &n) && n == 2 && steps[0] == 3 && steps[1] == 4);
    free(steps);
    snprintf(path, sizeof path, "%s/log.jsonl", out);
    count_lines(path, &lines, last, sizeof last);
    CHECKF(lines == 4 && !strncmp(last, "{\"step\": 4,", 11), "%d lines, %s", lines, last);
    snprintf(path, sizeof path, "%s/csv/DeepSpeedJobName/Train_Samples_train_loss.csv", out);
    count_lines(path, &lines, last, sizeof last);
    CHECKF(lines == 5 && !strncmp(last, "20,", 3), "%d lines, %s", lines, last);

    /* Nothing is left to do. */
    snprintf(from, sizeof from, "%s/checkpoint-4", out);
    CHECKF(!run(&s, &rest), "%s", zinf_error());
    CHECK(rest.loss[4] == 0);

    /* What was not finished goes, a second run does not come in. */
    int fd = -1, second = -1;
    snprintf(path, sizeof path, "%s/tmp-checkpoint-9/optimizer", out);
    CHECK(!zinf_make_dirs(path));
    CHECK(!output_open(out, &fd) && access(path, F_OK));
    CHECK(output_open(out, &second) == -EBUSY && strstr(zinf_error(), "same"));
    close(fd);
}

/* A full disk in the second save, by a limit on the size of files. */
static void test_failed_save_goes_on(void)
{
    char out[600], path[700];
    in_work(out, "full");
    pid_t child = fork();
    if (!child) {
        struct outcome outcome;
        struct setting s = {&places[4], precisions[1], out, .steps = STEPS, .save_every = 2};
        struct rlimit limit = {.rlim_cur = 1 << 16, .rlim_max = 1 << 16};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        int code = run(&s, &outcome);
        /* Both saves failed and the model too, but all steps were made. */
        _exit(code == -EFBIG && outcome.loss[STEPS] > 0 && outcome.n_saved == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECKF(status == 0, "status %d", status);
    static const char *const names[] = {"tmp-checkpoint-2", "checkpoint-2", "checkpoint-4",
                                        "latest",           "model",        "model.partial"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", out, names[i]);
        CHECKF(access(path, F_OK), "%s is there", path);
    }
}

static uint64_t cached_pages(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &info) || !info.st_size)
        return 0;
    size_t pages = ((size_t)info.st_size + 4095) / 4096;
    unsigned char *resident = calloc(pages, 1);
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    uint64_t n = 0;
    if (map != MAP_FAILED && !mincore(map, (size_t)info.st_size, resident))
        for (size_t i = 0; i < pages; i++)
            n += resident[i] & 1;
    if (map != MAP_FAILED)
        munmap(map, (size_t)info.st_size);
    free(resident);
    close(fd);
    return n;
}

static void test_page_cache_stays_empty(void)
{
    char out[600], path[700];
    static const char *const files[] = {"model.safetensors", "optimizer/master.safetensors",
                                        "optimizer/moment1.safetensors",
                                        "optimizer/moment2.safetensors"};
    struct setting s = {&places[4], precisions[1], in_work(out, "cold"), .steps = 1,
                        .save_every = 1};
    CHECKF(!run(&s, NULL), "%s", zinf_error());
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/checkpoint-1/%s", out, files[i]);
        uint64_t n = cached_pages(path);
        CHECKF(n == 0, "%" PRIu64 " pages of %s are cached", n, path);
    }
}

/* ---- refusals ---- */

static char damaged[600];

/* A copy of whole/ with checkpoint-1 and checkpoint-2. */
static const char *fresh_copy(void)
{
    char command[1400];
    static char folder[700];
    char whole[600];
    output_remove(in_work(damaged, "damaged"));
    snprintf(command, sizeof command, "cp -r '%s' '%s'", in_work(whole, "good"), damaged);
    CHECK(!system(command));
    snprintf(folder, sizeof folder, "%s/checkpoint-2", damaged);
    return folder;
}

static void edit(const char *folder, const char *name, long offset, int mask, long length)
{
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR);
    uint8_t byte = 0;
    struct stat info;
    CHECKF(fd >= 0 && !fstat(fd, &info), "%s", path);
    if (offset < 0)
        offset += info.st_size;
    CHECK(pread(fd, &byte, 1, offset) == 1);
    byte ^= (uint8_t)mask;
    CHECK(pwrite(fd, &byte, 1, offset) == 1);
    if (length)
        CHECK(!ftruncate(fd, info.st_size + length));
    close(fd);
}

static void expect_refused(const char *folder, const char *name, bool offered, const char *what)
{
    char rest[600];
    struct setting s = {&places[0], precisions[1], in_work(rest, "refused"), folder, .steps = 3};
    output_remove(rest);
    int code = run(&s, NULL);
    CHECKF(code < 0 && strstr(zinf_error(), name), "%s: %d, %s", what, code, zinf_error());
    CHECKF(!offered || strstr(zinf_error(), "checkpoint-1"), "%s: %s", what, zinf_error());
}

static void test_damage_is_refused(void)
{
    static const char *const files[] = {"config.json",
                                        "model.safetensors",
                                        "optimizer/master.safetensors",
                                        "optimizer/moment1.safetensors",
                                        "optimizer/moment2.safetensors",
                                        "trainer_state.json"};
    char good[600], what[200], a[800], b[800];
    struct setting s = {&places[4], precisions[1], in_work(good, "good"), .steps = 2,
                        .save_every = 1};
    CHECKF(!run(&s, NULL), "%s", zinf_error());
    for (int i = 0; i < 6; i++) {
        const char *folder = fresh_copy();
        snprintf(what, sizeof what, "a flipped bit in %s", files[i]);
        edit(folder, files[i], -40, 1, 0);
        expect_refused(folder, files[i], true, what);
        folder = fresh_copy();
        snprintf(what, sizeof what, "%s is short", files[i]);
        edit(folder, files[i], 0, 0, -1);
        expect_refused(folder, files[i], true, what);
        folder = fresh_copy();
        snprintf(what, sizeof what, "%s is missing", files[i]);
        snprintf(a, sizeof a, "%s/%s", folder, files[i]);
        unlink(a);
        expect_refused(folder, files[i], true, what);
    }
    const char *folder = fresh_copy();
    snprintf(a, sizeof a, "%s/optimizer/moment1.safetensors", folder);
    snprintf(b, sizeof b, "%s/optimizer/moment2.safetensors", folder);
    CHECK(!renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE));
    expect_refused(folder, "moment1.safetensors", true, "moments are swapped");
    folder = fresh_copy();
    snprintf(a, sizeof a, "%s/optimizer/moment1.safetensors", folder);
    snprintf(b, sizeof b, "%s/checkpoint-1/optimizer/moment1.safetensors", damaged);
    CHECK(!renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE));
    expect_refused(folder, "moment1.safetensors", false, "weights of another step");
    CHECK(strstr(zinf_error(), "no whole checkpoint") != NULL);
    folder = fresh_copy();
    edit(folder, "trainer_state.json", 13, '1' ^ '9', 0); /* "format": 9 */
    expect_refused(folder, "formats up to 1", false, "a newer format");
}

static void test_other_training_is_refused(void)
{
    char good[600], folder[700], rest[600], other[600];
    static const char line[] = "Another text, of which there is enough for some windows.\n";
    snprintf(folder, sizeof folder, "%s/checkpoint-2", in_work(good, "good"));
    struct setting base = {&places[0], precisions[1], in_work(rest, "other"), folder, .steps = 3};
    struct setting s = base;
    s.seed = 8;
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "--seed"));
    s = base;
    s.no_shuffle = true;
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "--no-shuffle"));
    s = base;
    s.data = in_work(other, "other.txt");
    FILE *file = fopen(other, "w");
    for (int i = 0; i < 4; i++)
        fputs(line, file);
    fclose(file);
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "--data"));
    s = base;
    s.optimizer = "Lion";
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "AdamW"));
    s = base;
    s.model = in_work(other, "model2");
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "another model"));
    CHECK(strstr(zinf_error(), "checkpoint-2") != NULL);
    s = base;
    s.resume = model;
    CHECK(run(&s, NULL) == -ENOENT && strstr(zinf_error(), "not a checkpoint"));
    s = base; /* another number type is another training, but a possible one */
    s.precision = precisions[0];
    CHECKF(!run(&s, NULL), "%s", zinf_error());
}

/* ---- export ---- */

static void test_export(void)
{
    char good[600], out[600], from[700];
    snprintf(from, sizeof from, "%s/checkpoint-2", in_work(good, "good"));
    struct zinf_export_options options = {
        .checkpoint = good, .output = in_work(out, "export"), .as_saved = true};
    CHECKF(!zinf_checkpoint_export(&options), "%s", zinf_error());
    CHECK(same_file(from, out, "model.safetensors") && same_file(from, out, "config.json"));
    options.as_saved = false;
    options.dtype = ZINF_DTYPE_F32;
    options.max_shard_bytes = 50000;
    CHECKF(!zinf_checkpoint_export(&options), "%s", zinf_error());
    char master[800];
    snprintf(master, sizeof master, "%s/optimizer/master.safetensors", from);
    double worst = compare_files(out, master);
    CHECKF(worst == 0, "%g", worst);
    snprintf(master, sizeof master, "%s/model.safetensors.index.json", out);
    CHECK(!access(master, F_OK));
    edit(fresh_copy(), "optimizer/master.safetensors", -40, 1, 0);
    options.checkpoint = damaged;
    CHECK(zinf_checkpoint_export(&options) == -EBADMSG && strstr(zinf_error(), "master"));
}

/* ---- set-up ---- */

static void make_models(void)
{
    char other[600];
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 2, .hidden = 32, .heads = 2, .vocab = 257, .context = 32};
    make_model(model, "model", &shape, 11);
    shape.layers = 3;
    make_model(other, "model2", &shape, 11);
}

static void make_twelve_windows(void)
{
    FILE *file = fopen(in_work(text, "text.txt"), "w");
    for (int i = 0; file && i < 12 * SEQ + 1; i++)
        fputc('a' + i * i % 23 + i % 3, file);
    if (file)
        fclose(file);
}

/* What a thread saves while training goes on is what would have been saved before the next step,
 * and training is not disturbed by it. */
static void test_saves_in_the_background(void)
{
    static const struct place kept[] = {{"nvme", "nvme"}, {"cpu", "nvme"}, {"cpu", "cpu"}};
    static const char *const names[] = {"model.safetensors", "optimizer/moment1.safetensors",
                                        "optimizer/moment2.safetensors"};
    char a[600], b[600], x[700], y[700];
    for (size_t i = 0; i < 9; i++) {
        struct outcome one, other;
        struct setting s = {.place = &kept[i % 3],
                            .precision = precisions[i / 3],
                            .output = in_work(a, "waited"),
                            .steps = STEPS,
                            .save_every = 1,
                            .seed = 7};
        output_remove(a);
        CHECKF(!run(&s, &one), "%s", zinf_error());
        s.output = in_work(b, "beside");
        s.background = true;
        output_remove(b);
        CHECKF(!run(&s, &other), "%s", zinf_error());
        check_same(&one, &other, "in the background");
        CHECK(other.n_saved == STEPS && same_file(a, b, "model/model.safetensors"));
        for (int step = 1; step <= STEPS; step++)
            for (int k = 0; k < 3; k++) {
                snprintf(x, sizeof x, "%s/checkpoint-%d", a, step);
                snprintf(y, sizeof y, "%s/checkpoint-%d", b, step);
                CHECKF(same_file(x, y, names[k]), "%s/%s, %s, step %d: %s", kept[i % 3].param,
                       kept[i % 3].optimizer, precisions[i / 3], step, names[k]);
            }
    }
}

int main(void)
{
    make_work("checkpoint");
    zinf_log_set_level(ZINF_LOG_ERROR);
    zinf_make_dirs(in_work(drive, "drive"));
    make_models();
    make_twelve_windows();
    zinf_tokenizer_bytes(&tokenizer);
    TAP_RUN(test_pairs_fp32);
    TAP_RUN(test_pairs_bf16);
    TAP_RUN(test_pairs_fp16);
    TAP_RUN(test_state_is_exact);
    TAP_RUN(test_small_state_is_exact);
    TAP_RUN(test_same_folder_goes_on);
    TAP_RUN(test_saves_in_the_background);
    TAP_RUN(test_failed_save_goes_on);
    TAP_RUN(test_page_cache_stays_empty);
    TAP_RUN(test_damage_is_refused);
    TAP_RUN(test_other_training_is_refused);
    TAP_RUN(test_export);
    zinf_tokenizer_close(tokenizer);
    remove_work();
    return tap_done();
}
