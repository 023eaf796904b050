/*
 * config_yaml: YAML is refused by name. Hjson, as which a configuration is read, takes most of it
 * for something else: a key without a value swallows the line below it, and a file of Accelerate's
 * would train without its section of DeepSpeed's.
 */
#include "config/config_private.h"

#include <ctype.h>

/* What only files of other programs have at the beginning of a line: those of Accelerate, of
 * gdGPT, and any that says that a document begins. */
static const char *const marks[] = {
    "compute_environment:",   "distributed_type:", "deepspeed_config:",
    "deepspeed_config_file:", "model_topo:",       "---"};
static const char file_key[] = "deepspeed_config_file:";

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

/* What is behind "deepspeed_config_file:", which may stand in a section; no text: it is not here.
 */
static struct line file_of(const struct line *line)
{
    const char *end = line->text + line->bytes, *at = line->text;
    while (at < end && isspace((unsigned char)*at))
        at++;
    if ((size_t)(end - at) < sizeof file_key - 1 || memcmp(at, file_key, sizeof file_key - 1) != 0)
        return (struct line){NULL, 0, 0};
    at += sizeof file_key - 1;
    while (at < end && isspace((unsigned char)*at))
        at++;
    return (struct line){at, (size_t)(end - at), line->number};
}

static int refuse(const char *what, const struct line *first, const char *mark,
                  const struct line *file)
{
    char named[160] = "";
    if (file->text)
        snprintf(named, sizeof named, "%.*s", (int)(file->bytes < 150 ? file->bytes : 150),
                 file->text);
    return zinf_fail(
        -EINVAL, "%s:%d: this is YAML (\"%.*s\"), and configurations are JSON: %s%s", what,
        first->number, (int)strcspn(mark, ":\n"), mark,
        *named ? "pass the file that deepspeed_config_file names, --config "
               : "write its DeepSpeed section as a JSON object, such as {\"zero_optimization\": "
                 "{\"stage\": 3}, \"bf16\": {\"enabled\": true}}",
        named);
}

int zinf_config_refuse_yaml(const char *text, size_t bytes, const char *what)
{
    struct line line = {.number = 0}, first = {.number = 0}, file = {NULL, 0, 0};
    const char *mark = NULL;
    bool opens = false, any = false;
    for (size_t at = 0; next_line(text, bytes, &at, &line); any = true) {
        if (!any)
            opens = strspn(line.text, " \t") < line.bytes &&
                    strchr("{[", line.text[strspn(line.text, " \t")]);
        if (opens)
            return 0;
        if (!mark && (mark = mark_of(&line)))
            first = line;
        if (!file.text)
            file = file_of(&line);
    }
    if (!mark && any && is_named_yaml(what)) {
        mark = ".yaml";
        first.number = 1;
    }
    return mark ? refuse(what, &first, mark, &file) : 0;
}
