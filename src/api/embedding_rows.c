/* embedding_rows: data of texts that are embedded, or of rows whose texts belong together. */
#include "api/embedding.h"

#include <stdio.h>
#include <stdlib.h>

int job_embedding_columns(struct zinf_session *s, const char *file)
{
    struct job_embedding *e = &s->embedding;
    const char *asked = s->job.task.source_column;
    if (s->together)
        return 0;
    if (s->embeds || asked)
        snprintf(e->columns, sizeof e->columns, "%s",
                 asked                ? asked
                 : s->job.text_column ? s->job.text_column
                                      : "text");
    else if (zinf_task_find_columns(file, e->columns, sizeof e->columns))
        return -EINVAL;
    s->together = 1;
    for (const char *at = e->columns; *at; at++)
        s->together += *at == ',';
    if (s->embeds != (s->together == 1))
        return s->embeds ? zinf_fail(-EINVAL,
                                     "--source-column %s: zinf embed reads one text of each row: "
                                     "name one column",
                                     e->columns)
                         : zinf_fail(-EINVAL,
                                     "--source-column %s: name at least two columns: the anchor, a "
                                     "text that belongs to it, and perhaps texts that do not",
                                     e->columns);
    return 0;
}

/* Texts without a token have no embedding, and without one the rows behind it would be counted as
 * others. */
static int check_empty(const struct zinf_session *s, const struct zinf_samples *samples)
{
    const struct zinf_samples_facts *f = zinf_samples_facts(samples);
    if (!s->embeds || !f->n_short)
        return 0;
    if (!s->job.skip_bad_rows)
        return zinf_fail(-EINVAL,
                         "%llu of %llu texts have no token, and so no embedding; --skip-bad-rows "
                         "leaves them out",
                         (unsigned long long)f->n_short, (unsigned long long)f->n_rows);
    zinf_log(ZINF_LOG_WARN, "%llu of %llu texts have no token and are left out",
             (unsigned long long)f->n_short, (unsigned long long)f->n_rows);
    return 0;
}

int job_embedding_open(struct zinf_session *s, const struct zinf_samples_options *given,
                       struct zinf_dataset **out)
{
    const struct zinf_job *c = &s->job;
    struct zinf_samples_options o = *given;
    struct zinf_task_recipe *recipe = NULL;
    struct zinf_samples *samples = NULL;
    char *prompt = NULL;
    const bool first = !s->knows_lengths;
    int code = job_task_need_tokenizer(s);
    if (!code && !c->task.prefix)
        code = job_embedding_prompt(s, &prompt);
    const struct zinf_task_options task = {.task = s->task,
                                           .tokenizer = given->tokenizer,
                                           .source_column = s->embedding.columns,
                                           .prefix = prompt ? prompt : c->task.prefix};
    if (!code)
        code = job_fit_cut(s, &o.cut, &o.front);
    if (!code)
        code = zinf_task_open(&recipe, &task);
    if (!code) {
        o.recipe = zinf_task_recipe(recipe);
        o.unlabelled = true; /* what is learned is not among the tokens */
        job_task_rows(s, &o);
        code = zinf_samples_open(&samples, &o);
    }
    if (!code && first)
        code = job_fit(c, &o, &samples);
    if (!code)
        code = check_empty(s, samples);
    zinf_task_close(recipe);
    free(prompt);
    if (code) {
        zinf_samples_close(samples);
        return code;
    }
    s->knows_lengths = true;
    s->seq_len = o.seq_len;
    job_fit_say(samples, &o, "texts");
    return zinf_dataset_of_samples(out, samples);
}
