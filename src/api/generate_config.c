/*
 * generate_config: generation_config.json as transformers writes it. There "do_sample" decides
 * whether tokens are drawn at all, and is false where it is not given; without the file we draw.
 * Keys that would change the text and that we do not have are named once.
 */
#include "base/json.h"
#include "api/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Keys that are read, and those that change no text here. */
static const char *const known[] = {
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "length_penalty",
    "early_stopping",
    "no_repeat_ngram_size",
    "max_new_tokens",
    "max_length",
    "min_length",
    "min_new_tokens",
    "suppress_tokens",
    "bad_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "eos_token_id",
    "bos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "transformers_version",
    "_from_model_config",
    "use_cache",
    "cache_implementation",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "chat_format",
    "max_window_size",
};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(key, known[i]))
            return true;
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Values by which transformers says that something is off: 0 or 1, but of a token or of a number of
 * tokens. */
static bool says_nothing(const cJSON *value)
{
    const double number = cJSON_IsNumber(value) ? value->valuedouble : 2;
    const bool token = ends_with(value->string, "_token_id");
    const bool tokens = token || ends_with(value->string, "_tokens");
    return cJSON_IsNull(value) || cJSON_IsFalse(value) || (number == 0 && !token) ||
           (number == 1 && !tokens) || (cJSON_IsArray(value) && !value->child);
}

/* Beams where tokens are drawn are another thing, which we do not have. */
static void name_unknown(const cJSON *config, const char *path, bool draws)
{
    char names[512] = "";
    size_t used = 0;
    for (const cJSON *item = config->child; item; item = item->next)
        if (!is_known(item->string) && (draws || strcmp(item->string, "num_beams")) &&
            !says_nothing(item) && used < sizeof names - 1)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     item->string);
    if (used)
        zinf_log_once(ZINF_LOG_WARN, "generation_config", "%s: not used here: %s", path, names);
}

/* One number or a list of them, beside those that are there. */
static int read_ends(const cJSON *config, const char *what, struct generate_settings *s)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id");
    const cJSON *item = cJSON_IsArray(value) ? value->child : value;
    for (; item && !cJSON_IsNull(item); item = cJSON_IsArray(value) ? item->next : NULL) {
        if (!cJSON_IsNumber(item) || item->valuedouble != (double)item->valueint)
            return zinf_fail(-EINVAL, "%s: eos_token_id must be a token's number or a list of them",
                             what);
        if (s->n_ends == GENERATE_MAX_ENDS)
            return zinf_fail(-EINVAL, "%s: more than %d tokens in eos_token_id", what,
                             GENERATE_MAX_ENDS);
        s->ends[s->n_ends++] = item->valueint;
    }
    return 0;
}

/* Of what the file says. */
static int check_range(const cJSON *config, const char *what, const char *key, double value,
                       double least, double most)
{
    const cJSON *said = cJSON_GetObjectItemCaseSensitive(config, key);
    if (!said || cJSON_IsNull(said) || (value >= least && value <= most))
        return 0;
    return zinf_fail(-EINVAL, "%s: %s %g is out of range: it must be from %g to %g", what, key,
                     value, least, most);
}

static const char *const early_words[] = {"false", "true", "never", NULL};

#define AT(field) .offset = offsetof(struct generate_settings, field)
/* clang-format off */
const struct option generate_rows[] = {
    OPTION("--max-new-tokens", INTEGER, AT(max_new_tokens), "N",
     "largest number of new tokens of a text", .min = 1, .max = 1 << 24),
    OPTION("--temperature", NUMBER, AT(temperature), "X",
     "divide the logits by X; 0 takes the most likely token", .max = 1000, .otherwise = "1"),
    OPTION("--top-k", INTEGER, AT(top_k), "N", "draw from the N most likely tokens",
     .max = 1 << 24, .otherwise = "0, all"),
    OPTION("--top-p", NUMBER, AT(top_p), "X",
     "draw from the likeliest tokens whose probabilities make up X",
     .min = 1e-9, .max = 1, .otherwise = "1"),
    OPTION("--repetition-penalty", NUMBER, AT(repetition_penalty), "X",
     "make tokens less likely that were said before",
     .min = 1e-9, .max = 1e9, .otherwise = "1, off"),
    OPTION("--no-repeat-ngram", INTEGER, AT(no_repeat_ngram), "N",
     "no sequence of N tokens appears twice", .max = 1 << 24, .otherwise = "0, off",
     .aliases = "no_repeat_ngram_size"),
    {.flag = NULL}
};

const struct option generate_least[] = {
    OPTION("--min-new-tokens", INTEGER, AT(rules.min_new_tokens), "N",
     "smallest number of new tokens of a text", .min = 1, .max = 1 << 24),
    OPTION("--min-length", INTEGER, AT(rules.min_length), "N",
     "smallest number of tokens of prompt and text together; of an encoder-decoder's target, with "
     "its start token",
     .min = 1, .max = 1 << 24, .aliases = "min_target_length val_min_target_length"),
    {.flag = NULL}
};

const struct option generate_beams[] = {
    OPTION("--num-beams", INTEGER, AT(num_beams), "N",
     "beam search: follow the N likeliest continuations, draw nothing", .min = 1, .max = 1 << 12,
     .otherwise = "1"),
    OPTION("--length-penalty", NUMBER, AT(length_penalty), "X",
     "a beam's score is divided by its length to the power X", .min = -1e3, .max = 1e3,
     .otherwise = "1"),
    OPTION("--early-stopping", WORD, AT(early_stopping), "WORD",
     "true: at N finished beams; false: where better ones are unlikely; never: where there are none",
     .words = early_words, .otherwise = "false"),
    {.flag = NULL}
};
/* clang-format on */

static int parse_early(const char *what, const char *word, int *out)
{
    for (int i = 0; early_words[i]; i++)
        if (!strcmp(word, early_words[i])) {
            *out = i;
            return 0;
        }
    return zinf_fail(-EINVAL, "%s %s: use false, true or never", what, word);
}

/* Of beams: true, false or "never". */
static int read_early(const cJSON *config, const char *what, int *out)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, "early_stopping");
    const char *word = cJSON_IsTrue(value)    ? "true"
                       : cJSON_IsFalse(value) ? "false"
                                              : cJSON_GetStringValue(value);
    char key[300];
    if (!value || cJSON_IsNull(value))
        return 0;
    snprintf(key, sizeof key, "%s: early_stopping", what);
    return parse_early(key, word ? word : "(a number)", out);
}

static int read_beams(const cJSON *config, const char *what, bool draws,
                      struct generate_settings *s)
{
    struct generate_settings file = GENERATE_SETTINGS_UNSAID;
    int code;
    if ((code = zinf_json_double(config, what, "length_penalty", &file.length_penalty)) ||
        (code = zinf_json_int(config, what, "num_beams", &file.num_beams)) ||
        (code = zinf_json_int(config, what, "no_repeat_ngram_size", &file.no_repeat_ngram)) ||
        (code = read_early(config, what, &file.early_stopping)) ||
        (code = check_range(config, what, "num_beams", (double)file.num_beams, 1, 1 << 12)))
        return code;
    s->num_beams = s->num_beams < 0 && !draws ? file.num_beams : s->num_beams;
    s->no_repeat_ngram = s->no_repeat_ngram < 0 ? file.no_repeat_ngram : s->no_repeat_ngram;
    s->early_stopping = s->early_stopping < 0 ? file.early_stopping : s->early_stopping;
    s->length_penalty = isnan(s->length_penalty) ? file.length_penalty : s->length_penalty;
    return 0;
}

/* ---- rules ---- */

static int add_number(const cJSON *item, const char *what, const char *key, int32_t *to, int64_t *n)
{
    if (!cJSON_IsNumber(item) || item->valuedouble != (double)item->valueint || item->valueint < 0)
        return zinf_fail(-EINVAL, "%s: %s must be tokens' numbers", what, key);
    if (*n >= GENERATE_MAX_RULES)
        return zinf_fail(-ENOTSUP, "%s: %s has more than %d numbers", what, key,
                         GENERATE_MAX_RULES);
    to[(*n)++] = item->valueint;
    return 0;
}

static int read_bad_words(const cJSON *config, const char *what, struct generate_settings *s)
{
    static const char key[] = "bad_words_ids";
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(config, key), *word, *id;
    int64_t *n = &s->rules.n_bad_words;
    int code = 0;
    cJSON_ArrayForEach(word, words)
    {
        const int64_t at = *n;
        cJSON length = {.type = cJSON_Number, .valueint = cJSON_GetArraySize(word)};
        length.valuedouble = (double)length.valueint;
        if (!code && !length.valueint)
            code = zinf_fail(-EINVAL, "%s: %s must be lists of tokens' numbers", what, key);
        if (!code)
            code = add_number(&length, what, key, s->bad_words, n);
        cJSON_ArrayForEach(id, word)
        {
            if (!code)
                code = add_number(id, what, key, s->bad_words, n);
        }
        /* transformers leaves out a word that is one of the ends alone */
        for (int i = 0; !code && length.valueint == 1 && i < s->n_ends; i++)
            *n = s->bad_words[*n - 1] == s->ends[i] ? at : *n;
    }
    return code;
}

static int read_forced(const cJSON *config, const char *what, const char *key, bool *forces,
                       int32_t *token)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, key);
    int64_t n = 0;
    if (cJSON_IsArray(value) && cJSON_GetArraySize(value) == 1)
        value = value->child;
    if (!value || cJSON_IsNull(value))
        return 0;
    *forces = true;
    return add_number(value, what, key, token, &n);
}

/* Behind read_ends. */
static int read_rules(const cJSON *config, const char *what, struct generate_settings *s)
{
    struct zinf_word_rules *r = &s->rules;
    const cJSON *id;
    int64_t length = r->min_length, new_tokens = r->min_new_tokens; /* by options, or 0 */
    int code = zinf_json_int(config, what, "min_length", &r->min_length);
    if (!code)
        code = zinf_json_int(config, what, "min_new_tokens", &r->min_new_tokens);
    r->min_length = length ? length : r->min_length;
    r->min_new_tokens = new_tokens ? new_tokens : r->min_new_tokens;
    cJSON_ArrayForEach(id, cJSON_GetObjectItemCaseSensitive(config, "suppress_tokens"))
    {
        if (!code)
            code = add_number(id, what, "suppress_tokens", s->suppressed, &r->n_suppress_tokens);
    }
    if (!code)
        code = read_bad_words(config, what, s);
    if (!code)
        code = read_forced(config, what, "forced_bos_token_id", &r->forces_begin, &r->forced_begin);
    return code ? code
                : read_forced(config, what, "forced_eos_token_id", &r->forces_end, &r->forced_end);
}

/* The file's values where the command line is silent. */
static int read_values(const cJSON *config, const char *what, struct generate_settings *s)
{
    struct generate_settings file = GENERATE_SETTINGS_UNSAID;
    bool draws = false, asked = s->temperature >= 0 || s->top_k >= 0 || s->top_p >= 0;
    int code;
    if ((code = zinf_json_bool(config, what, "do_sample", &draws)) ||
        (code = read_beams(config, what, draws || asked, s)) ||
        (code = zinf_json_double(config, what, "temperature", &file.temperature)) ||
        (code = zinf_json_double(config, what, "top_p", &file.top_p)) ||
        (code = zinf_json_double(config, what, "repetition_penalty", &file.repetition_penalty)) ||
        (code = zinf_json_int(config, what, "top_k", &file.top_k)) ||
        (code = zinf_json_int(config, what, "max_new_tokens", &file.max_new_tokens)) ||
        (code = zinf_json_int(config, what, "max_length", &file.max_length)) ||
        (code = check_range(config, what, "temperature", file.temperature, 0, 1000)) ||
        (code = check_range(config, what, "top_p", file.top_p, 1e-9, 1)) ||
        (code =
             check_range(config, what, "repetition_penalty", file.repetition_penalty, 1e-9, 1e9)) ||
        (code =
             check_range(config, what, "max_new_tokens", (double)file.max_new_tokens, 1, 1 << 24)))
        return code;
    if (s->temperature < 0)
        s->temperature = !draws && !asked ? 0 : file.temperature;
    s->top_k = s->top_k < 0 ? file.top_k : s->top_k;
    s->top_p = s->top_p < 0 ? file.top_p : s->top_p;
    if (s->repetition_penalty < 0)
        s->repetition_penalty = file.repetition_penalty;
    if (s->max_new_tokens < 0) {
        s->max_new_tokens = file.max_new_tokens;
        s->max_length = file.max_new_tokens < 0 ? file.max_length : -1;
    }
    return 0;
}

static int read_file(struct generate_settings *s, const char *path)
{
    cJSON *config = NULL;
    int code = zinf_json_read_file(path, 1 << 20, ZINF_JSON_STRICT, &config);
    if (!code && !cJSON_IsObject(config))
        code = zinf_fail(-EINVAL, "%s: not a JSON object", path);
    if (!code)
        code = read_values(config, path, s);
    if (!code)
        code = read_ends(config, path, s);
    if (!code)
        code = read_rules(config, path, s);
    if (!code)
        name_unknown(config, path, s->num_beams < 2 && s->temperature != 0);
    cJSON_Delete(config);
    return code;
}

int generate_check(const struct generate_settings *s)
{
    bool draws = s->temperature > 0 || s->top_k > 0 || s->top_p >= 0;
    if (s->num_beams > 1 && draws)
        return zinf_fail(-EINVAL,
                         "--num-beams searches and does not sample: leave out --temperature, "
                         "--top-k and --top-p");
    if (s->num_beams < 2 && (s->early_stopping >= 0 || !isnan(s->length_penalty)))
        return zinf_fail(-EINVAL, "--length-penalty and --early-stopping need --num-beams N");
    return 0;
}

int generate_read_config(struct generate_settings *s, const char *model,
                         const struct zinf_model *config)
{
    char *path = zinf_path_join(model, "generation_config.json");
    int code = path ? 0 : -ENOMEM;
    if (!code && !access(path, F_OK))
        code = read_file(s, path);
    free(path);
    if (!code && !s->n_ends)
        code = read_ends(zinf_model_config(config), model, s);
    if (s->num_beams > 1)
        s->temperature = 0;
    s->temperature = s->temperature < 0 ? 1 : s->temperature;
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    s->top_p = s->top_p < 0 ? 1 : s->top_p;
    s->repetition_penalty = s->repetition_penalty < 0 ? 1 : s->repetition_penalty;
    if (s->max_new_tokens < 0)
        s->max_new_tokens = s->max_length > 0 ? s->max_length : 128;
    return code;
}

struct zinf_generate_options generate_options(const struct generate_settings *s, uint64_t seed)
{
    struct zinf_word_rules rules = s->rules;
    rules.suppress_tokens = s->suppressed;
    rules.bad_words = s->bad_words;
    return (struct zinf_generate_options){
        .rules = rules,
        .sampler = {.temperature = s->temperature,
                    .top_k = s->top_k,
                    .top_p = s->top_p,
                    .repetition_penalty = s->repetition_penalty,
                    .no_repeat_ngram = s->no_repeat_ngram > 0 ? s->no_repeat_ngram : 0,
                    .seed = seed},
        .beams = {.n = s->num_beams > 1 ? s->num_beams : 1,
                  .length_penalty = isnan(s->length_penalty) ? 1 : s->length_penalty,
                  .early = s->early_stopping > 0 ? (enum zinf_early)s->early_stopping
                                                 : ZINF_EARLY_GUESS},
        .max_new_tokens = s->max_new_tokens,
        .ends = s->ends,
        .n_ends = s->n_ends,
    };
}
