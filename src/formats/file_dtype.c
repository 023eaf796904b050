/*
 * file_dtype: the element types of the safetensors format. The format also knows types of less
 * than a byte, scale types and complex numbers; files with those are refused by name.
 */
#include "formats/formats.h"

#include <stdio.h>

static const struct {
    const char *name;
    uint8_t bytes;
} table[ZINF_FILE_DTYPES] = {
    [ZINF_FILE_BOOL] = {"BOOL", 1},       [ZINF_FILE_U8] = {"U8", 1},
    [ZINF_FILE_I8] = {"I8", 1},           [ZINF_FILE_F8_E5M2] = {"F8_E5M2", 1},
    [ZINF_FILE_F8_E4M3] = {"F8_E4M3", 1}, [ZINF_FILE_I16] = {"I16", 2},
    [ZINF_FILE_U16] = {"U16", 2},         [ZINF_FILE_F16] = {"F16", 2},
    [ZINF_FILE_BF16] = {"BF16", 2},       [ZINF_FILE_I32] = {"I32", 4},
    [ZINF_FILE_U32] = {"U32", 4},         [ZINF_FILE_F32] = {"F32", 4},
    [ZINF_FILE_F64] = {"F64", 8},         [ZINF_FILE_I64] = {"I64", 8},
    [ZINF_FILE_U64] = {"U64", 8},
};

const char *zinf_file_dtype_name(enum zinf_file_dtype dtype)
{
    return table[dtype].name;
}

size_t zinf_file_dtype_bytes(enum zinf_file_dtype dtype)
{
    return table[dtype].bytes;
}

int zinf_file_dtype_to_dtype(enum zinf_file_dtype dtype, enum zinf_dtype *out)
{
    switch (dtype) {
    case ZINF_FILE_F32:
        *out = ZINF_DTYPE_F32;
        return 0;
    case ZINF_FILE_BF16:
        *out = ZINF_DTYPE_BF16;
        return 0;
    case ZINF_FILE_F16:
        *out = ZINF_DTYPE_F16;
        return 0;
    default:
        return zinf_fail(-ENOTSUP,
                         "elements of type %s have no counterpart here: use F32, BF16 "
                         "or F16",
                         zinf_file_dtype_name(dtype));
    }
}

enum zinf_file_dtype zinf_file_dtype_from_dtype(enum zinf_dtype dtype)
{
    return dtype == ZINF_DTYPE_F32    ? ZINF_FILE_F32
           : dtype == ZINF_DTYPE_BF16 ? ZINF_FILE_BF16
                                      : ZINF_FILE_F16;
}

const char *zinf_shape_text(char *buffer, size_t bytes, int rank, const uint64_t *shape)
{
    size_t used = (size_t)snprintf(buffer, bytes, "[");
    for (int i = 0; i < rank && used < bytes; i++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)shape[i]);
    if (used < bytes)
        snprintf(buffer + used, bytes - used, "]");
    return buffer;
}
