/*
 * cut: a program that is made piece by piece. At a cut what has been added becomes a program of its
 * own, and the builder goes on with an empty one. It keeps the resources that live on: those of
 * fixed places, and buffers in their slots. Nothing waits for an earlier piece, which has ended.
 */
#include "offload/builder.h"

#include <stdlib.h>

uint64_t zinf_program_n_ops(const struct zinf_program *p)
{
    return p->pieces ? p->pieces->n_ops : p->n_ops;
}

uint32_t zinf_program_most_ops(const struct zinf_program *p)
{
    return p->pieces ? p->pieces->most_ops : p->n_ops;
}

static void most(uint64_t *most, uint64_t now)
{
    *most = *most > now ? *most : now;
}

static void count_piece(struct zinf_program *p)
{
    struct zinf_pieces *cut = p->pieces;
    const uint64_t bytes = zinf_program_bytes_now(p);
    cut->n_pieces++;
    cut->n_ops += p->n_ops;
    cut->most_ops = cut->most_ops > p->n_ops ? cut->most_ops : p->n_ops;
    cut->all_bytes += bytes;
    most(&cut->bytes, bytes);
    most(&cut->scheduling_bytes, zinf_program_scheduling_bytes(p));
    zinf_work_add_now(&cut->work, p);
}

/* The piece leaves the program, which has no operations then. */
static int hand_over(struct zinf_program *p, const struct zinf_taker *taker)
{
    int code = taker->looks ? 0 : zinf_program_freeze(p, taker->order, &taker->machine);
    if (code)
        return code;
    struct zinf_program piece = *p;
    piece.builder = NULL;
    piece.pieces = NULL;
    *p = (struct zinf_program){.name = p->name, .builder = p->builder, .pieces = p->pieces};
    p->builder->ops_capacity = p->builder->waits_capacity = p->builder->tenants_capacity = 0;
    code = taker->take(taker->context, &piece);
    zinf_program_fini(&piece);
    return code;
}

static int end_piece(struct zinf_program *p, const struct zinf_taker *taker)
{
    int code = 0;
    if (!p->pieces)
        p->pieces = calloc(1, sizeof *p->pieces);
    if (!p->pieces)
        return zinf_fail(-ENOMEM, "no memory for a program in pieces");
    if (p->n_ops)
        count_piece(p);
    if (taker && p->n_ops)
        code = hand_over(p, taker);
    p->n_ops = p->n_waits = p->n_tenants = 0;
    zinf_shared_destroy(p->shared);
    p->shared = NULL;
    return code;
}

/* What waits are made from, and how a buffer is used: nothing of it is known of the next piece. */
static struct resource anew(struct resource *r)
{
    free(r->readers);
    return (struct resource){.writer = NONE,
                             .pool = r->pool,
                             .first = r->first == NONE ? NONE : BEFORE,
                             .last_touch = NONE,
                             .slot = r->slot};
}

static uint32_t number_of(const struct zinf_builder *b, uint32_t at)
{
    return at < b->n_fixed ? at
           : at < b->n_old ? b->old[at - b->n_fixed]
                           : b->first_new + (at - b->n_old);
}

/* Leaves the fixed ones and those that stay. */
static int keep_resources(struct zinf_builder *b, uint32_t n_fixed)
{
    uint32_t n = n_fixed, n_stay = 0;
    for (uint32_t i = n_fixed; i < b->n_resources; i++)
        n_stay += b->resources[i].stays;
    uint32_t *numbers = malloc((n_stay + 1) * sizeof *numbers);
    if (!numbers)
        return zinf_fail(-ENOMEM, "no memory for a program in pieces");
    for (uint32_t i = 0; i < b->n_resources; i++) {
        struct resource *r = &b->resources[i];
        if (i < n_fixed) {
            *r = anew(r);
        } else if (r->stays) {
            numbers[n - n_fixed] = number_of(b, i);
            b->resources[n++] = anew(r);
        } else {
            free(r->readers);
        }
    }
    b->first_new += b->n_resources - b->n_old;
    b->n_resources = b->n_old = n;
    b->n_fixed = n_fixed;
    b->n_touches = 0;
    free(b->old);
    b->old = numbers;
    return 0;
}

int zinf_program_cut(struct zinf_program *p, uint32_t n_fixed, const zinf_resource *kept,
                     uint32_t n_kept, const struct zinf_taker *taker)
{
    struct zinf_builder *b = p->builder;
    for (uint32_t i = 0; i < n_kept; i++) {
        const uint32_t at = kept[i] < n_fixed ? NONE : zinf_builder_find(b, kept[i]);
        if (at != NONE && at < b->n_resources)
            b->resources[at].stays = b->resources[at].pool != NONE;
    }
    int code = end_piece(p, taker);
    if (!code)
        code = keep_resources(b, n_fixed);
    if (code)
        return code;
    p->shared = zinf_shared_create();
    return p->shared ? 0 : zinf_fail(-ENOMEM, "no memory for a program in pieces");
}

int zinf_program_end_cut(struct zinf_program *p, const struct zinf_taker *taker)
{
    const int code = end_piece(p, taker);
    zinf_builder_destroy(p->builder);
    p->builder = NULL;
    free(p->ops);
    free(p->waits);
    free(p->tenants);
    p->ops = NULL;
    p->waits = p->tenants = NULL;
    return code;
}
