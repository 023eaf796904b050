/* cache: the user's folder for what can be found out again: zinf/ under $XDG_CACHE_HOME, or under
 * ~/.cache. */
#ifndef ZINF_CACHE_H
#define ZINF_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* The path of a file there, on the heap. NULL: there is no such folder, or no memory. */
char *zinf_cache_path(const char *name, bool make_folder);
/* A folder there, which is made: KIND/NAME-SUM for what is made of a thing of this name; sum tells
 * things of one name apart. *out is on the heap. */
int zinf_cache_folder(char **out, const char *kind, const char *name, uint64_t sum);

#endif
