/* fixture_numbers: numbers of a fixture's expected.json, and how near to them is near. */
#ifndef ZINF_TESTS_FIXTURE_NUMBERS_H
#define ZINF_TESTS_FIXTURE_NUMBERS_H

#include "base/json.h"

#include <math.h>
#include <stdbool.h>

static inline double number(const cJSON *object, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItem(object, key));
}

/* Of a list. */
static inline double nth(const cJSON *object, const char *key, int index)
{
    return cJSON_GetNumberValue(cJSON_GetArrayItem(cJSON_GetObjectItem(object, key), index));
}

static inline bool near(double value, double wanted, double relative)
{
    return fabs(value - wanted) <= relative * fabs(wanted);
}

#endif
