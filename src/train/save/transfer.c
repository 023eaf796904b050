/*
 * transfer: the region that all transfers work in, how large it is, and what a trainer is to them.
 */
#include "train/rules/rules.h"
#include "train/save/transfer.h"
#include "train/setup_rates.h"

/* Of scratch, beyond which nothing becomes faster: 16 MiB. */
#define SCRATCH_ELEMS ((uint64_t)4 << 20)

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Of files: bands that are transposed, and one number for each row or column of a tensor. */
static uint64_t file_elems(const struct zinf_file_map *files)
{
    uint64_t elems = files->scratch_elems, largest = 0;
    for (uint32_t i = 0; i < files->n_tensors; i++) {
        const uint64_t *shape = files->tensors[i].shape;
        elems = most(elems, most(shape[0], shape[1]));
        largest = most(largest, shape[0] * shape[1]);
    }
    return most(elems, least(largest, SCRATCH_ELEMS));
}

/* Of state: all scales of a sub-group's 8-bit moments in three quarters of it; pages around what is
 * kept of a matrix. */
static uint64_t state_elems(const struct setup *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; trains(s) && i < s->n_optimizers; i++) {
        const struct rule_segment largest = {.of = &s->optimizers[i],
                                             .n = s->layout.max_group_elems};
        bytes = most(bytes, zinf_align_up(rule_scales_bytes(&largest), ZINF_MEMORY_ALIGN));
    }
    const uint64_t least = trains(s) && setup_kept_part(s) ? 2 * STATE_KEPT_PAGES : 0;
    return most((bytes + 2) / 3, least);
}

/* Of weights that are quantised: an image; scales and a band of rows; a matrix that is transposed.
 */
struct quantized_sizes {
    uint64_t image, scratch, unit;
};
static struct quantized_sizes quantized_sizes(const struct setup *s)
{
    struct quantized_sizes sizes = {0};
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; i < s->graph->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &s->graph->units[u].tensors[i];
            for (uint32_t k = 0; t->form != ZINF_FORM_PLAIN && k < t->n_pieces; k++) {
                struct zinf_quantized p = zinf_piece_quantized(t, &t->pieces[k]);
                sizes.image = most(sizes.image, p.bytes);
                sizes.scratch = most(sizes.scratch, p.n_blocks + TRANSFER_BAND_ROWS * p.cols);
                if (t->form == ZINF_FORM_MXFP4)
                    sizes.scratch = most(sizes.scratch, (p.code_bytes + p.n_blocks) / 4 + 1);
                if (t->pieces[k].transposed && t->form != ZINF_FORM_MXFP4)
                    sizes.unit = most(sizes.unit, p.n_elems);
            }
        }
    sizes.unit = zinf_align_up(sizes.unit, ZINF_LAYOUT_ALIGN);
    return sizes;
}

static uint64_t scratch_elems(const struct setup *s)
{
    uint64_t elems = most(file_elems(s->files), state_elems(s));
    elems = most(elems, quantized_sizes(s).scratch);
    return zinf_align_up(elems, ZINF_LAYOUT_ALIGN);
}

/* Units are read, by way of scratch, while a band is filled. */
static uint64_t band_elems(const struct setup *s)
{
    return s->files->band_elems
               ? zinf_align_up(most(s->files->band_elems, file_elems(s->files)), ZINF_LAYOUT_ALIGN)
               : 0;
}

static uint64_t unit_elems(const struct setup *s)
{
    return most(all_units(s)->max_unit_elems, quantized_sizes(s).unit);
}

static uint64_t packed_bytes(const struct setup *s)
{
    uint64_t bytes = s->dtype == ZINF_DTYPE_F32 ? 0 : zinf_dtype_bytes(s->dtype);
    return all_units(s)->max_unit_elems * bytes;
}

/* Slices of so many units as there are ranks are no more than one, where all have a slice of each.
 */
static uint64_t given_bytes(const struct setup *s)
{
    const uint64_t slice = all_units(s)->max_unit_elems / all_units(s)->world;
    return s->savers.net ? s->savers.world * slice * sizeof(float) : 0;
}

/* A unit of all shards. */
static uint64_t whole_bytes(const struct setup *s)
{
    return tensor_axis(s)->net
               ? zinf_align_up(s->max_whole_elems, ZINF_LAYOUT_ALIGN) * sizeof(float)
               : 0;
}

uint64_t source_memory_bytes(const struct setup *s)
{
    return (unit_elems(s) + scratch_elems(s) + band_elems(s)) * sizeof(float) + packed_bytes(s) +
           quantized_sizes(s).image + given_bytes(s) + whole_bytes(s);
}

static uint64_t slot_bytes(const struct setup *s)
{
    return most(setup_packed_bytes(s, ZINF_PACKABLE_GRAD),
                most(setup_packed_bytes(s, ZINF_PACKABLE_STATE), setup_packed_param_bytes(s)));
}

uint64_t source_packed_bytes(const struct setup *s)
{
    return slot_bytes(s) + setup_packed_bytes(s, ZINF_PACKABLE_STATE) +
           setup_packed_bytes(s, ZINF_PACKABLE_PARAM);
}

struct region source_region(const struct source *s)
{
    struct region r = {
        .unit = (float *)(void *)s->memory,
        .unit_elems = unit_elems(s->setup),
        .scratch_elems = s->scratch_elems,
    };
    r.scratch = r.unit + r.unit_elems;
    r.packed = (char *)(r.scratch + r.scratch_elems);
    r.image = r.packed + packed_bytes(s->setup);
    r.given = r.image + quantized_sizes(s->setup).image;
    r.whole = (float *)(void *)(r.given + given_bytes(s->setup));
    r.band = (float *)(void *)((char *)r.whole + whole_bytes(s->setup));
    r.band_elems = band_elems(s->setup);
    r.slot = (char *)(r.band + r.band_elems);
    r.unpacked = r.slot + slot_bytes(s->setup);
    r.param = r.unpacked + setup_packed_bytes(s->setup, ZINF_PACKABLE_STATE);
    return r;
}

struct source trainer_source(const struct zinf_trainer *t)
{
    return (struct source){
        .setup = &t->setup,
        .tiers = t->plan.tiers,
        .device = t->setup.device,
        .net = t->setup.savers.net,
        .to_device = t->queues[ZINF_LANE_H2D],
        .to_host = t->queues[ZINF_LANE_D2H],
        .prefix = t->prefix,
        .folder = t->setup.options.model_path,
        .memory = host_at(&t->plan, t->plan.at.h_transfer),
        .scratch_elems = scratch_elems(&t->setup),
        .step = t->step,
        .n_applied = t->n_applied,
        .base_sum = t->base_sum,
        .identity = t->identity,
        .loss_scale = t->loss_scale,
    };
}

int source_read(const struct source *s, const struct zinf_location *where, uint64_t offset,
                void *memory, uint64_t bytes)
{
    const struct zinf_access by = {s->tiers, s->device, s->to_host};
    return zinf_location_read(&by, where, offset, memory, bytes);
}

int source_write(const struct source *s, const struct zinf_location *where, uint64_t offset,
                 const void *memory, uint64_t bytes)
{
    const struct zinf_access by = {s->tiers, s->device, s->to_device};
    return zinf_location_write(&by, where, offset, memory, bytes);
}

static struct zinf_location group_at(const struct source *s, uint32_t group,
                                     enum zinf_packable what)
{
    return what == ZINF_PACKABLE_GRAD ? zinf_tiers_group_grad(s->tiers, group)
                                      : zinf_tiers_group_param(s->tiers, group, 0);
}

static struct zinf_packed *packed_of(const struct source *s, uint32_t group,
                                     enum zinf_packable what)
{
    const struct zinf_location where = group_at(s, group, what);
    return zinf_tiers_packed(s->tiers, what, group, zinf_location_generation(&where));
}

/* In RAM what has a head is. */
static bool may_be_packed(const struct zinf_location *where)
{
    return where->tier == ZINF_TIER_DRIVE || where->head;
}

int source_read_group(const struct source *s, uint32_t group, enum zinf_packable what, void *memory)
{
    const struct rule_thing thing = {s->setup, what, group, false};
    const struct zinf_location where = group_at(s, group, what);
    uint64_t bytes = (uint64_t)packed_of(s, group, what)->read_pages * ZINF_AIO_ALIGN;
    if (!bytes || !may_be_packed(&where))
        return source_read(s, &where, 0, memory, where.bytes);
    char *slot = source_region(s).slot;
    int code = source_read(s, &where, 0, slot, bytes);
    return code ? code : rule_unpack(&thing, memory, slot, bytes);
}

int source_read_unit(const struct source *s, uint32_t unit, enum zinf_packable what, void *memory)
{
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    const struct zinf_home *home = &zinf_tiers_options(s->tiers)->places[unit];
    const bool grad = what == ZINF_PACKABLE_GRAD;
    const struct zinf_location where =
        grad ? zinf_tiers_unit_grad(s->tiers, unit) : zinf_tiers_param(s->tiers, unit, 0);
    int code = 0;
    if (!(grad ? home->packs_grad : home->packed || home->param_headed))
        return source_read(s, &where, 0, memory, where.bytes);
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++)
        code = source_read_group(s, g, what, (char *)memory + group_at(s, g, what).offset);
    return code;
}

int source_read_slice(const struct source *s, uint32_t unit, void *memory)
{
    const struct setup *setup = s->setup;
    const struct zinf_location where = zinf_tiers_param(s->tiers, unit, 0);
    const uint64_t width = zinf_dtype_bytes(setup->dtype);
    const struct zinf_layout_unit *u = &setup->layout.units[unit];
    return source_read(s, &where, u->front_bytes + u->slice_first * width, memory,
                       u->slice_elems * width);
}

void source_forget_packed(const struct source *s, uint32_t group)
{
    struct zinf_packed *packed = packed_of(s, group, ZINF_PACKABLE_PARAM);
    const struct zinf_location where = group_at(s, group, ZINF_PACKABLE_PARAM);
    if (may_be_packed(&where))
        *packed = (struct zinf_packed){.whole = packed->whole};
}

static int pack_group(const struct source *s, uint32_t group, const void *plain)
{
    const struct rule_thing thing = {s->setup, ZINF_PACKABLE_PARAM, group, false};
    const struct zinf_location where = group_at(s, group, ZINF_PACKABLE_PARAM);
    char *slot = source_region(s).slot;
    uint64_t bytes = 0;
    int code = rule_pack(&thing, slot, plain, &bytes);
    if (!code && bytes)
        code = source_write(s, &where, 0, slot, bytes);
    packed_of(s, group, ZINF_PACKABLE_PARAM)->read_pages = (uint32_t)(bytes / ZINF_AIO_ALIGN);
    return code;
}

int source_pack_unit(const struct source *s, uint32_t unit, const void *plain)
{
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    const struct zinf_home *home = &zinf_tiers_options(s->tiers)->places[unit];
    const uint64_t width = zinf_dtype_bytes(s->setup->dtype);
    int code = 0;
    if (!home->packed && !home->param_headed)
        return 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++)
        code = pack_group(s, g,
                          (const char *)plain +
                              (u->slice_first + s->setup->layout.groups[g].first) * width);
    return code;
}

int source_write_image(const struct source *s, uint32_t unit, const void *params)
{
    const struct setup *setup = s->setup;
    if (!zinf_tiers_options(s->tiers)->places[unit].imaged)
        return 0;
    const struct zinf_location where = zinf_tiers_image(s->tiers, unit, 0);
    void *image = source_region(s).unit;
    memset(image, 0, where.bytes);
    zinf_float8_encode(&setup->images[unit], params, image, setup->device->n_threads);
    return source_write(s, &where, 0, image, where.bytes);
}

/* What of that range of the unit's bytes lies in sub-groups, to each of them. */
static int write_groups(const struct source *s, uint32_t unit, uint64_t at, const char *memory,
                        uint64_t bytes)
{
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    int code = 0;
    for (uint32_t g = u->first_group; !code && g < u->first_group + u->n_groups; g++) {
        const struct zinf_location where = zinf_tiers_group_param(s->tiers, g, 0);
        const uint64_t from = most(at, where.offset);
        const uint64_t to = least(at + bytes, where.offset + where.bytes);
        if (from < to)
            code = source_write(s, &where, from - where.offset, memory + (from - at), to - from);
    }
    return code;
}

int source_write_unit(const struct source *s, uint32_t unit, uint64_t at, const void *memory,
                      uint64_t bytes)
{
    const struct setup *setup = s->setup;
    struct zinf_location where = zinf_tiers_param(s->tiers, unit, 0);
    uint64_t slice = 0, skipped = 0;
    if (setup->sliced) {
        slice = zinf_layout_slice_at(&setup->layout, unit, setup->dtype);
        uint64_t end = least(at + bytes, slice + where.bytes);
        skipped = slice > at ? slice - at : 0;
        if (at + skipped >= end)
            return 0;
        bytes = end - at - skipped;
    }
    for (uint32_t g = 0; g < setup->layout.units[unit].n_groups; g++)
        source_forget_packed(s, setup->layout.units[unit].first_group + g);
    const char *from = (const char *)memory + skipped;
    at += skipped - slice;
    return zinf_tiers_options(s->tiers)->places[unit].param_headed
               ? write_groups(s, unit, at, from, bytes)
               : source_write(s, &where, at, from, bytes);
}

/* ---- tensors of files ---- */

bool transfer_trains(const struct setup *s, const struct zinf_file_tensor *tensor)
{
    for (uint32_t p = 0; p < tensor->n_parts; p++)
        if (unit_trains_anywhere(s, tensor->parts[p].unit))
            return true;
    return false;
}

bool transfer_has(const struct setup *s, const struct zinf_file_tensor *tensor, int part)
{
    bool has = part == PART_PARAM;
    for (uint32_t p = 0; p < tensor->n_parts; p++) {
        const struct zinf_file_part *of = &tensor->parts[p];
        const uint32_t number = (uint32_t)(of->tensor - s->whole->units[of->unit].tensors);
        const struct optimizer *by = setup_optimizer_of_whole(s, of->unit, number, of->piece->name);
        has |= unit_trains_anywhere(s, of->unit) && part <= (int)by->rule->n_moments;
    }
    return has;
}

enum zinf_dtype transfer_file_dtype(const struct zinf_file_tensor *tensor, enum zinf_dtype dtype)
{
    return tensor->parts[0].tensor->exact ? ZINF_DTYPE_F32 : dtype;
}

const struct zinf_file_tensor *transfer_ordered(const struct zinf_file_map *files, uint32_t i)
{
    const struct zinf_file_tensor *t = &files->tensors[i % files->n_tensors];
    return t->parts[0].tensor->exact == (i < files->n_tensors) ? t : NULL;
}

int transfer_declare(struct zinf_tensors_writer *writer, const struct zinf_file_tensor *tensor,
                     const char *prefix, enum zinf_dtype dtype)
{
    char name[160];
    uint64_t shape[3];
    const int rank = zinf_piece_shape(tensor->parts[0].piece, shape);
    zinf_file_tensor_name(tensor, prefix, name, sizeof name);
    dtype = transfer_file_dtype(tensor, dtype);
    return zinf_tensors_writer_declare(writer, name, zinf_file_dtype_from_dtype(dtype), rank,
                                       shape);
}
