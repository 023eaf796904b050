/*
 * formats: blocks against those of the gguf package, and whole files as llama.cpp's own reader
 * looks at them: header, keys, places of tensors.
 */
#include "formats_support.h"

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
    TAP_RUN(test_file);
    TAP_RUN(test_unfinished);
    return end_formats();
}
