/*
 * identity: what a run stands on, as one JSON document with these members, each where it is known:
 *
 *   "model"     config.json, as far as it decides arithmetic
 *   "adapter"   the same of adapter_config.json
 *   "files"     sums of the tokenizer's files and the chat template, by name
 *   "base"      the base's weights: "layout", a sum of names, types and shapes; "weights", one of
 *               all their bytes; "files", that by file
 *   "data", "eval_data"  lists of files with the sum of what became of them; "order" beside them
 *   "settings"  the seed, and keys of the configuration that decide arithmetic
 *
 * It is recorded with checkpoints, committed steps and adapters, and whoever goes on from one of
 * these, or computes or writes with it, compares. Where things lie, how they are moved, and how
 * many ranks there are is no part of it. Inside src/train only.
 */
#ifndef ZINF_TRAIN_IDENTITY_H
#define ZINF_TRAIN_IDENTITY_H

#include "base/json.h"
#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"

/* ---- making it; each adds to the document, on failure it is the caller's still ---- */

/* Of the model as it is set up, and the files beside its weights in folder. */
int identity_of_model(cJSON **out, const struct zinf_model *model, const char *folder);
/* Weights whose bytes were summed while they were read (formats.h); the rest is read here. */
int identity_add_base(cJSON *identity, struct zinf_tensors *weights);
int identity_add_data(cJSON *identity, const char *member, const struct zinf_dataset *data);
int identity_add_settings(cJSON *identity, const cJSON *resolved, uint64_t seed);
/* What of it is the base's: without the adapter, data and settings of one training. NULL of NULL.
 */
cJSON *identity_of_base(const cJSON *identity);
/* Each member as a sum of it alone, where there is no room for more. */
cJSON *identity_short(const cJSON *identity);

/* ---- comparing ---- */

/* What the saved one and this one both have must be equal. -EINVAL: the sentence names the member,
 * its file and key. where: who has saved it; model: the folder that is named now; way_on: the end
 * of the sentence. The base is left out where only is_base is false. */
struct identity_check {
    const char *where, *model, *way_on;
    const char *config;     /* the configuration's file; NULL: options alone */
    const cJSON *inputs[2]; /* what was read then and now (inputs.h), to name a line; or NULL */
    bool base;              /* compare it, too */
    bool head;              /* and what a training gives a model's head: its classes */
    bool warn;              /* differences are said and taken */
};
int identity_compare(const cJSON *saved, const cJSON *now, const struct identity_check *check);

/* ---- of an adapter's folder ---- */

#define IDENTITY_FILE "adapter_base.json"

/* The tokenizer's files in folder, and its adapter's configuration if it is not NULL, are those
 * that identity knows. -EBADMSG names what is not. */
int identity_check_files(const cJSON *identity, const cJSON *config, const char *folder);

/* own: XXH3 of its adapter_model.safetensors, as it was handed to the drive. */
int identity_write(const cJSON *identity, uint64_t own, const char *folder);
/* *out: NULL where the folder says nothing. */
int identity_read(const char *folder, cJSON **out);
/* An adapter's folder against the model that it is used with. Folders without adapter_base.json are
 * taken as they are; a base in another form (quantised, another number type) is only warned of. */
int identity_check_adapter(const cJSON *now, const char *folder, const char *model);
/* An adapter's folder against itself, before anything of it is believed: 1 it is whole, 0 it has no
 * sum, as PEFT's. -EBADMSG: the message names the file that is damaged. */
int identity_check_own(const char *folder);

#endif
