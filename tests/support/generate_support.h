/* generate_support: trainers of fixtures' folders for the tests of texts. */
#ifndef ZINF_GENERATE_SUPPORT_H
#define ZINF_GENERATE_SUPPORT_H

#include "train_support.h"
#include "set.h"

static char drive[600]; /* where parameters go */

struct setting {
    const char *param;      /* none, cpu, nvme */
    const char *precision;  /* a section of the configuration, with its comma */
    uint64_t device_memory; /* 0: what is there */
    int threads;            /* 0: 1 */
    int64_t source_len;     /* of whole sequences */
    int parts;              /* of tensors; 0: 1 */
};

static inline void fixture_folder(char folder[600], const char *name)
{
    snprintf(folder, 600, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
}

/* shape NULL: whole sequences. The configuration is the caller's. */
static inline int open_trainer(struct zinf_trainer **t, struct zinf_config **config,
                               const char *folder, const struct setting *s,
                               const struct zinf_decode_shape *shape, int64_t seq_len)
{
    char text[1024];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    set_memory(&context, "zinf.device_memory", s->device_memory);
    context.no_training = true;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": 1, %s \"zero_optimization\": {\"stage\": 3,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}},"
             "\"zinf\": {\"threads\": %d, \"placement\": \"exact\", \"tensor_parts\": %d}}",
             s->precision ? s->precision : "", s->param ? s->param : "none", drive,
             s->threads ? s->threads : 1, s->parts ? s->parts : 1);
    *t = NULL;
    CHECKF(!zinf_config_parse(config, text, strlen(text), "test", &context), "%s", zinf_error());
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_FORWARD,
                                           .model_path = folder,
                                           .config = *config,
                                           .seq_len = seq_len,
                                           .source_len = s->source_len,
                                           .device = ZINF_DEVICE_HOST};
    if (shape)
        options.decode = *shape;
    return zinf_trainer_create(t, &options);
}

static inline void close_trainer(struct zinf_trainer *t, struct zinf_config *config)
{
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static inline bool same_text(const struct zinf_text *a, const struct zinf_text *b)
{
    return a->n_new == b->n_new && a->finish == b->finish &&
           !memcmp(a->ids, b->ids, (size_t)(a->n_prompt + a->n_new) * sizeof *a->ids);
}

static inline void free_texts(struct zinf_text *texts, int n)
{
    for (int i = 0; i < n; i++)
        free(texts[i].ids);
}

#endif
