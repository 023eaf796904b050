/*
 * loss: arguments of losses, and of what is done to a model's input for their sake; a part of
 * kernels.h, which says what holds of memory, threads and errors.
 */
#ifndef ZINF_KERNELS_LOSS_H
#define ZINF_KERNELS_LOSS_H

#include "kernels/attention.h"

/* Softmax cross-entropy over tiles of the vocabulary. For each row an online (max, sum) and the
 * target's logit are kept in stats; tiles in increasing order of first. A row with target < 0 is
 * ignored: loss 0, gradient 0. With a softcap all of this is of softcap tanh(logits / softcap);
 * logits themselves are not changed but by backward, which gives the gradient at them. */
struct zinf_cross_entropy {
    int64_t rows, cols, ld; /* logits tile [rows][cols], fp32 */
    float softcap;          /* 0: none */
    int64_t first;          /* vocabulary id of column 0 */
    const int32_t *targets; /* [rows] */
    float *logits;
    float *max, *sum, *target_logit; /* [rows] each */
    float *loss; /* [rows]: finish writes log(sum) + max - target_logit, and what is added below */
    float scale; /* backward: logits become scale * (softmax - onehot), and with a softcap times its
                  * slope, in place */
    const float *row_scales; /* backward: [rows], beside scale; NULL: 1 */
    /* What these gradients are rounded to. In 16 bits they take the front of their row of logits: a
     * row is 2 ld elements of theirs from the next. */
    enum zinf_dtype d_dtype;
    /* e of label smoothing, in [0, 1) (Szegedy et al., arXiv 1512.00567): the loss is (1 - e)
     * (-log p of the target) + e times the mean of -log p over all `vocab` ids, as PyTorch's
     * CrossEntropyLoss(label_smoothing) has it. Rows' sums of logits are kept for it. 0: none. */
    float smoothing;
    int64_t vocab;    /* with smoothing: of all tiles */
    float *logit_sum; /* with smoothing: [rows] */
    /* times (log(sum) + max)^2 is added to the loss, which keeps that near 0 (Chowdhery et al.,
     * arXiv 2204.02311). 0: nothing. */
    float z_loss;
    /* times log(sum)^2, the square of the largest log-probability, is added to the loss: gdGPT's
     * aux_max_z_loss. Of columns that are equally large the first counts, and is kept for it. 0:
     * nothing. */
    float max_z_loss;
    int32_t *max_at; /* with max_z_loss: [rows], ids */
};

/* (x - label)^2 of a row, and its gradient by x times a scale: PyTorch's MSELoss but for the mean.
 * A row whose label is NaN is ignored: loss 0, gradient 0. */
struct zinf_squared_error {
    int64_t rows;
    const float *x, *labels; /* [rows] */
    float *loss;             /* [rows]; NULL: not wanted */
    float *dx;               /* [rows], scale * 2 (x - label); may be x; NULL: not wanted */
    float scale;
};

/* How a pair of sequences, of which the first is preferred, becomes a loss. lp is a sequence's sum
 * of log-probabilities over the tokens that count, lp' the same of a reference, a the mean of lp
 * over those tokens, c the first and r the second of the pair, s(x) = log(1 + exp(-x)).
 *   DPO    d = (lp_c - lp'_c) - (lp_r - lp'_r); (1 - e) s(beta d) + e s(-beta d), e the smoothing
 *          (Rafailov et al., arXiv 2305.18290; with e "conservative")
 *   IPO    d the same of means; (d - 1 / (2 beta))^2 (Azar et al., arXiv 2310.12036)
 *   ORPO   beta s(o) and the mean of -log p over all targets of all c, prompts too; o the
 * difference of the log-odds a - log(1 - exp(a)) (Hong et al., arXiv 2403.07691, as TRL's
 * ORPOTrainer has it) SIMPO  x = beta (a_c - a_r) - margin; (1 - e) s(x) + e s(-x) (Meng et al.,
 * arXiv 2405.14734) REWARD of scores v of a model that has one for a sequence, and the pair's own
 * margin m: s(v_c - v_r - m) + center (v_c + v_r)^2 (Ouyang et al., arXiv 2203.02155; the margin
 *          Touvron et al., arXiv 2307.09288; center, which keeps scores around 0, Eisenstein et
 *          al., arXiv 2312.09244)
 *   KTO    of single sequences: the first of a pair is one, desirable or not, the second its prompt
 *          with another's answer. g = lp - lp' of the first, z = max(0, the mean of that of all
 *          seconds that count), which nothing flows back to; desirable (1 - sigmoid(beta (g - z)))
 *          or undesirable (1 - sigmoid(beta (z - g))) (Ethayarajh et al., arXiv 2402.01306, eq. 8
 *          with lambda - v, as TRL's KTOTrainer has it) */
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
struct zinf_preference {
    enum zinf_preference_kind kind;
    float beta, margin, smoothing; /* of REWARD beta is 1, and it has neither of the others */
    float center;                  /* of REWARD */
    float desirable, undesirable;  /* of KTO: what such a sequence counts */
    int64_t pairs, seq;            /* seq: of REWARD 1 */
    const int32_t *targets;        /* [pairs][2][seq]; < 0: the token does not count; not looked at
                                    * by REWARD */
    const int32_t *labels; /* [pairs][2]; < 0 at the first: the pair is ignored: loss 0, gradient 0;
                            * of KTO 1 there: it is desirable, 0: it is not; of ORPO there how many
                            * of the first's tokens come before its answer */
    /* [pairs][2][seq]: -log p of every token, of REWARD the scores; of the reference: NULL where
     * there is none, or sums in its place */
    const float *losses, *reference;
    const float *sums; /* [pairs][2]: what the reference's are over the tokens that count */
    /* of REWARD, [pairs][2]: at the second of a pair, if it is negative, -m; else m is 0 */
    const float *margins;
    /* forward, NULL in backward; [pairs][2]: the pair's loss, then 0; and beta times what the
     * sequence has gained over the reference (lp - lp', a - a', a, v), of KTO at the second beta z
     */
    float *loss, *rewards;
    /* backward, NULL in forward: the gradient at losses times scale, overwritten */
    float *d_losses;
    float scale;
};

/* x += magnitude * u in place, u uniform in [-1, 1): of element e what zinf_dropout says of
 * uniform(e), times 2, less 1; random.p is not looked at. */
struct zinf_noise {
    enum zinf_dtype dtype;
    int64_t n;
    void *x;
    float magnitude;
    struct zinf_dropout random;
};

#endif
