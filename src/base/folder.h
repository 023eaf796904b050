/* folder: whether a folder has a file, and reading it as JSON. */
#ifndef ZINF_BASE_FOLDER_H
#define ZINF_BASE_FOLDER_H

#include "base/json.h"

bool zinf_folder_has(const char *folder, const char *name);
/* Reads a JSON file. *out is NULL if the folder has no such file. */
int zinf_folder_json(const char *folder, const char *name, size_t max_bytes, cJSON **out);

#endif
