/*
 * net_mpi: ranks are processes of an MPI. A module of its own, so that nothing else links to one.
 * Point to point and never blocking: a wait can see that a rank is late, or has told of its
 * failure, and say which, where a collective of the MPI could only hang. Counts of MPI are int:
 * messages are cut. Waits leave the CPU to others after a moment, as the library's own may not.
 *
 * Needs MPI_THREAD_SERIALIZED: nets that were split, and their watches, are threads of their own,
 * but calls of MPI are short, as none of them waits, and made under one lock. A net that was split
 * has the communicators of the first, and tags of its own.
 */
#include "net/net_engine.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((uint64_t)1 << 30) /* of one message of MPI */
#define GRACE_NS 2000000000u           /* for the others to end after a failure */
#define TAGS 2                         /* a net's own, and that of its signs of life */

struct part {
    uint32_t peer;
    uint64_t bytes;
    bool receives;
};

/* Guards MPI and the two below; after a net's own lock. */
static pthread_mutex_t mpi = PTHREAD_MUTEX_INITIALIZER;
static uint32_t n_open;
static bool spoiled; /* MPI_Finalize could wait for messages that nobody will take */

struct state {
    MPI_Comm data, control;
    int tag;
    MPI_Request *requests; /* [capacity] each, as the other three */
    MPI_Status *statuses;
    int *indices;
    struct part *parts;
    uint32_t capacity, n;
    uint64_t exchanges; /* this rank has taken part in */
    struct net_last_words own;
    MPI_Request *notes;     /* [world] those on their way */
    MPI_Request *signs;     /* [world] the same of signs, which are in */
    struct net_sign *given; /* [world] */
    bool *gone;             /* [world] who has told */
    struct net_first_words heard;
};

static int fail_call(struct zinf_net *net, int error, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    snprintf(net->why, sizeof net->why, "%s: %.800s", call, text);
    return -EIO;
}

/* ---- what others tell ---- */

/* Whose number with MPI that is. */
static uint32_t rank_of(const struct zinf_net *net, int number)
{
    uint32_t r = 0;
    while (r + 1 < net->place.world && net_number(net, r) != (uint32_t)number)
        r++;
    return r;
}

/* Takes in all signs of life that have come. */
static void hear_signs(struct zinf_net *net)
{
    struct state *s = net->state;
    struct net_sign sign;
    MPI_Status status;
    for (int there = 1; there;) {
        MPI_Iprobe(MPI_ANY_SOURCE, s->tag + 1, s->control, &there, &status);
        if (!there)
            break;
        MPI_Recv(&sign, sizeof sign, MPI_BYTE, status.MPI_SOURCE, s->tag + 1, s->control, &status);
        net_heard(net, rank_of(net, status.MPI_SOURCE), &sign);
    }
}

/* Takes in one rank's words, if there are any. */
static bool hear(struct zinf_net *net)
{
    struct state *s = net->state;
    struct net_last_words words;
    MPI_Status status;
    int there = 0;
    hear_signs(net);
    MPI_Iprobe(MPI_ANY_SOURCE, s->tag, s->control, &there, &status);
    if (!there)
        return false;
    MPI_Recv(&words, sizeof words, MPI_BYTE, status.MPI_SOURCE, s->tag, s->control, &status);
    uint32_t rank = rank_of(net, status.MPI_SOURCE);
    s->gone[rank] = true;
    net_keep_words(net, &s->heard, rank, &words);
    return true;
}

/* Whether a rank that has told is not in this exchange. */
static int check_heard(struct zinf_net *net)
{
    const struct state *s = net->state;
    return net_check_words(net, &s->heard, s->exchanges);
}

static int mpi_listen(struct zinf_net *net)
{
    pthread_mutex_lock(&mpi);
    while (hear(net))
        ;
    pthread_mutex_unlock(&mpi);
    return check_heard(net);
}

static void mpi_tell(struct zinf_net *net, uint32_t number, const char *sentence)
{
    struct state *s = net->state;
    s->own.number = number;
    s->own.exchanges = s->exchanges;
    snprintf(s->own.sentence, sizeof s->own.sentence, "%s", sentence);
    pthread_mutex_lock(&mpi);
    for (uint32_t r = 0; r < net->place.world; r++)
        if (r != net->place.rank)
            MPI_Isend(&s->own, sizeof s->own, MPI_BYTE, (int)net_number(net, r), s->tag, s->control,
                      &s->notes[r]);
    pthread_mutex_unlock(&mpi);
}

/* One that has not left yet is as good. */
static void mpi_sign(struct zinf_net *net, struct net_sign sign)
{
    struct state *s = net->state;
    pthread_mutex_lock(&mpi);
    for (uint32_t r = 0; r < net->place.world; r++) {
        int done = 1;
        if (r != net->place.rank && s->signs[r] != MPI_REQUEST_NULL)
            MPI_Test(&s->signs[r], &done, MPI_STATUS_IGNORE);
        if (r == net->place.rank || !done)
            continue;
        s->given[r] = sign;
        MPI_Isend(&s->given[r], sizeof s->given[r], MPI_BYTE, (int)net_number(net, r), s->tag + 1,
                  s->control, &s->signs[r]);
    }
    pthread_mutex_unlock(&mpi);
}

/* ---- exchange ---- */

static uint32_t n_parts(const struct net_message *m)
{
    return m->bytes ? (uint32_t)((m->bytes + MOST_BYTES - 1) / MOST_BYTES) : 1;
}

static bool grow(void *array, uint32_t n, size_t width)
{
    void **at = array, *moved = realloc(*at, n * width);
    *at = moved ? moved : *at;
    return moved;
}

static int make_room(struct zinf_net *net, const struct net_exchange *x)
{
    struct state *s = net->state;
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_in; i++)
        n += n_parts(&x->in[i]);
    for (uint32_t i = 0; i < x->n_out; i++)
        n += n_parts(&x->out[i]);
    s->n = 0;
    if (n <= s->capacity)
        return 0;
    if (!grow(&s->requests, n, sizeof *s->requests) ||
        !grow(&s->statuses, n, sizeof *s->statuses) || !grow(&s->indices, n, sizeof *s->indices) ||
        !grow(&s->parts, n, sizeof *s->parts)) {
        snprintf(net->why, sizeof net->why, "no memory for %u messages at once", n);
        return -ENOMEM;
    }
    s->capacity = n;
    return 0;
}

static int begin(struct zinf_net *net, const struct net_message *m, bool receives)
{
    struct state *s = net->state;
    int error = MPI_SUCCESS, peer = (int)net_number(net, m->peer);
    for (uint32_t i = 0; error == MPI_SUCCESS && i < n_parts(m); i++) {
        uint64_t at = i * MOST_BYTES, left = m->bytes - at;
        uint64_t bytes = left < MOST_BYTES ? left : MOST_BYTES;
        char *data = (char *)m->data + at;
        s->parts[s->n] = (struct part){m->peer, bytes, receives};
        error =
            receives
                ? MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, s->tag, s->data, &s->requests[s->n])
                : MPI_Isend(data, (int)bytes, MPI_BYTE, peer, s->tag, s->data, &s->requests[s->n]);
        s->n += error == MPI_SUCCESS;
    }
    return error == MPI_SUCCESS ? 0 : fail_call(net, error, receives ? "MPI_Irecv" : "MPI_Isend");
}

/* What Testsome found to be done. */
static int check_done(struct zinf_net *net, int n_done, bool failed)
{
    struct state *s = net->state;
    int code = 0;
    for (int i = 0; !code && i < n_done; i++) {
        const struct part *part = &s->parts[s->indices[i]];
        int error = failed ? s->statuses[i].MPI_ERROR : MPI_SUCCESS, class = MPI_SUCCESS, count = 0;
        net_heard(net, part->peer, NULL);
        MPI_Error_class(error, &class);
        if (class == MPI_ERR_TRUNCATE)
            code = net_other_length(net, part->peer, part->bytes + 1, part->bytes);
        else if (error != MPI_SUCCESS)
            code = fail_call(net, error, "MPI_Testsome");
        else if (part->receives)
            MPI_Get_count(&s->statuses[i], MPI_BYTE, &count);
        if (!code && part->receives && (uint64_t)count != part->bytes)
            code = net_other_length(net, part->peer, (uint64_t)count, part->bytes);
    }
    return code;
}

/* A peer that sends nothing, rather than one that only does not take. */
static int check_late(struct zinf_net *net, struct net_wait *wait)
{
    struct state *s = net->state;
    bool receives = false;
    for (uint32_t i = 0; i < s->n; i++)
        receives |= s->requests[i] != MPI_REQUEST_NULL && s->parts[i].receives;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->requests[i] != MPI_REQUEST_NULL && s->parts[i].receives == receives)
            net_wait_for(wait, s->parts[i].peer, net->heard_ns[s->parts[i].peer]);
    net->own_wait = wait->peer;
    net->follows_ns = wait->oldest_ns;
    return net_wait_is_over(net, wait) ? net_late(net, net_blamed(net, net->own_wait)) : 0;
}

/* What is done of all; the lock is open between looks, for signs. */
static int wait_all(struct zinf_net *net)
{
    struct state *s = net->state;
    struct net_wait wait = net_wait_begin();
    uint32_t left = s->n, looks = 0;
    int code = 0;
    while (!code && left) {
        int n_done = 0;
        int error = MPI_Testsome((int)s->n, s->requests, &n_done, s->indices, s->statuses);
        if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS)
            code = fail_call(net, error, "MPI_Testsome");
        else if (n_done > 0)
            code = check_done(net, n_done, error == MPI_ERR_IN_STATUS);
        else if (net_is_over(net))
            code = net_end(net);
        else if (!hear(net) && !(code = check_heard(net)))
            code = check_late(net, &wait);
        left -= n_done > 0 ? (uint32_t)n_done : 0;
        if (n_done > 0)
            looks = 0;
        else if (!code) {
            pthread_mutex_unlock(&mpi);
            pthread_mutex_unlock(&net->lock);
            net_pause(looks++);
            pthread_mutex_lock(&net->lock);
            pthread_mutex_lock(&mpi);
        }
    }
    return code;
}

/* Nothing of it is waited for: the net has failed, and the process will end. */
static void give_up(struct state *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->requests[i] == MPI_REQUEST_NULL)
            continue;
        if (s->parts[i].receives)
            MPI_Cancel(&s->requests[i]);
        MPI_Request_free(&s->requests[i]);
    }
}

static int mpi_exchange(struct zinf_net *net, const struct net_exchange *x)
{
    pthread_mutex_lock(&net->lock);
    pthread_mutex_lock(&mpi);
    int code = make_room(net, x);
    for (uint32_t i = 0; !code && i < x->n_in; i++)
        code = begin(net, &x->in[i], true);
    for (uint32_t i = 0; !code && i < x->n_out; i++)
        code = begin(net, &x->out[i], false);
    if (!code)
        code = wait_all(net);
    if (code)
        give_up(net->state);
    else
        ((struct state *)net->state)->exchanges++;
    pthread_mutex_unlock(&mpi);
    pthread_mutex_unlock(&net->lock);
    return code;
}

/* ---- life ---- */

/* Until all others have told too, but not for long: whoever ends first makes the launcher end the
 * others before they have said what happened. */
static void part_after_failure(struct zinf_net *net)
{
    struct state *s = net->state;
    uint64_t end = net_now_ns() + GRACE_NS;
    for (uint32_t r = 0; r < net->place.world; r++)
        while (r != net->place.rank && !s->gone[r] && net_now_ns() < end) {
            pthread_mutex_lock(&mpi);
            bool heard = hear(net);
            pthread_mutex_unlock(&mpi);
            if (!heard)
                net_pause(NET_SPINS);
        }
}

static void mpi_close(struct zinf_net *net)
{
    struct state *s = net->state;
    bool failed = net->failed || net->told;
    pthread_mutex_lock(&mpi);
    hear_signs(net); /* nothing that has come is left */
    pthread_mutex_unlock(&mpi);
    if (failed)
        part_after_failure(net);
    pthread_mutex_lock(&mpi);
    spoiled |= failed;
    if (!failed) /* they are short, and leave by themselves */
        MPI_Waitall((int)net->place.world, s->signs, MPI_STATUSES_IGNORE);
    if (--n_open == 0 && !spoiled)
        MPI_Finalize();
    pthread_mutex_unlock(&mpi);
    free(s->requests);
    free(s->statuses);
    free(s->indices);
    free(s->parts);
    free(s->gone);
    if (failed) /* notes and signs may still be on their way */
        return;
    free(s->notes);
    free(s->signs);
    free(s->given);
    free(s);
}

static int mpi_split(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split);

static const struct net_engine_ops mpi_ops = {
    .exchange = mpi_exchange,
    .listen = mpi_listen,
    .sign = mpi_sign,
    .tell = mpi_tell,
    .split = mpi_split,
    .close = mpi_close,
};

static int take_state(struct zinf_net *net, struct state *s, uint32_t number)
{
    size_t n = net->place.world;
    const int *most, tag = 1 + TAGS * (int)number;
    int known = 0;
    pthread_mutex_lock(&mpi);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&most, &known);
    pthread_mutex_unlock(&mpi);
    if (number > INT_MAX / TAGS - 1 || (known && tag + 1 > *most)) {
        snprintf(net->why, sizeof net->why,
                 "this MPI has no more than %d tags, and %u nets of these ranks need more: start "
                 "fewer processes, with more seats each",
                 known ? *most : INT_MAX, number);
        return -ENOTSUP;
    }
    s->tag = tag;
    s->heard.from = net->place.world;
    s->notes = calloc(n, sizeof *s->notes);
    s->gone = calloc(n, sizeof *s->gone);
    s->signs = calloc(n, sizeof *s->signs);
    s->given = calloc(n, sizeof *s->given);
    if (!s->notes || !s->gone || !s->signs || !s->given) {
        snprintf(net->why, sizeof net->why, "no memory for %zu ranks", n);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        s->notes[i] = s->signs[i] = MPI_REQUEST_NULL;
    net->state = s;
    net->ops = &mpi_ops;
    pthread_mutex_lock(&mpi);
    n_open++;
    pthread_mutex_unlock(&mpi);
    return 0;
}

static void free_state(struct state *s)
{
    if (s) {
        free(s->notes);
        free(s->gone);
        free(s->signs);
        free(s->given);
    }
    free(s);
}

static int mpi_split(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split)
{
    const struct state *from = parent->state;
    struct state *s = net ? calloc(1, sizeof *s) : NULL;
    int code = 0;
    if (net && !s) {
        snprintf(net->why, sizeof net->why, "no memory for a net");
        code = -ENOMEM;
    } else if (net) {
        s->data = from->data;
        s->control = from->control;
        code = take_state(net, s, split->number);
    }
    if (code)
        free_state(s);
    return code;
}

static void name_library(struct zinf_net *net)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n,")] = 0;
    for (char *c = text; *c; c++) /* MPICH has tabs in it */
        *c = *c == '\t' ? ' ' : *c;
    snprintf(net->name, sizeof net->name, "%.90s", text);
}

static int start_library(struct zinf_net *net, uint32_t wanted)
{
    int given = 0, world = 0, rank = 0;
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
    if (error != MPI_SUCCESS)
        return fail_call(net, error, "MPI_Init_thread");
    name_library(net);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    net->place.rank = (uint32_t)rank;
    net->place.world = (uint32_t)world;
    if (given < MPI_THREAD_SERIALIZED)
        snprintf(net->why, sizeof net->why,
                 "%s does not let several threads use it one at a time (MPI_THREAD_SERIALIZED): "
                 "take one that was built for threads",
                 net->name);
    else if ((uint32_t)world != wanted)
        snprintf(net->why, sizeof net->why,
                 "the launcher started %u processes, but %s knows of %d: start with the mpirun "
                 "that belongs to it, or build the MPI module for the other MPI (--with-mpi=MPICC)",
                 wanted, net->name, world);
    return net->why[0] ? -ENOTSUP : 0;
}

static int open_state(struct zinf_net *net, struct state *s)
{
    int rank = 0, world = 0, code = take_state(net, s, 0);
    MPI_Comm host;
    if (code)
        return code;
    MPI_Comm_dup(MPI_COMM_WORLD, &s->data);
    MPI_Comm_dup(MPI_COMM_WORLD, &s->control);
    MPI_Comm_set_errhandler(s->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(s->control, MPI_ERRORS_RETURN);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &world);
    MPI_Comm_free(&host);
    net->place.local_rank = (uint32_t)rank;
    net->place.local_world = (uint32_t)world;
    return 0;
}

net_module_start zinf_net_mpi_start;
int zinf_net_mpi_start(struct zinf_net *net, int version, uint32_t wanted)
{
    if (version != NET_MODULE_VERSION) {
        snprintf(net->why, sizeof net->why,
                 "the MPI module is of another version: install it again");
        return -ENOTSUP;
    }
    struct state *s = calloc(1, sizeof *s);
    int code = s ? start_library(net, wanted) : -ENOMEM;
    if (!code)
        code = open_state(net, s);
    if (code)
        free_state(s);
    return code;
}
