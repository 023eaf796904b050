/*
 * config_table: every key that DeepSpeed's configuration knows, and zinf's own, one row each.
 *
 * A row that only changes speed or logging in DeepSpeed is accepted and listed; a row that would
 * change the numbers, the memory or the files in a way zinf does not do is unsupported. Defaults
 * are DeepSpeed's of today: gradient_clipping 1.0, pin_memory true, check_grad_overflow true.
 */
#include "config/config_choices.h"
#include "config/config_private.h"
#include "config/config_rows.h"

#include <math.h>

_Static_assert(offsetof(struct zinf_config_optimizer, beta2) ==
                   offsetof(struct zinf_config_optimizer, beta1) + sizeof(double),
               "betas are stored as a pair");
#define MAX_STEPS 1e15

/* Rows are tables: one line each where it fits. */
/* clang-format off */
#define ZERO "zero_optimization."
#define PARAM ZERO "offload_param."
#define OPT ZERO "offload_optimizer."
#define SCHED "scheduler.params."

enum {
    ADAMS = TAKER_ADAMW | TAKER_ADAM | TAKER_ADAMW8BIT,
    MUONS = TAKER_MUON | TAKER_NORMUON,
    APOLLOS = TAKER_APOLLO | TAKER_APOLLO_MINI,
    PROJECTED = TAKER_GALORE | APOLLOS,
    WARMUP = 1 << ZINF_SCHEDULER_WARMUP_LR,
    DECAY = 1 << ZINF_SCHEDULER_WARMUP_DECAY_LR,
    COSINE = 1 << ZINF_SCHEDULER_WARMUP_COSINE_LR,
    RANGE = 1 << ZINF_SCHEDULER_LR_RANGE_TEST,
    CYCLE = 1 << ZINF_SCHEDULER_ONE_CYCLE,
    FALLING = 1 << ZINF_SCHEDULER_LINEAR | 1 << ZINF_SCHEDULER_COSINE,
    TRAINER = FALLING | 1 << ZINF_SCHEDULER_CONSTANT_WITH_WARMUP,
};

const struct zinf_config_key zinf_config_keys[] = {
    {.path = "_sources", .type = KEY_ANY, .use = KEY_IGNORED},

    /* ---- batch ---- */
    INT_KEY("train_batch_size", train_batch_size, 0, 1, 0x1p53, .rule = AUTO_BATCH)
    INT_KEY("train_micro_batch_size_per_gpu", micro_batch, 0, 1, INT32_MAX, .rule = AUTO_BATCH)
    INT_KEY("gradient_accumulation_steps", accumulation, 0, 1, INT32_MAX, .rule = AUTO_BATCH)
    REFUSE("managed_gradient_accumulation", KEY_BOOL, 1,
        "zinf finds the accumulation boundary itself; set gradient_accumulation_steps")

    /* ---- optimizer ---- */
    CHOICE_KEY("optimizer.type", KEY_NAME, optimizer.type, optimizers, .text = "AdamW")
    NUMBER_KEY("optimizer.params.lr", optimizer.lr, 1e-3, 0, INFINITY,
        .rule = AUTO_LR, .takers = TAKER_OPTIMIZERS)
    {.path = "optimizer.params.betas", .type = KEY_PAIR, .offset = AT(optimizer.beta1),
        .number = 0.9, .second = 0.999,
     .max = 1, .below_max = true, .rule = AUTO_VALUE, .takers = ADAMS | TAKER_LION | MUONS | PROJECTED},
    NUMBER_KEY("optimizer.params.eps", optimizer.eps, 1e-8, 0, INFINITY,
        .rule = AUTO_VALUE, .takers = ADAMS | TAKER_ADAGRAD | MUONS | PROJECTED)
    NUMBER_KEY("optimizer.params.weight_decay", optimizer.weight_decay, 0, 0, INFINITY,
        .rule = AUTO_VALUE, .takers = TAKER_OPTIMIZERS)
    NUMBER_KEY("optimizer.params.momentum", optimizer.momentum, 0, 0, 1, .below_max = true,
        .takers = TAKER_SGD | MUONS)
    NUMBER_KEY("optimizer.params.muon_lr", optimizer.muon_lr, 0.02, 0, INFINITY,
        .takers = TAKER_MUON)
    NUMBER_KEY("optimizer.params.adam_lr", optimizer.adam_lr, 3e-4, 0, INFINITY,
        .takers = MUONS)
    {.path = "optimizer.params.ns_method", .type = KEY_ANY, .use = KEY_ACCEPTED,
        .takers = MUONS},
    BOOL_KEY("optimizer.params.nesterov", optimizer.nesterov, 1, .takers = MUONS | TAKER_SGD)
    CHOICE_KEY("optimizer.params.adjust_lr_fn", KEY_BOOL, optimizer.match_rms, rate_factors,
        .takers = MUONS)
    NUMBER_KEY("optimizer.params.beta2", optimizer.row_beta2, 0.95, 0, 1, .below_max = true,
        .takers = TAKER_NORMUON)
    INT_KEY("optimizer.params.rank", optimizer.rank, 128, 1, 1e6, .takers = PROJECTED)
    INT_KEY("optimizer.params.update_proj_gap", optimizer.update_proj_gap, 200, 1, MAX_STEPS,
        .takers = PROJECTED)
    NUMBER_KEY("optimizer.params.scale", optimizer.scale, 1, 0, 1e9, .takers = PROJECTED)
    CHOICE_KEY("optimizer.params.proj_type", KEY_CHOICE, optimizer.proj_type, projections,
        .takers = PROJECTED)
    CHOICE_KEY("optimizer.params.scale_type", KEY_BOOL, optimizer.scale_by_tensor, scale_types,
        .takers = APOLLOS)
    BOOL_KEY("optimizer.params.scale_front", optimizer.scale_front, 0, .takers = APOLLOS)
    BOOL_KEY("optimizer.params.disable_nl", optimizer.disable_nl, 0, .takers = APOLLOS)
    {.path = "optimizer.params.proj", .type = KEY_TEXT, .use = KEY_UNSUPPORTED, .text = "random",
     .why = "APOLLO projects along random vectors here, and GaLoreAdamW along singular ones; "
            "remove it"},
    REFUSE("optimizer.params.proj_quant", KEY_BOOL, 0, "projections are kept in fp32; remove it")
    REFUSE("optimizer.params.dim", KEY_INT, 2, "only matrices are projected; remove it")
    BOOL_KEY("optimizer.params.bias_correction", optimizer.bias_correction, 1,
        .takers = ADAMS | PROJECTED)
    BOOL_KEY("optimizer.params.adam_w_mode", optimizer.decoupled, 1,
        .takers = TAKER_ADAMW | TAKER_ADAM)
    NUMBER_KEY("optimizer.params.beta2_decay", optimizer.beta2_decay, -0.8, -10, 0,
        .takers = TAKER_ADAFACTOR)
    NUMBER_KEY("optimizer.params.eps1", optimizer.eps1, 0x1p-23, 1e-18, 1, .takers = TAKER_ADAFACTOR)
    NUMBER_KEY("optimizer.params.eps2", optimizer.eps2, 1e-3, 0, 1e3, .takers = TAKER_ADAFACTOR)
    NUMBER_KEY("optimizer.params.d", optimizer.clip_threshold, 1, 1e-6, 1e30,
        .takers = TAKER_ADAFACTOR)
    BOOL_KEY("optimizer.params.relative_step", optimizer.relative_step, 1,
        .takers = TAKER_ADAFACTOR)
    BOOL_KEY("optimizer.params.scale_parameter", optimizer.scale_parameter, 1,
        .takers = TAKER_ADAFACTOR)
    REFUSE("optimizer.params.max_grad_norm", KEY_ANY, 0,
        "clipping is the top-level key gradient_clipping; move the number there")
    REFUSE("optimizer.params.amsgrad", KEY_BOOL, 0,
        "no optimizer here keeps the maximum of the second moment; remove it")
    REFUSE("optimizer.params.dampening", KEY_NUMBER, 0, "SGD here has plain momentum; remove it")
    REFUSE("optimizer.params.maximize", KEY_BOOL, 0, "zinf minimises the loss; remove it")
    REFUSE("optimizer.params.fp32_optimizer_states", KEY_BOOL, 1,
        "moments are kept in fp32; remove it")
    ACCEPT("optimizer.params.torch_adam", KEY_BOOL)
    ACCEPT("optimizer.params.foreach", KEY_BOOL)
    ACCEPT("optimizer.params.fused", KEY_BOOL)
    ACCEPT("optimizer.params.capturable", KEY_BOOL)
    ACCEPT("optimizer.params.differentiable", KEY_BOOL)
    ACCEPT("optimizer.legacy_fusion", KEY_BOOL)

    /* ---- scheduler ---- */
    CHOICE_KEY("scheduler.type", KEY_CHOICE, scheduler.kind, schedulers)
    NUMBER_KEY(SCHED "warmup_min_lr", scheduler.warmup_min_lr, 0, 0, INFINITY,
        .rule = AUTO_VALUE, .takers = WARMUP | DECAY)
    NUMBER_KEY(SCHED "warmup_max_lr", scheduler.warmup_max_lr, 1e-3, 0, INFINITY,
        .rule = AUTO_MAX_LR, .takers = WARMUP | DECAY)
    INT_KEY(SCHED "warmup_num_steps", scheduler.warmup_num_steps, 1000, 0, MAX_STEPS,
        .rule = AUTO_WARMUP_STEPS, .takers = WARMUP | DECAY | COSINE | TRAINER)
    INT_KEY(SCHED "total_num_steps", scheduler.total_num_steps, 0, 1, MAX_STEPS,
        .rule = AUTO_TOTAL_STEPS, .takers = DECAY | COSINE | FALLING)
    CHOICE_KEY(SCHED "warmup_type", KEY_BOOL, scheduler.warmup_log, warmups, .number = 1,
        .takers = WARMUP | DECAY | COSINE)
    NUMBER_KEY(SCHED "warmup_min_ratio", scheduler.warmup_min_ratio, 0, 0, 1, .takers = COSINE)
    NUMBER_KEY(SCHED "cos_min_ratio", scheduler.cos_min_ratio, 1e-4, 0, 1, .takers = COSINE)
    NUMBER_KEY(SCHED "lr_range_test_min_lr", scheduler.range_min_lr, 1e-3, 0, INFINITY,
        .takers = RANGE)
    INT_KEY(SCHED "lr_range_test_step_size", scheduler.range_step_size, 2000, 1, MAX_STEPS,
        .takers = RANGE)
    NUMBER_KEY(SCHED "lr_range_test_step_rate", scheduler.range_step_rate, 1, 0, INFINITY,
        .takers = RANGE)
    BOOL_KEY(SCHED "lr_range_test_staircase", scheduler.range_staircase, 0, .takers = RANGE)
    NUMBER_KEY(SCHED "cycle_min_lr", scheduler.cycle_min_lr, 0, 0, INFINITY, .takers = CYCLE)
    NUMBER_KEY(SCHED "cycle_max_lr", scheduler.cycle_max_lr, 0, 0, INFINITY, .takers = CYCLE)
    NUMBER_KEY(SCHED "decay_lr_rate", scheduler.decay_lr_rate, 0, 0, INFINITY, .takers = CYCLE)
    INT_KEY(SCHED "cycle_first_step_size", scheduler.cycle_first_step_size, 2000, 1, MAX_STEPS,
        .takers = CYCLE)
    INT_KEY(SCHED "cycle_second_step_size", scheduler.cycle_second_step_size, 0, 1, MAX_STEPS,
        .takers = CYCLE)
    INT_KEY(SCHED "cycle_first_stair_count", scheduler.cycle_first_stair_count, 0, 0, MAX_STEPS,
        .takers = CYCLE)
    INT_KEY(SCHED "cycle_second_stair_count", scheduler.cycle_second_stair_count, 0, 0, MAX_STEPS,
        .takers = CYCLE)
    INT_KEY(SCHED "decay_step_size", scheduler.decay_step_size, 0, 0, MAX_STEPS, .takers = CYCLE)
    BOOL_KEY(SCHED "cycle_momentum", scheduler.cycle_momentum, 1, .takers = CYCLE)
    NUMBER_KEY(SCHED "cycle_min_mom", scheduler.cycle_min_mom, 0.8, 0, 1,
        .below_max = true, .takers = CYCLE)
    NUMBER_KEY(SCHED "cycle_max_mom", scheduler.cycle_max_mom, 0.9, 0, 1,
        .below_max = true, .takers = CYCLE)
    NUMBER_KEY(SCHED "decay_mom_rate", scheduler.decay_mom_rate, 0, 0, INFINITY, .takers = CYCLE)
    ACCEPT(SCHED "last_batch_iteration", KEY_INT)

    /* ---- precision ---- */
    BOOL_KEY("fp16.enabled", fp16.enabled, 0, .rule = AUTO_DTYPE)
    NUMBER_KEY("fp16.loss_scale", fp16.loss_scale, 0, 0, 0x1p126, .rule = AUTO_DEFAULT)
    INT_KEY("fp16.initial_scale_power", fp16.initial_scale_power, 16, 0, 126, .rule = AUTO_DEFAULT)
    INT_KEY("fp16.loss_scale_window", fp16.loss_scale_window, 1000, 1, MAX_STEPS,
        .rule = AUTO_DEFAULT)
    INT_KEY("fp16.hysteresis", fp16.hysteresis, 2, 1, 1e9, .rule = AUTO_DEFAULT)
    BOOL_KEY("fp16.consecutive_hysteresis", fp16.consecutive_hysteresis, 0, .rule = AUTO_DEFAULT)
    NUMBER_KEY("fp16.min_loss_scale", fp16.min_loss_scale, 1, 0, INFINITY, .above_min = true,
        .rule = AUTO_DEFAULT)
    ACCEPT("fp16.auto_cast", KEY_BOOL)
    ACCEPT("fp16.fused_optimizer", KEY_BOOL)
    REFUSE("fp16.fp16_master_weights_and_grads", KEY_BOOL, 0,
        "master weights are kept in fp32; remove it")
    BOOL_KEY("bf16.enabled", bf16, 0, .rule = AUTO_DTYPE)
    BOOL_KEY("bf16.check_grad_overflow", bf16_check_overflow, 1, .rule = AUTO_DEFAULT)
    ACCEPT("bf16.immediate_grad_update", KEY_BOOL)
    ACCEPT_AS("bf16.auto_cast", KEY_BOOL, BF16_SCALE)
    ACCEPT_AS("bf16.loss_scale", KEY_NUMBER, BF16_SCALE)
    ACCEPT_AS("bf16.initial_scale_power", KEY_NUMBER, BF16_SCALE)
    ACCEPT_AS("bf16.loss_scale_window", KEY_NUMBER, BF16_SCALE)
    ACCEPT_AS("bf16.hysteresis", KEY_NUMBER, BF16_SCALE)
    ACCEPT_AS("bf16.consecutive_hysteresis", KEY_BOOL, BF16_SCALE)
    ACCEPT_AS("bf16.min_loss_scale", KEY_NUMBER, BF16_SCALE)
    BOOL_KEY("bf16.bf16_master_weights_and_grads", bf16_masters, 0)
    BOOL_KEY("bf16.bf16_optimizer_states", bf16_moments, 0)
    {.path = "data_types.param_dtype", .type = KEY_TEXT, .use = KEY_ACCEPTED, .choices = dtypes},
    {.path = "data_types.buffer_dtype", .type = KEY_TEXT, .use = KEY_ACCEPTED, .choices = dtypes},
    {.path = "data_types.grad_accum_dtype", .type = KEY_TEXT, .use = KEY_ACCEPTED,
     .choices = dtypes},
    REFUSE("torch_autocast.enabled", KEY_BOOL, 0,
        "PyTorch's autocast has no counterpart here; use bf16.enabled or fp16.enabled")
    ACCEPT("torch_autocast.dtype", KEY_TEXT)
    ACCEPT("torch_autocast.lower_precision_safe_modules", KEY_ANY)
    REFUSE("amp.enabled", KEY_BOOL, 0,
        "Apex mixed precision does not go with ZeRO; use bf16.enabled or fp16.enabled")
    ACCEPT("amp.*", KEY_ANY)

    /* ---- global scalars ---- */
    NUMBER_KEY("gradient_clipping", gradient_clipping, 1, 0, INFINITY, .rule = AUTO_VALUE)
    INT_KEY("steps_per_print", steps_per_print, 0, 0, INFINITY) /* 1e16 and more: never */
    BOOL_KEY("wall_clock_breakdown", wall_clock_breakdown, 0)
    ACCEPT("prescale_gradients", KEY_BOOL)
    {.path = "gradient_predivide_factor", .type = KEY_NUMBER,
        .use = KEY_ACCEPTED, .number = 1, .max = INFINITY},
    {.path = "gradient_allreduce_op", .type = KEY_TEXT, .use = KEY_UNSUPPORTED, .text = "mean",
     .why = "gradients are averaged over ranks; remove it or write \"mean\""},
    ACCEPT("communication_data_type", KEY_TEXT)
    ACCEPT("seq_parallel_communication_data_type", KEY_TEXT)
    ACCEPT("sparse_gradients", KEY_BOOL)
    ACCEPT("disable_allgather", KEY_BOOL)
    ACCEPT("fp32_allreduce", KEY_BOOL)
    ACCEPT("memory_breakdown", KEY_BOOL)
    ACCEPT("dump_state", KEY_BOOL)
    ACCEPT("dataloader_drop_last", KEY_BOOL)
    ACCEPT("zero_allow_untested_optimizer", KEY_BOOL)
    ACCEPT("zero_force_ds_cpu_optimizer", KEY_BOOL)
    ACCEPT("graph_harvesting", KEY_BOOL)
    ACCEPT("timers.throughput.enabled", KEY_BOOL)
    ACCEPT("timers.throughput.synchronized", KEY_BOOL)
    ACCEPT("log_level", KEY_ANY)
    ACCEPT("vocabulary_size", KEY_INT)

    /* ---- zero_optimization ---- */
    INT_KEY(ZERO "stage", zero_stage, 0, 0, 3)
    INT_KEY(ZERO "sub_group_size", sub_group_size, 1e9, 0, INFINITY, .rule = AUTO_DEFAULT)
    INT_KEY(ZERO "stage3_prefetch_bucket_size", prefetch_bucket_size, 5e7, 0, INFINITY,
        .rule = AUTO_PREFETCH)
    INT_KEY(ZERO "stage3_param_persistence_threshold", param_persistence_threshold, 1e5, 0,
        INFINITY, .rule = AUTO_PERSISTENCE)
    ACCEPT(ZERO "stage3_model_persistence_threshold", KEY_INT)
    ACCEPT(ZERO "stage3_max_live_parameters", KEY_INT)
    ACCEPT(ZERO "stage3_max_reuse_distance", KEY_INT)
    ACCEPT(ZERO "stage3_gather_16bit_weights_on_model_save", KEY_BOOL)
    ACCEPT(ZERO "stage3_module_granularity_threshold", KEY_INT)
    ACCEPT(ZERO "stage3_use_all_reduce_for_fetch_params", KEY_BOOL)
    ACCEPT(ZERO "stage3_allgather_sequential", KEY_BOOL)
    ACCEPT(ZERO "contiguous_gradients", KEY_BOOL)
    {.path = ZERO "reduce_scatter", .type = KEY_BOOL, .use = KEY_ACCEPTED, .number = 1},
    ACCEPT(ZERO "reduce_bucket_size", KEY_INT)
    ACCEPT(ZERO "use_multi_rank_bucket_allreduce", KEY_BOOL)
    ACCEPT(ZERO "allgather_partitions", KEY_BOOL)
    ACCEPT(ZERO "allgather_bucket_size", KEY_INT)
    ACCEPT(ZERO "overlap_comm", KEY_BOOL)
    ACCEPT(ZERO "load_from_fp32_weights", KEY_BOOL)
    ACCEPT(ZERO "elastic_checkpoint", KEY_BOOL)
    ACCEPT(ZERO "ignore_unused_parameters", KEY_BOOL)
    REFUSE(ZERO "legacy_stage1", KEY_BOOL, 0, "the old stage 1 is gone; remove it")
    ACCEPT(ZERO "round_robin_gradients", KEY_BOOL)
    ACCEPT(ZERO "zero_hpz_partition_size", KEY_INT)
    ACCEPT(ZERO "zero_quantized_weights", KEY_BOOL)
    REFUSE(ZERO "zero_quantized_nontrainable_weights", KEY_BOOL, 0,
        "frozen weights are not stored quantised; remove it")
    ACCEPT(ZERO "zero_quantized_gradients", KEY_BOOL)
    ACCEPT(ZERO "zeropp_loco_param", KEY_ANY)
    ACCEPT(ZERO "mics_shard_size", KEY_INT)
    ACCEPT(ZERO "mics_hierarchical_params_gather", KEY_BOOL)
    ACCEPT(ZERO "memory_efficient_linear", KEY_BOOL)
    ACCEPT(ZERO "pipeline_loading_checkpoint", KEY_BOOL)
    ACCEPT(ZERO "override_module_apply", KEY_BOOL)
    ACCEPT(ZERO "log_trace_cache_warnings", KEY_BOOL)
    ACCEPT(ZERO "enable_sanity_checks", KEY_BOOL)
    ACCEPT(ZERO "save_muon_momentum_buffer_in_memory", KEY_BOOL)
    ACCEPT(ZERO "cpu_offload_use_pin_memory", KEY_BOOL)
    ACCEPT(ZERO "leaf_module.*", KEY_ANY)
    REFUSE(ZERO "zenflow", KEY_ANY, 0, "ZenFlow's delayed updates change the result; remove it")

    CHOICE_KEY(PARAM "device", KEY_CHOICE, offload_param.device, places)
    {.path = PARAM "nvme_path", .type = KEY_PATHS, .offset = AT(offload_param)},
    INT_KEY(PARAM "buffer_count", offload_param.buffer_count, 5, 0, 1e9, .rule = AUTO_DEFAULT)
    INT_KEY(PARAM "buffer_size", offload_param.buffer_size, 1e8, 0, INFINITY, .rule = AUTO_DEFAULT)
    INT_KEY(PARAM "max_in_cpu", offload_param.max_in_cpu, 1e9, 0, INFINITY, .rule = AUTO_DEFAULT)
    BOOL_KEY(PARAM "pin_memory", offload_param.pin_memory, 1, .rule = AUTO_DEFAULT)
    CHOICE_KEY(OPT "device", KEY_CHOICE, offload_optimizer.device, places)
    {.path = OPT "nvme_path", .type = KEY_PATHS, .offset = AT(offload_optimizer)},
    INT_KEY(OPT "buffer_count", offload_optimizer.buffer_count, 4, 0, 1e9, .rule = AUTO_DEFAULT)
    BOOL_KEY(OPT "pin_memory", offload_optimizer.pin_memory, 1, .rule = AUTO_DEFAULT)
    BOOL_KEY(OPT "pipeline_read", offload_optimizer.pipeline_read, 0, .rule = AUTO_DEFAULT)
    BOOL_KEY(OPT "pipeline_write", offload_optimizer.pipeline_write, 0, .rule = AUTO_DEFAULT)
    NUMBER_KEY(OPT "ratio", offload_optimizer.ratio, 1, 0, 1, .rule = AUTO_DEFAULT)
    ACCEPT(OPT "fast_init", KEY_BOOL)
    ACCEPT(OPT "super_offload", KEY_BOOL)
    ACCEPT(OPT "cpuadam_cores_perc", KEY_NUMBER)

    /* ---- aio: what DeepSpeed's tuning tool prints has booleans as strings ---- */
    SIZE_KEY("aio.block_size", aio.block_size, 1048576, 4096, 0x1p30,
        .rule = AUTO_DEFAULT, .loose = true)
    INT_KEY("aio.queue_depth", aio.queue_depth, 64, 1, 32768, .rule = AUTO_DEFAULT, .loose = true)
    INT_KEY("aio.intra_op_parallelism", aio.n_threads, 1, 1, 4096,
        .rule = AUTO_DEFAULT, .loose = true)
    BOOL_KEY("aio.single_submit", aio.single_submit, 0, .rule = AUTO_DEFAULT, .loose = true)
    BOOL_KEY("aio.overlap_events", aio.overlap_events, 1, .rule = AUTO_DEFAULT, .loose = true)
    {.path = "aio.use_gds", .type = KEY_BOOL, .use = KEY_ACCEPTED, .loose = true},

    /* ---- other sections ---- */
    BOOL_KEY("activation_checkpointing.cpu_checkpointing", cpu_checkpointing, 0)
    ACCEPT("activation_checkpointing.partition_activations", KEY_BOOL)
    ACCEPT("activation_checkpointing.contiguous_memory_optimization", KEY_BOOL)
    ACCEPT("activation_checkpointing.number_checkpoints", KEY_INT)
    ACCEPT("activation_checkpointing.synchronize_checkpoint_boundary", KEY_BOOL)
    ACCEPT("activation_checkpointing.profile", KEY_BOOL)
    BOOL_KEY("csv_monitor.enabled", csv_enabled, 0, .rule = AUTO_DEFAULT)
    TEXT_KEY("csv_monitor.output_path", csv_output_path, .text = "", .rule = AUTO_DEFAULT)
    TEXT_KEY("csv_monitor.job_name", csv_job_name, .text = "DeepSpeedJobName", .rule = AUTO_DEFAULT)
    BOOL_KEY("tensorboard.enabled", tensorboard_enabled, 0, .rule = AUTO_DEFAULT)
    TEXT_KEY("tensorboard.output_path", tensorboard_output_path, .text = "", .rule = AUTO_DEFAULT)
    TEXT_KEY("tensorboard.job_name", tensorboard_job_name, .text = "DeepSpeedJobName",
        .rule = AUTO_DEFAULT)
    WARN("wandb.enabled", KEY_BOOL, 0,
        "nothing is sent to Weights & Biases; with tensorboard.enabled true, \"wandb sync FOLDER\" "
        "takes the event files")
    ACCEPT("wandb.group", KEY_TEXT)
    ACCEPT("wandb.team", KEY_TEXT)
    ACCEPT("wandb.project", KEY_TEXT)
    ACCEPT("comet.*", KEY_ANY)
    ACCEPT("flops_profiler.enabled", KEY_BOOL)
    ACCEPT("flops_profiler.recompute_fwd_factor", KEY_NUMBER)
    ACCEPT("flops_profiler.profile_step", KEY_INT)
    ACCEPT("flops_profiler.module_depth", KEY_INT)
    ACCEPT("flops_profiler.top_modules", KEY_INT)
    ACCEPT("flops_profiler.detailed", KEY_BOOL)
    ACCEPT("flops_profiler.output_file", KEY_TEXT)
    ACCEPT("comms_logger.enabled", KEY_BOOL)
    ACCEPT("comms_logger.verbose", KEY_BOOL)
    ACCEPT("comms_logger.prof_all", KEY_BOOL)
    ACCEPT("comms_logger.debug", KEY_BOOL)
    ACCEPT("comms_logger.prof_ops", KEY_ANY)
    {.path = "checkpoint.tag_validation", .type = KEY_TEXT, .use = KEY_ACCEPTED, .choices = tags},
    ACCEPT_AS("checkpoint.load_universal", KEY_BOOL,
        "--resume=DIR finds out by itself which form a checkpoint of DeepSpeed's has")
    ACCEPT("checkpoint.use_node_local_storage", KEY_BOOL)
    ACCEPT("checkpoint.checkpoint_serialization", KEY_BOOL)
    ACCEPT("checkpoint.parallel_write.*", KEY_ANY)
    ACCEPT("checkpoint.writer.*", KEY_ANY)
    INT_KEY("pipeline.stages", pipeline_stages, 0, 0, 1 << 20, .rule = AUTO_DEFAULT)
    TEXT_KEY("pipeline.partition_method", pipeline_method, .text = "best")
    ACCEPT("pipeline.*", KEY_ANY)
    ACCEPT("compile.*", KEY_ANY)
    ACCEPT("autotuning.*", KEY_ANY)
    INT_KEY("tensor_parallel.autotp_size", autotp_size, 0, 0, 64)
    INT_KEY("tensor_parallel.tp.tp_size", tp_size, 0, 0, 64)
    {.path = "tensor_parallel.partition_config.layer_specs", .type = KEY_ANY,
     .use = KEY_UNSUPPORTED,
     .why = "matrices are cut as the models' own tp_plan says: QKV, gate and up by column, o_proj "
            "and down_proj by row; remove it"},
    ACCEPT("tensor_parallel.*", KEY_ANY)
    INT_KEY("sequence_parallel_size", sequence_parallel_size, 0, 0, 64)
    REFUSE("elasticity.enabled", KEY_BOOL, 0,
        "elastic training would own the batch sizes; remove it and set them")
    ACCEPT("elasticity.*", KEY_ANY)
    REFUSE("progressive_layer_drop.enabled", KEY_BOOL, 0,
        "layers are never dropped here; remove it")
    ACCEPT("progressive_layer_drop.*", KEY_ANY)
    REFUSE("curriculum_learning.enabled", KEY_BOOL, 0, "there is no curriculum here; remove it")
    ACCEPT("curriculum_learning.*", KEY_ANY)
    REFUSE("data_efficiency.enabled", KEY_BOOL, 0,
        "data sampling and routing are not done here; remove it")
    ACCEPT("data_efficiency.*", KEY_ANY)
    REFUSE("hybrid_engine.enabled", KEY_BOOL, 0, "there is no hybrid engine here; remove it")
    ACCEPT("hybrid_engine.*", KEY_ANY)
    REFUSE("eigenvalue.enabled", KEY_BOOL, 0,
        "eigenvalues are for quantised training, which is not done here; remove it")
    ACCEPT("eigenvalue.*", KEY_ANY)
    REFUSE_ENABLED("compression_training.*", "models are not compressed here; set it to false")
    REFUSE_ENABLED("quantize_training.*", "training is not quantised here; set it to false")
    REFUSE("sparse_attention.*", KEY_ANY, 0, "attention is dense here; remove the section")

    /* ---- what DeepSpeed has no key for ---- */
    SIZE_KEY("zinf.device_memory", device_memory, 0, 0, 0x1p53, .rule = AUTO_DEFAULT)
    SIZE_KEY("zinf.host_memory", host_memory, 0, 0, 0x1p53, .rule = AUTO_DEFAULT)
    INT_KEY("zinf.look_ahead", look_ahead, -1, -1, 1e6, .rule = AUTO_DEFAULT)
    INT_KEY("zinf.threads", threads, 0, 0, 4096, .rule = AUTO_DEFAULT)
    INT_KEY("zinf.seats", seats, 0, 0, 1024, .rule = AUTO_DEFAULT)
    INT_KEY("zinf.source_length", source_length, 0, 0, 1 << 24, .rule = AUTO_DEFAULT)
    TEXT_KEY("zinf.io_engine", io_engine, .choices = engines, .text = "auto")
    BOOL_KEY("zinf.checksums", checksums, 1)
    CHOICE_KEY("zinf.grad_device", KEY_CHOICE, grad_device, places, .rule = AUTO_DEFAULT)
    NUMBER_KEY("zinf.dropout", dropout, -1, 0, 1, .below_max = true, .rule = AUTO_DEFAULT)
    TEXT_KEY("zinf.trace", trace)
    TEXT_KEY("zinf.durability", durability, .choices = durabilities, .text = "auto")
    BOOL_KEY("zinf.durability_flush", durability_flush, 0)
    BOOL_KEY("zinf.async_save", async_save, 0)
    TEXT_KEY("zinf.pack", pack, .choices = packs, .text = "auto")
    TEXT_KEY("zinf.activation_checkpointing", activation_checkpointing,
        .choices = checkpointings, .text = "auto")
    TEXT_KEY("zinf.schedule", schedule, .choices = schedules, .text = "auto")
    TEXT_KEY("zinf.accumulation_order", accumulation_order, .choices = orders, .text = "auto")
    TEXT_KEY("zinf.gradient_sum", gradient_sum, .choices = sums, .text = "auto")
    NUMBER_KEY("zinf.timeout", timeout, 120, 1, 86400)
    TEXT_KEY("zinf.gather", gather, .choices = gathers, .text = "auto")
    INT_KEY("zinf.tensor_parts", tensor_parts, 0, 0, 64)
    BOOL_KEY("zinf.parts_in_turn", parts_in_turn, 0)
    INT_KEY("zinf.vocabulary_tile", vocabulary_tile, 0, 0, 1 << 24)
    INT_KEY("zinf.mesh.data", mesh[0], 0, 0, 1 << 20)
    INT_KEY("zinf.mesh.tensor", mesh[1], 1, 0, 64)
    INT_KEY("zinf.mesh.pipe", mesh[2], 1, 0, 1 << 20)
    INT_KEY("zinf.pipeline_ranges", pipeline_ranges, 1, 1, 64)
    BOOL_KEY("zinf.pipeline_overlap", pipeline_overlap, 0)
    INT_KEY("zinf.pipeline_range_layers", pipeline_range_layers, 0, 0, 1 << 20)
    {.path = "zinf.pipeline_parts", .type = KEY_JSON, .list = true, .offset = AT(pipeline_parts)},
    INT_KEY("zinf.mesh.context", mesh[3], 1, 0, 64)
    INT_KEY("zinf.context_parts", context_parts, 0, 0, 64)
    TEXT_KEY("zinf.expert_fetch", expert_fetch, .choices = fetches, .text = "auto")
    TEXT_KEY("zinf.placement", placement, .choices = placements, .text = "auto")
    INT_KEY("zinf.sequence_chunk", sequence_chunk, 0, 0, 1 << 24, .rule = AUTO_CHUNK)
    TEXT_KEY("zinf.activation_device", activation_device, .choices = activation_devices,
        .text = "auto")
    TEXT_KEY("zinf.optimizer_device", optimizer_device, .choices = optimizer_devices, .text = "cpu")
    BOOL_KEY("zinf.direct", direct, 1)
    BOOL_KEY("zinf.weights_in_place", weights_in_place, 1)
    TEXT_KEY("zinf.quantize", quantize, .choices = quantizations, .text = "none")
    BOOL_KEY("zinf.time_products", time_products, 1)
    TEXT_KEY("zinf.matmul_type", matmul_type, .choices = matmul_types, .text = "same")
    TEXT_KEY("zinf.pad_to", pad_to, .choices = paddings, .text = "longest")
    BOOL_KEY("zinf.group_by_length", group_by_length, 0)
    INT_KEY("zinf.early_stopping", early_stopping, 0, 0, 1e9)
    BOOL_KEY("zinf.load_best_at_end", load_best_at_end, 0)
    NUMBER_KEY("zinf.label_smoothing", label_smoothing, 0, 0, 1, .below_max = true)
    NUMBER_KEY("zinf.z_loss", z_loss, 0, 0, 1e6)
    NUMBER_KEY("zinf.max_z_loss", max_z_loss, 0, 0, 1e6)
    NUMBER_KEY("zinf.embedding_scale", embedding_scale, 20, 1e-3, 1e6)
    NUMBER_KEY("zinf.neftune_alpha", neftune_alpha, 0, 0, 1e6)
    TEXT_KEY("zinf.preference", preference, .choices = preferences, .text = "dpo")
    NUMBER_KEY("zinf.preference_beta", preference_beta, 0.1, 0, 1e6, .above_min = true)
    NUMBER_KEY("zinf.preference_margin", preference_margin, 0.5, 0, 1e6)
    NUMBER_KEY("zinf.center_rewards_coefficient", center_rewards_coefficient, 0, 0, 1e6)
    NUMBER_KEY("zinf.desirable_weight", desirable_weight, 1, 0, 1e6)
    NUMBER_KEY("zinf.undesirable_weight", undesirable_weight, 1, 0, 1e6)
    NUMBER_KEY("zinf.layer_decay", layer_decay, 1, 0.01, 1)
    {.path = "zinf.freeze", .type = KEY_JSON, .list = true, .offset = AT(freeze)},
    {.path = "zinf.learning_rates", .type = KEY_JSON, .list = true, .offset = AT(learning_rates)},
    {.path = "zinf.adapter", .type = KEY_JSON, .offset = AT(adapter)},
};
const size_t zinf_config_n_keys = sizeof zinf_config_keys / sizeof *zinf_config_keys;
/* clang-format on */

const char *zinf_place_name(enum zinf_place place)
{
    return (unsigned)place <= ZINF_PLACE_NVME ? places[place] : "?";
}
