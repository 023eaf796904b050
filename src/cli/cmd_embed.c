/* embed: embeddings of texts, a row of a NumPy file or a line of JSON each. */
#include "cli/cli.h"

#include "base/apart.h"

#include <math.h>
#include <stdlib.h>

static const char usage[] =
    "usage: zinf embed --model DIR --data FILE... [options]\n"
    "\n"
    "Makes an embedding of each text: of a line of a text file, or of a row's text.\n"
    "A model folder of sentence-transformers says how embeddings are made.\n"
    "Writes a .npy file or lines of JSON.\n";

struct embedding {
    const char *output;
    FILE *out;
    char *partial;
    bool is_array; /* of NumPy */
};

#define AT(field) .offset = offsetof(struct embedding, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--output", TEXT, AT(output), "FILE",
     "a .npy file with an array of fp32, or lines of JSON (default: JSON to standard output)"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(job_model),
    CLI_DOOR(job_plain_texts),
    CLI_DOOR(job_embedding),
    CLI_DOOR(job_prompt_name),
    CLI_DOOR(job_seq),
    CLI_DOOR(job_micro),
    {.rows = own},
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_device),
    CLI_NO_GROUP
};
/* clang-format on */

/* The format's version 1: the text ends where the numbers begin, at a multiple of 64 bytes. */
static int begin(void *arg, uint64_t n, int64_t cols)
{
    struct embedding *e = arg;
    char text[128];
    unsigned char head[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    if (!e->is_array)
        return 0;
    int used = snprintf(text, sizeof text,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %lld), }",
                        (unsigned long long)n, (long long)cols);
    memset(text + used, ' ', sizeof text - (size_t)used);
    text[117] = '\n';
    return fwrite(head, sizeof head, 1, e->out) == 1 && fwrite(text, 118, 1, e->out) == 1
               ? 0
               : zinf_fail(-EIO, "cannot write %s: %s", e->partial, strerror(errno));
}

static int write_row(void *arg, uint64_t index, const float *embedding, int64_t cols)
{
    struct embedding *e = arg;
    if (e->is_array) {
        if (fwrite(embedding, sizeof *embedding, (size_t)cols, e->out) == (size_t)cols)
            return 0;
        return zinf_fail(-EIO, "cannot write %s: %s", e->partial, strerror(errno));
    }
    fprintf(e->out, "{\"row\": %llu, \"embedding\": [", (unsigned long long)index + 1);
    for (int64_t k = 0; k < cols; k++) {
        fputs(k ? ", " : "", e->out);
        if (isfinite(embedding[k]))
            fprintf(e->out, "%.9g", (double)embedding[k]);
        else
            fputs("null", e->out); /* JSON has no NaN */
    }
    fputs("]}\n", e->out);
    return ferror(e->out) ? zinf_fail(-EIO, "cannot write the embeddings: %s", strerror(errno)) : 0;
}

static int check(struct cli_call *call)
{
    call->session->job.task.name = zinf_task_name(ZINF_TASK_EMBEDDING);
    return cli_need_data(call->session);
}

static int open_output(struct embedding *e, const struct zinf_session *s)
{
    const char *dot = e->output ? strrchr(e->output, '.') : NULL;
    e->is_array = dot && !strcmp(dot, ".npy");
    e->out = stdout;
    if (!e->output)
        return 0;
    int code = zinf_apart_check("--output", e->output, ZINF_WRITTEN_FILE, &s->origins);
    if (code)
        return code;
    if (asprintf(&e->partial, "%s.partial", e->output) < 0)
        return zinf_fail(-ENOMEM, "no memory for --output");
    e->out = fopen(e->partial, "w");
    return e->out ? 0
                  : zinf_fail(-errno, "--output: cannot make %s: %s", e->partial, strerror(errno));
}

/* The file appears whole. */
static int close_output(struct embedding *e, int code)
{
    if (!e->partial)
        return code;
    const bool written = e->out && !ferror(e->out);
    if (e->out && fclose(e->out) && !code)
        code = zinf_fail(-EIO, "cannot write %s: %s", e->partial, strerror(errno));
    if (!code && written && rename(e->partial, e->output))
        code = zinf_fail(-errno, "--output: cannot make %s: %s", e->output, strerror(errno));
    if (code)
        remove(e->partial);
    free(e->partial);
    return code;
}

static int work(struct cli_call *call)
{
    struct embedding *e = call->options;
    struct job_embeddings all = {.begin = begin, .row = write_row, .arg = e};
    if (!job_ranks_works_alone("embeddings are made"))
        return 0;
    int code = open_output(e, call->session);
    if (!code)
        code = job_embed(call->session, &all);
    code = close_output(e, code);
    if (!code && e->output)
        printf("{\"rows\": %llu, \"columns\": %lld}\n", (unsigned long long)all.n,
               (long long)all.cols);
    return code;
}

const struct cli_command cli_embed = {
    .name = "embed",
    .summary = "embeddings of texts, as a NumPy file or lines of JSON",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct embedding),
    .check = check,
    .work = work,
};
