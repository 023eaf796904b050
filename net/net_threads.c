/*
 * net_threads: ranks are threads of one process. A message is a note of where the sender's bytes
 * lie; the receiver copies them from there, and the sender waits until it has.
 */
#include "net/net_engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { EMPTY, FULL, BEING_TAKEN };

struct note {
    const void *data;
    uint64_t bytes;
    int state;
};

/* All ranks' ends share it; the last one that closes frees it. */
struct room {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    uint32_t world, open;
    uint32_t failed_rank;
    bool failed;
    char sentence[1000];
    struct note *notes; /* [world from][world to] */
};

static struct note *note_at(struct room *room, uint32_t from, uint32_t to)
{
    return &room->notes[(size_t)from * room->world + to];
}

/* Under the lock: until the note has that state, somebody fails, or the deadline. */
static int wait_for(struct zinf_net *net, struct note *note, int state, uint32_t peer,
                    uint64_t deadline_ns)
{
    struct room *room = net->state;
    struct timespec deadline = {(time_t)(deadline_ns / 1000000000u),
                                (long)(deadline_ns % 1000000000u)};
    while (note->state != state) {
        if (room->failed && room->failed_rank != net->place.rank)
            return net_told(net, room->failed_rank, room->sentence);
        if (pthread_cond_timedwait(&room->changed, &room->lock, &deadline) == ETIMEDOUT &&
            note->state != state)
            return net_late(net, peer);
    }
    return 0;
}

/* Under the lock, which is open while bytes are copied. */
static int take(struct zinf_net *net, struct note *note, const struct net_message *in)
{
    struct room *room = net->state;
    int code = 0;
    if (note->bytes != in->bytes)
        code = net_other_length(net, in->peer, note->bytes, in->bytes);
    note->state = BEING_TAKEN;
    pthread_mutex_unlock(&room->lock);
    if (!code && in->bytes)
        memcpy(in->data, note->data, in->bytes);
    pthread_mutex_lock(&room->lock);
    note->state = EMPTY;
    pthread_cond_broadcast(&room->changed);
    return code;
}

/* What nobody will take any more; what is being taken is waited for: it is the caller's memory. */
static void withdraw(struct room *room, struct note *note)
{
    while (note->state == BEING_TAKEN)
        pthread_cond_wait(&room->changed, &room->lock);
    note->state = EMPTY;
}

static int threads_exchange(struct zinf_net *net, const struct net_exchange *x)
{
    struct room *room = net->state;
    uint32_t own = net->place.rank;
    int code = 0;
    pthread_mutex_lock(&room->lock);
    for (uint32_t i = 0; i < x->n_out; i++)
        *note_at(room, own, x->out[i].peer) = (struct note){x->out[i].data, x->out[i].bytes, FULL};
    pthread_cond_broadcast(&room->changed);
    for (uint32_t i = 0; !code && i < x->n_in; i++) {
        struct note *note = note_at(room, x->in[i].peer, own);
        code = wait_for(net, note, FULL, x->in[i].peer, x->deadline_ns);
        if (!code)
            code = take(net, note, &x->in[i]);
    }
    for (uint32_t i = 0; !code && i < x->n_out; i++)
        code = wait_for(net, note_at(room, own, x->out[i].peer), EMPTY, x->out[i].peer,
                        x->deadline_ns);
    for (uint32_t i = 0; code && i < x->n_out; i++)
        withdraw(room, note_at(room, own, x->out[i].peer));
    pthread_mutex_unlock(&room->lock);
    return code;
}

static void threads_tell(struct zinf_net *net, const char *sentence)
{
    struct room *room = net->state;
    pthread_mutex_lock(&room->lock);
    if (!room->failed) {
        room->failed = true;
        room->failed_rank = net->place.rank;
        snprintf(room->sentence, sizeof room->sentence, "%s", sentence);
    }
    pthread_cond_broadcast(&room->changed);
    pthread_mutex_unlock(&room->lock);
}

static void room_free(struct room *room)
{
    pthread_mutex_destroy(&room->lock);
    pthread_cond_destroy(&room->changed);
    free(room->notes);
    free(room);
}

static void threads_close(struct zinf_net *net)
{
    struct room *room = net->state;
    pthread_mutex_lock(&room->lock);
    bool last = --room->open == 0;
    pthread_mutex_unlock(&room->lock);
    if (last)
        room_free(room);
}

static const struct net_engine_ops threads_ops = {
    .exchange = threads_exchange,
    .tell = threads_tell,
    .close = threads_close,
};

static struct room *room_create(uint32_t world)
{
    struct room *room = calloc(1, sizeof *room);
    if (!room)
        return NULL;
    room->notes = calloc((size_t)world * world, sizeof *room->notes);
    if (!room->notes) {
        free(room);
        return NULL;
    }
    room->world = world;
    pthread_condattr_t monotonic; /* as deadlines are */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&room->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&room->lock, NULL);
    return room;
}

static int open_end(struct zinf_net **out, struct room *room, uint32_t rank)
{
    struct zinf_net *net = *out = calloc(1, sizeof *net);
    if (!net)
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", room->world);
    net->ops = &threads_ops;
    net->state = room;
    net->told = true; /* until all are there, an end is closed without a barrier */
    room->open++;
    snprintf(net->name, sizeof net->name, "threads");
    net->place.local_rank = rank;
    net->place.local_world = room->world;
    return net_init(net, rank, room->world);
}

int zinf_net_threads_create(struct zinf_net **out, uint32_t world)
{
    int code = 0;
    if (world < 1 || world > ZINF_NET_MOST_RANKS)
        return zinf_fail(-EINVAL, "%u ranks: between 1 and %d are possible", world,
                         ZINF_NET_MOST_RANKS);
    memset(out, 0, world * sizeof *out);
    struct room *room = room_create(world);
    if (!room)
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", world);
    for (uint32_t r = 0; !code && r < world; r++)
        code = open_end(&out[r], room, r);
    bool owned = room->open > 0;
    for (uint32_t r = 0; r < world; r++) {
        if (code)
            zinf_net_close(out[r]);
        else
            out[r]->told = false;
    }
    if (code && !owned)
        room_free(room);
    return code;
}
