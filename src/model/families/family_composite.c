/*
 * family_composite: the text model of a folder that holds others beside it. Its family builds it
 * from the section "text_config", with what the document itself has in front of that.
 */
#include "model/families/family_composite.h"

#include "model/composite.h"
#include "model/heads.h"

/* Folders that were written before transformers had COMPOSITE_PREFIX. */
#define OLD_FRONT "language_model."
#define OLD_PREFIX OLD_FRONT "model."

static bool is_composite(const struct zinf_family *family)
{
    return family->build == composite_build;
}

const char *zinf_composite_other_prefix(const struct zinf_family *family)
{
    return is_composite(family) ? OLD_PREFIX : NULL;
}

static const char *behind(const char *name, const char *front)
{
    const size_t n = strlen(front);
    return strncmp(name, front, n) ? NULL : name + n;
}

const char *zinf_composite_bare_name(const struct zinf_family *family, const char *name)
{
    static const char *const fronts[] = {COMPOSITE_PREFIX, OLD_PREFIX, OLD_FRONT};
    const char *bare = NULL;
    for (size_t i = 0; is_composite(family) && !bare && i < sizeof fronts / sizeof *fronts; i++)
        bare = behind(name, fronts[i]);
    return bare ? bare : name;
}

bool zinf_composite_carries(const struct zinf_family *family, const char *name)
{
    return is_composite(family) && zinf_composite_bare_name(family, name) == name &&
           !behind(name, "lm_head.");
}

/* ---- the text model's configuration ---- */

/* What is in front of the section: more of it is of other parts. The end of texts only where the
 * section has none. */
static bool take_from_document(cJSON *text, const cJSON *document)
{
    static const char *const keys[] = {"architectures", "tie_word_embeddings", DESCRIBED_LAYERS_KEY,
                                       "eos_token_id"};
    bool fine = true;
    for (size_t i = 0; fine && i < sizeof keys / sizeof *keys; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, keys[i]);
        const cJSON *own = cJSON_GetObjectItemCaseSensitive(text, keys[i]);
        const bool last = i == sizeof keys / sizeof *keys - 1;
        if (!item || cJSON_IsNull(item) || (last && own && !cJSON_IsNull(own)))
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(text, keys[i]);
        fine = cJSON_AddItemToObject(text, keys[i], cJSON_Duplicate(item, true));
    }
    return fine;
}

static int find_text(const struct zinf_model_source *source, const cJSON *section,
                     struct zinf_family *out)
{
    const struct zinf_family *const *takes = source->family->traits;
    const char *type = takes[0]->model_type, *types[4];
    char names[128];
    size_t i = 0, n = 0;
    if (!cJSON_IsObject(section))
        return zinf_fail(-EINVAL,
                         "%s: no section \"text_config\", which has the text model's numbers where "
                         "model_type is \"%s\"",
                         source->what, source->family->model_type);
    int code = zinf_json_string(section, source->what, "model_type", &type);
    if (code)
        return code;
    for (; takes[n]; n++)
        types[n] = takes[n]->model_type;
    while (i < n && strcmp(types[i], type))
        i++;
    if (i == n)
        return zinf_fail(
            -ENOTSUP,
            "%s: text_config: model_type \"%s\" is not supported in a folder of \"%s\"; "
            "supported: %s",
            source->what, type, source->family->model_type,
            family_join(names, sizeof names, types, n));
    *out = *takes[i];
    out->no_classes = true;
    return 0;
}

int composite_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                    const struct zinf_model_source *source)
{
    const cJSON *section = cJSON_GetObjectItemCaseSensitive(source->config, "text_config");
    struct zinf_model_source part = *source;
    struct zinf_family family;
    if (heads_in(source->config, source->family) == ZINF_HEAD_NONE)
        return zinf_fail(-ENOTSUP,
                         "%s: the text model in a folder of \"%s\" has no head for "
                         "embeddings",
                         source->what, source->family->model_type);
    int code = find_text(source, section, &family);
    if (code)
        return code;
    cJSON *text = cJSON_Duplicate(section, true);
    if (!text || !take_from_document(text, source->config))
        code = zinf_fail(-ENOMEM, "no memory for the configuration %s", source->what);
    part.family = &family;
    part.config = text;
    if (!code)
        code = family.build(graph, facts, &part);
    cJSON_Delete(text);
    return code;
}

/* A new folder would have no tower. */
int composite_make_config(cJSON *config, const struct zinf_family *family,
                          const struct zinf_model_shape *shape)
{
    const struct zinf_family *const *takes = family->traits;
    (void)config;
    if (shape->sizes)
        return -ECANCELED;
    return zinf_fail(-ENOTSUP,
                     "--arch %s: such folders have other models beside the text model, and are "
                     "trained but not made; make the text model alone with --arch %s",
                     family->model_type, takes[0]->model_type);
}
