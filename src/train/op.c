/* op: the rows of op.h as tables. */
#include "train/op.h"

static const struct {
    const char *name;
    enum op_cost cost;
} rows[] = {
#define OP_ROW(kind, name, run, cost) [kind] = {name, cost},
    OP_ROWS(OP_ROW)
#undef OP_ROW
        [OP_STAGES] = {"stage", COST_STAGE},
};

const char *op_kind_name(int kind)
{
    return rows[kind < OP_STAGES ? kind : OP_STAGES].name;
}

enum op_cost op_kind_cost(int kind)
{
    return rows[kind < OP_STAGES ? kind : OP_STAGES].cost;
}
