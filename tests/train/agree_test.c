/*
 * agree: ranks that would meet in other orders are told so before a step. They take a variant of
 * the plan that all of them have room for.
 */
#include "net/net.h"
#include "train/trainer.h"
#include "trainings.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- the order of exchanges ---- */

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

/* ---- the variant ---- */

/* A seat of a process, whose host memory is just enough for the usual variant, or plenty. No CHECK
 * in its thread. */
struct seat {
    pthread_t thread;
    struct zinf_config *config;
    struct zinf_net *net;
    bool is_first, is_tight;
    int code;
    bool packs, has_room; /* of the variant that it took */
};
static const struct setting on_drive = {.extra = ", \"durability\": \"none\""};

static bool has_room(const struct setup *s, const struct variant *variant)
{
    struct plan p;
    const bool has = !plan_make(&p, s, variant);
    if (has)
        plan_fini(&p);
    return has;
}

static void set_host(struct setup *s, uint64_t bytes)
{
    s->budget[ZINF_MEMORY_HOST] = s->fill_bytes = bytes;
}

static void leave_just_enough(struct setup *s, const struct variant *variant)
{
    uint64_t enough = (uint64_t)1 << 30, few = 0;
    while (enough - few > 4096) {
        const uint64_t middle = few + (enough - few) / 2;
        set_host(s, middle);
        if (has_room(s, variant))
            enough = middle;
        else
            few = middle;
    }
    set_host(s, enough);
}

static void *take_variant(void *arg)
{
    struct seat *seat = arg;
    struct zinf_trainer_options options = trainer_options(&on_drive, seat->config);
    struct setup s;
    options.init = true;
    options.net = seat->net;
    seat->code = setup_init(&s, &options, true);
    if (!seat->code) {
        struct variant variant = plan_usual(&s);
        if (seat->is_tight)
            leave_just_enough(&s, &variant);
        if (seat->is_first)
            variant.packs = PACK_ALL;
        seat->code = agree_variant(&s, &variant);
        seat->packs = variant.packs == PACK_ALL;
        seat->has_room = has_room(&s, &variant);
    }
    setup_fini(&s);
    zinf_net_close(seat->net);
    return NULL;
}

/* Whether two seats take what the first one has found. */
static bool take_the_first(bool second_is_tight)
{
    struct zinf_net *nets[2];
    struct seat seats[2] = {{.is_first = true}, {.is_tight = second_is_tight}};
    CHECKF(!zinf_net_seats_create(nets, 2, NULL), "%s", zinf_error());
    for (int i = 0; i < 2; i++) {
        seats[i].config = configure_of(&on_drive, 2);
        seats[i].net = nets[i];
        pthread_create(&seats[i].thread, NULL, take_variant, &seats[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(seats[i].thread, NULL);
        CHECKF(!seats[i].code && seats[i].has_room, "seat %d: %d", i, seats[i].code);
        zinf_config_destroy(seats[i].config);
    }
    CHECK(seats[0].packs == seats[1].packs);
    return seats[0].packs;
}

static void test_a_variant_fits_all_seats(void)
{
    CHECK(take_the_first(false));
    CHECK(!take_the_first(true));
}

int main(void)
{
    begin_trainings("agree", &(struct trainings){.shape = {.arch = "gpt2",
                                                           .layers = 4,
                                                           .hidden = 64,
                                                           .heads = 4,
                                                           .vocab = 500,
                                                           .context = 64},
                                                 .seq = 64,
                                                 .batch = 2,
                                                 .sub_group = 20000});
    TAP_RUN(test_one_order);
    TAP_RUN(test_other_axes);
    TAP_RUN(test_a_variant_fits_all_seats);
    remove_work();
    return tap_done();
}
