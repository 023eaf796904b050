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

/* The first seat's room for each; *own: this one's. Nobody has one where it has failed. */
static int hand_out(struct zinf_net *parent, struct room **rooms, struct room **own)
{
    const struct room *room = parent->state;
    uint32_t n = 0, rank = parent->place.rank, first = 0;
    while (!room_has(room, first) || room->at[first].seat)
        first++;
    for (uint32_t r = 0; rank == first && r < parent->place.world; r++)
        if (r != rank && room_has(room, r))
            parent->out[n++] = (struct net_message){&rooms[r], sizeof *rooms, r};
    parent->in[0] = (struct net_message){own, sizeof *own, first};
    if (rank == first)
        *own = rooms[rank];
    return net_pass(parent, n, rank != first, false);
}

/* Rooms that nobody has entered. */
static void discard(struct making *m, uint32_t world)
{
    for (uint32_t r = 0; m->rooms && r < world; r++) {
        struct room *room = m->rooms[r];
        for (uint32_t k = r; room && k < world; k++)
            m->rooms[k] = m->rooms[k] == room ? NULL : m->rooms[k];
        if (room && room->owned)
            room->meeting.between->told = true; /* nobody waits for it */
        if (room)
            room_free(room);
    }
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
    int met = zinf_net_max(parent, &failed, 1);
    if (!met && !failed)
        met = hand_out(parent, m.rooms, &own);
    if (met || failed)
        discard(&m, world);
    else if (net)
        room_enter(net, own);
    free(m.ranks);
    free(m.processes);
    free(m.rooms);
    return code     ? code
           : met    ? met
           : failed ? zinf_fail(-ECONNABORTED, "another seat has no room")
                    : 0;
}
