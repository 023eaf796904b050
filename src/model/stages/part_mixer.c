/*
 * part_mixer: a recurrent mixer in the place of attention. The entry's product has all that it is
 * made of; a convolution along the sequence goes over some of its columns, a scan over what comes
 * of that, and what the scan gives is normalised and gated, in the order of the rule's paper. Kept
 * are the entry's product and what the scan gives; the rest is made again in backward.
 *
 * While decoding, a sequence's state and the last rows in front of the convolution are remembered.
 * In chunks of a sequence they are handed over from chunk to chunk (part_handed.c).
 */
#include "model/stages/stages.h"

/* First columns in a row of the entry, of the convolution's rows within it, and of q, k and v
 * within those. */
struct columns {
    int64_t rows, gate, a, b;
    int64_t q, k, v;
    int64_t mixed; /* columns that are mixed by the convolution */
    int64_t all;
};

static struct columns columns_of(const struct attention_spec *s)
{
    const struct mixer_spec *m = &s->mixer;
    const int64_t keys = m->key_heads * m->key_dim, values = m->value_heads * m->value_dim;
    const int64_t mixed = 2 * keys + values, heads = m->value_heads;
    const int64_t strengths = m->rule == ZINF_RECURRENCE_DELTA ? heads : 0;
    if (m->rule == ZINF_RECURRENCE_DELTA || m->keys_first)
        return (struct columns){.rows = 0,
                                .gate = mixed,
                                .b = mixed + values,
                                .a = mixed + values + strengths,
                                .k = keys,
                                .v = 2 * keys,
                                .mixed = mixed,
                                .all = mixed + values + strengths + heads};
    return (struct columns){.rows = values,
                            .a = values + mixed,
                            .k = values,
                            .q = values + keys,
                            .mixed = mixed,
                            .all = values + mixed + heads};
}

int64_t mixer_entry_cols(const struct attention_spec *s)
{
    return s->mixer.gates ? 3 * s->mixer.value_dim : columns_of(s).all;
}

int64_t mixer_result_cols(const struct attention_spec *s)
{
    return s->mixer.value_heads * s->mixer.value_dim;
}

/* A column of rows; NULL stays NULL: measuring. */
static void *column(const struct zinf_frame *f, const void *rows, int64_t first)
{
    return rows ? (char *)(uintptr_t)rows + (uint64_t)first * frame_width(f) : NULL;
}

static void *take_rows(struct zinf_frame *f, int64_t cols)
{
    return frame_scratch(f, frame_rows_bytes(f, cols));
}

/* ---- operations ---- */

/* A row is mixed with those in front of it, and backward looks at as many behind it: of a chunk,
 * their segments are in the input's margin. */
_Static_assert(ZINF_CONVOLUTION_MAX_WIDTH - 1 <= ZINF_INPUT_MARGIN,
               "a convolution does not look beyond the margin of a chunk's inputs");

static struct zinf_convolution convolution_args(const struct zinf_frame *f,
                                                const struct attention_spec *s,
                                                const struct attention_kept *kept)
{
    const struct columns c = columns_of(s);
    return (struct zinf_convolution){
        .dtype = f->compute->dtype,
        .batch = f->compute->batch,
        .seq = frame_length(f),
        .cols = c.mixed,
        .width = s->mixer.width,
        .silu = true,
        .segments = s->segments ? f->in[s->segments] : NULL,
        .x = column(f, kept->qkv, c.rows),
        .ld = c.all,
        .w = s->mixer.taps ? s->mixer.taps : frame_weight(f, 0, s->mixer.conv_w),
        .b = s->mixer.tap_biases ? s->mixer.tap_biases : frame_weight(f, 0, s->mixer.conv_b),
    };
}

static struct zinf_scan scan_args(const struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept, const void *mixed)
{
    const struct mixer_spec *m = &s->mixer;
    const struct columns c = columns_of(s);
    return (struct zinf_scan){
        .rule = m->rule,
        .dtype = f->compute->dtype,
        .batch = f->compute->batch,
        .seq = frame_length(f),
        .key_heads = m->key_heads,
        .value_heads = m->value_heads,
        .key_dim = m->key_dim,
        .value_dim = m->value_dim,
        .step_low = m->step_low,
        .step_high = m->step_high,
        .strength = m->strength,
        .segments = s->segments ? f->in[s->segments] : NULL,
        .q = column(f, mixed, c.q),
        .k = column(f, mixed, c.k),
        .v = column(f, mixed, c.v),
        .ld = c.mixed,
        .a = column(f, kept->qkv, c.a),
        .b = column(f, kept->qkv, c.b),
        .gate_ld = c.all,
        .a_log = frame_weight(f, 0, m->a_log),
        .step_bias = frame_weight(f, 0, m->step_bias),
        .skip = frame_weight(f, 0, m->skip),
        .y = kept->out,
    };
}

/* ---- what is remembered, or handed over ---- */

static struct zinf_remembered memory_of(struct zinf_frame *f, const struct attention_spec *s,
                                        bool rows)
{
    const struct handed h = mixer_handed(s);
    return mixer_memory(f, s, h.floats * sizeof(float), h.cols, rows);
}

/* ---- forward ---- */

int mixer_attend(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept)
{
    const uint64_t start = frame_mark(f);
    const bool chunks = f->compute->chunk.whole;
    int code = chunks ? handed_take(f, s, kept) : 0;
    if (code)
        return code;
    if (s->mixer.gates)
        return gates_attend(f, s, kept);
    void *mixed = take_rows(f, columns_of(s).mixed);
    struct zinf_convolution convolution = convolution_args(f, s, kept);
    struct zinf_scan scan = scan_args(f, s, kept, mixed);
    struct zinf_remembered state, rows;
    struct handed_ends ends;
    convolution.y = mixed;
    if (chunks) {
        ends = handed_forward(f, s, kept);
        convolution.ends = &ends.rows;
        scan.ends = &ends.state;
        scan.y = f->pass == ZINF_PASS_CARRY ? NULL : scan.y;
    }
    if (frame_decoding(f)) {
        state = memory_of(f, s, false);
        rows = memory_of(f, s, true);
        convolution.remembered = &rows;
        scan.remembered = &state;
        convolution.segments = scan.segments = NULL;
    }
    code = frame_convolution(f, &convolution);
    if (!code)
        code = frame_scan(f, &scan);
    frame_release(f, start);
    return code;
}

/* The norm of what the scan gives, or of what comes out of the gate: groups that share their
 * weights are one call, others one each. */
struct norms {
    int64_t n, heads, cols;
    float *statistics; /* [n][rows][heads], in scratch */
};

static struct norms norms_of(struct zinf_frame *f, const struct attention_spec *s)
{
    const struct mixer_spec *m = &s->mixer;
    const int64_t groups = m->norm_groups, cols = mixer_result_cols(s) / groups;
    const bool apart = m->weights_by_group;
    struct norms n = {apart ? groups : 1, apart ? 1 : groups, cols, NULL};
    if (m->norm.w >= 0)
        n.statistics = frame_scratch(f, (uint64_t)(frame_rows(f) * groups) * sizeof(float));
    return n;
}

static struct zinf_norm norm_args(const struct zinf_frame *f, const struct attention_spec *s,
                                  const struct norms *n, int64_t i, const void *x)
{
    float *rstd = n->statistics ? n->statistics + i * frame_rows(f) * n->heads : NULL;
    const struct norm_kept statistics = {.rstd = rstd};
    struct zinf_norm norm =
        part_norm(f, &s->mixer.norm, n->cols, column(f, x, i * n->cols), statistics);
    norm.w = column(f, norm.w, i * n->cols);
    norm.heads = n->heads;
    norm.ld = mixer_result_cols(s);
    return norm;
}

static int normalise(struct zinf_frame *f, const struct attention_spec *s, const struct norms *n,
                     const void *x, void *y)
{
    int code = 0;
    for (int64_t i = 0; !code && i < n->n && s->mixer.norm.w >= 0; i++) {
        struct zinf_norm norm = norm_args(f, s, n, i, x);
        norm.y = column(f, y, i * n->cols);
        code = frame_norm(f, &norm);
    }
    return code;
}

/* From dy, the gradient of what the norm gives, to dx, that of x. */
static int normalise_backward(struct zinf_frame *f, const struct attention_spec *s,
                              const struct norms *n, const void *x, const void *dy, void *dx)
{
    const struct norm_spec *norm_of = &s->mixer.norm;
    float *dw = norm_of->d_w ? norm_of->d_w : frame_grad(f, 0, norm_of->w);
    int code = 0;
    for (int64_t i = 0; !code && i < n->n && s->mixer.norm.w >= 0; i++) {
        struct zinf_norm norm = norm_args(f, s, n, i, x);
        norm.dy = column(f, dy, i * n->cols);
        norm.dx = column(f, dx, i * n->cols);
        norm.dw = dw ? dw + i * n->cols : NULL;
        code = frame_norm_backward(f, &norm);
    }
    return code;
}

int mixer_normalise(struct zinf_frame *f, const struct attention_spec *s, const void *x, void *y)
{
    const uint64_t start = frame_mark(f);
    const struct norms norms = norms_of(f, s);
    int code = normalise(f, s, &norms, x, y);
    frame_release(f, start);
    return code;
}

int mixer_normalise_backward(struct zinf_frame *f, const struct attention_spec *s, const void *x,
                             const void *dy, void *dx)
{
    const uint64_t start = frame_mark(f);
    const struct norms norms = norms_of(f, s);
    void *unused = take_rows(f, mixer_result_cols(s)); /* for its statistics */
    int code = normalise(f, s, &norms, x, unused);
    if (!code)
        code = normalise_backward(f, s, &norms, x, dy, dx);
    frame_release(f, start);
    return code;
}

static struct zinf_gated gate_args(const struct zinf_frame *f, const struct attention_spec *s,
                                   const void *entry, const void *up)
{
    const struct columns c = columns_of(s);
    return (struct zinf_gated){
        .kind = ZINF_ACTIVATION_SILU,
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .cols = mixer_result_cols(s),
        .x = column(f, entry, c.gate),
        .gate_ld = c.all,
        .up = up,
    };
}

int mixer_result(struct zinf_frame *f, const struct attention_spec *s,
                 const struct attention_kept *kept, void *result)
{
    const bool gate_first = s->mixer.gate_first, normed = s->mixer.norm.w >= 0;
    const uint64_t start = frame_mark(f);
    if (s->mixer.gates)
        return gates_result(f, s, kept, result);
    const struct norms norms = norms_of(f, s);
    struct zinf_gated gate = gate_args(f, s, kept->qkv, gate_first || !normed ? kept->out : result);
    gate.y = result;
    int code = gate_first ? frame_gated(f, &gate) : normalise(f, s, &norms, kept->out, result);
    if (!code)
        code = gate_first ? normalise(f, s, &norms, result, result) : frame_gated(f, &gate);
    frame_release(f, start);
    return code;
}

/* ---- backward ---- */

/* The norm is of what comes out of the gate. */
static int gate_first_backward(struct zinf_frame *f, const struct attention_spec *s,
                               const struct attention_kept *kept, struct zinf_gated gate,
                               const void *d_result)
{
    const bool normed = s->mixer.norm.w >= 0;
    const struct norms norms = norms_of(f, s);
    struct zinf_gated again = gate;
    void *between = normed ? take_rows(f, mixer_result_cols(s)) : NULL;
    void *unused = normed ? take_rows(f, mixer_result_cols(s)) : NULL; /* for its statistics */
    int code = 0;
    again.up = gate.up = kept->out;
    again.y = between;
    if (normed)
        code = frame_gated(f, &again);
    if (!code)
        code = normalise(f, s, &norms, between, unused);
    if (!code)
        code = normalise_backward(f, s, &norms, between, d_result, gate.d_up);
    gate.dy = normed ? gate.d_up : d_result;
    return code ? code : frame_gated_backward(f, &gate);
}

static int norm_first_backward(struct zinf_frame *f, const struct attention_spec *s,
                               const struct attention_kept *kept, struct zinf_gated gate,
                               const void *d_result)
{
    const struct norms norms = norms_of(f, s);
    void *between = take_rows(f, mixer_result_cols(s)), *d_out = gate.d_up;
    int code = normalise(f, s, &norms, kept->out, between);
    gate.up = s->mixer.norm.w >= 0 ? between : kept->out;
    gate.dy = d_result;
    if (!code)
        code = frame_gated_backward(f, &gate);
    return code ? code : normalise_backward(f, s, &norms, kept->out, d_out, d_out);
}

int mixer_result_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_result, void *d_out,
                          void *d_entry)
{
    const uint64_t start = frame_mark(f);
    if (s->mixer.gates)
        return gates_result_backward(f, s, kept, d_result, d_out, d_entry);
    struct zinf_gated gate = gate_args(f, s, kept->qkv, NULL);
    gate.dx = column(f, d_entry, columns_of(s).gate);
    gate.d_up = d_out;
    int code = s->mixer.gate_first ? gate_first_backward(f, s, kept, gate, d_result)
                                   : norm_first_backward(f, s, kept, gate, d_result);
    frame_release(f, start);
    return code;
}

int mixer_attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_out, void *d_entry)
{
    const struct mixer_spec *m = &s->mixer;
    const struct columns c = columns_of(s);
    const uint64_t start = frame_mark(f);
    if (m->gates)
        return gates_attend_backward(f, s, kept, d_out, d_entry);
    void *mixed = take_rows(f, c.mixed), *d_mixed = take_rows(f, c.mixed);
    struct zinf_convolution convolution = convolution_args(f, s, kept);
    struct zinf_scan scan = scan_args(f, s, kept, mixed);
    struct handed_ends ends;
    convolution.y = mixed;
    if (f->compute->chunk.whole) {
        ends = handed_backward(f, s, kept);
        convolution.ends = &ends.rows;
        scan.ends = &ends.state;
    }
    int code = frame_convolution(f, &convolution);
    scan.backward = true;
    scan.dy = d_out;
    scan.dq = column(f, d_mixed, c.q);
    scan.dk = column(f, d_mixed, c.k);
    scan.dv = column(f, d_mixed, c.v);
    scan.da = column(f, d_entry, c.a);
    scan.db = column(f, d_entry, c.b);
    scan.d_a_log = frame_grad(f, 0, m->a_log);
    scan.d_step_bias = frame_grad(f, 0, m->step_bias);
    scan.d_skip = frame_grad(f, 0, m->skip);
    if (!code)
        code = frame_scan(f, &scan);
    convolution.dy = d_mixed;
    convolution.dx = column(f, d_entry, c.rows);
    convolution.dw = m->d_taps ? m->d_taps : frame_grad(f, 0, m->conv_w);
    convolution.db = m->d_tap_biases ? m->d_tap_biases : frame_grad(f, 0, m->conv_b);
    if (!code)
        code = frame_convolution_backward(f, &convolution);
    frame_release(f, start);
    return code;
}
