/* cache: the user's folder for data that can be made again: zinf/ under $XDG_CACHE_HOME, or under
 * ~/.cache. */
#ifndef ZINF_CACHE_H
#define ZINF_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* The path of a file in the folder, which the caller frees. NULL: there is no such folder, or no
 * memory. */
char *zinf_cache_path(const char *name, bool make_folder);
/* Makes the folder KIND/NAME-SUM there for data derived from something called `name`; sum tells
 * things of the same name apart. The caller frees *out. */
int zinf_cache_folder(char **out, const char *kind, const char *name, uint64_t sum);

#endif
