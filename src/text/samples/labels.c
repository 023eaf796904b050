/* labels: names of classes and their numbers, and finding them in data: those of a column in the
 * order of their names, so that the order of the rows decides nothing. */
#include "text/internal.h"
#include "text/samples/task.h"

#include <stdio.h>
#include <stdlib.h>

void zinf_labels_free(struct zinf_labels *labels)
{
    for (int32_t i = 0; labels->names && i < labels->n; i++)
        free(labels->names[i]);
    free(labels->names);
    *labels = (struct zinf_labels){0};
}

int zinf_labels_add(struct zinf_labels *labels, const char *name)
{
    size_t n = (size_t)labels->n;
    char **moved = realloc(labels->names, (n + 1) * sizeof *moved);
    if (moved)
        labels->names = moved;
    if (!moved || !(moved[n] = strdup(name)))
        return zinf_fail(-ENOMEM, "no memory for %zu labels", n + 1);
    labels->n++;
    return 0;
}

/* A number from 0 on that is written plainly; -1: it is none. */
static int64_t number_of(const char *text)
{
    char *end;
    if (*text < '0' || *text > '9' || strlen(text) > 9)
        return -1;
    long value = strtol(text, &end, 10);
    return *end ? -1 : value;
}

/* As text: of JSON numbers and booleans, too. NULL: it is nothing that could be a label. */
static const char *label_text(const cJSON *field, char buffer[32])
{
    if (cJSON_IsBool(field))
        return cJSON_IsTrue(field) ? "1" : "0";
    if (cJSON_IsNumber(field)) {
        snprintf(buffer, 32, "%.15g", field->valuedouble);
        return buffer;
    }
    return cJSON_GetStringValue(field);
}

static int refuse(const struct zinf_labels *labels, const char *text)
{
    char list[300] = "";
    size_t used = 0;
    for (int32_t i = 0; labels->names && i < labels->n && used < sizeof list - 1; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                 labels->names[i]);
    if (!labels->names)
        return zinf_fail(-EINVAL,
                         "the label %s is out of range: there are %d classes, from 0 to %d", text,
                         labels->n, labels->n - 1);
    return zinf_fail(-EINVAL, "the label %s is not one of the %d classes: %s", text, labels->n,
                     list);
}

int zinf_labels_parse(const struct zinf_labels *labels, const cJSON *field, int32_t *out)
{
    char buffer[32];
    const char *text = label_text(field, buffer);
    if (!text)
        return zinf_fail(-EINVAL, "the label is neither a name nor a number");
    for (int32_t i = 0; labels->names && i < labels->n; i++)
        if (!strcmp(text, labels->names[i])) {
            *out = i;
            return 0;
        }
    int64_t number = number_of(text);
    if (number < 0 || number >= labels->n)
        return refuse(labels, text);
    *out = (int32_t)number;
    return 0;
}

/* ---- finding ---- */

struct finder {
    struct zinf_labels *labels; /* in the order of the rows */
    const char *column;
    int32_t most;
};

static int see_row(void *handle, const cJSON *row, long line)
{
    struct finder *f = handle;
    char buffer[32];
    const char *text =
        row ? label_text(cJSON_GetObjectItemCaseSensitive(row, f->column), buffer) : NULL;
    (void)line;
    if (!text) /* a broken row is the store's to report */
        return 0;
    for (int32_t i = 0; i < f->labels->n; i++)
        if (!strcmp(text, f->labels->names[i]))
            return 0;
    if (f->labels->n == f->most)
        return zinf_fail(-EINVAL, "\"%s\" has more than %d labels: is it the column of the labels?",
                         f->column, f->most);
    return zinf_labels_add(f->labels, text);
}

static int see_file(struct finder *f, const char *path)
{
    struct text_sink sink = {.row = see_row, .handle = f};
    if (!strcmp(path, "-"))
        return zinf_fail(-EINVAL, "labels cannot be looked for in standard input, which is read "
                                  "once: give a file");
    return text_rows_read(path, &sink);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Numbers stand for themselves, also those in between that no row has. */
static void settle(struct zinf_labels *labels, int32_t most)
{
    int64_t largest = -1;
    for (int32_t i = 0; i < labels->n; i++) {
        int64_t number = number_of(labels->names[i]);
        if (number < 0 || number >= most) {
            qsort(labels->names, (size_t)labels->n, sizeof *labels->names, compare);
            return;
        }
        largest = number > largest ? number : largest;
    }
    zinf_labels_free(labels);
    labels->n = (int32_t)largest + 1;
}

int zinf_labels_find(struct zinf_labels *labels, const char *const *files, int n_files,
                     const char *column, int32_t most)
{
    struct finder finder = {labels, column ? column : "label", most};
    *labels = (struct zinf_labels){0};
    int code = 0;
    for (int i = 0; !code && i < n_files; i++)
        code = see_file(&finder, files[i]);
    if (!code && !labels->n)
        code = zinf_fail(-EINVAL,
                         "%s: no row has a label in \"%s\": name its column with "
                         "--label-column",
                         n_files ? files[0] : "(no file)", finder.column);
    if (!code)
        settle(labels, most);
    else
        zinf_labels_free(labels);
    return code;
}
