/*
 * trained_ranks: a training of trainings.h with its samples dealt to ranks: seats, which are
 * threads of this process, as all ranks are here; of several "processes" the seats are groups of
 * threads with a net between them. No CHECK in a rank's thread: they would share its counts.
 */
#ifndef ZINF_TRAINED_RANKS_H
#define ZINF_TRAINED_RANKS_H

#include "rank_steps.h"

#include "train/trainer.h"

#include <pthread.h>

enum { MOST_RANKS = 8 };

struct rank {
    pthread_t thread;
    const struct setting *setting; /* of one rank */
    struct zinf_config *config;
    struct zinf_net *net;
    const char *folder; /* of the saved model */
    struct outcome out;
    int code;
    uint64_t step_bytes, lent_bytes; /* sent in the last step; without a copy */
    uint64_t net_bytes;              /* by its lane */
    uint64_t linked_bytes;           /* to other GPUs, in the last step; */
    uint64_t key_bytes;              /* of these keys, values and their gradients */
    uint64_t tensor_bytes;           /* to ranks that share its tensors, in the last step */
    uint32_t n_tiles;                /* of the head */
    uint64_t elems;                  /* of all units, padded */
    uint64_t first_elems;            /* of the first one: the embedding */
    char said[600];
};

static double net_timeout;                                        /* seconds; 0: 60 */
static char said[600];                                            /* by rank 0 at last */
static uint64_t net_bytes, linked_bytes, key_bytes, padded_elems; /* its */
static uint64_t tensor_bytes;
static uint32_t n_tiles;

/* To ranks that share tensors, so far. */
static inline uint64_t sent_of_tensors(const struct setup *s)
{
    const struct zinf_net *axis = tensor_axis(s)->net;
    uint64_t bytes = axis ? zinf_net_sent_bytes(axis) : 0;
    for (size_t i = 0; i < sizeof s->sharing / sizeof *s->sharing; i++)
        bytes += s->sharing[i] ? zinf_net_sent_bytes(s->sharing[i]) : 0;
    return bytes;
}

/* To other GPUs, so far. */
static inline uint64_t sent_by(const struct zinf_axis *axis)
{
    return axis->link ? zinf_link_sent_bytes(axis->link) : 0;
}

/* The net stays open. */
static inline void train_as(struct rank *rank)
{
    struct zinf_trainer_options options = trainer_options(rank->setting, rank->config);
    struct zinf_trainer *t = NULL;
    options.net = rank->net;
    rank->code = zinf_trainer_create(&t, &options);
    for (int step = 0; !rank->code && step < trainings.steps; step++) {
        struct zinf_step_result result = {0};
        const struct zinf_axis *data = data_axis(&t->setup), *context = context_axis(&t->setup);
        uint64_t before = zinf_net_sent_bytes(rank->net), lent = zinf_net_lent_bytes(rank->net);
        uint64_t linked = sent_by(data), keys = sent_by(context);
        uint64_t of_tensors = sent_of_tensors(&t->setup);
        rank->code = share_step(rank->setting, rank->net, t, (uint64_t)step, &result);
        rank->key_bytes = sent_by(context) - keys;
        rank->linked_bytes = sent_by(data) - linked + rank->key_bytes;
        rank->step_bytes = zinf_net_sent_bytes(rank->net) - before;
        rank->lent_bytes = zinf_net_lent_bytes(rank->net) - lent;
        rank->net_bytes = result.lane_bytes[ZINF_LANE_NET];
        rank->tensor_bytes = sent_of_tensors(&t->setup) - of_tensors;
        note_step(&rank->out, step, &result);
    }
    for (uint32_t u = 0; t && u < t->setup.n_units; u++)
        rank->elems += t->setup.layout.units[u].padded_elems;
    rank->n_tiles = t ? t->setup.graph->stages[t->setup.graph->n_stages - 1].sweep.n : 0;
    rank->first_elems = t ? t->setup.layout.units[0].padded_elems : 0;
    rank->out.packs_fronts = t && plan_says(t, "parameters in RAM are packed");
    rank->out.unpacks_there = t && plan_says(t, "device as they are, which unpacks them");
    rank->out.codes = t && plan_says(t, "go to the device in 8 bits");
    rank->out.images = t && plan_says(t, "of it are on the drive so");
    if (!rank->code)
        rank->code = zinf_trainer_save(t, rank->folder);
    if (rank->code)
        snprintf(rank->said, sizeof rank->said, "%s", zinf_error());
    if (rank->code)
        zinf_net_tell(rank->net, rank->said);
    zinf_trainer_destroy(t);
}

static inline void *train_rank(void *argument)
{
    struct rank *rank = argument;
    train_as(rank);
    zinf_net_close(rank->net);
    return NULL;
}

/* ---- processes ---- */

struct process {
    pthread_t thread;
    struct zinf_net *between;
    uint32_t n_seats;
    struct rank *ranks; /* [n_seats] */
};

static inline void train_process(struct process *p)
{
    struct zinf_net *nets[MOST_RANKS];
    int code = zinf_net_seats_create(nets, p->n_seats, p->between);
    for (uint32_t s = 0; s < p->n_seats; s++) {
        p->ranks[s].net = code ? NULL : nets[s];
        p->ranks[s].code = code;
        if (code)
            snprintf(p->ranks[s].said, sizeof p->ranks[s].said, "%s", zinf_error());
        else
            zinf_net_set_timeout(nets[s], net_timeout > 0 ? net_timeout : 60);
    }
    for (uint32_t s = 0; !code && s < p->n_seats; s++)
        pthread_create(&p->ranks[s].thread, NULL, train_rank, &p->ranks[s]);
    for (uint32_t s = 0; !code && s < p->n_seats; s++)
        pthread_join(p->ranks[s].thread, NULL);
}

static inline void *run_process(void *argument)
{
    struct process *p = argument;
    train_process(p);
    zinf_net_close(p->between);
    return NULL;
}

/* All ranks have seen the same. */
static inline void check_ranks(const struct setting *s, const struct rank *ranks, uint32_t world,
                               const char *name)
{
    for (uint32_t r = 0; r < world; r++) {
        CHECKF(!ranks[r].code || s->may_fail, "%s: rank %u: %s", name, r, ranks[r].said);
        for (int i = 0; i < trainings.steps; i++)
            CHECKF(!memcmp(&ranks[r].out.loss[i], &ranks[0].out.loss[i], sizeof(double)) &&
                       !memcmp(&ranks[r].out.norm[i], &ranks[0].out.norm[i], sizeof(double)),
                   "%s: rank %u sees another step %d", name, r, i);
    }
}

/* out: of rank 0. */
static inline void run_seats(const struct setting *s, uint32_t n_processes, uint32_t n_seats,
                             const char *name, struct outcome *out)
{
    static struct rank ranks[MOST_RANKS];
    struct process processes[MOST_RANKS];
    struct zinf_net *between[MOST_RANKS] = {0};
    uint32_t world = n_processes * n_seats;
    char folder[600];
    snprintf(folder, sizeof folder, "%s/out-%s", work, name);
    memset(ranks, 0, sizeof ranks);
    if (n_processes > 1)
        CHECKF(!zinf_net_threads_create(between, n_processes), "%s", zinf_error());
    for (uint32_t r = 0; r < world; r++) {
        ranks[r].setting = s;
        ranks[r].config = configure_of(s, world);
        ranks[r].folder = folder;
    }
    for (uint32_t p = 0; p < n_processes; p++) {
        processes[p] = (struct process){
            .between = between[p], .n_seats = n_seats, .ranks = ranks + p * n_seats};
        pthread_create(&processes[p].thread, NULL, run_process, &processes[p]);
    }
    for (uint32_t p = 0; p < n_processes; p++)
        pthread_join(processes[p].thread, NULL);
    check_ranks(s, ranks, world, name);
    for (uint32_t r = 0; r < world; r++)
        zinf_config_destroy(ranks[r].config);
    *out = ranks[0].out;
    for (uint32_t r = 1; r < world; r++) { /* of all drives and GPUs */
        for (int i = 0; i < trainings.steps; i++)
            out->read[i] += ranks[r].out.read[i];
        out->pageable += ranks[r].out.pageable;
    }
    out->failed = ranks[0].code;
    out->sent = ranks[0].step_bytes;
    out->lent = ranks[0].lent_bytes;
    net_bytes = ranks[0].net_bytes;
    linked_bytes = ranks[0].linked_bytes;
    key_bytes = ranks[0].key_bytes;
    padded_elems = ranks[0].elems;
    tensor_bytes = ranks[0].tensor_bytes;
    n_tiles = ranks[0].n_tiles;
    snprintf(said, sizeof said, "%s", ranks[0].said);
    snprintf(out->folder, sizeof out->folder, "%s", folder);
}

#endif
