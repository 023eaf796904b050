/*
 * bench_nvme: what the parts of `zinf bench nvme` share: what was asked (bench_nvme.c), what was
 * measured (bench_nvme_measure.c), how it is shown (bench_nvme_text.c).
 */
#ifndef ZINF_CLI_BENCH_NVME_H
#define ZINF_CLI_BENCH_NVME_H

#include "aio/drive_bench.h"
#include "cli/bench/bench.h"

#define NVME_MIXES 3 /* enum zinf_aio_bench_mix */
#define NVME_MAX_PATHS 64
#define NVME_MAX_SWEEP 64
#define NVME_ENGINES 4

struct nvme_point {
    uint32_t block_bytes, queue_depth;
    struct zinf_aio_bench_result result;
};

struct nvme_engine_row {
    const char *name;
    const char *refused; /* why it cannot be used here, or NULL */
    struct zinf_aio_bench_result result[NVME_MIXES];
};

struct nvme_bench {
    /* what was asked */
    char *paths[NVME_MAX_PATHS]; /* canonical, on the heap */
    int n_paths;
    uint64_t bytes;                    /* of data; 0: by the drive's speed */
    bool wanted[NVME_MIXES];           /* all, where none was named */
    enum zinf_aio_bench_mix key_mix;   /* settings are chosen by this */
    uint32_t block_bytes, queue_depth; /* 0: what is best */
    enum zinf_aio_engine engine;
    double seconds; /* of each figure; 0: a pass over the data */
    int n_jobs;
    bool random, sweep_all, json;
    struct cli_progress progress;

    /* what was measured */
    struct zinf_store *store;
    zinf_extent extent;
    double pass_seconds;                               /* of the first write of the data */
    struct zinf_aio_bench_rates rates[NVME_MAX_PATHS]; /* of each of several paths; mixed 0: not */
    struct nvme_point sweep[NVME_MAX_SWEEP];
    int n_sweep;
    uint32_t best_block_bytes, best_depth;
    struct zinf_aio_bench_result main[NVME_MIXES];
    struct zinf_aio_bench_result alone; /* reads of a small block, one after the other */
    /* Of reads and writes beside a thread a CPU that only computes: their rate as a part of that
     * alone, that of the threads, and the CPU seconds that these lose for each byte. 0: not known
     */
    double busy_drive, busy_threads, lost_cpu_per_byte;
    struct nvme_engine_row engines[NVME_ENGINES];
    uint64_t bytes_written; /* to the drive, by all of it */
};

extern const char *const nvme_mix_names[NVME_MIXES];
/* CPU seconds for each byte moved; 0 if nothing was. */
double nvme_cpu_per_byte(const struct zinf_aio_bench_result *result);

/* Seconds until a drive that has nothing to do answers, without those of the bytes; 0: not known.
 */
double nvme_answer_seconds(const struct nvme_bench *bench);

int nvme_measure(struct nvme_bench *bench);
/* bench_busy.c: by so many runs; they and their time are counted in the progress. */
#define NVME_BUSY_RUNS 4
typedef int nvme_run(struct nvme_bench *bench, const struct zinf_aio_bench_options *options,
                     const char *what, struct zinf_aio_bench_result *result);
int nvme_measure_busy(struct nvme_bench *bench, const struct zinf_aio_bench_options *options,
                      nvme_run *run);

/* Bytes for each parameter that a step moves with what of the training state on the drive. */
struct nvme_form {
    const char *name, *reads, *writes;
    double read_bytes, write_bytes;
};
#define NVME_FORMS 3
extern const struct nvme_form nvme_forms[NVME_FORMS];
#define NVME_MODELS 3
struct nvme_model {
    const char *name;
    double params;
};
extern const struct nvme_model nvme_models[NVME_MODELS];
/* Seconds of a step that the drive alone takes: what goes both ways at the mixed rate, the rest at
 * the rate of reads. 0: not all of the rates were measured. */
double nvme_step_seconds(const struct nvme_bench *bench, const struct nvme_form *form,
                         double params);

void nvme_print(const struct nvme_bench *bench, FILE *out);
/* NULL without memory; free with cJSON_Delete. */

#endif
