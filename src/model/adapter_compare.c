/* adapter_compare: folders of adapters, and whether two documents ask for the same adapters. */
#include "model/adapter.h"
#include "model/model.h"

#include <stdlib.h>
#include <unistd.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

int zinf_adapter_read_config(const char *folder, cJSON **out)
{
    char *path = zinf_path_join(folder, ADAPTER_CONFIG);
    int code = path ? zinf_json_read_file(path, MAX_CONFIG_BYTES, ZINF_JSON_STRICT, out) : -ENOMEM;
    if (code == -ENOENT || code == -ENOTDIR)
        zinf_fail_in(code, "%s is no adapter's folder: it holds no " ADAPTER_CONFIG, folder);
    free(path);
    return code;
}

/* What is compared of one adapted module. */
static const struct zinf_tensor *tensor_a(const struct zinf_graph *g, uint32_t i)
{
    return &g->units[g->adapted[i].adapter].tensors[g->adapted[i].a];
}

static int compare(const struct zinf_graph *a, const struct zinf_graph *b, const char *what)
{
    uint32_t n = a->n_adapted < b->n_adapted ? a->n_adapted : b->n_adapted;
    for (uint32_t i = 0; i < n; i++) {
        const struct zinf_tensor *x = tensor_a(a, i), *y = tensor_a(b, i);
        const char *name = x->pieces[0].name;
        if (strcmp(name, y->pieces[0].name))
            return zinf_fail(-EINVAL, "%s has other target_modules: %s is not in both", what, name);
        if (x->rows != y->rows)
            return zinf_fail(-EINVAL, "%s has rank %llu for %s, where %llu is asked for", what,
                             (unsigned long long)y->rows, name, (unsigned long long)x->rows);
        if (a->adapted[i].scale != b->adapted[i].scale)
            return zinf_fail(-EINVAL,
                             "%s scales %s by %g, where lora_alpha and use_rslora make it %g", what,
                             name, (double)b->adapted[i].scale, (double)a->adapted[i].scale);
    }
    if (a->n_adapted == b->n_adapted)
        return 0;
    return zinf_fail(-EINVAL, "%s has other target_modules: %u modules, where %u are asked for",
                     what, b->n_adapted, a->n_adapted);
}

int zinf_model_compare_adapter(const struct zinf_model *model, const cJSON *config,
                               const char *what)
{
    struct zinf_model *other = NULL;
    int code = zinf_model_from_json(&other, zinf_model_config(model), what);
    if (!code)
        code = zinf_model_adapt(other, config, what);
    if (!code)
        code = compare(zinf_model_graph(model), zinf_model_graph(other), what);
    zinf_model_close(other);
    return code;
}
