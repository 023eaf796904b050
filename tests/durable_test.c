/*
 * Steps that outlive the process, in a trainer. The programs of a step are walked: its record waits
 * for all late updates, and everything that the next step writes over waits for the record. Then
 * trainings are killed at random moments, under every schedule and placement, with steps that clip,
 * are made again or overflow, and with lanes that stand still: each goes on, in losses and in
 * weights, as if nothing had happened. ZINF_TEST_KILLS makes it longer.
 */
#include "train/trainer.h"
#include "train_support.h"

#include "base/random.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define STEPS 14
#define SEQ 16
#define MICROS 2
#define ROWS (MICROS * SEQ)
#define KILLS 3
#define LIFE_US 120000 /* a kill comes within this time of the first sign of life */

struct setting {
    const char *what, *schedule, *param, *precision, *extra, *optimizer;
    double clip; /* 0: off */
    bool sparse; /* odd steps have one target: their gradient is large */
    uint32_t delay_us;
};
struct scalars {
    uint64_t step, n_applied;
    struct zinf_loss_scale loss_scale;
};

static const uint8_t run_name[16] = "the test's run.";
static char model[600], drive[600];
static double losses[STEPS];
static uint32_t n_drawn;

static uint32_t draw(uint32_t n)
{
    uint32_t counter[4] = {n_drawn++}, bits[4];
    zinf_philox(counter, 4, bits);
    return bits[0] % n;
}

static struct zinf_config *configure(const struct setting *s)
{
    char text[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": %d,"
             "\"gradient_clipping\": %g, %s"
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 1e-3}},"
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 9000,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}},"
             "\"zinf\": {\"threads\": 1, \"schedule\": \"%s\", \"durability\": \"step\"%s}}",
             MICROS, s->clip, s->precision ? s->precision : "",
             s->optimizer ? s->optimizer : "AdamW", s->param ? s->param : "nvme", drive, drive,
             s->schedule ? s->schedule : "auto", s->extra ? s->extra : "");
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    return config;
}

static struct zinf_trainer *open_trainer(const struct setting *s, const struct zinf_config *config,
                                         const uint8_t *run)
{
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = model,
                                           .seed = 5,
                                           .config = config,
                                           .run = run,
                                           .seq_len = SEQ,
                                           .device = ZINF_DEVICE_HOST,
                                           .delay_us = run ? s->delay_us : 0};
    if (config)
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static int one_step(struct zinf_trainer *t, const struct setting *s, struct zinf_step_result *r)
{
    int32_t ids[ROWS], targets[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t counter[4] = {i, (uint32_t)t->step}, bits[4];
        zinf_philox(counter, 3, bits);
        ids[i] = (int32_t)(bits[0] % 500);
        targets[i] = s->sparse && t->step % 2 && i % SEQ ? -1 : (int32_t)(bits[1] % 500);
    }
    return zinf_trainer_step(t, ids, targets, r);
}

static int commit(struct zinf_trainer *t)
{
    struct scalars scalars = {t->step, t->n_applied, t->loss_scale};
    return durable_commit(t, &scalars, sizeof scalars);
}

/* ---- the programs ---- */

/* Marks all that comes before op whatever happens: what it waits for, and what is before it in a
 * lane that runs in order. */
static void mark(const struct zinf_program *p, uint32_t op, bool *marked)
{
    const struct zinf_op *o = &p->ops[op];
    uint32_t previous = op;
    while (previous-- > 0 && p->ops[previous].lane != o->lane)
        ;
    bool in_order = o->lane != ZINF_LANE_READ && o->lane != ZINF_LANE_WRITE && previous < op;
    for (uint32_t i = 0; i < o->n_waits + in_order; i++) {
        uint32_t earlier = i < o->n_waits ? p->waits[o->first_wait + i] : previous;
        if (!marked[earlier]) {
            marked[earlier] = true;
            mark(p, earlier, marked);
        }
    }
}

static void walk(const struct zinf_program *p, int least_late, int least_eager)
{
    uint32_t record = UINT32_MAX;
    int late = 0, eager = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == OP_COMMIT)
            record = i;
    CHECKF(record != UINT32_MAX, "%s has no record", p->name);
    if (record == UINT32_MAX)
        return;
    bool *before = calloc(p->n_ops, 1), *first = malloc(p->n_ops);
    mark(p, record, before);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct zinf_op *op = &p->ops[i];
        bool writes = op->lane == ZINF_LANE_WRITE;
        if (op->flags & OP_DEFERRED && (writes || op->kind == OP_FLIP)) {
            CHECKF(before[i], "%s: the record overtakes operation %u", p->name, i);
            late++;
        } else if (op->flags & OP_EAGER && writes) {
            memset(first, 0, p->n_ops);
            mark(p, i, first);
            CHECKF(first[record], "%s: operation %u overtakes the record", p->name, i);
            eager++;
        }
    }
    CHECKF(late >= least_late && eager >= least_eager, "%s: %d late, %d eager", p->name, late,
           eager);
    free(before);
    free(first);
}

static void test_the_record_comes_between(void)
{
    static const char *const schedules[] = {"update-in-forward", "update-in-backward"};
    for (int i = 0; i < 2; i++) {
        struct setting s = {.schedule = schedules[i]};
        struct zinf_config *config = configure(&s);
        struct zinf_trainer *t = open_trainer(&s, config, run_name);
        struct zinf_step_result r;
        CHECK(!commit(t) && !one_step(t, &s, &r) && !commit(t));
        if (i == 0) {
            walk(&t->wait, 3 * (int)t->n_units, 0);
        } else { /* some units late, as where the simulation finds that better */
            walk(&t->speculate, 0, 2 * (int)t->n_units);
            t->deferred[1] = t->deferred[t->n_units - 2] = 1;
            struct zinf_machine machine = trainer_machine(t);
            CHECK(!trainer_emit_speculate(t));
            CHECK(!zinf_program_schedule(&t->speculate, ZINF_ORDER_DEADLINE, &machine));
            walk(&t->speculate, 6, 2 * (int)t->n_units - 4);
        }
        durable_forget(t);
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
}

/* ---- kills ---- */

/* From the last step on the drive to the end; says when it begins. The status tells what is wrong.
 */
static void live(const struct setting *s, int pipe_fd)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = open_trainer(s, config, run_name);
    struct zinf_step_result r;
    uint64_t bytes = 0;
    const void *recovered = t ? durable_recovered(t, &bytes) : NULL;
    if (recovered) {
        struct scalars scalars;
        memcpy(&scalars, recovered, sizeof scalars);
        t->step = scalars.step;
        t->n_applied = scalars.n_applied;
        t->loss_scale = scalars.loss_scale;
    }
    if (!t || (!recovered && commit(t)) || write(pipe_fd, "", 1) != 1)
        _exit(2);
    while (t->step < STEPS) {
        if (one_step(t, s, &r) || r.loss != losses[r.step - 1])
            _exit(3);
        if (!r.skipped && commit(t))
            _exit(4);
    }
    char folder[600];
    snprintf(folder, sizeof folder, "%s/out-killed", work);
    if (zinf_trainer_save(t, folder))
        _exit(5);
    durable_forget(t);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    _exit(0);
}

/* What the same steps give without any of it. */
static int make_reference(const struct setting *s)
{
    struct setting plain = *s;
    struct zinf_step_result r = {0};
    plain.schedule = "serial";
    plain.extra = NULL;
    struct zinf_config *config = configure(&plain);
    struct zinf_trainer *t = open_trainer(&plain, config, NULL);
    char folder[600];
    int skipped = 0;
    snprintf(folder, sizeof folder, "%s/out-whole", work);
    for (int i = 0; t && i < STEPS; i++) {
        CHECKF(!one_step(t, &plain, &r), "%s", zinf_error());
        losses[i] = r.loss;
        skipped += r.skipped;
    }
    if (t)
        CHECKF(!zinf_trainer_save(t, folder), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return skipped;
}

static int run_once(const struct setting *s, bool to_its_end)
{
    int fds[2], status = 0;
    char byte;
    CHECK(!pipe(fds));
    fflush(stdout);
    pid_t child = fork();
    if (!child)
        live(s, fds[1]);
    close(fds[1]);
    if (!to_its_end) {
        if (draw(4))
            CHECK(read(fds[0], &byte, 1) >= 0);
        usleep(draw(LIFE_US));
        kill(child, SIGKILL);
    }
    close(fds[0]);
    waitpid(child, &status, 0);
    return status;
}

static void kill_again_and_again(const struct setting *s)
{
    char a[600], b[600];
    int kills = getenv("ZINF_TEST_KILLS") ? atoi(getenv("ZINF_TEST_KILLS")) : KILLS, ends = 0;
    int status = 0;
    int skipped = make_reference(s);
    snprintf(a, sizeof a, "%s/out-whole", work);
    snprintf(b, sizeof b, "%s/out-killed", work);
    for (int i = 0; i <= kills; i++) {
        bool last = i == kills;
        status = run_once(s, last);
        bool ended = WIFEXITED(status);
        CHECKF(!ended || !WEXITSTATUS(status), "%s: it ended with %d", s->what,
               WEXITSTATUS(status));
        if (ended)
            CHECKF(same_weights(a, b), "%s: weights differ", s->what);
        ends += ended;
        if (ended && WEXITSTATUS(status))
            break;
    }
    printf("# %s: %d kills, %d ends, %d of %d steps skipped\n", s->what, kills + 1 - ends, ends,
           skipped, STEPS);
}

#define BF16 "\"bf16\": {\"enabled\": true},"
#define FP16                                                                                       \
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24, \"hysteresis\": 1,"                \
    "\"loss_scale_window\": 2},"

static void test_kills(void)
{
    static const struct setting settings[] = {
        {.what = "fp32", .schedule = "update-in-backward", .delay_us = 400},
        {.what = "clipped", .schedule = "update-in-backward", .clip = 7, .sparse = true},
        {.what = "overflowing", .schedule = "update-in-backward", .precision = FP16, .clip = 1},
        {.what = "late", .schedule = "update-in-forward", .precision = BF16, .delay_us = 400},
        {.what = "parameters in RAM", .param = "cpu", .precision = BF16},
        {.what = "fp16 parameters in RAM", .param = "cpu", .precision = FP16},
        {.what = "parameters on the device",
         .param = "none",
         .precision = BF16,
         .clip = 7,
         .sparse = true},
        {.what = "fp32 parameters on the device", .param = "none", .schedule = "serial"},
        {.what = "through copies",
         .param = "cpu",
         .extra = ", \"direct\": false",
         .precision = BF16},
        {.what = "8-bit moments, parameters in RAM",
         .param = "cpu",
         .precision = BF16,
         .optimizer = "AdamW8bit"},
        {.what = "Adafactor, parameters in RAM",
         .param = "cpu",
         .precision = FP16,
         .optimizer = "Adafactor"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        kill_again_and_again(&settings[i]);
}

/* What cannot be durable says so, and leaves nothing behind. */
static void test_state_in_ram_is_not(void)
{
    char text[1200], command[700];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    struct setting s = {0};
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3,"
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"cpu\"}}, \"zinf\": {\"durability\": \"step\"}}",
             drive);
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    struct zinf_trainer *t = open_trainer(&s, config, run_name);
    CHECK(t && !t->durable.steps);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    snprintf(command, sizeof command, "test -z \"$(ls -A '%s')\"", drive);
    CHECKF(!system(command), "files are left");
}

int main(void)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 3, .hidden = 64, .heads = 4, .vocab = 500, .context = 32};
    cJSON *config = NULL;
    make_work("durable");
    zinf_log_set_level(ZINF_LOG_ERROR);
    snprintf(drive, sizeof drive, "%s/drive", work);
    snprintf(model, sizeof model, "%s/model", work);
    zinf_make_dirs(drive);
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, 11, model), "%s", zinf_error());
    cJSON_Delete(config);
    TAP_RUN(test_kills);
    TAP_RUN(test_the_record_comes_between);
    TAP_RUN(test_state_in_ram_is_not);
    remove_work();
    return tap_done();
}
