/*
 * part_gates: a short convolution between two gates in the place of attention (Liquid AI, arXiv
 * 2511.23404): the entry's product has columns B, C and x; what the last product takes is
 * C conv(B x). Kept are the entry's product and what the convolution gives; the rows in front of it
 * are made again in backward. While decoding, its last rows are remembered; in chunks of a sequence
 * they are handed over (part_handed.c).
 */
#include "model/stages/stages.h"

/* B, C or x of rows of the entry; NULL stays NULL: measuring. */
static void *part_at(const struct zinf_frame *f, const struct attention_spec *s, const void *entry,
                     int part)
{
    const uint64_t cols = (uint64_t)s->mixer.value_dim;
    return entry ? (char *)(uintptr_t)entry + (uint64_t)part * cols * frame_width(f) : NULL;
}
enum { B, C, X, PARTS };

static void *take_rows(struct zinf_frame *f, const struct attention_spec *s)
{
    return frame_scratch(f, frame_rows_bytes(f, s->mixer.value_dim));
}

/* The product of a part of the entry and other rows. */
static struct zinf_gated gate_args(const struct zinf_frame *f, const struct attention_spec *s,
                                   const void *entry, int part, const void *up)
{
    return (struct zinf_gated){
        .kind = ZINF_ACTIVATION_IDENTITY,
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .cols = s->mixer.value_dim,
        .x = part_at(f, s, entry, part),
        .gate_ld = PARTS * s->mixer.value_dim,
        .up = up,
    };
}

/* x of the entry to rows of their own, or such rows to there. */
static int copy_x(struct zinf_frame *f, const struct attention_spec *s, const void *entry,
                  void *rows, bool back)
{
    void *there = part_at(f, s, entry, X);
    const int64_t cols = s->mixer.value_dim, all = PARTS * cols;
    struct zinf_heads args = {.dtype = f->compute->dtype,
                              .rows = frame_rows(f),
                              .n_heads = 1,
                              .cols = cols,
                              .x = back ? rows : there,
                              .x_ld = back ? cols : all,
                              .y = back ? there : rows,
                              .y_ld = back ? all : cols};
    return frame_heads(f, &args);
}

static struct zinf_convolution convolution_args(const struct zinf_frame *f,
                                                const struct attention_spec *s,
                                                const struct attention_kept *kept, const void *rows)
{
    return (struct zinf_convolution){
        .dtype = f->compute->dtype,
        .batch = f->compute->batch,
        .seq = frame_length(f),
        .cols = s->mixer.value_dim,
        .width = s->mixer.width,
        .segments = s->segments ? f->in[s->segments] : NULL,
        .x = rows,
        .ld = s->mixer.value_dim,
        .w = frame_weight(f, 0, s->mixer.conv_w),
        .b = frame_weight(f, 0, s->mixer.conv_b),
        .y = kept->out,
    };
}

int gates_attend(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept)
{
    const uint64_t start = frame_mark(f);
    void *rows = take_rows(f, s);
    struct zinf_gated gate = gate_args(f, s, kept->qkv, B, rows);
    struct zinf_convolution convolution = convolution_args(f, s, kept, rows);
    struct zinf_remembered memory;
    struct handed_ends ends;
    gate.y = rows;
    if (f->compute->chunk.whole) {
        ends = handed_forward(f, s, kept);
        convolution.ends = &ends.rows;
    }
    if (frame_decoding(f)) {
        memory = mixer_memory(f, s, 0, s->mixer.value_dim, true);
        convolution.remembered = &memory;
        convolution.segments = NULL;
    }
    int code = copy_x(f, s, kept->qkv, rows, false);
    if (!code)
        code = frame_gated(f, &gate);
    if (!code)
        code = frame_convolution(f, &convolution);
    frame_release(f, start);
    return code;
}

int gates_result(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept, void *result)
{
    struct zinf_gated gate = gate_args(f, s, kept->qkv, C, kept->out);
    gate.y = result;
    return frame_gated(f, &gate);
}

int gates_result_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_result, void *d_out,
                          void *d_entry)
{
    struct zinf_gated gate = gate_args(f, s, kept->qkv, C, kept->out);
    gate.dy = d_result;
    gate.dx = part_at(f, s, d_entry, C);
    gate.d_up = d_out;
    return frame_gated_backward(f, &gate);
}

int gates_attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_out, void *d_entry)
{
    const uint64_t start = frame_mark(f);
    void *x = take_rows(f, s), *rows = take_rows(f, s), *d_rows = take_rows(f, s);
    struct zinf_gated gate = gate_args(f, s, kept->qkv, B, x), backward = gate;
    struct zinf_convolution convolution = convolution_args(f, s, kept, rows);
    struct handed_ends ends;
    if (f->compute->chunk.whole) {
        ends = handed_backward(f, s, kept);
        convolution.ends = &ends.rows;
    }
    gate.y = rows;
    convolution.dy = d_out;
    convolution.dx = d_rows;
    convolution.dw = frame_grad(f, 0, s->mixer.conv_w);
    convolution.db = frame_grad(f, 0, s->mixer.conv_b);
    backward.dy = d_rows;
    backward.dx = part_at(f, s, d_entry, B);
    backward.d_up = rows;
    int code = copy_x(f, s, kept->qkv, x, false);
    if (!code)
        code = frame_gated(f, &gate);
    if (!code)
        code = frame_convolution_backward(f, &convolution);
    if (!code)
        code = frame_gated_backward(f, &backward);
    if (!code)
        code = copy_x(f, s, d_entry, rows, true);
    frame_release(f, start);
    return code;
}
