/*
 * faults: what the tests of damage share: settings of tiny trainings, their life in processes of
 * their own, copies of what they leave, and the judgement of what a damaged one does then.
 */
#ifndef ZINF_TESTS_FAULTS_H
#define ZINF_TESTS_FAULTS_H

#include "build-config.h"

#include "train_support.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/wait.h>

#include "base/random.h"

#define FAULT_STEPS "24"
#define MAX_FILES 256

/* One training; n makes others. */
struct fault_setting {
    const char *param, *optimizer, *schedule;
    double sub_group;
    int paths, accumulation;
    bool saves, async, flush, half;
    const char *kind;   /* of the optimizer */
    const char *engine; /* of I/O; NULL: auto */
};

static char faults_zinf[600], faults_model[600], faults_text[600];
static char faults_config[600], faults_out[600], faults_drive[600], faults_said[600];
static uint64_t faults_seed, faults_drawn;

static inline uint32_t faults_draw(uint64_t n)
{
    uint32_t counter[4] = {(uint32_t)faults_drawn, (uint32_t)(faults_drawn >> 32)}, bits[4];
    faults_drawn++;
    zinf_philox(counter, faults_seed, bits);
    return (uint32_t)((((uint64_t)bits[0] << 32) | bits[1]) % (n ? n : 1));
}

/* Neighbours differ in most of it, so that a few of them already cover much. */
static inline struct fault_setting fault_setting_of(int n)
{
    static const char *const places[] = {"nvme", "cpu", "none"};
    static const char *const schedules[] = {"prefetch", "update-in-backward", "serial",
                                            "update-in-forward"};
    static const char *const kinds[] = {"AdamW", "AdamW", "Adam", "Lion", "Adagrad", "SGD"};
    static const double sizes[] = {100000, 1000, 1e9, 10000};
    return (struct fault_setting){
        .param = places[n % 3],
        .optimizer = n % 9 == 8   ? "none"
                     : n % 9 == 5 ? "cpu"
                                  : "nvme",
        .schedule = schedules[n % 4],
        .sub_group = sizes[(n + n / 4) % 4],
        .paths = 1 + (n / 2) % 2,
        .accumulation = 1 + n % 2,
        .saves = n % 9 == 8 || n % 9 == 5 || n % 5 == 3,
        .async = n % 10 == 3,
        .flush = n % 7 == 6,
        .half = n % 11 == 10,
        .kind = kinds[n % 6],
    };
}

static inline void faults_path(char buffer[700], int path)
{
    snprintf(buffer, 700, "%s/%d", faults_drive, path);
}

static inline void faults_write_config(const struct fault_setting *s)
{
    char content[4096], paths[1500], a[700], b[700];
    faults_path(a, 0);
    faults_path(b, 1);
    snprintf(paths, sizeof paths, s->paths == 2 ? "[\"%s\", \"%s\"]" : "\"%s\"", a, b);
    bool steps = !strcmp(s->optimizer, "nvme");
    snprintf(content, sizeof content,
             "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": %d,"
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 1e-3}},"
             "\"%s\": {\"enabled\": true}, \"zinf\": {\"schedule\": \"%s\", \"durability\": \"%s\","
             "\"durability_flush\": %s, \"async_save\": %s, \"io_engine\": \"%s\"}, "
             "\"zero_optimization\": {\"stage\": 3,"
             "\"sub_group_size\": %.0f,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": %s},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": %s}}}",
             s->accumulation, s->kind, s->half ? "fp16" : "bf16", s->schedule,
             steps ? "step" : "auto", s->flush ? "true" : "false", s->async ? "true" : "false",
             s->engine ? s->engine : "auto", s->sub_group, s->param, paths, s->optimizer, paths);
    CHECKF(!zinf_file_write_atomic(faults_config, content, strlen(content)), "%s", zinf_error());
}

/* zinf with these words, standard error into the file "said"; words ends with NULL. */
static inline pid_t faults_start(const char *const *words)
{
    pid_t child = fork();
    if (child)
        return child;
    dup2(open("/dev/null", O_WRONLY), 1);
    dup2(open(faults_said, O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    execv(faults_zinf, (char *const *)(uintptr_t)words);
    _exit(127);
}

static inline int faults_wait(pid_t child)
{
    int status = -1;
    for (int waited_ms = 0; waited_ms < 120000; waited_ms += 2) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        usleep(2000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 2000; /* it hung */
}

static inline pid_t faults_train(const struct fault_setting *s, const char *steps)
{
    const char *words[] = {faults_zinf, "train",      "--model",     faults_model, "--data",
                           faults_text, "--config",   faults_config, "--output",   faults_out,
                           "--steps",   steps,        "--seq-len",   "16",         "--threads",
                           "1",         "--progress", "none",        "--resume",   NULL,
                           NULL,        NULL,         NULL,          NULL};
    if (s->saves) {
        words[19] = "--save-every";
        words[20] = "2";
        words[21] = "--save-total-limit";
        words[22] = "2";
    }
    return faults_start(words);
}

static inline int faults_shell(const char *format, ...)
{
    char command[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

/* The folders stay themselves: what belongs to them knows them again. */
static inline void faults_clear(void)
{
    CHECK(!faults_shell("find '%s' '%s/0' '%s/1' -mindepth 1 -delete", faults_out, faults_drive,
                        faults_drive));
}

static inline void faults_keep(const char *name)
{
    CHECK(!faults_shell("rm -rf '%s/%s' && mkdir '%s/%s' && cp -a '%s/left' '%s/%s/'", work, name,
                        work, name, work, work, name));
}

static inline void faults_put_back(const char *name)
{
    faults_clear();
    CHECK(!faults_shell("cd '%s/%s/left' && cp -a out/. '%s/' && cp -a drive/. '%s/'", work, name,
                        faults_out, faults_drive));
}

static inline void faults_begin(const char *name)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 2, .hidden = 32, .heads = 2, .vocab = 257, .context = 32};
    char path[700];
    const char *build = getenv("BUILDDIR");
    make_work(name);
    snprintf(faults_zinf, sizeof faults_zinf, "%s/zinf", build ? build : ".");
    in_work(faults_config, "config.json");
    in_work(faults_said, "said");
    CHECK(!zinf_make_dirs(in_work(faults_out, "left/out")));
    in_work(faults_drive, "left/drive");
    for (int i = 0; i < 2; i++) {
        faults_path(path, i);
        CHECK(!zinf_make_dirs(path));
    }
    make_model(faults_model, "model", &shape, 3);
    make_text(faults_text, "text.txt", 40);
    setenv("ZINF_LOG", "info", 1);
}

/* Lines of the log, each up to what is time. */
static inline uint64_t faults_sum_of_log(const char *folder, int *lines)
{
    char path[700], *data = NULL, *rest;
    size_t bytes;
    uint64_t sum = 14695981039346656037u;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    *lines = 0;
    if (zinf_file_read(path, 1 << 24, &data, &bytes))
        return 0;
    for (char *line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        for (size_t i = 0, n = strcspn(line, "g"); i < n; i++)
            sum = (sum ^ (uint8_t)line[i]) * 1099511628211u;
        ++*lines;
    }
    free(data);
    return sum;
}

static inline char *faults_what_was_said(void)
{
    char *text = NULL;
    size_t bytes;
    return zinf_file_read(faults_said, 1 << 20, &text, &bytes) ? strdup("") : text;
}

static inline bool faults_same(const char *a, const char *b)
{
    return !faults_shell("cmp -s '%s' '%s'", a, b);
}

#endif
