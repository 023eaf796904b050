/*
 * fuzz target: a whole .safetensors file in memory. Beyond not crashing, an accepted header must
 * keep every promise of formats/safetensors.h, checked here in another way than the parser does.
 */
#include "formats/safetensors.h"
#include "fuzz.h"

#include <stdlib.h>

static void check_tensor(const struct zinf_tensor_info *info, const uint8_t *data, size_t size)
{
    uint64_t n_elems = 1;
    volatile uint8_t touched = 0;
    require(info->name[0] && strlen(info->name) <= ZINF_TENSOR_MAX_NAME);
    require(info->rank >= 0 && info->rank <= ZINF_TENSOR_MAX_RANK);
    require((unsigned)info->dtype < ZINF_FILE_DTYPES);
    for (int i = 0; i < info->rank; i++)
        n_elems *= info->shape[i];
    require(n_elems == info->n_elems);
    require(info->bytes == n_elems * zinf_file_dtype_bytes(info->dtype));
    require(info->file_offset <= size && info->bytes <= size - info->file_offset);
    for (uint64_t i = 0; i < info->bytes; i++)
        touched ^= data[info->file_offset + i];
    (void)touched;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zinf_safetensors header;
    uint64_t total = 0;
    if (zinf_safetensors_init_image(&header, "fuzz", data, size))
        return 0;
    for (uint64_t i = 0; i < header.n_tensors; i++) {
        const struct zinf_tensor_info *info = &header.tensors[i];
        check_tensor(info, data, size);
        total += info->bytes;
        for (uint64_t j = 0; j < i && i < 64; j++)
            require(strcmp(info->name, header.tensors[j].name) != 0);
        if (i > 0)
            require(info->file_offset == info[-1].file_offset + info[-1].bytes);
    }
    require(!header.n_tensors || header.tensors[0].file_offset + total == size);
    cJSON *member;
    cJSON_ArrayForEach(member, header.metadata) require(cJSON_IsString(member));
    zinf_safetensors_fini(&header);
    return 0;
}
