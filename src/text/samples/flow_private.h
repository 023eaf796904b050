/* flow_private: makes the groups of a flow (flow.c, flow_rows.c). Inside this folder only; a maker
 * belongs to the flow's thread. */
#ifndef ZINF_FLOW_PRIVATE_H
#define ZINF_FLOW_PRIVATE_H

#include "text/internal.h"
#include "text/samples/flow.h"

struct flow_maker;
int flow_maker_create(struct flow_maker **out, const struct zinf_flow_options *options);
void flow_maker_destroy(struct flow_maker *maker);
/* Makes the rows continue at mark. */
int flow_maker_go_to(struct flow_maker *maker, const struct zinf_flow_mark *mark);
/* Makes the next group; *out NULL: the rows have ended. *end: the place behind it, except for its
 * number. */
int flow_maker_next(struct flow_maker *maker, struct zinf_dataset **out,
                    struct zinf_flow_mark *end);
/* A hash of all groups so far, to compare with other ranks. */
uint64_t flow_maker_sum(const struct flow_maker *maker);
/* Ends requests for rows: flow_maker_next fails after the present row. Any thread may call it. */
void flow_maker_quit(struct flow_maker *maker);

#endif
