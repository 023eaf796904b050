/*
 * transfer_carried: tensors of a folder that are no part of the model that is trained
 * (model/composite.h), from the folder that was read to the one that is written, byte for byte.
 * Those of wide numbers come in front of the model's tensors and the others behind them, so that
 * every number of a file lies at a multiple of its size.
 */
#include "model/composite.h"
#include "train/save/transfer.h"

static bool is_here(const struct source *s, const struct zinf_tensor_info *info, size_t width)
{
    return zinf_file_dtype_bytes(info->dtype) == width &&
           zinf_composite_carries(zinf_model_family(s->setup->model), info->name);
}

int transfer_carried_open(const struct source *s, int part, struct zinf_tensors **out)
{
    const struct setup *setup = s->setup;
    *out = NULL;
    if (part != PART_PARAM || setup->options.init || is_adapted(setup) ||
        !zinf_composite_other_prefix(zinf_model_family(setup->model)))
        return 0;
    return zinf_tensors_open(out, s->folder);
}

int transfer_copy_tensor(const struct zinf_tensors *from, const struct zinf_tensor_info *info,
                         struct zinf_tensors_writer *to, void *block, uint64_t block_bytes)
{
    const uint64_t width = zinf_file_dtype_bytes(info->dtype), most = block_bytes / width;
    int code = 0;
    for (uint64_t at = 0, n; !code && at < info->n_elems; at += n) {
        n = info->n_elems - at < most ? info->n_elems - at : most;
        code = zinf_tensors_read(from, info, at, n, block);
        if (!code)
            code = zinf_tensors_writer_append(to, block, n * width);
    }
    return code;
}

int transfer_carry(const struct source *s, const struct zinf_tensors *from, bool wide,
                   bool declares, struct zinf_tensors_writer *to)
{
    const struct region r = source_region(s);
    const size_t least = wide ? 4 : 1;
    int code = 0;
    for (size_t width = 2 * least; from && !code && width >= least; width /= 2)
        for (uint64_t i = 0; !code && i < zinf_tensors_count(from); i++) {
            const struct zinf_tensor_info *info = zinf_tensors_at(from, i);
            if (!is_here(s, info, width))
                continue;
            code = declares ? zinf_tensors_writer_declare(to, info->name, info->dtype, info->rank,
                                                          info->shape)
                            : transfer_copy_tensor(from, info, to, r.scratch,
                                                   r.scratch_elems * sizeof *r.scratch);
        }
    return code;
}
