/*
 * net_ranks: one rank of those that net_mpi_test.sh starts. Without an argument it runs every case
 * and rank 0 says "all N ranks: K checks"; with one it fails as that says, and says what it sees.
 */
#include "net_cases.h"

#include <unistd.h>

static int all_cases(struct zinf_net *net)
{
    struct zinf_net_place at = zinf_net_place(net);
    struct net_report r = {0};
    net_cases(net, at.world <= 2, &r);
    int64_t sums[2] = {r.n_checks, r.n_failed};
    if (r.n_failed)
        printf("rank %u: %d failed: %s\n", at.rank, r.n_failed, r.first);
    if (zinf_net_add(net, sums, 2))
        return 1;
    if (at.rank == 0 && !sums[1])
        printf("all %u ranks: %s\n", at.world, sums[0] > 200 ? "passed" : "too few checks");
    return sums[1] != 0;
}

/* Of two ranks, rank 1 misbehaves; rank 0 says what it sees of that. */
static int fail_as(struct zinf_net *net, const char *how)
{
    char whole[64] = {0}, slice[32] = {0};
    bool odd = zinf_net_place(net).rank == 1;
    zinf_net_set_timeout(net, 0.5);
    zinf_net_barrier(net);
    if (odd && !strcmp(how, "tell")) {
        zinf_net_tell(net, "the drive is full");
        return 1;
    }
    if (odd && !strcmp(how, "sleep"))
        sleep(4);
    int code = zinf_net_gather(net, slice, whole, odd && !strcmp(how, "length") ? 9 : 8);
    if (!odd || code) {
        printf("rank %d sees %d: %s\n", odd, code, code ? zinf_error() : "nothing");
        fflush(stdout);
    }
    if (code)
        zinf_net_tell(net, zinf_error());
    return code != 0;
}

int main(int argc, char **argv)
{
    struct zinf_net *net = NULL;
    if (zinf_net_open(&net) || !net) {
        printf("no net: %s\n", net ? "" : zinf_error());
        return 2;
    }
    if (zinf_net_place(net).rank == 0)
        printf("%s\n", zinf_net_name(net));
    int code = argc > 1 ? fail_as(net, argv[1]) : all_cases(net);
    zinf_net_close(net);
    return code;
}
