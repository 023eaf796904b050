/*
 * launch: chooses hosts and GPUs for a training's ranks, with the files and filters of DeepSpeed's
 * launcher: a hostfile of "NAME slots=N" lines, and filters "NAME:0,2@NAME". Each slot gets a
 * rank.
 */
#ifndef ZINF_CLI_LAUNCH_H
#define ZINF_CLI_LAUNCH_H

#include "base/base.h"

#define LAUNCH_MOST_SLOTS 64 /* of a host */

struct launch_host {
    char name[256];
    uint32_t n_slots;
    uint64_t used; /* bit i: slot i is used */
};
struct launch_hosts {
    struct launch_host *at; /* on the heap, in the order of the file */
    uint32_t n;
};

/* -EINVAL: a line is wrong, a host occurs twice, or there is none; the message names the line. */
int launch_read_hosts(struct launch_hosts *out, const char *path);
/* Makes a list of this machine alone. */
int launch_this_host(struct launch_hosts *out, uint32_t n_slots);
void launch_free_hosts(struct launch_hosts *hosts);

/* Which hosts and slots to use; NULL and 0 mean all. -EINVAL: a host or slot does not exist, or
 * none is left. */
struct launch_choice {
    const char *include, *exclude;
    /* use only the first n_hosts hosts, and of each the first n_slots slots */
    uint32_t n_hosts, n_slots;
};
int launch_choose(struct launch_hosts *hosts, const struct launch_choice *choice);

/* Number of used slots of a host. */
uint32_t launch_count(const struct launch_host *host);
bool launch_uses_all(const struct launch_host *host);

/* Names of variables from .deepspeed_env. Their values are set in this process's environment. */
#define LAUNCH_MOST_VARIABLES 256
struct launch_variables {
    char *names[LAUNCH_MOST_VARIABLES];
    uint32_t n;
};
/* Reads lines NAME=VALUE of .deepspeed_env in the home folder and then in the working folder, whose
 * lines win; both are optional. DS_ENV_FILE names another file. -EINVAL: the message names the
 * line. */
int launch_read_variables(struct launch_variables *out);
void launch_free_variables(struct launch_variables *variables);

#endif
