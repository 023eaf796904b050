/*
 * zip: where the files of a zip archive lie in it, if they are stored as they are. Internal to
 * formats. Only what PyTorch writes is known (APPNOTE 6.3.10, with zip64): no compression, no
 * encryption, one disk. Nothing is extracted: data is read in place by its offset.
 *
 * The archive is untrusted. A list promises: names are unique; every entry's local header repeats
 * its name; headers and data of the entries lie in the file, in front of the directory, and no two
 * share a byte. Any thread.
 */
#ifndef ZINF_ZIP_H
#define ZINF_ZIP_H

#include "base/base.h"

#define ZINF_ZIP_MAX_ENTRIES (1u << 19)
#define ZINF_ZIP_MAX_DIRECTORY_BYTES (128u << 20)

struct zinf_zip_entry {
    const char *name;       /* the list's */
    uint64_t header_offset; /* of its local header */
    uint64_t offset, bytes; /* of its data */
};
struct zinf_zip {
    struct zinf_zip_entry *entries; /* by name */
    uint64_t n_entries;
    char *names;
};
/* Lists the archive that fd has open; path names it in messages. out is for zinf_zip_fini after
 * success only. -EINVAL: no archive, damaged, or with what is not known here. */
int zinf_zip_init(struct zinf_zip *out, const char *path, int fd, uint64_t file_bytes);
void zinf_zip_fini(struct zinf_zip *zip);
const struct zinf_zip_entry *zinf_zip_find(const struct zinf_zip *zip, const char *name);

#endif
