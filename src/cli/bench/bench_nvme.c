/*
 * bench_nvme: `zinf bench nvme`: options, and what is kept for `zinf estimate`.
 */
#include "build-config.h"

#include "cli/bench/bench_nvme.h"
#include "cli/signals.h"

#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>

static const char usage[] =
    "usage: zinf bench nvme --path DIR[,DIR...] [options]\n"
    "\n"
    "Measures drives with the engine that training uses, in files of its own that are\n"
    "removed again. Wants the drives for itself. Under two minutes without options.\n"
    "\n"
    "  --path DIR[,DIR...]   on the drives; several are striped as nvme_path is\n"
    "  --size SIZE           data (default: what is written in 7 s, 1GiB to 32GiB)\n"
    "  --read                only these of read, write and mixed (half each way);\n"
    "  --write               all without them\n"
    "  --mixed\n"
    "  --random              blocks in a random order\n"
    "  --block-size SIZE     of one transfer (default: the best of a few)\n"
    "  --queue-depth N       in flight for each job (default: the best of a few)\n"
    "  --jobs N              threads with a queue each (default: 1)\n"
    "  --engine NAME         auto, uring or threads (default: auto)\n"
    "  --seconds X           time of each figure (default: one pass over the data)\n"
    "  --sweep               try all block sizes and depths, not a few\n"
    "  --json                print one JSON object\n";

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
static int check(struct nvme_bench *bench, const struct words *words)
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

static int parse(struct nvme_bench *bench, int argc, char **argv)
{
    struct words words = {.engine = "auto", .n_jobs = 1};
    const struct cli_option options[] = {
        {"--path", CLI_STRING, &words.path, 0, 0},
        {"--size", CLI_SIZE, &bench->bytes, 0, 0},
        {"--read", CLI_FLAG, &bench->wanted[ZINF_AIO_BENCH_READ], 0, 0},
        {"--write", CLI_FLAG, &bench->wanted[ZINF_AIO_BENCH_WRITE], 0, 0},
        {"--mixed", CLI_FLAG, &bench->wanted[ZINF_AIO_BENCH_MIXED], 0, 0},
        {"--random", CLI_FLAG, &bench->random, 0, 0},
        {"--block-size", CLI_SIZE, &words.block_bytes, 0, 0},
        {"--queue-depth", CLI_INT, &words.queue_depth, 1, 4096},
        {"--jobs", CLI_INT, &words.n_jobs, 1, 64},
        {"--engine", CLI_STRING, &words.engine, 0, 0},
        {"--seconds", CLI_DOUBLE, &bench->seconds, 0.01, 3600},
        {"--sweep", CLI_FLAG, &bench->sweep_all, 0, 0},
        {"--json", CLI_FLAG, &bench->json, 0, 0},
    };
    int code = cli_parse(&bench_nvme, options, sizeof options / sizeof *options, NULL, argc, argv);
    return code ? code : check(bench, &words);
}

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
    cJSON_AddNumberToObject(result, "block_size", bench->best_block_bytes);
    cJSON_AddNumberToObject(result, "queue_depth", bench->best_depth);
    cJSON_AddStringToObject(result, "engine",
                            zinf_aio_engine_name(bench->main[bench->key_mix].engine));
    if (result)
        bench_cache_save("nvme", key, result);
    cJSON_Delete(result);
}

static int print_json(const struct nvme_bench *bench)
{
    cJSON *json = nvme_json(bench);
    char *text = json ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        return zinf_fail(-ENOMEM, "no memory for the JSON of the figures");
    puts(text);
    cJSON_free(text);
    return 0;
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

static int run(int argc, char **argv)
{
    struct nvme_bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return cli_error(&bench_nvme, (zinf_fail(-ENOMEM, "no memory"), CLI_FAILED));
    int status = CLI_OK, code = parse(bench, argc, argv);
    if (code) {
        status = code < 0 ? cli_error(&bench_nvme, CLI_USAGE) : CLI_OK;
        goto out;
    }
    code = refuse_memory(bench);
    cli_signals_listen("ending, and removing the files", true);
    if (!code)
        code = nvme_measure(bench);
    if (!code) {
        if (is_kept(bench))
            save(bench);
        if (bench->json)
            code = print_json(bench);
        else
            nvme_print(bench, stdout);
    }
    if (code)
        status = cli_error(&bench_nvme, cli_stop ? cli_signals_status(cli_stop) : CLI_FAILED);
out:
    for (int i = 0; i < bench->n_paths; i++)
        free(bench->paths[i]);
    free(bench);
    return status;
}

const struct cli_command bench_nvme = {
    .name = "bench nvme",
    .summary = "",
    .usage = usage,
    .run = run,
};
