/*
 * part_handed: what a stage hands over from one chunk of a sequence to the next: of a mixer the
 * state of its scan, the chunk of the scan's own that the border cuts, and the last rows in front
 * of its convolution. The stage carries it, a chunk's behind its rows of keys and values where
 * attention is beside the mixer. A chunk copies what it was handed when that is at hand, to memory
 * that backward finds. The gradient goes the other way, from each chunk to the one before it, and
 * is needed once: there are two, of which one is read while the other is made.
 */
#include "model/stages/stages.h"

struct handed mixer_handed(const struct attention_spec *s)
{
    const struct mixer_spec *m = &s->mixer;
    const int64_t values = m->value_heads * m->value_dim;
    if (m->gates)
        return (struct handed){.cols = values};
    const struct zinf_scan scan = {.key_heads = m->key_heads,
                                   .value_heads = m->value_heads,
                                   .key_dim = m->key_dim,
                                   .value_dim = m->value_dim};
    struct zinf_scan_open open;
    return (struct handed){.floats = (uint64_t)(values * m->key_dim),
                           .open_floats = zinf_scan_open_place(&scan, &open, NULL),
                           .cols = 2 * m->key_heads * m->key_dim + values};
}

static uint64_t rows_elems(const struct attention_spec *s)
{
    return (uint64_t)((s->mixer.width - 1) * mixer_handed(s).cols);
}

static uint64_t state_bytes(const struct attention_spec *s)
{
    return mixer_handed(s).floats * sizeof(float);
}

static uint64_t open_bytes(const struct attention_spec *s)
{
    return mixer_handed(s).open_floats * sizeof(float);
}

/* Of states, what backward has gradients of, and of the cut chunk. */
static uint64_t states_bytes(const struct attention_spec *s)
{
    return state_bytes(s) + open_bytes(s);
}

static uint64_t handed_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    return states_bytes(s) + rows_elems(s) * frame_width(f);
}

/* Of what a shard hands over, which is a piece of what the stage does. */
static uint64_t piece_bytes(const struct attention_spec *s, uint64_t bytes)
{
    return s->carried_pieces ? zinf_align_up(bytes, 256) : bytes;
}

static uint64_t all_bytes(const struct attention_spec *s, uint64_t bytes)
{
    return piece_bytes(s, bytes) * (s->carried_pieces ? s->carried_pieces : 1);
}

/* The shard's piece; NULL stays NULL: measuring. */
static void *piece_of(const struct attention_spec *s, const void *all, uint64_t bytes)
{
    return all ? (char *)(uintptr_t)all + s->carried_piece * piece_bytes(s, bytes) : NULL;
}

void *handed_keep(struct zinf_frame *f, const struct attention_spec *s)
{
    return f->compute->chunk.whole ? frame_keep(f, handed_bytes(f, s)) : NULL;
}

/* bytes of all that the stage hands over, from `at` on. */
static int take_piece(struct zinf_frame *f, void *to, uint64_t bytes, uint64_t all, uint64_t at)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const int64_t before = c->first - f->compute->seq;
    const bool there = before >= c->near && before < c->near_end;
    const char *from = frame_handed(f, all, there ? before : c->near);
    int code = 0;
    frame_follow(f);
    frame_part_begin(f);
    if (there)
        code = frame_copy(f, to, from ? from + at : NULL, bytes);
    frame_part_end(f);
    return code;
}

int part_take_handed(struct zinf_frame *f, void *to, uint64_t bytes)
{
    return take_piece(f, to, bytes, bytes, 0);
}

int handed_take(struct zinf_frame *f, const struct attention_spec *s,
                const struct attention_kept *kept)
{
    const uint64_t bytes = handed_bytes(f, s);
    return take_piece(f, kept->handed, bytes, all_bytes(s, bytes),
                      s->carried_piece * piece_bytes(s, bytes));
}

/* Memory that begins so many bytes behind; NULL stays NULL: measuring. */
static void *behind(const void *at, uint64_t bytes)
{
    return at ? (char *)(uintptr_t)at + bytes : NULL;
}

static struct handed_ends given(const struct zinf_frame *f, const struct attention_spec *s,
                                const struct attention_kept *kept)
{
    const int64_t first = f->compute->chunk.first;
    const void *rows = behind(kept->handed, states_bytes(s));
    return (struct handed_ends){.state = {.rows = first,
                                          .before = kept->handed,
                                          .open_before = behind(kept->handed, state_bytes(s))},
                                .rows = {.rows = first, .before = rows}};
}

struct handed_ends handed_forward(struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    struct handed_ends ends = given(f, s, kept);
    const uint64_t bytes = handed_bytes(f, s);
    if (c->ends) /* else the chunk's own is not at hand, and nothing is computed */
        ends.state.behind = piece_of(s, frame_handed(f, all_bytes(s, bytes), c->first), bytes);
    ends.state.open_behind = behind(ends.state.behind, state_bytes(s));
    ends.rows.behind = behind(ends.state.behind, states_bytes(s));
    return ends;
}

struct handed_ends handed_backward(struct zinf_frame *f, const struct attention_spec *s,
                                   const struct attention_kept *kept)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const uint64_t bytes = state_bytes(s) + rows_elems(s) * sizeof(float);
    const int64_t step = f->compute->seq;
    struct handed_ends ends = given(f, s, kept);
    const uint64_t all = all_bytes(s, bytes);
    float *own = piece_of(s, frame_d_handed(f, all, c->first), bytes);
    if (c->first + step < frame_visited(f))
        ends.state.d_behind = own;
    if (c->first)
        ends.state.d_before = piece_of(s, frame_d_handed(f, all, c->first - step), bytes);
    ends.rows.d_behind = behind(ends.state.d_behind, state_bytes(s));
    ends.rows.d_before = behind(ends.state.d_before, state_bytes(s));
    return ends;
}
