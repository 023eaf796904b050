/*
 * machine: what the stand-in's machine has: how many GPUs of which capability, a driver or one that
 * is too old, and the record of what its user did: faults, counters, injected failures.
 */
#include "order.h"
#include "standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct standin_options options;
static uint64_t random_state;
static int launches_left, waits_left; /* until they fail; 0: never */
static bool broken;
static int faults, live, nvtx_depth;
static char first_fault[400];
static uint64_t kernels;
static struct standin_products products;
enum { MOST_KERNELS = 4096 };
static struct loaded {
    const void *kernel;
    unsigned gpus; /* a bit for each that has its code */
} loaded[MOST_KERNELS];
static _Thread_local cudaError_t last_error; /* as CUDA's */
static _Thread_local int current_gpu;

/* Guards everything in this folder. */
int standin_lock(void)
{
    order_lock();
    return 0;
}

void standin_unlock(const int *unused)
{
    (void)unused;
    order_unlock();
}

const struct standin_options *standin_options(void)
{
    return &options;
}

void standin_start(const struct standin_options *wanted)
{
    STANDIN_CALL;
    static const struct standin_options defaults;
    options = wanted ? *wanted : defaults;
    options.at_once = options.at_once && order_is_watched();
    options.capability = options.capability ? options.capability : 80;
    options.gpus = options.gpus ? options.gpus : 1;
    random_state = options.seed * 2654435761u + 88172645463325252u;
    faults = live = nvtx_depth = 0;
    launches_left = waits_left = 0;
    broken = false;
    kernels = 0;
    last_error = cudaSuccess;
    current_gpu = 0;
    memset(loaded, 0, sizeof loaded);
    standin_peers_reset();
    standin_queues_reset();
    standin_nccl_reset();
    standin_memory_reset(&options);
}

bool standin_await_others(uint64_t *since)
{
    struct timespec now;
    const uint64_t most_ms = options.patience_ms ? options.patience_ms : 10000;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    *since = *since ? *since : now_ms;
    return now_ms - *since < most_ms && order_pause();
}

/* ---- kernels' code ---- */

/* The place of a kernel, or of the first free one behind where it would be. */
static struct loaded *loaded_place(const void *kernel)
{
    size_t at = (uintptr_t)kernel / 16 % MOST_KERNELS;
    while (loaded[at].kernel && loaded[at].kernel != kernel)
        at = (at + 1) % MOST_KERNELS;
    return &loaded[at];
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    STANDIN_CALL;
    if (options.capability < STANDIN_OLDEST)
        return standin_set_error(cudaErrorNoKernelImageForDevice);
    struct loaded *place = loaded_place(kernel);
    (void)attributes; /* nobody reads them, and with CUDA's header they are larger */
    place->kernel = kernel;
    place->gpus |= 1u << current_gpu;
    return cudaSuccess;
}

int standin_loaded(int gpu)
{
    STANDIN_CALL;
    int n = 0;
    for (size_t i = 0; i < MOST_KERNELS; i++)
        n += loaded[i].kernel && loaded[i].gpus >> gpu & 1;
    return n;
}

cudaError_t standin_check_loaded(const void *kernel, const char *name)
{
    STANDIN_CALL;
    return loaded_place(kernel)->gpus >> current_gpu & 1
               ? cudaSuccess
               : standin_fault(cudaErrorInvalidValue, "%s was not loaded when its GPU was opened",
                               name);
}

static bool is_among(const char *words, const char *kernel)
{
    char word[64];
    for (const char *at = words; at && *at; at += strspn(at, ",")) {
        const size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (strstr(kernel, word))
            return true;
        at += n;
    }
    return false;
}

bool standin_skips(const char *kernel)
{
    return is_among(options.skips, kernel);
}

bool standin_traps(const char *kernel)
{
    STANDIN_CALL;
    const bool traps = is_among(options.traps, kernel);
    broken = broken || traps;
    return traps;
}

/* ---- counters and errors ---- */

void standin_fail(int launch, int wait)
{
    STANDIN_CALL;
    launches_left = launch;
    waits_left = wait;
}

static bool fails(int *left)
{
    broken = broken || (*left && --*left == 0);
    return broken;
}

bool standin_launch_fails(void)
{
    return fails(&launches_left);
}

bool standin_wait_fails(void)
{
    return fails(&waits_left);
}

bool standin_is_broken(void)
{
    return broken;
}

void standin_forgive(void)
{
    STANDIN_CALL;
    faults = 0;
    broken = false;
}

int standin_faults(void)
{
    STANDIN_CALL;
    return faults + (nvtx_depth != 0);
}

const char *standin_first_fault(void)
{
    STANDIN_CALL;
    return faults ? first_fault : "";
}

int standin_live(void)
{
    STANDIN_CALL;
    return live;
}

void standin_count_product(uint64_t read_bytes, uint64_t written_bytes, bool odd)
{
    products.launches++;
    products.read_bytes += read_bytes;
    products.written_bytes += written_bytes;
    products.odd += odd;
}

void standin_pass(double milliseconds)
{
    products.milliseconds += milliseconds;
}

double standin_now(void)
{
    return products.milliseconds;
}

void standin_count_question(void)
{
    products.questions++;
}

void standin_products(struct standin_products *out)
{
    *out = products;
}

uint64_t standin_kernels(void)
{
    return kernels;
}

void standin_blocks_ran(uint64_t count)
{
    kernels += count;
}

void standin_count_live(int change)
{
    live += change;
}

uint32_t standin_random(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

cudaError_t standin_set_error(cudaError_t error)
{
    return last_error = error;
}

cudaError_t standin_fault(cudaError_t error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!faults++) {
        vsnprintf(first_fault, sizeof first_fault, format, args);
        printf("# stand-in: %s\n", first_fault);
    }
    va_end(args);
    return standin_set_error(error);
}

cudaError_t standin_break(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    broken = true;
    return standin_fault(cudaErrorIllegalAddress, "%s", text);
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "cudaError";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "refused by the stand-in";
}

int nvtxRangePushA(const char *message);
int nvtxRangePushA(const char *message)
{
    STANDIN_CALL;
    (void)message;
    return nvtx_depth++;
}

int nvtxRangePop(void);
int nvtxRangePop(void)
{
    STANDIN_CALL;
    return --nvtx_depth;
}

/* ---- GPUs ---- */

int standin_gpu(void)
{
    return current_gpu;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    if (options.old_driver)
        return standin_set_error(cudaErrorInsufficientDriver);
    *count = options.gpus;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    if (index < 0 || index >= options.gpus)
        return standin_fault(cudaErrorInvalidDevice, "device %d", index);
    current_gpu = index;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int index)
{
    memset(properties, 0, sizeof *properties);
    if (index < 0 || index >= options.gpus)
        return standin_fault(cudaErrorInvalidDevice, "properties of device %d", index);
    strcpy(properties->name, "stand-in");
    properties->major = options.capability / 10;
    properties->minor = options.capability % 10;
    return cudaSuccess;
}

/* An address that no machine has something at. */
cudaError_t cudaDeviceGetPCIBusId(char *bus, int bytes, int index)
{
    if (index < 0 || index >= options.gpus)
        return standin_fault(cudaErrorInvalidDevice, "bus of device %d", index);
    snprintf(bus, (size_t)bytes, "FFFF:%02X:1F.7", 0xf0 + index);
    return cudaSuccess;
}

int standin_capability(void)
{
    return options.capability;
}

/* What NVIDIA's programming guide gives per compute capability. */
size_t standin_shared_limit(void)
{
    switch (options.capability) {
    case 75:
        return 64 << 10;
    case 80:
    case 87:
        return 163 << 10;
    case 90:
    case 100:
    case 103:
        return 227 << 10;
    default:
        return 99 << 10;
    }
}
