/*
 * pack_change: arrays that lie packed are changed. Threads take slices of them, a slice is done
 * piece by piece, and a piece is unpacked, changed and packed while it is in a core's cache. How
 * long the new slices before it will be is not known then, so a slice is written to where its plain
 * numbers would begin, which leaves it room, and all are moved together at the end.
 */
#include "cpu_optim/optim_internal.h"
#include "cpu_optim/pack_internal.h"

#include <stdatomic.h>
#include <stdio.h>

/* What all threads have of a change. */
struct change {
    const struct zinf_pack_change *c;
    struct pack_image from[ZINF_PACK_CHANGING], to[ZINF_PACK_CHANGING];
    uint64_t n_groups, n_slices;
    atomic_ullong next_slice;
    atomic_int next_thread, code;
    char message[320]; /* of the thread that failed first */
};

/* What one thread has: its memory, and where it is in the old images. */
struct hand {
    char *room[ZINF_PACK_CHANGING];
    uint64_t group[ZINF_PACK_CHANGING], at[ZINF_PACK_CHANGING];
};

static uint64_t width_of(const struct zinf_pack_changing *a)
{
    return zinf_dtype_bytes(a->array.dtype);
}

static uint64_t room_of_array(const struct zinf_pack_changing *a)
{
    return a->in || !a->in_place ? ZINF_PACK_PIECE * width_of(a) : 0;
}

static uint64_t room_of_thread(const struct zinf_pack_change *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_arrays; i++)
        bytes += room_of_array(&c->arrays[i]);
    return bytes;
}

static uint64_t groups_of(const struct zinf_pack_change *c)
{
    return (c->arrays[0].array.n + ZINF_PACK_PIECE - 1) / ZINF_PACK_PIECE;
}

#define GROUPS_A_THREAD 8u /* fewer are not worth a thread */

static int useful_threads(const struct zinf_pack_change *c)
{
    const uint64_t most = groups_of(c) / GROUPS_A_THREAD;
    return c->n_threads < 2 || most < 2    ? 1
           : (uint64_t)c->n_threads > most ? (int)most
                                           : c->n_threads;
}

uint64_t zinf_pack_change_room(const struct zinf_pack_change *c)
{
    return (uint64_t)useful_threads(c) * room_of_thread(c);
}

static uint64_t slice_begin(const struct change *all, uint64_t slice)
{
    return all->n_groups * slice / all->n_slices;
}

/* ---- a piece ---- */

/* Its numbers, to be changed; NULL: they are damaged. A thread's slices go up, and so does its
 * place in an image. */
static void *take(const struct change *all, struct hand *hand, uint32_t i, uint64_t group,
                  uint64_t n)
{
    const struct zinf_pack_changing *a = &all->c->arrays[i];
    const struct pack_image *from = &all->from[i];
    char *x = (char *)a->array.x + group * ZINF_PACK_PIECE * width_of(a);
    if (!a->in && a->in_place)
        return x;
    if (!a->in)
        return memcpy(hand->room[i], x, n * width_of(a));
    for (; hand->group[i] < group; hand->group[i]++)
        hand->at[i] += pack_group_bytes(from, hand->group[i]);
    if (!pack_take_group(from, group, from->payload + hand->at[i], hand->room[i]))
        return NULL;
    return hand->room[i];
}

static int change_piece(const struct change *all, struct hand *hand, uint64_t group, char **out)
{
    const struct zinf_pack_change *c = all->c;
    const uint64_t first = group * ZINF_PACK_PIECE, left = c->arrays[0].array.n - first;
    const uint64_t n = left < ZINF_PACK_PIECE ? left : ZINF_PACK_PIECE;
    void *x[ZINF_PACK_CHANGING];
    for (uint32_t i = 0; i < c->n_arrays; i++)
        if (!(x[i] = take(all, hand, i, group, n)))
            return zinf_fail(-EBADMSG,
                             "a packed array is damaged: its numbers have another checksum");
    int code = c->change(c->context, first, n, x);
    for (uint32_t i = 0; !code && i < c->n_arrays; i++)
        if (out[i])
            out[i] = pack_one_group(&all->to[i], group, x[i], out[i]);
    return code;
}

/* ---- slices ---- */

static int change_slice(struct change *all, struct hand *hand, uint64_t slice)
{
    const uint64_t begin = slice_begin(all, slice), end = slice_begin(all, slice + 1);
    char *first[ZINF_PACK_CHANGING] = {NULL}, *out[ZINF_PACK_CHANGING] = {NULL};
    const struct zinf_pack_change *c = all->c;
    int code = 0;
    for (uint32_t i = 0; i < c->n_arrays; i++)
        if (c->arrays[i].out)
            first[i] = out[i] =
                all->to[i].payload + begin * ZINF_PACK_PIECE * width_of(&c->arrays[i]);
    for (uint64_t group = begin; !code && group < end; group++)
        code = change_piece(all, hand, group, out);
    for (uint32_t i = 0; i < c->n_arrays; i++)
        c->arrays[i].slices[slice] = (uint64_t)(out[i] - first[i]);
    return code;
}

static void change_slices(void *arg)
{
    struct change *all = arg;
    struct hand hand = {0};
    const int thread = atomic_fetch_add(&all->next_thread, 1);
    char *room = (char *)all->c->room + (uint64_t)thread * room_of_thread(all->c);
    for (uint32_t i = 0; i < all->c->n_arrays; i++) {
        hand.room[i] = room;
        room += room_of_array(&all->c->arrays[i]);
    }
    while (!atomic_load(&all->code)) {
        const uint64_t slice = atomic_fetch_add(&all->next_slice, 1);
        if (slice >= all->n_slices)
            break;
        int code = change_slice(all, &hand, slice), none = 0;
        if (code && atomic_compare_exchange_strong(&all->code, &none, code))
            snprintf(all->message, sizeof all->message, "%s", zinf_error());
    }
}

/* ---- images ---- */

static int begin(struct change *all, uint32_t i)
{
    struct zinf_pack_changing *a = &all->c->arrays[i];
    const struct pack_ops *ops = pack_ops_of(zinf_isa());
    a->n_slices = all->n_slices;
    if (a->out) {
        all->to[i] = pack_image_of(ops, &a->array, a->out);
        pack_begin(&all->to[i]);
    }
    if (!a->in)
        return 0;
    all->from[i] = pack_image_of(ops, &a->array, a->in);
    return pack_check_head(&all->from[i], a->in_bytes);
}

/* The head, of an image whose payload is so much longer than its blocks. */
static void end(const struct pack_image *image, struct zinf_pack_changing *a, uint64_t longer)
{
    uint64_t payload = longer;
    for (uint64_t slice = 0; slice < a->n_slices; slice++)
        payload += a->slices[slice];
    a->bytes = pack_end(image, payload);
}

void zinf_pack_pad(struct zinf_pack_changing *a, uint64_t bytes)
{
    const struct pack_image image = pack_image_of(pack_ops_of(zinf_isa()), &a->array, a->out);
    end(&image, a, bytes);
}

int zinf_pack_change(const struct zinf_pack_change *c)
{
    struct change all = {.c = c};
    int code = 0;
    all.n_groups = groups_of(c);
    all.n_slices = all.n_groups < ZINF_PACK_SLICES ? all.n_groups : ZINF_PACK_SLICES;
    for (uint32_t i = 0; !code && i < c->n_arrays; i++)
        code = begin(&all, i);
    if (code)
        return code;
    optim_team(useful_threads(c), change_slices, &all);
    code = atomic_load(&all.code);
    for (uint32_t i = 0; !code && i < c->n_arrays; i++)
        if (c->arrays[i].out)
            end(&all.to[i], &c->arrays[i], 0);
    return code ? zinf_fail(code, "%s", all.message) : 0;
}

/* ---- together ---- */

struct collection {
    const struct zinf_pack_changing *of;
    const char *from;
    char *to;
    void (*copy)(void *to, const void *from, size_t bytes);
};

static void move(void *to, const void *from, size_t bytes)
{
    memmove(to, from, bytes);
}

/* A slice of the payload lies no further in front than it was made, so in order nothing is
 * overwritten that is still to be moved. */
static void collect_slices(void *arg, uint64_t first, uint64_t last)
{
    const struct collection *c = arg;
    const struct zinf_pack_changing *a = c->of;
    const uint64_t n_groups = (a->array.n + ZINF_PACK_PIECE - 1) / ZINF_PACK_PIECE;
    uint64_t at = 0;
    for (uint64_t slice = 0; slice < last; slice++) {
        const uint64_t made = n_groups * slice / a->n_slices * ZINF_PACK_PIECE * width_of(a);
        if (slice >= first && c->to + at != c->from + made)
            c->copy(c->to + at, c->from + made, a->slices[slice]);
        at += a->slices[slice];
    }
}

void zinf_pack_collect(const struct zinf_pack_changing *a, void *to, int n_threads)
{
    const uint64_t n_blocks = (a->array.n + PACK_BLOCK - 1) / PACK_BLOCK;
    const uint64_t payload = pack_payload_at(n_blocks);
    const bool within = to == a->out;
    struct collection c = {a, (const char *)a->out + payload, (char *)to + payload,
                           within ? move : pack_ops_of(zinf_isa())->copy};
    if (!within)
        memcpy(to, a->out, payload);
    optim_parallel_units(a->n_slices, within ? 1 : n_threads, collect_slices, &c);
}
