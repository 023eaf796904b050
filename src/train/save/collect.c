/*
 * collect: what ranks have in slices goes into files by rank 0 alone, which asks for one array of
 * one unit after the other as it writes. So files are those of one rank, complete or absent, and a
 * training goes on from them with any number of ranks. The others answer until it has ended, well
 * or not.
 */
#include "train/save/transfer.h"

/* From rank 0 to all. */
struct request {
    int32_t part, code;
    uint32_t unit;
    bool ends;
    char sentence[240]; /* of a failure */
};

/* This rank's slice to its place in the region: of parameters in their own number type. */
static int read_own(const struct source *s, uint32_t unit, int part, void **whole, uint64_t *bytes)
{
    struct region r = source_region(s);
    const struct zinf_layout_unit *u = &s->setup->layout.units[unit];
    struct zinf_location where = zinf_tiers_param(s->tiers, unit, 0);
    bool packed = part == PART_PARAM && s->setup->dtype != ZINF_DTYPE_F32;
    uint64_t width = packed ? zinf_dtype_bytes(s->setup->dtype) : sizeof(float);
    *whole = packed ? (void *)r.packed : (void *)r.unit;
    *bytes = u->slice_elems * width;
    char *own = (char *)*whole + u->slice_first * width;
    if (part >= PART_MASTER)
        return state_read(s, unit, part, (float *)(void *)own);
    if (part == PART_GRAD)
        where = zinf_tiers_unit_grad(s->tiers, unit);
    return source_read(s, &where, 0, own, where.bytes);
}

static int give(const struct source *s, uint32_t unit, int part)
{
    void *whole;
    uint64_t bytes, own = s->setup->layout.rank;
    int code = read_own(s, unit, part, &whole, &bytes);
    if (code) {
        zinf_net_tell(s->setup->net, zinf_error());
        return code;
    }
    return zinf_net_gather(s->setup->net, (char *)whole + own * bytes, whole, bytes);
}

static int ask(const struct source *s, struct request *request)
{
    return zinf_net_broadcast(s->setup->net, 0, request, sizeof *request);
}

int collect_part(const struct source *s, uint32_t unit, int part)
{
    struct request request = {.part = part, .unit = unit};
    int code = ask(s, &request);
    return code ? code : give(s, unit, part);
}

bool collect_is_first(const struct source *s)
{
    return !s->setup->net || s->setup->layout.rank == 0;
}

int collect_end(const struct source *s, int code)
{
    struct request request = {.ends = true, .code = code};
    if (!s->setup->net)
        return code;
    if (code)
        memcpy(request.sentence, zinf_error(), strnlen(zinf_error(), sizeof request.sentence - 1));
    int told = ask(s, &request);
    return code ? zinf_fail(code, "%s", *request.sentence ? request.sentence : "failed") : told;
}

int collect_serve(const struct source *s)
{
    struct request request = {0};
    int code = 0;
    while (!code && !(code = ask(s, &request)) && !request.ends)
        code = give(s, request.unit, request.part);
    if (code || !request.code)
        return code;
    return zinf_fail(request.code, "rank 0: %s", request.sentence);
}
