/*
 * Every family against Hugging Face's model: the loss of a micro-batch, every gradient and some
 * logits, as tests/fixtures/make_*.py computed them. The graph is walked by model_frames.h, so this
 * stands on src/model and the kernels alone; weights and gradients go through src/model/tensors.h.
 */
#include "base/json.h"
#include "fixture_folders.h"
#include "fixture_numbers.h"
#include "formats/formats.h"
#include "model/composite.h"
#include "model/tensors.h"
#include "model_frames.h"

#include <math.h>

struct fixture {
    char folder[512];
    cJSON *expected;
    struct zinf_model *model;
    const struct zinf_graph *graph;
    struct zinf_file_map *map;
    struct zinf_scratch scratch;
    int64_t seq, batch;
    int32_t *ids, *positions, *targets; /* [batch * seq] */
    bool float8;                        /* linear layers multiply floats of 8 bits */
};

/* A file of tensors under a map, as the calls of tensors.h see it. */
struct file {
    const struct fixture *fixture;
    struct zinf_tensors *tensors;
    const char *prefix;
    /* streaming a gradient beside it */
    struct frames *frames;
    float *flat;
    const struct zinf_tensor_info *info;
    uint64_t at;
    double above, below;
};

static char *path_in(const struct fixture *f, const char *name, char buffer[600])
{
    snprintf(buffer, 600, "%s/%s", f->folder, name);
    return buffer;
}

/* tokens: [batch * seq + 1] */
static void take_tokens(struct fixture *f, const int32_t *tokens)
{
    uint64_t rows = (uint64_t)(f->batch * f->seq);
    f->ids = calloc(3 * rows, sizeof *f->ids);
    f->positions = f->ids + rows;
    f->targets = f->positions + rows;
    for (uint64_t i = 0; i < rows; i++) {
        f->ids[i] = tokens[i];
        f->targets[i] = tokens[i + 1];
        f->positions[i] = (int32_t)(i % (uint64_t)f->seq);
    }
}

/* Windows 0 to batch - 1 of the tokens. */
static void read_tokens(struct fixture *f)
{
    char path[600];
    struct zinf_token_file *file = NULL;
    uint64_t rows = (uint64_t)(f->batch * f->seq);
    int32_t *tokens = calloc(rows + 1, sizeof *tokens);
    path_in(f, cJSON_GetStringValue(cJSON_GetObjectItem(f->expected, "data")), path);
    CHECKF(!zinf_token_file_open(&file, path), "%s", zinf_error());
    CHECKF(!zinf_token_file_read(file, 0, rows + 1, tokens), "%s", zinf_error());
    take_tokens(f, tokens);
    zinf_token_file_close(file);
    free(tokens);
}

static void open_folder(struct fixture *f, const char *name)
{
    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
    CHECKF(!zinf_model_open(&f->model, f->folder), "%s", zinf_error());
    f->graph = zinf_model_graph(f->model);
    CHECKF(!zinf_file_map_create(&f->map, f->graph), "%s", zinf_error());
    f->scratch.elems = f->map->scratch_elems;
    f->scratch.base = malloc((f->scratch.elems + 1) * sizeof(float));
}

static void open_fixture(struct fixture *f, const char *name)
{
    char path[600];
    open_folder(f, name);
    CHECKF(!zinf_json_read_file(path_in(f, "expected.json", path), 1 << 20, 0, &f->expected), "%s",
           zinf_error());
    f->seq = (int64_t)number(f->expected, "seq_len");
    f->batch = (int64_t)number(f->expected, "micro_batch");
    read_tokens(f);
}

static void close_fixture(struct fixture *f)
{
    zinf_file_map_destroy(f->map);
    zinf_model_close(f->model);
    cJSON_Delete(f->expected);
    free(f->scratch.base);
    free(f->ids);
}

/* ---- weights in ---- */

static void open_file(struct file *file, const struct fixture *f, const char *name)
{
    char path[600], full[128];
    *file = (struct file){.fixture = f, .prefix = zinf_model_family(f->model)->prefix};
    CHECKF(!zinf_tensors_open(&file->tensors, path_in(f, name, path)), "%s", zinf_error());
    zinf_file_tensor_name(&f->map->tensors[0], file->prefix, full, sizeof full);
    const char *other = zinf_composite_other_prefix(zinf_model_family(f->model));
    if (!zinf_tensors_find(file->tensors, full))
        file->prefix = other ? other : "";
}

static int read_piece(void *context, const struct zinf_tensor *tensor,
                      const struct zinf_piece *piece, uint64_t first, uint64_t n, float *out)
{
    const struct file *file = context;
    char full[128];
    (void)tensor;
    zinf_file_tensor_name(zinf_file_map_find(file->fixture->map, piece->name), file->prefix, full,
                          sizeof full);
    const struct zinf_tensor_info *info = zinf_tensors_find(file->tensors, full);
    uint64_t shape[3];
    bool same = info && info->rank == zinf_piece_shape(piece, shape);
    for (int i = 0; same && i < info->rank; i++)
        same = info->shape[i] == shape[i];
    CHECKF(same, "%s is missing or has another shape", full);
    return same ? zinf_tensors_read_f32(file->tensors, info, first, n, out) : -EINVAL;
}

static void load_weights(struct frames *w, const struct fixture *f)
{
    struct file file;
    open_file(&file, f, "model.safetensors");
    struct zinf_gather gather = {read_piece, &file, f->scratch};
    for (uint32_t u = 0; u < f->graph->n_units; u++) {
        float *flat = malloc(f->graph->units[u].elems * sizeof *flat);
        CHECKF(!zinf_unit_gather(&f->graph->units[u], &gather, flat), "%s", zinf_error());
        frames_put_weights(w, u, flat);
        free(flat);
    }
    zinf_tensors_close(file.tensors);
}

/* Those that are added to the graph's own. */
static double other_losses(struct frames *w)
{
    double sum = 0;
    for (uint32_t v = 0; v < w->graph->n_values; v++) {
        float losses[64];
        uint64_t bytes = zinf_value_bytes(&w->compute, &w->graph->values[v]);
        if (w->graph->values[v].kind != ZINF_VALUE_LOSS || v == w->graph->loss)
            continue;
        CHECK(bytes <= sizeof losses);
        frames_get(w, losses, w->values[v], bytes);
        for (uint64_t i = 0; i < bytes / sizeof *losses; i++)
            sum += (double)losses[i];
    }
    return sum;
}

static void check_loss(struct frames *w, const struct fixture *f, double wanted, double bound)
{
    uint64_t rows = (uint64_t)(f->batch * f->seq);
    float *losses = malloc(rows * sizeof *losses);
    double sum = 0;
    frames_get(w, losses, w->values[f->graph->loss], rows * sizeof *losses);
    for (uint64_t i = 0; i < rows; i++)
        sum += (double)losses[i];
    sum += other_losses(w) * (double)rows;
    CHECKF(near(sum / (double)rows, wanted, bound), "%s: loss %.9g, not %.9g", f->folder,
           sum / (double)rows, wanted);
    free(losses);
}

static int give_gradient(void *context, uint32_t unit, const float **flat)
{
    struct file *file = context;
    uint64_t bytes = file->fixture->graph->units[unit].elems * sizeof(float);
    file->flat = realloc(file->flat, bytes);
    frames_get(file->frames, file->flat, file->frames->grads[unit], bytes);
    *flat = file->flat;
    return 0;
}

/* Adds to the distance from the same elements of the file. */
static int compare_elements(void *context, const float *values, uint64_t n)
{
    struct file *file = context;
    float *wanted = malloc(n * sizeof *wanted);
    int code = zinf_tensors_read_f32(file->tensors, file->info, file->at, n, wanted);
    for (uint64_t i = 0; !code && i < n; i++) {
        double d = (double)values[i] - (double)wanted[i];
        file->above += d * d;
        file->below += (double)wanted[i] * (double)wanted[i];
    }
    file->at += n;
    free(wanted);
    return code;
}

/* A gradient this small beside all of it is zero but for rounding: a key's bias without rotation
 * moves a row of scores as a whole, which softmax does not see. */
#define NOTHING 1e-6

static void check_gradients(struct frames *w, const struct fixture *f, double bound)
{
    double least = NOTHING * number(f->expected, "grad_norm");
    struct file file;
    open_file(&file, f, "gradients.safetensors");
    file.frames = w;
    struct zinf_stream stream = {give_gradient, compare_elements, &file, f->scratch};
    uint64_t n_trained = 0;
    for (uint32_t i = 0; i < f->map->n_tensors; i++) {
        char full[128];
        if (!f->graph->units[f->map->tensors[i].parts[0].unit].trained)
            continue;
        n_trained++;
        zinf_file_tensor_name(&f->map->tensors[i], file.prefix, full, sizeof full);
        file.info = zinf_tensors_find(file.tensors, full);
        CHECKF(file.info != NULL, "%s has no gradient", full);
        if (!file.info)
            continue;
        file.at = 0;
        file.above = file.below = 0;
        CHECKF(!zinf_file_tensor_stream(&f->map->tensors[i], &stream), "%s", zinf_error());
        double distance = sqrt(file.below) > least ? sqrt(file.above / file.below)
                                                   : sqrt(file.above) / least * bound;
        CHECKF(distance <= bound && file.at == file.info->n_elems,
               "%s: gradient of %s is off by %g", f->folder, full, distance);
    }
    CHECK(zinf_tensors_count(file.tensors) == n_trained);
    zinf_tensors_close(file.tensors);
    free(file.flat);
}

/* Logits of a row, tile by tile, by PASS_ROW. */
static void check_logits(struct frames *w, const struct fixture *f)
{
    const cJSON *pick;
    uint32_t last = f->graph->n_stages - 1;
    uint64_t n = f->graph->stages[last].sweep.n * (uint64_t)f->graph->row_cols;
    float *logits = malloc(n * sizeof *logits);
    cJSON_ArrayForEach(pick, cJSON_GetObjectItem(f->expected, "logits"))
    {
        int64_t row = (int64_t)number(pick, "row") * f->seq + (int64_t)number(pick, "position");
        const cJSON *wanted = cJSON_GetObjectItem(pick, "values");
        frames_row(w, row, logits);
        for (int64_t i = 0; i < f->graph->vocab; i++, wanted = wanted->next) {
            if (!i)
                wanted = wanted->child;
            CHECKF(fabs((double)logits[i] - wanted->valuedouble) < 2e-5,
                   "%s: logit %d is %g, not %g", f->folder, (int)i, (double)logits[i],
                   wanted->valuedouble);
        }
    }
    free(logits);
}

/* ---- cases ---- */

/* Attention within pieces of a sequence: of each token the number of its piece, from 1. */
static void put_pieces(struct frames *w, const struct fixture *f)
{
    int32_t *pieces = malloc((uint64_t)(f->batch * f->seq) * sizeof *pieces);
    for (uint32_t v = 0; v < f->graph->n_values; v++) {
        const struct zinf_value *value = &f->graph->values[v];
        if (value->input != ZINF_INPUT_PIECES)
            continue;
        for (int64_t i = 0; i < f->batch * f->seq; i++)
            pieces[i] = (int32_t)(1 + i % f->seq / value->piece);
        frames_put(w, w->values[v], pieces, zinf_value_bytes(&w->compute, value));
    }
    free(pieces);
}

static void start(struct frames *w, const struct fixture *f, enum zinf_dtype dtype)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 2};
    w->graph = f->graph;
    w->compute = (struct zinf_compute){
        .dtype = dtype, .batch = f->batch, .seq = f->seq, .train = true, .float8 = f->float8};
    w->loss_scale = 1.0f / (float)(f->batch * f->seq);
    CHECKF(!zinf_device_create(&w->device, &options), "%s", zinf_error());
    frames_open(w);
    load_weights(w, f);
    frames_put_input(w, ZINF_INPUT_IDS, f->ids);
    frames_put_input(w, ZINF_INPUT_POSITIONS, f->positions);
    frames_put_input(w, ZINF_INPUT_TARGETS, f->targets);
    put_pieces(w, f);
    frames_forward(w);
}

static void test_losses_and_gradients(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++) {
        struct fixture f;
        open_fixture(&f, folders[i]);
        CHECKF(!zinf_model_set_dropout(f.model, 0), "%s", zinf_error());
        f.graph = zinf_model_graph(f.model);
        zinf_file_map_destroy(f.map);
        CHECK(!zinf_file_map_create(&f.map, f.graph));
        for (int choice = 0; choice < 4; choice++) {
            struct frames w = {.whole = choice & 1, .recompute = choice & 2, .apart = choice == 3};
            start(&w, &f, ZINF_DTYPE_F32);
            check_loss(&w, &f, number(f.expected, "loss"), 1e-5);
            if (choice == 0)
                check_logits(&w, &f);
            frames_backward(&w);
            check_gradients(&w, &f, 1e-4);
            frames_close(&w);
        }
        close_fixture(&f);
    }
}

static void test_bf16_losses(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++) {
        struct fixture f;
        struct frames w = {.whole = true};
        open_fixture(&f, folders[i]);
        start(&w, &f, ZINF_DTYPE_BF16);
        check_loss(&w, &f, number(f.expected, "bf16_loss"), 2e-3);
        frames_close(&w);
        close_fixture(&f);
    }
}

/* Whether memory is aligned chooses kernels whose sums have other orders: so every tensor begins at
 * a multiple of 64 elements of its unit, whatever is before it. */
static void test_tensors_begin_aligned(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++) {
        struct fixture f;
        open_fixture(&f, folders[i]);
        for (uint32_t u = 0; u < f.graph->n_units; u++)
            for (uint32_t t = 0; t < f.graph->units[u].n_tensors; t++)
                CHECKF(f.graph->units[u].tensors[t].offset % 64 == 0, "%s: tensor %u of unit %u",
                       f.folder, t, u);
        close_fixture(&f);
    }
}

/* Of the gradients of all units. */
static double norm_of(const struct frames *w)
{
    double sum = 0;
    for (uint32_t u = 0; u < w->graph->n_units; u++) {
        uint64_t n = w->graph->units[u].elems;
        float *flat = malloc(n * sizeof *flat);
        frames_get((struct frames *)w, flat, w->grads[u], n * sizeof *flat);
        for (uint64_t i = 0; i < n; i++)
            sum += (double)flat[i] * (double)flat[i];
        free(flat);
    }
    return sqrt(sum);
}

/* Whole models whose linear layers multiply 8-bit floats, as PyTorch's casts make them and not a
 * line of this code: which operands are rounded, to which type and by which scale. Gradients are
 * rounded to bf16 in other places there. */
static void test_float8_as_torch_casts(void)
{
    char path[600];
    cJSON *cases = NULL;
    const cJSON *one;
    snprintf(path, sizeof path, "%s/tests/fixtures/float8/losses.json", getenv("SRCDIR"));
    CHECKF(!zinf_json_read_file(path, 1 << 20, 0, &cases), "%s", zinf_error());
    cJSON_ArrayForEach(one, cases)
    {
        struct fixture f;
        struct frames w = {.whole = true};
        int32_t tokens[64] = {0};
        int n = 0;
        const cJSON *token;
        open_folder(&f, cJSON_GetStringValue(cJSON_GetObjectItem(one, "folder")));
        f.batch = (int64_t)number(one, "batch");
        f.seq = (int64_t)number(one, "rows");
        f.float8 = true;
        cJSON_ArrayForEach(token, cJSON_GetObjectItem(one, "tokens")) if (n < 64) tokens[n++] =
            (int32_t)token->valuedouble;
        CHECK(n == f.batch * f.seq + 1);
        take_tokens(&f, tokens);
        start(&w, &f, ZINF_DTYPE_BF16);
        check_loss(&w, &f, number(one, "loss"), 1e-5);
        frames_backward(&w);
        CHECKF(near(norm_of(&w), number(one, "grad_norm"), 5e-3), "%s: norm %.9g, not %.9g",
               f.folder, norm_of(&w), number(one, "grad_norm"));
        frames_close(&w);
        close_fixture(&f);
    }
    cJSON_Delete(cases);
}

int main(void)
{
    TAP_RUN(test_losses_and_gradients);
    TAP_RUN(test_tensors_begin_aligned);
    TAP_RUN(test_bf16_losses);
    TAP_RUN(test_float8_as_torch_casts);
    return tap_done();
}
