/*
 * choices: files of questions into tokens. The whole set is held: a question is a few hundred
 * tokens, and the largest benchmarks have some ten thousand. Examples of a few-shot file come by
 * subject, so that a question of law is not taught by arithmetic.
 */
#include "text/samples/choices_row.h"

#include "text/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* A subject while files are read: its examples, which stand in front of its questions. */
struct subject {
    char *name, *group; /* name NULL: that of rows without one */
    char *examples;
    uint32_t n_examples;
    bool letters; /* of its first row */
};
struct reading {
    const struct zinf_choices_options *options;
    struct zinf_choices *out;
    struct subject *subjects;
    uint32_t n_subjects;
    uint64_t row;
    struct zinf_tokens whole; /* scratch */
    bool is_few_shot;
};

/* ---- subjects ---- */

static const char *const mmlu[][20] = {
    {"stem",
     "abstract_algebra",
     "anatomy",
     "astronomy",
     "college_biology",
     "college_chemistry",
     "college_computer_science",
     "college_mathematics",
     "college_physics",
     "computer_security",
     "conceptual_physics",
     "electrical_engineering",
     "elementary_mathematics",
     "high_school_biology",
     "high_school_chemistry",
     "high_school_computer_science",
     "high_school_mathematics",
     "high_school_physics",
     "high_school_statistics",
     "machine_learning"},
    {"humanities", "formal_logic", "high_school_european_history", "high_school_us_history",
     "high_school_world_history", "international_law", "jurisprudence", "logical_fallacies",
     "moral_disputes", "moral_scenarios", "philosophy", "prehistory", "professional_law",
     "world_religions"},
    {"social_sciences", "econometrics", "high_school_geography",
     "high_school_government_and_politics", "high_school_macroeconomics",
     "high_school_microeconomics", "high_school_psychology", "human_sexuality",
     "professional_psychology", "public_relations", "security_studies", "sociology",
     "us_foreign_policy"},
    {"other", "business_ethics", "clinical_knowledge", "college_medicine", "global_facts",
     "human_aging", "management", "marketing", "medical_genetics", "miscellaneous", "nutrition",
     "professional_accounting", "professional_medicine", "virology"},
};

/* The one of MMLU's four groups that a subject belongs to; NULL: it is not in MMLU. */
static const char *mmlu_group(const char *subject)
{
    for (size_t g = 0; g < sizeof mmlu / sizeof *mmlu; g++)
        for (size_t i = 1; i < sizeof *mmlu / sizeof **mmlu && mmlu[g][i]; i++)
            if (!strcmp(mmlu[g][i], subject))
                return mmlu[g][0];
    return NULL;
}

static int find_subject(struct reading *r, const struct choices_row *q, struct subject **out)
{
    for (uint32_t i = 0; i < r->n_subjects; i++) {
        const char *name = r->subjects[i].name;
        if (q->subject ? name && !strcmp(name, q->subject) : !name) {
            *out = &r->subjects[i];
            return 0;
        }
    }
    struct subject *moved = realloc(r->subjects, (r->n_subjects + 1) * sizeof *moved);
    if (!moved)
        return zinf_fail(-ENOMEM, "no memory for %u subjects", r->n_subjects + 1);
    r->subjects = moved;
    const char *group = q->group ? q->group : q->subject ? mmlu_group(q->subject) : NULL;
    struct subject *s = *out = &moved[r->n_subjects++];
    *s = (struct subject){.name = q->subject ? strdup(q->subject) : NULL,
                          .group = group ? strdup(group) : NULL,
                          .examples = strdup(""),
                          .letters = q->letters};
    return (q->subject && !s->name) || (group && !s->group) || !s->examples
               ? zinf_fail(-ENOMEM, "no memory for a subject")
               : 0;
}

/* ---- texts ---- */

static bool ends_blank(const char *text)
{
    const size_t n = strlen(text);
    return n && isspace((unsigned char)text[n - 1]);
}

/* What stands in front of the examples. */
static char *describe(const struct reading *r, const struct subject *s)
{
    const char *given = r->options->description;
    if (given)
        return choices_join((const char *[]){given, !*given || ends_blank(given) ? "" : "\n\n"}, 2);
    if (!s->name || !s->letters)
        return strdup("");
    char *text = choices_join((const char *[]){"The following are multiple choice questions (with "
                                               "answers) about ",
                                               s->name, ".\n\n"},
                              3);
    for (char *at = text; at && *at; at++)
        *at = *at == '_' ? ' ' : *at;
    return text;
}

static int keep_example(struct reading *r, struct subject *s, const struct choices_row *q)
{
    if (s->n_examples == r->options->n_shots)
        return 0;
    char *text = choices_join(
        (const char *[]){s->examples, q->question, " ", q->choices[q->answer], "\n\n"}, 5);
    if (!text)
        return zinf_fail(-ENOMEM, "no memory for examples");
    free(s->examples);
    s->examples = text;
    s->n_examples++;
    return 0;
}

/* ---- tokens ---- */

/* ids of text, with what the tokenizer puts in front. */
static int encode(struct reading *r, const char *text, struct zinf_tokens *out)
{
    const struct zinf_tokenizer *tokenizer = r->options->tokenizer;
    struct zinf_tokens plain = {0}, framed = {0};
    uint32_t front, behind;
    zinf_tokenizer_sides(tokenizer, &front, &behind);
    int code = zinf_tokenizer_encode(tokenizer, text, strlen(text), &plain);
    if (!code)
        code = zinf_tokenizer_frame(tokenizer, &plain, NULL, &framed, NULL);
    const size_t n = framed.count - (r->options->separate ? 0 : behind);
    for (size_t i = 0; !code && i < n; i++)
        code = text_tokens_push(out, framed.ids[i]);
    zinf_tokens_free(&plain);
    zinf_tokens_free(&framed);
    return code;
}

/* The choice behind the context: what the tokens of both have beyond those of the context, so that
 * spaces at the context's end are the choice's. */
static int add_choice(struct reading *r, const char *context, size_t trimmed, size_t n_context,
                      const char *choice)
{
    struct zinf_choices *out = r->out;
    struct zinf_answer_text *moved = realloc(out->choices, (out->n_choices + 1) * sizeof *moved);
    if (!moved)
        return zinf_fail(-ENOMEM, "no memory for %u choices", out->n_choices + 1);
    out->choices = moved;
    struct zinf_answer_text *c = &moved[out->n_choices++];
    char *text = choices_join((const char *[]){context, " ", choice}, 3);
    int code = text ? 0 : zinf_fail(-ENOMEM, "no memory for a choice");
    *c = (struct zinf_answer_text){.first = out->ids->count, .bytes = (uint32_t)strlen(choice)};
    for (const char *at = choice; *at; at++)
        c->chars += ((unsigned char)*at & 0xc0) != 0x80;
    r->whole.count = 0;
    const bool alone = r->options->separate || !trimmed;
    if (!code && alone)
        code = zinf_tokenizer_encode(r->options->tokenizer, text + trimmed, strlen(text + trimmed),
                                     &r->whole);
    else if (!code)
        code = encode(r, text, &r->whole);
    for (size_t i = alone ? 0 : n_context; !code && i < r->whole.count; i++)
        code = text_tokens_push(out->ids, r->whole.ids[i]);
    c->n_ids = (uint32_t)(out->ids->count - c->first);
    free(text);
    return code || c->n_ids
               ? code
               : zinf_fail(-EINVAL, "the choice \"%s\" has no token of its own", choice);
}

static int encode_context(struct reading *r, char *context, size_t trimmed,
                          struct zinf_question *question)
{
    const char kept = context[trimmed];
    const size_t first = r->out->ids->count;
    context[trimmed] = 0;
    int code = trimmed ? encode(r, context, r->out->ids) : 0;
    context[trimmed] = kept;
    if (!code && r->out->ids->count == first)
        code = r->options->begin < 0
                   ? zinf_fail(-EINVAL, "the question is empty, and the model has no token that "
                                        "begins a text")
                   : text_tokens_push(r->out->ids, r->options->begin);
    question->first = first;
    question->n_ids = (uint32_t)(r->out->ids->count - first);
    return code;
}

static int keep_question(struct reading *r, struct subject *s, const struct choices_row *q)
{
    struct zinf_choices *out = r->out;
    struct zinf_question *moved = realloc(out->questions, (out->n + 1) * sizeof *moved);
    if (!moved)
        return zinf_fail(-ENOMEM, "no memory for %u questions", out->n + 1);
    out->questions = moved;
    if (s->n_examples < r->options->n_shots)
        return zinf_fail(-EINVAL, "--few-shot %s has %u examples%s%s, and --shots asks for %u",
                         r->options->few_shot, s->n_examples, s->name ? " of the subject " : "",
                         s->name ? s->name : "", r->options->n_shots);
    char *front = describe(r, s);
    char *context =
        front ? choices_join((const char *[]){front, s->examples, q->question}, 3) : NULL;
    size_t trimmed = context ? strlen(context) : 0;
    while (trimmed && isspace((unsigned char)context[trimmed - 1]))
        trimmed--;
    struct zinf_question *question = &moved[out->n++];
    *question = (struct zinf_question){.first_choice = out->n_choices,
                                       .answer = q->answer,
                                       .subject = s->name ? (int32_t)(s - r->subjects) : -1};
    int code = context ? encode_context(r, context, trimmed, question)
                       : zinf_fail(-ENOMEM, "no memory for a question");
    for (int i = 0; !code && i < q->n_choices; i++)
        code = add_choice(r, context, trimmed, question->n_ids, q->choices[i]);
    question->n_choices = out->n_choices - question->first_choice;
    free(front);
    free(context);
    return code;
}

/* ---- files ---- */

static int see_row(void *handle, const cJSON *row, long line)
{
    struct reading *r = handle;
    struct choices_row q = {0};
    struct subject *subject = NULL;
    int code = row ? choices_row_take(&q, row, r->options) : -EINVAL;
    r->row++;
    if (!code)
        code = find_subject(r, &q, &subject);
    if (!code)
        code = r->is_few_shot ? keep_example(r, subject, &q) : keep_question(r, subject, &q);
    choices_row_free(&q);
    return code ? zinf_fail_in(code, "row %llu (line %ld)", (unsigned long long)r->row, line) : 0;
}

static int read_file(struct reading *r, const char *path)
{
    struct text_sink sink = {.row = see_row, .handle = r};
    r->row = 0;
    if (!strcmp(path, "-"))
        return zinf_fail(-EINVAL, "questions are not read from standard input: give a file");
    return text_rows_read(path, &sink);
}

static int compare(const void *a, const void *b)
{
    return strcmp((*(struct subject *const *)a)->name, (*(struct subject *const *)b)->name);
}

/* Subjects by name, so that the order of the rows decides nothing that is shown. */
static int settle(struct reading *r)
{
    struct zinf_choices *out = r->out;
    struct subject **order = calloc(r->n_subjects + 1, sizeof *order);
    int32_t *place = calloc(r->n_subjects + 1, sizeof *place);
    out->subjects = calloc(r->n_subjects + 1, sizeof *out->subjects);
    out->groups = calloc(r->n_subjects + 1, sizeof *out->groups);
    int code = order && place && out->subjects && out->groups
                   ? 0
                   : zinf_fail(-ENOMEM, "no memory for %u subjects", r->n_subjects);
    for (uint32_t i = 0; !code && i < r->n_subjects; i++)
        if (r->subjects[i].name)
            order[out->n_subjects++] = &r->subjects[i];
    if (!code && out->n_subjects)
        qsort(order, out->n_subjects, sizeof *order, compare);
    for (uint32_t i = 0; !code && i < out->n_subjects; i++) {
        place[order[i] - r->subjects] = (int32_t)i;
        out->subjects[i] = order[i]->name;
        out->groups[i] = order[i]->group;
        order[i]->name = order[i]->group = NULL;
    }
    for (uint32_t i = 0; !code && i < out->n; i++)
        if (out->questions[i].subject >= 0)
            out->questions[i].subject = place[out->questions[i].subject];
    free(order);
    free(place);
    return code;
}

int zinf_choices_open(struct zinf_choices **out, const struct zinf_choices_options *options)
{
    struct zinf_choices_options o = *options;
    struct reading r = {.options = &o, .is_few_shot = true};
    struct zinf_choices *c = calloc(1, sizeof *c);
    int code = c && (c->ids = calloc(1, sizeof *c->ids)) ? 0 : -ENOMEM;
    *out = NULL;
    r.out = c;
    o.n_shots = o.few_shot ? o.n_shots : 0;
    if (code)
        zinf_fail(code, "no memory for questions");
    if (!code && o.n_shots)
        code = read_file(&r, o.few_shot);
    r.is_few_shot = false;
    for (int i = 0; !code && i < o.n_files; i++)
        code = read_file(&r, o.files[i]);
    if (!code && !c->n)
        code = zinf_fail(-EINVAL, "%s has no question", o.n_files ? o.files[0] : "(no file)");
    if (!code)
        code = settle(&r);
    for (uint32_t i = 0; i < r.n_subjects; i++) {
        free(r.subjects[i].name);
        free(r.subjects[i].group);
        free(r.subjects[i].examples);
    }
    free(r.subjects);
    zinf_tokens_free(&r.whole);
    if (code)
        zinf_choices_close(c);
    else
        *out = c;
    return code;
}

void zinf_choices_close(struct zinf_choices *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->n_subjects; i++) {
        free(c->subjects[i]);
        free(c->groups[i]);
    }
    free(c->subjects);
    free(c->groups);
    free(c->questions);
    free(c->choices);
    if (c->ids)
        zinf_tokens_free(c->ids);
    free(c->ids);
    free(c);
}
