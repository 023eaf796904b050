/* cgroup: limits of memory that the kernel keeps for groups of processes, such as containers. */
#ifndef ZINF_CGROUP_H
#define ZINF_CGROUP_H

#include "base/base.h"

/* Bytes that this process's groups leave, of version 1 and 2; UINT64_MAX: no limit. root goes
 * before every path: "" but for tests. */
uint64_t zinf_cgroup_memory_left(const char *root);

#endif
