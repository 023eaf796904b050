/*
 * launch: which hosts and which of their GPUs a training's ranks go to, in the words of DeepSpeed's
 * launcher: a hostfile of "NAME slots=N" lines, and filters "NAME:0,2@NAME". One rank a slot.
 */
#ifndef ZINF_CLI_LAUNCH_H
#define ZINF_CLI_LAUNCH_H

#include "base/base.h"

#define LAUNCH_MOST_SLOTS 64 /* of a host */

struct launch_host {
    char name[256];
    uint32_t n_slots;
    uint64_t used; /* a bit a slot */
};
struct launch_hosts {
    struct launch_host *at; /* on the heap, in the order of the file */
    uint32_t n;
};

/* -EINVAL names the line: what is no host, a host that is there twice, or none at all. */
int launch_read_hosts(struct launch_hosts *out, const char *path);
/* This machine with so many slots. */
int launch_this_host(struct launch_hosts *out, uint32_t n_slots);
void launch_free_hosts(struct launch_hosts *hosts);

/* What of them is used; NULL and 0: all. -EINVAL: names a host or a slot that is not there, or
 * nothing is left. */
struct launch_choice {
    const char *include, *exclude;
    uint32_t n_hosts, n_slots; /* the first so many hosts, and of each the first so many slots */
};
int launch_choose(struct launch_hosts *hosts, const struct launch_choice *choice);

/* Of the hosts that are used. */
uint32_t launch_count(const struct launch_host *host);
bool launch_uses_all(const struct launch_host *host);

/* Names of what .deepspeed_env says, whose values are this process's environment from then on. */
#define LAUNCH_MOST_VARIABLES 256
struct launch_variables {
    char *names[LAUNCH_MOST_VARIABLES];
    uint32_t n;
};
/* Lines NAME=VALUE of .deepspeed_env in the home folder, then of that in the working folder, whose
 * lines win; either may be missing. DS_ENV_FILE names another file than .deepspeed_env. -EINVAL
 * names the line. */
int launch_read_variables(struct launch_variables *out);
void launch_free_variables(struct launch_variables *variables);

#endif
