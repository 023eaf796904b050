/*
 * inspect: what `zinf inspect` has opened and found. A problem is a sentence. Parts that could not
 * be opened are NULL and have left a problem.
 */
#ifndef ZINF_CLI_INSPECT_H
#define ZINF_CLI_INSPECT_H

#include "cli/cli.h"

#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"
#include "train/train.h"

#define INSPECT_MAX_PROBLEMS 1000
#define INSPECT_MAX_TYPES (ZINF_FILE_DTYPES + 8) /* and the block types of GGUF */

struct inspection {
    const char *path;
    char *folder; /* temporary model folder of a GGUF file; else NULL */
    bool is_folder;
    struct zinf_tensors *tensors;
    struct zinf_model *model;         /* of a folder */
    struct zinf_tokenizer *tokenizer; /* of a folder */
    cJSON *adapter;                   /* adapter_config.json of an adapter folder, or NULL */
    char family[64];                  /* model_type of config.json, even if not supported; "" */
    uint64_t elems, bytes, n_checked; /* n_checked: tensors whose values were read */
    struct {
        const char *name;
        uint64_t n;
    } stored[INSPECT_MAX_TYPES]; /* the number types that occur; ends at name NULL */
    bool fits;                   /* names, shapes and types of the tensors are those of the model */
    char *problems[INSPECT_MAX_PROBLEMS];
    int n_problems, n_unsaid; /* n_unsaid: problems beyond those that there is room for */
};

/* Opens what is at path. It cannot fail; errors become problems. */
void inspect_open(struct inspection *it, const char *path);
/* Compares tensors, config.json and tokenizer. */
void inspect_check_shapes(struct inspection *it);
/* Reads every floating-point tensor once, with bounded memory. */
void inspect_check_values(struct inspection *it);
void inspect_close(struct inspection *it);

#endif
