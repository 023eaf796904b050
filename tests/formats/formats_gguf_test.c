/*
 * formats: blocks against those of the gguf package, both ways; whole files as llama.cpp's own
 * reader looks at them: header, keys, places of tensors; reading them, and damaged ones.
 */
#include "formats_support.h"

#include "base/random.h"
#include "formats/gguf.h"

#include <math.h>

static const char *gguf_fixture(const char *name)
{
    static char path[4400];
    const char *source = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/tests/fixtures/gguf/%s", source ? source : ".", name);
    return path;
}

static void test_blocks(void)
{
    static const struct {
        const char *name;
        enum zinf_gguf_form form;
    } forms[] = {{"F16", ZINF_GGUF_F16},
                 {"BF16", ZINF_GGUF_BF16},
                 {"Q8_0", ZINF_GGUF_Q8_0},
                 {"Q4_0", ZINF_GGUF_Q4_0}};
    struct zinf_tensors *file = NULL;
    float values[768];
    uint8_t wanted[768 * 4], got[768 * 4];
    CHECKF(!zinf_tensors_open(&file, gguf_fixture("blocks.safetensors")), "%s", zinf_error());
    if (!file)
        return;
    CHECK(!zinf_tensors_read_f32(file, zinf_tensors_find(file, "values"), 0, 768, values));
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct zinf_tensor_info *info = zinf_tensors_find(file, forms[i].name);
        CHECK(info && info->bytes == zinf_gguf_bytes(forms[i].form, 768));
        CHECK(!zinf_tensors_read(file, info, 0, info->n_elems, wanted));
        zinf_gguf_pack(forms[i].form, values, 768, got);
        CHECKF(!memcmp(got, wanted, info->bytes), "%s", forms[i].name);
    }
    zinf_tensors_close(file);
}

/* What is stored is what the gguf package makes of it, bit for bit. */
static void test_unpacking(void)
{
    static const struct {
        const char *stored, *values;
        enum zinf_gguf_form form;
    } forms[] = {{"stored Q8_0", "values Q8_0", ZINF_GGUF_Q8_0},
                 {"stored Q4_0", "values Q4_0", ZINF_GGUF_Q4_0},
                 {"stored Q4_K", "values Q4_K", ZINF_GGUF_Q4_K},
                 {"stored Q6_K", "values Q6_K", ZINF_GGUF_Q6_K}};
    static float wanted[24 * 256], got[24 * 256];
    static uint8_t stored[24 * 256];
    struct zinf_tensors *file = NULL;
    CHECKF(!zinf_tensors_open(&file, gguf_fixture("blocks.safetensors")), "%s", zinf_error());
    for (size_t i = 0; file && i < sizeof forms / sizeof *forms; i++) {
        const struct zinf_tensor_info *from = zinf_tensors_find(file, forms[i].stored);
        const struct zinf_tensor_info *to = zinf_tensors_find(file, forms[i].values);
        CHECK(from && to && zinf_gguf_bytes(forms[i].form, to->n_elems) == from->n_elems);
        CHECK(!zinf_tensors_read(file, from, 0, from->n_elems, stored));
        CHECK(!zinf_tensors_read_f32(file, to, 0, to->n_elems, wanted));
        zinf_gguf_unpack(forms[i].form, stored, to->n_elems, got);
        CHECKF(!memcmp(got, wanted, to->n_elems * sizeof *got), "%s", forms[i].stored);
    }
    zinf_tensors_close(file);
}

/* Numbers as weights are: what is unpacked errs by little. And those that are zero, tiny, huge or
 * all equal come back without an infinity. */
static void test_packing_wide(void)
{
    static const struct {
        enum zinf_gguf_form form;
        double most; /* relative */
    } forms[] = {{ZINF_GGUF_Q4_K, 0.075}, {ZINF_GGUF_Q6_K, 0.02}};
    static float values[64 * 256], got[64 * 256];
    static uint8_t stored[64 * 256];
    zinf_normal_fill(values, 0, 64 * 256, 5, 0, 0, 1);
    for (size_t f = 0; f < 2; f++) {
        double error = 0, norm = 0;
        zinf_gguf_pack(forms[f].form, values, 64 * 256, stored);
        zinf_gguf_unpack(forms[f].form, stored, 64 * 256, got);
        for (int i = 0; i < 64 * 256; i++) {
            double off = (double)got[i] - (double)values[i];
            error += off * off;
            norm += (double)values[i] * (double)values[i];
        }
        CHECKF(error < forms[f].most * forms[f].most * norm, "%g", sqrt(error / norm));
        for (int kind = 0; kind < 5; kind++) {
            static const float of[] = {0, 1e-38f, 3e4f, -0.5f, 2};
            float block[256], out[256];
            for (int i = 0; i < 256; i++)
                block[i] = of[kind] * (kind == 2 && i % 3 ? -1 : 1);
            zinf_gguf_pack(forms[f].form, block, 256, stored);
            zinf_gguf_unpack(forms[f].form, stored, 256, out);
            for (int i = 0; i < 256; i++)
                CHECKF(fabsf(out[i] - block[i]) <= 0.04f * fabsf(block[i]) + 1e-6f, "%d: %g", kind,
                       (double)out[i]);
        }
    }
}

static uint64_t number_at(const uint8_t *data, size_t bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | data[bytes];
    return value;
}

/* Two tensors, the first of which ends off the alignment. */
static void test_file(void)
{
    static const float values[64] = {1, 2, 3};
    const uint64_t three = 3, shape[] = {2, 32};
    struct zinf_gguf_writer *w = NULL;
    char *data = NULL;
    size_t bytes = 0;
    CHECK(!zinf_gguf_writer_create(&w, in_scratch("a.gguf")));
    zinf_gguf_text(w, "general.architecture", "llama");
    zinf_gguf_u32(w, "n", 7);
    CHECK(!zinf_gguf_declare(w, "first", ZINF_GGUF_F32, 1, &three));
    CHECK(!zinf_gguf_declare(w, "second", ZINF_GGUF_Q8_0, 2, shape));
    CHECK(zinf_gguf_declare(w, "third", ZINF_GGUF_Q8_0, 1, &three) == -EINVAL);
    CHECKF(!zinf_gguf_begin(w), "%s", zinf_error());
    CHECK(!zinf_gguf_append(w, values, 3));
    CHECK(zinf_gguf_append(w, values, 31) == -EINVAL);
    CHECK(!zinf_gguf_append(w, values, 32));
    CHECK(zinf_gguf_finish(w) == -EINVAL); /* half of it is missing */
    CHECK(!zinf_gguf_append(w, values, 32));
    CHECK(zinf_gguf_append(w, values, 32) == -EINVAL);
    CHECKF(!zinf_gguf_finish(w), "%s", zinf_error());
    zinf_gguf_writer_destroy(w);
    CHECK(!zinf_file_read(in_scratch("a.gguf"), 1 << 20, &data, &bytes));
    const uint8_t *at = (const uint8_t *)data;
    CHECK(bytes % 32 == 0 && !memcmp(at, "GGUF", 4) && number_at(at + 4, 4) == 3);
    CHECK(number_at(at + 8, 8) == 2 && number_at(at + 16, 8) == 2);
    CHECK(number_at(at + 24, 8) == 20 && !memcmp(at + 32, "general.architecture", 20));
    /* The data are 32 bytes of the first tensor and two blocks of the second, aligned. */
    const uint8_t *second = at + bytes - 96;
    CHECK(number_at(second - 32, 4) == 0x3f800000 && number_at(second, 2) == 0x260c);
    CHECK(second[2] == 42 && second[3] == 85 && second[4] == 127);
    free(data);
}

/* A file of a matrix of 4 rows of 64 and a vector of 4: values i, and i / 2. */
static void write_numbers(const char *path)
{
    const uint64_t matrix[] = {4, 64}, vector = 4;
    struct zinf_gguf_writer *w = NULL;
    char *texts[] = {"a", "bc"};
    float values[256], halves[4] = {0, 0.5f, 1, 1.5f};
    for (int i = 0; i < 256; i++)
        values[i] = (float)i;
    CHECK(!zinf_gguf_writer_create(&w, path));
    zinf_gguf_text(w, "general.architecture", "llama");
    zinf_gguf_f32(w, "number", 0.25);
    zinf_gguf_texts(w, "texts", texts, 2);
    CHECK(!zinf_gguf_declare(w, "matrix", ZINF_GGUF_F16, 2, matrix));
    CHECK(!zinf_gguf_declare(w, "vector", ZINF_GGUF_F32, 1, &vector));
    CHECK(!zinf_gguf_begin(w) && !zinf_gguf_append(w, values, 256));
    CHECK(!zinf_gguf_append(w, halves, 4) && !zinf_gguf_finish(w));
    zinf_gguf_writer_destroy(w);
}

static void test_reading(void)
{
    struct zinf_tensors *file = NULL;
    cJSON *keys = NULL;
    float got[256];
    write_numbers(in_scratch("c.gguf"));
    CHECKF(!zinf_gguf_read_keys(&keys, in_scratch("c.gguf")), "%s", zinf_error());
    const cJSON *number = cJSON_GetObjectItem(keys, "number");
    const cJSON *texts = cJSON_GetObjectItem(keys, "texts");
    CHECK(cJSON_IsNumber(number) && number->valuedouble == 0.25);
    CHECK(cJSON_GetArraySize(texts) == 2 &&
          !strcmp(cJSON_GetArrayItem(texts, 1)->valuestring, "bc"));
    cJSON_Delete(keys);
    CHECKF(!zinf_tensors_open(&file, in_scratch("c.gguf")), "%s", zinf_error());
    CHECK(file && !strcmp(zinf_tensors_file_kind(file), "GGUF") && zinf_tensors_count(file) == 2);
    const struct zinf_tensor_info *info = file ? zinf_tensors_find(file, "matrix") : NULL;
    CHECK(info && info->rank == 2 && info->shape[0] == 4 && info->shape[1] == 64);
    CHECK(info && !zinf_tensors_read_f32(file, info, 65, 3, got) && got[0] == 65 && got[2] == 67);
    CHECK(info && zinf_tensors_read_f32(file, info, 255, 2, got) == -EINVAL);
    zinf_tensors_close(file);
}

static void write_index(const char *entries)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "{\"file\": \"%s\", \"weight_map\": {%s}}",
                     in_scratch("c.gguf"), entries);
    CHECK(!zinf_make_dirs(in_scratch("indexed")));
    CHECK(!zinf_file_write_atomic(in_scratch("indexed/model.gguf.index.json"), text, (size_t)n));
}

/* Each way in which a tensor may lie in the file, from every first element. */
static void test_orders(void)
{
    static const struct {
        const char *entry;
        uint64_t rows, columns;
    } orders[] = {
        {"\"x\": {\"tensor\": \"matrix\", \"add\": 1}", 4, 64},
        {"\"x\": {\"tensor\": \"matrix\", \"order\": \"pairs\", \"head_rows\": 4}", 4, 64},
        {"\"x\": {\"tensor\": \"matrix\", \"order\": \"turned\"}", 64, 4}};
    static const int paired[] = {0, 2, 1, 3};
    write_numbers(in_scratch("c.gguf"));
    for (int o = 0; o < 3; o++) {
        struct zinf_tensors *file = NULL;
        float got[256], wanted[256];
        write_index(orders[o].entry);
        CHECKF(!zinf_tensors_open(&file, in_scratch("indexed")), "%s", zinf_error());
        const struct zinf_tensor_info *info = file ? zinf_tensors_find(file, "x") : NULL;
        CHECK(info && info->shape[0] == orders[o].rows && info->shape[1] == orders[o].columns);
        for (int i = 0; i < 256; i++)
            wanted[i] = (float)(o == 0   ? i + 1
                                : o == 1 ? paired[i / 64] * 64 + i % 64
                                         : i % 4 * 64 + i / 4);
        for (uint64_t first = 0; info && first < 256; first += 13) {
            CHECK(!zinf_tensors_read_f32(file, info, first, 256 - first, got));
            CHECKF(!memcmp(got, wanted + first, (256 - first) * sizeof *got), "order %d", o);
            CHECK(!zinf_tensors_read_f32(file, info, first, 1, got) && got[0] == wanted[first]);
        }
        zinf_tensors_close(file);
    }
}

static void test_bad_indices(void)
{
    static const char *const bad[] = {
        "\"x\": {\"tensor\": \"none\"}",
        "\"x\": 3",
        "\"x\": {\"tensor\": \"matrix\"}, \"y\": {\"tensor\": \"matrix\"}",
        "\"x\": {\"tensor\": \"vector\", \"order\": \"turned\"}",
        "\"x\": {\"tensor\": \"matrix\", \"order\": \"pairs\"}",
        "\"x\": {\"tensor\": \"matrix\", \"order\": \"pairs\", \"head_rows\": 3}",
        "\"x\": {\"tensor\": \"matrix\", \"order\": \"upwards\"}"};
    write_numbers(in_scratch("c.gguf"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct zinf_tensors *file = NULL;
        write_index(bad[i]);
        CHECKF(zinf_tensors_open(&file, in_scratch("indexed")) == -EINVAL, "%s", bad[i]);
        CHECK(strstr(zinf_error(), "does not fit its GGUF file"));
    }
}

/* Each byte of the header damaged in three ways, and each length cut off: refused or read, and
 * what is read lies inside. */
static void test_damage(void)
{
    static const uint8_t flips[] = {0xff, 0x80, 0x01};
    char *data = NULL;
    size_t bytes = 0, n_refused = 0;
    float got[256];
    write_numbers(in_scratch("c.gguf"));
    CHECK(!zinf_file_read(in_scratch("c.gguf"), 1 << 20, &data, &bytes));
    for (size_t i = 0; data && i < 320 * 4; i++) {
        struct zinf_tensors *file = NULL;
        size_t at = i / 4, n = i % 4 == 3 ? at : bytes;
        char kept = data[at];
        data[at] = (char)(data[at] ^ (i % 4 == 3 ? 0 : flips[i % 4]));
        CHECK(!zinf_file_write_atomic(in_scratch("d.gguf"), data, n));
        data[at] = kept;
        if (zinf_tensors_open(&file, in_scratch("d.gguf"))) {
            n_refused++;
            continue;
        }
        for (uint64_t t = 0; t < zinf_tensors_count(file); t++) {
            const struct zinf_tensor_info *info = zinf_tensors_at(file, t);
            if (info->n_elems <= 256)
                CHECK(!zinf_tensors_read_f32(file, info, 0, info->n_elems, got));
        }
        zinf_tensors_close(file);
    }
    CHECKF(n_refused > 400, "%zu", n_refused);
    free(data);
}

/* What is not finished leaves nothing. */
static void test_unfinished(void)
{
    const uint64_t three = 3;
    struct zinf_gguf_writer *w = NULL;
    CHECK(!zinf_gguf_writer_create(&w, in_scratch("b.gguf")));
    CHECK(!zinf_gguf_declare(w, "first", ZINF_GGUF_F32, 1, &three));
    CHECK(!zinf_gguf_begin(w));
    zinf_gguf_writer_destroy(w);
    CHECK(!exists(in_scratch("b.gguf")));
}

int main(void)
{
    begin_formats();
    TAP_RUN(test_blocks);
    TAP_RUN(test_unpacking);
    TAP_RUN(test_packing_wide);
    TAP_RUN(test_file);
    TAP_RUN(test_reading);
    TAP_RUN(test_orders);
    TAP_RUN(test_bad_indices);
    TAP_RUN(test_damage);
    TAP_RUN(test_unfinished);
    return end_formats();
}
