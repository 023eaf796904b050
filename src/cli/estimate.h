/* estimate: what the files of `zinf estimate` share. */
#ifndef ZINF_CLI_ESTIMATE_H
#define ZINF_CLI_ESTIMATE_H

#include "base/json.h"
#include "cli/data.h"

/* A change of the machine, and the step that it gives; seconds 0: it changes nothing that counts,
 * or does not apply. */
struct estimate_change {
    const char *what;
    double step_seconds;
};
#define ESTIMATE_CHANGES 4

struct estimate {
    struct zinf_estimate now;
    struct estimate_change changes[ESTIMATE_CHANGES];
    int n_changes;
    double tbw;         /* bytes that the drive may be written, by its maker */
    const char *source; /* of the speeds */
    double steps_apart; /* zinf_rates; 0: nothing was measured */
};
static inline double estimate_written_a_day(const struct estimate *e)
{
    return (double)e->now.lane_bytes[1] * 86400 / e->now.step_seconds;
}
/* Of the matrix products' measured rate. */
static inline double estimate_utilisation(const struct estimate *e)
{
    return e->now.model_flops / e->now.step_seconds / e->now.matrix_flops;
}

void estimate_print(const struct estimate *e);
int estimate_print_json(const struct estimate *e);
/* From what `zinf bench` left; *source says so. dtype: of the parameters. */
void estimate_cached_speeds(struct zinf_speeds *out, const struct zinf_config *config,
                            const char **source);

#endif
