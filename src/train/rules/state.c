/* state: where masters and moments of a sub-group are in its state. */
#include "train/rules/rules.h"

#include "train/setup.h"

uint64_t rule_moments_offset(const struct setup *s, uint64_t n)
{
    return zinf_state_bytes(s->form, 0, n);
}

uint64_t rule_moment_offset(const struct setup *s, uint64_t n, int which)
{
    return rule_moments_offset(s, n) + (uint64_t)(which - 1) * n * s->rule->moment_bytes;
}

uint64_t rule_scales_offset(const struct setup *s, uint64_t n)
{
    return rule_moment_offset(s, n, (int)s->rule->n_moments + 1);
}

struct rule_masters rule_masters(const struct rule_step *s, uint64_t first)
{
    void *own = s->param + first * zinf_dtype_bytes(s->setup->dtype);
    switch (s->setup->form) {
    case ZINF_STATE_BARE:
        return (struct rule_masters){.master = own};
    case ZINF_STATE_SPLIT:
        return (struct rule_masters){.remainder = (uint16_t *)(void *)s->state + first,
                                     .param = own};
    case ZINF_STATE_WHOLE:
        break;
    }
    return (struct rule_masters){.master = (float *)(void *)s->state + first, .param = own};
}
