/* torch_file: brings together what the pickle says and what the archive has. */
#include "formats/torch_file.h"
#include "base/json.h"
#include "formats/file_span.h"
#include "formats/pickle.h"
#include "formats/safetensors.h"
#include "formats/tensors_view.h"
#include "formats/zip.h"

#include <stdio.h>
#include <stdlib.h>

/* Where its parts are: "FOLDER/data.pkl", "FOLDER/data/KEY"; the folder is named after the file. */
#define PICKLE_ENTRY "/data.pkl"
#define BYTE_ORDER_ENTRY "/byteorder"
#define STORAGES_ENTRY "/data/"

int zinf_torch_file_is(const char *path, const uint8_t first[8])
{
    /* The old form begins with a pickled number of its own, the magic of torch.serialization. */
    static const uint8_t old[] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46};
    if (!memcmp(first, "PK\3\4", 4))
        return 1;
    if (memcmp(first, old, sizeof old) != 0)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s has the form of torch.save from before PyTorch 1.6; rewrite it: python3 "
                     "-c \"import torch; f = '%s'; torch.save(torch.load(f, 'cpu', "
                     "weights_only=True), f)\"",
                     path, path);
}

/* ---- parts of the archive ---- */

static const struct zinf_zip_entry *find(const struct zinf_torch_archive *r, const char *part,
                                         const struct zinf_pickled_text *key)
{
    char name[ZINF_TORCH_ENTRY_BYTES];
    int n = snprintf(name, sizeof name, "%s%s%.*s", r->folder, part, key ? (int)key->bytes : 0,
                     key ? key->at : "");
    return n > 0 && (size_t)n < sizeof name ? zinf_zip_find(&r->zip, name) : NULL;
}

/* The entry FOLDER/data.pkl says what the folder is. */
static const struct zinf_zip_entry *find_pickle(struct zinf_torch_archive *r)
{
    for (uint64_t i = 0; i < r->zip.n_entries; i++) {
        const char *name = r->zip.entries[i].name, *slash = strchr(name, '/');
        if (!slash || strcmp(slash, PICKLE_ENTRY) != 0 ||
            (size_t)(slash - name) >= sizeof r->folder)
            continue;
        snprintf(r->folder, sizeof r->folder, "%.*s", (int)(slash - name), name);
        return &r->zip.entries[i];
    }
    return NULL;
}

static int check_byte_order(const struct zinf_torch_archive *r)
{
    const struct zinf_zip_entry *entry = find(r, BYTE_ORDER_ENTRY, NULL);
    char word[8] = "";
    if (!entry || entry->bytes >= sizeof word)
        return 0;
    int code = zinf_file_span_read(r->fd, r->path, word, entry->bytes, entry->offset);
    if (!code && strcmp(word, "little") != 0)
        code = zinf_fail(
            -ENOTSUP, "%s was written on a big-endian machine: save it again on another", r->path);
    return code;
}

static int read_pickle(struct zinf_torch_archive *r)
{
    const struct zinf_zip_entry *entry = find_pickle(r);
    if (!entry)
        return zinf_fail(-EINVAL, "%s is an archive, but not one of torch.save: it has no data.pkl",
                         r->path);
    if (entry->bytes > ZINF_PICKLE_MAX_BYTES)
        return zinf_fail(-EINVAL, "%s: its data.pkl has %llu bytes, more than any model needs",
                         r->path, (unsigned long long)entry->bytes);
    r->pickle_bytes = malloc(entry->bytes + 1);
    if (!r->pickle_bytes)
        return zinf_fail(-ENOMEM, "%s: no memory for its pickle", r->path);
    int code = zinf_file_span_read(r->fd, r->path, r->pickle_bytes, entry->bytes, entry->offset);
    if (!code)
        code = check_byte_order(r);
    return code ? code : zinf_pickle_create(&r->pickle, r->path, r->pickle_bytes, entry->bytes);
}

int zinf_torch_archive_open(struct zinf_torch_archive *out, const char *path, int fd,
                            uint64_t file_bytes)
{
    *out = (struct zinf_torch_archive){.path = path, .fd = fd};
    int code = zinf_zip_init(&out->zip, path, fd, file_bytes);
    if (!code)
        code = read_pickle(out);
    if (code)
        zinf_torch_archive_close(out);
    return code;
}

void zinf_torch_archive_close(struct zinf_torch_archive *archive)
{
    zinf_pickle_destroy(archive->pickle);
    zinf_zip_fini(&archive->zip);
    free(archive->pickle_bytes);
    *archive = (struct zinf_torch_archive){0};
}

/* ---- tensors ---- */

static int fail_tensor(const struct zinf_torch_archive *r, const struct zinf_tensor_info *info,
                       const char *how)
{
    return zinf_fail(-EINVAL,
                     "%s: tensor '%s' %s; the file is damaged or was cut short: fetch or write it "
                     "again",
                     r->path, info->name, how);
}

/* The view, if elements do not follow each other; and that all of them are in the storage. */
static int check_extent(const struct zinf_torch_archive *r, struct zinf_tensor_info *info,
                        const struct zinf_pickled_tensor *from, struct zinf_tensor_view *view)
{
    uint64_t elems = from->storage_bytes / zinf_file_dtype_bytes(info->dtype), reach;
    if (!info->n_elems)
        return from->first <= elems ? 0 : fail_tensor(r, info, "begins behind its storage");
    zinf_tensor_view_init(view, from->rank, from->shape, from->stride);
    if (!zinf_tensor_view_reach(view, &reach) || from->first > elems || reach > elems - from->first)
        return fail_tensor(r, info, "reaches beyond its storage");
    if (info->n_elems > elems)
        return zinf_fail(-ENOTSUP,
                         "%s: tensor '%s' repeats its elements (an expanded view): save it with "
                         ".contiguous()",
                         r->path, info->name);
    if (!zinf_tensor_view_is_contiguous(view))
        info->view = view;
    return 0;
}

int zinf_torch_archive_place(const struct zinf_torch_archive *r,
                             const struct zinf_pickled_tensor *from, struct zinf_tensor_info *info,
                             struct zinf_tensor_view *view)
{
    const struct zinf_zip_entry *entry = find(r, STORAGES_ENTRY, &from->key);
    info->dtype = from->dtype;
    info->rank = from->rank;
    memcpy(info->shape, from->shape, sizeof info->shape);
    if (!zinf_tensor_size(info))
        return fail_tensor(r, info, "has a shape of more than 2^64 bytes");
    if (!entry || entry->bytes != from->storage_bytes)
        return fail_tensor(r, info,
                           entry ? "has a storage of another size in the archive"
                                 : "has no storage in the archive");
    int code = check_extent(r, info, from, view);
    info->file_offset = entry->offset + from->first * zinf_file_dtype_bytes(info->dtype);
    return code;
}

/* ---- a file of weights ---- */

static int fail_name(const struct zinf_torch_archive *r)
{
    return zinf_fail(-EINVAL, "%s: a tensor has a name that is not 1 to %d printable bytes",
                     r->path, ZINF_TENSOR_MAX_NAME);
}

static int take_name(const struct zinf_torch_archive *r, struct zinf_tensor_info *info,
                     const struct zinf_pickled_text *name, char **to)
{
    char *copy = memcpy(*to, name->at, name->bytes);
    copy[name->bytes] = 0;
    *to += name->bytes + 1;
    info->name = copy;
    if (zinf_tensor_name_valid(copy) && zinf_utf8_check(copy, name->bytes) == name->bytes)
        return 0;
    return fail_name(r);
}

static int take_tensors(const struct zinf_torch_archive *r, struct zinf_torch_file *file,
                        const struct zinf_pickled_tensor *from, uint64_t n)
{
    uint64_t names_bytes = 1, n_views = 0;
    int code = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (from[i].name.bytes > ZINF_TENSOR_MAX_NAME)
            return fail_name(r); /* one long text may be the name of all */
        names_bytes += from[i].name.bytes + 1;
    }
    file->tensors = calloc(n + 1, sizeof *file->tensors);
    file->views = calloc(n + 1, sizeof *file->views);
    char *names = file->names = malloc(names_bytes);
    if (!file->tensors || !file->views || !names)
        return zinf_fail(-ENOMEM, "%s: no memory for %llu tensors", r->path, (unsigned long long)n);
    for (; !code && file->n_tensors < n; file->n_tensors++) {
        struct zinf_tensor_info *info = &file->tensors[file->n_tensors];
        code = take_name(r, info, &from[file->n_tensors].name, &names);
        if (!code)
            code = zinf_torch_archive_place(r, &from[file->n_tensors], info, &file->views[n_views]);
        n_views += info->view != NULL;
    }
    return code;
}

int zinf_torch_file_init(struct zinf_torch_file *out, const char *path, int fd, uint64_t file_bytes)
{
    struct zinf_torch_archive archive;
    struct zinf_torch_file file = {0};
    struct zinf_pickled_tensor *list = NULL;
    uint64_t n = 0;
    int code = zinf_torch_archive_open(&archive, path, fd, file_bytes);
    if (code)
        return code;
    code = zinf_pickle_list_tensors(archive.pickle, &list, &n);
    if (!code)
        code = take_tensors(&archive, &file, list, n);
    free(list);
    zinf_torch_archive_close(&archive);
    if (code)
        zinf_torch_file_fini(&file);
    else
        *out = file;
    return code;
}

void zinf_torch_file_fini(struct zinf_torch_file *file)
{
    free(file->tensors);
    free(file->names);
    free(file->views);
    *file = (struct zinf_torch_file){0};
}
