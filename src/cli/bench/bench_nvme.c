/*
 * bench_nvme: `zinf bench nvme`: options, and what is kept for `zinf estimate`.
 */
#include "build-config.h"
#include "cli/bench/bench_nvme.h"
#include "cli/signals.h"

#include <limits.h>
#include <linux/magic.h>
#include <math.h>
#include <stdlib.h>
#include <sys/vfs.h>

/* ---- for programs ---- */

static void add_result(cJSON *object, const struct zinf_aio_bench_result *r)
{
    cJSON_AddNumberToObject(object, "rate", zinf_aio_bench_rate(r));
    cJSON_AddNumberToObject(object, "seconds", r->seconds);
    cJSON_AddNumberToObject(object, "cpu_seconds", r->cpu_seconds);
    cJSON_AddNumberToObject(object, "bytes_read", (double)r->bytes_read);
    cJSON_AddNumberToObject(object, "bytes_written", (double)r->bytes_written);
    cJSON_AddNumberToObject(object, "p50", (double)r->p50_ns * 1e-9);
    cJSON_AddNumberToObject(object, "p99", (double)r->p99_ns * 1e-9);
    cJSON_AddNumberToObject(object, "p99.9", (double)r->p999_ns * 1e-9);
    cJSON_AddNumberToObject(object, "max", (double)r->max_ns * 1e-9);
}

static void add_wanted(cJSON *object, const struct nvme_bench *bench,
                       const struct zinf_aio_bench_result results[NVME_MIXES])
{
    for (int mix = 0; mix < NVME_MIXES; mix++)
        if (bench->wanted[mix])
            add_result(cJSON_AddObjectToObject(object, nvme_mix_names[mix]), &results[mix]);
}

static void add_setup(cJSON *root, const struct nvme_bench *bench)
{
    cJSON *paths = cJSON_AddArrayToObject(root, "paths");
    for (int i = 0; i < bench->n_paths; i++)
        cJSON_AddItemToArray(paths, cJSON_CreateString(bench->paths[i]));
    cJSON_AddNumberToObject(root, "bytes", (double)bench->bytes);
    cJSON_AddNumberToObject(root, "jobs", bench->n_jobs);
    cJSON_AddBoolToObject(root, "random", bench->random);
    cJSON_AddNumberToObject(root, "written", (double)bench->bytes_written);
    cJSON *aio = cJSON_AddObjectToObject(root, "aio");
    cJSON_AddNumberToObject(aio, "block_size", bench->best_block_bytes);
    cJSON_AddNumberToObject(aio, "queue_depth", bench->best_depth);
    cJSON_AddBoolToObject(aio, "single_submit", false);
    cJSON_AddBoolToObject(aio, "overlap_events", true);
}

static void add_sweep(cJSON *root, const struct nvme_bench *bench)
{
    cJSON *sweep = cJSON_AddArrayToObject(root, "sweep");
    for (int i = 0; i < bench->n_sweep; i++) {
        cJSON *point = cli_json_append(sweep);
        cJSON_AddNumberToObject(point, "block_size", bench->sweep[i].block_bytes);
        cJSON_AddNumberToObject(point, "queue_depth", bench->sweep[i].queue_depth);
        add_result(point, &bench->sweep[i].result);
    }
}

static void add_engines(cJSON *root, const struct nvme_bench *bench)
{
    cJSON *engines = cJSON_AddArrayToObject(root, "engines");
    for (int i = 0; i < NVME_ENGINES; i++) {
        cJSON *row = cli_json_append(engines);
        cJSON_AddStringToObject(row, "name", bench->engines[i].name);
        if (bench->engines[i].refused)
            cJSON_AddStringToObject(row, "refused", bench->engines[i].refused);
        else
            add_wanted(row, bench, bench->engines[i].result);
    }
}

static void add_steps(cJSON *root, const struct nvme_bench *bench)
{
    cJSON *steps = cJSON_AddArrayToObject(root, "step_seconds");
    for (int f = 0; f < NVME_FORMS; f++) {
        const struct nvme_form *form = &nvme_forms[f];
        if (nvme_step_seconds(bench, form, 1) <= 0)
            return;
        cJSON *row = cli_json_append(steps);
        cJSON_AddStringToObject(row, "on_drive", form->name);
        cJSON_AddNumberToObject(row, "read_bytes_per_parameter", form->read_bytes);
        cJSON_AddNumberToObject(row, "write_bytes_per_parameter", form->write_bytes);
        for (int m = 0; m < NVME_MODELS; m++)
            cJSON_AddNumberToObject(row, nvme_models[m].name,
                                    nvme_step_seconds(bench, form, nvme_models[m].params));
    }
}

static cJSON *nvme_json(const struct nvme_bench *bench)
{
    cJSON *root = cJSON_CreateObject();
    if (!root)
        return NULL;
    add_setup(root, bench);
    add_wanted(root, bench, bench->main);
    add_sweep(root, bench);
    add_engines(root, bench);
    add_steps(root, bench);
    return root;
}

/* ---- the command ---- */

static const char usage[] =
    "usage: zinf bench nvme --path DIR[,DIR...] [options]\n"
    "\n"
    "Measures drives with the engine that training uses, in files of its own that are\n"
    "removed again. Wants the drives for itself. Under two minutes without options.\n";

#define LEAST_BYTES ((uint64_t)256 << 20) /* as much as a look at a path writes */

struct words {
    const char *path, *engine;
    uint64_t block_bytes;
    int64_t queue_depth, n_jobs;
};

static int split_paths(struct nvme_bench *bench, const char *text)
{
    char name[PATH_MAX];
    if (!text)
        return zinf_fail(-EINVAL, "--path is missing: name a folder on the drive");
    for (const char *end; *text; text = end + (*end == ',')) {
        end = text + strcspn(text, ",");
        if (bench->n_paths == NVME_MAX_PATHS)
            return zinf_fail(-EINVAL, "--path: more than %d folders", NVME_MAX_PATHS);
        snprintf(name, sizeof name, "%.*s", (int)(end - text), text);
        char *path = realpath(name, NULL);
        if (!path)
            return zinf_fail(-errno, "--path %s: %s", name, strerror(errno));
        bench->paths[bench->n_paths++] = path;
    }
    return bench->n_paths ? 0 : zinf_fail(-EINVAL, "--path is empty");
}

static int parse_engine(const char *name, enum zinf_aio_engine *out)
{
    if (!strcmp(name, "auto"))
        *out = ZINF_AIO_ENGINE_AUTO;
    else if (!strcmp(name, "uring"))
        *out = ZINF_AIO_ENGINE_URING;
    else if (!strcmp(name, "threads"))
        *out = ZINF_AIO_ENGINE_THREADS;
    else
        return zinf_fail(-EINVAL, "--engine %s: auto, uring or threads", name);
    return 0;
}

/* From words to the bench; all mixes where none is named, the last wanted one chooses settings. */
static int check_words(struct nvme_bench *bench, const struct words *words)
{
    bool any = false;
    if (words->block_bytes % ZINF_AIO_ALIGN || words->block_bytes > 1u << 30)
        return zinf_fail(-EINVAL, "--block-size must be a multiple of %d, at most 1GiB",
                         ZINF_AIO_ALIGN);
    bench->block_bytes = (uint32_t)words->block_bytes;
    bench->queue_depth = (uint32_t)words->queue_depth;
    bench->n_jobs = (int)words->n_jobs;
    for (int mix = 0; mix < NVME_MIXES; mix++)
        any |= bench->wanted[mix];
    for (int mix = 0; mix < NVME_MIXES; mix++) {
        bench->wanted[mix] |= !any;
        if (bench->wanted[mix])
            bench->key_mix = (enum zinf_aio_bench_mix)mix;
    }
    int code = parse_engine(words->engine, &bench->engine);
    return code ? code : split_paths(bench, words->path);
}

static const char *const engines[] = {"auto", "uring", "threads", NULL};

struct nvme_options {
    struct nvme_bench bench;
    struct words words;
};

#define AT(field) .offset = offsetof(struct nvme_options, field)
#define IN(field) .at = offsetof(struct nvme_options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--path", TEXT, AT(words.path), "DIR[,DIR...]",
     "on the drives; several are striped as nvme_path is"),
    OPTION("--size", SIZE, AT(bench.bytes), "SIZE", "data",
     .otherwise = "what is written in 7 s, 1GiB to 32GiB"),
    OPTION("--read", FLAG, AT(bench.wanted[ZINF_AIO_BENCH_READ]), NULL,
     "only these of read, write and mixed (half each way);"),
    OPTION("--write", FLAG, AT(bench.wanted[ZINF_AIO_BENCH_WRITE]), NULL, "all without them"),
    OPTION("--mixed", FLAG, AT(bench.wanted[ZINF_AIO_BENCH_MIXED]), NULL, ""),
    OPTION("--random", FLAG, AT(bench.random), NULL, "blocks in a random order"),
    OPTION("--block-size", SIZE, AT(words.block_bytes), "SIZE", "of one transfer",
     .otherwise = "the best of a few"),
    OPTION("--queue-depth", INTEGER, AT(words.queue_depth), "N", "in flight for each job",
     .min = 1, .max = 4096, .otherwise = "the best of a few"),
    OPTION("--jobs", INTEGER, AT(words.n_jobs), "N", "threads with a queue each", .min = 1,
     .max = 64, .usual = "1"),
    OPTION("--engine", TEXT, AT(words.engine), "NAME", "auto, uring or threads", .usual = "auto",
     .words = engines),
    OPTION("--seconds", NUMBER, AT(bench.seconds), "X", "time of each figure", .min = 0.01,
     .max = 3600, .otherwise = "one pass over the data"),
    OPTION("--sweep", FLAG, AT(bench.sweep_all), NULL,
     "try all block sizes and depths, not a few"),
    CLI_NO_ROW
};
/* clang-format on */

/* ---- what is kept ---- */

static void add_rate(cJSON *object, const struct nvme_bench *bench, enum zinf_aio_bench_mix mix)
{
    if (bench->wanted[mix])
        cJSON_AddNumberToObject(object, nvme_mix_names[mix],
                                zinf_aio_bench_rate(&bench->main[mix]));
}

/* A little data may never leave the drive's own memory, one mix would take away the others, and
 * blocks in random order are not what a training moves. */
static bool is_kept(const struct nvme_bench *bench)
{
    char size[16];
    const char *remedy = NULL;
    if (bench->bytes < LEAST_BYTES)
        remedy = "give more --size, or none";
    for (int mix = 0; mix < NVME_MIXES; mix++)
        if (!bench->wanted[mix])
            remedy = "leave out --read, --write and --mixed";
    if (bench->random)
        remedy = "leave out --random";
    if (remedy)
        zinf_log(ZINF_LOG_INFO,
                 "the rates are not kept for zinf estimate, which wants all mixes, "
                 "in order, on %s or more: %s",
                 zinf_size_format(size, sizeof size, LEAST_BYTES), remedy);
    return !remedy;
}

static void see_rate(const struct zinf_aio_bench_result *result, double range[2])
{
    const double rate = zinf_aio_bench_rate(result);
    if (!(rate > 0))
        return;
    range[0] = range[0] > 0 && range[0] < rate ? range[0] : rate;
    range[1] = range[1] > rate ? range[1] : rate;
}

/* Of all looks at the mix with the best setting: a drive's rate may vary from one to the next. */
static void add_spread(cJSON *object, const struct nvme_bench *bench)
{
    const struct nvme_engine_row *same = &bench->engines[0]; /* io_uring, registered memory */
    const struct zinf_aio_bench_result *best = &bench->main[ZINF_AIO_BENCH_MIXED];
    double range[2] = {0, 0};
    see_rate(best, range);
    if (!same->refused && same->result[ZINF_AIO_BENCH_MIXED].engine == best->engine)
        see_rate(&same->result[ZINF_AIO_BENCH_MIXED], range);
    for (int i = 0; bench->key_mix == ZINF_AIO_BENCH_MIXED && i < bench->n_sweep; i++)
        if (bench->sweep[i].block_bytes == bench->best_block_bytes &&
            bench->sweep[i].queue_depth == bench->best_depth)
            see_rate(&bench->sweep[i].result, range);
    cJSON_AddNumberToObject(object, "mixed_least", range[0]);
    cJSON_AddNumberToObject(object, "mixed_most", range[1]);
}

/* What a drive takes beside its rate: of the CPU, and of time where one request waits for the
 * other.
 */
static void add_costs(cJSON *object, const struct nvme_bench *bench)
{
    const double used = nvme_cpu_per_byte(&bench->main[ZINF_AIO_BENCH_MIXED]);
    const double cpu = fmax(used, bench->lost_cpu_per_byte);
    const double answer = nvme_answer_seconds(bench);
    if (cpu > 0)
        cJSON_AddNumberToObject(object, "cpu_bytes", 1 / cpu);
    if (answer > 0)
        cJSON_AddNumberToObject(object, "answers", 1 / answer);
    if (bench->busy_drive > 0) {
        cJSON_AddNumberToObject(object, "busy_drive", bench->busy_drive);
        cJSON_AddNumberToObject(object, "busy_threads", bench->busy_threads);
    }
}

/* Under the paths joined with commas, and what the short look at each of several said. */
static void save(const struct nvme_bench *bench)
{
    char key[NVME_MAX_PATHS * 64] = "";
    for (int i = 0; i < bench->n_paths; i++) {
        size_t used = strlen(key);
        snprintf(key + used, sizeof key - used, "%s%s", i ? "," : "", bench->paths[i]);
        cJSON *alone = bench->n_paths > 1 ? cJSON_CreateObject() : NULL;
        if (alone) {
            cJSON_AddNumberToObject(alone, "read", bench->rates[i].read);
            cJSON_AddNumberToObject(alone, "write", bench->rates[i].write);
            cJSON_AddNumberToObject(alone, "mixed", bench->rates[i].mixed);
            bench_cache_save("nvme", bench->paths[i], alone);
            cJSON_Delete(alone);
        }
    }
    cJSON *result = cJSON_CreateObject();
    for (int mix = 0; mix < NVME_MIXES; mix++)
        add_rate(result, bench, (enum zinf_aio_bench_mix)mix);
    add_spread(result, bench);
    add_costs(result, bench);
    cJSON_AddNumberToObject(result, "block_size", bench->best_block_bytes);
    cJSON_AddNumberToObject(result, "queue_depth", bench->best_depth);
    cJSON_AddStringToObject(result, "engine",
                            zinf_aio_engine_name(bench->main[bench->key_mix].engine));
    if (result)
        bench_cache_save("nvme", key, result);
    cJSON_Delete(result);
}

/* Before the store says it of a key that nobody wrote here. */
static int refuse_memory(const struct nvme_bench *bench)
{
    struct statfs info;
    for (int i = 0; i < bench->n_paths; i++)
        if (!statfs(bench->paths[i], &info) && info.f_type == TMPFS_MAGIC)
            return zinf_fail(-EINVAL,
                             "--path %s lies in memory (tmpfs), not on a drive: name a folder on "
                             "one",
                             bench->paths[i]);
    return 0;
}

static int check(struct cli_call *call)
{
    struct nvme_options *o = call->options;
    return check_words(&o->bench, &o->words);
}

static int work(struct cli_call *call)
{
    struct nvme_options *o = call->options;
    struct nvme_bench *bench = &o->bench;
    int code = refuse_memory(bench);
    cli_signals_listen("ending, and removing the files", true);
    if (!code)
        code = nvme_measure(bench);
    if (!code && is_kept(bench))
        save(bench);
    if (!code && bench->json)
        code = cli_print_json(nvme_json(bench));
    else if (!code)
        nvme_print(bench, stdout);
    for (int i = 0; i < bench->n_paths; i++)
        free(bench->paths[i]);
    return code && cli_stop ? cli_error(call->command, cli_signals_status(cli_stop)) : code;
}

const struct cli_command bench_nvme = {
    .name = "bench nvme",
    .summary = "",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}, {.rows = cli_json, IN(bench.json)}),
    .bytes = sizeof(struct nvme_options),
    .check = check,
    .work = work,
};
