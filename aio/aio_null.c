/* aio_null: moves nothing and completes at once, to measure what the runtime itself costs. */
#include "aio/aio_engine.h"

#include <stdlib.h>

struct null_engine {
    struct zinf_aio_backend base;
    struct zinf_aio_block *staged;
};

static int null_create(struct zinf_aio_backend **out, const struct zinf_aio_queue_options *options)
{
    (void)options;
    struct null_engine *null = calloc(1, sizeof *null);
    if (!null)
        return zinf_fail(-ENOMEM, "no memory for the null engine");
    null->base.ops = &zinf_aio_null_ops;
    *out = &null->base;
    return 0;
}

static void null_destroy(struct zinf_aio_backend *engine)
{
    free(engine);
}

static int null_register(struct zinf_aio_backend *engine, void *base, uint64_t bytes)
{
    (void)engine, (void)base, (void)bytes;
    return 0;
}

static void null_stage(struct zinf_aio_backend *engine, struct zinf_aio_block *block)
{
    struct null_engine *null = (struct null_engine *)engine;
    block->result = block->bytes;
    block->next = null->staged;
    null->staged = block;
}

static int null_flush(struct zinf_aio_backend *engine)
{
    (void)engine;
    return 0;
}

static int null_collect(struct zinf_aio_backend *engine, uint64_t timeout_ns,
                        struct zinf_aio_block **done)
{
    (void)timeout_ns;
    struct null_engine *null = (struct null_engine *)engine;
    *done = null->staged;
    null->staged = NULL;
    return 0;
}

const struct zinf_aio_engine_ops zinf_aio_null_ops = {
    .engine = ZINF_AIO_ENGINE_NULL,
    .create = null_create,
    .destroy = null_destroy,
    .register_memory = null_register,
    .stage = null_stage,
    .flush = null_flush,
    .collect = null_collect,
};
