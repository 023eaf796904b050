/*
 * fuzz target: a whole file of torch.save, or the pickle in it alone (what does not begin as an
 * archive). Beyond not crashing, every tensor of an accepted file must be readable to its last
 * element, and every element must come from inside of the file.
 */
#include "formats/pickle.h"
#include "formats/torch_file.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_BYTES (1u << 20)

static void check_tensor(const struct zinf_tensors *tensors, uint64_t index, size_t size)
{
    const struct zinf_tensor_info *info = zinf_tensors_at(tensors, index);
    require(info->name[0] && info->rank >= 0 && info->rank <= ZINF_TENSOR_MAX_RANK);
    require((unsigned)info->dtype < ZINF_FILE_DTYPES && info->bytes <= size);
    require(!info->bytes || info->file_offset < size);
    void *values = info->bytes <= MOST_BYTES ? malloc(info->bytes + 1) : NULL;
    if (values)
        require(!zinf_tensors_read(tensors, info, 0, info->n_elems, values));
    if (values && info->n_elems)
        require(!zinf_tensors_read(tensors, info, info->n_elems - 1, 1, values));
    free(values);
}

static void open_archive(const uint8_t *data, size_t size)
{
    struct zinf_tensors *tensors;
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!zinf_tensors_open(&tensors, path)) {
        for (uint64_t i = 0; i < zinf_tensors_count(tensors); i++)
            check_tensor(tensors, i, size);
        zinf_tensors_close(tensors);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zinf_pickle *pickle;
    struct zinf_pickled_tensor *tensors;
    uint64_t n;
    if (size >= 4 && !memcmp(data, "PK\3\4", 4)) {
        open_archive(data, size);
    } else if (!zinf_pickle_create(&pickle, "fuzz", data, size)) {
        if (!zinf_pickle_list_tensors(pickle, &tensors, &n)) {
            for (uint64_t i = 0; i < n; i++)
                require(tensors[i].rank <= ZINF_TENSOR_MAX_RANK);
            free(tensors);
        }
        zinf_pickle_destroy(pickle);
    }
    return 0;
}
