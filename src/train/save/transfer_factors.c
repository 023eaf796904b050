/*
 * transfer_factors: Adafactor's second moments between checkpoints and tiers. A file has one vector
 * for each tensor, under the tensor's name: moment 1 the means of the rows of a matrix as the file
 * has it, or all of a vector's moment; moment 2 the means of a matrix's columns.
 */
#include "train/save/transfer.h"

#include <stdio.h>

/* A vector in a unit's moments, in floats. */
struct vector {
    uint64_t offset, n; /* n 0: there is none */
};

static struct vector vector_of(const struct zinf_unit *unit, uint32_t tensor, int which)
{
    struct factors f = unit_factors(unit, tensor);
    bool of_rows = (which == 1) != unit->tensors[tensor].pieces[0].transposed;
    if (f.rows == 1)
        return (struct vector){f.col_offset, which == 1 ? f.cols : 0};
    return of_rows ? (struct vector){f.row_offset, f.rows} : (struct vector){f.col_offset, f.cols};
}

/* All moments of a unit, which is one sub-group. */
struct moments {
    struct zinf_location state;
    uint64_t offset, bytes;
};

static struct moments moments_of(const struct zinf_trainer *t, uint32_t unit)
{
    uint32_t g = t->setup.layout.units[unit].first_group;
    uint64_t offset = setup_moments_offset(&t->setup, t->setup.layout.groups[g].n);
    return (struct moments){zinf_tiers_group_state(t->plan.tiers, g, 0), offset,
                            t->setup.state_bytes[g] - offset};
}

static int read_moments(struct zinf_trainer *t, const struct moments *m, float *memory)
{
    return zinf_location_read(t->plan.tiers, t->setup.device, t->queues[ZINF_LANE_D2H], &m->state,
                              m->offset, memory, m->bytes);
}

static void name_of(const struct zinf_trainer *t, const struct zinf_unit *unit, uint32_t tensor,
                    char name[128])
{
    snprintf(name, 128, "%s%s", t->prefix, unit->tensors[tensor].pieces[0].name);
}

int trainer_stream_factors(struct zinf_trainer *t, int which, struct zinf_tensors_writer *writer)
{
    struct region r = trainer_region(t);
    char name[128];
    int code = 0;
    for (uint32_t u = 0; u < t->setup.n_units; u++) {
        const struct zinf_unit *unit = &t->setup.graph->units[u];
        for (uint32_t i = 0; !code && i < unit->n_tensors; i++) {
            struct vector v = vector_of(unit, i, which);
            name_of(t, unit, i, name);
            if (v.n)
                code = zinf_tensors_writer_declare(
                    writer, name, zinf_file_dtype_from_dtype(ZINF_DTYPE_F32), 1, &v.n);
        }
    }
    if (!code)
        code = zinf_tensors_writer_begin(writer);
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++) {
        const struct zinf_unit *unit = &t->setup.graph->units[u];
        struct moments m = moments_of(t, u);
        code = read_moments(t, &m, r.unit);
        for (uint32_t i = 0; !code && i < unit->n_tensors; i++) {
            struct vector v = vector_of(unit, i, which);
            code = zinf_tensors_writer_append(writer, r.unit + v.offset, v.n * sizeof(float));
        }
    }
    return code ? code : zinf_tensors_writer_finish(writer);
}

static int read_vector(const struct zinf_trainer *t, const struct zinf_tensors *file,
                       const char *name, const struct vector *v, float *out)
{
    const struct zinf_tensor_info *info = zinf_tensors_find(file, name);
    if (!info || info->n_elems != v->n)
        return zinf_fail(-EINVAL,
                         "%s: the moment of %s is missing or has not %llu elements: the checkpoint "
                         "is of another model",
                         t->setup.options.model_path, name, (unsigned long long)v->n);
    return zinf_tensors_read_f32(file, info, 0, v->n, out);
}

int trainer_load_factors(struct zinf_trainer *t, int which, const struct zinf_tensors *file)
{
    struct region r = trainer_region(t);
    char name[128];
    int code = 0;
    for (uint32_t u = 0; !code && u < t->setup.n_units; u++) {
        const struct zinf_unit *unit = &t->setup.graph->units[u];
        struct moments m = moments_of(t, u);
        code = read_moments(t, &m, r.unit);
        for (uint32_t i = 0; !code && i < unit->n_tensors; i++) {
            struct vector v = vector_of(unit, i, which);
            name_of(t, unit, i, name);
            if (v.n)
                code = read_vector(t, file, name, &v, r.unit + v.offset);
        }
        if (!code)
            code = zinf_location_write(t->plan.tiers, t->setup.device, t->queues[ZINF_LANE_H2D],
                                       &m.state, m.offset, r.unit, m.bytes);
    }
    return code;
}
