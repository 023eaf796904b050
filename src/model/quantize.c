/*
 * quantize: the forms of a graph's tensors. As for adapters, which of them are linear layers is
 * learnt from the stages, whose code is run without a queue.
 */
#include "model/quantize.h"
#include "model/frame.h"

#include <stdio.h>

/* ---- config.json ---- */

static const char remedy[] =
    "take a folder with 16-bit weights, and set zinf.quantize (--quantize)";

static bool is_true(const cJSON *object, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static int read_method(const cJSON *quantized, const char *what, const char **method)
{
    *method = "bitsandbytes";
    int code = zinf_json_string(quantized, what, "quant_method", method);
    if (!code && strcmp(*method, "bitsandbytes") && strcmp(*method, "mxfp4") &&
        strcmp(*method, "fp8"))
        code = zinf_fail(-ENOTSUP,
                         "%s: quantization_config: quant_method \"%s\" is not supported, only "
                         "\"bitsandbytes\", \"mxfp4\" and \"fp8\": %s",
                         what, *method, remedy);
    return code;
}

static int read_4bit(struct quantize_choice *out, const cJSON *quantized, const char *what)
{
    const char *type = "fp4"; /* bitsandbytes' default */
    int code = zinf_json_string(quantized, what, "bnb_4bit_quant_type", &type);
    if (!code && strcmp(type, "nf4"))
        code = zinf_fail(-ENOTSUP,
                         "%s: quantization_config: bnb_4bit_quant_type \"%s\" is not supported, "
                         "only \"nf4\": %s",
                         what, type, remedy);
    out->form =
        is_true(quantized, "bnb_4bit_use_double_quant") ? ZINF_FORM_NF4_DOUBLE : ZINF_FORM_NF4;
    return code;
}

/* Scales are of blocks of 128 x 128, or of a whole matrix. */
static int read_fp8(struct quantize_choice *out, const cJSON *quantized, const char *what)
{
    const cJSON *block = cJSON_GetObjectItemCaseSensitive(quantized, "weight_block_size");
    out->form = ZINF_FORM_FP8;
    out->skip = cJSON_GetObjectItemCaseSensitive(quantized, "modules_to_not_convert");
    if (!block || cJSON_IsNull(block))
        return 0;
    const cJSON *rows = cJSON_GetArrayItem(block, 0), *cols = cJSON_GetArrayItem(block, 1);
    if (cJSON_GetArraySize(block) == 2 && cJSON_IsNumber(rows) && cJSON_IsNumber(cols) &&
        rows->valuedouble == ZINF_QUANT_FP8_BLOCK && cols->valuedouble == ZINF_QUANT_FP8_BLOCK)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: quantization_config: weight_block_size is not [%d, %d], which alone can "
                     "be read: %s",
                     what, ZINF_QUANT_FP8_BLOCK, ZINF_QUANT_FP8_BLOCK, remedy);
}

int quantize_choice_read(struct quantize_choice *out, const cJSON *config, const char *what)
{
    const cJSON *quantized = cJSON_GetObjectItemCaseSensitive(config, "quantization_config");
    *out = (struct quantize_choice){0};
    if (!quantized || cJSON_IsNull(quantized))
        return 0;
    if (!cJSON_IsObject(quantized))
        return zinf_fail(-EINVAL, "%s: quantization_config is no object", what);
    const char *method;
    int code = read_method(quantized, what, &method);
    if (code)
        return code;
    out->in_file = true;
    if (!strcmp(method, "mxfp4")) {
        out->form = ZINF_FORM_MXFP4;
        return 0;
    }
    if (!strcmp(method, "fp8"))
        return read_fp8(out, quantized, what);
    out->skip = cJSON_GetObjectItemCaseSensitive(quantized, "llm_int8_skip_modules");
    if (is_true(quantized, "load_in_4bit"))
        return read_4bit(out, quantized, what);
    out->form = ZINF_FORM_INT8;
    if (!is_true(quantized, "load_in_8bit"))
        code = zinf_fail(-EINVAL,
                         "%s: quantization_config: neither load_in_4bit nor load_in_8bit is true: "
                         "remove it where the weights are not quantised",
                         what);
    return code;
}

/* ---- the graph ---- */

struct quantizing {
    struct zinf_graph *graph;
    const struct quantize_choice *choice;
    const char *prefix;
    const struct zinf_stage *seen;
    int code;
};

/* As in transformers, which skips a model's last module: a head of classes is trained whole beside
 * adapters. path: a module, with a dot at its end. */
static bool is_of_head(const char *path)
{
    return !strncmp(path, "classifier.", 11) || !strncmp(path, "score.", 6);
}

/* Whether the tensor's module, or one that it is in, stays as it is: a head, or a name of the list.
 */
static bool is_skipped(const struct quantizing *p, const struct zinf_piece *piece)
{
    char path[192];
    const cJSON *item;
    snprintf(path, sizeof path, "%s%s.", piece->plain_name ? "" : p->prefix, piece->name);
    if (is_of_head(path))
        return true;
    cJSON_ArrayForEach(item, p->choice->skip)
    {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        size_t n = strlen(name);
        for (const char *at = n ? strstr(path, name) : NULL; at; at = strstr(at + 1, name))
            if ((at == path || at[-1] == '.') && at[n] == '.')
                return true;
    }
    return false;
}

/* Whether the unit has all rows of the piece's tensor of the file, which become one image. */
static bool has_whole(const struct zinf_unit *unit, const struct zinf_piece *wanted)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < unit->n_tensors; i++)
        for (uint32_t p = 0; p < unit->tensors[i].n_pieces; p++)
            if (!strcmp(unit->tensors[i].pieces[p].name, wanted->name))
                rows +=
                    unit->tensors[i].pieces[p].rows.rows * unit->tensors[i].pieces[p].rows.count;
    return rows == wanted->shape[wanted->transposed ? 1 : 0];
}

static int quantize_tensor(const struct quantizing *p, const struct zinf_unit *unit,
                           struct zinf_tensor *t)
{
    uint32_t n_skipped = 0;
    if (p->choice->form == ZINF_FORM_MXFP4 && !t->pieces[0].n_slabs)
        return 0;
    if (p->choice->form == ZINF_FORM_MXFP4 && t->cols % ZINF_QUANT_MX_BLOCK)
        return zinf_fail(-EINVAL, "%s in mxfp4 has %llu columns; they must be a multiple of %d",
                         t->pieces[0].name, (unsigned long long)t->cols, ZINF_QUANT_MX_BLOCK);
    if (p->choice->form == ZINF_FORM_FP8 && (t->pieces[0].n_slabs || t->pieces[0].transposed))
        return zinf_fail(-ENOTSUP,
                         "%s is not one matrix [out][in] of the file: it cannot be read in fp8: %s",
                         t->pieces[0].name, remedy);
    if (t->dealt)
        return zinf_fail(-ENOTSUP,
                         "%s has keys that zinf.tensor_parts share: it cannot be quantised; use "
                         "fewer parts",
                         t->pieces[0].name);
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        n_skipped += is_skipped(p, &t->pieces[i]);
        if (!t->cut && !has_whole(unit, &t->pieces[i]))
            return zinf_fail(-ENOTSUP, "%s is in several units: it cannot be quantised",
                             t->pieces[i].name);
    }
    if (n_skipped && n_skipped < t->n_pieces)
        return zinf_fail(-ENOTSUP,
                         "llm_int8_skip_modules names some of the modules beside %s, but not all: "
                         "they are one matrix here",
                         t->pieces[0].name);
    t->form = n_skipped ? ZINF_FORM_PLAIN : p->choice->form;
    return 0;
}

/* Tiles of the vocabulary are not quantised. Of a sweep's units only those that rows choose are,
 * which are experts. */
static void see_linear(void *seer, uint32_t unit, int tensor)
{
    struct quantizing *p = seer;
    const struct zinf_stage *stage = p->seen;
    if (p->code || (unit >= stage->units.n && !stage->choice.n))
        return;
    uint32_t first = unit < stage->units.n ? stage->units.at[unit] : 0, n = 1;
    if (unit >= stage->units.n)
        n = stage->sweep.n;
    for (uint32_t i = 0; !p->code && i < n; i++) {
        uint32_t u = unit < stage->units.n ? first : stage->sweep.at[i];
        p->code = quantize_tensor(p, &p->graph->units[u], &p->graph->units[u].tensors[tensor]);
    }
}

int quantize_graph(struct zinf_graph *graph, const struct quantize_choice *choice,
                   const char *prefix)
{
    struct quantizing p = {.graph = graph, .choice = choice, .prefix = prefix};
    for (uint32_t u = 0; u < graph->n_units; u++)
        graph->units[u].trained = false;
    for (uint32_t s = 0; !p.code && s < graph->n_stages; s++) {
        p.seen = &graph->stages[s];
        int code = zinf_stage_linears(graph, s, false, see_linear, &p);
        p.code = p.code ? p.code : code;
    }
    return p.code;
}
