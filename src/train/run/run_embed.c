/* run_embed: embeddings of windows of a data set, a batch at a time. */
#include "train/run/run_batch.h"
#include "train/trainer.h"

int zinf_run_embed(struct zinf_trainer *trainer, struct zinf_dataset *data, uint64_t first,
                   uint64_t n, float *embeddings)
{
    const int64_t windows = (int64_t)n;
    struct run_batch arrays;
    int code = run_batch_init(&arrays, trainer, data, windows);
    if (!code)
        run_batch_fit(&arrays, data, first, n);
    for (int64_t i = 0; !code && i < windows; i++)
        code = run_batch_take(&arrays, data, first + (uint64_t)i, i);
    const struct zinf_batch given = run_batch_given(&arrays);
    if (!code)
        code = zinf_trainer_embed(trainer, &given, windows, embeddings);
    run_batch_fini(&arrays);
    return code;
}
