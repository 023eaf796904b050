/* model: config.json to family to graph. */
#include "model/model.h"

#include "model/build.h"

#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define TENSOR_ALIGN 64 /* elements: every tensor starts on a cache line in any dtype */
#define DECAY_ALIGN 256 /* elements: the blocks of 8-bit moments do not straddle the two parts */
#define TILE_ALIGN 64   /* rows of a vocabulary tile */

struct zinf_model {
    struct zinf_model_spec spec;
    const struct zinf_family *family;
    cJSON *config;
    struct zinf_graph *graph;
    struct zinf_model_facts facts;
    float dropout; /* < 0: as config says */
    bool join_tiles;
    struct zinf_unit_spec *units;
    int n_units, n_tiles, first_block;
};

static int check_range(const char *what, const char *name, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return 0;
    return zinf_fail(-EINVAL, "%s: %s is %lld; it must be between 1 and %lld", what, name,
                     (long long)value, (long long)most);
}

static int check_spec(const struct zinf_model_spec *s, const char *what)
{
    int code = 0;
    if ((code = check_range(what, "the number of layers", s->n_layers, 4096)) ||
        (code = check_range(what, "the hidden size", s->hidden, 1 << 20)) ||
        (code = check_range(what, "the feed-forward size", s->ffn, 1 << 22)) ||
        (code = check_range(what, "the vocabulary size", s->vocab, 1 << 24)) ||
        (code = check_range(what, "the context length", s->context, 1 << 24)))
        return code;
    const float drops[] = {s->embedding_dropout, s->residual_dropout, s->attention_dropout};
    for (int i = 0; i < 3; i++)
        if (!(drops[i] >= 0 && drops[i] < 1))
            return zinf_fail(-EINVAL, "%s: a dropout of %g is out of range; it must be in [0, 1)",
                             what, (double)drops[i]);
    return 0;
}

/* About a block's size, so that a slot that holds a block holds a tile; even tiles. */
static int64_t choose_tile_rows(const struct zinf_model_spec *s)
{
    int64_t qkv = (s->n_heads + 2 * s->n_kv_heads) * s->head_dim;
    int64_t block = s->hidden * (qkv + s->n_heads * s->head_dim + 2 * s->ffn);
    int64_t tiles = (s->vocab * s->hidden + block - 1) / block;
    int64_t rows = (s->vocab + tiles - 1) / tiles;
    return (rows + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
}

static void place_tensors(struct zinf_unit_spec *unit)
{
    uint64_t at = 0;
    for (int role = 0; role < ZINF_ROLES; role++)
        unit->offset_of[role] = -1;
    for (int decay = 1; decay >= 0; decay--) {
        for (int i = 0; i < unit->n_tensors; i++) {
            struct zinf_tensor_spec *t = &unit->tensors[i];
            if (t->decay != (bool)decay)
                continue;
            t->offset = at;
            t->elems = t->n_rows * (t->rank == 2 ? t->shape[1] : 1);
            unit->offset_of[t->role] = (int64_t)at;
            at = zinf_align_up(at + t->elems, TENSOR_ALIGN);
        }
        if (decay)
            at = unit->decay_elems = zinf_align_up(at, DECAY_ALIGN);
    }
    unit->elems = at;
}

static void describe(struct zinf_model *m, struct zinf_unit_spec *unit, enum zinf_unit_kind kind,
                     int64_t index)
{
    static const char *const names[] = {"table", "position", "block", "final"};
    unit->kind = kind;
    unit->index = index;
    snprintf(unit->name, sizeof unit->name, "%s.%lld", names[kind], (long long)index);
    m->family->describe_unit(&m->spec, unit);
    for (int i = 0; i < unit->n_tensors; i++) {
        struct zinf_tensor_spec *t = &unit->tensors[i];
        t->first_row = 0;
        t->n_rows = t->shape[0];
        if (kind == ZINF_UNIT_TABLE) {
            t->first_row = (uint64_t)(index * m->spec.tile_rows);
            uint64_t left = t->shape[0] - t->first_row;
            t->n_rows = left < (uint64_t)m->spec.tile_rows ? left : (uint64_t)m->spec.tile_rows;
        }
    }
    place_tensors(unit);
}

static int build_units(struct zinf_model *m)
{
    const struct zinf_model_spec *s = &m->spec;
    m->n_tiles = (int)((s->vocab + s->tile_rows - 1) / s->tile_rows);
    m->first_block = m->n_tiles + 1;
    m->n_units = m->first_block + (int)s->n_layers + 1;
    m->units = calloc((size_t)m->n_units, sizeof *m->units);
    if (!m->units)
        return zinf_fail(-ENOMEM, "no memory for %d units", m->n_units);
    for (int i = 0; i < m->n_tiles; i++)
        describe(m, &m->units[i], ZINF_UNIT_TABLE, i);
    describe(m, &m->units[m->n_tiles], ZINF_UNIT_POSITION, 0);
    for (int i = 0; i < (int)s->n_layers; i++)
        describe(m, &m->units[m->first_block + i], ZINF_UNIT_BLOCK, i);
    describe(m, &m->units[m->n_units - 1], ZINF_UNIT_FINAL, 0);
    return 0;
}

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
    snprintf(m->spec.family, sizeof m->spec.family, "%s", type);
    snprintf(m->facts.family, sizeof m->facts.family, "%s", type);
    return 0;
}

static int read_file_dtype(struct zinf_model *m, const char *what)
{
    const char *name = NULL;
    int code = zinf_json_string(m->config, what, "torch_dtype", &name);
    if (!code)
        code = zinf_json_string(m->config, what, "dtype", &name);
    if (!code && name && zinf_dtype_parse(name, &m->spec.file_dtype))
        code = zinf_fail_in(-EINVAL, "%s: \"dtype\"", what);
    m->facts.file_dtype = m->spec.file_dtype;
    return code;
}

/* Replaces the graph by one of the present choices. */
static int build_graph(struct zinf_model *m, const char *what)
{
    const struct zinf_model_source source = {m->config, what, m->dropout, m->join_tiles};
    struct zinf_graph *graph = NULL;
    int code = zinf_graph_create(&graph);
    if (!code)
        code = m->family->build(graph, &m->facts, &source);
    if (!code)
        code = zinf_graph_finish(graph);
    if (code) {
        zinf_graph_destroy(graph);
        return code;
    }
    zinf_graph_destroy(m->graph);
    m->graph = graph;
    return 0;
}

/* The old description, for src/train. */
static int build_old(struct zinf_model *m, const char *what)
{
    int code;
    if (!m->family->read_config)
        return 0;
    if ((code = m->family->read_config(m->config, what, &m->spec)) ||
        (code = check_spec(&m->spec, what)))
        return code;
    m->spec.tile_rows = choose_tile_rows(&m->spec);
    return build_units(m);
}

int zinf_model_from_json(struct zinf_model **out, const cJSON *config, const char *what)
{
    if (!cJSON_IsObject(config))
        return zinf_fail(-EINVAL, "%s: not a JSON object", what);
    struct zinf_model *m = calloc(1, sizeof *m);
    if (!m)
        return zinf_fail(-ENOMEM, "no memory for a model");
    int code = 0;
    m->dropout = -1;
    m->config = cJSON_Duplicate(config, true);
    if (!m->config) {
        code = zinf_fail(-ENOMEM, "no memory for %s", what);
        goto out;
    }
    if ((code = read_family(m, what)) || (code = read_file_dtype(m, what)) ||
        (code = build_graph(m, what)))
        goto out;
    code = build_old(m, what);
out:
    if (code)
        zinf_model_close(m);
    else
        *out = m;
    return code;
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
        code = zinf_model_from_json(out, config, file);
    cJSON_Delete(config);
    free(path);
    return code;
}

int zinf_model_join_tiles(struct zinf_model *m)
{
    m->join_tiles = true;
    int code = build_graph(m, "config.json");
    if (code || !m->family->read_config)
        return code;
    free(m->units);
    m->spec.tile_rows = (m->spec.vocab + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
    return build_units(m);
}

int zinf_model_set_dropout(struct zinf_model *m, float p)
{
    m->dropout = p;
    return build_graph(m, "config.json");
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
    zinf_model_close(*model);
    *model = other;
    return 0;
}

void zinf_model_close(struct zinf_model *m)
{
    if (!m)
        return;
    cJSON_Delete(m->config);
    zinf_graph_destroy(m->graph);
    free(m->units);
    free(m);
}

const struct zinf_graph *zinf_model_graph(const struct zinf_model *m)
{
    return m->graph;
}

const struct zinf_model_facts *zinf_model_facts(const struct zinf_model *m)
{
    return &m->facts;
}

const struct zinf_model_spec *zinf_model_spec(const struct zinf_model *m)
{
    return &m->spec;
}

const struct zinf_family *zinf_model_family(const struct zinf_model *m)
{
    return m->family;
}

const cJSON *zinf_model_config(const struct zinf_model *m)
{
    return m->config;
}

int zinf_model_n_units(const struct zinf_model *m)
{
    return m->n_units;
}

const struct zinf_unit_spec *zinf_model_unit(const struct zinf_model *m, int unit)
{
    return &m->units[unit];
}

int zinf_model_n_tiles(const struct zinf_model *m)
{
    return m->n_tiles;
}

int zinf_model_first_block(const struct zinf_model *m)
{
    return m->first_block;
}

uint64_t zinf_model_n_params(const struct zinf_model *m)
{
    uint64_t n = 0;
    for (uint32_t u = 0; u < m->graph->n_units; u++)
        for (uint32_t i = 0; i < m->graph->units[u].n_tensors; i++)
            n += m->graph->units[u].tensors[i].elems;
    return n;
}

/* FNV-1a: a stream number for a tensor's name, so that init does not depend on the order. */
static uint64_t stream_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static void fill(const char *name, enum zinf_init init, float std, uint64_t seed, uint64_t first,
                 uint64_t n, float *out)
{
    if (init == ZINF_INIT_NORMAL) {
        zinf_normal_fill(out, first, n, seed, stream_of(name), 0, std);
        return;
    }
    float value = init == ZINF_INIT_ONE ? 1.0f : 0.0f;
    for (uint64_t i = 0; i < n; i++)
        out[i] = value;
}

void zinf_tensor_init_fill(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                           uint64_t seed, uint64_t first, uint64_t n, float *out)
{
    fill(piece->name, tensor->init, tensor->init_std, seed, first, n, out);
}

void zinf_model_init_fill(const struct zinf_model *m, const struct zinf_tensor_spec *tensor,
                          uint64_t seed, uint64_t first, uint64_t n, float *out)
{
    (void)m;
    fill(tensor->name, tensor->init, tensor->init_std, seed, first, n, out);
}

/* ---- configuration of a new model ---- */

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
    int code = family->make_config(config, shape);
    if (code)
        cJSON_Delete(config);
    else
        *out = config;
    return code;
}
