/*
 * table: comma- and tab-separated values as documents, one a row. The first line names the columns,
 * of which one is the text. Quotes as RFC 4180 has them: a field in quotes may hold separators,
 * line ends and doubled quotes.
 */
#include "text/input.h"

#include <stdio.h>

#define MAX_COLUMNS 4096

struct row {
    size_t n_fields;
    long line;
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

/* Reads a row; of its fields only number wanted stays in the document. */
static int read_row(struct text_input *input, char separator, size_t wanted, struct row *row)
{
    int code, c;
    *row = (struct row){.line = input->line};
    do {
        size_t before = input->document_bytes;
        if (row->n_fields)
            text_input_step(input);
        code = read_field(input, separator);
        if (row->n_fields != wanted)
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

/* Where the text is, by the header; its names are gathered for the message. */
static int find_column(struct text_input *input, char separator, size_t *wanted, size_t *n_columns)
{
    char names[512] = "";
    size_t used = 0;
    int code = 0, c;
    *n_columns = 0;
    *wanted = SIZE_MAX;
    do {
        if (*n_columns)
            text_input_step(input);
        input->document_bytes = 0;
        code = read_field(input, separator);
        c = code ? TEXT_END_OF_FILE : text_input_peek(input);
        size_t n = input->document_bytes;
        if (!code && n == strlen(input->column) && !memcmp(input->document, input->column, n))
            *wanted = *n_columns;
        if (!code && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.*s",
                                     *n_columns ? ", " : "", (int)(n < 64 ? n : 64),
                                     n ? input->document : "");
        ++*n_columns;
    } while (!code && c == separator && *n_columns < MAX_COLUMNS);
    input->document_bytes = 0;
    if (!code && c == '\r')
        text_input_step(input);
    if (!code && text_input_peek(input) == '\n')
        text_input_step(input);
    if (code || *wanted != SIZE_MAX)
        return code;
    return zinf_fail(-EINVAL,
                     "%s has no column \"%s\": say with --text-column which holds the "
                     "text; its columns are %s",
                     input->path, input->column, names);
}

int text_read_table(struct text_input *input, char separator)
{
    size_t wanted, n_columns, consumed;
    struct row row = {0};
    int code = find_column(input, separator, &wanted, &n_columns);
    while (!code && text_input_peek(input) >= 0) {
        code = read_row(input, separator, wanted, &row);
        bool blank = row.n_fields == 1 && n_columns > 1 && !input->document_bytes;
        if (!code && !blank && row.n_fields != n_columns)
            code = zinf_fail(-EINVAL, "%s: line %ld has %zu fields, but the first line names %zu",
                             input->path, row.line, row.n_fields, n_columns);
        if (!code && !blank)
            code = input->sink->feed(input->sink->handle, input->document ? input->document : "", 0,
                                     input->document_bytes, true, &consumed);
        input->document_bytes = 0;
    }
    int c = code ? 0 : text_input_peek(input);
    return code ? code : c < TEXT_END_OF_FILE ? c : 0;
}
