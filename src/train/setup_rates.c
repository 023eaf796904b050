/*
 * setup_rates: optimizer, learning rate and weight decay by tensor: zinf.learning_rates, by
 * patterns over names, and zinf.layer_decay, by how far from the end of the model a layer is (Clark
 * et al., arXiv 2003.10555). Where neither is given nothing is kept, and all of a unit is updated
 * alike.
 */
#include "train/setup_rates.h"
#include "model/tensors.h"

#include <fnmatch.h>
#include <stdlib.h>

static const char key[] = "zinf.learning_rates";

/* ---- layers ---- */

/* Stems of names up to their first number, "a.b.3", in the order of units: layers, from 1 on. */
struct layers {
    char (*stems)[128];
    uint32_t n, most;
};

/* Length of the stem; 0: the name has none. */
static size_t stem_length(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits && dot[1 + digits] == '.')
            return (size_t)(dot - name) + 1 + digits;
    }
    return 0;
}

/* The layer's number, which is given to what is met for the first time; 0: it is in none. */
static uint32_t layer_of(struct layers *l, const char *name)
{
    size_t n = stem_length(name);
    if (!n || n >= sizeof *l->stems)
        return 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (strlen(l->stems[i]) == n && !strncmp(l->stems[i], name, n))
            return i + 1;
    if (l->n == l->most)
        return 0;
    snprintf(l->stems[l->n], sizeof *l->stems, "%.*s", (int)n, name);
    return ++l->n;
}

/* What is before the first layer is one further away, what is behind the last one is not decayed:
 * depth counts from the beginning, -1 is the end. */
static void find_depths(const struct setup *s, struct layers *l, int64_t **depths)
{
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; i < s->graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &s->graph->units[u].tensors[i];
            uint32_t layer = t->n_pieces ? layer_of(l, t->pieces[0].name) : 0;
            depths[u][i] = layer ? (int64_t)layer : l->n ? -1 : 0;
        }
}

static void decay_layers(struct setup *s, const struct layers *l, int64_t **depths)
{
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; i < s->graph->units[u].n_tensors; i++) {
            int64_t away = depths[u][i] < 0 ? 0 : (int64_t)l->n + 1 - depths[u][i];
            for (int64_t k = 0; k < away; k++)
                s->rates[u][i].scale *= s->config->layer_decay;
        }
}

static int apply_layer_decay(struct setup *s)
{
    uint32_t most = 0;
    int code = 0;
    int64_t **depths = calloc(s->n_units, sizeof *depths);
    for (uint32_t u = 0; depths && u < s->n_units; u++) {
        most += s->graph->units[u].n_tensors;
        depths[u] = calloc(s->graph->units[u].n_tensors, sizeof **depths);
        code = depths[u] ? code : -ENOMEM;
    }
    struct layers l = {.stems = calloc(most + 1, sizeof *l.stems), .most = most};
    if (depths && l.stems && !code) {
        find_depths(s, &l, depths);
        decay_layers(s, &l, depths);
    } else {
        code = zinf_fail(-ENOMEM, "no memory for rates of layers");
    }
    for (uint32_t u = 0; depths && u < s->n_units; u++)
        free(depths[u]);
    free(depths);
    free(l.stems);
    return code;
}

/* ---- patterns ---- */

static int bad_rule(const cJSON *rule)
{
    char *text = cJSON_PrintUnformatted(rule);
    int code = zinf_fail(-EINVAL,
                         "%s: %.100s: must be {\"pattern\": NAME, and \"lr\" or \"scale\", from 0 "
                         "on, \"weight_decay\", or \"optimizer\", or several of these}",
                         key, text ? text : "?");
    cJSON_free(text);
    return code;
}

static int check_rule(const struct setup *s, const cJSON *rule)
{
    const cJSON *member;
    bool named = false;
    int n_rates = 0, n = 0;
    if (!cJSON_IsObject(rule)) /* members of a list have no names */
        return bad_rule(rule);
    cJSON_ArrayForEach(member, rule)
    {
        bool pattern = !strcmp(member->string, "pattern"), lr = !strcmp(member->string, "lr");
        bool word = pattern || !strcmp(member->string, "optimizer");
        bool rate = lr || !strcmp(member->string, "scale");
        bool number = cJSON_IsNumber(member) && member->valuedouble >= 0;
        if (word ? !cJSON_IsString(member)
                 : !number || (!rate && strcmp(member->string, "weight_decay")))
            return bad_rule(rule);
        if (lr && !(s->config->optimizer.lr > 0))
            return zinf_fail(-EINVAL, "%s: \"lr\" is a share of optimizer.params.lr, which is 0",
                             key);
        named = named || pattern;
        n_rates += rate;
        n += !pattern;
    }
    return named && n && n_rates < 2 ? 0 : bad_rule(rule);
}

/* The number of the first rule for the piece's name, from 0 on; -1: none. */
static int rule_of(const struct setup *s, const cJSON *rules, const struct zinf_piece *piece)
{
    char name[192];
    int i = 0;
    const cJSON *rule;
    zinf_piece_name(piece, zinf_model_family(s->model)->prefix, name, sizeof name);
    cJSON_ArrayForEach(rule, rules)
    {
        const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(rule, "pattern");
        if (!fnmatch(pattern->valuestring, name, 0))
            return i;
        i++;
    }
    return -1;
}

static int apply_rule(struct setup *s, const cJSON *rule, struct tensor_rate *rate)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(rule, "optimizer");
    const cJSON *lr = cJSON_GetObjectItemCaseSensitive(rule, "lr");
    const cJSON *scale = cJSON_GetObjectItemCaseSensitive(rule, "scale");
    const cJSON *decay = cJSON_GetObjectItemCaseSensitive(rule, "weight_decay");
    if (lr)
        rate->scale = lr->valuedouble / s->config->optimizer.lr;
    if (scale)
        rate->scale *= scale->valuedouble;
    if (decay)
        rate->weight_decay = (float)decay->valuedouble;
    int number = type ? setup_add_optimizer(s, type->valuestring, key) : 0;
    if (type && number >= 0)
        rate->optimizer = (uint32_t)number;
    return number < 0 ? number : 0;
}

/* Of two rules, but for their patterns. */
static bool say_the_same(const cJSON *rules, int a, int b)
{
    static const char *const words[] = {"optimizer", "lr", "scale", "weight_decay"};
    bool same = a == b || (a >= 0 && b >= 0);
    for (size_t i = 0; a != b && same && i < sizeof words / sizeof *words; i++) {
        const cJSON *x = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(rules, a), words[i]);
        const cJSON *y = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(rules, b), words[i]);
        same = x && y ? cJSON_Compare(x, y, true) : x == y;
    }
    return same;
}

static int apply_to_tensor(struct setup *s, const cJSON *rules, uint32_t unit, uint32_t tensor,
                           bool *met)
{
    const struct zinf_tensor *t = &s->graph->units[unit].tensors[tensor];
    int which = t->n_pieces ? rule_of(s, rules, &t->pieces[0]) : -1;
    for (uint32_t p = 1; p < t->n_pieces; p++) {
        const int other = rule_of(s, rules, &t->pieces[p]);
        if (!say_the_same(rules, which, other))
            return zinf_fail(-ENOTSUP,
                             "%s: %s and %s are one tensor here and have one rate: give both the "
                             "same",
                             key, t->pieces[0].name, t->pieces[p].name);
        if (other >= 0)
            met[other] = true;
    }
    if (which < 0)
        return 0;
    met[which] = true;
    return apply_rule(s, cJSON_GetArrayItem(rules, which), &s->rates[unit][tensor]);
}

static int apply_rules(struct setup *s, const cJSON *rules)
{
    const cJSON *rule;
    int code = 0, i = 0;
    cJSON_ArrayForEach(rule, rules) code = code ? code : check_rule(s, rule);
    bool *met = calloc((size_t)cJSON_GetArraySize(rules) + 1, sizeof *met);
    if (!met)
        code = zinf_fail(-ENOMEM, "no memory for %s", key);
    for (uint32_t u = 0; !code && u < s->n_units; u++)
        for (uint32_t k = 0; !code && unit_trains(s, u) && k < s->graph->units[u].n_tensors; k++)
            code = apply_to_tensor(s, rules, u, k, met);
    cJSON_ArrayForEach(rule, rules)
    {
        const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(rule, "pattern");
        if (!code && !met[i++])
            code = zinf_fail(-EINVAL, "%s: \"%s\" is the first for no tensor that is trained", key,
                             pattern->valuestring);
    }
    free(met);
    return code;
}

/* ---- matrices ---- */

/* Whether the unit is a block's, or an expert's: at hand of stages that are computed again, or
 * visited by chosen rows; not a table's, a head's or a router's. */
static bool is_of_blocks(const struct setup *s, uint32_t unit)
{
    bool of = false;
    for (uint32_t i = 0; i < s->graph->n_stages; i++) {
        const struct zinf_stage *stage = &s->graph->stages[i];
        const struct zinf_ids *ids = stage->choice.n ? &stage->sweep : &stage->units;
        for (uint32_t k = 0; (stage->choice.n || stage->ops->recomputes) && k < ids->n; k++)
            of |= ids->at[k] == unit;
    }
    return of;
}

/* Where the run's optimizer is for matrices: AdamW, at a rate of its own, for all else. */
static int spread_matrices(struct setup *s)
{
    const struct zinf_config_optimizer *o = &s->config->optimizer;
    int other = setup_add_optimizer(s, "AdamW", "beside optimizer.type:");
    if (other < 0)
        return other;
    if (!(o->lr > 0) && o->adam_lr != o->lr)
        return zinf_fail(-EINVAL,
                         "optimizer.params.lr is 0: %s's, which adam_lr is a share of, "
                         "must be above 0",
                         o->type);
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; i < s->graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &s->graph->units[u].tensors[i];
            if (is_of_blocks(s, u) && t->decay && rule_is_matrix(s, u, t))
                continue;
            s->rates[u][i].optimizer = (uint32_t)other;
            s->rates[u][i].scale = o->adam_lr == o->lr ? 1 : o->adam_lr / o->lr;
        }
    return 0;
}

/* ---- all ---- */

static int take_rates(struct setup *s)
{
    s->rates = calloc(s->n_units, sizeof *s->rates);
    for (uint32_t u = 0; s->rates && u < s->n_units; u++) {
        const struct zinf_unit *unit = &s->graph->units[u];
        s->rates[u] = calloc(unit->n_tensors, sizeof **s->rates);
        for (uint32_t i = 0; s->rates[u] && i < unit->n_tensors; i++)
            s->rates[u][i] =
                (struct tensor_rate){1, unit->tensors[i].decay ? s->hyper.weight_decay : 0, 0};
        if (!s->rates[u])
            return zinf_fail(-ENOMEM, "no memory for learning rates");
    }
    return s->rates ? 0 : zinf_fail(-ENOMEM, "no memory for learning rates");
}

static int find_rates(struct setup *s)
{
    const char *text = s->config->learning_rates;
    bool decays = s->config->layer_decay != 1;
    cJSON *rules = NULL;
    bool spreads = s->grain == GRAIN_MATRICES;
    const char *given = text ? key : decays ? "zinf.layer_decay" : "optimizer.type";
    if (!trains(s) || (!text && !decays && !spreads))
        return setup_check_optimizers(s);
    int code = take_rates(s);
    if (!code && spreads)
        code = spread_matrices(s);
    if (!code && decays)
        code = apply_layer_decay(s);
    if (!code && text)
        code = zinf_json_parse(text, strlen(text), key, ZINF_JSON_STRICT, &rules);
    if (!code && text)
        code = apply_rules(s, rules);
    if (!code)
        code = setup_check_optimizers(s);
    for (uint32_t i = 0; !code && i < s->n_optimizers; i++)
        if (s->optimizers[i].rule->check_rates)
            code = s->optimizers[i].rule->check_rates(s, given);
    cJSON_Delete(rules);
    return code;
}

int setup_rates(struct setup *s)
{
    int code = find_rates(s);
    return code ? code : setup_name_optimizers(s);
}

void setup_free_rates(struct setup *s)
{
    for (uint32_t u = 0; s->rates && u < s->n_units; u++)
        free(s->rates[u]);
    free(s->rates);
    s->rates = NULL;
}
