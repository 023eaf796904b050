/*
 * net_nccl: GPUs that send to each other, by NCCL. A rank whose part of a transfer never comes
 * makes NCCL's kernels of all others spin for ever, and nothing says whose it is. So ranks meet
 * over the net before each transfer, which names who is missing, and only then is it enqueued; the
 * thread that waits for it is also its watch: it looks for NCCL's asynchronous errors, listens to
 * the net for ranks that have failed, looks at the clock, and aborts the communicator. Then the net
 * is asked once more who is gone.
 *
 * The communicator does not block, as NCCL wants it of those that may be aborted; after an error
 * nothing but that is allowed, on all ranks (NCCL's user guide, "Error handling and communicator
 * abort"). Calls of a transfer are one group: receives and sends that need each other are one
 * kernel.
 */
#include "net/net_nccl.h"

#include <stdlib.h>
#include <string.h>

#define LISTEN_NS 10000000  /* between looks at the net */
#define GONE_NS 2000000000u /* at least, for ranks on busy hosts to say that they are there */

/* ---- failure ---- */

/* The sentence is net->why. Whoever calls the net next is told too. */
static int fail(struct zinf_link *link, int code)
{
    link_abort(link);
    link->net->failed = code;
    return zinf_fail(code, "%s", link->net->why);
}

int link_fail_by_device(struct zinf_link *link, int code)
{
    snprintf(link->net->why, sizeof link->net->why, "%s", zinf_error());
    return fail(link, code);
}

static void say_error(struct zinf_link *link, int result)
{
    const char *more = link->nccl->GetLastError(link->comm); /* NULL too */
    snprintf(link->net->why, sizeof link->net->why, "%s: %.200s%s%.600s", link->nccl->name,
             link->nccl->GetErrorString(result), more && *more ? ": " : "", more ? more : "");
}

/* ---- meeting ---- */

static int check_rolls(struct zinf_link *link)
{
    struct zinf_net *net = link->net;
    int code = 0;
    for (uint32_t r = 0; !code && r < world_of(link); r++) {
        const struct roll *roll = &link->rolls[r];
        if (roll->failed)
            code = net_told(net, net_number(net, r), "its GPU's transfer has not ended");
        else if (roll->number != link->own.number || roll->what != link->own.what) {
            snprintf(net->why, sizeof net->why,
                     "%s %u is at another transfer between GPUs: the ranks do not run the same "
                     "step",
                     net_noun(net), net_number(net, r));
            code = -EPROTO;
        }
    }
    return code ? fail(link, code) : 0;
}

int link_meet(struct zinf_link *link, enum transfer kind, uint64_t size)
{
    if (!link->comm && kind != OPENING)
        return zinf_fail(link->net->failed ? link->net->failed : -EIO, "%s", link->net->why);
    link->own.number++;
    link->own.what = size << 3 | kind;
    int code = zinf_net_gather(link->net, &link->own, link->rolls, sizeof link->own);
    link->begun_ns = net_now_ns();
    return code ? fail(link, code) : check_rolls(link);
}

/* Of a transfer that all had come to: a rank that has gone since does not answer, until the time is
 * over by which all others have seen that it does not end. Where all answer, the sentence so far
 * stays, unless this rank has only waited and another knows more. */
static int find_gone(struct zinf_link *link, int code)
{
    struct zinf_net *net = link->net;
    uint64_t timeout_ns = net->timeout_ns, gone_ns = net_now_ns() - link->begun_ns;
    uint64_t least_ns = timeout_ns / 10 > GONE_NS ? timeout_ns / 10 : GONE_NS;
    uint64_t left_ns = gone_ns < timeout_ns ? timeout_ns - gone_ns : 0;
    char why[sizeof net->why];
    link_abort(link);
    snprintf(why, sizeof why, "%s", net->why);
    link->own.failed = code;
    net_set_limit(net, left_ns > least_ns ? left_ns : least_ns);
    int missed = zinf_net_gather(net, &link->own, link->rolls, sizeof link->own);
    net_set_limit(net, timeout_ns);
    if (missed && missed != -EPROTO) /* who is at something else is there */
        return fail(link, missed);
    for (uint32_t r = 0; !missed && code == -ETIMEDOUT && r < world_of(link); r++)
        if (link->rolls[r].failed && link->rolls[r].failed != code)
            return fail(link,
                        net_told(net, net_number(net, r), "NCCL has reported an error there"));
    snprintf(net->why, sizeof net->why, "%s", why);
    return fail(link, code);
}

int link_fail_call(struct zinf_link *link, int result)
{
    say_error(link, result);
    bool elsewhere = result == NCCL_REMOTE_ERROR || result == NCCL_SYSTEM_ERROR;
    return elsewhere ? find_gone(link, -EIO) : fail(link, -EIO);
}

/* ---- waiting ---- */

static void say_opening(struct zinf_link *link, double seconds)
{
    snprintf(link->net->why, sizeof link->net->why,
             "%s: GPUs of all %ss have begun to look for each other, and have not met after %.0f "
             "s: NCCL_DEBUG=INFO says which does not answer, NCCL_SOCKET_IFNAME names the network; "
             "zinf.gather \"host\" does without",
             link->nccl->name, net_noun(link->net), seconds);
}

/* A rank that has failed by itself, or has ended. */
static int check_others(struct zinf_link *link)
{
    uint64_t now = net_now_ns();
    if (now - link->listened_ns < LISTEN_NS)
        return 0;
    link->listened_ns = now;
    int code = net_listen(link->net);
    return code ? fail(link, code) : 0;
}

/* The last tenth of the net's time is for find_gone. */
static int check_clock(struct zinf_link *link)
{
    uint64_t limit_ns = link->net->timeout_ns / 10 * 9;
    if (net_now_ns() - link->begun_ns < limit_ns)
        return check_others(link);
    if ((link->own.what & 7) == OPENING) {
        say_opening(link, (double)limit_ns * 1e-9);
        return find_gone(link, -ETIMEDOUT);
    }
    snprintf(link->net->why, sizeof link->net->why,
             "%s: a transfer between GPUs that all %ss began has not ended after %.0f s: the way "
             "between them hangs (NCCL_DEBUG=INFO says which it is; NCCL_P2P_DISABLE=1 goes by the "
             "host), or zinf.timeout is too short; zinf.gather \"host\" does without",
             link->nccl->name, net_noun(link->net), (double)limit_ns * 1e-9);
    return find_gone(link, -ETIMEDOUT);
}

/* 1: the communicator has done what it was told, which may be only to enqueue it; 0: not yet. */
static int look(struct zinf_link *link)
{
    int state = NCCL_SUCCESS;
    int result = link->nccl->CommGetAsyncError(link->comm, &state);
    if (is_fine(result) && is_fine(state))
        return state == NCCL_SUCCESS;
    return link_fail_call(link, is_fine(result) ? state : result);
}

int link_settle(struct zinf_link *link)
{
    int code = 0, settled = 0;
    for (uint32_t looks = 0; !code && !settled; looks++) {
        settled = look(link);
        if (settled < 0)
            return settled;
        code = settled ? 0 : check_clock(link);
        net_pause(looks);
    }
    return code;
}

/* All that was enqueued has run. */
int link_wait(struct zinf_link *link)
{
    int code = link_settle(link), done = 0;
    for (uint32_t looks = 0; !code && !done; looks++) {
        done = link->device.poll(link->device.queue);
        if (done < 0)
            return link_fail_by_device(link, done);
        int settled = done ? 1 : look(link);
        code = settled < 0 ? settled : done ? 0 : check_clock(link);
        net_pause(looks);
    }
    return code;
}

/* ---- life ---- */

/* All have it, and the same: NCCL itself only hangs, or says less. */
static int compare_versions(struct zinf_link *link)
{
    struct zinf_net *net = link->net;
    int64_t own = link->nccl ? link->nccl->version : 0, least[2] = {own, -own};
    int code = zinf_net_max(net, least, 2);
    if (code)
        return code;
    if (!own)
        return zinf_fail(-ENOTSUP, "%s", zinf_link_why_not());
    if (!least[1])
        return zinf_fail(-ENOTSUP,
                         "a host of the other %ss has no NCCL: install it there, or set "
                         "zinf.gather to host",
                         net_noun(net));
    if (least[0] != own || least[1] != -own)
        return zinf_fail(-ENOTSUP,
                         "hosts have NCCL of different versions, from %lld to %lld, and they do "
                         "not understand each other: install the same",
                         -(long long)least[1], (long long)least[0]);
    return 0;
}

static int open_comm(struct zinf_link *link)
{
    struct zinf_net *net = link->net;
    struct nccl_config config = {sizeof config, NCCL_CONFIG_MAGIC, NCCL_OLDEST, 0};
    struct nccl_id id = {{0}};
    uint64_t timeout_ns = net->timeout_ns;
    int result = net->place.rank ? NCCL_SUCCESS : link->nccl->GetUniqueId(&id);
    if (!is_fine(result)) {
        say_error(link, result);
        return fail(link, -EIO);
    }
    int code = zinf_net_broadcast(net, 0, &id, sizeof id);
    if (!code)
        code = link_meet(link, OPENING, 0);
    if (code)
        return code;
    link->device.stream(link->device.queue);
    result = link->nccl->CommInitRankConfig(&link->comm, (int)world_of(link), id,
                                            (int)net->place.rank, &config);
    if (!is_fine(result)) {
        say_error(link, result);
        return fail(link, -EIO);
    }
    if (link->device.seconds > 0)
        net_set_limit(net, (uint64_t)(link->device.seconds * 1e9));
    code = link_settle(link);
    net_set_limit(net, timeout_ns);
    return code;
}

int zinf_link_create(struct zinf_link **out, struct zinf_net *net,
                     const struct zinf_link_device *device)
{
    struct zinf_link *link = *out = NULL;
    if (net->place.world < 2)
        return zinf_fail(-EINVAL, "one rank alone has nobody to link to");
    link = calloc(1, sizeof *link);
    if (!link)
        return zinf_fail(-ENOMEM, "no memory for a link of GPUs");
    link->net = net;
    link->device = *device;
    link->nccl = nccl_load();
    link->rolls = calloc(net->place.world, sizeof *link->rolls);
    link->parts = calloc(net->place.world, sizeof *link->parts);
    int code = link->rolls && link->parts ? compare_versions(link)
                                          : zinf_fail(-ENOMEM, "no memory for a link of GPUs");
    if (!code)
        code = open_comm(link);
    if (code)
        zinf_link_close(link);
    else
        *out = link;
    return code;
}

uint64_t zinf_link_sent_bytes(const struct zinf_link *link)
{
    return link->sent_bytes;
}
