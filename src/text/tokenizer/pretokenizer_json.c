/* pretokenizer_json: the "pre_tokenizer" of a tokenizer.json, as stages. */
#include "text/tokenizer/tokenizer_json.h"

#include <stdio.h>

const cJSON *text_json_first(const cJSON *object, const char *list)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "type");
    const cJSON *members = cJSON_GetObjectItemCaseSensitive(object, list);
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "Sequence"))
        return object;
    return cJSON_IsArray(members) ? members->child : NULL;
}

const cJSON *text_json_next(const cJSON *object, const cJSON *member)
{
    return member == object ? NULL : member->next;
}

static bool is_type(const cJSON *object, const char *name)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, "type");
    return cJSON_IsString(type) && !strcmp(type->valuestring, name);
}

bool text_json_has_byte_level(const cJSON *pre_tokenizer)
{
    const cJSON *member = pre_tokenizer ? text_json_first(pre_tokenizer, "pretokenizers") : NULL;
    for (; member; member = text_json_next(pre_tokenizer, member))
        if (is_type(member, "ByteLevel"))
            return true;
    return false;
}

int text_json_read_pattern(pcre2_code **out, const cJSON *object, const char *what)
{
    const char *expression = NULL, *string = NULL;
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(object, "pattern");
    int code = zinf_json_string(pattern, what, "Regex", &expression);
    code = code ? code : zinf_json_string(pattern, what, "String", &string);
    if (code)
        return code;
    if (!expression == !string)
        return zinf_fail(-EINVAL, "%s: a Split or Replace has no \"pattern\"", what);
    return text_pattern_compile(out, expression ? expression : string,
                                expression ? TEXT_PATTERN_EXPRESSION : TEXT_PATTERN_LITERAL, what);
}

/* ---- stages ---- */

static int read_behavior(struct text_stage *stage, const cJSON *object, const char *what)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = names[0];
    int code = zinf_json_string(object, what, "behavior", &name);
    for (int i = 0; i < 5 && !code; i++)
        if (!strcmp(name, names[i])) {
            stage->behavior = (enum text_behavior)i;
            return 0;
        }
    return code ? code
                : zinf_fail(-ENOTSUP, "%s: the behavior \"%.50s\" is not supported", what, name);
}

static int read_byte_level(struct text_stage *stage, const cJSON *object, const char *what)
{
    bool use_regex = true, prefix = true;
    int code = zinf_json_bool(object, what, "use_regex", &use_regex);
    code = code ? code : zinf_json_bool(object, what, "add_prefix_space", &prefix);
    if (code)
        return code;
    strcpy(stage->mark, " ");
    stage->prepend = prefix ? TEXT_PREPEND_ALWAYS : TEXT_PREPEND_NEVER;
    stage->spell = true;
    return use_regex ? text_pattern_compile(&stage->code, text_gpt2_pattern,
                                            TEXT_PATTERN_EXPRESSION, what)
                     : 0;
}

static int read_metaspace(struct text_stage *stage, const cJSON *object, const char *what)
{
    const char *mark = "\xe2\x96\x81", *scheme = "always";
    bool prefix = true, split = true;
    size_t used;
    int code = zinf_json_string(object, what, "replacement", &mark);
    code = code ? code : zinf_json_string(object, what, "prepend_scheme", &scheme);
    code = code ? code : zinf_json_bool(object, what, "add_prefix_space", &prefix);
    code = code ? code : zinf_json_bool(object, what, "split", &split);
    if (code)
        return code;
    bool never = !prefix || !strcmp(scheme, "never"), first = !strcmp(scheme, "first");
    if (!*mark || text_utf8_next(mark, strlen(mark), &used) < 0 || mark[used])
        return zinf_fail(-EINVAL, "%s: Metaspace's \"replacement\" is not one character", what);
    if (!never && !first && strcmp(scheme, "always"))
        return zinf_fail(-ENOTSUP, "%s: Metaspace's \"prepend_scheme\" \"%.50s\" is not supported",
                         what, scheme);
    strcpy(stage->mark, mark);
    stage->replace_spaces = true;
    stage->prepend = never ? TEXT_PREPEND_NEVER : first ? TEXT_PREPEND_FIRST : TEXT_PREPEND_ALWAYS;
    stage->behavior = TEXT_MERGED_WITH_NEXT;
    return split ? text_pattern_compile(&stage->code, mark, TEXT_PATTERN_LITERAL, what) : 0;
}

static int read_split(struct text_stage *stage, const cJSON *object, const char *what)
{
    int code = read_behavior(stage, object, what);
    code = code ? code : zinf_json_bool(object, what, "invert", &stage->invert);
    return code ? code : text_json_read_pattern(&stage->code, object, what);
}

/* A stage that cuts at the characters of a set. */
static int read_set(struct text_stage *stage, const char *notation, enum text_behavior behavior,
                    const char *what)
{
    struct text_buffer class = {0};
    int code = text_set_as_class(notation, &class);
    code = code ? code : text_buffer_add(&class, "", 1);
    if (!code)
        code = text_pattern_compile(&stage->code, class.bytes, TEXT_PATTERN_OWN, what);
    text_buffer_free(&class);
    stage->behavior = behavior;
    return code;
}

static int read_whitespace(struct text_stage *stage, const char *what)
{
    char pattern[512];
    snprintf(pattern, sizeof pattern, "[%s]+|[^%s\\s]+", text_word_members, text_word_members);
    stage->behavior = TEXT_REMOVED;
    stage->invert = true;
    return text_pattern_compile(&stage->code, pattern, TEXT_PATTERN_EXPRESSION, what);
}

static int read_white_space_split(struct text_stage *stage, const char *what)
{
    stage->behavior = TEXT_REMOVED;
    return text_pattern_compile(&stage->code, "\\s", TEXT_PATTERN_EXPRESSION, what);
}

static int read_digits(struct text_stage *stage, const cJSON *object, const char *what)
{
    bool individual = false;
    int code = zinf_json_bool(object, what, "individual_digits", &individual);
    stage->behavior = individual ? TEXT_ISOLATED : TEXT_CONTIGUOUS;
    return code ? code
                : text_pattern_compile(&stage->code, "\\p{N}", TEXT_PATTERN_EXPRESSION, what);
}

static struct text_stage *next_stage(struct zinf_tokenizer *tokenizer, const char *what)
{
    if (tokenizer->n_stages < TEXT_MAX_STAGES)
        return &tokenizer->stages[tokenizer->n_stages++];
    zinf_fail(-ENOTSUP, "%s: more than %d pre-tokenizers", what, TEXT_MAX_STAGES);
    return NULL;
}

/* Splits at spaces where a normalizer has left none: the whole piece is the part. */
static bool never_splits(const struct zinf_tokenizer *tokenizer, const cJSON *object)
{
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(object, "pattern");
    const cJSON *string = cJSON_GetObjectItemCaseSensitive(pattern, "String");
    const cJSON *invert = cJSON_GetObjectItemCaseSensitive(object, "invert");
    return tokenizer->normalizers.no_spaces && is_type(object, "Split") && cJSON_IsString(string) &&
           !strcmp(string->valuestring, " ") && !cJSON_IsTrue(invert);
}

static int read_stage(struct zinf_tokenizer *tokenizer, const cJSON *object, const char *what)
{
    const char *type = "none";
    int code = zinf_json_string(object, what, "type", &type);
    if (!code && never_splits(tokenizer, object))
        return 0;
    struct text_stage *stage = code ? NULL : next_stage(tokenizer, what);
    if (!stage)
        return code ? code : -ENOTSUP;
    if (!strcmp(type, "ByteLevel"))
        return read_byte_level(stage, object, what);
    if (!strcmp(type, "Metaspace"))
        return read_metaspace(stage, object, what);
    if (!strcmp(type, "Split"))
        return read_split(stage, object, what);
    if (!strcmp(type, "Whitespace"))
        return read_whitespace(stage, what);
    if (!strcmp(type, "WhitespaceSplit"))
        return read_white_space_split(stage, what);
    if (!strcmp(type, "Digits"))
        return read_digits(stage, object, what);
    if (!strcmp(type, "Punctuation")) {
        code = read_behavior(stage, object, what);
        return code ? code : read_set(stage, text_set_punctuation, stage->behavior, what);
    }
    if (strcmp(type, "BertPreTokenizer"))
        return zinf_fail(-ENOTSUP, "%s: the pre-tokenizer \"%.50s\" is not supported", what, type);
    code = read_white_space_split(stage, what);
    stage = code ? NULL : next_stage(tokenizer, what);
    return code     ? code
           : !stage ? -ENOTSUP
                    : read_set(stage, text_set_punctuation, TEXT_ISOLATED, what);
}

int text_json_read_pre_tokenizer(struct zinf_tokenizer *tokenizer, const cJSON *json,
                                 const char *what)
{
    const cJSON *member =
        json && !cJSON_IsNull(json) ? text_json_first(json, "pretokenizers") : NULL;
    int code = 0, spelled = -1;
    for (; member && !code; member = text_json_next(json, member)) {
        code = read_stage(tokenizer, member, what);
        if (code || !is_type(member, "ByteLevel"))
            continue;
        if (spelled >= 0)
            return zinf_fail(-ENOTSUP, "%s: the pre-tokenizer ByteLevel twice is not supported",
                             what);
        spelled = tokenizer->n_stages - 1;
    }
    /* Merges are kept in bytes: pieces are spelled only where a stage still looks at them. */
    if (!code && spelled >= 0 && tokenizer->bpe.alphabet) {
        tokenizer->respell = spelled < tokenizer->n_stages - 1;
        tokenizer->stages[spelled].spell = tokenizer->respell;
    }
    return code;
}
