/* flow_private: what the groups of a flow (flow.c) are made by (flow_rows.c). Inside this folder
 * only; a maker belongs to the flow's thread. */
#ifndef ZINF_FLOW_PRIVATE_H
#define ZINF_FLOW_PRIVATE_H

#include "text/internal.h"
#include "text/samples/flow.h"

struct flow_maker;
int flow_maker_create(struct flow_maker **out, const struct zinf_flow_options *options);
void flow_maker_destroy(struct flow_maker *maker);
/* The rows go on at mark. */
int flow_maker_go_to(struct flow_maker *maker, const struct zinf_flow_mark *mark);
/* The next group; *out NULL: the rows have ended. *end: what follows begins there, but for its
 * number. */
int flow_maker_next(struct flow_maker *maker, struct zinf_dataset **out,
                    struct zinf_flow_mark *end);
/* Of all groups so far, to be compared with that of another rank. */
uint64_t flow_maker_sum(const struct flow_maker *maker);
/* No more rows are asked for: a call of flow_maker_next that is under way fails after the row at
 * hand. The one call that any thread may make. */
void flow_maker_quit(struct flow_maker *maker);

#endif
