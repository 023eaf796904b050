/*
 * bench_optim: `zinf bench optim`. Each optimizer, in each form of its state, against a streaming
 * loop that moves the same bytes; the loop and the step take turns in one run.
 */
#include "cli/bench/bench.h"
#include "cpu_optim/optim_bench.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

static const char usage[] = "usage: zinf bench optim [options]\n"
                            "\n"
                            "Times one update of bf16 parameters from a bf16 gradient, in RAM.\n";

/* ---- what can be measured ---- */

struct form {
    const char *name;
    bool split;
    enum zinf_optim_moments moments;
    bool random;
};
static const struct form forms[] = {
    {"fp32", false, ZINF_OPTIM_MOMENTS_F32, false},
    {"split", true, ZINF_OPTIM_MOMENTS_F32, false},
    {"bf16", false, ZINF_OPTIM_MOMENTS_BF16, false},
    {"split-bf16", true, ZINF_OPTIM_MOMENTS_BF16, false},
    {"bf16-random", false, ZINF_OPTIM_MOMENTS_BF16, true},
    {"split-bf16-random", true, ZINF_OPTIM_MOMENTS_BF16, true},
    {"8bit", false, ZINF_OPTIM_MOMENTS_8BIT, false},
    {"split-8bit", true, ZINF_OPTIM_MOMENTS_8BIT, false},
};
#define N_FORMS ((int)(sizeof forms / sizeof *forms))
#define N_OPTIMIZERS (ZINF_OPTIM_KINDS + 1) /* the kinds, and Adafactor */

static const char *optimizer_name(int i)
{
    return i < ZINF_OPTIM_KINDS ? zinf_optim_name((enum zinf_optim_kind)i) : "Adafactor";
}

static bool has_form(int optimizer, const struct form *form)
{
    if (form->moments == ZINF_OPTIM_MOMENTS_8BIT)
        return optimizer == ZINF_OPTIM_ADAMW;
    return form->moments == ZINF_OPTIM_MOMENTS_F32 || optimizer < ZINF_OPTIM_KINDS;
}

/* A streaming loop over so many times the caches hardly finds anything in them. */
#define CACHES 4
#define LEAST_ELEMENT_BYTES 6 /* of all optimizers and forms: Adafactor's, split */

static uint64_t least_data_bytes(void)
{
    return CACHES * zinf_cache_bytes();
}

static int64_t default_elements(void)
{
    uint64_t enough = least_data_bytes() / LEAST_ELEMENT_BYTES + 1;
    return enough > 1 << 25 ? (int64_t)zinf_align_up(enough, 1 << 20) : 1 << 25;
}

/* ---- options ---- */

struct bench_optim_args {
    struct zinf_words optimizers, forms;
    int64_t elements, threads, repeats;
    bool json;
    bool optimizer_on[N_OPTIMIZERS], form_on[sizeof forms / sizeof *forms];
};

/* Marks in on what words name among count names; default_name where there are no words. */
static int select_names(const char *option, const struct zinf_words *words, const char **names,
                        int count, bool *on)
{
    on[0] = words->n == 0;
    for (int w = 0; w < words->n; w++) {
        const char *word = words->items[w];
        bool all = !strcasecmp(word, "all"), found = all;
        for (int i = 0; i < count; i++)
            if (all || !strcasecmp(word, names[i]))
                on[i] = found = true;
        if (!found) {
            const char *near = zinf_nearest(word, names, (size_t)count);
            return zinf_fail(-EINVAL, "%s '%s' is unknown%s%s%s", option, word,
                             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        }
    }
    return 0;
}

#define AT(field) .offset = offsetof(struct bench_optim_args, field)
#define IN(field) .at = offsetof(struct bench_optim_args, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--optimizer", TEXTS, AT(optimizers), "NAME...",
     "AdamW (default), Adam, Lion, Adagrad, SGD, Adafactor or all"),
    OPTION("--form", TEXTS, AT(forms), "NAME...",
     "how state is kept: fp32, split (both the default), bf16, bf16-random, 8bit for the moments; "
     "split-bf16, split-bf16-random, split-8bit; in a split one the master is the parameter and 16 "
     "bits more; or all"),
    OPTION("--elements", INTEGER, AT(elements), "N", "parameters", .min = 1, .max = 0x1p40,
     .otherwise = "33554432, more for large caches"),
    OPTION("--threads", INTEGER, AT(threads), "N", "of the update", .min = 1, .max = 4096,
     .otherwise = "all CPUs of this process"),
    OPTION("--repeats", INTEGER, AT(repeats), "N", "rounds, whose median counts", .min = 1,
     .max = 100000, .usual = "11"),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct bench_optim_args *a = call->options;
    const char *names[N_OPTIMIZERS + N_FORMS];
    for (int i = 0; i < N_OPTIMIZERS; i++)
        names[i] = optimizer_name(i);
    for (int i = 0; i < N_FORMS; i++)
        names[N_OPTIMIZERS + i] = forms[i].name;
    int code = select_names("--optimizer", &a->optimizers, names, N_OPTIMIZERS, a->optimizer_on);
    if (!code)
        code = select_names("--form", &a->forms, names + N_OPTIMIZERS, N_FORMS, a->form_on);
    for (int i = 0; i < N_FORMS && !a->forms.n; i++) /* of fp32 and of bf16 trainings */
        a->form_on[i] |= !strcmp(forms[i].name, "split");
    return code;
}

/* ---- results ---- */

static void print_result(const char *name, const char *form, const struct zinf_optim_bench *b)
{
    printf("%-9s %-17s %8.2f %9.1f %8.1f %8.1f %7.2f\n", name, form, b->seconds * 1e3,
           (double)b->n / b->seconds * 1e-6, (double)b->bytes / b->seconds * 1e-9, b->roof_gb_per_s,
           b->ratio);
    fflush(stdout);
}

/* Data that the CPU's caches hold says nothing about a training's. */
static void keep(const char *key, const struct zinf_optim_bench *b, const cJSON *rates)
{
    char data[16], caches[16];
    if (b->data_bytes >= least_data_bytes()) {
        bench_cache_save("optim", key, rates);
        return;
    }
    double elements = (double)b->n * (double)least_data_bytes() / (double)b->data_bytes;
    zinf_log_once(ZINF_LOG_INFO, "bench-small",
                  "%s is not kept for zinf estimate: its %s are not %d times the CPU's caches of "
                  "%s; give --elements %.0f or more",
                  key, zinf_size_format(data, sizeof data, b->data_bytes), CACHES,
                  zinf_size_format(caches, sizeof caches, zinf_cache_bytes()), ceil(elements));
}

/* Keeps the rates and, with --json, adds the result to list. */
static int record(cJSON *list, const char *name, const char *form, const struct zinf_optim_bench *b)
{
    char key[64];
    cJSON *kept = cJSON_CreateObject();
    if (!kept || !cJSON_AddNumberToObject(kept, "elements", (double)b->n / b->seconds) ||
        !cJSON_AddNumberToObject(kept, "bytes", (double)b->bytes / b->seconds) ||
        !cJSON_AddNumberToObject(kept, "roof", b->roof_gb_per_s * 1e9) ||
        !cJSON_AddNumberToObject(kept, "threads", b->n_threads)) {
        cJSON_Delete(kept);
        return zinf_fail(-ENOMEM, "no memory for the result");
    }
    snprintf(key, sizeof key, "%s/%s", name, form);
    keep(key, b, kept);
    if (!list) {
        cJSON_Delete(kept);
        return 0;
    }
    cJSON_AddItemToArray(list, kept);
    cJSON_AddStringToObject(kept, "optimizer", name);
    cJSON_AddStringToObject(kept, "form", form);
    cJSON_AddNumberToObject(kept, "seconds", b->seconds);
    cJSON_AddNumberToObject(kept, "bytes_per_step", (double)b->bytes);
    cJSON_AddNumberToObject(kept, "ratio", b->ratio);
    return 0;
}

static int measure(const struct bench_optim_args *args, int optimizer, const struct form *form,
                   cJSON *list)
{
    struct zinf_optim_bench bench = {
        .kind = optimizer < ZINF_OPTIM_KINDS ? (enum zinf_optim_kind)optimizer : ZINF_OPTIM_LION,
        .adafactor = optimizer == ZINF_OPTIM_KINDS,
        .isa = zinf_isa(),
        .n = (uint64_t)args->elements,
        .grad_dtype = ZINF_DTYPE_BF16,
        .param_dtype = ZINF_DTYPE_BF16,
        .split_master = form->split,
        .moments = form->moments,
        .stochastic_rounding = form->random,
        .n_threads = (int)args->threads,
        .repeats = (int)args->repeats,
    };
    int rc = zinf_optim_bench(&bench);
    if (!rc && !list)
        print_result(optimizer_name(optimizer), form->name, &bench);
    return rc ? rc : record(list, optimizer_name(optimizer), form->name, &bench);
}

static int measure_all(const struct bench_optim_args *args, cJSON *list)
{
    int rc = 0, measured = 0;
    for (int o = 0; o < N_OPTIMIZERS && !rc; o++)
        for (int f = 0; f < N_FORMS && !rc; f++)
            if (args->optimizer_on[o] && args->form_on[f] && has_form(o, &forms[f])) {
                rc = measure(args, o, &forms[f], list);
                measured++;
            }
    if (!rc && !measured)
        rc = zinf_fail(-EINVAL, "no such form: bf16 moments are of all but Adafactor, 8-bit ones "
                                "of AdamW");
    return rc;
}

/* Packing can hardly take less of an update than this; what a busy machine measures can be less
 * than nothing. */
#define LEAST_PART 0.02

/* Bytes a second by which an update becomes longer. */
static double packing_rate(uint64_t bytes, double seconds, double without)
{
    return (double)bytes / fmax(seconds - without, LEAST_PART * seconds);
}

static void print_packing(const struct zinf_pack_bench *b)
{
    const struct {
        const char *form;
        double seconds;
    } rows[] = {{"off", b->plain_seconds}, {"state", b->state_seconds}, {"all", b->all_seconds}};
    for (int i = 0; i < 3; i++)
        printf("%-9s %-17s %8.2f %9.1f\n", "packing", rows[i].form, rows[i].seconds * 1e3,
               (double)b->n / rows[i].seconds * 1e-6);
    printf("%-9s %-17s %8.2f %9.1f %8.1f\n", "unpacking", "bf16", b->unpack_seconds * 1e3,
           (double)b->n / b->unpack_seconds * 1e-6,
           (double)b->param_bytes / b->unpack_seconds * 1e-9);
}

/* Of packed state, whatever the optimizer: as rows of their own. */
static int measure_packing(const struct bench_optim_args *args, cJSON *result)
{
    struct zinf_pack_bench bench = {
        .n = (uint64_t)args->elements,
        .n_threads = (int)args->threads,
        .repeats = (int)args->repeats,
    };
    int code = zinf_pack_bench(&bench);
    cJSON *kept = code ? NULL : cJSON_CreateObject();
    if (!kept)
        return code;
    cJSON_AddNumberToObject(
        kept, "bytes", packing_rate(bench.state_bytes, bench.state_seconds, bench.plain_seconds));
    cJSON_AddNumberToObject(
        kept, "half_bytes",
        packing_rate(bench.param_bytes, bench.all_seconds, bench.state_seconds));
    cJSON_AddNumberToObject(kept, "unpack_bytes", (double)bench.param_bytes / bench.unpack_seconds);
    cJSON_AddNumberToObject(kept, "threads", bench.n_threads);
    if (bench.state_bytes >= least_data_bytes())
        bench_cache_save("optim", "packing", kept);
    if (result) {
        cJSON_AddItemToObject(result, "packing", kept);
        return 0;
    }
    print_packing(&bench);
    cJSON_Delete(kept);
    return 0;
}

static int work(struct cli_call *call)
{
    struct bench_optim_args *a = call->options;
    cJSON *result = a->json ? cJSON_CreateObject() : NULL, *list = NULL;
    a->elements = a->elements ? a->elements : default_elements();
    a->threads = a->threads ? a->threads : zinf_optim_thread_count(0);
    if (result) {
        cJSON_AddStringToObject(result, "isa", zinf_isa_name(zinf_isa()));
        cJSON_AddNumberToObject(result, "threads", (double)a->threads);
        cJSON_AddNumberToObject(result, "elements", (double)a->elements);
        list = cJSON_AddArrayToObject(result, "results");
    } else {
        printf("%lld elements, %d threads, %s\n", (long long)a->elements, (int)a->threads,
               zinf_isa_name(zinf_isa()));
        printf("%-9s %-17s %8s %9s %8s %8s %7s\n", "optimizer", "form", "step ms", "M elem/s",
               "GB/s", "roof", "ratio");
    }
    int code = measure_all(a, list);
    if (!code)
        code = measure_packing(a, result);
    return bench_finish(call->command, result, code);
}

const struct cli_command bench_optim = {
    .name = "bench optim",
    .summary = "",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}, {.rows = cli_json, IN(json)}),
    .bytes = sizeof(struct bench_optim_args),
    .check = check,
    .work = work,
};
