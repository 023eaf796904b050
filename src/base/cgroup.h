/* cgroup: the memory limits that the kernel keeps for groups of processes, such as containers. */
#ifndef ZINF_CGROUP_H
#define ZINF_CGROUP_H

#include "base/base.h"

/* Bytes that may still be taken under the limits of this process's groups, of cgroup version 1 and
 * 2; UINT64_MAX: no limit. Paths are read below root, which is "" except in tests. */
uint64_t zinf_cgroup_memory_left(const char *root);

#endif
