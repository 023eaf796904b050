/* Every fault on every engine: invisible where the queue can mend it, else reported with a
 * sentence, after which the queue takes no more work. Also what containers refuse. */
#include "build-config.h"

#include "aio_fixture.h"
#include "base/memory.h"
#include "tap.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define FILE_BYTES (1u << 20)
#define BLOCK 8192u

static enum zinf_aio_engine engines[2];
static int n_engines;

/* NULL: there is none, and the case fails with the reason; but for what the machine lacks, such as
 * memory that may be locked for one more ring beside those of other programs: that is a skip. */
static struct zinf_aio_queue *made(const struct zinf_aio_queue_options *options)
{
    struct zinf_aio_queue *queue = NULL;
    int code = zinf_aio_queue_create(&queue, options);
    if (code == -ENOMEM || code == -EMFILE || code == -ENFILE)
        snprintf(tap_reason, sizeof tap_reason, "no queue can be made: %s", zinf_error());
    else
        CHECKF(!code, "no queue: %s", zinf_error());
    return queue;
}

static struct zinf_aio_queue *faulty(enum zinf_aio_engine engine,
                                     const struct zinf_aio_faults *faults)
{
    return made(&(struct zinf_aio_queue_options){
        .engine = engine, .block_bytes = BLOCK, .queue_depth = 16, .around = {AIO_FAULTS(faults)}});
}

/* Writes and reads whole files under faults that must not be seen. */
static void check_invisible(const struct zinf_aio_faults *faults, unsigned flags)
{
    char *out = aligned(FILE_BYTES), *back = aligned(FILE_BYTES);
    for (int e = 0; e < n_engines; e++) {
        struct zinf_aio_file *file = scratch_file(FILE_BYTES, flags);
        struct zinf_aio_queue *queue = faulty(engines[e], faults);
        for (uint64_t round = 0; queue && round < 4; round++) {
            fill(out, FILE_BYTES, round + 1);
            memset(back, 0, FILE_BYTES);
            CHECK(move_now(queue, ZINF_AIO_OP_WRITE, file, 0, out, FILE_BYTES) == FILE_BYTES);
            CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, back, FILE_BYTES) == FILE_BYTES);
            CHECKF(!memcmp(out, back, FILE_BYTES), "%s: data differ",
                   zinf_aio_engine_name(engines[e]));
        }
        CHECK(!queue || zinf_aio_queue_error(queue, NULL) == 0);
        zinf_aio_queue_destroy(queue);
        zinf_aio_close(file);
    }
    free(out);
    free(back);
}

static void test_short_transfers(void)
{
    struct zinf_aio_faults often = {.seed = 3, .short_ppm = 400000};
    check_invisible(&often, 0);
    check_invisible(&often, ZINF_AIO_BUFFERED);
}

static void test_delay_and_reorder(void)
{
    struct zinf_aio_faults late = {
        .seed = 4, .delay_ppm = 200000, .delay_us = 300, .reorder = true, .short_ppm = 100000};
    check_invisible(&late, 0);
}

/* With reordering, requests that were submitted in order come back in another. */
static void test_reorder_reorders(void)
{
    enum { N = 32 };
    char *memory = aligned(N * 4096);
    struct zinf_aio_request requests[N];
    struct zinf_aio_file *file = scratch_file(FILE_BYTES, 0);
    for (int e = 0; e < n_engines; e++) {
        struct zinf_aio_faults faults = {.seed = 5, .reorder = true};
        struct zinf_aio_queue *queue = faulty(engines[e], &faults);
        int inversions = 0;
        uintptr_t last = 0;
        if (!queue)
            continue;
        for (int i = 0; i < N; i++) {
            requests[i] = (struct zinf_aio_request){
                .op = ZINF_AIO_OP_READ, .file = file, .memory = memory + 4096 * i, .bytes = 4096};
            CHECK(zinf_aio_submit(queue, &requests[i]) == 0);
        }
        for (int i = 0; i < N; i++) {
            struct zinf_aio_request *request = zinf_aio_reap(queue, UINT64_MAX);
            CHECK(request && request->result == 4096);
            inversions += (uintptr_t)request < last;
            last = (uintptr_t)request;
        }
        CHECK(inversions > 3 && zinf_aio_in_flight(queue) == 0);
        zinf_aio_queue_destroy(queue);
    }
    zinf_aio_close(file);
    free(memory);
}

/* The sentence, and a queue that refuses more but gives back all it was given. */
static void check_reported(const struct zinf_aio_faults *faults, enum zinf_aio_op op, int error)
{
    enum { N = 20 };
    char *memory = aligned(N * 2 * BLOCK), *again = aligned(4096), path[600];
    struct zinf_aio_request requests[N];
    snprintf(path, sizeof path, "%s", in_folder("scratch"));
    for (int e = 0; e < n_engines; e++) {
        struct zinf_aio_file *file = scratch_file(FILE_BYTES, 0);
        struct zinf_aio_queue *queue = faulty(engines[e], faults);
        const char *message = NULL;
        int submitted = 0, failed = 0, returned = 0;
        for (int i = 0; queue && i < N; i++) {
            requests[i] = (struct zinf_aio_request){.op = op,
                                                    .file = file,
                                                    .offset = i * 2 * BLOCK,
                                                    .memory = memory + i * 2 * BLOCK,
                                                    .bytes = 2 * BLOCK};
            submitted += zinf_aio_submit(queue, &requests[i]) == 0;
        }
        if (!queue) {
            zinf_aio_close(file);
            continue;
        }
        for (struct zinf_aio_request *request; (request = zinf_aio_reap(queue, UINT64_MAX));) {
            returned++;
            failed += request->result == error;
            CHECK(request->result == error || request->result == 2 * BLOCK);
        }
        CHECKF(returned == submitted && failed, "%d submitted, %d returned, %d failed", submitted,
               returned, failed);
        CHECK(zinf_aio_queue_error(queue, &message) == error);
        CHECKF(strstr(message, path) && strstr(message, "offset") &&
                   strstr(message, "8192 bytes") && strstr(message, strerror(-error)) &&
                   strstr(message, "free there"),
               "%s", message);
        CHECK(move_now(queue, ZINF_AIO_OP_READ, file, 0, again, 4096) == error);
        CHECK(!strcmp(zinf_error(), message));
        zinf_aio_queue_destroy(queue);
        zinf_aio_close(file);
    }
    free(memory);
    free(again);
}

static void test_eio(void)
{
    struct zinf_aio_faults some = {.seed = 6, .eio_ppm = 200000};
    check_reported(&some, ZINF_AIO_OP_READ, -EIO);
    check_reported(&some, ZINF_AIO_OP_WRITE, -EIO);
    some = (struct zinf_aio_faults){.seed = 7, .eio_ppm = 1000000, .reorder = true};
    check_reported(&some, ZINF_AIO_OP_READ, -EIO);
}

static void test_enospc(void)
{
    struct zinf_aio_faults some = {.seed = 8, .enospc_ppm = 200000, .short_ppm = 200000};
    check_reported(&some, ZINF_AIO_OP_WRITE, -ENOSPC);
    some.enospc_ppm = 1000000;
    some.short_ppm = 0;
    check_invisible(&(struct zinf_aio_faults){.seed = 9}, 0);
    char *memory = aligned(4096);
    struct zinf_aio_file *file = scratch_file(4096, 0);
    struct zinf_aio_queue *queue = faulty(ZINF_AIO_ENGINE_AUTO, &some);
    CHECK(!queue || /* only writes */
          move_now(queue, ZINF_AIO_OP_READ, file, 0, memory, 4096) == 4096);
    zinf_aio_queue_destroy(queue);
    zinf_aio_close(file);
    free(memory);
}

/* The same seed strikes the same blocks, whatever the engine. */
static void test_seed_decides(void)
{
    char *memory = aligned(FILE_BYTES);
    uint64_t done[2][2] = {{0}};
    bool missing = false;
    for (int e = 0; e < n_engines; e++) {
        for (int seed = 0; seed < 2; seed++) {
            struct zinf_aio_faults faults = {.seed = 100 + (uint64_t)seed, .eio_ppm = 30000};
            struct zinf_aio_queue_options options = {.engine = engines[e],
                                                     .block_bytes = 4096,
                                                     .queue_depth = 1,
                                                     .around = {AIO_FAULTS(&faults)}};
            struct zinf_aio_file *file = scratch_file(FILE_BYTES, 0);
            struct zinf_aio_queue *queue = made(&options);
            struct zinf_aio_request request = {
                .op = ZINF_AIO_OP_WRITE, .file = file, .memory = memory, .bytes = FILE_BYTES};
            CHECK(!queue || zinf_aio_submit(queue, &request) == 0);
            CHECK(!queue ||
                  (zinf_aio_reap(queue, UINT64_MAX) == &request && request.result == -EIO));
            done[e][seed] = request.done_bytes;
            missing |= !queue;
            zinf_aio_queue_destroy(queue);
            zinf_aio_close(file);
        }
    }
    free(memory);
    if (missing)
        return;
    CHECK(done[0][0] != done[0][1]);
    if (n_engines == 2)
        CHECK(done[0][0] == done[1][0] && done[0][1] == done[1][1]);
}

/* A real error of the kernel: a write to a file that is open for reading only. */
static void test_real_error(void)
{
    char *memory = aligned(4096), path[600];
    snprintf(path, sizeof path, "%s", in_folder("readonly"));
    struct zinf_aio_file *file = NULL;
    CHECK(zinf_aio_open(&file, path, ZINF_AIO_WRITE | ZINF_AIO_CREATE) == 0);
    zinf_aio_close(file);
    CHECK(zinf_aio_open(&file, path, ZINF_AIO_READ) == 0);
    for (int e = 0; e < n_engines; e++) {
        const char *message;
        struct zinf_aio_queue *queue = faulty(engines[e], NULL);
        if (!queue)
            continue;
        CHECK(move_now(queue, ZINF_AIO_OP_WRITE, file, 0, memory, 4096) == -EBADF);
        CHECK(zinf_aio_queue_error(queue, &message) == -EBADF && strstr(message, path));
        zinf_aio_queue_destroy(queue);
    }
    zinf_aio_close(file);
    unlink(path);
    free(memory);
}

/* ---- refusals, each in a child of its own ---- */

static char said[4096];

static void remember(enum zinf_log_level level, const char *line, void *arg)
{
    (void)level, (void)arg;
    strncat(said, line, sizeof said - strlen(said) - 1);
}

/* Denies the system calls from io_uring_setup + first on, with the given errno. */
static bool deny_io_uring(unsigned first, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup + first, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_register, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int round_trip(struct zinf_aio_queue *queue, char *memory)
{
    struct zinf_aio_file *file = scratch_file(FILE_BYTES, 0);
    char *out = aligned(FILE_BYTES);
    fill(out, FILE_BYTES, 77);
    memcpy(memory, out, FILE_BYTES);
    bool good = move_now(queue, ZINF_AIO_OP_WRITE, file, 0, memory, FILE_BYTES) == FILE_BYTES;
    memset(memory, 0, FILE_BYTES);
    good = good && move_now(queue, ZINF_AIO_OP_READ, file, 0, memory, FILE_BYTES) == FILE_BYTES;
    good = good && !memcmp(memory, out, FILE_BYTES);
    zinf_aio_close(file);
    free(out);
    return good ? 0 : 1;
}

static int child_under_seccomp(unsigned first, unsigned error)
{
    const char *why = NULL;
    struct zinf_aio_queue *queue = NULL;
    struct zinf_aio_queue_options options = {.engine = ZINF_AIO_ENGINE_URING};
    if (!deny_io_uring(first, error))
        return 77;
    zinf_log_set_sink(remember, NULL);
    if (!zinf_aio_uring_probe(&why) || !strstr(why, "seccomp=unconfined"))
        return 2;
    if (!zinf_aio_queue_create(&queue, &options) || !strstr(zinf_error(), "seccomp=unconfined"))
        return 3;
    options.engine = ZINF_AIO_ENGINE_AUTO;
    if (zinf_aio_queue_create(&queue, &options))
        return 4;
    if (zinf_aio_queue_engine(queue) != ZINF_AIO_ENGINE_THREADS)
        return 5;
    if (!strstr(said, "io_uring cannot be used") || !strstr(said, "seccomp=unconfined"))
        return 6;
    int code = round_trip(queue, aligned(FILE_BYTES));
    zinf_aio_queue_destroy(queue);
    return code;
}

static int child_setup_denied(void)
{
    return child_under_seccomp(0, EPERM);
}

static int child_hidden(void)
{
    return child_under_seccomp(0, ENOSYS);
}

static int child_enter_denied(void)
{
    return child_under_seccomp(1, EPERM);
}

static void test_seccomp_falls_back(void)
{
    if (n_engines < 2)
        SKIP("io_uring is refused here anyway");
    int setup = in_child(child_setup_denied);
    if (setup == 77)
        SKIP("no seccomp filter can be set here");
    int hidden = in_child(child_hidden), enter = in_child(child_enter_denied);
    CHECKF(setup == 0, "child says %d", setup);
    CHECKF(hidden == 0, "child says %d", hidden);
    CHECKF(enter == 0, "child says %d", enter);
}

static bool drop_lock_capability(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data))
        return false;
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    data[0].permitted &= ~(1u << CAP_IPC_LOCK);
    return !syscall(SYS_capset, &header, data);
}

/* Registering more than the limit is said, and everything still works. */
static int child_low_memlock(void)
{
    struct rlimit low = {65536, 65536};
    struct zinf_aio_queue *queue = NULL;
    struct zinf_aio_queue_options options = {.engine = ZINF_AIO_ENGINE_URING};
    char *memory = aligned(4u << 20);
    if (setrlimit(RLIMIT_MEMLOCK, &low) || !drop_lock_capability())
        return 77;
    zinf_log_set_sink(remember, NULL);
    int made = zinf_aio_queue_create(&queue, &options);
    if (made)
        return made == -ENOMEM ? 77 : 2; /* rings count as well, those of other programs, too */
    if (zinf_aio_queue_register(queue, memory, 4u << 20))
        return 3;
    if (!said[0])
        return 77; /* this kernel does not charge them */
    if (!strstr(said, "ulimit -l"))
        return 4;
    int code = round_trip(queue, memory);
    zinf_aio_queue_destroy(queue);
    return code;
}

static void test_memlock_limit(void)
{
    if (n_engines < 2)
        SKIP("io_uring is refused here");
    int code = in_child(child_low_memlock);
    if (code == 77)
        SKIP("the limit of locked memory does not bind here");
    CHECKF(code == 0, "child says %d", code);
}

/* Made and registered by one thread, used by another: then it belongs to that one. */
static void *use_queue(void *arg)
{
    void **args = arg;
    return (void *)(intptr_t)round_trip(args[0], args[1]);
}

static void test_queue_moves_to_its_thread(void)
{
    char *memory = aligned(FILE_BYTES);
    for (int e = 0; e < n_engines; e++) {
        struct zinf_aio_queue *queue = faulty(engines[e], NULL);
        void *args[2] = {queue, memory}, *wrong = NULL;
        pthread_t thread;
        if (!queue)
            continue;
        CHECK(zinf_aio_queue_register(queue, memory, FILE_BYTES) == 0);
        CHECK(pthread_create(&thread, NULL, use_queue, args) == 0);
        CHECK(pthread_join(thread, &wrong) == 0 && !wrong);
        zinf_aio_queue_destroy(queue);
    }
    free(memory);
}

int main(void)
{
    if (fixture_begin("aio_faults_test"))
        return 99;
    n_engines = moving_engines(engines);
    TAP_RUN(test_short_transfers);
    TAP_RUN(test_delay_and_reorder);
    TAP_RUN(test_reorder_reorders);
    TAP_RUN(test_eio);
    TAP_RUN(test_enospc);
    TAP_RUN(test_seed_decides);
    TAP_RUN(test_real_error);
    TAP_RUN(test_seccomp_falls_back);
    TAP_RUN(test_memlock_limit);
    TAP_RUN(test_queue_moves_to_its_thread);
    fixture_end();
    return tap_done();
}
