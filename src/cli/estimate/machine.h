/*
 * machine: a machine that is not here, for `zinf estimate`: a card by its name, a JSON file, and
 * single figures in their place. Every figure has its source with it, which the estimate prints.
 * Nothing is looked up on the machine that runs.
 */
#ifndef ZINF_CLI_MACHINE_H
#define ZINF_CLI_MACHINE_H

#include "base/json.h"
#include "train/estimate.h"

#include <stdio.h>

enum machine_figure {
    MACHINE_GPU_MEMORY, /* bytes */
    MACHINE_BF16,       /* flops a second of matrix products in bf16 and fp16 */
    MACHINE_FP32,
    MACHINE_BANDWIDTH, /* bytes a second of the GPU's memory */
    MACHINE_LINK,      /* bytes a second between RAM and GPU, each way, both at once */
    MACHINE_RAM,       /* bytes */
    MACHINE_THREADS,
    MACHINE_CPU,        /* flops a second of the CPU's products in fp32 */
    MACHINE_OPTIMIZER,  /* bytes a second that an update on the CPU reads and writes */
    MACHINE_DRIVE_READ, /* bytes a second; several drives add up */
    MACHINE_DRIVE_WRITE,
    MACHINE_DRIVE_MIXED, /* read and written at once, together */
    MACHINE_DRIVE_SIZE,  /* bytes */
    MACHINE_TBW,         /* bytes that the drives may be written */
    MACHINE_POWER,       /* watts */
    MACHINE_ROOT, /* bytes a second between RAM and all GPUs together, each way, both at once */
    MACHINE_PEER, /* bytes a second from a GPU to others, past the RAM */
    MACHINE_FIGURES,
};
#define MACHINE_SOURCE_BYTES 192
struct machine {
    char name[160];
    bool has_gpu;
    int capability; /* 90: 9.0; 0: of a current GPU */
    struct {
        double value; /* 0: not known */
        char source[MACHINE_SOURCE_BYTES];
    } figures[MACHINE_FIGURES];
};

/* "4090", "4090,ram=64G,nvme=7/6", "desk.json,power=600": a card of the table, "cpu" for none, or a
 * file; then figures. What nobody says is assumed and called so. -EINVAL names the word. */
int machine_parse(struct machine *out, const char *spec);
/* Calls see for each machine of a list, whose figures follow it: "4090,ram=64G,h100". */
int machine_each(const char *list, int (*see)(void *arg, const char *spec), void *arg);

void machine_speeds(const struct machine *machine, enum zinf_dtype dtype, struct zinf_speeds *out);
void machine_describe(const struct machine *machine, struct zinf_described_machine *out);
/* A line a figure, with its source. */
void machine_print(FILE *out, const struct machine *machine, int label_cols);
/* {"name": ..., "figures": {"ram": {"value": ..., "source": ...}, ...}} */
cJSON *machine_json(const struct machine *machine);

/* ---- what the files of machine share ---- */

void machine_set(struct machine *machine, enum machine_figure figure, double value,
                 const char *source);
/* machine_cards.c: fills in a card by its name; false: there is none. */
bool machine_take_card(struct machine *machine, const char *name);
/* "3090, 4090, ...", into buffer (returned). */
const char *machine_card_names(char *buffer, size_t bytes);
/* machine_file.c */
int machine_read_file(struct machine *machine, const char *path);

/* The machines that have a name, one by one; NULL behind the last. */
const char *machine_word(size_t i);

#endif
