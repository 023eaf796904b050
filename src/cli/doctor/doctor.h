/*
 * doctor: the parts of `zinf doctor`. Each looks at one thing of the machine and adds a line to the
 * table: what it is, good or not, what was found, and for what is not good the remedy. A part that
 * cannot look adds a line that says so; a check never ends the others.
 */
#ifndef ZINF_CLI_DOCTOR_H
#define ZINF_CLI_DOCTOR_H

#include "base/json.h"
#include "cli/cli.h"
#include "kernels/kernels.h"

enum doctor_state { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_FAILED, DOCTOR_LEFT_OUT };

/* Prints a line, or keeps it for the JSON. remedy NULL: none is needed. */
struct doctor {
    cJSON *lines; /* NULL: printed at once */
    bool failed;
};
void doctor_line(struct doctor *d, const char *what, enum doctor_state state, const char *remedy,
                 const char *format, ...) ZINF_PRINTF(5, 6);

/* ---- doctor_device.c ---- */

void doctor_driver(struct doctor *d);
/* The module, its libraries and where they were found; whether it can be used. */
bool doctor_libraries(struct doctor *d);
/* The GPU; free memory, and how much of it can be taken in one piece. false: it does not open. */
bool doctor_gpu(struct doctor *d);
/* Page-locking, and copies of page-locked memory each way and both ways at once. */
void doctor_copies(struct doctor *d);

/* NCCL, by which several GPUs send to each other, and whether those of several processes can. */
void doctor_links(struct doctor *d);

/* ---- doctor_kernels.c ---- */

/* Every kernel of the GPU on small shapes, against the host. */
void doctor_kernels(struct doctor *d);

/* ---- doctor_step.c ---- */

/* Two steps of a tiny model by `zinf train`, on the GPU and on the host. */
void doctor_step(struct doctor *d);

#endif
