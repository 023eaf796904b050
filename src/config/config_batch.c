/*
 * config_batch: train_batch_size = micro batch * accumulation * world size. Any one of the first
 * two numbers completes the rest; a triple that cannot hold is an error that names the three
 * values, the world size, and an edit of each that would correct it.
 *
 * The command line changes micro batch or accumulation, and what the file says of the other stays;
 * then train_batch_size follows.
 */
#include "config/config_private.h"

#include <stdio.h>

#define LARGE_MICRO 16
#define TRAIN "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define ACCUMULATION "gradient_accumulation_steps"

/* 0 in a number: not given. */
struct triple {
    int64_t train, micro, accumulation, world;
};

/* False above 2^53, where JSON's numbers end. */
static bool product(int64_t a, int64_t b, int64_t c, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && !__builtin_mul_overflow(*out, c, out) &&
           *out <= 1ll << 53;
}

/* The largest micro batch up to limit that cuts per_rank samples evenly. */
static int64_t even_micro(int64_t per_rank, int64_t limit)
{
    if (limit > per_rank)
        limit = per_rank;
    if (limit > 1 << 20) /* enough for any message */
        limit = 1 << 20;
    while (limit > 1 && per_rank % limit)
        limit--;
    return limit;
}

/* The commonest reason: the file is for more ranks. step: sequences of one round of this run. */
static void say_ranks(const struct triple *t, int64_t step, char *out, size_t out_bytes)
{
    int64_t each = t->micro * (t->accumulation ? t->accumulation : 1);
    out[0] = 0;
    if (t->accumulation && t->train % each == 0 && t->train / each > t->world &&
        t->train % step == 0)
        snprintf(out, out_bytes,
                 "the file is for %lld ranks; with %lld, --accumulate %lld keeps the batch of "
                 "%lld. ",
                 (long long)(t->train / each), (long long)t->world, (long long)(t->train / step),
                 (long long)t->train);
}

/* Nobody has asked for so many. */
static const char *said_seats(const struct config_loader *loader)
{
    int64_t there = loader->context->seats_there;
    bool by_default = there > 1 && loader->config->seats == there && loader->context->seats < 1;
    return by_default ? ", one for each visible GPU: --seats 1 takes one" : "";
}

static int fail_triple(const struct config_loader *loader, const struct triple *t)
{
    int64_t accumulation = t->accumulation ? t->accumulation : 1, whole = 0, step = 0;
    int64_t per_rank = (t->train + t->world - 1) / t->world; /* train rounded up to the ranks */
    if (!product(t->micro, accumulation, t->world, &whole) ||
        !product(t->micro, t->world, 1, &step))
        return zinf_fail(
            -EINVAL, "%s: " MICRO " %lld * " ACCUMULATION " %lld * world size %lld is too large",
            loader->what, (long long)t->micro, (long long)accumulation, (long long)t->world);
    int64_t micro = even_micro(per_rank, t->micro), rounds = (t->train + step / 2) / step;
    if (per_rank % accumulation == 0)
        micro = per_rank / accumulation;
    rounds = rounds < 1 ? 1 : rounds;
    char ranks[160];
    say_ranks(t, step, ranks, sizeof ranks);
    return zinf_fail(-EINVAL,
                     "%s: %s" TRAIN " is %lld, but " MICRO " %lld * " ACCUMULATION
                     " %lld * world size %lld (ranks of this run%s) is %lld. Set " TRAIN
                     " to %lld; or " MICRO " to %lld with " ACCUMULATION " %lld and " TRAIN
                     " %lld; or " ACCUMULATION " to %lld with " TRAIN " %lld",
                     loader->what, ranks, (long long)t->train, (long long)t->micro,
                     (long long)t->accumulation, (long long)t->world, said_seats(loader),
                     (long long)(t->accumulation ? whole : 0), (long long)whole, (long long)micro,
                     (long long)(per_rank / micro), (long long)(per_rank * t->world),
                     (long long)rounds, (long long)(rounds * step));
}

static bool is_given(const struct config_loader *loader, const char *path)
{
    enum entry_state state = zinf_config_entry(loader->config, path)->state;
    return state != ENTRY_DEFAULT && state != ENTRY_AUTO;
}

static bool from_command_line(const struct config_loader *loader, const char *path)
{
    return zinf_config_entry(loader->config, path)->state == ENTRY_CONTEXT;
}

static int mark(struct config_loader *loader, const char *path, const char *rule)
{
    struct config_entry *entry = zinf_config_entry(loader->config, path);
    const char *opening = entry->state == ENTRY_AUTO ? "auto" : "inferred";
    return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "%s: %s", opening, rule);
}

static int fail_missing(const struct config_loader *loader)
{
    const char *remedy = "write " MICRO " or " TRAIN ", or pass --micro-batch";
    if (zinf_config_entry(loader->config, MICRO)->state == ENTRY_AUTO)
        return zinf_fail(-EINVAL, "%s is \"auto\", but nothing provides it: %s",
                         zinf_config_where(loader->config, MICRO), remedy);
    return zinf_fail(-EINVAL, "%s: the batch size is not given: %s", loader->what, remedy);
}

/* Fills what is missing; every path leaves three numbers and three sources. */
static int complete(struct config_loader *loader, struct triple *t)
{
    int code = 0;
    if (!t->micro && !t->train) {
        if (loader->text)
            return fail_missing(loader);
        t->micro = 1;
        code = zinf_config_entry_mark(zinf_config_entry(loader->config, MICRO), ENTRY_DEFAULT,
                                      "default");
    }
    if (!code && !t->accumulation && t->micro && t->train) {
        t->accumulation = t->train / t->micro / t->world;
        code = mark(loader, ACCUMULATION, TRAIN " / (" MICRO " * world size)");
    } else if (!code && !t->accumulation) {
        t->accumulation = 1;
        code = mark(loader, ACCUMULATION, "1, nothing asks for more");
    }
    if (!code && !t->micro) {
        t->micro = t->train / t->accumulation / t->world;
        code = mark(loader, MICRO, TRAIN " / (" ACCUMULATION " * world size)");
    }
    return code;
}

/* The product, when train_batch_size is not given or the command line moved the others. */
static int follow(struct config_loader *loader, struct triple *t, bool was_given)
{
    int64_t whole;
    if (!product(t->micro, t->accumulation, t->world, &whole))
        return fail_triple(loader, t);
    if (was_given && whole != loader->config->train_batch_size)
        zinf_config_note(loader, ZINF_LOG_WARN,
                         "%s is %lld, but the command line's %lld * %lld * world size %lld "
                         "makes %lld: %lld is used",
                         zinf_config_where(loader->config, TRAIN),
                         (long long)loader->config->train_batch_size, (long long)t->micro,
                         (long long)t->accumulation, (long long)t->world, (long long)whole,
                         (long long)whole);
    t->train = whole;
    return mark(loader, TRAIN, MICRO " * " ACCUMULATION " * world size");
}

/* train_batch_size alone is one micro-batch, as in DeepSpeed: more than most devices hold. */
static void say_large(const struct config_loader *loader, const struct triple *t)
{
    if (t->micro <= LARGE_MICRO)
        return;
    zinf_config_note(loader, ZINF_LOG_INFO,
                     "%s is %lld, and without " MICRO
                     " that is one micro-batch of %lld, as in DeepSpeed: "
                     "--micro-batch %lld cuts it",
                     zinf_config_where(loader->config, TRAIN), (long long)t->train,
                     (long long)t->micro, (long long)even_micro(t->micro, 8));
}

/* Every process has as many. */
static int resolve_seats(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    int64_t there = loader->context->seats_there;
    int code = 0;
    if (there > 0 && !config->seats) {
        config->seats = there;
        code = mark(loader, "zinf.seats", "as many as there are devices");
    }
    if (config->seats > 0)
        config->world_size *= config->seats;
    return code;
}

/* zinf's and DeepSpeed's names of one number, of which 0 and 1 say nothing: the key that says it.
 * -EINVAL where two say different ones. */
static int find_tensor(struct config_loader *loader, const char **key)
{
    struct zinf_config *config = loader->config;
    const struct {
        const char *key;
        int64_t ranks;
    } names[] = {{"zinf.mesh.tensor", config->mesh[1]},
                 {"tensor_parallel.autotp_size", config->autotp_size},
                 {"tensor_parallel.tp.tp_size", config->tp_size}};
    *key = names[0].key;
    for (int i = 1; i < 3; i++) {
        if (names[i].ranks < 2)
            continue;
        if (config->mesh[1] > 1 && config->mesh[1] != names[i].ranks)
            return zinf_fail(-EINVAL, "%s is %lld, but %s is %lld: keep one",
                             zinf_config_where(config, names[i].key), (long long)names[i].ranks,
                             *key, (long long)config->mesh[1]);
        config->mesh[1] = names[i].ranks;
        *key = names[i].key;
    }
    config->mesh[1] += !config->mesh[1];
    return 0;
}

/* Makes an axis that only a file asked for 1 where the command does not train and has one rank:
 * whoever trained over several ranks may use the model on one. A result is the same either way. */
static void take_one_rank(const struct config_loader *loader, const char *key, int64_t *ranks)
{
    const struct zinf_config *config = loader->config;
    if (!loader->context->no_training || config->world_size != 1 || *ranks < 2 ||
        from_command_line(loader, key))
        return;
    zinf_config_note(loader, ZINF_LOG_INFO,
                     "%s is %lld, but this command has one rank, which takes the model whole: "
                     "--seats %lld shares it",
                     zinf_config_where(config, key), (long long)*ranks, (long long)*ranks);
    *ranks = 1;
}

/* Ranks that share a tensor have the same samples. A result has the bits of as many parts as there
 * are such ranks, unless it says how many. */
static int resolve_tensor(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    const char *key;
    int code = find_tensor(loader, &key);
    if (!code)
        take_one_rank(loader, key, &config->mesh[1]);
    if (!code && !config->tensor_parts) {
        config->tensor_parts = config->mesh[1];
        code = mark(loader, "zinf.tensor_parts", "as many as zinf.mesh.tensor");
    }
    const long long ranks = config->mesh[1], world = config->world_size;
    if (!code && world % ranks)
        code =
            zinf_fail(-EINVAL,
                      "%s is %lld, and this run has %lld rank%s, which is no multiple of it: "
                      "start as many, as with --seats %lld",
                      zinf_config_where(config, key), ranks, world, world == 1 ? "" : "s", ranks);
    return code;
}

/* Ranks along an axis, by zinf's name of their number or another one, which says `said`: *key is
 * the one that said it. */
static int find_ranks(struct config_loader *loader, int axis, const char *other, int64_t said,
                      const char **key)
{
    struct zinf_config *config = loader->config;
    int64_t *ranks = &config->mesh[axis];
    if (said > 1 && *ranks > 1 && said != *ranks)
        return zinf_fail(-EINVAL, "%s is %lld, but %s is %lld: keep one",
                         zinf_config_where(config, other), (long long)said, *key,
                         (long long)*ranks);
    if (said > 1 && *ranks < 2) {
        *ranks = said;
        *key = other;
    }
    *ranks += !*ranks;
    take_one_rank(loader, *key, ranks);
    return 0;
}

static int check_ranks(const struct config_loader *loader, const char *key, int64_t ranks,
                       int64_t world)
{
    if (world % ranks == 0)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s is %lld, and this run has %lld rank%s, which is no multiple of it: "
                     "start a multiple of it, as with --seats %lld",
                     zinf_config_where(loader->config, key), (long long)ranks, (long long)world,
                     world == 1 ? "" : "s", (long long)ranks);
}

/* Ranks that have stages one after the other have the same samples, too. */
static int resolve_pipe(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    const char *key = "zinf.mesh.pipe";
    const int code = find_ranks(loader, 2, "pipeline.stages", config->pipeline_stages, &key);
    return code ? code
                : check_ranks(loader, key, config->mesh[2], config->world_size / config->mesh[1]);
}

/* And those that share each sequence. A result has the bits of as many parts as there are such
 * ranks, unless it says how many. */
static int resolve_context(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    const char *key = "zinf.mesh.context";
    int code =
        find_ranks(loader, 3, "sequence_parallel_size", config->sequence_parallel_size, &key);
    if (!code && !config->context_parts) {
        config->context_parts = config->mesh[3];
        code = mark(loader, "zinf.context_parts", "as many as zinf.mesh.context");
    }
    return code ? code
                : check_ranks(loader, key, config->mesh[3],
                              config->world_size / config->mesh[1] / config->mesh[2]);
}

static bool asks_auto(const struct config_loader *loader, const char *key)
{
    const struct zinf_config_setting *setting =
        zinf_config_settings_find(&loader->context->settings, key);
    return setting && setting->text && !strcmp(setting->text, "auto");
}

/* Numbers of the file that give way to what the command line says of the others. */
static void give_way(const struct config_loader *loader, struct triple *t)
{
    const bool micro = from_command_line(loader, MICRO);
    const bool accumulation = from_command_line(loader, ACCUMULATION);
    if (asks_auto(loader, MICRO) && !accumulation)
        t->accumulation = 0;
    if (!t->micro || !t->accumulation)
        return;
    if (!from_command_line(loader, TRAIN))
        t->train = micro || accumulation ? 0 : t->train;
    else if (!accumulation)
        t->accumulation = 0;
    else if (!micro)
        t->micro = 0;
}

/* Of an "auto" with a batch of the step that nothing else divides: the plan will say; until then it
 * is the least. */
static int begin_search(struct config_loader *loader, struct triple *t)
{
    struct zinf_config *config = loader->config;
    if (zinf_config_entry(config, MICRO)->state != ENTRY_AUTO || t->accumulation)
        return 0;
    if (!t->train && asks_auto(loader, MICRO) && !loader->context->no_steps)
        return zinf_fail(-EINVAL,
                         "--micro-batch auto divides the batch of a step, which is not given: pass "
                         "--global-batch, or set " TRAIN " in the configuration");
    if (!t->train || !loader->context->finds_micro_batch)
        return 0;
    config->finds_micro_batch = true;
    t->micro = 1;
    return mark(loader, MICRO, "the largest that fits");
}

int zinf_config_set_micro_batch(struct zinf_config *config, int64_t micro_batch)
{
    const int64_t samples = config->micro_batch * config->accumulation;
    if (micro_batch < 1 || samples % micro_batch)
        return zinf_fail(-EINVAL, MICRO " %lld does not divide the %lld samples of a rank's step",
                         (long long)micro_batch, (long long)samples);
    config->micro_batch = micro_batch;
    config->accumulation = samples / micro_batch;
    return 0;
}

int zinf_config_resolve_batch(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    int ranks = resolve_seats(loader);
    if (!ranks)
        ranks = resolve_tensor(loader);
    if (!ranks)
        ranks = resolve_pipe(loader);
    if (!ranks)
        ranks = resolve_context(loader);
    if (ranks)
        return ranks;
    bool train_given = is_given(loader, TRAIN);
    struct triple t = {.train = train_given ? config->train_batch_size : 0,
                       .micro = is_given(loader, MICRO) ? config->micro_batch : 0,
                       .accumulation = is_given(loader, ACCUMULATION) ? config->accumulation : 0,
                       .world = config->world_size / config->mesh[1] / config->mesh[2] /
                                config->mesh[3]};
    int64_t whole;
    give_way(loader, &t);
    if (loader->context->no_steps && t.micro)
        t.train = 0;
    int code = begin_search(loader, &t);
    bool train_follows = !t.train, alone = t.train && !t.micro && !t.accumulation;
    if (!code)
        code = complete(loader, &t);
    if (loader->context->no_steps && !t.micro)
        t.micro = 1;
    if (!code && (train_follows || loader->context->no_steps))
        code = follow(loader, &t, train_given && !loader->context->no_steps);
    if (code)
        return code;
    if (!t.micro) { /* fewer samples than ranks times accumulation: 1 is the least there is */
        t.micro = 1;
        return fail_triple(loader, &t);
    }
    if (!product(t.micro, t.accumulation, t.world, &whole) || whole != t.train)
        return fail_triple(loader, &t);
    if (t.micro > INT32_MAX || t.accumulation > INT32_MAX) /* inferred: a given one is in range */
        return zinf_fail(-EINVAL,
                         "%s is %lld: that leaves " MICRO " %lld and " ACCUMULATION
                         " %lld, which is too large",
                         zinf_config_where(config, TRAIN), (long long)t.train, (long long)t.micro,
                         (long long)t.accumulation);
    if (alone)
        say_large(loader, &t);
    config->train_batch_size = t.train;
    config->micro_batch = t.micro;
    config->accumulation = t.accumulation;
    struct config_entry *train = zinf_config_entry(config, TRAIN);
    const char *wanted = zinf_config_entry(config, MICRO)->wanted;
    return wanted ? zinf_config_leave_open(loader, train, wanted, "") : 0;
}
