/*
 * numa: what the system is asked for memory near a GPU, on a machine that has two nodes: the calls
 * of libnuma that memory.c makes are this file's.
 */
#include "base/memory.h"
#include "tap.h"

#include <numa.h>
#include <numaif.h>
#include <unistd.h>

static int last_node, n_calls, mode;
static bool has_numa;
static unsigned flags;
static uintptr_t from;
static unsigned long length, mask_bits, mask[64];
static int refusal; /* an errno */

int numa_available(void)
{
    return has_numa ? 0 : -1;
}

int numa_max_node(void)
{
    return last_node;
}

long mbind(void *start, unsigned long len, int policy, const unsigned long *nodes,
           unsigned long max_node, unsigned how)
{
    n_calls++;
    from = (uintptr_t)start;
    length = len;
    mode = policy;
    flags = how;
    mask_bits = max_node;
    memcpy(mask, nodes, sizeof mask);
    errno = refusal;
    return refusal ? -1 : 0;
}

static void begin(bool has, int last)
{
    has_numa = has;
    last_node = last;
    n_calls = refusal = 0;
}

/* All whole pages, and no other, prefer the node; what lies elsewhere is moved. */
static void test_pages_prefer_a_node(void)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    begin(true, 1);
    CHECK(!zinf_memory_place((void *)(8 * page + 100), 3 * page, 1) && n_calls == 1);
    CHECKF(from == 9 * page && length == 2 * page, "%lu bytes", length);
    CHECK(mode == MPOL_PREFERRED && flags == MPOL_MF_MOVE && mask[0] == 2 && mask_bits > 64);
    begin(true, 130);
    CHECK(!zinf_memory_place((void *)(8 * page), page, 130) && n_calls == 1);
    CHECK(!mask[0] && !mask[1] && mask[2] == 4);
}

static void test_nothing_is_placed(void)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    begin(true, 0); /* one node */
    CHECK(!zinf_memory_place((void *)page, page, 0));
    begin(false, 1);
    CHECK(!zinf_memory_place((void *)page, page, 1) && !n_calls);
    begin(true, 1);
    CHECK(!zinf_memory_place((void *)page, page, -1));              /* nobody knows the node */
    CHECK(!zinf_memory_place((void *)(page + 1), 2 * page - 2, 1)); /* no whole page */
    CHECK(!zinf_memory_place((void *)page, page, 1 << 20) && !n_calls);
}

static void test_a_refusal_is_said(void)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    begin(true, 1);
    refusal = EPERM;
    CHECK(zinf_memory_place((void *)page, page, 1) == -EPERM);
    CHECKF(strstr(zinf_error(), "NUMA node 1"), "%s", zinf_error());
}

int main(void)
{
    TAP_RUN(test_pages_prefer_a_node);
    TAP_RUN(test_nothing_is_placed);
    TAP_RUN(test_a_refusal_is_said);
    return tap_done();
}
