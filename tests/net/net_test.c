/* net: every collective over ranks that are threads, and what a rank sees of one that fails. */
#include "split_cases.h"
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>

enum { MOST_RANKS = 8 };

struct rank {
    pthread_t thread;
    struct zinf_net *net;
    void (*body)(struct rank *rank);
    struct net_report report;
    int code;
    char said[400];
};

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    rank->body(rank);
    zinf_net_close(rank->net);
    return NULL;
}

static void run_ranks(struct rank *ranks, uint32_t world, double timeout,
                      void (*body)(struct rank *rank))
{
    struct zinf_net *nets[MOST_RANKS];
    memset(ranks, 0, world * sizeof *ranks);
    CHECKF(!zinf_net_threads_create(nets, world), "%s", zinf_error());
    for (uint32_t r = 0; r < world; r++) {
        if (timeout > 0)
            zinf_net_set_timeout(nets[r], timeout);
        ranks[r].net = nets[r];
        ranks[r].body = body;
        CHECK(!pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]));
    }
    for (uint32_t r = 0; r < world; r++)
        pthread_join(ranks[r].thread, NULL);
}

/* ---- what all engines do ---- */

static void all_cases(struct rank *rank)
{
    net_cases(rank->net, zinf_net_place(rank->net).world <= 3, &rank->report);
}

static void check_world(uint32_t world)
{
    struct rank ranks[MOST_RANKS];
    run_ranks(ranks, world, 0, all_cases);
    for (uint32_t r = 0; r < world; r++) {
        CHECK(ranks[r].report.n_checks > 100);
        CHECKF(!ranks[r].report.n_failed, "rank %u of %u: %d failed: %s", r, world,
               ranks[r].report.n_failed, ranks[r].report.first);
    }
}

static void test_one(void)
{
    check_world(1);
}

static void test_two(void)
{
    check_world(2);
}

static void test_three(void)
{
    check_world(3);
}

static void test_four(void)
{
    check_world(4);
}

static void test_eight(void)
{
    check_world(8);
}

/* ---- the tree ---- */

/* Any cut into subtrees gives the same bits. */
static void test_subtrees(void)
{
    enum { N = 8, ELEMS = 50 };
    static float whole[N][ELEMS], cut[N][ELEMS];
    for (uint32_t each = 1; each <= N; each *= 2) {
        float *parts[N], *tops[N];
        for (uint32_t i = 0; i < N; i++)
            for (uint32_t k = 0; k < ELEMS; k++)
                whole[i][k] = cut[i][k] = net_value(i, k);
        for (uint32_t i = 0; i < N; i++)
            parts[i] = whole[i];
        zinf_tree_sum(parts, N, ELEMS);
        for (uint32_t i = 0; i < N; i += each) {
            for (uint32_t k = 0; k < each; k++)
                parts[k] = cut[i + k];
            zinf_tree_sum(parts, each, ELEMS);
            tops[i / each] = cut[i];
        }
        zinf_tree_sum(tops, N / each, ELEMS);
        CHECKF(!memcmp(whole[0], cut[0], sizeof whole[0]), "subtrees of %u", each);
    }
}

/* ---- failures ---- */

static void note(struct rank *rank, int code)
{
    rank->code = code;
    snprintf(rank->said, sizeof rank->said, "%s", code ? zinf_error() : "");
}

static void one_is_late(struct rank *rank)
{
    if (zinf_net_place(rank->net).rank == 2)
        note(rank, 0); /* it ends without a word */
    else
        note(rank, zinf_net_barrier(rank->net));
    zinf_net_tell(rank->net, "over");
}

static void test_a_late_rank_is_named(void)
{
    struct rank ranks[3];
    run_ranks(ranks, 3, 2, one_is_late);
    for (int r = 0; r < 2; r++)
        CHECKF(ranks[r].code == -ETIMEDOUT || ranks[r].code == -ECONNABORTED, "rank %d: %d: %s", r,
               ranks[r].code, ranks[r].said);
    CHECKF(strstr(ranks[0].said, "rank 2") || strstr(ranks[1].said, "rank 2"), "%s; %s",
           ranks[0].said, ranks[1].said);
}

static void one_tells(struct rank *rank)
{
    float numbers[4] = {0};
    if (zinf_net_place(rank->net).rank == 1)
        zinf_net_tell(rank->net, "the drive is full");
    else
        note(rank, zinf_net_scatter_sum(rank->net, numbers, numbers, 1));
    if (zinf_net_place(rank->net).rank != 1) /* and stays so */
        CHECK(zinf_net_barrier(rank->net) == -ECONNABORTED);
}

static void test_a_failure_is_told(void)
{
    struct rank ranks[4];
    run_ranks(ranks, 4, 60, one_tells);
    for (int r = 0; r < 4; r++)
        CHECKF(r == 1 || (ranks[r].code == -ECONNABORTED &&
                          strstr(ranks[r].said, "rank 1 has failed: the drive is full")),
               "rank %d: %d: %s", r, ranks[r].code, ranks[r].said);
}

static void lengths_differ(struct rank *rank)
{
    char whole[64] = {0}, slice[32] = {0};
    bool odd = zinf_net_place(rank->net).rank == 1;
    note(rank, zinf_net_gather(rank->net, slice, whole, odd ? 9 : 8));
    zinf_net_tell(rank->net, rank->said);
}

static void test_lengths_that_differ(void)
{
    struct rank ranks[2];
    run_ranks(ranks, 2, 10, lengths_differ);
    CHECKF(ranks[0].code == -EPROTO || ranks[1].code == -EPROTO, "%s; %s", ranks[0].said,
           ranks[1].said);
    CHECK(ranks[0].code && ranks[1].code);
}

static void splits(struct rank *rank)
{
    split_cases(rank->net, &rank->report);
}

static bool busy;

static void failure_across(struct rank *rank)
{
    split_case_failure(rank->net, busy, &rank->report);
}

static void test_splits(void)
{
    struct rank ranks[MOST_RANKS];
    for (uint32_t world = 4; world <= 6; world += 2) {
        run_ranks(ranks, world, 0, splits);
        for (uint32_t r = 0; r < world; r++)
            CHECKF(ranks[r].report.n_checks > 1000 && !ranks[r].report.n_failed,
                   "rank %u of %u: %s", r, world, ranks[r].report.first);
    }
}

static void test_a_failure_goes_across(void)
{
    struct rank ranks[4];
    for (int i = 0; i < 2; i++) {
        busy = i;
        run_ranks(ranks, 4, 60, failure_across);
        for (uint32_t r = 0; r < 4; r++)
            CHECKF(ranks[r].report.n_checks > 2 && !ranks[r].report.n_failed, "rank %u: %s", r,
                   ranks[r].report.first);
    }
}

static void test_no_launcher(void)
{
    struct zinf_net *net = NULL;
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMI_SIZE");
    unsetenv("MPI_LOCALNRANKS");
    unsetenv("SLURM_STEP_ID");
    setenv("SLURM_STEP_NUM_TASKS", "4", 1); /* of an allocation, not of a step */
    CHECK(zinf_net_launched() == 1);
    CHECK(!zinf_net_open(&net, ZINF_NET_TIMEOUT_SECONDS) && !net);
    setenv("SLURM_STEP_ID", "0", 1);
    CHECK(zinf_net_launched() == 4);
    setenv("PMI_SIZE", "3", 1); /* an mpirun within it */
    CHECK(zinf_net_launched() == 3);
    setenv("ZINF_MPI_MODULE", "/nowhere/zinf-mpi.so", 1);
    CHECK(zinf_net_open(&net, ZINF_NET_TIMEOUT_SECONDS) == -ENOTSUP &&
          strstr(zinf_error(), "--with-mpi"));
    CHECK(zinf_net_mpi_why_not() != NULL);
}

/* A part of a part; rank 1 cannot go on, which some hear before their part is theirs. Whoever hears
 * of it closes the first part before the second. */
static void refuse_in_parts(struct rank *rank)
{
    struct zinf_net *part = NULL, *smaller = NULL;
    const uint32_t own = zinf_net_place(rank->net).rank;
    rank->code = zinf_net_split(rank->net, own % 2, own, &part);
    if (!rank->code)
        rank->code = zinf_net_split(part, 0, 0, &smaller);
    if (own == 1)
        zinf_net_tell(rank->net, "the drive is full");
    zinf_net_close(part);
    zinf_net_close(smaller);
    zinf_net_tell(rank->net, "over");
}

static void test_a_refusal_in_parts_of_parts(void)
{
    struct rank ranks[MOST_RANKS];
    for (int i = 0; i < 200; i++) {
        run_ranks(ranks, 4, 0, refuse_in_parts);
        for (uint32_t r = 0; r < 4; r++)
            CHECKF(!ranks[r].code || ranks[r].code == -ECONNABORTED, "%d", ranks[r].code);
    }
}

int main(void)
{
    TAP_RUN(test_one);
    TAP_RUN(test_two);
    TAP_RUN(test_three);
    TAP_RUN(test_four);
    TAP_RUN(test_eight);
    TAP_RUN(test_subtrees);
    TAP_RUN(test_a_late_rank_is_named);
    TAP_RUN(test_a_failure_is_told);
    TAP_RUN(test_lengths_that_differ);
    TAP_RUN(test_splits);
    TAP_RUN(test_a_failure_goes_across);
    TAP_RUN(test_a_refusal_in_parts_of_parts);
    TAP_RUN(test_no_launcher);
    return tap_done();
}
