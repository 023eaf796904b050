/*
 * samples_group: an epoch's rows by length, so that a step's are about as long: as transformers'
 * LengthGroupedSampler (trainer_pt_utils.py, get_length_grouped_indices) orders them. A random
 * permutation is cut into pieces of 50 steps, or fewer where the data are few, and each piece is
 * sorted, the longest first. So neighbours are alike and still differ from epoch to epoch; and the
 * longest row of all is in the first step, where memory runs out if it ever does.
 *
 * An order depends on seed, epoch, lengths and the rows of a step alone, and is made when the first
 * of its rows is asked for: any rank, and whoever goes on in the middle, makes the same.
 */
#include "text/samples/samples_store.h"

#include "base/random.h"

#include <stdlib.h>

/* ---- shuffled ---- */

/* Each epoch has an order of its own: its key is a random number of (seed, epoch). */
static uint64_t epoch_key(uint64_t seed, uint64_t epoch)
{
    uint32_t counter[4] = {(uint32_t)epoch, (uint32_t)(epoch >> 32), 0, 0xda7a}, bits[4];
    zinf_philox(counter, seed, bits);
    return (uint64_t)bits[1] << 32 | bits[0];
}

uint64_t text_window_index(uint64_t position, uint64_t n, bool shuffle, uint64_t seed)
{
    uint64_t epoch = position / n, index = position % n;
    return shuffle ? zinf_permute(index, n, epoch_key(seed, epoch)) : index;
}

/* ---- by length ---- */

enum { MOST_STEPS = 50, LEAST_PIECES = 4 };

uint64_t samples_group_piece(uint64_t n, uint64_t batch)
{
    const uint64_t steps = n / (batch * LEAST_PIECES);
    return batch * (steps > MOST_STEPS ? MOST_STEPS : steps ? steps : 1);
}

/* The longest first, and of equal ones the first. */
static int compare(const void *a, const void *b)
{
    const struct sample_length *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? 1 : -1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static void sort_piece(uint32_t *rows, uint64_t n, const uint64_t *lengths,
                       struct sample_length *room)
{
    for (uint64_t i = 0; i < n; i++)
        room[i] = (struct sample_length){lengths[rows[i]], rows[i], (uint32_t)i};
    qsort(room, n, sizeof *room, compare);
    for (uint64_t i = 0; i < n; i++)
        rows[i] = room[i].row;
}

void samples_group(uint32_t *order, uint64_t n, uint64_t batch, const uint64_t *lengths,
                   struct sample_length *room)
{
    const uint64_t piece = samples_group_piece(n, batch);
    uint64_t longest = 0;
    for (uint64_t first = 0; first < n; first += piece) {
        sort_piece(order + first, n - first < piece ? n - first : piece, lengths, room);
        if (lengths[order[first]] > lengths[order[longest]])
            longest = first;
    }
    const uint32_t front = order[0];
    order[0] = order[longest];
    order[longest] = front;
}

/* ---- a store's ---- */

static uint64_t n_rows_of(const struct zinf_samples *s)
{
    return s->facts.n_samples / s->stored;
}

/* Of window i of a row. Where rows rotate the second is taken to be as long as the first. */
static struct zinf_window_rows rows_of(const struct zinf_samples *s, uint64_t row, uint64_t i)
{
    return samples_rows(s, row * s->stored + (s->stored == s->together ? i : 0));
}

/* What a row is sorted by: its source, as Trainer does, whose length name that is; of equal ones,
 * and without a source, its sequence. Of a pair the longer one. */
static uint64_t length_of(const struct zinf_samples *s, uint64_t row)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->together; i++) {
        const struct zinf_window_rows rows = rows_of(s, row, i);
        const uint64_t length = (uint64_t)rows.source << 32 | rows.ids;
        most = length > most ? length : most;
    }
    return most;
}

/* batch: windows, of which a pair has two. */
static uint64_t rows_a_step(const struct zinf_samples *s, uint64_t batch)
{
    return batch > s->together ? batch / s->together : 1;
}

static void permute(const struct zinf_samples *s, uint64_t epoch, uint32_t *order)
{
    const uint64_t n = n_rows_of(s);
    for (uint64_t i = 0; i < n; i++)
        order[i] = (uint32_t)text_window_index(epoch * n + i, n, true, s->options.seed);
}

static int take_grouping(const struct zinf_samples *s, uint64_t batch, int n_orders,
                         struct sample_grouping *out)
{
    const uint64_t n = n_rows_of(s), step = rows_a_step(s, batch);
    if (n >= UINT32_MAX)
        return zinf_fail(-EFBIG, "%llu samples are more than can be grouped by length",
                         (unsigned long long)n);
    out->lengths = malloc(n * sizeof *out->lengths);
    out->order = malloc((uint64_t)n_orders * n * sizeof *out->order);
    out->room = malloc(samples_group_piece(n, step) * sizeof *out->room);
    if (!out->lengths || !out->order || !out->room)
        return zinf_fail(-ENOMEM, "no memory to group %llu samples by length",
                         (unsigned long long)n);
    for (uint64_t row = 0; row < n; row++)
        out->lengths[row] = length_of(s, row);
    return 0;
}

static void free_grouping(struct sample_grouping *grouping)
{
    free(grouping->lengths);
    free(grouping->order);
    free(grouping->room);
    *grouping = (struct sample_grouping){0};
}

int samples_begin_groups(struct zinf_samples *s)
{
    return take_grouping(s, s->options.group, SAMPLE_EPOCHS, &s->grouping);
}

void samples_end_groups(struct zinf_samples *s)
{
    free_grouping(&s->grouping);
}

uint64_t samples_grouped_row(struct zinf_samples *s, uint64_t position)
{
    struct sample_grouping *g = &s->grouping;
    const uint64_t n = n_rows_of(s), epoch = position / n, which = epoch % SAMPLE_EPOCHS;
    uint32_t *order = g->order + which * n;
    if (g->epoch[which] != epoch + 1) {
        permute(s, epoch, order);
        samples_group(order, n, rows_a_step(s, s->options.group), g->lengths, g->room);
        g->epoch[which] = epoch + 1;
    }
    return order[position % n];
}

/* ---- what it brings ---- */

static uint64_t rounded(uint32_t n, uint32_t multiple, uint32_t most)
{
    const uint64_t up = ((uint64_t)n + multiple - 1) / multiple * multiple;
    return up < most ? up : most;
}

/* Of all steps, each as long as its longest. */
static uint64_t count_steps(const struct zinf_samples *s, const uint32_t *order, uint64_t step,
                            uint32_t multiple)
{
    const struct zinf_samples_options *o = &s->options;
    const uint64_t n = n_rows_of(s);
    uint64_t sum = 0;
    for (uint64_t first = 0; first < n; first += step) {
        const uint64_t end = n - first < step ? n : first + step;
        struct zinf_window_rows most = {0, 0};
        for (uint64_t i = first * s->together; i < end * s->together; i++) {
            const struct zinf_window_rows rows =
                rows_of(s, order[i / s->together], i % s->together);
            most.ids = rows.ids > most.ids ? rows.ids : most.ids;
            most.source = rows.source > most.source ? rows.source : most.source;
        }
        sum += (end - first) * s->together *
               (rounded(most.ids, multiple, o->seq_len) +
                rounded(most.source, multiple, o->source_len));
    }
    return sum;
}

int zinf_samples_count_rows(struct zinf_samples *s, uint64_t batch, uint32_t multiple,
                            struct zinf_samples_rows *out)
{
    const uint64_t n = n_rows_of(s), step = rows_a_step(s, batch);
    struct sample_grouping grouping = {0};
    *out = (struct zinf_samples_rows){
        .whole = n * s->together * ((uint64_t)s->options.seq_len + s->options.source_len)};
    for (uint64_t i = 0; i < n * s->together; i++) {
        const struct zinf_window_rows rows = rows_of(s, i / s->together, i % s->together);
        out->tokens += (uint64_t)rows.ids + rows.source;
    }
    int code = take_grouping(s, batch, 1, &grouping);
    if (!code) {
        permute(s, 0, grouping.order);
        out->longest = count_steps(s, grouping.order, step, multiple);
        samples_group(grouping.order, n, step, grouping.lengths, grouping.room);
        out->grouped = count_steps(s, grouping.order, step, multiple);
    }
    free_grouping(&grouping);
    return code;
}
