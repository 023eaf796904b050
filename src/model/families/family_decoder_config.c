/*
 * family_decoder_config: config.json of a new model from a table of sizes: the counts under the
 * family's keys, then what every model of the family has, then what the size has.
 */
#include "model/families/family_decoder.h"

#include <stdlib.h>

enum { MOST_SIZES = 32 };

static int64_t in_proportion(int64_t ffn, int64_t hidden, int64_t was)
{
    return (ffn * hidden / was + 15) / 16 * 16;
}

/* The size's counts with the caller's in them. */
static struct family_counts choose(const struct family_counts *size,
                                   const struct zinf_model_shape *shape)
{
    struct family_counts c = *size;
    int64_t group = size->kv_heads ? size->heads / size->kv_heads : 1;
    if (shape->layers)
        c.layers = shape->layers;
    if (shape->hidden) {
        c.hidden = shape->hidden;
        c.ffn = in_proportion(size->ffn, c.hidden, size->hidden);
    }
    if (shape->heads) {
        c.heads = shape->heads;
        if (size->kv_heads)
            c.kv_heads = c.heads % group ? c.heads : c.heads / group;
    }
    if (c.head_dim && (shape->hidden || shape->heads) && c.hidden % c.heads == 0)
        c.head_dim = c.hidden / c.heads;
    if (shape->vocab)
        c.vocab = shape->vocab;
    if (shape->context)
        c.context = shape->context;
    return c;
}

/* The largest divisor of the width that is no more than the size's number of heads. */
static int64_t fitting_heads(const struct family_counts *c)
{
    int64_t heads = c->heads;
    while (heads > 1 && c->hidden % heads)
        heads--;
    return heads;
}

/* Heads are as wide as the hidden rows together, unless the family says how wide one is. */
static int check_heads(const struct family_counts *c, const struct zinf_model_shape *shape,
                       const char *size)
{
    const bool fits = c->head_dim || c->heads < 1 || c->hidden % c->heads == 0;
    if (fits || (!shape->hidden && !shape->heads))
        return 0;
    const long long hidden = (long long)c->hidden, heads = (long long)c->heads;
    return zinf_fail(-EINVAL,
                     "a width of %lld is no multiple of %lld attention heads%s%s: with this width, "
                     "set the heads (--heads) to a divisor of it, such as %lld; with these heads, "
                     "set the width (--hidden) to a multiple of them, such as %lld",
                     hidden, heads, shape->heads ? "" : ", which are those of size ",
                     shape->heads ? "" : size, (long long)fitting_heads(c),
                     (hidden / heads + 1) * heads);
}

static int no_memory(void)
{
    return zinf_fail(-ENOMEM, "no memory for a configuration");
}

/* Puts an item under a key, in the place of one that is there; takes the item. */
static int put(cJSON *config, const char *key, cJSON *item)
{
    bool there = cJSON_GetObjectItemCaseSensitive(config, key) != NULL;
    bool good = item && (there ? cJSON_ReplaceItemInObjectCaseSensitive(config, key, item)
                               : cJSON_AddItemToObject(config, key, item));
    return good ? 0 : no_memory();
}

static int put_counts(cJSON *config, const struct family_keys *keys, const struct family_counts *c)
{
    const struct {
        const char *key;
        int64_t value;
    } list[] = {
        {keys->vocab, c->vocab},       {keys->hidden, c->hidden},   {keys->ffn, c->ffn},
        {keys->layers, c->layers},     {keys->heads, c->heads},     {keys->kv_heads, c->kv_heads},
        {keys->head_dim, c->head_dim}, {keys->context, c->context},
    };
    int code = 0;
    for (size_t i = 0; !code && i < sizeof list / sizeof *list; i++)
        if (list[i].key && list[i].value)
            code = put(config, list[i].key, cJSON_CreateNumber((double)list[i].value));
    return code;
}

static int put_in_proportion(cJSON *config, const struct family_traits *t, int64_t hidden,
                             int64_t was)
{
    int code = 0;
    for (int i = 0; !code && i < 2 && t->in_proportion[i]; i++) {
        const char *key = t->in_proportion[i];
        double n = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(config, key));
        code = put(config, key, cJSON_CreateNumber((double)in_proportion((int64_t)n, hidden, was)));
    }
    return code;
}

static int put_text(cJSON *config, const char *text)
{
    cJSON *object = NULL;
    int code = text ? zinf_json_parse(text, strlen(text), "the table of sizes", 0, &object) : 0;
    while (!code && object && object->child) {
        cJSON *item = cJSON_DetachItemViaPointer(object, object->child);
        char *key = strdup(item->string);
        code = key ? put(config, key, item) : no_memory();
        free(key);
    }
    cJSON_Delete(object);
    return code;
}

/* A vocabulary of the caller's ends with its end of text; nothing pads. */
static int put_ids(cJSON *config, int64_t vocab)
{
    static const char *const ends[] = {"bos_token_id", "eos_token_id"};
    int code = 0;
    for (int i = 0; !code && i < 2; i++)
        code = put(config, ends[i], cJSON_CreateNumber((double)(vocab - 1)));
    return code ? code : put(config, "pad_token_id", cJSON_CreateNull());
}

int family_make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    const struct family_traits *t = family->traits;
    const char *names[MOST_SIZES];
    size_t n = t->n_sizes < MOST_SIZES ? t->n_sizes : MOST_SIZES, i;
    for (size_t k = 0; k < n; k++)
        names[k] = t->sizes[k].name;
    int code = family_find_size(shape, names, n, names[0], &i);
    if (code)
        return code;
    struct family_counts c = choose(&t->sizes[i].counts, shape);
    if ((code = check_heads(&c, shape, names[i])) || (code = put_counts(config, &t->keys, &c)) ||
        (code = put_text(config, t->always)) || (code = put_text(config, t->sizes[i].more)) ||
        (code = put_in_proportion(config, t, c.hidden, t->sizes[i].counts.hidden)))
        return code;
    return shape->vocab ? put_ids(config, shape->vocab) : 0;
}
