/* normalizer_json: the "normalizer" of a tokenizer.json. */
#include "text/tokenizer/tokenizer_json.h"

#include <stdlib.h>

/* ---- one kind each ---- */

static int read_strip(struct text_normalizer *n, const cJSON *json, const char *what)
{
    n->left = n->right = true;
    int code = zinf_json_bool(json, what, "strip_left", &n->left);
    return code ? code : zinf_json_bool(json, what, "strip_right", &n->right);
}

static int read_content(struct text_normalizer *n, const cJSON *json, const char *what,
                        const char *key)
{
    const char *content = NULL;
    int code = zinf_json_string(json, what, key, &content);
    if (!code && !content)
        code = zinf_fail(-EINVAL, "%s: a normalizer has no \"%s\"", what, key);
    if (code)
        return code;
    n->content = strdup(content);
    return n->content ? 0 : zinf_fail(-ENOMEM, "%s: no memory for a normalizer", what);
}

static int read_precompiled(struct text_normalizer *n, const cJSON *json, const char *what)
{
    const char *base64 = NULL;
    int code = zinf_json_string(json, what, "precompiled_charsmap", &base64);
    if (!code && !base64)
        code = zinf_fail(-EINVAL, "%s: the normalizer Precompiled has no \"precompiled_charsmap\"",
                         what);
    return code ? code : text_charsmap_open(&n->map, base64, what);
}

static int read_bert(struct text_normalizer *n, const cJSON *json, const char *what)
{
    n->clean = n->chinese = n->lower = true;
    int code = zinf_json_bool(json, what, "clean_text", &n->clean);
    code = code ? code : zinf_json_bool(json, what, "handle_chinese_chars", &n->chinese);
    code = code ? code : zinf_json_bool(json, what, "lowercase", &n->lower);
    n->accents = n->lower;
    code = code ? code : zinf_json_bool(json, what, "strip_accents", &n->accents);
    code = code ? code : text_set_open(&n->control, text_set_control);
    code = code ? code : text_set_open(&n->marks, text_set_nonspacing);
    return code ? code : text_form_open(&n->form, "NFD");
}

static const struct {
    const char *name;
    enum text_normalizer_kind kind;
} kinds[] = {
    {"NFC", TEXT_NORMALIZE_FORM},
    {"NFD", TEXT_NORMALIZE_FORM},
    {"NFKC", TEXT_NORMALIZE_FORM},
    {"NFKD", TEXT_NORMALIZE_FORM},
    {"Lowercase", TEXT_NORMALIZE_LOWERCASE},
    {"StripAccents", TEXT_NORMALIZE_STRIP_ACCENTS},
    {"Strip", TEXT_NORMALIZE_STRIP},
    {"Prepend", TEXT_NORMALIZE_PREPEND},
    {"Replace", TEXT_NORMALIZE_REPLACE},
    {"Precompiled", TEXT_NORMALIZE_PRECOMPILED},
    {"BertNormalizer", TEXT_NORMALIZE_BERT},
    {"Nmt", TEXT_NORMALIZE_NMT},
    {"ByteLevel", TEXT_NORMALIZE_BYTE_LEVEL},
};

static int read_kind(struct text_normalizer *n, const cJSON *json, const char *type,
                     const char *what)
{
    size_t i = 0, n_kinds = sizeof kinds / sizeof *kinds;
    while (i < n_kinds && strcmp(kinds[i].name, type))
        i++;
    if (i == n_kinds)
        return zinf_fail(-ENOTSUP, "%s: the normalizer \"%.50s\" is not supported", what, type);
    n->kind = kinds[i].kind;
    int code = 0;
    switch (n->kind) {
    case TEXT_NORMALIZE_FORM:
        return text_form_open(&n->form, type);
    case TEXT_NORMALIZE_STRIP_ACCENTS:
        return text_set_open(&n->marks, text_set_marks);
    case TEXT_NORMALIZE_STRIP:
        return read_strip(n, json, what);
    case TEXT_NORMALIZE_PREPEND:
        return read_content(n, json, what, "prepend");
    case TEXT_NORMALIZE_REPLACE:
        code = read_content(n, json, what, "content");
        return code ? code : text_json_read_pattern(&n->code, json, what);
    case TEXT_NORMALIZE_PRECOMPILED:
        return read_precompiled(n, json, what);
    case TEXT_NORMALIZE_BERT:
        return read_bert(n, json, what);
    default:
        return 0;
    }
}

/* ---- where a passage may be cut ---- */

static enum text_cut cut_of_replace(const struct text_normalizer *n, const cJSON *json)
{
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(json, "pattern");
    const cJSON *string = cJSON_GetObjectItemCaseSensitive(pattern, "String");
    const cJSON *regex = cJSON_GetObjectItemCaseSensitive(pattern, "Regex");
    const char *text = cJSON_IsString(string) ? string->valuestring : "";
    size_t used = 0;
    if (!*n->content) /* may empty the first passage, which takes what is prepended */
        return TEXT_CUT_NOWHERE;
    if (cJSON_IsString(regex))
        return strcmp(regex->valuestring, " {2,}") ? TEXT_CUT_NOWHERE : TEXT_CUT_WORDS;
    if (*text)
        text_utf8_next(text, strlen(text), &used);
    if (used && !text[used]) /* one character cannot lie across a cut */
        return TEXT_CUT_LINES;
    return strchr(text, ' ') ? TEXT_CUT_NOWHERE : TEXT_CUT_WORDS;
}

static enum text_cut cut_of(const struct text_normalizer *n, const cJSON *json)
{
    switch (n->kind) {
    case TEXT_NORMALIZE_REPLACE:
        return cut_of_replace(n, json);
    case TEXT_NORMALIZE_STRIP:
    case TEXT_NORMALIZE_PREPEND:
    case TEXT_NORMALIZE_PRECOMPILED: /* may map a line feed to nothing */
        return TEXT_CUT_WORDS;
    default:
        return TEXT_CUT_LINES;
    }
}

static bool leaves_no_spaces(const struct text_normalizer *n, const cJSON *json)
{
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(json, "pattern");
    const cJSON *string = cJSON_GetObjectItemCaseSensitive(pattern, "String");
    return n->kind == TEXT_NORMALIZE_REPLACE && cJSON_IsString(string) &&
           !strcmp(string->valuestring, " ") && !strchr(n->content, ' ');
}

int text_json_read_normalizer(struct text_normalizers *normalizers, const cJSON *json,
                              const char *what)
{
    int code = 0;
    normalizers->cut = TEXT_CUT_LINES;
    if (!json || cJSON_IsNull(json))
        return 0;
    normalizers->items = calloc(TEXT_MAX_NORMALIZERS, sizeof *normalizers->items);
    if (!normalizers->items)
        return zinf_fail(-ENOMEM, "%s: no memory for normalizers", what);
    const cJSON *member = text_json_first(json, "normalizers");
    for (; member && !code; member = text_json_next(json, member)) {
        const char *type = "none";
        code = zinf_json_string(member, what, "type", &type);
        if (!code && normalizers->count == TEXT_MAX_NORMALIZERS)
            code = zinf_fail(-ENOTSUP, "%s: more than %d normalizers", what, TEXT_MAX_NORMALIZERS);
        if (code)
            return code;
        struct text_normalizer *n = &normalizers->items[normalizers->count++];
        code = read_kind(n, member, type, what);
        enum text_cut cut = code ? TEXT_CUT_NOWHERE : cut_of(n, member);
        normalizers->cut = cut < normalizers->cut ? cut : normalizers->cut;
        normalizers->no_spaces = !code && leaves_no_spaces(n, member);
    }
    return code;
}
