/*
 * drive_bench: one measurement of an existing file, which it overwrites. nvme_vs_fio.sh runs it
 * against fio on the same file.
 *
 * drive_bench FILE read|write|mixed seq|random BLOCK DEPTH ENGINE [SECONDS]
 *   ENGINE: uring, plain (io_uring without registered memory), sqpoll, threads
 * prints: GB/s, CPU seconds per GB, p50, p99 and p99.9 in microseconds
 */
#include "aio/drive_bench.h"

#include <stdio.h>
#include <stdlib.h>

static int usage(void)
{
    fputs("usage: drive_bench FILE read|write|mixed seq|random BLOCK DEPTH "
          "uring|plain|sqpoll|threads [SECONDS]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct zinf_aio_bench_options options = {0};
    struct zinf_aio_bench_result r;
    uint64_t block;
    if (argc < 7 || zinf_size_parse(argv[4], &block))
        return usage();
    options.mix = *argv[2] == 'r'   ? ZINF_AIO_BENCH_READ
                  : *argv[2] == 'w' ? ZINF_AIO_BENCH_WRITE
                                    : ZINF_AIO_BENCH_MIXED;
    options.random = *argv[3] == 'r';
    options.queue.block_bytes = (uint32_t)block;
    options.queue.queue_depth = (uint32_t)atoi(argv[5]);
    options.queue.engine = *argv[6] == 't' ? ZINF_AIO_ENGINE_THREADS : ZINF_AIO_ENGINE_URING;
    options.queue.sqpoll = *argv[6] == 's';
    options.unregistered = *argv[6] == 'p';
    options.seconds = argc > 7 ? atof(argv[7]) : 0;
    int code = zinf_aio_open(&options.file, argv[1], ZINF_AIO_READ | ZINF_AIO_WRITE);
    if (!code) {
        options.bytes = zinf_aio_file_bytes(options.file);
        code = zinf_aio_bench(&options, &r);
    }
    zinf_aio_close(options.file);
    if (code) {
        fprintf(stderr, "drive_bench: %s\n", zinf_error());
        return 1;
    }
    double bytes = (double)(r.bytes_read + r.bytes_written);
    printf("%.4f %.5f %.0f %.0f %.0f\n", zinf_aio_bench_rate(&r) * 1e-9,
           r.cpu_seconds / bytes * 1e9, (double)r.p50_ns * 1e-3, (double)r.p99_ns * 1e-3,
           (double)r.p999_ns * 1e-3);
    return 0;
}
