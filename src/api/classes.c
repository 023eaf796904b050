/*
 * classes: data of samples that are told apart by a label. What the classes are the model's folder
 * says, where it has a head for them; where it has none, or another is asked for, the data that is
 * trained on.
 */
#include "api/session.h"

#include "model/graph.h"
#include "train/checkpoints.h"

#include <math.h>
#include <stdlib.h>

/* Of data that are not there. More of them change no figure that counts: a row of the head each. */
#define ASSUMED_CLASSES 2

/* ---- what the classes are ---- */

static bool is_of_numbers(const struct zinf_session *s)
{
    return s->task == ZINF_TASK_REGRESSION || s->task == ZINF_TASK_REWARD;
}

static bool is_number(const struct zinf_session *s)
{
    const struct zinf_graph *graph = zinf_model_graph(s->model);
    return graph->values[graph->targets].element == ZINF_ELEMENT_F32;
}

/* Whether the folder's head stays: a configuration alone, for fresh weights, may leave it open. */
static bool has_head(const struct zinf_session *s)
{
    const struct zinf_job *c = &s->job;
    const cJSON *config = zinf_model_config(s->model);
    bool says =
        cJSON_HasObjectItem(config, "id2label") || cJSON_HasObjectItem(config, "num_labels");
    if (s->use != JOB_TRAINS)
        return true;
    return zinf_model_classifies(s->model) && !c->task.new_head && (says || !c->task.fresh);
}

/* The folder's names, or none of them: then labels are numbers. */
static int take_folder_labels(struct zinf_session *s)
{
    int64_t n = zinf_model_graph(s->model)->vocab;
    int code = 0;
    for (int64_t i = 0; !code && i < n; i++) {
        const char *name = zinf_model_class_name(s->model, i);
        if (!name)
            break;
        code = zinf_labels_add(&s->labels, name);
    }
    if (!code && s->labels.n < n)
        zinf_labels_free(&s->labels);
    s->labels.n = (int32_t)n;
    return code;
}

/* The model gets a head for the session's labels, or for a number. */
static int set_classes(struct zinf_session *s)
{
    const bool number = is_of_numbers(s);
    s->classes = (struct zinf_model_classes){
        .names = number ? NULL : (const char *const *)s->labels.names,
        .n = number ? 1 : s->labels.n,
        .number = number,
    };
    s->asks_classes = true;
    if (!number && s->labels.n < 2)
        return zinf_fail(-EINVAL, "all rows have the same label%s%s: there is nothing to learn",
                         s->labels.names ? " " : "", s->labels.names ? s->labels.names[0] : "");
    int code = zinf_model_set_classes(s->model, &s->classes);
    return code ? zinf_fail_in(code, "--task %s: --model %s", zinf_task_name(s->task), s->job.model)
                : 0;
}

static int fail_other_labels(const struct zinf_session *s, const char *why)
{
    return zinf_fail(-EINVAL,
                     "%s; --model %s has a head for its own %d: --new-head gives it one for the "
                     "data's",
                     why, s->job.model, s->labels.n);
}

/* The data's labels against the folder's. Names of the data are taken over where the folder has but
 * numbers for as many. */
static int compare_labels(struct zinf_session *s, struct zinf_labels *found)
{
    char why[512];
    int32_t class;
    if (!s->labels.names && found->names && found->n == s->labels.n) {
        s->labels = *found;
        *found = (struct zinf_labels){0};
        return set_classes(s);
    }
    if (!found->names && found->n > s->labels.n) {
        snprintf(why, sizeof why,
                 "the label %d is out of range: there are %d classes, from 0 to %d", found->n - 1,
                 s->labels.n, s->labels.n - 1);
        return fail_other_labels(s, why);
    }
    for (int32_t i = 0; found->names && i < found->n; i++) {
        cJSON name = {.type = cJSON_String, .valuestring = found->names[i]};
        if (!zinf_labels_parse(&s->labels, &name, &class))
            continue;
        snprintf(why, sizeof why, "%s", zinf_error());
        return fail_other_labels(s, why);
    }
    return 0;
}

static int find_labels(struct zinf_session *s, const struct zinf_samples_options *given, bool known)
{
    const struct zinf_job *c = &s->job;
    struct zinf_labels found = {0};
    const int32_t most = 1 << 16;
    if (known && (s->use != JOB_TRAINS || c->task.new_head))
        return 0;
    int code = zinf_labels_find(&found, given->files, given->n_files, c->task.label_column, most);
    if (!code && known) {
        code = compare_labels(s, &found);
    } else if (!code) {
        s->labels = found;
        return set_classes(s);
    }
    zinf_labels_free(&found);
    return code;
}

/* The names by which the adapter's training knew the classes, if the model has a head for as many
 * or none: then the adapter has the head. */
static int take_adapter_labels(struct zinf_session *s, bool *found_names)
{
    const struct zinf_job *c = &s->job;
    struct zinf_labels found = {0};
    int code = c->adapter && !c->task.new_head ? zinf_adapter_labels(c->adapter, &found) : 0;
    const bool other =
        zinf_model_classifies(s->model) && zinf_model_graph(s->model)->vocab != found.n;
    if (code || found.n < 2 || other) {
        zinf_labels_free(&found);
        return code;
    }
    s->labels = found;
    *found_names = true;
    return set_classes(s);
}

/* Once a session, by the data that is trained on. */
static int settle(struct zinf_session *s, const struct zinf_samples_options *given)
{
    const struct zinf_job *c = &s->job;
    const bool number = is_of_numbers(s), classifies = zinf_model_classifies(s->model);
    const bool known = has_head(s) && (classifies || !c->adapter);
    bool named = false;
    int code = number ? 0 : take_adapter_labels(s, &named);
    if (code || named)
        return code ? code : find_labels(s, given, true);
    if (s->use != JOB_TRAINS && !classifies &&
        !(number && c->adapter)) /* an adapter has its head */
        return zinf_fail(-EINVAL,
                         "--model %s has no head for classes: zinf train --task %s gives it one%s",
                         c->model, zinf_task_name(s->task),
                         c->adapter ? "; with the adapter's data and --steps 0 it makes the model "
                                      "that this adapter goes above"
                                    : "");
    if (known && number != is_number(s))
        return zinf_fail(
            -EINVAL, "--task %s: --model %s has a head for %s: --new-head gives it another one",
            zinf_task_name(s->task), c->model, number ? "classes" : "one number a sample");
    if (number)
        return known ? 0 : set_classes(s);
    code = known ? take_folder_labels(s) : 0;
    return code ? code : find_labels(s, given, known);
}

int job_classes_assume(struct zinf_session *s)
{
    const bool number = is_of_numbers(s);
    if (s->knows_classes)
        return 0;
    s->knows_classes = true;
    if (zinf_model_classifies(s->model) && number == is_number(s))
        return 0;
    s->labels.n = ASSUMED_CLASSES;
    return set_classes(s);
}

/* ---- what they count ---- */

/* So that all classes count alike in sum: N / (classes * samples of the class). */
static void balance(float *weights, const struct zinf_samples *samples, int32_t n)
{
    const uint64_t all = zinf_samples_facts(samples)->n_samples;
    for (uint64_t i = 0; i < all; i++)
        weights[zinf_samples_label(samples, i)] += 1;
    for (int32_t c = 0; c < n; c++)
        weights[c] = weights[c] > 0 ? (float)((double)all / ((double)n * (double)weights[c])) : 1;
}

static int parse_weights(float *weights, const char *text, int32_t n)
{
    int32_t i = 0;
    float sum = 0;
    for (const char *at = text; *at || !i; i++) {
        char *end;
        float weight = strtof(at, &end);
        if (end == at || (*end && (*end != ',' || !end[1])) || !isfinite(weight) || weight < 0)
            return zinf_fail(-EINVAL,
                             "--class-weights %s: use balanced, or numbers from 0 on with commas "
                             "between them",
                             text);
        if (i < n)
            weights[i] = weight;
        sum += weight;
        at = *end ? end + 1 : end;
    }
    if (i != n)
        return zinf_fail(-EINVAL, "--class-weights %s: there are %d classes", text, n);
    return sum > 0 ? 0 : zinf_fail(-EINVAL, "--class-weights %s: no class counts", text);
}

static int weigh(struct zinf_session *s, const char *text, const struct zinf_samples *samples)
{
    if (!text)
        return 0;
    if (s->task != ZINF_TASK_CLASSIFICATION)
        return zinf_fail(-EINVAL, "--class-weights are of classes, and --task %s has none",
                         zinf_task_name(s->task));
    s->class_weights = calloc((size_t)s->labels.n, sizeof *s->class_weights);
    if (!s->class_weights)
        return zinf_fail(-ENOMEM, "no memory for the weights of %d classes", s->labels.n);
    if (strcmp(text, "balanced"))
        return parse_weights(s->class_weights, text, s->labels.n);
    balance(s->class_weights, samples, s->labels.n);
    return 0;
}

/* ---- opening ---- */

static int open_samples(struct zinf_session *s, struct zinf_samples_options *o, bool first,
                        struct zinf_samples **samples)
{
    int code = zinf_samples_open(samples, o);
    if (!code && first)
        code = job_fit(&s->job, o, samples);
    if (!code && first)
        code = weigh(s, s->job.task.class_weights, *samples);
    if (!code) {
        s->seq_len = o->seq_len;
        job_fit_say(*samples, o, "texts");
    }
    return code;
}

int job_classes_settle_scores(struct zinf_session *s)
{
    int code = s->knows_classes ? 0 : settle(s, NULL);
    s->knows_classes = true;
    return code;
}

int job_classes_open(struct zinf_session *s, const struct zinf_samples_options *given,
                     struct zinf_dataset **out)
{
    const struct zinf_job *c = &s->job;
    struct zinf_samples_options o = *given;
    struct zinf_task_recipe *recipe = NULL;
    struct zinf_samples *samples = NULL;
    const bool first = !s->knows_classes;
    int code = first ? settle(s, given) : 0;
    const struct zinf_task_options task = {
        .task = s->task,
        .tokenizer = given->tokenizer,
        .source_column = c->task.source_column ? c->task.source_column : c->text_column,
        .label_column = c->task.label_column,
        .prefix = c->task.prefix,
        .around = c->task.around,
        .labels = &s->labels,
    };
    s->knows_classes = true;
    if (!code)
        code = job_task_need_tokenizer(s);
    if (!code)
        code = job_fit_cut(s, &o.cut, &o.front);
    if (!code)
        code = zinf_task_open(&recipe, &task);
    if (code)
        return code;
    o.recipe = zinf_task_recipe(recipe);
    o.unlabelled = true; /* what is learned is not among the tokens */
    job_task_rows(s, &o);
    code = open_samples(s, &o, first, &samples);
    zinf_task_close(recipe);
    if (code)
        zinf_samples_close(samples);
    return code ? code : zinf_dataset_of_samples(out, samples);
}
