/*
 * Checkpoints that are damaged or do not belong to a training are refused by the name of the file
 * or option, with the one to take instead; a model is made of those that are whole alone.
 */
#include "checkpoint_support.h"

#include "train/save/checkpoint.h"
#include "train/save/output.h"
#include "train/checkpoints.h"

#include <fcntl.h>

static char damaged[600];

/* A copy of whole/ with checkpoint-1 and checkpoint-2. */
static const char *fresh_copy(void)
{
    char command[1400];
    static char folder[700];
    char whole[600];
    output_remove(in_work(damaged, "damaged"));
    snprintf(command, sizeof command, "cp -r '%s' '%s'", in_work(whole, "good"), damaged);
    CHECK(!system(command));
    snprintf(folder, sizeof folder, "%s/checkpoint-2", damaged);
    return folder;
}

static void edit(const char *folder, const char *name, long offset, int mask, long length)
{
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR);
    uint8_t byte = 0;
    struct stat info;
    CHECKF(fd >= 0 && !fstat(fd, &info), "%s", path);
    if (offset < 0)
        offset += info.st_size;
    CHECK(pread(fd, &byte, 1, offset) == 1);
    byte ^= (uint8_t)mask;
    CHECK(pwrite(fd, &byte, 1, offset) == 1);
    if (length)
        CHECK(!ftruncate(fd, info.st_size + length));
    close(fd);
}

static void expect_refused(const char *folder, const char *name, bool offered, const char *what)
{
    char rest[600];
    struct setting s = {&places[0], precisions[1], in_work(rest, "refused"), folder, .steps = 3};
    output_remove(rest);
    int code = run(&s, NULL);
    CHECKF(code < 0 && strstr(zinf_error(), name), "%s: %d, %s", what, code, zinf_error());
    CHECKF(!offered || strstr(zinf_error(), "checkpoint-1"), "%s: %s", what, zinf_error());
}

static void test_damage_is_refused(void)
{
    static const char *const files[] = {"config.json",
                                        "model.safetensors",
                                        "optimizer/master.safetensors",
                                        "optimizer/moment1.safetensors",
                                        "optimizer/moment2.safetensors",
                                        "trainer_state.json"};
    char good[600], what[200], a[800], b[800];
    struct setting s = {&places[4], precisions[1], in_work(good, "good"), .steps = 2,
                        .save_every = 1};
    CHECKF(!run(&s, NULL), "%s", zinf_error());
    for (int i = 0; i < 6; i++) {
        const char *folder = fresh_copy();
        snprintf(what, sizeof what, "a flipped bit in %s", files[i]);
        edit(folder, files[i], -40, 1, 0);
        expect_refused(folder, files[i], true, what);
        folder = fresh_copy();
        snprintf(what, sizeof what, "%s is short", files[i]);
        edit(folder, files[i], 0, 0, -1);
        expect_refused(folder, files[i], true, what);
        folder = fresh_copy();
        snprintf(what, sizeof what, "%s is missing", files[i]);
        snprintf(a, sizeof a, "%s/%s", folder, files[i]);
        unlink(a);
        expect_refused(folder, files[i], true, what);
    }
    const char *folder = fresh_copy();
    snprintf(a, sizeof a, "%s/optimizer/moment1.safetensors", folder);
    snprintf(b, sizeof b, "%s/optimizer/moment2.safetensors", folder);
    CHECK(!renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE));
    expect_refused(folder, "moment1.safetensors", true, "moments are swapped");
    folder = fresh_copy();
    snprintf(a, sizeof a, "%s/optimizer/moment1.safetensors", folder);
    snprintf(b, sizeof b, "%s/checkpoint-1/optimizer/moment1.safetensors", damaged);
    CHECK(!renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE));
    expect_refused(folder, "moment1.safetensors", false, "weights of another step");
    CHECK(strstr(zinf_error(), "no whole checkpoint") != NULL);
    folder = fresh_copy();
    edit(folder, "trainer_state.json", 13, '2' ^ '9', 0); /* "format": 9 */
    expect_refused(folder, "formats up to 2", false, "a newer format");
}

static void test_other_training_is_refused(void)
{
    char good[600], folder[700], rest[600], other[600];
    struct zinf_model_shape deeper = {
        .arch = "gpt2", .layers = 3, .hidden = 32, .heads = 2, .vocab = 257, .context = 32};
    static const char line[] = "Another text, of which there is enough for some windows.\n";
    snprintf(folder, sizeof folder, "%s/checkpoint-2", in_work(good, "good"));
    struct setting base = {&places[0], precisions[1], in_work(rest, "other"), folder, .steps = 3};
    struct setting s = base;
    s.seed = 8;
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "seed was"));
    s = base;
    s.no_shuffle = true;
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "--no-shuffle"));
    s = base;
    s.data = in_work(other, "other.txt");
    FILE *file = fopen(other, "w");
    for (int i = 0; i < 4; i++)
        fputs(line, file);
    fclose(file);
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "--data"));
    s = base;
    s.optimizer = "Lion";
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "AdamW"));
    s = base;
    make_model(other, "model2", &deeper, 11);
    s.model = other;
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "another model"));
    CHECK(strstr(zinf_error(), "checkpoint-2") != NULL);
    s = base;
    s.resume = model;
    CHECK(run(&s, NULL) == -ENOENT && strstr(zinf_error(), "not a checkpoint"));
    s = base; /* another number type is another training, but a possible one */
    s.precision = precisions[0];
    CHECK(run(&s, NULL) == -EINVAL && strstr(zinf_error(), "bf16.enabled was true"));
    s.accept_changes = true;
    CHECKF(!run(&s, NULL), "%s", zinf_error());
}

/* Whoever opens a checkpoint that cannot be read at all has nothing to end, whatever was there. */
static void test_nothing_to_read(void)
{
    struct checkpoint c;
    memset(&c, 0xff, sizeof c);
    CHECK(checkpoint_open_one(&c, work) == -ENOENT && !c.files && !c.config);
}

/* "latest" was lost, or written for an older one: what is newer is named, and stays. */
static void test_newer_than_latest(void)
{
    char out[600], *found = NULL;
    uint64_t *steps = NULL;
    uint32_t n = 0;
    struct setting s = {&places[0], precisions[1], in_work(out, "newer"), .steps = 4,
                        .save_every = 1};
    CHECKF(!run(&s, NULL), "%s", zinf_error());
    CHECK(!output_set_latest(out, 2));
    CHECK(!zinf_checkpoint_find(out, &found) && strstr(found, "/checkpoint-2"));
    free(found);
    CHECK(!output_rotate(out, 3, 2, false));
    CHECK(!output_checkpoints(out, &steps, &n) && n == 3 && steps[0] == 2 && steps[2] == 4);
    free(steps);
    CHECK(!output_rotate(out, 3, 2, true));
    CHECK(!output_checkpoints(out, &steps, &n) && n == 2 && steps[0] == 2 && steps[1] == 3);
    free(steps);
}

static void test_export(void)
{
    char good[600], out[600], from[700];
    snprintf(from, sizeof from, "%s/checkpoint-2", in_work(good, "good"));
    struct zinf_export_options options = {
        .checkpoint = good, .output = in_work(out, "export"), .as_saved = true};
    CHECKF(!zinf_checkpoint_export(&options), "%s", zinf_error());
    CHECK(same_file(from, out, "model.safetensors") && same_file(from, out, "config.json"));
    options.as_saved = false;
    options.dtype = ZINF_DTYPE_F32;
    options.max_shard_bytes = 50000;
    CHECK(zinf_checkpoint_export(&options) == -EEXIST && strstr(zinf_error(), "already holds"));
    options.output = in_work(out, "shards");
    CHECKF(!zinf_checkpoint_export(&options), "%s", zinf_error());
    char master[800];
    snprintf(master, sizeof master, "%s/optimizer/master.safetensors", from);
    double worst = compare_files(out, master);
    CHECKF(worst == 0, "%g", worst);
    snprintf(master, sizeof master, "%s/model.safetensors.index.json", out);
    CHECK(!access(master, F_OK));
    edit(fresh_copy(), "optimizer/master.safetensors", -40, 1, 0);
    options.checkpoint = damaged;
    options.output = in_work(out, "of-damaged");
    CHECK(zinf_checkpoint_export(&options) == -EBADMSG && strstr(zinf_error(), "master"));
}

int main(void)
{
    begin_checkpoints("checkpoint-refused");
    TAP_RUN(test_damage_is_refused);
    TAP_RUN(test_other_training_is_refused);
    TAP_RUN(test_nothing_to_read);
    TAP_RUN(test_newer_than_latest);
    TAP_RUN(test_export);
    end_checkpoints();
    return tap_done();
}
