/*
 * pack_change: arrays that lie packed are changed. Threads take pieces in order. A piece is
 * unpacked, changed and packed while it is in a core's cache. Where its new images belong is known
 * when the pieces before it are packed, so a thread keeps them in its cache until then, and also
 * until the next piece is unpacked, whose old image they may overwrite: meanwhile it has unpacked
 * its next piece. Images without a place of their own, or that outgrow it, are written to where
 * their plain numbers would begin, which leaves them room, and are moved together at the end.
 */
#include "cpu_optim/optim_internal.h"
#include "cpu_optim/pack_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* What one thread has: its memory, and where it is in the old images. */
struct hand {
    char *room[ZINF_PACK_CHANGING], *packed[ZINF_PACK_CHANGING];
    uint64_t group[ZINF_PACK_CHANGING], at[ZINF_PACK_CHANGING];
    uint64_t taking; /* the piece that is being unpacked; NONE: none is. Under the lock */
    /* The piece that waits to be placed, or NONE; how many bytes its new images have, and where the
     * old payload of the two pieces behind it begins. */
    uint64_t packs;
    uint64_t bytes[ZINF_PACK_CHANGING], behind[ZINF_PACK_CHANGING][2];
};
#define NONE UINT64_MAX

/* What all threads have of a change. */
struct change {
    const struct zinf_pack_change *c;
    struct pack_image from[ZINF_PACK_CHANGING], to[ZINF_PACK_CHANGING];
    uint64_t n_groups;
    int n_threads;
    struct hand *hands; /* [n_threads] */
    atomic_int next_thread;
    pthread_mutex_t lock; /* guards all that follow and `taking` of all hands */
    pthread_cond_t was_taken, was_placed;
    uint64_t next;   /* the piece that is taken next */
    uint64_t placed; /* the pieces whose places are known */
    uint64_t payload[ZINF_PACK_CHANGING];
    bool full[ZINF_PACK_CHANGING];
    int code;
    char message[320]; /* of the thread that failed first */
};

static uint64_t width_of(const struct zinf_pack_changing *a)
{
    return zinf_dtype_bytes(a->array.dtype);
}

static uint64_t tables_of(const struct zinf_pack_changing *a)
{
    return pack_payload_at((a->array.n + PACK_BLOCK - 1) / PACK_BLOCK);
}

/* Whether the new image overwrites the old one. */
static bool overwrites(const struct zinf_pack_changing *a)
{
    return a->place && a->place == a->in;
}

static uint64_t groups_of(const struct zinf_pack_change *c)
{
    return (c->arrays[0].array.n + ZINF_PACK_PIECE - 1) / ZINF_PACK_PIECE;
}

/* ---- room ---- */

#define LINE 64

static uint64_t plain_room(const struct zinf_pack_changing *a)
{
    return a->in || !a->in_place ? ZINF_PACK_PIECE * width_of(a) : 0;
}

static uint64_t packed_room(const struct zinf_pack_changing *a)
{
    return a->place ? ZINF_PACK_PIECE * width_of(a) : 0;
}

static uint64_t room_of_thread(const struct zinf_pack_change *c)
{
    uint64_t bytes = zinf_align_up(sizeof(struct hand), LINE);
    for (uint32_t i = 0; i < c->n_arrays; i++)
        bytes += plain_room(&c->arrays[i]) + packed_room(&c->arrays[i]);
    return bytes;
}

#define GROUPS_A_THREAD 8u /* fewer are not worth a thread */

static int useful_threads(const struct zinf_pack_change *c)
{
    const uint64_t most = groups_of(c) / GROUPS_A_THREAD;
    return c->n_threads < 2 || most < 2    ? 1
           : (uint64_t)c->n_threads > most ? (int)most
                                           : c->n_threads;
}

/* Copies of tables that are overwritten, then hands, then what each thread has. */
uint64_t zinf_pack_change_room(const struct zinf_pack_change *c)
{
    uint64_t bytes = (uint64_t)useful_threads(c) * room_of_thread(c);
    for (uint32_t i = 0; i < c->n_arrays; i++)
        bytes += overwrites(&c->arrays[i]) ? tables_of(&c->arrays[i]) : 0;
    return bytes;
}

static void give_room(struct change *all)
{
    const struct zinf_pack_change *c = all->c;
    char *room = c->room;
    for (uint32_t i = 0; i < c->n_arrays; i++) {
        if (!overwrites(&c->arrays[i]))
            continue;
        memcpy(room, all->from[i].start, tables_of(&c->arrays[i]));
        all->from[i].table = (uint32_t *)(void *)(room + PACK_HEAD);
        all->from[i].sums = (uint64_t *)(void *)(room + pack_sums_at(all->from[i].n_blocks));
        room += tables_of(&c->arrays[i]);
    }
    all->hands = (struct hand *)(void *)room;
    room += (uint64_t)all->n_threads * zinf_align_up(sizeof(struct hand), LINE);
    for (int t = 0; t < all->n_threads; t++) {
        all->hands[t] = (struct hand){.taking = NONE, .packs = NONE};
        for (uint32_t i = 0; i < c->n_arrays; i++) {
            all->hands[t].room[i] = room;
            all->hands[t].packed[i] = room + plain_room(&c->arrays[i]);
            room = all->hands[t].packed[i] + packed_room(&c->arrays[i]);
        }
    }
}

/* ---- taking a piece ---- */

static uint64_t elements_of(const struct change *all, uint64_t group)
{
    const uint64_t left = all->c->arrays[0].array.n - group * ZINF_PACK_PIECE;
    return left < ZINF_PACK_PIECE ? left : ZINF_PACK_PIECE;
}

/* The numbers of a piece, to be changed; NULL: they are damaged. A thread's pieces go up, and so
 * does its place in an image. */
static void *take(const struct change *all, struct hand *hand, uint32_t i, uint64_t group)
{
    const struct zinf_pack_changing *a = &all->c->arrays[i];
    const struct pack_image *from = &all->from[i];
    char *x = (char *)a->array.x + group * ZINF_PACK_PIECE * width_of(a);
    if (!a->in && a->in_place)
        return x;
    if (!a->in)
        return memcpy(hand->room[i], x, elements_of(all, group) * width_of(a));
    for (; hand->group[i] < group; hand->group[i]++)
        hand->at[i] += pack_group_bytes(from, hand->group[i]);
    if (!pack_take_group(from, group, from->payload + hand->at[i], hand->room[i]))
        return NULL;
    return hand->room[i];
}

/* Takes the next piece; false: there is none, or some thread has failed. */
static bool take_next(struct change *all, struct hand *hand)
{
    pthread_mutex_lock(&all->lock);
    hand->taking = !all->code && all->next < all->n_groups ? all->next++ : NONE;
    pthread_mutex_unlock(&all->lock);
    return hand->taking != NONE;
}

static void say_taken(struct change *all, struct hand *hand)
{
    pthread_mutex_lock(&all->lock);
    hand->taking = NONE;
    pthread_cond_broadcast(&all->was_taken);
    pthread_mutex_unlock(&all->lock);
}

static int take_all(struct change *all, struct hand *hand, void *x[])
{
    const uint64_t group = hand->taking;
    for (uint32_t i = 0; i < all->c->n_arrays; i++)
        if (!(x[i] = take(all, hand, i, group)))
            return zinf_fail(-EBADMSG,
                             "a packed array is damaged: its numbers have another checksum");
    say_taken(all, hand);
    return 0;
}

/* ---- placing a piece ---- */

/* Under the lock: whether all pieces before `group` are unpacked. */
static bool are_taken(const struct change *all, uint64_t group)
{
    for (int t = 0; t < all->n_threads; t++)
        if (all->hands[t].taking < group)
            return false;
    return group <= all->next;
}

/* Bytes from the payload's beginning up to which the image of the waiting piece may be written once
 * `further` pieces behind it are unpacked. */
static uint64_t room_until(const struct change *all, const struct hand *hand, uint32_t i,
                           uint64_t further)
{
    const struct zinf_pack_changing *a = &all->c->arrays[i];
    const uint64_t most = a->place_bytes - tables_of(a);
    if (!overwrites(a) || hand->packs + 1 + further >= all->n_groups)
        return most;
    return hand->behind[i][further] < most ? hand->behind[i][further] : most;
}

/* Under the lock: whether the pieces are unpacked that the waiting one will overwrite. What would
 * overwrite more than the next piece does not fit. */
static bool may_overwrite(const struct change *all, const struct hand *hand)
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++) {
        if (!all->c->arrays[i].place || all->full[i])
            continue;
        const uint64_t end = all->payload[i] + hand->bytes[i];
        if (end > room_until(all, hand, i, 0) && end <= room_until(all, hand, i, 1) &&
            !are_taken(all, hand->packs + 2))
            return false;
    }
    return true;
}

/* Under the lock: gives the waiting piece its places. */
static void give_places(struct change *all, const struct hand *hand, char *to[])
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++) {
        struct zinf_pack_changing *a = &all->c->arrays[i];
        if (!a->place)
            continue;
        const uint64_t end = all->payload[i] + hand->bytes[i];
        all->full[i] = all->full[i] || end > room_until(all, hand, i, 1);
        if (all->full[i]) {
            to[i] = (char *)a->out + tables_of(a) + hand->packs * ZINF_PACK_PIECE * width_of(a);
            continue;
        }
        to[i] = all->to[i].payload + all->payload[i];
        all->payload[i] = end;
        a->n_placed = hand->packs + 1;
    }
}

/* Waits for what the waiting piece depends on, and copies it to its places. Nobody waits for a
 * thread that waits for this one: pieces are unpacked without waiting, and placed in order. */
static void place(struct change *all, struct hand *hand)
{
    char *to[ZINF_PACK_CHANGING] = {NULL};
    pthread_mutex_lock(&all->lock);
    while (!all->code && all->placed != hand->packs)
        pthread_cond_wait(&all->was_placed, &all->lock);
    while (!all->code && !may_overwrite(all, hand))
        pthread_cond_wait(&all->was_taken, &all->lock);
    const bool failed = all->code;
    if (!failed) {
        give_places(all, hand, to);
        all->placed++;
        pthread_cond_broadcast(&all->was_placed);
    }
    pthread_mutex_unlock(&all->lock);
    for (uint32_t i = 0; !failed && i < all->c->n_arrays; i++)
        if (to[i])
            all->to[i].ops->copy(to[i], hand->packed[i], hand->bytes[i]);
    hand->packs = NONE;
}

static void pack_piece(struct change *all, struct hand *hand, uint64_t group, void *const x[])
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++) {
        const struct zinf_pack_changing *a = &all->c->arrays[i];
        char *to = hand->packed[i];
        if (!a->place && !a->out)
            continue;
        if (!a->place)
            to = all->to[i].payload + group * ZINF_PACK_PIECE * width_of(a);
        hand->bytes[i] = (uint64_t)(pack_one_group(&all->to[i], group, x[i], to) - to);
        if (!overwrites(a))
            continue;
        hand->behind[i][0] = hand->at[i] + pack_group_bytes(&all->from[i], group);
        hand->behind[i][1] = hand->behind[i][0];
        if (group + 1 < all->n_groups)
            hand->behind[i][1] += pack_group_bytes(&all->from[i], group + 1);
    }
    hand->packs = group;
}

/* ---- a thread ---- */

static void fail(struct change *all, int code)
{
    pthread_mutex_lock(&all->lock);
    if (!all->code)
        snprintf(all->message, sizeof all->message, "%s", zinf_error());
    all->code = all->code ? all->code : code;
    pthread_cond_broadcast(&all->was_taken);
    pthread_cond_broadcast(&all->was_placed);
    pthread_mutex_unlock(&all->lock);
}

static void change_pieces(void *arg)
{
    struct change *all = arg;
    const struct zinf_pack_change *c = all->c;
    struct hand *hand = &all->hands[atomic_fetch_add(&all->next_thread, 1)];
    void *x[ZINF_PACK_CHANGING];
    int code = 0;
    while (!code && take_next(all, hand)) {
        const uint64_t group = hand->taking;
        code = take_all(all, hand, x);
        if (!code && hand->packs != NONE)
            place(all, hand);
        if (!code)
            code = c->change(c->context, group * ZINF_PACK_PIECE, elements_of(all, group), x);
        if (!code)
            pack_piece(all, hand, group, x);
    }
    if (code)
        fail(all, code);
    else if (hand->packs != NONE)
        place(all, hand);
}

/* ---- images ---- */

static int begin(struct change *all, uint32_t i)
{
    struct zinf_pack_changing *a = &all->c->arrays[i];
    a->n_placed = 0;
    if (a->place && a->place_bytes < tables_of(a))
        a->place = NULL;
    if (!a->in)
        return 0;
    all->from[i] = pack_image_of(pack_ops_of(zinf_isa()), &a->array, a->in);
    return pack_check_head(&all->from[i], a->in_bytes);
}

static struct pack_image new_image(const struct zinf_pack_changing *a)
{
    return pack_image_of(pack_ops_of(zinf_isa()), &a->array, a->place ? a->place : a->out);
}

/* The head, of an image whose payload is so much longer than its blocks. */
static void end(const struct pack_image *image, struct zinf_pack_changing *a, uint64_t longer)
{
    a->bytes = pack_end(image, pack_group_at(image, image->n_groups) + longer);
}

void zinf_pack_pad(struct zinf_pack_changing *a, uint64_t bytes)
{
    const struct pack_image image = new_image(a);
    end(&image, a, bytes);
}

static void begin_images(struct change *all)
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++) {
        struct zinf_pack_changing *a = &all->c->arrays[i];
        if (!a->place && !a->out)
            continue;
        all->to[i] = new_image(a);
        pack_begin(&all->to[i]);
    }
}

int zinf_pack_change(const struct zinf_pack_change *c)
{
    struct change all = {.c = c,
                         .n_groups = groups_of(c),
                         .n_threads = useful_threads(c),
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .was_taken = PTHREAD_COND_INITIALIZER,
                         .was_placed = PTHREAD_COND_INITIALIZER};
    int code = 0;
    for (uint32_t i = 0; !code && i < c->n_arrays; i++)
        code = begin(&all, i);
    if (code)
        return code;
    give_room(&all);
    begin_images(&all);
    optim_team(all.n_threads, change_pieces, &all);
    for (uint32_t i = 0; !all.code && i < c->n_arrays; i++)
        if (c->arrays[i].out || c->arrays[i].place)
            end(&all.to[i], &c->arrays[i], 0);
    pthread_cond_destroy(&all.was_taken);
    pthread_cond_destroy(&all.was_placed);
    pthread_mutex_destroy(&all.lock);
    return all.code ? zinf_fail(all.code, "%s", all.message) : 0;
}

/* ---- together ---- */

struct collection {
    const struct zinf_pack_changing *of;
    struct pack_image image; /* as far as it is placed, with its table */
    char *to;                /* the payload */
    void (*copy)(void *to, const void *from, size_t bytes);
};

static void move(void *to, const void *from, size_t bytes)
{
    memmove(to, from, bytes);
}

/* A piece of the payload lies no further in front than it was made, so in order nothing is
 * overwritten that is still to be moved. */
static void collect_groups(void *arg, uint64_t first, uint64_t last)
{
    const struct collection *c = arg;
    const struct zinf_pack_changing *a = c->of;
    uint64_t at = pack_group_at(&c->image, first), bytes;
    for (uint64_t group = first; group < last; group++, at += bytes) {
        const char *from = c->image.payload + at;
        bytes = pack_group_bytes(&c->image, group);
        if (group >= a->n_placed)
            from = (const char *)a->out + tables_of(a) + group * ZINF_PACK_PIECE * width_of(a);
        if (from != c->to + at)
            c->copy(c->to + at, from, bytes);
    }
}

void zinf_pack_collect(const struct zinf_pack_changing *a, void *to, int n_threads)
{
    const bool within = to == a->out;
    struct collection c = {a, new_image(a), (char *)to + tables_of(a),
                           within ? move : pack_ops_of(zinf_isa())->copy};
    if (to != c.image.start)
        memcpy(to, c.image.start, tables_of(a));
    if (to != a->place || a->n_placed < c.image.n_groups)
        optim_parallel_units(c.image.n_groups, within ? 1 : n_threads, collect_groups, &c);
}
