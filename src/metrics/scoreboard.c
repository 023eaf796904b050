/* scoreboard: predictions of an evaluation as they come. Classes and numbers are kept until the
 * end, since most of their figures need them all; of texts sums are. */
#include "metrics/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- names ---- */

static const struct zinf_metric_facts facts[ZINF_METRICS] = {
    [ZINF_METRIC_ACCURACY] = {"accuracy", ZINF_SCORED_CLASSES, false},
    [ZINF_METRIC_F1] = {"f1", ZINF_SCORED_CLASSES, false},
    [ZINF_METRIC_F1_MACRO] = {"f1_macro", ZINF_SCORED_CLASSES, false},
    [ZINF_METRIC_F1_MICRO] = {"f1_micro", ZINF_SCORED_CLASSES, false},
    [ZINF_METRIC_MATTHEWS] = {"matthews", ZINF_SCORED_CLASSES, false},
    [ZINF_METRIC_MSE] = {"mse", ZINF_SCORED_NUMBERS, true},
    [ZINF_METRIC_PEARSON] = {"pearson", ZINF_SCORED_NUMBERS, false},
    [ZINF_METRIC_SPEARMAN] = {"spearman", ZINF_SCORED_NUMBERS, false},
    [ZINF_METRIC_EXACT_MATCH] = {"exact_match", ZINF_SCORED_TEXTS, false},
    [ZINF_METRIC_ROUGE1] = {"rouge1", ZINF_SCORED_TEXTS, false},
    [ZINF_METRIC_ROUGE2] = {"rouge2", ZINF_SCORED_TEXTS, false},
    [ZINF_METRIC_ROUGEL] = {"rougeL", ZINF_SCORED_TEXTS, false},
    [ZINF_METRIC_ROUGELSUM] = {"rougeLsum", ZINF_SCORED_TEXTS, false},
    [ZINF_METRIC_BLEU] = {"bleu", ZINF_SCORED_TEXTS, false},
};
static const struct {
    const char *name;
    enum zinf_metric metric;
} aliases[] = {
    {"matthews_correlation", ZINF_METRIC_MATTHEWS},
    {"mcc", ZINF_METRIC_MATTHEWS},
    {"f1_binary", ZINF_METRIC_F1},
    {"pearsonr", ZINF_METRIC_PEARSON},
    {"spearmanr", ZINF_METRIC_SPEARMAN},
    {"sacrebleu", ZINF_METRIC_BLEU},
};

const struct zinf_metric_facts *zinf_metric_facts(enum zinf_metric metric)
{
    return &facts[metric];
}

int zinf_metric_parse(const char *name, enum zinf_metric *out)
{
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(name, aliases[i].name)) {
            *out = aliases[i].metric;
            return 0;
        }
    for (int i = 0; i < ZINF_METRICS; i++) {
        if (!strcmp(name, facts[i].name)) {
            *out = (enum zinf_metric)i;
            return 0;
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 facts[i].name);
    }
    return zinf_fail(-EINVAL, "%s is no metric: use one of %s", name, names);
}

/* ---- scoreboards ---- */

struct zinf_scoreboard {
    enum zinf_scored of;
    bool stem;
    uint64_t n, capacity;
    int32_t *classes[2]; /* [capacity]: predicted, true */
    double *numbers[2];
    uint64_t n_exact;
    struct zinf_rouge rouge; /* sums */
    struct zinf_bleu bleu;
};

int zinf_scoreboard_create(struct zinf_scoreboard **out, enum zinf_scored of, bool stem)
{
    struct zinf_scoreboard *b = calloc(1, sizeof *b);
    *out = b;
    if (!b)
        return zinf_fail(-ENOMEM, "no memory for a scoreboard");
    b->of = of;
    b->stem = stem;
    return 0;
}

void zinf_scoreboard_destroy(struct zinf_scoreboard *b)
{
    for (int i = 0; b && i < 2; i++) {
        free(b->classes[i]);
        free(b->numbers[i]);
    }
    free(b);
}

static int grow(struct zinf_scoreboard *b)
{
    if (b->n < b->capacity)
        return 0;
    uint64_t more = b->n ? 2 * b->n : 256;
    for (int i = 0; i < 2; i++) {
        bool classes = b->of == ZINF_SCORED_CLASSES;
        void *moved = classes ? realloc(b->classes[i], more * sizeof(int32_t))
                              : realloc(b->numbers[i], more * sizeof(double));
        if (!moved)
            return zinf_fail(-ENOMEM, "no memory for %llu predictions", (unsigned long long)more);
        if (classes)
            b->classes[i] = moved;
        else
            b->numbers[i] = moved;
    }
    b->capacity = more;
    return 0;
}

int zinf_scoreboard_class(struct zinf_scoreboard *b, int32_t predicted, int32_t label)
{
    int code = grow(b);
    if (code)
        return code;
    b->classes[0][b->n] = predicted;
    b->classes[1][b->n++] = label;
    return 0;
}

int zinf_scoreboard_number(struct zinf_scoreboard *b, double predicted, double label)
{
    int code = grow(b);
    if (code)
        return code;
    b->numbers[0][b->n] = predicted;
    b->numbers[1][b->n++] = label;
    return 0;
}

/* Text without space at its ends. */
static const char *core(const char *text, size_t *n)
{
    static const char space[] = " \t\n\v\f\r";
    text += strspn(text, space);
    *n = strlen(text);
    while (*n && strchr(space, text[*n - 1]))
        --*n;
    return text;
}

int zinf_scoreboard_text(struct zinf_scoreboard *b, const char *predicted, const char *reference)
{
    struct zinf_rouge rouge;
    size_t n, m;
    const char *x = core(predicted, &n), *y = core(reference, &m);
    int code = zinf_rouge(predicted, reference, b->stem, &rouge);
    if (!code)
        code = zinf_bleu_add(&b->bleu, predicted, reference);
    if (code)
        return code;
    b->n++;
    b->n_exact += n == m && !memcmp(x, y, n);
    b->rouge.rouge1 += rouge.rouge1;
    b->rouge.rouge2 += rouge.rouge2;
    b->rouge.l += rouge.l;
    b->rouge.lsum += rouge.lsum;
    return 0;
}

uint64_t zinf_scoreboard_count(const struct zinf_scoreboard *b)
{
    return b->n;
}

static double mean_square(const double *x, const double *y, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (x[i] - y[i]) * (x[i] - y[i]);
    return n ? sum / (double)n : NAN;
}

int zinf_scoreboard_value(const struct zinf_scoreboard *b, enum zinf_metric metric, double *value)
{
    int32_t *const *c = b->classes;
    double *const *x = b->numbers;
    double n = b->n ? (double)b->n : NAN;
    if (facts[metric].of != b->of)
        return zinf_fail(-EINVAL, "%s is no metric of this task", facts[metric].name);
    switch (metric) {
    case ZINF_METRIC_ACCURACY:
    case ZINF_METRIC_F1_MICRO:
        *value = zinf_accuracy(c[0], c[1], b->n);
        return 0;
    case ZINF_METRIC_F1:
        *value = zinf_f1(c[0], c[1], b->n, 1);
        return 0;
    case ZINF_METRIC_F1_MACRO:
        return zinf_f1_macro(c[0], c[1], b->n, value);
    case ZINF_METRIC_MATTHEWS:
        return zinf_matthews(c[0], c[1], b->n, value);
    case ZINF_METRIC_MSE:
        *value = mean_square(x[0], x[1], b->n);
        return 0;
    case ZINF_METRIC_PEARSON:
        *value = zinf_pearson(x[0], x[1], b->n);
        return 0;
    case ZINF_METRIC_SPEARMAN:
        return zinf_spearman(x[0], x[1], b->n, value);
    default: /* of texts */
        break;
    }
    const double figures[] = {(double)b->n_exact, b->rouge.rouge1, b->rouge.rouge2, b->rouge.l,
                              b->rouge.lsum};
    *value = metric == ZINF_METRIC_BLEU ? zinf_bleu_score(&b->bleu, false)
                                        : figures[metric - ZINF_METRIC_EXACT_MATCH] / n;
    return 0;
}
