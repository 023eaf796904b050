/*
 * setup_optimizer: which rules the configuration names, their numbers, and what the state of a
 * sub-group takes.
 */
#include "train/rules/rules.h"
#include "train/setup_rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define MUON_MOMENTUM 0.95

static const char choices[] =
    "AdamW, Adam, Lion, Adagrad, SGD, Adafactor, AdamW8bit, Muon, NorMuon, GaLoreAdamW, APOLLO or "
    "APOLLO-Mini";

/* Beside another optimizer.type, whose keys are other things, Muon has torch's defaults. */
static struct optimizer optimizer_of(const struct zinf_config_optimizer *o,
                                     const struct update_rule *rule)
{
    const bool own = !strcmp(o->type, rule->type);
    const double momentum = own || rule->kind == ZINF_OPTIM_SGD ? o->momentum : MUON_MOMENTUM;
    const bool takes = rule->by_momentum || rule->kind == ZINF_OPTIM_SGD;
    return (struct optimizer){
        .rule = rule,
        .keys = o,
        .nesterov = !own || o->nesterov,
        .match_rms = own && o->match_rms,
        .hyper = {.kind = rule->kind,
                  .lr = (float)o->lr,
                  .beta1 = (float)(takes ? momentum : o->beta1),
                  .beta2 = (float)o->beta2,
                  .eps = (float)o->eps,
                  .weight_decay = (float)o->weight_decay,
                  .bias_correction = o->bias_correction},
    };
}

int setup_add_optimizer(struct setup *s, const char *type, const char *key)
{
    const struct zinf_config_optimizer *o = &s->config->optimizer;
    const struct update_rule *rule = rule_find(type, s->config->bf16_moments);
    uint32_t i = 0;
    if (!rule)
        return zinf_fail(-ENOTSUP, "%s \"%s\" is not supported%s; use %s", key, type,
                         s->config->bf16_moments ? " with bf16_optimizer_states" : "", choices);
    while (i < s->n_optimizers && s->optimizers[i].rule != rule)
        i++;
    if (i == MAX_OPTIMIZERS)
        return zinf_fail(-ENOTSUP, "%s \"%s\": one training has at most %d optimizers", key, type,
                         MAX_OPTIMIZERS);
    if (i < s->n_optimizers)
        return (int)i;
    if (rule->by_type && strcmp(type, o->type))
        return zinf_fail(-ENOTSUP,
                         "%s \"%s\" has parameters of its own: make it optimizer.type, and give "
                         "other tensors theirs by zinf.learning_rates",
                         key, type);
    s->optimizers[i] = optimizer_of(o, rule);
    s->n_optimizers++;
    s->grain = rule->grain > s->grain ? rule->grain : s->grain;
    return (int)i;
}

int setup_optimizer(struct setup *s)
{
    int code = setup_add_optimizer(s, s->config->optimizer.type, "optimizer.type");
    if (code < 0)
        return code;
    struct zinf_optim_hyper *hyper = &s->optimizers[0].hyper;
    if (hyper->kind == ZINF_OPTIM_ADAM && s->config->optimizer.decoupled)
        hyper->kind = ZINF_OPTIM_ADAMW;
    s->hyper = *hyper;
    return 0;
}

int setup_n_moments(const struct setup *s)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->n_optimizers; i++)
        most = s->optimizers[i].rule->n_moments > most ? s->optimizers[i].rule->n_moments : most;
    return (int)most;
}

int setup_kept_part(const struct setup *s)
{
    bool keeps = false;
    for (uint32_t i = 0; i < s->n_optimizers; i++)
        keeps |= s->optimizers[i].rule->matrix_floats != NULL;
    return keeps ? setup_n_moments(s) + 1 : 0;
}

static uint32_t find_own(const struct zinf_unit *own, const char *name)
{
    for (uint32_t i = 0; i < own->n_tensors; i++)
        for (uint32_t k = 0; k < own->tensors[i].n_pieces; k++)
            if (!strcmp(own->tensors[i].pieces[k].name, name))
                return i;
    return 0;
}

const struct optimizer *setup_optimizer_of_whole(const struct setup *s, uint32_t unit,
                                                 uint32_t tensor, const char *name)
{
    const bool shared = tensor_axis(s)->world > 1;
    return setup_optimizer_of(s, unit, shared ? find_own(&s->stages->units[unit], name) : tensor);
}

/* Calls see with the name and the optimizer of each tensor, of all ranks' stages and shards. */
static void see_choices(const struct setup *s, void (*see)(void *arg, const char *, uint32_t),
                        void *arg)
{
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; unit_trains_anywhere(s, u) && i < s->whole->units[u].n_tensors; i++) {
            const struct zinf_tensor *t = &s->whole->units[u].tensors[i];
            const char *name = t->n_pieces ? t->pieces[0].name : "";
            see(arg, name, (uint32_t)(setup_optimizer_of_whole(s, u, i, name) - s->optimizers));
        }
}

struct choices {
    uint64_t *list;
    uint32_t n;
};

static void chain(void *arg, const char *name, uint32_t optimizer)
{
    uint64_t *sum = arg;
    *sum = XXH3_64bits_withSeed(name, strlen(name), *sum + optimizer);
}

static void append(void *arg, const char *name, uint32_t optimizer)
{
    struct choices *c = arg;
    c->list[c->n++] = XXH3_64bits_withSeed(name, strlen(name), optimizer);
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The shards of a tensor have one name, and shards in turn come in another order than others: so
 * each name counts once, and the order does not. */
static int sum_of_set(const struct setup *s, uint64_t *sum)
{
    size_t most = 1;
    for (uint32_t u = 0; u < s->n_units; u++)
        most += s->whole->units[u].n_tensors;
    struct choices c = {malloc(most * sizeof *c.list), 0};
    if (!c.list)
        return zinf_fail(-ENOMEM, "no memory for the optimizers of tensors");
    uint32_t once = 0;
    see_choices(s, append, &c);
    qsort(c.list, c.n, sizeof *c.list, compare_numbers);
    for (uint32_t i = 0; i < c.n; i++)
        if (!i || c.list[i] != c.list[i - 1])
            c.list[once++] = c.list[i];
    *sum = XXH3_64bits(c.list, once * sizeof *c.list);
    free(c.list);
    return 0;
}

static void write_name(const struct setup *s, uint64_t sum, char text[64])
{
    int at = snprintf(text, 64, "%s", s->optimizers[0].rule->type);
    for (uint32_t i = 1; i < s->n_optimizers && at < 64; i++)
        at += snprintf(text + at, 64 - (size_t)at, "+%s", s->optimizers[i].rule->type);
    if (s->n_optimizers > 1 && at < 64)
        snprintf(text + at, 64 - (size_t)at, ".%016llx", (unsigned long long)sum);
}

int setup_name_optimizers(struct setup *s)
{
    uint64_t set = 0, chained = 0;
    int code = s->n_optimizers > 1 ? sum_of_set(s, &set) : 0;
    if (s->n_optimizers > 1)
        see_choices(s, chain, &chained);
    write_name(s, set, s->optimizers_set);
    write_name(s, s->stages->shards.of ? set : chained, s->optimizers_text);
    return code;
}

/* What only ranks that have whole units can do, and what keeps the moments of these. */
int setup_check_optimizers(const struct setup *s)
{
    const char *type = NULL;
    for (uint32_t i = 0; i < s->n_optimizers; i++)
        if (s->optimizers[i].rule->grain == s->grain)
            type = s->optimizers[i].rule->type;
    if (s->grain == GRAIN_TENSORS && s->sliced)
        return zinf_fail(-ENOTSUP,
                         "optimizer %s needs whole tensors, and at "
                         "zero_optimization.stage 3 %u ranks have slices: set stage to 2, train on "
                         "one, or use AdamW8bit, whose state is small too",
                         type, data_axis(s)->world);
    if (s->grain == GRAIN_TENSORS && s->n_optimizers > 1)
        return zinf_fail(-ENOTSUP,
                         "zinf.learning_rates: %s is the optimizer of all tensors or of none: name "
                         "another one beside %s",
                         type, s->optimizers[0].rule->type);
    return 0;
}

bool setup_device_steps(const struct setup *s)
{
    bool all = true;
    for (uint32_t i = 0; i < s->n_optimizers; i++)
        all &= s->optimizers[i].rule->device_step != NULL;
    return all;
}

bool setup_shares_updates(const struct setup *s)
{
    return s->offers_updates && trains(s) && !s->durable && device_is_far(s) &&
           setup_device_steps(s);
}

/* ---- what a state takes ---- */

/* Of the tensor that needs most. */
static uint64_t workspace_bytes(const struct setup *s)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < s->n_units; u++)
        for (uint32_t i = 0; unit_trains(s, u) && i < s->graph->units[u].n_tensors; i++) {
            const struct update_rule *rule = setup_optimizer_of(s, u, i)->rule;
            uint64_t bytes =
                rule->workspace_bytes ? rule->workspace_bytes(s, &s->graph->units[u], i) : 0;
            most = bytes > most ? bytes : most;
        }
    return most;
}

bool setup_unit_works(const struct setup *s, uint32_t unit)
{
    bool works = false;
    for (uint32_t i = 0; i < s->graph->units[unit].n_tensors; i++)
        works |= setup_optimizer_of(s, unit, i)->rule->workspace_bytes != NULL;
    return works;
}

/* For what ranks give each other in the update that needs most. */
static uint64_t meeting_bytes(const struct setup *s)
{
    uint64_t most = 0;
    for (uint32_t g = 0; s->updaters && g < s->layout.n_groups; g++) {
        const bool meets = setup_unit_meets(s, s->layout.groups[g].unit);
        const uint64_t bytes = meets ? rule_meeting_bytes(s, g) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Where the training's device is the host, that; else one for these products alone. */
static int open_cpu(struct setup *s)
{
    struct zinf_device_options host = {.kind = ZINF_DEVICE_HOST, .n_threads = s->device->n_threads};
    s->cpu = s->device;
    return s->device->kind == ZINF_DEVICE_HOST ? 0 : zinf_device_create(&s->cpu, &host);
}

static void find_packable(struct setup *s, uint32_t group)
{
    for (int what = 0; what < ZINF_PACKABLES; what++) {
        const struct rule_thing t = {s, (enum zinf_packable)what, group, false};
        const uint64_t bytes = rule_slot_bytes(&t);
        s->packable_bytes[what] = bytes > s->packable_bytes[what] ? bytes : s->packable_bytes[what];
    }
}

static void find_frozen(struct setup *s, uint32_t group)
{
    const struct rule_thing t = {s, ZINF_PACKABLE_PARAM, group, false};
    const uint64_t bytes = rule_slot_bytes(&t);
    const bool plain = !s->graph->units[s->layout.groups[group].unit].image_bytes;
    s->frozen_packable_bytes =
        plain && bytes > s->frozen_packable_bytes ? bytes : s->frozen_packable_bytes;
}

/* What a packed sub-group is expected to take, and a little more: what does not fit goes to the
 * drive. */
#define HEAD_MARGIN 1.02

static uint64_t head_bytes(const struct setup *s, double share, uint64_t plain)
{
    const double margin = s->options.head_margin > 0 ? s->options.head_margin : HEAD_MARGIN;
    const double bytes = margin * share * (double)plain;
    const uint64_t head = zinf_align_up((uint64_t)bytes, ZINF_AIO_ALIGN);
    return head < plain ? head : plain;
}

static void add_work(struct rule_work *sum, const struct rule_work *part, double share)
{
    sum->flops += share * part->flops;
    sum->bytes += share * part->bytes;
    sum->loops += share * part->loops;
}

/* Adds the work of each matrix to that of the rank along DATA in whose slice it is. Only this
 * rank's own layers of a pipeline are laid out yet. */
static void add_to_owners(const struct setup *s, double *work)
{
    for (uint32_t u = 0; u < s->n_units; u++) {
        const struct zinf_unit *unit = &s->graph->units[u];
        for (uint32_t i = 0; unit_trains(s, u) && i < unit->n_tensors; i++) {
            const struct optimizer *of = setup_optimizer_of(s, u, i);
            for (uint32_t k = 0; of->rule->matrix_work && k < unit->tensors[i].n_pieces; k++) {
                const struct matrix_shape shape =
                    rule_matrix_shape(&unit->tensors[i], &unit->tensors[i].pieces[k]);
                const struct rule_work one = of->rule->matrix_work(of, &shape);
                const uint64_t at = rule_piece_at(&unit->tensors[i], k);
                if (rule_leads(unit, i, k))
                    work[at / s->layout.units[u].slice_elems] += one.flops + one.loops;
            }
        }
    }
}

/* The part of all updates of matrices that the rank along DATA makes which has most of them: all
 * units together are as uneven as that, and a step ends when this rank has made its own. */
static int find_matrix_share(const struct setup *s, double *share)
{
    const uint32_t ranks = data_axis(s)->world;
    double *work = calloc(ranks, sizeof *work), all = 0, most = 0;
    *share = 1;
    if (!work)
        return zinf_fail(-ENOMEM, "no memory for the work of %u ranks", ranks);
    if (trains(s) && s->grain == GRAIN_MATRICES && ranks > 1)
        add_to_owners(s, work);
    for (uint32_t r = 0; r < ranks; r++) {
        all += work[r];
        most = fmax(most, work[r]);
    }
    *share = all > 0 ? most / all : 1.0 / ranks;
    free(work);
    return 0;
}

/* Ranks along DATA have other matrices of each unit, and plan alike, as if each were the one that
 * has most. Ranks along TENSOR wait in each unit for the one that has most to do of what they
 * share. */
static struct rule_work group_work(const struct setup *s, uint32_t group, double share)
{
    const uint32_t u = s->layout.groups[group].unit;
    const struct zinf_unit *unit = &s->graph->units[u];
    struct rule_work all = {0, 0, 0}, shared[ZINF_MOST_SHARDS] = {{0, 0, 0}};
    for (uint32_t i = 0; i < unit->n_tensors; i++) {
        const struct optimizer *of = setup_optimizer_of(s, u, i);
        for (uint32_t k = 0; of->rule->matrix_work && k < unit->tensors[i].n_pieces; k++) {
            const struct matrix_shape shape =
                rule_matrix_shape(&unit->tensors[i], &unit->tensors[i].pieces[k]);
            const uint32_t updater = setup_matrix_updater(s, u, i, k);
            if (!rule_leads(unit, i, k))
                continue;
            const struct rule_work one = of->rule->matrix_work(of, &shape);
            add_work(updater == EVERY_RANK ? &all : &shared[updater], &one, share);
        }
    }
    uint32_t most = 0;
    for (uint32_t r = 1; r < tensor_axis(s)->world; r++)
        most =
            shared[r].flops + shared[r].loops > shared[most].flops + shared[most].loops ? r : most;
    add_work(&all, &shared[most], 1);
    return all;
}

int setup_state_bytes(struct setup *s)
{
    s->state_bytes = calloc(s->layout.n_groups + 1, sizeof *s->state_bytes);
    s->state_shares = calloc(s->layout.n_groups + 1, sizeof *s->state_shares);
    s->state_expected = calloc(s->layout.n_groups + 1, sizeof *s->state_expected);
    s->state_numbers = calloc(s->layout.n_groups + 1, sizeof *s->state_numbers);
    s->head_bytes = calloc(s->layout.n_groups + 1, sizeof *s->head_bytes);
    s->param_head_bytes = calloc(s->layout.n_groups + 1, sizeof *s->param_head_bytes);
    s->group_work = calloc(s->layout.n_groups + 1, sizeof *s->group_work);
    if (!s->state_bytes || !s->state_shares || !s->state_expected || !s->state_numbers ||
        !s->head_bytes || !s->param_head_bytes || !s->group_work)
        return zinf_fail(-ENOMEM, "no memory for %u sub-groups", s->layout.n_groups);
    for (uint32_t g = 0; trains(s) && g < s->layout.n_groups; g++) {
        const bool trained = unit_trains(s, s->layout.groups[g].unit);
        s->state_bytes[g] = trained ? rule_state_bytes(s, g) : 0;
        s->state_shares[g] = trained ? rule_state_share(s, g) : 1;
        s->state_expected[g] = trained ? rule_expected_state(s, g) : 0;
        if (trained)
            s->state_numbers[g] = rule_state_numbers(s, g);
    }
    return 0;
}

int setup_state_work(struct setup *s)
{
    double share;
    if (trains(s) && s->grain == GRAIN_MATRICES && open_cpu(s))
        return zinf_fail_in(-ENODEV, "the products of Muon");
    const int code = find_matrix_share(s, &share);
    if (code)
        return code;
    for (uint32_t g = 0; trains(s) && g < s->layout.n_groups; g++) {
        const bool trained = unit_trains(s, s->layout.groups[g].unit);
        s->head_bytes[g] = head_bytes(s, s->state_shares[g], s->state_bytes[g]);
        s->param_head_bytes[g] = head_bytes(s, rule_param_share(s), setup_group_param_bytes(s, g));
        s->group_work[g] = trained ? group_work(s, g, share) : (struct rule_work){0, 0, 0};
        if (trained)
            find_packable(s, g);
        else
            find_frozen(s, g);
    }
    if (trains(s)) {
        s->meeting_bytes = meeting_bytes(s);
        s->update_bytes =
            zinf_align_up(workspace_bytes(s), s->meeting_bytes ? ZINF_MEMORY_ALIGN : 1) +
            s->meeting_bytes;
    }
    return 0;
}

uint64_t setup_packed_bytes(const struct setup *s, enum zinf_packable what)
{
    return s->may_pack >= packing_of(what) ? s->packable_bytes[what] : 0;
}

uint64_t setup_packed_param_bytes(const struct setup *s)
{
    const uint64_t trained = setup_packed_bytes(s, ZINF_PACKABLE_PARAM);
    const uint64_t frozen = s->may_pack == PACK_ALL ? s->frozen_packable_bytes : 0;
    return frozen > trained ? frozen : trained;
}

static uint64_t sum_of_unit(const struct setup *s, uint32_t unit, const uint64_t *of_groups)
{
    const struct zinf_layout_unit *u = &s->layout.units[unit];
    uint64_t sum = 0;
    for (uint32_t g = u->first_group; g < u->first_group + u->n_groups; g++)
        sum += of_groups[g];
    return sum;
}

uint64_t setup_unit_state_bytes(const struct setup *s, uint32_t unit)
{
    return sum_of_unit(s, unit, s->state_bytes);
}

uint64_t setup_unit_head_bytes(const struct setup *s, uint32_t unit)
{
    return sum_of_unit(s, unit, s->head_bytes);
}

bool setup_can_head(const struct setup *s, uint32_t unit)
{
    const struct zinf_layout_unit *u = &s->layout.units[unit];
    bool can = unit_trains(s, unit);
    for (uint32_t g = u->first_group; g < u->first_group + u->n_groups; g++)
        can = can && s->head_bytes[g] < s->state_bytes[g];
    return can;
}

uint64_t setup_unit_param_head_bytes(const struct setup *s, uint32_t unit)
{
    return sum_of_unit(s, unit, s->param_head_bytes);
}

bool setup_can_pack_params(const struct setup *s, uint32_t unit)
{
    return s->layout.units[unit].n_groups && !s->layout.units[unit].front_bytes;
}

bool setup_can_head_params(const struct setup *s, uint32_t unit)
{
    const struct zinf_layout_unit *u = &s->layout.units[unit];
    bool can = setup_can_pack_params(s, unit);
    for (uint32_t g = u->first_group; g < u->first_group + u->n_groups; g++)
        can = can && s->param_head_bytes[g] < setup_group_param_bytes(s, g);
    return can;
}
