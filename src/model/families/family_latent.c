/* family_latent: latent attention (DeepSeek-AI, arXiv 2405.04434) from config.json. */
#include "model/families/family_described.h"

#include <math.h>
#include <string.h>

/* By how much YaRN lengthens queries and keys, which here is said of the scores. */
static int read_magnitude(const struct zinf_model_source *source, double *out)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    const cJSON *object = NULL;
    const char *kind = "default";
    double mscale = 0, factor = 1;
    int code = 0;
    *out = 1;
    for (int i = 0; i < 2 && !cJSON_IsObject(object); i++)
        object = cJSON_GetObjectItemCaseSensitive(source->config, names[i]);
    if (!cJSON_IsObject(object))
        return 0;
    if ((code = zinf_json_string(object, source->what, "type", &kind)) ||
        (code = zinf_json_string(object, source->what, "rope_type", &kind)) ||
        (code = zinf_json_double(object, source->what, "mscale_all_dim", &mscale)) ||
        (code = zinf_json_double(object, source->what, "factor", &factor)))
        return code;
    if (strcmp(kind, "default") && mscale != 0 && factor > 1)
        *out = 0.1 * mscale * log(factor) + 1;
    return 0;
}

int latent_read(const struct zinf_model_source *source, const struct described_latent *of,
                struct decoder *d)
{
    static const char q_key[] = "q_lora_rank";
    struct attention_spec *a = &d->attention;
    struct latent_spec *l = &a->latent;
    const bool no_rank = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(source->config, q_key));
    const struct family_int list[] = {
        {no_rank ? "kv_lora_rank" : q_key, no_rank ? &l->kv_rank : &l->q_rank},
        {"kv_lora_rank", &l->kv_rank},
        {"qk_nope_head_dim", &l->plain},
        {"qk_rope_head_dim", &l->rotated},
        {"v_head_dim", &l->value},
        {NULL, NULL},
    };
    double magnitude;
    *l = (struct latent_spec){no_rank ? 0 : of->q_rank, of->kv_rank, .plain = of->plain,
                              .rotated = of->rotated};
    l->value = of->value;
    int code = family_read_ints(source, list);
    if (!code)
        code = read_magnitude(source, &magnitude);
    if (code)
        return code;
    const int64_t most = 1 << 16, keys = l->plain + l->rotated;
    if (l->q_rank < (no_rank ? 0 : 1) || l->q_rank > most || l->kv_rank < 1 || l->kv_rank > most ||
        l->plain < 0 || l->plain > most || l->rotated < 2 || l->rotated % 2 || l->rotated > most ||
        l->value < 1 || l->value > most)
        return zinf_fail(-EINVAL,
                         "%s: latent attention of ranks %lld and %lld with heads of %lld and %lld "
                         "columns and values of %lld: that cannot be",
                         source->what, (long long)l->q_rank, (long long)l->kv_rank,
                         (long long)l->plain, (long long)l->rotated, (long long)l->value);
    a->n_kv_heads = a->n_heads;
    a->head_dim = keys > l->value ? keys : l->value;
    a->scale = (float)(magnitude * magnitude / sqrt((double)keys));
    return 0;
}

int latent_list(struct family_list *list, const struct decoder *d, bool biased)
{
    const struct attention_spec *a = &d->attention;
    const struct latent_spec *l = &a->latent;
    if (biased && !l->q_rank)
        return zinf_fail(-ENOTSUP, "%s: attention_bias is not supported where q_lora_rank is null",
                         d->what);
    const int64_t queries = a->n_heads * (l->plain + l->rotated), shared = l->kv_rank + l->rotated;
    family_add_matrix(list, DECODER_QKV_W,
                      l->q_rank ? "self_attn.q_a_proj.weight" : "self_attn.q_proj.weight",
                      l->q_rank ? l->q_rank : queries, d->hidden);
    family_add_matrix(list, DECODER_QKV_W, "self_attn.kv_a_proj_with_mqa.weight", shared,
                      d->hidden);
    if (l->q_rank)
        family_add_matrix(list, DECODER_LATENT_Q_W, "self_attn.q_b_proj.weight", queries,
                          l->q_rank);
    family_add_matrix(list, DECODER_LATENT_KV_W, "self_attn.kv_b_proj.weight",
                      a->n_heads * (l->plain + l->value), l->kv_rank);
    family_add_matrix(list, DECODER_PROJ_W, "self_attn.o_proj.weight", d->hidden,
                      a->n_heads * l->value);
    if (l->q_rank)
        family_add_vector(list, DECODER_Q_NORM, "self_attn.q_a_layernorm.weight", l->q_rank,
                          ZINF_INIT_ONE);
    family_add_vector(list, DECODER_K_NORM, "self_attn.kv_a_layernorm.weight", l->kv_rank,
                      ZINF_INIT_ONE);
    if (!biased)
        return 0;
    family_add_vector(list, DECODER_QKV_B, "self_attn.q_a_proj.bias", l->q_rank, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_QKV_B, "self_attn.kv_a_proj_with_mqa.bias", shared,
                      ZINF_INIT_ZERO);
    return 0;
}
