/*
 * What ranks that share tensors send each other in a step: by the formula, by the estimate and by
 * the nets' own counts, at all stages of ZeRO, with tied heads and others, in fp32 and in bf16.
 */
#include "trained_ranks.h"

enum { RANKS = 4 };

/* Of a sum of so many fp32 numbers, which is scattered and gathered. */
static uint64_t sum_bytes(uint64_t numbers, uint64_t ranks)
{
    return 2 * numbers / ranks * (ranks - 1) * sizeof(float);
}

/* What the formula asks of a model. */
struct sizes {
    uint64_t layers, hidden, head_dim, kv_heads;
    /* Backward makes again what forward has kept of blocks, but of the last one, which it begins
     * with: the sum behind attention. */
    bool again;
};

/* A micro-batch: sums of tokens times width, four a block, one of the table and one a tile of the
 * head; of each token a log-sum-exp and the target's logit of each shard; and in a block whose key
 * and value heads are half as many as shards the gradient of their matrix, by twos. */
static uint64_t wanted_bytes(const struct sizes *m, uint64_t ranks)
{
    const uint64_t tokens = (uint64_t)(trainings.seq * trainings.batch);
    const uint64_t again = m->again ? m->layers - 1 : 0;
    const uint64_t sums = 1 + 4 * m->layers + again + n_tiles;
    const uint64_t statistics = 2 * tokens * sizeof(float);
    return sums * sum_bytes(tokens * m->hidden, ranks) + (ranks - 1) * statistics +
           (ranks > m->kv_heads ? m->layers * sum_bytes(2 * m->head_dim * m->hidden, 2) : 0);
}

/* Of ranks that share tensors, and as many groups of them as that leaves. */
static void check_bytes(struct setting s, const struct sizes *m, uint32_t ranks, const char *what)
{
    char extra[160], name[80];
    struct zinf_estimate estimate = {0};
    struct outcome out;
    snprintf(extra, sizeof extra,
             ", \"tensor_parts\": %u, \"mesh\": {\"tensor\": %u}, "
             "\"activation_checkpointing\": \"%s\"",
             ranks, ranks, m->again ? "always" : "never");
    snprintf(name, sizeof name, "%s-%u-stage%d", what, ranks, s.stage);
    s.extra = extra;
    s.sharing = (int)ranks;
    struct zinf_config *config = configure_of(&s, RANKS);
    struct zinf_estimate_options options = {
        .trainer = trainer_options(&s, config), .ranks = RANKS, .local_ranks = RANKS};
    run_seats(&s, 1, RANKS, name, &out);
    CHECKF(!zinf_estimate(&estimate, &options), "%s", zinf_error());
    const uint64_t wanted = (uint64_t)s.accumulation * wanted_bytes(m, ranks);
    CHECKF((uint64_t)estimate.tensor_sent_bytes == wanted, "%s: %.0f bytes estimated, not %llu",
           name, estimate.tensor_sent_bytes, (unsigned long long)wanted);
    CHECKF(tensor_bytes >= wanted && tensor_bytes < wanted + 1024, "%s: %llu bytes sent, not %llu",
           name, (unsigned long long)tensor_bytes, (unsigned long long)wanted);
    CHECKF(net_bytes == estimate.lane_bytes[ZINF_LANE_NET], "%s: %llu bytes of slices, not %llu",
           name, (unsigned long long)net_bytes,
           (unsigned long long)estimate.lane_bytes[ZINF_LANE_NET]);
    zinf_config_destroy(config);
}

static void check_model(const struct sizes *m, const char *arch, const char *precision)
{
    char name[40];
    snprintf(name, sizeof name, "%s-%s", arch, precision ? "bf16" : "fp32");
    for (int stage = 0; stage < 4; stage++) {
        struct setting s = {.param = stage == 3 ? "cpu" : "none",
                            .state = "cpu",
                            .precision = precision,
                            .accumulation = m->again ? 1 : 1 + stage % 2,
                            .stage = stage};
        check_bytes(s, m, stage % 2 ? 2 : RANKS, name);
    }
}

/* The head is the table. */
static void test_tied(void)
{
    static const struct sizes sizes = {2, 64, 16, 4, false};
    check_model(&sizes, "gpt2", NULL);
    check_model(&sizes, "gpt2", bf16);
}

static void test_recomputed(void)
{
    static const struct sizes sizes = {2, 64, 16, 4, true};
    check_model(&sizes, "again", NULL);
}

/* And with two key and value heads. */
static void test_untied(void)
{
    static const struct sizes sizes = {2, 24, 6, 2, false};
    snprintf(model, sizeof model, "%s/tests/fixtures/mistral_a", getenv("SRCDIR"));
    trainings.shape.vocab = 61;
    check_model(&sizes, "mistral", NULL);
    check_model(&sizes, "mistral", bf16);
}

int main(void)
{
    begin_rank_trainings("tensor-bytes", 1);
    TAP_RUN(test_tied);
    TAP_RUN(test_recomputed);
    TAP_RUN(test_untied);
    remove_work();
    return tap_done();
}
