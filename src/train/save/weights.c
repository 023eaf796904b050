/*
 * weights: compares the tensors of a folder with those that its config.json asks for, before any is
 * read. The message names all tensors that differ and not only the first, so that one sees if two
 * models were mixed up.
 */
#include "model/composite.h"
#include "train/checkpoints.h"
#include "train/save/transfer.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>

#define MAX_NAME 1200 /* of a tensor, with prefix */

struct comparison {
    const struct zinf_model *model;
    const struct zinf_tensors *file;
    const struct zinf_file_map *map;
    void (*see)(void *arg, const struct zinf_weights_finding *finding);
    void *arg;
};

ZINF_PRINTF(4, 5)
static void found(const struct comparison *c, struct zinf_weights_finding finding, const char *name,
                  const char *format, ...)
{
    char detail[512];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    finding.name = name;
    finding.detail = detail;
    c->see(c->arg, &finding);
}

/* The file's tensor for one of the family, with its prefix or without. */
static const struct zinf_tensor_info *find(const struct comparison *c,
                                           const struct zinf_file_tensor *wanted)
{
    char name[MAX_NAME];
    const struct zinf_family *family = zinf_model_family(c->model);
    const char *bare = wanted->name;
    const char *other = zinf_composite_other_prefix(family);
    zinf_file_tensor_name(wanted, other ? other : "", name, sizeof name);
    if (other && zinf_tensors_find(c->file, name))
        return zinf_tensors_find(c->file, name);
    zinf_file_tensor_name(wanted, family->prefix, name, sizeof name);
    if (wanted->parts[0].piece->of_base) /* an adapter's copy begins as the base has it */
        bare = zinf_family_bare_name(family, zinf_adapter_base_name(name, wanted->name));
    const struct zinf_tensor_info *info = zinf_tensors_find(c->file, name);
    return info ? info : zinf_tensors_find(c->file, bare);
}

static void compare_tensor(const struct comparison *c, const struct zinf_file_tensor *wanted,
                           const struct zinf_tensor_info *info)
{
    char has[200], asked[200];
    const struct zinf_tensor *tensor = wanted->parts[0].tensor;
    uint64_t shape[3];
    const int rank = zinf_piece_shape(wanted->parts[0].piece, shape);
    bool same = info->rank == rank;
    for (int i = 0; same && i < rank; i++)
        same = info->shape[i] == shape[i];
    if (!same)
        found(c, (struct zinf_weights_finding){.kind = ZINF_WEIGHTS_SHAPE, .tensor = tensor},
              info->name, "has shape %s; config.json asks for %s",
              zinf_shape_text(has, sizeof has, info->rank, info->shape),
              zinf_shape_text(asked, sizeof asked, rank, shape));
    if (info->dtype != ZINF_FILE_F32 && info->dtype != ZINF_FILE_BF16 &&
        info->dtype != ZINF_FILE_F16 && info->dtype != ZINF_FILE_F64)
        found(c, (struct zinf_weights_finding){.kind = ZINF_WEIGHTS_DTYPE, .tensor = tensor},
              info->name, "has dtype %s; use F32, BF16 or F16", zinf_file_dtype_name(info->dtype));
}

/* Whether the folder has the tensor quantised: its parts are looked at when they are read. */
static bool is_quantized(const struct zinf_model *model, const struct zinf_file_tensor *wanted)
{
    return zinf_model_facts(model)->quantized_file &&
           wanted->parts[0].tensor->form != ZINF_FORM_PLAIN;
}

/* Adapters are in a file of their own. */
static bool is_adapter(const struct comparison *c, const struct zinf_file_tensor *wanted)
{
    const struct zinf_graph *graph = zinf_model_stages(c->model);
    return graph->n_adapted && graph->units[wanted->parts[0].unit].trained;
}

static void compare_wanted(const struct comparison *c)
{
    char name[MAX_NAME];
    const char *prefix = zinf_model_family(c->model)->prefix;
    for (uint32_t i = 0; i < c->map->n_tensors; i++) {
        const struct zinf_file_tensor *wanted = &c->map->tensors[i];
        const bool parts_alone = wanted->parts[0].tensor->form == ZINF_FORM_MXFP4;
        if (is_adapter(c, wanted) || (parts_alone && is_quantized(c->model, wanted)))
            continue;
        const struct zinf_tensor_info *info = find(c, wanted);
        if (info && !is_quantized(c->model, wanted))
            compare_tensor(c, wanted, info);
        else if (!info)
            found(c,
                  (struct zinf_weights_finding){.kind = ZINF_WEIGHTS_MISSING,
                                                .tensor = wanted->parts[0].tensor},
                  zinf_file_tensor_name(wanted, prefix, name, sizeof name), "is missing");
    }
}

const struct zinf_file_tensor *transfer_quantized_of(const struct zinf_model *model,
                                                     const struct zinf_file_map *map,
                                                     const char *bare)
{
    static const char *const parts[] = {"",
                                        ".absmax",
                                        ".quant_map",
                                        ".nested_absmax",
                                        ".nested_quant_map",
                                        ".quant_state.bitsandbytes__nf4",
                                        "_blocks",
                                        "_scales",
                                        "_scale_inv",
                                        "activation_scale",
                                        "SCB",
                                        "weight_format"};
    char name[200], weight[200];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t n = strlen(bare), tail = strlen(parts[i]);
        const bool beside = tail && parts[i][0] != '.' && parts[i][0] != '_';
        if (n <= tail || n >= sizeof weight || strcmp(bare + n - tail, parts[i]))
            continue;
        snprintf(weight, sizeof weight, "%.*s%s", (int)(n - tail), bare, beside ? "weight" : "");
        const struct zinf_file_tensor *of = zinf_file_map_find(map, weight);
        if (of && is_quantized(model, of))
            return strcmp(transfer_quantized_name(name, weight, parts[i]), bare) ? NULL : of;
    }
    return NULL;
}

/* Whether an adapter has a copy of its own, which takes the place of this one. */
static bool is_copied(const struct comparison *c, const char *name)
{
    char base[160];
    for (uint32_t i = 0; i < c->map->n_tensors; i++) {
        const struct zinf_file_tensor *t = &c->map->tensors[i];
        if (!t->parts[0].piece->of_base)
            continue;
        zinf_adapter_base_name(base, t->name);
        if (!strcmp(base, name) ||
            !strcmp(zinf_family_bare_name(zinf_model_family(c->model), base), name))
            return true;
    }
    return false;
}

static bool is_ignored(const struct zinf_family *family, const char *name)
{
    for (size_t i = 0; family->ignored[i]; i++)
        if (!fnmatch(family->ignored[i], name, 0))
            return true;
    return false;
}

static void compare_others(const struct comparison *c)
{
    const struct zinf_family *family = zinf_model_family(c->model);
    for (uint64_t i = 0; i < zinf_tensors_count(c->file); i++) {
        const char *name = zinf_tensors_at(c->file, i)->name;
        const char *bare = zinf_family_bare_name(family, name);
        if (!zinf_file_map_find(c->map, bare) && !is_ignored(family, bare) &&
            !zinf_composite_carries(family, name) && !zinf_model_drops(c->model, bare) &&
            !transfer_quantized_of(c->model, c->map, bare) && !is_copied(c, name))
            found(c, (struct zinf_weights_finding){.kind = ZINF_WEIGHTS_UNEXPECTED}, name,
                  "is unexpected: no part of a %s model of this config.json", family->model_type);
    }
}

int zinf_weights_compare(const struct zinf_model *model, const struct zinf_tensors *file,
                         void (*see)(void *arg, const struct zinf_weights_finding *finding),
                         void *arg)
{
    struct zinf_file_map *map = NULL;
    int code = zinf_file_map_create(&map, zinf_model_whole(model));
    if (code)
        return code;
    const struct comparison c = {model, file, map, see, arg};
    compare_wanted(&c);
    compare_others(&c);
    zinf_file_map_destroy(map);
    return 0;
}

/* ---- before weights are loaded ---- */

#define NAMED 4 /* of a kind; the rest is counted */

struct tally {
    const struct setup *setup;
    uint64_t n[ZINF_WEIGHTS_KINDS];
    char text[ZINF_WEIGHTS_KINDS][1024]; /* of the first ones */
};

static void count(void *arg, const struct zinf_weights_finding *finding)
{
    struct tally *tally = arg;
    if (transfer_is_fresh(tally->setup, finding->tensor, finding->kind != ZINF_WEIGHTS_MISSING))
        return;
    char *text = tally->text[finding->kind];
    size_t used = strlen(text), bytes = sizeof tally->text[0];
    bool says_more = finding->kind == ZINF_WEIGHTS_SHAPE || finding->kind == ZINF_WEIGHTS_DTYPE;
    if (tally->n[finding->kind]++ < NAMED)
        snprintf(text + used, bytes - used, "%s%.160s%s%s", used ? ", " : "", finding->name,
                 says_more ? " " : "", says_more ? finding->detail : "");
}

/* "12 tensors are missing (a, b, c, d and 8 more)" */
static const char *tally_text(char *buffer, size_t bytes, const struct tally *tally,
                              enum zinf_weights_kind kind)
{
    static const char *const words[][2] = {
        [ZINF_WEIGHTS_MISSING] = {"tensor is missing", "tensors are missing"},
        [ZINF_WEIGHTS_SHAPE] = {"tensor has another shape", "tensors have another shape"},
        [ZINF_WEIGHTS_DTYPE] = {"tensor has no number type that is read",
                                "tensors have no number type that is read"},
        [ZINF_WEIGHTS_UNEXPECTED] = {"tensor is no part of the model and is not used",
                                     "tensors are no part of the model and are not used"},
    };
    uint64_t n = tally->n[kind];
    char more[48] = "";
    if (n > NAMED)
        snprintf(more, sizeof more, " and %llu more", (unsigned long long)(n - NAMED));
    snprintf(buffer, bytes, "%llu %s (%s%s)", (unsigned long long)n, words[kind][n > 1],
             tally->text[kind], more);
    return buffer;
}

bool transfer_is_fresh(const struct setup *s, const struct zinf_tensor *tensor, bool in_file)
{
    return trains(s) && tensor &&
           ((tensor->may_be_fresh && !in_file) || (tensor->of_classes && s->options.new_head));
}

/* Which tensors begin anew, in one line. Above adapters those have to be of modules_to_save. */
static int say_fresh(const struct setup *s, const struct zinf_tensors *file)
{
    char names[512] = "";
    size_t used = 0;
    bool frozen = false;
    for (uint32_t i = 0; i < s->files->n_tensors && used < sizeof names; i++) {
        const struct zinf_file_tensor *t = &s->files->tensors[i];
        const struct comparison c = {.model = s->model, .file = file};
        const bool trained = unit_trains(s, t->parts[0].unit);
        if ((s->options.adapter && trained) || /* whose folder has it */
            !transfer_is_fresh(s, t->parts[0].tensor, find(&c, t) != NULL))
            continue;
        frozen = frozen || !trained;
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", t->name);
    }
    if (frozen && is_adapted(s))
        return zinf_fail(-ENOTSUP,
                         "%s has no head for the task (%s), and adapters would leave a fresh one "
                         "as it is: train all of the model, or a folder with a head",
                         s->options.model_path, names);
    if (used)
        zinf_log(ZINF_LOG_INFO, "%s %s %s: fresh, from seed %llu", s->options.model_path,
                 s->options.new_head ? "is given a new head," : "has no", names,
                 (unsigned long long)s->options.seed);
    return 0;
}

int weights_check(const struct setup *s, const struct zinf_tensors *file)
{
    static const enum zinf_weights_kind faults[] = {ZINF_WEIGHTS_MISSING, ZINF_WEIGHTS_SHAPE,
                                                    ZINF_WEIGHTS_DTYPE};
    struct tally tally = {.setup = s};
    char text[4096] = "", one[1200];
    size_t used = 0;
    int code = zinf_weights_compare(s->model, file, count, &tally);
    if (code)
        return code;
    if (tally.n[ZINF_WEIGHTS_UNEXPECTED])
        zinf_log(ZINF_LOG_WARN, "%s: %s", s->options.model_path,
                 tally_text(one, sizeof one, &tally, ZINF_WEIGHTS_UNEXPECTED));
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (tally.n[faults[i]])
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? "; " : "",
                                     tally_text(one, sizeof one, &tally, faults[i]));
    if (!used)
        return say_fresh(s, file);
    return zinf_fail(tally.n[ZINF_WEIGHTS_MISSING] ? -ENOENT : -EINVAL,
                     "%s: %s: the weights are not those of its config.json; take the config.json "
                     "that belongs to these weights",
                     s->options.model_path, text);
}
