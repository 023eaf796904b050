/* family_qwen2: Qwen2 and Qwen2.5: biases of q, k and v, windows in the upper layers if asked. */
#include "model/families/family_rotary.h"

static const struct rotary_size sizes[] = {
    {"0.5b", 24, 896, 14, 2, 4864, 151936, 32768, 1e6, 1e-6, 0, true, 0, 0, 151643, 151643},
    {"1.5b", 28, 1536, 12, 2, 8960, 151936, 131072, 1e6, 1e-6, 0, true, 0, 0, 151643, 151643},
    {"3b", 36, 2048, 16, 2, 11008, 151936, 32768, 1e6, 1e-6, 0, true, 0, 0, 151643, 151643},
    {"7b", 28, 3584, 28, 4, 18944, 152064, 131072, 1e6, 1e-6, 0, false, 0, 0, 151643, 151643},
    {"14b", 48, 5120, 40, 8, 13824, 152064, 131072, 1e6, 1e-6, 0, false, 0, 0, 151643, 151643},
    {"32b", 64, 5120, 40, 8, 27648, 152064, 131072, 1e6, 1e-6, 0, false, 0, 0, 151643, 151643},
    {"72b", 80, 8192, 64, 8, 29568, 152064, 131072, 1e6, 1e-6, 0, false, 0, 0, 151643, 151643},
};
static const struct rotary_traits traits = {
    .kv_heads = 32,
    .ffn = 22016,
    .vocab = 151936,
    .context = 32768,
    .end_of_text = -1,
    .qkv_bias = true,
    .window = ROTARY_WINDOW_LAYERS,
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

const struct zinf_family zinf_family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    ROTARY_FAMILY,
};
