/*
 * transfer_load: weights from a model folder, or fresh ones, to tiers. What a folder holds is
 * checked before it is believed: names, shapes, and that every number is finite.
 */
#include "train/save/transfer.h"
#include "train/setup_rates.h"

#include "base/pulse.h"
#include "model/composite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

/* ---- tensors of the folder ---- */

/* The first files of a family had no prefix; what was read is what is written. */
static const char *prefix_of(const struct setup *s, const struct zinf_tensors *file)
{
    const char *prefix = zinf_model_family(s->model)->prefix;
    char name[160];
    uint32_t i = 0;
    while (i < s->files->n_tensors && s->files->tensors[i].plain_name)
        i++;
    if (!file || i == s->files->n_tensors)
        return prefix;
    const struct zinf_file_tensor *t = &s->files->tensors[i];
    const char *other = zinf_composite_other_prefix(zinf_model_family(s->model));
    if (other && zinf_tensors_find(file, zinf_file_tensor_name(t, other, name, sizeof name)))
        return other;
    bool prefixed = zinf_tensors_find(file, zinf_file_tensor_name(t, prefix, name, sizeof name));
    return !prefixed && zinf_tensors_find(file, t->name) ? "" : prefix;
}

/* ---- gathering ---- */

struct gathering {
    const struct source *source;
    const struct zinf_tensors *file; /* NULL: fresh weights */
    const char *path;                /* of the file or folder */
    uint32_t unit;
    int part;
};

static int check_shape(const char *path, const struct zinf_tensor_info *info,
                       const struct zinf_piece *piece)
{
    uint64_t shape[3];
    const int rank = zinf_piece_shape(piece, shape);
    bool same = info->rank == rank;
    for (int i = 0; same && i < rank; i++)
        same = info->shape[i] == shape[i];
    if (same)
        return 0;
    char found[128] = "", asked[64];
    for (int i = 0, at = 0; i < info->rank && at < 100; i++)
        at += snprintf(found + at, sizeof found - (size_t)at, "%s%llu", i ? ", " : "",
                       (unsigned long long)info->shape[i]);
    for (int i = 0, at = 0; i < rank; i++)
        at += snprintf(asked + at, sizeof asked - (size_t)at, "%s%llu", i ? ", " : "",
                       (unsigned long long)shape[i]);
    return zinf_fail(-EINVAL,
                     "%s: tensor %s has shape [%s], but config.json asks for [%s]: the two are not "
                     "of one model; take the config.json that belongs to these weights",
                     path, info->name, found, asked);
}

static int check_finite(const struct gathering *g, const struct zinf_piece *piece, uint64_t first,
                        uint64_t n, const float *values)
{
    int threads = g->source->device->n_threads;
    uint64_t at = zinf_optim_find_nonfinite(values, ZINF_DTYPE_F32, n, threads);
    if (at == UINT64_MAX)
        return 0;
    return zinf_fail(-EINVAL, "%s: tensor %s holds %s at element %llu: the weights are damaged",
                     g->path, piece->name, isnan(values[at]) ? "NaN" : "Inf",
                     (unsigned long long)(first + at));
}

/* Of a copy of the base's tensor that no adapter's file gives: as the base has it. */
static const struct zinf_tensor_info *find_in_base(const struct source *s,
                                                   const struct zinf_piece *piece)
{
    char name[160];
    zinf_adapter_base_name(name, piece->name);
    const struct zinf_tensor_info *info = zinf_tensors_find(s->base, name);
    const char *bare = zinf_family_bare_name(zinf_model_family(s->setup->model), name);
    return info ? info : zinf_tensors_find(s->base, bare);
}

static void fill_fresh(const struct setup *s, const struct zinf_tensor *tensor,
                       const struct zinf_piece *piece, uint64_t first, uint64_t n, float *out)
{
    struct zinf_piece named = *piece;
    char name[160];
    if (piece->of_base)
        snprintf(named.name, sizeof named.name, "%.95s",
                 zinf_family_bare_name(zinf_model_family(s->model),
                                       zinf_adapter_base_name(name, piece->name)));
    zinf_pulse_beat(); /* what it says is heard where the numbers are stored */
    zinf_tensor_init_fill(tensor, &named, s->options.seed, first, n, out);
}

static bool has_part(const struct gathering *g, const struct zinf_tensor *tensor)
{
    const struct setup *s = g->source->setup;
    uint32_t number = (uint32_t)(tensor - s->graph->units[g->unit].tensors);
    return g->part <= PART_MASTER ||
           g->part <= (int)setup_optimizer_of(s, g->unit, number)->rule->n_moments;
}

static int read_values(void *context, const struct zinf_tensor *tensor,
                       const struct zinf_piece *piece, uint64_t first, uint64_t n, float *out)
{
    const struct gathering *g = context;
    const struct source *s = g->source;
    const bool from_base = !g->file && piece->of_base && s->base;
    char name[160];
    zinf_piece_name(piece, s->prefix, name, sizeof name);
    const struct zinf_tensors *file = from_base ? s->base : g->file;
    const struct zinf_tensor_info *info = !file       ? NULL
                                          : from_base ? find_in_base(s, piece)
                                                      : zinf_tensors_find(file, name);
    if (!file || transfer_is_fresh(s->setup, tensor, info != NULL)) {
        fill_fresh(s->setup, tensor, piece, first, n, out);
        return 0;
    }
    if (!info && !has_part(g, tensor)) {
        memset(out, 0, n * sizeof *out);
        return 0;
    }
    if (!info)
        return zinf_fail(-ENOENT, "%s: tensor %s%s is missing from the safetensors files", g->path,
                         piece->plain_name ? "" : zinf_model_family(s->setup->model)->prefix,
                         piece->name);
    int code = check_shape(g->path, info, piece);
    if (!code)
        code = zinf_tensors_read_f32(file, info, first, n, out);
    return code ? code : check_finite(g, piece, first, n, out);
}

static struct gathering gathering_of(const struct source *s, const struct zinf_tensors *file,
                                     uint32_t unit, int part)
{
    const struct zinf_trainer_options *o = &s->setup->options;
    bool adapter = is_adapted(s->setup) && unit_trains(s->setup, unit);
    return (struct gathering){s, file, adapter && o->adapter ? o->adapter : o->model_path, unit,
                              part};
}

static struct zinf_gather gather_of(struct gathering *context)
{
    struct region r = source_region(context->source);
    return (struct zinf_gather){read_values, context, {r.scratch, r.scratch_elems}};
}

int transfer_gather(const struct source *s, const struct zinf_tensors *file, uint32_t unit,
                    int part)
{
    struct region r = source_region(s);
    struct gathering context = gathering_of(s, file, unit, part);
    struct zinf_gather gather = gather_of(&context);
    const struct zinf_unit *u = &s->setup->graph->units[unit];
    memset(r.unit + u->elems, 0, (r.unit_elems - u->elems) * sizeof *r.unit);
    return zinf_unit_gather(u, &gather, r.unit);
}

/* ---- placing ---- */

/* A split master's upper half is rounded as the optimizer rounds it. */
static void pack_unit(const struct source *s, uint32_t unit, const struct region *r)
{
    const struct setup *setup = s->setup;
    uint64_t n = setup->layout.units[unit].padded_elems, step = r->scratch_elems;
    bool split = setup->form == ZINF_STATE_SPLIT && trains(setup) && unit_trains(setup, unit);
    uint16_t *remainder = (uint16_t *)(void *)r->scratch, *param = (uint16_t *)(void *)r->packed;
    if (setup->dtype == ZINF_DTYPE_F32)
        return;
    if (!split)
        zinf_convert(r->packed, setup->dtype, r->unit, ZINF_DTYPE_F32, n);
    for (uint64_t at = 0; split && at < n; at += step)
        zinf_optim_split(param + at, remainder, r->unit + at, n - at < step ? n - at : step,
                         s->device->n_threads);
}

/* What makes a unit behind its parameters a multiple of the ranks' slices: zeros, as in a new
 * store. A store that an earlier process left knows no page that was not written, and refuses to
 * read it.
 */
static int place_padding(const struct source *s, uint32_t unit, const struct region *r)
{
    const struct zinf_layout *layout = &s->setup->layout;
    const struct zinf_layout_unit *u = &layout->units[unit];
    uint64_t end = zinf_layout_unit_bytes(layout, unit, s->setup->dtype);
    uint64_t at = u->front_bytes + u->padded_elems * zinf_dtype_bytes(s->setup->dtype);
    int code = 0;
    memset(r->scratch, 0, ZINF_MEMORY_ALIGN);
    for (; !code && at < end; at += ZINF_MEMORY_ALIGN)
        code = source_write_unit(s, unit, at, r->scratch, ZINF_MEMORY_ALIGN);
    return code;
}

/* The unit's parameters, whole or the rank's slice, and the rank's slice of its state. */
static int place_unit(const struct source *s, uint32_t unit)
{
    struct region r = source_region(s);
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    uint64_t bytes = u->padded_elems * zinf_dtype_bytes(s->setup->dtype);
    pack_unit(s, unit, &r);
    const void *packed = s->setup->dtype == ZINF_DTYPE_F32 ? (const void *)r.unit : r.packed;
    int code = bytes ? source_write_unit(s, unit, u->front_bytes, packed, bytes) : 0;
    if (!code)
        code = place_padding(s, unit, &r);
    if (!code && trains(s->setup) && unit_trains(s->setup, unit))
        code = state_begin(s, unit, r.unit + u->slice_first);
    else if (!code)
        code = source_pack_unit(s, unit, packed);
    return code;
}

/* ---- files ---- */

/* All that an adapter's file holds must have a place: what has none would be lost without a word.
 */
static int check_adapter(const struct setup *s, const struct zinf_tensors *file)
{
    for (uint64_t i = 0; i < zinf_tensors_count(file); i++) {
        const char *name = zinf_tensors_at(file, i)->name;
        if (!zinf_file_map_find(s->files, name))
            return zinf_fail(-EINVAL,
                             "%s: tensor %s has no place in the model of %s: the adapter is of "
                             "another base, or of a kind that is not supported",
                             s->options.adapter, name, s->options.model_path);
    }
    return 0;
}

static int open_adapter(const struct setup *s, struct zinf_tensors **file)
{
    char *path = zinf_path_join(s->options.adapter, ZINF_ADAPTER_WEIGHTS);
    int code = path ? identity_check_own(s->options.adapter) : -ENOMEM;
    if (code >= 0)
        code = zinf_tensors_open(file, path);
    free(path);
    return code ? code : check_adapter(s, *file);
}

/* Of what several ranks' stages have the first notes it. */
static bool notes_base(const struct setup *s, uint32_t unit)
{
    return !is_piped(s) || s->owners[unit] == pipe_axis(s)->rank;
}

/* What is frozen, so that a checkpoint knows it again: folded in the order of units. Ranks that
 * share tensors fold whole ones. */
static int note_base(struct zinf_trainer *t, const struct source *s, uint32_t unit)
{
    const struct region r = source_region(s);
    const bool shares = tensor_axis(&t->setup)->world > 1;
    const struct zinf_graph *graph = shares ? t->setup.whole : t->setup.graph;
    if (!has_backward(&t->setup) || graph->units[unit].trained || !notes_base(&t->setup, unit))
        return 0;
    int code = shares ? whole_unit(s, unit, r.unit, r.whole) : 0;
    if (!code)
        t->base_sum = XXH3_64bits_withSeed(shares ? r.whole : r.unit,
                                           graph->units[unit].elems * sizeof(float), t->base_sum);
    return code;
}

static int quantize_images(struct zinf_trainer *t, const struct source *s,
                           const struct zinf_tensors *file, uint32_t unit)
{
    struct gathering context = gathering_of(s, file, unit, PART_PARAM);
    struct zinf_gather gather = gather_of(&context);
    uint64_t others = 0, *sum = notes_base(&t->setup, unit) ? &t->base_sum : &others;
    return t->setup.graph->units[unit].image_bytes ? transfer_quantize(s, unit, &gather, file, sum)
                                                   : 0;
}

/* Whether a step makes its parameters anew. */
static bool is_updated(const struct zinf_trainer *t, uint32_t unit)
{
    return trains(&t->setup) && unit_trains(&t->setup, unit);
}

/* Writes the image of a unit whose parameters are in the region. */
static int place_image(const struct source *s, uint32_t unit)
{
    struct region r = source_region(s);
    if (!zinf_tiers_options(s->tiers)->places[unit].imaged)
        return 0;
    pack_unit(s, unit, &r);
    return source_write_image(s, unit, r.packed);
}

int trainer_place_images(struct zinf_trainer *t)
{
    const struct source s = trainer_source(t);
    void *params = source_region(&s).packed;
    int code = 0;
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++) {
        if (!t->plan.homes[u].imaged || !is_updated(t, u))
            continue;
        code = source_read_unit(&s, u, ZINF_PACKABLE_PARAM, params);
        if (!code)
            code = source_write_image(&s, u, params);
    }
    return code;
}

/* One unit: of the model's file, or of an adapter's; NULL: fresh. */
static int load_unit(struct zinf_trainer *t, const struct source *s,
                     const struct zinf_tensors *file, const struct zinf_tensors *adapter,
                     uint32_t u)
{
    bool adapts = is_adapted(&t->setup) && unit_trains(&t->setup, u);
    int code = quantize_images(t, s, file, u);
    if (!code)
        code = transfer_gather(s, adapts ? adapter : file, u, PART_PARAM);
    if (!code && s->norms)
        code = transfer_note_norms(s, u);
    if (code)
        return code;
    transfer_put_norms(s, u);
    code = note_base(t, s, u);
    if (!code && !t->plan.homes[u].in_files)
        code = place_unit(s, u);
    return code || is_updated(t, u) ? code : place_image(s, u);
}

#define NO_RANK UINT32_MAX

/* The checksum of a frozen model is made unit by unit, in order. In a pipeline the rank of a frozen
 * unit goes on from the sum of the rank that had the one before it, and at the end all get the sum.
 * unit: the one that comes next, n_units: none; *from: the rank that has the sum so far, or
 * NO_RANK.
 */
static int pass_base(struct zinf_trainer *t, uint32_t unit, uint32_t *from)
{
    const struct setup *s = &t->setup;
    const bool ends = unit == s->n_units;
    if (!is_piped(s) || !has_backward(s) || (!ends && unit_trains_anywhere(s, unit)))
        return 0;
    const uint32_t last = *from;
    *from = ends ? NO_RANK : s->owners[unit];
    return last == NO_RANK || last == *from
               ? 0
               : zinf_net_broadcast(pipe_axis(s)->net, last, &t->base_sum, sizeof t->base_sum);
}

/* file: of the model; adapter: of what is trained beside it. NULL: fresh weights. Of a recovered
 * step only what is frozen, which no record has. */
static int load_units(struct zinf_trainer *t, const struct zinf_tensors *file,
                      const struct zinf_tensors *adapter)
{
    struct source source = trainer_source(t);
    const uint32_t n_adapted = t->setup.graph->n_adapted;
    uint32_t turn = NO_RANK;
    int code = 0;
    source.base = file;
    if (n_adapted && !adapter) {
        source.norms = calloc(n_adapted, sizeof *source.norms);
        code = source.norms ? 0 : zinf_fail(-ENOMEM, "no memory for fresh adapters");
    }
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++) {
        code = pass_base(t, u, &turn);
        if (!code && (!t->durable.recovered || !unit_trains(&t->setup, u)))
            code = load_unit(t, &source, file, adapter, u);
    }
    if (!code)
        code = pass_base(t, t->setup.n_units, &turn);
    if (!code)
        code = trainer_place_images(t);
    for (uint32_t i = 0; source.norms && i < n_adapted; i++)
        free(source.norms[i]);
    free(source.norms);
    /* what was only filled, too, is there before another queue looks */
    return code ? code : t->setup.device->ops->queue_synchronize(source.to_device);
}

/* Of several ranks the first compares, for all: their weights are of one folder. */
static bool stands_on_base(const struct zinf_trainer *t)
{
    return is_adapted(&t->setup) && !t->setup.savers.rank;
}

/* Notes what the training stands on. Reading the weights has summed them. */
static int identify(struct zinf_trainer *t, struct zinf_tensors *file)
{
    const struct zinf_trainer_options *o = &t->setup.options;
    int code = identity_of_model(&t->identity, t->setup.model, o->model_path);
    if (!code && file && stands_on_base(t))
        code = identity_add_base(t->identity, file);
    return code || !o->adapter || t->setup.savers.rank
               ? code
               : identity_check_adapter(t->identity, o->adapter, o->model_path);
}

int trainer_load(struct zinf_trainer *t)
{
    const struct setup *setup = &t->setup;
    struct zinf_tensors *file = NULL, *adapter = NULL;
    int code = setup->options.init ? 0 : zinf_tensors_open(&file, setup->options.model_path);
    bool begins = setup->options.mode == ZINF_TRAINER_TRAIN && !t->durable.recovered;
    if (code == -ENOENT && begins)
        return zinf_fail(code, "%s; or train from fresh weights with --init", zinf_error());
    if (!code && setup->options.adapter)
        code = open_adapter(setup, &adapter);
    if (!code && file && stands_on_base(t))
        code = zinf_tensors_sum_begin(file);
    t->prefix = prefix_of(setup, file);
    if (!code && file)
        code = weights_check(setup, file);
    if (!code)
        code = load_units(t, file, adapter);
    if (!code)
        code = identify(t, file);
    zinf_tensors_close(adapter);
    zinf_tensors_close(file);
    return code;
}
