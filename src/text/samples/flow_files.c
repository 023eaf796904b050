/* flow_files: the lines of files, one file after the other, as rows of a flow. */
#include "text/samples/flow.h"
#include "text/samples/input.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct zinf_row_files {
    char **names;
    int n, at;      /* files, and which of them is open or comes next */
    int fd;         /* -1: none is open; of standard input 0 */
    uint64_t taken; /* rows so far */
    struct text_input input;
};

static bool is_standard(const char *name)
{
    return !strcmp(name, "-");
}

bool zinf_row_file_is_pipe(const char *name)
{
    struct stat found;
    return is_standard(name) || (!stat(name, &found) && !S_ISREG(found.st_mode));
}

static void close_file(struct zinf_row_files *f)
{
    text_source_close(f->input.source);
    f->input.source = NULL;
    if (f->fd > 0)
        close(f->fd);
    f->fd = -1;
}

static int open_file(struct zinf_row_files *f)
{
    const char *name = f->names[f->at], *path = is_standard(name) ? "standard input" : name;
    struct text_input *input = &f->input;
    f->fd = is_standard(name) ? 0 : open(name, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0)
        return zinf_fail(-errno, "cannot open %s: %s", name, strerror(errno));
    int code = text_source_open(&input->source, f->fd, path);
    if (!code && text_source_kind(input->source) != TEXT_JSON_LINES)
        code = zinf_fail(-EINVAL,
                         "%s: rows are taken as they are needed (--streaming) from JSON alone, an "
                         "object a line: give .jsonl, or leave the option out",
                         path);
    input->path = path;
    input->at = input->end = 0;
    input->offset = 0;
    input->line = 1;
    return code;
}

/* The next line that is not blank: 1, 0 at the end of the file, or -errno. */
static int read_line(struct text_input *input)
{
    int c, code = 0;
    while ((c = text_input_peek(input)) == '\n' || c == '\r' || c == ' ' || c == '\t')
        text_input_step(input);
    input->document_bytes = 0;
    while (!code && (c = text_input_peek(input)) >= 0 && c != '\n' && c != '\r')
        code = text_input_keep(input);
    if (code || c < TEXT_END_OF_FILE)
        return code ? code : c;
    if (!input->document_bytes)
        return 0;
    input->document[input->document_bytes] = 0; /* there is one byte more than its capacity */
    return 1;
}

static int next(void *arg, const char **row)
{
    struct zinf_row_files *f = arg;
    int more = 0;
    while (!more && f->at < f->n) {
        more = f->fd < 0 ? open_file(f) : 0;
        if (!more)
            more = read_line(&f->input);
        if (!more) {
            close_file(f);
            f->at++;
        }
    }
    f->taken += more > 0;
    *row = f->input.document;
    return more;
}

int zinf_rows_skipped(int more, uint64_t taken, uint64_t n)
{
    if (more)
        return more > 0 ? 0 : more;
    return zinf_fail(-EINVAL, "there are %llu rows, but the run that is resumed has used %llu",
                     (unsigned long long)taken, (unsigned long long)n);
}

/* What lies behind is read again from the first file on. */
static int skip(void *arg, uint64_t n)
{
    struct zinf_row_files *f = arg;
    const char *row;
    int more = 1;
    if (n < f->taken) {
        for (int i = 0; i < f->n; i++)
            if (zinf_row_file_is_pipe(f->names[i]))
                return zinf_fail(-ESPIPE, "%s is a pipe, which is read once", f->names[i]);
        close_file(f);
        f->at = 0;
        f->taken = 0;
    }
    while (f->taken < n && (more = next(f, &row)) > 0)
        continue;
    return zinf_rows_skipped(more, f->taken, n);
}

int zinf_row_files_open(struct zinf_row_files **out, const char *const *files, int n)
{
    struct zinf_row_files *f = calloc(1, sizeof *f);
    *out = f;
    if (!f)
        return zinf_fail(-ENOMEM, "no memory for a list of files");
    f->fd = -1;
    f->names = calloc((size_t)n + 1, sizeof *f->names);
    f->input.capacity = (size_t)1 << 20;
    f->input.buffer = malloc(f->input.capacity);
    bool good = f->names && f->input.buffer;
    for (; good && f->n < n; f->n++)
        good = (f->names[f->n] = strdup(files[f->n])) != NULL;
    if (good)
        return 0;
    zinf_row_files_close(f);
    *out = NULL;
    return zinf_fail(-ENOMEM, "no memory for a list of files");
}

void zinf_row_files_close(struct zinf_row_files *f)
{
    if (!f)
        return;
    close_file(f);
    for (int i = 0; f->names && i < f->n; i++)
        free(f->names[i]);
    free(f->names);
    free(f->input.buffer);
    free(f->input.document);
    free(f);
}

struct zinf_row_feed zinf_row_files_rows(struct zinf_row_files *f)
{
    return (struct zinf_row_feed){.next = next, .skip = skip, .arg = f};
}
