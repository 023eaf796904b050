/* embedding: embeddings of texts, for the door and the command. */
#ifndef ZINF_API_EMBEDDING_H
#define ZINF_API_EMBEDDING_H

#include "api/session.h"

/* How the model's folder makes embeddings, and what options say instead; once the model is open. */
int job_embedding_read(struct zinf_session *s);
/* The columns of the data that are trained on, by options or the file's first row. */
int job_embedding_columns(struct zinf_session *s, const char *file);
/* As job_task_open, of rows of texts. */
int job_embedding_open(struct zinf_session *s, const struct zinf_samples_options *given,
                       struct zinf_dataset **out);
/* A model that was trained for it says so in its folder, in the files of sentence-transformers. */
int job_embedding_keep(const struct zinf_session *s, const char *folder);
const char *job_pooling_word(size_t i);

/* Embeddings of all rows of option data: n of cols numbers. begin is called once before row, which
 * gets each in the order of the files; both may end it with < 0. */
struct job_embeddings {
    uint64_t n;
    int64_t cols;
    int (*begin)(void *arg, uint64_t n, int64_t cols);
    int (*row)(void *arg, uint64_t index, const float *embedding, int64_t cols);
    void *arg;
};
int job_embed(struct zinf_session *s, struct job_embeddings *out);

#endif
