/*
 * net_split: a net of some of a net's ranks. All say their colours, and so every rank knows all of
 * the new nets; what carries messages between the ranks of each is the engine's.
 */
#include "net/net_engine.h"

#include <stdlib.h>

uint32_t net_ranks_of(const struct net_member *said, uint32_t world, uint32_t colour,
                      uint32_t *ranks)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < world; r++) {
        if (said[r].colour != colour)
            continue;
        uint32_t at = n++;
        for (; at && said[ranks[at - 1]].key > said[r].key; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = r;
    }
    return n;
}

/* As far as all ranks' places say; the engine knows what is in one process. */
static void take_place(struct zinf_net *net, const struct zinf_net *parent,
                       const struct net_split *split)
{
    net->family = parent->family;
    net->noun = parent->noun;
    net->pulse = parent->pulse;
    net->host = parent->host;
    net->timeout_ns = parent->timeout_ns;
    snprintf(net->name, sizeof net->name, "%s", parent->name);
    net->place = (struct zinf_net_place){.world = split->n, .seats = 1};
    for (uint32_t r = 0; r < split->n; r++) {
        net->numbers[r] = net_number(parent, split->ranks[r]);
        if (split->ranks[r] == parent->place.rank)
            net->place.rank = r;
        if (split->said[split->ranks[r]].host != net->host)
            continue;
        net->place.local_rank =
            split->ranks[r] == parent->place.rank ? net->place.local_world : net->place.local_rank;
        net->place.local_world++;
    }
}

static struct zinf_net *create(const struct zinf_net *parent, const struct net_split *split)
{
    struct zinf_net *net = calloc(1, sizeof *net);
    if (net)
        net->numbers = calloc(split->n, sizeof *net->numbers);
    if (net && net->numbers) {
        take_place(net, parent, split);
        return net;
    }
    free(net);
    return NULL;
}

/* Nobody waits for it in a barrier. */
static void discard(struct zinf_net *net)
{
    if (!net)
        return;
    pthread_mutex_lock(&net->lock);
    net->told = true;
    pthread_mutex_unlock(&net->lock);
    zinf_net_close(net);
}

static int open_part(struct zinf_net *parent, const struct net_split *split, struct zinf_net **out)
{
    struct zinf_net *net = NULL;
    int64_t failed = 0;
    if (split->colour != ZINF_NET_NO_COLOUR && !(net = create(parent, split)))
        failed = 1;
    int code = zinf_net_max(parent, &failed, 1);
    if (code || failed) {
        free(net ? net->numbers : NULL);
        free(net);
        return code ? code : zinf_fail(-ENOMEM, "no memory for a part of a net");
    }
    code = parent->ops->split(parent, net, split);
    if (code)
        zinf_fail(code, "%s", net && net->why[0] ? net->why : zinf_error());
    else if (net)
        code = net_init(net, net->place.rank, net->place.world);
    failed = code != 0;
    int met = zinf_net_max(parent, &failed, 1);
    if (!met && failed && !code)
        code = zinf_fail(-ECONNABORTED, "another %s has no part of the net", net_noun(parent));
    code = code ? code : met;
    if (code)
        discard(net);
    *out = code ? NULL : net;
    return code;
}

static uint32_t count_split(struct zinf_net *net)
{
    pthread_mutex_lock(&net->family->lock);
    uint32_t n = ++net->family->n_splits;
    pthread_mutex_unlock(&net->family->lock);
    return n;
}

/* Several nets with the same ranks may be split at once, each by a thread of its own: the first
 * rank of each gives the number, out of those that are its own. */
static uint32_t number_of(const struct zinf_net *net, const struct net_member *said)
{
    return said[0].splits * net->family->world + net_number(net, 0);
}

int zinf_net_split(struct zinf_net *net, uint32_t colour, uint32_t key, struct zinf_net **out)
{
    uint32_t world = net->place.world;
    struct net_member *said = calloc(world, sizeof *said);
    uint32_t *ranks = calloc(world, sizeof *ranks);
    *out = NULL;
    if (!said || !ranks || zinf_net_is_described(net)) {
        free(said);
        free(ranks);
        return zinf_net_is_described(net)
                   ? zinf_fail(-ENOTSUP, "ranks that are only described are not split")
                   : zinf_fail(-ENOMEM, "no memory to split a net of %u ranks", world);
    }
    struct net_member own = {colour, key, net->host, net->place.rank ? 0 : count_split(net)};
    struct net_split split = {.said = said, .colour = colour, .ranks = ranks};
    int code = zinf_net_gather(net, &own, said, sizeof own);
    if (!code) {
        split.number = number_of(net, said);
        if (colour != ZINF_NET_NO_COLOUR)
            split.n = net_ranks_of(said, world, colour, ranks);
        code = open_part(net, &split, out);
    }
    free(said);
    free(ranks);
    return code;
}
