/*
 * metrics: how good predictions are. Each figure equals that of the usual tool: scikit-learn for
 * classes, scipy for numbers, rouge-score and sacrebleu for texts. The folder knows no model and
 * no data file.
 *
 * A *scoreboard* takes the predictions of an evaluation one by one and gives the figures at the
 * end. The functions on arrays are for programs that have all predictions at once.
 *
 * Threads: functions on arrays may be called from any thread; a scoreboard belongs to one thread
 * at a time. Errors: -errno and a sentence. A figure that is not defined (no predictions, constant
 * numbers) is NaN and no error.
 */
#ifndef ZINF_METRICS_H
#define ZINF_METRICS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- classes: predicted and true, [n], each >= 0 ---- */

double zinf_accuracy(const int32_t *predicted, const int32_t *labels, uint64_t n);
/* F1 of one class: 2 TP / (2 TP + FP + FN); 0 if the class occurs on neither side. */
double zinf_f1(const int32_t *predicted, const int32_t *labels, uint64_t n, int32_t positive);
/* The mean of F1 over the classes that occur. */
int zinf_f1_macro(const int32_t *predicted, const int32_t *labels, uint64_t n, double *f1);
/* Matthews' correlation of any number of classes (Gorodkin, 10.1016/j.compbiolchem.2004.09.006); 0
 * if one side is constant. */
int zinf_matthews(const int32_t *predicted, const int32_t *labels, uint64_t n, double *r);

/* ---- numbers: [n] ---- */

double zinf_pearson(const double *x, const double *y, uint64_t n);
/* Pearson's correlation of the ranks; equal numbers get their mean rank. */
int zinf_spearman(const double *x, const double *y, uint64_t n, double *r);

/* ---- means of n samples ---- */

/* The standard error of a proportion with n - 1, as in lm-evaluation-harness. NaN if n < 2. */
double zinf_share_error(double share, uint64_t n);
/* The standard error of the mean over k groups of sizes [k] that counts every sample alike: the
 * groups' own standard errors are pooled. NaN if one of them is. */
double zinf_pooled_error(const double *errors, const uint64_t *sizes, uint32_t k);

/* ---- texts ---- */

/* F measures from 0 to 1 (Lin 2004, aclanthology.org/W04-1013). Words are runs of a-z and 0-9 in
 * lower case; for rougeLsum, lines are sentences. */
struct zinf_rouge {
    double rouge1, rouge2, l, lsum;
};
/* stem: words of more than three letters are stemmed as by Porter's stemmer in NLTK. */
int zinf_rouge(const char *predicted, const char *reference, bool stem, struct zinf_rouge *out);
/* Replaces a word of a-z and 0-9 by its stem and returns its length. */
size_t zinf_stem(char *word, size_t length);

/* Corpus BLEU (Papineni et al. 2002, aclanthology.org/P02-1040) as in sacrebleu: tokenizer 13a,
 * with case, smoothing "exp". */
#define ZINF_BLEU_ORDER 4
struct zinf_bleu {
    uint64_t matches[ZINF_BLEU_ORDER], totals[ZINF_BLEU_ORDER]; /* [n - 1] of n-grams */
    uint64_t predicted_words, reference_words;
};
/* Adds a pair of texts. Begin with {0}. */
int zinf_bleu_add(struct zinf_bleu *bleu, const char *predicted, const char *reference);
/* From 0 to 100. sentence: only orders of which the text has n-grams count, as in sentence_bleu. */
double zinf_bleu_score(const struct zinf_bleu *bleu, bool sentence);
/* The tokens of 13a, separated by spaces; the caller frees them. NULL: no memory. */
char *zinf_bleu_tokens(const char *text);

/* ---- scoreboards ---- */

enum zinf_metric {
    ZINF_METRIC_ACCURACY,
    ZINF_METRIC_F1, /* of class 1 */
    ZINF_METRIC_F1_MACRO,
    ZINF_METRIC_F1_MICRO, /* over all classes together, which is the accuracy */
    ZINF_METRIC_MATTHEWS,
    ZINF_METRIC_MSE,
    ZINF_METRIC_PEARSON,
    ZINF_METRIC_SPEARMAN,
    ZINF_METRIC_EXACT_MATCH, /* of texts without white space at their ends */
    ZINF_METRIC_ROUGE1,
    ZINF_METRIC_ROUGE2,
    ZINF_METRIC_ROUGEL,
    ZINF_METRIC_ROUGELSUM,
    ZINF_METRIC_BLEU,
    ZINF_METRICS,
};
/* What a metric compares. */
enum zinf_scored {
    ZINF_SCORED_CLASSES,
    ZINF_SCORED_NUMBERS,
    ZINF_SCORED_TEXTS,
};
struct zinf_metric_facts {
    const char *name; /* as Hugging Face's Trainer logs it: "f1", "rougeLsum" */
    enum zinf_scored of;
    bool less_is_better;
};
const struct zinf_metric_facts *zinf_metric_facts(enum zinf_metric metric);
/* Parses a name, also those of other tools ("matthews_correlation", "sacrebleu"). -EINVAL: the
 * message lists the names. */
int zinf_metric_parse(const char *name, enum zinf_metric *out);

struct zinf_scoreboard;
/* Creates a scoreboard for all metrics of a kind. stem: for ROUGE. */
int zinf_scoreboard_create(struct zinf_scoreboard **out, enum zinf_scored of, bool stem);
void zinf_scoreboard_destroy(struct zinf_scoreboard *board);
/* Adds a prediction and its label; the call must be of the board's kind. */
int zinf_scoreboard_class(struct zinf_scoreboard *board, int32_t predicted, int32_t label);
int zinf_scoreboard_number(struct zinf_scoreboard *board, double predicted, double label);
int zinf_scoreboard_text(struct zinf_scoreboard *board, const char *predicted,
                         const char *reference);
uint64_t zinf_scoreboard_count(const struct zinf_scoreboard *board);
/* The figure of a metric of the board's kind: from 0 to 1 (correlations from -1, BLEU to 100). */
int zinf_scoreboard_value(const struct zinf_scoreboard *board, enum zinf_metric metric,
                          double *value);

#ifdef __cplusplus
}
#endif
#endif
