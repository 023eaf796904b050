/* config_choices: the words that keys of config_table.c accept, each list ended by NULL. */
#ifndef ZINF_CONFIG_CHOICES_H
#define ZINF_CONFIG_CHOICES_H

#include <stddef.h>

static const char *const places[] = {"none", "cpu", "nvme", NULL};
static const char *const dtypes[] = {"fp32", "float32", "bf16", "bfloat16",
                                     "fp16", "float16", NULL};
static const char *const optimizers[] = {
    "AdamW", "Adam",    "Lion",        "Adagrad", "SGD",         "Adafactor", "AdamW8bit",
    "Muon",  "NorMuon", "GaLoreAdamW", "APOLLO",  "APOLLO-Mini", NULL};
static const char *const projections[] = {"std", "reverse_std", "right", "left", NULL};
static const char *const scale_types[] = {"channel", "tensor", NULL};
static const char *const rate_factors[] = {"original", "match_rms_adamw", NULL};
static const char *const schedulers[] = {
    "",         "WarmupLR", "WarmupDecayLR", "WarmupCosineLR",       "LRRangeTest",
    "OneCycle", "linear",   "cosine",        "constant_with_warmup", NULL};
static const char *const warmups[] = {"linear", "log", NULL};
static const char *const engines[] = {"auto", "uring", "threads", NULL};
static const char *const checkpointings[] = {"auto", "always", "never", NULL};
static const char *const schedules[] = {
    "auto", "serial", "prefetch", "update-in-forward", "update-in-backward", "update-in-place",
    NULL};
static const char *const fetches[] = {"auto", "all", "chosen", NULL};
static const char *const quantizations[] = {"none", "nf4", "int8", NULL};
static const char *const matmul_types[] = {"same", "fp8", "tf32", NULL};
static const char *const paddings[] = {"longest", "max", NULL};
static const char *const sums[] = {"auto", "tree", NULL};
static const char *const preferences[] = {"dpo", "ipo", "orpo", "simpo", "reward", "kto", NULL};
static const char *const orders[] = {"auto", "micro-major", "layer-major", NULL};
static const char *const placements[] = {"auto", "exact", "fill", NULL};
static const char *const gathers[] = {"auto", "host", "device", NULL};
static const char *const optimizer_devices[] = {"cpu", "auto", NULL};
static const char *const activation_devices[] = {"auto", "none", "cpu", "nvme", NULL};
static const char *const durabilities[] = {"auto", "none", "step", NULL};
static const char *const packs[] = {"auto", "off", "state", "all", NULL};
static const char *const tags[] = {"Ignore", "Warn", "Fail", NULL};

#endif
