/*
 * faults: what the tests of damage share: the life of tiny trainings in processes of their own,
 * copies of what they leave, and looks at it.
 *
 * A training is the whole command in a forked child. Where something is preloaded into it, it is
 * the program; else the command's code in this one, which saves most of a start.
 */
#ifndef ZINF_TESTS_FAULTS_H
#define ZINF_TESTS_FAULTS_H

#include "build-config.h"

#include "train_support.h"

#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/random.h"
#include "cli/cli.h"
#include "folders.h"
#include "ports.h"
#include "settings.h"

#define FAULT_STEPS "14"
#define MAX_FILES 256

static char faults_zinf[600], faults_models[FAULT_MODELS][600], faults_text[600];
static char faults_config[600], faults_out[600], faults_drive[600], faults_said[600];
static const char *faults_preload;             /* NULL: the command's code in this program */
static const char *faults_resume = "--resume"; /* or --resume=DIR */
static int faults_ranks = 1;                   /* processes of a training */
static uint64_t faults_seed, faults_drawn;

/* Linked in place of statfs: a file system in memory is as good as any to be damaged, and thousands
 * of trainings are quicker there. */
int __real_statfs(const char *path, struct statfs *info);
int __wrap_statfs(const char *path, struct statfs *info);
int __wrap_statfs(const char *path, struct statfs *info)
{
    int code = __real_statfs(path, info);
    info->f_type = 0;
    return code;
}

static inline uint32_t faults_draw(uint64_t n)
{
    uint32_t counter[4] = {(uint32_t)faults_drawn, (uint32_t)(faults_drawn >> 32)}, bits[4];
    faults_drawn++;
    zinf_philox(counter, faults_seed, bits);
    return (uint32_t)((((uint64_t)bits[0] << 32) | bits[1]) % (n ? n : 1));
}

static inline void faults_path(char buffer[700], int path)
{
    snprintf(buffer, 700, "%s/%d", faults_drive, path);
}

static inline void faults_write_config(const struct fault_setting *s)
{
    char content[4096], paths[1500], number[64] = "", quantize[64] = "", a[700], b[700];
    faults_path(a, 0);
    faults_path(b, 1);
    snprintf(paths, sizeof paths, s->paths == 2 ? "[\"%s\", \"%s\"]" : "\"%s\"", a, b);
    if (strcmp(s->number, "fp32") != 0)
        snprintf(number, sizeof number, "\"%s\": {\"enabled\": true},", s->number);
    if (s->quantize)
        snprintf(quantize, sizeof quantize, ", \"quantize\": \"%s\"", s->quantize);
    snprintf(
        content, sizeof content,
        "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": %d,"
        "\"gradient_clipping\": %d, \"optimizer\": {\"type\": \"%s\","
        "\"params\": {\"lr\": 1e-3}}, %s"
        "\"zinf\": {\"placement\": \"exact\", \"schedule\": \"%s\", \"durability\": \"%s\","
        "\"durability_flush\": %s, \"async_save\": %s, \"io_engine\": \"%s\", \"pack\": \"%s\", "
        "\"seats\": %d%s%s%s},"
        "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": %.0f,"
        "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": %s},"
        "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": %s}}}",
        s->accumulation, strcmp(s->schedule, "update-in-place") != 0, s->kind, number, s->schedule,
        fault_keeps_steps(s) ? "step" : "auto", s->flush ? "true" : "false",
        s->async ? "true" : "false", s->engine ? s->engine : "auto", s->pack, s->seats,
        s->model == FAULT_ADAPTED ? ", \"adapter\": {\"r\": 4}" : "", quantize,
        s->extra ? s->extra : "", s->sub_group, s->param, paths, s->optimizer, paths);
    CHECKF(!zinf_file_write_atomic(faults_config, content, strlen(content)), "%s", zinf_error());
}

static inline int faults_command(const char *const *words)
{
    static const struct cli_command *const commands[] = {&cli_train,    &cli_verify, &cli_eval,
                                                         &cli_generate, &cli_export, &cli_init};
    int n = 1, i = 0;
    while (words[n])
        n++;
    while (strcmp(words[1], commands[i]->name))
        i++;
    return cli_run(commands[i], n - 1, (char **)(uintptr_t)(words + 1));
}

/* The other processes of a training, as torchrun starts them; this one is rank 0. */
static inline void faults_start_ranks(const char *const *words)
{
    char number[16];
    setpgid(0, 0);
    snprintf(number, sizeof number, "%u", take_port());
    setenv("MASTER_PORT", number, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("ZINF_NET_SECRET", "0123456789abcdef0123456789abcdef", 1);
    snprintf(number, sizeof number, "%d", faults_ranks);
    setenv("WORLD_SIZE", number, 1);
    setenv("LOCAL_WORLD_SIZE", number, 1);
    for (int rank = faults_ranks; rank-- > 0;) {
        snprintf(number, sizeof number, "%d", rank);
        setenv("RANK", number, 1);
        setenv("LOCAL_RANK", number, 1);
        if (!rank || fork())
            continue;
        int status = faults_command(words);
        fflush(NULL);
        _exit(status);
    }
}

/* zinf with these words, standard output and error into the files "made" and "said"; words ends
 * with NULL. */
static inline pid_t faults_start(const char *const *words)
{
    char made[600];
    fflush(stdout);
    pid_t child = fork();
    if (child)
        return child;
    dup2(open(in_work(made, "made"), O_WRONLY | O_CREAT | O_TRUNC, 0666), 1);
    dup2(open(faults_said, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666), 2);
    if (faults_preload) {
        setenv("LD_PRELOAD", faults_preload, 1);
        execv(faults_zinf, (char *const *)(uintptr_t)words);
        _exit(127);
    }
    if (faults_ranks > 1 && !strcmp(words[1], "train"))
        faults_start_ranks(words);
    int status = faults_command(words);
    fflush(NULL);
    _exit(status);
}

/* The ranks that a killed one leaves, too. */
static inline void faults_end_ranks(pid_t first)
{
    if (faults_ranks > 1) {
        kill(-first, SIGKILL);
        while (waitpid(-first, NULL, 0) > 0)
            ;
    }
}

static inline int faults_wait(pid_t child)
{
    int status = -1;
    for (int waited_ms = 0; waited_ms < 120000; waited_ms++) {
        if (waitpid(child, &status, WNOHANG) == child) {
            while (waitpid(-child, NULL, 0) > 0) /* other ranks */
                ;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        }
        usleep(1000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    faults_end_ranks(child);
    return 2000; /* it hung */
}

/* ZINF_TEST_DEVICE: another device than the host's. */
static inline pid_t faults_train(const struct fault_setting *s, const char *steps)
{
    const char *device = getenv("ZINF_TEST_DEVICE");
    const char *words[] = {faults_zinf,
                           "train",
                           "--model",
                           faults_models[s->model],
                           "--data",
                           faults_text,
                           "--config",
                           faults_config,
                           "--output",
                           faults_out,
                           "--steps",
                           steps,
                           "--seq-len",
                           "16",
                           "--threads",
                           "1",
                           "--progress",
                           "none",
                           faults_resume,
                           "--device",
                           device ? device : "host",
                           s->saves ? "--save-every" : NULL,
                           "2",
                           "--save-total-limit",
                           "2",
                           NULL};
    return faults_start(words);
}

static inline int faults_verify(bool repair)
{
    const char *words[] = {faults_zinf, "verify", faults_out, repair ? "--repair" : NULL, NULL};
    return faults_wait(faults_start(words));
}

/* The folders stay themselves: what belongs to them knows them again. */
static inline void faults_clear(void)
{
    char path[700];
    CHECK(folders_empty(faults_out));
    for (int i = 0; i < 2; i++) {
        faults_path(path, i);
        CHECK(folders_empty(path));
    }
}

static inline void faults_keep(const char *name)
{
    char from[600], to[600];
    in_work(from, "left");
    in_work(to, name);
    CHECK(!zinf_make_dirs(to) && folders_empty(to) && folders_copy(from, to));
}

static inline void faults_put_back(const char *name)
{
    char from[600], to[600];
    faults_clear();
    CHECK(folders_copy(in_work(from, name), in_work(to, "left")));
}

static inline void faults_make_models(void)
{
    struct zinf_model_shape dense = {
        .arch = "gpt2", .layers = 1, .hidden = 16, .heads = 2, .vocab = 257, .context = 32};
    struct zinf_model_shape experts = {
        .arch = "mixtral", .layers = 1, .hidden = 16, .heads = 2, .vocab = 257, .context = 32};
    struct zinf_model_shape mixed = {
        .arch = "falcon_h1", .layers = 1, .hidden = 16, .heads = 2, .vocab = 257, .context = 32};
    cJSON *config = NULL;
    make_model(faults_models[FAULT_DENSE], "dense", &dense, 3);
    make_model(faults_models[FAULT_MIXED], "mixed", &mixed, 3);
    make_model(faults_models[FAULT_ADAPTED], "adapted", &dense, 3);
    CHECK(!zinf_model_make_config(&experts, ZINF_DTYPE_F32, &config));
    cJSON_SetIntValue(cJSON_GetObjectItem(config, "intermediate_size"), 24);
    cJSON_SetIntValue(cJSON_GetObjectItem(config, "num_local_experts"), 4);
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, 3,
                                 in_work(faults_models[FAULT_EXPERTS], "experts")),
           "%s", zinf_error());
    cJSON_Delete(config);
}

static inline void faults_begin(const char *name)
{
    char path[700];
    const char *build = getenv("BUILDDIR");
    make_work(name);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* ranks whose first one was killed */
    snprintf(faults_zinf, sizeof faults_zinf, "%s/zinf", build ? build : ".");
    in_work(faults_config, "config.json");
    in_work(faults_said, "said");
    CHECK(!zinf_make_dirs(in_work(faults_out, "left/out")));
    in_work(faults_drive, "left/drive");
    for (int i = 0; i < 2; i++) {
        faults_path(path, i);
        CHECK(!zinf_make_dirs(path));
    }
    faults_make_models();
    make_text(faults_text, "text.txt", 40);
    setenv("ZINF_LOG", "info", 1);
}

/* Lines of the log so far. */
static inline int faults_log_lines(const char *folder)
{
    char path[700], *data = NULL;
    size_t bytes;
    int lines = 0;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    if (zinf_file_read(path, 1 << 24, &data, &bytes))
        return 0;
    for (size_t i = 0; i < bytes; i++)
        lines += data[i] == '\n';
    free(data);
    return lines;
}

static inline char *faults_what_was_said(void)
{
    char *text = NULL;
    size_t bytes;
    return zinf_file_read(faults_said, 1 << 20, &text, &bytes) ? strdup("") : text;
}

/* The model and the last checkpoint, moments and all, are those that the run beside it had. */
static inline bool faults_same_end(const char *whole, const char *steps)
{
    char expected[600], from[700], to[700];
    static const char *const folders[] = {"model", "checkpoint-"};
    in_work(expected, whole);
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/out/%s%s", expected, folders[i], i ? steps : "");
        snprintf(to, sizeof to, "%s/%s%s", faults_out, folders[i], i ? steps : "");
        if (!folders_same_tensors(from, to))
            return false;
    }
    return true;
}

#endif
