/*
 * Parts of matrices that are on the device one after the other (zinf.parts_in_turn): the bits of
 * parts that are there together, in all places and orders, and less memory.
 */
#include "saved.h"

static char model_name[80];

static void use_model(const char *name)
{
    snprintf(model_name, sizeof model_name, "%s", name ? name : "model");
    if (name)
        snprintf(model, sizeof model, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
    else
        in_work(model, "model");
}

/* The folder's tensors are the same; the file has them in the order of units. */
static bool same_tensors(const char *a, const char *b)
{
    char path[2][700];
    struct zinf_tensors *file[2] = {NULL, NULL};
    const char *const folders[] = {a, b};
    bool same = true;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/model.safetensors", folders[i]);
        same = same && !zinf_tensors_open(&file[i], path[i]);
    }
    same = same && zinf_tensors_count(file[0]) == zinf_tensors_count(file[1]);
    for (uint64_t i = 0; same && i < zinf_tensors_count(file[0]); i++) {
        const struct zinf_tensor_info *x = zinf_tensors_at(file[0], i);
        const struct zinf_tensor_info *y = zinf_tensors_find(file[1], x->name);
        const uint64_t bytes = x->n_elems * sizeof(float);
        float *values = malloc(2 * bytes), *others = values + x->n_elems;
        same = y && y->n_elems == x->n_elems &&
               !zinf_tensors_read_f32(file[0], x, 0, x->n_elems, values) &&
               !zinf_tensors_read_f32(file[1], y, 0, y->n_elems, others) &&
               !memcmp(values, others, bytes);
        CHECKF(same, "tensor %s differs", x->name);
        free(values);
    }
    zinf_tensors_close(file[0]);
    zinf_tensors_close(file[1]);
    return same;
}

static void check_results(const struct outcome *a, const struct outcome *b, const char *what)
{
    for (int i = 0; i < trainings.steps; i++)
        CHECKF(a->loss[i] == b->loss[i] && a->norm[i] == b->norm[i] && a->loss[i] > 0,
               "%s: step %d: loss %.17g, %.17g, norm %.17g, %.17g", what, i, a->loss[i], b->loss[i],
               a->norm[i], b->norm[i]);
    CHECKF(same_tensors(a->folder, b->folder), "%s: weights differ: %s", what, zinf_error());
}

/* A training with keys of "zinf", all at once or part by part. */
static void run_with(struct setting s, const char *keys, bool in_turn, struct outcome *out)
{
    char extra[400];
    snprintf(extra, sizeof extra, "%s, \"gradient_sum\": \"tree\"%s", keys,
             in_turn ? ", \"parts_in_turn\": true" : "");
    s.extra = extra;
    run(&s, in_turn ? "in-turn" : "together", out);
}

static void check_turns(struct setting s, const char *keys)
{
    struct outcome together, in_turn;
    char what[500];
    snprintf(what, sizeof what, "%s%s, parameters %s", model_name, keys, word(s.param, "nvme"));
    run_with(s, keys, false, &together);
    run_with(s, keys, true, &in_turn);
    CHECKF(!together.failed && !in_turn.failed, "%s: %s", what, zinf_error());
    check_results(&together, &in_turn, what);
}

/* Layer by layer and micro-batch by micro-batch, kept and made again; with dropout and without. */
static void test_same_bits_in_turn(void)
{
    const struct setting all[] = {
        {.param = "cpu", .state = "cpu", .clip = 0.5, .accumulation = 2},
        {.state = "nvme", .clip = 0.5, .accumulation = 2, .order = "micro-major"},
        {.param = "none", .state = "none", .precision = bf16},
        {.param = "cpu", .state = "nvme", .precision = bf16, .look_ahead = "0"},
    };
    static const char *const keys[] = {
        ", \"tensor_parts\": 4, \"dropout\": 0.1",
        ", \"tensor_parts\": 8, \"activation_device\": \"nvme\"",
        ", \"tensor_parts\": 2, \"activation_checkpointing\": \"always\", \"dropout\": 0.1",
        ", \"tensor_parts\": 8, \"vocabulary_tile\": 64",
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_turns(all[i], keys[i]);
}

/* Biases of products, keys that parts share, tables of positions, windows, one norm of a mean. */
static void test_families_in_turn(void)
{
    static const char *const names[] = {"gpt2_a", "llama_b", "starcoder2_a", "granite_a", "phi3_a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        use_model(names[i]);
        check_turns(
            (struct setting){.param = "cpu", .state = "cpu", .clip = 0.5, .accumulation = 2},
            ", \"tensor_parts\": 2, \"dropout\": 0.1");
    }
    use_model(NULL);
}

static void test_chunks_in_turn(void)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char keys[200];
        snprintf(keys, sizeof keys,
                 ", \"tensor_parts\": 8, \"sequence_chunk\": 4, \"activation_device\": \"%s\", "
                 "\"dropout\": 0.1",
                 places[i]);
        check_turns((struct setting){.param = "cpu", .state = "cpu", .clip = 0.5}, keys);
    }
    use_model("llama_b");
    check_turns((struct setting){.state = "nvme", .clip = 0.5, .accumulation = 2},
                ", \"tensor_parts\": 2, \"sequence_chunk\": 3");
    use_model(NULL);
}

/* The loss of the fourth step; behind the second there is a checkpoint, or it begins with one. */
static double last_loss(bool in_turn, const char *folder, bool begins, double *norm)
{
    struct setting s = {.param = "cpu", .state = "nvme", .precision = bf16, .clip = 0.5};
    struct zinf_step_result r = {0};
    char extra[200], saved[700];
    snprintf(extra, sizeof extra, ", \"tensor_parts\": 4, \"gradient_sum\": \"tree\"%s",
             in_turn ? ", \"parts_in_turn\": true" : "");
    s.extra = extra;
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = config ? open_trainer(&s, config, model) : NULL;
    if (t && begins)
        load_checkpoint(t, folder);
    for (uint64_t step = begins ? 2 : 0; t && step < 4; step++) {
        if (step == 2 && !begins)
            save_checkpoint(t, folder, saved);
        CHECKF(!next_step(t, &s, step, &r), "%s", zinf_error());
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    *norm = r.grad_norm;
    return r.loss;
}

/* Checkpoints have whole tensors: either order goes on from those of the other. */
static void test_checkpoints_in_turn(void)
{
    for (int from = 0; from < 2; from++) {
        char name[20], folder[700], output[600];
        double norm, norm_from;
        snprintf(name, sizeof name, "saved-%d", from);
        const double loss = last_loss(from, name, false, &norm);
        snprintf(folder, sizeof folder, "%s/checkpoint-2", in_work(output, name));
        for (int to = 0; to < 2; to++) {
            const double again = last_loss(to, folder, true, &norm_from);
            CHECKF(again == loss && norm_from == norm && loss > 0,
                   "from %d to %d: loss %.17g, not %.17g, norm %.17g, not %.17g", from, to, again,
                   loss, norm_from, norm);
        }
    }
}

/* The least device memory that a plan has room in. */
static uint64_t least_memory(struct setting s, const char *keys, bool in_turn)
{
    char extra[400];
    uint64_t few = 0, enough = (uint64_t)64 << 20;
    snprintf(extra, sizeof extra, "%s%s", keys, in_turn ? ", \"parts_in_turn\": true" : "");
    s.extra = extra;
    while (enough - few > enough / 64) {
        struct zinf_trainer *t = NULL;
        s.device_memory = few + (enough - few) / 2;
        struct zinf_config *config = configure(&s);
        const struct zinf_trainer_options options = trainer_options(&s, config);
        if (config && !zinf_trainer_create(&t, &options))
            enough = s.device_memory;
        else
            few = s.device_memory;
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
    return enough;
}

/* A block of 1.3 MB with a gradient of as much, in 8 parts and a chunk of 4 rows. */
static void test_memory_in_turn(void)
{
    static const char keys[] = ", \"tensor_parts\": 8, \"vocabulary_tile\": 64, "
                               "\"sequence_chunk\": 4, \"activation_device\": \"cpu\"";
    const struct setting s = {.param = "cpu", .state = "cpu", .look_ahead = "0"};
    make_model(
        model, "wide",
        &(struct zinf_model_shape){
            .arch = "llama", .layers = 1, .hidden = 160, .heads = 8, .vocab = 61, .context = 32},
        11);
    const uint64_t together = least_memory(s, keys, false), in_turn = least_memory(s, keys, true);
    CHECKF(in_turn < together / 2, "%llu bytes, %llu together", (unsigned long long)in_turn,
           (unsigned long long)together);
    use_model(NULL);
}

/* Values that are passed from part to part have one place on the drive, however many parts there
 * are: the drive holds what the plan says. Rows are whole pages, so that nothing is rounded up. */
static void test_drive_in_turn(void)
{
    struct setting s = {.param = "none",
                        .state = "none",
                        .precision = bf16,
                        .clip = 0.5,
                        .extra = ", \"tensor_parts\": 8, \"parts_in_turn\": true, "
                                 "\"sequence_chunk\": 8, \"activation_device\": \"nvme\", "
                                 "\"activation_checkpointing\": \"always\""};
    make_model(
        model, "pages",
        &(struct zinf_model_shape){
            .arch = "llama", .layers = 2, .hidden = 256, .heads = 8, .vocab = 61, .context = 32},
        12);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = config ? open_trainer(&s, config, model) : NULL;
    const uint64_t planned = t ? zinf_ledger_total_bytes(t->plan.ledger, ZINF_MEMORY_DRIVE) : 0;
    const uint64_t taken = t ? zinf_store_planned_bytes(t->setup.store) : 0;
    CHECKF(taken && taken == planned, "%llu bytes taken, %llu planned: %s",
           (unsigned long long)taken, (unsigned long long)planned, zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    use_model(NULL);
}

int main(void)
{
    begin_trainings("turns", &(struct trainings){.shape = {.arch = "llama",
                                                           .layers = 2,
                                                           .hidden = 64,
                                                           .heads = 8,
                                                           .vocab = 61,
                                                           .context = 32},
                                                 .steps = 3,
                                                 .seq = 16,
                                                 .batch = 2,
                                                 .sub_group = 4096});
    TAP_RUN(test_same_bits_in_turn);
    TAP_RUN(test_families_in_turn);
    TAP_RUN(test_chunks_in_turn);
    TAP_RUN(test_memory_in_turn);
    TAP_RUN(test_drive_in_turn);
    TAP_RUN(test_checkpoints_in_turn);
    remove_work();
    return tap_done();
}
