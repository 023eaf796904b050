/*
 * bench_all: `zinf bench all`: the benches whose figures plans go by, one after the other, each in
 * the forms that trainings use: of any training, or of the one whose configuration is given.
 */
#include "cli/bench/bench.h"

#include "cli/cli.h"

static const char usage[] =
    "usage: zinf bench all [options]\n"
    "\n"
    "Measures in a minute or two the speeds that plans use: memory, matrix products,\n"
    "attention, optimizers, copies to a GPU, drives. Wants the machine for itself.\n";

#define MAX_WORDS 16
#define MAX_PATHS_BYTES 4096

struct all {
    const char *device;
    char threads[24], paths[MAX_PATHS_BYTES], block[24], depth[24], size[24];
    struct zinf_config *config; /* NULL: of any training */
    bool cuda;
    int status; /* the worst so far */
};

struct words {
    const char *item[MAX_WORDS + 1];
    int n;
};

static void add(struct words *w, const char *option, const char *value)
{
    if (value && *value && w->n + 2 <= MAX_WORDS) {
        w->item[w->n++] = option;
        w->item[w->n++] = value;
    }
}

/* The command that a mode would be, which anybody can repeat, and what it says. */
static void run_mode(struct all *all, const struct cli_command *mode, struct words *w)
{
    printf("%szinf %s", all->status < 0 ? "" : "\n", mode->name);
    for (int i = 0; i < w->n; i++)
        printf(" %s", w->item[i]);
    putchar('\n');
    fflush(stdout);
    const char *argv[MAX_WORDS + 2] = {mode->name};
    memcpy(argv + 1, w->item, (size_t)w->n * sizeof *argv);
    bench_watch();
    int status = cli_run(mode, w->n + 1, (char **)argv);
    all->status = status > all->status ? status : all->status;
    fflush(stdout);
}

static void add_device(const struct all *all, struct words *w)
{
    add(w, "--device", all->device);
    add(w, "--threads", all->cuda ? NULL : all->threads);
}

static void run_type(struct all *all, const struct cli_command *mode, const char *dtype)
{
    struct words w = {.n = 0};
    add(&w, "--type", dtype);
    add_device(all, &w);
    run_mode(all, mode, &w);
}

/* By which the CPU updates whole matrices, whatever the device is. */
static void run_updates(struct all *all)
{
    struct words w = {.n = 0};
    add(&w, "--type", "fp32");
    add(&w, "--device", "host");
    add(&w, "--threads", all->threads);
    run_mode(all, &bench_gemm, &w);
}

static void run_optim(struct all *all)
{
    struct words w = {.n = 0};
    const char *optimizer = NULL, *form = NULL;
    if (all->config)
        speeds_optimizer_form(all->config, &optimizer, &form);
    add(&w, "--optimizer", optimizer);
    add(&w, "--form", form);
    add(&w, "--threads", all->threads);
    run_mode(all, &bench_optim, &w);
}

static void run_drives(struct all *all)
{
    struct words w = {.n = 0};
    add(&w, "--path", all->paths);
    if (w.n)
        add(&w, "--size", all->size);
    add(&w, "--block-size", all->block);
    add(&w, "--queue-depth", all->depth);
    if (w.n)
        run_mode(all, &bench_nvme, &w);
    else
        puts("\ndrives are left out: name a folder on each with --path, or give --config");
}

static void run_all(struct all *all)
{
    struct words memory = {.n = 0}, none = {.n = 0};
    add_device(all, &memory);
    run_mode(all, &bench_memory, &memory);
    if (all->config) {
        const bool updates = zinf_updates_matrices(all->config);
        if (!updates || all->cuda || all->config->dtype != ZINF_DTYPE_F32)
            run_type(all, &bench_gemm, zinf_dtype_name(all->config->dtype));
        if (updates)
            run_updates(all);
        run_type(all, &bench_attention, zinf_dtype_name(all->config->dtype));
    } else {
        run_type(all, &bench_gemm, "bf16");
        run_type(all, &bench_gemm, "fp32");
        run_type(all, &bench_attention, "bf16");
        run_type(all, &bench_attention, "fp32");
    }
    run_optim(all);
    if (all->cuda)
        run_mode(all, &bench_pcie, &none);
    run_drives(all);
    puts("\nkept for zinf estimate, which prints the source of each rate, and for trainings");
}

/* Drives and their settings as the training has them. */
static int read_config(struct all *all, const char *path, int64_t threads)
{
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    context.no_training = context.quiet = context.show = true;
    const struct zinf_config_setting setting = {
        .key = "zinf.threads", .number = (double)threads, .name = "--threads"};
    int code = threads > 0 ? zinf_config_settings_add(&context.settings, &setting) : 0;
    if (!code)
        code = zinf_config_load(&all->config, path, &context);
    if (code)
        return code;
    const struct zinf_config *c = all->config;
    const struct zinf_config_offload *drives =
        c->offload_optimizer.device == ZINF_PLACE_NVME ? &c->offload_optimizer : &c->offload_param;
    size_t used = 0;
    for (int i = 0; drives->device == ZINF_PLACE_NVME && i < drives->n_nvme_paths; i++)
        used += (size_t)snprintf(all->paths + used,
                                 used < sizeof all->paths ? sizeof all->paths - used : 0, "%s%s",
                                 i ? "," : "", drives->nvme_path[i]);
    if (used >= sizeof all->paths)
        return zinf_fail(-EINVAL, "nvme_path: the names are too long for one measurement");
    if (used) {
        snprintf(all->block, sizeof all->block, "%lldB", (long long)c->aio.block_size);
        snprintf(all->depth, sizeof all->depth, "%lld", (long long)c->aio.queue_depth);
    }
    if (c->threads > 0)
        snprintf(all->threads, sizeof all->threads, "%lld", (long long)c->threads);
    return 0;
}

struct all_options {
    const char *config, *path;
    enum zinf_device_kind device;
    int64_t threads, bytes;
};

#define AT(field) .offset = offsetof(struct all_options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--config", TEXT, AT(config), "FILE",
     "of a training: its number type, optimizer, drives and their settings",
     .otherwise = "bf16 and fp32, AdamW"),
    OPTION("--path", TEXT, AT(path), "DIR[,DIR...]", "on the drives",
     .otherwise = "nvme_path of the configuration; without either drives are left out"),
    OPTION("--size", SIZE, AT(bytes), "SIZE", "data for the drives",
     .otherwise = "what is written in 7 s, 1GiB to 32GiB"),
    OPTION("--device", WORD, AT(device), "NAME", "auto, host or cuda", .words = job_device_words,
     .usual = "auto"),
    OPTION("--threads", INTEGER, AT(threads), "N", "of the CPU", .min = 1, .max = 4096,
     .otherwise = "all CPUs"),
    CLI_NO_ROW
};
/* clang-format on */

static int work(struct cli_call *call)
{
    const struct all_options *o = call->options;
    struct all all = {.status = -1};
    int code = o->config ? read_config(&all, o->config, o->threads) : 0;
    if (code)
        return code;
    all.device = o->device == ZINF_DEVICE_AUTO ? NULL : job_device_words[o->device];
    if (o->threads > 0)
        snprintf(all.threads, sizeof all.threads, "%lld", (long long)o->threads);
    if (o->bytes > 0)
        snprintf(all.size, sizeof all.size, "%lldB", (long long)o->bytes);
    if (o->path)
        snprintf(all.paths, sizeof all.paths, "%s", o->path);
    all.cuda = o->device == ZINF_DEVICE_CUDA ||
               (o->device == ZINF_DEVICE_AUTO && !zinf_device_cuda_why_not());
    run_all(&all);
    zinf_config_destroy(all.config);
    return all.status > 0 ? all.status : CLI_OK;
}

const struct cli_command bench_all = {
    .name = "bench all",
    .summary = "",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}),
    .bytes = sizeof(struct all_options),
    .work = work,
};
