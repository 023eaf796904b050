/* formats: folders and files that cannot be read, what goes with a model, dtypes. */
#include "formats_support.h"

static void expect_open_fails(const char *path, int code, const char *says)
{
    struct zinf_tensors *tensors;
    int got = zinf_tensors_open(&tensors, path);
    CHECKF(got == code, "%s: %d, not %d", path, got, code);
    CHECKF(strstr(zinf_error(), says), "no '%s' in '%s'", says, zinf_error());
    if (!got)
        zinf_tensors_close(tensors);
}

static void test_folders_without_weights(void)
{
    CHECK(!zinf_make_dirs(in_scratch("none")) && !zinf_make_dirs(in_scratch("pickle")));
    expect_open_fails(in_scratch("none"), -ENOENT, "model.safetensors.index.json");
    make_file(in_scratch("pickle/pytorch_model.bin"), "PK\3\4", 4);
    expect_open_fails(in_scratch("pickle"), -EINVAL, "pytorch_model.bin");
    make_file(in_scratch("pickle/model.safetensors"), "", 0);
    expect_open_fails(in_scratch("pickle"), -EINVAL, "0 bytes are too few");
    expect_open_fails(in_scratch("absent"), -ENOENT, "absent");
    expect_open_fails("/dev/null", -EINVAL, "regular");
}

static void test_truncated_file(void)
{
    const char *path = in_scratch("cut.safetensors");
    char *data;
    size_t bytes;
    CHECK(!zinf_file_read(fixture("single.safetensors"), 1 << 20, &data, &bytes));
    for (size_t n = 0; n < bytes; n += n < 16 ? 1 : 97) {
        make_file(path, data, n);
        struct zinf_tensors *tensors;
        CHECKF(zinf_tensors_open(&tensors, path) == -EINVAL, "%zu bytes", n);
        CHECK(strstr(zinf_error(), "cut.safetensors"));
    }
    /* Cut after it was opened: a short read is an error, not silence. */
    struct zinf_tensors *tensors;
    char out[24 * 8];
    make_file(path, data, bytes);
    CHECK(!zinf_tensors_open(&tensors, path));
    CHECK(!truncate(path, (off_t)bytes - 30));
    const struct zinf_tensor_info *last = zinf_tensors_at(tensors, zinf_tensors_count(tensors) - 1);
    CHECK(zinf_tensors_read(tensors, last, 0, last->n_elems, out) == -EIO);
    CHECKF(strstr(zinf_error(), last->name) && strstr(zinf_error(), "shorter"), "%s", zinf_error());
    zinf_tensors_close(tensors);
    free(data);
}

static void copy_file(const char *from, const char *to)
{
    char *data;
    size_t bytes;
    CHECKF(!zinf_file_read(from, 1 << 20, &data, &bytes), "%s", zinf_error());
    make_file(to, data, bytes);
    free(data);
}

static void expect_index_fails(const char *index, const char *says)
{
    make_file(in_scratch("index/model.safetensors.index.json"), index, strlen(index));
    expect_open_fails(in_scratch("index"), -EINVAL, says);
}

static void test_bad_index(void)
{
    static const char *const bad_names[] = {
        "../x.safetensors", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "a\\\\b", "a\\nb"};
    static const char good[] = "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
    char text[512], image[256];
    CHECK(!zinf_make_dirs(in_scratch("index")));
    for (size_t i = 0; i < sizeof bad_names / sizeof *bad_names; i++) {
        snprintf(text, sizeof text, "{\"weight_map\":{\"w\":\"%s\"}}", bad_names[i]);
        expect_index_fails(text, "plain file name");
    }
    expect_index_fails("{\"metadata\":{}}", "no object \"weight_map\"");
    expect_index_fails("[]", "weight_map");
    expect_index_fails("{\"weight_map\":[]}", "weight_map");
    expect_index_fails("{\"weight_map\":{}}", "empty");
    expect_index_fails("{\"weight_map\":{\"w\":7}}", "not a string");
    expect_index_fails("{\"weight_map\":{\"w\":\"a\",\"w\":\"b\"}}", "twice");
    expect_index_fails("{\"weight_map\":", "JSON");

    static const char missing[] = "{\"weight_map\":{\"w\":\"gone.safetensors\"}}";
    make_file(in_scratch("index/model.safetensors.index.json"), missing, sizeof missing - 1);
    expect_open_fails(in_scratch("index"), -ENOENT, "gone.safetensors");

    for (const char *file = "ab"; *file; file++) { /* both hold w; b also holds nothing else */
        uint64_t length = (uint64_t)snprintf(image + 8, sizeof image - 9, "{\"w\":%s}", good);
        char name[32];
        memcpy(image, &length, 8);
        image[8 + length] = 1;
        snprintf(name, sizeof name, "index/%c.safetensors", *file);
        make_file(in_scratch(name), image, 9 + length);
    }
    expect_index_fails("{\"weight_map\":{\"v\":\"a.safetensors\"}}", "it is not there");
    expect_index_fails("{\"weight_map\":{\"w\":\"a.safetensors\",\"v\":\"b.safetensors\"}}",
                       "in both");
    static const char fine[] = "{\"weight_map\":{\"w\":\"a.safetensors\"}}";
    struct zinf_tensors *tensors;
    make_file(in_scratch("index/model.safetensors.index.json"), fine, sizeof fine - 1);
    CHECKF(!zinf_tensors_open(&tensors, in_scratch("index")), "%s", zinf_error());
    zinf_tensors_close(tensors);
}

static void test_index_names_wrong_shard(void)
{
    static const char file1[] = "model-00001-of-00003.safetensors";
    static const char file2[] = "model-00002-of-00003.safetensors";
    char name[128], *text, *place;
    size_t bytes;
    CHECK(!zinf_make_dirs(in_scratch("swap")));
    for (int i = 1; i <= 3; i++) {
        snprintf(name, sizeof name, "sharded/model-0000%d-of-00003.safetensors", i);
        char *from = strdup(fixture(name));
        snprintf(name, sizeof name, "swap/model-0000%d-of-00003.safetensors", i);
        copy_file(from, in_scratch(name));
        free(from);
    }
    CHECK(!zinf_file_read(fixture("sharded/model.safetensors.index.json"), 1 << 20, &text, &bytes));
    place = strstr(text, file1); /* c_attn.bias lies in the first, now said in the second */
    memcpy(place, file2, sizeof file2 - 1);
    make_file(in_scratch("swap/model.safetensors.index.json"), text, bytes);
    expect_open_fails(in_scratch("swap"), -EINVAL, "but it is in model-00001");
    free(text);
}

/* ---- companions ---- */

static void copy(const char *from, const char *to, enum zinf_companions which)
{
    CHECKF(!zinf_folder_copy_companions(in_scratch(from), in_scratch(to), which), "%s",
           zinf_error());
}

static void test_companions(void)
{
    static const char *const carried[] = {"from/tokenizer.json",         "from/merges.txt",
                                          "from/tokenizer_config.json",  "from/spiece.model",
                                          "from/chat_template.jinja",    "from/modeling_own.py",
                                          "from/generation_config.json", "from/LICENSE"};
    static const char *const left[] = {"from/config.json",      "from/model.safetensors",
                                       "from/README.md",        "from/model.safetensors.index.json",
                                       "from/.hidden.py",       "from/training_args.bin",
                                       "from/pytorch_model.bin"};
    CHECK(!zinf_make_dirs(in_scratch("from/folder.py")));
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
        make_file(in_scratch(carried[i]), "{\"a\":1}", 7);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        make_file(in_scratch(left[i]), "x", 1);
    char *text;
    size_t bytes;
    copy("from", "to/deep", ZINF_COMPANIONS_ALL);
    CHECK(count_entries(in_scratch("to/deep")) == 8);
    CHECK(!zinf_file_read(in_scratch("to/deep/modeling_own.py"), 100, &text, &bytes));
    CHECK(bytes == 7 && !memcmp(text, "{\"a\":1}", 7));
    free(text);
    copy("from", "tokenizer", ZINF_COMPANIONS_TOKENIZER);
    CHECK(count_entries(in_scratch("tokenizer")) == 5 && !exists(in_scratch("tokenizer/LICENSE")));
    copy("from", "from", ZINF_COMPANIONS_ALL);
    CHECK(count_entries(in_scratch("from")) == 8 + 6 + 1);
    CHECK(zinf_folder_copy_companions(in_scratch("absent"), in_scratch("to"),
                                      ZINF_COMPANIONS_ALL) == -ENOENT);
}

/* A link within the folder is followed, one that leads out is not; the hub's cache is one folder.
 */
static void test_companion_links(void)
{
    char outside[4400], blob[4400];
    snprintf(outside, sizeof outside, "%s", in_scratch("secret"));
    snprintf(blob, sizeof blob, "%s", in_scratch("hub/blobs/abc"));
    make_file(outside, "secret", 6);
    CHECK(!zinf_make_dirs(in_scratch("links")) && !zinf_make_dirs(in_scratch("links2")));
    make_file(in_scratch("links2/vocab.txt"), "v", 1); /* a name that begins as the folder's does */
    make_file(in_scratch("links/tokenizer.model"), "m", 1);
    CHECK(!symlink("tokenizer.model", in_scratch("links/spiece.model")));
    CHECK(!symlink("../secret", in_scratch("links/tokenizer.json")));
    CHECK(!symlink("../links2/vocab.txt", in_scratch("links/vocab.txt")));
    CHECK(!symlink(outside, in_scratch("links/LICENSE")));
    CHECK(!symlink("/nowhere", in_scratch("links/merges.txt")));
    copy("links", "from-links", ZINF_COMPANIONS_ALL);
    CHECK(count_entries(in_scratch("from-links")) == 2);
    CHECK(exists(in_scratch("from-links/spiece.model")));

    CHECK(!zinf_make_dirs(in_scratch("hub/blobs")) &&
          !zinf_make_dirs(in_scratch("hub/snapshots/r")));
    make_file(blob, "b", 1);
    CHECK(!symlink("../../blobs/abc", in_scratch("hub/snapshots/r/tokenizer.json")));
    CHECK(!symlink("../../../secret", in_scratch("hub/snapshots/r/vocab.json")));
    copy("hub/snapshots/r", "from-hub", ZINF_COMPANIONS_ALL);
    CHECK(count_entries(in_scratch("from-hub")) == 1);
    CHECK(exists(in_scratch("from-hub/tokenizer.json")));
}

/* Too large to belong: not read, and no reason to fail. */
static void test_companion_size(void)
{
    CHECK(!zinf_make_dirs(in_scratch("large")));
    make_file(in_scratch("large/vocab.txt"), "v", 1);
    make_file(in_scratch("large/huge.model"), "", 0);
    CHECK(!truncate(in_scratch("large/huge.model"), ((off_t)256 << 20) + 1));
    copy("large", "from-large", ZINF_COMPANIONS_ALL);
    CHECK(count_entries(in_scratch("from-large")) == 1);
}

static void test_dtypes(void)
{
    enum zinf_dtype dtype;
    for (int i = 0; i < ZINF_DTYPE_COUNT; i++) {
        enum zinf_file_dtype file = zinf_file_dtype_from_dtype((enum zinf_dtype)i);
        CHECK(!zinf_file_dtype_to_dtype(file, &dtype) && dtype == (enum zinf_dtype)i);
        CHECK(zinf_file_dtype_bytes(file) == zinf_dtype_bytes(dtype));
    }
    CHECK(zinf_file_dtype_to_dtype(ZINF_FILE_F64, &dtype) == -ENOTSUP);
}

int main(void)
{
    begin_formats();
    TAP_RUN(test_folders_without_weights);
    TAP_RUN(test_truncated_file);
    TAP_RUN(test_bad_index);
    TAP_RUN(test_index_names_wrong_shard);
    TAP_RUN(test_companions);
    TAP_RUN(test_companion_links);
    TAP_RUN(test_companion_size);
    TAP_RUN(test_dtypes);
    return end_formats();
}
