/*
 * net_ranks: one rank of those that net_mpi_test.sh starts. Without an argument it runs every case
 * and rank 0 says "all N ranks: passed"; with "split" those of nets that are split; with another
 * one it fails as that says, and says what it sees.
 */
#include "split_cases.h"

#include <fcntl.h>
#include <unistd.h>

static int all_cases(struct zinf_net *net, bool split)
{
    struct zinf_net_place at = zinf_net_place(net);
    struct net_report r = {0};
    if (split)
        split_cases(net, &r);
    else
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

/* The launcher kills all ranks as soon as one exits with an error. So each leaves an empty file in
 * ZINF_TEST_FOLDER when it has spoken, and exits once all have, or after 60 s. */
static void await_all(struct zinf_net_place place)
{
    const char *folder = getenv("ZINF_TEST_FOLDER");
    char path[512];
    for (uint32_t i = 0, rank = place.rank, tries = 0; folder && i < place.world; i++) {
        snprintf(path, sizeof path, "%s/spoke-%u", folder, i ? (rank + i) % place.world : rank);
        if (!i)
            close(open(path, O_CREAT | O_WRONLY, 0600));
        while (access(path, F_OK) && tries++ < 6000)
            usleep(10000);
    }
}

/* Each says what it has seen. */
static int fail_across(struct zinf_net *net, bool busy)
{
    struct net_report r = {0};
    zinf_net_set_timeout(net, 60);
    split_case_failure(net, busy, &r);
    printf("rank %u: %s\n", zinf_net_place(net).rank, r.n_failed ? r.first : "hears of it");
    fflush(stdout);
    await_all(zinf_net_place(net));
    return 1;
}

/* Of two ranks, rank 1 misbehaves; rank 0 says what it sees of that. */
static int fail_as(struct zinf_net *net, const char *how)
{
    char whole[64] = {0}, slice[32] = {0};
    bool odd = zinf_net_place(net).rank == 1;
    zinf_net_barrier(net);
    zinf_net_set_timeout(net, strcmp(how, "sleep") ? 60 : 2); /* else nobody is late */
    if (odd && !strcmp(how, "tell")) {
        zinf_net_tell(net, "the drive is full");
        return 1;
    }
    if (odd && !strcmp(how, "sleep"))
        sleep(30); /* ended with the other, if the launcher does that */
    int code = zinf_net_gather(net, slice, whole, odd && !strcmp(how, "length") ? 9 : 8);
    if (!odd || code) {
        printf("rank %d sees %d: %s\n", odd, code, code ? zinf_error() : "nothing");
        fflush(stdout);
    }
    if (code)
        zinf_net_tell(net, zinf_error());
    return code != 0;
}

/* Rank 1 has nothing to do with what the other two of three exchange, late; it tells when that is
 * still going on. What it took part in ends well. */
static int tell_early(struct zinf_net *net)
{
    char given[8] = "bytes", got[8] = "";
    uint32_t rank = zinf_net_place(net).rank, peer = 2 - rank;
    void *out[3] = {given, given, given}, *in[3] = {got, got, got};
    uint64_t bytes[3] = {0};
    zinf_net_barrier(net);
    if (rank == 2)
        usleep(300000);
    if (rank != 1)
        bytes[peer] = sizeof given;
    int code = zinf_net_trade(net, &(struct zinf_net_trade){out, in, bytes, bytes});
    if (rank == 1) {
        zinf_net_tell(net, "the drive is full");
        return 1;
    }
    bool traded = !code && !strcmp(got, given);
    code = zinf_net_barrier(net);
    printf("rank %u %s, then sees %d: %s\n", rank, traded ? "trades" : "trades nothing", code,
           code ? zinf_error() : "nothing");
    fflush(stdout);
    zinf_net_tell(net, zinf_error());
    return 1;
}

int main(int argc, char **argv)
{
    struct zinf_net *net = NULL;
    if (zinf_net_open(&net, ZINF_NET_TIMEOUT_SECONDS) || !net) {
        printf("no net: %s\n", net ? "" : zinf_error());
        return 2;
    }
    if (zinf_net_place(net).rank == 0)
        printf("%s\n", zinf_net_name(net));
    const char *how = argc > 1 ? argv[1] : "";
    int code = !strcmp(how, "early")    ? tell_early(net)
               : !strcmp(how, "across") ? fail_across(net, true)
               : !strcmp(how, "idle")   ? fail_across(net, false)
               : !*how                  ? all_cases(net, false)
               : !strcmp(how, "split")  ? all_cases(net, true)
                                        : fail_as(net, how);
    zinf_net_close(net);
    return code;
}
