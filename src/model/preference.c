/* preference: replaces the end of a graph by a loss of pairs. */
#include "model/preference.h"

#include <stdio.h>

/* The stage that makes a value; n_stages: none does. */
static uint32_t maker_of(const struct zinf_graph *g, uint32_t value)
{
    for (uint32_t s = 0; s < g->n_stages; s++)
        for (uint32_t i = 0; i < g->stages[s].out.n; i++)
            if (g->stages[s].out.at[i] == value)
                return s;
    return g->n_stages;
}

static bool has_moved(const struct zinf_graph *g)
{
    for (uint32_t u = 0; u < g->n_units; u++)
        for (uint32_t i = 0; i < g->units[u].n_tensors; i++)
            if (g->units[u].tensors[i].moved)
                return true;
    return false;
}

static bool has_choices(const struct zinf_graph *g)
{
    for (uint32_t s = 0; s < g->n_stages; s++)
        if (g->stages[s].choice.n)
            return true;
    return false;
}

#define OTHER_LOSSES "; zinf.preference \"orpo\" and \"simpo\" need no reference"

static int check_reference(const struct zinf_graph *g)
{
    if (!g->n_adapted)
        return zinf_fail(-ENOTSUP,
                         "the reference of zinf.preference \"dpo\", \"ipo\" and \"kto\" is the "
                         "model without its adapters, and there are none: train some "
                         "(--lora-rank)" OTHER_LOSSES);
    if (has_moved(g))
        return zinf_fail(-ENOTSUP,
                         "the reference of zinf.preference \"dpo\", \"ipo\" and \"kto\" is the "
                         "model without its adapters, but bias or modules_to_save of "
                         "zinf.adapter train tensors of it: remove them" OTHER_LOSSES);
    if (has_choices(g))
        return zinf_fail(-ENOTSUP, "a model with experts has no reference" OTHER_LOSSES);
    return 0;
}

static uint32_t add_value(struct zinf_graph *g, const char *name, struct zinf_value value)
{
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(g, &value);
}

static uint32_t add_labels(struct zinf_graph *g, enum zinf_preference_kind kind)
{
    return add_value(g, "labels",
                     (struct zinf_value){.kind = ZINF_VALUE_INPUT,
                                         .input = ZINF_INPUT_LABELS,
                                         .limit = kind == ZINF_PREFERENCE_ORPO ? INT32_MAX : 2,
                                         .rows_of = ZINF_ROWS_OF_SAMPLE,
                                         .cols = 1,
                                         .element = ZINF_ELEMENT_ID});
}

static uint32_t add_told(struct zinf_graph *g, const char *name, enum zinf_value_kind kind)
{
    return add_value(
        g, name,
        (struct zinf_value){
            .kind = kind, .rows_of = ZINF_ROWS_OF_SAMPLE, .cols = 1, .element = ZINF_ELEMENT_F32});
}

/* Makes a head's loss a value with a gradient. */
static void be_activation(struct zinf_value *value, const char *name)
{
    value->kind = ZINF_VALUE_ACTIVATION;
    value->gradient = ZINF_ELEMENT_F32;
    snprintf(value->name, sizeof value->name, "%s", name);
}

/* The head's result is told to the training, which makes the loss and gives the gradient back. */
static void add_told_pairs(struct zinf_graph *g, const struct zinf_model_preference *spec,
                           uint32_t made, uint32_t rewards)
{
    struct zinf_value told = g->values[made], pulls = told;
    told.kind = ZINF_VALUE_REPORT;
    pulls.kind = ZINF_VALUE_INPUT;
    pulls.input = ZINF_INPUT_PULLS;
    told.gradient = pulls.gradient = ZINF_ELEMENT_NONE;
    const uint32_t in = add_value(g, "pulls", pulls), out = add_value(g, "told", told);
    const uint32_t stage =
        zinf_graph_add_stage(g, &zinf_stage_told_pairs, spec, sizeof *spec, "preference");
    zinf_stage_append(g, stage, ZINF_STAGE_IN, made);
    zinf_stage_append(g, stage, ZINF_STAGE_IN, in);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, g->loss);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, rewards);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, out);
}

/* A stage of what a head makes, and of its targets, or of margins in their place. reference: the
 * value that it compares with; NO_REFERENCE: none. */
#define NO_REFERENCE UINT32_MAX
static void add_stage(struct zinf_graph *g, const struct zinf_model_preference *spec, uint32_t made,
                      uint32_t reference)
{
    const uint32_t targets = g->targets;
    g->targets = add_labels(g, spec->kind);
    g->loss = add_told(g, "loss", ZINF_VALUE_LOSS);
    const uint32_t rewards = add_told(g, "rewards", ZINF_VALUE_REPORT);
    if (spec->in_chunks) {
        add_told_pairs(g, spec, made, rewards);
        return;
    }
    uint32_t stage =
        zinf_graph_add_stage(g, &zinf_stage_preference, spec, sizeof *spec, "preference");
    zinf_stage_append(g, stage, ZINF_STAGE_IN, made);
    zinf_stage_append(g, stage, ZINF_STAGE_IN, targets);
    zinf_stage_append(g, stage, ZINF_STAGE_IN, g->targets);
    if (reference != NO_REFERENCE)
        zinf_stage_append(g, stage, ZINF_STAGE_IN, reference);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, g->loss);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, rewards);
}

/* For a head of one number, which is a score. The bits of its labels are the margins of pairs. */
static int score_graph(struct zinf_graph *g, const struct zinf_model_preference *spec)
{
    const uint32_t scores = g->loss, head = maker_of(g, scores);
    const struct classify_spec *classes = head < g->n_stages ? g->stages[head].spec : NULL;
    if (!classes || g->stages[head].ops != &zinf_stage_classify || !classes->number)
        return zinf_fail(-ENOTSUP, "zinf.preference \"reward\" needs a head of one number a "
                                   "sample: --task reward gives a model one");
    be_activation(&g->values[scores], "scores");
    add_stage(g, spec, scores, NO_REFERENCE);
    return 0;
}

static uint32_t add_reference(struct zinf_graph *g, uint32_t losses, bool given)
{
    const struct zinf_value of_tokens = {.kind = ZINF_VALUE_REFERENCE,
                                         .of = losses,
                                         .rows_of = g->values[losses].rows_of,
                                         .cols = 1,
                                         .element = ZINF_ELEMENT_F32};
    const struct zinf_value of_samples = {.kind = ZINF_VALUE_INPUT,
                                          .input = ZINF_INPUT_REFERENCES,
                                          .rows_of = ZINF_ROWS_OF_SAMPLE,
                                          .cols = 1,
                                          .element = ZINF_ELEMENT_F32};
    return given ? add_value(g, "references", of_samples) : add_value(g, "reference", of_tokens);
}

int preference_graph(struct zinf_graph *g, const struct zinf_model_preference *spec)
{
    const bool referenced = zinf_preference_has_reference(spec->kind);
    const uint32_t losses = g->loss, head = maker_of(g, losses);
    if (spec->kind == ZINF_PREFERENCE_REWARD)
        return score_graph(g, spec);
    int code = referenced && !spec->given ? check_reference(g) : 0;
    if (code)
        return code;
    if (head == g->n_stages || g->stages[head].ops != &zinf_stage_head)
        return zinf_fail(-ENOTSUP, "pairs of answers need a model that continues texts");
    be_activation(&g->values[losses], "losses of tokens");
    add_stage(g, spec, losses, referenced ? add_reference(g, losses, spec->given) : NO_REFERENCE);
    return 0;
}
