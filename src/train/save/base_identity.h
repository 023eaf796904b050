/*
 * base_identity: what an adapter's folder knows beside PEFT's files, in adapter_base.json. Two sums
 * over the base's tensors: of names, number types and shapes, and of each one's first numbers,
 * which is read in no time and differs where the model was trained on: a base of equal shapes with
 * other weights would be taken without a word. And the sum of adapter_model.safetensors, byte for
 * byte as in a checkpoint's list of files, since a flipped bit there would be trained above, too.
 * Inside src/train only.
 */
#ifndef ZINF_TRAIN_BASE_IDENTITY_H
#define ZINF_TRAIN_BASE_IDENTITY_H

#include "formats/formats.h"

struct base_identity {
    bool known;
    uint64_t layout, weights;
};
int base_identity_of(const struct zinf_tensors *weights, struct base_identity *out);
/* Into an adapter's folder; of the base nothing where it is not known. own: XXH3 of its
 * adapter_model.safetensors, as it was handed to the drive. */
int base_identity_write(const struct base_identity *identity, uint64_t own, const char *folder);
/* Before other weights are put there: what is known of those before would speak against them. */
int base_identity_forget(const char *folder);
/* Of an adapter's folder: not known where it says nothing of a base. */
int base_identity_read(const char *folder, struct base_identity *out);
/* Of an adapter's folder against its base. -EINVAL: the base's tensors are laid out as they were
 * and hold other weights. Another layout, as after quantising, is only warned of; folders without
 * adapter_base.json are taken as they are. */
int base_identity_check(const struct base_identity *identity, const char *folder, const char *base);
/* An adapter's folder against itself, before anything of it is believed: 1 it is whole, 0 it has no
 * sum, as PEFT's and those of earlier versions. -EBADMSG: the message names the file that is
 * damaged. */
int base_identity_check_own(const char *folder);

#endif
