/*
 * A real training is killed with SIGKILL again and again and started again with --resume: at random
 * times, in its steps, while a checkpoint is being written, and around its rename; with
 * checkpoints, with steps that outlive the process, and with both. After every kill whatever has a
 * checkpoint's name is whole, and the step on the drive is the last one logged or, where its
 * updates are late, the one before. Whenever a run comes to its end, its weights and its log are
 * those of the run that nobody killed. ZINF_TEST_KILLS, for each way, makes it longer;
 * ZINF_TEST_WAY takes one way only.
 */
#include "aio/steps.h"
#include "train_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/wait.h>

#include "base/random.h"
#include "train/checkpoints.h"

#define KILLS 4
#define STEPS "30"
#define START_US 250000 /* a random kill comes within this time */
#define SAVE_US 40000   /* and one in a save within this one */
#define STEP_US 25000   /* and one in steps */

enum moment {
    ANY_TIME,
    IN_STEPS,       /* when a step has been logged */
    IN_A_SAVE,      /* when tmp-checkpoint-N is there */
    AFTER_A_RENAME, /* when checkpoint-N or latest is: then the old one is removed */
    MOMENTS,
};
static const char *const moment_names[] = {"at any time", "in steps", "in a save",
                                           "after a rename"};

/* How a training is kept; the numbers do not depend on it. */
struct way {
    const char *name, *keys; /* of the zinf section */
    bool saves, steps;
    bool adapts; /* trains adapters: other numbers, other files */
    bool fills;  /* RAM has parameters in some lives, and in others not */
};
static const struct way ways[] = {
    {.name = "checkpoints", .keys = "\"durability\": \"none\"", .saves = true},
    {.name = "steps", .keys = "\"durability\": \"step\"", .steps = true},
    {.name = "parameters in RAM",
     .keys = "\"durability\": \"step\"",
     .saves = true,
     .steps = true,
     .fills = true},
    {.name = "steps and checkpoints",
     .keys = "\"durability\": \"auto\"",
     .saves = true,
     .steps = true},
    {.name = "late updates",
     .keys = "\"durability\": \"step\", \"schedule\": \"update-in-forward\"",
     .steps = true},
    {.name = "one after the other",
     .keys = "\"durability\": \"step\", \"schedule\": \"serial\"",
     .steps = true},
    {.name = "flushed",
     .keys = "\"durability\": \"step\", \"durability_flush\": true",
     .steps = true},
    {.name = "async saves",
     .keys = "\"durability\": \"none\", \"async_save\": true",
     .saves = true},
    {.name = "steps and async saves",
     .keys = "\"durability\": \"step\", \"async_save\": true",
     .saves = true,
     .steps = true},
    {.name = "parameters in RAM, async saves",
     .keys = "\"durability\": \"step\", \"async_save\": true, \"pack\": \"all\"",
     .saves = true,
     .steps = true,
     .fills = true},
    {.name = "adapters",
     .keys = "\"durability\": \"step\", \"adapter\": {\"r\": 4}",
     .saves = true,
     .steps = true,
     .adapts = true},
};
#define WAYS (sizeof ways / sizeof *ways)

static const struct way *way;
static char zinf[600], model[600], text[600], drive[600], config[600], out[600];
static char wholes[2][600]; /* of runs that nobody killed; [1]: that adapts */
static char said[600];      /* standard error of the last run */
static uint32_t n_drawn;

static uint32_t draw(uint32_t n)
{
    uint32_t counter[4] = {n_drawn++}, bits[4];
    zinf_philox(counter, 9, bits);
    return bits[0] % n;
}

static pid_t start(const char *output)
{
    pid_t child = fork();
    if (child)
        return child;
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(open(said, O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    setenv("ZINF_LOG", "error", 1);
    execl(zinf, zinf, "train", "--model", model, "--data", text, "--config", config, "--output",
          output, "--steps", STEPS, "--seq-len", "16", "--threads", "1", "--progress", "none",
          "--resume", way->saves ? "--save-every" : NULL, "2", "--save-total-limit", "2", NULL);
    _exit(127);
}

/* Waits until the folder sees a name of this kind, or the process ends, or a minute. */
static void wait_for_name(int watch, pid_t child, enum moment moment)
{
    static const char *const starts[] = {"", "", "tmp-checkpoint-", "checkpoint-"};
    char buffer[4096] __attribute__((aligned(8)));
    for (int waited_ms = 0; waited_ms < 60000; waited_ms += 20) {
        struct pollfd ready = {.fd = watch, .events = POLLIN};
        siginfo_t info = {0};
        if (poll(&ready, 1, 20) > 0) {
            ssize_t n = read(watch, buffer, sizeof buffer);
            for (char *at = buffer; at < buffer + n;) {
                struct inotify_event *event = (struct inotify_event *)(void *)at;
                bool late = moment == AFTER_A_RENAME && !strcmp(event->name, "latest");
                if (event->len &&
                    (late || !strncmp(event->name, starts[moment], strlen(starts[moment]))))
                    return;
                at += sizeof *event + event->len;
            }
        }
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
            return;
    }
}

static int64_t bytes_of_log(void)
{
    char path[700];
    struct stat info;
    snprintf(path, sizeof path, "%s/log.jsonl", out);
    return stat(path, &info) ? -1 : (int64_t)info.st_size;
}

/* Waits until the log grows, or the process ends, or a minute. */
static void wait_for_step(pid_t child)
{
    int64_t last = bytes_of_log();
    for (int waited = 0; waited < 60000; waited++) {
        siginfo_t info = {0};
        int64_t now = bytes_of_log();
        if (now > last || waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) ||
            info.si_pid)
            return;
        last = now;
        usleep(1000);
    }
}

/* What the run's last line was, where it should not have ended so. */
static void check_status(int status, bool may_be_killed)
{
    char *line = NULL;
    size_t bytes;
    bool good = may_be_killed && WIFSIGNALED(status);
    good = good || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (good || zinf_file_read(said, 1 << 20, &line, &bytes))
        line = NULL;
    const char *last = line ? strstr(line, "zinf train:") : NULL;
    CHECKF(good, "status %d: %s", status, last ? last : "");
    free(line);
}

/* Step and loss of each line; the rest of a line is times. */
static uint64_t sum_of_log(const char *folder, int *lines)
{
    char path[700], *data = NULL, *rest;
    size_t bytes;
    uint64_t sum = 14695981039346656037u;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    *lines = 0;
    if (zinf_file_read(path, 1 << 24, &data, &bytes))
        return 0;
    for (char *line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        size_t length = strcspn(line, "g"); /* up to "grad_norm" */
        for (size_t i = 0; i < length; i++)
            sum = (sum ^ (uint8_t)line[i]) * 1099511628211u;
        ++*lines;
    }
    free(data);
    return sum;
}

static void check_end(void)
{
    int lines_here, lines_there;
    const char *whole = wholes[way->adapts];
    uint64_t here = sum_of_log(out, &lines_here), there = sum_of_log(whole, &lines_there);
    CHECK(same_file(out, whole,
                    way->adapts ? "model/" ZINF_ADAPTER_WEIGHTS : "model/model.safetensors"));
    CHECKF(here == there && lines_here == lines_there, "the log has %d and %d lines", lines_here,
           lines_there);
    if (way->saves)
        CHECK(same_file(out, whole, "checkpoint-" STEPS "/optimizer/moment2.safetensors"));
}

static void see(void *arg, const struct zinf_checkpoint_info *info)
{
    bool *latest_is_there = arg;
    CHECKF(!info->problem, "%s", info->problem ? info->problem : "");
    *latest_is_there = *latest_is_there || info->latest;
}

/* Nothing with a checkpoint's name is less than one, and "latest" names one if it is there. */
static void check_checkpoints(void)
{
    char path[700];
    bool latest_is_there = false;
    snprintf(path, sizeof path, "%s/latest", out);
    CHECKF(!zinf_checkpoint_list(out, see, &latest_is_there), "%s", zinf_error());
    CHECK(access(path, F_OK) || latest_is_there);
}

static void see_steps(void *arg, const struct zinf_steps_info *info)
{
    uint64_t step, *last = arg;
    if (info->committed && zinf_checkpoint_step_of(info->payload, info->payload_bytes, &step))
        *last = step;
}

/* The newest step on the drive is the last that was logged, or the one before it. None is there
 * where the kill came after the end, when all was saved. */
static void check_steps(void)
{
    int lines;
    uint64_t last = UINT64_MAX;
    char saved[700];
    sum_of_log(out, &lines);
    snprintf(saved, sizeof saved, "%s/model/%s", out,
             way->adapts ? "adapter_config.json" : "config.json");
    if (!way->steps || lines < 2)
        return;
    CHECKF(!zinf_steps_list(drive, see_steps, &last), "%s", zinf_error());
    if (last == UINT64_MAX && lines == atoi(STEPS) && !access(saved, F_OK))
        return;
    CHECKF(last == (uint64_t)lines || last + 1 == (uint64_t)lines,
           "step %lld on the drive, %d in the log", (long long)last, lines);
}

static void clear_output(void)
{
    char command[1400];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", out, out);
    CHECK(!system(command));
}

/* Starts once and kills; true if the run came to its end before. */
static bool run_and_kill(enum moment moment)
{
    int status, watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(inotify_add_watch(watch, out, IN_CREATE | IN_MOVED_TO) >= 0);
    pid_t child = start(out);
    if (moment == ANY_TIME) {
        usleep(draw(START_US));
    } else if (moment == IN_STEPS) {
        wait_for_step(child);
        usleep(draw(STEP_US));
    } else {
        wait_for_name(watch, child, moment);
        usleep(draw(moment == IN_A_SAVE ? SAVE_US : 2000));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(watch);
    check_status(status, true);
    return WIFEXITED(status);
}

static void finish(void)
{
    int status;
    waitpid(start(out), &status, 0);
    check_status(status, false);
    check_end();
}

/* The last run removed what the killed ones had left. */
static void check_nothing_stays(void)
{
    char command[1400], names[1024];
    snprintf(command, sizeof command,
             "{ ls -A '%s'; ls -d '%s'/*tmp*; } 2>/dev/null | tr '\\n' ' '", drive, out);
    FILE *list = popen(command, "r");
    names[list ? fread(names, 1, sizeof names - 1, list) : 0] = 0;
    CHECKF(list && !pclose(list) && !*names, "files are left: %s", names);
}

static void write_config(void)
{
    char content[2048];
    snprintf(content, sizeof content,
             "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 2,"
             "\"bf16\": {\"enabled\": true}, "
             "\"zinf\": {\"placement\": \"%s\", %s}, \"zero_optimization\": {\"stage\": 3,"
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}}}",
             way->fills && draw(2) ? "fill" : "exact", way->keys, drive, drive);
    CHECKF(!zinf_file_write_atomic(config, content, strlen(content)), "%s", zinf_error());
}

static void kill_again_and_again(const struct way *this_way)
{
    int kills = getenv("ZINF_TEST_KILLS") ? atoi(getenv("ZINF_TEST_KILLS")) : KILLS;
    int counts[MOMENTS] = {0}, ends = 0, before = tap_case_failures;
    way = this_way;
    write_config();
    clear_output();
    for (int i = 0; i < kills && tap_case_failures == before;) {
        if (way->fills)
            write_config();
        enum moment moment = (enum moment)draw(way->saves ? MOMENTS : IN_A_SAVE);
        if (run_and_kill(moment)) {
            check_end();
            clear_output();
            ends++;
            continue;
        }
        counts[moment]++;
        i++;
        check_checkpoints();
        check_steps();
    }
    finish();
    check_nothing_stays();
    printf("# %s: %d kills (", way->name, kills);
    for (int m = 0; m < (way->saves ? MOMENTS : IN_A_SAVE); m++)
        printf("%s%d %s", m ? ", " : "", counts[m], moment_names[m]);
    printf("), %d runs came to their end\n", ends + 1);
}

static void test_kill_9(void)
{
    const char *only = getenv("ZINF_TEST_WAY");
    for (size_t i = 0; i < WAYS; i++)
        if (!only || !strcmp(only, ways[i].name))
            kill_again_and_again(&ways[i]);
}

static void prepare(void)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 2, .hidden = 32, .heads = 2, .vocab = 257, .context = 32};
    const char *build = getenv("BUILDDIR");
    snprintf(zinf, sizeof zinf, "%s/zinf", build ? build : ".");
    in_work(config, "config.json");
    in_work(said, "said");
    in_work(out, "out");
    CHECK(!zinf_make_dirs(in_work(drive, "drive")));
    make_model(model, "model", &shape, 3);
    make_text(text, "text.txt", 40);
    for (int adapts = 0; adapts < 2; adapts++) {
        int status;
        way = adapts ? &ways[WAYS - 1] : ways;
        write_config();
        waitpid(start(in_work(wholes[adapts], adapts ? "whole-adapted" : "whole")), &status, 0);
        check_status(status, false);
    }
}

int main(void)
{
    make_work("kill");
    prepare();
    TAP_RUN(test_kill_9);
    remove_work();
    return tap_done();
}
