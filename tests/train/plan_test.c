/*
 * A plan is a function of its setup and its variant: made twice, with another in between, it is the
 * same to the last operation, and the one that a trainer takes the memory of is the same again but
 * for where its arenas begin. Where a step has many operations, the plan has room for them. Slots
 * of several sizes hold each unit, and take the memory that the plan says.
 */
#include "trainings.h"

#include "train/plan/lines.h"
#include "train/trainer.h"

static const struct setting settings[] = {
    {.extra = ", \"durability\": \"none\""},
    {.param = "cpu", .state = "cpu", .copies = true, .accumulation = 3},
    {.param = "cpu",
     .grad = "cpu",
     .host_memory = 40 << 20,
     .device_memory = 20 << 20,
     .accumulation = 2,
     .extra = ", \"durability\": \"none\""},
    {.param = "none", .state = "none", .clip = 1},
    {.copies = true, .extra = ", \"durability\": \"none\", \"activation_device\": \"nvme\""},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

#define MOST_OPERANDS 256

/* Where an operand is, wherever the arenas are. */
static uint64_t offset_in(const struct plan *p, const struct zinf_operand *o)
{
    uint64_t device = zinf_ledger_arena_bytes(p->ledger, ZINF_MEMORY_DEVICE);
    if (!o->memory)
        return 0;
    bool on_device = o->memory >= p->device_base && o->memory < p->device_base + device;
    return on_device ? 1 + (uint64_t)(o->memory - p->device_base)
                     : 1 + device + (uint64_t)(o->memory - p->host_base);
}

static bool same_operands(const struct plan *a, const struct zinf_program *of_a,
                          const struct zinf_op *x, const struct plan *b,
                          const struct zinf_program *of_b, const struct zinf_op *y)
{
    struct zinf_operand one[MOST_OPERANDS], other[MOST_OPERANDS];
    bool same = x->n_at == y->n_at && x->n_at <= MOST_OPERANDS;
    CHECKF(x->n_at <= MOST_OPERANDS, "%u operands", x->n_at);
    if (!same)
        return false;
    zinf_program_operands(of_a, x, one);
    zinf_program_operands(of_b, y, other);
    for (uint32_t i = 0; same && i < x->n_at; i++)
        same = offset_in(a, &one[i]) == offset_in(b, &other[i]) &&
               one[i].stride == other[i].stride && !one[i].live == !other[i].live;
    return same;
}

static bool same_op(const struct zinf_op *x, const struct zinf_op *y)
{
    return x->lane == y->lane && x->kind == y->kind && x->flags == y->flags && x->unit == y->unit &&
           x->micro == y->micro && x->arg == y->arg && x->bytes == y->bytes &&
           x->deadline == y->deadline && x->n_waits == y->n_waits &&
           x->where->extent == y->where->extent && x->where->offset == y->where->offset &&
           x->stage == y->stage && x->visit == y->visit;
}

static bool same_program(const struct plan *a, const struct zinf_program *x, const struct plan *b,
                         const struct zinf_program *y)
{
    bool same = x->n_ops == y->n_ops && x->n_waits == y->n_waits &&
                (!x->n_waits || !memcmp(x->waits, y->waits, x->n_waits * sizeof *x->waits));
    for (uint32_t i = 0; same && i < x->n_ops; i++)
        same = same_op(&x->ops[i], &y->ops[i]) &&
               same_operands(a, x, &x->ops[i], b, y, &y->ops[i]) &&
               x->ops[i].first_wait == y->ops[i].first_wait;
    return same;
}

static char *table_of(const struct plan *p)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out && !plan_print(p, out));
    fclose(out);
    return text;
}

static bool same_table(const struct plan *a, const struct plan *b)
{
    char *x = table_of(a), *y = table_of(b);
    bool same = !strcmp(x, y);
    free(x);
    free(y);
    return same;
}

static struct plan make(const struct setup *setup, const struct variant *variant)
{
    static const struct zinf_speeds unknown;
    struct plan p = {0};
    CHECKF(!plan_make(&p, setup, variant), "%s", zinf_error());
    plan_rates_of(&p, &unknown, &p.rates);
    return p;
}

static void compare_schedules(struct plan *a, struct plan *b)
{
    CHECKF(!plan_schedules(a, INFINITY) && !plan_schedules(b, INFINITY), "%s", zinf_error());
    CHECK(a->schedule == b->schedule && a->predicted_seconds > 0 &&
          !memcmp(&a->predicted_seconds, &b->predicted_seconds, sizeof(double)));
    CHECK(same_program(a, &a->gradients, b, &b->gradients));
    CHECK(same_program(a, &a->drain, b, &b->drain));
    CHECK(same_program(a, &a->wait, b, &b->wait));
    CHECK(same_program(a, &a->speculate, b, &b->speculate));
}

/* What check says of the variant that the search finds for each setting. */
static void check_settings(void (*check)(const struct setup *setup, const struct variant *variant))
{
    for (int i = 0; i < SETTINGS; i++) {
        struct zinf_config *config = configure(&settings[i]);
        struct zinf_trainer_options options = trainer_options(&settings[i], config);
        struct setup setup;
        struct variant variant;
        options.init = true;
        CHECKF(!setup_init(&setup, &options, true), "%s", zinf_error());
        plan_search(&setup, &variant, NULL);
        check(&setup, &variant);
        setup_fini(&setup);
        zinf_config_destroy(config);
    }
}

static void check_twice(const struct setup *setup, const struct variant *variant)
{
    struct variant other = *variant;
    other.micro_major = !variant->micro_major;
    struct plan a = make(setup, variant), between = make(setup, &other), b = make(setup, variant);
    CHECK(same_table(&a, &b));
    compare_schedules(&a, &b);
    plan_fini(&a);
    plan_fini(&between);
    plan_fini(&b);
}

static void test_twice_the_same(void)
{
    check_settings(check_twice);
}

static void test_a_trainer_takes_the_same(void)
{
    for (int i = 0; i < SETTINGS; i++) {
        struct zinf_config *config = configure(&settings[i]);
        struct zinf_trainer_options options = trainer_options(&settings[i], config);
        struct zinf_trainer *t = NULL;
        CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
        struct setup setup = t->setup;
        setup.store = NULL; /* its extents are counted */
        struct plan p = make(&setup, &t->plan.variant);
        CHECKF(!plan_first_programs(&p), "%s", zinf_error());
        CHECK(same_table(&p, &t->plan));
        CHECK(same_program(&p, &p.gradients, &t->plan, &t->plan.gradients));
        CHECK(same_program(&p, &p.drain, &t->plan, &t->plan.drain));
        CHECK(same_program(&p, &p.forward, &t->plan, &t->plan.forward));
        plan_fini(&p);
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
    }
}

/* Memory of operations of a sequence of so many chunks, and what all of them would take. */
static uint64_t operations_of(int64_t chunks, uint64_t *all)
{
    const struct setting many = {.extra =
                                     ", \"sequence_chunk\": 1, \"activation_device\": \"nvme\"",
                                 .param = "nvme",
                                 .state = "nvme",
                                 .piece_ops = 500};
    struct zinf_config *config = configure(&many);
    struct zinf_trainer_options options = trainer_options(&many, config);
    struct setup setup;
    struct variant variant;
    options.seq_len = chunks;
    CHECKF(!setup_init(&setup, &options, true), "%s", zinf_error());
    plan_search(&setup, &variant, NULL);
    struct plan p = make(&setup, &variant);
    CHECKF(!plan_schedules(&p, INFINITY), "%s", zinf_error());
    CHECKF(p.gradients.pieces && p.gradients.pieces->n_pieces > 1, "%lld chunks are one piece",
           (long long)chunks);
    *all = p.gradients.pieces ? p.gradients.pieces->all_bytes : 0;
    const uint64_t bytes =
        zinf_program_bytes(&p.gradients) + zinf_program_scheduling_bytes(&p.gradients);
    plan_fini(&p);
    setup_fini(&setup);
    zinf_config_destroy(config);
    return bytes;
}

static void test_operations_of_many_chunks(void)
{
    uint64_t few_all, many_all;
    const uint64_t few = operations_of(64, &few_all), many = operations_of(512, &many_all);
    printf("# operations: %llu bytes of 64 chunks, %llu of 512; all %llu, %llu\n",
           (unsigned long long)few, (unsigned long long)many, (unsigned long long)few_all,
           (unsigned long long)many_all);
    CHECK(16 * (many - few) < many_all - few_all); /* what is left are the places of values */
}

/* All programs of a step exist while the last one is put in order. */
static void test_operations_have_a_line(void)
{
    const struct setting many = {.accumulation = 8, .extra = ", \"sequence_chunk\": 1"};
    struct zinf_config *config = configure(&many);
    struct zinf_trainer_options options = trainer_options(&many, config);
    struct setup setup;
    struct variant variant;
    struct plan without;
    CHECKF(!setup_init(&setup, &options, true), "%s", zinf_error());
    plan_search(&setup, &variant, NULL);
    struct plan p = make(&setup, &variant);
    const struct plan_operations none = {0};
    CHECKF(!plan_lay_out(&without, &setup, &variant, &none), "%s", zinf_error());
    CHECKF(!plan_schedules(&p, INFINITY), "%s", zinf_error());
    const uint64_t line = zinf_ledger_total_bytes(p.ledger, ZINF_MEMORY_HOST) -
                          zinf_ledger_total_bytes(without.ledger, ZINF_MEMORY_HOST);
    const uint64_t taken = zinf_program_bytes(&p.gradients) + zinf_program_bytes(&p.drain) +
                           zinf_program_bytes(&p.wait) + zinf_program_bytes(&p.speculate);
    CHECKF(line > taken && line < 4 * taken, "a line of %llu bytes, programs of %llu",
           (unsigned long long)line, (unsigned long long)taken);
    /* One by one there is never more than one that goes forward and backward. */
    p.one_by_one = true;
    for (setup.wanted = SCHEDULE_SERIAL; setup.wanted <= SCHEDULE_UPDATE_IN_FORWARD;
         setup.wanted++) {
        CHECKF(!plan_schedules(&p, INFINITY), "%s", zinf_error());
        CHECK(p.schedule == setup.wanted && !p.speculate.n_ops);
        CHECK((p.gradients.n_ops > 0) == (setup.wanted < SCHEDULE_UPDATE_IN_FORWARD));
        CHECK((p.wait.n_ops > 0) == (setup.wanted == SCHEDULE_UPDATE_IN_FORWARD));
        CHECK(!plan_needs_gradients(&p) && p.gradients.n_ops);
    }
    plan_fini(&without);
    plan_fini(&p);
    setup_fini(&setup);
    zinf_config_destroy(config);
}

static uint64_t line_of(struct plan *p, const char *name)
{
    struct plan_lines l = {0};
    uint64_t bytes = 0;
    CHECK(!plan_collect(p, &p->amounts, &l));
    for (int i = 0; i < l.n; i++)
        bytes += strcmp(l.line[i].name, name) ? 0 : l.line[i].bytes;
    free(l.line);
    return bytes;
}

static void check_slots(struct plan *p, int ahead)
{
    const struct amounts *c = &p->amounts;
    const uint32_t n = param_slot_sizes(p, c);
    CHECK(c->ahead == ahead && (ahead ? n > 1 : n == 1));
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        const uint64_t bytes = zinf_layout_unit_bytes(&p->setup->layout, u, p->setup->dtype);
        const uint32_t size = param_slot_size(p, u);
        CHECK(size < n && bytes <= p->slots[size].bytes);
        CHECK(size + 1 == n || bytes > p->slots[size + 1].bytes);
    }
    CHECK(plan_fetches_beyond(p, c->n_own));
    CHECK(line_of(p, "parameter slots") == param_slots_bytes(p, c, n));
    CHECK(line_of(p, "parameter staging") == 0); /* the drive writes to the device */
    for (uint32_t i = 0; i < n; i++)
        CHECK(param_stagings(p, c, i) <= param_slots(p, c, i) && param_slots(p, c, i) > 0);
}

/* Blocks of 0.1 MiB beside tiles of a table that are larger. */
static void test_slots_by_size(void)
{
    const struct setting all_on_drive = {.device_memory = 2500 << 10};
    struct zinf_config *config = configure(&all_on_drive);
    struct zinf_trainer_options options = trainer_options(&all_on_drive, config);
    struct setup setup;
    struct variant variant = {.host_grads_part = 4, .host_states = 4};
    CHECKF(!setup_init(&setup, &options, true), "%s", zinf_error());
    struct plan one = make(&setup, &variant);
    variant.ahead = 1;
    struct plan several = make(&setup, &variant);
    check_slots(&one, 0);
    check_slots(&several, 1);
    CHECK(param_slots_bytes(&several, &several.amounts, several.n_slot_sizes) <
          several.n_slot_sizes * param_slots_bytes(&one, &one.amounts, 1));
    plan_fini(&one);
    plan_fini(&several);
    setup_fini(&setup);
    zinf_config_destroy(config);
}

/* ---- programs of a schedule ---- */

/* The programs at hand are those of the chosen schedule, however fast the drive is, and whatever
 * else was tried: other ranks of a pipeline may have tried others, and compare theirs. */
static void check_programs(const struct setup *setup, const struct variant *variant)
{
    for (double slower = 1e-3; slower < 1e4; slower *= 10) {
        struct plan p = make(setup, variant);
        p.rates.seconds[OP_READ] *= slower;
        p.rates.seconds[OP_WRITE] *= slower;
        CHECKF(!plan_schedules(&p, INFINITY), "%s", zinf_error());
        CHECKF((p.wait.n_ops > 0) == (p.schedule >= SCHEDULE_UPDATE_IN_FORWARD),
               "schedule %d, drive slower by %g: %u operations of updates in the forward",
               p.schedule, slower, p.wait.n_ops);
        CHECKF((p.speculate.n_ops > 0) == (p.schedule >= SCHEDULE_UPDATE_IN_BACKWARD),
               "schedule %d, drive slower by %g: %u operations of updates in the backward",
               p.schedule, slower, p.speculate.n_ops);
        plan_fini(&p);
    }
}

static void test_what_was_tried_goes(void)
{
    check_settings(check_programs);
}

/* Where a plan without layers' gradients in RAM has a shorter simulated step, by however little,
 * the search has taken it. *differs: that is not the usual one. False: there is too little RAM. */
static bool check_gradients(const struct setup *setup, bool *differs)
{
    struct variant found;
    struct plan best;
    plan_search(setup, &found, &best);
    if (!best.setup)
        return false;
    struct variant none = found;
    none.host_grads_part = 1 << 20;
    struct plan other = make(setup, &none);
    CHECKF(!plan_schedules(&other, INFINITY), "%s", zinf_error());
    CHECKF(best.predicted_seconds <= other.predicted_seconds, "%.9f s, and %.9f s without",
           best.predicted_seconds, other.predicted_seconds);
    *differs = found.host_grads_part != plan_usual(setup).host_grads_part;
    plan_fini(&best);
    plan_fini(&other);
    return true;
}

/* Budgets from the first that is not too small to one that has room for everything. */
static void test_no_gradients_for_nothing(void)
{
    const struct setting all_on_drive = {.host_memory = 40 << 20,
                                         .extra = ", \"durability\": \"none\""};
    struct zinf_config *config = configure(&all_on_drive);
    struct zinf_trainer_options options = trainer_options(&all_on_drive, config);
    struct setup setup;
    int n_fitting = 0, n_others = 0;
    options.init = true;
    CHECKF(!setup_init(&setup, &options, true), "%s", zinf_error());
    for (uint64_t budget = 8 << 20; n_fitting < 80 && budget < 1 << 30; budget += 128 << 10) {
        bool differs = false;
        setup.fill_bytes = setup.budget[ZINF_MEMORY_HOST] = budget;
        n_fitting += check_gradients(&setup, &differs);
        n_others += differs;
    }
    CHECK(n_others > 0);
    setup_fini(&setup);
    zinf_config_destroy(config);
}

/* What plans count as the program's own. */
static uint64_t resident_bytes(uint64_t given)
{
    struct zinf_config *config = configure(&settings[0]);
    struct zinf_trainer_options options = trainer_options(&settings[0], config);
    struct setup setup;
    options.init = true;
    options.resident_bytes = given;
    CHECKF(!setup_init(&setup, &options, true), "%s", zinf_error());
    const uint64_t counted = setup.resident_bytes;
    setup_fini(&setup);
    zinf_config_destroy(config);
    return counted;
}

/* A process counts what it has; a test may say what that is. */
static void test_resident_memory_is_counted(void)
{
    const uint64_t more = (uint64_t)64 << 20, measured = resident_bytes(0);
    char *grown = malloc(more);
    volatile char *written = grown; /* or the compiler leaves it all out */
    CHECK(grown && measured > 0 && resident_bytes(RESIDENT) == RESIDENT);
    for (uint64_t i = 0; grown && i < more; i += 4096)
        written[i] = 1;
    CHECK(resident_bytes(0) > measured + more / 2);
    CHECK(resident_bytes(RESIDENT) == RESIDENT);
    free(grown);
}

int main(void)
{
    begin_trainings("plan", &(struct trainings){.shape = {.arch = "gpt2",
                                                          .layers = 8,
                                                          .hidden = 64,
                                                          .heads = 4,
                                                          .vocab = 1000,
                                                          .context = 512},
                                                .seq = 16,
                                                .batch = 2,
                                                .sub_group = 20000});
    TAP_RUN(test_twice_the_same);
    TAP_RUN(test_a_trainer_takes_the_same);
    TAP_RUN(test_operations_have_a_line);
    TAP_RUN(test_operations_of_many_chunks);
    TAP_RUN(test_slots_by_size);
    TAP_RUN(test_what_was_tried_goes);
    TAP_RUN(test_no_gradients_for_nothing);
    TAP_RUN(test_resident_memory_is_counted);
    remove_work();
    return tap_done();
}
