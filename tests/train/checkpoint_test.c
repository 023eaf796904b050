/*
 * A training that was cut in two by a checkpoint gives the bits of the one that was not: losses,
 * gradient norms, weights, for every pair of placements, in every number type, with shuffled data,
 * accumulation, dropout and a loss scale that moves, in the middle of an epoch; also where it was
 * saved while training went on.
 */
#include "checkpoint_support.h"

#include "train/save/output.h"

/* Of the 81 pairs each number type takes a third, and together they take all; with ZINF_TEST_ALL
 * each takes all. */
static bool pair_is_due(size_t i, size_t j, const char *precision)
{
    size_t kind = strstr(precision, "bf16") ? 1 : strstr(precision, "fp16") ? 2 : 0;
    return getenv("ZINF_TEST_ALL") || (i + j) % 3 == kind;
}

static void check_pairs(const char *precision)
{
    char whole_path[600], cut_path[600], rest_path[600], from[700];
    struct outcome whole, rest;
    struct setting s = {.place = &places[0],
                        .precision = precision,
                        .output = in_work(whole_path, "whole"),
                        .steps = STEPS,
                        .seed = 7};
    output_remove(whole_path);
    CHECKF(!run(&s, &whole), "%s", zinf_error());
    in_work(cut_path, "cut");
    in_work(rest_path, "rest");
    snprintf(from, sizeof from, "%s/checkpoint-%d", cut_path, CUT);
    for (size_t i = 0; i < N_PLACES; i++) {
        output_remove(cut_path);
        s = (struct setting){&places[i],   precision,         cut_path,
                             .steps = CUT, .save_every = CUT, .seed = 7};
        CHECKF(!run(&s, NULL), "%s", zinf_error());
        for (size_t j = 0; j < N_PLACES; j++) {
            char what[100];
            if (!pair_is_due(i, j, precision))
                continue;
            snprintf(what, sizeof what, "%s/%s to %s/%s", places[i].param, places[i].optimizer,
                     places[j].param, places[j].optimizer);
            output_remove(rest_path);
            s = (struct setting){&places[j], precision, rest_path, from, .steps = STEPS, .seed = 7};
            CHECKF(!run(&s, &rest), "%s: %s", what, zinf_error());
            check_same(&whole, &rest, what);
            CHECKF(same_file(whole_path, rest_path, "model/model.safetensors"),
                   "%s: weights differ", what);
        }
    }
    if (strstr(precision, "fp16"))
        CHECKF(whole.skipped[1] && !whole.skipped[STEPS], "the loss scale does not move");
}

static void test_pairs_fp32(void)
{
    check_pairs(precisions[0]);
}

static void test_pairs_bf16(void)
{
    check_pairs(precisions[1]);
}

static void test_pairs_fp16(void)
{
    check_pairs(precisions[2]);
}

static const char half[] = "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
                           "\"bf16_optimizer_states\": true},";

static const char *params; /* of the optimizer */

/* Also the whole state at the end, under each optimizer's number and form of moments. */
static void check_state(const char *optimizer, const char *precision, int n_moments,
                        const char *extra)
{
    static const char *const files[] = {
        "model.safetensors", "optimizer/master.safetensors", "optimizer/moment1.safetensors",
        "optimizer/moment2.safetensors", "optimizer/moment3.safetensors"};
    char a[600], b[600], end_a[700], end_b[700], from[700];
    struct outcome whole, rest;
    struct setting s = {&places[8],     precision,         in_work(a, "a"),
                        .steps = STEPS, .save_every = CUT, .optimizer = optimizer,
                        .extra = extra, .params = params};
    output_remove(a);
    output_remove(in_work(b, "b"));
    CHECKF(!run(&s, &whole), "%s", zinf_error());
    CHECK(whole.n_saved == 3); /* 2, 4 and the last */
    snprintf(from, sizeof from, "%s/checkpoint-%d", a, CUT);
    s.output = b;
    s.resume = from;
    s.place = &places[4];
    CHECKF(!run(&s, &rest), "%s", zinf_error());
    check_same(&whole, &rest, optimizer);
    snprintf(end_a, sizeof end_a, "%s/checkpoint-%d", a, STEPS);
    snprintf(end_b, sizeof end_b, "%s/checkpoint-%d", b, STEPS);
    for (int k = 0; k < 2 + n_moments; k++)
        if (k != 1 || *precision) /* in fp32 the model is the master */
            CHECKF(same_file(end_a, end_b, files[k]), "%s %s: %s differs", optimizer, precision,
                   files[k]);
}

static void test_state_is_exact(void)
{
    check_state("AdamW", precisions[1], 2, NULL);
    check_state("Lion", precisions[1], 1, NULL);
    check_state("Adagrad", precisions[1], 1, NULL);
    check_state("SGD", precisions[1], 1, NULL);
    check_state("AdamW", half, 2, NULL);
}

/* A run whose matrices go to the device in 8 bits goes on from a checkpoint with the bits of one
 * that has all of them there, and so does one that makes such images from a checkpoint on: they are
 * no part of it. */
static void check_codes(const struct place *place, const char *extra)
{
    char a[600], b[600], end_a[700], end_b[700], from[700];
    struct outcome whole, rest, plain;
    struct setting s = {&places[0],        precisions[1],  in_work(a, "a"), .steps = STEPS,
                        .save_every = CUT, .extra = extra, .waits = true}; /* the last step fetches
                                                                              all that it needs */
    for (int coded = 0; coded < 2; coded++) { /* before the checkpoint */
        output_remove(a);
        s.place = coded ? place : &places[0];
        s.output = a, s.resume = NULL, s.asks_codes = coded;
        CHECKF(!run(&s, &whole), "%s", zinf_error());
        snprintf(from, sizeof from, "%s/checkpoint-%d", a, CUT);
        for (int again = 0; again < 2; again++) { /* and after it */
            output_remove(in_work(b, "b"));
            s.place = place;
            s.output = b, s.resume = from, s.asks_codes = again;
            CHECKF(!run(&s, again ? &rest : &plain), "%s", zinf_error());
            check_same(&whole, again ? &rest : &plain, extra);
            snprintf(end_a, sizeof end_a, "%s/checkpoint-%d", a, STEPS);
            snprintf(end_b, sizeof end_b, "%s/checkpoint-%d", b, STEPS);
            CHECKF(same_file(end_a, end_b, "model.safetensors"), "%s: weights differ", extra);
        }
        CHECKF(rest.fetched < 0.9 * (double)plain.fetched, "%llu bytes, %llu else",
               (unsigned long long)rest.fetched, (unsigned long long)plain.fetched);
    }
}

static void test_images_in_8_bits_are_no_state(void)
{
    check_codes(&places[4], ", \"matmul_type\": \"fp8\", \"direct\": false");
    check_codes(&places[8], ", \"matmul_type\": \"fp8\", \"direct\": false, \"pack\": \"off\"");
    check_codes(&places[8], ", \"matmul_type\": \"fp8\", \"direct\": false, \"pack\": \"all\"");
}

/* The part behind moments is what is kept of matrices; steps 1 and 4 change what gradients are
 * projected along, and checkpoints are of step 2. */
static void test_state_of_matrices_is_exact(void)
{
    static const char *const types[] = {"NorMuon", "GaLoreAdamW", "APOLLO", "APOLLO-Mini"};
    for (int i = 0; i < 4; i++) {
        params = i ? ", \"rank\": 4, \"update_proj_gap\": 3" : NULL;
        check_state(types[i], precisions[i % 2], 3, i % 2 ? ", \"pack\": \"state\"" : NULL);
    }
    params = NULL;
    char folder[600], path[700];
    struct outcome rest;
    snprintf(path, sizeof path, "%s/checkpoint-%d", in_work(folder, "a"), CUT);
    struct setting s = {&places[4],
                        precisions[1],
                        folder,
                        path,
                        .steps = STEPS,
                        .optimizer = "APOLLO-Mini",
                        .accept_changes = true};
    s.params = ", \"rank\": 5, \"update_proj_gap\": 3";
    CHECK(run(&s, &rest) == -EINVAL && strstr(zinf_error(), "or of another rank"));
}

#define OPTIMIZER_FOR(pattern, type)                                                               \
    ", \"learning_rates\": [{\"pattern\": \"" pattern "\", \"optimizer\": \"" type "\"}]"
#define LION_FOR(pattern) OPTIMIZER_FOR(pattern, "Lion")

/* Of tensors whose optimizer has one moment the second one is not in the file; another choice of
 * tensors is another training. */
static void test_state_of_two_rules(void)
{
    char folder[600], path[700];
    struct zinf_tensors *file = NULL;
    struct outcome rest;
    check_state("AdamW", precisions[1], 2, LION_FOR("*.c_*.weight"));
    check_state("AdamW8bit", precisions[0], 2, LION_FOR("*.w?e.*"));
    check_state("AdamW", precisions[1], 2, OPTIMIZER_FOR("*.c_*.weight", "Muon"));
    check_state("AdamW", precisions[0], 2, LION_FOR("*.c_*.weight"));
    snprintf(path, sizeof path, "%s/checkpoint-%d/optimizer/moment2.safetensors",
             in_work(folder, "a"), STEPS);
    CHECKF(!zinf_tensors_open(&file, path), "%s", zinf_error());
    for (uint64_t i = 0; file && i < zinf_tensors_count(file); i++) {
        const char *name = zinf_tensors_at(file, i)->name;
        CHECKF(!strstr(name, ".c_") || strstr(name, ".bias"), "%s has a second moment", name);
    }
    CHECK(file && zinf_tensors_count(file) > 4);
    zinf_tensors_close(file);
    snprintf(path, sizeof path, "%s/checkpoint-%d", folder, CUT);
    struct setting s = {&places[4], precisions[0],  folder,
                        path,       .steps = STEPS, .accept_changes = true};
    CHECK(run(&s, &rest) == -EINVAL && strstr(zinf_error(), "AdamW+Lion."));
    s.extra = LION_FOR("*.mlp.c_*.weight");
    CHECK(run(&s, &rest) == -EINVAL && strstr(zinf_error(), "set that back"));
}

/* Tensors that are cut into parts are the same ones of the file, so other parts are no other
 * choice: who accepts the change goes on, in either direction. */
static void test_two_rules_in_other_parts(void)
{
    static const struct {
        const char *type, *parts[2];
    } rows[] = {
        {"AdamW", {LION_FOR("*.c_*.weight"), LION_FOR("*.c_*.weight") ", \"tensor_parts\": 2"}},
        {"NorMuon", {"", ", \"tensor_parts\": 2"}},
    };
    char folder[600], path[700];
    struct outcome first, rest;
    for (int i = 0; i < 4; i++) {
        struct setting s = {&places[4],     precisions[1],     in_work(folder, "a"),
                            .steps = STEPS, .save_every = CUT, .extra = rows[i / 2].parts[i % 2]};
        s.optimizer = rows[i / 2].type;
        output_remove(folder);
        CHECKF(!run(&s, &first), "%s", zinf_error());
        snprintf(path, sizeof path, "%s/checkpoint-%d", folder, CUT);
        s.resume = path;
        s.extra = rows[i / 2].parts[1 - i % 2];
        CHECK(run(&s, &rest) == -EINVAL && strstr(zinf_error(), "tensor_parts"));
        s.accept_changes = true;
        CHECKF(!run(&s, &rest), "%s", zinf_error());
        CHECKF(fabs(rest.loss[STEPS] - first.loss[STEPS]) < 1e-2, "loss %g, of the first %g",
               rest.loss[STEPS], first.loss[STEPS]);
    }
}

/* Of a matrix as the file has it: a mean for each row, and one for each column; a vector is whole.
 */
static void check_factors(const char *folder)
{
    char path[800];
    struct zinf_tensors *moment = NULL, *weights = NULL;
    CHECKF(!zinf_tensors_open(&weights, folder), "%s", zinf_error());
    for (int which = 1; weights && which <= 2; which++) {
        snprintf(path, sizeof path, "%s/optimizer/moment%d.safetensors", folder, which);
        CHECKF(!zinf_tensors_open(&moment, path), "%s", zinf_error());
        for (uint64_t i = 0; moment && i < zinf_tensors_count(weights); i++) {
            const struct zinf_tensor_info *w = zinf_tensors_at(weights, i);
            const struct zinf_tensor_info *m = zinf_tensors_find(moment, w->name);
            uint64_t n = w->rank == 2 || which == 1 ? w->shape[which - 1] : 0;
            CHECKF((m ? m->n_elems : 0) == n, "%s: moment %d has %llu elements", w->name, which,
                   (unsigned long long)(m ? m->n_elems : 0));
        }
        zinf_tensors_close(moment);
    }
    zinf_tensors_close(weights);
}

static void test_small_state_is_exact(void)
{
    for (int i = 0; i < 3; i++) {
        char folder[700];
        check_state("AdamW8bit", precisions[i], 2, NULL);
        check_state("Adafactor", precisions[i], 2, NULL);
        snprintf(folder, sizeof folder, "%s/a/checkpoint-%d", work, STEPS);
        check_factors(folder);
    }
}

/* What a thread saves while training goes on is what would have been saved before the next step,
 * and training is not disturbed by it. */
static void test_saves_in_the_background(void)
{
    static const struct place kept[] = {{"nvme", "nvme"}, {"cpu", "nvme"}, {"cpu", "cpu"}};
    static const char *const names[] = {"model.safetensors", "optimizer/moment1.safetensors",
                                        "optimizer/moment2.safetensors",
                                        "optimizer/moment3.safetensors"};
    char a[600], b[600], x[700], y[700];
    for (size_t i = 0; i < 9; i++) {
        struct outcome one, other;
        struct setting s = {.place = &kept[i % 3],
                            .precision = precisions[i / 3],
                            .output = in_work(a, "waited"),
                            .steps = STEPS,
                            .save_every = 1,
                            .seed = 7};
        output_remove(a);
        CHECKF(!run(&s, &one), "%s", zinf_error());
        s.output = in_work(b, "beside");
        s.background = true;
        output_remove(b);
        CHECKF(!run(&s, &other), "%s", zinf_error());
        check_same(&one, &other, "in the background");
        CHECK(other.n_saved == STEPS && same_file(a, b, "model/model.safetensors"));
        for (int step = 1; step <= STEPS; step++)
            for (int k = 0; k < 3; k++) {
                snprintf(x, sizeof x, "%s/checkpoint-%d", a, step);
                snprintf(y, sizeof y, "%s/checkpoint-%d", b, step);
                CHECKF(same_file(x, y, names[k]), "%s/%s, %s, step %d: %s", kept[i % 3].param,
                       kept[i % 3].optimizer, precisions[i / 3], step, names[k]);
            }
    }
}

/* A save that takes longer than a step: the second step after it waits, or it would be of two
 * steps. The model is so large that the last array is read when that step writes, in its backward.
 */
static void test_a_long_save_is_of_one_step(void)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 6, .hidden = 192, .heads = 2, .vocab = 257, .context = 32};
    static const char *const names[] = {
        "optimizer/master.safetensors", "optimizer/moment1.safetensors",
        "optimizer/moment2.safetensors", "optimizer/moment3.safetensors"};
    char large[600], a[600], b[600], x[700], y[700];
    make_model(large, "large", &shape, 11);
    struct setting s = {.place = &places[8],
                        .precision = precisions[1],
                        .output = in_work(a, "long-waited"),
                        .model = large,
                        .steps = STEPS,
                        .save_every = 2,
                        .seed = 7,
                        .eager = true};
    CHECKF(!run(&s, NULL), "%s", zinf_error());
    s.output = in_work(b, "long-beside");
    s.background = true;
    CHECKF(!run(&s, NULL), "%s", zinf_error());
    for (int step = 2; step < STEPS; step += 2)
        for (int k = 0; k < 3; k++) {
            snprintf(x, sizeof x, "%s/checkpoint-%d", a, step);
            snprintf(y, sizeof y, "%s/checkpoint-%d", b, step);
            CHECKF(same_file(x, y, names[k]), "step %d: %s", step, names[k]);
        }
}

int main(void)
{
    begin_checkpoints("checkpoint");
    TAP_RUN(test_pairs_fp32);
    TAP_RUN(test_pairs_bf16);
    TAP_RUN(test_pairs_fp16);
    TAP_RUN(test_state_is_exact);
    TAP_RUN(test_images_in_8_bits_are_no_state);
    TAP_RUN(test_state_of_matrices_is_exact);
    TAP_RUN(test_state_of_two_rules);
    TAP_RUN(test_two_rules_in_other_parts);
    TAP_RUN(test_small_state_is_exact);
    TAP_RUN(test_saves_in_the_background);
    TAP_RUN(test_a_long_save_is_of_one_step);
    end_checkpoints();
    return tap_done();
}
