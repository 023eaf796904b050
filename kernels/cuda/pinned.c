/*
 * pinned: host memory that CUDA has page-locked, by any device of the process: a registration is
 * portable, so every GPU copies from and to what another has registered. A driver limits how much
 * one call takes, and one copy must not go over the edge of two: memory is registered in pieces,
 * and pinned_part says where a copy is to be cut.
 */
#include "kernels/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>

/* Drivers keep 16 bytes a page in one allocation of at most 2 GiB, which ends at 512 GiB; some have
 * refused 32 GiB now and then. A refused piece is halved, down to what is not worth a call. */
#define LARGEST_PIECE ((uint64_t)16 << 30)
#define LEAST_PIECE ((uint64_t)256 << 10)

struct pinned_range {
    uintptr_t from, end;
    const void *whole; /* the memory whose registration it is a piece of */
    const struct cuda_device *by;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static struct pinned_range *ranges;                      /* by address; they do not overlap */
static size_t n_ranges, room;

/* The first range that ends behind at; n_ranges: none does. */
static size_t first_behind(uintptr_t at)
{
    size_t low = 0, high = n_ranges;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint64_t pinned_part(const void *base, uint64_t bytes, bool *pinned)
{
    uintptr_t from = (uintptr_t)base;
    uint64_t part = bytes;
    pthread_mutex_lock(&lock);
    size_t i = first_behind(from);
    *pinned = i < n_ranges && ranges[i].from <= from;
    if (*pinned && ranges[i].end - from < bytes)
        part = ranges[i].end - from;
    else if (!*pinned && i < n_ranges && ranges[i].from - from < bytes)
        part = ranges[i].from - from;
    pthread_mutex_unlock(&lock);
    return part;
}

static int remember(const struct pinned_range *range)
{
    int code = 0;
    pthread_mutex_lock(&lock);
    if (n_ranges == room) {
        size_t more = 2 * room + 8;
        struct pinned_range *grown = realloc(ranges, more * sizeof *grown);
        if (grown) {
            ranges = grown;
            room = more;
        } else {
            code = zinf_fail(-ENOMEM, "no memory to list page-locked ranges");
        }
    }
    if (!code) {
        size_t i = first_behind(range->from);
        memmove(ranges + i + 1, ranges + i, (n_ranges++ - i) * sizeof *ranges);
        ranges[i] = *range;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* What the driver refuses is tried in halves, as long as those are worth it. */
int cuda_host_register(struct zinf_device *device, void *base, uint64_t bytes)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    char operation[96], size[2][16];
    uint64_t done = 0, piece = LARGEST_PIECE;
    int code = 0;
    cudaSetDevice(cuda->index);
    while (!code && done < bytes) {
        char *from = (char *)base + done;
        uint64_t n = bytes - done < piece ? bytes - done : piece;
        cudaError_t error = cudaHostRegister(from, n, cudaHostRegisterPortable);
        if (error != cudaSuccess && error != cudaErrorNotSupported && n > LEAST_PIECE) {
            cudaGetLastError();
            piece = zinf_align_up(n / 2, LEAST_PIECE);
            continue;
        }
        snprintf(operation, sizeof operation, "page-locking host memory behind the first %s of %s",
                 zinf_size_format(size[0], sizeof size[0], done),
                 zinf_size_format(size[1], sizeof size[1], bytes));
        CUDA_RETURN(error, operation, n);
        code = remember(&(struct pinned_range){(uintptr_t)from, (uintptr_t)from + n, base, cuda});
        if (code)
            cudaHostUnregister(from);
        done += n;
    }
    return code;
}

/* whole NULL: all that the device has registered. */
static void release(const struct cuda_device *by, const void *whole)
{
    size_t kept = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_ranges; i++) {
        if (ranges[i].by == by && (!whole || ranges[i].whole == whole))
            cudaHostUnregister((void *)ranges[i].from);
        else
            ranges[kept++] = ranges[i];
    }
    n_ranges = kept;
    if (!n_ranges) {
        free(ranges);
        ranges = NULL;
        room = 0;
    }
    pthread_mutex_unlock(&lock);
}

void cuda_host_unregister(struct zinf_device *device, void *base)
{
    if (base)
        release((struct cuda_device *)device, base);
}

void pinned_release_all(const struct cuda_device *device)
{
    release(device, NULL);
}
