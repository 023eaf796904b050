/*
 * frame: the special tokens around a sequence or a pair, as the post-processor of a tokenizer puts
 * them there: a row of parts, each a sequence or ids.
 */
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <xxhash.h>

void text_frames_fini(struct zinf_tokenizer *tokenizer)
{
    for (int i = 0; i < 2; i++) {
        struct text_frame *frame = &tokenizer->frames[i];
        for (size_t j = 0; j < frame->count; j++)
            free(frame->parts[j].ids);
        free(frame->parts);
        *frame = (struct text_frame){0};
    }
}

int text_frame_add(struct text_frame *frame, struct text_frame_part part)
{
    struct text_frame_part *grown =
        realloc(frame->parts, (frame->count + 1) * sizeof *frame->parts);
    if (!grown) {
        free(part.ids);
        return zinf_fail(-ENOMEM, "no memory for a template of %zu parts", frame->count + 1);
    }
    frame->parts = grown;
    frame->parts[frame->count++] = part;
    return 0;
}

static int add_id(struct text_frame *frame, int32_t id)
{
    struct text_frame_part part = {-1, id >= 0 ? malloc(sizeof id) : NULL, 1, 0};
    if (id < 0)
        return 0;
    if (!part.ids)
        return zinf_fail(-ENOMEM, "no memory for a template");
    part.ids[0] = id;
    return text_frame_add(frame, part);
}

int text_frames_make(struct zinf_tokenizer *tokenizer, int32_t begin, int32_t end)
{
    int code = 0;
    tokenizer->framed = true;
    for (int i = 0; i < 2 && !code; i++)
        for (int sequence = 0; sequence <= i && !code; sequence++) {
            struct text_frame *frame = &tokenizer->frames[i];
            code = add_id(frame, begin);
            if (!code)
                code = text_frame_add(frame, (struct text_frame_part){sequence, NULL, 0, 0});
            code = code ? code : add_id(frame, end);
        }
    return code;
}

int text_frames_make_pairs(struct zinf_tokenizer *tokenizer, int32_t begin, int32_t end)
{
    int code = text_frames_make(tokenizer, begin, end);
    struct text_frame *frame = &tokenizer->frames[1];
    /* begin A end begin B end, without the second begin */
    if (code || frame->count != 6)
        return code;
    free(frame->parts[3].ids);
    memmove(&frame->parts[3], &frame->parts[4], 2 * sizeof *frame->parts);
    frame->count = 5;
    frame->parts[3].type = frame->parts[4].type = 1;
    return 0;
}

int text_frames_make_roberta(struct zinf_tokenizer *tokenizer, int32_t begin, int32_t end)
{
    int code = text_frames_make(tokenizer, begin, end);
    struct text_frame *frame = &tokenizer->frames[1];
    /* begin A end begin B end */
    if (!code && frame->count == 6)
        frame->parts[3].ids[0] = end;
    return code;
}

void text_frames_mix(struct zinf_tokenizer *tokenizer)
{
    for (int i = 0; i < 2; i++)
        for (size_t j = 0; j < tokenizer->frames[i].count; j++) {
            const struct text_frame_part *part = &tokenizer->frames[i].parts[j];
            tokenizer->fingerprint =
                XXH3_64bits_withSeed(part->ids, part->ids ? part->n_ids * sizeof *part->ids : 0,
                                     tokenizer->fingerprint + (uint64_t)part->sequence);
        }
}

/* Where framed ids go, and what is said of each. */
struct framed {
    struct zinf_tokens *ids, *types, *sequences; /* all but ids may be NULL */
};

static int push_ids(const struct framed *out, const int32_t *ids, size_t n, int32_t type,
                    int32_t sequence)
{
    int code = 0;
    for (size_t i = 0; i < n && !code; i++) {
        code = text_tokens_push(out->ids, ids[i]);
        if (!code && out->types)
            code = text_tokens_push(out->types, type);
        if (!code && out->sequences)
            code = text_tokens_push(out->sequences, sequence);
    }
    return code;
}

int zinf_tokenizer_frame_told(const struct zinf_tokenizer *tokenizer,
                              const struct zinf_tokens *first, const struct zinf_tokens *second,
                              struct zinf_tokens *ids, struct zinf_tokens *types,
                              struct zinf_tokens *texts)
{
    const struct zinf_tokens *sequences[2] = {first, second};
    const struct text_frame *frame = &tokenizer->frames[second ? 1 : 0];
    const struct framed out = {ids, types, texts};
    int code = 0;
    if (!tokenizer->framed)
        for (int i = 0; i < (second ? 2 : 1) && !code; i++)
            code = push_ids(&out, sequences[i]->ids, sequences[i]->count, i, i);
    for (size_t i = 0; i < frame->count && tokenizer->framed && !code; i++) {
        const struct text_frame_part *part = &frame->parts[i];
        const struct zinf_tokens *sequence = part->sequence < 0 ? NULL : sequences[part->sequence];
        code = sequence ? push_ids(&out, sequence->ids, sequence->count, part->type, part->sequence)
                        : push_ids(&out, part->ids, part->n_ids, part->type, -1);
    }
    return code;
}

int zinf_tokenizer_frame(const struct zinf_tokenizer *tokenizer, const struct zinf_tokens *first,
                         const struct zinf_tokens *second, struct zinf_tokens *out,
                         struct zinf_tokens *types)
{
    return zinf_tokenizer_frame_told(tokenizer, first, second, out, types, NULL);
}

void zinf_tokenizer_sides(const struct zinf_tokenizer *tokenizer, uint32_t *front, uint32_t *behind)
{
    const struct text_frame *frame = &tokenizer->frames[0];
    uint32_t *side = front;
    *front = *behind = 0;
    for (size_t i = 0; i < frame->count; i++)
        if (frame->parts[i].sequence < 0)
            *side += (uint32_t)frame->parts[i].n_ids;
        else
            side = behind;
}
