/*
 * kernels_quantized: quantised weights against bitsandbytes' own, as
 * tests/fixtures/make_quantized.py got them on a CPU: images byte for byte, numbers bit for bit, on
 * every instruction set; rows in runs; matrices quantised in parts; what does not fit is refused.
 * Matrices in FP8 likewise against transformers (make_fp8.py).
 */
#include "formats/formats.h"
#include "kernels_testing.h"

static const enum zinf_form forms[] = {ZINF_FORM_NF4, ZINF_FORM_NF4_DOUBLE, ZINF_FORM_INT8};
static const char *const prefixes[] = {"nf4", "double", "int8"};
static const char *const names[] = {"golden", "even", "wide", "short", "odd", "zero", "many"};
enum { FORMS = 3, NAMES = sizeof names / sizeof *names };

static struct zinf_tensors *file, *fp8_file;

static const struct zinf_tensor_info *find(const char *form, const char *name, const char *part)
{
    char key[128];
    snprintf(key, sizeof key, "%s%s%s%s", form, *form ? "." : "", name, part);
    return zinf_tensors_find(file, key);
}

static void *read_all(const struct zinf_tensor_info *info)
{
    void *data = malloc(info->bytes + 8);
    CHECKF(!zinf_tensors_read(file, info, 0, info->n_elems, data), "%s", zinf_error());
    return data;
}

/* A matrix of the file, quantised `rows` rows at a time. */
static char *quantize(enum zinf_form form, const char *name, uint64_t rows,
                      struct zinf_quantized *p)
{
    const struct zinf_tensor_info *info = find("", name, "");
    float *values = read_all(info);
    *p = zinf_quantized_of(form, info->shape[0], info->shape[1]);
    char *image = malloc(p->bytes);
    float *scales = malloc(p->n_blocks * sizeof *scales);
    memset(image, 0xa5, p->bytes);
    for (uint64_t first = 0; first < p->n_elems; first += rows * p->cols) {
        uint64_t left = p->n_elems - first, n = left < rows * p->cols ? left : rows * p->cols;
        zinf_quantize(p, values + first, first, n, image, scales);
    }
    zinf_quantize_finish(p, image, scales);
    free(values);
    free(scales);
    return image;
}

/* ---- bytes ---- */

static void check_part(const char *form, const char *name, const char *part, const char *image,
                       uint64_t at)
{
    const struct zinf_tensor_info *info = find(form, name, part);
    CHECKF(info != NULL, "%s.%s%s is missing", form, name, part);
    if (!info)
        return;
    char *want = read_all(info);
    uint64_t off = 0;
    while (off < info->bytes && want[off] == image[at + off])
        off++;
    CHECKF(off == info->bytes, "%s.%s%s differs at byte %llu of %llu", form, name, part,
           (unsigned long long)off, (unsigned long long)info->bytes);
    free(want);
}

static void check_offset(const char *name, const char *image)
{
    const struct zinf_tensor_info *info =
        find("double", name, ".weight.quant_state.bitsandbytes__nf4");
    char *state = read_all(info);
    state[info->bytes] = 0;
    const char *offset = strstr(state, "nested_offset");
    float want = strtof(offset + strlen("nested_offset\": "), NULL), is;
    memcpy(&is, image + ZINF_QUANT_OFFSET_AT, sizeof is);
    CHECKF(is == want, "%s: mean %.9g, not %.9g", name, (double)is, (double)want);
    free(state);
}

static void test_images_are_those_of_bitsandbytes(void)
{
    for (int f = 0; f < FORMS; f++)
        for (int i = 0; i < NAMES; i++) {
            struct zinf_quantized p;
            if (!find(prefixes[f], names[i], ".weight"))
                continue;
            char *image = quantize(forms[f], names[i], UINT32_MAX, &p);
            check_part(prefixes[f], names[i], ".weight", image, ZINF_QUANT_CODES_AT);
            if (forms[f] == ZINF_FORM_INT8) {
                check_part(prefixes[f], names[i], ".SCB", image, p.scales_at);
            } else {
                check_part(prefixes[f], names[i], ".weight.absmax", image, p.scales_at);
                check_part(prefixes[f], names[i], ".weight.quant_map", image, 0);
            }
            if (forms[f] == ZINF_FORM_NF4_DOUBLE) {
                check_part(prefixes[f], names[i], ".weight.nested_absmax", image, p.nested_at);
                check_part(prefixes[f], names[i], ".weight.nested_quant_map", image,
                           ZINF_QUANT_NESTED_MAP_AT);
                check_offset(names[i], image);
            }
            free(image);
        }
}

static void test_parts_make_the_whole(void)
{
    for (int f = 0; f < FORMS; f++) {
        struct zinf_quantized p;
        char *whole = quantize(forms[f], "many", UINT32_MAX, &p),
             *parts = quantize(forms[f], "many", 64, &p);
        CHECK(!memcmp(whole, parts, p.bytes));
        free(whole);
        free(parts);
    }
}

/* 4.13 bits a weight, tables and all. */
static void test_sizes(void)
{
    struct zinf_quantized p = zinf_quantized_of(ZINF_FORM_NF4_DOUBLE, 4096, 4096);
    CHECK(p.n_blocks == 262144 && p.n_nested == 1024 && p.bytes % 4096 == 0);
    CHECK(8.0 * (double)p.bytes / (double)p.n_elems < 4.13);
    CHECK(zinf_quantized_of(ZINF_FORM_NF4, 4096, 4096).bytes == 2048 + 8388608 + 1048576 + 2048);
    CHECK(zinf_quantized_of(ZINF_FORM_INT8, 3, 5).bytes == 4096);
    p = zinf_quantized_of(ZINF_FORM_MXFP4, 5760, 2880);
    CHECK(p.n_blocks == 5760 * 90 && 8.0 * (double)p.bytes / (double)p.n_elems < 4.26);
}

/* ---- numbers ---- */

static void check_values(struct fixture *f, int form, const char *name)
{
    static const char *const parts[] = {".values", ".values16"};
    for (int i = 0; i < 2; i++) {
        const struct zinf_tensor_info *info = find(prefixes[form], name, parts[i]);
        struct zinf_quantized p;
        if (!info)
            continue;
        char *image = quantize(forms[form], name, UINT32_MAX, &p);
        struct tensor got = tensor_new(i ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32, p.n_elems);
        struct tensor want = {got.dtype, got.n, read_all(info)};
        struct zinf_dequantize args = {.quantized = p,
                                       .image = image,
                                       .rows = (int64_t)p.rows,
                                       .count = 1,
                                       .dtype = got.dtype,
                                       .w = got.data};
        CHECKF(!f->ops->dequantize(f->q, &args), "%s", zinf_error());
        size_t k = 0;
        while (k < got.n && get(&got, k) == get(&want, k))
            k++;
        size_t at = k < got.n ? k : 0; /* what the sentence names is looked up in any case */
        CHECKF(k == got.n, "%s: %s.%s%s: element %zu is %.9g, not %.9g", f->name, prefixes[form],
               name, parts[i], at, get(&got, at), get(&want, at));
        tensor_free(&got);
        tensor_free(&want);
        free(image);
    }
}

static void all_values(struct fixture *f)
{
    for (int form = 0; form < FORMS; form++)
        for (int i = 0; i < NAMES; i++)
            check_values(f, form, names[i]);
}

static void test_values_are_those_of_bitsandbytes(void)
{
    for_each_device(all_values);
}

/* Runs of rows in another order, as of fused layers that a file has by head. */
static void runs(struct fixture *f)
{
    for (int form = 0; form < FORMS; form++)
        for (int d = 0; d < 3; d++) {
            struct zinf_quantized p;
            char *image = quantize(forms[form], "odd", UINT32_MAX, &p);
            struct tensor whole = tensor_new(all_dtypes[d], p.n_elems);
            struct tensor turned = tensor_new(all_dtypes[d], p.n_elems);
            size_t row = p.cols * zinf_dtype_bytes(all_dtypes[d]);
            struct zinf_dequantize args = {
                .quantized = p, .image = image, .rows = 3, .count = 1, .dtype = all_dtypes[d]};
            args.w = whole.data;
            CHECK(!f->ops->dequantize(f->q, &args));
            args = (struct zinf_dequantize){.quantized = p,
                                            .image = image,
                                            .from_first = 0,
                                            .from_stride = 2,
                                            .to_first = 1,
                                            .to_stride = 1,
                                            .rows = 1,
                                            .count = 2,
                                            .dtype = all_dtypes[d],
                                            .w = turned.data};
            CHECK(!f->ops->dequantize(f->q, &args));
            CHECK(!memcmp((char *)turned.data + row, whole.data, row));
            CHECK(!memcmp((char *)turned.data + 2 * row, (char *)whole.data + 2 * row, row));
            for (size_t k = 0; k < p.cols; k++)
                CHECK(get(&turned, k) == 0);
            tensor_free(&whole);
            tensor_free(&turned);
            free(image);
        }
}

static void test_rows_in_runs(void)
{
    for_each_device(runs);
}

/* Every code with the smallest scale, some between, and the largest: as PyTorch's ldexp has them;
 * and the bytes come back. */
static void exponents(struct fixture *f)
{
    static const float map[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    static const uint8_t scales[] = {0, 1, 100, 127, 130, 252};
    enum { ROWS = sizeof scales, COLS = ZINF_QUANT_MX_BLOCK };
    struct zinf_quantized p = zinf_quantized_of(ZINF_FORM_MXFP4, ROWS, COLS);
    char *image = malloc(p.bytes);
    uint8_t codes[ROWS * COLS / 2], codes_back[sizeof codes], scales_back[ROWS];
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)(i * 37 + i / 16);
    zinf_quantize_take(&p, codes, scales, image);
    struct tensor w = tensor_new(ZINF_DTYPE_F32, p.n_elems);
    struct zinf_dequantize args = {.quantized = p,
                                   .image = image,
                                   .rows = ROWS,
                                   .count = 1,
                                   .dtype = ZINF_DTYPE_F32,
                                   .w = w.data};
    CHECK(!f->ops->dequantize(f->q, &args));
    for (size_t i = 0; i < p.n_elems; i++) {
        unsigned code = codes[i / 2] >> i % 2 * 4 & 15;
        float want = ldexpf(code & 8 ? -map[code & 7] : map[code & 7], scales[i / COLS] - 127);
        CHECKF((float)get(&w, i) == want, "element %zu is %g, not %g", i, get(&w, i), (double)want);
    }
    zinf_quantize_give(&p, image, codes_back, scales_back);
    CHECK(!memcmp(codes, codes_back, sizeof codes) && !memcmp(scales, scales_back, sizeof scales));
    tensor_free(&w);
    free(image);
}

static void test_scales_that_are_exponents(void)
{
    for_each_device(exponents);
}

/* A part of a matrix in FP8, as transformers has it. */
static void *part_of(const char *name, const char *part, const struct zinf_tensor_info **info)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", name, part);
    *info = zinf_tensors_find(fp8_file, key);
    void *data = malloc((*info)->bytes);
    CHECKF(!zinf_tensors_read(fp8_file, *info, 0, (*info)->n_elems, data), "%s", zinf_error());
    return data;
}

/* Bit for bit, rows in runs of some; and the bytes come back. */
static void check_fp8(struct fixture *f, const char *name)
{
    const struct zinf_tensor_info *info[3];
    void *codes = part_of(name, "weight", &info[0]);
    void *scales = part_of(name, "weight_scale_inv", &info[1]);
    char *want = part_of(name, "values", &info[2]);
    struct zinf_quantized p =
        zinf_quantized_of(ZINF_FORM_FP8, info[0]->shape[0], info[0]->shape[1]);
    struct tensor w = tensor_new(ZINF_DTYPE_F32, p.n_elems);
    char *image = malloc(p.bytes), *back = malloc(p.bytes);
    CHECK(p.code_bytes == info[0]->bytes && p.n_blocks == info[1]->n_elems);
    zinf_quantize_take(&p, codes, scales, image);
    zinf_quantize_give(&p, image, back, back + p.code_bytes);
    CHECK(!memcmp(back, codes, info[0]->bytes));
    CHECK(!memcmp(back + p.code_bytes, scales, info[1]->bytes));
    struct zinf_dequantize args = {
        .quantized = p, .image = image, .count = 1, .dtype = ZINF_DTYPE_F32, .w = w.data};
    for (int64_t rows = (int64_t)p.rows, at = 0; at < rows; at += args.rows) {
        args.rows = rows - at < 5 ? rows - at : 5;
        args.from_first = args.to_first = at;
        CHECKF(!f->ops->dequantize(f->q, &args), "%s", zinf_error());
    }
    for (uint64_t i = 0; i < p.n_elems; i++)
        if (memcmp((float *)w.data + i, want + i * sizeof(float), sizeof(float))) {
            CHECKF(false, "%s: element %llu of %s is %.9g", f->name, (unsigned long long)i, name,
                   get(&w, i));
            break;
        }
    tensor_free(&w);
    free(image);
    free(back);
    free(codes);
    free(scales);
    free(want);
}

/* Every code; blocks that the matrix cuts. */
static void all_fp8(struct fixture *f)
{
    check_fp8(f, "every");
    check_fp8(f, "wide");
    check_fp8(f, "odd");
}

static void test_floats_of_8_bits(void)
{
    for_each_device(all_fp8);
}

static void test_refusals(void)
{
    struct fixture f;
    struct zinf_quantized p = zinf_quantized_of(ZINF_FORM_NF4, 4, 64);
    struct zinf_dequantize args = {.quantized = p, .rows = 3, .count = 2, .from_stride = 2};
    fixture_open(&f, ZINF_ISA_SCALAR, 1);
    CHECK(f.ops->dequantize(f.q, &args) == -EINVAL && strstr(zinf_error(), "dequantize"));
    args = (struct zinf_dequantize){.rows = 1, .count = 1, .quantized = {.rows = 1, .cols = 1}};
    CHECK(f.ops->dequantize(f.q, &args) == -EINVAL && strstr(zinf_error(), "no quantised form"));
    args.quantized = zinf_quantized_of(ZINF_FORM_MXFP4, 2, 48); /* a block would go over two rows */
    CHECK(f.ops->dequantize(f.q, &args) == -EINVAL && strstr(zinf_error(), "48 numbers of MXFP4"));
    fixture_close(&f);
}

int main(void)
{
    char path[600];
    snprintf(path, sizeof path, "%s/tests/fixtures/quantized/matrices.safetensors",
             getenv("SRCDIR"));
    int code = zinf_tensors_open(&file, path);
    snprintf(path, sizeof path, "%s/tests/fixtures/fp8/matrices.safetensors", getenv("SRCDIR"));
    if (code || zinf_tensors_open(&fp8_file, path)) {
        printf("Bail out! %s\n", zinf_error());
        return 1;
    }
    TAP_RUN(test_images_are_those_of_bitsandbytes);
    TAP_RUN(test_parts_make_the_whole);
    TAP_RUN(test_sizes);
    TAP_RUN(test_values_are_those_of_bitsandbytes);
    TAP_RUN(test_rows_in_runs);
    TAP_RUN(test_scales_that_are_exponents);
    TAP_RUN(test_floats_of_8_bits);
    TAP_RUN(test_refusals);
    zinf_tensors_close(file);
    zinf_tensors_close(fp8_file);
    return tap_done();
}
