/* embed: embeddings of all rows of the data, a batch at a time. */
#include "api/session.h"

#include <math.h>
#include <stdlib.h>

/* Rows of this call, in the order of the files. */
static int embed_rows(struct zinf_session *s, uint64_t first, uint64_t n, float *rows,
                      struct job_embeddings *out)
{
    const int64_t cols = out->cols;
    int code = zinf_run_embed(s->trainer, s->eval_data, first, n, rows);
    for (uint64_t i = 0; !code && i < n; i++) {
        float *row = rows + (int64_t)i * cols;
        double squares = 0;
        for (int64_t k = 0; k < cols; k++)
            squares += (double)row[k] * (double)row[k];
        for (int64_t k = 0; s->embedding.normalizes && k < cols; k++)
            row[k] = squares > 0 ? (float)((double)row[k] / sqrt(squares)) : 0;
        code = out->row(out->arg, first + i, row, cols);
    }
    return code;
}

int job_embed(struct zinf_session *s, struct job_embeddings *out)
{
    s->embeds = true;
    int code = session_ready(s, JOB_EVALUATES);
    if (!code)
        code = session_eval_data(s, &s->job.data, NULL);
    if (code)
        return code;
    const struct zinf_trainer_options options = session_trainer_options(s, ZINF_TRAINER_FORWARD);
    const uint64_t each = (uint64_t)s->config->micro_batch;
    out->cols = zinf_model_facts(s->model)->hidden;
    out->n = zinf_dataset_n_windows(s->eval_data);
    float *rows = malloc(each * (uint64_t)out->cols * sizeof *rows);
    code = rows ? zinf_trainer_create(&s->trainer, &options)
                : zinf_fail(-ENOMEM, "no memory for %llu embeddings", (unsigned long long)each);
    if (!code && out->begin)
        code = out->begin(out->arg, out->n, out->cols);
    for (uint64_t first = 0; !code && first < out->n; first += each)
        code = embed_rows(s, first, out->n - first < each ? out->n - first : each, rows, out);
    free(rows);
    return code;
}

int zinf_session_embed(struct zinf_session *s, const struct zinf_embeddings *to)
{
    struct job_embeddings all = {.begin = to->begin, .row = to->row, .arg = to->arg};
    int code = session_need("--data FILE", s->job.data.n ? s : NULL);
    if (code)
        return code;
    const char *task = s->job.task.name;
    session_end(s); /* what is open is for another task, and so is what comes after */
    s->job.task.name = zinf_task_name(ZINF_TASK_EMBEDDING);
    code = job_embed(s, &all);
    session_end(s);
    s->job.task.name = task;
    return code;
}
