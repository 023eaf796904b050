/*
 * fuzz target: a whole GGUF file. Beyond not crashing, every tensor of an accepted file must be
 * readable, from its first element to its last.
 */
#include "formats/gguf.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_ELEMS (1u << 18)

static void check_tensor(const struct zinf_tensors *tensors, uint64_t index)
{
    const struct zinf_tensor_info *info = zinf_tensors_at(tensors, index);
    float last;
    require(info->name[0] && info->rank >= 1 && info->rank <= ZINF_TENSOR_MAX_RANK);
    require(info->n_elems > 0 && info->view && info->view->packed);
    float *values = info->n_elems <= MOST_ELEMS ? malloc(info->n_elems * sizeof *values) : NULL;
    if (values)
        require(!zinf_tensors_read_f32(tensors, info, 0, info->n_elems, values));
    require(!zinf_tensors_read_f32(tensors, info, info->n_elems - 1, 1, &last));
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zinf_tensors *tensors;
    char path[64];
    if (size < 4 || memcmp(data, "GGUF", 4) != 0)
        return 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!zinf_tensors_open(&tensors, path)) {
        for (uint64_t i = 0; i < zinf_tensors_count(tensors); i++)
            check_tensor(tensors, i);
        zinf_tensors_close(tensors);
    }
    close(fd);
    return 0;
}
