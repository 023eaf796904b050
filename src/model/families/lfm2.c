/*
 * lfm2: LFM2 (Liquid AI, arXiv 2511.23404): short convolutions between gates, and attention in some
 * layers, whose heads are normalised.
 */
#include "model/families/family_described.h"

static const struct described_mixer mixer = {
    .gates = true,
    .types = {"conv"},
    .keys.width = "conv_L_cache",
    .absent = {.width = 3},
    .conv_bias_key = "conv_bias",
    .bias_key = "conv_bias",
    .attention_key = "full_attn_idxs",
    .names = {[MIXER_IN] = "conv.in_proj.weight",
              [MIXER_OUT] = "conv.out_proj.weight",
              [MIXER_IN_BIAS] = "conv.in_proj.bias",
              [MIXER_OUT_BIAS] = "conv.out_proj.bias",
              [MIXER_CONV] = "conv.conv.weight",
              [MIXER_CONV_BIAS] = "conv.conv.bias"},
};

/* Two thirds of it, times a factor, up to a multiple. */
static int adjust_ffn(const struct zinf_model_source *source, struct decoder *d)
{
    static const char factor_key[] = "block_ffn_dim_multiplier", of_key[] = "block_multiple_of";
    bool adjusts = true;
    double factor = 1;
    int64_t of = 256;
    int code = zinf_json_bool(source->config, source->what, "block_auto_adjust_ff_dim", &adjusts);
    if (code || !adjusts ||
        (code = zinf_json_double(source->config, source->what, factor_key, &factor)) ||
        (code = zinf_json_int(source->config, source->what, of_key, &of)))
        return code;
    if (!(factor > 0 && factor < 1e6) || of < 1 || of > 1 << 20 || d->ffn > 1 << 22)
        return zinf_fail(-EINVAL, "%s: %s is %g and %s %lld; both must be above 0", source->what,
                         factor_key, factor, of_key, (long long)of);
    d->ffn = (int64_t)(factor * (double)(2 * d->ffn / 3));
    d->ffn = (d->ffn + of - 1) / of * of;
    return 0;
}

/* Old files have other keys for two numbers. */
static int read_more(const struct zinf_model_source *source, struct decoder *d)
{
    bool tied = d->head == NULL;
    int code = zinf_json_bool(source->config, source->what, "tie_embedding", &tied);
    d->head = tied ? NULL : "lm_head.weight";
    d->final_w = "embedding_norm.weight";
    if (!code)
        code = zinf_json_int(source->config, source->what, "block_ff_dim", &d->ffn);
    return code ? code : adjust_ffn(source, d);
}

static const struct family_size sizes[] = {
    {"350m",
     {16, 1024, 16, 8, 0, 6656, 65536, 128000},
     "{\"full_attn_idxs\": [2, 5, 8, 10, 12, 14]}"},
    {"1.2b",
     {16, 2048, 32, 8, 0, 12288, 65536, 128000},
     "{\"full_attn_idxs\": [2, 5, 8, 10, 12, 14]}"},
};
static const struct described lfm2 = {
    DESCRIBED_TRAITS(sizes),
    .traits.absent = {32, 2560, 32, 8, 0, 12288, 65536, 128000},
    .traits.always = "{\"norm_eps\": 1e-5, \"initializer_range\": 0.02, "
                     "\"rope_theta\": 1000000.0, \"conv_L_cache\": 3, \"conv_bias\": false, "
                     "\"block_auto_adjust_ff_dim\": true, \"block_multiple_of\": 256, "
                     "\"block_ffn_dim_multiplier\": 1.0, \"tie_word_embeddings\": true, "
                     "\"bos_token_id\": 1, \"eos_token_id\": 7, \"pad_token_id\": 0}",
    .norm = ZINF_NORM_RMS,
    .eps_key = "norm_eps",
    .eps = 1e-5,
    .before1 = "operator_norm",
    .before2 = "ffn_norm",
    .proj = "out_proj",
    .head_norms = DESCRIBED_HEAD_NORMS,
    .q_norm = "self_attn.q_layernorm",
    .k_norm = "self_attn.k_layernorm",
    .gate = "feed_forward.w1",
    .up = "feed_forward.w3",
    .down = "feed_forward.w2",
    .mixer = &mixer,
    .tied = true,
    .theta = 1e6,
    .padding = 0,
    .end_of_text = 2,
    .read_more = read_more,
};
DESCRIBED_FAMILY(lfm2, lfm2, "lfm2", "Lfm2ForCausalLM");
