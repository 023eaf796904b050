/*
 * nccl_board: what the ranks of a communicator know of each other, in one memory for all of them:
 * of one process, or of several, which share nothing else. Nobody waits for anybody here and there
 * is no lock, so a process may be stopped or killed anywhere: each field has one writer at a time,
 * and says by an atomic store that what comes with it may be read.
 *
 * A message is two halves of one number in the lane of its two ranks: both are posted when they are
 * called, arrive when their streams come to them, and are over when the receiver has the bytes.
 */
#ifndef STANDIN_NCCL_BOARD_H
#define STANDIN_NCCL_BOARD_H

#include "shared.h"
#include "standin.h"

#include <stdatomic.h>

enum {
    BOARD_CALLS = 256,  /* collectives that ranks may be apart */
    BOARD_HALVES = 128, /* messages of a lane on their way */
};
enum board_phase { BOARD_EMPTY, BOARD_POSTED, BOARD_ARRIVED, BOARD_OVER };

struct board_half {
    _Atomic uint64_t state; /* number << 2 | phase */
    size_t bytes;
    int type;
    /* from its arrival on, of what is sent: */
    const char *data; /* to its own process */
    struct shared_place place;
    size_t offset; /* there */
    uint64_t sum;
    void *token; /* of the arrival; of its own process */
    void *taken; /* the receiver has it; of the sender's process */
};
/* Halves of a number lie at that number modulo BOARD_HALVES. */
struct board_lane {
    struct board_half halves[2][BOARD_HALVES]; /* received, sent */
    uint64_t n[2];                             /* each its rank's alone */
};

/* What ranks call must be the same. */
struct board_call {
    int kind, type, peer;
    size_t count;
};
struct board_member {
    _Atomic int pid;              /* 0: has not joined */
    _Atomic int gpu;              /* of the machine */
    _Atomic bool finalized, left; /* it does no more; nothing more comes from it */
    _Atomic uint64_t n_calls;
    _Atomic uint64_t n_under_way; /* launches */
    _Atomic uint64_t stuck_at;    /* progress: nothing of it can go on until that changes */
    struct board_call calls[BOARD_CALLS];
};

struct nccl_board {
    uint64_t key;
    _Atomic int n_ranks; /* 0: nobody has said */
    _Atomic bool broken; /* misuse that would hang; reported, and everything ends */
    _Atomic uint64_t progress;
    struct board_member members[STANDIN_MOST_GPUS];
    struct board_lane lanes[STANDIN_MOST_GPUS][STANDIN_MOST_GPUS][2]; /* from, to, collectives */
};

/* A new one's id, of so many bytes. Where the stand-in has several processes it is theirs. */
bool board_make_id(char *id, size_t bytes);
/* That of an id; NULL: it is no id, or who has made it is gone. Kept to the end. */
struct nccl_board *board_find(const char *id);
void board_reset(void);

int board_joined(const struct nccl_board *board);
/* A process of it has ended without leaving. */
bool board_has_lost(const struct nccl_board *board);

static inline void board_move(struct nccl_board *board)
{
    atomic_fetch_add(&board->progress, 1);
}

/* Whether the half of that number has come so far, and no further. */
static inline bool board_is(const struct board_half *half, uint64_t number, enum board_phase phase)
{
    return atomic_load(&half->state) == (number << 2 | phase);
}

static inline void board_set(struct board_half *half, uint64_t number, enum board_phase phase)
{
    atomic_store(&half->state, number << 2 | phase);
}

/* Whether that number was called for. */
static inline bool board_has(const struct board_half *half, uint64_t number)
{
    uint64_t state = atomic_load(&half->state);
    return (state & 3) != BOARD_EMPTY && state >> 2 == number;
}

#endif
