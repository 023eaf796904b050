/*
 * mesh: where ranks stand on their axes, over nets that are split and over such as are only
 * described; what meets whom; and numbers of ranks that give no mesh.
 */
#include "net/mesh.h"
#include "tap.h"

#include <pthread.h>
#include <stdio.h>

enum { MOST_RANKS = 16 };

struct rank {
    pthread_t thread;
    struct zinf_net *net;
    const uint32_t *worlds;
    uint32_t numbers[ZINF_AXES];
    int64_t sums[ZINF_AXES]; /* along each axis, of 1 << rank */
    int code;
};

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    struct zinf_mesh mesh;
    rank->code = zinf_mesh_init(&mesh, rank->net, rank->worlds);
    for (int a = 0; !rank->code && a < ZINF_AXES; a++) {
        rank->numbers[a] = mesh.at[a].rank;
        rank->sums[a] = (int64_t)1 << zinf_net_place(rank->net).rank;
        if (mesh.at[a].net)
            rank->code = zinf_net_add(mesh.at[a].net, &rank->sums[a], 1);
    }
    zinf_mesh_fini(&mesh);
    zinf_net_close(rank->net);
    return NULL;
}

static void run_mesh(struct rank *ranks, uint32_t world, const uint32_t *worlds)
{
    struct zinf_net *nets[MOST_RANKS];
    CHECKF(!zinf_net_threads_create(nets, world), "%s", zinf_error());
    for (uint32_t r = 0; r < world; r++) {
        ranks[r] = (struct rank){.net = nets[r], .worlds = worlds};
        pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
    }
    for (uint32_t r = 0; r < world; r++)
        pthread_join(ranks[r].thread, NULL);
}

/* PIPE is outermost, then DATA, CONTEXT and TENSOR. */
static void test_order(void)
{
    static const uint32_t worlds[ZINF_AXES] = {
        [ZINF_DATA] = 0, [ZINF_TENSOR] = 2, [ZINF_PIPE] = 2, [ZINF_CONTEXT] = 2};
    struct rank ranks[MOST_RANKS];
    run_mesh(ranks, 16, worlds);
    for (uint32_t r = 0; r < 16; r++) {
        const uint32_t *n = ranks[r].numbers;
        CHECK(!ranks[r].code);
        CHECKF(n[ZINF_PIPE] * 8 + n[ZINF_DATA] * 4 + n[ZINF_CONTEXT] * 2 + n[ZINF_TENSOR] == r,
               "rank %u: data %u, tensor %u, pipe %u, context %u", r, n[ZINF_DATA], n[ZINF_TENSOR],
               n[ZINF_PIPE], n[ZINF_CONTEXT]);
        static const uint32_t strides[] = {
            [ZINF_DATA] = 4, [ZINF_TENSOR] = 1, [ZINF_PIPE] = 8, [ZINF_CONTEXT] = 2};
        for (int a = 0; a < ZINF_AXES; a++) {
            uint32_t first = r - n[a] * strides[a];
            CHECKF(ranks[r].sums[a] == ((1 | 1 << strides[a]) << first),
                   "rank %u meets %llx on axis %d", r, (unsigned long long)ranks[r].sums[a], a);
        }
    }
}

static void test_data_alone(void)
{
    struct rank ranks[MOST_RANKS];
    struct zinf_mesh mesh;
    run_mesh(ranks, 3, NULL);
    for (uint32_t r = 0; r < 3; r++)
        CHECK(!ranks[r].code && ranks[r].numbers[ZINF_DATA] == r && ranks[r].sums[ZINF_DATA] == 7);
    CHECK(!zinf_mesh_init(&mesh, NULL, NULL) && !mesh.all && !mesh.at[ZINF_DATA].net &&
          mesh.at[ZINF_DATA].world == 1);
    zinf_mesh_fini(&mesh);
}

static void test_described(void)
{
    static const uint32_t worlds[ZINF_AXES] = {[ZINF_TENSOR] = 4, [ZINF_PIPE] = 2};
    struct zinf_net *net;
    struct zinf_mesh mesh;
    CHECK(!zinf_net_describe(&net, 64, 8, 8));
    CHECKF(!zinf_mesh_init(&mesh, net, worlds), "%s", zinf_error());
    struct zinf_net_place tensor = zinf_net_place(mesh.at[ZINF_TENSOR].net);
    struct zinf_net_place data = zinf_net_place(mesh.at[ZINF_DATA].net);
    CHECKF(tensor.world == 4 && tensor.local_world == 4, "%u of %u", tensor.local_world,
           tensor.world);
    CHECKF(data.world == 8 && data.local_world == 2, "%u of %u", data.local_world, data.world);
    CHECK(mesh.at[ZINF_PIPE].world == 2 && !mesh.at[ZINF_CONTEXT].net);
    zinf_mesh_fini(&mesh);
    zinf_net_close(net);
}

static void test_refusals(void)
{
    static const uint32_t three[ZINF_AXES] = {[ZINF_TENSOR] = 3};
    static const uint32_t twice[ZINF_AXES] = {[ZINF_DATA] = 4, [ZINF_TENSOR] = 2};
    struct rank ranks[MOST_RANKS];
    struct zinf_mesh mesh;
    run_mesh(ranks, 4, three);
    for (int r = 0; r < 4; r++)
        CHECK(ranks[r].code == -EINVAL);
    run_mesh(ranks, 4, twice);
    CHECK(ranks[0].code == -EINVAL);
    CHECK(zinf_mesh_init(&mesh, NULL, three) == -EINVAL && strstr(zinf_error(), "1 ranks are not"));
}

int main(void)
{
    TAP_RUN(test_order);
    TAP_RUN(test_data_alone);
    TAP_RUN(test_described);
    TAP_RUN(test_refusals);
    return tap_done();
}
