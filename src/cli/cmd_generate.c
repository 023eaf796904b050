/* generate: continue a prompt, token by token; beyond the context a window slides. */
#include "cli/cli.h"
#include "cli/data.h"
#include "cli/usage.h"

#include <stdlib.h>

struct generate_options {
    struct cli_common common;
    const char *prompt;
    int64_t max_new_tokens;
    struct zinf_sampler sampler;
};

/* ids has room for max_new_tokens more; stops at the end-of-text token. */
static int extend(struct zinf_trainer *trainer, const struct generate_options *o,
                  struct zinf_tokens *ids)
{
    const struct zinf_model_facts *facts = zinf_model_facts(zinf_trainer_model(trainer));
    size_t window = (size_t)zinf_trainer_seq_len(trainer);
    float *logits = malloc((size_t)facts->vocab * sizeof *logits);
    void *scratch = malloc((size_t)facts->vocab * 8);
    int code = logits && scratch ? 0 : zinf_fail(-ENOMEM, "no memory for logits");
    for (int64_t i = 0; !code && i < o->max_new_tokens; i++) {
        size_t n = ids->count < window ? ids->count : window;
        code = zinf_trainer_logits(trainer, ids->ids + ids->count - n, (int64_t)n, logits);
        if (code)
            break;
        int32_t id = zinf_sample(&o->sampler, logits, facts->vocab, (uint64_t)i, scratch);
        if (id == facts->end_of_text)
            break;
        ids->ids[ids->count++] = id;
    }
    free(logits);
    free(scratch);
    return code;
}

static int reserve(struct zinf_tokens *ids, size_t more)
{
    size_t capacity = ids->count + more;
    int32_t *moved = realloc(ids->ids, (capacity ? capacity : 1) * sizeof *moved);
    if (!moved)
        return zinf_fail(-ENOMEM, "no memory for %zu tokens", capacity);
    ids->ids = moved;
    ids->capacity = capacity;
    return 0;
}

static int encode_prompt(struct cli_session *s, const struct generate_options *o,
                         struct zinf_tokens *ids)
{
    int64_t vocab = zinf_model_facts(s->model)->vocab;
    int code = zinf_tokenizer_encode(s->tokenizer, o->prompt, strlen(o->prompt), ids);
    if (!code && !ids->count)
        code = zinf_fail(-EINVAL, "--prompt is empty: give at least one character");
    for (size_t i = 0; !code && i < ids->count; i++)
        if (ids->ids[i] >= vocab)
            code = zinf_fail(-EINVAL,
                             "the prompt's token id %d is outside of the model's "
                             "vocabulary of %lld: the tokenizer does not belong to this model",
                             ids->ids[i], (long long)vocab);
    return code ? code : reserve(ids, (size_t)o->max_new_tokens);
}

static int generate(struct generate_options *o)
{
    struct cli_session s = {0};
    struct zinf_trainer *trainer = NULL;
    struct zinf_tokens ids = {0};
    char *text = NULL;
    size_t bytes;
    o->common.micro_batch = 1;
    o->common.no_training = true;
    int code = cli_session_open(&s, &o->common);
    if (!code)
        code = cli_session_need_tokenizer(&s, &o->common);
    if (!code)
        code = encode_prompt(&s, o, &ids);
    if (!code)
        code = cli_session_config(&s, &o->common);
    if (code)
        goto out;
    int64_t wanted = (int64_t)ids.count + o->max_new_tokens;
    code = cli_session_trainer(&s, &o->common, ZINF_TRAINER_FORWARD,
                               wanted < s.seq_len ? wanted : s.seq_len, &trainer);
    if (!code)
        code = extend(trainer, o, &ids);
    if (!code)
        code = zinf_tokenizer_decode(s.tokenizer, ids.ids, ids.count, &text, &bytes);
    if (!code) {
        fwrite(text, 1, bytes, stdout);
        putchar('\n');
    }
out:
    free(text);
    zinf_tokens_free(&ids);
    zinf_trainer_destroy(trainer);
    cli_session_close(&s);
    return code;
}

static int run(int argc, char **argv)
{
    struct generate_options o = {
        .common = CLI_COMMON_DEFAULT,
        .max_new_tokens = 128,
        .sampler = {.temperature = 1, .top_p = 1},
    };
    struct cli_common *c = &o.common;
    const struct cli_option options[] = {
        {"--model", CLI_STRING, &c->model, 0, 0},
        {"--adapter", CLI_STRING, &c->adapter, 0, 0},
        {"--prompt", CLI_STRING, &o.prompt, 0, 0},
        {"--max-new-tokens", CLI_INT, &o.max_new_tokens, 1, 1 << 24},
        {"--temperature", CLI_DOUBLE, &o.sampler.temperature, 0, 1000},
        {"--top-k", CLI_INT, &o.sampler.top_k, 0, 1 << 24},
        {"--top-p", CLI_DOUBLE, &o.sampler.top_p, 1e-9, 1},
        {"--seed", CLI_INT, &c->seed, 0, 9e15},
        CLI_DEVICE_OPTIONS(c),
        {"--dtype", CLI_STRING, &c->dtype, 0, 0},
    };
    int code =
        cli_parse(&cli_generate, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!code)
        code = cli_check_common(c);
    if (!code)
        code = cli_need("--prompt TEXT", o.prompt);
    if (code)
        return cli_error(&cli_generate, CLI_USAGE);
    o.sampler.seed = (uint64_t)c->seed;
    return generate(&o) ? cli_error(&cli_generate, CLI_FAILED) : CLI_OK;
}

const struct cli_command cli_generate = {
    .name = "generate",
    .summary = "continue a prompt",
    .usage = USAGE_GENERATE,
    .run = run,
};
