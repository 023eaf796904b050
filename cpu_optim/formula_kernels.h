/*
 * formula_kernels: the arithmetic of each optimizer on one vector, in the order that optim.h
 * states. Included by each per-ISA file after vector_kernels.h.
 */

/* How the kernels are to write an array's parameter copy. */
ALWAYS_INLINE enum zinf_dtype param_form(const struct zinf_optim_array *a)
{
    return a->remainder ? SPLIT_MASTER : a->param ? a->param_dtype : NO_PARAM;
}

ALWAYS_INLINE bool has_moment2(enum zinf_optim_kind kind)
{
    return kind == ZINF_OPTIM_ADAMW || kind == ZINF_OPTIM_ADAM || kind == OPTIM_STREAM2;
}

/* The numbers of optim_scalars, each in all lanes. Loops use a local copy, which their stores
 * cannot alias. */
struct lanes {
    vec grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, root_correction, eps;
    vec weight_decay, lr, minus_lr, minus_lr_decay, minus_step_size;
    bool decay;
    uint64_t step;
};

ALWAYS_INLINE struct lanes lanes_of(const struct optim_scalars *s)
{
    return (struct lanes){
        .grad_scale = vec_set1(s->grad_scale),
        .beta1 = vec_set1(s->beta1),
        .one_minus_beta1 = vec_set1(s->one_minus_beta1),
        .beta2 = vec_set1(s->beta2),
        .one_minus_beta2 = vec_set1(s->one_minus_beta2),
        .root_correction = vec_set1(s->root_correction),
        .eps = vec_set1(s->eps),
        .weight_decay = vec_set1(s->weight_decay),
        .lr = vec_set1(s->lr),
        .minus_lr = vec_set1(-s->lr),
        .minus_lr_decay = vec_set1(-s->lr_decay),
        .minus_step_size = vec_set1(-s->step_size),
        .decay = s->decay,
        .step = s->step,
    };
}

/* ---- the formulas: g is the scaled gradient; p, m and v are updated ---- */

ALWAYS_INLINE void update_adam(const struct lanes *k, bool decoupled, vec g, vec *p, vec *m, vec *v)
{
    if (!decoupled && k->decay)
        g = vec_fma(k->weight_decay, *p, g);
    *m = vec_fma(k->one_minus_beta1, g, vec_mul(k->beta1, *m));
    *v = vec_fma(k->one_minus_beta2, vec_mul(g, g), vec_mul(k->beta2, *v));
    vec d = vec_fma(vec_sqrt(*v), k->root_correction, k->eps);
    if (decoupled && k->decay)
        *p = vec_fma(k->minus_lr_decay, *p, *p);
    *p = vec_fma(k->minus_step_size, vec_div(*m, d), *p);
}

ALWAYS_INLINE void update_lion(const struct lanes *k, vec g, vec *p, vec *m)
{
    vec c = vec_fma(k->one_minus_beta1, g, vec_mul(k->beta1, *m));
    if (k->decay)
        *p = vec_fma(k->minus_lr_decay, *p, *p);
    *p = vec_sub(*p, vec_sign(c, k->lr));
    *m = vec_fma(k->one_minus_beta2, g, vec_mul(k->beta2, *m));
}

ALWAYS_INLINE void update_adagrad(const struct lanes *k, vec g, vec *p, vec *sum)
{
    if (k->decay)
        g = vec_fma(k->weight_decay, *p, g);
    *sum = vec_fma(g, g, *sum);
    *p = vec_fma(k->minus_lr, vec_div(g, vec_add(vec_sqrt(*sum), k->eps)), *p);
}

ALWAYS_INLINE void update_sgd(const struct lanes *k, vec g, vec *p, vec *momentum)
{
    if (k->decay)
        g = vec_fma(k->weight_decay, *p, g);
    *momentum = vec_fma(k->beta1, *momentum, g);
    *p = vec_fma(k->minus_lr, *momentum, *p);
}

/* The memory-bandwidth limit that a step is compared with: its loads and stores with the least
 * arithmetic. */
ALWAYS_INLINE void update_stream(vec g, vec *p, vec *m, vec *v)
{
    *p = vec_add(*p, g);
    *m = vec_add(*m, g);
    *v = vec_add(*v, g);
}
