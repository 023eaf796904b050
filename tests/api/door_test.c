/*
 * door: what a program does with a session that the command does not: cancels, goes on behind rows
 * that it has given before, takes steps of its own and uses their weights, drives several seats,
 * and teaches an encoder-decoder.
 */
#include "api/api.h"

#include "ports.h"
#include "train_support.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static char gpt[600], t5[600], output[600];
static struct zinf_setting settings[40];
static size_t n_settings;

static void set(const char *name, const char *text)
{
    settings[n_settings++] = (struct zinf_setting){name, text};
}

/* A session of the model with what all of them have, and what was set before. */
static struct zinf_session *opened(const char *model)
{
    struct zinf_session *session = NULL;
    set("model", model);
    set("output", output);
    set("device", "host");
    set("micro_batch", "2");
    set("dtype", "fp32");
    CHECKF(!zinf_session_open(&session, settings, n_settings), "%s", zinf_error());
    n_settings = 0;
    return session;
}

/* ---- rows ---- */

struct rows {
    uint64_t at, n, skipped, read;
    const char *format;
};

static int next_row(void *arg, const char **row)
{
    static char text[160];
    struct rows *r = arg;
    if (r->at == r->n)
        return 0;
    snprintf(text, sizeof text, r->format, (unsigned long long)r->at, (unsigned long long)r->at);
    r->at++;
    r->read++;
    *row = text;
    return 1;
}

static int skip_rows(void *arg, uint64_t n)
{
    struct rows *r = arg;
    r->at = r->skipped = n;
    return 0;
}

static const char texts[] = "{\"text\": \"row %llu and again row %llu, which is long enough\"}";
static const char pairs[] = "{\"source\": \"say %llu\", \"target\": \"it is %llu\"}";

static int give(struct zinf_session *session, enum zinf_row_kind which, struct rows *r, bool skips)
{
    const struct zinf_row_source rows = {
        .size = sizeof rows, .next = next_row, .skip = skips ? skip_rows : NULL, .arg = r};
    return zinf_session_rows(session, which, &rows);
}

/* ---- whole trainings ---- */

struct heard {
    struct zinf_session *session;
    uint64_t cancel_after, last, first, of;
    double loss[64];
};

static void stepped(void *arg, const struct zinf_step *step)
{
    struct heard *h = arg;
    h->first = h->first ? h->first : step->step;
    h->last = step->step;
    h->of = step->steps;
    if (step->step < 64)
        h->loss[step->step] = step->loss;
    if (step->step == h->cancel_after)
        zinf_session_cancel(h->session);
}

/* What was set, on these rows. */
static void train_on(struct heard *h, const char *model, struct rows *r, bool skips)
{
    const struct zinf_events events = {.size = sizeof events, .stepped = stepped, .arg = h};
    h->session = opened(model);
    CHECKF(!give(h->session, ZINF_ROWS_OF_TRAINING, r, skips), "%s", zinf_error());
    CHECKF(!zinf_session_train(h->session, &events), "%s", zinf_error());
}

static void set_training(const char *steps, bool resumed)
{
    set("steps", steps);
    set("seq_len", "32");
    set("format", "text");
    set(resumed ? "resume" : "overwrite", resumed ? "" : "true");
}

static void train_texts(struct heard *h, struct rows *r, bool resumed, bool skips)
{
    set_training("8", resumed);
    train_on(h, gpt, r, skips);
    zinf_session_close(h->session);
}

static void test_cancel_and_rows_of_a_resumed_training(void)
{
    struct heard whole = {0}, first = {.cancel_after = 3}, rest = {0}, again = {0};
    struct rows all = {.n = 40, .format = texts}, some = all, behind = all, dropped = all;
    train_texts(&whole, &all, false, true);
    CHECK(whole.last == 8 && whole.of == 8 && all.read == 40);
    train_texts(&first, &some, false, true);
    CHECKF(first.last == 3, "cancelled after step 3, ended after %llu",
           (unsigned long long)first.last);
    train_texts(&rest, &behind, true, true);
    CHECK(behind.skipped == 40 && behind.read == 0);
    CHECKF(rest.first == 4 && rest.last == 8, "from %llu to %llu", (unsigned long long)rest.first,
           (unsigned long long)rest.last);
    for (int i = 4; i <= 8; i++)
        CHECKF(rest.loss[i] == whole.loss[i], "step %d: %.9g, %.9g without the break", i,
               rest.loss[i], whole.loss[i]);
    train_texts(&again, &dropped, true, false);
    CHECK(dropped.read == 40 && again.last == 0); /* read again, and nothing is left to do */
}

/* What is said before a training is for that one alone, and can be taken back. */
static void test_cancel_before_a_training(void)
{
    static const uint64_t ends_at[] = {1, 8, 8};
    set_training("8", false);
    struct zinf_session *session = opened(gpt);
    struct rows rows = {.n = 40, .format = texts};
    CHECKF(!give(session, ZINF_ROWS_OF_TRAINING, &rows, true), "%s", zinf_error());
    for (int i = 0; i < 3; i++) {
        struct heard heard = {0};
        const struct zinf_events events = {
            .size = sizeof events, .stepped = stepped, .arg = &heard};
        if (i != 1)
            zinf_session_cancel(session);
        if (i == 2)
            zinf_session_uncancel(session);
        CHECKF(!zinf_session_train(session, &events), "%s", zinf_error());
        CHECKF(heard.last == ends_at[i], "training %d ended after step %llu", i,
               (unsigned long long)heard.last);
    }
    zinf_session_close(session);
}

/* ---- a source that does not answer ---- */

struct hanging {
    struct zinf_session *session;
    uint64_t answers, given; /* rows before the one that does not come */
    sem_t asked, may_answer, done;
    uint64_t cancelled_ns;
};

static int next_or_hang(void *arg, const char **row)
{
    static char text[160];
    struct hanging *h = arg;
    if (h->given == h->answers) {
        sem_post(&h->asked);
        while (sem_wait(&h->may_answer))
            continue;
        return -EIO;
    }
    snprintf(text, sizeof text, texts, (unsigned long long)h->given, (unsigned long long)h->given);
    h->given++;
    *row = text;
    return 1;
}

static void is_done(void *arg)
{
    struct hanging *h = arg;
    sem_post(&h->done);
}

static void *cancel_when_it_hangs(void *arg)
{
    struct hanging *h = arg;
    while (sem_wait(&h->asked))
        continue;
    usleep(50000);
    h->cancelled_ns = zinf_now_ns();
    zinf_session_cancel(h->session);
    return NULL;
}

/* Behind so many rows: at the first, before the first step, and after some of them. It ends in
 * time, and so does close; the source is used until done is called, and not after it. */
static void test_a_source_that_does_not_answer(void)
{
    static const uint64_t answers[] = {0, 1, 40};
    for (int i = 0; i < 3; i++) {
        struct hanging *h = calloc(1, sizeof *h);
        const struct zinf_row_source rows = {
            .size = sizeof rows, .next = next_or_hang, .arg = h, .done = is_done};
        struct zinf_measure unused = ZINF_SIZED(struct zinf_measure);
        pthread_t canceller;
        h->answers = answers[i];
        sem_init(&h->asked, 0, 0);
        sem_init(&h->may_answer, 0, 0);
        sem_init(&h->done, 0, 0);
        set_training("900", false);
        set("streaming", "true");
        h->session = opened(gpt);
        CHECKF(!zinf_session_rows(h->session, ZINF_ROWS_OF_TRAINING, &rows), "%s", zinf_error());
        CHECK(!pthread_create(&canceller, NULL, cancel_when_it_hangs, h));
        const int code = zinf_session_train(h->session, NULL);
        CHECKF(code == (answers[i] ? 0 : -EINTR), "%d: %s", code, zinf_error());
        CHECKF(answers[i] || strstr(zinf_error(), "cancelled"), "%s", zinf_error());
        pthread_join(canceller, NULL);
        CHECK(answers[i] < 40 || zinf_session_evaluate(h->session, &unused) == -EINVAL);
        CHECK(sem_trywait(&h->done)); /* a session that is open may ask again */
        zinf_session_close(h->session);
        const double seconds = (double)(zinf_now_ns() - h->cancelled_ns) * 1e-9;
        CHECKF(seconds < 60, "%g s after it was cancelled", seconds);
        CHECK(sem_trywait(&h->done));
        sem_post(&h->may_answer);
        while (sem_wait(&h->done))
            continue;
        sem_destroy(&h->asked);
        sem_destroy(&h->may_answer);
        sem_destroy(&h->done);
        free(h);
    }
}

static void test_rows_without_a_size(void)
{
    const struct zinf_row_source rows = {.next = next_or_hang};
    set_training("3", false);
    set("streaming", "true");
    struct zinf_session *session = opened(gpt);
    CHECK(zinf_session_rows(session, ZINF_ROWS_OF_TRAINING, &rows) == -EINVAL);
    CHECKF(strstr(zinf_error(), "ZINF_SIZED"), "%s", zinf_error());
    zinf_session_close(session);
}

static void test_rows_that_end_too_early(void)
{
    struct rows few = {.n = 10, .format = texts};
    set("resume", "");
    struct zinf_session *session = opened(gpt);
    CHECK(give(session, ZINF_ROWS_OF_TRAINING, &few, false) == -EINVAL);
    CHECKF(strstr(zinf_error(), "40"), "%s", zinf_error());
    zinf_session_close(session);
}

/* As many samples a step, by two devices of this process. */
static void test_seats(void)
{
    struct heard by[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        struct rows r = {.n = 40, .format = texts};
        set_training("4", false);
        set("seats", i ? "2" : "1");
        set("accumulate", i ? "1" : "2");
        train_on(&by[i], gpt, &r, false);
        zinf_session_close(by[i].session);
        CHECK(by[i].last == 4);
    }
    for (int i = 1; i <= 4; i++)
        CHECKF(fabs(by[0].loss[i] - by[1].loss[i]) < 1e-6, "step %d: %.9g, %.9g", i, by[0].loss[i],
               by[1].loss[i]);
}

static void test_steps_are_of_one_seat(void)
{
    int64_t samples, tokens;
    int32_t ids[64] = {0};
    set("seats", "2");
    struct zinf_session *session = opened(gpt);
    CHECK(!zinf_session_batch(session, &samples, &tokens));
    CHECK(zinf_session_step(session, ids, ids, NULL) == -ENOTSUP);
    CHECKF(strstr(zinf_error(), "seats"), "%s", zinf_error());
    zinf_session_close(session);
}

/* ---- an encoder-decoder ---- */

static void test_an_encoder_decoder(void)
{
    struct heard h = {0};
    struct zinf_measure found = ZINF_SIZED(struct zinf_measure);
    struct rows r = {.n = 30, .format = pairs}, eval = {.n = 6, .format = pairs};
    char *text = NULL;
    set("steps", "4");
    set("lr", "1e-3");
    set("overwrite", "true");
    train_on(&h, t5, &r, false);
    CHECKF(h.last == 4 && h.loss[4] < h.loss[1], "%.9g, %.9g", h.loss[1], h.loss[4]);
    CHECKF(!zinf_session_generate(h.session, "say 3", &text), "%s", zinf_error());
    CHECK(text);
    free(text);
    zinf_session_close(h.session);

    set("metric", "exact_match");
    set("max-new-tokens", "8");
    set("num-beams", "2");
    struct zinf_session *session = opened(t5);
    CHECKF(!give(session, ZINF_ROWS_OF_EVALUATION, &eval, false), "%s", zinf_error());
    CHECKF(!zinf_session_evaluate(session, &found), "%s", zinf_error());
    CHECKF(found.tokens > 0 && found.n_scores == 1 && !strcmp(found.scores[0].name, "exact_match"),
           "%llu tokens, %u scores", (unsigned long long)found.tokens, found.n_scores);
    zinf_session_close(session);
}

/* ---- steps of one's own ---- */

static char *answer(struct zinf_session *session)
{
    char *text = NULL;
    CHECKF(!zinf_session_generate(session, "abab", &text), "%s", zinf_error());
    return text;
}

static double evaluation(struct zinf_session *session)
{
    struct zinf_measure found = ZINF_SIZED(struct zinf_measure);
    CHECKF(!zinf_session_evaluate(session, &found), "%s", zinf_error());
    return found.loss;
}

static struct zinf_session *opened_for_texts(const char *model)
{
    struct rows r = {.n = 8, .format = texts};
    set("lr", "1e-2");
    set("seq_len", "32");
    set("temperature", "0");
    set("max_new_tokens", "6");
    set("format", "text");
    struct zinf_session *session = opened(model);
    CHECKF(!give(session, ZINF_ROWS_OF_EVALUATION, &r, false), "%s", zinf_error());
    return session;
}

/* What steps have left is what is evaluated, continued and saved. */
static void test_texts_are_by_the_weights_of_steps(void)
{
    static int32_t ids[64], targets[64];
    char saved[620];
    int64_t samples, tokens;
    struct zinf_session *session = opened_for_texts(gpt);
    char *before = answer(session);
    const double loss = evaluation(session);
    CHECK(!zinf_session_batch(session, &samples, &tokens) && samples * tokens == 64);
    for (int i = 0; i < 64; i++) {
        ids[i] = 'a' + i % 2;
        targets[i] = 'x';
    }
    for (int i = 0; i < 30; i++)
        CHECKF(!zinf_session_step(session, ids, targets, NULL), "%s", zinf_error());
    char *after = answer(session);
    CHECKF(after && !strcmp(after, "xxxxxx"), "after steps: %s", after ? after : "nothing");
    CHECK(before && after && strcmp(before, after));
    const double learnt = evaluation(session);
    CHECKF(learnt != loss, "%.9g before, %.9g after", loss, learnt);
    snprintf(saved, sizeof saved, "%s/saved", work);
    CHECKF(!zinf_session_save(session, saved), "%s", zinf_error());
    zinf_session_close(session);

    session = opened_for_texts(saved);
    char *again = answer(session);
    CHECK(again && after && !strcmp(again, after));
    CHECKF(evaluation(session) == learnt, "not %.9g", learnt);
    zinf_session_close(session);
    free(before);
    free(after);
    free(again);
}

/* ---- several processes ---- */

/* Two steps and an evaluation: losses. Each process takes its share of four samples, of which one
 * alone has all. */
static void take_steps(const char *model, int rank, int world, double losses[3])
{
    struct rows r = {.n = 8, .format = texts};
    int32_t ids[4 * 32], targets[4 * 32];
    int64_t samples, tokens;
    const int64_t first = 4 / world * rank * 32;
    for (int i = 0; i < 4 * 32; i++) {
        ids[i] = 'a' + i * 7 % 23;
        targets[i] = 'a' + (i + 1) * 7 % 23;
    }
    set("lr", "1e-2");
    set("seq_len", "32");
    set("format", "text");
    set("accumulate", world == 1 ? "2" : "1");
    struct zinf_session *session = opened(model);
    CHECKF(!give(session, ZINF_ROWS_OF_EVALUATION, &r, false), "%s", zinf_error());
    CHECKF(!zinf_session_batch(session, &samples, &tokens), "%s", zinf_error());
    CHECKF(samples == 4 / world && tokens == 32, "%lld samples", (long long)samples);
    for (int i = 0; i < 2; i++) {
        struct zinf_step step = ZINF_SIZED(struct zinf_step);
        CHECKF(!zinf_session_step(session, ids + first, targets + first, &step), "%s",
               zinf_error());
        losses[i] = step.loss;
    }
    losses[2] = evaluation(session);
    zinf_session_close(session);
}

/* One of the processes that the test below starts, as torchrun does: it prints its losses. */
static int run_rank(const char *model, const char *folder)
{
    double losses[3] = {0};
    snprintf(output, sizeof output, "%s", folder);
    take_steps(model, atoi(getenv("RANK")), 2, losses);
    FILE *file = fopen(in_work(gpt, getenv("RANK")), "w");
    for (int i = 0; file && i < 3; i++)
        fprintf(file, "%.9g\n", losses[i]);
    return !file || fclose(file) || tap_case_failures;
}

static void test_steps_and_evaluations_of_two_processes(void)
{
    double one[3], two[3];
    char command[2048], path[600];
    take_steps(gpt, 0, 1, one);
    snprintf(command, sizeof command,
             "p=%u; for r in 1 0; do RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 "
             "LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$p TORCHELASTIC_RESTART_COUNT=1 "
             "TORCHELASTIC_RUN_ID=door-$$ OMP_NUM_THREADS=1 /proc/%ld/exe '%s' '%s' '%s'/out-$r & "
             "done; wait",
             take_port(), (long)getpid(), work, gpt, work);
    CHECK(!system(command));
    for (int rank = 0; rank < 2; rank++) {
        FILE *file = fopen(in_work(path, rank ? "1" : "0"), "r");
        CHECKF(file && fscanf(file, "%lf %lf %lf", &two[0], &two[1], &two[2]) == 3, "rank %d",
               rank);
        for (int i = 0; file && i < 3; i++)
            CHECKF(fabs(one[i] - two[i]) < 1e-5, "%d of rank %d: %.9g, %.9g", i, rank, one[i],
                   two[i]);
        if (file)
            fclose(file);
    }
}

/* ---- options ---- */

static void test_one_name_of_two_options(void)
{
    struct zinf_session *session = NULL;
    const struct zinf_setting of_texts = {"early-stopping", "never"},
                              of_trainings = {"early_stopping", "3"},
                              of_none = {"early-stopping", "x"};
    CHECK(!zinf_session_open(&session, &of_texts, 1));
    zinf_session_close(session);
    CHECK(!zinf_session_open(&session, &of_trainings, 1));
    zinf_session_close(session);
    CHECK(zinf_session_open(&session, &of_none, 1) == -EINVAL && !session);
}

/* A sentence calls options as the caller does. */
static void check_says(const struct zinf_setting *setting, const char *wanted, const char *unwanted)
{
    struct zinf_session *session = NULL;
    CHECK(zinf_session_open(&session, setting, 1) == -EINVAL);
    CHECKF(strstr(zinf_error(), wanted) && !strstr(zinf_error(), unwanted), "%s", zinf_error());
}

static void test_sentences_call_options_as_the_caller_does(void)
{
    int64_t samples, tokens;
    check_says(&(struct zinf_setting){"seq_len", "x"}, "option seq-len 'x'", "--");
    check_says(&(struct zinf_setting){"--seq-len", "x"}, "--seq-len 'x'", "option");
    check_says(&(struct zinf_setting){"seq_lem", "x"}, "did you mean option seq-len?", "--");
    set("seq_len", "640");
    struct zinf_session *session = opened(gpt);
    CHECK(zinf_session_batch(session, &samples, &tokens) == -EINVAL);
    CHECKF(strstr(zinf_error(), "option seq-len 640: the model's context is 64"), "%s",
           zinf_error());
    zinf_session_close(session);
    char text[200], nowhere[700];
    snprintf(nowhere, sizeof nowhere, "%s/nowhere", work);
    session = opened(nowhere);
    CHECK(zinf_session_batch(session, &samples, &tokens) == -ENOENT);
    CHECKF(strstr(zinf_error(), "option model"), "%s", zinf_error());
    zinf_session_close(session);
    zinf_spell(
        text, sizeof text,
        "--task reward: train it with zinf train --task reward, or give --new-head (--lr 1)");
    CHECKF(!strcmp(text,
                   "option task reward: train it with zinf train --task reward, or give option "
                   "new-head (option lr 1)"),
           "%s", text);
    zinf_spell(text, sizeof text,
               "docker run --ulimit memlock=-1; --with-mpi; a--lr; -- and ---lr");
    CHECKF(!strcmp(text, "docker run --ulimit memlock=-1; --with-mpi; a--lr; -- and ---lr"), "%s",
           text);
    zinf_spell(text, 12, "--seq-len 7 is too much");
    CHECKF(!strcmp(text, "option seq-"), "%s", text);
}

static void test_what_options_there_are(void)
{
    struct zinf_option_facts facts = ZINF_SIZED(struct zinf_option_facts);
    size_t n = 0;
    bool seen = false;
    for (; !zinf_option_facts(n, &facts); n++) {
        CHECK(facts.name && facts.kind && facts.help);
        CHECKF(!strcmp(facts.kind, "flag") == !facts.value, "%s", facts.name);
        if (strcmp(facts.name, "device"))
            continue;
        seen = true;
        CHECK(!strcmp(facts.kind, "word") && !strcmp(facts.usual, "auto"));
        CHECK(!strcmp(zinf_option_word(n, 2), "cuda") && !zinf_option_word(n, 3));
    }
    CHECK(seen && n > 60 && zinf_option_facts(n, &facts) == -ENOENT && !zinf_option_word(n, 0));
}

static void test_a_configuration_without_a_file(void)
{
    int64_t samples, tokens;
    set("config", " {\"gradient_accumulation_steps\": 3, \"zinf\": {\"timeout\": 77}}");
    set("seq_len", "16");
    struct zinf_session *session = opened(gpt);
    CHECKF(!zinf_session_batch(session, &samples, &tokens), "%s", zinf_error());
    CHECK(samples == 6 && tokens == 16);
    zinf_session_close(session);
    set("config", "{\"gradient_clippin\": 1}");
    session = opened(gpt);
    CHECK(zinf_session_batch(session, &samples, &tokens) == -EINVAL);
    CHECKF(strstr(zinf_error(), "gradient_clipping"), "%s", zinf_error());
    zinf_session_close(session);
}

/* ---- plans ---- */

static struct zinf_plan plan_of(bool prefers)
{
    struct zinf_plan plan = ZINF_SIZED(struct zinf_plan);
    set("threads", "1");
    if (prefers)
        set("preference", "dpo");
    struct zinf_session *s = opened(gpt);
    CHECKF(!zinf_session_plan(s, &plan), "%s", zinf_error());
    zinf_session_close(s);
    return plan;
}

/* A cache of zinf bench that says that the optimizer is slow. */
static void test_plans_go_by_measured_speeds(void)
{
    static const char slow[] = "{\"optim\": {\"AdamW/fp32\": {\"bytes\": 1e6, \"threads\": 1}}}";
    char folder[600], file[600];
    CHECK(!zinf_make_dirs(in_work(folder, "cache/zinf")));
    setenv("XDG_CACHE_HOME", in_work(folder, "cache"), 1);
    const struct zinf_plan stated = plan_of(false);
    CHECK(!zinf_file_write_atomic(in_work(file, "cache/zinf/bench.json"), slow, strlen(slow)));
    const struct zinf_plan measured = plan_of(false);
    unsetenv("XDG_CACHE_HOME");
    CHECKF(stated.step_seconds > 0 && measured.step_seconds > 10 * stated.step_seconds, "%g %g",
           stated.step_seconds, measured.step_seconds);
}

/* Twice as many rows, and what the loss of pairs keeps. */
static void test_a_plan_of_pairs(void)
{
    const struct zinf_plan one = plan_of(false), pair = plan_of(true);
    CHECKF(pair.tokens == 2 * one.tokens && pair.flops > 1.9 * one.flops, "%llu %llu, %g %g",
           (unsigned long long)one.tokens, (unsigned long long)pair.tokens, one.flops, pair.flops);
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        snprintf(work, sizeof work, "%s", argv[1]);
        return run_rank(argv[2], argv[3]);
    }
    struct zinf_model_shape shape = {.arch = "gpt2",
                                     .size = "small",
                                     .layers = 2,
                                     .hidden = 32,
                                     .heads = 2,
                                     .context = 64,
                                     .vocab = 257};
    make_work("door");
    make_model(gpt, "gpt", &shape, 1);
    shape.arch = "t5";
    make_model(t5, "t5", &shape, 2);
    in_work(output, "out");
    zinf_log_set_level(ZINF_LOG_ERROR);
    TAP_RUN(test_cancel_and_rows_of_a_resumed_training);
    TAP_RUN(test_cancel_before_a_training);
    TAP_RUN(test_a_source_that_does_not_answer);
    TAP_RUN(test_rows_without_a_size);
    TAP_RUN(test_rows_that_end_too_early);
    TAP_RUN(test_seats);
    TAP_RUN(test_steps_are_of_one_seat);
    TAP_RUN(test_an_encoder_decoder);
    TAP_RUN(test_texts_are_by_the_weights_of_steps);
    TAP_RUN(test_steps_and_evaluations_of_two_processes);
    TAP_RUN(test_what_options_there_are);
    TAP_RUN(test_a_configuration_without_a_file);
    TAP_RUN(test_one_name_of_two_options);
    TAP_RUN(test_sentences_call_options_as_the_caller_does);
    TAP_RUN(test_plans_go_by_measured_speeds);
    TAP_RUN(test_a_plan_of_pairs);
    remove_work();
    return tap_done();
}
