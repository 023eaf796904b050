/*
 * Packed samples: several documents in a row of tokens, each of which sees itself alone. Their loss
 * and gradients are those of the documents one by one, with padding in the other rows; what stands
 * in padding changes no bit; and without segments a sample is one document, as it always was.
 */
#include "saved.h"

enum { SEQ = 16, BATCH = 2, ROWS = SEQ * BATCH };

/* Two samples: documents of 5, 8 and 3 tokens; of 9 and 4, and 3 of padding. */
static const int lengths[BATCH][4] = {{5, 8, 3, 0}, {9, 4, 0, 0}};
enum { N_DOCUMENTS = 5 };

struct rows {
    int32_t ids[ROWS], targets[ROWS], positions[ROWS], segments[ROWS];
};

static struct zinf_batch batch_of(const struct rows *r)
{
    return (struct zinf_batch){.inputs = {[ZINF_INPUT_IDS] = r->ids,
                                          [ZINF_INPUT_TARGETS] = r->targets,
                                          [ZINF_INPUT_POSITIONS] = r->positions,
                                          [ZINF_INPUT_SEGMENTS] = r->segments}};
}

/* The documents; of all, or of number `alone` (from 0) and then in the first sample's place. */
static void draw_rows(struct rows *r, int alone, int32_t padding)
{
    int document = 0;
    for (int i = 0; i < ROWS; i++) {
        r->ids[i] = padding;
        r->targets[i] = -1;
        r->positions[i] = r->segments[i] = 0;
    }
    for (int b = 0; b < BATCH; b++)
        for (int n = 0, first = 0; lengths[b][n]; first += lengths[b][n++], document++)
            for (int t = 0; t < lengths[b][n]; t++) {
                uint32_t counter[4] = {(uint32_t)t, (uint32_t)document, 0, 0}, bits[4];
                int at = alone < 0 ? b * SEQ + first + t : t;
                zinf_philox(counter, 9, bits);
                if (alone >= 0 && alone != document)
                    continue;
                r->ids[at] = (int32_t)(bits[0] % 61);
                r->targets[at] = t + 1 < lengths[b][n] ? (int32_t)(bits[1] % 61) : -1;
                r->positions[at] = t;
                r->segments[at] = alone < 0 ? n + 1 : 1;
            }
}

static uint64_t count_of(const struct rows *r)
{
    uint64_t n = 0;
    for (int i = 0; i < ROWS; i++)
        n += r->targets[i] >= 0;
    return n;
}

struct packed {
    struct zinf_config *config;
    struct zinf_trainer *trainer;
};

static struct packed open_packed(const char *family, enum zinf_trainer_mode mode, bool packed)
{
    struct setting s = setting_of(NULL, NULL);
    struct packed p = {configure(&s), NULL};
    take_fixture(family);
    struct zinf_trainer_options options = trainer_options(&s, p.config);
    options.mode = mode;
    options.packed = packed;
    CHECKF(!zinf_trainer_create(&p.trainer, &options), "%s: %s", family, zinf_error());
    return p;
}

static void close_packed(struct packed *p)
{
    zinf_trainer_destroy(p->trainer);
    zinf_config_destroy(p->config);
}

/* ---- against the documents one by one ---- */

static const char *const families[] = {
    "gpt2_a",        "llama_b",      "mistral_a",          "bloom_a",       "gemma2_a",
    "opt_a",         "qwen3_next_a", "granitemoehybrid_c", "nemotron_h_a",  "falcon_h1_a",
    "olmo_hybrid_a", "lfm2_a",       "gemma4_text_c",      "gemma4_text_a", "llama4_text_c",
    "ministral3_c",  "gemma4_text_e"};

static void check_losses(const char *family)
{
    struct packed p = open_packed(family, ZINF_TRAINER_FORWARD, true);
    struct rows r;
    double packed = 0, alone = 0, sum = 0;
    uint64_t n, count = 0;
    struct zinf_batch batch = batch_of(&r);
    draw_rows(&r, -1, 7);
    CHECKF(!zinf_trainer_loss(p.trainer, &batch, BATCH, &packed, &n) && n == 24, "%s",
           zinf_error());
    for (int d = 0; d < N_DOCUMENTS; d++) {
        draw_rows(&r, d, 3);
        CHECKF(!zinf_trainer_loss(p.trainer, &batch, BATCH, &alone, &n), "%s", zinf_error());
        sum += alone;
        count += n;
    }
    CHECKF(count == 24 && fabs(packed - sum) <= 1e-6 * sum, "%s: loss %.9g packed, %.9g alone",
           family, packed, sum);
    close_packed(&p);
}

static void test_losses_are_those_of_the_documents(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        check_losses(families[i]);
}

/* Adds the gradients of a file, times so much, to sums [tensors in their order][elements]. */
static uint64_t add_gradients(struct zinf_trainer *t, const struct zinf_batch *batch, double times,
                              double *sums, uint64_t most)
{
    char path[600];
    double loss, norm;
    struct zinf_tensors *file = NULL;
    uint64_t n = 0;
    CHECKF(!zinf_trainer_gradients(t, batch, &loss, &norm), "%s", zinf_error());
    CHECKF(!zinf_trainer_save_gradients(t, in_work(path, "gradients.safetensors")), "%s",
           zinf_error());
    CHECKF(!zinf_tensors_open(&file, path), "%s", zinf_error());
    for (uint64_t i = 0; file && i < zinf_tensors_count(file); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(file, i);
        float *x = malloc(info->n_elems * sizeof *x);
        CHECK(!zinf_tensors_read_f32(file, info, 0, info->n_elems, x));
        for (uint64_t k = 0; k < info->n_elems && n < most; k++)
            sums[n++] += times * (double)x[k];
        free(x);
    }
    zinf_tensors_close(file);
    return n;
}

static void check_gradients(const char *family)
{
    enum { MOST = 1 << 16 };
    struct packed p = open_packed(family, ZINF_TRAINER_GRADIENTS, true);
    struct rows r;
    struct zinf_batch batch = batch_of(&r);
    double *packed = calloc(MOST, sizeof *packed), *alone = calloc(MOST, sizeof *alone);
    double above = 0, below = 0;
    draw_rows(&r, -1, 7);
    uint64_t n = add_gradients(p.trainer, &batch, 1, packed, MOST), n_alone = 0;
    CHECK(n > 0 && n < MOST);
    for (int d = 0; d < N_DOCUMENTS; d++) {
        draw_rows(&r, d, 3);
        n_alone = add_gradients(p.trainer, &batch, (double)count_of(&r) / 24, alone, MOST);
    }
    for (uint64_t i = 0; i < n; i++) {
        above += (packed[i] - alone[i]) * (packed[i] - alone[i]);
        below += alone[i] * alone[i];
    }
    CHECKF(n == n_alone && below > 0 && sqrt(above / below) <= 1e-5, "%s: gradients are off by %g",
           family, sqrt(above / below));
    free(packed);
    free(alone);
    close_packed(&p);
}

static void test_gradients_are_those_of_the_documents(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        check_gradients(families[i]);
}

/* ---- bits ---- */

static void test_padding_changes_no_bit(void)
{
    struct packed p = open_packed("llama_b", ZINF_TRAINER_GRADIENTS, true);
    struct rows r;
    struct zinf_batch batch = batch_of(&r);
    double loss[2], norm[2];
    for (int i = 0; i < 2; i++) {
        draw_rows(&r, -1, 7 - 4 * i);
        CHECKF(!zinf_trainer_gradients(p.trainer, &batch, &loss[i], &norm[i]), "%s", zinf_error());
    }
    CHECK(loss[0] == loss[1] && norm[0] == norm[1]);
    close_packed(&p);
}

static void test_no_segments_are_one_document(void)
{
    struct rows r;
    struct zinf_batch batch = batch_of(&r);
    double loss[3], norm[3];
    draw_rows(&r, -1, 7);
    for (int i = 0; i < ROWS; i++) {
        r.segments[i] = 1;
        r.positions[i] = i % SEQ;
    }
    for (int i = 0; i < 3; i++) { /* without; with ones; with what stands for them */
        struct packed p = open_packed("llama_b", ZINF_TRAINER_GRADIENTS, i > 0);
        batch.inputs[ZINF_INPUT_SEGMENTS] = i == 1 ? r.segments : NULL;
        CHECKF(!zinf_trainer_gradients(p.trainer, &batch, &loss[i], &norm[i]), "%s", zinf_error());
        CHECK(loss[i] == loss[0] && norm[i] == norm[0]);
        close_packed(&p);
    }
}

int main(void)
{
    begin_fixtures("packed");
    TAP_RUN(test_losses_are_those_of_the_documents);
    TAP_RUN(test_gradients_are_those_of_the_documents);
    TAP_RUN(test_padding_changes_no_bit);
    TAP_RUN(test_no_segments_are_one_document);
    remove_work();
    return tap_done();
}
