/* setup_rates: optimizers, learning rates and weight decay of single tensors. */
#ifndef ZINF_SETUP_RATES_H
#define ZINF_SETUP_RATES_H

#include "train/setup.h"

/* How the updates of a tensor differ from those of the others; setup.rates[unit][tensor]. */
struct tensor_rate {
    double scale; /* factor on the learning rate */
    float weight_decay;
    uint32_t optimizer; /* index in setup.optimizers */
};
static inline bool same_rate(const struct tensor_rate *a, const struct tensor_rate *b)
{
    return a->scale == b->scale && a->weight_decay == b->weight_decay &&
           a->optimizer == b->optimizer;
}
static inline const struct optimizer *setup_optimizer_of(const struct setup *s, uint32_t unit,
                                                         uint32_t tensor)
{
    return &s->optimizers[s->rates ? s->rates[unit][tensor].optimizer : 0];
}
/* Of a tensor of s->whole. Ranks that share tensors number their own parts by themselves; they find
 * them by the file's name of one of the tensor's pieces. */
const struct optimizer *setup_optimizer_of_whole(const struct setup *s, uint32_t unit,
                                                 uint32_t tensor, const char *name);
/* Sets s->rates from zinf.learning_rates and zinf.layer_decay. -EINVAL, -ENOTSUP: the message names
 * the setting that cannot be used. */
int setup_rates(struct setup *s);
void setup_free_rates(struct setup *s);

#endif
