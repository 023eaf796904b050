/*
 * scores: --metric of the commands that evaluate: which metrics, how the texts are made that they
 * compare, and the numbers on their way out.
 */
#ifndef ZINF_CLI_SCORES_H
#define ZINF_CLI_SCORES_H

#include "cli/data.h"
#include "cli/generate.h"
#include "train/score.h"

struct cli_scores {
    struct zinf_words metrics;
    struct generate_settings settings;
    int64_t most_samples;
    bool stem;
    const char *predictions; /* file to write, or NULL */
    struct zinf_run_scores run;
    int32_t left_out[4];
};
#define CLI_SCORES_DEFAULT                                                                         \
    {                                                                                              \
        .settings = GENERATE_SETTINGS_UNSAID                                                       \
    }

/* Rows of a table of options, as USAGE_SCORES says them. */
#define CLI_SCORE_OPTIONS(s)                                                                       \
    {"--metric", CLI_STRINGS, &(s)->metrics, 0, 0},                                                \
        {"--max-new-tokens", CLI_INT, &(s)->settings.max_new_tokens, 1, 1 << 24},                  \
        {"--num-beams", CLI_INT, &(s)->settings.num_beams, 1, 1 << 12},                            \
        {"--metric-samples", CLI_INT, &(s)->most_samples, 1, 1e12},                                \
    {                                                                                              \
        "--stem", CLI_FLAG, &(s)->stem, 0, 0                                                       \
    }

/* The metrics' names: a wrong use of the command is found before anything is opened. */
int cli_scores_check(struct cli_scores *s);
/* Once the session is open: how texts are made, by the command line, then the model's folder. data:
 * what is scored; it must have rows of prompts and answers. Nothing to do without metrics. */
int cli_scores_prepare(struct cli_scores *s, const struct zinf_session *session,
                       const struct zinf_job *common, const struct zinf_dataset *data);
/* Of every metric its value. The trainer is the one, of these options, that measured the loss;
 * where another one can make texts faster, it is given up for that one. Of ranks the first writes
 * the predictions. */
int cli_scores_measure(const struct cli_scores *s, struct zinf_session *session,
                       const struct zinf_trainer_options *options, struct zinf_trainer **trainer,
                       double values[ZINF_MOST_SCORES]);
/* ", \"rouge1\": 0.5" for every metric. */
void cli_scores_print(const struct cli_scores *s, const double values[ZINF_MOST_SCORES]);

#endif
