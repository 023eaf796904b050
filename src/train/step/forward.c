/* forward: runs a trainer's programs without backward: the losses of windows, and one row of
 * logits. decode.c continues sequences. */
#include "train/trainer.h"

/* Puts a batch in place. A trainer was made either for whole sequences or for new rows of some. */
static int begin(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples)
{
    if (t->setup.compute.decoding)
        return zinf_fail(-EINVAL, "this trainer continues sequences and takes no whole ones");
    int code = trainer_settle(t);
    if (!code)
        code = trainer_fill(t);
    if (!code)
        code = trainer_set_lengths(t, batch);
    if (!code)
        code = trainer_set_batch(t, batch, samples, NULL);
    if (!code)
        trainer_chunk_batch(t, batch, samples, false, NULL);
    return code;
}

/* Runs a program over n_windows samples; a loss may depend on the whole batch. */
static int run_whole(struct zinf_trainer *t, const struct zinf_program *program,
                     const struct zinf_batch *batch, int64_t n_windows)
{
    if (n_windows < 1 || n_windows > t->setup.windows)
        return zinf_fail(-EINVAL, "%lld windows at once: between 1 and %lld are possible",
                         (long long)n_windows, (long long)t->setup.windows);
    int code = begin(t, batch, n_windows);
    if (code)
        return code;
    struct zinf_compute whole = t->compute;
    t->compute.train = false;
    t->compute.objective = (struct zinf_objective){0}; /* the model itself is measured */
    t->compute.batch = t->setup.n_chunks > 1 ? 1 : n_windows;
    code = trainer_run(t, program);
    t->compute = whole;
    return code;
}

/* Gives the losses to ranks of other stages, for all chunks, whose losses are consecutive. */
static int share_losses(struct zinf_trainer *t, int64_t n_windows, double *sum)
{
    const struct zinf_axis *pipe = pipe_axis(&t->setup);
    const uint32_t loss = t->setup.graph->loss;
    double sums[] = {*sum, t->cross_entropy};
    uint64_t n;
    int code = zinf_net_broadcast(pipe->net, pipe->world - 1, sums, sizeof sums);
    *sum = sums[0];
    t->cross_entropy = sums[1];
    if (code || !plan_keeps_losses(&t->plan))
        return code ? code
                    : zinf_net_broadcast(pipe->net, pipe->world - 1, trainer_chunk_sum(t, loss),
                                         sizeof(struct chunk_sum));
    float *losses = (float *)(uintptr_t)trainer_losses_of(t, loss, 0, n_windows, &n);
    n *= (uint64_t)t->setup.own_chunks;
    return zinf_net_broadcast(pipe->net, pipe->world - 1, losses, n * sizeof *losses);
}

/* Of a loss that is of each micro-batch by itself: in chunks each sample is one. */
static double micros_of(const struct zinf_trainer *t, int64_t n_windows)
{
    return t->setup.n_chunks > 1 ? (double)n_windows : 1;
}

/* Adds the losses of ranks that share sequences: each has those of its rows, and one of them a
 * sequence's other losses. */
static int add_parts(struct zinf_trainer *t, int64_t n_windows, uint64_t count, double *sum)
{
    const struct zinf_graph *g = t->setup.graph;
    struct {
        struct exact_sum of_targets, others;
    } sums = {0};
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_LOSS && !g->values[v].away)
            trainer_add_loss(t, v, n_windows, v == g->loss ? &sums.of_targets : &sums.others);
    struct zinf_net *net = context_axis(&t->setup)->net;
    const int code =
        net ? zinf_net_add(net, (int64_t *)(void *)&sums, sizeof sums / sizeof(int64_t)) : 0;
    t->cross_entropy = exact_value(&sums.of_targets);
    *sum = t->cross_entropy + exact_value(&sums.others) * (double)count / micros_of(t, n_windows);
    return code;
}

int trainer_sum_targets(struct zinf_trainer *t, double *sum)
{
    struct zinf_net *net = context_axis(&t->setup)->net;
    struct exact_sum of_targets = {0};
    trainer_add_loss(t, t->setup.graph->loss, 1, &of_targets);
    const int code =
        net ? zinf_net_add(net, (int64_t *)(void *)&of_targets, sizeof of_targets / sizeof(int64_t))
            : 0;
    *sum = exact_value(&of_targets);
    return code;
}

/* Of this rank, and of those that share its sequences. */
static int sum_losses(struct zinf_trainer *t, int64_t n_windows, uint64_t count, double *sum)
{
    if (in_parts(&t->setup))
        return add_parts(t, n_windows, count, sum);
    t->cross_entropy = trainer_sum_loss(t, t->setup.graph->loss, n_windows);
    *sum = t->cross_entropy +
           trainer_other_losses(t, n_windows) * (double)count / micros_of(t, n_windows);
    return 0;
}

int zinf_trainer_loss(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t n_windows,
                      double *sum, uint64_t *count)
{
    int code = run_whole(t, &t->plan.forward, batch, n_windows);
    if (!code && t->setup.graph->embeddings) {
        code = trainer_likeness(t, n_windows, sum, count);
        t->cross_entropy = *sum;
        return code;
    }
    if (!code)
        code = trainer_count_targets(t, batch, n_windows, count);
    if (!code)
        code = sum_losses(t, n_windows, *count, sum);
    return !code && is_piped(&t->setup) ? share_losses(t, n_windows, sum) : code;
}

double zinf_trainer_cross_entropy(const struct zinf_trainer *t)
{
    return t->cross_entropy;
}

/* The rank with the row's chunk, among those that share sequences. */
static uint32_t rank_of_row(const struct zinf_trainer *t)
{
    const struct setup *s = &t->setup;
    return (uint32_t)(zinf_chunk_place(t->logits_chunk, s->n_chunks, s->n_parts) / s->own_chunks);
}

/* Gives the row to all ranks that share sequences and have the head. */
static int share_row(struct zinf_trainer *t, float *logits, uint64_t bytes)
{
    struct zinf_net *net = context_axis(&t->setup)->net;
    const bool shared = t->setup.walk.row != WALK_NONE && in_parts(&t->setup) && net;
    return shared ? zinf_net_broadcast(net, rank_of_row(t), logits, bytes) : 0;
}

static int refuse_logits(void)
{
    return zinf_fail(-ENOTSUP, "a training in chunks of sequences makes texts and tells classes "
                               "only where it is asked for that at its start: set "
                               "zinf.sequence_chunk to 0");
}

int zinf_trainer_classify(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t n_windows,
                          float *logits)
{
    const struct zinf_graph *g = t->setup.graph;
    if (g->values[g->targets].input != ZINF_INPUT_LABELS)
        return zinf_fail(-EINVAL, "the model has no classes");
    t->logits_row = 0;
    t->n_logits = 1;
    if (!setup_makes_logits(&t->setup))
        return refuse_logits();
    const uint64_t bytes = (uint64_t)(n_windows * g->vocab) * sizeof *logits;
    const struct zinf_axis *pipe = pipe_axis(&t->setup);
    const bool cut = t->setup.n_chunks > 1;
    int code = cut ? trainer_set_lengths(t, batch) : 0;
    t->logits_chunk = code || !cut ? 0 : trainer_class_row(t, batch, 0) / t->compute.seq;
    if (!code)
        code = run_whole(t, &t->plan.logits, batch, n_windows);
    if (!code && t->setup.walk.row != WALK_NONE)
        memcpy(logits, host_at(&t->plan, logits_at(&t->plan)), bytes);
    if (!code)
        code = share_row(t, logits, bytes);
    return code || !is_piped(&t->setup)
               ? code
               : zinf_net_broadcast(pipe->net, pipe->world - 1, logits, bytes);
}

int zinf_trainer_embed(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t n_windows,
                       float *embeddings)
{
    const struct zinf_graph *g = t->setup.graph;
    const int64_t cols = g->values[g->embeddings].cols;
    if (!g->embeddings)
        return zinf_fail(-EINVAL, "the model makes no embeddings");
    int code = run_whole(t, &t->plan.forward, batch, n_windows);
    for (int64_t i = 0; !code && i < n_windows; i++)
        trainer_read_embedding(t, i, embeddings + i * cols);
    return code;
}

/* Puts one rank's part of rows' logits into place: of each tile of the vocabulary its shards, row
 * by row. */
static void place_logits(const struct zinf_trainer *t, uint32_t rank, int64_t n, float *logits)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    const struct zinf_shards whole = {.of = 1, .n = 1}, *c = g->shards.of ? &g->shards : &whole;
    const float *from =
        (const float *)(void *)host_at(&t->plan, t->plan.at.h_row + rank * logits_bytes(&t->plan));
    for (int64_t first = 0; first < g->vocab; first += g->row_cols) {
        const int64_t left = g->vocab - first, visit = first / g->row_cols;
        const uint64_t tile = (uint64_t)(left < g->row_cols ? left : g->row_cols);
        const uint64_t begin = zinf_shard_row(c, tile, rank * c->n);
        const uint64_t end = zinf_shard_row(c, tile, (rank + 1) * c->n);
        for (int64_t r = 0; r < n; r++)
            memcpy(logits + r * g->vocab + first + begin,
                   from + (visit * (int64_t)logits_rows(&t->plan) + r) * g->row_cols,
                   (end - begin) * sizeof *logits);
    }
}

int trainer_take_logits(struct zinf_trainer *t, int64_t n, float *logits)
{
    const struct zinf_axis *tensor = tensor_axis(&t->setup), *pipe = pipe_axis(&t->setup);
    const bool has_head = t->setup.walk.row != WALK_NONE;
    const uint64_t bytes = (uint64_t)(n * t->setup.graph->vocab) * sizeof *logits;
    int code = 0;
    if (!n)
        return 0;
    if (has_head && tensor->net)
        code = zinf_net_gather(tensor->net, host_at(&t->plan, logits_at(&t->plan)),
                               host_at(&t->plan, t->plan.at.h_row), logits_bytes(&t->plan));
    for (uint32_t rank = 0; !code && has_head && rank < tensor->world; rank++)
        place_logits(t, rank, n, logits);
    if (!code)
        code = share_row(t, logits, bytes);
    if (code || !is_piped(&t->setup))
        return code;
    return zinf_net_broadcast(pipe->net, pipe->world - 1, logits, bytes);
}

int zinf_trainer_logits(struct zinf_trainer *t, const int32_t *ids, int64_t n, float *logits)
{
    const struct zinf_batch batch = {.inputs = {[ZINF_INPUT_IDS] = ids}};
    return zinf_trainer_sample_logits(t, &batch, n, logits);
}

int zinf_trainer_sample_logits(struct zinf_trainer *t, const struct zinf_batch *sample, int64_t n,
                               float *logits)
{
    struct zinf_batch batch = *sample;
    static const int32_t no_label = -1;
    batch.inputs[ZINF_INPUT_TARGETS] = batch.inputs[ZINF_INPUT_IDS]; /* their loss is not used */
    batch.inputs[ZINF_INPUT_LABELS] = &no_label;
    if (n < 1 || n > t->setup.seq)
        return zinf_fail(-EINVAL, "%lld tokens: between 1 and %lld are possible", (long long)n,
                         (long long)t->setup.seq);
    if (!setup_makes_logits(&t->setup))
        return refuse_logits();
    batch.seq_len = n;
    int code = begin(t, &batch, 1);
    if (code)
        return code;
    struct zinf_compute whole = t->compute;
    t->compute.train = false;
    t->compute.batch = 1;
    t->logits_row = (n - 1) % t->compute.seq;
    t->logits_chunk = (n - 1) / t->compute.seq;
    t->n_logits = 1;
    code = trainer_run(t, &t->plan.logits);
    t->compute = whole;
    return code ? code : trainer_take_logits(t, 1, logits);
}
