/*
 * setup_frozen: what becomes of a model that is not trained itself: its weights quantised, adapters
 * beside them; and of the loss, where samples come in pairs, whose reference is what is frozen.
 */
#include "train/setup.h"

static enum zinf_form form_named(const char *word)
{
    static const enum zinf_form forms[] = {ZINF_FORM_NF4_DOUBLE, ZINF_FORM_INT8};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(word, zinf_form_name(forms[i])))
            return forms[i];
    return ZINF_FORM_PLAIN;
}

/* As the folder has it, or as is asked for. */
int setup_quantize(struct setup *s)
{
    enum zinf_form wanted = form_named(s->config->quantize);
    const struct zinf_model_facts *facts = zinf_model_facts(s->model);
    if (wanted == ZINF_FORM_PLAIN)
        return 0;
    if (facts->quantized_file && strcmp(zinf_form_name(wanted), zinf_form_name(facts->form)))
        return zinf_fail(
            -EINVAL, "zinf.quantize (--quantize) is %s, but the weights of %s are %s already",
            zinf_form_name(wanted), s->options.model_path, zinf_form_name(facts->form));
    return facts->quantized_file ? 0 : zinf_model_quantize(s->model, wanted);
}

/* What is quantised stays as it is. */
int setup_check_quantized(const struct setup *s)
{
    enum zinf_form form = zinf_model_facts(s->model)->form;
    if (form == ZINF_FORM_PLAIN || !has_backward(s) || is_adapted(s))
        return 0;
    return zinf_fail(-EINVAL,
                     "weights in %s are not trained themselves: train adapters above them "
                     "(--lora-rank, zinf.adapter), or leave out zinf.quantize (--quantize)",
                     zinf_form_name(form));
}

/* From a folder, else from the configuration; where both say something it must be the same. */
int setup_adapt(struct setup *s)
{
    static const char key[] = "zinf.adapter";
    const char *folder = s->options.adapter, *text = s->config->adapter;
    cJSON *given = NULL, *found = NULL;
    int code = 0;
    if (text)
        code = zinf_json_parse(text, strlen(text), key, ZINF_JSON_STRICT, &given);
    if (!code && folder)
        code = zinf_adapter_read_config(folder, &found);
    if (!code && (given || found))
        code = zinf_model_adapt(s->model, given ? given : found, given ? key : folder);
    if (!code && given && found)
        code = zinf_model_compare_adapter(s->model, found, folder);
    cJSON_Delete(given);
    cJSON_Delete(found);
    return code;
}

/* Without backward it makes no difference what is frozen. */
int setup_freeze(struct setup *s)
{
    static const char key[] = "zinf.freeze";
    const char *text = s->config->freeze;
    cJSON *patterns = NULL;
    if (!text || !has_backward(s))
        return 0;
    if (s->config->adapter || s->options.adapter)
        return zinf_fail(-EINVAL,
                         "%s: with adapters all of the model is frozen already: leave out "
                         "one of the two",
                         key);
    int code = zinf_json_parse(text, strlen(text), key, ZINF_JSON_STRICT, &patterns);
    if (!code)
        code = zinf_model_freeze(s->model, patterns, key);
    cJSON_Delete(patterns);
    return code;
}

static enum zinf_preference_kind preference_named(const char *word)
{
    static const char *const names[] = {"dpo", "ipo", "orpo", "simpo", "reward", "kto"};
    int kind = 0;
    while (kind + 1 < ZINF_PREFERENCES && strcmp(word, names[kind]))
        kind++;
    return (enum zinf_preference_kind)kind;
}

int setup_pairs(struct setup *s)
{
    const struct zinf_config *c = s->config;
    struct zinf_model_preference preference = {
        .kind = preference_named(c->preference),
        .beta = (float)c->preference_beta,
        .margin = (float)c->preference_margin,
        .smoothing = (float)c->label_smoothing,
        .center = (float)c->center_rewards_coefficient,
        .desirable = (float)c->desirable_weight,
        .undesirable = (float)c->undesirable_weight,
    };
    preference.in_chunks = setup_is_cut(s);
    preference.given = s->options.references && zinf_preference_has_reference(preference.kind);
    if (!s->options.pairs)
        return 0;
    if (preference.kind == ZINF_PREFERENCE_REWARD) {
        preference.beta = 1; /* scores are told as they are */
        if (trains(s) && (c->label_smoothing > 0 || c->z_loss > 0 || c->max_z_loss > 0))
            return zinf_fail(-EINVAL,
                             "zinf.label_smoothing, zinf.z_loss and zinf.max_z_loss have no part "
                             "in the loss of scores (zinf.preference \"reward\"): set them to 0");
        preference.smoothing = 0;
    }
    return zinf_model_set_preference(s->model, &preference);
}
