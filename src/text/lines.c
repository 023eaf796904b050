/*
 * lines: a sum is the total of its lines' hashes, each seeded with the line's number. So lines that
 * change places are seen, and two sums become one by adding them: where the array is full, every
 * sum takes its neighbour in and counts for twice as many lines.
 */
#include "text/lines.h"

#include <stdlib.h>
#include <xxhash.h>

struct zinf_line_summer {
    struct zinf_lines lines;
    XXH3_state_t *state; /* of a line that began in an earlier portion */
    bool open;           /* there is one */
};

int zinf_line_summer_create(struct zinf_line_summer **out)
{
    struct zinf_line_summer *s = calloc(1, sizeof *s);
    if (s)
        s->state = XXH3_createState();
    if (!s || !s->state) {
        free(s);
        return zinf_fail(-ENOMEM, "no memory to sum the lines of a file");
    }
    s->lines.per_sum = 1;
    *out = s;
    return 0;
}

void zinf_line_summer_destroy(struct zinf_line_summer *s)
{
    if (s)
        XXH3_freeState(s->state);
    free(s);
}

static void halve(struct zinf_lines *lines)
{
    uint64_t n = zinf_lines_n_sums(lines);
    lines->per_sum *= 2;
    for (uint64_t i = 0; 2 * i < n; i++)
        lines->sums[i] = lines->sums[2 * i] + (2 * i + 1 < n ? lines->sums[2 * i + 1] : 0);
    for (uint64_t i = (n + 1) / 2; i < n; i++)
        lines->sums[i] = 0;
}

static void add_line(struct zinf_lines *lines, uint64_t hash)
{
    if (lines->count == ZINF_LINE_SUMS * lines->per_sum)
        halve(lines);
    lines->sums[lines->count++ / lines->per_sum] += (uint32_t)hash;
}

void zinf_line_summer_add(struct zinf_line_summer *s, const void *text, size_t bytes)
{
    const char *at = text, *end = at + bytes;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop + 1 : end) - at);
        if (stop && !s->open) {
            add_line(&s->lines, XXH3_64bits_withSeed(at, n, s->lines.count));
        } else {
            if (!s->open)
                XXH3_64bits_reset_withSeed(s->state, s->lines.count);
            XXH3_64bits_update(s->state, at, n);
            s->open = !stop;
            if (stop)
                add_line(&s->lines, XXH3_64bits_digest(s->state));
        }
        at += n;
    }
}

void zinf_line_summer_end(struct zinf_line_summer *s, struct zinf_lines *out)
{
    if (s->open)
        add_line(&s->lines, XXH3_64bits_digest(s->state));
    s->open = false;
    *out = s->lines;
}

bool zinf_lines_differ(const struct zinf_lines *then, const struct zinf_lines *now, uint64_t *first,
                       uint64_t *last)
{
    struct zinf_lines a = *then, b = *now;
    while (a.per_sum < b.per_sum)
        halve(&a);
    while (b.per_sum < a.per_sum)
        halve(&b);
    uint64_t most = a.count > b.count ? a.count : b.count;
    uint64_t least = a.count < b.count ? a.count : b.count, n = (most + a.per_sum - 1) / a.per_sum;
    for (uint64_t i = 0; i < n; i++) {
        if (a.sums[i] == b.sums[i])
            continue;
        *first = i * a.per_sum + 1;
        *last = (i + 1) * a.per_sum < most ? (i + 1) * a.per_sum : most;
        return true;
    }
    *first = least + 1; /* as good as never: a line whose hash is 0 */
    *last = most;
    return a.count != b.count;
}
