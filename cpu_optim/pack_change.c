/*
 * pack_change: arrays that lie packed are changed. Threads take pieces in order. A piece is
 * unpacked, changed and packed while it is in a core's cache. Where its new images belong is known
 * when the pieces before it are packed, and they may overwrite the old image of the next piece. So
 * they wait in the cache until those are packed and that one is unpacked. Meanwhile their thread
 * goes on with its next pieces, and waits itself only when it has no room for one more. Images
 * without a place of their own, or that outgrow it, are written to where their plain numbers would
 * begin, which leaves them room, and are moved together at the end.
 */
#include "cpu_optim/optim_internal.h"
#include "cpu_optim/pack_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* A piece that is packed, until its new images are copied to their places. */
struct piece {
    char *packed[ZINF_PACK_CHANGING]; /* memory for the images */
    uint64_t group;                   /* NONE: the memory is free */
    /* How many bytes the images have, and where the old payload of the two pieces behind begins. */
    uint64_t bytes[ZINF_PACK_CHANGING], behind[ZINF_PACK_CHANGING][2];
    char *to[ZINF_PACK_CHANGING]; /* the places */
    bool is_given;                /* the places are known. Under the lock */
};

/* What one thread has: its memory, and where it is in the old images. */
struct hand {
    char *room[ZINF_PACK_CHANGING];
    uint64_t group[ZINF_PACK_CHANGING], at[ZINF_PACK_CHANGING];
    uint64_t taking; /* the piece that is being unpacked; NONE: none is. Under the lock */
    struct piece pieces[ZINF_PACK_AHEAD];
};
#define NONE UINT64_MAX

/* What all threads have of a change. */
struct change {
    const struct zinf_pack_change *c;
    struct pack_image from[ZINF_PACK_CHANGING], to[ZINF_PACK_CHANGING];
    uint64_t n_groups;
    int n_threads;
    bool has_places;    /* an array has a place */
    struct hand *hands; /* [n_threads] */
    atomic_int next_thread;
    pthread_mutex_t lock; /* guards all that follow, `taking` and is_given */
    pthread_cond_t was_given;
    uint64_t next;  /* the piece that is taken next */
    uint64_t given; /* the pieces whose places are known */
    /* [n_waiting] pieces that are packed, at group % n_waiting; NULL: the piece is not packed yet.
     * Threads have no more at hand. */
    struct piece **waiting;
    uint64_t n_waiting;
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

static uint64_t ahead_of(const struct zinf_pack_change *c)
{
    return c->ahead < 1 ? 1 : c->ahead > ZINF_PACK_AHEAD ? ZINF_PACK_AHEAD : c->ahead;
}

/* Pieces that threads can have at hand: packed, and one that is not yet. */
static uint64_t waiting_of(const struct zinf_pack_change *c, int n_threads)
{
    return (uint64_t)n_threads * (ahead_of(c) + 1);
}

#define GROUPS_A_THREAD 8u /* fewer are not worth a thread */

static int useful_threads(const struct zinf_pack_change *c)
{
    const uint64_t most = groups_of(c) / GROUPS_A_THREAD;
    return c->n_threads < 2 || most < 2    ? 1
           : (uint64_t)c->n_threads > most ? (int)most
                                           : c->n_threads;
}

/* Memory is dealt out in lines from the room's beginning. */
static void *deal(char **room, uint64_t bytes)
{
    void *dealt = *room;
    *room += zinf_align_up(bytes, LINE);
    return dealt;
}

static void deal_to_hand(const struct zinf_pack_change *c, struct hand *hand, char **room)
{
    *hand = (struct hand){.taking = NONE};
    for (uint32_t i = 0; i < c->n_arrays; i++)
        hand->room[i] = deal(room, plain_room(&c->arrays[i]));
    for (uint64_t k = 0; k < ahead_of(c); k++) {
        hand->pieces[k].group = NONE;
        for (uint32_t i = 0; i < c->n_arrays; i++)
            hand->pieces[k].packed[i] = deal(room, packed_room(&c->arrays[i]));
    }
}

/* Of all: copies of tables that are overwritten, waiting pieces, hands, and what each hand has. */
uint64_t zinf_pack_change_room(const struct zinf_pack_change *c)
{
    const uint64_t n_threads = (uint64_t)useful_threads(c);
    uint64_t bytes = zinf_align_up(waiting_of(c, (int)n_threads) * sizeof(struct piece *), LINE) +
                     zinf_align_up(n_threads * sizeof(struct hand), LINE);
    for (uint32_t i = 0; i < c->n_arrays; i++) {
        const struct zinf_pack_changing *a = &c->arrays[i];
        bytes += overwrites(a) ? zinf_align_up(tables_of(a), LINE) : 0;
        bytes += n_threads * (plain_room(a) + ahead_of(c) * packed_room(a));
    }
    return bytes;
}

static void deal_room(struct change *all)
{
    const struct zinf_pack_change *c = all->c;
    char *room = c->room;
    for (uint32_t i = 0; i < c->n_arrays; i++) {
        if (!overwrites(&c->arrays[i]))
            continue;
        char *tables = deal(&room, tables_of(&c->arrays[i]));
        memcpy(tables, all->from[i].start, tables_of(&c->arrays[i]));
        all->from[i].table = (uint32_t *)(void *)(tables + PACK_HEAD);
        all->from[i].sums = (uint64_t *)(void *)(tables + pack_sums_at(all->from[i].n_blocks));
    }
    all->n_waiting = waiting_of(c, all->n_threads);
    all->waiting = deal(&room, all->n_waiting * sizeof *all->waiting);
    memset(all->waiting, 0, all->n_waiting * sizeof *all->waiting);
    all->hands = deal(&room, (uint64_t)all->n_threads * sizeof *all->hands);
    for (int t = 0; t < all->n_threads; t++)
        deal_to_hand(c, &all->hands[t], &room);
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

static int take_all(const struct change *all, struct hand *hand, void *x[])
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++)
        if (!(x[i] = take(all, hand, i, hand->taking)))
            return zinf_fail(-EBADMSG,
                             "a packed array is damaged: its numbers have another checksum");
    return 0;
}

/* ---- placing pieces, under the lock ---- */

/* Whether all pieces before `group` are unpacked. */
static bool are_taken(const struct change *all, uint64_t group)
{
    for (int t = 0; t < all->n_threads; t++)
        if (all->hands[t].taking < group)
            return false;
    return group <= all->next;
}

/* Bytes from the payload's beginning up to which the image of a piece may be written once `further`
 * pieces behind it are unpacked. */
static uint64_t room_until(const struct change *all, const struct piece *piece, uint32_t i,
                           uint64_t further)
{
    const struct zinf_pack_changing *a = &all->c->arrays[i];
    const uint64_t most = a->place_bytes - tables_of(a);
    if (!overwrites(a) || piece->group + 1 + further >= all->n_groups)
        return most;
    return piece->behind[i][further] < most ? piece->behind[i][further] : most;
}

/* Whether the pieces are unpacked that this one will overwrite. What would overwrite more than the
 * next piece does not fit. */
static bool may_overwrite(const struct change *all, const struct piece *piece)
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++) {
        if (!all->c->arrays[i].place || all->full[i])
            continue;
        const uint64_t end = all->payload[i] + piece->bytes[i];
        if (end > room_until(all, piece, i, 0) && end <= room_until(all, piece, i, 1) &&
            !are_taken(all, piece->group + 2))
            return false;
    }
    return true;
}

static void give_places(struct change *all, struct piece *piece)
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++) {
        struct zinf_pack_changing *a = &all->c->arrays[i];
        if (!a->place)
            continue;
        const uint64_t end = all->payload[i] + piece->bytes[i];
        all->full[i] = all->full[i] || end > room_until(all, piece, i, 1);
        if (all->full[i]) {
            piece->to[i] =
                (char *)a->out + tables_of(a) + piece->group * ZINF_PACK_PIECE * width_of(a);
            continue;
        }
        piece->to[i] = all->to[i].payload + all->payload[i];
        all->payload[i] = end;
        a->n_placed = piece->group + 1;
    }
    piece->is_given = true;
}

/* Gives places to the pieces of all threads, in order, as far as they are packed. */
static void give_in_order(struct change *all)
{
    const uint64_t before = all->given;
    for (;;) {
        struct piece **at = &all->waiting[all->given % all->n_waiting];
        if (!*at || !may_overwrite(all, *at))
            break;
        give_places(all, *at);
        *at = NULL;
        all->given++;
    }
    if (all->given != before)
        pthread_cond_broadcast(&all->was_given);
}

/* ---- placing pieces ---- */

/* Nobody else writes to these places, or reads what was there. */
static void copy_given(const struct change *all, struct piece *piece)
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++)
        if (all->c->arrays[i].place)
            all->to[i].ops->copy(piece->to[i], piece->packed[i], piece->bytes[i]);
    piece->group = NONE;
}

/* Of a thread's pieces one that is free, or that has its places, or NULL. Under the lock. */
static struct piece *find_piece(const struct change *all, struct hand *hand, bool free_too)
{
    struct piece *found = NULL;
    for (uint64_t k = 0; k < ahead_of(all->c); k++) {
        struct piece *piece = &hand->pieces[k];
        if (piece->group != NONE && piece->is_given)
            return piece;
        if (piece->group == NONE && free_too)
            found = piece;
    }
    return found;
}

/* Waits for such a piece, under the lock; NULL: some thread has failed. */
static struct piece *await_piece(struct change *all, struct hand *hand, bool free_too)
{
    struct piece *piece = NULL;
    while (!all->code && !(piece = find_piece(all, hand, free_too)))
        pthread_cond_wait(&all->was_given, &all->lock);
    return all->code ? NULL : piece;
}

/* Copies what has its places. Waits until there is a free piece; NULL: some thread has failed. The
 * thread has unpacked its next piece before. So the first piece that waits for others waits for
 * pieces that are being unpacked, changed or packed, and their threads do not wait. */
static struct piece *free_piece(struct change *all, struct hand *hand)
{
    struct piece *piece;
    pthread_mutex_lock(&all->lock);
    hand->taking = NONE;
    give_in_order(all);
    while ((piece = await_piece(all, hand, true)) && piece->group != NONE) {
        pthread_mutex_unlock(&all->lock);
        copy_given(all, piece);
        pthread_mutex_lock(&all->lock);
    }
    pthread_mutex_unlock(&all->lock);
    return piece;
}

/* Hands in a packed piece, if there is one, and takes the next; false: there is none, or some
 * thread has failed. */
static bool take_next(struct change *all, struct hand *hand, struct piece *packed)
{
    pthread_mutex_lock(&all->lock);
    hand->taking = !all->code && all->next < all->n_groups ? all->next++ : NONE;
    if (packed && packed->group != NONE) {
        packed->is_given = false;
        all->waiting[packed->group % all->n_waiting] = packed;
        give_in_order(all);
    }
    pthread_mutex_unlock(&all->lock);
    return hand->taking != NONE;
}

static bool has_pieces(const struct change *all, const struct hand *hand)
{
    bool has = false;
    for (uint64_t k = 0; k < ahead_of(all->c); k++)
        has |= hand->pieces[k].group != NONE;
    return has;
}

static void copy_rest(struct change *all, struct hand *hand)
{
    while (has_pieces(all, hand)) {
        pthread_mutex_lock(&all->lock);
        struct piece *piece = await_piece(all, hand, false);
        pthread_mutex_unlock(&all->lock);
        if (!piece)
            return;
        copy_given(all, piece);
    }
}

static void pack_piece(const struct change *all, const struct hand *hand, struct piece *piece,
                       uint64_t group, void *const x[])
{
    for (uint32_t i = 0; i < all->c->n_arrays; i++) {
        const struct zinf_pack_changing *a = &all->c->arrays[i];
        if (!a->place && !a->out)
            continue;
        char *to = a->place ? piece->packed[i]
                            : all->to[i].payload + group * ZINF_PACK_PIECE * width_of(a);
        const char *end = pack_one_group(&all->to[i], group, x[i], to);
        piece->bytes[i] = (uint64_t)(end - to);
        if (!overwrites(a))
            continue;
        piece->behind[i][0] = hand->at[i] + pack_group_bytes(&all->from[i], group);
        piece->behind[i][1] = piece->behind[i][0];
        if (group + 1 < all->n_groups)
            piece->behind[i][1] += pack_group_bytes(&all->from[i], group + 1);
    }
    piece->group = all->has_places ? group : NONE;
}

/* ---- a thread ---- */

static void fail(struct change *all, int code)
{
    pthread_mutex_lock(&all->lock);
    if (!all->code)
        snprintf(all->message, sizeof all->message, "%s", zinf_error());
    all->code = all->code ? all->code : code;
    pthread_cond_broadcast(&all->was_given);
    pthread_mutex_unlock(&all->lock);
}

/* Changes the piece that is taken; NULL: some thread has failed. */
static struct piece *change_piece(struct change *all, struct hand *hand)
{
    const struct zinf_pack_change *c = all->c;
    const uint64_t group = hand->taking;
    void *x[ZINF_PACK_CHANGING];
    int code = take_all(all, hand, x);
    struct piece *piece = code ? NULL : free_piece(all, hand);
    if (piece)
        code = c->change(c->context, group * ZINF_PACK_PIECE, elements_of(all, group), x);
    if (code) {
        fail(all, code);
        return NULL;
    }
    if (piece)
        pack_piece(all, hand, piece, group, x);
    return piece;
}

static void change_pieces(void *arg)
{
    struct change *all = arg;
    struct hand *hand = &all->hands[atomic_fetch_add(&all->next_thread, 1)];
    struct piece *packed = NULL;
    while (take_next(all, hand, packed))
        if (!(packed = change_piece(all, hand)))
            return;
    copy_rest(all, hand);
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
        all->has_places |= a->place != NULL;
        pack_begin(&all->to[i]);
    }
}

int zinf_pack_change(const struct zinf_pack_change *c)
{
    struct change all = {.c = c,
                         .n_groups = groups_of(c),
                         .n_threads = useful_threads(c),
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .was_given = PTHREAD_COND_INITIALIZER};
    int code = 0;
    for (uint32_t i = 0; !code && i < c->n_arrays; i++)
        code = begin(&all, i);
    if (code)
        return code;
    deal_room(&all);
    begin_images(&all);
    optim_team(all.n_threads, change_pieces, &all);
    for (uint32_t i = 0; !all.code && i < c->n_arrays; i++)
        if (c->arrays[i].out || c->arrays[i].place)
            end(&all.to[i], &c->arrays[i], 0);
    pthread_cond_destroy(&all.was_given);
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
