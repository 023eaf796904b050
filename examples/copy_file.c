/*
 * copy_file: copies a file with direct I/O, many transfers at a time, through one queue.
 *
 *     cc copy_file.c $(pkg-config --cflags --libs zinf) -o copy_file
 *     ./copy_file SOURCE TARGET
 *
 * Each slot has a buffer and one request, which goes round: read, written, read the next piece.
 */
#include <zinf/aio.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOTS 16
#define PIECE_BYTES (4u << 20)

struct copy {
    struct zinf_aio_file *source, *target;
    struct zinf_aio_queue *queue;
    struct zinf_aio_request requests[SLOTS];
    char *memory; /* [SLOTS][PIECE_BYTES] */
    uint64_t bytes, next;
};

/* Reads the next piece of the source, if one is left. */
static int read_next(struct copy *copy, struct zinf_aio_request *request)
{
    if (copy->next >= copy->bytes)
        return 0;
    request->op = ZINF_AIO_OP_READ;
    request->file = copy->source;
    request->offset = copy->next;
    request->bytes = PIECE_BYTES;
    copy->next += PIECE_BYTES;
    return zinf_aio_submit(copy->queue, request);
}

/* Writes what was read. The last piece is filled up to whole blocks, and cut off at the end. */
static int write_piece(struct copy *copy, struct zinf_aio_request *request)
{
    uint64_t got = (uint64_t)request->result;
    request->op = ZINF_AIO_OP_WRITE;
    request->file = copy->target;
    request->bytes = zinf_align_up(got, ZINF_AIO_ALIGN);
    memset((char *)request->memory + got, 0, request->bytes - got);
    return zinf_aio_submit(copy->queue, request);
}

static int run(struct copy *copy)
{
    int code = 0;
    for (int i = 0; !code && i < SLOTS; i++) {
        copy->requests[i].memory = copy->memory + (size_t)i * PIECE_BYTES;
        code = read_next(copy, &copy->requests[i]);
    }
    struct zinf_aio_request *request;
    while (!code && (request = zinf_aio_reap(copy->queue, UINT64_MAX))) {
        if (request->result < 0)
            code = (int)request->result;
        else if (request->op == ZINF_AIO_OP_READ && request->result)
            code = write_piece(copy, request);
        else
            code = read_next(copy, request);
    }
    return code;
}

int main(int argc, char **argv)
{
    struct copy copy = {0};
    struct zinf_aio_queue_options options = {0};
    const char *message = "";
    if (argc != 3) {
        fprintf(stderr, "usage: %s SOURCE TARGET\n", argv[0]);
        return 2;
    }
    int code = zinf_aio_open(&copy.source, argv[1], ZINF_AIO_READ);
    if (!code)
        code = zinf_aio_open(&copy.target, argv[2], ZINF_AIO_WRITE | ZINF_AIO_CREATE);
    if (!code)
        code = zinf_aio_queue_create(&copy.queue, &options);
    copy.memory = aligned_alloc(ZINF_AIO_ALIGN, (size_t)SLOTS * PIECE_BYTES);
    if (!code && copy.memory) {
        copy.bytes = zinf_aio_file_bytes(copy.source);
        if (!(code = run(&copy)))
            code = zinf_aio_file_flush(copy.target);
        zinf_aio_queue_error(copy.queue, &message);
    }
    if (code || !copy.memory)
        fprintf(stderr, "copy_file: %s\n", *message ? message : zinf_error());
    else if ((code = truncate(argv[2], (off_t)copy.bytes)))
        perror(argv[2]);
    zinf_aio_queue_destroy(copy.queue); /* before the memory that its requests name */
    zinf_aio_close(copy.target);
    zinf_aio_close(copy.source);
    free(copy.memory);
    return code != 0;
}
