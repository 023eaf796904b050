/* formats: what is written is read back, by whatever cut; files of the Python packages. */
#include "base/random.h"
#include "formats_support.h"

#include <time.h>

/* ---- round trips ---- */

#define MODEL_TENSORS 60

static uint32_t random_word(uint32_t stream, uint64_t index)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), stream, 0}, out[4];
    zinf_philox(counter, 11, out);
    return out[0];
}

/* Tensor i of a model: every dtype, ranks 0 to 8, some zero dimensions, some of many elements. */
static void random_tensor(int i, char *name, size_t name_bytes, struct zinf_tensor_info *info)
{
    uint32_t word = random_word(1, (uint64_t)i);
    snprintf(name, name_bytes, i % 7 ? "layer.%d.weight" : "odd \"%d\" \\ \xc3\xa9", i);
    info->dtype = (enum zinf_file_dtype)(i % ZINF_FILE_DTYPES);
    info->rank = (int)(word % (ZINF_TENSOR_MAX_RANK + 1));
    info->n_elems = 1;
    for (int d = 0; d < info->rank; d++) {
        uint32_t more = random_word(2, (uint64_t)(i * 8 + d));
        info->shape[d] = more % 16 == 0 && i % 5 == 0 ? 0 : 1 + more % 4;
        if (d == 0 && i % 20 == 3)
            info->shape[d] = 100000;
        info->n_elems *= info->shape[d];
    }
    info->bytes = info->n_elems * zinf_file_dtype_bytes(info->dtype);
}

static void fill(uint8_t *data, uint64_t bytes, int tensor)
{
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 31 + (uint64_t)tensor * 7 + (i >> 8));
}

/* All tensors appended in pieces of random length up to max_piece. */
static int write_model(const struct zinf_tensors_writer_options *options, uint64_t max_piece)
{
    struct zinf_tensors_writer *writer = NULL;
    struct zinf_tensor_info info;
    char name[64];
    uint64_t total = 0, at = 0;
    uint8_t *data = NULL;
    int code = zinf_tensors_writer_create(&writer, options);
    for (int i = 0; i < MODEL_TENSORS && !code; i++) {
        random_tensor(i, name, sizeof name, &info);
        code = zinf_tensors_writer_declare(writer, name, info.dtype, info.rank, info.shape);
        data = realloc(data, total + info.bytes + 1);
        fill(data + total, info.bytes, i);
        total += info.bytes;
    }
    if (!code)
        code = zinf_tensors_writer_begin(writer);
    for (uint64_t n; at < total && !code; at += n) {
        n = 1 + random_word(3, at) % max_piece;
        n = n < total - at ? n : total - at;
        code = zinf_tensors_writer_append(writer, data + at, n);
    }
    if (!code)
        code = zinf_tensors_writer_finish(writer);
    zinf_tensors_writer_destroy(writer);
    free(data);
    return code;
}

static void check_tensor(const struct zinf_tensors *tensors, int i)
{
    struct zinf_tensor_info want;
    char name[64];
    random_tensor(i, name, sizeof name, &want);
    const struct zinf_tensor_info *info = zinf_tensors_find(tensors, name);
    CHECKF(info, "%s is missing", name);
    if (!info)
        return;
    CHECK(info->dtype == want.dtype && info->rank == want.rank && info->bytes == want.bytes);
    CHECK(!memcmp(info->shape, want.shape, (size_t)want.rank * sizeof *want.shape));
    CHECK(info->file_offset % zinf_file_dtype_bytes(info->dtype) == 0);
    uint8_t *expected = malloc(want.bytes + 1), *data = malloc(want.bytes + 1);
    fill(expected, want.bytes, i);
    uint64_t half = want.n_elems / 2, size = zinf_file_dtype_bytes(want.dtype);
    CHECK(!zinf_tensors_read(tensors, info, half, want.n_elems - half, data + half * size));
    CHECK(!zinf_tensors_read(tensors, info, 0, half, data));
    CHECKF(!memcmp(data, expected, want.bytes), "%s differs", name);
    free(expected);
    free(data);
}

static void check_model(const char *path)
{
    struct zinf_tensors *tensors;
    int code = zinf_tensors_open(&tensors, path);
    CHECKF(!code, "%s", zinf_error());
    if (code)
        return;
    CHECK(zinf_tensors_count(tensors) == MODEL_TENSORS);
    CHECK(!zinf_tensors_find(tensors, "layer.1.weigh") && !zinf_tensors_find(tensors, ""));
    CHECK(!strcmp(zinf_tensors_metadata(tensors, "format"), "pt"));
    CHECK(!zinf_tensors_metadata(tensors, "none") && !zinf_tensors_at(tensors, MODEL_TENSORS));
    for (int i = 0; i < MODEL_TENSORS; i++)
        check_tensor(tensors, i);
    zinf_tensors_close(tensors);
}

static void test_round_trip_single(void)
{
    static const uint64_t pieces[] = {100, 5000, 3000000};
    const char *path = in_scratch("one.safetensors");
    for (int i = 0; i < 3; i++) {
        int code = write_model(
            &(struct zinf_tensors_writer_options){.path = path, .single_file = true}, pieces[i]);
        CHECKF(!code, "%s", zinf_error());
        check_model(path);
    }
    CHECK(count_files(scratch, ".tmp") == 0);
}

static void test_round_trip_sharded(void)
{
    char folder[4200];
    snprintf(folder, sizeof folder, "%s", in_scratch("sharded/new"));
    struct zinf_tensors_writer_options options = {.path = folder, .max_shard_bytes = 100000};
    CHECKF(!write_model(&options, 70000), "%s", zinf_error());
    check_model(folder);
    int n_shards = count_files(folder, "-of-");
    CHECKF(n_shards > 3, "%d shards", n_shards);
    /* Cut otherwise over it: the old shards go. Then in one piece: the index goes. */
    options.max_shard_bytes = 3000000;
    CHECKF(!write_model(&options, 70000), "%s", zinf_error());
    check_model(folder);
    CHECK(count_files(folder, "-of-") > 1 && count_files(folder, "-of-") < n_shards);
    options.max_shard_bytes = 0;
    CHECKF(!write_model(&options, 70000), "%s", zinf_error());
    check_model(folder);
    CHECK(count_entries(folder) == 1 && count_files(folder, "model.safetensors") == 1);
    options.max_shard_bytes = 1; /* one tensor a file, empty ones too */
    CHECKF(!write_model(&options, 70000), "%s", zinf_error());
    check_model(folder);
    CHECK(count_files(folder, "model.safetensors") == 1); /* the index */
    CHECK(count_files(folder, ".tmp") == 0);
}

/* Larger than the blocks and the window of writeback together, with types out of order. */
static void test_round_trip_large(void)
{
    const char *path = in_scratch("large.safetensors");
    uint64_t n = 11000003, shape16[1] = {3}, shape32[1] = {n};
    struct zinf_tensors_writer *writer;
    struct zinf_tensors *tensors;
    uint16_t small[3] = {1, 2, 3}, back[3] = {0};
    uint32_t *data = malloc(n * sizeof *data);
    CHECK(!zinf_tensors_writer_create(
        &writer, &(struct zinf_tensors_writer_options){.path = path, .single_file = true}));
    CHECK(!zinf_tensors_writer_declare(writer, "small", ZINF_FILE_U16, 1, shape16));
    CHECK(!zinf_tensors_writer_declare(writer, "large", ZINF_FILE_U32, 1, shape32));
    CHECKF(!zinf_tensors_writer_begin(writer), "%s", zinf_error());
    CHECK(!zinf_tensors_writer_append(writer, small, sizeof small));
    for (uint64_t i = 0; i < n; i++)
        data[i] = (uint32_t)i * 2654435761u;
    CHECK(!zinf_tensors_writer_append(writer, data, 5));
    CHECK(!zinf_tensors_writer_append(writer, (char *)data + 5, n * 4 - 5));
    CHECKF(!zinf_tensors_writer_finish(writer), "%s", zinf_error());
    zinf_tensors_writer_destroy(writer);
    CHECKF(!zinf_tensors_open(&tensors, path), "%s", zinf_error());
    memset(data, 0, n * sizeof *data);
    CHECK(!zinf_tensors_read(tensors, zinf_tensors_find(tensors, "large"), 0, n, data));
    CHECK(!zinf_tensors_read(tensors, zinf_tensors_find(tensors, "small"), 0, 3, back));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++)
        wrong += data[i] != (uint32_t)i * 2654435761u;
    CHECK(wrong == 0 && !memcmp(small, back, sizeof small));
    zinf_tensors_close(tensors);
    free(data);
    unlink(path);
}

static void test_read_f32(void)
{
    static const enum zinf_file_dtype dtypes[] = {ZINF_FILE_F16, ZINF_FILE_BF16, ZINF_FILE_F64,
                                                  ZINF_FILE_F32, ZINF_FILE_I32};
    enum { N = 700001 }; /* more than a block of any of them */
    const char *path = in_scratch("f32.safetensors");
    struct zinf_tensors_writer *writer;
    struct zinf_tensors *tensors;
    char *data = calloc(N, 8);
    float *out = malloc(N * sizeof *out);
    CHECK(!zinf_tensors_writer_create(
        &writer, &(struct zinf_tensors_writer_options){.path = path, .single_file = true}));
    for (int t = 0; t < 5; t++)
        CHECK(!zinf_tensors_writer_declare(writer, zinf_file_dtype_name(dtypes[t]), dtypes[t], 1,
                                           &(uint64_t){N}));
    CHECK(!zinf_tensors_writer_begin(writer));
    for (int t = 0; t < 5; t++) {
        for (int i = 0; i < N; i++) {
            float value = (float)(i % 255 - 100) / 4; /* exact in bf16 and fp16 */
            if (dtypes[t] == ZINF_FILE_F16)
                ((uint16_t *)data)[i] = zinf_f16_from_f32(value);
            else if (dtypes[t] == ZINF_FILE_BF16)
                ((uint16_t *)data)[i] = zinf_bf16_from_f32(value);
            else if (dtypes[t] == ZINF_FILE_F64)
                ((double *)data)[i] = value;
            else
                ((float *)data)[i] = value;
        }
        CHECK(!zinf_tensors_writer_append(writer, data, N * zinf_file_dtype_bytes(dtypes[t])));
    }
    CHECKF(!zinf_tensors_writer_finish(writer), "%s", zinf_error());
    zinf_tensors_writer_destroy(writer);
    CHECKF(!zinf_tensors_open(&tensors, path), "%s", zinf_error());
    for (int t = 0; t < 4; t++) {
        const char *name = zinf_file_dtype_name(dtypes[t]);
        int wrong = 0;
        CHECK(!zinf_tensors_read_f32(tensors, zinf_tensors_find(tensors, name), 1, N - 1, out));
        for (int i = 1; i < N; i++)
            wrong += out[i - 1] != (float)(i % 255 - 100) / 4;
        CHECKF(!wrong, "%s: %d wrong", name, wrong);
    }
    CHECK(zinf_tensors_read_f32(tensors, zinf_tensors_find(tensors, "I32"), 0, 1, out) == -ENOTSUP);
    zinf_tensors_close(tensors);
    free(data);
    free(out);
    unlink(path);
}

static void test_read_range(void)
{
    struct zinf_tensors *tensors;
    char out[64];
    CHECKF(!zinf_tensors_open(&tensors, fixture("single.safetensors")), "%s", zinf_error());
    const struct zinf_tensor_info *info = zinf_tensors_find(tensors, "int8");
    CHECK(!zinf_tensors_read(tensors, info, 24, 0, out));
    CHECK(zinf_tensors_read(tensors, info, 24, 1, out) == -EINVAL);
    CHECK(zinf_tensors_read(tensors, info, 0, 25, out) == -EINVAL);
    CHECK(zinf_tensors_read(tensors, info, 25, 0, out) == -EINVAL);
    CHECK(zinf_tensors_read(tensors, info, UINT64_MAX, 2, out) == -EINVAL);
    CHECK(zinf_tensors_read_f32(tensors, zinf_tensors_find(tensors, "bfloat16"), 2, UINT64_MAX,
                                (float *)out) == -EINVAL);
    zinf_tensors_close(tensors);
}

/* ---- files of the Python packages ---- */

static double stored_value(const uint8_t *data, enum zinf_file_dtype dtype, int i)
{
    int64_t word = 0;
    size_t bytes = zinf_file_dtype_bytes(dtype);
    double wide;
    float single;
    memcpy(&word, data + (size_t)i * bytes, bytes);
    switch (dtype) {
    case ZINF_FILE_F64:
        memcpy(&wide, &word, 8);
        return wide;
    case ZINF_FILE_F32:
        memcpy(&single, &word, 4);
        return single;
    case ZINF_FILE_F16:
        return zinf_f16_to_f32((uint16_t)word);
    case ZINF_FILE_BF16:
        return zinf_bf16_to_f32((uint16_t)word);
    case ZINF_FILE_I8:
        return (int8_t)word;
    case ZINF_FILE_I16:
        return (int16_t)word;
    case ZINF_FILE_I32:
        return (int32_t)word;
    default:
        return (double)word;
    }
}

static void test_python_single(void)
{
    static const struct {
        const char *name;
        enum zinf_file_dtype dtype;
        double first, step; /* element i is first + i * step; step 0: i odd */
    } cases[] = {
        {"bool", ZINF_FILE_BOOL, 0, 0},
        {"uint8", ZINF_FILE_U8, 0, 3},
        {"int8", ZINF_FILE_I8, -4, 3},
        {"int16", ZINF_FILE_I16, -4, 3},
        {"uint16", ZINF_FILE_U16, 0, 3},
        {"int32", ZINF_FILE_I32, -4, 3},
        {"uint32", ZINF_FILE_U32, 0, 3},
        {"int64", ZINF_FILE_I64, -4, 3},
        {"uint64", ZINF_FILE_U64, 0, 3},
        {"float16", ZINF_FILE_F16, -1.25, 0.25},
        {"bfloat16", ZINF_FILE_BF16, -1.25, 0.25},
        {"float32", ZINF_FILE_F32, -1.25, 0.25},
        {"float64", ZINF_FILE_F64, -1.25, 0.25},
    };
    struct zinf_tensors *tensors;
    uint8_t data[24 * 8];
    CHECKF(!zinf_tensors_open(&tensors, fixture("single.safetensors")), "%s", zinf_error());
    CHECK(zinf_tensors_count(tensors) == 18);
    CHECK(!strcmp(zinf_tensors_metadata(tensors, "by"), "safetensors"));
    CHECK(!strcmp(zinf_tensors_file_name(tensors, 0), "single.safetensors"));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct zinf_tensor_info *info = zinf_tensors_find(tensors, cases[c].name);
        CHECKF(info && info->dtype == cases[c].dtype && info->rank == 3, "%s", cases[c].name);
        CHECK(info->shape[0] == 2 && info->shape[1] == 3 && info->shape[2] == 4);
        CHECK(!zinf_tensors_read(tensors, info, 0, 24, data));
        for (int i = 0; i < 24; i++) {
            double want = cases[c].step != 0 ? cases[c].first + i * cases[c].step : i % 2;
            CHECKF(stored_value(data, info->dtype, i) == want, "%s[%d]", cases[c].name, i);
        }
    }
    const struct zinf_tensor_info *info = zinf_tensors_find(tensors, "float8_e4m3fn");
    CHECK(info->dtype == ZINF_FILE_F8_E4M3 && !zinf_tensors_read(tensors, info, 0, 6, data));
    CHECK(!memcmp(data, "\xba\xb8\xb4\xb0\xa8\x00", 6));
    info = zinf_tensors_find(tensors, "float8_e5m2");
    CHECK(info->dtype == ZINF_FILE_F8_E5M2 && !zinf_tensors_read(tensors, info, 0, 6, data));
    CHECK(!memcmp(data, "\xbd\xbc\xba\xb8\xb4\x00", 6));
    info = zinf_tensors_find(tensors, "scalar");
    CHECK(info->rank == 0 && info->n_elems == 1);
    CHECK(!zinf_tensors_read(tensors, info, 0, 1, data));
    CHECK(stored_value(data, ZINF_FILE_F32, 0) == 2.5);
    info = zinf_tensors_find(tensors, "empty");
    CHECK(info->rank == 3 && info->n_elems == 0 && info->shape[1] == 0);
    CHECK(zinf_tensors_find(tensors, "odd \"name\" \\ \xc3\xa9") != NULL);
    zinf_tensors_close(tensors);
}

static void test_python_sharded(void)
{
    struct zinf_tensors *tensors;
    float value[2];
    CHECKF(!zinf_tensors_open(&tensors, fixture("sharded")), "%s", zinf_error());
    CHECK(zinf_tensors_count(tensors) == 16);
    for (uint64_t i = 0; i < 16; i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(tensors, i);
        CHECK(zinf_tensors_find(tensors, info->name) == info);
        CHECK(info->n_elems > 1);
        CHECK(!zinf_tensors_read_f32(tensors, info, info->n_elems - 2, 2, value));
        CHECKF(value[1] == ((float)info->n_elems - 6) / 4 && value[0] == value[1] - 0.25f, "%s",
               info->name);
    }
    const struct zinf_tensor_info *info =
        zinf_tensors_find(tensors, "transformer.h.0.mlp.c_fc.weight");
    CHECK(info->rank == 2 && info->shape[0] == 8 && info->shape[1] == 32);
    CHECK(!strcmp(zinf_tensors_file_name(tensors, info->file), "model-00002-of-00003.safetensors"));
    CHECK(!zinf_tensors_file_name(tensors, 3));
    zinf_tensors_close(tensors);
}

/* formats_test FOLDER: what tests/fixtures/check_formats.py reads with the Python packages. */
static int write_for_python(const char *folder)
{
    char *single = zinf_path_join(folder, "one.safetensors");
    char *sharded = zinf_path_join(folder, "sharded");
    struct zinf_tensors_writer_options one = {.path = single, .single_file = true};
    struct zinf_tensors_writer_options many = {.path = sharded, .max_shard_bytes = 100000};
    int code = single && sharded ? write_model(&one, 5000) : -ENOMEM;
    if (!code)
        code = write_model(&many, 5000);
    if (code)
        fprintf(stderr, "%s\n", zinf_error());
    free(single);
    free(sharded);
    return code != 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return write_for_python(argv[1]);
    begin_formats();
    TAP_RUN(test_round_trip_single);
    TAP_RUN(test_round_trip_sharded);
    TAP_RUN(test_round_trip_large);
    TAP_RUN(test_read_f32);
    TAP_RUN(test_read_range);
    TAP_RUN(test_python_single);
    TAP_RUN(test_python_sharded);
    return end_formats();
}
