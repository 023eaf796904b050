/*
 * zip: finds the files of a zip archive that are stored uncompressed. Internal to formats. It
 * knows only what PyTorch writes (APPNOTE 6.3.10, with zip64): no compression, no encryption, one
 * disk. Nothing is extracted; data are read in place.
 *
 * The archive is untrusted. In a list names are unique; every local header repeats its entry's
 * name; headers and data lie in the file before the directory and do not overlap. Any thread.
 */
#ifndef ZINF_ZIP_H
#define ZINF_ZIP_H

#include "base/base.h"

#define ZINF_ZIP_MAX_ENTRIES (1u << 19)
#define ZINF_ZIP_MAX_DIRECTORY_BYTES (128u << 20)

struct zinf_zip_entry {
    const char *name;       /* owned by the list */
    uint64_t header_offset; /* of its local header */
    uint64_t offset, bytes; /* of its data */
};
struct zinf_zip {
    struct zinf_zip_entry *entries; /* sorted by name */
    uint64_t n_entries;
    char *names;
};
/* Lists the archive of fd; path is for messages. Call zinf_zip_fini only after success. -EINVAL: it
 * is no archive, damaged, or has a feature that is not known. */
int zinf_zip_init(struct zinf_zip *out, const char *path, int fd, uint64_t file_bytes);
void zinf_zip_fini(struct zinf_zip *zip);
const struct zinf_zip_entry *zinf_zip_find(const struct zinf_zip *zip, const char *name);

#endif
