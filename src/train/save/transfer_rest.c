/* transfer_rest: what belongs beside weights: the configuration, and files that only follow. */
#include "train/save/transfer.h"

#include <stdlib.h>

/* base: an absolute path where there is one, since nobody knows from where it will be looked for.
 */
static int write_adapter_config(const struct zinf_model *model, const char *base,
                                const char *folder)
{
    char *found = realpath(base, NULL), *path = zinf_path_join(folder, ZINF_ADAPTER_CONFIG);
    cJSON *config = NULL;
    int code = path ? zinf_model_adapter_config(model, found ? found : base, &config) : -ENOMEM;
    char *text = code ? NULL : cJSON_Print(config);
    if (text)
        code = zinf_file_write_atomic(path, text, strlen(text));
    else if (!code)
        code = zinf_fail(-ENOMEM, "no memory to write %s", path);
    cJSON_free(text);
    cJSON_Delete(config);
    free(path);
    free(found);
    return code;
}

int transfer_write_rest(const struct source *s, const char *folder, uint64_t own)
{
    const struct setup *setup = s->setup;
    int code = is_adapted(setup)
                   ? write_adapter_config(setup->model, setup->options.model_path, folder)
                   : transfer_write_config(zinf_model_config(setup->model), setup->dtype, folder);
    if (!code && is_adapted(setup))
        code = identity_write(s->identity, own, folder);
    enum zinf_companions which =
        is_adapted(setup) ? ZINF_COMPANIONS_TOKENIZER : ZINF_COMPANIONS_ALL;
    return code ? code : zinf_folder_copy_companions(s->folder, folder, which);
}
