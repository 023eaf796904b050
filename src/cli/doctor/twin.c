/* twin: pairs of arrays, and the comparison of what two devices make of them. */
#include "cli/doctor/twin.h"

#include "base/random.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { HOST_WORKSPACE_BYTES = 64 << 20, STAGING_BYTES = 8 << 20 };

int twin_open(struct twin *t, struct zinf_device *cuda, uint64_t arena_bytes)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 2};
    t->cuda = cuda;
    t->used = t->workspace_bytes = arena_bytes / 5 * 3 / 4096 * 4096;
    t->host_memory = aligned_alloc(4096, arena_bytes);
    t->workspace = malloc(HOST_WORKSPACE_BYTES);
    t->staging = aligned_alloc(4096, STAGING_BYTES);
    if (!t->host_memory || !t->workspace || !t->staging)
        return zinf_fail(-ENOMEM, "no memory for cases of kernels");
    int code = zinf_device_create(&t->host, &options);
    code = code ? code : t->host->ops->queue_create(t->host, ZINF_QUEUE_COMPUTE, &t->host_q);
    code = code ? code : zinf_device_take_memory(cuda, arena_bytes);
    code = code ? code : cuda->ops->queue_create(cuda, ZINF_QUEUE_COMPUTE, &t->q);
    if (code)
        return code;
    t->host->ops->queue_set_workspace(t->host_q, t->workspace, HOST_WORKSPACE_BYTES);
    cuda->ops->queue_set_workspace(t->q, cuda->memory, t->workspace_bytes);
    /* without it copies wait, and are right all the same */
    if (!cuda->ops->host_register(cuda, t->staging, STAGING_BYTES))
        t->staging_bytes = STAGING_BYTES;
    return 0;
}

void twin_close(struct twin *t)
{
    if (t->staging_bytes)
        t->cuda->ops->host_unregister(t->cuda, t->staging);
    if (t->q)
        t->cuda->ops->queue_destroy(t->q);
    zinf_device_destroy(t->cuda);
    if (t->host_q)
        t->host->ops->queue_destroy(t->host_q);
    zinf_device_destroy(t->host);
    free(t->host_memory);
    free(t->workspace);
    free(t->staging);
}

void twin_case(struct twin *t, const char *operation, const char *shape, ...)
{
    va_list args;
    int n = snprintf(t->what, sizeof t->what, "%s, ", operation);
    va_start(args, shape);
    if (n > 0 && (size_t)n < sizeof t->what)
        vsnprintf(t->what + n, sizeof t->what - (size_t)n, shape, args);
    va_end(args);
    t->n_cases++;
    t->refused = false;
    t->used = t->workspace_bytes;
    t->downloaded = 0;
}

/* After a failure: whether the GPU goes on. */
static void look_for_end(struct twin *t)
{
    if (t->q && !t->ended)
        t->ended = t->cuda->ops->queue_synchronize(t->q) != 0;
}

void twin_fail(struct twin *t, const char *format, ...)
{
    char text[512];
    va_list args;
    if (t->ended)
        return;
    int n = snprintf(text, sizeof text, "%s: ", t->what);
    va_start(args, format);
    if (n > 0 && (size_t)n < sizeof text)
        vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    t->fail(t, text);
}

void twin_refused(struct twin *t, int side)
{
    t->refused = true;
    twin_fail(t, "%s: %s", side == SIDE_CUDA ? "cuda" : "host", zinf_error());
    if (side == SIDE_CUDA)
        look_for_end(t);
}

/* ---- transfers ---- */

void twin_transfer(struct twin *t, void *device, void *host, uint64_t bytes, bool to_device)
{
    const struct zinf_device_ops *ops = t->cuda->ops;
    if (t->ended)
        return;
    bool staged = bytes <= t->staging_bytes && t->n_transfers++ % 2;
    void *from_or_to = staged ? t->staging : host;
    if (staged && to_device)
        memcpy(t->staging, host, bytes);
    int code = to_device ? ops->copy_to_device(t->q, device, from_or_to, bytes)
                         : ops->copy_to_host(t->q, from_or_to, device, bytes);
    code = code ? code : ops->queue_synchronize(t->q);
    if (code) {
        twin_fail(t, "%s", zinf_error());
        look_for_end(t);
    }
    if (staged && !to_device)
        memcpy(host, t->staging, bytes);
}

/* The next place of so many bytes. Without room it is over others: wrong, and said to be. */
static uint64_t take(struct twin *t, uint64_t *used, uint64_t first, uint64_t end, uint64_t bytes)
{
    uint64_t place = *used;
    if (place > end || bytes > end - place) {
        twin_fail(t, "no room for %llu bytes more", (unsigned long long)bytes);
        place = first;
    }
    *used = zinf_align_up(place + bytes, 256);
    return place;
}

static struct pair place_pair(struct twin *t, enum zinf_dtype dtype, size_t n, size_t shift)
{
    const uint64_t width = zinf_dtype_bytes(dtype), first = t->workspace_bytes;
    const uint64_t place = take(t, &t->used, first, t->cuda->memory_bytes, (n + shift) * width);
    return (struct pair){{dtype, n, t->host_memory + place},
                         (char *)t->cuda->memory + place + shift * width};
}

void pair_upload(struct twin *t, const struct pair *p)
{
    twin_transfer(t, p->device, p->host.data, tensor_bytes(&p->host), true);
}

struct pair pair_new(struct twin *t, enum zinf_dtype dtype, size_t n, size_t shift)
{
    struct pair p = place_pair(t, dtype, n, shift);
    memset(p.host.data, 0, tensor_bytes(&p.host));
    pair_upload(t, &p);
    return p;
}

struct pair pair_shifted(struct twin *t, size_t shift, enum zinf_dtype dtype, size_t n,
                         uint64_t seed, float std)
{
    struct pair p = place_pair(t, dtype, n, shift);
    float some[1024];
    for (size_t done = 0; done < n; done += 1024) {
        const size_t count = n - done < 1024 ? n - done : 1024;
        zinf_normal_fill(some, done, count, seed, 0, 0.0f, std);
        zinf_convert((char *)p.host.data + done * zinf_dtype_bytes(dtype), dtype, some,
                     ZINF_DTYPE_F32, count);
    }
    pair_upload(t, &p);
    return p;
}

struct pair pair_random(struct twin *t, enum zinf_dtype dtype, size_t n, uint64_t seed, float std)
{
    return pair_shifted(t, 0, dtype, n, seed, std);
}

struct pair pair_numbers(struct twin *t, const int32_t *numbers, size_t n)
{
    struct pair p = place_pair(t, ZINF_DTYPE_F32, n, 0);
    memcpy(p.host.data, numbers, n * sizeof *numbers);
    pair_upload(t, &p);
    return p;
}

struct tensor pair_download(struct twin *t, const struct pair *p)
{
    struct tensor got = p->host;
    got.data = t->host_memory + take(t, &t->downloaded, 0, t->workspace_bytes, tensor_bytes(&got));
    twin_transfer(t, p->device, got.data, tensor_bytes(&got), false);
    return got;
}

/* ---- comparison ---- */

/* The share of its bound that a difference takes. */
static double share_of(double is, double want, double absolute, double relative)
{
    if (is == want || (isnan(is) && isnan(want)))
        return 0.0;
    const double share = fabs(is - want) / (absolute + relative * fabs(want));
    return isnan(share) ? INFINITY : share;
}

/* Of an expression: "&p->dx" is dx. */
static const char *last_word(const char *expression)
{
    const char *word = expression;
    for (const char *at = expression; *at; at++)
        word = strchr("&.>", *at) ? at + 1 : word;
    return word;
}

void pair_check(struct twin *t, const char *name, const struct pair *p, double absolute,
                double relative)
{
    const uint64_t downloaded = t->downloaded;
    if (t->refused)
        return;
    struct tensor got = pair_download(t, p);
    if (t->ended)
        return;
    size_t worst = 0, bad = 0;
    double most = 0.0;
    for (size_t i = 0; i < got.n; i++) {
        const double share = share_of(get(&got, i), get(&p->host, i), absolute, relative);
        bad += share > 1.0;
        if (share > most) {
            most = share;
            worst = i;
        }
    }
    t->worst = most > t->worst ? most : t->worst;
    if (bad) {
        const double is = get(&got, worst), want = get(&p->host, worst);
        twin_fail(t,
                  "%s: %zu of %zu differ; [%zu] is %.9g, on the host %.9g: %.2g apart, %.2g "
                  "allowed",
                  last_word(name), bad, got.n, worst, is, want, fabs(is - want),
                  absolute + relative * fabs(want));
    }
    t->downloaded = downloaded;
}
