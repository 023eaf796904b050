/*
 * cuda_machines: the CUDA device on machines that there are: GPUs of 8 to 80 GB whose driver has
 * taken a part, every generation from 7.5 to 12.0, several GPUs, a driver that is too old. On the
 * stand-in.
 */
#include "cuda_twin.h"

#include "kernels/cuda/launch.h"

int cuda_node_of(const char *sysfs, const char *bus); /* of kernels/cuda/device.h */

static struct zinf_device *open_on(const struct standin_options *machine, int index)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA, .index = index};
    struct zinf_device *device = NULL;
    standin_start(machine);
    cuda_device_create(&device, &options);
    return device;
}

/* What is free is what the driver leaves, less a margin; an arena of it can be taken, no more. */
static void test_memory_sizes(void)
{
    static const uint64_t sizes[] = {8, 12, 24, 80};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct standin_options machine = {.memory_bytes = sizes[i] * 1000000000u,
                                          .context_bytes = 450u << 20};
        struct zinf_device *device = open_on(&machine, 0);
        CHECKF(device, "%s", zinf_error());
        uint64_t bytes = device->free_bytes, left = machine.memory_bytes - machine.context_bytes;
        CHECKF(bytes < left && left - bytes <= (uint64_t)1 << 30, "%llu of %llu bytes",
               (unsigned long long)bytes, (unsigned long long)machine.memory_bytes);
        CHECK(zinf_device_take_memory(device, left + 1) == -ENOMEM);
        CHECKF(strstr(zinf_error(), "free on the GPU"), "%s", zinf_error());
        CHECKF(!zinf_device_take_memory(device, bytes / 512), "%s", zinf_error());
        zinf_device_destroy(device);
        CHECK(!standin_faults() && !standin_live());
    }
}

static void test_old_driver(void)
{
    struct standin_options machine = {.old_driver = true};
    CHECK(!open_on(&machine, 0));
    CHECKF(strstr(zinf_error(), "too old") && strstr(zinf_error(), "install driver"), "%s",
           zinf_error());
}

static void test_no_code_for_it(void)
{
    struct standin_options machine = {.capability = 70};
    CHECK(!open_on(&machine, 0));
    CHECKF(strstr(zinf_error(), "sm_70") && strstr(zinf_error(), "--with-cuda-arch=70"), "%s",
           zinf_error());
    CHECK(!standin_faults() && !standin_live());
}

static void test_no_pinning(void)
{
    struct standin_options machine = {.no_pinning = true};
    struct zinf_device *device = open_on(&machine, 0);
    static char memory[4096];
    CHECK(device->ops->host_register(device, memory, sizeof memory) == -EIO);
    CHECKF(strstr(zinf_error(), "page-locking host memory"), "%s", zinf_error());
    zinf_device_destroy(device);
    CHECK(!standin_faults() && !standin_live());
}

/* To the device and back, over the edges of pieces; what comes back, and how many copies waited. */
static uint64_t round_trip(struct zinf_device *device, char *memory, uint64_t bytes)
{
    const struct zinf_device_ops *ops = device->ops;
    uint64_t before = ops->pageable_copies(device);
    struct zinf_queue *q;
    char *want = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++)
        want[i] = (char)(i * 7 % 251);
    memcpy(memory, want, bytes);
    CHECKF(!ops->queue_create(device, ZINF_QUEUE_COMPUTE, &q), "%s", zinf_error());
    CHECKF(!ops->copy_to_device(q, device->memory, memory, bytes), "%s", zinf_error());
    CHECKF(!ops->queue_synchronize(q), "%s", zinf_error());
    memset(memory, 0, bytes);
    CHECKF(!ops->copy_to_host(q, memory, device->memory, bytes), "%s", zinf_error());
    CHECKF(!ops->queue_synchronize(q), "%s", zinf_error());
    CHECK(!memcmp(memory, want, bytes));
    ops->queue_destroy(q);
    free(want);
    return ops->pageable_copies(device) - before;
}

enum { PIN_BYTES = (5 << 20) + 8192 };

/* Drivers limit what one registration takes: then there are several, and no copy goes over the edge
 * of two or waits. */
static void test_pinning_in_pieces(void)
{
    static const size_t limits[] = {0, 3 << 20, 1000000, 256 << 10};
    char *memory = aligned_alloc(4096, PIN_BYTES);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct standin_options machine = {.pin_call = limits[i]};
        struct zinf_device *device = open_on(&machine, 0);
        CHECKF(!zinf_device_take_memory(device, PIN_BYTES), "%s", zinf_error());
        CHECKF(!device->ops->host_register(device, memory, PIN_BYTES), "%s", zinf_error());
        CHECK(standin_live() > (limits[i] ? 2 : 0));
        CHECK(round_trip(device, memory, PIN_BYTES) == 0);
        device->ops->host_unregister(device, memory);
        CHECK(round_trip(device, memory, PIN_BYTES) == 2);
        zinf_device_destroy(device);
        CHECKF(!standin_faults() && !standin_live(), "%s", standin_first_fault());
    }
    free(memory);
}

/* What can be page-locked stays so where the rest cannot be, and the message tells how much. */
static void test_pinning_in_part(void)
{
    struct standin_options machine = {.pin_all = 3 << 20};
    char *memory = aligned_alloc(4096, PIN_BYTES);
    struct zinf_device *device = open_on(&machine, 0);
    CHECKF(!zinf_device_take_memory(device, PIN_BYTES), "%s", zinf_error());
    CHECK(device->ops->host_register(device, memory, PIN_BYTES) == -ENOMEM);
    CHECKF(strstr(zinf_error(), "behind the first 3.00 MiB of 5.01 MiB"), "%s", zinf_error());
    CHECK(round_trip(device, memory, 3 << 20) == 0);
    CHECK(round_trip(device, memory, PIN_BYTES) == 2);
    zinf_device_destroy(device);
    CHECKF(!standin_faults() && !standin_live(), "%s", standin_first_fault());
    free(memory);
}

/* ---- where the GPU is ---- */

static void write_node(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0);
    if (file)
        fclose(file);
}

static void test_numa_node(void)
{
    char root[] = "/tmp/zinf-sys-XXXXXX", path[100], file[120], remove[120];
    CHECK(mkdtemp(root));
    snprintf(path, sizeof path, "%s/bus/pci/devices/0000:c1:0a.0", root);
    snprintf(file, sizeof file, "%s/numa_node", path);
    CHECK(!zinf_make_dirs(path));
    CHECK(cuda_node_of(root, "0000:C1:0A.0") == -1);
    write_node(file, "1\n");
    CHECK(cuda_node_of(root, "0000:C1:0A.0") == 1);
    CHECK(cuda_node_of(root, "0000:C2:0A.0") == -1);
    write_node(file, "-1\n"); /* a machine with one node */
    CHECK(cuda_node_of(root, "0000:C1:0A.0") == -1);
    struct zinf_device *device = open_on(NULL, 0);
    CHECK(device->node == -1);
    zinf_device_destroy(device);
    snprintf(remove, sizeof remove, "rm -r %s", root);
    CHECK(!system(remove));
}

/* ---- several GPUs ---- */

/* A seat copies from memory that another seat's device has registered. */
static void test_pinned_by_another(void)
{
    struct standin_options machine = {.gpus = 2};
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA, .index = 1};
    struct zinf_device *other = NULL, *device = open_on(&machine, 0);
    char *memory = aligned_alloc(4096, PIN_BYTES);
    CHECKF(!cuda_device_create(&other, &options), "%s", zinf_error());
    CHECKF(!zinf_device_take_memory(other, PIN_BYTES), "%s", zinf_error());
    CHECKF(!device->ops->host_register(device, memory, PIN_BYTES), "%s", zinf_error());
    CHECK(round_trip(other, memory, PIN_BYTES) == 0);
    zinf_device_destroy(device);
    CHECK(round_trip(other, memory, PIN_BYTES) == 2);
    zinf_device_destroy(other);
    CHECKF(!standin_faults() && !standin_live(), "%s", standin_first_fault());
    free(memory);
}

/* A number to a GPU and back, on a queue of its own. */
static void send_and_receive(struct zinf_device *device, float value)
{
    const struct zinf_device_ops *ops = device->ops;
    struct zinf_queue *q;
    static float there[16], back[16];
    for (int i = 0; i < 16; i++)
        there[i] = value;
    CHECKF(!ops->queue_create(device, ZINF_QUEUE_COMPUTE, &q), "%s", zinf_error());
    CHECK(!ops->copy_to_device(q, device->memory, there, sizeof there));
    CHECK(!ops->add(q, device->memory, device->memory, 16));
    CHECK(!ops->copy_to_host(q, back, device->memory, sizeof back));
    CHECK(!ops->queue_synchronize(q));
    CHECKF(back[0] == 2 * value && back[15] == 2 * value, "%g", (double)back[0]);
    ops->queue_destroy(q);
}

/* Each has memory of its own, and all of it, whatever the others have taken. */
static void test_several_gpus(void)
{
    static const int counts[] = {2, 4};
    for (size_t c = 0; c < 2; c++) {
        struct standin_options machine = {.gpus = counts[c], .memory_bytes = 64u << 20};
        struct zinf_device *devices[4];
        standin_start(&machine);
        for (int k = 0; k < counts[c]; k++) {
            struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA, .index = k};
            CHECKF(!cuda_device_create(&devices[k], &options), "%s", zinf_error());
            CHECKF(!zinf_device_take_memory(devices[k], 40u << 20), "%s", zinf_error());
        }
        for (int k = counts[c] - 1; k >= 0; k--)
            send_and_receive(devices[k], (float)k + 1);
        for (int k = 0; k < counts[c]; k++)
            zinf_device_destroy(devices[k]);
        CHECK(!standin_faults() && !standin_live());
        CHECK(!open_on(&machine, counts[c]));
        CHECKF(strstr(zinf_error(), "give an index from 0 on"), "%s", zinf_error());
    }
}

/* A GPU that reaches into another's memory is stopped: there is no access to a peer's. */
static void test_no_peer_access(void)
{
    struct standin_options machine = {.gpus = 2};
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    struct zinf_device *devices[2];
    struct zinf_queue *q;
    standin_start(&machine);
    for (int k = 0; k < 2; k++) {
        options.index = k;
        CHECK(!cuda_device_create(&devices[k], &options));
        CHECK(!zinf_device_take_memory(devices[k], 4096));
    }
    CHECK(!devices[1]->ops->queue_create(devices[1], ZINF_QUEUE_COMPUTE, &q));
    CHECK(devices[1]->ops->copy(q, devices[1]->memory, devices[0]->memory, 64) == -EIO);
    CHECK(standin_faults() == 1);
    standin_forgive();
    devices[1]->ops->queue_destroy(q);
    zinf_device_destroy(devices[0]);
    zinf_device_destroy(devices[1]);
    CHECK(!standin_faults() && !standin_live());
}

/* ---- kernels' code ---- */

static int count_kernels(void)
{
    int n = 0;
    for (const struct kernel_entry *e = kernel_entries; e; e = e->next)
        n++;
    return n;
}

/* Whoever opens a GPU has every kernel's code on it, before anything runs there, and on no other
 * one; a launch of what is not there is found. */
static void test_kernels_are_loaded_when_a_gpu_is_opened(void)
{
    struct standin_options machine = {.gpus = 2};
    struct zinf_device_options options = {.kind = ZINF_DEVICE_CUDA};
    struct zinf_device *first = NULL, *second = open_on(&machine, 1);
    const int n = count_kernels();
    CHECKF(second && n > 100, "%d kernels", n);
    CHECKF(standin_loaded(1) == n && standin_loaded(0) == 0, "%d and %d of %d kernels",
           standin_loaded(1), standin_loaded(0), n);
    CHECKF(!standin_kernels(), "%d kernels have run", (int)standin_kernels());
    CHECKF(!cuda_device_create(&first, &options), "%s", zinf_error());
    CHECKF(standin_loaded(0) == n, "%d of %d kernels", standin_loaded(0), n);
    CHECKF(!standin_faults(), "%s", standin_first_fault());
    CHECK(standin_check_loaded(&machine, "what is no kernel") != cudaSuccess);
    CHECK(strstr(standin_first_fault(), "was not loaded when its GPU was opened"));
    standin_forgive();
    zinf_device_destroy(first);
    zinf_device_destroy(second);
}

/* ---- generations ---- */

/* Heads of 256 take the most shared memory: on every generation the kernel that is chosen has room,
 * and its results are near the host's. */
static void test_generations(void)
{
    static const int capabilities[] = {75, 80, 86, 89, 90, 100, 120};
    for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++) {
        struct twin t;
        CHECK(twin_open_for(&t, capabilities[i], 1));
        const int64_t seq = 5, size = 256;
        struct pair qkv =
            pair_of(&t, tensor_random(ZINF_DTYPE_F16, (size_t)(3 * seq * size), 1, 1));
        struct pair d_out = pair_of(&t, tensor_random(ZINF_DTYPE_F16, (size_t)(seq * size), 2, 1));
        struct pair out = pair_of(&t, tensor_new(ZINF_DTYPE_F16, (size_t)(seq * size)));
        struct pair d_qkv = pair_of(&t, tensor_new(ZINF_DTYPE_F16, (size_t)(3 * seq * size)));
        struct pair lse = pair_of(&t, tensor_new(ZINF_DTYPE_F32, (size_t)seq));
        struct zinf_attention a = {.dtype = ZINF_DTYPE_F16,
                                   .batch = 1,
                                   .seq = seq,
                                   .n_heads = 1,
                                   .n_kv_heads = 1,
                                   .head_dim = size,
                                   .causal = true,
                                   .scale = 0.0625f};
        ON_BOTH(&t, (a.qkv = at(&qkv, side), a.d_out = at(&d_out, side), a.out = at(&out, side),
                     a.d_qkv = at(&d_qkv, side), a.lse = at(&lse, side),
                     ops->attention_forward(q, &a) || ops->attention_backward(q, &a)));
        PAIR_CHECK(&t, &out, 4e-3, 4e-3);
        PAIR_CHECK(&t, &d_qkv, 2e-2, 1e-2);
        twin_end(&t);
    }
}

int main(void)
{
    TAP_RUN(test_memory_sizes);
    TAP_RUN(test_old_driver);
    TAP_RUN(test_no_code_for_it);
    TAP_RUN(test_no_pinning);
    TAP_RUN(test_pinning_in_pieces);
    TAP_RUN(test_pinning_in_part);
    TAP_RUN(test_pinned_by_another);
    TAP_RUN(test_numa_node);
    TAP_RUN(test_several_gpus);
    TAP_RUN(test_no_peer_access);
    TAP_RUN(test_kernels_are_loaded_when_a_gpu_is_opened);
    TAP_RUN(test_generations);
    return tap_done();
}
