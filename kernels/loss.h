/*
 * loss: arguments of losses, and of noise that is added to a model's input in training. A part of
 * kernels.h, whose rules for memory, threads and errors hold.
 */
#ifndef ZINF_KERNELS_LOSS_H
#define ZINF_KERNELS_LOSS_H

#include "kernels/attention.h"

/* Softmax cross-entropy over tiles of the vocabulary. max, sum and target_logit keep the running
 * statistics of each row; tiles come in increasing order of first. A row with target < 0 is
 * ignored: its loss and gradient are 0. With a softcap, logits are replaced by softcap tanh(logits
 * / softcap). Forward does not change the logits; backward replaces them by their gradient. */
struct zinf_cross_entropy {
    int64_t rows, cols, ld; /* logits tile [rows][cols], fp32 */
    float softcap;          /* 0: none */
    int64_t first;          /* vocabulary id of column 0 */
    const int32_t *targets; /* [rows] */
    float *logits;
    float *max, *sum, *target_logit; /* [rows] each */
    /* [rows]: written by finish: log(sum) + max - target_logit, plus the terms below */
    float *loss;
    /* backward: logits become scale * (softmax - onehot), with a softcap times its slope */
    float scale;
    const float *row_scales; /* backward: [rows], multiplied with scale; NULL: 1 */
    /* The type that gradients are rounded to. In 16 bits they are at the beginning of their row of
     * logits, and a row of them is 2 ld elements long. */
    enum zinf_dtype d_dtype;
    /* Label smoothing e in [0, 1) (Szegedy et al., arXiv 1512.00567): the loss is (1 - e) (-log p
     * of the target) + e times the mean of -log p over all `vocab` ids, as in PyTorch's
     * CrossEntropyLoss(label_smoothing). It needs the rows' sums of logits. 0: none. */
    float smoothing;
    int64_t vocab;    /* with smoothing: size of the whole vocabulary */
    float *logit_sum; /* with smoothing: [rows] */
    /* Weight of (log(sum) + max)^2 in the loss, which keeps it near 0 (Chowdhery et al., arXiv
     * 2204.02311). 0: none. */
    float z_loss;
    /* Weight of log(sum)^2 in the loss, the square of the largest log-probability: gdGPT's
     * aux_max_z_loss. Of equal largest columns the first is meant. 0: none. */
    float max_z_loss;
    int32_t *max_at; /* [rows] ids of the largest columns, with max_z_loss */
};

/* The loss (x - label)^2 of each row, and its gradient by x times scale: PyTorch's MSELoss without
 * the mean. A row whose label is NaN is ignored: its loss and gradient are 0. */
struct zinf_squared_error {
    int64_t rows;
    const float *x, *labels; /* [rows] */
    float *loss;             /* [rows]; NULL: not wanted */
    float *dx;               /* [rows], scale * 2 (x - label); may be x; NULL: not wanted */
    float scale;
};

/* The loss of a pair of sequences, of which the first is preferred. lp is a sequence's sum of
 * log-probabilities over the tokens that count, lp' the same of a reference, a the mean of lp over
 * those tokens; c is the first and r the second of the pair; s(x) = log(1 + exp(-x)).
 *   DPO     d = (lp_c - lp'_c) - (lp_r - lp'_r); loss (1 - e) s(beta d) + e s(-beta d), e the
 *           smoothing (Rafailov et al., arXiv 2305.18290; with e "conservative")
 *   IPO     d as for DPO, of means; loss (d - 1 / (2 beta))^2 (Azar et al., arXiv 2310.12036)
 *   ORPO    o is the difference of the log-odds a - log(1 - exp(a)); loss beta s(o) plus the mean
 *           of -log p over all targets of all c, prompts included (Hong et al., arXiv 2403.07691,
 *           as in TRL's ORPOTrainer)
 *   SIMPO   x = beta (a_c - a_r) - margin; loss (1 - e) s(x) + e s(-x) (Meng et al., arXiv
 *           2405.14734)
 *   REWARD  v is the score that a model gives a sequence, m the pair's own margin; loss
 *           s(v_c - v_r - m) + center (v_c + v_r)^2 (Ouyang et al., arXiv 2203.02155; margin:
 *           Touvron et al., arXiv 2307.09288; center, which keeps scores around 0: Eisenstein et
 *           al., arXiv 2312.09244)
 *   KTO     of single sequences: the first of a pair is one, desirable or not; the second is its
 *           prompt with the answer of another. g = lp - lp' of the first; z = max(0, the mean of
 *           lp - lp' over all seconds that count), which gets no gradient; loss
 *           desirable (1 - sigmoid(beta (g - z))) or undesirable (1 - sigmoid(beta (z - g)))
 *           (Ethayarajh et al., arXiv 2402.01306, eq. 8 with lambda - v, as in TRL's KTOTrainer)
 */
enum zinf_preference_kind {
    ZINF_PREFERENCE_DPO,
    ZINF_PREFERENCE_IPO,
    ZINF_PREFERENCE_ORPO,
    ZINF_PREFERENCE_SIMPO,
    ZINF_PREFERENCE_REWARD,
    ZINF_PREFERENCE_KTO,
    ZINF_PREFERENCES,
};
static inline bool zinf_preference_has_reference(enum zinf_preference_kind kind)
{
    return kind == ZINF_PREFERENCE_DPO || kind == ZINF_PREFERENCE_IPO ||
           kind == ZINF_PREFERENCE_KTO;
}
/* Whether a pair's loss depends on the other pairs of a call. */
static inline bool zinf_preference_has_common(enum zinf_preference_kind kind)
{
    return kind == ZINF_PREFERENCE_KTO || kind == ZINF_PREFERENCE_ORPO;
}
struct zinf_preference {
    enum zinf_preference_kind kind;
    float beta, margin, smoothing; /* REWARD has beta 1, no margin and no smoothing */
    float center;                  /* only REWARD */
    float desirable, undesirable;  /* only KTO: weights of desirable and undesirable sequences */
    int64_t pairs, seq;            /* REWARD: seq is 1 */
    const int32_t *targets; /* [pairs][2][seq]; < 0: the token does not count; not read by REWARD */
    /* [pairs][2]; the first of a pair < 0: the pair is ignored, with loss and gradient 0. KTO: the
     * first is 1 if desirable, else 0. ORPO: the first is the number of tokens before its answer.
     */
    const int32_t *labels;
    /* [pairs][2][seq]: -log p of every token (REWARD: the scores), and the same of the reference,
     * which is NULL if there is none or sums is used */
    const float *losses, *reference;
    const float *sums; /* [pairs][2]: the reference's sums over the tokens that count */
    /* only REWARD, [pairs][2]: the second of a pair, if negative, is -m; else m is 0 */
    const float *margins;
    /* forward (NULL in backward), [pairs][2]: the pair's loss, then 0; and beta times the gain of
     * each sequence over the reference (lp - lp', a - a', a or v; for KTO the second is beta z) */
    float *loss, *rewards;
    /* backward (NULL in forward): the gradient of losses times scale, overwritten */
    float *d_losses;
    float scale;
};

/* The same loss where the rows of a sequence are not at hand together, such as those of chunks:
 * what it takes of a sequence. Sums over parts of the rows add up to it. */
struct zinf_preference_sums {
    double gain;         /* log p of the targets that count, less the reference's; or the score */
    double count;        /* of these targets */
    double all, targets; /* -log p of all targets, also before an answer (ORPO); their number */
};
/* Adds n rows. Targets before row `first` of them do not count. reference: NULL, or as above. */
void zinf_preference_add(struct zinf_preference_sums *sums, const int32_t *targets,
                         const float *losses, const float *reference, int64_t first, int64_t n);
/* The gradient of the loss by the losses of a sequence's targets, times scale: of those that count
 * (or of the score), and of those before its answer. */
struct zinf_preference_slopes {
    float counted, before;
};
/* From sums [pairs][2] to loss, rewards and slopes [pairs][2], on the CPU. Of args, targets, losses
 * and the reference's losses are not read. */
void zinf_preference_of_sums(const struct zinf_preference *args,
                             const struct zinf_preference_sums *sums,
                             struct zinf_preference_slopes *slopes);
/* The gradients of n rows' losses, d_losses [n], as of zinf_preference_add. */
void zinf_preference_spread(const struct zinf_preference_slopes *slopes, const int32_t *targets,
                            int64_t first, int64_t n, float *d_losses);

/* Adds noise in place: x += magnitude * u with u uniform in [-1, 1). For element e, u is 2
 * uniform(e) - 1 with the uniform(e) of zinf_dropout; random.p is not used. */
struct zinf_noise {
    enum zinf_dtype dtype;
    int64_t n;
    void *x;
    float magnitude;
    struct zinf_dropout random;
};

#endif
