/* embedding: what the files of embeddings share. Inside this folder only. */
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
/* A prompt of the folder, as option prompt-name or its default says, into *out on the heap; NULL:
 * none is put before texts. */
int job_embedding_prompt(const struct zinf_session *s, char **out);

#endif
