/*
 * torch_file: the tensors of a file of torch.save, such as pytorch_model.bin. Internal to formats.
 * The file is a zip archive (zip.h) of storages and of a pickle that says which tensors lie where
 * in them (pickle.h); nothing of it is run, and data is read in place. Tensors may share storages.
 *
 * The file is untrusted. A list promises what a safetensors header does (safetensors.h), but that
 * its tensors tile the data: each lies within its storage, and has no more elements than that.
 */
#ifndef ZINF_TORCH_FILE_H
#define ZINF_TORCH_FILE_H

#include "formats/pickle.h"
#include "formats/zip.h"

struct zinf_tensor_view;

/* ---- any file of torch.save ---- */

#define ZINF_TORCH_ENTRY_BYTES 512
struct zinf_torch_archive {
    const char *path; /* the caller's */
    int fd;           /* the caller's */
    struct zinf_zip zip;
    char folder[ZINF_TORCH_ENTRY_BYTES];
    char *pickle_bytes;
    struct zinf_pickle *pickle; /* what the file says */
};
/* Of the file that fd has open. out is for zinf_torch_archive_close after success only. */
int zinf_torch_archive_open(struct zinf_torch_archive *out, const char *path, int fd,
                            uint64_t file_bytes);
void zinf_torch_archive_close(struct zinf_torch_archive *archive);
/* Where a tensor of the pickle lies in the file: all of info but its name, which messages use, and
 * its file. view: the caller's, and info's where elements do not follow each other. */
int zinf_torch_archive_place(const struct zinf_torch_archive *archive,
                             const struct zinf_pickled_tensor *from, struct zinf_tensor_info *info,
                             struct zinf_tensor_view *view);

/* ---- one of weights ---- */

struct zinf_torch_file {
    struct zinf_tensor_info *tensors; /* in the order of the pickle; file is 0 */
    uint64_t n_tensors;
    char *names;
    struct zinf_tensor_view *views; /* of those that are not contiguous */
};

/* Whether the file's first bytes say that torch.save wrote it: 1 as an archive, 0 no; -ENOTSUP: in
 * the form from before PyTorch 1.6, with the command that rewrites it. */
int zinf_torch_file_is(const char *path, const uint8_t first[8]);
/* Lists the tensors of the file that fd has open. out is for zinf_torch_file_fini after success
 * only. */
int zinf_torch_file_init(struct zinf_torch_file *out, const char *path, int fd,
                         uint64_t file_bytes);
void zinf_torch_file_fini(struct zinf_torch_file *file);

#endif
