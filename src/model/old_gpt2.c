/*
 * family_gpt2: GPT-2 as Hugging Face writes it (Radford et al., 2019). Conv1D weights are stored
 * [in][out]; q, k and v are the three column blocks of c_attn; the head is the token table.
 * Residual projections start at std 0.02 / sqrt(2 n_layers).
 */
#include "model/family.h"

#include <math.h>
#include <stdio.h>

static int read_shape(const cJSON *config, const char *what, struct zinf_model_spec *spec)
{
    spec->n_layers = 12;
    spec->hidden = 768;
    spec->n_heads = 12;
    spec->vocab = 50257;
    spec->context = 1024;
    int64_t inner = 0;
    int code = 0;
    if ((code = zinf_json_int(config, what, "n_layer", &spec->n_layers)) ||
        (code = zinf_json_int(config, what, "n_embd", &spec->hidden)) ||
        (code = zinf_json_int(config, what, "n_head", &spec->n_heads)) ||
        (code = zinf_json_int(config, what, "vocab_size", &spec->vocab)) ||
        (code = zinf_json_int(config, what, "n_positions", &spec->context)) ||
        (code = zinf_json_int(config, what, "n_inner", &inner)))
        return code;
    spec->ffn = inner ? inner : 4 * spec->hidden;
    return 0;
}

static int read_activation(const cJSON *config, const char *what, struct zinf_model_spec *spec)
{
    static const struct {
        const char *name;
        enum zinf_activation kind;
    } table[] = {
        {"gelu_new", ZINF_ACTIVATION_GELU_TANH},  {"gelu_pytorch_tanh", ZINF_ACTIVATION_GELU_TANH},
        {"gelu_fast", ZINF_ACTIVATION_GELU_TANH}, {"gelu", ZINF_ACTIVATION_GELU_ERF},
        {"silu", ZINF_ACTIVATION_SILU},           {"swish", ZINF_ACTIVATION_SILU},
        {"relu", ZINF_ACTIVATION_RELU},
    };
    const char *name = "gelu_new";
    int code = zinf_json_string(config, what, "activation_function", &name);
    if (code)
        return code;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(name, table[i].name)) {
            spec->activation = table[i].kind;
            return 0;
        }
    return zinf_fail(-ENOTSUP,
                     "%s: activation_function \"%s\" is not supported; use gelu_new, gelu, silu "
                     "or relu",
                     what, name);
}

static int read_numbers(const cJSON *config, const char *what, struct zinf_model_spec *spec)
{
    double eps = 1e-5, std = 0.02, embedding = 0.1, residual = 0.1, attention = 0.1;
    bool scale = true, cross = false;
    int code = 0;
    spec->tied_head = true;
    spec->end_of_text = 50256 < spec->vocab ? 50256 : -1;
    if ((code = zinf_json_double(config, what, "layer_norm_epsilon", &eps)) ||
        (code = zinf_json_double(config, what, "initializer_range", &std)) ||
        (code = zinf_json_double(config, what, "embd_pdrop", &embedding)) ||
        (code = zinf_json_double(config, what, "resid_pdrop", &residual)) ||
        (code = zinf_json_double(config, what, "attn_pdrop", &attention)) ||
        (code = zinf_json_bool(config, what, "scale_attn_weights", &scale)) ||
        (code = zinf_json_bool(config, what, "scale_attn_by_inverse_layer_idx",
                               &spec->scale_by_inverse_layer)) ||
        (code = zinf_json_bool(config, what, "add_cross_attention", &cross)) ||
        (code = zinf_json_bool(config, what, "tie_word_embeddings", &spec->tied_head)))
        return code;
    const cJSON *eos = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id");
    if (cJSON_IsNumber(eos))
        spec->end_of_text = (int64_t)eos->valuedouble;
    if (!spec->tied_head)
        return zinf_fail(-ENOTSUP, "%s: tie_word_embeddings false is not supported for gpt2", what);
    if (cross)
        return zinf_fail(-ENOTSUP, "%s: add_cross_attention is not supported", what);
    if (eps <= 0 || std < 0)
        return zinf_fail(-EINVAL,
                         "%s: layer_norm_epsilon %g or initializer_range %g is out of "
                         "range",
                         what, eps, std);
    spec->norm_eps = (float)eps;
    spec->init_std = (float)std;
    spec->embedding_dropout = (float)embedding;
    spec->residual_dropout = (float)residual;
    spec->attention_dropout = (float)attention;
    spec->attention_scale = scale ? 1.0f / sqrtf((float)spec->head_dim) : 1.0f;
    return 0;
}

int old_gpt2_read_config(const cJSON *config, const char *what, struct zinf_model_spec *spec)
{
    int code = read_shape(config, what, spec);
    if (code)
        return code;
    if (spec->n_heads < 1 || spec->hidden < 1 || spec->hidden % spec->n_heads)
        return zinf_fail(-EINVAL, "%s: n_embd %lld must be a multiple of n_head %lld", what,
                         (long long)spec->hidden, (long long)spec->n_heads);
    spec->n_kv_heads = spec->n_heads;
    spec->head_dim = spec->hidden / spec->n_heads;
    spec->norm = ZINF_NORM_LAYER;
    code = read_activation(config, what, spec);
    return code ? code : read_numbers(config, what, spec);
}

struct row {
    enum zinf_role role;
    const char *name;
    uint64_t rows, cols; /* cols 0: a vector; else our [rows][cols], stored transposed */
    enum zinf_init init;
    float std;
};

static void add_rows(struct zinf_unit_spec *unit, const char *prefix, const struct row *rows,
                     size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        struct zinf_tensor_spec *t = &unit->tensors[unit->n_tensors++];
        snprintf(t->name, sizeof t->name, "%s%s", prefix, rows[i].name);
        t->role = rows[i].role;
        t->rank = rows[i].cols ? 2 : 1;
        t->transposed = rows[i].cols != 0;
        t->shape[0] = rows[i].cols ? rows[i].cols : rows[i].rows;
        t->shape[1] = rows[i].cols ? rows[i].rows : 1;
        t->decay = rows[i].cols != 0;
        t->init = rows[i].init;
        t->init_std = rows[i].std;
    }
}

static void describe_block(const struct zinf_model_spec *spec, struct zinf_unit_spec *unit)
{
    uint64_t h = (uint64_t)spec->hidden, f = (uint64_t)spec->ffn;
    float std = spec->init_std, out_std = std / sqrtf(2.0f * (float)spec->n_layers);
    char prefix[32];
    snprintf(prefix, sizeof prefix, "h.%lld.", (long long)unit->index);
    const struct row rows[] = {
        {ZINF_ROLE_QKV_W, "attn.c_attn.weight", 3 * h, h, ZINF_INIT_NORMAL, std},
        {ZINF_ROLE_PROJ_W, "attn.c_proj.weight", h, h, ZINF_INIT_NORMAL, out_std},
        {ZINF_ROLE_UP_W, "mlp.c_fc.weight", f, h, ZINF_INIT_NORMAL, std},
        {ZINF_ROLE_DOWN_W, "mlp.c_proj.weight", h, f, ZINF_INIT_NORMAL, out_std},
        {ZINF_ROLE_NORM1_W, "ln_1.weight", h, 0, ZINF_INIT_ONE, 0},
        {ZINF_ROLE_NORM1_B, "ln_1.bias", h, 0, ZINF_INIT_ZERO, 0},
        {ZINF_ROLE_QKV_B, "attn.c_attn.bias", 3 * h, 0, ZINF_INIT_ZERO, 0},
        {ZINF_ROLE_PROJ_B, "attn.c_proj.bias", h, 0, ZINF_INIT_ZERO, 0},
        {ZINF_ROLE_NORM2_W, "ln_2.weight", h, 0, ZINF_INIT_ONE, 0},
        {ZINF_ROLE_NORM2_B, "ln_2.bias", h, 0, ZINF_INIT_ZERO, 0},
        {ZINF_ROLE_UP_B, "mlp.c_fc.bias", f, 0, ZINF_INIT_ZERO, 0},
        {ZINF_ROLE_DOWN_B, "mlp.c_proj.bias", h, 0, ZINF_INIT_ZERO, 0},
    };
    add_rows(unit, prefix, rows, sizeof rows / sizeof *rows);
}

static void describe_table(const char *name, enum zinf_role role, uint64_t rows,
                           const struct zinf_model_spec *spec, struct zinf_unit_spec *unit)
{
    struct zinf_tensor_spec *t = &unit->tensors[unit->n_tensors++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->role = role;
    t->rank = 2;
    t->shape[0] = rows;
    t->shape[1] = (uint64_t)spec->hidden;
    t->decay = true;
    t->init = ZINF_INIT_NORMAL;
    t->init_std = spec->init_std;
}

void old_gpt2_describe_unit(const struct zinf_model_spec *spec, struct zinf_unit_spec *unit)
{
    uint64_t h = (uint64_t)spec->hidden;
    const struct row final[] = {
        {ZINF_ROLE_FINAL_W, "weight", h, 0, ZINF_INIT_ONE, 0},
        {ZINF_ROLE_FINAL_B, "bias", h, 0, ZINF_INIT_ZERO, 0},
    };
    switch (unit->kind) {
    case ZINF_UNIT_TABLE:
        describe_table("wte.weight", ZINF_ROLE_TABLE, (uint64_t)spec->vocab, spec, unit);
        break;
    case ZINF_UNIT_POSITION:
        describe_table("wpe.weight", ZINF_ROLE_POSITION, (uint64_t)spec->context, spec, unit);
        break;
    case ZINF_UNIT_BLOCK:
        describe_block(spec, unit);
        break;
    case ZINF_UNIT_FINAL:
        add_rows(unit, "ln_f.", final, sizeof final / sizeof *final);
        break;
    }
}
