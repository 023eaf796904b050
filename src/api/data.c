/* data: opening what a session trains on or is measured by, whatever form its rows have. */
#include "api/embedding.h"

#include "formats/formats.h"

#include <limits.h>
#include <sys/stat.h>

static int read_source(void *handle, uint64_t first, uint64_t n, int32_t *out)
{
    return zinf_token_file_read(handle, first, n, out);
}

static void close_source(void *handle)
{
    zinf_token_file_close(handle);
}

static int open_token_file(const char *path, struct zinf_token_source *out)
{
    struct zinf_token_file *file;
    int code = zinf_token_file_open(&file, path);
    if (code)
        return code;
    *out = (struct zinf_token_source){
        .count = zinf_token_file_count(file),
        .read = read_source,
        .close = close_source,
        .handle = file,
    };
    return 0;
}

/* The files that name means: itself if there is one of that name, or no wild card in it. */
static int expand_name(glob_t *all, const char *name, int flags)
{
    static const char wild[] = "*?[\\";
    struct stat info;
    char literal[2 * PATH_MAX];
    size_t used = 0;
    bool exists = !stat(name, &info);
    if (!exists && strpbrk(name, "*?["))
        return glob(name, flags, NULL, all);
    for (const char *at = name; *at && used + 2 < sizeof literal; at++) {
        if (exists && strchr(wild, *at))
            literal[used++] = '\\';
        literal[used++] = *at;
    }
    literal[used] = 0;
    return glob(literal, flags | GLOB_NOCHECK | (exists ? 0 : GLOB_NOESCAPE), NULL, all);
}

/* A quoted pattern is one that no shell has expanded. Its files come in the order of their names.
 */
static int expand(struct zinf_session *s, const struct zinf_words *files, const glob_t **out)
{
    glob_t *all = &s->globs[s->n_globs++];
    for (int i = 0; i < files->n; i++) {
        int result = expand_name(all, files->items[i], i ? GLOB_APPEND : 0);
        if (result == GLOB_NOMATCH)
            return zinf_fail(-ENOENT, "no file matches %s", files->items[i]);
        if (result)
            return zinf_fail(-EIO, "cannot look for %s: %s", files->items[i], strerror(errno));
    }
    for (size_t i = 0; i < all->gl_pathc; i++) {
        int code = zinf_origins_add(&s->origins, s->n_globs > 1 ? "--eval-data" : "--data",
                                    all->gl_pathv[i]);
        if (code)
            return code;
    }
    *out = all;
    return 0;
}

/* Windows of a step, where their order goes by length; else 0. */
static uint64_t group_of(const struct zinf_session *s, bool shuffle)
{
    return shuffle && s->config && s->config->group_by_length
               ? (uint64_t)job_windows(s, s->config->train_batch_size)
               : 0;
}

static int check_group(const struct zinf_job *c, enum zinf_format format, bool texts,
                       const char *file)
{
    if (c->pack)
        return zinf_fail(-EINVAL, "zinf.group_by_length (--group-by-length) and --pack: packed "
                                  "windows all have one length; give one of them");
    return texts && format == ZINF_FORMAT_STREAM
               ? zinf_fail(
                     -EINVAL,
                     "zinf.group_by_length (--group-by-length): %s is a stream of text, whose "
                     "windows all have one length: --format text makes a sample of each row",
                     file)
               : 0;
}

/* Rows of texts that are masked, or a stream of text. */
static int tell_masked(const struct zinf_job *c, enum zinf_format *format)
{
    *format = c->pack || c->task.source_column ? ZINF_FORMAT_TEXT : ZINF_FORMAT_STREAM;
    int code = c->format ? zinf_format_parse(c->format, format) : 0;
    return code || *format == ZINF_FORMAT_TEXT || *format == ZINF_FORMAT_STREAM
               ? code
               : zinf_fail(-EINVAL,
                           "--format %s: --task masked-lm takes text, a sample of each row, or "
                           "stream",
                           c->format);
}

/* What form the rows have, and whether the task can have it. */
static int tell_format(const struct zinf_session *s, const glob_t *paths, enum zinf_format *format)
{
    const struct zinf_job *c = &s->job;
    if (s->task == ZINF_TASK_MASKED)
        return tell_masked(c, format);
    if (s->task != ZINF_TASK_CAUSAL && !job_has_pairs(s->task))
        return 0;
    int code =
        job_samples_tell(c, (const char *const *)paths->gl_pathv, (int)paths->gl_pathc, format);
    if (s->task == ZINF_TASK_PREFERENCE && *format == ZINF_FORMAT_PROMPT && !c->format)
        *format = ZINF_FORMAT_UNPAIRED; /* of which each has a label */
    /* Rows of pairs may have a conversation beside them, which is what others are trained on. */
    if (job_has_pairs(s->task) && *format == ZINF_FORMAT_MESSAGES && !c->format)
        *format = ZINF_FORMAT_PREFERENCE;
    return code ? code : job_samples_check(s, paths->gl_pathv[0], *format);
}

/* A stream of text. */
static int open_stream(struct zinf_session *s, const struct zinf_samples_options *given,
                       struct zinf_dataset **out)
{
    const struct zinf_job *c = &s->job;
    struct zinf_masking masking;
    struct zinf_dataset_options options = {
        .files = given->files,
        .n_files = given->n_files,
        .text_column = c->text_column,
        .skip_bad_rows = c->skip_bad_rows,
        .tokenizer = given->tokenizer,
        .why_no_tokenizer = job_task_no_tokenizer,
        .open_token_file = open_token_file,
        .cache_folder = given->cache_folder,
        .seq_len = (uint32_t)s->seq_len,
        .vocab = (uint32_t)zinf_model_facts(s->model)->vocab,
        .shuffle = given->shuffle,
        .seed = (uint64_t)c->seed,
    };
    if (c->pack)
        return zinf_fail(-EINVAL,
                         "--pack: %s is a stream of text, whose windows are full already: --format "
                         "text makes a sample of each row",
                         given->files[0]);
    int code = s->task == ZINF_TASK_MASKED ? job_masked_stream(s, &options, &masking) : 0;
    return code ? code : zinf_dataset_open(out, &options);
}

int session_data(struct zinf_session *s, const struct zinf_words *files, const char *cache_folder,
                 bool shuffle, struct zinf_dataset **out)
{
    const struct zinf_job *c = &s->job;
    const glob_t *paths = NULL;
    bool foreign = !strcmp(zinf_tokenizer_kind(s->tokenizer), "bytes") && !job_task_has_bytes(s);
    enum zinf_format format = ZINF_FORMAT_TEXT;
    int code = expand(s, files, &paths);
    if (!code && s->task == ZINF_TASK_EMBEDDING)
        code = job_embedding_columns(s, paths->gl_pathv[0]);
    if (!code)
        code = tell_format(s, paths, &format);
    const uint64_t group = group_of(s, shuffle);
    if (!code && group) {
        const bool texts = s->task == ZINF_TASK_CAUSAL || s->task == ZINF_TASK_MASKED;
        code = check_group(c, format, texts || job_has_pairs(s->task), paths->gl_pathv[0]);
    }
    if (code)
        return code;
    const struct zinf_samples_options samples = {
        .files = (const char *const *)paths->gl_pathv,
        .n_files = (int)paths->gl_pathc,
        .tokenizer = foreign ? NULL : s->tokenizer,
        .cache_folder = cache_folder,
        .shuffle = shuffle,
        .group = group,
    };
    if (s->task == ZINF_TASK_SEQ2SEQ)
        return job_task_open(s, &samples, out);
    if (job_is_labelled(s->task))
        return job_classes_open(s, &samples, out);
    if (s->task == ZINF_TASK_EMBEDDING)
        return job_embedding_open(s, &samples, out);
    if (s->task == ZINF_TASK_MASKED && format == ZINF_FORMAT_TEXT)
        return job_masked_rows(s, &samples, out);
    if (format != ZINF_FORMAT_STREAM)
        return job_samples_open(s, &samples, format, out);
    return open_stream(s, &samples, out);
}
