/* folder: files that may be in a folder, by name. */
#ifndef ZINF_BASE_FOLDER_H
#define ZINF_BASE_FOLDER_H

#include "base/json.h"

bool zinf_folder_has(const char *folder, const char *name);
/* *out: NULL where the folder has no such file. */
int zinf_folder_json(const char *folder, const char *name, size_t max_bytes, cJSON **out);

#endif
