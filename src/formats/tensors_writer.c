/*
 * tensors_writer: streams tensors into one file or into shards. All placing is done before the
 * first byte (tensors_layout), so data may come in any cut while one shard is open at a time.
 *
 * Finished shards keep a temporary name until all are complete; then they are renamed, and the
 * index, which makes them a model, comes last. What an earlier model left in the folder and a
 * reader would prefer or mix in is removed.
 */
#include "formats/file_span.h"
#include "formats/stream_file.h"
#include "formats/tensors_index.h"
#include "formats/tensors_layout.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DEFAULT_SHARD_BYTES 5000000000 /* as Hugging Face cuts */

enum writer_state {
    WRITER_DECLARING,
    WRITER_STREAMING,
    WRITER_FINISHED,
    WRITER_FAILED, /* sticky: only destroy is left */
};

struct zinf_tensors_writer {
    char *path;
    bool single_file;
    uint64_t max_shard_bytes;
    enum writer_state state;
    struct zinf_tensor_info *list; /* names on the heap, one each */
    uint64_t count, capacity;
    struct zinf_tensors_layout layout;
    struct zinf_stream_file *files; /* [n_shards] */
    uint64_t *sums;                 /* [n_shards] of the files' bytes, known when they are synced */
    uint32_t n_opened;              /* the last of them is open while streaming */
    uint64_t at, done;              /* tensor and bytes of it that came in */
};

/* ---- declaring ---- */

int zinf_tensors_writer_create(struct zinf_tensors_writer **out,
                               const struct zinf_tensors_writer_options *options)
{
    if (!options->path || !*options->path)
        return zinf_fail(-EINVAL, "no path to write tensors to");
    int code = options->single_file ? 0 : zinf_make_dirs(options->path);
    if (code)
        return code;
    struct zinf_tensors_writer *writer = calloc(1, sizeof *writer);
    char *path = strdup(options->path);
    if (!writer || !path) {
        free(writer);
        free(path);
        return zinf_fail(-ENOMEM, "no memory to write %s", options->path);
    }
    writer->path = path;
    writer->single_file = options->single_file;
    writer->max_shard_bytes =
        options->max_shard_bytes ? options->max_shard_bytes : DEFAULT_SHARD_BYTES;
    *out = writer;
    return 0;
}

static int fail_state(const struct zinf_tensors_writer *writer, const char *call)
{
    static const char *const names[] = {"declaring", "streaming", "finished", "failed"};
    return zinf_fail(-EINVAL, "%s: the writer cannot %s, it is %s", writer->path, call,
                     names[writer->state]);
}

static int fail_writer(struct zinf_tensors_writer *writer, int code)
{
    writer->state = WRITER_FAILED;
    return code;
}

static int grow_list(struct zinf_tensors_writer *writer)
{
    uint64_t capacity = writer->capacity ? 2 * writer->capacity : 64;
    struct zinf_tensor_info *list = realloc(writer->list, capacity * sizeof *list);
    if (!list)
        return zinf_fail(-ENOMEM, "no memory for a list of %llu tensors",
                         (unsigned long long)capacity);
    writer->list = list;
    writer->capacity = capacity;
    return 0;
}

int zinf_tensors_writer_declare(struct zinf_tensors_writer *writer, const char *name,
                                enum zinf_file_dtype dtype, int rank, const uint64_t *shape)
{
    struct zinf_tensor_info info = {.dtype = dtype, .rank = rank};
    if (writer->state != WRITER_DECLARING)
        return fail_state(writer, "declare a tensor");
    if (!zinf_tensor_name_valid(name) || !strcmp(name, "__metadata__"))
        return zinf_fail(-EINVAL, "'%.100s' cannot be a tensor's name in %s", name, writer->path);
    if ((unsigned)dtype >= ZINF_FILE_DTYPES || rank < 0 || rank > ZINF_TENSOR_MAX_RANK)
        return zinf_fail(-EINVAL, "tensor '%s': type %d or rank %d (at most %d) is out of range",
                         name, (int)dtype, rank, ZINF_TENSOR_MAX_RANK);
    if (rank)
        memcpy(info.shape, shape, (size_t)rank * sizeof *shape);
    if (!zinf_tensor_size(&info))
        return zinf_fail(-EINVAL, "tensor '%s': its shape has more than 2^64 bytes", name);
    if (writer->count == writer->capacity && grow_list(writer))
        return -ENOMEM;
    info.name = strdup(name);
    if (!info.name)
        return zinf_fail(-ENOMEM, "no memory for the name '%s'", name);
    writer->list[writer->count++] = info;
    return 0;
}

/* ---- beginning ---- */

/* The folder that path lies in, on the heap. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == path ? strdup("/")
           : slash       ? strndup(path, (size_t)(slash - path))
                         : strdup(".");
}

static int check_room(const struct zinf_tensors_writer *writer, const char *folder)
{
    struct statvfs room;
    char needed[16], there[16];
    if (statvfs(folder, &room))
        return zinf_fail(-errno, "cannot write to the folder %s: %s", folder, strerror(errno));
    uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    if (writer->layout.total_bytes <= free_bytes)
        return 0;
    return zinf_fail(-ENOSPC,
                     "%s needs %s, but its file system has only %s free: make room or choose "
                     "another folder",
                     writer->path,
                     zinf_size_format(needed, sizeof needed, writer->layout.total_bytes),
                     zinf_size_format(there, sizeof there, free_bytes));
}

static int open_next_shard(struct zinf_tensors_writer *writer)
{
    struct zinf_tensors_shard *shard = &writer->layout.shards[writer->n_opened];
    struct zinf_stream_file *file = &writer->files[writer->n_opened];
    char *path =
        writer->single_file ? strdup(writer->path) : zinf_path_join(writer->path, shard->name);
    if (!path)
        return zinf_fail(-ENOMEM, "no memory for a path in %s", writer->path);
    int code = zinf_stream_file_init(file, path, shard->file_bytes);
    free(path);
    if (code)
        return code;
    writer->n_opened++;
    code = zinf_stream_file_write(file, shard->header, shard->header_bytes, 0);
    free(shard->header);
    shard->header = NULL;
    return code;
}

int zinf_tensors_writer_begin(struct zinf_tensors_writer *writer)
{
    if (writer->state != WRITER_DECLARING)
        return fail_state(writer, "begin");
    int code = zinf_tensors_layout_init(&writer->layout, writer->list, writer->count,
                                        writer->single_file ? UINT64_MAX : writer->max_shard_bytes);
    if (!code && writer->single_file && writer->layout.n_shards > 1)
        code = zinf_fail(-EINVAL, "%s: one file holds at most %u tensors: write a folder",
                         writer->path, ZINF_SAFETENSORS_MAX_TENSORS);
    char *folder = writer->single_file ? parent_of(writer->path) : strdup(writer->path);
    if (!code && !folder)
        code = zinf_fail(-ENOMEM, "no memory to write %s", writer->path);
    if (!code)
        code = check_room(writer, folder);
    free(folder);
    if (!code) {
        writer->files = calloc(writer->layout.n_shards, sizeof *writer->files);
        writer->sums = calloc(writer->layout.n_shards, sizeof *writer->sums);
        if (!writer->files || !writer->sums)
            code = zinf_fail(-ENOMEM, "no memory for %u shards", writer->layout.n_shards);
    }
    if (!code)
        code = open_next_shard(writer);
    writer->state = code ? WRITER_FAILED : WRITER_STREAMING;
    return code;
}

/* ---- streaming ---- */

static int sync_shard(struct zinf_tensors_writer *writer)
{
    uint32_t last = writer->n_opened - 1;
    return zinf_stream_file_sync(&writer->files[last], &writer->sums[last]);
}

/* Steps to the next tensor that still wants bytes, through the ends of shards. */
static int advance(struct zinf_tensors_writer *writer)
{
    while (writer->at < writer->count && writer->done == writer->list[writer->at].bytes) {
        writer->at++;
        writer->done = 0;
        if (writer->at < writer->layout.shards[writer->n_opened - 1].end ||
            writer->n_opened == writer->layout.n_shards)
            continue;
        int code = sync_shard(writer);
        if (!code)
            code = open_next_shard(writer);
        if (code)
            return code;
    }
    return 0;
}

int zinf_tensors_writer_append(struct zinf_tensors_writer *writer, const void *data, uint64_t bytes)
{
    const char *from = data;
    if (writer->state != WRITER_STREAMING)
        return fail_state(writer, "append");
    while (bytes > 0) {
        int code = advance(writer);
        if (code)
            return fail_writer(writer, code);
        if (writer->at == writer->count)
            return fail_writer(writer, zinf_fail(-EINVAL, "%s: %llu bytes more than were declared",
                                                 writer->path, (unsigned long long)bytes));
        const struct zinf_tensor_info *info = &writer->list[writer->at];
        uint64_t left = info->bytes - writer->done, n = bytes < left ? bytes : left;
        code = zinf_stream_file_write(&writer->files[info->file], from, n,
                                      info->file_offset + writer->done);
        if (code)
            return fail_writer(writer, code);
        writer->done += n;
        from += n;
        bytes -= n;
    }
    return 0;
}

/* ---- finishing ---- */

static int remove_in(const char *folder, const char *name)
{
    char *path = zinf_path_join(folder, name);
    int code = 0;
    if (!path)
        return -ENOMEM;
    if (unlink(path) && errno != ENOENT)
        code = zinf_fail(-errno, "cannot remove the old %s: %s", path, strerror(errno));
    free(path);
    return code;
}

/* model-0000i-of-0000n.safetensors; *n_shards is its n. */
static bool is_shard_name(const char *name, unsigned *n_shards)
{
    static const char pattern[] = "model-#####-of-#####.safetensors";
    if (strlen(name) != sizeof pattern - 1)
        return false;
    *n_shards = 0;
    for (size_t i = 0; pattern[i]; i++) {
        bool digit = name[i] >= '0' && name[i] <= '9';
        if (pattern[i] == '#' ? !digit : name[i] != pattern[i])
            return false;
        if (digit && i > sizeof "model-#####-of" - 1)
            *n_shards = 10 * *n_shards + (unsigned)(name[i] - '0');
    }
    return true;
}

/* Shards of an earlier, differently cut model. */
static int remove_stale_shards(const char *folder, uint32_t n_shards)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int code = 0;
    if (!dir)
        return zinf_fail(-errno, "cannot list %s: %s", folder, strerror(errno));
    while (!code && (entry = readdir(dir))) {
        unsigned n;
        if (is_shard_name(entry->d_name, &n) && (n_shards == 1 || n != n_shards))
            code = remove_in(folder, entry->d_name);
    }
    closedir(dir);
    return code;
}

static int publish_shards(struct zinf_tensors_writer *writer)
{
    int code = 0;
    for (uint32_t i = 0; i < writer->layout.n_shards && !code; i++)
        code = zinf_stream_file_publish(&writer->files[i]);
    return code;
}

static int write_index(struct zinf_tensors_writer *writer)
{
    char *path = zinf_path_join(writer->path, ZINF_TENSORS_INDEX), *text = NULL;
    size_t bytes = 0;
    int code = path ? zinf_tensors_layout_index(&writer->layout, writer->list, writer->count, &text,
                                                &bytes)
                    : -ENOMEM;
    if (!code)
        code = zinf_file_write_atomic(path, text, bytes);
    free(text);
    free(path);
    return code;
}

/* At every moment a reader finds the old model, the new one, or an error; never a mixture. */
static int publish_folder(struct zinf_tensors_writer *writer)
{
    bool sharded = writer->layout.n_shards > 1;
    int code = sharded ? remove_in(writer->path, ZINF_TENSORS_INDEX) : 0;
    if (!code)
        code = publish_shards(writer);
    if (!code && sharded)
        code = write_index(writer);
    if (!code)
        code = remove_in(writer->path, sharded ? ZINF_TENSORS_SINGLE : ZINF_TENSORS_INDEX);
    if (!code)
        code = remove_stale_shards(writer->path, writer->layout.n_shards);
    return code ? code : zinf_folder_sync(writer->path);
}

static int publish_file(struct zinf_tensors_writer *writer)
{
    char *folder = parent_of(writer->path);
    int code = publish_shards(writer);
    if (!code && folder)
        code = zinf_folder_sync(folder);
    free(folder);
    return code;
}

int zinf_tensors_writer_finish(struct zinf_tensors_writer *writer)
{
    if (writer->state != WRITER_STREAMING)
        return fail_state(writer, "finish");
    int code = advance(writer);
    if (!code && writer->at < writer->count)
        code = zinf_fail(-EINVAL, "%s: tensor '%s' got %llu of its %llu bytes", writer->path,
                         writer->list[writer->at].name, (unsigned long long)writer->done,
                         (unsigned long long)writer->list[writer->at].bytes);
    if (!code)
        code = sync_shard(writer);
    if (!code)
        code = writer->single_file ? publish_file(writer) : publish_folder(writer);
    writer->state = code ? WRITER_FAILED : WRITER_FINISHED;
    return code;
}

bool zinf_tensors_writer_file(const struct zinf_tensors_writer *writer, uint32_t i,
                              struct zinf_written_file *out)
{
    if (writer->state != WRITER_FINISHED || i >= writer->layout.n_shards)
        return false;
    const char *slash = strrchr(writer->path, '/');
    const struct zinf_tensors_shard *shard = &writer->layout.shards[i];
    *out = (struct zinf_written_file){
        .name = !writer->single_file ? shard->name
                : slash              ? slash + 1
                                     : writer->path,
        .bytes = shard->file_bytes,
        .xxh3 = writer->sums[i],
    };
    return true;
}

void zinf_tensors_writer_destroy(struct zinf_tensors_writer *writer)
{
    if (!writer)
        return;
    for (uint32_t i = 0; i < writer->n_opened; i++)
        zinf_stream_file_discard(&writer->files[i]);
    for (uint64_t i = 0; i < writer->count; i++)
        free((char *)writer->list[i].name);
    zinf_tensors_layout_fini(&writer->layout);
    free(writer->files);
    free(writer->sums);
    free(writer->list);
    free(writer->path);
    free(writer);
}
