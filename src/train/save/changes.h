/*
 * changes: where two JSON documents of one kind differ, as identity.h and inputs.h compare them.
 * Threads: functions of their arguments. Inside src/train only.
 */
#ifndef ZINF_TRAIN_CHANGES_H
#define ZINF_TRAIN_CHANGES_H

#include "base/json.h"

/* The first value that differs: its keys joined by dots, and both values as JSON text, cut at 60
 * characters; "nothing" where a document does not have it. */
struct change {
    char path[256], then[64], now[64];
};
bool changes_find(const cJSON *then, const cJSON *now, struct change *out);

/* A copy of a JSON configuration without what decides no arithmetic: names, versions, types of
 * storage. NULL: no memory. */
cJSON *changes_without_words(const cJSON *config);

#endif
