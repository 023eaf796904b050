/*
 * Stacks of layers: where the buckets of distances begin, who reads what of an encoder, sites of
 * dropout that no two places share, and what a configuration says of the head in its three forms.
 */
#include "model/stack.h"
#include "model_texts.h"

/* As PyTorch's fp32 gives them, of 16 and 32 buckets up to a distance of 128. */
static void test_buckets_begin_as_published(void)
{
    static const int32_t both[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    static const int32_t late[] = {16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
    struct zinf_graph *graph = NULL;
    CHECK(!zinf_graph_create(&graph));
    const int32_t *of_16 = stack_bucket_starts(graph, 16, 128);
    const int32_t *of_32 = stack_bucket_starts(graph, 32, 128);
    for (int i = 0; i < 16; i++) {
        CHECKF(of_16 && of_16[i] == both[i], "bucket %d begins at %d", i, (int)of_16[i]);
        CHECKF(of_32 && of_32[i] == i && of_32[16 + i] == late[i], "bucket %d begins at %d", 16 + i,
               (int)of_32[16 + i]);
    }
    zinf_graph_destroy(graph);
}

static const char small[] = "\"model_type\": \"t5\", \"d_model\": 32, \"d_kv\": 8, \"num_heads\": "
                            "4, \"d_ff\": 48, \"vocab_size\": 61, \"num_layers\": 3, "
                            "\"num_decoder_layers\": 2";

static struct zinf_model *open_with(const char *more)
{
    char text[512];
    snprintf(text, sizeof text, "{%s%s}", small, more);
    struct zinf_model *model = model_from(text);
    CHECKF(model != NULL, "%s", zinf_error());
    return model;
}

/* The number of stages that take a value. */
static uint32_t count_readers(const struct zinf_graph *g, const char *name)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < g->n_stages; s++)
        for (uint32_t i = 0; i < g->stages[s].in.n; i++)
            n += !strcmp(g->values[g->stages[s].in.at[i]].name, name);
    return n;
}

static void test_every_decoder_layer_reads_the_encoder(void)
{
    struct zinf_model *model = open_with("");
    const struct zinf_graph *g = zinf_model_graph(model);
    CHECK(count_readers(g, "encoded") == 2 && count_readers(g, "source.3") == 1);
    CHECK(count_readers(g, "source_segments") == 3 + 2 && count_readers(g, "segments") == 2);
    CHECK(zinf_model_facts(model)->layers == 2 && zinf_model_facts(model)->end_of_text == 1);
    zinf_model_close(model);
}

static void note_site(bool *seen, uint32_t site)
{
    CHECKF(site < 256 && !seen[site], "site %u has two places", site);
    seen[site % 256] = true;
}

static void test_sites_of_dropout_are_unique(void)
{
    struct zinf_model *model = open_with("");
    const struct zinf_graph *g = zinf_model_graph(model);
    bool seen[256] = {false};
    for (uint32_t i = 0; i < g->n_stages; i++) {
        const struct zinf_stage *stage = &g->stages[i];
        const struct layer_spec *s = stage->spec;
        if (stage->ops == &zinf_stage_lookup)
            note_site(seen, ((const struct lookup_spec *)stage->spec)->site);
        if (stage->ops == &zinf_stage_norm)
            note_site(seen, ((const struct norm_stage_spec *)stage->spec)->site);
        if (stage->ops != &zinf_stage_layer)
            continue;
        for (int part = 0; part < 1 + s->crosses; part++) {
            note_site(seen, s->attention[part].site);
            note_site(seen, s->attention[part].site + 1);
        }
        note_site(seen, s->mlp.inner_site);
        note_site(seen, s->mlp.site);
    }
    zinf_model_close(model);
}

/* Its scale, and whether the graph has units of its own for it. */
static void check_head(const char *more, float scale, bool own)
{
    struct zinf_model *model = open_with(more);
    const struct zinf_graph *g = zinf_model_graph(model);
    const struct zinf_stage *head = &g->stages[g->n_stages - 1];
    CHECKF(((const struct head_spec *)head->spec)->scale == scale, "%s", more);
    CHECKF(!strncmp(g->units[head->sweep.at[0]].name, "head", 4) == own, "%s", more);
    zinf_model_close(model);
}

static void test_heads(void)
{
    const float scale = 0.176776695f; /* 32^-0.5 */
    check_head("", scale, false);
    check_head(", \"tie_word_embeddings\": false", 1, true);
    check_head(", \"tie_word_embeddings\": true, \"scale_decoder_outputs\": false", 1, true);
    check_head(", \"tie_word_embeddings\": true, \"scale_decoder_outputs\": true", scale, false);
}

static void test_refused_configurations(void)
{
    static const struct {
        const char *more, *says;
    } list[] = {
        {", \"feed_forward_proj\": \"gated-mish\"", "feed_forward_proj"},
        {", \"relative_attention_num_buckets\": 6", "buckets"},
        {", \"relative_attention_max_distance\": 16", "buckets"},
        {", \"layer_norm_epsilon\": 0", "layer_norm_epsilon"},
        {", \"dropout_rate\": 1", "dropout"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char text[512];
        snprintf(text, sizeof text, "{%s%s}", small, list[i].more);
        struct zinf_model *model = model_from(text);
        CHECKF(!model && strstr(zinf_error(), list[i].says), "%s: %s", text, zinf_error());
        zinf_model_close(model);
    }
}

int main(void)
{
    TAP_RUN(test_buckets_begin_as_published);
    TAP_RUN(test_every_decoder_layer_reads_the_encoder);
    TAP_RUN(test_sites_of_dropout_are_unique);
    TAP_RUN(test_heads);
    TAP_RUN(test_refused_configurations);
    return tap_done();
}
