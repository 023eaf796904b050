/* checkpoint_list: what a folder has to go on from, for those who only look. */
#include "train/save/checkpoint.h"
#include "train/save/output.h"
#include "train/checkpoints.h"

#include <stdlib.h>

static void see_one(const char *folder, uint64_t step, bool latest,
                    void (*see)(void *, const struct zinf_checkpoint_info *), void *arg)
{
    struct checkpoint c;
    struct zinf_checkpoint_info info = {.folder = folder, .step = step, .latest = latest};
    if (checkpoint_open_one(&c, folder)) {
        info.problem = zinf_error();
    } else {
        info.step = c.step;
        for (uint32_t i = 0; i < c.n_files; i++)
            info.bytes += c.files[i].bytes;
        checkpoint_fini(&c);
    }
    see(arg, &info);
}

int zinf_checkpoint_look(const char *folder,
                         void (*see)(void *arg, const struct zinf_checkpoint_info *info), void *arg)
{
    see_one(folder, 0, false, see, arg);
    return 0;
}

static int64_t micro_batch_of(const cJSON *config)
{
    const cJSON *micro = cJSON_GetObjectItemCaseSensitive(config, "train_micro_batch_size_per_gpu");
    return cJSON_IsNumber(micro) && micro->valuedouble >= 1 && micro->valuedouble <= INT32_MAX
               ? (int64_t)micro->valuedouble
               : 0;
}

int64_t zinf_checkpoint_micro_batch(const char *folder)
{
    struct checkpoint c;
    const int64_t micro = checkpoint_read_state(&c, folder) ? 0 : micro_batch_of(c.config);
    checkpoint_fini(&c);
    return micro;
}

int64_t zinf_run_micro_batch(const char *output)
{
    char *path = zinf_path_join(output, "config.resolved.json");
    cJSON *config = NULL;
    const bool is_there = path && !zinf_json_read_file(path, 1u << 20, ZINF_JSON_STRICT, &config);
    const int64_t micro = is_there ? micro_batch_of(config) : 0;
    cJSON_Delete(config);
    free(path);
    return micro;
}

int zinf_adapter_verify(const char *folder)
{
    cJSON *identity = NULL, *config = NULL;
    char *path = zinf_path_join(folder, ZINF_ADAPTER_CONFIG);
    int whole = path ? identity_check_own(folder) : -ENOMEM, code = whole;
    if (whole > 0 && !(code = identity_read(folder, &identity)) &&
        !(code = zinf_json_read_file(path, 1u << 24, ZINF_JSON_STRICT, &config)))
        code = identity_check_files(identity, config, folder);
    cJSON_Delete(config);
    cJSON_Delete(identity);
    free(path);
    return code < 0 ? code : whole;
}

int zinf_model_verify(const char *folder)
{
    struct checkpoint list;
    int code = checkpoint_read_list(&list, folder);
    if (code == -ENOENT)
        return 0;
    if (!code)
        code = checkpoint_verify(&list, folder);
    checkpoint_fini(&list);
    return code ? code : 1;
}

int zinf_checkpoint_list(const char *output,
                         void (*see)(void *arg, const struct zinf_checkpoint_info *info), void *arg)
{
    uint64_t *steps, latest = 0;
    uint32_t n;
    int code = output_checkpoints(output, &steps, &n);
    if (!code && n && output_latest(output, &latest))
        latest = UINT64_MAX; /* it names none; each is seen nevertheless */
    for (uint32_t i = 0; !code && i < n; i++) {
        char *folder = output_checkpoint_path(output, "", steps[i]);
        code = folder ? 0 : -ENOMEM;
        if (folder)
            see_one(folder, steps[i], steps[i] == latest, see, arg);
        free(folder);
    }
    free(steps);
    return code;
}

bool zinf_checkpoint_step_of(const void *scalars, uint64_t bytes, uint64_t *step)
{
    struct checkpoint c;
    if (!bytes || checkpoint_parse(&c, "the step's scalars", scalars, bytes))
        return false;
    *step = c.step;
    checkpoint_fini(&c);
    return true;
}
