/*
 * base_identity: by what adapters know their base again: a base of equal shapes with other weights
 * would take them without a word. Beside PEFT's files lies adapter_base.json with two sums over the
 * base's tensors: of names, number types and shapes, and of each one's first numbers, which is read
 * in no time and differs where the model was trained on. Inside src/train only.
 */
#ifndef ZINF_TRAIN_BASE_IDENTITY_H
#define ZINF_TRAIN_BASE_IDENTITY_H

#include "formats/formats.h"

struct base_identity {
    bool known;
    uint64_t layout, weights;
};
int base_identity_of(const struct zinf_tensors *weights, struct base_identity *out);
/* Into an adapter's folder; nothing where it is not known. */
int base_identity_write(const struct base_identity *identity, const char *folder);
/* Of an adapter's folder: not known where it has none. */
int base_identity_read(const char *folder, struct base_identity *out);
/* Of an adapter's folder against its base. -EINVAL: the base's tensors are laid out as they were
 * and hold other weights. Another layout, as after quantising, is only warned of; folders without
 * adapter_base.json are taken as they are. */
int base_identity_check(const struct base_identity *identity, const char *folder, const char *base);

#endif
