/*
 * part_carry: attention of a sequence in chunks beside its forward and backward: what it carries
 * for later chunks, and the gradients of that.
 */
#include "model/stages/part_heads.h"

int attention_carry(struct zinf_frame *f, const struct attention_spec *s,
                    const struct attention_kept *kept)
{
    const uint64_t start = frame_mark(f);
    struct attention_kept taken;
    void *ready;
    if (mixer_is_there(s))
        return mixer_attend(f, s, kept);
    frame_part_end(f); /* which has the chunk's own rows at hand */
    if (s->source)
        return part_source_carry(f, s);
    int code = heads_take(f, s, kept, &taken);
    if (!code)
        code = heads_prepare(f, s, &taken, true, &ready);
    if (!code)
        code = attention_chunk_append(f, s, ready);
    frame_release(f, start);
    return code;
}

int attention_own_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct attention_kept *kept, void *d_qkv)
{
    const bool apart = attention_is_latent(s) || heads_are_copied(s);
    const uint64_t start = frame_mark(f), row = (uint64_t)frame_rows(f) * frame_width(f);
    void *d_entry = d_qkv, *ready;
    struct attention_kept taken;
    int code = heads_take(f, s, kept, &taken);
    if (!code)
        code = heads_prepare(f, s, &taken, true, &ready);
    if (apart)
        d_qkv = frame_scratch(f, row * heads_qkv_cols(s));
    if (!code)
        code = attention_chunk_own(f, s, d_qkv);
    if (!code && apart)
        code = frame_zero(f, d_entry, attention_entry_bytes(f, s));
    if (!code)
        code = heads_prepare_backward(f, s, &taken, d_qkv, d_entry);
    if (!code && heads_are_copied(s))
        code = heads_copy(f, s, d_entry, d_qkv, true);
    frame_release(f, start);
    return code;
}

int attention_carry_gradient(struct zinf_frame *f, int64_t hidden, void **d_x)
{
    const uint64_t bytes = frame_rows_bytes(f, hidden);
    void *nobodys = frame_scratch(f, bytes);
    *d_x = f->d_in[0] ? f->d_in[0] : nobodys;
    return f->d_in[0] ? 0 : frame_zero(f, nobodys, bytes);
}

int attention_carry_backward(struct zinf_frame *f, const struct attention_spec *s,
                             const struct attention_kept *kept)
{
    int code = 0;
    for (uint32_t u = 0; !code && u < f->stage->units.n; u++)
        code = frame_zero_grads(f, u);
    return code ? code : attention_carry_part_backward(f, s, kept);
}

int attention_carry_part_backward(struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept)
{
    struct part_entry entry = attention_entry(s, kept);
    const uint64_t start = frame_mark(f);
    void *d_x;
    if (mixer_is_there(s)) /* nothing comes back by way of keys */
        return 0;
    if (s->source)
        return part_source_carry_backward(f, s);
    int code = attention_carry_gradient(f, s->hidden, &d_x);
    if (!code)
        code = part_enter(f, &entry, f->in[0]);
    void *d_qkv = frame_scratch(f, attention_entry_bytes(f, s));
    if (!code)
        code = attention_own_backward(f, s, kept, d_qkv);
    entry.products[0].y = d_qkv;
    if (!code)
        code = part_enter_backward(f, &entry, f->in[0], d_x);
    frame_release(f, start);
    return code;
}
