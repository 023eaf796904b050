/*
 * transfer_kept: what rules keep of a matrix beside moments (rules.h, matrix_floats), between
 * checkpoints and tiers. A file has one vector for each matrix of the model's files, under its
 * name, in the order that the rule has; of a tensor with slabs those of slabs follow each other.
 * Of a matrix that ranks share the one that makes its update has it.
 */
#include "train/save/transfer.h"
#include "train/setup_rates.h"

/* Of one matrix, by this rank's first piece of it. n is 0 where its rule keeps nothing. */
struct kept {
    uint32_t unit, tensor, piece;
    uint32_t updater; /* the rank along TENSOR that has it, or EVERY_RANK */
    uint64_t n;
};

static struct kept kept_of(const struct setup *s, const struct zinf_file_part *part)
{
    const struct zinf_unit *whole = &s->whole->units[part->unit];
    const struct zinf_unit *own = &s->stages->units[part->unit];
    struct kept k = {.unit = part->unit};
    const bool leads = rule_leads(whole, (uint32_t)(part->tensor - whole->tensors),
                                  (uint32_t)(part->piece - part->tensor->pieces));
    if (!leads || !rule_find_matrix(own, part->piece, &k.tensor, &k.piece))
        return k;
    const struct optimizer *of = setup_optimizer_of(s, k.unit, k.tensor);
    const struct matrix_shape shape = rule_matrix_shape(part->tensor, part->piece);
    k.updater = setup_matrix_updater(s, k.unit, k.tensor, k.piece);
    if (unit_trains_anywhere(s, k.unit) && of->rule->matrix_floats)
        k.n = of->rule->matrix_floats(of, &shape);
    return k;
}

static uint64_t kept_of_all(const struct setup *s, const struct zinf_file_tensor *t)
{
    uint64_t n = 0;
    for (uint32_t p = 0; p < t->n_parts; p++)
        n += kept_of(s, &t->parts[p]).n;
    return n;
}

uint64_t transfer_kept_bytes(const struct setup *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->files->n_tensors; i++)
        n += kept_of_all(s, &s->files->tensors[i]);
    return n * sizeof(float);
}

/* Behind pages in the scratch, numbers in the unit, or in what one rank gives another. */
static uint64_t chunk_elems(const struct source *s, const struct region *r)
{
    const uint64_t n = r->scratch_elems - STATE_KEPT_PAGES;
    const struct zinf_layout *units = all_units(s->setup);
    const uint64_t room = s->net ? units->max_unit_elems / units->world : r->unit_elems;
    return n < room ? n : room;
}

/* ---- saving ---- */

/* Ranks that share the matrix get it from the one that has it. All of them go through the same
 * rounds of collecting, in which others want what all have. */
static int read_some(const struct source *s, const struct kept *k, struct state_kept some)
{
    const struct zinf_axis *axis = tensor_axis(s->setup);
    const bool shared = k->updater != EVERY_RANK, has = !shared || k->updater == axis->rank;
    const uint64_t bytes = some.n * sizeof(float);
    float *numbers = source_region(s).unit;
    int code = 0;
    some.n = has ? some.n : 0;
    if (s->net)
        code = collect_kept(s, &some);
    else if (has)
        code = state_read_kept(s, &some, numbers);
    return code || !shared ? code : zinf_net_broadcast(axis->net, k->updater, numbers, bytes);
}

static int append(const struct source *s, const struct kept *k, struct zinf_tensors_writer *writer)
{
    struct region r = source_region(s);
    const uint64_t most = chunk_elems(s, &r);
    int code = 0;
    for (uint64_t at = 0, n; !code && at < k->n; at += n) {
        n = k->n - at < most ? k->n - at : most;
        code = read_some(s, k, (struct state_kept){k->unit, k->tensor, k->piece, at, n});
        if (!code && writer)
            code = zinf_tensors_writer_append(writer, r.unit, n * sizeof *r.unit);
    }
    return code;
}

static int declare_all(const struct source *s, struct zinf_tensors_writer *writer)
{
    const struct zinf_file_map *files = s->setup->files;
    char name[160];
    int code = 0;
    for (uint32_t i = 0; !code && i < files->n_tensors; i++) {
        const uint64_t n = kept_of_all(s->setup, &files->tensors[i]);
        zinf_file_tensor_name(&files->tensors[i], s->prefix, name, sizeof name);
        if (n)
            code = zinf_tensors_writer_declare(writer, name,
                                               zinf_file_dtype_from_dtype(ZINF_DTYPE_F32), 1, &n);
    }
    return code ? code : zinf_tensors_writer_begin(writer);
}

int transfer_stream_kept(const struct source *s, struct zinf_tensors_writer *writer)
{
    const struct zinf_file_map *files = s->setup->files;
    int code = writer ? declare_all(s, writer) : 0;
    for (uint32_t i = 0; !code && i < files->n_tensors; i++)
        for (uint32_t p = 0; !code && p < files->tensors[i].n_parts; p++) {
            const struct kept k = kept_of(s->setup, &files->tensors[i].parts[p]);
            code = append(s, &k, writer);
        }
    if (!code && writer)
        code = zinf_tensors_writer_finish(writer);
    if (code && tensor_axis(s->setup)->net) /* the others wait for the next matrix */
        zinf_net_tell(s->setup->mesh.all, zinf_error());
    return code;
}

/* ---- loading ---- */

static bool is_own(const struct setup *s, const struct kept *k)
{
    return k->n && unit_trains(s, k->unit) &&
           setup_matrix_owner(s, k->unit, k->tensor, k->piece) == data_axis(s)->rank &&
           (k->updater == EVERY_RANK || k->updater == tensor_axis(s)->rank);
}

static int load(const struct source *s, const struct kept *k, const struct zinf_tensors *file,
                const struct zinf_tensor_info *info, uint64_t first)
{
    struct region r = source_region(s);
    const uint64_t most = chunk_elems(s, &r);
    int code = 0;
    for (uint64_t at = 0, n; !code && at < k->n; at += n) {
        n = k->n - at < most ? k->n - at : most;
        code = zinf_tensors_read_f32(file, info, first + at, n, r.unit);
        if (!code)
            code = state_write_kept(s, &(struct state_kept){k->unit, k->tensor, k->piece, at, n},
                                    r.unit);
    }
    return code;
}

int transfer_load_kept(const struct source *s, const struct zinf_tensors *file)
{
    const struct zinf_file_map *files = s->setup->files;
    char name[160];
    int code = 0;
    for (uint32_t i = 0; !code && i < files->n_tensors; i++) {
        const struct zinf_file_tensor *t = &files->tensors[i];
        const uint64_t all = kept_of_all(s->setup, t);
        zinf_file_tensor_name(t, s->prefix, name, sizeof name);
        const struct zinf_tensor_info *info = all ? zinf_tensors_find(file, name) : NULL;
        if (all && (!info || info->n_elems != all))
            return zinf_fail(-EINVAL,
                             "%s: what the optimizer keeps of %s is missing or has not %llu "
                             "numbers: the checkpoint is of another model, or of another rank",
                             s->setup->options.model_path, name, (unsigned long long)all);
        uint64_t first = 0;
        for (uint32_t p = 0; !code && p < t->n_parts; p++) {
            const struct kept k = kept_of(s->setup, &t->parts[p]);
            code = is_own(s->setup, &k) ? load(s, &k, file, info, first) : 0;
            first += k.n;
        }
    }
    return code;
}
