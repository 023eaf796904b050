/* formats: the checks of a safetensors header, each by a file crafted to break it alone. */
#include "formats/safetensors.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define META(text) "{\"__metadata__\":" text "," A "}"
#define ONE(dtype, shape, offsets)                                                                 \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}}"

/* Parses length, header, data_bytes of zeros. */
static int parse_with_length(const char *json, size_t json_bytes, uint64_t length,
                             size_t data_bytes, struct zinf_safetensors *out)
{
    size_t bytes = 8 + json_bytes + data_bytes;
    uint8_t *image = calloc(bytes, 1);
    memcpy(image, &length, 8);
    memcpy(image + 8, json, json_bytes);
    int code = zinf_safetensors_init_image(out, "crafted", image, bytes);
    free(image);
    return code;
}

static int parse(const char *json, size_t data_bytes, struct zinf_safetensors *out)
{
    return parse_with_length(json, strlen(json), strlen(json), data_bytes, out);
}

static const struct bad_case {
    const char *what, *json;
    size_t data_bytes;
    const char *says; /* part of the message */
} bad_cases[] = {
    {"array at the top", "[1]", 0, "start with '{'"},
    {"space before the brace", " {}", 0, "start with '{'"},
    {"not JSON", "{\"a\":", 0, "JSON"},
    {"an open string", "{\"a", 0, "JSON"},
    {"text after the value", "{}x", 0, "more text"},
    {"two values", "{}{}", 0, "more text"},
    {"not UTF-8", "{\"\xff\":1}", 0, "UTF-8"},
    {"overlong UTF-8", "{\"\xc0\xaf\":1}", 0, "UTF-8"},
    {"entry is a number", "{\"a\":1}", 0, "not an object"},
    {"entry is a list", "{\"a\":[]}", 0, "not an object"},
    {"no dtype", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "\"dtype\" is missing"},
    {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "\"shape\" is missing"},
    {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "\"data_offsets\" is missing"},
    {"unknown key", "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":1}}", 1,
     "unknown key \"x\""},
    {"unknown dtype", ONE("F31", "2", "0,8"), 8, "'F31' are not supported"},
    {"complex dtype", ONE("C64", "1", "0,8"), 8, "'C64' are not supported"},
    {"lower case dtype", ONE("f32", "2", "0,8"), 8, "'f32' are not supported"},
    {"dtype is a number", "{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "not a string"},
    {"shape is a number", "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8,
     "not a list"},
    {"shape holds a string", ONE("F32", "\"2\"", "0,8"), 8, "no integer"},
    {"shape holds null", ONE("F32", "null", "0,8"), 8, "no integer"},
    {"negative dimension", ONE("F32", "-2", "0,8"), 8, "plain integers"},
    {"minus zero", ONE("F32", "-0", "0,0"), 0, "plain integers"},
    {"fraction", ONE("F32", "2.0", "0,8"), 8, "plain integers"},
    {"exponent", ONE("F32", "2e0", "0,8"), 8, "plain integers"},
    {"leading zero", ONE("F32", "02", "0,8"), 8, "plain integers"},
    {"dimension above 2^53", ONE("F32", "9007199254740994", "0,8"), 8, "2^53"},
    {"rank 9", ONE("U8", "1,1,1,1,1,1,1,1,1", "0,1"), 1, "more than 8"},
    {"elements overflow", ONE("U8", "4294967296,4294967296", "0,0"), 0, "2^64"},
    {"bytes overflow", ONE("F64", "2147483648,2147483648", "0,0"), 0, "2^64"},
    {"overflow before a zero", ONE("U8", "4294967296,4294967296,0", "0,0"), 0, "2^64"},
    {"one offset", ONE("F32", "2", "0"), 8, "needs two"},
    {"three offsets", ONE("F32", "2", "0,8,8"), 8, "more than 2"},
    {"reversed offsets", ONE("F32", "2", "8,0"), 8, "do not hold"},
    {"offsets too short", ONE("F32", "2", "0,4"), 4, "do not hold"},
    {"offsets too long", ONE("F32", "2", "0,12"), 12, "do not hold"},
    {"scalar without data", ONE("F32", "", "0,0"), 0, "do not hold"},
    {"zero dimension with data", ONE("F32", "0", "0,4"), 4, "do not hold"},
    {"data cut short", "{" A "}", 7, "has only 7"},
    {"data too long", "{" A "}", 9, "belong to none"},
    {"data without tensors", "{}", 1, "belong to none"},
    {"gap at the start", ONE("F32", "2", "4,12"), 12, "gap"},
    {"gap between", "{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9,10]}}", 10,
     "gap"},
    {"overlap", "{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[7,9]}}", 9,
     "overlaps"},
    {"the same place twice",
     "{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "overlaps"},
    {"empty inside another",
     "{" A ",\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]}}", 8, "overlaps"},
    {"duplicate name", "{" A ",\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}", 8,
     "twice"},
    {"duplicate by escape",
     "{" A ",\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[0],"
     "\"data_offsets\":[8,8]}}",
     8, "twice"},
    {"duplicate key",
     "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],"
     "\"data_offsets\":[0,1]}}",
     1, "twice"},
    {"empty name", "{\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "name"},
    {"NUL in a name", "{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     "NUL"},
    {"escape in a name", "{\"a\\u001bb\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
     1, "name"},
    {"bare control character", "{\"a\tb\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
     1, "control character"},
    {"deep nesting", "{\"a\":{\"shape\":[[[[[]]]]]}}", 0, "nested deeper"},
    {"metadata is a list", META("[]"), 8, "__metadata__"},
    {"metadata is null", META("null"), 8, "__metadata__"},
    {"metadata holds a number", META("{\"a\":1}"), 8, "__metadata__"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
};

static void test_bad_headers(void)
{
    struct zinf_safetensors header;
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const struct bad_case *c = &bad_cases[i];
        int code = parse(c->json, c->data_bytes, &header);
        CHECKF(code == -EINVAL, "%s: code %d", c->what, code);
        CHECKF(strstr(zinf_error(), "crafted"), "%s: no file in '%s'", c->what, zinf_error());
        CHECKF(strstr(zinf_error(), c->says), "%s: '%s'", c->what, zinf_error());
        if (!code)
            zinf_safetensors_fini(&header);
    }
}

static void test_bad_lengths(void)
{
    static const char good[] = "{" A "}";
    size_t n = sizeof good - 1;
    const uint64_t lengths[] = {
        0, n - 1, n + 9, 100000001, UINT64_MAX - 7, UINT64_MAX, (uint64_t)1 << 63};
    struct zinf_safetensors header;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        CHECKF(parse_with_length(good, n, lengths[i], 8, &header) == -EINVAL, "length %llu",
               (unsigned long long)lengths[i]);
    for (uint64_t bytes = 0; bytes < 8; bytes++)
        CHECK(zinf_safetensors_init_image(&header, "crafted", "\2\0\0\0\0\0\0", bytes) == -EINVAL);
    CHECK(zinf_safetensors_init_image(&header, "crafted", "\0\0\0\0\0\0\0", 8) == -EINVAL);
    CHECK(!parse_with_length(good, n, n, 8, &header));
    zinf_safetensors_fini(&header);
}

/* A cap is told from a length only by a file large enough for both. */
static void test_header_cap(void)
{
    uint8_t first[8];
    uint64_t length = 100000000, json_bytes = 0;
    memcpy(first, &length, 8);
    CHECK(!zinf_safetensors_length("crafted", first, (uint64_t)1 << 40, &json_bytes));
    CHECK(json_bytes == length);
    length++;
    memcpy(first, &length, 8);
    CHECK(zinf_safetensors_length("crafted", first, (uint64_t)1 << 40, &json_bytes) == -EINVAL);
}

static void test_other_formats(void)
{
    static const struct {
        const char *first, *says;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
        {"PK\3\4\10\10\10\10aaaaaaaaaaaaaaaaaaaaaaaaaaa", "safe_serialization=True"},
        {"\x80\2\x8a\12l\xfc\x9c\x46\xf9 aaaaaaaaaaaaaa", "safe_serialization=True"},
        {"GGUF\3aaaaaaaaaaaaaaaaaaaaaaaaaaa", "GGUF"},
    };
    struct zinf_safetensors header;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(zinf_safetensors_init_image(&header, "crafted", cases[i].first, 24) == -EINVAL);
        CHECKF(strstr(zinf_error(), cases[i].says), "'%s'", zinf_error());
    }
}

static void test_name_length(void)
{
    char json[ZINF_TENSOR_MAX_NAME + 128], name[ZINF_TENSOR_MAX_NAME + 2];
    struct zinf_safetensors header;
    for (int over = 0; over < 2; over++) {
        size_t bytes = ZINF_TENSOR_MAX_NAME + (size_t)over;
        memset(name, 'n', bytes);
        name[bytes] = 0;
        snprintf(json, sizeof json,
                 "{\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", name);
        int code = parse(json, 1, &header);
        CHECKF(code == (over ? -EINVAL : 0), "%zu bytes: %s", bytes, zinf_error());
        if (!code)
            zinf_safetensors_fini(&header);
    }
}

/* Empty tensors that all lie at 0, as many as a file may have, then one more. */
static void test_tensor_count(void)
{
    size_t count = ZINF_SAFETENSORS_MAX_TENSORS, bytes = 0, last = 0;
    char *json = malloc((count + 1) * 64);
    struct zinf_safetensors header;
    for (size_t i = 0; i <= count; i++) {
        last = bytes;
        bytes += (size_t)sprintf(
            json + bytes, "%c\"%zx\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
            i ? ',' : '{', i);
    }
    json[bytes] = '}';
    CHECK(parse_with_length(json, bytes + 1, bytes + 1, 0, &header) == -EINVAL);
    CHECKF(strstr(zinf_error(), "more than"), "'%s'", zinf_error());
    json[last] = '}';
    clock_t begin = clock();
    int code = parse_with_length(json, last + 1, last + 1, 0, &header);
    printf("# %zu tensors parsed in %.0f ms of CPU\n", count,
           (double)(clock() - begin) * 1e3 / CLOCKS_PER_SEC);
    CHECKF(!code && header.n_tensors == count, "%s", zinf_error());
    if (!code)
        zinf_safetensors_fini(&header);
    free(json);
}

/* A short header that would be a large JSON tree. */
static void test_value_count(void)
{
    size_t count = 8u << 20;
    char *json = malloc(2 * count + 16);
    struct zinf_safetensors header;
    size_t bytes = (size_t)sprintf(json, "{\"a\":[0");
    for (size_t i = 0; i < count; i++) {
        json[bytes++] = ',';
        json[bytes++] = '0';
    }
    json[bytes++] = ']';
    json[bytes++] = '}';
    CHECK(parse_with_length(json, bytes, bytes, 0, &header) == -EINVAL);
    CHECKF(strstr(zinf_error(), "values"), "'%s'", zinf_error());
    free(json);
}

static void test_good_headers(void)
{
    struct zinf_safetensors header;
    CHECK(!parse("{}", 0, &header) && header.n_tensors == 0 && !header.metadata);
    zinf_safetensors_fini(&header);
    /* Listed against the order of the data, an empty tensor between, padding behind. */
    int code = parse("{\"b\":{\"data_offsets\":[8,9],\"shape\":[],\"dtype\":\"U8\"},\"e\":"
                     "{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[8,8]}," A
                     ",\"__metadata__\":{\"format\":\"pt\"}}   \n",
                     9, &header);
    CHECKF(!code, "%s", zinf_error());
    if (code)
        return;
    CHECK(header.n_tensors == 3 && header.metadata);
    CHECK(!strcmp(header.tensors[0].name, "a") && !strcmp(header.tensors[1].name, "e") &&
          !strcmp(header.tensors[2].name, "b"));
    CHECK(header.tensors[0].rank == 1 && header.tensors[0].bytes == 8);
    CHECK(header.tensors[1].rank == 2 && header.tensors[1].n_elems == 0);
    CHECK(header.tensors[2].rank == 0 && header.tensors[2].n_elems == 1);
    CHECK(header.tensors[2].file_offset == header.tensors[0].file_offset + 8);
    zinf_safetensors_fini(&header);
}

int main(void)
{
    TAP_RUN(test_good_headers);
    TAP_RUN(test_bad_headers);
    TAP_RUN(test_bad_lengths);
    TAP_RUN(test_header_cap);
    TAP_RUN(test_other_formats);
    TAP_RUN(test_name_length);
    TAP_RUN(test_tensor_count);
    TAP_RUN(test_value_count);
    return tap_done();
}
