/* estimate: what a training will take, before it starts: from shapes alone, no weights. */
#include "cli/estimate/estimate.h"

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

struct options {
    bool measure, json, longest;
    double tbw, tokens, power, price; /* 0: not given */
    const char *trace, *machine, *compare, *network, *suggest;
    int64_t ranks, local_ranks; /* 0: as many as there are seats */
    double net_bytes;           /* a second, of a host */
};

/* The same training on a machine that has more: estimates that do not depend on each other. */
enum {
    MORE_HOST,
    MORE_DEVICE,
    MORE_DRIVES,
    MORE_DEVICES,
    OTHER_GATHER,
    FILLED,
    WEIGHTS_MOVE,
    OVERLAP
};
struct change {
    const char *what;
    bool counts; /* there is such a thing */
    struct zinf_config config;
    struct zinf_estimate_options options;
    struct zinf_described_machine described; /* the options', where there is one */
    bool is_more;                            /* memory: what fits without it fits with it */
    double before, seconds;                  /* a step; 0: it does not fit */
};
/* Every step-th of them, from the first on: what a thread does. */
struct worker {
    struct change *changes;
    int first, step;
    pthread_t thread;
    bool started;
};

static void *estimate_changes(void *argument)
{
    const struct worker *w = argument;
    for (int i = w->first; i < ESTIMATE_CHANGES; i += w->step) {
        struct change *c = &w->changes[i];
        struct zinf_estimate other;
        if (c->counts && !zinf_estimate(&other, &c->options))
            c->seconds = other.step_seconds;
        if (c->is_more) /* what was found is not the best with more, or does not fit where it did */
            c->seconds = c->seconds > 0 ? fmin(c->seconds, c->before) : c->before;
    }
    return NULL;
}

/* A thread a CPU; one that cannot be had is this one. */
static void run_workers(struct change changes[ESTIMATE_CHANGES])
{
    struct worker workers[ESTIMATE_CHANGES];
    int n = zinf_cpu_count() < ESTIMATE_CHANGES ? zinf_cpu_count() : ESTIMATE_CHANGES;
    for (int i = 0; i < n; i++) {
        workers[i] = (struct worker){.changes = changes, .first = i, .step = n};
        workers[i].started =
            !pthread_create(&workers[i].thread, NULL, estimate_changes, &workers[i]);
    }
    for (int i = 0; i < n; i++)
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
        else
            estimate_changes(&workers[i]);
}

/* A GiB more than the budget, of a machine that has it. */
static void add_memory(struct change *c, bool host, const struct zinf_estimate *now, uint32_t seats)
{
    const uint64_t gib = (uint64_t)1 << 30;
    c->is_more = true;
    if (c->options.trainer.described) {
        c->described = *c->options.trainer.described;
        c->described.ram_bytes += host ? 2 * gib : 0;
        c->described.gpu_bytes += host ? 0 : 2 * gib;
        c->options.trainer.described = &c->described;
    }
    if (!host) {
        c->config.device_memory = now->budget[0] + gib;
        return;
    }
    c->config.host_memory = now->host_limit * (seats ? seats : 1) + gib;
}

/* Whether what is for the drive is there, whatever RAM is free. */
static bool leaves_ram(const struct zinf_config *c)
{
    return !strcmp(c->placement, "exact");
}

/* The samples of a pipeline's step dealt to its ranks, which have slices of all layers. */
static void without_pipeline(struct zinf_config *c)
{
    c->accumulation /= c->mesh[2];
    c->mesh[0] = 0;
    c->mesh[2] = 1;
    c->pipeline_ranges = 1;
    c->pipeline_range_layers = 0;
    c->zero_stage = 3;
}

static bool may_overlap(const struct zinf_config *c)
{
    return !c->pipeline_overlap && c->pipeline_ranges == 1 && !c->pipeline_range_layers;
}

static bool can_be_dealt(const struct zinf_config *c)
{
    return c->mesh[2] > 1 && c->accumulation % c->mesh[2] == 0;
}

static void add_changes(struct estimate *e, const struct zinf_estimate_options *now)
{
    const bool by_link = e->now.link_seconds > 0;
    struct change all[ESTIMATE_CHANGES] = {
        [MORE_HOST] = {.what = "1 GiB more host memory", .counts = true},
        [MORE_DEVICE] = {.what = "1 GiB more device memory", .counts = true},
        [MORE_DRIVES] = {.what = "a second drive like this one", .counts = e->now.lane_bytes[0]},
        [MORE_DEVICES] = {.what = "a second device like this one", .counts = e->seats < 2},
        [OTHER_GATHER] = {.what = by_link ? "units pulled from RAM"
                                          : "units gathered between the devices",
                          .counts =
                              by_link || (e->now.pull_seconds > 0 && now->speeds.peer_bytes > 0)},
        [FILLED] = {.what = "RAM filled first (zinf.placement \"auto\")",
                    .counts = e->now.lane_bytes[0] && leaves_ram(now->trainer.config)},
        [WEIGHTS_MOVE] = {.what = "weights sent instead of values (zinf.mesh.data, stage 3)",
                          .counts = can_be_dealt(now->trainer.config)},
        [OVERLAP] = {.what = "more micro-batches at once (zinf.pipeline_overlap)",
                     .counts = e->now.pipe_ranks > 1 && may_overlap(now->trainer.config)},
    };
    for (int i = 0; i < ESTIMATE_CHANGES; i++) {
        all[i].config = *now->trainer.config;
        all[i].options = *now;
        all[i].options.plan = NULL;
        all[i].options.trace = NULL;
        all[i].options.pipe = NULL;
        all[i].options.like = &e->now;
        all[i].options.trainer.config = &all[i].config;
        all[i].before = e->now.step_seconds;
    }
    add_memory(&all[MORE_HOST], true, &e->now, e->seats);
    add_memory(&all[MORE_DEVICE], false, &e->now, e->seats);
    all[MORE_DRIVES].options.drive_factor = 2;
    all[MORE_DEVICES].options.device_factor = 2;
    all[OTHER_GATHER].config.gather = (char *)(uintptr_t)(by_link ? "host" : "device");
    all[OTHER_GATHER].options.like = NULL; /* which has its way */
    all[FILLED].config.placement = (char *)(uintptr_t) "auto";
    if (all[WEIGHTS_MOVE].counts)
        without_pipeline(&all[WEIGHTS_MOVE].config);
    all[WEIGHTS_MOVE].options.like = NULL;
    all[OVERLAP].config.pipeline_overlap = true;
    all[OVERLAP].options.like = NULL;
    run_workers(all);
    for (int i = 0; i < ESTIMATE_CHANGES; i++)
        if (all[i].counts)
            e->changes[e->n_changes++] = (struct estimate_change){all[i].what, all[i].seconds};
}

/* Speeds of this machine: from the cache, or just measured. */
static int estimate_here(struct estimate *e, const struct options *o, const struct zinf_session *s,
                         struct zinf_estimate_options *options, struct zinf_rates *rates)
{
    int code = 0;
    speeds_cached(&options->speeds, &e->sources, s->config, s->device);
    options->speeds.net_bytes = o->net_bytes;
    if (o->measure) {
        options->trainer.speeds = &options->speeds; /* by which rates are told apart */
        code = zinf_rates_measure(rates, &options->trainer);
        options->rates = rates;
        e->steps_apart = code ? 0 : rates->steps_apart;
    }
    if (!code)
        code = zinf_estimate(&e->now, options);
    if (!code)
        estimate_drive_room(e, s->config);
    if (!code && !o->measure)
        estimate_range(options, &e->now, e->range);
    return code;
}

/* The plan, which is printed also where it does not fit; then the estimate. */
static int estimate_all(const struct options *o, const struct zinf_session *s,
                        const struct estimate_request *request, const struct machine *machine,
                        struct zinf_pipe_rank *pipe)
{
    struct estimate e = {.tbw = o->tbw > 0 ? o->tbw * 1e12 : ESTIMATE_TBW,
                         .tokens = o->tokens,
                         .watts = o->power,
                         .price = o->price,
                         .ranks = (uint32_t)o->ranks,
                         .local_ranks = (uint32_t)o->local_ranks,
                         .seats = (uint32_t)s->job.seats};
    struct zinf_described_machine described;
    struct zinf_rates rates;
    char *plan = NULL;
    size_t plan_bytes = 0;
    struct zinf_estimate_options options = {
        .pipe = pipe,
        .trainer = request->trainer,
        .plan = o->json ? NULL : open_memstream(&plan, &plan_bytes),
        .trace = o->trace,
        .ranks = (uint32_t)o->ranks,
        .local_ranks = (uint32_t)o->local_ranks,
        .seats = (uint32_t)s->job.seats,
        .speeds = {.net_bytes = o->net_bytes},
    };
    int code = machine ? estimate_described(&e, request, machine, &options)
                       : estimate_here(&e, o, s, &options, &rates);
    if (options.plan && !fclose(options.plan))
        cli_print_lines(stdout, plan);
    free(plan);
    options.plan = NULL;
    e.pipe = pipe;
    e.seq_len = request->trainer.seq_len;
    if (code)
        return code;
    if (machine) {
        machine_describe(machine, &described);
        options.trainer.described = &described;
    }
    add_changes(&e, &options);
    if (e.drive_free < estimate_drive_bytes(&e))
        zinf_log(ZINF_LOG_WARN, "%s has too little room: zinf train would refuse to begin",
                 e.drive_path);
    if (o->json)
        return cli_print_json(estimate_json(&e));
    estimate_print(&e);
    return 0;
}

static int estimate(const struct options *o, const struct zinf_session *s,
                    const struct estimate_request *request, const struct machine *machine)
{
    const size_t n = (size_t)request->trainer.config->mesh[2] + 1; /* ranks in a pipeline */
    struct zinf_pipe_rank *pipe = calloc(n, sizeof *pipe);
    const int code = pipe ? estimate_all(o, s, request, machine, pipe)
                          : zinf_fail(-ENOMEM, "no memory for %zu ranks", n);
    free(pipe);
    return code;
}

static int check_described(const struct options *o)
{
    if (o->ranks > 1 && (o->measure || o->compare))
        return zinf_fail(-EINVAL, "ranks and seats are described, on this machine's figures or on "
                                  "those of --machine: leave out --measure and --compare");
    return 0;
}

/* Where nobody asks for ranks or seats, the configuration's. */
static int take_seats(struct options *o, struct zinf_session *s)
{
    if (!s->job.seats)
        s->job.seats = s->config->seats > 0 ? s->config->seats : 1;
    if (!o->ranks)
        o->ranks = o->local_ranks = s->job.seats;
    return check_described(o);
}

/* What an estimate is made of, for a placement that is tried. */
struct placing {
    const struct options *options;
    const struct zinf_session *session;
    struct estimate_request *request;
    const struct machine *machine;
};

static int estimate_placed(void *arg, const struct zinf_config *config)
{
    struct placing *p = arg;
    p->request->trainer.config = config;
    return estimate(p->options, p->session, p->request, p->machine);
}

/* What a placement that is tried is read with. */
static struct zinf_config_context placing_context(struct zinf_session *s)
{
    struct zinf_config_context context = session_context(s);
    context.hidden_size = zinf_model_facts(s->model)->hidden;
    context.dtype = zinf_dtype_name(s->config->dtype);
    context.quiet = true;
    return context;
}

/* Without a configuration all that fits on the device is there; what does not goes further away. */
static int place(const struct options *o, struct zinf_session *s, struct placing *p)
{
    char text[ESTIMATE_PLACED];
    const struct zinf_config_context context = placing_context(s);
    int code = estimate_place(s->config, &context, NULL, estimate_placed, p, text);
    return code || o->json ? code : estimate_suggest(text, o->suggest);
}

/* The plan of a length that is tried. */
struct tried {
    struct zinf_session *session;
    struct zinf_estimate_options *options;
};

static int fits_placed(void *arg, const struct zinf_config *config)
{
    struct tried *t = arg;
    struct zinf_estimate unused;
    t->options->trainer.config = config;
    return zinf_estimate(&unused, t->options);
}

/* With the configuration; without one, in any placement. */
static int fits_length(void *arg, int64_t seq_len)
{
    char text[ESTIMATE_PLACED];
    struct tried *t = arg;
    const struct zinf_config *usual = t->session->config;
    t->options->trainer.seq_len = seq_len;
    int code = fits_placed(t, usual);
    if (code == -ENOMEM && !t->session->job.config) {
        const struct zinf_config_context context = placing_context(t->session);
        code = estimate_place(usual, &context, NULL, fits_placed, t, text);
    }
    t->options->trainer.config = usual;
    return code;
}

/* What depends on the machine that a plan is made for: the micro-batch, and the longest sequence.
 */
static int find_shape(const struct options *o, struct zinf_session *s,
                      struct estimate_request *request, const struct machine *machine)
{
    struct zinf_described_machine described;
    struct zinf_estimate_options options = {.trainer = request->trainer,
                                            .ranks = (uint32_t)o->ranks,
                                            .local_ranks = (uint32_t)o->local_ranks,
                                            .seats = (uint32_t)s->job.seats};
    struct tried tried = {s, &options};
    if (s->config->finds_micro_batch && o->compare)
        return zinf_fail(-EINVAL, "--micro-batch auto is another number on each machine of "
                                  "--compare: give --micro-batch a number");
    if (machine) {
        machine_describe(machine, &described);
        options.trainer.described = &described;
    }
    int code = job_micro_find(s, &options);
    if (code || !o->longest)
        return code;
    code = estimate_longest(fits_length, &tried, zinf_model_facts(s->model)->context,
                            s->config->sequence_chunk, &s->seq_len);
    request->trainer.seq_len = s->seq_len;
    if (!code && !o->json)
        printf("longest      %lld tokens in a sequence fit\n", (long long)s->seq_len);
    return code;
}

static int work(struct cli_call *call)
{
    struct options *o = call->options;
    struct zinf_session *s = call->session;
    struct machine machine;
    int code = o->machine ? machine_parse(&machine, o->machine) : 0;
    if (!code)
        code = session_ready(s, JOB_LOOKS);
    if (!code)
        code = session_assume_data(s);
    if (!code)
        code = take_seats(o, s);
    if (code)
        return code;
    struct estimate_request request = {
        .trainer = session_trainer_options(s, ZINF_TRAINER_TRAIN),
        .tbw = o->tbw * 1e12,
        .tokens = o->tokens,
        .watts = o->power,
        .json = o->json,
    };
    code = find_shape(o, s, &request, o->machine ? &machine : NULL);
    if (code)
        return code;
    struct placing placing = {o, s, &request, o->machine ? &machine : NULL};
    code = o->compare ? estimate_compare(&request, o->compare)
                      : estimate(o, s, &request, placing.machine);
    return code == -ENOMEM && !o->compare && !s->job.config ? place(o, s, &placing) : code;
}

/* "25Gbit/s" or "3.1GB/s"; networks are sold by bits. */
static int read_network(struct options *o)
{
    static const struct {
        const char *word;
        double bytes;
    } units[] = {{"Gbit/s", 1.25e8}, {"Gbit", 1.25e8}, {"GB/s", 1e9}, {"MB/s", 1e6}};
    char *unit = NULL;
    double number = o->network ? strtod(o->network, &unit) : 0;
    for (size_t i = 0; o->network && i < sizeof units / sizeof *units; i++)
        if (!strcmp(unit, units[i].word))
            o->net_bytes = number * units[i].bytes;
    if (o->network && !(o->net_bytes >= 1e6 && o->net_bytes < 1e13))
        return zinf_fail(-EINVAL, "--network %s: a rate is needed, such as 25Gbit/s or 3GB/s",
                         o->network);
    return 0;
}

static int check_ranks(struct options *o, struct zinf_job *c)
{
    if (!o->ranks)
        o->ranks = o->local_ranks ? o->local_ranks : c->seats;
    if (!o->local_ranks)
        o->local_ranks = o->ranks;
    if (o->ranks && !c->seats) /* a process each, whatever the configuration says */
        c->seats = 1;
    if (!o->ranks)
        return read_network(o);
    if (o->local_ranks % c->seats)
        return zinf_fail(-EINVAL, "%lld GPUs on a host are not processes with --seats %lld each",
                         (long long)o->local_ranks, (long long)c->seats);
    c->world = o->ranks / c->seats;
    if (o->ranks % o->local_ranks)
        return zinf_fail(-EINVAL,
                         "--ranks %lld are not as many on every host as --gpus-per-host "
                         "%lld",
                         (long long)o->ranks, (long long)o->local_ranks);
    if (o->ranks > o->local_ranks && !o->network)
        return zinf_fail(-EINVAL, "several hosts: say how fast the network of each is, such as "
                                  "--network 25Gbit/s");
    int code = check_described(o);
    return code ? code : read_network(o);
}

/* A machine that is described has nothing of this process in it: what the programs of one plan have
 * freed stays for those of the next, which else would be mapped page by page (main.c). */
static void keep_freed(const struct options *o)
{
    if (!o->machine && !o->compare)
        return;
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that glibc takes */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

static int check(struct cli_call *call)
{
    struct options *o = call->options;
    int code = check_ranks(o, &call->session->job);
    if (code)
        return code;
    if (o->machine && o->compare)
        return zinf_fail(-EINVAL, "--compare names the machines: leave out --machine");
    if (o->measure && (o->machine || o->compare))
        return zinf_fail(-EINVAL, "--measure is of this machine: leave it out with --machine and "
                                  "--compare");
    if (o->longest && (o->compare || o->measure))
        return zinf_fail(-EINVAL, "--longest works for one machine and with stated speeds: leave "
                                  "out --compare and --measure");
    if (o->price > 0 && o->compare)
        return zinf_fail(-EINVAL, "--compare has one price for all machines: leave out --price");
    if (o->trace && o->compare)
        return zinf_fail(-EINVAL, "--trace is of one machine: leave it out with --compare");
    keep_freed(o);
    return session_need_model(call->session);
}

static const char usage[] =
    "usage: zinf estimate --model DIR|config.json [--config FILE] [options]\n"
    "\n"
    "Says what a training will take before it starts: memory on every tier, bytes\n"
    "over every link, wear of the drive, time of a step and what limits it. Needs no\n"
    "weights.\n";

#define AT(field) .offset = offsetof(struct options, field)
#define IN(field) .at = offsetof(struct options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--measure", FLAG, AT(measure), NULL,
     "run a few steps with two blocks for the speeds (default: of zinf bench, else stated ones)"),
    OPTION("--machine", TEXT, AT(machine), "NAME|FILE",
     "of a machine that is not here: a card (3090, 4090, 5090, a10, l4, a100-80, h100, ...), cpu, or "
     "a JSON file; then figures: 4090,ram=64G,nvme=7/6", .word = machine_word,
     .open = true),
    OPTION("--suggest", TEXT, AT(suggest), "FILE",
     "without --config: write the placement that fits there"),
    OPTION("--compare", TEXT, AT(compare), "LIST",
     "a table of such machines, with commas between them"),
    OPTION("--longest", FLAG, AT(longest), NULL,
     "find the longest sequence that fits into memory, instead of --seq-len"),
    OPTION("--power", NUMBER, AT(power), "X", "watts, for the energy of --tokens", .min = 1,
     .max = 1e9, .otherwise = "the card's"),
    OPTION("--price", NUMBER, AT(price), "X",
     "what an hour of all machines costs, for the price of tokens", .min = 1e-9, .max = 1e9),
    OPTION("--tbw", NUMBER, AT(tbw), "X", "terabytes that the drive may be written", .min = 1,
     .max = 1e6, .otherwise = "600"),
    OPTION("--tokens", NUMBER, AT(tokens), "X",
     "days and terabytes written for a training of X tokens", .min = 1, .max = 1e18),
    OPTION("--trace", TEXT, AT(trace), "FILE", "the step that is predicted, as a Chrome trace"),
    CLI_NO_ROW
};
static const struct option own_seats[] = {
    OPTION("--seats", INTEGER, .offset = 0, "N", "of N GPUs that one process drives",
     .min = 1, .max = 1024, .otherwise = "zinf.seats"),
    CLI_NO_ROW
};
static const struct option own_ranks[] = {
    OPTION("--ranks", INTEGER, AT(ranks), "N",
     "of so many ranks, a GPU each; with --seats, so many of them in each process", .min = 1,
     .max = 1024),
    OPTION("--gpus-per-host", INTEGER, AT(local_ranks), "N", "so many on each host", .min = 1,
     .max = 1024, .otherwise = "all on one"),
    OPTION("--network", TEXT, AT(network), "RATE", "of each host, such as 25Gbit/s"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(job_shape),
    CLI_DOOR(job_shape_task),
    CLI_DOOR(job_shape_length),
    CLI_DOOR(job_pad),
    {.rows = own},
    CLI_DOOR(own_seats),
    {.rows = own_ranks},
    CLI_DOOR(job_tensor),
    CLI_DOOR(job_context),
    CLI_DOOR(job_pipeline),
    {.rows = cli_json, IN(json)},
    CLI_DOOR(job_step),
    CLI_DOOR(job_pairs),
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_device),
    CLI_NO_GROUP
};
/* clang-format on */

const struct cli_command cli_estimate = {
    .name = "estimate",
    .summary = "memory, traffic and step time of a training, before it starts",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct options),
    .check = check,
    .work = work,
};
