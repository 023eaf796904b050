/* setup_rates: optimizers, learning rates and weight decay of tensors, where they have their own.
 */
#ifndef ZINF_SETUP_RATES_H
#define ZINF_SETUP_RATES_H

#include "train/setup.h"

/* What a tensor's updates differ by from the run's: [n_units][its tensors]. */
struct tensor_rate {
    double scale; /* of the learning rate */
    float weight_decay;
    uint32_t optimizer; /* of the setup's */
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
/* From zinf.learning_rates and zinf.layer_decay; -EINVAL or -ENOTSUP names what cannot be. */
int setup_rates(struct setup *s);
void setup_free_rates(struct setup *s);

#endif
