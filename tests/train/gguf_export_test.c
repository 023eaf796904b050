/*
 * Model folders as files of llama.cpp's: names, types, shapes and bytes of all tensors are those
 * that its own converter wrote of the same folders (make_gguf.py), and what cannot be written is
 * refused by name. Adapters become files which llama.cpp's formula adds to that of the base.
 */
#include "formats_support.h"

#include "formats/gguf.h"
#include "train/checkpoints.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
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

/* ---- adapters ---- */

/* Of modules with heads whose rows change places, and of one without; one has an alpha of its own.
 */
static const struct adapted {
    const char *module;
    uint64_t in, out;
} adapted[] = {
    {"self_attn.q_proj", 32, 32},
    {"self_attn.k_proj", 32, 16},
    {"mlp.down_proj", 32, 32},
};
enum { ADAPTED = 3, RANK = 2 };

static void append_numbers(struct zinf_tensors_writer *to, uint64_t n, uint64_t seed)
{
    float numbers[64 * RANK];
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = (float)((i * 37 + seed * 11) % 64) / 64 - 0.4f;
    CHECK(!zinf_tensors_writer_append(to, numbers, n * sizeof *numbers));
}

/* A folder as PEFT writes it. */
static void write_adapter(const char *folder)
{
    static const char config[] =
        "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": "
        "[\"q_proj\", \"k_proj\", \"down_proj\"], \"alpha_pattern\": {\"down_proj\": 7}}";
    char name[256], path[4700];
    struct zinf_tensors_writer *to = NULL;
    const struct zinf_tensors_writer_options options = {.path = path, .single_file = true};
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    CHECK(!zinf_make_dirs(folder));
    CHECK(!zinf_tensors_writer_create(&to, &options));
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < 2 * ADAPTED; i++) {
            const struct adapted *of = &adapted[i / 2];
            const bool is_b = i % 2;
            const uint64_t shape[] = {is_b ? of->out : RANK, is_b ? RANK : of->in};
            snprintf(name, sizeof name, "base_model.model.model.layers.0.%s.lora_%c.weight",
                     of->module, is_b ? 'B' : 'A');
            if (pass)
                append_numbers(to, shape[0] * shape[1], i);
            else
                CHECK(!zinf_tensors_writer_declare(to, name, ZINF_FILE_F32, 2, shape));
        }
        CHECK(!(pass ? zinf_tensors_writer_finish(to) : zinf_tensors_writer_begin(to)));
    }
    zinf_tensors_writer_destroy(to);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    CHECK(!zinf_file_write_atomic(path, config, strlen(config)));
}

struct opened {
    struct zinf_gguf_file file;
    const char *path;
    int fd;
};

static struct opened open_file(const char *path)
{
    struct opened o = {.path = path, .fd = open(path, O_RDONLY)};
    struct stat info;
    CHECK(o.fd >= 0 && !fstat(o.fd, &info));
    CHECKF(!zinf_gguf_file_init(&o.file, path, o.fd, (uint64_t)info.st_size), "%s", zinf_error());
    return o;
}

static void close_file(struct opened *o)
{
    zinf_gguf_file_fini(&o->file);
    close(o->fd);
}

/* Its numbers, or NULL. */
static float *read_named(const struct opened *o, const char *name, const char *end)
{
    char whole[160];
    snprintf(whole, sizeof whole, "%s%s", name, end);
    for (uint64_t i = 0; i < o->file.n_tensors; i++) {
        const struct zinf_gguf_tensor *t = &o->file.packed[i];
        float *numbers = strcmp(t->name, whole) ? NULL : malloc(t->n_elems * sizeof *numbers);
        if (!numbers)
            continue;
        CHECK(!zinf_gguf_tensor_read(o->fd, o->path, t, 0, t->n_elems, numbers));
        return numbers;
    }
    return NULL;
}

/* The merged tensor is base + alpha / rank * B A, as llama.cpp adds it, of these files alone. */
static bool adds_up(const struct opened files[3], const struct zinf_gguf_tensor *t, double alpha)
{
    float *w = read_named(&files[0], t->name, ""), *sum = read_named(&files[1], t->name, "");
    float *a = read_named(&files[2], t->name, ".lora_a");
    float *b = read_named(&files[2], t->name, ".lora_b");
    const uint64_t columns = t->shape[t->rank - 1];
    double worst = 0;
    CHECK(w && sum && !a == !b);
    for (uint64_t i = 0; w && sum && i < t->n_elems; i++) {
        double wanted = (double)w[i];
        for (uint64_t r = 0; a && b && r < RANK; r++)
            wanted += alpha / RANK * (double)b[i / columns * RANK + r] *
                      (double)a[r * columns + i % columns];
        worst = fmax(worst, fabs(wanted - (double)sum[i]));
    }
    CHECKF(worst < 1e-6, "%s: off by %g", t->name, worst);
    const bool adapts = a && b;
    free(w);
    free(sum);
    free(a);
    free(b);
    return adapts;
}

static void export_as(const char *from, const char *base, const char *to)
{
    const struct zinf_gguf_options options = {
        .checkpoint = from, .output = to, .base = base, .form = ZINF_GGUF_F32};
    CHECKF(!zinf_gguf_export(&options), "%s", zinf_error());
}

static void test_adapter(void)
{
    char base[4600], adapter[4600], merged[4600], path[3][4700];
    const char *const names[] = {"base.gguf", "merged.gguf", "adapter.gguf"};
    uint64_t n_adapted = 0;
    snprintf(base, sizeof base, "%s", model_fixture("gguf/llama"));
    snprintf(adapter, sizeof adapter, "%s", in_scratch("adapter"));
    snprintf(merged, sizeof merged, "%s", in_scratch("merged"));
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s", in_scratch(names[i]));
    write_adapter(adapter);
    const struct zinf_merge_options merge = {
        .adapter = adapter, .base = base, .output = merged, .dtype = ZINF_DTYPE_F32};
    CHECKF(!zinf_adapter_merge(&merge), "%s", zinf_error());
    export_as(base, NULL, path[0]);
    export_as(merged, NULL, path[1]);
    export_as(adapter, base, path[2]);
    struct opened files[3] = {open_file(path[0]), open_file(path[1]), open_file(path[2])};
    const cJSON *alpha = cJSON_GetObjectItemCaseSensitive(files[2].file.keys, "adapter.lora.alpha");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(files[2].file.keys, "general.type");
    CHECK(cJSON_IsNumber(alpha) && alpha->valuedouble == 4);
    CHECK(cJSON_IsString(type) && !strcmp(type->valuestring, "adapter"));
    for (uint64_t i = 0; i < files[0].file.n_tensors; i++)
        n_adapted += adds_up(files, &files[0].file.packed[i], 4);
    CHECK(n_adapted == ADAPTED && files[2].file.n_tensors == 2 * ADAPTED);
    for (int i = 0; i < 3; i++)
        close_file(&files[i]);
}

static void test_adapter_refused(void)
{
    const struct zinf_gguf_options four = {.checkpoint = in_scratch("adapter"),
                                           .base = model_fixture("gguf/llama"),
                                           .output = in_scratch("none.gguf"),
                                           .form = ZINF_GGUF_Q4_0};
    CHECK(zinf_gguf_export(&four) == -EINVAL && strstr(zinf_error(), "too small for 4 bits"));
    struct zinf_gguf_options foreign = four;
    foreign.form = ZINF_GGUF_F16;
    foreign.base = NULL;
    CHECK(zinf_gguf_export(&foreign) == -ENOENT && strstr(zinf_error(), "--model DIR"));
    foreign.base = foreign.checkpoint = model_fixture("gguf/llama");
    CHECK(zinf_gguf_export(&foreign) == -EINVAL && strstr(zinf_error(), "is the base of adapters"));
}

static void refuse(const char *folder, int code, const char *says)
{
    const struct zinf_gguf_options options = {.checkpoint = model_fixture(folder),
                                              .output = in_scratch("none.gguf"),
                                              .form = ZINF_GGUF_F16};
    int got = zinf_gguf_export(&options);
    CHECKF(got == code, "%d: %s", got, zinf_error());
    CHECKF(strstr(zinf_error(), says), "%s", zinf_error());
    CHECK(!exists(in_scratch("none.gguf")));
}

/* By the family's name, with what is to be done. */
static void test_recurrent_refused(void)
{
    static const char *const types[] = {"bamba",       "granitemoehybrid", "nemotron_h",
                                        "falcon_h1",   "olmo_hybrid",      "qwen3_next",
                                        "qwen3_5_text"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char folder[64], says[160];
        snprintf(folder, sizeof folder, "%s_%c", types[i],
                 strcmp(types[i], "granitemoehybrid") ? 'a' : 'c');
        snprintf(says, sizeof says, "models of type %s cannot be written as GGUF", types[i]);
        refuse(folder, -ENOTSUP, says);
        CHECKF(strstr(zinf_error(), "convert_hf_to_gguf.py"), "%s", zinf_error());
    }
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
    TAP_RUN(test_recurrent_refused);
    TAP_RUN(test_adapter);
    TAP_RUN(test_adapter_refused);
    return end_formats();
}
