/*
 * freeze: which tensors of a model are trained, by their names in its files. A pattern is one of a
 * shell's (fnmatch(3)) for a whole name, and freezes what it matches; behind "!" it is for what
 * stays trained all the same. The last that matches a name decides.
 */
#ifndef ZINF_FREEZE_H
#define ZINF_FREEZE_H

#include "base/json.h"
#include "model/build.h"

struct freeze_choice {
    char *what;      /* names it in messages */
    cJSON *patterns; /* an array of strings */
    bool *met;       /* [its length] */
};
/* A pattern, or a list of them; -EINVAL where it is neither. After a failure there is nothing to
 * end. */
int freeze_choice_init(struct freeze_choice *out, const cJSON *patterns, const char *what);
void freeze_choice_fini(struct freeze_choice *choice);
/* Of a finished graph, which must be finished again. -EINVAL: a pattern matches nothing, or nothing
 * is left to train; -ENOTSUP: one tensor here would be frozen in parts. */
int freeze_graph(struct zinf_graph *graph, struct freeze_choice *choice, const char *prefix);

#endif
