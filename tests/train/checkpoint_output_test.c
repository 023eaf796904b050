/*
 * The output folder of a run: what a second one in it takes over and what it removes, a disk that
 * is full, and the page cache, which stays as it was.
 */
#include "checkpoint_support.h"

#include "train/save/output.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

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

int main(void)
{
    begin_checkpoints("checkpoint-output");
    TAP_RUN(test_same_folder_goes_on);
    TAP_RUN(test_failed_save_goes_on);
    TAP_RUN(test_page_cache_stays_empty);
    end_checkpoints();
    return tap_done();
}
