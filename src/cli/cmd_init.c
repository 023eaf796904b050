/* init: a new model folder with the family's initialisation, streamed. */
#include "cli/cli.h"
#include "cli/usage.h"
#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"
#include "train/train.h"

#include <stdlib.h>
#include <sys/stat.h>

static int refuse_existing(const char *output)
{
    struct stat info;
    char *path = zinf_path_join(output, "config.json");
    int code = path ? 0 : -ENOMEM;
    if (!code && !stat(path, &info))
        code = zinf_fail(-EEXIST, "--output %s already holds a model: name a new folder", output);
    free(path);
    return code;
}

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

static int init(struct zinf_model_shape *shape, const char *dtype_name, const char *tokenizer,
                const char *output, uint64_t seed)
{
    enum zinf_dtype dtype = ZINF_DTYPE_F32;
    cJSON *config = NULL;
    struct zinf_model *model = NULL;
    char size[16];
    int code = dtype_name ? zinf_dtype_parse(dtype_name, &dtype) : 0;
    if (!code)
        code = refuse_existing(output);
    if (!code)
        code = fit_vocab(shape, tokenizer);
    if (!code)
        code = zinf_model_make_config(shape, dtype, &config);
    if (!code)
        code = zinf_model_from_json(&model, config, "the options");
    if (!code)
        code = zinf_model_write_new(config, dtype, seed, output);
    if (!code)
        code = add_tokenizer(tokenizer, output);
    if (code == -EACCES || code == -EROFS || code == -ENOTDIR)
        zinf_fail_in(code, "--output");
    if (!code) {
        uint64_t n = zinf_model_n_params(model);
        printf("%s: %s, %llu parameters, %s of %s\n", output, zinf_model_facts(model)->family,
               (unsigned long long)n,
               zinf_size_format(size, sizeof size, n * zinf_dtype_bytes(dtype)),
               zinf_dtype_name(dtype));
    }
    zinf_model_close(model);
    cJSON_Delete(config);
    return code;
}

static int run(int argc, char **argv)
{
    struct zinf_model_shape shape = {0};
    const char *dtype = NULL, *output = NULL, *tokenizer = NULL;
    int64_t seed = 0;
    const struct cli_option options[] = {
        {"--arch", CLI_STRING, &shape.arch, 0, 0},
        {"--size", CLI_STRING, &shape.size, 0, 0},
        {"--layers", CLI_INT, &shape.layers, 1, 4096},
        {"--hidden", CLI_INT, &shape.hidden, 1, 1 << 20},
        {"--heads", CLI_INT, &shape.heads, 1, 1 << 16},
        {"--vocab", CLI_INT, &shape.vocab, 2, 1 << 24},
        {"--context", CLI_INT, &shape.context, 1, 1 << 24},
        {"--tokenizer", CLI_STRING, &tokenizer, 0, 0},
        {"--output", CLI_STRING, &output, 0, 0},
        {"--seed", CLI_INT, &seed, 0, 9e15},
        {"--dtype", CLI_STRING, &dtype, 0, 0},
    };
    int code = cli_parse(&cli_init, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!code && !output)
        code = zinf_fail(-EINVAL, "--output DIR is missing");
    if (code)
        return cli_error(&cli_init, CLI_USAGE);
    code = init(&shape, dtype, tokenizer, output, (uint64_t)seed);
    return code ? cli_error(&cli_init, code == -EINVAL || code == -ENOTSUP ? CLI_USAGE : CLI_FAILED)
                : CLI_OK;
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
        cli_print_field(out, label, 14, zinf_family_sizes(family, sizes, sizeof sizes));
    }
}

const struct cli_command cli_init = {
    .name = "init",
    .summary = "make a new model folder with random weights",
    .usage = USAGE_INIT,
    .print_more = print_families,
    .run = run,
};
