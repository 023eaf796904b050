/*
 * net_room_split: rooms of some of a room's ranks. The first seat of each process makes those of
 * all colours that have ranks there, with a net between the processes where there are several, and
 * hands them to the others.
 */
#include "net/net_room.h"

#include <stdlib.h>

/* What the first seat needs. */
struct making {
    struct zinf_net *parent;
    struct room *room; /* the parent's */
    const struct net_split *split;
    uint32_t *ranks;     /* [world] of a colour */
    uint32_t *processes; /* [processes] number in the new net, of a colour */
    struct room **rooms; /* [world] of the ranks that are here */
};

/* Of n ranks; how many processes they are in. Those keep their order. */
static uint32_t number_processes(struct making *m, uint32_t n)
{
    const struct zinf_net *between = m->room->meeting.between;
    uint32_t count = 0, n_processes = between ? between->place.world : 1;
    for (uint32_t p = 0; p < n_processes; p++) {
        bool has = false;
        for (uint32_t i = 0; i < n; i++)
            has |= m->room->at[m->ranks[i]].process == p;
        m->processes[p] = has ? count++ : UINT32_MAX;
    }
    return count;
}

static struct room_place *places_of(const struct making *m, uint32_t n)
{
    struct room_place *at = calloc(n, sizeof *at);
    for (uint32_t i = 0; at && i < n; i++) {
        at[i].process = m->processes[m->room->at[m->ranks[i]].process];
        for (uint32_t k = 0; k < i; k++)
            at[i].seat += at[k].process == at[i].process;
    }
    return at;
}

/* All processes make the same nets between them, whoever has ranks of the colour. */
static int make(struct making *m, uint32_t colour)
{
    uint32_t n = net_ranks_of(m->split->said, m->parent->place.world, colour, m->ranks);
    bool several = number_processes(m, n) > 1;
    uint32_t own = m->processes[m->room->process];
    struct zinf_net *between = NULL;
    struct room *room;
    int code = several ? zinf_net_split(m->room->meeting.between,
                                        own == UINT32_MAX ? ZINF_NET_NO_COLOUR : 0, 0, &between)
                       : 0;
    if (code || own == UINT32_MAX)
        return code;
    struct room_place *at = places_of(m, n);
    code = at ? room_create(&room, m->room->house, at, n, own, between)
              : zinf_fail(-ENOMEM, "no memory for a net of %u ranks", n);
    if (code) {
        if (between)
            zinf_net_tell(between, zinf_error());
        zinf_net_close(between);
        return code;
    }
    room->owned = between != NULL;
    room->open = room->n_seats;
    for (uint32_t i = 0; i < n; i++)
        if (room_has(m->room, m->ranks[i]))
            m->rooms[m->ranks[i]] = room;
    return 0;
}

/* Of every colour once, in the order of ranks. */
static int make_all(struct making *m)
{
    const struct net_member *said = m->split->said;
    int code = 0;
    for (uint32_t r = 0; !code && r < m->parent->place.world; r++) {
        bool first = said[r].colour != ZINF_NET_NO_COLOUR;
        for (uint32_t k = 0; k < r; k++)
            first &= said[k].colour != said[r].colour;
        code = first ? make(m, said[r].colour) : 0;
    }
    return code;
}

/* Lays out each seat's new room, for it to take. */
static void give(struct room *room, struct room *const *rooms, uint32_t world)
{
    pthread_mutex_lock(&room->house->lock);
    for (uint32_t r = 0; r < world; r++)
        if (room_has(room, r))
            room->given[room->at[r].seat] = rooms[r];
    pthread_mutex_unlock(&room->house->lock);
}

/* So a seat has its room once, whoever of it and the first one asks. */
static struct room *take(struct room *room, uint32_t seat)
{
    pthread_mutex_lock(&room->house->lock);
    struct room *own = room->given[seat];
    room->given[seat] = NULL;
    pthread_mutex_unlock(&room->house->lock);
    return own;
}

/* An end that will not be. */
static void give_up(struct room *room)
{
    struct zinf_net *between = room && room->owned ? room->meeting.between : NULL;
    if (between) {
        pthread_mutex_lock(&between->lock);
        between->told = true; /* nobody waits for it */
        pthread_mutex_unlock(&between->lock);
    }
    if (room)
        room_leave(room);
}

int room_split(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split)
{
    struct room *room = parent->state, *own = NULL;
    uint32_t world = parent->place.world;
    struct making m = {.parent = parent, .room = room, .split = split};
    int64_t failed = 0;
    int code = 0;
    m.ranks = calloc(world, sizeof *m.ranks);
    m.processes = calloc(world, sizeof *m.processes);
    m.rooms = calloc(world, sizeof(struct room *));
    if (!m.ranks || !m.processes || !m.rooms)
        code = zinf_fail(-ENOMEM, "no memory to split a net of %u ranks", world);
    else if (!room_seat(parent))
        code = make_all(&m);
    failed = code != 0;
    if (!room_seat(parent) && m.rooms)
        give(room, m.rooms, world);
    int met = zinf_net_max(parent, &failed, 1);
    own = take(room, room_seat(parent));
    if (!met && !failed && net && !own)
        met = zinf_fail(-ECONNABORTED, "the first seat of this process has given up");
    if (!met && !failed && net)
        room_enter(net, own);
    else
        give_up(own);
    /* Seats may have left before they were given anything. */
    for (uint32_t s = 0; met && !room_seat(parent) && s < room->n_seats; s++)
        give_up(take(room, s));
    free(m.ranks);
    free(m.processes);
    free(m.rooms);
    return code     ? code
           : met    ? met
           : failed ? zinf_fail(-ECONNABORTED, "another seat has no room")
                    : 0;
}
