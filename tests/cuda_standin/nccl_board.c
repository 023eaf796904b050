/* nccl_board: boards and their ids. */
#include "nccl_board.h"
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BOARDS = 64 };

/* As this process sees them. */
static struct {
    uint64_t key;
    struct nccl_board *board;
    struct shared_place place; /* pid 0: it is this process's alone */
} boards[MOST_BOARDS];
static int n_boards;
static uint64_t n_ids;

void board_reset(void)
{
    for (int i = 0; i < n_boards; i++)
        if (!boards[i].place.pid)
            order_give(boards[i].board);
    n_boards = 0; /* those of several processes go with the last of these */
}

/* Another for each, and for each process. */
static uint64_t new_key(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) * 31 + ++n_ids;
}

static struct nccl_board *keep(struct nccl_board *board, uint64_t key,
                               const struct shared_place *place)
{
    boards[n_boards].key = key;
    boards[n_boards].board = board;
    boards[n_boards++].place = *place;
    return board;
}

bool board_make_id(char *id, size_t bytes)
{
    struct shared_place place = {0};
    uint64_t key = new_key();
    struct nccl_board *board = NULL;
    if (n_boards < MOST_BOARDS)
        board = standin_options()->processes ? shared_create(&place, sizeof *board)
                                             : order_take(sizeof *board);
    if (!board)
        return false;
    keep(board, key, &place);
    board->key = key;
    snprintf(id, bytes, "stand-in %llx %d %d %llu", (unsigned long long)key, place.pid, place.fd,
             (unsigned long long)place.serial);
    return true;
}

struct nccl_board *board_find(const char *id)
{
    struct shared_place place = {.bytes = sizeof(struct nccl_board)};
    unsigned long long key = 0, serial = 0;
    if (sscanf(id, "stand-in %llx %d %d %llu", &key, &place.pid, &place.fd, &serial) != 4)
        return NULL;
    place.serial = serial;
    for (int i = 0; i < n_boards; i++)
        if (boards[i].key == key)
            return boards[i].board;
    if (!place.pid || n_boards == MOST_BOARDS)
        return NULL;
    struct nccl_board *board = shared_find(&place, true);
    return board && board->key == key ? keep(board, key, &place) : NULL;
}

int board_joined(const struct nccl_board *board)
{
    int n = 0;
    for (int r = 0; r < STANDIN_MOST_GPUS; r++)
        n += atomic_load(&board->members[r].pid) != 0;
    return n;
}

bool board_has_lost(const struct nccl_board *board)
{
    for (int r = 0; r < STANDIN_MOST_GPUS; r++) {
        int pid = atomic_load(&board->members[r].pid);
        if (pid && pid != getpid() && !atomic_load(&board->members[r].left) &&
            shared_has_ended(pid))
            return true;
    }
    return false;
}
