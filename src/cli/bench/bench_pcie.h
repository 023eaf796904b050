/* bench_pcie: what the files of `zinf bench pcie` share. In src/cli only. */
#ifndef ZINF_CLI_BENCH_PCIE_H
#define ZINF_CLI_BENCH_PCIE_H

#include "cli/bench/bench_device.h"

enum pcie_direction { PCIE_TO_DEVICE, PCIE_TO_HOST, PCIE_BOTH, PCIE_DIRECTIONS };
extern const char *const pcie_directions[PCIE_DIRECTIONS]; /* "to_device" */
/* Training copies whole layers: rates of less say nothing about it. */
#define PCIE_LEAST_BYTES ((uint64_t)16 << 20)

/* Enqueues copies of page-locked memory between host and b's device: of bytes, from the front of
 * both to the device, to the host from and to what lies bytes behind. */
int pcie_enqueue(struct bench_device *b, uint64_t bytes, enum pcie_direction direction);
/* Two to n GPUs at once, of which b is the first, and from GPU to GPU; prints, or fills result, and
 * keeps what a plan needs. */
int pcie_measure_gpus(struct bench_device *b, int n, uint64_t bytes, cJSON *result);

#endif
