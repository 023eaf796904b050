/* model: from config.json to a family and its graph. */
#include "model/model.h"

#include "base/random.h"
#include "model/adapters/adapter.h"
#include "model/classes.h"
#include "model/freeze.h"
#include "model/heads.h"
#include "model/preference.h"
#include "model/quantize.h"
#include "model/range.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

struct zinf_model {
    const struct zinf_family *family;
    cJSON *config;
    char *folder; /* that it was read from; NULL: it was read from a file or a document */
    struct zinf_graph *graph;
    struct zinf_graph *whole; /* the graph with all shards; NULL: graph has them all */
    struct zinf_graph *part;  /* a graph of some stages only; NULL: graph is used */
    struct zinf_model_facts facts;
    float dropout; /* negative: as in config.json */
    bool join_tiles, packed, has_pairs;
    struct zinf_shards shards; /* .of is 0 if the model is not cut */
    struct quantize_choice quantize;
    struct adapter_choice *adapter;          /* NULL: none */
    struct freeze_choice *freeze;            /* NULL: none */
    struct zinf_model_preference preference; /* used if has_pairs */
};

/* ---- opening ---- */

static int read_family(struct zinf_model *m, const char *what)
{
    const char *type = NULL;
    int code = zinf_json_string(m->config, what, "model_type", &type);
    if (code)
        return code;
    if (!type)
        return zinf_fail(-EINVAL, "%s: no \"model_type\": is this a Hugging Face config.json?",
                         what);
    m->family = zinf_family_find(type);
    if (!m->family)
        return zinf_fail(-ENOTSUP, "%s: model_type \"%s\" is not supported; supported: %s", what,
                         type, zinf_family_names());
    snprintf(m->facts.family, sizeof m->facts.family, "%s", type);
    return 0;
}

static int read_file_dtype(struct zinf_model *m, const char *what)
{
    const char *name = NULL;
    int code = zinf_json_string(m->config, what, "torch_dtype", &name);
    if (!code)
        code = zinf_json_string(m->config, what, "dtype", &name);
    if (!code && name && zinf_dtype_parse(name, &m->facts.file_dtype))
        code = zinf_fail_in(-EINVAL, "%s: \"dtype\"", what);
    return code;
}

/* Refuses choices that change a finished graph and cannot handle shards. */
static int check_shards(const struct zinf_model *m, const struct zinf_graph *graph)
{
    const char *what = m->adapter && adapter_not_cut(m->adapter) ? adapter_not_cut(m->adapter)
                       : m->freeze                               ? "frozen tensors (zinf.freeze)"
                       : graph->shards.of != m->shards.of        ? "this family of models"
                                                                 : NULL;
    const char *in_turn = m->adapter                            ? "adapters"
                          : m->quantize.form != ZINF_FORM_PLAIN ? "quantised weights"
                                                                : NULL;
    if (!what && m->shards.in_turn && in_turn)
        return zinf_fail(-ENOTSUP,
                         "zinf.parts_in_turn: parts with %s are not visited one after the other; "
                         "remove the key",
                         in_turn);
    return what ? zinf_fail(-ENOTSUP,
                            "zinf.tensor_parts %u: %s cannot be cut into parts; remove the key",
                            m->shards.of, what)
                : 0;
}

/* Builds a graph by the present choices. */
static int build_one(struct zinf_model *m, const char *what, struct zinf_shards shards,
                     struct zinf_graph **out)
{
    const struct zinf_model_source source = {.family = m->family,
                                             .config = m->config,
                                             .what = what,
                                             .folder = m->folder,
                                             .dropout = m->dropout,
                                             .join_tiles = m->join_tiles,
                                             .packed = m->packed,
                                             .shards = shards};
    struct zinf_graph *graph = NULL;
    int code = zinf_graph_create(&graph);
    if (!code)
        code = m->family->build(graph, &m->facts, &source);
    if (!code)
        code = zinf_graph_finish(graph);
    if (!code && m->shards.of)
        code = check_shards(m, graph);
    if (!code && m->quantize.form != ZINF_FORM_PLAIN)
        code = quantize_graph(graph, &m->quantize, m->family->prefix);
    if (!code && m->quantize.form != ZINF_FORM_PLAIN)
        code = zinf_graph_finish(graph);
    if (!code && m->adapter)
        code =
            adapter_attach(graph, m->adapter,
                           m->family->module_prefix ? m->family->module_prefix : m->family->prefix);
    else if (!code && m->freeze)
        code = freeze_graph(graph, m->freeze, m->family->prefix);
    if (!code && m->has_pairs)
        code = preference_graph(graph, &m->preference);
    if (!code && (m->adapter || m->freeze || m->has_pairs))
        code = zinf_graph_finish(graph);
    if (code)
        zinf_graph_destroy(graph);
    else
        *out = graph;
    return code;
}

/* Builds a graph by the present choices and replaces the model's. */
static int build_graph(struct zinf_model *m, const char *what)
{
    struct zinf_shards all = m->shards;
    all.first = 0;
    all.n = all.of;
    struct zinf_graph *graph = NULL, *whole = NULL;
    int code = build_one(m, what, m->shards, &graph);
    if (!code && m->shards.n < m->shards.of)
        code = build_one(m, what, all, &whole);
    if (code) {
        zinf_graph_destroy(graph);
        return code;
    }
    zinf_graph_destroy(m->part);
    zinf_graph_destroy(m->graph);
    zinf_graph_destroy(m->whole);
    m->part = NULL;
    m->graph = graph;
    m->whole = whole;
    m->facts.form = m->quantize.form;
    m->facts.quantized_file = m->quantize.in_file;
    return 0;
}

static int from_json(struct zinf_model **out, const cJSON *config, const char *what,
                     const char *folder)
{
    if (!cJSON_IsObject(config))
        return zinf_fail(-EINVAL, "%s: not a JSON object", what);
    struct zinf_model *m = calloc(1, sizeof *m);
    if (!m)
        return zinf_fail(-ENOMEM, "no memory for a model");
    int code = 0;
    m->dropout = -1;
    m->config = cJSON_Duplicate(config, true);
    m->folder = folder ? strdup(folder) : NULL;
    if (!m->config || !m->folder != !folder)
        code = zinf_fail(-ENOMEM, "no memory for %s", what);
    if (!code)
        code = read_family(m, what);
    if (!code)
        code = read_file_dtype(m, what);
    if (!code)
        code = quantize_choice_read(&m->quantize, m->config, what);
    if (!code)
        code = build_graph(m, what);
    if (code)
        zinf_model_close(m);
    else
        *out = m;
    return code;
}

int zinf_model_from_json(struct zinf_model **out, const cJSON *config, const char *what)
{
    return from_json(out, config, what, NULL);
}

int zinf_model_open(struct zinf_model **out, const char *config_path)
{
    struct stat info;
    char *path = NULL;
    cJSON *config = NULL;
    if (!stat(config_path, &info) && S_ISDIR(info.st_mode)) {
        path = zinf_path_join(config_path, "config.json");
        if (!path)
            return -ENOMEM;
    }
    const char *file = path ? path : config_path;
    int code = zinf_json_read_file(file, MAX_CONFIG_BYTES, ZINF_JSON_STRICT, &config);
    if (code == -ENOENT)
        zinf_fail_in(code,
                     "--model %s: a Hugging Face model folder holds config.json and "
                     "*.safetensors (zinf init makes one)",
                     config_path);
    else if (code && !path)
        zinf_fail_in(code, "--model %s, which is no folder, is read as a config.json", config_path);
    if (!code)
        code = from_json(out, config, file, path ? config_path : NULL);
    cJSON_Delete(config);
    free(path);
    return code;
}

static void close_adapter(struct zinf_model *m)
{
    if (m->adapter)
        adapter_choice_fini(m->adapter);
    free(m->adapter);
    m->adapter = NULL;
}

static void close_freeze(struct zinf_model *m)
{
    if (m->freeze)
        freeze_choice_fini(m->freeze);
    free(m->freeze);
    m->freeze = NULL;
}

void zinf_model_close(struct zinf_model *m)
{
    if (!m)
        return;
    close_adapter(m);
    close_freeze(m);
    cJSON_Delete(m->config);
    zinf_graph_destroy(m->part);
    zinf_graph_destroy(m->graph);
    zinf_graph_destroy(m->whole);
    free(m->folder);
    free(m);
}

/* ---- changing ---- */

int zinf_model_join_tiles(struct zinf_model *m)
{
    m->join_tiles = true;
    return build_graph(m, "config.json");
}

int zinf_model_set_dropout(struct zinf_model *m, float p)
{
    m->dropout = p;
    return build_graph(m, "config.json");
}

int zinf_model_quantize(struct zinf_model *m, enum zinf_form form)
{
    if (m->quantize.in_file && form != m->quantize.form)
        return zinf_fail(-EINVAL, "the weights are quantised as %s already, and not as %s",
                         zinf_form_name(m->quantize.form), zinf_form_name(form));
    m->quantize.form = form;
    return build_graph(m, "config.json");
}

int zinf_model_set_packed(struct zinf_model *m)
{
    m->packed = true;
    return build_graph(m, "config.json");
}

int zinf_model_set_shards(struct zinf_model *m, const struct zinf_shards *shards)
{
    m->shards = *shards;
    return build_graph(m, "config.json");
}

int zinf_model_set_ranges(struct zinf_model *m, const struct zinf_ranges *ranges)
{
    zinf_graph_destroy(m->part);
    m->part = NULL;
    return graph_take_ranges(&m->part, m->graph, ranges);
}

void zinf_model_place_unit(struct zinf_model *m, uint32_t unit,
                           const struct zinf_unit_places *places)
{
    struct zinf_unit *u = &m->graph->units[unit];
    for (uint32_t i = 0; i < u->n_tensors; i++)
        u->tensors[i].offset = places->offsets[i];
    u->decay_elems = places->decay_elems;
    u->elems = places->elems;
}

uint32_t zinf_model_layers(const struct zinf_model *m, uint32_t *first)
{
    return graph_layers(m->graph, first);
}

int zinf_model_adapt(struct zinf_model *m, const cJSON *config, const char *what)
{
    close_adapter(m);
    struct adapter_choice *choice = calloc(1, sizeof *choice);
    int code = choice ? adapter_choice_init(choice, config, what)
                      : zinf_fail(-ENOMEM, "no memory for %s", what);
    if (code) {
        free(choice);
        return code;
    }
    m->adapter = choice;
    return build_graph(m, "config.json");
}

int zinf_model_freeze(struct zinf_model *m, const cJSON *patterns, const char *what)
{
    close_freeze(m);
    struct freeze_choice *choice = calloc(1, sizeof *choice);
    int code = choice ? freeze_choice_init(choice, patterns, what)
                      : zinf_fail(-ENOMEM, "no memory for %s", what);
    if (code) {
        free(choice);
        return code;
    }
    m->freeze = choice;
    return build_graph(m, "config.json");
}

int zinf_model_set_preference(struct zinf_model *m, const struct zinf_model_preference *preference)
{
    m->preference = *preference;
    m->has_pairs = true;
    return build_graph(m, "config.json");
}

const struct zinf_model_preference *zinf_model_preference(const struct zinf_model *m)
{
    return m->has_pairs ? &m->preference : NULL;
}

static bool takes_labels(const struct zinf_graph *graph)
{
    return graph->values[graph->targets].input == ZINF_INPUT_LABELS;
}

int zinf_model_set_classes(struct zinf_model *m, const struct zinf_model_classes *classes)
{
    int code = classes_write(m->config, m->family, classes);
    if (!code)
        code = build_graph(m, "config.json");
    if (!code && !takes_labels(m->graph))
        code = zinf_fail(-ENOTSUP, "models of the family %s have no head for classes",
                         m->family->model_type);
    return code;
}

int zinf_model_set_head(struct zinf_model *m, enum zinf_model_head head)
{
    static const char *const ends[] = {
        [ZINF_HEAD_MASKED] = "ForMaskedLM", [ZINF_HEAD_NONE] = "Model"};
    const bool tokens = head == ZINF_HEAD_TOKENS;
    if (head == ZINF_HEAD_USUAL)
        return 0;
    int code = heads_write(m->config, m->family, tokens ? NULL : ends[head], NULL);
    if (!code)
        code = build_graph(m, "config.json");
    if (!code && zinf_model_head(m) != (tokens ? ZINF_HEAD_USUAL : head))
        code = zinf_fail(-ENOTSUP, "models of the family %s have no head for %s",
                         m->family->model_type,
                         head == ZINF_HEAD_MASKED ? "masked tokens" : "embeddings");
    return code;
}

int zinf_model_set_layers(struct zinf_model **model, int64_t n)
{
    struct zinf_model *other = NULL;
    cJSON *config = cJSON_Duplicate((*model)->config, true);
    int code = config ? 0 : zinf_fail(-ENOMEM, "no memory for a model's configuration");
    if (!code) {
        const char *key = (*model)->family->layers_key;
        cJSON_DeleteItemFromObjectCaseSensitive(config, key);
        if (!cJSON_AddNumberToObject(config, key, (double)n))
            code = zinf_fail(-ENOMEM, "no memory for a model's configuration");
    }
    if (!code)
        code = zinf_model_from_json(&other, config, "config.json");
    cJSON_Delete(config);
    if (code)
        return code;
    other->dropout = (*model)->dropout;
    other->join_tiles = (*model)->join_tiles;
    other->quantize.form = (*model)->quantize.form;
    other->packed = (*model)->packed;
    other->shards = (*model)->shards;
    other->has_pairs = (*model)->has_pairs;
    other->preference = (*model)->preference;
    other->adapter = (*model)->adapter;
    other->freeze = (*model)->freeze;
    (*model)->adapter = NULL;
    (*model)->freeze = NULL;
    code = build_graph(other, "config.json");
    zinf_model_close(code ? other : *model);
    if (!code)
        *model = other;
    return code;
}

/* ---- asking ---- */

const struct zinf_graph *zinf_model_graph(const struct zinf_model *m)
{
    return m->part ? m->part : m->graph;
}

const struct zinf_graph *zinf_model_stages(const struct zinf_model *m)
{
    return m->graph;
}

const struct zinf_graph *zinf_model_whole(const struct zinf_model *m)
{
    return m->whole ? m->whole : m->graph;
}

const struct zinf_model_facts *zinf_model_facts(const struct zinf_model *m)
{
    return &m->facts;
}

const struct zinf_family *zinf_model_family(const struct zinf_model *m)
{
    return m->family;
}

const cJSON *zinf_model_config(const struct zinf_model *m)
{
    return m->config;
}

static uint64_t count_params(const struct zinf_model *m, bool trained_alone)
{
    const struct zinf_graph *graph = zinf_model_whole(m);
    uint64_t n = 0;
    for (uint32_t u = 0; u < graph->n_units; u++)
        for (uint32_t i = 0; i < graph->units[u].n_tensors; i++)
            if (graph->units[u].trained || !trained_alone)
                n += graph->units[u].tensors[i].elems;
    return n;
}

bool zinf_model_classifies(const struct zinf_model *m)
{
    return classes_are_in(m->config);
}

enum zinf_model_head zinf_model_head(const struct zinf_model *m)
{
    const enum zinf_model_head head = heads_in(m->config, m->family);
    if (m->graph->embeddings)
        return ZINF_HEAD_NONE;
    return m->family->masks && head == ZINF_HEAD_MASKED ? head : ZINF_HEAD_USUAL;
}

bool zinf_model_drops(const struct zinf_model *m, const char *name)
{
    static const char *const of_classes[] = {"pooler.", "classifier.", "score."};
    bool is = false;
    for (size_t i = 0; i < sizeof of_classes / sizeof *of_classes; i++)
        is |= !strncmp(name, of_classes[i], strlen(of_classes[i]));
    return is && zinf_model_head(m) != ZINF_HEAD_USUAL;
}

const char *zinf_config_class_name(const cJSON *config, int64_t number)
{
    return classes_name(config, number);
}

const char *zinf_model_class_name(const struct zinf_model *m, int64_t number)
{
    return classes_name(m->config, number);
}

uint64_t zinf_model_n_params(const struct zinf_model *m)
{
    return count_params(m, false);
}

uint64_t zinf_model_n_trained(const struct zinf_model *m)
{
    return count_params(m, true);
}

int zinf_model_adapter_config(const struct zinf_model *m, const char *base, cJSON **out)
{
    return adapter_describe(m->graph, m->adapter, base, out);
}

/* ---- new models ---- */

/* FNV-1a of a tensor's name, which numbers its stream of random numbers, so that initial weights do
 * not depend on the order of tensors. */
static uint64_t stream_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Turns numbers from -most to most into the logarithms of numbers from most / 1000 to most. */
static void make_logarithms(float *x, uint64_t n, float most)
{
    const float least = most / 1000;
    for (uint64_t i = 0; i < n; i++)
        x[i] = logf(least + (x[i] / most + 1) / 2 * (most - least));
}

void zinf_tensor_init_fill(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                           uint64_t seed, uint64_t first, uint64_t n, float *out)
{
    if (tensor->init == ZINF_INIT_NORMAL) {
        float std = piece->init_std != 0 ? piece->init_std : tensor->init_std;
        zinf_normal_fill(out, first, n, seed, stream_of(piece->name), 0, std);
        return;
    }
    if (tensor->init == ZINF_INIT_UNIFORM || tensor->init == ZINF_INIT_LOG_UNIFORM) {
        zinf_uniform_fill(out, first, n, seed, stream_of(piece->name), tensor->init_std);
        if (tensor->init == ZINF_INIT_LOG_UNIFORM)
            make_logarithms(out, n, tensor->init_std);
        return;
    }
    float value = tensor->init == ZINF_INIT_ONE     ? 1.0f
                  : tensor->init == ZINF_INIT_VALUE ? piece->init_std
                                                    : 0.0f;
    for (uint64_t i = 0; i < n; i++)
        out[i] = tensor->init == ZINF_INIT_LOG_COUNT ? logf((float)(first + i + 1)) : value;
}

int zinf_model_make_config(const struct zinf_model_shape *shape, enum zinf_dtype dtype, cJSON **out)
{
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    const struct zinf_family *family =
        shape->arch ? zinf_family_find(shape->arch) : zinf_family_default();
    if (!family)
        return zinf_fail(-ENOTSUP, "--arch %s is not supported; supported: %s", shape->arch,
                         zinf_family_names());
    cJSON *config = cJSON_CreateObject();
    cJSON *list = config ? cJSON_AddArrayToObject(config, "architectures") : NULL;
    if (!list) {
        cJSON_Delete(config);
        return zinf_fail(-ENOMEM, "no memory for a configuration");
    }
    cJSON_AddItemToArray(list, cJSON_CreateString(family->architecture));
    cJSON_AddStringToObject(config, "model_type", family->model_type);
    cJSON_AddStringToObject(config, "torch_dtype", dtypes[dtype]);
    int code = family->make_config(config, family, shape);
    if (code)
        cJSON_Delete(config);
    else
        *out = config;
    return code;
}
