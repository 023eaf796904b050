/*
 * tensors_layout: every header that leaves here was read back by the parser that will read the
 * file, so what the writer writes the reader takes.
 */
#include "formats/tensors_layout.h"
#include "formats/tensors_index.h"
#include "formats/tensors_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- text that grows ---- */

struct text {
    char *data;
    size_t bytes, capacity;
    bool failed; /* no memory; looked at once, at the end */
};

static bool text_reserve(struct text *text, size_t more)
{
    if (text->failed || text->capacity - text->bytes > more)
        return !text->failed;
    size_t capacity = 2 * text->capacity + more + 4096;
    char *data = realloc(text->data, capacity);
    text->failed = !data;
    if (data) {
        text->data = data;
        text->capacity = capacity;
    }
    return !text->failed;
}

static void text_print(struct text *text, const char *format, ...) ZINF_PRINTF(2, 3);
static void text_print(struct text *text, const char *format, ...)
{
    char piece[256]; /* callers print names with text_name */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (n < 0 || !text_reserve(text, (size_t)n))
        return;
    memcpy(text->data + text->bytes, piece, (size_t)n);
    text->bytes += (size_t)n;
}

/* A quoted JSON string. Names hold no control characters: only two bytes need an escape. */
static void text_name(struct text *text, const char *name)
{
    if (!text_reserve(text, 2 * strlen(name) + 2))
        return;
    text->data[text->bytes++] = '"';
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            text->data[text->bytes++] = '\\';
        text->data[text->bytes++] = *name;
    }
    text->data[text->bytes++] = '"';
}

/* ---- headers ---- */

/* One entry; its data begins offset bytes into the data of the file. */
static void print_entry(struct text *text, const struct zinf_tensor_info *info, uint64_t offset)
{
    text_print(text, ",");
    text_name(text, info->name);
    text_print(text, ":{\"dtype\":\"%s\",\"shape\":[", zinf_file_dtype_name(info->dtype));
    for (int i = 0; i < info->rank; i++)
        text_print(text, "%s%llu", i ? "," : "", (unsigned long long)info->shape[i]);
    text_print(text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
               (unsigned long long)(offset + info->bytes));
}

/* The length goes in front as eight bytes; the text is padded so that the data is aligned. */
static void finish_header(struct text *text, uint64_t *header_bytes)
{
    while (!text->failed && text->bytes % 8)
        text_print(text, " ");
    uint64_t length = text->bytes - ZINF_SAFETENSORS_LENGTH_BYTES;
    for (int i = 0; i < ZINF_SAFETENSORS_LENGTH_BYTES && !text->failed; i++)
        text->data[i] = (char)(length >> (8 * i));
    *header_bytes = text->bytes;
}

static int prove_header(const struct zinf_tensors_shard *shard)
{
    struct zinf_safetensors proof;
    uint64_t json_bytes;
    int code = zinf_safetensors_length(shard->name, shard->header, shard->file_bytes, &json_bytes);
    if (!code)
        code = zinf_safetensors_init(&proof, shard->name,
                                     shard->header + ZINF_SAFETENSORS_LENGTH_BYTES, json_bytes,
                                     shard->file_bytes);
    if (code)
        return zinf_fail_in(code, "the declared tensors make no valid file");
    zinf_safetensors_fini(&proof);
    return 0;
}

static int build_shard(struct zinf_tensors_shard *shard, struct zinf_tensor_info *list,
                       uint32_t index)
{
    struct text text = {0};
    uint64_t offset = 0;
    text_print(&text, "%8s{\"__metadata__\":{\"format\":\"pt\"}", "");
    for (size_t elem_bytes = 8; elem_bytes > 0; elem_bytes /= 2)
        for (uint64_t i = shard->first; i < shard->end; i++) {
            if (zinf_file_dtype_bytes(list[i].dtype) != elem_bytes)
                continue;
            print_entry(&text, &list[i], offset);
            list[i].file = index;
            list[i].file_offset = offset;
            offset += list[i].bytes;
        }
    text_print(&text, "}");
    finish_header(&text, &shard->header_bytes);
    shard->header = text.data;
    if (text.failed)
        return zinf_fail(-ENOMEM, "no memory for the header of %s", shard->name);
    for (uint64_t i = shard->first; i < shard->end; i++)
        list[i].file_offset += shard->header_bytes;
    shard->file_bytes = shard->header_bytes + offset;
    return prove_header(shard);
}

/* ---- shards ---- */

/* Pointers to the tensors in the order of their names, or NULL without memory. */
static const struct zinf_tensor_info **sort_names(const struct zinf_tensor_info *list,
                                                  uint64_t count)
{
    const struct zinf_tensor_info **sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted) {
        zinf_fail(-ENOMEM, "no memory for a list of %llu tensors", (unsigned long long)count);
        return NULL;
    }
    for (uint64_t i = 0; i < count; i++)
        sorted[i] = &list[i];
    qsort(sorted, count, sizeof *sorted, tensors_compare_names);
    return sorted;
}

static int check_unique(const struct zinf_tensor_info *list, uint64_t count)
{
    const struct zinf_tensor_info **sorted = sort_names(list, count);
    int code = sorted ? 0 : -ENOMEM;
    for (uint64_t i = 1; i < count && !code; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            code = zinf_fail(-EEXIST, "tensor '%s' was declared twice", sorted[i]->name);
    free(sorted);
    return code;
}

/* The end of the shard that begins with tensor first. */
static uint64_t shard_end(const struct zinf_tensor_info *list, uint64_t count, uint64_t first,
                          uint64_t max_shard_bytes)
{
    uint64_t bytes = 0, i = first;
    for (; i < count && i - first < ZINF_SAFETENSORS_MAX_TENSORS; i++) {
        if (i > first && (bytes > max_shard_bytes || list[i].bytes > max_shard_bytes - bytes))
            break;
        bytes += list[i].bytes;
    }
    return i;
}

static int split(struct zinf_tensors_layout *layout, const struct zinf_tensor_info *list,
                 uint64_t count, uint64_t max_shard_bytes)
{
    uint64_t n_shards = 0, first = 0;
    do {
        n_shards++;
        first = shard_end(list, count, first, max_shard_bytes);
    } while (first < count);
    if (n_shards > ZINF_TENSORS_MAX_FILES)
        return zinf_fail(-EINVAL,
                         "shards of %llu bytes would be %llu files, at most %d are allowed: make "
                         "max_shard_bytes larger",
                         (unsigned long long)max_shard_bytes, (unsigned long long)n_shards,
                         ZINF_TENSORS_MAX_FILES);
    layout->shards = calloc(n_shards, sizeof *layout->shards);
    if (!layout->shards)
        return zinf_fail(-ENOMEM, "no memory for %llu shards", (unsigned long long)n_shards);
    layout->n_shards = (uint32_t)n_shards;
    for (uint64_t i = 0; i < n_shards; i++) {
        struct zinf_tensors_shard *shard = &layout->shards[i];
        shard->first = i ? shard[-1].end : 0;
        shard->end = shard_end(list, count, shard->first, max_shard_bytes);
    }
    return 0;
}

int zinf_tensors_layout_init(struct zinf_tensors_layout *out, struct zinf_tensor_info *list,
                             uint64_t count, uint64_t max_shard_bytes)
{
    struct zinf_tensors_layout layout = {0};
    int code = check_unique(list, count);
    for (uint64_t i = 0; i < count && !code; i++)
        if (__builtin_add_overflow(layout.total_bytes, list[i].bytes, &layout.total_bytes) ||
            layout.total_bytes > INT64_MAX / 2)
            code = zinf_fail(-EFBIG, "the declared tensors are larger than any file system");
    if (!code)
        code = split(&layout, list, count, max_shard_bytes);
    for (uint32_t i = 0; i < layout.n_shards && !code; i++) {
        struct zinf_tensors_shard *shard = &layout.shards[i];
        if (layout.n_shards == 1)
            snprintf(shard->name, sizeof shard->name, "%s", ZINF_TENSORS_SINGLE);
        else
            snprintf(shard->name, sizeof shard->name, "model-%05u-of-%05u.safetensors", i + 1,
                     layout.n_shards);
        code = build_shard(shard, list, i);
    }
    if (code)
        zinf_tensors_layout_fini(&layout);
    else
        *out = layout;
    return code;
}

void zinf_tensors_layout_fini(struct zinf_tensors_layout *layout)
{
    for (uint32_t i = 0; i < layout->n_shards; i++)
        free(layout->shards[i].header);
    free(layout->shards);
    *layout = (struct zinf_tensors_layout){0};
}

int zinf_tensors_layout_index(const struct zinf_tensors_layout *layout,
                              const struct zinf_tensor_info *list, uint64_t count, char **out,
                              size_t *bytes)
{
    struct text text = {0};
    const struct zinf_tensor_info **sorted = sort_names(list, count);
    if (!sorted)
        return -ENOMEM;
    text_print(&text, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
               (unsigned long long)layout->total_bytes);
    for (uint64_t i = 0; i < count; i++) {
        text_print(&text, "%s\n    ", i ? "," : "");
        text_name(&text, sorted[i]->name);
        text_print(&text, ": \"%s\"", layout->shards[sorted[i]->file].name);
    }
    text_print(&text, "\n  }\n}\n");
    free(sorted);
    if (text.failed) {
        free(text.data);
        return zinf_fail(-ENOMEM, "no memory for an index of %llu tensors",
                         (unsigned long long)count);
    }
    *out = text.data;
    *bytes = text.bytes;
    return 0;
}
