/*
 * doctor_step: two steps of a tiny model on the GPU and on the host, by the command itself in
 * processes of their own, so that it is seen as the user will have it, and a fault of the GPU ends
 * nothing else.
 */
#include "cli/doctor/doctor.h"
#include "cli/folder.h"

#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Runs the command with these words, quietly; its status. */
static int run_self(char *const *words)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (!posix_spawn(&child, "/proc/self/exe", &actions, NULL, words, environ))
        waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

static bool write_file(const char *folder, const char *name, const char *text, int repeat)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    bool good = file;
    for (int i = 0; good && i < repeat; i++)
        good = fputs(text, file) >= 0;
    return file && !fclose(file) && good;
}

/* The last "loss" of a log; NaN: there is none. */
static double last_loss(const char *path)
{
    char line[4096];
    double loss = NAN;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *found = strstr(line, "\"loss\":");
        if (found)
            loss = strtod(found + strlen("\"loss\":"), NULL);
    }
    if (file)
        fclose(file);
    return loss;
}

static double train(const char *folder, const char *device)
{
    char model[512], data[512], config[512], log[512], output[512];
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(data, sizeof data, "%s/text.txt", folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(log, sizeof log, "%s/%s.jsonl", folder, device);
    snprintf(output, sizeof output, "%s/%s", folder, device);
    char *words[] = {"zinf",       "train",
                     "--model",    model,
                     "--data",     data,
                     "--config",   config,
                     "--log",      log,
                     "--output",   output,
                     "--device",   (char *)(uintptr_t)device,
                     "--steps",    "2",
                     "--seq-len",  "32",
                     "--dropout",  "0",
                     "--progress", "none",
                     NULL};
    return run_self(words) ? NAN : last_loss(log);
}

static bool make_model(const char *folder)
{
    static const char config[] =
        "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_clipping\": 1.0,\n"
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}},\n"
        "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"},\n"
        "\"offload_optimizer\": {\"device\": \"cpu\"}}}\n";
    char model[512];
    snprintf(model, sizeof model, "%s/model", folder);
    char *words[] = {"zinf",      "init", "--output",    model,   "--layers", "2",
                     "--hidden",  "64",   "--heads",     "2",     "--vocab",  "300",
                     "--context", "64",   "--tokenizer", "bytes", NULL};
    return write_file(folder, "config.json", config, 1) &&
           write_file(folder, "text.txt", "the quick brown fox jumps over the lazy dog\n", 40) &&
           !run_self(words);
}

static void compare(struct doctor *d, const char *folder)
{
    if (!make_model(folder)) {
        doctor_line(d, "step", DOCTOR_FAILED, "set TMPDIR to a folder on a drive with some room",
                    "no tiny model in %s", folder);
        return;
    }
    double cuda = train(folder, "cuda"), host = train(folder, "host");
    double distance = fabs(cuda - host) / fabs(host);
    if (distance < 1e-4) /* fp32: seen 1e-6 */
        doctor_line(d, "step", DOCTOR_OK, NULL, "loss %.6f, %.6f on the host", cuda, host);
    else
        doctor_line(d, "step", DOCTOR_FAILED,
                    "train a small model with --device cuda, which says more; compute-sanitizer "
                    "finds a kernel that reads or writes beside its memory",
                    "loss %.6f, %.6f on the host", cuda, host);
}

void doctor_step(struct doctor *d)
{
    char folder[CLI_FOLDER_BYTES];
    if (cli_folder_make(folder, "doctor"))
        doctor_line(d, "step", DOCTOR_LEFT_OUT, "set TMPDIR to a folder that can be written", "%s",
                    zinf_error());
    else
        compare(d, folder);
    cli_folder_remove(folder);
}
