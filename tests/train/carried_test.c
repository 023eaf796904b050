/*
 * Folders of every family that are read and written back: the same tensors to the last bit, and all
 * keys of config.json. Folders that hold other models beside the text model: what is not trained
 * goes to every folder that is written, bit for bit and in its own number type, and config.json
 * keeps its sections; also where adapters are merged, as all that they do not change. What is
 * damaged of it is refused.
 */
#include "fixture_folders.h"
#include "model/composite.h"
#include "saved.h"
#include "train/checkpoints.h"

#include <fnmatch.h>

static struct zinf_tensors *open_tensors(const char *folder)
{
    struct zinf_tensors *file = NULL;
    CHECKF(!zinf_tensors_open(&file, folder), "%s", zinf_error());
    return file;
}

static bool same_bytes(const struct zinf_tensors *a, const struct zinf_tensor_info *x,
                       const struct zinf_tensors *b, const struct zinf_tensor_info *y)
{
    char *p = malloc(x->bytes), *q = malloc(x->bytes);
    const bool same = x->dtype == y->dtype && x->rank == y->rank && x->bytes == y->bytes &&
                      !memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape) &&
                      !zinf_tensors_read(a, x, 0, x->n_elems, p) &&
                      !zinf_tensors_read(b, y, 0, y->n_elems, q) && !memcmp(p, q, x->bytes);
    free(p);
    free(q);
    return same;
}

/* How many tensors of the fixture are carried; the written folder has all, of the right types. */
static uint64_t check_tensors(const char *folder, enum zinf_file_dtype dtype)
{
    struct zinf_tensors *from = open_tensors(model), *to = open_tensors(folder);
    struct zinf_model *opened = NULL;
    uint64_t n = 0;
    CHECKF(!zinf_model_open(&opened, folder), "%s", zinf_error());
    for (uint64_t i = 0; from && to && opened && i < zinf_tensors_count(from); i++) {
        const struct zinf_tensor_info *x = zinf_tensors_at(from, i);
        const struct zinf_tensor_info *y = zinf_tensors_find(to, x->name);
        const bool carried = zinf_composite_carries(zinf_model_family(opened), x->name);
        n += carried;
        CHECKF(y != NULL, "%s: %s is missing", folder, x->name);
        if (y && carried)
            CHECKF(same_bytes(from, x, to, y), "%s: %s is another", folder, x->name);
        else if (y)
            CHECKF(y->dtype == dtype && !same_bytes(from, x, to, y), "%s: %s has not changed",
                   folder, x->name);
    }
    CHECK(from && to && zinf_tensors_count(from) == zinf_tensors_count(to));
    zinf_model_close(opened);
    zinf_tensors_close(to);
    zinf_tensors_close(from);
    return n;
}

static void check_config(const char *folder)
{
    char path[800];
    cJSON *before = NULL, *after = NULL;
    const cJSON *item;
    snprintf(path, sizeof path, "%s/config.json", model);
    CHECKF(!zinf_json_read_file(path, 1 << 20, 0, &before), "%s", zinf_error());
    snprintf(path, sizeof path, "%s/config.json", folder);
    CHECKF(!zinf_json_read_file(path, 1 << 20, 0, &after), "%s", zinf_error());
    cJSON_ArrayForEach(item, before)
    {
        const cJSON *same = cJSON_GetObjectItemCaseSensitive(after, item->string);
        if (strcmp(item->string, "dtype") != 0)
            CHECKF(cJSON_Compare(item, same, true), "%s: %s is another", folder, item->string);
    }
    cJSON_Delete(before);
    cJSON_Delete(after);
}

static void check_folders(const char *name)
{
    struct setting s = setting_of(NULL, bf16);
    struct zinf_step_result r;
    char saved[600], folder[700], exported[600], kept[64];
    take_fixture(name);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    if (!t)
        return;
    for (uint64_t step = 0; step < 3; step++)
        CHECK(!next_step(t, &s, step, &r));
    CHECKF(!zinf_trainer_save(t, in_work(saved, name)), "%s", zinf_error());
    CHECK(check_tensors(saved, ZINF_FILE_BF16) > 8);
    check_config(saved);
    snprintf(kept, sizeof kept, "%.50s-c", name);
    save_checkpoint(t, kept, folder);
    zinf_trainer_destroy(t);
    check_tensors(folder, ZINF_FILE_BF16);
    t = open_trainer(&s, config, folder);
    if (t)
        load_checkpoint(t, folder);
    zinf_trainer_destroy(t);
    snprintf(exported, sizeof exported, "%s/%s-e", work, name);
    struct zinf_export_options options = {
        .checkpoint = folder, .output = exported, .dtype = ZINF_DTYPE_F16};
    CHECKF(!zinf_checkpoint_export(&options), "%s", zinf_error());
    check_tensors(exported, ZINF_FILE_F16);
    check_config(exported);
    zinf_config_destroy(config);
}

/* ---- without a step ---- */

/* What the family neither reads nor writes, and the head of a model whose head is tied. */
static bool is_left_out(const struct zinf_family *family, const char *name)
{
    const char *bare = zinf_family_bare_name(family, name);
    bool out = false;
    for (size_t i = 0; !out && family->ignored[i]; i++)
        out = !fnmatch(family->ignored[i], bare, 0);
    return out;
}

static void check_whole(const char *name)
{
    const struct setting s = setting_of(NULL, NULL);
    struct zinf_config *config = configure(&s);
    char saved[600];
    uint64_t left_out = 0;
    take_fixture(name);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    options.seq_len = 8; /* that all have room for */
    CHECKF(!zinf_trainer_create(&t, &options), "%s: %s", name, zinf_error());
    CHECKF(t && !zinf_trainer_save(t, in_work(saved, name)), "%s: %s", name, zinf_error());
    if (!t)
        return;
    struct zinf_tensors *from = open_tensors(model), *to = open_tensors(saved);
    for (uint64_t i = 0; from && to && i < zinf_tensors_count(from); i++) {
        const struct zinf_tensor_info *x = zinf_tensors_at(from, i);
        const struct zinf_tensor_info *y = zinf_tensors_find(to, x->name);
        const bool out = !y && is_left_out(zinf_model_family(t->setup.model), x->name);
        left_out += out;
        CHECKF(out || (y && same_bytes(from, x, to, y)), "%s: %s is %s", name, x->name,
               y ? "another" : "missing");
    }
    CHECKF(from && to && zinf_tensors_count(from) == zinf_tensors_count(to) + left_out,
           "%s: other tensors", name);
    check_config(saved);
    zinf_tensors_close(to);
    zinf_tensors_close(from);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_folders_come_back_whole(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++)
        check_whole(folders[i]);
}

/* ---- other parts ---- */

static void test_other_parts_are_carried(void)
{
    check_folders("gemma3_a");
    check_folders("mistral3_a");
    check_folders("gemma4_a");
    check_folders("qwen3_5_a");
}

/* ---- merged ---- */

/* With adapters of one module merged, all else of a folder is what was read, bit for bit and under
 * its own name: other parts, and weights that stay quantised. */
static void check_merged(const char *name)
{
    struct setting s = setting_of(NULL, bf16);
    struct zinf_step_result r;
    char saved[600], merged[700], adapter[64];
    uint64_t same = 0, changed = 0;
    take_fixture(name);
    snprintf(adapter, sizeof adapter, "%.50s-a", strrchr(model, '/') + 1);
    s.extra = ", \"adapter\": {\"r\": 2, \"target_modules\": [\"o_proj\"]}";
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    for (uint64_t step = 0; t && step < 2; step++)
        CHECK(!next_step(t, &s, step, &r));
    CHECKF(t && !zinf_trainer_save(t, in_work(saved, adapter)), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    snprintf(merged, sizeof merged, "%.500s-merged", saved);
    const struct zinf_merge_options options = {
        .adapter = saved, .base = model, .output = merged, .as_base = true};
    CHECKF(!zinf_adapter_merge(&options), "%s: %s", name, zinf_error());
    struct zinf_tensors *from = open_tensors(model), *to = open_tensors(merged);
    for (uint64_t i = 0; from && to && i < zinf_tensors_count(from); i++) {
        const struct zinf_tensor_info *x = zinf_tensors_at(from, i);
        const struct zinf_tensor_info *y = zinf_tensors_find(to, x->name);
        if (strstr(x->name, "self_attn.o_proj.weight")) {
            changed += y && !same_bytes(from, x, to, y);
            continue;
        }
        CHECKF(y && same_bytes(from, x, to, y), "%s: %s is another", name, x->name);
        same++;
    }
    CHECKF(changed > 0 && same > 8, "%s: %d changed, %d did not", name, (int)changed, (int)same);
    zinf_tensors_close(to);
    zinf_tensors_close(from);
}

static void test_merged_folders_keep_the_rest(void)
{
    static const char *const names[] = {"gemma3_a",  "mistral3_a",    "gemma4_a",
                                        "qwen3_5_a", "gpt_oss_mxfp4", "fp8/qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_merged(names[i]);
}

/* ---- damage ---- */

/* A carried tensor's place in a file, whose bytes are all there. */
static char *find_carried(const struct zinf_tensors *file, const struct zinf_family *family,
                          char *bytes, size_t n)
{
    char *found = NULL, *tensor;
    for (uint64_t i = 0; !found && i < zinf_tensors_count(file); i++) {
        const struct zinf_tensor_info *x = zinf_tensors_at(file, i);
        if (!zinf_composite_carries(family, x->name))
            continue;
        tensor = malloc(x->bytes);
        CHECK(tensor && !zinf_tensors_read(file, x, 0, x->n_elems, tensor));
        found = memmem(bytes, n, tensor, x->bytes);
        free(tensor);
    }
    return found;
}

/* One bit of a carried tensor in a checkpoint: it is not believed, and the message names the file.
 */
static void check_flip(const char *name)
{
    struct setting s = setting_of(NULL, bf16);
    struct zinf_step_result r;
    char folder[700], path[800], exported[600], flipped[64], *bytes = NULL;
    size_t n = 0;
    take_fixture(name);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, model);
    if (!t)
        return;
    CHECK(!next_step(t, &s, 0, &r));
    snprintf(flipped, sizeof flipped, "%.50s-flip", strrchr(model, '/') + 1);
    save_checkpoint(t, flipped, folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECKF(!zinf_file_read(path, 1 << 24, &bytes, &n), "%s", zinf_error());
    struct zinf_tensors *file = open_tensors(folder);
    char *at =
        file && bytes ? find_carried(file, zinf_model_family(t->setup.model), bytes, n) : NULL;
    const struct zinf_export_options options = {
        .checkpoint = folder, .output = in_work(exported, "flipped"), .dtype = ZINF_DTYPE_F32};
    CHECK(at != NULL);
    for (int bit = 0; at && bit < 8; bit += 7) {
        *at = (char)(*at ^ 1 << bit);
        CHECKF(!zinf_file_write_atomic(path, bytes, n), "%s", zinf_error());
        CHECK(zinf_checkpoint_export(&options) == -EBADMSG);
        CHECKF(strstr(zinf_error(), "model.safetensors") != NULL, "%s", zinf_error());
        *at = (char)(*at ^ 1 << bit);
    }
    zinf_tensors_close(file);
    free(bytes);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_damaged_parts_are_refused(void)
{
    check_flip("gemma3_a");
    check_flip("qwen3_5_a");
}

int main(void)
{
    begin_fixtures("carried");
    TAP_RUN(test_folders_come_back_whole);
    TAP_RUN(test_other_parts_are_carried);
    TAP_RUN(test_merged_folders_keep_the_rest);
    TAP_RUN(test_damaged_parts_are_refused);
    remove_work();
    return tap_done();
}
