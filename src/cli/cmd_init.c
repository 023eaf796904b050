/* init: a new model folder with the family's initialisation, streamed. */
#include "base/apart.h"
#include "cli/cli.h"
#include "cli/usage.h"
#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"
#include "train/train.h"

#include <stdlib.h>

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

static int run(int argc, char **argv)
{
    struct request r = {0};
    struct zinf_model_shape *shape = &r.shape;
    const struct cli_option options[] = {
        {"--arch", CLI_STRING, &shape->arch, 0, 0},
        {"--size", CLI_STRING, &shape->size, 0, 0},
        {"--layers", CLI_INT, &shape->layers, 1, 4096},
        {"--hidden", CLI_INT, &shape->hidden, 1, 1 << 20},
        {"--heads", CLI_INT, &shape->heads, 1, 1 << 16},
        {"--vocab", CLI_INT, &shape->vocab, 2, 1 << 24},
        {"--context", CLI_INT, &shape->context, 1, 1 << 24},
        {"--tokenizer", CLI_STRING, &r.tokenizer, 0, 0},
        {"--output", CLI_STRING, &r.output, 0, 0},
        {"--seed", CLI_INT, &r.seed, 0, 9e15},
        {"--dtype", CLI_STRING, &r.dtype, 0, 0},
        {"--config-only", CLI_FLAG, &r.config_only, 0, 0},
    };
    int code = cli_parse(&cli_init, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!code && !r.output)
        code = zinf_fail(-EINVAL, "--output DIR is missing");
    if (code)
        return cli_error(&cli_init, CLI_USAGE);
    code = init(&r);
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
