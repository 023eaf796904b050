/* pack_speed: how fast packed numbers are unpacked and packed again, as updates of them do. */
#include "base/random.h"
#include "cpu_optim/optim_bench.h"
#include "cpu_optim/pack.h"

#include <stdlib.h>

/* Numbers, their image, and what a change needs. */
struct packed_stage {
    struct zinf_pack_changing image;
    struct zinf_pack_change change;
};

static int change_nothing(void *context, uint64_t first, uint64_t n, void *const x[])
{
    (void)context, (void)first, (void)n, (void)x;
    return 0;
}

static int pack_numbers(struct packed_stage *s, const struct zinf_pack_bench *b)
{
    const uint64_t bound = zinf_pack_bound(ZINF_DTYPE_F32, b->n);
    struct zinf_pack_array numbers = {malloc(b->n * sizeof(float)), ZINF_DTYPE_F32, b->n, true};
    void *in = aligned_alloc(64, zinf_align_up(bound, 64));
    s->image = (struct zinf_pack_changing){.array = {NULL, ZINF_DTYPE_F32, b->n, true},
                                           .in = in,
                                           .out = aligned_alloc(64, zinf_align_up(bound, 64))};
    s->change = (struct zinf_pack_change){
        .arrays = &s->image, .n_arrays = 1, .change = change_nothing, .n_threads = b->n_threads};
    s->change.room = aligned_alloc(64, zinf_align_up(zinf_pack_change_room(&s->change), 64));
    int64_t bytes = -ENOMEM;
    if (numbers.x && in && s->image.out && s->change.room) {
        zinf_normal_fill(numbers.x, 0, b->n, 1, 2, 0, 0.02f);
        bytes = zinf_pack(in, bound, &numbers, b->n_threads);
        s->image.in_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    } else {
        zinf_fail(-ENOMEM, "bench optim: no memory to pack %llu elements: give fewer",
                  (unsigned long long)b->n);
    }
    free(numbers.x);
    return bytes < 0 ? (int)bytes : 0;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The first round warms caches, page tables and threads, and does not count. */
static int time_changes(struct packed_stage *s, struct zinf_pack_bench *b, double *seconds)
{
    int code = 0;
    for (int round = 0; round <= b->repeats && !code; round++) {
        const uint64_t start = zinf_now_ns();
        code = zinf_pack_change(&s->change);
        if (!code)
            zinf_pack_collect(&s->image, s->image.out, b->n_threads);
        seconds[round ? round - 1 : 0] = (double)(zinf_now_ns() - start) * 1e-9;
    }
    if (code)
        return code;
    qsort(seconds, (size_t)b->repeats, sizeof *seconds, compare_doubles);
    b->seconds = seconds[b->repeats / 2];
    b->bytes = b->n * sizeof(float);
    return 0;
}

int zinf_pack_bench(struct zinf_pack_bench *bench)
{
    struct packed_stage stage = {0};
    if (!bench->n || bench->n_threads < 1 || bench->repeats < 1)
        return zinf_fail(-EINVAL, "bench optim: nothing to pack");
    double *seconds = malloc((size_t)bench->repeats * sizeof *seconds);
    int code = seconds ? pack_numbers(&stage, bench)
                       : zinf_fail(-ENOMEM, "bench optim: no memory for %d rounds", bench->repeats);
    if (!code)
        code = time_changes(&stage, bench, seconds);
    free(seconds);
    free((void *)(uintptr_t)stage.image.in);
    free(stage.image.out);
    free(stage.change.room);
    return code;
}
