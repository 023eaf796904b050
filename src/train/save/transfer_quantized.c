/*
 * transfer_quantized: images of quantised weights, one after the other, from a folder's 16-bit
 * weights or from fresh ones, which are quantised on the way, or from weights that are quantised
 * already. Memory is that of the largest image and, of what the file has as [in][out], of the
 * largest such tensor.
 */
#include "train/save/transfer.h"

#include "base/json.h"

#include <stdio.h>
#include <xxhash.h>

/* ---- quantising ---- */

/* One tensor of the file. */
struct quantizing {
    const struct source *source; /* NULL: only what is quantised already is read */
    const struct zinf_tensor *tensor;
    const struct zinf_piece *piece;
    const char *path; /* of the folder */
    struct zinf_quantized as;
    struct region r;
};

/* The file's order of rows is the image's. */
static int quantize_rows(const struct quantizing *p, const struct zinf_gather *gather,
                         float *scales)
{
    float *band = scales + p->as.n_blocks;
    uint64_t room = p->r.scratch_elems - p->as.n_blocks;
    uint64_t step = room / (TRANSFER_BAND_ROWS * p->as.cols) * TRANSFER_BAND_ROWS * p->as.cols;
    int code = 0;
    for (uint64_t at = 0; !code && at < p->as.n_elems; at += step) {
        uint64_t left = p->as.n_elems - at, n = left < step ? left : step;
        code = gather->read(gather->context, p->tensor, p->piece, at, n, band);
        if (!code)
            zinf_quantize(&p->as, band, at, n, p->r.image, scales);
    }
    return code;
}

/* All columns of a band are rows of the image: the matrix is made whole first. */
static int quantize_transposed(const struct quantizing *p, const struct zinf_gather *gather,
                               float *scales)
{
    struct zinf_tensor tensor = *p->tensor;
    struct zinf_piece piece = *p->piece;
    struct zinf_gather rest = *gather;
    tensor.rows = p->as.rows;
    tensor.cols = p->as.cols;
    piece.transposed = true;
    piece.rows = (struct zinf_row_map){.rows = p->as.rows, .count = 1};
    rest.scratch.base = scales + p->as.n_blocks;
    rest.scratch.elems = p->r.scratch_elems - p->as.n_blocks;
    int code = zinf_piece_gather(&tensor, &piece, &rest, p->r.unit);
    if (!code)
        zinf_quantize(&p->as, p->r.unit, 0, p->as.n_elems, p->r.image, scales);
    return code;
}

static int quantize(const struct quantizing *p, const struct zinf_gather *gather)
{
    float *scales = p->r.scratch;
    const bool transposed = p->piece->transposed != p->tensor->turned;
    int code = (transposed ? quantize_transposed : quantize_rows)(p, gather, scales);
    if (!code)
        zinf_quantize_finish(&p->as, p->r.image, scales);
    return code;
}

/* ---- what is quantised already ---- */

const char *transfer_quantized_name(char buffer[200], const char *weight, const char *part)
{
    static const char last[] = "weight";
    size_t n = strlen(weight), tail = sizeof last - 1;
    bool beside =
        part[0] && part[0] != '.' && part[0] != '_' && n > tail && !strcmp(weight + n - tail, last);
    snprintf(buffer, 200, "%.*s%s", (int)(beside ? n - tail : n), weight, part);
    return buffer;
}

/* A tensor of the file that belongs to the weight, whose bytes are that many. */
static int find_part(const struct quantizing *p, const struct zinf_tensors *file,
                     const char *weight, const char *part, uint64_t bytes,
                     const struct zinf_tensor_info **out)
{
    char name[200];
    *out = zinf_tensors_find(file, transfer_quantized_name(name, weight, part));
    if (!*out)
        return zinf_fail(-ENOENT,
                         "%s: tensor %s is missing: config.json says that its weights are "
                         "quantised as %s%s",
                         p->path, name, zinf_form_name(p->as.form),
                         p->as.form == ZINF_FORM_NF4_DOUBLE ? " with bnb_4bit_use_double_quant"
                                                            : "");
    if ((*out)->bytes == bytes)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: tensor %s has %llu bytes, but config.json asks for %llu: its weights are "
                     "quantised in another way than quantization_config says",
                     p->path, name, (unsigned long long)(*out)->bytes, (unsigned long long)bytes);
}

static int read_part(const struct quantizing *p, const struct zinf_tensors *file,
                     const char *weight, const char *part, uint64_t at, uint64_t bytes)
{
    const struct zinf_tensor_info *info;
    int code = find_part(p, file, weight, part, bytes, &info);
    return code ? code : zinf_tensors_read(file, info, 0, info->n_elems, p->r.image + at);
}

/* Codes and scales of the piece's slab, in tensors of bytes. */
static int read_mxfp4(const struct quantizing *p, const struct zinf_tensors *file,
                      const char *weight)
{
    static const char *const parts[] = {"_blocks", "_scales"};
    const uint64_t n_slabs = p->piece->n_slabs ? p->piece->n_slabs : 1;
    const uint64_t bytes[] = {p->as.code_bytes, p->as.n_blocks};
    uint8_t *to[] = {(uint8_t *)(void *)p->r.scratch,
                     (uint8_t *)(void *)p->r.scratch + p->as.code_bytes};
    int code = 0;
    for (int i = 0; !code && i < 2; i++) {
        const struct zinf_tensor_info *info;
        code = find_part(p, file, weight, parts[i], n_slabs * bytes[i], &info);
        if (!code)
            code = zinf_tensors_read(file, info, p->piece->slab * bytes[i], bytes[i], to[i]);
    }
    for (uint64_t i = 0; !code && i < p->as.n_blocks; i++)
        if (to[1][i] == 255)
            code =
                zinf_fail(-EINVAL, "%s: the scales of tensor %s hold NaN: the weights are damaged",
                          p->path, weight);
    if (!code)
        zinf_quantize_take(&p->as, to[0], to[1], p->r.image);
    return code;
}

/* Scales are a number for each block, or one for the whole matrix. */
static int read_scales(const struct quantizing *p, const struct zinf_tensors *file,
                       const char *weight)
{
    char name[200];
    float *scales = (float *)(void *)(p->r.image + p->as.scales_at);
    const struct zinf_tensor_info *info =
        zinf_tensors_find(file, transfer_quantized_name(name, weight, "_scale_inv"));
    if (!info)
        return zinf_fail(-ENOENT,
                         "%s: tensor %s is missing: config.json says that its weights are "
                         "quantised as fp8",
                         p->path, name);
    if (info->n_elems != p->as.n_blocks && info->n_elems != 1)
        return zinf_fail(-EINVAL,
                         "%s: tensor %s has %llu numbers; a matrix of %llu x %llu has %llu blocks "
                         "of 128 x 128",
                         p->path, name, (unsigned long long)info->n_elems,
                         (unsigned long long)p->as.rows, (unsigned long long)p->as.cols,
                         (unsigned long long)p->as.n_blocks);
    int code = zinf_tensors_read_f32(file, info, 0, info->n_elems, scales);
    for (uint64_t i = info->n_elems; !code && i < p->as.n_blocks; i++)
        scales[i] = scales[0];
    return code;
}

static int read_fp8(const struct quantizing *p, const struct zinf_tensors *file, const char *weight)
{
    const struct zinf_tensor_info *info;
    const uint8_t *codes = (const uint8_t *)p->r.image + ZINF_QUANT_CODES_AT;
    int code = find_part(p, file, weight, "", p->as.code_bytes, &info);
    if (!code &&
        (info->dtype != ZINF_FILE_F8_E4M3 || info->rank != 2 || info->shape[0] != p->as.rows))
        code =
            zinf_fail(-EINVAL, "%s: tensor %s is not F8_E4M3 of shape [%llu, %llu]", p->path,
                      info->name, (unsigned long long)p->as.rows, (unsigned long long)p->as.cols);
    memset(p->r.image, 0, p->as.bytes);
    if (!code)
        code = zinf_tensors_read(file, info, 0, info->n_elems, p->r.image + ZINF_QUANT_CODES_AT);
    for (uint64_t i = 0; !code && i < p->as.code_bytes; i++)
        if ((codes[i] & 0x7f) == 0x7f)
            code = zinf_fail(-EINVAL, "%s: tensor %s holds NaN: the weights are damaged", p->path,
                             info->name);
    return code ? code : read_scales(p, file, weight);
}

static int check_number(const struct quantizing *p, const cJSON *state, const char *weight,
                        const char *key, double wanted)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(state, key);
    if (cJSON_IsNumber(value) && value->valuedouble == wanted)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: the quant_state of %s has %s %g, and only %g can be read: take a folder "
                     "with 16-bit weights, and set zinf.quantize (--quantize)",
                     p->path, weight, key, cJSON_IsNumber(value) ? value->valuedouble : 0.0,
                     wanted);
}

static int check_state(const struct quantizing *p, const cJSON *state, const char *weight)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(state, "shape");
    const cJSON *rows = cJSON_GetArrayItem(shape, 0), *cols = cJSON_GetArrayItem(shape, 1);
    const cJSON *offset = cJSON_GetObjectItemCaseSensitive(state, "nested_offset");
    if (!cJSON_IsNumber(rows) || !cJSON_IsNumber(cols) || rows->valuedouble != (double)p->as.rows ||
        cols->valuedouble != (double)p->as.cols)
        return zinf_fail(-EINVAL, "%s: the quant_state of %s does not have the shape [%llu, %llu]",
                         p->path, weight, (unsigned long long)p->as.rows,
                         (unsigned long long)p->as.cols);
    int code = check_number(p, state, weight, "blocksize", ZINF_QUANT_BLOCK);
    if (code || p->as.form != ZINF_FORM_NF4_DOUBLE)
        return code;
    code = check_number(p, state, weight, "nested_blocksize", ZINF_QUANT_SCALES);
    if (!code && !cJSON_IsNumber(offset))
        code =
            zinf_fail(-EINVAL, "%s: the quant_state of %s has no nested_offset", p->path, weight);
    float mean = code ? 0 : (float)offset->valuedouble;
    memcpy(p->r.image + ZINF_QUANT_OFFSET_AT, &mean, sizeof mean);
    return code;
}

/* What else there is to say of a weight is a JSON document in a tensor of its own. */
static int read_state(const struct quantizing *p, const struct zinf_tensors *file,
                      const char *weight)
{
    char name[200], text[1024];
    cJSON *state = NULL;
    transfer_quantized_name(name, weight, ".quant_state.bitsandbytes__nf4");
    const struct zinf_tensor_info *info = zinf_tensors_find(file, name);
    if (!info || info->bytes > sizeof text)
        return zinf_fail(-ENOENT, "%s: tensor %s is missing: config.json asks for weights in nf4",
                         p->path, name);
    int code = zinf_tensors_read(file, info, 0, info->n_elems, text);
    if (!code)
        code = zinf_json_parse(text, info->bytes, name, ZINF_JSON_STRICT, &state);
    if (!code)
        code = check_state(p, state, weight);
    cJSON_Delete(state);
    return code;
}

static int read_quantized(const struct quantizing *p, const struct zinf_tensors *file,
                          const char *weight)
{
    bool nested = p->as.form == ZINF_FORM_NF4_DOUBLE, bytes = p->as.form == ZINF_FORM_INT8;
    const struct {
        const char *part;
        bool has;
        uint64_t at, bytes;
    } parts[] = {
        {"", true, ZINF_QUANT_CODES_AT, p->as.code_bytes},
        {"SCB", bytes, p->as.scales_at, p->as.n_blocks * sizeof(float)},
        {".absmax", !bytes, p->as.scales_at, p->as.n_blocks * (nested ? 1 : sizeof(float))},
        {".quant_map", !bytes, 0, 16 * sizeof(float)},
        {".nested_absmax", nested, p->as.nested_at, p->as.n_nested * sizeof(float)},
        {".nested_quant_map", nested, ZINF_QUANT_NESTED_MAP_AT, 256 * sizeof(float)},
    };
    int code = 0;
    if (p->as.form == ZINF_FORM_MXFP4)
        return read_mxfp4(p, file, weight);
    if (p->as.form == ZINF_FORM_FP8)
        return read_fp8(p, file, weight);
    memset(p->r.image, 0, p->as.bytes);
    for (size_t i = 0; !code && i < sizeof parts / sizeof *parts; i++)
        if (parts[i].has)
            code = read_part(p, file, weight, parts[i].part, parts[i].at, parts[i].bytes);
    return code || bytes ? code : read_state(p, file, weight);
}

/* Scales, or those of scales; and what codes stand for. */
static int check_finite(const struct quantizing *p, const char *weight)
{
    if (p->as.form == ZINF_FORM_MXFP4) /* bytes, which are looked at as they come */
        return 0;
    bool nested = p->as.form == ZINF_FORM_NF4_DOUBLE;
    const char *image = p->r.image;
    const float *scales =
        (const float *)(const void *)(image + (nested ? p->as.nested_at : p->as.scales_at));
    uint64_t n = nested ? p->as.n_nested : p->as.n_blocks;
    int threads = p->source ? p->source->device->n_threads : 1;
    if (zinf_optim_find_nonfinite(scales, ZINF_DTYPE_F32, n, threads) == UINT64_MAX &&
        zinf_optim_find_nonfinite((const float *)(const void *)image, ZINF_DTYPE_F32,
                                  (ZINF_QUANT_OFFSET_AT + 4) / 4, threads) == UINT64_MAX)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: the scales of tensor %s hold NaN or Inf: the weights are damaged",
                     p->path, weight);
}

int transfer_read_quantized(const struct zinf_quantized *as, const struct zinf_tensors *file,
                            const char *path, const char *weight, void *image)
{
    const struct quantizing p = {.path = path, .as = *as, .r = {.image = image}};
    int code = read_quantized(&p, file, weight);
    return code ? code : check_finite(&p, weight);
}

/* ---- a unit ---- */

static int make_image(const struct quantizing *p, const struct zinf_gather *gather,
                      const struct zinf_tensors *file)
{
    const struct setup *s = p->source->setup;
    char weight[160];
    bool is_there = file && zinf_model_facts(s->model)->quantized_file;
    zinf_piece_name(p->piece, p->source->prefix, weight, sizeof weight);
    int code = is_there ? read_quantized(p, file, weight) : quantize(p, gather);
    return code ? code : check_finite(p, weight);
}

int transfer_quantize(const struct source *s, uint32_t unit, const struct zinf_gather *gather,
                      const struct zinf_tensors *file, uint64_t *sum)
{
    const struct zinf_unit *u = &s->setup->graph->units[unit];
    uint64_t next = 0;
    int code = 0;
    for (uint32_t i = 0; i < u->n_tensors; i++)
        for (uint32_t k = 0; !code && k < u->tensors[i].n_pieces; k++) {
            const struct zinf_tensor *t = &u->tensors[i];
            struct quantizing p = {
                s, t, &t->pieces[k], s->setup->options.model_path, {0}, source_region(s)};
            /* images are in the order in which pieces first have rows of them */
            if (t->form == ZINF_FORM_PLAIN || t->pieces[k].image_at != next)
                continue;
            p.as = zinf_piece_quantized(t, &t->pieces[k]);
            next += p.as.bytes;
            code = make_image(&p, gather, file);
            if (code)
                break;
            if (s->norms)
                code = transfer_note_image(s, unit, t->pieces[k].name);
            if (code)
                break;
            *sum = XXH3_64bits_withSeed(p.r.image, p.as.bytes, *sum);
            code = source_write_unit(s, unit, t->pieces[k].image_at, p.r.image, p.as.bytes);
        }
    return code;
}
