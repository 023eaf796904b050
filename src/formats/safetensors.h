/*
 * safetensors: parses and checks the header of one file. Internal to formats. The reader parses
 * files with it, the writer checks its own headers, and the fuzzer gives it images in memory.
 *
 * A file is the header's length n (u64, little endian), n bytes of JSON, and the data. In a parsed
 * header names are unique, 1 to ZINF_TENSOR_MAX_NAME bytes of UTF-8 without control characters;
 * shapes, types and bytes agree; and the tensors cover the data without gaps or overlaps.
 */
#ifndef ZINF_SAFETENSORS_H
#define ZINF_SAFETENSORS_H

#include "base/json.h"
#include "formats/formats.h"

#define ZINF_SAFETENSORS_LENGTH_BYTES 8
#define ZINF_SAFETENSORS_MAX_HEADER_BYTES 100000000 /* the format's own limit */
#define ZINF_SAFETENSORS_MAX_TENSORS (1u << 18)     /* per file; the largest models have 10^5 */
#define ZINF_TENSOR_MAX_NAME 1024

struct zinf_safetensors {
    struct zinf_tensor_info *tensors; /* in the order of their data; file is 0 */
    uint64_t n_tensors;
    char *names;     /* all names; tensors[].name points into it */
    cJSON *metadata; /* object of strings, or NULL */
};

/* The header's length, from the first 8 bytes of a file; what names the file in messages. */
int zinf_safetensors_length(const char *what, const void *first, uint64_t file_bytes,
                            uint64_t *json_bytes);
/* Parses and checks the JSON. Call zinf_safetensors_fini only after success. */
int zinf_safetensors_init(struct zinf_safetensors *out, const char *what, const char *json,
                          uint64_t json_bytes, uint64_t file_bytes);
/* The same for a whole file in memory. */
int zinf_safetensors_init_image(struct zinf_safetensors *out, const char *what, const void *data,
                                uint64_t bytes);
void zinf_safetensors_fini(struct zinf_safetensors *header);

/* Whether a name has the length and characters described above. Its UTF-8 is checked by the JSON
 * reader. */
bool zinf_tensor_name_valid(const char *name);
/* Sets n_elems and bytes from dtype and shape; false on overflow. */
bool zinf_tensor_size(struct zinf_tensor_info *info);

#endif
