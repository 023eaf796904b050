/*
 * table: comma- and tab-separated values as documents, one a row, or as whole rows. The first line
 * names the columns, of which one is the text. Quotes as RFC 4180 has them: a field in quotes may
 * hold separators, line ends and doubled quotes.
 */
#include "text/samples/input.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_COLUMNS 4096

struct row {
    size_t n_fields;
    long line;
    cJSON *object; /* of a whole row: its fields by column */
};
struct columns {
    size_t n, wanted; /* number of the text's */
    char **names;     /* [n], where whole rows are wanted */
};

/* A field in quotes, to behind the closing one. */
static int read_quoted(struct text_input *input)
{
    long line = input->line;
    text_input_step(input);
    for (;;) {
        int c = text_input_peek(input), code = 0;
        if (c == TEXT_END_OF_FILE)
            return zinf_fail(-EINVAL,
                             "%s: line %ld: the field in quotes that begins here has no end",
                             input->path, line);
        if (c < 0)
            return c;
        if (c == '"') {
            text_input_step(input);
            if (text_input_peek(input) != '"')
                return 0;
        }
        code = text_input_keep(input);
        if (code)
            return code;
    }
}

static bool is_end(int c, char separator)
{
    return c < 0 || c == '\n' || c == '\r' || c == separator;
}

static int read_field(struct text_input *input, char separator)
{
    int c = text_input_peek(input), code = 0;
    if (c == '"') {
        code = read_quoted(input);
        c = code ? c : text_input_peek(input);
        if (!code && !is_end(c, separator))
            return zinf_fail(-EINVAL,
                             "%s: line %ld: '%c' after a field in quotes: a quote in a field is "
                             "written twice",
                             input->path, input->line, c);
        return code;
    }
    while (!code && !is_end(c = text_input_peek(input), separator))
        code = text_input_keep(input);
    return code ? code : c < TEXT_END_OF_FILE ? c : 0;
}

/* The field that was just read, which lies at the document's end. */
static int add_field(struct text_input *input, size_t begin, const char *column, struct row *row)
{
    char *text =
        strndup(input->document ? input->document + begin : "", input->document_bytes - begin);
    bool added = text && cJSON_AddStringToObject(row->object, column, text);
    free(text);
    return added ? 0 : zinf_fail(-ENOMEM, "%s: no memory for a row", input->path);
}

/* Reads a row; of its fields only number wanted stays in the document. */
static int read_row(struct text_input *input, char separator, const struct columns *columns,
                    struct row *row)
{
    int code, c;
    *row = (struct row){.line = input->line};
    if (columns->names && !(row->object = cJSON_CreateObject()))
        return zinf_fail(-ENOMEM, "%s: no memory for a row", input->path);
    do {
        size_t before = input->document_bytes;
        if (row->n_fields)
            text_input_step(input);
        code = read_field(input, separator);
        if (!code && row->object && row->n_fields < columns->n)
            code = add_field(input, before, columns->names[row->n_fields], row);
        if (row->n_fields != columns->wanted)
            input->document_bytes = before;
        row->n_fields++;
        c = code ? TEXT_END_OF_FILE : text_input_peek(input);
    } while (!code && c == separator);
    if (!code && c == '\r') {
        text_input_step(input);
        c = text_input_peek(input);
    }
    if (!code && c == '\n')
        text_input_step(input);
    return code ? code : c < TEXT_END_OF_FILE ? c : 0;
}

static int add_column(struct text_input *input, struct columns *columns)
{
    size_t n = input->document_bytes;
    if (n == strlen(input->column) && !memcmp(input->document, input->column, n))
        columns->wanted = columns->n;
    if (input->sink->row) {
        char **grown = realloc(columns->names, (columns->n + 1) * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "%s: no memory for its columns", input->path);
        columns->names = grown;
        grown[columns->n] = strndup(n ? input->document : "", n);
        if (!grown[columns->n])
            return zinf_fail(-ENOMEM, "%s: no memory for its columns", input->path);
    }
    columns->n++;
    return 0;
}

/* The header's columns; their names are gathered for the message too. */
static int read_header(struct text_input *input, char separator, struct columns *columns)
{
    char names[512] = "";
    size_t used = 0;
    int code = 0, c;
    columns->wanted = SIZE_MAX;
    do {
        if (columns->n)
            text_input_step(input);
        input->document_bytes = 0;
        code = read_field(input, separator);
        c = code ? TEXT_END_OF_FILE : text_input_peek(input);
        size_t n = input->document_bytes;
        if (!code && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.*s",
                                     columns->n ? ", " : "", (int)(n < 64 ? n : 64),
                                     n ? input->document : "");
        if (!code)
            code = add_column(input, columns);
    } while (!code && c == separator && columns->n < MAX_COLUMNS);
    input->document_bytes = 0;
    if (!code && c == '\r')
        text_input_step(input);
    if (!code && text_input_peek(input) == '\n')
        text_input_step(input);
    if (code || columns->names || columns->wanted != SIZE_MAX)
        return code;
    return zinf_fail(-EINVAL,
                     "%s has no column \"%s\": say with --text-column which holds the text%s; its "
                     "columns are %s",
                     input->path, input->column,
                     strcmp(input->column, "text") != 0
                         ? ""
                         : ", or name columns as a --format has them, such as prompt and "
                           "completion",
                     names);
}

static int take_row(struct text_input *input, const struct columns *columns, struct row *row)
{
    size_t consumed;
    bool blank = row->n_fields == 1 && columns->n > 1 && !input->document_bytes;
    if (columns->names)
        blank = row->n_fields == 1 && columns->n > 1 &&
                !*cJSON_GetArrayItem(row->object, 0)->valuestring;
    int code = 0;
    if (!blank && row->n_fields != columns->n)
        code = zinf_fail(-EINVAL, "%s: line %ld has %zu fields, but the first line names %zu",
                         input->path, row->line, row->n_fields, columns->n);
    if (!blank && columns->names)
        return input->sink->row(input->sink->handle, code ? NULL : row->object, row->line);
    if (!code && !blank)
        code = input->sink->feed(input->sink->handle, input->document ? input->document : "", 0,
                                 input->document_bytes, true, &consumed);
    return code;
}

int text_read_table(struct text_input *input, char separator)
{
    struct columns columns = {0};
    struct row row = {0};
    int code = read_header(input, separator, &columns);
    while (!code && text_input_peek(input) >= 0) {
        code = read_row(input, separator, &columns, &row);
        if (!code)
            code = take_row(input, &columns, &row);
        cJSON_Delete(row.object);
        row.object = NULL;
        input->document_bytes = 0;
    }
    for (size_t i = 0; columns.names && i < columns.n; i++)
        free(columns.names[i]);
    free(columns.names);
    int c = code ? 0 : text_input_peek(input);
    return code ? code : c < TEXT_END_OF_FILE ? c : 0;
}
