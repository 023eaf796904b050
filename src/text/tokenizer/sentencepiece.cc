/*
 * sentencepiece: see sentencepiece.h. No exception leaves this file: the library throws only what
 * its containers do.
 */
#include "text/tokenizer/sentencepiece.h"

#include <cstdlib>
#include <sentencepiece_processor.h>
#include <new>
#include <string>
#include <vector>

struct text_sentencepiece {
    sentencepiece::SentencePieceProcessor processor;
};

static int fail_status(const char *what, const sentencepiece::util::Status &status)
{
    return zinf_fail(-EINVAL, "%s: SentencePiece: %s", what, status.ToString().c_str());
}

/* A copy on the heap of the items, with room for one more. */
template <typename T, typename C> static T *copy_items(const C &items)
{
    T *out = static_cast<T *>(malloc((items.size() + 1) * sizeof(T)));
    if (!out)
        throw std::bad_alloc();
    for (size_t i = 0; i < items.size(); i++)
        out[i] = items[i];
    out[items.size()] = 0;
    return out;
}

int text_sentencepiece_open(struct text_sentencepiece **out, const char *model, size_t bytes,
                            const char *what)
{
    text_sentencepiece *opened = nullptr;
    try {
        opened = new text_sentencepiece;
        const auto status =
            opened->processor.LoadFromSerializedProto(absl::string_view(model, bytes));
        if (status.ok() && opened->processor.GetPieceSize() > 0) {
            *out = opened;
            return 0;
        }
        delete opened;
        return status.ok() ? zinf_fail(-EINVAL, "%s: has no pieces", what)
                           : fail_status(what, status);
    } catch (...) {
        delete opened;
        return zinf_fail(-ENOMEM, "%s: no memory for the model", what);
    }
}

void text_sentencepiece_close(struct text_sentencepiece *model)
{
    delete model;
}

int32_t text_sentencepiece_size(const struct text_sentencepiece *model)
{
    return model->processor.GetPieceSize();
}

const char *text_sentencepiece_piece(const struct text_sentencepiece *model, int32_t id,
                                     size_t *bytes)
{
    const std::string &piece = model->processor.IdToPiece(id);
    *bytes = piece.size();
    return piece.c_str();
}

int32_t text_sentencepiece_begin_id(const struct text_sentencepiece *model)
{
    return model->processor.bos_id();
}

int32_t text_sentencepiece_end_id(const struct text_sentencepiece *model)
{
    return model->processor.eos_id();
}

int text_sentencepiece_encode(const struct text_sentencepiece *model, const char *text,
                              size_t bytes, int32_t **ids, size_t *count)
{
    try {
        std::vector<int> found;
        const auto status = model->processor.Encode(absl::string_view(text, bytes), &found);
        if (!status.ok())
            return fail_status("encode", status);
        *ids = copy_items<int32_t>(found);
        *count = found.size();
        return 0;
    } catch (...) {
        return zinf_fail(-ENOMEM, "no memory to tokenize %zu bytes", bytes);
    }
}

int text_sentencepiece_decode(const struct text_sentencepiece *model, const int32_t *ids,
                              size_t count, char **text, size_t *bytes)
{
    try {
        std::string joined;
        const auto status = model->processor.Decode(std::vector<int>(ids, ids + count), &joined);
        if (!status.ok())
            return fail_status("decode", status);
        *text = copy_items<char>(joined);
        *bytes = joined.size();
        return 0;
    } catch (...) {
        return zinf_fail(-ENOMEM, "no memory to decode %zu tokens", count);
    }
}
