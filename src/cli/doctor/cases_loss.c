/* cases_loss: losses over tiles of a vocabulary, of numbers, and of pairs of sequences. */
#include "cli/doctor/cases.h"

#include <math.h>

struct loss_pairs {
    struct pair logits, targets, max, sum, target_logit, loss, logit_sum, row_scales, max_at;
};

static struct loss_pairs loss_pairs_of(struct twin *t, const struct loss_shape *s)
{
    const size_t r = (size_t)s->rows, v = (size_t)s->vocabulary;
    struct loss_pairs p = {
        .logits = pair_random(t, ZINF_DTYPE_F32, r * v, 1, 4.0f),
        .targets = pair_new(t, ZINF_DTYPE_F32, r, 0),
        .max = pair_random(t, ZINF_DTYPE_F32, r, 2, 1.0f),
        .sum = pair_random(t, ZINF_DTYPE_F32, r, 3, 1.0f),
        .target_logit = pair_random(t, ZINF_DTYPE_F32, r, 4, 1.0f),
        .loss = pair_random(t, ZINF_DTYPE_F32, r, 5, 1.0f),
        .logit_sum = pair_random(t, ZINF_DTYPE_F32, r, 6, 1.0f),
        .row_scales = pair_random(t, ZINF_DTYPE_F32, r, 7, 1.0f),
        .max_at = pair_random(t, ZINF_DTYPE_F32, r, 8, 1.0f),
    };
    for (size_t i = 0; i < r; i++) /* some ignored, one that no tile holds */
        ((int32_t *)p.targets.host.data)[i] = i % 5 == 4 ? -100
                                              : i == 3   ? (int32_t)v
                                                         : (int32_t)(i * 37 % v);
    for (size_t i = 0; i < p.logits.host.n; i++) {
        const bool first = i / v == 1 && i % v < (size_t)s->masked_first;
        const bool masked = s->masked_first && (i % 3 == 0 || first);
        ((float *)p.logits.host.data)[i] += masked ? -INFINITY : i % 2 ? s->offset : -s->offset;
    }
    pair_upload(t, &p.targets);
    pair_upload(t, &p.logits);
    return p;
}

static void loss_side(struct zinf_cross_entropy *a, const struct loss_pairs *p, int side, bool more)
{
    a->logits = (float *)at(&p->logits, side) + a->first;
    a->targets = at(&p->targets, side);
    a->max = at(&p->max, side);
    a->sum = at(&p->sum, side);
    a->target_logit = at(&p->target_logit, side);
    a->loss = at(&p->loss, side);
    a->logit_sum = more ? at(&p->logit_sum, side) : NULL;
    a->max_at = more ? at(&p->max_at, side) : NULL;
    a->row_scales = more ? at(&p->row_scales, side) : NULL;
}

/* A tile's gradients of 16 bits are at the beginning of where its row of logits was. Behind them
 * anything may be: there the host's bytes are taken for right. */
static void check_gradients(struct twin *t, const struct pair *logits, const struct loss_shape *s)
{
    const size_t width = zinf_dtype_bytes(s->d_dtype), vocabulary = (size_t)s->vocabulary;
    struct pair gradients = *logits;
    gradients.host.dtype = s->d_dtype;
    gradients.host.n *= sizeof(float) / width;
    struct tensor got = pair_download(t, &gradients);
    for (size_t first = 0; first < logits->host.n;) {
        const size_t left = vocabulary - first % vocabulary;
        const size_t cols = left < (size_t)s->tile ? left : (size_t)s->tile;
        const size_t behind = first * sizeof(float) + cols * width;
        memcpy((char *)gradients.host.data + behind, (char *)got.data + behind,
               cols * (sizeof(float) - width));
        first += cols;
    }
    PAIR_CHECK(t, &gradients, 1e-7, 1e-5 + 2.0 * dtype_epsilon(s->d_dtype));
}

void case_loss(struct twin *t, const struct loss_shape *s)
{
    twin_case(t, "cross_entropy", "%lld rows of %lld by %lld, cap %g, gradients in %s",
              (long long)s->rows, (long long)s->vocabulary, (long long)s->tile, (double)s->softcap,
              zinf_dtype_name(s->d_dtype));
    struct loss_pairs p = loss_pairs_of(t, s);
    struct zinf_cross_entropy a = {.rows = s->rows,
                                   .ld = s->vocabulary,
                                   .softcap = s->softcap,
                                   .scale = 0.5f,
                                   .d_dtype = s->d_dtype,
                                   .vocab = s->vocabulary,
                                   .smoothing = s->more ? 0.2f : 0.0f,
                                   .z_loss = s->more ? 1e-3f : 0.0f,
                                   .max_z_loss = s->more && s->largest ? 0.05f : 0.0f};
    ON_BOTH(t, (a.first = 0, loss_side(&a, &p, side, s->more), ops->cross_entropy_start(q, &a)));
    for (int pass = 0; pass < 2; pass++) {
        for (a.first = 0; a.first < s->vocabulary; a.first += s->tile) {
            a.cols = s->vocabulary - a.first < s->tile ? s->vocabulary - a.first : s->tile;
            ON_BOTH(t, (loss_side(&a, &p, side, s->more), pass ? ops->cross_entropy_backward(q, &a)
                                                               : ops->cross_entropy_update(q, &a)));
        }
        if (!pass)
            ON_BOTH(t, (loss_side(&a, &p, side, s->more), ops->cross_entropy_finish(q, &a)));
    }
    PAIR_CHECK(t, &p.max, 0.0, s->softcap > 0.0f ? 1e-6 : 0.0);
    /* The host's own sum of 4096 terms, one by one, is off by 3.7e-6. */
    PAIR_CHECK(t, &p.sum, 1e-7, s->softcap > 0.0f || s->one_by_one ? 1e-5 : 3e-6);
    PAIR_CHECK(t, &p.loss, 2e-6, 2e-6);
    check_gradients(t, &p.logits, s);
}

void case_squared_error(struct twin *t, size_t n)
{
    twin_case(t, "squared_error", "%zu rows", n);
    struct pair x = pair_random(t, ZINF_DTYPE_F32, n, n, 2.0f);
    struct pair labels = pair_random(t, ZINF_DTYPE_F32, n, n + 1, 2.0f);
    struct pair loss = pair_new(t, ZINF_DTYPE_F32, n, 0);
    struct zinf_squared_error a = {.rows = (int64_t)n, .scale = 0.25f};
    for (size_t i = 2; i < n; i += 5)
        ((float *)labels.host.data)[i] = NAN;
    pair_upload(t, &labels);
    ON_BOTH(t, (a.x = a.dx = at(&x, side), a.labels = at(&labels, side), a.loss = at(&loss, side),
                ops->squared_error(q, &a)));
    PAIR_CHECK(t, &loss, 0.0, 1e-7);
    PAIR_CHECK(t, &x, 0.0, 1e-7);
}

struct preference_pairs {
    struct pair losses, reference, targets, labels, loss, rewards, d_losses;
};

static struct preference_pairs preference_pairs_of(struct twin *t, enum zinf_preference_kind kind,
                                                   size_t pairs, size_t seq)
{
    const size_t n = 2 * pairs * seq;
    struct preference_pairs p = {
        .losses = pair_random(t, ZINF_DTYPE_F32, n, 1, 1.0f),
        .reference = pair_random(t, ZINF_DTYPE_F32, n, 2, 1.0f),
        .targets = pair_new(t, ZINF_DTYPE_F32, n, 0),
        .labels = pair_new(t, ZINF_DTYPE_F32, 2 * pairs, 0),
        .loss = pair_new(t, ZINF_DTYPE_F32, 2 * pairs, 0),
        .rewards = pair_new(t, ZINF_DTYPE_F32, 2 * pairs, 0),
        .d_losses = pair_new(t, ZINF_DTYPE_F32, n, 0),
    };
    for (size_t i = 0; i < n; i++) {
        ((int32_t *)p.targets.host.data)[i] = i / seq % 7 == 5 || i % 3 == 1 ? -1 : (int32_t)i;
        ((float *)p.losses.host.data)[i] = fabsf(((float *)p.losses.host.data)[i]) + 0.01f;
    }
    for (size_t i = 0; i < 2 * pairs; i++)
        ((int32_t *)p.labels.host.data)[i] =
            i % 2 || i % 6 == 4 ? -1 : kind == ZINF_PREFERENCE_KTO && i % 4 == 0;
    pair_upload(t, &p.targets);
    pair_upload(t, &p.losses);
    pair_upload(t, &p.labels);
    return p;
}

void case_preference(struct twin *t, enum zinf_preference_kind kind, size_t pairs, size_t seq)
{
    const bool referenced = zinf_preference_has_reference(kind);
    const bool scores = kind == ZINF_PREFERENCE_REWARD; /* by the reference's numbers, as margins */
    twin_case(t, "preference", "kind %d, %zu pairs of %zu tokens", (int)kind, pairs, seq);
    struct preference_pairs p = preference_pairs_of(t, kind, pairs, seq);
    struct zinf_preference a = {.kind = kind,
                                .beta = scores ? 1.0f : 0.3f,
                                .margin = 0.5f,
                                .smoothing = 0.1f,
                                .center = scores ? 0.2f : 0.0f,
                                .desirable = 1.5f,
                                .undesirable = 0.7f,
                                .pairs = (int64_t)pairs,
                                .seq = (int64_t)seq,
                                .scale = 0.5f};
    for (int back = 0; back < 2; back++)
        ON_BOTH(t, (a.losses = at(&p.losses, side), a.targets = at(&p.targets, side),
                    a.labels = at(&p.labels, side),
                    a.reference = referenced ? at(&p.reference, side) : NULL,
                    a.margins = scores ? at(&p.reference, side) : NULL,
                    a.loss = back ? NULL : at(&p.loss, side),
                    a.rewards = back ? NULL : at(&p.rewards, side),
                    a.d_losses = back ? at(&p.d_losses, side) : NULL, ops->preference(q, &a)));
    PAIR_CHECK(t, &p.loss, 1e-5, 1e-5);
    PAIR_CHECK(t, &p.rewards, 1e-5, 1e-5);
    PAIR_CHECK(t, &p.d_losses, 1e-6, 2e-5);
}
