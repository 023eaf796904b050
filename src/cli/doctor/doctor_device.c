/* doctor_device: driver, libraries, the GPU, its memory and copies, for `zinf doctor`. */
#include "cli/doctor/doctor.h"

#include "cli/bench/bench_device.h"
#include "net/net.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <sys/statvfs.h>

/* ---- driver and libraries ---- */

static bool module_is_named(void)
{
    const char *named = getenv("ZINF_CUDA_MODULE");
    return named && *named;
}

void doctor_driver(struct doctor *d)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*version)(int *) =
        driver ? (int (*)(int *))(uintptr_t)dlsym(driver, "cuDriverGetVersion") : NULL;
    int number = 0;
    if (driver && version && !version(&number))
        doctor_line(d, "driver", DOCTOR_OK, NULL, "libcuda.so.1, for CUDA up to %d.%d",
                    number / 1000, number % 1000 / 10);
    else if (driver)
        doctor_line(d, "driver", DOCTOR_FAILED,
                    "reload the kernel module or restart: nvidia-smi says what is wrong",
                    "libcuda.so.1 does not answer");
    else if (module_is_named())
        doctor_line(d, "driver", DOCTOR_LEFT_OUT, NULL,
                    "not here; ZINF_CUDA_MODULE names a module that may bring its own");
    else
        doctor_line(d, "driver", DOCTOR_FAILED,
                    "install NVIDIA's driver; in a container, start it with the GPU "
                    "(docker run --gpus all)",
                    "no libcuda.so.1");
}

struct found {
    char text[1024];
    size_t used;
};

static int list_library(struct dl_phdr_info *info, size_t size, void *context)
{
    struct found *found = context;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (strncmp(name, "libcudart", 9) && strncmp(name, "libcublasLt", 11) &&
        strncmp(name, "zinf-cuda", 9))
        return 0;
    int n = snprintf(found->text + found->used, sizeof found->text - found->used, "%s%s",
                     found->used ? ", " : "", info->dlpi_name);
    if (n > 0 && found->used + (size_t)n < sizeof found->text)
        found->used += (size_t)n;
    return 0;
}

bool doctor_libraries(struct doctor *d)
{
    struct found found = {{0}, 0};
    const char *why = zinf_device_cuda_why_not();
    if (why) {
        doctor_line(d, "libraries", DOCTOR_FAILED,
                    "see the message; ZINF_CUDA_LIBRARIES names a folder of libraries, "
                    "ZINF_CUDA_MODULE a module that is not installed",
                    "%s", why);
        return false;
    }
    dl_iterate_phdr(list_library, &found);
    doctor_line(d, "libraries", DOCTOR_OK, NULL, "%s", found.text);
    return true;
}

/* ---- the GPU and its memory ---- */

static int open_gpu(struct zinf_device **device)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    return zinf_device_create(device, &options);
}

/* The most eighths of the free memory that one arena can be. */
static int eighths_taken(uint64_t free_bytes)
{
    for (int eighths = 8; eighths > 0; eighths--) {
        struct zinf_device *device = NULL;
        if (open_gpu(&device))
            return 0;
        int code = zinf_device_take_memory(device, free_bytes / 8 * (uint64_t)eighths);
        zinf_device_destroy(device);
        if (!code)
            return eighths;
    }
    return 0;
}

bool doctor_gpu(struct doctor *d)
{
    struct zinf_device *device = NULL;
    char size[2][16];
    if (open_gpu(&device)) {
        doctor_line(d, "GPU", DOCTOR_FAILED,
                    "nvidia-smi lists the GPUs; ZINF_GPU or CUDA_VISIBLE_DEVICES chooses one", "%s",
                    zinf_error());
        return false;
    }
    uint64_t bytes = device->free_bytes;
    if (strstr(device->name, "sm_75"))
        doctor_line(d, "GPU", DOCTOR_WARNING, "train with fp16 or fp32: bf16 begins with sm_80",
                    "%s", device->name);
    else
        doctor_line(d, "GPU", DOCTOR_OK, NULL, "%s", device->name);
    zinf_device_destroy(device);
    int eighths = eighths_taken(bytes);
    zinf_size_format(size[0], sizeof size[0], bytes);
    zinf_size_format(size[1], sizeof size[1], bytes / 8 * (uint64_t)eighths);
    if (eighths == 8)
        doctor_line(d, "memory", DOCTOR_OK, NULL, "%s free, and all of it in one piece", size[0]);
    else
        doctor_line(d, "memory", eighths ? DOCTOR_WARNING : DOCTOR_FAILED,
                    "end other programs on the GPU (nvidia-smi lists them), or give "
                    "--device-memory less than what is there",
                    "%s free, of which %s can be taken in one piece", size[0], size[1]);
    return eighths > 0;
}

/* ---- copies ---- */

enum { COPY_BYTES = 32 << 20 };

static int copy_to(struct bench_device *b, void *context)
{
    (void)context;
    return b->ops->copy_to_device(b->queues[ZINF_QUEUE_TO_DEVICE], b->device->memory, b->host.base,
                                  COPY_BYTES);
}

static int copy_from(struct bench_device *b, void *context)
{
    (void)context;
    return b->ops->copy_to_host(b->queues[ZINF_QUEUE_TO_HOST], (char *)b->host.base + COPY_BYTES,
                                (char *)b->device->memory + COPY_BYTES, COPY_BYTES);
}

static int copy_both(struct bench_device *b, void *context)
{
    int code = copy_to(b, context);
    return code ? code : copy_from(b, context);
}

void doctor_copies(struct doctor *d)
{
    static bench_call *const calls[] = {copy_to, copy_from, copy_both};
    struct bench_device_options options = {
        .device = ZINF_DEVICE_CUDA, .device_bytes = 2 * COPY_BYTES, .host_bytes = 2 * COPY_BYTES};
    struct bench_device b;
    double rates[3] = {0};
    int code = bench_device_open(&b, &options);
    if (code) { /* all but page-locking was seen to work before */
        doctor_line(d, "copies", DOCTOR_FAILED,
                    "copies would wait for each other: leave the process more RAM (a container's "
                    "memory limit counts page-locked memory too)",
                    "%s", zinf_error());
        return;
    }
    b.rounds = 3;
    code = bench_device_fill(&b, ZINF_DTYPE_BF16, 2 * COPY_BYTES);
    for (int k = 0; !code && k < 3; k++) {
        double seconds = 1.0;
        code = bench_device_time(&b, calls[k], NULL, &seconds);
        rates[k] = COPY_BYTES / seconds * 1e-9;
    }
    bench_device_close(&b);
    if (code)
        doctor_line(d, "copies", DOCTOR_FAILED, "nvidia-smi -q says whether the link has errors",
                    "%s", zinf_error());
    else
        doctor_line(d, "copies", DOCTOR_OK, NULL,
                    "page-locked memory: %.1f GB/s to the GPU, %.1f back, %.1f each way at once",
                    rates[0], rates[1], rates[2]);
}

/* ---- several GPUs ---- */

/* Processes of a host share this much by /dev/shm, which containers keep small (NCCL's user guide,
 * "Troubleshooting"). A few connections take less. */
#define SHARED_BYTES ((uint64_t)256 << 20)

void doctor_links(struct doctor *d)
{
    const char *found = zinf_link_found(), *no_mpi = zinf_net_mpi_why_not();
    struct statvfs shared;
    char size[16];
    if (!found) {
        doctor_line(d, "links", DOCTOR_LEFT_OUT, NULL,
                    "only several GPUs that send to each other need it: %s", zinf_link_why_not());
        return;
    }
    uint64_t bytes = statvfs("/dev/shm", &shared) ? 0 : shared.f_bavail * shared.f_frsize;
    if (bytes < SHARED_BYTES)
        doctor_line(d, "links", DOCTOR_WARNING,
                    "start the container with --ipc=host, or with --shm-size=1g",
                    "%s: /dev/shm has %s, and GPUs of several processes of a host share memory "
                    "there",
                    found, zinf_size_format(size, sizeof size, bytes));
    else
        doctor_line(d, "links", DOCTOR_OK, NULL, "%s; GPUs of several processes too, over %s",
                    found,
                    no_mpi ? "TCP (torchrun --no-python); no MPI module loads" : "an MPI or TCP");
}
