/*
 * deepspeed: from the pickles of a checkpoint to one list of tensors. The keys are those of
 * DeepSpeed's engine.py, stage_1_and_2.py, stage3.py and bf16_optimizer.py.
 */
#include "formats/deepspeed_table.h"
#include "formats/file_span.h"
#include "formats/safetensors.h"
#include "formats/tensors_reader.h"
#include "formats/tensors_view.h"
#include "formats/torch_file.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_GROUPS 4096 /* stage 3 has one for each sub_group_size of parameters */
/* Of a group, for each rank; DeepSpeed aligns it to 2. */
#define MOST_PADDING 512

/* ---- what is being put together ---- */

/* Parameters [next, end) of a group are still to be found. */
struct group {
    uint64_t next, end;
    uint64_t n_padded; /* elements behind the present one that were seen */
    uint64_t n_left;   /* and behind the last */
};

struct reading {
    const struct zinf_deepspeed_files *files;
    enum zinf_training_part part;
    struct zinf_tensors *to;
    struct zinf_deepspeed_table *table;
    struct zinf_torch_archive archive; /* the one that is being read */
    uint32_t file;                     /* its number */
    struct group *groups;              /* [MAX_GROUPS] */
    uint32_t n_groups;
    uint32_t shard; /* of the ranks that share tensors: whose files are read into the table */
};

void zinf_deepspeed_table_free(struct zinf_deepspeed_table *table)
{
    for (uint64_t i = 0; table && i < table->n; i++) {
        free(table->all[i].name);
        free(table->all[i].pieces);
    }
    if (table) {
        free(table->by_name);
        free(table->all);
    }
    free(table);
}

static int fail_key(const struct reading *r, const char *key)
{
    return zinf_fail(-EINVAL,
                     "%s: %s is missing or not as DeepSpeed writes it: the file is damaged or of a "
                     "version that is not known; write the checkpoint again with DeepSpeed 0.9 or "
                     "later",
                     r->archive.path, key);
}

/* ---- files ---- */

/* Adds the file to the reader's, and reads what it says. */
static int open_file(struct reading *r, const char *path)
{
    struct zinf_tensors *to = r->to;
    struct tensors_file *files = realloc(to->files, (to->n_files + 1) * sizeof *files);
    uint64_t bytes = 0;
    char *copy = strdup(path);
    if (files)
        to->files = files;
    if (!files || !copy) {
        free(copy);
        return zinf_fail(-ENOMEM, "no memory to open %s", path);
    }
    r->file = to->n_files++;
    files[r->file] = (struct tensors_file){.path = copy, .fd = -1, .kind = TENSORS_TORCH};
    int fd = files[r->file].fd = zinf_file_span_open(copy, &bytes);
    return fd < 0 ? fd : zinf_torch_archive_open(&r->archive, copy, fd, bytes);
}

static void close_file(struct reading *r)
{
    if (r->archive.path)
        zinf_torch_archive_close(&r->archive);
}

/* ---- parameters: their names and shapes ---- */

static int compare_parameters(const void *a, const void *b)
{
    const struct parameter *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static struct parameter *find_parameter(const struct reading *r,
                                        const struct zinf_pickled_text *name)
{
    char text[ZINF_TENSOR_MAX_NAME + 1];
    struct parameter wanted = {.name = text}, *key = &wanted, **found;
    if (name->bytes > ZINF_TENSOR_MAX_NAME || memchr(name->at, 0, name->bytes))
        return NULL;
    memcpy(text, name->at, name->bytes);
    text[name->bytes] = 0;
    found = bsearch(&key, r->table->by_name, r->table->n, sizeof key, compare_parameters);
    return found ? *found : NULL;
}

static int add_parameter(struct reading *r, const struct zinf_pickled_text *name, int rank,
                         const uint64_t *shape, bool trained)
{
    struct zinf_deepspeed_table *table = r->table;
    struct zinf_tensor_info info = {.dtype = ZINF_FILE_F32, .rank = rank};
    if (table->n == table->capacity) {
        uint64_t capacity = table->capacity ? 2 * table->capacity : 256;
        struct parameter *all = capacity > ZINF_SAFETENSORS_MAX_TENSORS
                                    ? NULL
                                    : realloc(table->all, capacity * sizeof *all);
        if (!all)
            return zinf_fail(-ENOMEM, "%s: no memory for so many parameters", r->archive.path);
        table->all = all;
        table->capacity = capacity;
    }
    struct parameter *p = &table->all[table->n];
    *p = (struct parameter){.rank = rank, .trained = trained, .dtype = ZINF_FILE_F32};
    memcpy(info.shape, shape, (size_t)rank * sizeof *shape);
    memcpy(p->shape, info.shape, sizeof p->shape);
    if (!zinf_tensor_size(&info) || name->bytes > ZINF_TENSOR_MAX_NAME)
        return fail_key(r, "the shape of a parameter");
    p->n_elems = info.n_elems;
    p->name = strndup(name->at, name->bytes);
    if (!p->name)
        return zinf_fail(-ENOMEM, "%s: no memory for its parameters", r->archive.path);
    table->n++;
    if (zinf_tensor_name_valid(p->name) && zinf_utf8_check(p->name, strlen(p->name)) == name->bytes)
        return 0;
    return fail_key(r, "the name of a parameter");
}

/* A dictionary from names to shapes. */
static int add_parameters(struct reading *r, zinf_pickled dict, bool trained)
{
    const struct zinf_pickle *pickle = r->archive.pickle;
    struct zinf_pickled_part at = {0};
    struct zinf_pickled_text name;
    uint64_t shape[ZINF_TENSOR_MAX_RANK];
    int code = 0;
    while (!code && zinf_pickle_walk(pickle, dict, &at)) {
        int rank = zinf_pickle_shape(pickle, at.value, shape);
        if (rank < 0 || !zinf_pickle_text(pickle, at.key, &name))
            code = fail_key(r, "param_shapes");
        else
            code = add_parameter(r, &name, rank, shape, trained);
    }
    return code;
}

static int sort_parameters(struct reading *r)
{
    struct zinf_deepspeed_table *table = r->table;
    table->by_name = malloc((table->n + 1) * sizeof *table->by_name);
    if (!table->by_name)
        return zinf_fail(-ENOMEM, "%s: no memory for its parameters", r->archive.path);
    for (uint64_t i = 0; i < table->n; i++)
        table->by_name[i] = &table->all[i];
    qsort(table->by_name, table->n, sizeof *table->by_name, compare_parameters);
    for (uint64_t i = 1; i < table->n; i++)
        if (!strcmp(table->by_name[i - 1]->name, table->by_name[i]->name))
            return fail_key(r, "param_shapes, which has a name twice,");
    return 0;
}

/* Those of all groups, then the frozen ones. */
static int read_parameters(struct reading *r)
{
    const struct zinf_pickle *pickle = r->archive.pickle;
    zinf_pickled root = zinf_pickle_root(pickle);
    zinf_pickled groups = zinf_pickle_get(pickle, root, "param_shapes");
    struct zinf_pickled_part at = {0};
    int code = 0;
    while (!code && zinf_pickle_walk(pickle, groups, &at)) {
        if (r->n_groups == MAX_GROUPS)
            return fail_key(r, "param_shapes, which has too many groups,");
        struct group *g = &r->groups[r->n_groups++];
        g->next = r->table->n;
        code = add_parameters(r, at.value, true);
        g->end = r->table->n;
    }
    if (!code && !at.begun)
        code = fail_key(r, "param_shapes");
    if (!code)
        code = add_parameters(r, zinf_pickle_get(pickle, root, "frozen_param_shapes"), false);
    return code ? code : sort_parameters(r);
}

/* ---- pieces ---- */

static int add_piece(struct reading *r, struct parameter *p, uint64_t offset, uint64_t n,
                     enum zinf_file_dtype dtype)
{
    const struct zinf_tensor_piece piece = {r->file, offset, n};
    return deepspeed_add_piece(p, &piece, dtype, r->archive.path);
}

/* Where a tensor of the pickle lies, whose elements follow each other. */
static int place(struct reading *r, zinf_pickled value, const char *key,
                 struct zinf_tensor_info *info)
{
    const struct zinf_pickled_tensor *tensor = zinf_pickle_tensor(r->archive.pickle, value);
    struct zinf_tensor_view view;
    *info = (struct zinf_tensor_info){.name = key};
    if (!tensor)
        return fail_key(r, key);
    int code = zinf_torch_archive_place(&r->archive, tensor, info, &view);
    if (!code && info->view)
        code = zinf_fail(-ENOTSUP, "%s: %s does not lie in one run", r->archive.path, key);
    return code;
}

/* The whole of a tensor is the next piece of the parameter. */
static int add_tensor(struct reading *r, struct parameter *p, zinf_pickled value)
{
    struct zinf_tensor_info info;
    int code = place(r, value, p->name, &info);
    if (code)
        return code;
    /* What stage 3 cut was padded first. */
    uint64_t left = p->n_elems - p->n_found;
    return add_piece(r, p, info.file_offset, info.n_elems < left ? info.n_elems : left, info.dtype);
}

/* ---- stages 1 and 2 ---- */

/* Array i of the group: the masters, or the moments, which the optimizer knows by number. */
static zinf_pickled array_of(const struct reading *r, zinf_pickled optimizer, const char *masters,
                             const char *states, uint32_t i)
{
    const struct zinf_pickle *pickle = r->archive.pickle;
    struct zinf_pickled_part at = {0};
    if (r->part != ZINF_TRAINING_MASTER) {
        zinf_pickled state =
            zinf_pickle_get(pickle, zinf_pickle_get(pickle, optimizer, states), "state");
        return zinf_pickle_get(pickle, zinf_pickle_get_number(pickle, state, i),
                               r->part == ZINF_TRAINING_MOMENT1 ? "exp_avg" : "exp_avg_sq");
    }
    zinf_pickled list = zinf_pickle_get(pickle, optimizer, masters);
    for (uint32_t n = 0; n <= i; n++)
        if (!zinf_pickle_walk(pickle, list, &at))
            return 0;
    return at.value;
}

/* The rank's part of a group. All ranks' parts one after the other are the group's parameters in
 * the order of param_shapes, each with its padding, and what is left is padding too. (The file also
 * has a table of places, param_slice_mappings, which is wrong with round_robin_gradients.) */
static int take_group(struct reading *r, struct group *g, zinf_pickled array)
{
    struct zinf_tensor_info info;
    int code = place(r, array, "a group's array", &info);
    uint64_t at = 0, bytes = code ? 0 : zinf_file_dtype_bytes(info.dtype);
    while (!code && at < info.n_elems && g->next < g->end) {
        struct parameter *p = &r->table->all[g->next];
        uint64_t left = p->n_elems - p->n_found, n = left ? left : p->padding - g->n_padded;
        n = n < info.n_elems - at ? n : info.n_elems - at;
        if (left)
            code = add_piece(r, p, info.file_offset + at * bytes, n, info.dtype);
        else
            g->n_padded += n;
        at += n;
        if (p->n_found == p->n_elems && g->n_padded == p->padding) {
            g->n_padded = 0;
            g->next++;
        }
    }
    g->n_left += info.n_elems - at;
    if (!code && g->n_left > (uint64_t)MOST_PADDING * r->files->world)
        code = zinf_fail(-EINVAL,
                         "%s has more elements than the parameters of the model: the files are not "
                         "of one checkpoint",
                         r->archive.path);
    return code;
}

/* What stands between the parameters of a group; older versions have none. */
static int read_paddings(struct reading *r, zinf_pickled optimizer)
{
    const struct zinf_pickle *pickle = r->archive.pickle;
    struct zinf_pickled_part list = {0}, at;
    zinf_pickled lists = zinf_pickle_get(pickle, optimizer, "param_alignment_paddings");
    for (uint32_t g = 0; g < r->n_groups && zinf_pickle_walk(pickle, lists, &list); g++) {
        at = (struct zinf_pickled_part){0};
        for (uint64_t i = r->groups[g].next; i < r->groups[g].end; i++) {
            int64_t n = -1;
            if (!zinf_pickle_walk(pickle, list.value, &at) ||
                !zinf_pickle_integer(pickle, at.value, &n) || n < 0)
                return fail_key(r, "param_alignment_paddings");
            r->table->all[i].padding = (uint64_t)n;
        }
    }
    return 0;
}

static int take_rank(struct reading *r, zinf_pickled optimizer, uint32_t rank)
{
    int code = rank ? 0 : read_paddings(r, optimizer);
    for (uint32_t g = 0; !code && g < r->n_groups; g++)
        code = take_group(
            r, &r->groups[g],
            array_of(r, optimizer, "single_partition_of_fp32_groups", "base_optimizer_state", g));
    return code;
}

/* ---- stage 3 ---- */

/* A rank's arrays as one, from which parameters take their parts in order. */
struct cursor {
    struct zinf_tensor_info array;
    uint32_t next; /* array */
    uint64_t at;   /* elements of the present one that are taken */
    zinf_pickled optimizer;
};

/* n elements are the parameter's, and pad more are nobody's. */
static int take_part(struct reading *r, struct cursor *c, struct parameter *p, uint64_t n,
                     uint64_t pad)
{
    int code = 0;
    while (!code && n + pad) {
        if (c->at == c->array.n_elems) {
            zinf_pickled array =
                array_of(r, c->optimizer, "fp32_flat_groups", "optimizer_state_dict", c->next++);
            code = array ? place(r, array, "fp32_flat_groups", &c->array)
                         : fail_key(r, "an array of fp32_flat_groups");
            c->at = 0;
            if (!code && c->next > MAX_GROUPS)
                code = fail_key(r, "fp32_flat_groups, which has too many arrays,");
            continue;
        }
        uint64_t left = c->array.n_elems - c->at, count = n ? n : pad;
        count = count < left ? count : left;
        if (n)
            code = add_piece(r, p,
                             c->array.file_offset + c->at * zinf_file_dtype_bytes(c->array.dtype),
                             count, c->array.dtype);
        *(n ? &n : &pad) -= count;
        c->at += count;
    }
    return code;
}

/* Every rank has as many elements of each parameter; the last ones are padding. */
static int take_rank_of_3(struct reading *r, zinf_pickled optimizer)
{
    struct cursor c = {.optimizer = optimizer};
    int code = 0;
    for (uint64_t i = 0; !code && i < r->table->n; i++) {
        struct parameter *p = &r->table->all[i];
        uint64_t part = p->n_elems / r->files->world + (p->n_elems % r->files->world != 0);
        uint64_t left = p->n_elems - p->n_found, n = left < part ? left : part;
        if (p->trained)
            code = take_part(r, &c, p, n, part - n);
    }
    return code;
}

/* ---- all files ---- */

static int take_optimizer(struct reading *r, uint32_t rank)
{
    int code = open_file(r, r->files->optimizers[r->shard * r->files->world + rank]);
    if (!code) {
        const struct zinf_pickle *pickle = r->archive.pickle;
        zinf_pickled optimizer =
            zinf_pickle_get(pickle, zinf_pickle_root(pickle), "optimizer_state_dict");
        code = zinf_pickle_get(pickle, optimizer, "fp32_flat_groups")
                   ? take_rank_of_3(r, optimizer)
                   : take_rank(r, optimizer, rank);
    }
    close_file(r);
    return code;
}

/* What is frozen lies with the model: cut in stage 3, else whole. The open file is the model's. */
static int take_frozen(struct reading *r, const char *key, bool trained)
{
    const struct zinf_pickle *pickle = r->archive.pickle;
    zinf_pickled dict = zinf_pickle_get(pickle, zinf_pickle_root(pickle), key);
    struct zinf_pickled_part at = {0};
    struct zinf_pickled_text name;
    int code = 0;
    while (!code && zinf_pickle_walk(pickle, dict, &at)) {
        struct parameter *p =
            zinf_pickle_text(pickle, at.key, &name) ? find_parameter(r, &name) : NULL;
        if (p && p->trained == trained && p->n_found < p->n_elems)
            code = add_tensor(r, p, at.value);
    }
    return code;
}

/* One file for each parameter and array. */
static int take_universal(struct reading *r, struct parameter *p)
{
    static const char *const names[] = {"fp32.pt", "exp_avg.pt", "exp_avg_sq.pt"};
    char *path = NULL;
    if (asprintf(&path, "%s/zero/%s/%s", r->files->folder, p->name, names[r->part]) < 0)
        return zinf_fail(-ENOMEM, "no memory for a path");
    int code = strchr(p->name, '/') ? fail_key(r, "the name of a parameter") : open_file(r, path);
    if (!code) {
        const struct zinf_pickle *pickle = r->archive.pickle;
        zinf_pickled root = zinf_pickle_root(pickle),
                     value = zinf_pickle_get(pickle, root, "param");
        code = add_tensor(r, p, value ? value : root);
    }
    close_file(r);
    free(path);
    return code;
}

static int take_trained(struct reading *r)
{
    int code = 0;
    for (uint64_t i = 0; r->files->universal && !code && i < r->table->n; i++)
        if (r->table->all[i].trained)
            code = take_universal(r, &r->table->all[i]);
    for (uint32_t rank = 0;
         !r->files->universal && r->files->optimizers && !code && rank < r->files->world; rank++)
        code = take_optimizer(r, rank);
    return code;
}

static const char *model_of(const struct reading *r)
{
    return r->files->shards ? r->files->shards[r->shard] : r->files->model;
}

/* Ranks beyond the first have pieces only of what stage 3 cut. */
static int take_models(struct reading *r)
{
    uint32_t n = r->files->models && !r->files->universal ? r->files->world : 1;
    bool any = false;
    int code = 0;
    for (uint64_t i = 0; i < r->table->n; i++)
        any |= r->table->all[i].n_found < r->table->all[i].n_elems;
    if (!any || r->part != ZINF_TRAINING_MASTER)
        return 0;
    for (uint32_t i = 0; !code && i < n; i++) {
        code = open_file(r, r->files->models ? r->files->models[i] : model_of(r));
        if (!code)
            code = take_frozen(r, "frozen_param_fragments", false);
        if (!code && !i) /* by a version that has no fragments; or stage 0 */
            code = take_frozen(r, "module", false);
        if (!code && !i && !r->files->optimizers && !r->files->universal)
            code = take_frozen(r, "module", true);
        close_file(r);
    }
    return code;
}

static int list_tensors(struct reading *r)
{
    struct zinf_tensors *to = r->to;
    to->list = calloc(r->table->n + 1, sizeof *to->list);
    if (!to->list)
        return zinf_fail(-ENOMEM, "%s: no memory for its tensors", r->files->folder);
    for (uint64_t i = 0; i < r->table->n; i++) {
        struct parameter *p = &r->table->all[i];
        struct zinf_tensor_info *info = &to->list[to->count];
        if (!p->trained && r->part != ZINF_TRAINING_MASTER)
            continue;
        if (p->n_found != p->n_elems)
            return zinf_fail(-EINVAL,
                             "%s: of '%s' there are %llu of %llu elements: the files of some ranks "
                             "are of another checkpoint, or missing",
                             r->files->folder, p->name, (unsigned long long)p->n_found,
                             (unsigned long long)p->n_elems);
        *info = (struct zinf_tensor_info){.name = p->name, .dtype = p->dtype, .rank = p->rank};
        memcpy(info->shape, p->shape, sizeof info->shape);
        zinf_tensor_size(info);
        p->view = (struct zinf_tensor_view){.pieces = p->pieces, .n_pieces = p->n_pieces};
        if (p->n_pieces) {
            info->file = p->pieces[0].file;
            info->file_offset = p->pieces[0].file_offset;
            info->view = p->n_pieces > 1 ? &p->view : NULL;
        }
        to->count++;
    }
    return 0;
}

/* The parameters of a rank that shares tensors, or of all. cuts: how they are cut, unless NULL. */
static int read_shard(struct reading *r, struct deepspeed_cuts *cuts)
{
    r->n_groups = 0;
    memset(r->groups, 0, MAX_GROUPS * sizeof *r->groups);
    int code = open_file(r, model_of(r));
    if (!code)
        code = read_parameters(r);
    if (!code && cuts)
        code = deepspeed_read_cuts(cuts, r->archive.pickle, r->archive.path);
    close_file(r);
    if (!code)
        code = take_trained(r);
    return code ? code : take_models(r);
}

static int read_shards(struct reading *r)
{
    const uint32_t n = r->files->tensor;
    struct zinf_deepspeed_table *first = r->table, **tables = calloc(n, sizeof *tables);
    struct deepspeed_cuts cuts = {0};
    int code = tables ? 0 : zinf_fail(-ENOMEM, "no memory to open %s", r->files->folder);
    for (r->shard = 0; !code && r->shard < n; r->shard++) {
        r->table = tables[r->shard] = r->shard ? calloc(1, sizeof *first) : first;
        code = r->table ? read_shard(r, r->shard ? NULL : &cuts)
                        : zinf_fail(-ENOMEM, "no memory to open %s", r->files->folder);
    }
    if (!code)
        code = deepspeed_join(tables, n, &cuts, r->files->folder);
    for (uint32_t s = 1; tables && s < n; s++)
        zinf_deepspeed_table_free(tables[s]);
    free(tables);
    deepspeed_cuts_free(&cuts);
    r->table = first;
    r->shard = 0;
    return code;
}

int zinf_deepspeed_open(struct zinf_tensors *tensors, const struct zinf_deepspeed_files *files,
                        enum zinf_training_part part)
{
    struct reading r = {.files = files, .part = part, .to = tensors};
    if (part != ZINF_TRAINING_MASTER && !files->optimizers && !files->universal)
        return zinf_fail(-ENOTSUP,
                         "%s has no moments of ZeRO: only its weights can be read, with --model",
                         files->folder);
    r.table = tensors->deepspeed = calloc(1, sizeof *r.table);
    r.groups = calloc(MAX_GROUPS, sizeof *r.groups);
    int code = r.table && r.groups ? 0 : zinf_fail(-ENOMEM, "no memory to open %s", files->folder);
    if (!code)
        code = files->shards ? read_shards(&r) : read_shard(&r, NULL);
    free(r.groups);
    return code ? code : list_tensors(&r);
}

/* ---- counters ---- */

static int read_counter(const struct reading *r, const char *key, uint64_t *out)
{
    const struct zinf_pickle *pickle = r->archive.pickle;
    int64_t value = -1;
    if (!zinf_pickle_integer(pickle, zinf_pickle_get(pickle, zinf_pickle_root(pickle), key),
                             &value) ||
        value < 0)
        return fail_key(r, key);
    *out = (uint64_t)value;
    return 0;
}

/* With AutoTP the counter has the samples of all ranks, though those that share tensors have the
 * same ones: it is as many times a rank's share as there are ranks, and not as samples. */
static bool counts_twice(const struct reading *r, const struct zinf_training_state *state)
{
    const struct zinf_pickle *pickle = r->archive.pickle;
    zinf_pickled root = zinf_pickle_root(pickle);
    zinf_pickled config = zinf_pickle_get(pickle, root, "ds_config");
    int64_t micro = 0, accumulation = 1;
    zinf_pickle_integer(pickle, zinf_pickle_get(pickle, config, "train_micro_batch_size_per_gpu"),
                        &micro);
    zinf_pickle_integer(pickle, zinf_pickle_get(pickle, config, "gradient_accumulation_steps"),
                        &accumulation);
    const double each = (double)micro * (double)accumulation * (double)state->step;
    return r->files->tensor > 1 && micro > 0 &&
           (double)state->n_samples == each * r->files->world * r->files->tensor;
}

int zinf_deepspeed_read_state(struct zinf_training_state *out, struct zinf_tensors *tensors,
                              const struct zinf_deepspeed_files *files)
{
    struct reading r = {.files = files, .to = tensors};
    *out = (struct zinf_training_state){.world = files->world,
                                        .optimized = files->optimizers || files->universal};
    int code = open_file(&r, files->model);
    if (!code)
        code = read_counter(&r, "global_steps", &out->step);
    if (!code)
        code = read_counter(&r, "skipped_steps", &out->n_skipped);
    if (!code)
        code = read_counter(&r, "global_samples", &out->n_samples);
    if (!code && counts_twice(&r, out))
        out->n_samples /= files->tensor;
    close_file(&r);
    if (!code && out->n_skipped > out->step)
        code = zinf_fail(-EINVAL, "%s: more steps were skipped than taken", files->model);
    return code;
}
