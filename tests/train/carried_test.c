/*
 * Folders that hold other models beside the text model: what is not trained goes to every folder
 * that is written, bit for bit and in its own number type, and config.json keeps its sections.
 */
#include "model/composite.h"
#include "saved.h"
#include "train/checkpoints.h"

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
    const bool same = x->dtype == y->dtype && x->bytes == y->bytes &&
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
    char saved[600], folder[700], exported[600];
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
    snprintf(exported, sizeof exported, "%s-c", name);
    save_checkpoint(t, exported, folder);
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

static void test_other_parts_are_carried(void)
{
    check_folders("gemma3_a");
    check_folders("mistral3_a");
    check_folders("gemma4_a");
    check_folders("qwen3_5_a");
}

int main(void)
{
    begin_fixtures("carried");
    TAP_RUN(test_other_parts_are_carried);
    remove_work();
    return tap_done();
}
