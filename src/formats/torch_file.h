/*
 * torch_file: the tensors of a file of torch.save, such as pytorch_model.bin. Internal to formats.
 * The file is a zip archive (zip.h) of storages and a pickle (pickle.h) that says where tensors
 * are in them. Nothing is executed, and data are read in place. Tensors may share storages.
 *
 * The file is untrusted. A list is as well checked as a safetensors header (safetensors.h), but
 * tensors need not cover the data: each lies within its storage.
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
    struct zinf_pickle *pickle; /* of the archive's data.pkl */
};
/* Opens the archive of fd. Call zinf_torch_archive_close only after success. */
int zinf_torch_archive_open(struct zinf_torch_archive *out, const char *path, int fd,
                            uint64_t file_bytes);
void zinf_torch_archive_close(struct zinf_torch_archive *archive);
/* Finds a tensor of the pickle in the file: sets all of info but name and file. view is the
 * caller's, and info refers to it if the elements do not follow each other. */
int zinf_torch_archive_place(const struct zinf_torch_archive *archive,
                             const struct zinf_pickled_tensor *from, struct zinf_tensor_info *info,
                             struct zinf_tensor_view *view);

/* ---- files of weights ---- */

struct zinf_torch_file {
    struct zinf_tensor_info *tensors; /* in the order of the pickle; file is 0 */
    uint64_t n_tensors;
    char *names;
    struct zinf_tensor_view *views; /* of the tensors that are not contiguous */
};

/* By the first bytes of a file: 1: it was written by torch.save as an archive; 0: it was not;
 * -ENOTSUP: it is in the form from before PyTorch 1.6, and the message has a command that converts
 * it. */
int zinf_torch_file_is(const char *path, const uint8_t first[8]);
/* Lists the tensors of fd's file. Call zinf_torch_file_fini only after success. */
int zinf_torch_file_init(struct zinf_torch_file *out, const char *path, int fd,
                         uint64_t file_bytes);
void zinf_torch_file_fini(struct zinf_torch_file *file);

#endif
