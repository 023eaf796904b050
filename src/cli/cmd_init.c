/* init: a new model folder with the family's initialisation, streamed. */
#include "base/apart.h"
#include "cli/cli.h"
#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"
#include "train/train.h"

/* The vocabulary that --tokenizer asks for; -1: none. */
static int read_vocab(const char *from, int64_t *vocab)
{
    struct zinf_tokenizer *tokenizer;
    if (!strcmp(from, "bytes")) {
        *vocab = 257;
        return 0;
    }
    int code = zinf_tokenizer_open(&tokenizer, from);
    if (code)
        return zinf_fail_in(code, "--tokenizer");
    if (!strcmp(zinf_tokenizer_kind(tokenizer), "bytes"))
        code = zinf_fail(-EINVAL,
                         "--tokenizer %s: no tokenizer.json there, and no vocab.json with "
                         "merges.txt",
                         from);
    *vocab = zinf_tokenizer_vocab(tokenizer);
    zinf_tokenizer_close(tokenizer);
    return code;
}

/* The model's vocabulary has room for the tokenizer's, and is it where nobody says otherwise. */
static int fit_vocab(struct zinf_model_shape *shape, const char *tokenizer)
{
    int64_t vocab = 0;
    int code = tokenizer ? read_vocab(tokenizer, &vocab) : 0;
    if (code || !tokenizer)
        return code;
    if (shape->vocab && shape->vocab < vocab)
        return zinf_fail(-EINVAL, "--vocab %lld is less than the %lld of --tokenizer",
                         (long long)shape->vocab, (long long)vocab);
    shape->vocab = shape->vocab ? shape->vocab : vocab;
    return 0;
}

static int add_tokenizer(const char *from, const char *output)
{
    if (!from)
        return 0;
    return strcmp(from, "bytes")
               ? zinf_folder_copy_companions(from, output, ZINF_COMPANIONS_TOKENIZER)
               : zinf_tokenizer_write_bytes(output);
}

struct request {
    struct zinf_model_shape shape;
    const char *dtype, *tokenizer, *output;
    int64_t seed;
    bool config_only;
};

static void say(const struct request *r, const struct zinf_model *model, enum zinf_dtype dtype)
{
    uint64_t n = zinf_model_n_params(model);
    char size[16];
    printf("%s: %s, %llu parameters, %s of %s%s\n", r->output, zinf_model_facts(model)->family,
           (unsigned long long)n, zinf_size_format(size, sizeof size, n * zinf_dtype_bytes(dtype)),
           zinf_dtype_name(dtype), r->config_only ? " to come: config.json alone is written" : "");
}

static int check_output(const struct request *r)
{
    struct zinf_origin read = {"--tokenizer", r->tokenizer};
    const struct zinf_origins origins = {&read, 1};
    int code = zinf_apart_check("--output", r->output, ZINF_WRITTEN_FOLDER, &origins);
    return code ? code : zinf_folder_check_new("--output", r->output);
}

static int init(struct request *r)
{
    enum zinf_dtype dtype = ZINF_DTYPE_F32;
    cJSON *config = NULL;
    struct zinf_model *model = NULL;
    int code = r->dtype ? zinf_dtype_parse(r->dtype, &dtype) : 0;
    if (!code)
        code = check_output(r);
    if (!code)
        code = fit_vocab(&r->shape, r->tokenizer);
    if (!code)
        code = zinf_model_make_config(&r->shape, dtype, &config);
    if (!code)
        code = zinf_model_from_json(&model, config, "the options");
    if (!code)
        code = r->config_only ? zinf_model_write_config(config, dtype, r->output)
                              : zinf_model_write_new(config, dtype, (uint64_t)r->seed, r->output);
    if (!code)
        code = add_tokenizer(r->tokenizer, r->output);
    if (code == -EACCES || code == -EROFS || code == -ENOTDIR)
        zinf_fail_in(code, "--output");
    if (!code)
        say(r, model, dtype);
    zinf_model_close(model);
    cJSON_Delete(config);
    return code;
}

static const char usage[] =
    "usage: zinf init --arch NAME --size NAME --output DIR [options]\n"
    "\n"
    "Writes a Hugging Face model folder with fresh weights, of any size in little\n"
    "memory.\n";

static const char *family_word(size_t i)
{
    const struct zinf_family *family = zinf_family_at(i);
    return family ? family->model_type : NULL;
}

/* Of all families, one behind the other; a name that several have comes several times. */
static const char *size_word(size_t i)
{
    static char word[32];
    char sizes[512];
    const struct zinf_family *family;
    for (size_t f = 0; (family = zinf_family_at(f)); f++)
        for (const char *at = zinf_family_sizes(family, sizes, sizeof sizes); *at;) {
            size_t bytes = strcspn(at, ",");
            snprintf(word, sizeof word, "%.*s", (int)bytes, at);
            if (!i--)
                return word;
            at += bytes + strspn(at + bytes, ", ");
        }
    return NULL;
}

#define AT(field) .offset = offsetof(struct request, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--arch", TEXT, AT(shape.arch), "NAME", "family, of those below", .word = family_word,
     .open = true),
    OPTION("--size", TEXT, AT(shape.size), "NAME", "one of its published sizes",
     .word = size_word, .open = true),
    OPTION("--output", TEXT, AT(output), "DIR", "folder to write"),
    OPTION("--layers", INTEGER, AT(shape.layers), "N", "number of blocks, instead of the size's",
     .min = 1, .max = 4096),
    OPTION("--hidden", INTEGER, AT(shape.hidden), "N",
     "width, instead of the size's; a multiple of the heads", .min = 1, .max = 1 << 20),
    OPTION("--heads", INTEGER, AT(shape.heads), "N", "attention heads, instead of the size's",
     .min = 1, .max = 1 << 16),
    OPTION("--tokenizer", TEXT, AT(tokenizer), "DIR",
     "take the tokenizer of a model folder and its vocabulary; the word bytes: bytes as tokens"),
    OPTION("--vocab", INTEGER, AT(shape.vocab), "N", "vocabulary size", .min = 2, .max = 1 << 24,
     .otherwise = "the tokenizer's or the size's"),
    OPTION("--context", INTEGER, AT(shape.context), "N", "longest sequence, instead of the size's",
     .min = 1, .max = 1 << 24),
    OPTION("--seed", INTEGER, AT(seed), "N", "of the random weights", .max = 9e15, .usual = "0"),
    OPTION("--dtype", TEXT, AT(dtype), "NAME", "of the file: fp32, bf16 or fp16",
     .words = cli_dtypes, .open = true, .usual = "fp32"),
    OPTION("--config-only", FLAG, AT(config_only), NULL,
     "no weights: for zinf estimate, fresh trainings"),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    const struct request *r = call->options;
    return session_need("--output DIR", r->output);
}

static int work(struct cli_call *call)
{
    int code = init(call->options);
    return code == -EINVAL || code == -ENOTSUP ? cli_error(call->command, CLI_USAGE) : code;
}

/* The families' own table, cut at words where a line ends. */
static void print_families(FILE *out)
{
    char sizes[512];
    const struct zinf_family *family;
    fputs("\nFamilies and their sizes\n", out);
    for (size_t i = 0; (family = zinf_family_at(i)); i++) {
        char label[64];
        snprintf(label, sizeof label, "  %s", family->model_type);
        if (*zinf_family_sizes(family, sizes, sizeof sizes)) /* others are not made */
            cli_print_field(out, label, 14, sizes);
    }
}

const struct cli_command cli_init = {
    .name = "init",
    .summary = "make a new model folder with random weights",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}),
    .print_more = print_families,
    .bytes = sizeof(struct request),
    .check = check,
    .work = work,
};
