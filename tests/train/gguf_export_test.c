/*
 * Model folders as files of llama.cpp's: names, types, shapes and bytes of all tensors are those
 * that its own converter wrote of the same folders (make_gguf.py), and what cannot be written is
 * refused by name.
 */
#include "formats_support.h"

#include "train/checkpoints.h"

#include <zlib.h>

static const char *model_fixture(const char *name)
{
    static char path[4400];
    const char *source = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/tests/fixtures/%s", source ? source : ".", name);
    return path;
}

/* ---- a file, looked through ---- */

struct cursor {
    const uint8_t *at;
};

static uint64_t take(struct cursor *c, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | c->at[i];
    c->at += bytes;
    return value;
}

static void skip_value(struct cursor *c, uint64_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t n = 1, of = type;
    if (type == 9) {
        of = take(c, 4);
        n = take(c, 8);
    }
    for (uint64_t i = 0; i < n; i++)
        if (of == 8)
            c->at += take(c, 8);
        else
            c->at += bytes[of];
}

struct tensor {
    char line[200]; /* as in sums.txt, without the sum */
    uint64_t offset, bytes;
};

static void read_tensor(struct cursor *c, struct tensor *out, const char *form)
{
    char shape[64] = "";
    uint64_t n = 1, name_bytes = take(c, 8);
    const char *name = (const char *)c->at;
    c->at += name_bytes;
    uint64_t rank = take(c, 4);
    for (uint64_t i = 0; i < rank; i++) {
        uint64_t size = take(c, 8);
        size_t at = strlen(shape);
        snprintf(shape + at, sizeof shape - at, "%s%llu", i ? "x" : "", (unsigned long long)size);
        n *= size;
    }
    enum zinf_gguf_form stored = (enum zinf_gguf_form)take(c, 4);
    out->offset = take(c, 8);
    out->bytes = zinf_gguf_bytes(stored, n);
    snprintf(out->line, sizeof out->line, "%s %.*s %d %s", form, (int)name_bytes, name, (int)stored,
             shape);
}

/* Every line of sums.txt is found, and nothing else. */
static void compare_file(const char *path, const char *form, const char *sums)
{
    char *data = NULL, line[256];
    size_t bytes = 0;
    uint64_t n_found = 0;
    CHECK(!zinf_file_read(path, 1 << 24, &data, &bytes));
    if (!data)
        return;
    struct cursor c = {(const uint8_t *)data + 8};
    uint64_t n = take(&c, 8), n_keys = take(&c, 8);
    struct tensor *all = calloc(n + 1, sizeof *all);
    for (uint64_t i = 0; i < n_keys; i++) {
        c.at += take(&c, 8);
        skip_value(&c, take(&c, 4));
    }
    for (uint64_t i = 0; i < n; i++)
        read_tensor(&c, &all[i], form);
    const uint8_t *begin =
        (const uint8_t *)data + zinf_align_up((uint64_t)(c.at - (uint8_t *)data), 32);
    FILE *file = fopen(sums, "r");
    CHECK(file && all);
    for (uint64_t i = 0; i < n; i++) {
        size_t at = strlen(all[i].line);
        snprintf(all[i].line + at, sizeof all[i].line - at, " %08lx",
                 crc32(0, begin + all[i].offset, (unsigned)all[i].bytes));
    }
    while (file && fgets(line, sizeof line, file)) {
        bool found = strncmp(line, form, strlen(form)) || line[strlen(form)] != ' ';
        line[strcspn(line, "\n")] = 0;
        n_found += !found;
        for (uint64_t i = 0; !found && i < n; i++)
            found = !strcmp(line, all[i].line);
        CHECKF(found, "%s", line);
    }
    CHECK(n_found == n);
    if (file)
        fclose(file);
    free(all);
    free(data);
}

/* ---- the cases ---- */

static void export_model(const char *name)
{
    static const char *const forms[] = {"f16", "q8_0"};
    char folder[4600], sums[4700];
    snprintf(folder, sizeof folder, "%s/%s", model_fixture("gguf"), name);
    snprintf(sums, sizeof sums, "%s/sums.txt", folder);
    for (size_t i = 0; i < 2; i++) {
        char output[5000];
        snprintf(output, sizeof output, "%s-%.8s.gguf", in_scratch(name), forms[i]);
        struct zinf_gguf_options options = {.checkpoint = folder, .output = output};
        CHECK(!zinf_gguf_form_parse(forms[i], &options.form));
        CHECKF(!zinf_gguf_export(&options), "%s", zinf_error());
        compare_file(output, forms[i], sums);
        CHECK(zinf_gguf_export(&options) == -EEXIST);
    }
}

static void test_llama(void)
{
    export_model("llama");
}

static void test_gemma2(void)
{
    export_model("gemma2");
}

static void test_gpt2(void)
{
    export_model("gpt2");
}

static void refuse(const char *folder, int code, const char *says)
{
    const struct zinf_gguf_options options = {model_fixture(folder), in_scratch("none.gguf"),
                                              ZINF_GGUF_F16};
    int got = zinf_gguf_export(&options);
    CHECKF(got == code, "%d: %s", got, zinf_error());
    CHECKF(strstr(zinf_error(), says), "%s", zinf_error());
    CHECK(!exists(in_scratch("none.gguf")));
}

static void test_refused(void)
{
    enum zinf_gguf_form form;
    refuse("bart_a", -ENOTSUP, "convert_hf_to_gguf.py");
    refuse("llama_a", -ENOTSUP, "no tokenizer that llama.cpp knows");
    refuse("llama_d", -ENOTSUP, "frequencies of type dynamic");
    refuse("none", -ENOENT, "none");
    CHECK(zinf_gguf_form_parse("q3_k", &form) == -EINVAL);
}

int main(void)
{
    begin_formats();
    TAP_RUN(test_llama);
    TAP_RUN(test_gemma2);
    TAP_RUN(test_gpt2);
    TAP_RUN(test_refused);
    return end_formats();
}
