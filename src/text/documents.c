/*
 * documents: a data file as a row of documents, read once from front to back in bounded memory. A
 * text file is one document and may have any size; of .jsonl one line, and of .json one object, is
 * in memory at a time.
 */
#include "text/internal.h"
#include "base/json.h"

#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)1 << 20)
#define MAX_WINDOW_BYTES ((size_t)16 << 20) /* no text goes on so long without a place to cut */
#define MAX_DOCUMENT_BYTES ((size_t)1 << 30)

struct input {
    int fd;
    const char *path;
    uint64_t offset; /* of what is read next */
    char *buffer;
    size_t at, end, capacity;
    long line; /* of buffer[at] */
    char *document;
    size_t document_bytes, document_capacity;
    const struct text_sink *sink;
};

/* Fills buffer[end, capacity) as far as the file goes. */
static int fill(struct input *input)
{
    while (input->end < input->capacity) {
        ssize_t n = pread(input->fd, input->buffer + input->end, input->capacity - input->end,
                          (off_t)input->offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot read %s at byte %llu: %s", input->path,
                             (unsigned long long)input->offset, strerror(errno));
        if (n == 0)
            return 0;
        input->end += (size_t)n;
        input->offset += (uint64_t)n;
    }
    return 0;
}

/* ---- text ---- */

/* Drops what is consumed but for its last bytes, which the encoder still looks at. */
static void slide(struct input *input, size_t consumed)
{
    size_t drop = consumed > TEXT_CONTEXT ? consumed - TEXT_CONTEXT : 0;
    memmove(input->buffer, input->buffer + drop, input->end - drop);
    input->at = consumed - drop;
    input->end -= drop;
}

static int grow(struct input *input)
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

static int read_text(struct input *input)
{
    for (;;) {
        size_t consumed;
        int code = fill(input);
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

/* The next byte, left in place; -1 at the end of the file; below that -errno. */
#define END_OF_FILE (-1)
static int peek(struct input *input)
{
    if (input->at == input->end) {
        input->at = input->end = 0;
        int code = fill(input);
        if (code)
            return code == -1 ? -EIO : code;
        if (!input->end)
            return END_OF_FILE;
    }
    return (uint8_t)input->buffer[input->at];
}

static void step(struct input *input)
{
    input->line += input->buffer[input->at++] == '\n';
}

/* Moves the byte at hand to the document. */
static int keep(struct input *input)
{
    if (input->document_bytes == input->document_capacity) {
        size_t capacity = input->document_capacity ? 2 * input->document_capacity : 4096;
        if (capacity > MAX_DOCUMENT_BYTES)
            return zinf_fail(-EFBIG, "%s: line %ld: a document of more than %zu bytes", input->path,
                             input->line, MAX_DOCUMENT_BYTES);
        char *grown = realloc(input->document, capacity);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a document of %zu bytes in %s", capacity,
                             input->path);
        input->document = grown;
        input->document_capacity = capacity;
    }
    input->document[input->document_bytes++] = input->buffer[input->at];
    step(input);
    return 0;
}

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
static int relocate(int code, const struct input *input, long line)
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

static int take_document(struct input *input, long line)
{
    cJSON *object = NULL;
    size_t consumed;
    bool has_nul = hide_nul(input->document, input->document_bytes);
    int code = zinf_json_parse(input->document, input->document_bytes, input->path,
                               ZINF_JSON_STRICT, &object);
    input->document_bytes = 0;
    if (code)
        return relocate(code, input, line);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, "text");
    if (!cJSON_IsObject(object)) {
        code = zinf_fail(-EINVAL, "%s: line %ld: not an object with a \"text\" field", input->path,
                         line);
    } else if (!cJSON_IsString(text)) {
        code = zinf_fail(-EINVAL, "%s: line %ld: the object has %s", input->path, line,
                         text ? "a \"text\" field that is no string" : "no \"text\" field");
    } else {
        size_t bytes = strlen(text->valuestring);
        if (has_nul)
            bytes = show_nul(text->valuestring, bytes);
        code = input->sink->feed(input->sink->handle, text->valuestring, 0, bytes, true, &consumed);
    }
    cJSON_Delete(object);
    return code;
}

static bool is_blank(int c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int skip_blank(struct input *input)
{
    int c;
    while (is_blank(c = peek(input)))
        step(input);
    return c;
}

static int read_lines(struct input *input)
{
    for (;;) {
        int c = skip_blank(input), code = 0;
        long line = input->line;
        if (c < 0)
            return c == END_OF_FILE ? 0 : c;
        while (!code && (c = peek(input)) >= 0 && c != '\n')
            code = keep(input);
        if (!code && c < END_OF_FILE)
            code = c;
        if (!code)
            code = take_document(input, line);
        if (code)
            return code;
    }
}

/* One object, by its braces; the parser judges what is between them. */
static int read_object(struct input *input)
{
    long line = input->line;
    int depth = 0;
    bool in_string = false;
    do {
        int c = peek(input);
        if (c < 0)
            return c < END_OF_FILE ? c
                                   : zinf_fail(-EINVAL,
                                               "%s: line %ld: the object that begins "
                                               "here has no end",
                                               input->path, line);
        if (c == '"')
            in_string = !in_string;
        else if (!in_string)
            depth += (c == '{') - (c == '}');
        int code = keep(input);
        if (!code && c == '\\' && in_string && peek(input) >= 0)
            code = keep(input);
        if (code)
            return code;
    } while (depth);
    return take_document(input, line);
}

static int unexpected(const struct input *input, int c, const char *wanted)
{
    if (c < END_OF_FILE)
        return c;
    if (c == END_OF_FILE)
        return zinf_fail(-EINVAL, "%s: line %ld: the file ends where %s should be", input->path,
                         input->line, wanted);
    return zinf_fail(-EINVAL, "%s: line %ld: not valid JSON: '%c' where %s should be", input->path,
                     input->line, c >= 0x20 && c < 0x7f ? c : '?', wanted);
}

static int read_array(struct input *input)
{
    step(input);
    int c = skip_blank(input);
    for (bool first = true; c != ']'; first = false) {
        if (!first) {
            if (c != ',')
                return unexpected(input, c, "a comma or the array's end");
            step(input);
            c = skip_blank(input);
        }
        if (c != '{')
            return unexpected(input, c, "an object with a \"text\" field");
        int code = read_object(input);
        if (code)
            return code;
        c = skip_blank(input);
    }
    step(input);
    return 0;
}

static int read_json(struct input *input)
{
    int c = skip_blank(input), code;
    if (c == '[') {
        code = read_array(input);
        if (code)
            return code;
        c = skip_blank(input);
        return c == END_OF_FILE ? 0 : unexpected(input, c, "the end of the file");
    }
    while (c == '{') {
        code = read_object(input);
        if (code)
            return code;
        c = skip_blank(input);
    }
    return c == END_OF_FILE ? 0 : unexpected(input, c, "an object or an array of objects");
}

static bool ends_with(const char *path, const char *extension)
{
    size_t n = strlen(path), m = strlen(extension);
    return n >= m && !strcasecmp(path + n - m, extension);
}

bool text_is_json_name(const char *path)
{
    return ends_with(path, ".json") || ends_with(path, ".jsonl");
}

int text_documents_read(int fd, const char *path, size_t first, const struct text_sink *sink)
{
    struct input input = {.fd = fd, .path = path, .line = 1, .sink = sink};
    input.capacity = first ? first : WINDOW_BYTES;
    input.buffer = malloc(input.capacity);
    if (!input.buffer)
        return zinf_fail(-ENOMEM, "no memory to read %s", path);
    int code;
    if (!text_is_json_name(path)) {
        code = read_text(&input);
    } else {
        code = fill(&input);
        if (input.end >= 3 && !memcmp(input.buffer, "\xef\xbb\xbf", 3))
            input.at = 3; /* a byte-order mark is no part of JSON */
        if (!code)
            code = ends_with(path, ".jsonl") ? read_lines(&input) : read_json(&input);
    }
    free(input.buffer);
    free(input.document);
    return code;
}
