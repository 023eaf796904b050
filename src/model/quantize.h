/*
 * quantize: which tensors of a graph are quantised (kernels/quantized.h). Either the caller asks
 * for a form, and every linear layer's weight takes it while it is loaded; or the folder has
 * quantised weights already, as its config.json says in quantization_config. As bitsandbytes has
 * it, embeddings, the output layer, norms, biases and what chooses experts stay as they are. In
 * MXFP4 are tensors alone that the experts of a layer share; in FP8 are matrices alone, each of
 * which is a tensor [out][in] of the file.
 */
#ifndef ZINF_QUANTIZE_H
#define ZINF_QUANTIZE_H

#include "base/json.h"
#include "model/build.h"

struct quantize_choice {
    enum zinf_form form;
    bool in_file;      /* the folder's weights are quantised */
    const cJSON *skip; /* modules that are not, borrowed from the configuration; or NULL */
};
/* What a config.json says; PLAIN where it says nothing. -ENOTSUP names what cannot be read. */
int quantize_choice_read(struct quantize_choice *out, const cJSON *config, const char *what);
/* Gives the tensors of a finished graph their form and freezes it all. The graph must be finished
 * again. */
int quantize_graph(struct zinf_graph *graph, const struct quantize_choice *choice,
                   const char *prefix);

#endif
