/* folder: files that may be in a folder, by name. */
#ifndef ZINF_BASE_FOLDER_H
#define ZINF_BASE_FOLDER_H

#include "base/json.h"

bool zinf_folder_has(const char *folder, const char *name);
/* *out: NULL where the folder has no such file. */
int zinf_folder_json(const char *folder, const char *name, size_t max_bytes, cJSON **out);
/* A folder in the user's cache (XDG_CACHE_HOME or ~/.cache, below zinf/KIND) for what is made of a
 * thing of this name; it is made, if need be. sum: what tells things of one name apart. *out is on
 * the heap. */
int zinf_cache_folder(char **out, const char *kind, const char *name, uint64_t sum);

#endif
