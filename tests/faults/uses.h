/*
 * uses: what is made of a finished training: it is measured, continued, merged, exported and
 * verified, each time with one byte of what it was made from changed. Kept in "left" meanwhile.
 */
#ifndef ZINF_TESTS_FAULTS_USES_H
#define ZINF_TESTS_FAULTS_USES_H

#include "killed.h"

enum use {
    USE_EVAL,
    USE_GENERATE,
    USE_MERGE,
    USE_MERGE_CHECKPOINT,
    USE_ADD_UP,
    USE_MORE,
    ADAPTERS_ALONE, /* the uses above */
    USE_EXPORT = ADAPTERS_ALONE,
    USE_VERIFY,
    USES,
};
static const char *const use_names[] = {
    "eval",           "generate", "merge", "merge checkpoint", "export adapters",
    "train adapters", "export",   "verify"};
static int counts_of_uses[USES][OUTCOMES];
static uint64_t sums_of_uses[USES]; /* of what each makes where nothing is changed */
static char use_made[600];          /* the folder that a use writes */

/* What of a training's files a use could know to be damaged. */
struct use_target {
    char path[900];
    bool decides; /* any byte of it, so that verify must see it */
};
static struct use_target use_targets[MAX_FILES];
static int n_use_targets;

static pid_t use_start(enum use use, const struct fault_setting *s)
{
    static char model[700], checkpoint[700];
    const char *base = faults_models[s->model];
    const char *q = s->quantize ? "--quantize" : NULL;
#define HOST "--threads", "1", "--device", "host"
    const char *const words[USES][24] = {
        [USE_EVAL] = {"", "eval", "--model", base, "--adapter", model, "--data", faults_text,
                      "--seq-len", "16", HOST, q, s->quantize},
        [USE_GENERATE] = {"", "generate", "--model", base, "--adapter", model, "--prompt", "line 1",
                          "--max-new-tokens", "6", "--temperature", "0", HOST, q, s->quantize},
        [USE_MERGE] = {"", "export", "--merge", "--checkpoint", model, "--model", base, "--output",
                       use_made},
        [USE_MERGE_CHECKPOINT] = {"", "export", "--merge", "--checkpoint", checkpoint, "--model",
                                  base, "--output", use_made},
        [USE_ADD_UP] = {"", "export", "--adapter", model, checkpoint, "--output", use_made},
        [USE_MORE] = {"", "train", "--model", base, "--adapter", model, "--data", faults_text,
                      "--seq-len", "16", "--steps", "2", "--output", use_made, "--progress", "none",
                      HOST, q, s->quantize},
        [USE_EXPORT] = {"", "export", "--checkpoint", checkpoint, "--output", use_made},
        [USE_VERIFY] = {"", "verify", faults_out},
    };
#undef HOST
    snprintf(model, sizeof model, "%s/model", faults_out);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-" FAULT_STEPS, faults_out);
    CHECK(!zinf_make_dirs(use_made) && folders_empty(use_made) && !rmdir(use_made));
    int ranks = faults_ranks;
    faults_ranks = 1;
    pid_t child = faults_start(words[use]);
    faults_ranks = ranks;
    return child;
}

static uint64_t use_sum;

/* In any order: the sum of sums. Logs and names of runs are none of what was asked for. */
static int use_add_file(const char *path, const struct stat *info, int type, struct FTW *at)
{
    char *data = NULL;
    size_t bytes = 0;
    const char *name = path + strlen(use_made);
    (void)info, (void)at;
    bool counts = strstr(name, ".safetensors") || !strstr(use_made, "more");
    if (type == FTW_F && counts && !zinf_file_read(path, 1u << 24, &data, &bytes))
        use_sum += XXH3_64bits(data, bytes) ^ XXH3_64bits(name, strlen(name));
    free(data);
    return 0;
}

static uint64_t sum_of_use(enum use use)
{
    char made[600], *text = NULL;
    size_t bytes = 0;
    use_sum = 0;
    if (use == USE_VERIFY)
        return 0;
    if (use > USE_GENERATE)
        nftw(use_made, use_add_file, 8, FTW_PHYS);
    else if (!zinf_file_read(in_work(made, "made"), 1 << 20, &text, &bytes))
        use_sum = XXH3_64bits(text, bytes);
    free(text);
    return use_sum;
}

static int run_use(enum use use, const struct fault_setting *s)
{
    in_work(use_made, use == USE_MORE ? "made-more" : "made-folder");
    return faults_wait(use_start(use, s));
}

/* ---- what is changed ---- */

static const struct fault_setting *use_setting;

static int use_see(const char *path, const struct stat *info, int type, struct FTW *at)
{
    struct use_target *t = &use_targets[n_use_targets];
    const bool model = strstr(path, faults_models[use_setting->model]);
    const bool json = strstr(path, "config.json") && !strstr(path, "tokenizer_config.json");
    const bool adapted = use_setting->model == FAULT_ADAPTED;
    const bool weights = strstr(path, ".safetensors");
    (void)at;
    if (type != FTW_F || !info->st_size || n_use_targets == MAX_FILES)
        return 0;
    /* A whole model has no sums, and whoever has trained it needs no base. */
    if (!adapted && strstr(path, "/out/model/"))
        return 0;
    snprintf(t->path, sizeof t->path, "%s", path);
    t->decides = !json && (adapted || !model || !weights);
    n_use_targets++;
    return 0;
}

static void list_use_targets(const struct fault_setting *s)
{
    static const char *const folders[] = {"model", "checkpoint-" FAULT_STEPS};
    char path[700];
    n_use_targets = 0;
    use_setting = s;
    nftw(faults_models[s->model], use_see, 8, FTW_PHYS);
    nftw(faults_text, use_see, 8, FTW_PHYS);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", faults_out, folders[i]);
        nftw(path, use_see, 8, FTW_PHYS);
    }
}

/* The message names the file, or the folder it is in. */
static bool use_names_it(enum use use, const char *target)
{
    char made[600], folder[900], *said = faults_what_was_said(), *text = NULL;
    size_t bytes;
    const char *error = strstr(said, "zinf ");
    snprintf(folder, sizeof folder, "%s", target);
    *strrchr(folder, '/') = 0;
    bool named = error && (strstr(error, target) || strstr(error, folder));
    if (use == USE_VERIFY && !zinf_file_read(in_work(made, "made"), 1 << 20, &text, &bytes))
        named = strstr(text, target) || (error && strstr(error, target)) ||
                (strstr(target, "/checkpoint-") && strstr(text, folder));
    free(text);
    free(said);
    return named;
}

static enum outcome judge_use(enum use use, int status, const struct use_target *t)
{
    if (status)
        return use_names_it(use, t->path) ? REFUSED : UNNAMED;
    if (use == USE_VERIFY)
        return t->decides ? WRONG : SAME;
    return sum_of_use(use) == sums_of_uses[use] ? SAME : WRONG;
}

static void say_use(int setting, enum use use, const struct use_target *t, enum outcome outcome)
{
    char *said = faults_what_was_said(), *error = strstr(said, "zinf ");
    printf("# setting %d: %s with another %s: %s: %s\n", setting, use_names[use],
           t->path + strlen(work), outcome_names[outcome], error ? error : said);
    free(said);
}

/* Each use as it is, before anything is changed: it succeeds, and again with the same bits. */
static bool make_uses(const struct fault_setting *s, int setting)
{
    bool good = true;
    faults_put_back("whole");
    list_use_targets(s);
    for (int use = s->model == FAULT_ADAPTED ? 0 : ADAPTERS_ALONE; use < USES && good; use++) {
        if (use == USE_EXPORT && s->model == FAULT_ADAPTED)
            continue;
        for (int again = 0; again < 2 && good; again++) {
            int status = run_use((enum use)use, s);
            uint64_t sum = sum_of_use((enum use)use);
            char *said = faults_what_was_said();
            good = !status && (!again || sum == sums_of_uses[use]);
            CHECKF(good, "setting %d: %s ends with %d, unchanged: %s", setting, use_names[use],
                   status, said);
            sums_of_uses[use] = sum;
            free(said);
        }
    }
    return good;
}

#endif
