/* block: what runs: warps, a block's shared memory, asynchronous copies. */
#ifndef PTX_BLOCK_H
#define PTX_BLOCK_H

#include "code.h"
#include "shadow.h"

enum { PTX_MOST_COPIES = 4096, PTX_NEVER = INT32_MAX };

struct ptx_copy {
    uint64_t from;
    uint32_t to;
    uint8_t bytes, wanted, lane;
    uint32_t group; /* of its thread; 0: not committed yet */
};

/* Lanes that are at one place. */
struct ptx_group {
    int32_t pc;
    uint32_t mask;
};

struct ptx_warp {
    struct ptx_block *block;
    char *file;
    int index, pc, next_pc; /* next_pc: the least of the other groups */
    uint32_t active, live;  /* lanes: running now; not gone */
    struct ptx_group others[PTX_LANES];
    int n_others;
    bool waiting; /* at the block's barrier */
    char *local;  /* [PTX_LANES][local_bytes of the kernel] */
    struct ptx_copy *copies;
    int n_copies;
    uint32_t committed[PTX_LANES];
};

struct ptx_block {
    struct ptx_kernel *kernel;
    const struct ptx_grid *grid;
    unsigned index[3], n_warps, n_threads;
    struct ptx_warp warps[PTX_MOST_WARPS];
    char *shared;
    unsigned shared_bytes;
    struct shadow shared_shadow;
    bool failed;
};

#define ROW(w, offset) ((void *)((w)->file + (offset)))

/* Ends the grid with a message on instruction, thread and block. */
void ptx_fault(struct ptx_warp *w, const struct ptx_instr *i, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static inline unsigned ptx_thread(const struct ptx_warp *w, int lane)
{
    return (unsigned)(w->index * PTX_LANES + lane);
}
uint32_t ptx_random(uint32_t below);

/* ---- access_warp.c ---- */

/* Generic addresses from here on are of shared memory. */
#define PTX_SHARED_WINDOW ((uint64_t)1 << 56)

/* The lane whose access is a fault, -1 for none, and what it met. */
struct ptx_found {
    int lane;
    enum shadow_finding finding;
    uint32_t other;
    bool global; /* global memory, whose bytes are counted */
};
/* A load or store of the lanes in mask; false, and nothing is done: it is not for all at once. */
bool ptx_access_warp(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask, bool loads,
                     struct ptx_found *found);

#endif
