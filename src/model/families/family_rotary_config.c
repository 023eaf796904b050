/*
 * family_rotary_config: config.json of a new model, in the form that every version of transformers
 * reads. Numbers that the caller gives replace those of the size; what hangs on them follows in
 * proportion.
 */
#include "model/families/family_rotary.h"

/* The size with the caller's numbers in it. */
static struct rotary_size choose(const struct rotary_size *size,
                                 const struct zinf_model_shape *shape)
{
    struct rotary_size s = *size;
    int64_t group = size->heads / size->kv_heads;
    if (shape->layers)
        s.layers = shape->layers;
    if (shape->hidden) {
        s.hidden = shape->hidden;
        s.ffn = (size->ffn * s.hidden / size->hidden + 15) / 16 * 16;
    }
    if (shape->heads) {
        s.heads = shape->heads;
        s.kv_heads = s.heads % group ? s.heads : s.heads / group;
    }
    if (s.head_dim && (shape->hidden || shape->heads))
        s.head_dim = s.hidden % s.heads ? s.head_dim : s.hidden / s.heads;
    if (shape->vocab) {
        s.vocab = shape->vocab;
        s.bos = s.eos = s.vocab - 1;
    }
    if (shape->context)
        s.context = shape->context;
    return s;
}

static int add_scaling(cJSON *config, const struct rotary_size *s)
{
    const struct family_number numbers[] = {
        {"factor", s->scaling},
        {"low_freq_factor", 1},
        {"high_freq_factor", 4},
        {"original_max_position_embeddings", 8192},
        {NULL, 0},
    };
    if (!(s->scaling > 0))
        return 0;
    cJSON *scaling = cJSON_AddObjectToObject(config, "rope_scaling");
    if (!scaling || !cJSON_AddStringToObject(scaling, "rope_type", "llama3"))
        return zinf_fail(-ENOMEM, "no memory for a configuration");
    return family_add_numbers(scaling, numbers);
}

static int add_switches(cJSON *config, const struct rotary_size *s, const struct rotary_traits *t)
{
    bool good = cJSON_AddStringToObject(config, "hidden_act", "silu") &&
                cJSON_AddBoolToObject(config, "tie_word_embeddings", s->tied);
    if (good && t->window == ROTARY_WINDOW_ALL)
        good = s->window ? cJSON_AddNumberToObject(config, "sliding_window", (double)s->window)
                         : cJSON_AddNullToObject(config, "sliding_window");
    return good ? 0 : zinf_fail(-ENOMEM, "no memory for a configuration");
}

int rotary_make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    const struct rotary_traits *t = family->traits;
    const char *names[32];
    size_t n = t->n_sizes < 32 ? t->n_sizes : 32, i;
    for (size_t k = 0; k < n; k++)
        names[k] = t->sizes[k].name;
    int code = family_find_size(shape, names, n, names[t->usual], &i);
    if (code)
        return code;
    struct rotary_size s = choose(&t->sizes[i], shape);
    const struct family_number numbers[] = {
        {"vocab_size", (double)s.vocab},
        {"hidden_size", (double)s.hidden},
        {"intermediate_size", (double)s.ffn},
        {ROTARY_LAYERS_KEY, (double)s.layers},
        {"num_attention_heads", (double)s.heads},
        {"num_key_value_heads", (double)s.kv_heads},
        {"max_position_embeddings", (double)s.context},
        {"rms_norm_eps", s.eps},
        {"initializer_range", 0.02},
        {"rope_theta", s.theta},
        {"bos_token_id", (double)s.bos},
        {"eos_token_id", (double)s.eos},
        {s.head_dim ? "head_dim" : NULL, (double)s.head_dim},
        {NULL, 0},
    };
    if ((code = family_add_numbers(config, numbers)) || (code = add_scaling(config, &s)) ||
        (code = rotary_add_experts(config, t, i, s.hidden)))
        return code;
    return add_switches(config, &s, t);
}
