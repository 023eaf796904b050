/*
 * bench_schedule: `zinf bench schedule`. What each order of a step's operations is worth on given
 * hardware, which need not be here: the step runs on the lanes of a training, where operations take
 * their time and do nothing.
 */
#include "bench/emulation.h"
#include "cli/bench/bench.h"
#include "cli/estimate/estimate.h"

static const char usage[] =
    "usage: zinf bench schedule --model DIR|config.json --machine NAME|FILE [options]\n"
    "\n"
    "Runs the steps of a training at set rates: by the clock, with the threads and\n"
    "queues of a training, but nothing is computed and no drive is touched. Prints\n"
    "for each schedule how near a step comes to the work of its busiest lane, and to\n"
    "what was predicted.\n";

#define SCHEDULE_COLS 19
#define LANES 7
#define WORTH_SAYING 0.005 /* of a step, that a lane stood still */

static const char *const words[] = {
    "serial", "prefetch", "update-in-forward", "update-in-backward", "update-in-place",
    "auto",   NULL};

struct options {
    struct zinf_words schedules;
    const char *machine, *trace;
    double seconds;
    int64_t repeat, ranks;
    bool json;
};

static int busiest(const struct zinf_emulation *e)
{
    int most = 0;
    for (int lane = 1; lane < LANES; lane++)
        if (e->work_seconds[lane] > e->work_seconds[most])
            most = lane;
    return most;
}

static void print_one(const struct zinf_emulation *e)
{
    int lane = busiest(e);
    printf("%-*s %9.4g %9.4g %9.4g %9.3f %+8.1f %%  %s\n", SCHEDULE_COLS, e->schedule,
           e->floor_seconds, e->predicted_seconds, e->step_seconds,
           e->floor_seconds / e->step_seconds, 100 * (e->step_seconds / e->predicted_seconds - 1),
           estimate_lane(lane));
    if (e->pipe_ranks > 1)
        printf("%*s %u ranks in a pipeline: the busiest works for %.1f %% of the step; "
               "at most %.1f %% is possible\n",
               SCHEDULE_COLS, "", e->pipe_ranks, 100 * e->pipe_busy_seconds / e->step_seconds,
               100 * e->pipe_busy_seconds / e->pipe_floor_seconds);
    for (int other = 0; other < LANES; other++)
        if (e->stall_seconds[lane][other] > WORTH_SAYING * e->step_seconds)
            printf("%*s stood still for %.4g s: %s%s\n", SCHEDULE_COLS, "",
                   e->stall_seconds[lane][other], other == lane ? "" : "waited for ",
                   other == lane ? "nothing to do" : estimate_lane(other));
}

static void add_one(cJSON *list, const struct zinf_emulation *e)
{
    cJSON *one = cli_json_append(list);
    cJSON_AddStringToObject(one, "schedule", e->schedule);
    cJSON_AddNumberToObject(one, "floor_seconds", e->floor_seconds);
    cJSON_AddNumberToObject(one, "predicted_seconds", e->predicted_seconds);
    cJSON_AddNumberToObject(one, "step_seconds", e->step_seconds);
    cJSON_AddNumberToObject(one, "fastest_seconds", e->fastest_seconds);
    cJSON_AddNumberToObject(one, "slowest_seconds", e->slowest_seconds);
    cJSON_AddStringToObject(one, "busiest", estimate_lane(busiest(e)));
    cJSON_AddNumberToObject(one, "operations", e->n_ops);
    if (e->pipe_ranks > 1) {
        cJSON_AddNumberToObject(one, "pipe_ranks", e->pipe_ranks);
        cJSON_AddNumberToObject(one, "pipe_busy_seconds", e->pipe_busy_seconds);
        cJSON_AddNumberToObject(one, "pipe_floor_seconds", e->pipe_floor_seconds);
    }
    cJSON *work = cJSON_AddObjectToObject(one, "work_seconds");
    cJSON *busy = cJSON_AddObjectToObject(one, "busy_seconds");
    for (int lane = 0; lane < LANES; lane++) {
        cJSON_AddNumberToObject(work, estimate_lane(lane), e->work_seconds[lane]);
        cJSON_AddNumberToObject(busy, estimate_lane(lane), e->busy_seconds[lane]);
    }
}

/* One schedule of the configuration; a line of the table. */
static int run_schedule(const struct options *o, const struct zinf_estimate_options *training,
                        const char *schedule, cJSON *list)
{
    struct zinf_config config = *training->trainer.config;
    struct zinf_estimate_options estimate = *training;
    struct zinf_emulation emulation;
    const struct zinf_emulation_options options = {.estimate = &estimate,
                                                   .steps = (int)o->repeat,
                                                   .clock_seconds = o->seconds,
                                                   .trace = o->trace};
    config.schedule = (char *)schedule;
    estimate.trainer.config = &config;
    int code = zinf_emulate(&emulation, &options);
    if (code)
        return code;
    if (list)
        add_one(list, &emulation);
    else
        print_one(&emulation);
    fflush(stdout);
    return 0;
}

/* Rates of the machine that is named, or what benches have left of this one. */
static void take_machine(struct zinf_estimate_options *training, const struct machine *machine,
                         struct zinf_described_machine *described, const struct zinf_session *s)
{
    struct speed_sources sources;
    if (machine) {
        machine_speeds(machine, s->config->dtype, &training->speeds);
        machine_describe(machine, described);
        training->trainer.described = described;
    } else {
        speeds_cached(&training->speeds, &sources, s->config, s->device);
    }
}

static int run_all(const struct options *o, const struct zinf_session *s,
                   const struct machine *machine, cJSON *result)
{
    static const char *const usual[] = {"prefetch", "update-in-forward", "update-in-backward",
                                        "auto"};
    const char *const *schedules = o->schedules.n ? o->schedules.items : usual;
    int n = o->schedules.n ? o->schedules.n : (int)(sizeof usual / sizeof *usual), code = 0;
    struct zinf_described_machine described;
    struct zinf_estimate_options training = {.trainer =
                                                 session_trainer_options(s, ZINF_TRAINER_TRAIN)};
    cJSON *list = result ? cJSON_AddArrayToObject(result, "schedules") : NULL;
    training.ranks = training.local_ranks = (uint32_t)o->ranks;
    take_machine(&training, machine, &described, s);
    if (result)
        cJSON_AddStringToObject(result, "machine", o->machine ? o->machine : "this one");
    else
        printf("%-*s %9s %9s %9s %9s %10s  %s\n", SCHEDULE_COLS, "schedule", "floor, s",
               "predicted", "step", "floor/step", "predicted", "busiest");
    for (int i = 0; !code && i < n; i++)
        code = run_schedule(o, &training, schedules[i], list);
    return code;
}

#define AT(field) .offset = offsetof(struct options, field)
#define IN(field) .at = offsetof(struct options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--machine", TEXT, AT(machine), "NAME|FILE",
     "whose rates: 4090,ram=64G,nvme=7/6, as zinf estimate has them", .word = machine_word,
     .open = true, .otherwise = "this machine, as zinf bench measured it"),
    OPTION("--schedule", TEXTS, AT(schedules), "NAME...",
     "serial, prefetch, update-in-forward, update-in-backward, update-in-place or auto",
     .words = words, .otherwise = "all but serial and update-in-place"),
    OPTION("--seconds", NUMBER, AT(seconds), "X",
     "that a step takes by the clock, about; the longer, the less it matters when threads wake late",
     .min = 1e-3, .max = 3600, .usual = "5"),
    OPTION("--ranks", INTEGER, AT(ranks), "N", "number of ranks of the training, for --pipeline-parallel", .min = 1,
     .max = 64),
    OPTION("--repeat", INTEGER, AT(repeat), "N", "steps, after one that is not counted", .min = 1,
     .max = 1000, .usual = "3"),
    CLI_NO_ROW
};
static const struct option own_trace[] = {
    OPTION("--trace", TEXT, AT(trace), "FILE", "of the last schedule, as a Chrome trace"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(job_shape),
    {.rows = own},
    CLI_DOOR(job_pipeline),
    CLI_DOOR(job_shape_length),
    {.rows = own_trace},
    {.rows = cli_json, IN(json)},
    CLI_DOOR(job_step),
    CLI_DOOR(job_pairs),
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_device),
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    const struct options *o = call->options;
    call->session->job.world = o->ranks > 1 ? o->ranks : call->session->job.world;
    return session_need_model(call->session);
}

static int work(struct cli_call *call)
{
    const struct options *o = call->options;
    cJSON *result = o->json ? cJSON_CreateObject() : NULL;
    struct machine machine;
    int code = o->machine ? machine_parse(&machine, o->machine) : 0;
    if (!code)
        code = session_ready(call->session, JOB_LOOKS);
    if (!code)
        code = job_micro_settle(call->session);
    if (!code)
        code = run_all(o, call->session, o->machine ? &machine : NULL, result);
    return bench_finish(call->command, result, code);
}

const struct cli_command bench_schedule = {
    .name = "bench schedule",
    .summary = "",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct options),
    .check = check,
    .work = work,
};
