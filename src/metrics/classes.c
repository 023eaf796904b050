/* classes: figures of predicted classes beside the true ones, from how often each class was
 * predicted, is true, and both. */
#include "metrics/metrics.h"

#include <math.h>
#include <stdlib.h>

double zinf_accuracy(const int32_t *predicted, const int32_t *labels, uint64_t n)
{
    uint64_t right = 0;
    for (uint64_t i = 0; i < n; i++)
        right += predicted[i] == labels[i];
    return n ? (double)right / (double)n : NAN;
}

/* predicted + labelled is 2 TP + FP + FN. */
static double f1_of(uint64_t predicted, uint64_t labelled, uint64_t both)
{
    uint64_t sum = predicted + labelled;
    return sum ? 2 * (double)both / (double)sum : 0;
}

double zinf_f1(const int32_t *predicted, const int32_t *labels, uint64_t n, int32_t positive)
{
    uint64_t n_predicted = 0, n_labelled = 0, n_both = 0;
    for (uint64_t i = 0; i < n; i++) {
        n_predicted += predicted[i] == positive;
        n_labelled += labels[i] == positive;
        n_both += predicted[i] == positive && labels[i] == positive;
    }
    return n ? f1_of(n_predicted, n_labelled, n_both) : NAN;
}

/* How often each class occurs; one array on the heap. */
struct counts {
    uint64_t *predicted, *labelled, *both; /* [n_classes] */
    uint64_t n_classes;
};

static int count(struct counts *c, const int32_t *predicted, const int32_t *labels, uint64_t n)
{
    int32_t most = 0;
    for (uint64_t i = 0; i < n; i++) {
        most = predicted[i] > most ? predicted[i] : most;
        most = labels[i] > most ? labels[i] : most;
    }
    c->n_classes = (uint64_t)most + 1;
    c->predicted = calloc(3 * c->n_classes, sizeof *c->predicted);
    if (!c->predicted)
        return zinf_fail(-ENOMEM, "no memory to count %llu classes",
                         (unsigned long long)c->n_classes);
    c->labelled = c->predicted + c->n_classes;
    c->both = c->labelled + c->n_classes;
    for (uint64_t i = 0; i < n; i++) {
        c->predicted[predicted[i]]++;
        c->labelled[labels[i]]++;
        c->both[labels[i]] += predicted[i] == labels[i];
    }
    return 0;
}

int zinf_f1_macro(const int32_t *predicted, const int32_t *labels, uint64_t n, double *f1)
{
    struct counts c;
    uint64_t n_there = 0;
    double sum = 0;
    int code = count(&c, predicted, labels, n);
    if (code)
        return code;
    for (uint64_t k = 0; k < c.n_classes; k++) {
        n_there += c.predicted[k] || c.labelled[k];
        sum += f1_of(c.predicted[k], c.labelled[k], c.both[k]);
    }
    *f1 = n_there ? sum / (double)n_there : NAN;
    free(c.predicted);
    return 0;
}

/* Covariances of the classes as one-hot rows, times n^2. In double: products of counts may be
 * larger than 64 bits hold. */
int zinf_matthews(const int32_t *predicted, const int32_t *labels, uint64_t n, double *r)
{
    struct counts c;
    double all = (double)n, right = 0, between = 0, of_predicted = 0, of_labels = 0;
    int code = count(&c, predicted, labels, n);
    if (code)
        return code;
    for (uint64_t k = 0; k < c.n_classes; k++) {
        double p = (double)c.predicted[k], l = (double)c.labelled[k];
        right += (double)c.both[k];
        between += p * l;
        of_predicted += p * p;
        of_labels += l * l;
    }
    double spread = sqrt(all * all - of_predicted) * sqrt(all * all - of_labels);
    *r = !n ? NAN : spread > 0 ? (right * all - between) / spread : 0;
    free(c.predicted);
    return 0;
}
