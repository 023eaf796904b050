/*
 * inspect: what `zinf inspect` has opened and found. A problem is a sentence; the parts that could
 * not be opened stay NULL and left a problem behind.
 */
#ifndef ZINF_CLI_INSPECT_H
#define ZINF_CLI_INSPECT_H

#include "cli/cli.h"

#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"
#include "train/train.h"

#define INSPECT_MAX_PROBLEMS 1000
#define INSPECT_MAX_TYPES (ZINF_FILE_DTYPES + 8) /* with the blocks of GGUF */

struct inspection {
    const char *path;
    char *folder; /* of what a GGUF file holds; else NULL */
    bool is_folder;
    struct zinf_tensors *tensors;
    struct zinf_model *model;         /* folders */
    struct zinf_tokenizer *tokenizer; /* folders */
    cJSON *adapter;                   /* adapter_config.json of an adapter's folder, or NULL */
    char family[64];                  /* model_type of config.json, supported or not; "" */
    uint64_t elems, bytes, n_checked; /* tensors whose values were looked at */
    struct {
        const char *name;
        uint64_t n;
    } stored[INSPECT_MAX_TYPES]; /* number types that there are, up to name NULL */
    bool fits; /* names, shapes and dtypes of the tensors are those of the model */
    char *problems[INSPECT_MAX_PROBLEMS];
    int n_problems, n_unsaid; /* unsaid: more than fit */
};

/* Opens what is at path; never fails: what is wrong becomes a problem. */
void inspect_open(struct inspection *it, const char *path);
/* Compares tensors, config.json and tokenizer with each other. */
void inspect_check_shapes(struct inspection *it);
/* Reads every floating tensor once, in bounded memory. */
void inspect_check_values(struct inspection *it);
void inspect_close(struct inspection *it);

#endif
