/* train_support: what the tests of whole trainings share: folders, configurations, comparison. */
#ifndef ZINF_TRAIN_SUPPORT_H
#define ZINF_TRAIN_SUPPORT_H

#include "base/json.h"
#include "config/config.h"
#include "formats/formats.h"
#include "tap.h"
#include "text/text.h"
#include "base/memory.h"
#include "train/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[512]; /* a folder of this test's own, under BUILDDIR */

__attribute__((unused)) static void make_work(const char *name)
{
    const char *build = getenv("BUILDDIR");
    snprintf(work, sizeof work, "%s/tests/work-%s-%ld", build ? build : ".", name, (long)getpid());
    if (zinf_make_dirs(work))
        printf("Bail out! %s\n", zinf_error());
}

__attribute__((unused)) static void remove_work(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", work);
    if (system(command))
        printf("# cannot remove %s\n", work);
}

static int source_read(void *handle, uint64_t first, uint64_t n, int32_t *out)
{
    return zinf_token_file_read(handle, first, n, out);
}

static void source_close(void *handle)
{
    zinf_token_file_close(handle);
}

__attribute__((unused)) static int open_tokens(const char *path, struct zinf_token_source *out)
{
    struct zinf_token_file *file;
    int code = zinf_token_file_open(&file, path);
    if (!code)
        *out = (struct zinf_token_source){zinf_token_file_count(file), source_read, source_close,
                                          file};
    return code;
}

/* ||a - b|| / ||b|| over one tensor */
static double distance(const float *a, const float *b, uint64_t n)
{
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / (norm > 0 ? norm : 1));
}

/* Compares every tensor of the file expected with the same name in actual; names may differ by the
 * prefix "transformer.". Returns the worst distance. */
__attribute__((unused)) static double compare_files(const char *actual, const char *expected)
{
    struct zinf_tensors *a = NULL, *b = NULL;
    double worst = 0;
    CHECKF(!zinf_tensors_open(&a, actual), "%s", zinf_error());
    CHECKF(!zinf_tensors_open(&b, expected), "%s", zinf_error());
    for (uint64_t i = 0; a && b && i < zinf_tensors_count(b); i++) {
        const struct zinf_tensor_info *want = zinf_tensors_at(b, i);
        const struct zinf_tensor_info *have = zinf_tensors_find(a, want->name);
        CHECKF(have != NULL, "%s is missing", want->name);
        if (!have || have->n_elems != want->n_elems)
            continue;
        float *x = malloc(want->n_elems * sizeof *x), *y = malloc(want->n_elems * sizeof *y);
        CHECK(!zinf_tensors_read_f32(a, have, 0, want->n_elems, x));
        CHECK(!zinf_tensors_read_f32(b, want, 0, want->n_elems, y));
        double d = distance(x, y, want->n_elems);
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

/* Whether two folders have the same model.safetensors, bit for bit. */
__attribute__((unused)) static bool same_weights(const char *a, const char *b)
{
    char x[700], y[700], *p = NULL, *q = NULL;
    size_t n = 0, m = 1;
    snprintf(x, sizeof x, "%s/model.safetensors", a);
    snprintf(y, sizeof y, "%s/model.safetensors", b);
    bool same = !zinf_file_read(x, 1 << 26, &p, &n) && !zinf_file_read(y, 1 << 26, &q, &m) &&
                n == m && !memcmp(p, q, n);
    free(p);
    free(q);
    return same;
}

#endif
