/* config_aliases: old names and places of keys, and the keys that they are today. */
#include "config/config_private.h"

#define ZERO "zero_optimization."
#define PARAM ZERO "offload_param."
#define OPT ZERO "offload_optimizer."

/* clang-format off */
/* Old spellings, and both of DeepSpeed's spellings of the stage3_ keys. */
const struct zinf_config_alias zinf_config_aliases[] = {
    {ZERO "prefetch_bucket_size", ZERO "stage3_prefetch_bucket_size", ALIAS_SAME},
    {ZERO "param_persistence_threshold", ZERO "stage3_param_persistence_threshold", ALIAS_SAME},
    {ZERO "model_persistence_threshold", ZERO "stage3_model_persistence_threshold", ALIAS_SAME},
    {ZERO "max_live_parameters", ZERO "stage3_max_live_parameters", ALIAS_SAME},
    {ZERO "max_reuse_distance", ZERO "stage3_max_reuse_distance", ALIAS_SAME},
    {ZERO "gather_16bit_weights_on_model_save", ZERO "stage3_gather_16bit_weights_on_model_save",
        ALIAS_SAME},
    {ZERO "stage3_gather_fp16_weights_on_model_save",
        ZERO "stage3_gather_16bit_weights_on_model_save", ALIAS_SAME},
    {ZERO "module_granularity_threshold", ZERO "stage3_module_granularity_threshold", ALIAS_SAME},
    {ZERO "use_all_reduce_for_fetch_params", ZERO "stage3_use_all_reduce_for_fetch_params",
        ALIAS_SAME},
    {ZERO "allgather_sequential", ZERO "stage3_allgather_sequential", ALIAS_SAME},
    {ZERO "cpu_offload", OPT "device", ALIAS_CPU},
    {ZERO "cpu_offload_param", PARAM "device", ALIAS_CPU},
    {ZERO "cpu_offload_params", PARAM "device", ALIAS_CPU},
    {"zero_optimization", ZERO "stage", ALIAS_STAGE},
    {"optimizer.params.correct_bias", "optimizer.params.bias_correction", ALIAS_SAME},
    {"bfloat16.enabled", "bf16.enabled", ALIAS_SAME},
    {"bfloat16.check_grad_overflow", "bf16.check_grad_overflow", ALIAS_SAME},
    {"bfloat16.immediate_grad_update", "bf16.immediate_grad_update", ALIAS_SAME},
    {"bfloat16.bf16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads", ALIAS_SAME},
    {"bfloat16.bf16_optimizer_states", "bf16.bf16_optimizer_states", ALIAS_SAME},
    {ZERO "aio.block_size", "aio.block_size", ALIAS_SAME},
    {ZERO "aio.queue_depth", "aio.queue_depth", ALIAS_SAME},
    {ZERO "aio.intra_op_parallelism", "aio.intra_op_parallelism", ALIAS_SAME},
    {ZERO "aio.thread_count", "aio.intra_op_parallelism", ALIAS_SAME},
    {ZERO "aio.num_threads", "aio.intra_op_parallelism", ALIAS_SAME},
    {ZERO "aio.single_submit", "aio.single_submit", ALIAS_SAME},
    {ZERO "aio.overlap_events", "aio.overlap_events", ALIAS_SAME},
    {ZERO "aio.use_gds", "aio.use_gds", ALIAS_SAME},
    {"aio.thread_count", "aio.intra_op_parallelism", ALIAS_SAME},
    {"zinf.tensor_parallel", "zinf.mesh.tensor", ALIAS_SAME},
    {"zinf.pipeline_parallel", "zinf.mesh.pipe", ALIAS_SAME},
    {"virtual_pipeline_parallel_size", "zinf.pipeline_ranges", ALIAS_SAME},
    {"virtual_pipeline_model_parallel_size", "zinf.pipeline_ranges", ALIAS_SAME},
    {"num_layers_per_virtual_pipeline_stage", "zinf.pipeline_range_layers", ALIAS_SAME},
    {"zinf.context_parallel", "zinf.mesh.context", ALIAS_SAME},
    {"aio.num_threads", "aio.intra_op_parallelism", ALIAS_SAME},
};
const size_t zinf_config_n_aliases = sizeof zinf_config_aliases / sizeof *zinf_config_aliases;
/* clang-format on */
