/* adapter_compare: folders of adapters, and whether two documents ask for the same adapters. */
#include "model/adapters/adapter.h"
#include "model/model.h"

#include <stdlib.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

int zinf_adapter_read_config(const char *folder, cJSON **out)
{
    char *path = zinf_path_join(folder, ZINF_ADAPTER_CONFIG);
    int code = path ? zinf_json_read_file(path, MAX_CONFIG_BYTES, ZINF_JSON_STRICT, out) : -ENOMEM;
    if (code == -ENOENT || code == -ENOTDIR)
        zinf_fail_in(code, "%s is no adapter's folder: it holds no " ZINF_ADAPTER_CONFIG, folder);
    free(path);
    return code;
}

/* What is compared of one adapted module. */
static const struct zinf_tensor *tensor_a(const struct zinf_graph *g, uint32_t i)
{
    return &g->units[g->adapted[i].adapter].tensors[g->adapted[i].a];
}

/* The n-th tensor that is trained as a copy of the base's, or NULL. */
static const struct zinf_piece *copy_at(const struct zinf_graph *g, uint32_t n)
{
    for (uint32_t u = 0; u < g->n_units; u++)
        for (uint32_t i = 0; i < g->units[u].n_tensors; i++)
            for (uint32_t p = 0; p < g->units[u].tensors[i].n_pieces; p++) {
                const struct zinf_piece *piece = &g->units[u].tensors[i].pieces[p];
                if (piece->of_base && !n--)
                    return piece;
            }
    return NULL;
}

static int compare_copies(const struct zinf_graph *a, const struct zinf_graph *b, const char *what)
{
    const struct zinf_piece *x, *y;
    for (uint32_t i = 0; (x = copy_at(a, i), y = copy_at(b, i), x || y); i++)
        if (!x || !y || strcmp(x->name, y->name))
            return zinf_fail(-EINVAL,
                             "%s has another bias or other modules_to_save: %s is not in both",
                             what, x ? x->name : y->name);
    return 0;
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
        if (a->adapted[i].has_magnitude != b->adapted[i].has_magnitude)
            return zinf_fail(-EINVAL, "%s has use_dora %s, where %s is asked for", what,
                             b->adapted[i].has_magnitude ? "true" : "false",
                             a->adapted[i].has_magnitude ? "true" : "false");
        if (a->adapted[i].scale != b->adapted[i].scale)
            return zinf_fail(-EINVAL,
                             "%s scales %s by %g, where lora_alpha and use_rslora make it %g", what,
                             name, (double)b->adapted[i].scale, (double)a->adapted[i].scale);
    }
    if (a->n_adapted == b->n_adapted)
        return compare_copies(a, b, what);
    return zinf_fail(-EINVAL, "%s has other target_modules: %u modules, where %u are asked for",
                     what, b->n_adapted, a->n_adapted);
}

int zinf_model_compare_adapter(const struct zinf_model *model, const cJSON *config,
                               const char *what)
{
    struct zinf_model *other = NULL;
    const struct zinf_shards *cut = &zinf_model_stages(model)->shards;
    int code = zinf_model_from_json(&other, zinf_model_config(model), what);
    if (!code && cut->of)
        code = zinf_model_set_shards(other, cut);
    if (!code)
        code = zinf_model_adapt(other, config, what);
    if (!code)
        code = compare(zinf_model_stages(model), zinf_model_stages(other), what);
    zinf_model_close(other);
    return code;
}
