/* idle: options that belong to other tasks than that of the session, which a message names. */
#include "api/session.h"

#include <stdio.h>

#define TASK(name) (1u << ZINF_TASK_##name)
#define LABELLED (TASK(CLASSIFICATION) | TASK(REGRESSION))
#define TEXTS (TASK(SEQ2SEQ) | LABELLED | TASK(MASKED) | TASK(EMBEDDING) | TASK(CHOICE))

void job_task_note_idle(const struct zinf_session *s)
{
    const struct zinf_job_task *t = &s->job.task;
    const struct zinf_job_embedding *e = &s->job.embedding;
    const struct {
        const char *name;
        bool given;
        unsigned tasks; /* that it belongs to */
    } options[] = {
        {"--source-column", t->source_column, TEXTS},
        {"--target-column", t->target_column, TASK(SEQ2SEQ) | TASK(CHOICE)},
        {"--label-column", t->label_column, LABELLED | TASK(CHOICE)},
        {"--prefix", t->prefix, TEXTS},
        {"--template", t->around, TASK(SEQ2SEQ) | LABELLED},
        {"--class-weights", t->class_weights, TASK(CLASSIFICATION)},
        {"--new-head", t->new_head, LABELLED | TASK(REWARD) | TASK(MASKED)},
        {"--mlm-probability", t->mask_probability > 0, TASK(MASKED)},
        {"--pooling", e->pooling, TASK(EMBEDDING)},
        {"--normalize", e->normalize, TASK(EMBEDDING)},
        {"--no-normalize", e->plain, TASK(EMBEDDING)},
    };
    char list[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given && !(options[i].tasks & 1u << s->task))
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "",
                                   options[i].name);
    if (at && !t->looks)
        zinf_log(ZINF_LOG_WARN, "%s changes nothing: the task is %s, see --task", list,
                 zinf_task_name(s->task));
}
