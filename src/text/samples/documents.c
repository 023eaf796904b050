/*
 * documents: a data file as a row of documents, read once from front to back in bounded memory. A
 * text file is one document and may have any size; of .jsonl one line, and of .json one object, is
 * in memory at a time. Tables are in table.c.
 */
#include "text/samples/input.h"
#include "base/json.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)1 << 20)
#define MAX_WINDOW_BYTES ((size_t)16 << 20) /* no text goes on so long without a place to cut */

/* ---- text ---- */

/* Drops what is consumed but for its last bytes, which the encoder still looks at. */
static void slide(struct text_input *input, size_t consumed)
{
    size_t drop = consumed > TEXT_CONTEXT ? consumed - TEXT_CONTEXT : 0;
    memmove(input->buffer, input->buffer + drop, input->end - drop);
    input->at = consumed - drop;
    input->end -= drop;
}

static int grow(struct text_input *input)
{
    if (input->capacity >= MAX_WINDOW_BYTES)
        return zinf_fail(-EFBIG, "%s: %zu bytes before byte %llu have no place to cut; is it text?",
                         input->path, input->end, (unsigned long long)input->offset);
    char *grown = realloc(input->buffer, 2 * input->capacity);
    if (!grown)
        return zinf_fail(-ENOMEM, "no memory for %zu bytes of %s", 2 * input->capacity,
                         input->path);
    input->buffer = grown;
    input->capacity *= 2;
    return 0;
}

static int read_text(struct text_input *input)
{
    for (;;) {
        size_t consumed;
        int code = text_input_fill(input);
        bool last = input->end < input->capacity;
        if (!code)
            code = input->sink->feed(input->sink->handle, input->buffer, input->at, input->end,
                                     last, &consumed);
        if (code || last)
            return code;
        slide(input, consumed);
        if (input->end > input->capacity / 2)
            code = grow(input);
        if (code)
            return code;
    }
}

/* ---- JSON ---- */

/* cJSON's strings end at NUL, so an escaped one travels as the noncharacter U+FDD0, which no text
 * is to contain. Returns whether there was any. */
static bool hide_nul(char *json, size_t bytes)
{
    bool any = false;
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (json[i] != '\\')
            continue;
        if (bytes - i >= 6 && !memcmp(json + i + 1, "u0000", 5)) {
            memcpy(json + i + 2, "fdd0", 4);
            any = true;
        }
        i++;
    }
    return any;
}

static size_t show_nul(char *text, size_t bytes)
{
    size_t written = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool nul = bytes - i >= 3 && !memcmp(text + i, "\xef\xb7\x90", 3);
        text[written++] = nul ? 0 : text[i];
        i += nul ? 2 : 0;
    }
    return written;
}

/* The parser counts lines from the document's first. */
static int relocate(int code, const struct text_input *input, long line)
{
    const char *message = zinf_error(), *mark = ": line ";
    size_t path_bytes = strlen(input->path);
    if (!strncmp(message, input->path, path_bytes) &&
        !strncmp(message + path_bytes, mark, strlen(mark))) {
        char *rest;
        line += strtol(message + path_bytes + strlen(mark), &rest, 10) - 1;
        return zinf_fail(code, "%s: line %ld%s", input->path, line, rest);
    }
    return zinf_fail_in(code, "%s: line %ld", input->path, line);
}

/* The fields that there are help to choose one. */
static int fail_field(const struct text_input *input, const cJSON *object, const cJSON *text,
                      long line)
{
    const bool usual = !strcmp(input->column, "text");
    char names[256] = "";
    size_t used = 0;
    const cJSON *member;
    if (text)
        return zinf_fail(-EINVAL,
                         "%s: line %ld: the object has a \"%s\" field that is not a string",
                         input->path, line, input->column);
    cJSON_ArrayForEach(member, object)
    {
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.40s", used ? ", " : "",
                                     member->string);
    }
    return zinf_fail(
        -EINVAL,
        "%s: line %ld: the object has no \"%s\" field: --text-column names another%s; it has %s",
        input->path, line, input->column,
        usual ? ", or give its fields the names of a --format, such as prompt and completion" : "",
        *names ? names : "none");
}

/* Whether a row that cannot be read ends all, the sink says. */
static int give_row(struct text_input *input, int code, cJSON *object, long line)
{
    if (!code && !cJSON_IsObject(object))
        code = zinf_fail(-EINVAL, "%s: line %ld: not an object", input->path, line);
    if (!code || code == -EINVAL)
        code = input->sink->row(input->sink->handle, code ? NULL : object, line);
    cJSON_Delete(object);
    return code;
}

/* A document that cannot be read ends the reading, unless the sink says otherwise. */
static int leave_out(struct text_input *input, int code)
{
    struct text_sink *sink = input->sink;
    if (code != -EINVAL || !sink->skips)
        return code;
    if (!sink->n_left++)
        snprintf(sink->first_left, sizeof sink->first_left, "%s", zinf_error());
    return 0;
}

static int take_document(struct text_input *input, long line)
{
    cJSON *object = NULL;
    size_t consumed;
    bool has_nul = hide_nul(input->document, input->document_bytes);
    int code = zinf_json_parse(input->document, input->document_bytes, input->path,
                               ZINF_JSON_STRICT, &object);
    input->document_bytes = 0;
    if (!code && input->sink->row && has_nul)
        code = zinf_fail(-EINVAL, "%s: line 1: a string has the character \\u0000", input->path);
    if (input->sink->row)
        return give_row(input, code ? relocate(code, input, line) : 0, object, line);
    if (code)
        return leave_out(input, relocate(code, input, line));
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, input->column);
    if (!cJSON_IsObject(object)) {
        code =
            leave_out(input, zinf_fail(-EINVAL, "%s: line %ld: not an object with a \"%s\" field",
                                       input->path, line, input->column));
    } else if (!cJSON_IsString(text)) {
        code = leave_out(input, fail_field(input, object, text, line));
    } else {
        size_t bytes = strlen(text->valuestring);
        if (has_nul)
            bytes = show_nul(text->valuestring, bytes);
        code = input->sink->feed(input->sink->handle, text->valuestring, 0, bytes, true, &consumed);
    }
    cJSON_Delete(object);
    return code;
}

int text_document_read(const char *json, const char *path, const char *column, long line,
                       struct text_sink *sink)
{
    const size_t bytes = strlen(json);
    struct text_input input = {
        .path = path, .column = column ? column : "text", .line = line, .sink = sink};
    input.document = malloc(bytes + 1);
    if (!input.document)
        return zinf_fail(-ENOMEM, "%s: no memory for a row of %zu bytes", path, bytes);
    memcpy(input.document, json, bytes + 1);
    input.document_bytes = bytes;
    int code = take_document(&input, line);
    free(input.document);
    return code;
}

static bool is_blank(int c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int skip_blank(struct text_input *input)
{
    int c;
    while (is_blank(c = text_input_peek(input)))
        text_input_step(input);
    return c;
}

/* A line of plain text as a row. */
static int take_line(struct text_input *input, long line)
{
    size_t bytes = input->document_bytes;
    while (bytes && is_blank(input->document[bytes - 1]))
        bytes--;
    char *text = strndup(input->document, bytes);
    cJSON *row = cJSON_CreateObject();
    const bool made = text && row && cJSON_AddStringToObject(row, "text", text);
    input->document_bytes = 0;
    free(text);
    if (made)
        return give_row(input, 0, row, line);
    cJSON_Delete(row);
    return zinf_fail(-ENOMEM, "%s: no memory for line %ld", input->path, line);
}

static int read_lines(struct text_input *input)
{
    const bool plain = text_source_kind(input->source) == TEXT_PLAIN;
    for (;;) {
        int c = skip_blank(input), code = 0;
        long line = input->line;
        if (c < 0)
            return c == TEXT_END_OF_FILE ? 0 : c;
        while (!code && (c = text_input_peek(input)) >= 0 && c != '\n')
            code = text_input_keep(input);
        if (!code && c < TEXT_END_OF_FILE)
            code = c;
        if (!code)
            code = plain ? take_line(input, line) : take_document(input, line);
        if (code)
            return code;
    }
}

/* One object, by its braces; the parser judges what is between them. */
static int read_object(struct text_input *input)
{
    long line = input->line;
    int depth = 0;
    bool in_string = false;
    do {
        int c = text_input_peek(input);
        if (c < 0)
            return c < TEXT_END_OF_FILE ? c
                                        : zinf_fail(-EINVAL,
                                                    "%s: line %ld: the object that begins "
                                                    "here has no end",
                                                    input->path, line);
        if (c == '"')
            in_string = !in_string;
        else if (!in_string)
            depth += (c == '{') - (c == '}');
        int code = text_input_keep(input);
        if (!code && c == '\\' && in_string && text_input_peek(input) >= 0)
            code = text_input_keep(input);
        if (code)
            return code;
    } while (depth);
    return take_document(input, line);
}

static int unexpected(const struct text_input *input, int c, const char *wanted)
{
    if (c < TEXT_END_OF_FILE)
        return c;
    if (c == TEXT_END_OF_FILE)
        return zinf_fail(-EINVAL, "%s: line %ld: the file ends where %s should be", input->path,
                         input->line, wanted);
    return zinf_fail(-EINVAL, "%s: line %ld: not valid JSON: '%c' where %s should be", input->path,
                     input->line, c >= 0x20 && c < 0x7f ? c : '?', wanted);
}

static int read_array(struct text_input *input)
{
    text_input_step(input);
    int c = skip_blank(input);
    for (bool first = true; c != ']'; first = false) {
        if (!first) {
            if (c != ',')
                return unexpected(input, c, "a comma or the array's end");
            text_input_step(input);
            c = skip_blank(input);
        }
        if (c != '{')
            return unexpected(input, c, "an object with a \"text\" field");
        int code = read_object(input);
        if (code)
            return code;
        c = skip_blank(input);
    }
    text_input_step(input);
    return 0;
}

static int read_json(struct text_input *input)
{
    int c = skip_blank(input), code;
    if (c == '[') {
        code = read_array(input);
        if (code)
            return code;
        c = skip_blank(input);
        return c == TEXT_END_OF_FILE ? 0 : unexpected(input, c, "the end of the file");
    }
    while (c == '{') {
        code = read_object(input);
        if (code)
            return code;
        c = skip_blank(input);
    }
    return c == TEXT_END_OF_FILE ? 0 : unexpected(input, c, "an object or an array of objects");
}

static int read_kind(struct text_input *input)
{
    enum text_kind kind = text_source_kind(input->source);
    if (kind == TEXT_PLAIN && input->sink->row && !input->sink->lines)
        return zinf_fail(-EINVAL,
                         "%s is plain text, which has no rows: give .jsonl, .json, .csv or .tsv",
                         input->path);
    if (kind == TEXT_PLAIN && !input->sink->row)
        return read_text(input);
    int code = text_input_fill(input);
    if (input->end >= 3 && !memcmp(input->buffer, "\xef\xbb\xbf", 3))
        input->at = 3; /* a byte-order mark is no part of what follows */
    if (code)
        return code;
    switch (kind) {
    case TEXT_PLAIN:
    case TEXT_JSON_LINES:
        return read_lines(input);
    case TEXT_CSV:
        return text_read_table(input, ',');
    case TEXT_TSV:
        return text_read_table(input, '\t');
    default:
        return read_json(input);
    }
}

int text_documents_read(struct text_source *source, const char *column, size_t first,
                        struct text_sink *sink)
{
    struct text_input input = {.source = source,
                               .path = text_source_path(source),
                               .column = column ? column : "text",
                               .line = 1,
                               .sink = sink};
    input.capacity = first ? first : WINDOW_BYTES;
    input.buffer = malloc(input.capacity);
    if (!input.buffer)
        return zinf_fail(-ENOMEM, "no memory to read %s", input.path);
    int code = read_kind(&input);
    free(input.buffer);
    free(input.document);
    return code;
}

int text_rows_read(const char *path, struct text_sink *sink)
{
    struct text_source *source = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return zinf_fail(-errno, "cannot open %s: %s", path, strerror(errno));
    int code = text_source_open(&source, fd, path);
    if (!code)
        code = text_documents_read(source, NULL, 0, sink);
    text_source_close(source);
    close(fd);
    return code ? zinf_fail_in(code, "%s", path) : 0;
}
