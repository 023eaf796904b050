/*
 * access_warp: a warp's loads and stores at once, which are most of what the interpreter does:
 * where all lanes' places are aligned and lie in one allocation, only the shadow is looked at lane
 * by lane. Everything else, faults of addresses among it, is access.c's.
 */
#include "block.h"
#include "shadow_rules.h"

/* ---- places ---- */

struct places {
    char *base; /* that offsets count from */
    struct shadow *shadow;
    size_t first; /* of base in the shadow */
    uint32_t at[PTX_LANES];
};

/* Addresses of the lanes in mask; the others get that of one of them. */
static void addresses_of(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask,
                         uint64_t address[PTX_LANES])
{
    const uint64_t more = (uint64_t)(int64_t)i->imm;
    const int some = __builtin_ctz(mask);
    if (i->flag) {
        const uint32_t *row = ROW(w, i->a[0]);
        for (int l = 0; l < PTX_LANES; l++)
            address[l] = row[l] + more;
    } else {
        const uint64_t *row = ROW(w, i->a[0]);
        for (int l = 0; l < PTX_LANES; l++)
            address[l] = row[l] + more;
    }
    for (int l = 0; mask != UINT32_MAX && l < PTX_LANES; l++)
        address[l] = mask >> l & 1 ? address[l] : address[some];
}

static bool find_places(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask,
                        unsigned bytes, struct places *p)
{
    uint64_t address[PTX_LANES], low = UINT64_MAX, high = 0, any = 0, base = 0;
    struct ptx_block *b = w->block;
    int space = i->space;
    if (i->a[0] < 0 || space == PTX_LOCAL)
        return false;
    addresses_of(w, i, mask, address);
    for (int l = 0; l < PTX_LANES; l++) {
        low = address[l] < low ? address[l] : low;
        high = address[l] > high ? address[l] : high;
        any |= address[l];
    }
    if (any % bytes || high - low > INT32_MAX)
        return false;
    if (space == PTX_GENERIC) {
        space = low >= PTX_SHARED_WINDOW ? PTX_SHARED : PTX_GLOBAL;
        base = space == PTX_SHARED ? PTX_SHARED_WINDOW : 0;
        if (space == PTX_GLOBAL && high >= PTX_SHARED_WINDOW)
            return false;
    }
    if (space == PTX_GLOBAL) {
        p->shadow = shadow_find(low, high - low + bytes, &p->first);
        p->base = (char *)(uintptr_t)low; /* NOLINT: it is this process's */
        base = low;
    } else {
        p->shadow = high - base + bytes <= b->shared_bytes ? &b->shared_shadow : NULL;
        p->first = 0;
        p->base = b->shared;
    }
    for (int l = 0; l < PTX_LANES; l++)
        p->at[l] = (uint32_t)(address[l] - base);
    return p->shadow != NULL;
}

/* ---- the shadow ---- */

#define FOR_EACH_OF(mask) for (uint32_t left = mask; left; left &= left - 1)

/* The first lane that may not, or -1; access: read or write. */
#define CHECK_LANES(access, n)                                                                     \
    static int access##_##n(struct ptx_warp *w, const struct places *p, uint32_t mask,             \
                            struct ptx_found *found)                                               \
    {                                                                                              \
        const struct shadow_clock c = shadow_clock;                                                \
        FOR_EACH_OF(mask)                                                                          \
        {                                                                                          \
            const int l = __builtin_ctz(left);                                                     \
            found->finding = shadow_##access##_of(c, p->shadow, p->first + p->at[l], n,            \
                                                  ptx_thread(w, l), &found->other);                \
            if (found->finding != SHADOW_GOOD)                                                     \
                return l;                                                                          \
        }                                                                                          \
        return -1;                                                                                 \
    }
CHECK_LANES(read, 1)
CHECK_LANES(read, 2)
CHECK_LANES(read, 4)
CHECK_LANES(read, 8)
CHECK_LANES(read, 16)
CHECK_LANES(write, 1)
CHECK_LANES(write, 2)
CHECK_LANES(write, 4)
CHECK_LANES(write, 8)
CHECK_LANES(write, 16)

typedef int check_lanes(struct ptx_warp *w, const struct places *p, uint32_t mask,
                        struct ptx_found *found);

/* Accesses have a power of two bytes, up to 16. */
static check_lanes *const reads[] = {read_1, read_2, read_4, read_8, read_16};
static check_lanes *const writes[] = {write_1, write_2, write_4, write_8, write_16};

/* ---- values ---- */

#define MOVE(T, to, from)                                                                          \
    FOR_EACH_OF(mask)                                                                              \
    {                                                                                              \
        const int l = __builtin_ctz(left);                                                         \
        T *const row = ROW(w, rows[k]);                                                            \
        to = from;                                                                                 \
    }

/* Registers and memory are of one width: anything else is access.c's. */
static void move_values(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask,
                        const struct places *p, bool loads)
{
    const int32_t *rows = loads ? i->d : i->b;
    for (int k = 0; k < i->n; k++) {
        char *base = p->base + (unsigned)k * i->a_bytes;
        if (rows[k] < 0)
            continue;
        if (i->a_bytes == 4 && loads)
            MOVE(uint32_t, row[l], *(const uint32_t *)(base + p->at[l]))
        else if (i->a_bytes == 4)
            MOVE(uint32_t, *(uint32_t *)(base + p->at[l]), row[l])
        else if (i->a_bytes == 2 && loads)
            MOVE(uint16_t, row[l], *(const uint16_t *)(base + p->at[l]))
        else if (i->a_bytes == 2)
            MOVE(uint16_t, *(uint16_t *)(base + p->at[l]), row[l])
        else if (loads)
            MOVE(uint64_t, row[l], *(const uint64_t *)(base + p->at[l]))
        else
            MOVE(uint64_t, *(uint64_t *)(base + p->at[l]), row[l])
    }
}

bool ptx_access_warp(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask, bool loads,
                     struct ptx_found *found)
{
    const unsigned bytes = i->a_bytes * (unsigned)i->n;
    struct places p;
    if (i->a_bytes != i->d_bytes || i->a_bytes == 1 || bytes > 16 || (bytes & (bytes - 1)) ||
        !find_places(w, i, mask, bytes, &p))
        return false;
    found->global = p.shadow != &w->block->shared_shadow;
    found->lane = (loads ? reads : writes)[__builtin_ctz(bytes)](w, &p, mask, found);
    if (found->lane < 0)
        move_values(w, i, mask, &p, loads);
    return true;
}
