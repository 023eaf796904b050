/*
 * config_yaml: a configuration in YAML becomes JSON text with each value in the line where it
 * stood, so that messages name the right one. It is told from Hjson by its name or by what only
 * YAML has: Hjson would take a key without a value together with the line below it. libyaml reads
 * it; plain words are what YAML 1.1 takes them for, and 1e-5, which that takes for a text, is a
 * number.
 */
#include "config/config_private.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

#define MOST_DEPTH 64

/* What only files of other programs have at the beginning of a line: those of Accelerate, of
 * gdGPT, and any that says that a document begins. */
static const char *const marks[] = {"compute_environment:",
                                    "distributed_type:",
                                    "deepspeed_config:",
                                    "deepspeed_config_file:",
                                    "model_topo:",
                                    "n_epoches:",
                                    "---"};

struct line {
    const char *text;
    size_t bytes;
    int number;
};

/* The next line that is neither empty nor a comment; false: there is none. */
static bool next_line(const char *text, size_t bytes, size_t *at, struct line *line)
{
    while (*at < bytes) {
        const char *end = memchr(text + *at, '\n', bytes - *at);
        size_t n = end ? (size_t)(end - text) - *at : bytes - *at, blank = 0;
        *line = (struct line){text + *at, n, line->number + 1};
        *at += n + 1;
        while (blank < n && isspace((unsigned char)line->text[blank]))
            blank++;
        if (blank < n && line->text[blank] != '#')
            return true;
    }
    return false;
}

static const char *mark_of(const struct line *line)
{
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t n = strlen(marks[i]);
        if (line->bytes >= n && !memcmp(line->text, marks[i], n))
            return marks[i];
    }
    return NULL;
}

static bool is_named_yaml(const char *what)
{
    const char *dot = strrchr(what, '.');
    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

bool zinf_config_is_yaml(const char *text, size_t bytes, const char *what)
{
    struct line line = {.number = 0};
    bool marked = false, any = false;
    for (size_t at = 0; next_line(text, bytes, &at, &line); any = true) {
        const size_t blank = strspn(line.text, " \t");
        if (!any && blank < line.bytes && strchr("{[", line.text[blank]))
            return false;
        marked |= mark_of(&line) != NULL;
    }
    return marked || (any && is_named_yaml(what));
}

/* ---- as JSON ---- */

struct reader {
    yaml_parser_t parser;
    const char *what;
    FILE *out;
    size_t line; /* of what is written, from 0 */
};

static int fail_at(const struct reader *r, size_t line, const char *why)
{
    return zinf_fail(-EINVAL, "%s:%zu: %s", r->what, line + 1, why);
}

static int next(struct reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event))
        return 0;
    return zinf_fail(-EINVAL, "%s:%zu: this is no YAML: %s", r->what,
                     r->parser.problem_mark.line + 1,
                     r->parser.problem ? r->parser.problem : "it cannot be read");
}

static void go_to_line(struct reader *r, size_t line)
{
    for (; r->line < line; r->line++)
        fputc('\n', r->out);
}

static bool is_among(const char *text, const char *const *words)
{
    while (*words && strcmp(text, *words))
        words++;
    return *words;
}

/* What a word without quotes is, as JSON has it; NULL: a text. */
static const char *plain_value(const char *text, char number[64])
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
                                      "YES",  "on",   "On",   "ON",  NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
                                     "NO",    "off",   "Off",   "OFF", NULL};
    char *end;
    const double value = strtod(text, &end);
    if (is_among(text, nulls))
        return "null";
    if (is_among(text, yes))
        return "true";
    if (is_among(text, no))
        return "false";
    if (*end || !isfinite(value) || strlen(text) > 40 || strpbrk(text, "xXpP_"))
        return NULL;
    snprintf(number, 64, "%.17g", value);
    return number;
}

static int write_scalar(struct reader *r, const yaml_event_t *event, bool is_key)
{
    const char *text = (const char *)event->data.scalar.value;
    const bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !is_key;
    char number[64];
    const char *value = plain ? plain_value(text, number) : NULL;
    char *quoted = value ? NULL : zinf_json_quote(text, event->data.scalar.length);
    go_to_line(r, event->start_mark.line);
    if (!value && !quoted)
        return zinf_fail(-ENOMEM, "no memory for %s", r->what);
    fputs(value ? value : quoted, r->out);
    free(quoted);
    return 0;
}

static int write_node(struct reader *r, const yaml_event_t *event, int depth);

/* Its items, or keys and values by turns, up to the event that ends it. */
static int write_members(struct reader *r, yaml_event_type_t end, int depth)
{
    const bool keyed = end == YAML_MAPPING_END_EVENT;
    int code = 0;
    for (size_t n = 0; !code; n++) {
        yaml_event_t event;
        code = next(r, &event);
        if (code)
            break;
        const bool is_key = keyed && n % 2 == 0, ends = event.type == end;
        if (n && !ends)
            fputs(keyed && n % 2 ? ": " : ", ", r->out);
        if (!ends && is_key && event.type != YAML_SCALAR_EVENT)
            code = fail_at(r, event.start_mark.line, "a key is no word");
        else if (!ends)
            code = is_key ? write_scalar(r, &event, true) : write_node(r, &event, depth + 1);
        yaml_event_delete(&event);
        if (ends)
            break;
    }
    return code;
}

static int write_node(struct reader *r, const yaml_event_t *event, int depth)
{
    const bool keyed = event->type == YAML_MAPPING_START_EVENT;
    if (depth > MOST_DEPTH)
        return fail_at(r, event->start_mark.line, "sections are nested too deeply");
    if (event->type == YAML_SCALAR_EVENT)
        return write_scalar(r, event, false);
    if (event->type == YAML_ALIAS_EVENT)
        return fail_at(r, event->start_mark.line,
                       "references to other places of the file (*name) are not read: write the "
                       "value itself");
    go_to_line(r, event->start_mark.line);
    fputc(keyed ? '{' : '[', r->out);
    int code = write_members(r, keyed ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT, depth);
    fputc(keyed ? '}' : ']', r->out);
    return code;
}

/* One document, which is a section. */
static int write_stream(struct reader *r)
{
    int code = 0, n = 0;
    for (bool done = false; !code && !done;) {
        yaml_event_t event;
        code = next(r, &event);
        if (code)
            break;
        if (event.type == YAML_MAPPING_START_EVENT && !n++)
            code = write_node(r, &event, 0);
        else if (event.type == YAML_MAPPING_START_EVENT || event.type == YAML_SCALAR_EVENT ||
                 event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_ALIAS_EVENT)
            code = fail_at(r, event.start_mark.line,
                           n ? "a second document begins here: a configuration is one"
                             : "a configuration is keys with values");
        done = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    return code || n ? code : fail_at(r, 0, "there is no key in it");
}

int zinf_config_yaml(const char *text, size_t bytes, const char *what, char **out,
                     size_t *out_bytes)
{
    struct reader r = {.what = what};
    *out = NULL;
    r.out = open_memstream(out, out_bytes);
    if (!r.out || !yaml_parser_initialize(&r.parser)) {
        if (r.out)
            fclose(r.out);
        return zinf_fail(-ENOMEM, "no memory for %s", what);
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    int code = write_stream(&r);
    yaml_parser_delete(&r.parser);
    if (fclose(r.out) && !code)
        code = zinf_fail(-ENOMEM, "no memory for %s", what);
    return code;
}
