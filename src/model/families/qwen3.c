/* family_qwen3: Qwen3: norms of every query and key head, heads of 128 whatever the hidden size. */
#include "model/families/family_rotary.h"

static const struct rotary_size sizes[] = {
    {"0.6b", 28, 1024, 16, 8, 3072, 151936, 40960, 1e6, 1e-6, 128, true, 0, 0, 151643, 151645},
    {"1.7b", 28, 2048, 16, 8, 6144, 151936, 40960, 1e6, 1e-6, 128, true, 0, 0, 151643, 151645},
    {"4b", 36, 2560, 32, 8, 9728, 151936, 40960, 1e6, 1e-6, 128, true, 0, 0, 151643, 151645},
    {"8b", 36, 4096, 32, 8, 12288, 151936, 40960, 1e6, 1e-6, 128, false, 0, 0, 151643, 151645},
    {"14b", 40, 5120, 40, 8, 17408, 151936, 40960, 1e6, 1e-6, 128, false, 0, 0, 151643, 151645},
    {"32b", 64, 5120, 64, 8, 25600, 151936, 40960, 1e6, 1e-6, 128, false, 0, 0, 151643, 151645},
};
static const struct rotary_traits traits = {
    .kv_heads = 32,
    .ffn = 22016,
    .vocab = 151936,
    .context = 32768,
    .head_dim = 128,
    .end_of_text = -1,
    .attention_bias = true,
    .head_norms = true,
    .window = ROTARY_WINDOW_LAYERS,
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

const struct zinf_family zinf_family_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    ROTARY_FAMILY,
};
