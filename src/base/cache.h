/* cache: the user's folder for what can be found out again: zinf/ under $XDG_CACHE_HOME, or under
 * ~/.cache. */
#ifndef ZINF_CACHE_H
#define ZINF_CACHE_H

#include <stdbool.h>

/* The path of a file there, on the heap. NULL: there is no such folder, or no memory. */
char *zinf_cache_path(const char *name, bool make_folder);

#endif
