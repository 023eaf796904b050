/*
 * classes: what a configuration says of samples that are told apart, in the words of config.json:
 * id2label, label2id, num_labels, problem_type, and an architecture that ends in
 * ForSequenceClassification.
 */
#ifndef ZINF_CLASSES_H
#define ZINF_CLASSES_H

#include "model/model.h"

/* As many as there are names of them, else num_labels, else two; of one number a sample, which a
 * problem_type of regression or a single label means, n is 1. -ENOTSUP: several at once. */
struct class_count {
    int64_t n;
    bool number;
};
int classes_read(const cJSON *config, const char *what, struct class_count *out);
/* zinf_model_classifies and zinf_model_class_name (model.h), of a document. */
bool classes_are_in(const cJSON *config);
const char *classes_name(const cJSON *config, int64_t number);
/* Replaces all that config says of them. */
int classes_write(cJSON *config, const struct zinf_family *family,
                  const struct zinf_model_classes *classes);

#endif
