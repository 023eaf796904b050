/*
 * builder: a program while it is being built, and the simulated lanes that scheduling and
 * prediction share. Inside this folder only.
 *
 * While building, an operation waits for exactly the operations that its resources demand. The
 * order of lanes and the slots of buffers are not known yet. Scheduling fixes both and adds the
 * waits that slots need.
 */
#ifndef ZINF_OFFLOAD_BUILDER_H
#define ZINF_OFFLOAD_BUILDER_H

#include "offload/offload.h"

#define NONE UINT32_MAX
#define BEFORE (UINT32_MAX - 1) /* the first operation of a buffer was in an earlier piece */

struct resource {
    uint32_t writer;   /* last operation that wrote it, or NONE */
    uint32_t *readers; /* operations that have read it since */
    uint32_t n_readers, capacity;
    zinf_pool pool;      /* pool of a buffer; NONE: it is no buffer */
    uint32_t first;      /* first operation that uses the buffer; BEFORE: in an earlier piece */
    uint32_t n_touches;  /* number of operations that use the buffer */
    uint32_t last_touch; /* last operation that uses it, so that each is counted once */
    /* slot in the pool of a buffer that an earlier piece has put there */
    uint32_t slot;
    bool stays; /* the buffer keeps its slot when the piece has ended */
};
/* Operation op uses a buffer. */
struct touch {
    uint32_t op;
    zinf_buffer buffer;
};
struct zinf_builder {
    /* Of the first n_old the builder made n_fixed before the first piece; the others have numbers
     * of their own, ascending, in old. Those of this piece follow, numbered from first_new on. */
    struct resource *resources;
    uint32_t n_resources, resources_capacity;
    uint32_t n_fixed, n_old, first_new;
    uint32_t *old; /* [n_old - n_fixed] */
    struct zinf_pool_options *pools;
    uint32_t n_pools, pools_capacity;
    struct touch *touches; /* in order of op */
    uint32_t n_touches, touches_capacity;
    uint32_t ops_capacity, waits_capacity, tenants_capacity;
    struct zinf_operand *list; /* operands of the operation being added */
    uint32_t list_capacity;
    uint32_t *found; /* waits of the operation being added */
    uint32_t n_found, found_capacity;
    /* [n_ops]: number + 1 of the last operation for which this one was put into `found` */
    uint32_t *wanted_by;
    uint32_t wanted_capacity;
};
/* The place in resources of the one with that number, or NONE: an earlier piece has dropped it. */
uint32_t zinf_builder_find(const struct zinf_builder *b, uint32_t number);
/* Whether a buffer of an earlier piece has its slot in this one, at least up to its last use. */
static inline bool holds_slot(const struct resource *r)
{
    return r->first == BEFORE && (r->n_touches || r->stays);
}
int zinf_builder_grow(void **array, uint32_t *capacity, uint32_t need, size_t width);
void zinf_builder_destroy(struct zinf_builder *builder);

/* shared.c: bytes that are stored once however often they are given. */
struct zinf_shared;
struct zinf_shared *zinf_shared_create(void);
void zinf_shared_destroy(struct zinf_shared *shared);
/* Returns the stored copy of data, which is valid until zinf_shared_destroy; NULL if there is no
 * memory. Bytes are compared with padding, so the caller must have set padding to zeros. */
const void *zinf_shared_keep(struct zinf_shared *shared, const void *data, size_t bytes);
/* Frees what only zinf_shared_keep needs; it must not be called again. */
void zinf_shared_end(struct zinf_shared *shared);
uint64_t zinf_shared_bytes(const struct zinf_shared *shared);

/* program.c, simulate.c: of the operations that are there, which may be those of a piece. */
uint64_t zinf_program_bytes_now(const struct zinf_program *program);
void zinf_work_add_now(struct zinf_work *sum, const struct zinf_program *program);
/* schedule.c: as zinf_program_schedule, of a whole program or a piece, but the builder stays, and
 * knows the slots of buffers that stay. */
int zinf_program_freeze(struct zinf_program *program, enum zinf_order order,
                        const struct zinf_machine *machine);

/* A lane whose operations end in the order in which they began. Drive lanes do not. */
static inline bool lane_in_order(enum zinf_lane lane)
{
    return lane != ZINF_LANE_READ && lane != ZINF_LANE_WRITE;
}

/* schedule_list.c: order[i] becomes the operation that starts i-th when each lane takes the ready
 * operation that is needed earliest. */
int zinf_schedule_list(const struct zinf_program *program, const struct zinf_machine *machine,
                       uint32_t *order);

/* simulate.c: lanes with one operation each, which slow each other. */
struct simulation {
    const struct zinf_machine *machine;
    const struct zinf_op *op[ZINF_LANES]; /* under way, or NULL */
    double left[ZINF_LANES];              /* seconds of it, alone */
    double rate[ZINF_LANES];              /* and how fast it goes beside the others */
    double now;
};
void simulation_start(struct simulation *s, const struct zinf_op *op);
/* Seconds until the next operation ends; < 0: none is under way. Sets the rates. */
double simulation_step(struct simulation *s);
/* Goes on by so many seconds or less, nothing having been started since; returns the lanes, as
 * bits, whose operation has ended then (they are empty). out (may be NULL) is added to. */
unsigned simulation_advance(struct simulation *s, double seconds, struct zinf_prediction *out);

#endif
