/* idle: options that change nothing, since they belong to another task than that of the session, or
 * to other data: a message names them. */
#include "api/session.h"

#include <stdio.h>

#define TASK(name) (1u << ZINF_TASK_##name)
#define LABELLED (TASK(CLASSIFICATION) | TASK(REGRESSION))
#define TEXTS (TASK(SEQ2SEQ) | LABELLED | TASK(MASKED) | TASK(EMBEDDING) | TASK(CHOICE))

struct list {
    char names[512];
    size_t used;
};

static void add(struct list *list, const char *name)
{
    const size_t left = sizeof list->names - list->used;
    const int n = snprintf(list->names + list->used, left, "%s%s", list->used ? ", " : "", name);
    list->used += (size_t)n < left ? (size_t)n : 0;
}

static bool is_set(const struct zinf_session *s, const char *key)
{
    return zinf_config_settings_find(&s->job.settings, key);
}

void job_task_note_idle(const struct zinf_session *s)
{
    const struct zinf_job_task *t = &s->job.task;
    const struct zinf_job_embedding *e = &s->job.embedding;
    const struct zinf_job_choices *c = &s->job.choices;
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
        {"--embedding-scale", is_set(s, "zinf.embedding_scale"), TASK(EMBEDDING)},
        {"--beta", is_set(s, "zinf.preference_beta"), TASK(PREFERENCE)},
        {"--few-shot", c->few_shot, TASK(CHOICE)},
        {"--shots", c->shots, TASK(CHOICE)},
        {"--choices", c->style, TASK(CHOICE)},
    };
    struct list list = {.used = 0};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given && !(options[i].tasks & 1u << s->task))
            add(&list, options[i].name);
    if (list.used && !t->looks)
        zinf_log(ZINF_LOG_WARN, "%s changes nothing: the task is %s, see --task", list.names,
                 zinf_task_name(s->task));
}

void job_stream_note_idle(const struct zinf_session *s, const char *file)
{
    const struct zinf_job *c = &s->job;
    const struct {
        const char *name;
        bool given;
    } options[] = {
        {"--truncate", c->truncate},
        {"--min-tokens", c->min_tokens},
        {"--train-on-prompt", c->train_on_prompt},
        {"--length-percentile", c->task.length_percentile > 0},
        {"--source-len", c->source_len && !s->reads_source},
    };
    struct list list = {.used = 0};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given)
            add(&list, options[i].name);
    if (list.used && !c->task.looks)
        zinf_log(ZINF_LOG_WARN,
                 "%s changes nothing for %s, a stream of text: --format text makes a sample of "
                 "each row",
                 list.names, file);
}
