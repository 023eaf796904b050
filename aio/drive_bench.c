/*
 * drive_bench: jobs that keep a queue full. All memory and files are made before the clock starts.
 * In the loop a block that comes back is counted, and its memory is submitted again at once, so
 * that the queue and the drive are measured and nothing else. Memory has random numbers, which no
 * controller can compress, and every block is stamped, so that no two blocks that are written are
 * alike.
 */
#include "build-config.h"

#include "aio/drive_bench.h"

#include "base/pulse.h"

#include "base/memory.h"
#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "aio/aio_engine.h"
#include "aio/aio_store.h"

/* ---- latencies: 32 buckets for each power of two, so within 3 % ---- */

#define BUCKET_BITS 5
#define BUCKETS ((64 - BUCKET_BITS + 1) << BUCKET_BITS)

static uint32_t bucket_of(uint64_t ns)
{
    if (ns < 1u << BUCKET_BITS)
        return (uint32_t)ns;
    uint32_t shift = 63 - (uint32_t)__builtin_clzll(ns) - BUCKET_BITS;
    return ((shift + 1) << BUCKET_BITS) + (uint32_t)(ns >> shift) - (1u << BUCKET_BITS);
}

/* The largest latency that falls into a bucket. */
static uint64_t bucket_end(uint32_t bucket)
{
    uint32_t shift = bucket >> BUCKET_BITS;
    if (!shift)
        return bucket;
    uint64_t mantissa = (1u << BUCKET_BITS) + (bucket & ((1u << BUCKET_BITS) - 1));
    return ((mantissa + 1) << (shift - 1)) - 1;
}

static uint64_t percentile(const uint64_t counts[BUCKETS], uint64_t total, double share,
                           uint64_t max_ns)
{
    uint64_t wanted = (uint64_t)ceil((double)total * share), seen = 0;
    for (uint32_t i = 0; i < BUCKETS; i++)
        if ((seen += counts[i]) >= wanted && seen)
            return bucket_end(i) < max_ns ? bucket_end(i) : max_ns;
    return 0;
}

/* ---- a job ---- */

struct job {
    const struct zinf_aio_bench_options *options;
    struct zinf_aio_queue *queue;
    struct zinf_aio_request *requests; /* [queue_depth] */
    char *memory;                      /* [queue_depth][block_bytes] */
    uint64_t first_block, n_blocks;    /* its part of the file */
    uint64_t begin_ns;
    uint64_t issued[2]; /* blocks, for each operation */
    uint64_t bytes[2], max_ns;
    uint64_t *counts; /* [BUCKETS] */
    pthread_t thread;
    bool started;
    int code;
    char message[1024];
};

/* The block that operation number n of a direction moves. Jobs that read and write halve their
 * part, so that they do not read what they write at the same time. */
static uint64_t block_at(const struct job *job, enum zinf_aio_op op, uint64_t n)
{
    uint64_t first = job->first_block, count = job->n_blocks;
    if (job->options->mix == ZINF_AIO_BENCH_MIXED) {
        count /= 2;
        first += op == ZINF_AIO_OP_WRITE ? count : 0;
    }
    uint64_t pass = n / count;
    return first + (job->options->random ? zinf_permute(n % count, count, pass + 1) : n % count);
}

static enum zinf_aio_op next_op(const struct job *job)
{
    switch (job->options->mix) {
    case ZINF_AIO_BENCH_READ:
        return ZINF_AIO_OP_READ;
    case ZINF_AIO_BENCH_WRITE:
        return ZINF_AIO_OP_WRITE;
    default:
        return job->issued[ZINF_AIO_OP_READ] > job->issued[ZINF_AIO_OP_WRITE] ? ZINF_AIO_OP_WRITE
                                                                              : ZINF_AIO_OP_READ;
    }
}

static bool is_over(const struct job *job, uint64_t now)
{
    if (job->options->seconds > 0)
        return (double)(now - job->begin_ns) >= job->options->seconds * 1e9;
    return job->issued[0] + job->issued[1] >= job->n_blocks;
}

static int issue(struct job *job, struct zinf_aio_request *request)
{
    const struct zinf_aio_bench_options *options = job->options;
    enum zinf_aio_op op = next_op(job);
    int code = zinf_pulse_beat();
    if (code)
        return code;
    uint64_t n = job->issued[op]++;
    uint32_t block_bytes = options->queue.block_bytes;
    void *memory = request->memory;
    *request = (struct zinf_aio_request){
        .op = op,
        .file = options->file,
        .store = options->store,
        .extent = options->extent,
        .offset = block_at(job, op, n) * block_bytes,
        .bytes = block_bytes,
        .memory = memory,
    };
    if (op == ZINF_AIO_OP_WRITE)
        memcpy(memory, &(uint64_t[2]){request->offset, n}, 16);
    return zinf_aio_submit(job->queue, request);
}

static void count(struct job *job, const struct zinf_aio_request *request)
{
    uint64_t ns = request->end_ns - request->begin_ns;
    job->bytes[request->op] += (uint64_t)request->result;
    job->counts[bucket_of(ns)]++;
    job->max_ns = ns > job->max_ns ? ns : job->max_ns;
}

/* The job ends when all blocks that it has submitted are back. After a failure it submits no
 * more. */
static void *run_job(void *arg)
{
    struct job *job = arg;
    const char *message = NULL;
    for (uint32_t i = 0; i < job->options->queue.queue_depth && !job->code; i++) {
        if (is_over(job, zinf_now_ns()))
            break;
        job->code = issue(job, &job->requests[i]);
    }
    for (struct zinf_aio_request *request; (request = zinf_aio_reap(job->queue, UINT64_MAX));) {
        if (request->result < 0) {
            job->code = (int)request->result;
            continue;
        }
        count(job, request);
        if (!job->code && !is_over(job, request->end_ns))
            job->code = issue(job, request);
    }
    if (zinf_aio_queue_error(job->queue, &message))
        job->code = zinf_aio_queue_error(job->queue, NULL);
    else
        message = job->code ? zinf_error() : "";
    snprintf(job->message, sizeof job->message, "%s", message);
    return NULL;
}

/* ---- all jobs ---- */

struct bench {
    struct zinf_aio_bench_options options; /* with defaults in place of zeros */
    struct zinf_arena memory;
    struct job *jobs;
};

static void free_bench(struct bench *bench)
{
    for (int i = 0; bench->jobs && i < bench->options.n_jobs; i++) {
        zinf_aio_queue_destroy(bench->jobs[i].queue);
        free(bench->jobs[i].requests);
        free(bench->jobs[i].counts);
    }
    free(bench->jobs);
    zinf_arena_fini(&bench->memory);
}

static int make_job(struct bench *bench, struct job *job, uint64_t n_blocks)
{
    const struct zinf_aio_bench_options *options = &bench->options;
    int index = (int)(job - bench->jobs);
    uint64_t memory_bytes = (uint64_t)options->queue.queue_depth * options->queue.block_bytes;
    *job = (struct job){
        .options = options,
        .memory = bench->memory.base + (uint64_t)index * memory_bytes,
        .first_block = (uint64_t)index * n_blocks,
        .n_blocks = n_blocks,
        .requests = calloc(options->queue.queue_depth, sizeof *job->requests),
        .counts = calloc(BUCKETS, sizeof *job->counts),
    };
    if (!job->requests || !job->counts)
        return zinf_fail(-ENOMEM, "no memory for a bench of depth %u", options->queue.queue_depth);
    for (uint64_t i = 0; i < options->queue.queue_depth; i++)
        job->requests[i].memory = job->memory + i * options->queue.block_bytes;
    int code = zinf_aio_queue_create(&job->queue, &options->queue);
    if (!code && !options->unregistered)
        code = zinf_aio_queue_register(job->queue, job->memory, memory_bytes);
    return code;
}

/* Fills memory with random numbers, and so has its pages before it is registered. */
static void fill_memory(struct zinf_arena *memory)
{
    for (uint64_t i = 0; i < memory->bytes / 16; i++) {
        uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0, 0};
        zinf_philox(counter, 1, (uint32_t *)(memory->base + i * 16));
    }
}

static int make_bench(struct bench *bench, const struct zinf_aio_bench_options *options)
{
    struct zinf_aio_bench_options *o = &bench->options;
    *o = *options;
    o->n_jobs = o->n_jobs ? o->n_jobs : 1;
    o->queue.block_bytes = o->queue.block_bytes ? o->queue.block_bytes : 1u << 20;
    o->queue.queue_depth = o->queue.queue_depth ? o->queue.queue_depth : 32;
    if (o->queue.max_requests < o->queue.queue_depth)
        o->queue.max_requests = o->queue.queue_depth;
    uint64_t n_blocks = o->bytes / o->queue.block_bytes / (uint64_t)o->n_jobs;
    if (n_blocks < (o->mix == ZINF_AIO_BENCH_MIXED ? 2 : 1))
        return zinf_fail(-EINVAL,
                         "%" PRIu64 " bytes are too few to measure %d jobs with blocks of %u bytes",
                         o->bytes, o->n_jobs, o->queue.block_bytes);
    if (!(bench->jobs = calloc((size_t)o->n_jobs, sizeof *bench->jobs)))
        return zinf_fail(-ENOMEM, "no memory for %d jobs", o->n_jobs);
    int code = zinf_arena_init(&bench->memory,
                               (uint64_t)o->n_jobs * o->queue.queue_depth * o->queue.block_bytes,
                               "buffers of the drive bench");
    if (!code)
        fill_memory(&bench->memory);
    for (int i = 0; i < o->n_jobs && !code; i++)
        code = make_job(bench, &bench->jobs[i], n_blocks);
    return code;
}

static double cpu_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static int run_jobs(struct bench *bench)
{
    int code = 0;
    uint64_t begin = zinf_now_ns();
    for (int i = 0; i < bench->options.n_jobs; i++)
        bench->jobs[i].begin_ns = begin;
    for (int i = 1; i < bench->options.n_jobs && !code; i++) {
        struct job *job = &bench->jobs[i];
        int failed = pthread_create(&job->thread, NULL, run_job, job);
        job->started = !failed;
        if (failed)
            code = zinf_fail(-failed, "no thread for job %d: %s", i, strerror(failed));
    }
    if (!code)
        run_job(&bench->jobs[0]);
    for (int i = 1; i < bench->options.n_jobs; i++)
        if (bench->jobs[i].started)
            pthread_join(bench->jobs[i].thread, NULL);
    for (int i = 0; i < bench->options.n_jobs && !code; i++)
        if (bench->jobs[i].code)
            code = zinf_fail(bench->jobs[i].code, "%s", bench->jobs[i].message);
    return code;
}

static void gather(struct bench *bench, struct zinf_aio_bench_result *result)
{
    uint64_t *counts = bench->jobs[0].counts, total = 0;
    result->engine = zinf_aio_queue_engine(bench->jobs[0].queue);
    for (int i = 0; i < bench->options.n_jobs; i++) {
        const struct job *job = &bench->jobs[i];
        result->bytes_read += job->bytes[ZINF_AIO_OP_READ];
        result->bytes_written += job->bytes[ZINF_AIO_OP_WRITE];
        result->max_ns = job->max_ns > result->max_ns ? job->max_ns : result->max_ns;
        for (uint32_t b = 0; i && b < BUCKETS; b++)
            counts[b] += job->counts[b];
    }
    for (uint32_t b = 0; b < BUCKETS; b++)
        total += counts[b];
    result->p50_ns = percentile(counts, total, 0.5, result->max_ns);
    result->p99_ns = percentile(counts, total, 0.99, result->max_ns);
    result->p999_ns = percentile(counts, total, 0.999, result->max_ns);
}

int zinf_aio_bench(const struct zinf_aio_bench_options *options,
                   struct zinf_aio_bench_result *result)
{
    struct bench bench = {0};
    *result = (struct zinf_aio_bench_result){0};
    if (!options->file == !options->store)
        return zinf_fail(-EINVAL, "a drive bench needs a file or a store, and not both");
    int code = make_bench(&bench, options);
    if (!code) {
        double cpu = cpu_now();
        uint64_t begin = zinf_now_ns();
        code = run_jobs(&bench);
        if (!code && options->mix != ZINF_AIO_BENCH_READ)
            code = options->store ? zinf_store_flush(options->store)
                                  : zinf_aio_file_flush(options->file);
        result->seconds = (double)(zinf_now_ns() - begin) * 1e-9;
        result->cpu_seconds = cpu_now() - cpu;
        gather(&bench, result);
    }
    free_bench(&bench);
    return code;
}

double zinf_aio_bench_rate(const struct zinf_aio_bench_result *result)
{
    double bytes = (double)(result->bytes_read + result->bytes_written);
    return result->seconds > 0 ? bytes / result->seconds : 0;
}

static double thread_cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double zinf_aio_bench_sums(const void *memory, uint64_t bytes)
{
    volatile uint32_t used = 0; /* keeps the compiler from leaving the sums out */
    double begin = thread_cpu_now();
    for (uint64_t at = 0; at + ZINF_AIO_ALIGN <= bytes; at += ZINF_AIO_ALIGN)
        used = used ^ zinf_page_sum((const char *)memory + at);
    return thread_cpu_now() - begin;
}

/* ---- a short look at a path ----
 * The space is a store of its own, so that it is locked, checked for room, removed, and reclaimed
 * if this process dies, like any other. */

static int measure_mixes(struct zinf_store *store, uint64_t bytes,
                         struct zinf_aio_bench_rates *rates)
{
    struct zinf_aio_bench_options options = {.store = store, .bytes = bytes};
    struct zinf_aio_bench_result result;
    double *const out[] = {[ZINF_AIO_BENCH_READ] = &rates->read,
                           [ZINF_AIO_BENCH_WRITE] = &rates->write,
                           [ZINF_AIO_BENCH_MIXED] = &rates->mixed};
    /* Data must be written before they are read: see zinf_aio_bench_options. */
    static const enum zinf_aio_bench_mix order[] = {ZINF_AIO_BENCH_WRITE, ZINF_AIO_BENCH_READ,
                                                    ZINF_AIO_BENCH_MIXED};
    for (int i = 0; i < 3; i++) {
        options.mix = order[i];
        int code = zinf_aio_bench(&options, &result);
        if (code)
            return code;
        *out[order[i]] = zinf_aio_bench_rate(&result);
        rates->bytes_written += result.bytes_written;
    }
    return 0;
}

int zinf_aio_bench_path(const char *path, uint64_t bytes, bool allow_memory_fs,
                        struct zinf_aio_bench_rates *rates)
{
    struct zinf_store_options options = {
        .paths = &path, .n_paths = 1, .label = "probe", .allow_memory_fs = allow_memory_fs};
    struct zinf_store *store = NULL;
    zinf_extent extent;
    *rates = (struct zinf_aio_bench_rates){0};
    int code = zinf_store_create(&store, &options);
    if (!code)
        code = zinf_store_add_extent(store, bytes, &extent);
    if (!code)
        code = zinf_store_allocate(store);
    if (!code) {
        rates->bytes_written = zinf_store_planned_bytes(store);
        code = measure_mixes(store, bytes, rates);
    }
    zinf_store_destroy(store);
    return code;
}
