/* data: opening what a session trains on or is measured by, whatever form its rows have. */
#include "api/embedding.h"

#include <stdlib.h>

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
    struct zinf_dataset_options options = job_rows_stream(s, given->tokenizer);
    options.files = given->files;
    options.n_files = given->n_files;
    options.open_token_file = zinf_token_source_open;
    options.cache_folder = given->cache_folder;
    options.shuffle = given->shuffle;
    if (c->pack)
        return zinf_fail(-EINVAL,
                         "--pack: %s is a stream of text, whose windows are full already: --format "
                         "text makes a sample of each row",
                         given->files[0]);
    job_stream_note_idle(s, given->files[0]);
    int code = s->task == ZINF_TASK_MASKED ? job_masked_stream(s, &options, &masking) : 0;
    return code ? code : zinf_dataset_open(out, &options);
}

/* One set of files. */
static int open_files(struct zinf_session *s, const glob_t *paths, const char *cache_folder,
                      bool shuffle, struct zinf_dataset **out)
{
    enum zinf_format format = ZINF_FORMAT_TEXT;
    int code = s->task == ZINF_TASK_EMBEDDING ? job_embedding_columns(s, paths->gl_pathv[0]) : 0;
    if (!code)
        code = tell_format(s, paths, &format);
    const uint64_t group = group_of(s, shuffle);
    if (!code && group) {
        const bool texts = s->task == ZINF_TASK_CAUSAL || s->task == ZINF_TASK_MASKED;
        code = check_group(&s->job, format, texts || job_has_pairs(s->task), paths->gl_pathv[0]);
    }
    if (code)
        return code;
    const struct zinf_samples_options samples = {
        .files = (const char *const *)paths->gl_pathv,
        .n_files = (int)paths->gl_pathc,
        .tokenizer = job_rows_tokenizer(s),
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

/* ---- several sets ---- */

static int add_origins(struct zinf_session *s, const char *option, const struct job_sets *sets)
{
    int code = 0;
    for (int i = 0; i < sets->n; i++)
        for (size_t k = 0; !code && k < sets->of[i].files.gl_pathc; k++)
            code = zinf_origins_add(&s->origins, option, sets->of[i].files.gl_pathv[k]);
    return code;
}

/* Where the first data that are opened decide what is the same for all (how long windows are, which
 * classes there are), all files are opened as one set before each is by itself. */
static int decide_by_all(struct zinf_session *s, const struct job_sets *sets, const char *cache,
                         bool shuffle)
{
    struct zinf_dataset *all = NULL;
    size_t n = 0;
    if (s->task != ZINF_TASK_SEQ2SEQ && s->task != ZINF_TASK_EMBEDDING && !job_is_labelled(s->task))
        return 0;
    for (int i = 0; i < sets->n; i++)
        n += sets->of[i].files.gl_pathc;
    glob_t files = {.gl_pathv = calloc(n, sizeof *files.gl_pathv)};
    if (!files.gl_pathv)
        return zinf_fail(-ENOMEM, "no memory for a list of files");
    for (int i = 0; i < sets->n; i++)
        for (size_t k = 0; k < sets->of[i].files.gl_pathc; k++)
            files.gl_pathv[files.gl_pathc++] = sets->of[i].files.gl_pathv[k];
    int code = open_files(s, &files, cache, shuffle, &all);
    zinf_dataset_close(all);
    free(files.gl_pathv);
    return code;
}

static int open_parts(struct zinf_session *s, const struct job_sets *sets, const char *cache,
                      bool shuffle, struct zinf_dataset **out)
{
    struct zinf_dataset_part *parts = calloc((size_t)sets->n, sizeof *parts);
    uint32_t n = 0;
    int code = parts ? decide_by_all(s, sets, cache, shuffle)
                     : zinf_fail(-ENOMEM, "no memory for %d data sets", sets->n);
    for (int i = 0; !code && i < sets->n; i++) {
        const struct job_set *set = &sets->of[i];
        parts[n].name = *set->name ? set->name : NULL;
        parts[n].weight = set->weight > 0 ? set->weight : 1;
        code = open_files(s, &set->files, cache, shuffle, &parts[n].data);
        n += !code;
    }
    if (!code)
        code = zinf_dataset_mix(out, parts, n, (uint32_t)job_windows(s, 1));
    else
        for (uint32_t i = 0; i < n; i++)
            zinf_dataset_close(parts[i].data);
    free(parts);
    return code;
}

static int check_mixture(const struct zinf_session *s, bool shuffle)
{
    if (s->job.task.looks)
        return zinf_fail(
            -EINVAL, "--data: rows are shown only of files without weights: leave the weights out");
    return group_of(s, shuffle)
               ? zinf_fail(
                     -EINVAL,
                     "zinf.group_by_length (--group-by-length) sorts the samples of one data "
                     "set, and --data names several with weights: leave the key or the weights out")
               : 0;
}

int session_data(struct zinf_session *s, const char *cache_folder, bool shuffle)
{
    struct job_sets *sets = &s->data_sets;
    int code = job_sets_read("--data", &s->job.data, JOB_SETS_BY_WEIGHT, sets);
    if (!code && s->job.streaming)
        return job_flow_open(s, &s->data);
    if (!code)
        code = add_origins(s, "--data", sets);
    if (!code && sets->n > 1)
        code = check_mixture(s, shuffle);
    if (code)
        return code;
    return sets->n == 1 ? open_files(s, &sets->of->files, cache_folder, shuffle, &s->data)
                        : open_parts(s, sets, cache_folder, shuffle, &s->data);
}

int session_eval_data(struct zinf_session *s, const struct zinf_words *files,
                      const char *cache_folder)
{
    struct job_sets *sets = &s->eval_sets;
    const char *option = files == &s->job.eval_data ? "--eval-data" : "--data";
    int code = job_sets_read(option, files, JOB_SETS_BY_NAME, sets);
    if (!code)
        code = add_origins(s, option, sets);
    if (code)
        return code;
    return sets->n == 1 && !*sets->of->name
               ? open_files(s, &sets->of->files, cache_folder, false, &s->eval_data)
               : open_parts(s, sets, cache_folder, false, &s->eval_data);
}

int session_assume_data(struct zinf_session *s)
{
    if (s->task == ZINF_TASK_EMBEDDING)
        s->together = s->together ? s->together : 2;
    return job_is_labelled(s->task) || s->task == ZINF_TASK_REWARD ? job_classes_assume(s) : 0;
}
