/*
 * samples_pack: best fit by decreasing length (Johnson 1973, at most 11/9 of the fewest windows).
 * Windows with the same room left stand in a queue, and a bit for each size of room says whether
 * its queue holds any, so that a sample finds its window in size / 64 looks.
 */
#include "text/samples/samples_store.h"

#include <stdlib.h>

#define NONE UINT32_MAX
#define MOST_LOOKS 64 /* at windows whose source has no room, before a new one is begun */

struct window_in_making {
    uint32_t first, last; /* its samples, linked by next */
    uint32_t source_room;
    uint32_t behind; /* in the queue of its room */
};
struct packer {
    uint32_t size, source_size;
    const uint32_t *lengths, *sources;
    uint32_t *next; /* [n] */
    struct window_in_making *windows;
    uint32_t n_windows;
    uint32_t *heads, *tails; /* [size + 1]: queues by room */
    uint64_t *any;           /* bits of the queues that hold some */
};

static void push(struct packer *p, uint32_t room, uint32_t window)
{
    p->windows[window].behind = NONE;
    if (p->heads[room] == NONE)
        p->heads[room] = window;
    else
        p->windows[p->tails[room]].behind = window;
    p->tails[room] = window;
    p->any[room / 64] |= (uint64_t)1 << room % 64;
}

/* Takes a window out of its queue; before is the one in front of it there, or NONE. */
static void take(struct packer *p, uint32_t room, uint32_t before, uint32_t window)
{
    uint32_t behind = p->windows[window].behind;
    if (before == NONE)
        p->heads[room] = behind;
    else
        p->windows[before].behind = behind;
    if (behind == NONE)
        p->tails[room] = before;
    if (p->heads[room] == NONE)
        p->any[room / 64] &= ~((uint64_t)1 << room % 64);
}

/* The least room from `room` on that some window has, or NONE. */
static uint32_t least_room(const struct packer *p, uint32_t room)
{
    if (room > p->size)
        return NONE;
    uint32_t word = room / 64;
    uint64_t bits = p->any[word] & ~(uint64_t)0 << room % 64;
    while (!bits && ++word <= p->size / 64)
        bits = p->any[word];
    return bits ? word * 64 + (uint32_t)__builtin_ctzll(bits) : NONE;
}

static uint32_t find_window(struct packer *p, uint32_t length, uint32_t source, uint32_t *room)
{
    int looks = 0;
    for (*room = least_room(p, length); *room != NONE; *room = least_room(p, *room + 1)) {
        uint32_t before = NONE;
        for (uint32_t w = p->heads[*room]; w != NONE; w = p->windows[w].behind) {
            if (p->windows[w].source_room >= source) {
                take(p, *room, before, w);
                return w;
            }
            if (++looks == MOST_LOOKS)
                return NONE;
            before = w;
        }
    }
    return NONE;
}

static void place(struct packer *p, uint32_t sample)
{
    uint32_t length = p->lengths[sample], source = p->sources ? p->sources[sample] : 0, room;
    uint32_t w = find_window(p, length, source, &room);
    p->next[sample] = NONE;
    if (w == NONE) {
        w = p->n_windows++;
        room = p->size;
        p->windows[w] = (struct window_in_making){sample, sample, p->source_size, NONE};
    } else {
        p->next[p->windows[w].last] = sample;
        p->windows[w].last = sample;
    }
    p->windows[w].source_room -= source;
    push(p, room - length, w);
}

/* Samples by length, the longest first, and those of one length in their order. */
static void sort_by_length(const struct packer *p, uint64_t n, uint64_t *counts, uint32_t *sorted)
{
    for (uint64_t i = 0; i < n; i++)
        counts[p->size - p->lengths[i]]++;
    for (uint64_t i = 0, before = 0; i <= p->size; i++) {
        uint64_t here = counts[i];
        counts[i] = before;
        before += here;
    }
    for (uint64_t i = 0; i < n; i++)
        sorted[counts[p->size - p->lengths[i]]++] = (uint32_t)i;
}

static void write_windows(const struct packer *p, struct sample_packing *out)
{
    uint64_t at = 0;
    for (uint32_t w = 0; w < p->n_windows; w++) {
        out->firsts[w] = at;
        for (uint32_t i = p->windows[w].first; i != NONE; i = p->next[i])
            out->order[at++] = i;
    }
    out->firsts[p->n_windows] = at;
    out->n_windows = p->n_windows;
}

int samples_pack(struct sample_packing *out, const uint32_t *lengths, const uint32_t *sources,
                 uint64_t n, uint32_t size, uint32_t source_size)
{
    struct packer p = {size, source_size, lengths, sources, .n_windows = 0};
    uint64_t *counts = calloc((uint64_t)size + 1, sizeof *counts);
    uint32_t *sorted = malloc(n * sizeof *sorted);
    p.next = malloc(n * sizeof *p.next);
    p.windows = malloc(n * sizeof *p.windows);
    p.heads = malloc(((uint64_t)size + 1) * sizeof *p.heads);
    p.tails = malloc(((uint64_t)size + 1) * sizeof *p.tails);
    p.any = calloc(size / 64 + 1, sizeof *p.any);
    out->order = malloc(n * sizeof *out->order);
    out->firsts = malloc((n + 1) * sizeof *out->firsts);
    bool room = counts && sorted && p.next && p.windows && p.heads && p.tails && p.any &&
                out->order && out->firsts;
    if (room) {
        memset(p.heads, 0xff, ((uint64_t)size + 1) * sizeof *p.heads);
        sort_by_length(&p, n, counts, sorted);
        for (uint64_t i = 0; i < n; i++)
            place(&p, sorted[i]);
        write_windows(&p, out);
    }
    free(counts);
    free(sorted);
    free(p.next);
    free(p.windows);
    free(p.heads);
    free(p.tails);
    free(p.any);
    return room ? 0 : zinf_fail(-ENOMEM, "no memory to pack %llu samples", (unsigned long long)n);
}

void samples_packing_free(struct sample_packing *packing)
{
    free(packing->order);
    free(packing->firsts);
    *packing = (struct sample_packing){0};
}
