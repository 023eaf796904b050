/*
 * What a step of each optimizer takes, as plans count it: bytes that the drive reads and writes and
 * that go to and from the device are those that move; what is written is what the optimizer keeps
 * of each number, by a formula of its own; and the products of updates are those that are made.
 */
#include "trainings.h"

#include "train/setup_rates.h"
#include "train/trainer.h"

enum { WIDTH = 272, LAYERS = 2, RANK = 8, GAP = 3, STEPS = GAP + 1 };

/* Of the model's matrices: numbers, Muon's neurons, numbers of images and of the vectors behind
 * them. A block has [width][3 width], a square one and two of four times the width; those of GPT-2
 * are stored as [in][out], and a neuron of ours is a row of [out][in]. */
#define MATRICES (LAYERS * 12.0 * WIDTH * WIDTH)
#define NEURONS (LAYERS * 9.0 * WIDTH)
#define IMAGES (LAYERS * 12.0 * WIDTH * RANK)
#define VECTORS (LAYERS * 4.0 * WIDTH * RANK)
#define PROJECTED ", \"rank\": 8, \"update_proj_gap\": 3"

struct row {
    const char *type, *params, *precision;
    double moments; /* bytes of each number's, where the rule is not over matrices */
    double matrix;  /* bytes that the rule keeps of all matrices; below 0: as of all numbers */
    bool in_parts;  /* each matrix is cut into four, of which the update makes one again */
};

static const char half[] = "\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true, "
                           "\"bf16_master_weights_and_grads\": true},";
static const struct row rows[] = {
    {"AdamW", "", bf16, 8, -1, false},
    {"AdamW", "", half, 4, -1, false},
    {"AdamW8bit", "", bf16, 2 + 8.0 / 256, -1, false},
    {"Lion", "", bf16, 4, -1, false},
    {"Muon", "", bf16, 8, 4 * MATRICES, false},
    {"NorMuon", "", bf16, 8, 4 * MATRICES + 4 * NEURONS, false},
    {"GaLoreAdamW", PROJECTED, bf16, 8, 8 * IMAGES + 4 * VECTORS, false},
    {"APOLLO", PROJECTED, bf16, 8, 8 * IMAGES, false},
    {"APOLLO-Mini", "", bf16, 8, 8 * IMAGES / RANK, false},
    {"Muon", "", bf16, 8, 4 * MATRICES, true},
    {"NorMuon", "", bf16, 8, 4 * MATRICES + 4 * NEURONS, true},
    {"GaLoreAdamW", PROJECTED, bf16, 8, 8 * IMAGES + 4 * VECTORS, true},
    {"APOLLO", PROJECTED, bf16, 8, 8 * IMAGES, true},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- products ---- */

static const struct zinf_device_ops *real;
static double made; /* flops of products in fp32, which only updates make here */

static int count_product(struct zinf_queue *q, const struct zinf_matmul *m)
{
    if (m->a_dtype == ZINF_DTYPE_F32 && m->b_dtype == ZINF_DTYPE_F32)
        made += (m->symmetric ? 1.0 : 2.0) * (double)m->m * (double)m->n * (double)m->k;
    return real->matmul(q, m);
}

/* Of a search for vectors at most, in a step that makes one: 30 iterations of two products, and one
 * more; with 16 vectors beside those that are kept. */
static double search_flops(void)
{
    return 61 * 2 * (RANK + 16.0) * WIDTH * 12 * WIDTH * LAYERS;
}

/* A step's products; searches as a plan spreads them. */
static double formula(const char *type)
{
    const double width = WIDTH, cube = width * width * width;
    const double image = 2 * MATRICES * RANK;
    if (strstr(type, "Muon")) /* X X^T and its square by half, and both by X */
        return LAYERS * 5 * (3 * 12 * cube + 4 * cube);
    if (!strcmp(type, "GaLoreAdamW"))
        return 2 * image + search_flops() / GAP;
    return !strcmp(type, "APOLLO") ? image : !strcmp(type, "APOLLO-Mini") ? image / RANK : 0;
}

static void check_products(const struct row *r, int step, double planned)
{
    const double wanted = formula(r->type);
    const bool searches = !strcmp(r->type, "GaLoreAdamW");
    const double spread = search_flops() / GAP;
    CHECKF(fabs(planned - wanted) <= 1e-9 * wanted, "%s: %g planned, not %g", r->type, planned,
           wanted);
    if (searches && step % GAP == 0)
        CHECKF(made > 1.01 * (wanted - spread) && made <= wanted - spread + search_flops(),
               "%s, step %d: %g", r->type, step, made);
    else
        CHECKF(fabs(made - (searches ? wanted - spread : wanted)) <= 1e-9 * wanted,
               "%s, step %d: %g products, not %g", r->type, step, made, wanted);
}

/* ---- bytes ---- */

static void check_bytes(const struct row *r, const struct zinf_step_result *ran,
                        const struct zinf_estimate *planned)
{
    static const enum zinf_lane lanes[] = {ZINF_LANE_READ, ZINF_LANE_WRITE, ZINF_LANE_H2D,
                                           ZINF_LANE_D2H};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        CHECKF(ran->lane_bytes[lanes[i]] == planned->lane_bytes[lanes[i]],
               "%s, lane %s: %llu bytes, %llu planned", r->type, zinf_lane_name(lanes[i]),
               (unsigned long long)ran->lane_bytes[lanes[i]],
               (unsigned long long)planned->lane_bytes[lanes[i]]);
}

/* Parameters and the rest of their masters in two bytes each, and moments; arrays end on a page,
 * and there are gaps between tensors. */
static void check_written(const struct row *r, const struct zinf_trainer *t, uint64_t written)
{
    const struct zinf_layout *layout = &t->setup.layout;
    const double params = (double)zinf_model_n_params(t->setup.model);
    const double own = r->matrix < 0 ? 0 : MATRICES;
    double numbers = 0;
    for (uint32_t g = 0; g < layout->n_groups; g++)
        numbers += (double)layout->groups[g].n;
    const double least = 4 * numbers + r->moments * (params - own) + own / MATRICES * r->matrix;
    const double most = least + r->moments * (numbers - params) + 8 * 4096 * layout->n_groups;
    CHECKF((double)written >= least && (double)written < most,
           "%s: %llu bytes written, not %.0f to %.0f", r->type, (unsigned long long)written, least,
           most);
}

/* By the rates of a busy machine a plan may defer updates to the next step, whose products and
 * bytes these then are. */
static bool defers(const struct zinf_trainer *t)
{
    for (uint32_t u = 0; u < t->setup.n_units; u++)
        if (t->plan.ways[u].eager && t->plan.deferred[u])
            return true;
    return false;
}

static void check_row(const struct row *r)
{
    char optimizer[200];
    struct zinf_estimate planned = {0};
    struct zinf_trainer *t = NULL;
    snprintf(optimizer, sizeof optimizer, "{\"type\": \"%s\", \"params\": {\"lr\": 1e-3%s}}",
             r->type, r->params);
    const struct setting s = {.optimizer = optimizer,
                              .precision = r->precision,
                              .grad = "cpu",
                              .schedule = "update-in-backward",
                              .extra = r->in_parts ? ", \"tensor_parts\": 4" : NULL};
    struct zinf_config *config = configure(&s);
    const struct zinf_trainer_options options = trainer_options(&s, config);
    const struct zinf_estimate_options estimated = {.trainer = options};
    CHECKF(!zinf_estimate(&planned, &estimated), "%s", zinf_error());
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    if (!t)
        return;
    struct zinf_device *cpu = t->setup.cpu ? t->setup.cpu : t->setup.device;
    real = cpu->ops;
    struct zinf_device_ops counting = *real;
    counting.matmul = count_product;
    cpu->ops = &counting;
    for (int step = 0; step < STEPS; step++) {
        struct zinf_step_result ran = {0};
        made = 0;
        CHECKF(!next_step(t, &s, (uint64_t)step, &ran), "%s", zinf_error());
        if (step && defers(t)) { /* and so may later steps */
            printf("# %s: step %d defers updates\n", r->type, step);
            break;
        }
        check_products(r, step, planned.update_flops);
        if (step < 2) /* one operation at a time, and filling the pipeline */
            continue;
        check_bytes(r, &ran, &planned);
        check_written(r, t, ran.lane_bytes[ZINF_LANE_WRITE]);
    }
    cpu->ops = real;
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_bytes_and_products(void)
{
    for (int i = 0; i < ROWS; i++)
        check_row(&rows[i]);
}

int main(void)
{
    const struct trainings all = {.shape = {.arch = "gpt2",
                                            .layers = LAYERS,
                                            .hidden = WIDTH,
                                            .heads = 4,
                                            .vocab = 96,
                                            .context = 8},
                                  .steps = STEPS,
                                  .seq = 8,
                                  .batch = 1,
                                  .sub_group = 1 << 30};
    begin_trainings("rule-work", &all);
    TAP_RUN(test_bytes_and_products);
    remove_work();
    return tap_done();
}
