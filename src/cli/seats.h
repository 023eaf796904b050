/*
 * seats: with whom this process works, as a launcher has it; then how many devices it drives, and
 * which: asked for by --seats, zinf.seats or --devices; where nobody asks, all GPUs that are
 * visible, shared by the processes of a host, and of host devices one.
 */
#ifndef ZINF_CLI_SEATS_H
#define ZINF_CLI_SEATS_H

#include "cli/data.h"

#define CLI_SEAT_OPTIONS(c)                                                                        \
    {"--seats", CLI_INT, &(c)->seats, 1, 1024},                                                    \
    {                                                                                              \
        "--devices", CLI_STRING, &(c)->devices, 0, 0                                               \
    }

#define CLI_MOST_GPUS 64
struct cli_seats {
    int gpus[CLI_MOST_GPUS];
    int n_gpus; /* that are named; 0: none is */
};
/* The other processes, whose log this one leaves to rank 0's; *net NULL: there are none. They come
 * at their own pace: the net is patient. */
int cli_ranks_find(struct zinf_net **net, struct zinf_job *c);
bool cli_ranks_is_first(const struct zinf_net *net);
/* What train and eval do where a seat hangs (train/seats.h): say it and end the process. */
void cli_seats_stuck(void);
/* For what one process does alone (`what`: "texts are made"): true for the first of those that a
 * launcher started, which says so, and where there are no others. */
bool cli_ranks_works_alone(const char *what);
/* Reads --devices into seats, and sets what a configuration is told of both. net: of processes, or
 * NULL. -EINVAL, a wrong use, with a sentence. */
int cli_seats_find(struct cli_seats *seats, struct zinf_job *c, const struct zinf_net *net);
/* Nobody has asked for several, and this training or evaluation cannot be shared: one GPU is taken,
 * which is said, and the configuration is to be read anew. */
bool cli_seats_leave_one(struct zinf_job *c, const struct zinf_config *config);
/* The GPUs of n seats, or NULL: those of the process's share of its host's. */
const int *cli_seats_gpus(const struct cli_seats *seats);

#endif
