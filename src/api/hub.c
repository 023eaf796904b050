/*
 * hub: where Hugging Face's own programs keep what they have fetched. A model's name is looked up
 * there, without a network, where no folder has it: NAME/OF is models--NAME--OF, whose file
 * refs/main says which of its snapshots is the model.
 */
#include "api/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_REVISION 128

/* By the variables that Hugging Face's programs obey, in their order; on the heap or NULL. */
static char *cache_folder(void)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    char *path = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value && *value)
            return asprintf(&path, "%s%s", value, places[i].below) < 0 ? NULL : path;
    }
    return NULL;
}

/* "name" or "org/name": at most one slash, and nothing that leads elsewhere. */
static bool is_name(const char *name)
{
    const char *slash = strchr(name, '/');
    return *name && *name != '.' && *name != '/' && !strstr(name, "..") &&
           (!slash || (slash[1] && !strchr(slash + 1, '/')));
}

static char *read_revision(const char *model)
{
    char *path = zinf_path_join(model, "refs/main"), *text = NULL;
    size_t bytes = 0;
    if (path && !access(path, F_OK) && zinf_file_read(path, MOST_REVISION, &text, &bytes))
        text = NULL;
    if (text)
        text[strcspn(text, " \r\n")] = 0;
    if (text && (!*text || strchr(text, '/') || *text == '.')) {
        free(text);
        text = NULL;
    }
    free(path);
    return text;
}

char *job_hub_find(const char *name)
{
    char *cache = is_name(name) ? cache_folder() : NULL, *model = NULL, *found = NULL, *config;
    const char *slash = strchr(name, '/');
    int owner = slash ? (int)(slash - name) : 0;
    if (!cache || asprintf(&model, "%s/models--%.*s%s%s", cache, owner, name, slash ? "--" : "",
                           slash ? slash + 1 : name) < 0)
        model = NULL;
    char *revision = model ? read_revision(model) : NULL;
    if (revision && asprintf(&found, "%s/snapshots/%s", model, revision) < 0)
        found = NULL;
    config = found ? zinf_path_join(found, "config.json") : NULL;
    if (!config || access(config, F_OK)) {
        free(found);
        found = NULL;
    }
    free(config);
    free(revision);
    free(model);
    free(cache);
    return found;
}
