/* frame_json: the "post_processor" of a tokenizer.json. */
#include "text/tokenizer/tokenizer_json.h"

#include <stdlib.h>

static int check_id(const cJSON *number, const char *what, int32_t *id)
{
    double value = cJSON_IsNumber(number) ? number->valuedouble : -1;
    if (!(value >= 0 && value <= TEXT_MAX_ID) || value != (int32_t)value)
        return zinf_fail(-EINVAL, "%s: an id of the post-processor is not an integer in 0 .. %u",
                         what, TEXT_MAX_ID);
    *id = (int32_t)value;
    return 0;
}

/* ---- TemplateProcessing ---- */

static int add_special(struct text_frame *frame, const cJSON *ids, int32_t type, const char *what)
{
    struct text_frame_part part = {-1, NULL, 0, type};
    const cJSON *id;
    int code = 0;
    if (!cJSON_IsArray(ids))
        return zinf_fail(-EINVAL, "%s: a template's special token has no \"ids\"", what);
    part.ids = malloc(((size_t)cJSON_GetArraySize(ids) + 1) * sizeof *part.ids);
    if (!part.ids)
        return zinf_fail(-ENOMEM, "%s: no memory for a template", what);
    for (id = ids->child; id && !code; id = id->next)
        code = check_id(id, what, &part.ids[part.n_ids++]);
    if (code) {
        free(part.ids);
        return code;
    }
    return text_frame_add(frame, part);
}

static int read_part(struct text_frame *frame, const cJSON *item, const cJSON *tokens, int n,
                     const char *what)
{
    const cJSON *special = cJSON_GetObjectItemCaseSensitive(item, "SpecialToken");
    const cJSON *sequence = cJSON_GetObjectItemCaseSensitive(item, "Sequence");
    const cJSON *body = special ? special : sequence;
    const char *id = "";
    int64_t type = 0;
    int code = zinf_json_string(body, what, "id", &id);
    code = code ? code : zinf_json_int(body, what, "type_id", &type);
    if (code)
        return code;
    if (special)
        return add_special(
            frame,
            cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(tokens, id), "ids"),
            (int32_t)type, what);
    int which = !strcmp(id, "A") ? 0 : !strcmp(id, "B") ? 1 : n;
    if (!sequence || which >= n)
        return zinf_fail(-EINVAL, "%s: a template's part is neither a token nor a sequence", what);
    return text_frame_add(frame, (struct text_frame_part){which, NULL, 0, (int32_t)type});
}

static int read_template(struct zinf_tokenizer *tokenizer, const cJSON *json, const char *what)
{
    static const char *const names[] = {"single", "pair"};
    const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(json, "special_tokens"), *item;
    int code = 0;
    for (int i = 0; i < 2 && !code; i++) {
        const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, names[i]);
        if (!cJSON_IsArray(list))
            return zinf_fail(-EINVAL, "%s: TemplateProcessing has no list \"%s\"", what, names[i]);
        for (item = list->child; item && !code; item = item->next)
            code = read_part(&tokenizer->frames[i], item, tokens, i + 1, what);
    }
    return code;
}

/* ---- BertProcessing, RobertaProcessing ---- */

static int read_token(const cJSON *json, const char *what, const char *key, int32_t *id)
{
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!cJSON_IsArray(pair) || cJSON_GetArraySize(pair) != 2)
        return zinf_fail(-EINVAL, "%s: the post-processor's \"%s\" is not a token and its id", what,
                         key);
    return check_id(pair->child->next, what, id);
}

static int add_id(struct text_frame *frame, int32_t id, int32_t type)
{
    struct text_frame_part part = {-1, malloc(sizeof id), 1, type};
    if (!part.ids)
        return zinf_fail(-ENOMEM, "no memory for a template");
    part.ids[0] = id;
    return text_frame_add(frame, part);
}

/* [CLS] A [SEP], and B [SEP] of type 1; or <s> A </s> and </s> B </s>, all of type 0. */
static int read_bert(struct zinf_tokenizer *tokenizer, const cJSON *json, bool roberta,
                     const char *what)
{
    int32_t cls, sep, type = roberta ? 0 : 1;
    int code = read_token(json, what, "cls", &cls);
    code = code ? code : read_token(json, what, "sep", &sep);
    for (int i = 0; i < 2 && !code; i++) {
        struct text_frame *frame = &tokenizer->frames[i];
        code = add_id(frame, cls, 0);
        code = code ? code : text_frame_add(frame, (struct text_frame_part){0, NULL, 0, 0});
        code = code ? code : add_id(frame, sep, 0);
        if (!code && i && roberta)
            code = add_id(frame, sep, 0);
        if (!code && i)
            code = text_frame_add(frame, (struct text_frame_part){1, NULL, 0, type});
        if (!code && i)
            code = add_id(frame, sep, type);
    }
    return code;
}

int text_json_read_frame(struct zinf_tokenizer *tokenizer, const cJSON *json, const char *what)
{
    int code = 0;
    if (!json || cJSON_IsNull(json))
        return 0;
    const cJSON *member = text_json_first(json, "processors");
    for (; member && !code; member = text_json_next(json, member)) {
        const char *type = "of no type";
        code = zinf_json_string(member, what, "type", &type);
        if (code || !strcmp(type, "ByteLevel")) /* which only trims offsets */
            continue;
        if (tokenizer->framed)
            return zinf_fail(-ENOTSUP,
                             "%s: the post-processor \"%.50s\" after another is not "
                             "supported",
                             what, type);
        tokenizer->framed = true;
        bool roberta = !strcmp(type, "RobertaProcessing");
        if (!strcmp(type, "TemplateProcessing"))
            code = read_template(tokenizer, member, what);
        else if (roberta || !strcmp(type, "BertProcessing"))
            code = read_bert(tokenizer, member, roberta, what);
        else
            code = zinf_fail(-ENOTSUP, "%s: the post-processor \"%.50s\" is not supported", what,
                             type);
    }
    return code;
}
