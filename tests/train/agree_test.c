/* agree: ranks that would meet in other orders are told so before a step. */
#include "net/net.h"
#include "tap.h"
#include "train/trainer.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- two ranks ---- */

struct rank {
    pthread_t thread;
    struct zinf_net *net;
    enum zinf_axis_kind axis; /* that the net is of */
    struct zinf_op ops[3];    /* on the lane NET */
    int code;
    char said[256];
};

static void *compare(void *arg)
{
    struct rank *r = arg;
    struct zinf_trainer *t = calloc(1, sizeof *t);
    t->setup.mesh.at[r->axis] = (struct zinf_axis){.world = 2, .net = r->net};
    t->plan.gradients = (struct zinf_program){.ops = r->ops, .n_ops = 3};
    r->code = agree_programs(t);
    snprintf(r->said, sizeof r->said, "%s", r->code ? zinf_error() : "");
    free(t);
    zinf_net_close(r->net); /* returns when both have come to it */
    return NULL;
}

/* Operations by letters: the axis, whose ranks meet. 0, or what both ranks fail with. */
static int agree_on(enum zinf_axis_kind axis, const char *first, const char *second)
{
    static const char letters[] = "DTPC";
    const char *const orders[] = {first, second};
    struct zinf_net *nets[2];
    struct rank ranks[2] = {{.axis = axis}, {.axis = axis}};
    if (zinf_net_threads_create(nets, 2))
        return -ENOMEM;
    for (int i = 0; i < 2; i++) {
        ranks[i].net = nets[i];
        for (int k = 0; k < 3; k++)
            ranks[i].ops[k] =
                (struct zinf_op){.lane = ZINF_LANE_NET,
                                 .axis = (uint8_t)(strchr(letters, orders[i][k]) - letters),
                                 .bytes = 64};
        pthread_create(&ranks[i].thread, NULL, compare, &ranks[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(ranks[i].thread, NULL);
    CHECK(ranks[0].code == ranks[1].code);
    CHECK(!ranks[0].code || strstr(ranks[0].said, "order of transfers between ranks"));
    return ranks[0].code;
}

static void test_one_order(void)
{
    CHECK(agree_on(ZINF_DATA, "DCD", "DCD") == 0);
    CHECK(agree_on(ZINF_DATA, "DDC", "DCD") == -EINVAL);
    CHECK(agree_on(ZINF_DATA, "DPD", "PDD") == -EINVAL);
    CHECK(agree_on(ZINF_DATA, "DTD", "TDD") == -EINVAL);
}

/* Ranks of other axes have other operations, and meet in those of their axis alone. */
static void test_other_axes(void)
{
    CHECK(agree_on(ZINF_CONTEXT, "DCD", "CDD") == 0);
    CHECK(agree_on(ZINF_TENSOR, "TDP", "DPT") == 0);
    CHECK(agree_on(ZINF_TENSOR, "TTD", "TDD") == -EINVAL);
}

int main(void)
{
    TAP_RUN(test_one_order);
    TAP_RUN(test_other_axes);
    return tap_done();
}
