/*
 * executor_trace: gives the trace each operation when it ends, with the operation that it waited
 * for last. An operation that was left out is replaced by the one that it waited for itself.
 */
#include "offload/executor.h"

int executor_open_trace(struct zinf_executor *e)
{
    const struct zinf_executor_options *o = &e->options;
    if (!o->trace_path)
        return 0;
    return o->trace_file ? zinf_trace_join(&e->trace, o->trace_file, o->seat)
                         : zinf_trace_create(&e->trace, o->trace_path);
}

uint32_t executor_last_wait(const struct zinf_executor *e, uint32_t op)
{
    const struct zinf_op *o = &e->program->ops[op];
    uint32_t last = NO_OP;
    uint64_t latest = 0;
    for (uint32_t i = 0; i < o->n_waits; i++) {
        uint32_t other = e->program->waits[o->first_wait + i];
        if (e->done_ns[other] > latest) {
            latest = e->done_ns[other];
            last = other;
        }
    }
    return last;
}

static uint32_t cause_of(const struct zinf_executor *e, uint32_t op)
{
    uint32_t last = executor_last_wait(e, op);
    return last == NO_OP ? ZINF_TRACE_NO_CAUSE : e->ran_as[last];
}

void executor_trace_left_out(struct zinf_executor *e, uint32_t op)
{
    e->ran_as[op] = cause_of(e, op);
}

void executor_trace_op(struct zinf_executor *e, uint32_t op, uint64_t begin_ns, uint64_t end_ns)
{
    const struct zinf_op *o = &e->program->ops[op];
    char buffer[64];
    struct zinf_trace_op record = {
        .name = e->options.op_name(e->options.context, o, buffer),
        .lane = o->lane,
        .micro = o->micro,
        .number = op,
        .cause = cause_of(e, op),
        .begin_ns = begin_ns,
        .end_ns = end_ns,
        .bytes = executor_bytes(e, o),
    };
    zinf_trace_op(e->trace, &record);
    e->ran_as[op] = op;
}

void zinf_executor_mark(struct zinf_executor *e, const char *name, uint64_t begin_ns)
{
    if (e->trace)
        zinf_trace_mark(e->trace, name, begin_ns, zinf_now_ns());
}
