/* median: the number in the middle of some. */
#include "base/median.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double zinf_median(double *numbers, int n)
{
    qsort(numbers, (size_t)n, sizeof *numbers, ascending);
    return (numbers[(n - 1) / 2] + numbers[n / 2]) / 2;
}
