/* rules: the table of optimizers. */
#include "train/rules/rules.h"

/* Over elements, with moments in fp32 or, by bf16.bf16_optimizer_states, in bf16. */
#define ELEMENTWISE(type_, kind_, n_, device_)                                                     \
    {.type = type_,                                                                                \
     .kind = kind_,                                                                                \
     .n_moments = n_,                                                                              \
     .moment_bytes = 4,                                                                            \
     .step = rule_step_elements,                                                                   \
     .device_step = device_},                                                                      \
    {                                                                                              \
        .type = type_, .half = true, .kind = kind_, .number = 3, .n_moments = n_,                  \
        .moment_bytes = 2, .step = rule_step_elements                                              \
    }

/* What all rules over matrices have. */
#define OF_MATRICES(type_, number_)                                                                \
    .type = type_, .number = number_, .kind = ZINF_OPTIM_KINDS, .grain = GRAIN_MATRICES,           \
    .check_rates = rule_check_matrices

static const struct update_rule rules[] = {
    ELEMENTWISE("AdamW", ZINF_OPTIM_ADAMW, 2, rule_step_adam_on_device),
    ELEMENTWISE("Adam", ZINF_OPTIM_ADAM, 2, rule_step_adam_on_device),
    ELEMENTWISE("Lion", ZINF_OPTIM_LION, 1, NULL),
    ELEMENTWISE("Adagrad", ZINF_OPTIM_ADAGRAD, 1, NULL),
    ELEMENTWISE("SGD", ZINF_OPTIM_SGD, 1, NULL),
    {.type = "AdamW8bit",
     .kind = ZINF_OPTIM_ADAMW,
     .number = 1,
     .n_moments = 2,
     .moment_bytes = 1,
     .block = ZINF_OPTIM_8BIT_BLOCK,
     .step = rule_step_elements,
     .check_rates = rule_check_blocks},
    {.type = "Adafactor",
     .kind = ZINF_OPTIM_KINDS,
     .number = 2,
     .grain = GRAIN_TENSORS,
     .n_moments = 2,
     .unit_bytes = rule_factored_bytes,
     .workspace_bytes = rule_factored_workspace,
     .step = rule_step_factored,
     .check_rates = rule_check_factored},
    {OF_MATRICES("Muon", 4), .n_moments = 1, .moment_bytes = 4, .by_momentum = true,
     .matrix_work = rule_muon_work, .workspace_bytes = rule_matrices_workspace,
     .step = rule_step_muon},
    {OF_MATRICES("NorMuon", 5), .n_moments = 1, .moment_bytes = 4, .by_momentum = true,
     .by_type = true, .matrix_floats = rule_neurons_kept, .matrix_work = rule_normuon_work,
     .workspace_bytes = rule_matrices_workspace, .step = rule_step_normuon},
    {OF_MATRICES("GaLoreAdamW", 6), .by_type = true, .matrix_floats = rule_galore_kept,
     .matrix_work = rule_galore_work, .workspace_bytes = rule_galore_workspace,
     .step = rule_step_galore},
    {OF_MATRICES("APOLLO", 7), .by_type = true, .matrix_floats = rule_apollo_kept,
     .matrix_work = rule_apollo_work, .workspace_bytes = rule_apollo_workspace,
     .step = rule_step_apollo},
    {OF_MATRICES("APOLLO-Mini", 8), .by_type = true, .matrix_floats = rule_apollo_kept,
     .matrix_work = rule_apollo_work, .workspace_bytes = rule_apollo_workspace,
     .step = rule_step_apollo},
};

const struct update_rule *rule_find(const char *type, bool half)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].type, type) && rules[i].half == half)
            return &rules[i];
    return NULL;
}
