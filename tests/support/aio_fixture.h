/* aio_fixture: a folder on a drive, aligned memory and numbered bytes, shared by the aio tests. */
#ifndef AIO_FIXTURE_H
#define AIO_FIXTURE_H

#include "aio/aio.h"
#include "aio_faults.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[512];

/* BUILDDIR is on a drive; the folder is made once per process and removed by fixture_end. */
__attribute__((unused)) static int fixture_begin(const char *name)
{
    const char *build = getenv("BUILDDIR");
    snprintf(folder, sizeof folder, "%s/%s.%ld", build ? build : ".", name, (long)getpid());
    return mkdir(folder, 0777);
}

__attribute__((unused)) static void fixture_end(void)
{
    rmdir(folder);
}

__attribute__((unused)) static const char *in_folder(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

__attribute__((unused)) static char *aligned(size_t bytes)
{
    void *memory = NULL;
    return posix_memalign(&memory, ZINF_AIO_ALIGN, bytes) ? NULL : memory;
}

/* A new file in the folder, already unlinked: nothing is left behind whatever happens. */
__attribute__((unused)) static struct zinf_aio_file *scratch_file(uint64_t bytes, unsigned flags)
{
    struct zinf_aio_file *file = NULL;
    const char *path = in_folder("scratch");
    if (zinf_aio_open(&file, path, ZINF_AIO_READ | ZINF_AIO_WRITE | ZINF_AIO_CREATE | flags)) {
        printf("# %s\n", zinf_error());
        return NULL;
    }
    if (truncate(path, (off_t)bytes))
        printf("# cannot truncate %s\n", path);
    unlink(path);
    return file;
}

/* Byte at a position of stream seed; different everywhere in 8-byte steps. */
__attribute__((unused)) static void fill(char *memory, size_t bytes, uint64_t seed)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memcpy(memory + i, &state, 8);
    }
}

__attribute__((unused)) static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

__attribute__((unused)) static int64_t move_now(struct zinf_aio_queue *queue, enum zinf_aio_op op,
                                                struct zinf_aio_file *file, uint64_t offset,
                                                void *memory, uint64_t bytes)
{
    struct zinf_aio_request request = {
        .op = op, .file = file, .offset = offset, .memory = memory, .bytes = bytes};
    int code = zinf_aio_submit(queue, &request);
    if (code)
        return code;
    struct zinf_aio_request *back = zinf_aio_reap(queue, UINT64_MAX);
    return back == &request ? request.result : -EPROTO;
}

/* The engines that move data and that this machine lets us use. */
__attribute__((unused)) static int moving_engines(enum zinf_aio_engine out[2])
{
    int n = 0;
    out[n++] = ZINF_AIO_ENGINE_THREADS;
    if (!zinf_aio_uring_probe(NULL))
        out[n++] = ZINF_AIO_ENGINE_URING;
    return n;
}

/* Runs test in a child process, which answers 0: good, 77: skip, else: bad. */
__attribute__((unused)) static int in_child(int (*test)(void))
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid)
        _exit(test());
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
