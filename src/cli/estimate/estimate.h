/* estimate: what the files of `zinf estimate` share. */
#ifndef ZINF_CLI_ESTIMATE_H
#define ZINF_CLI_ESTIMATE_H

#include "api/speeds.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/estimate/machine.h"
#include "train/estimate.h"

/* A change of the machine, and the step that it gives; seconds 0: it changes nothing that counts,
 * or does not apply. */
struct estimate_change {
    const char *what;
    double step_seconds;
};
#define ESTIMATE_CHANGES 8

#define ESTIMATE_TBW 6e14 /* bytes: of a common drive of 1 TB */
struct estimate {
    struct zinf_estimate now;
    struct estimate_change changes[ESTIMATE_CHANGES];
    int n_changes;
    double tbw; /* bytes that the drive may be written, by its maker */
    struct speed_sources sources;
    int64_t seq_len;
    double tokens;       /* of a training, to say how long it takes; 0: none */
    uint64_t drive_free; /* where the drives are; UINT64_MAX: not known */
    char drive_path[256];
    double steps_apart; /* zinf_rates; 0: nothing was measured */
    double range[2]; /* seconds of a step by the drive's fastest and slowest rate; 0: not known */
    const struct machine *machine;     /* the one that is described; NULL: this one */
    double watts;                      /* 0: not known */
    double price;                      /* of an hour, in whatever money; 0: not given */
    uint32_t ranks, local_ranks;       /* at least 1; of all, and on each host; */
    uint32_t seats;                    /* of these in each process */
    const struct zinf_pipe_rank *pipe; /* [now.pipe_ranks] */
};
static inline double estimate_written_a_day(const struct estimate *e)
{
    return (double)e->now.lane_bytes[1] * 86400 / e->now.step_seconds;
}
/* On the drives of a host, by all of its ranks. */
static inline uint64_t estimate_drive_bytes(const struct estimate *e)
{
    return e->now.bytes[2] * (e->local_ranks ? e->local_ranks : 1);
}
/* Of the matrix products' measured rate. */
static inline double estimate_utilisation(const struct estimate *e)
{
    return e->now.model_flops / e->now.step_seconds / e->now.matrix_flops;
}

/* Of a training of e->tokens. */
double estimate_length_seconds(const struct estimate *e);
double estimate_length_written(const struct estimate *e);
double estimate_length_kwh(const struct estimate *e);
/* Of a million tokens. */
static inline double estimate_price(const struct estimate *e)
{
    return 1e6 / (double)e->now.tokens * e->now.step_seconds / 3600 * e->price;
}

const char *estimate_lane(int lane); /* "drive reads" */
/* Seconds of a step, by the plan of `now`, with the drive as fast and as slow as it was measured;
 * zeros: nothing varied, or the plan does not use a drive. */
void estimate_range(const struct zinf_estimate_options *options, const struct zinf_estimate *now,
                    double range[2]);
/* "rank 1 needs most: device 1.2 MiB, ..."; empty if all ranks need the same. */
void estimate_most_text(char *out, size_t bytes, const struct zinf_planned *planned);
/* The same for programs: bytes of each tier and the rank that needs them. */
void estimate_add_most(cJSON *root, const struct zinf_planned *planned);
void estimate_print(const struct estimate *e);
cJSON *estimate_json(const struct estimate *e);

/* Fills an estimate of a training on a machine: options has what is the same on all of them. */
struct estimate_request {
    struct zinf_trainer_options trainer;
    double tbw, tokens, watts; /* 0: the machine's */
    bool json;
};
int estimate_described(struct estimate *e, const struct estimate_request *request,
                       const struct machine *machine, struct zinf_estimate_options *options);
/* The longest sequence that fits, up to context: to a chunk of several (0: there are none), else
 * within one part in 64. fits: 0, or -ENOMEM where it does not. -ENOMEM: none fits. */
int estimate_longest(int (*fits)(void *arg, int64_t seq_len), void *arg, int64_t context,
                     int64_t chunk, int64_t *seq_len);
/* A table of machines, "4090,ram=64G,h100"; one that the training does not fit says so. */
int estimate_compare(const struct estimate_request *request, const char *machines);
/* estimate_sources.c: a line a rate that counts, with its source; in a few words, which of them are
 * measured; and as JSON. */
void estimate_print_sources(const struct estimate *e, int label_cols);
void estimate_sources_line(const struct speed_sources *sources, bool drives, char *out,
                           size_t bytes);
cJSON *estimate_sources_json(const struct estimate *e);
/* estimate_place.c: tries placements without a configuration, the nearest first, until one fits.
 * fits: 0, or -ENOMEM where it does not, for which the next one is tried. text: the configuration
 * of the last. usual: what is not of the placement; drive: the folder for what goes to one; NULL:
 * one beside where the training begins. */
#define ESTIMATE_PLACED 16384
int estimate_place(const struct zinf_config *usual, const struct zinf_config_context *context,
                   const char *drive, int (*fits)(void *arg, const struct zinf_config *config),
                   void *arg, char text[ESTIMATE_PLACED]);
/* Prints it in one line, and writes it to path; NULL: nowhere. */
int estimate_suggest(const char *text, const char *path);
/* Room where the configuration keeps things on drives, if those are of this machine. */
void estimate_drive_room(struct estimate *e, const struct zinf_config *config);

#endif
