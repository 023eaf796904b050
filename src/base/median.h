/* median: the number in the middle, by which repeated measurements are told. */
#ifndef ZINF_MEDIAN_H
#define ZINF_MEDIAN_H

/* Sorts n > 0 numbers. Returns the one in the middle, or the mean of the two there. */
double zinf_median(double *numbers, int n);

#endif
