/*
 * Steps of several ranks that outlive their processes, with ranks as threads: whatever the drives
 * hold that a death can leave, all go on from one step and to the bits of a training that nobody
 * ended. Drives are put back to what they were a step ago, as if their rank had died before its
 * record; what no death leaves is refused, and the rank is named. Deaths of processes are in
 * tests/ranks/ranks_kill_test.sh.
 */
#include "rank_steps.h"

#include "train/save/checkpoint.h"
#include "train/trainer.h"

#include <pthread.h>

enum { RANKS = 3, STEPS = 5, BATCHES = 6 };
#define DURABLE ", \"durability\": \"step\", \"gradient_sum\": \"tree\", \"dropout\": 0.1"

struct rank {
    pthread_t thread;
    const struct setting *setting;
    struct zinf_config *config;
    struct zinf_net *net;
    uint64_t origin;
    int until; /* steps */
    bool anew;
    const char *folder; /* of the model; NULL: none is saved */
    int code;
    uint64_t began;    /* the step that it went on after */
    bool packs_fronts; /* in RAM */
    char said[600];
};

static char drives[RANKS][620];

/* What goes with a record. */
static int commit(struct zinf_trainer *t, uint64_t origin)
{
    struct checkpoint c = {.origin = origin, .threads = 1, .data = {.seq_len = trainings.seq}};
    struct source source = trainer_source(t);
    checkpoint_take_counters(&source, &c);
    char *text = checkpoint_text(&c);
    int code = text ? durable_commit(t, text, strlen(text)) : -ENOMEM;
    free(text);
    return code;
}

static int go_on(struct rank *rank, struct zinf_trainer *t)
{
    struct checkpoint c;
    uint64_t bytes;
    const void *scalars = durable_recovered(t, &bytes);
    if (!scalars)
        return commit(t, rank->origin);
    int code = checkpoint_parse(&c, "a step", scalars, bytes);
    if (code)
        return code;
    checkpoint_count_on(&c, t);
    rank->began = c.step;
    rank->origin = c.origin;
    checkpoint_fini(&c);
    return 0;
}

static int make_step(struct rank *rank, struct zinf_trainer *t)
{
    struct zinf_step_result result = {0};
    int code = share_step(rank->setting, rank->net, t, t->step, &result);
    return code || result.skipped ? code : commit(t, rank->origin);
}

/* No CHECK in here: threads would share its counts. */
static void *live(void *argument)
{
    struct rank *rank = argument;
    struct zinf_trainer_options options = trainer_options(rank->setting, rank->config);
    struct zinf_trainer *t = NULL;
    uint8_t name[16] = "the ranks' run.";
    name[15] = (uint8_t)zinf_net_place(rank->net).rank;
    options.net = rank->net;
    options.run = name;
    options.anew = rank->anew;
    rank->code = zinf_trainer_create(&t, &options);
    rank->packs_fronts = t && plan_says(t, "parameters in RAM are packed");
    if (!rank->code)
        rank->code = go_on(rank, t);
    while (!rank->code && t->step < (uint64_t)rank->until)
        rank->code = make_step(rank, t);
    if (!rank->code)
        rank->code = trainer_settle(t); /* a late record too */
    if (!rank->code && rank->folder)
        rank->code = zinf_trainer_save(t, rank->folder);
    if (rank->code)
        snprintf(rank->said, sizeof rank->said, "%s", zinf_error());
    if (rank->code)
        zinf_net_tell(rank->net, rank->said);
    zinf_trainer_destroy(t);
    zinf_net_close(rank->net);
    return NULL;
}

/* One life of all ranks, from what is on their drives up to a step. */
struct life {
    int until;
    bool anew;
    uint64_t origin;
    const char *folder;
    uint32_t world; /* 0: all */
};
static struct rank ranks[RANKS];

static int live_all(const struct setting *s, const struct life *life)
{
    struct zinf_net *nets[RANKS];
    uint32_t world = life->world ? life->world : RANKS;
    memset(ranks, 0, sizeof ranks);
    CHECKF(!zinf_net_threads_create(nets, world), "%s", zinf_error());
    for (uint32_t r = 0; r < world; r++) {
        zinf_net_set_timeout(nets[r], 60);
        snprintf(drive, sizeof drive, "%.590s", drives[r]);
        ranks[r] = (struct rank){.setting = s,
                                 .config = configure_of(s, world),
                                 .net = nets[r],
                                 .origin = life->origin,
                                 .until = life->until,
                                 .anew = life->anew,
                                 .folder = life->folder};
    }
    for (uint32_t r = 0; r < world; r++)
        pthread_create(&ranks[r].thread, NULL, live, &ranks[r]);
    int code = 0;
    for (uint32_t r = 0; r < world; r++) {
        pthread_join(ranks[r].thread, NULL);
        zinf_config_destroy(ranks[r].config);
        code = code ? code : ranks[r].code;
    }
    return code;
}

/* ---- drives ---- */

static void shell(const char *command)
{
    CHECKF(!system(command), "%s", command);
}

static void empty(int rank)
{
    char command[1400];
    snprintf(command, sizeof command, "rm -rf '%.600s'/*", drives[rank]);
    shell(command);
}

/* A drive as it is now, for later. */
static void remember(int rank)
{
    char command[2000];
    snprintf(command, sizeof command, "rm -rf '%.600s.then' && cp -a '%.600s' '%.600s.then'",
             drives[rank], drives[rank], drives[rank]);
    shell(command);
}

static void put_back(int rank)
{
    char command[2000];
    snprintf(command, sizeof command, "rm -rf '%.600s' && mv '%.600s.then' '%.600s'", drives[rank],
             drives[rank], drives[rank]);
    shell(command);
}

static void begin(const struct setting *s, int steps)
{
    struct life life = {.until = steps, .anew = true, .origin = 11};
    for (int r = 0; r < RANKS; r++)
        empty(r);
    CHECKF(!live_all(s, &life), "%s", ranks[0].said);
}

static void forget(void)
{
    for (int r = 0; r < RANKS; r++)
        empty(r);
}

/* To the end, and the weights of the training that nobody ended. */
static void check_end(const struct setting *s, uint64_t began, const char *whole, const char *what)
{
    char folder[600];
    struct life life = {.until = STEPS, .origin = 99, .folder = in_work(folder, "resumed")};
    int code = live_all(s, &life);
    for (int r = 0; r < RANKS; r++)
        CHECKF(!code && ranks[r].began == began, "%s: rank %d goes on after %llu: %s", what, r,
               (unsigned long long)ranks[r].began, ranks[r].said);
    CHECKF(same_weights(whole, folder), "%s: other weights", what);
    forget();
}

/* ---- cases ---- */

static void check_setting(struct setting s, const char *name)
{
    char whole[600], what[200];
    struct life life = {.until = STEPS, .anew = true, .origin = 5, .folder = in_work(whole, name)};
    s.accumulation = 2;
    s.clip = 0.7;
    s.extra = word(s.extra, DURABLE);
    CHECKF(!live_all(&s, &life), "%s: %s", name, ranks[0].said);
    for (int r = 0; r < RANKS; r++)
        CHECKF(ranks[r].packs_fronts == s.asks_fronts, "%s: rank %d", name, r);
    forget();
    begin(&s, 3);
    snprintf(what, sizeof what, "%s, all at one step", name);
    check_end(&s, 3, whole, what);
    for (int behind = 0; behind < RANKS; behind++) {
        begin(&s, 2);
        remember(behind);
        struct life one = {.until = 3};
        CHECKF(!live_all(&s, &one), "%s", ranks[0].said);
        put_back(behind);
        snprintf(what, sizeof what, "%s, rank %d a step behind", name, behind);
        check_end(&s, 2, whole, what);
    }
}

static void test_common_step(void)
{
    struct setting on_drive = {.precision = bf16},
                   in_ram = {.param = "cpu", .precision = bf16, .schedule = "update-in-forward"},
                   fp32 = {.schedule = "serial", .copies = true};
    check_setting(on_drive, "on the drive");
    check_setting(in_ram, "parameters in RAM, late updates");
    check_setting(fp32, "fp32");
    on_drive.extra = DURABLE ", \"pack\": \"all\"";
    on_drive.asks_fronts = true;
    trainings.sub_group = 1 << 20; /* small ones do not get smaller */
    on_drive.host_memory = RESIDENT + ((uint64_t)512 << 20);
    check_setting(on_drive, "slices packed in RAM");
}

/* Parameters are whole at every rank, and a record has each rank's slice of them. */
static void test_whole_parameters(void)
{
    struct setting one = {.stage = 1, .param = "none", .precision = bf16, .schedule = "prefetch"},
                   two = {.stage = 2, .param = "none", .schedule = "update-in-forward"};
    two.copies = true;
    check_setting(one, "stage 1, bf16");
    check_setting(two, "stage 2, fp32, late updates");
    two.precision = bf16;
    two.optimizer = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-3}}";
    check_setting(two, "state that every rank has whole");
}

static void test_refusals(void)
{
    struct setting s = {.precision = bf16, .accumulation = 2, .extra = DURABLE};
    struct life on = {.until = STEPS};
    begin(&s, 1);
    remember(1);
    struct life two = {.until = 3};
    CHECKF(!live_all(&s, &two), "%s", ranks[0].said);
    put_back(1);
    CHECK(live_all(&s, &on) && strstr(ranks[0].said, "rank 1 has other steps"));
    CHECKF(strstr(ranks[1].said, "an older copy"), "%s", ranks[1].said);
    forget();

    /* A beginning that only one rank came to. */
    begin(&s, 2);
    remember(2);
    struct life anew = {.until = 2, .anew = true, .origin = 12};
    CHECKF(!live_all(&s, &anew), "%s", ranks[0].said);
    put_back(2);
    CHECK(live_all(&s, &on));
    CHECKF(strstr(ranks[1].said, "has other steps"), "%s", ranks[1].said);
    forget();

    begin(&s, 2);
    empty(2);
    CHECK(live_all(&s, &on));
    CHECKF(strstr(ranks[0].said, "rank 2 has no step on its drive"), "%s", ranks[0].said);
    forget();
}

int main(void)
{
    char name[20];
    begin_rank_trainings("durable-ranks", STEPS);
    for (int r = 0; r < RANKS; r++) {
        snprintf(name, sizeof name, "drive%d", r);
        in_work(drives[r], name);
        zinf_make_dirs(drives[r]);
    }
    TAP_RUN(test_common_step);
    TAP_RUN(test_whole_parameters);
    TAP_RUN(test_refusals);
    remove_work();
    return tap_done();
}
