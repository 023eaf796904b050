/*
 * layers_folder: which files of a folder are a pipeline's, a layer each: DeepSpeed's
 * layer_NN-model_states.pt, or layer_NN-model_00-model_states.pt where the topology has an axis
 * "model" (deepspeed/runtime/pipe/module.py). Layers that share a module have a file for its first
 * place, or for each.
 */
#include "formats/formats.h"

#include "base/folder.h"

#include <dirent.h>
#include <stdio.h>

static const char plain[] = "-model_states.pt", sharing[] = "-model_%02lld-model_states.pt";

/* The number of a layer, and of a rank of those that share matrices; false: it is another file. */
static bool match(const char *name, long long *layer, long long *rank)
{
    int used = 0;
    *rank = 0;
    if (sscanf(name, "layer_%5lld%n", layer, &used) != 1 || *layer < 0)
        return false;
    if (!strcmp(name + used, plain))
        return true;
    const char *rest = name + used;
    used = 0;
    return sscanf(rest, "-model_%5lld%n", rank, &used) == 1 && used && !strcmp(rest + used, plain);
}

const char *zinf_layers_file(const char *folder, int64_t number, char *buffer, size_t bytes)
{
    char tail[64];
    snprintf(buffer, bytes, "layer_%02lld%s", (long long)number, plain);
    if (zinf_folder_has(folder, buffer))
        return buffer;
    snprintf(tail, sizeof tail, sharing, 0LL);
    snprintf(buffer, bytes, "layer_%02lld%s", (long long)number, tail);
    return buffer;
}

int64_t zinf_layers_count(const char *folder)
{
    DIR *list = opendir(folder);
    long long last = -1, most_rank = 0;
    if (!list)
        return 0;
    for (const struct dirent *entry; (entry = readdir(list));) {
        long long layer, rank;
        if (!match(entry->d_name, &layer, &rank))
            continue;
        last = layer > last ? layer : last;
        most_rank = rank > most_rank ? rank : most_rank;
    }
    closedir(list);
    if (most_rank)
        return zinf_fail(-ENOTSUP,
                         "%s: %lld ranks share the matrices of its layers: save it by a pipeline "
                         "of whole layers, whose axis \"model\" has one rank",
                         folder, most_rank + 1);
    for (long long layer = 0; layer <= last; layer++) {
        char name[96];
        if (!zinf_folder_has(folder, zinf_layers_file(folder, layer, name, sizeof name)))
            return zinf_fail(-EINVAL,
                             "%s has a file of layer %lld, but none of layer %lld: copy the files "
                             "of all layers there",
                             folder, last, layer);
    }
    return last + 1;
}
