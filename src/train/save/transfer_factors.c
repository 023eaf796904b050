/*
 * transfer_factors: Adafactor's second moments between checkpoints and tiers. A file has one vector
 * for each tensor of the model's files, under the tensor's name: moment 1 the means of the rows of
 * a matrix as the file has it, or all of a vector's moment; moment 2 the means of a matrix's
 * columns.
 *
 * A unit's tensor may be several of the file, one below the other. Means over its columns belong to
 * rows and are cut as these are; those over its rows belong to all of them and stand in the file
 * once for each. Of a tensor with slabs the vectors of slabs follow each other.
 */
#include "train/save/transfer.h"

/* One of the two vectors of a file's tensor. */
struct vector {
    uint64_t n;   /* 0: there is none */
    bool of_rows; /* one number for each row of the unit's tensor, else for each column */
};

static bool is_vector(const struct zinf_tensor *tensor)
{
    return tensor->rank == 1 || tensor->rows == 1;
}

static struct vector vector_of(const struct zinf_file_tensor *t, int which)
{
    const struct zinf_tensor *tensor = t->parts[0].tensor;
    if (is_vector(tensor))
        return (struct vector){which == 1 ? t->shape[0] * t->shape[1] : 0, tensor->rank == 1};
    return (struct vector){t->shape[which - 1], (which == 1) != t->transposed};
}

/* Where a tensor has it among its unit's moments, which begin at base. */
static float *place_of(const struct zinf_unit *unit, const struct zinf_tensor *tensor,
                       const struct vector *v, float *base)
{
    struct factors f = unit_factors(unit, (uint32_t)(tensor - unit->tensors));
    return base + (v->of_rows && !is_vector(tensor) ? f.row_offset : f.col_offset);
}

/* Of any unit, into the region: ranks of a pipeline have those of their layers. */
static int read_moments(const struct source *s, uint32_t unit, const struct region *r)
{
    if (!unit_trains_anywhere(s->setup, unit)) {
        memset(r->unit, 0, r->unit_elems * sizeof *r->unit);
        return 0;
    }
    return is_piped(s->setup) ? collect_part(s, unit, PART_FACTORS)
                              : state_read_factors(s, unit, r->unit);
}

/* ---- saving ---- */

static int append(const struct source *s, const struct zinf_file_tensor *t, const struct vector *v,
                  struct zinf_tensors_writer *writer, int64_t *at_hand)
{
    struct region r = source_region(s);
    int code = 0;
    for (uint32_t p = 0, left = 0; !code && p < t->n_parts; p++) {
        left = left ? left : zinf_file_slab_parts(t, p);
        const struct zinf_file_part *part = &t->parts[p];
        if (*at_hand != (int64_t)part->unit)
            code = read_moments(s, part->unit, &r);
        *at_hand = code ? -1 : (int64_t)part->unit;
        const float *place = place_of(&s->setup->whole->units[part->unit], part->tensor, v, r.unit);
        if (v->of_rows)
            zinf_piece_rows_to_file(part->piece, place, r.scratch);
        else
            memcpy(r.scratch, place, v->n * sizeof *place);
        if (!code && !--left)
            code = zinf_tensors_writer_append(writer, r.scratch, v->n * sizeof *r.scratch);
    }
    return code;
}

static int declare(struct zinf_tensors_writer *writer, const char *name, uint64_t n)
{
    return zinf_tensors_writer_declare(writer, name, zinf_file_dtype_from_dtype(ZINF_DTYPE_F32), 1,
                                       &n);
}

int transfer_stream_factors(const struct source *s, int which, struct zinf_tensors_writer *writer)
{
    const struct zinf_file_map *files = s->setup->files;
    int64_t at_hand = -1;
    char name[160];
    int code = 0;
    for (uint32_t i = 0; !code && i < files->n_tensors; i++) {
        struct vector v = vector_of(&files->tensors[i], which);
        zinf_file_tensor_name(&files->tensors[i], s->prefix, name, sizeof name);
        if (v.n && transfer_trains(s->setup, &files->tensors[i]))
            code = declare(writer, name, v.n * files->tensors[i].n_slabs);
    }
    if (!code)
        code = zinf_tensors_writer_begin(writer);
    for (uint32_t i = 0; !code && i < files->n_tensors; i++) {
        struct vector v = vector_of(&files->tensors[i], which);
        if (v.n && transfer_trains(s->setup, &files->tensors[i]))
            code = append(s, &files->tensors[i], &v, writer, &at_hand);
    }
    return code ? code : zinf_tensors_writer_finish(writer);
}

/* ---- loading ---- */

static int read_vector(const struct source *s, const struct zinf_tensors *file,
                       const struct zinf_file_tensor *t, const struct vector *v, uint64_t slab,
                       float *out)
{
    char name[160];
    zinf_file_tensor_name(t, s->prefix, name, sizeof name);
    const struct zinf_tensor_info *info = zinf_tensors_find(file, name);
    if (!info || info->n_elems != v->n * t->n_slabs)
        return zinf_fail(-EINVAL,
                         "%s: the moment of %s is missing or has not %llu elements: the checkpoint "
                         "is of another model",
                         s->setup->options.model_path, name,
                         (unsigned long long)(v->n * t->n_slabs));
    return zinf_tensors_read_f32(file, info, slab * v->n, v->n, out);
}

/* Into the unit's moments, which are in the region. */
static int load_tensor(const struct source *s, const struct zinf_unit *unit,
                       const struct zinf_tensor *tensor, int which, const struct zinf_tensors *file)
{
    struct region r = source_region(s);
    int code = 0;
    for (uint32_t p = 0; !code && p < tensor->n_pieces; p++) {
        const struct zinf_piece *piece = &tensor->pieces[p];
        const struct zinf_file_tensor *t = zinf_file_map_find(s->setup->files, piece->name);
        struct vector v = vector_of(t, which);
        float *place = place_of(unit, tensor, &v, r.unit);
        if (v.n)
            code = read_vector(s, file, t, &v, piece->slab, r.scratch);
        if (!code && v.n && v.of_rows)
            zinf_piece_rows_to_unit(piece, r.scratch, place);
        else if (!code)
            memcpy(place, r.scratch, v.n * sizeof *place);
    }
    return code;
}

int transfer_load_factors(const struct source *s, int which, const struct zinf_tensors *file)
{
    struct region r = source_region(s);
    int code = 0;
    for (uint32_t u = 0; !code && u < s->setup->n_units; u++) {
        const struct zinf_unit *unit = &s->setup->graph->units[u];
        if (!unit_trains(s->setup, u))
            continue;
        code = state_read_factors(s, u, r.unit);
        for (uint32_t i = 0; !code && i < unit->n_tensors; i++)
            code = load_tensor(s, unit, &unit->tensors[i], which, file);
        if (!code)
            code = state_write_factors(s, u, r.unit);
    }
    return code;
}
