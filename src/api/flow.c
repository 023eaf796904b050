/*
 * flow: data of option streaming: rows of files, or of the door's caller, that are taken while a
 * training needs them. The first row is taken when the data are opened, since it tells the format.
 * Only files on a drive are sure to answer: all others are asked by a thread of their own.
 */
#include "api/session.h"

#include "text/samples/flow.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define PACKED_ROWS 1024 /* that are packed together where no buffer is asked for */

struct job_flow {
    struct zinf_session *s;
    struct zinf_row_files *files;   /* NULL: the caller gives the rows, or a thread has them */
    struct zinf_row_thread *thread; /* NULL: nobody need be afraid to wait */
    struct zinf_row_feed from;
    char *first; /* the first row, as long as nobody has had it */
    char *had;   /* the same, once it was given out */
    uint64_t taken;
    char *path; /* of a group of samples */
    enum zinf_format format;
};

/* ---- rows of the caller ---- */

struct job_given {
    struct zinf_row_source source;
    atomic_int users; /* the session, and a thread that calls the source */
    bool left;        /* such a thread was left: the source is still at work */
};

int job_given_create(struct job_given **out, const struct zinf_row_source *rows)
{
    struct job_given *g = calloc(1, sizeof *g);
    if (!g)
        return zinf_fail(-ENOMEM, "no memory for a source of rows");
    g->source = *rows;
    atomic_init(&g->users, 1);
    *out = g;
    return 0;
}

static void leave_given(void *arg)
{
    struct job_given *g = arg;
    if (!g || atomic_fetch_sub(&g->users, 1) > 1)
        return;
    if (g->source.done)
        g->source.done(g->source.arg);
    free(g);
}

void job_given_close(struct job_given *g)
{
    leave_given(g);
}

static int next_given(void *arg, const char **row)
{
    const struct zinf_row_source *source = &((struct job_given *)arg)->source;
    const int more = source->next(source->arg, row);
    return more < 0 ? zinf_fail(more, "the caller's rows ended early") : more;
}

static int skip_given(void *arg, uint64_t n)
{
    const struct zinf_row_source *source = &((struct job_given *)arg)->source;
    const int code = source->skip(source->arg, n);
    return code ? zinf_fail(code, "the caller's rows cannot be skipped") : 0;
}

/* ---- rows ---- */

static int take(struct job_flow *f, const char **row)
{
    int more = f->from.next(f->from.arg, row);
    if (more > 0 && strpbrk(*row, "\r\n"))
        return zinf_fail(-EINVAL, "row %llu has an end of a line in it: give a JSON object in one",
                         (unsigned long long)f->taken + 1);
    f->taken += more > 0;
    return more;
}

static int next(void *arg, const char **row)
{
    struct job_flow *f = arg;
    free(f->had);
    f->had = f->first;
    f->first = NULL;
    *row = f->had;
    return f->had ? 1 : take(f, row);
}

/* Who cannot skip reads on. */
static int skip(void *arg, uint64_t n)
{
    struct job_flow *f = arg;
    const char *row;
    int more = 1;
    if (f->first && !n)
        return 0;
    free(f->first);
    f->first = NULL;
    if (f->from.skip) {
        f->taken = n;
        return f->from.skip(f->from.arg, n);
    }
    if (n < f->taken)
        return zinf_fail(-ESPIPE, "rows before row %llu are gone", (unsigned long long)f->taken);
    while (f->taken < n && (more = take(f, &row)) > 0)
        continue;
    return zinf_rows_skipped(more, f->taken, n);
}

static void quit(void *arg)
{
    const struct job_flow *f = arg;
    if (f->from.quit)
        f->from.quit(f->from.arg);
}

static int take_first(struct job_flow *f)
{
    const char *row;
    int more = take(f, &row);
    if (more <= 0)
        return more ? more : zinf_fail(-EINVAL, "there are no rows to train on");
    f->first = strdup(row);
    return f->first ? 0 : zinf_fail(-ENOMEM, "no memory for a row");
}

void job_flow_cancel(struct zinf_session *s)
{
    atomic_thread_fence(memory_order_seq_cst); /* either this sees who waits, or they see stop */
    if (atomic_load(&s->waits))
        zinf_pulse_end(&s->pulse, -EINTR, "the training was cancelled before its first step");
}

/* The source may keep it waiting: zinf_session_cancel ends that. */
static int wait_for_first(struct job_flow *f)
{
    struct zinf_session *s = f->s;
    struct zinf_pulse *before = zinf_pulse_of_thread();
    zinf_pulse_init(&s->pulse, before);
    zinf_pulse_set(&s->pulse);
    atomic_store(&s->waits, true);
    atomic_thread_fence(memory_order_seq_cst); /* see job_flow_cancel */
    if (s->use == JOB_TRAINS && s->stop)       /* it came before */
        job_flow_cancel(s);
    const int code = take_first(f);
    atomic_store(&s->waits, false);
    zinf_pulse_set(before);
    return code;
}

/* By the first row, as if it stood in a file. */
static int tell_format(struct job_flow *f)
{
    char *line = malloc(strlen(f->first) + 2);
    const char *const path = f->path;
    int code = line ? 0 : zinf_fail(-ENOMEM, "no memory for a row");
    if (!code) {
        const int n = sprintf(line, "%s\n", f->first);
        code = zinf_file_write_atomic(path, line, (size_t)n);
    }
    if (!code)
        code = job_samples_tell(&f->s->job, &path, 1, &f->format);
    if (!code)
        code = job_samples_check(f->s, path, f->format);
    unlink(path);
    free(line);
    return code;
}

/* ---- what cannot be streamed ---- */

static int check_length(const struct zinf_session *s)
{
    const struct zinf_job *c = &s->job;
    if (c->epochs > 0)
        return zinf_fail(-EINVAL,
                         "--streaming: --epochs counts passes over all rows, whose number is not "
                         "known: give --steps N, or leave --streaming out");
    if (s->use == JOB_TRAINS && c->steps < 0)
        return zinf_fail(-EINVAL,
                         "--streaming: the number of rows is not known, so that nothing says how "
                         "long the training is: give --steps N, or leave --streaming out");
    return 0;
}

static int check(const struct zinf_session *s)
{
    const struct zinf_job *c = &s->job;
    const struct job_sets *sets = &s->data_sets;
    if (s->task != ZINF_TASK_CAUSAL)
        return zinf_fail(-ENOTSUP,
                         "--streaming: --task %s looks at all rows before the first step: leave "
                         "--streaming out",
                         zinf_task_name(s->task));
    if (s->config && s->config->group_by_length)
        return zinf_fail(-EINVAL,
                         "--streaming: zinf.group_by_length (--group-by-length) sorts all samples: "
                         "leave one of them out");
    if (sets->n > 1)
        return zinf_fail(-EINVAL, "--streaming takes one set of rows, and --data names several "
                                  "with weights: leave the weights or --streaming out");
    if (c->given && c->data.n)
        return zinf_fail(-EINVAL, "--streaming takes rows of files or of the caller, not of both");
    for (size_t i = 0; sets->n && s->net && i < sets->of->files.gl_pathc; i++)
        if (zinf_row_file_is_pipe(sets->of->files.gl_pathv[i]))
            return zinf_fail(-EINVAL,
                             "--data %s: a pipe belongs to one process, and this training has "
                             "several: give a file",
                             sets->of->files.gl_pathv[i]);
    return check_length(s);
}

/* ---- groups of samples ---- */

/* What a user calls the rows. */
static const char *name_of_rows(const struct zinf_session *s)
{
    const glob_t *files = s->job.given ? NULL : &s->data_sets.of->files;
    if (!files)
        return "the rows that are given";
    if (files->gl_pathc != 1)
        return "--data";
    return strcmp(files->gl_pathv[0], "-") ? files->gl_pathv[0] : "standard input";
}

static int open_group(void *arg, const char *path, uint64_t first_row, uint64_t seed,
                      struct zinf_dataset **out)
{
    const struct job_flow *f = arg;
    const struct zinf_samples_options given = {
        .files = &path,
        .n_files = 1,
        .tokenizer = job_rows_tokenizer(f->s),
        .shuffle = f->s->job.shuffle_buffer > 0,
        .seed = seed,
        .may_be_empty = true,
        .first_row = first_row,
        .rows_of = name_of_rows(f->s),
    };
    return job_samples_open(f->s, &given, f->format, out);
}

/* ---- open and close ---- */

static uint64_t key_of(const struct job_flow *f)
{
    const struct zinf_job *c = &f->s->job;
    const char *const words[] = {c->text_column, c->chat_template};
    const uint64_t numbers[] = {f->format,
                                (uint64_t)f->s->seq_len,
                                c->truncate,
                                (uint64_t)c->min_tokens,
                                c->pack,
                                c->train_on_prompt,
                                c->skip_bad_rows,
                                (uint64_t)c->shuffle_buffer,
                                c->shuffle_buffer ? (uint64_t)c->seed : 0};
    uint64_t key = XXH3_64bits(numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        key = XXH3_64bits_withSeed(words[i] ? words[i] : "", words[i] ? strlen(words[i]) : 0, key);
    return key;
}

static int open_given(struct job_flow *f)
{
    struct job_given *g = f->s->job.given;
    const struct zinf_row_feed rows = {
        .next = next_given, .skip = g->source.skip ? skip_given : NULL, .arg = g};
    if (g->left)
        return zinf_fail(-EBUSY, "the caller's rows are still asked for one by a training that has "
                                 "ended: give them to a new session");
    atomic_fetch_add(&g->users, 1);
    return zinf_row_thread_create(&f->thread, &rows, leave_given);
}

static bool may_hang(const glob_t *files)
{
    bool may = false;
    for (size_t i = 0; i < files->gl_pathc; i++)
        may |= zinf_row_file_is_pipe(files->gl_pathv[i]);
    return may;
}

static void close_files(void *arg)
{
    zinf_row_files_close(arg);
}

static int open_files(struct job_flow *f)
{
    const glob_t *files = &f->s->data_sets.of->files;
    int code =
        zinf_row_files_open(&f->files, (const char *const *)files->gl_pathv, (int)files->gl_pathc);
    for (size_t i = 0; !code && i < files->gl_pathc; i++)
        code = zinf_origins_add(&f->s->origins, "--data", files->gl_pathv[i]);
    if (code)
        return code;
    f->from = zinf_row_files_rows(f->files);
    if (!may_hang(files))
        return 0;
    f->files = NULL; /* the thread's, from here on */
    return zinf_row_thread_create(&f->thread, &f->from, close_files);
}

static int open_rows(struct job_flow *f)
{
    int code = f->s->job.given ? open_given(f) : open_files(f);
    if (!code && f->thread)
        f->from = zinf_row_thread_rows(f->thread);
    return code;
}

/* Its name has rank and process, since several may have one folder. */
static int name_group(struct job_flow *f)
{
    const struct zinf_net *net = f->s->net;
    char name[64];
    snprintf(name, sizeof name, "rows-%u-%ld.jsonl", net ? zinf_net_place(net).rank : 0,
             (long)getpid());
    char *folder = zinf_path_join(f->s->job.output, "cache");
    int code = folder ? zinf_make_dirs(folder) : -ENOMEM;
    f->path = code ? NULL : zinf_path_join(folder, name);
    free(folder);
    return code ? code : f->path ? 0 : -ENOMEM;
}

static int open_flow(struct job_flow *f, struct zinf_dataset **out)
{
    const struct zinf_session *s = f->s;
    const struct zinf_job *c = &s->job;
    const struct zinf_tokenizer *tokenizer = job_rows_tokenizer(s);
    const bool stream = f->format == ZINF_FORMAT_STREAM;
    const uint64_t step = (uint64_t)job_windows(s, s->config->train_batch_size);
    struct zinf_flow_options options = {
        .rows = {.next = next, .skip = skip, .arg = f, .quit = quit},
        .name = "the rows",
        .step = step,
        .limit = c->steps >= 0 ? (uint64_t)c->steps * step : UINT64_MAX,
        .group = c->shuffle_buffer ? (uint64_t)c->shuffle_buffer
                 : c->pack         ? PACKED_ROWS
                                   : 0,
        .key = key_of(f),
        .stream = job_rows_stream(s, tokenizer),
        .open = stream ? NULL : open_group,
        .arg = f,
        .path = f->path,
    };
    options.stream.shuffle = c->shuffle_buffer > 0;
    if (stream && c->pack)
        return zinf_fail(-EINVAL, "--pack: the rows are a stream of text, whose windows are full "
                                  "already: --format text makes a sample of each row");
    if (stream && !tokenizer)
        return zinf_fail(-EINVAL, "the rows have text, which needs a tokenizer: %s",
                         job_task_no_tokenizer);
    return zinf_flow_open(out, &options);
}

int job_flow_open(struct zinf_session *s, struct zinf_dataset **out)
{
    int code = check(s);
    struct job_flow *f = code ? NULL : calloc(1, sizeof *f);
    if (!f)
        return code ? code : zinf_fail(-ENOMEM, "no memory for a data set");
    s->flow = f;
    f->s = s;
    code = open_rows(f);
    if (!code)
        code = name_group(f);
    if (!code)
        code = wait_for_first(f);
    if (!code)
        code = tell_format(f);
    s->chats |= f->format == ZINF_FORMAT_SHAREGPT || f->format == ZINF_FORMAT_MESSAGES;
    return code ? code : open_flow(f, out);
}

void job_flow_close(struct job_flow *f)
{
    if (!f)
        return;
    if (!zinf_row_thread_destroy(f->thread) && f->s->job.given)
        f->s->job.given->left = true;
    zinf_row_files_close(f->files);
    free(f->first);
    free(f->had);
    free(f->path);
    free(f);
}
