/*
 * inputs: OUTPUT/inputs.json, the files that a run reads, each with what it takes to see later that
 * it has changed, and where: of JSON its values, of text the sums of its lines (text/lines.h), of
 * weights the sum of all bytes, of what is small and no JSON one of the file. A run writes it
 * before its first step; zinf_run_inputs_verify (checkpoints.h) compares all of it, and a run that
 * does not go on takes the line from it that has changed. Its members:
 *
 *   "folders"  of models and adapters: "config", "adapter", "files", "weights" where they stay as
 *              they were read
 *   "files"    "json" or "sum"
 *   "data"     "lines" or, of a file of tokens, "tokens"
 *
 * Each has its "option" and its absolute "path". Inside src/train only.
 */
#ifndef ZINF_TRAIN_INPUTS_H
#define ZINF_TRAIN_INPUTS_H

#include "base/apart.h"
#include "base/json.h"
#include "text/text.h"

/* Begins a document with all of origins but data. weights: sums by file of the weights of the
 * origin called --model, or NULL: the run trains them, and does not need them again. */
int inputs_make(cJSON **out, const struct zinf_origins *origins, const cJSON *weights);
int inputs_add_data(cJSON *inputs, const char *option, const struct zinf_dataset *data);
int inputs_write(const cJSON *inputs, const char *output);
/* *out: NULL where there is none. -EBADMSG: it is damaged. */
int inputs_read(const char *output, cJSON **out);
/* The words "line 31" or "one of lines 33 to 64": where the index-th file of option differs between
 * two such documents. False: it is not known. */
bool inputs_line_of(const cJSON *then, const cJSON *now, const char *option, int index, char *out,
                    size_t bytes);

#endif
