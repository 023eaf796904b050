/*
 * safetensors_header: from untrusted bytes to a checked list of tensors, in O(n log n) and in
 * memory that the header's own size bounds.
 *
 * cJSON reads numbers as doubles and strings as C strings, so 1e3, -0, 07 and "a\u0000b" would
 * slip through as something else: a scan over the raw text refuses those first, and caps the
 * number of values before cJSON allocates for each of them.
 */
#include "formats/safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DEPTH 3                                    /* header, tensor, shape */
#define MAX_COMMAS (16 * ZINF_SAFETENSORS_MAX_TENSORS) /* rank 8 needs 12 commas a tensor */
#define MAX_INTEGER 0x1p53                             /* exact as a double */

/* Every fault of the content has the same remedy. */
static int fail_damaged(const char *what, const char *format, ...) ZINF_PRINTF(2, 3);
static int fail_damaged(const char *what, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return zinf_fail(-EINVAL,
                     "%s: %s; the file is damaged or was cut short: fetch or write it again", what,
                     text);
}

/* ---- length ---- */

/* What people hand in by mistake, told by its first bytes. */
static const char *other_format(const void *first)
{
    if (!memcmp(first, "version ", 8))
        return "is a Git LFS pointer, not the data: run 'git lfs pull'";
    if (!memcmp(first, "PK\3\4", 4) || !memcmp(first, "\x80\2", 2))
        return "is a PyTorch pickle, not safetensors: convert it with "
               "save_pretrained(folder, safe_serialization=True) in Python";
    if (!memcmp(first, "GGUF", 4))
        return "is a GGUF file, not safetensors: use the model's Hugging Face folder";
    return NULL;
}

int zinf_safetensors_length(const char *what, const void *first, uint64_t file_bytes,
                            uint64_t *json_bytes)
{
    const uint8_t *byte = first;
    uint64_t length = 0;
    if (file_bytes < ZINF_SAFETENSORS_LENGTH_BYTES)
        return fail_damaged(what, "%llu bytes are too few for a safetensors file",
                            (unsigned long long)file_bytes);
    for (int i = ZINF_SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | byte[i];
    if (length > file_bytes - ZINF_SAFETENSORS_LENGTH_BYTES ||
        length > ZINF_SAFETENSORS_MAX_HEADER_BYTES) {
        const char *other = other_format(first);
        if (other)
            return zinf_fail(-EINVAL, "%s %s", what, other);
        return fail_damaged(what,
                            "a header of %llu bytes is claimed, but the file has %llu (at most "
                            "%d are allowed)",
                            (unsigned long long)length, (unsigned long long)file_bytes,
                            ZINF_SAFETENSORS_MAX_HEADER_BYTES);
    }
    *json_bytes = length;
    return 0;
}

/* ---- raw text ---- */

static bool is_number_byte(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Steps over the number at *at; only 0, 1, ..., 10, ... pass. */
static int scan_number(const char *what, const char *json, uint64_t bytes, uint64_t *at)
{
    uint64_t begin = *at, end = begin;
    bool plain = true;
    for (; end < bytes && is_number_byte(json[end]); end++)
        plain = plain && json[end] >= '0' && json[end] <= '9';
    *at = end;
    if (plain && (json[begin] != '0' || end == begin + 1))
        return 0;
    return fail_damaged(what, "the header has the number %.*s where only plain integers may stand",
                        (int)(end - begin < 40 ? end - begin : 40), json + begin);
}

/* Steps over the string whose quote is at *at. An open end is left to the JSON reader. */
static int scan_string(const char *what, const char *json, uint64_t bytes, uint64_t *at)
{
    uint64_t i = *at + 1;
    for (; i < bytes && json[i] != '"'; i++) {
        if ((uint8_t)json[i] < 0x20)
            return fail_damaged(what, "byte %llu of the header is a control character in a string",
                                (unsigned long long)i);
        if (json[i] != '\\')
            continue;
        if (bytes - i >= 6 && !memcmp(json + i, "\\u0000", 6))
            return fail_damaged(what, "byte %llu of the header is a NUL in a string",
                                (unsigned long long)i);
        i++;
    }
    *at = i + 1;
    return 0;
}

static int scan(const char *what, const char *json, uint64_t bytes)
{
    uint64_t commas = 0;
    int depth = 0, code = 0;
    for (uint64_t i = 0; i < bytes && !code;) {
        char c = json[i];
        if (c == '"') {
            code = scan_string(what, json, bytes, &i);
            continue;
        }
        if (c == '-' || (c >= '0' && c <= '9')) {
            code = scan_number(what, json, bytes, &i);
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        commas += c == ',';
        if (depth > MAX_DEPTH)
            code = fail_damaged(what, "the header is nested deeper than %d", MAX_DEPTH);
        else if (commas > MAX_COMMAS)
            code = fail_damaged(what, "the header lists more than %u values", MAX_COMMAS);
        i++;
    }
    return code;
}

/* ---- one tensor ---- */

bool zinf_tensor_name_valid(const char *name)
{
    size_t bytes = strnlen(name, ZINF_TENSOR_MAX_NAME + 1);
    bool valid = bytes > 0 && bytes <= ZINF_TENSOR_MAX_NAME;
    for (size_t i = 0; i < bytes && valid; i++)
        valid = (uint8_t)name[i] >= 0x20 && name[i] != 0x7f;
    return valid;
}

bool zinf_tensor_size(struct zinf_tensor_info *info)
{
    info->n_elems = 1;
    for (int i = 0; i < info->rank; i++)
        if (__builtin_mul_overflow(info->n_elems, info->shape[i], &info->n_elems))
            return false;
    return !__builtin_mul_overflow(info->n_elems, zinf_file_dtype_bytes(info->dtype), &info->bytes);
}

/* An array of at most max integers; the count, or -EINVAL. */
static int read_integers(const char *what, const struct zinf_tensor_info *info, const cJSON *array,
                         int max, uint64_t *out)
{
    const cJSON *element;
    int count = 0;
    if (!cJSON_IsArray(array))
        return fail_damaged(what, "tensor '%s': \"%s\" is not a list", info->name, array->string);
    cJSON_ArrayForEach(element, array)
    {
        if (count == max)
            return fail_damaged(what, "tensor '%s': \"%s\" has more than %d numbers", info->name,
                                array->string, max);
        if (!cJSON_IsNumber(element) || element->valuedouble > MAX_INTEGER)
            return fail_damaged(what,
                                "tensor '%s': \"%s\" has an element that is no integer "
                                "up to 2^53",
                                info->name, array->string);
        out[count++] = (uint64_t)element->valuedouble;
    }
    return count;
}

static int read_dtype(const char *what, struct zinf_tensor_info *info, const cJSON *value)
{
    if (!cJSON_IsString(value))
        return fail_damaged(what, "tensor '%s': \"dtype\" is not a string", info->name);
    for (int i = 0; i < ZINF_FILE_DTYPES; i++)
        if (!strcmp(value->valuestring, zinf_file_dtype_name((enum zinf_file_dtype)i))) {
            info->dtype = (enum zinf_file_dtype)i;
            return 0;
        }
    return zinf_fail(-EINVAL,
                     "%s: tensor '%s': elements of type '%.20s' are not supported: convert the "
                     "model to BF16, F16 or F32",
                     what, info->name, value->valuestring);
}

/* info->name is set; offsets[] get begin and end within the data. */
static int read_entry(const char *what, struct zinf_tensor_info *info, const cJSON *entry,
                      uint64_t offsets[2])
{
    enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };
    const cJSON *member;
    int seen = 0, code = 0;
    if (!cJSON_IsObject(entry))
        return fail_damaged(what, "tensor '%s': its entry is not an object", info->name);
    cJSON_ArrayForEach(member, entry)
    {
        if (!strcmp(member->string, "dtype")) {
            seen |= HAS_DTYPE;
            code = read_dtype(what, info, member);
        } else if (!strcmp(member->string, "shape")) {
            seen |= HAS_SHAPE;
            code = read_integers(what, info, member, ZINF_TENSOR_MAX_RANK, info->shape);
            info->rank = code;
        } else if (!strcmp(member->string, "data_offsets")) {
            seen |= HAS_OFFSETS;
            code = read_integers(what, info, member, 2, offsets);
            if (code >= 0 && code != 2)
                code = fail_damaged(what, "tensor '%s': \"data_offsets\" needs two numbers",
                                    info->name);
        } else {
            code = fail_damaged(what, "tensor '%s': unknown key \"%.40s\"", info->name,
                                member->string);
        }
        if (code < 0)
            return code;
    }
    if (seen != HAS_ALL)
        return fail_damaged(what, "tensor '%s': \"%s\" is missing", info->name,
                            !(seen & HAS_DTYPE)   ? "dtype"
                            : !(seen & HAS_SHAPE) ? "shape"
                                                  : "data_offsets");
    return 0;
}

static int check_extent(const char *what, struct zinf_tensor_info *info, const uint64_t offsets[2],
                        uint64_t data_bytes)
{
    if (!zinf_tensor_size(info))
        return fail_damaged(what, "tensor '%s': its shape has more than 2^64 bytes", info->name);
    if (offsets[0] > offsets[1] || offsets[1] - offsets[0] != info->bytes)
        return fail_damaged(what,
                            "tensor '%s': data_offsets [%llu, %llu] do not hold the %llu bytes "
                            "that its shape and type %s need",
                            info->name, (unsigned long long)offsets[0],
                            (unsigned long long)offsets[1], (unsigned long long)info->bytes,
                            zinf_file_dtype_name(info->dtype));
    if (offsets[1] > data_bytes)
        return fail_damaged(what, "tensor '%s' ends at byte %llu of the data, which has only %llu",
                            info->name, (unsigned long long)offsets[1],
                            (unsigned long long)data_bytes);
    return 0;
}

/* ---- the whole ---- */

static int check_metadata(const char *what, const cJSON *metadata)
{
    const cJSON *member;
    if (!cJSON_IsObject(metadata))
        return fail_damaged(what, "\"__metadata__\" is not an object");
    cJSON_ArrayForEach(member, metadata)
    {
        if (!cJSON_IsString(member))
            return fail_damaged(what, "\"__metadata__\": the value of \"%.40s\" is not a string",
                                member->string);
    }
    return 0;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct zinf_tensor_info *x = a, *y = b;
    if (x->file_offset != y->file_offset)
        return x->file_offset < y->file_offset ? -1 : 1;
    if (x->bytes != y->bytes) /* empty ones first: they lie before, not inside */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sorts the tensors by place; each must begin where the one before it ended. */
static int check_tiling(const char *what, struct zinf_safetensors *header, uint64_t data_offset,
                        uint64_t file_bytes)
{
    uint64_t end = data_offset;
    qsort(header->tensors, header->n_tensors, sizeof *header->tensors, compare_offsets);
    for (uint64_t i = 0; i < header->n_tensors; i++) {
        const struct zinf_tensor_info *info = &header->tensors[i];
        if (info->file_offset != end)
            return fail_damaged(what, "tensor '%s' %s before it", info->name,
                                info->file_offset < end ? "overlaps the one"
                                                        : "leaves a gap in the data");
        end += info->bytes;
    }
    if (end != file_bytes)
        return fail_damaged(what, "%llu bytes after the last tensor belong to none",
                            (unsigned long long)(file_bytes - end));
    return 0;
}

/* One block for the tensors, one for their names. */
static int allocate(struct zinf_safetensors *header, const char *what, const cJSON *root)
{
    const cJSON *entry;
    uint64_t names_bytes = 0, count = 0;
    cJSON_ArrayForEach(entry, root)
    {
        names_bytes += strlen(entry->string) + 1;
        count++;
    }
    if (count > ZINF_SAFETENSORS_MAX_TENSORS)
        return fail_damaged(what, "the header lists more than %u tensors",
                            ZINF_SAFETENSORS_MAX_TENSORS);
    header->tensors = calloc(count + 1, sizeof *header->tensors);
    header->names = malloc(names_bytes + 1);
    if (!header->tensors || !header->names)
        return zinf_fail(-ENOMEM, "%s: no memory for a header of %llu tensors", what,
                         (unsigned long long)count);
    return 0;
}

static int read_root(struct zinf_safetensors *header, const char *what, cJSON *root,
                     uint64_t data_offset, uint64_t file_bytes)
{
    uint64_t offsets[2];
    const cJSON *entry;
    if (!cJSON_IsObject(root))
        return fail_damaged(what, "the header is not a JSON object");
    header->metadata = cJSON_DetachItemFromObjectCaseSensitive(root, "__metadata__");
    int code = header->metadata ? check_metadata(what, header->metadata) : 0;
    if (!code)
        code = allocate(header, what, root);
    char *name = header->names;
    if (code)
        return code;
    cJSON_ArrayForEach(entry, root)
    {
        struct zinf_tensor_info *info = &header->tensors[header->n_tensors++];
        size_t name_bytes = strlen(entry->string) + 1;
        info->name = memcpy(name, entry->string, name_bytes);
        name += name_bytes;
        if (!zinf_tensor_name_valid(info->name))
            return fail_damaged(what, "tensor %llu has a name that is not 1 to %d printable bytes",
                                (unsigned long long)header->n_tensors, ZINF_TENSOR_MAX_NAME);
        code = read_entry(what, info, entry, offsets);
        if (!code)
            code = check_extent(what, info, offsets, file_bytes - data_offset);
        if (code)
            return code;
        info->file_offset = data_offset + offsets[0];
    }
    return check_tiling(what, header, data_offset, file_bytes);
}

int zinf_safetensors_init(struct zinf_safetensors *out, const char *what, const char *json,
                          uint64_t json_bytes, uint64_t file_bytes)
{
    struct zinf_safetensors header = {0};
    cJSON *root = NULL;
    if (json_bytes == 0 || json[0] != '{')
        return fail_damaged(what, "the header does not start with '{'");
    int code = scan(what, json, json_bytes);
    if (!code)
        code = zinf_json_parse(json, json_bytes, what, ZINF_JSON_STRICT, &root);
    if (!code)
        code =
            read_root(&header, what, root, ZINF_SAFETENSORS_LENGTH_BYTES + json_bytes, file_bytes);
    cJSON_Delete(root);
    if (code)
        zinf_safetensors_fini(&header);
    else
        *out = header;
    return code;
}

int zinf_safetensors_init_image(struct zinf_safetensors *out, const char *what, const void *data,
                                uint64_t bytes)
{
    uint64_t json_bytes;
    int code = zinf_safetensors_length(what, data, bytes, &json_bytes);
    if (code)
        return code;
    const char *json = (const char *)data + ZINF_SAFETENSORS_LENGTH_BYTES;
    return zinf_safetensors_init(out, what, json, json_bytes, bytes);
}

void zinf_safetensors_fini(struct zinf_safetensors *header)
{
    free(header->tensors);
    free(header->names);
    cJSON_Delete(header->metadata);
    *header = (struct zinf_safetensors){0};
}
