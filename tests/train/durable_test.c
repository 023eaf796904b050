/*
 * Steps that outlive the process, in a trainer. The programs of a step are walked: its record waits
 * for all late updates, and everything that the next step writes over waits for the record. Then
 * trainings are killed at random moments, under every schedule and placement, with steps that clip,
 * are made again or overflow, and with lanes that stand still: each goes on, in losses and in
 * weights, as if nothing had happened. ZINF_TEST_KILLS makes it longer.
 */
#include "train/trainer.h"
#include "trainings.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define STEPS 14
#define KILLS 3
#define DURABLE ", \"durability\": \"step\""
#define PACKED ", \"pack\": \"state\""
#define FP8 ", \"matmul_type\": \"fp8\", \"pack\": \"off\""
#define ALL ", \"pack\": \"all\""
#define UNPACKED ", \"pack\": \"off\""
#define ADAPTERS ", \"adapter\": {\"r\": 4, \"lora_dropout\": 0.2}"
#define LIFE_US 120000 /* a kill comes within this time of the first sign of life */

struct scalars {
    uint64_t step, n_applied;
    struct zinf_loss_scale loss_scale;
};

static const uint8_t run_name[16] = "the test's run.";
static double losses[STEPS];
static int n_lived; /* steps, by the last life of live_in */
static uint32_t n_headed;
static uint32_t n_drawn;

static uint32_t draw(uint32_t n)
{
    uint32_t counter[4] = {n_drawn++}, bits[4];
    zinf_philox(counter, 4, bits);
    return bits[0] % n;
}

static struct zinf_trainer *open_trainer(const struct setting *s, const struct zinf_config *config,
                                         const uint8_t *run_id)
{
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = trainer_options(s, config);
    options.run = run_id;
    options.delay_us = run_id ? s->delay_us : 0;
    if (config)
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
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
    for (int i = 0; i < 2; i++) {
        struct setting s = {.schedule = schedules[2 + i], .accumulation = 2, .extra = DURABLE};
        struct zinf_config *config = configure(&s);
        struct zinf_trainer *t = open_trainer(&s, config, run_name);
        struct zinf_step_result r;
        CHECK(!commit(t) && !next_step(t, &s, t->step, &r) && !commit(t));
        if (i == 0) {
            walk(&t->plan.wait, 3 * (int)t->setup.n_units, 0);
        } else { /* some units late, as where the simulation finds that better */
            walk(&t->plan.speculate, 0, 2 * (int)t->setup.n_units);
            t->plan.deferred[1] = t->plan.deferred[t->setup.n_units - 2] = 1;
            struct zinf_machine machine = plan_machine(&t->plan);
            CHECK(!program_speculate(&t->plan));
            CHECK(!zinf_program_schedule(&t->plan.speculate, ZINF_ORDER_DEADLINE, &machine));
            walk(&t->plan.speculate, 6, 2 * (int)t->setup.n_units - 4);
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
        if (next_step(t, s, t->step, &r) || r.loss != losses[r.step - 1])
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
    plain.copies = plain.asks_codes = false;
    plain.host_memory = 0;
    struct zinf_config *config = configure(&plain);
    struct zinf_trainer *t = open_trainer(&plain, config, NULL);
    char folder[600];
    int skipped = 0;
    snprintf(folder, sizeof folder, "%s/out-whole", work);
    for (int i = 0; t && i < STEPS; i++) {
        CHECKF(!next_step(t, &plain, t->step, &r), "%s", zinf_error());
        losses[i] = r.loss;
        skipped += r.skipped;
    }
    if (t)
        CHECKF(!zinf_trainer_save(t, folder), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return skipped;
}

/* ---- RAM ---- */

/* What a trainer takes of the host when all is on the drive; and the bytes of all parameters. */
static uint64_t least_host(const struct setting *s, uint64_t *params)
{
    struct setting exact = *s;
    exact.host_memory = 0;
    exact.extra = DURABLE;
    struct zinf_config *config = configure(&exact);
    struct zinf_trainer *t = open_trainer(&exact, config, NULL);
    uint64_t bytes = t ? zinf_trainer_planned_bytes(t, ZINF_MEMORY_HOST) : 0;
    *params = 0;
    for (uint32_t u = 0; t && u < t->setup.n_units; u++)
        *params += zinf_tiers_param(t->plan.tiers, u, 0).bytes * t->plan.homes[u].generations;
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return bytes;
}

static uint32_t n_backed(const struct zinf_trainer *t)
{
    uint32_t n = 0;
    for (uint32_t u = 0; u < t->setup.n_units; u++) {
        n += t->plan.homes[u].backed;
        CHECK(!unit_trains(&t->setup, u) || t->plan.homes[u].state == ZINF_TIER_DRIVE);
    }
    return n;
}

/* Two steps from the last one on the drive, as a process with that much RAM; 0: none but it must.
 */
static uint32_t live_in(struct setting *s, uint64_t host_memory)
{
    struct zinf_step_result r;
    uint64_t bytes = 0;
    s->host_memory = host_memory;
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = open_trainer(s, config, run_name);
    const struct scalars *recovered = t ? durable_recovered(t, &bytes) : NULL;
    uint32_t backed = t ? n_backed(t) : 0;
    n_headed += t && s->asks_fronts && plan_says(t, "parameters in RAM are packed");
    if (recovered) {
        t->step = recovered->step;
        t->n_applied = recovered->n_applied;
    } else {
        CHECK(t && !commit(t));
    }
    for (int i = 0; t && i < 2 && t->step < STEPS; i++) {
        CHECKF(!next_step(t, s, t->step, &r) && !commit(t), "%s", zinf_error());
        CHECKF(r.loss == losses[r.step - 1], "step %llu: %.17g, not %.17g",
               (unsigned long long)r.step, r.loss, losses[r.step - 1]);
    }
    n_lived = t ? (int)t->step : STEPS;
    if (t && t->step == STEPS) {
        char a[600], b[600];
        snprintf(a, sizeof a, "%s/out-whole", work);
        snprintf(b, sizeof b, "%s/out-killed", work);
        CHECK(!zinf_trainer_save(t, b) && same_weights(a, b));
        durable_forget(t);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return backed;
}

/* What lies on the drive does not depend on what RAM has of it, nor on anything else that a life
 * chooses by what is free. */
static void find_other_ram(const char *extra, bool asks_fronts)
{
    struct setting s = {
        .precision = bf16, .accumulation = 2, .extra = extra, .asks_fronts = asks_fronts};
    uint64_t params, least = least_host(&s, &params);
    const uint64_t rams[STEPS / 2] = {
        4 * (least + params), 0, least + params / 8, 0, 4 * (least + params),
        least + params / 3,   0};
    uint32_t backed[STEPS / 2];
    make_reference(&s);
    for (int i = 0; i < STEPS / 2; i++)
        backed[i] = live_in(&s, rams[i]);
    while (n_lived < STEPS) /* a life whose updates wait ends a step earlier */
        live_in(&s, 0);
    CHECKF(backed[0] > backed[2] && backed[2] && !backed[1], "%s: %u, %u, %u units in RAM", extra,
           backed[0], backed[2], backed[1]);
    CHECK(count_entries(drive) == 0);
}

static void test_every_life_finds_other_ram(void)
{
    find_other_ram(DURABLE, false);
    find_other_ram(DURABLE ALL, false);
    find_other_ram(DURABLE ALL, true);
    CHECKF(n_headed > 1, "%u lives have parameters packed in RAM", n_headed);
}

/* A run goes on with the form of its state that it began with, or says what to set. */
static void test_packing_is_the_runs(void)
{
    static const struct {
        const char *began, *then;
        enum packing packs;
        bool refused;
    } runs[] = {
        {DURABLE UNPACKED, DURABLE PACKED, PACK_OFF, false},
        {DURABLE UNPACKED, DURABLE, PACK_OFF, false},
        {DURABLE UNPACKED, DURABLE ALL, PACK_OFF, false},
        {DURABLE PACKED, DURABLE, PACK_STATE, false},
        {DURABLE PACKED, DURABLE ALL, PACK_STATE, false},
        {DURABLE PACKED, DURABLE UNPACKED, PACK_OFF, true},
        {DURABLE ALL, DURABLE, PACK_ALL, false},
        {DURABLE ALL, DURABLE PACKED, PACK_OFF, true},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct setting s = {.precision = bf16, .extra = runs[i].began};
        make_reference(&s);
        live_in(&s, 0);
        s.extra = runs[i].then;
        struct zinf_config *config = configure(&s);
        struct zinf_trainer_options options = trainer_options(&s, config);
        struct zinf_trainer *t = NULL;
        options.run = run_name;
        int code = zinf_trainer_create(&t, &options);
        CHECKF(runs[i].refused ? code == -EINVAL && strstr(zinf_error(), "zinf.pack") != NULL
                               : !code && t->setup.packs == runs[i].packs && t->durable.recovered,
               "run %zu: %d: %s", i, code, zinf_error());
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
        s.extra = runs[i].refused ? runs[i].began : runs[i].then;
        while (n_lived < STEPS)
            live_in(&s, 0);
        n_lived = 0;
    }
    CHECK(count_entries(drive) == 0);
}

/* Whether matrices lie on the drive in 8 bits, too, is each life's own choice: what it finds there
 * is not taken, and what an update that does not count wrote is not read. */
static void test_images_are_no_state(void)
{
    struct setting s = {
        .precision = bf16, .copies = true, .asks_codes = true, .extra = DURABLE FP8};
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, run_name);
    CHECK(t && t->durable.steps && plan_says(t, "updates write both"));
    durable_forget(t);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    make_reference(&s);
    for (int i = 0; n_lived < STEPS; i++) {
        s.asks_codes = i % 3 != 1;
        live_in(&s, 0);
    }
    n_lived = 0;
    CHECK(count_entries(drive) == 0);
}

/* With nobody asking, RAM has what it has room for, state too, and steps do not outlive the
 * process; where all that could be in RAM is, state has no room, they do. */
static void test_nobody_asks(void)
{
    struct setting s = {.precision = bf16, .extra = ", \"placement\": \"auto\""};
    uint64_t params, least = least_host(&s, &params);
    for (int i = 0; i < 2; i++) {
        s.host_memory = i ? least : 0;
        struct zinf_config *config = configure(&s);
        struct zinf_trainer_options options = trainer_options(&s, config);
        struct zinf_trainer *t = NULL;
        options.run = run_name;
        options.anew = true;
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
        CHECKF(t && (t->durable.steps != NULL) == i, "budget %d", i);
        CHECKF(t && (t->plan.homes[0].state == ZINF_TIER_HOST) == !i, "budget %d", i);
        if (t)
            durable_forget(t);
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
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

static void kill_again_and_again(const char *what, const struct setting *s)
{
    char a[600], b[600];
    int kills = getenv("ZINF_TEST_KILLS") ? atoi(getenv("ZINF_TEST_KILLS")) : KILLS, ends = 0;
    int status = 0;
    int skipped = make_reference(s);
    snprintf(a, sizeof a, "%s/out-whole", work);
    snprintf(b, sizeof b, "%s/out-killed", work);
    struct setting life = *s;
    uint64_t params, least = s->host_memory ? least_host(s, &params) : 0;
    for (int i = 0; i <= kills; i++) {
        bool last = i == kills;
        if (s->host_memory) /* every life finds other RAM */
            life.host_memory = least + draw(5) * params / 3;
        status = run_once(&life, last);
        bool ended = WIFEXITED(status);
        CHECKF(!ended || !WEXITSTATUS(status), "%s: it ended with %d", what, WEXITSTATUS(status));
        if (ended)
            CHECKF(same_weights(a, b), "%s: weights differ", what);
        ends += ended;
        if (ended && WEXITSTATUS(status))
            break;
    }
    printf("# %s: %d kills, %d ends, %d of %d steps skipped\n", what, kills + 1 - ends, ends,
           skipped, STEPS);
}

static void test_kills(void)
{
    static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24, "
                               "\"hysteresis\": 1, \"loss_scale_window\": 2},";
    static const char adamw_8bit[] = "{\"type\": \"AdamW8bit\", \"params\": {\"lr\": 1e-3}}";
    static const char half[] = "\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true, "
                               "\"bf16_master_weights_and_grads\": true},";
    static const char adafactor[] = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-3}}";
    static const struct {
        const char *what;
        struct setting s;
    } lives[] = {
        {"fp32", {.schedule = "update-in-backward", .delay_us = 400}},
        {"clipped", {.schedule = "update-in-backward", .clip = 7, .sparse = true}},
        {"overflowing", {.schedule = "update-in-backward", .precision = fp16, .clip = 1}},
        {"late", {.schedule = "update-in-forward", .precision = bf16, .delay_us = 400}},
        {"filled RAM", {.precision = bf16, .host_memory = 1}},
        {"filled RAM, late",
         {.precision = bf16, .schedule = "update-in-forward", .host_memory = 1, .delay_us = 400}},
        {"filled RAM, overflowing",
         {.precision = fp16, .schedule = "update-in-backward", .clip = 1, .host_memory = 1}},
        {"filled RAM, through copies, clipped",
         {.copies = true, .precision = bf16, .clip = 7, .sparse = true, .host_memory = 1}},
        {"filled RAM, adapters", {.precision = bf16, .extra = DURABLE ADAPTERS, .host_memory = 1}},
        {"parameters in RAM", {.param = "cpu", .precision = bf16}},
        {"fp16 parameters in RAM", {.param = "cpu", .precision = fp16}},
        {"parameters on the device",
         {.param = "none", .precision = bf16, .clip = 7, .sparse = true}},
        {"fp32 parameters on the device", {.param = "none", .schedule = "serial"}},
        {"through copies", {.param = "cpu", .copies = true, .precision = bf16}},
        {"images in 8 bits",
         {.copies = true,
          .asks_codes = true,
          .precision = bf16,
          .clip = 7,
          .sparse = true,
          .extra = DURABLE FP8}},
        {"images in 8 bits, late",
         {.copies = true,
          .asks_codes = true,
          .schedule = "update-in-forward",
          .precision = bf16,
          .extra = DURABLE FP8}},
        {"8-bit moments, parameters in RAM",
         {.param = "cpu", .precision = bf16, .optimizer = adamw_8bit}},
        {"bf16 moments, parameters in RAM", {.param = "cpu", .precision = half}},
        {"Adafactor, parameters in RAM",
         {.param = "cpu", .precision = fp16, .optimizer = adafactor}},
        {"Muon for matrices, parameters in RAM",
         {.param = "cpu",
          .precision = bf16,
          .extra = DURABLE ", \"learning_rates\": [{\"pattern\": \"*.c_*.weight\", "
                           "\"optimizer\": \"Muon\"}]"}},
        {"NorMuon, parameters in RAM",
         {.param = "cpu", .precision = bf16, .optimizer = "{\"type\": \"NorMuon\"}"}},
        {"GaLore, parameters in RAM",
         {.param = "cpu",
          .precision = fp16,
          .optimizer = "{\"type\": \"GaLoreAdamW\", \"params\": {\"rank\": 4, "
                       "\"update_proj_gap\": 3}}"}},
        {"packed", {.precision = bf16, .extra = DURABLE PACKED, .clip = 7, .sparse = true}},
        {"packed, late",
         {.precision = fp16, .schedule = "update-in-forward", .extra = DURABLE PACKED}},
        {"all packed", {.precision = bf16, .extra = DURABLE ALL, .clip = 7, .sparse = true}},
        {"all packed, fp32", {.extra = DURABLE ALL}},
        {"all packed, late",
         {.precision = fp16, .schedule = "update-in-forward", .extra = DURABLE ALL}},
        {"packed, parameters in RAM, clipped",
         {.param = "cpu", .precision = bf16, .clip = 7, .sparse = true, .extra = DURABLE PACKED}},
        {"packed, filled RAM", {.precision = bf16, .host_memory = 1, .extra = DURABLE PACKED}},
        {"all packed, filled RAM", {.precision = bf16, .host_memory = 1, .extra = DURABLE ALL}},
        {"all packed, in RAM too",
         {.precision = bf16,
          .host_memory = 1,
          .asks_fronts = true,
          .clip = 7,
          .sparse = true,
          .extra = DURABLE ALL}},
        {"adapters", {.precision = bf16, .extra = DURABLE ADAPTERS}},
        {"adapters, packed",
         {.precision = bf16, .host_memory = 1, .asks_fronts = true, .extra = DURABLE ADAPTERS ALL}},
        {"adapters, parameters in RAM",
         {.param = "cpu", .copies = true, .precision = bf16, .extra = DURABLE ADAPTERS}},
    };
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        struct setting s = lives[i].s;
        s.accumulation = 2;
        s.extra = word(s.extra, DURABLE);
        kill_again_and_again(lives[i].what, &s);
    }
}

/* What cannot be durable says so, and leaves nothing behind. */
static void test_state_in_ram_is_not(void)
{
    struct setting s = {.state = "cpu", .extra = DURABLE};
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = open_trainer(&s, config, run_name);
    CHECK(t && !t->durable.steps);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    CHECKF(count_entries(drive) == 0, "files are left");
}

int main(void)
{
    begin_trainings("durable", &(struct trainings){.shape = {.arch = "gpt2",
                                                             .layers = 3,
                                                             .hidden = 64,
                                                             .heads = 4,
                                                             .vocab = 500,
                                                             .context = 32},
                                                   .steps = STEPS,
                                                   .seq = 16,
                                                   .batch = 1,
                                                   .sub_group = 9000});
    TAP_RUN(test_kills);
    TAP_RUN(test_every_life_finds_other_ram);
    TAP_RUN(test_packing_is_the_runs);
    TAP_RUN(test_images_are_no_state);
    TAP_RUN(test_nobody_asks);
    TAP_RUN(test_the_record_comes_between);
    TAP_RUN(test_state_in_ram_is_not);
    remove_work();
    return tap_done();
}
