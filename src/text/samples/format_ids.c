/*
 * format_ids: rows that are tokenised already, with the fields that transformers' collators give a
 * model: input_ids; labels, which repeat an id where the loss counts it and are negative elsewhere;
 * attention_mask, which is 0 at padding. Padding is left out. Other fields (position_ids,
 * token_type_ids) say nothing that causal models need.
 */
#include "text/samples/format.h"

/* A list of whole numbers; with n >= 0 of so many. NULL where the field is missing or null. */
static int find_list(const cJSON *row, const char *field, int n, const cJSON **out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(row, field);
    *out = NULL;
    if (!list || cJSON_IsNull(list))
        return 0;
    if (!cJSON_IsArray(list))
        return zinf_fail(-EINVAL, "\"%s\" is not a list of numbers", field);
    if (n >= 0 && cJSON_GetArraySize(list) != n)
        return zinf_fail(-EINVAL, "\"%s\" has %d numbers, and \"input_ids\" %d", field,
                         cJSON_GetArraySize(list), n);
    *out = list->child;
    return 0;
}

static int read_number(const cJSON *item, const char *field, int32_t *out)
{
    const double value = cJSON_IsNumber(item) ? item->valuedouble : 0.5;
    if (value < INT32_MIN || value > INT32_MAX || value != (int32_t)value)
        return zinf_fail(-EINVAL, "\"%s\" has an item that is no whole number of 32 bits", field);
    *out = (int32_t)value;
    return 0;
}

static int add_id(const cJSON *item, const cJSON *label, struct zinf_sample *sample)
{
    int32_t id, target = -1;
    int code = read_number(item, "input_ids", &id);
    if (!code && id < 0)
        code = zinf_fail(-EINVAL, "\"input_ids\" has the id %d: ids begin at 0", id);
    if (!code && label)
        code = read_number(label, "labels", &target);
    if (!code && label && target >= 0 && target != id)
        code = zinf_fail(-EINVAL,
                         "\"labels\" has %d where \"input_ids\" has %d: a label is the id at the "
                         "same place, or -100",
                         target, id);
    return code ? code
                : zinf_sample_add_ids(sample, &id, 1, !label || target >= 0 ? ZINF_MARK_COUNTS : 0);
}

int format_take_ids(struct zinf_format_recipe *r, const cJSON *row, struct zinf_sample *sample)
{
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(row, "input_ids"), *label, *shown;
    const int n = cJSON_IsArray(ids) ? cJSON_GetArraySize(ids) : 0;
    (void)r;
    if (!n)
        return zinf_fail(-EINVAL, "\"input_ids\" is not a list, or is empty");
    int code = find_list(row, "labels", n, &label);
    if (!code)
        code = find_list(row, "attention_mask", n, &shown);
    for (const cJSON *id = ids->child; !code && id; id = id->next) {
        int32_t mask = 1;
        if (shown)
            code = read_number(shown, "attention_mask", &mask);
        if (!code && mask)
            code = add_id(id, label, sample);
        label = label ? label->next : NULL;
        shown = shown ? shown->next : NULL;
    }
    return code;
}
