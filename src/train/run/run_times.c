/*
 * run_times: what a step took on each of the process's seats. Seat 0 logs it; the bytes of drives,
 * which each seat reads and writes for itself, are those of all.
 */
#include "train/run/run.h"

#include <stdlib.h>

int run_share_times(struct run *run, struct zinf_step_result *result)
{
    struct run_seat_times mine;
    if (!run->net)
        return 0;
    struct zinf_net_place at = zinf_net_place(run->net);
    if (!run->times)
        run->times = calloc(at.world, sizeof *run->times);
    if (!run->times)
        return zinf_fail(-ENOMEM, "no memory for the times of %u ranks", at.world);
    memcpy(mine.lane_seconds, result->lane_seconds, sizeof mine.lane_seconds);
    memcpy(mine.lane_bytes, result->lane_bytes, sizeof mine.lane_bytes);
    int code = zinf_net_gather(run->net, &mine, run->times, sizeof mine);
    uint32_t first = at.rank - at.seat;
    for (uint32_t s = 0; !code && s < at.seats; s++)
        for (int lane = 0; s != at.seat && lane < RUN_DRIVE_LANES; lane++)
            result->lane_bytes[lane] += run->times[first + s].lane_bytes[lane];
    return code;
}

struct run_seats run_seats_of(const struct run *run)
{
    if (!run->times)
        return (struct run_seats){0};
    struct zinf_net_place at = zinf_net_place(run->net);
    return (struct run_seats){.times = run->times + (at.rank - at.seat),
                              .n = at.seats > 1 ? at.seats : 0};
}
