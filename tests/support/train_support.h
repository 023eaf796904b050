/* train_support: what the tests of whole trainings share: a folder, models, texts, comparison. */
#ifndef ZINF_TRAIN_SUPPORT_H
#define ZINF_TRAIN_SUPPORT_H

#include "base/json.h"
#include "config/config.h"
#include "files.h"
#include "formats/formats.h"
#include "tap.h"
#include "text/text.h"
#include "base/memory.h"
#include "train/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A batch of ids and targets; positions count from 0. */
#define TOKENS(ids_, targets_)                                                                     \
    (&(struct zinf_batch){.inputs = {[ZINF_INPUT_IDS] = (ids_), [ZINF_INPUT_TARGETS] = (targets_)}})

static char work[512]; /* a folder of this test's own, under BUILDDIR */

static inline void make_work(const char *name)
{
    const char *build = getenv("BUILDDIR");
    snprintf(work, sizeof work, "%s/tests/work-%s-%ld", build ? build : ".", name, (long)getpid());
    if (zinf_make_dirs(work))
        printf("Bail out! %s\n", zinf_error());
}

static inline void remove_work(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", work);
    if (system(command))
        printf("# cannot remove %s\n", work);
}

static inline char *in_work(char buffer[600], const char *name)
{
    snprintf(buffer, 600, "%s/%s", work, name);
    return buffer;
}

/* A new model in work/NAME, whose path is written to folder. */
static inline void make_model(char folder[600], const char *name,
                              const struct zinf_model_shape *shape, uint64_t seed)
{
    cJSON *config = NULL;
    CHECKF(!zinf_model_make_config(shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, seed, in_work(folder, name)), "%s",
           zinf_error());
    cJSON_Delete(config);
}

/* Whether the plan's text has these words. */
/* What a trainer says of its plan. The caller frees it. */
static inline char *plan_text(const struct zinf_trainer *t)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out && !zinf_trainer_print_plan(t, out));
    if (out)
        fclose(out);
    return text;
}

static inline bool plan_says(const struct zinf_trainer *t, const char *phrase)
{
    char *text = plan_text(t);
    bool says = text && strstr(text, phrase);
    free(text);
    return says;
}

/* Lines that differ, in the file work/NAME. */
static inline void make_text(char path[600], const char *name, int n_lines)
{
    char content[4096] = "";
    for (int i = 0; i < n_lines; i++)
        snprintf(content + strlen(content), sizeof content - strlen(content), "line %d of text. ",
                 i * i);
    CHECKF(!zinf_file_write_atomic(in_work(path, name), content, strlen(content)), "%s",
           zinf_error());
}

/* The windows of a text whose tokens are its bytes. */
static inline struct zinf_dataset *open_bytes(const char *file, struct zinf_tokenizer *tokenizer,
                                              uint32_t seq_len, bool shuffle, uint64_t seed)
{
    struct zinf_dataset *data = NULL;
    struct zinf_dataset_options options = {.files = &file,
                                           .n_files = 1,
                                           .tokenizer = tokenizer,
                                           .seq_len = seq_len,
                                           .vocab = 257,
                                           .shuffle = shuffle,
                                           .seed = seed};
    CHECKF(!zinf_dataset_open(&data, &options), "%s", zinf_error());
    return data;
}

/* A list of numbers of a fixture, of which ids has room; how many. */
static inline int64_t read_ids(const cJSON *list, int32_t *ids)
{
    const cJSON *item;
    int64_t n = 0;
    cJSON_ArrayForEach(item, list) ids[n++] = item->valueint;
    return n;
}

/* ||a - b|| / ||b|| over one tensor */
static inline double distance(const float *a, const float *b, uint64_t n)
{
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / (norm > 0 ? norm : 1));
}

/* ||all tensors of the file|| */
static inline double file_norm(struct zinf_tensors *file)
{
    double squares = 0;
    for (uint64_t i = 0; file && i < zinf_tensors_count(file); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(file, i);
        float *x = malloc(info->n_elems * sizeof *x);
        CHECK(!zinf_tensors_read_f32(file, info, 0, info->n_elems, x));
        for (uint64_t k = 0; k < info->n_elems; k++)
            squares += (double)x[k] * (double)x[k];
        free(x);
    }
    return sqrt(squares);
}

/* Distance of a tensor, below 1e-4 if good; `whole` is the norm of all tensors. One that is below
 * 1e-6 of that is zero but for rounding (the gradient of a key's bias without rotation: softmax
 * does not see a shift of all scores of a row), and so must the other be. */
static inline double tensor_distance(const float *a, const float *b, uint64_t n, double whole)
{
    double above = 0, below = 0;
    for (uint64_t i = 0; i < n; i++) {
        above += (double)a[i] * (double)a[i];
        below += (double)b[i] * (double)b[i];
    }
    if (sqrt(below) > 1e-6 * whole)
        return distance(a, b, n);
    return sqrt(above) / whole * 1e-4 / 1e-6;
}

/* Compares every tensor of the file expected with the same name in actual; names may differ by the
 * prefix "transformer.". Returns the worst distance. */
static inline double compare_files(const char *actual, const char *expected)
{
    struct zinf_tensors *a = NULL, *b = NULL;
    double worst = 0;
    CHECKF(!zinf_tensors_open(&a, actual), "%s", zinf_error());
    CHECKF(!zinf_tensors_open(&b, expected), "%s", zinf_error());
    double whole = file_norm(b);
    for (uint64_t i = 0; a && b && i < zinf_tensors_count(b); i++) {
        const struct zinf_tensor_info *want = zinf_tensors_at(b, i);
        const struct zinf_tensor_info *have = zinf_tensors_find(a, want->name);
        CHECKF(have != NULL, "%s is missing", want->name);
        if (!have || have->n_elems != want->n_elems)
            continue;
        float *x = malloc(want->n_elems * sizeof *x), *y = malloc(want->n_elems * sizeof *y);
        CHECK(!zinf_tensors_read_f32(a, have, 0, want->n_elems, x));
        CHECK(!zinf_tensors_read_f32(b, want, 0, want->n_elems, y));
        double d = tensor_distance(x, y, want->n_elems, whole);
        if (!(d <= 1e-4))
            printf("# %s: %g\n", want->name, d);
        worst = d > worst || isnan(d) ? d : worst;
        free(x);
        free(y);
    }
    CHECKF(zinf_tensors_count(a) == zinf_tensors_count(b), "different numbers of tensors");
    zinf_tensors_close(a);
    zinf_tensors_close(b);
    return worst;
}

/* The gradients that the trainer has, against those of a fixture's folder. */
static inline void check_gradient_file(struct zinf_trainer *t, const char *name, const char *folder,
                                       double loss, double wanted_loss)
{
    char ours[600], theirs[600];
    snprintf(ours, sizeof ours, "%s/%s.safetensors", work, name);
    snprintf(theirs, sizeof theirs, "%s/gradients.safetensors", folder);
    CHECKF(!zinf_trainer_save_gradients(t, ours), "%s", zinf_error());
    double worst = compare_files(ours, theirs);
    CHECKF(worst <= 1e-4, "%s: worst gradient %g", name, worst);
    printf("# %s: loss off by %.2g, worst gradient %.2g\n", name, fabs(loss / wanted_loss - 1),
           worst);
}

/* Whether two folders have the same file of this name, bit for bit. */
static inline bool same_file(const char *a, const char *b, const char *name)
{
    char x[2560], y[2560], *p = NULL, *q = NULL;
    size_t n = 0, m = 1;
    snprintf(x, sizeof x, "%s/%s", a, name);
    snprintf(y, sizeof y, "%s/%s", b, name);
    bool same = !zinf_file_read(x, 1 << 26, &p, &n) && !zinf_file_read(y, 1 << 26, &q, &m) &&
                n == m && !memcmp(p, q, n);
    free(p);
    free(q);
    return same;
}

/* Of models, or of adapters. */
static inline bool same_weights(const char *a, const char *b)
{
    return same_file(a, b, "model.safetensors") || same_file(a, b, ZINF_ADAPTER_WEIGHTS);
}

#endif
