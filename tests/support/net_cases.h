/*
 * net_cases: what every engine of net/ must do, for one rank's end: all ranks run the same cases.
 * Sums are compared, bit for bit, with a tree that is defined here another way.
 */
#ifndef ZINF_NET_CASES_H
#define ZINF_NET_CASES_H

#include "net/net.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Of one rank; a test adds them up. */
struct net_report {
    int n_checks, n_failed;
    char first[300];
};

__attribute__((format(printf, 3, 4))) static void net_expect(struct net_report *r, bool holds,
                                                             const char *format, ...)
{
    va_list args;
    r->n_checks++;
    if (holds || r->n_failed++)
        return;
    va_start(args, format);
    vsnprintf(r->first, sizeof r->first, format, args);
    va_end(args);
}

/* A number of rank and index whose sums round. */
static inline float net_value(uint32_t rank, uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + rank * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return (float)((double)(int64_t)x / 0x1p63) * (i % 7 == 3 ? 1e6f : 1);
}

static inline unsigned char net_byte(uint32_t rank, uint64_t i)
{
    return (unsigned char)(rank * 37 + i * 11 + (i >> 8));
}

/* Of ranks [first, first + n): the largest power of two below n, and the rest. */
static inline float net_tree(uint32_t first, uint32_t n, uint64_t i)
{
    uint32_t left = 1;
    if (n == 1)
        return net_value(first, i);
    while (2 * left < n)
        left *= 2;
    return net_tree(first, left, i) + net_tree(first + left, n - left, i);
}

static inline void net_case_gather(struct zinf_net *net, uint64_t bytes, bool in_place,
                                   struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    unsigned char *whole = calloc(at.world * bytes + 1, 1), *slice = malloc(bytes + 1);
    unsigned char *from = in_place ? whole + at.rank * bytes : slice;
    uint64_t before = zinf_net_sent_bytes(net), wrong = 0;
    for (uint64_t i = 0; i < bytes; i++)
        from[i] = net_byte(at.rank, i);
    int code = zinf_net_gather(net, from, whole, bytes);
    for (uint32_t k = 0; k < at.world; k++)
        for (uint64_t i = 0; i < bytes; i++)
            wrong += whole[k * bytes + i] != net_byte(k, i);
    net_expect(r, !code && !wrong, "gather of %llu bytes: %llu wrong, code %d",
               (unsigned long long)bytes, (unsigned long long)wrong, code);
    net_expect(r, zinf_net_sent_bytes(net) - before == (at.world - 1) * bytes,
               "gather of %llu bytes sends others", (unsigned long long)bytes);
    free(whole);
    free(slice);
}

/* Of ranks in one memory. */
static inline void net_case_lend(struct zinf_net *net, uint64_t bytes, struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    const void *slices[64];
    unsigned char *slice = malloc(bytes + 1);
    uint64_t before = zinf_net_lent_bytes(net), wrong = 0;
    for (uint64_t i = 0; i < bytes; i++)
        slice[i] = net_byte(at.rank, i);
    int code = zinf_net_lend(net, slice, bytes, slices);
    for (uint32_t k = 0; !code && k < at.world; k++)
        for (uint64_t i = 0; i < bytes; i++)
            wrong += ((const unsigned char *)slices[k])[i] != net_byte(k, i);
    code = code ? code : zinf_net_return(net);
    for (uint64_t i = 0; i < bytes; i++)
        slice[i] = 0; /* nobody reads it any more */
    net_expect(r, !code && !wrong, "%llu bytes lent: %llu wrong, code %d",
               (unsigned long long)bytes, (unsigned long long)wrong, code);
    net_expect(r, zinf_net_lent_bytes(net) - before == (at.world - 1) * bytes,
               "%llu bytes lent count as others", (unsigned long long)bytes);
    free(slice);
}

static inline void net_case_scatter(struct zinf_net *net, uint64_t elems, bool in_place,
                                    struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    float *whole = malloc((at.world * elems + 1) * sizeof *whole);
    float *own = malloc((elems + 1) * sizeof *own);
    float *slice = in_place ? whole + at.rank * elems : own;
    uint64_t before = zinf_net_sent_bytes(net), wrong = 0;
    for (uint64_t i = 0; i < at.world * elems; i++)
        whole[i] = net_value(at.rank, i);
    int code = zinf_net_scatter_sum(net, whole, slice, elems);
    for (uint64_t i = 0; i < elems; i++)
        wrong += slice[i] != net_tree(0, at.world, at.rank * elems + i);
    net_expect(r, !code && !wrong, "sum of %llu elements: %llu wrong, code %d",
               (unsigned long long)elems, (unsigned long long)wrong, code);
    net_expect(r, zinf_net_sent_bytes(net) - before == (at.world - 1) * elems * sizeof(float),
               "a sum of %llu elements sends others", (unsigned long long)elems);
    free(whole);
    free(own);
}

/* Rank r sends 100 * k bytes more to rank r + k than to itself, and nothing to rank 0 but from the
 * last. */
static inline uint64_t net_traded(uint32_t from, uint32_t to, uint32_t world)
{
    return to || from + 1 == world ? 1000 + 100 * ((to + world - from) % world) : 0;
}

static inline void net_case_trade(struct zinf_net *net, struct net_report *r)
{
    enum { MOST = 64, ROOM = 8192 };
    struct zinf_net_place at = zinf_net_place(net);
    void *out[MOST], *in[MOST];
    uint64_t out_bytes[MOST], in_bytes[MOST], before = zinf_net_sent_bytes(net), sent = 0;
    struct zinf_net_trade trade = {out, in, out_bytes, in_bytes};
    for (uint32_t k = 0; k < at.world; k++) {
        out_bytes[k] = net_traded(at.rank, k, at.world);
        in_bytes[k] = net_traded(k, at.rank, at.world);
        sent += k == at.rank ? 0 : out_bytes[k];
        out[k] = malloc(ROOM);
        in[k] = calloc(ROOM, 1);
        for (uint64_t i = 0; i < out_bytes[k]; i++)
            ((unsigned char *)out[k])[i] = net_byte(at.rank + k, i);
    }
    int code = zinf_net_trade(net, &trade);
    for (uint32_t k = 0; k < at.world; k++) {
        uint64_t wrong = 0;
        for (uint64_t i = 0; k != at.rank && i < in_bytes[k]; i++)
            wrong += ((unsigned char *)in[k])[i] != net_byte(at.rank + k, i);
        net_expect(r, !code && !wrong, "%llu bytes of rank %u are wrong", (unsigned long long)wrong,
                   k);
        free(out[k]);
        free(in[k]);
    }
    net_expect(r, zinf_net_sent_bytes(net) - before == sent, "a trade sends others");
}

static inline void net_case_broadcast(struct zinf_net *net, uint64_t bytes, struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    unsigned char *data = malloc(bytes + 1);
    for (uint32_t root = 0; root < at.world; root++) {
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < bytes; i++)
            data[i] = net_byte(at.rank, i);
        int code = zinf_net_broadcast(net, root, data, bytes);
        for (uint64_t i = 0; i < bytes; i++)
            wrong += data[i] != net_byte(root, i);
        net_expect(r, !code && !wrong, "broadcast of %llu bytes from %u", (unsigned long long)bytes,
                   root);
    }
    free(data);
}

static inline void net_case_numbers(struct zinf_net *net, struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    int64_t sums[5], most[2] = {(int64_t)at.rank * 10 - 3, -(int64_t)at.rank};
    int64_t ranks = (int64_t)at.world * (at.world - 1) / 2;
    for (int i = 0; i < 5; i++)
        sums[i] = (int64_t)at.rank * (1ll << 40) - i;
    net_expect(r, !zinf_net_add(net, sums, 5), "add: %s", zinf_error());
    for (int i = 0; i < 5; i++)
        net_expect(r, sums[i] == ranks * (1ll << 40) - i * (int64_t)at.world, "sum %d", i);
    net_expect(r, !zinf_net_max(net, most, 2), "max: %s", zinf_error());
    net_expect(r, most[0] == (int64_t)(at.world - 1) * 10 - 3 && most[1] == 0, "largest");
    net_expect(r, zinf_net_add(net, sums, ZINF_NET_MOST_NUMBERS + 1) == -EINVAL || at.world == 1,
               "too many numbers");
}

static inline void net_case_compare(struct zinf_net *net, struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    struct zinf_net_fact facts[] = {{"program", 7}, {"model", UINT64_MAX}, {"data set", 1}};
    net_expect(r, !zinf_net_compare(net, facts, 3), "equal facts: %s", zinf_error());
    facts[1].sum -= at.rank == at.world - 1;
    int code = zinf_net_compare(net, facts, 3);
    net_expect(r, at.world == 1 || (code == -EINVAL && strstr(zinf_error(), "another model")),
               "different facts: %s", code ? zinf_error() : "no failure");
}

/* Calls follow each other without a pause; ranks come at different times. */
static inline void net_case_many(struct zinf_net *net, struct net_report *r)
{
    struct zinf_net_place at = zinf_net_place(net);
    for (uint32_t i = 0; i < 100; i++) {
        struct timespec pause = {0, 100000};
        if ((i + at.rank) % 9 == 0)
            nanosleep(&pause, NULL);
        switch (i % 4) {
        case 0:
            net_case_gather(net, i * 13 % 257, i % 8 == 0, r);
            break;
        case 1:
            net_case_scatter(net, i * 7 % 129, i % 8 == 1, r);
            break;
        case 2:
            net_expect(r, !zinf_net_barrier(net), "barrier");
            break;
        default:
            net_case_broadcast(net, i, r);
        }
    }
}

/* large: a size beyond what is at hand at once of a sum. */
static inline void net_cases(struct zinf_net *net, bool large, struct net_report *r)
{
    static const uint64_t sizes[] = {0, 1, 3, 17, 4096, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        net_case_gather(net, sizes[i], false, r);
        net_case_gather(net, sizes[i], true, r);
        net_case_scatter(net, sizes[i] / 3, false, r);
        net_case_scatter(net, sizes[i] / 3, true, r);
        net_case_broadcast(net, sizes[i], r);
        if (zinf_net_lends(net))
            net_case_lend(net, sizes[i], r);
    }
    if (large)
        net_case_scatter(net, ((uint64_t)2 << 20) + 5, true, r);
    net_case_trade(net, r);
    net_case_numbers(net, r);
    net_case_compare(net, r);
    net_case_many(net, r);
}

#endif
