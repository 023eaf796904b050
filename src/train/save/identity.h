/*
 * identity: what a run depends on, as one JSON document with these members, each if it is known:
 *
 *   "model"     the keys of config.json that affect arithmetic
 *   "adapter"   the same of adapter_config.json
 *   "files"     sums of the tokenizer's files and the chat template, by name
 *   "base"      the base's weights: "layout", a sum of names, types and shapes; "weights", one of
 *               all their bytes; "files", that by file
 *   "data", "eval_data"  lists of files with the sum of what became of them; "order" beside them
 *   "settings"  the seed, and the keys of the configuration that affect arithmetic
 *
 * It is stored with checkpoints, committed steps and adapters. A run that continues from one of
 * these, or uses it to compute or to write a model, compares it with its own. Placement, transfers
 * and the number of ranks are no part of it. Inside src/train only.
 */
#ifndef ZINF_TRAIN_IDENTITY_H
#define ZINF_TRAIN_IDENTITY_H

#include "base/json.h"
#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"

/* ---- making it; the document stays the caller's if adding to it fails ---- */

/* Creates the document with the model as it is set up and the files beside its weights in folder.
 */
int identity_of_model(cJSON **out, const struct zinf_model *model, const char *folder);
/* Adds the base weights. Bytes that were summed while they were loaded (formats.h) are not read
 * again. */
int identity_add_base(cJSON *identity, struct zinf_tensors *weights);
int identity_add_data(cJSON *identity, const char *member, const struct zinf_dataset *data);
int identity_add_settings(cJSON *identity, const cJSON *resolved, uint64_t seed);
/* A copy with only what concerns the base model: without adapter, data and settings. NULL for NULL.
 */
cJSON *identity_of_base(const cJSON *identity);
/* A short form for where there is little room: a checksum of each member. */
cJSON *identity_short(const cJSON *identity);

/* ---- comparing ---- */

/* Members that both documents have must be equal. -EINVAL: the message names the member, its file
 * and key. where: what saved the first document; model: the model folder given now; way_on: the end
 * of the message. The base weights are compared only with `base`. */
struct identity_check {
    const char *where, *model, *way_on;
    const char *config; /* the configuration file; NULL: only options were given */
    /* what was read then and now (inputs.h), to find the line that differs; or NULL */
    const cJSON *inputs[2];
    bool base; /* also compare the base weights */
    bool head; /* also compare the classes of the model's head, which a training may set */
    bool warn; /* differences are only warnings */
};
int identity_compare(const cJSON *saved, const cJSON *now, const struct identity_check *check);

/* ---- of an adapter's folder ---- */

#define IDENTITY_FILE "adapter_base.json"

/* Checks that the tokenizer's files in folder, and the adapter configuration config unless it is
 * NULL, are those of identity. -EBADMSG: the message names what differs. */
int identity_check_files(const cJSON *identity, const cJSON *config, const char *folder);

/* Writes IDENTITY_FILE. own: XXH3 of the data that was written to adapter_model.safetensors. */
int identity_write(const cJSON *identity, uint64_t own, const char *folder);
/* *out: NULL where the folder says nothing. */
int identity_read(const char *folder, cJSON **out);
/* Compares an adapter's folder with the model that it is used with. Folders without
 * adapter_base.json are accepted. A base in another form (quantised, another number type) only
 * causes a warning. */
int identity_check_adapter(const cJSON *now, const char *folder, const char *model);
/* Checks an adapter's folder for damage, before anything in it is used. 1: its checksum is right;
 * 0: it has none, like PEFT's folders. -EBADMSG: the message names the damaged file. */
int identity_check_own(const char *folder);

#endif
