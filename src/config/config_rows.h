/* config_rows: macros for the rows of config_table.c. */
#ifndef ZINF_CONFIG_ROWS_H
#define ZINF_CONFIG_ROWS_H

#include <math.h>
#include <stddef.h>

#define AT(field) offsetof(struct zinf_config, field)
/* clang-format off */
/* Used keys: path, field, default, range, then other fields. */
#define BOOL_KEY(path_, field, number_, ...) \
    {.path = path_, .type = KEY_BOOL, .offset = AT(field), .number = number_, __VA_ARGS__},
#define RANGED_KEY(path_, type_, field, number_, min_, max_, ...) \
    {.path = path_, .type = type_, .offset = AT(field), .number = number_, \
     .min = min_, .max = max_, __VA_ARGS__},
#define INT_KEY(path_, ...) RANGED_KEY(path_, KEY_INT, __VA_ARGS__)
#define NUMBER_KEY(path_, ...) RANGED_KEY(path_, KEY_NUMBER, __VA_ARGS__)
#define SIZE_KEY(path_, ...) RANGED_KEY(path_, KEY_SIZE, __VA_ARGS__)
#define CHOICE_KEY(path_, type_, field, choices_, ...) \
    {.path = path_, .type = type_, .offset = AT(field), .choices = choices_, __VA_ARGS__},
#define TEXT_KEY(path_, field, ...) \
    {.path = path_, .type = KEY_TEXT, .offset = AT(field), __VA_ARGS__},
/* Known keys without effect: only their type is checked. */
#define ACCEPT(path_, type_) \
    {.path = path_, .type = type_, .use = KEY_ACCEPTED, .min = -INFINITY, .max = INFINITY},
#define ACCEPT_AS(path_, type_, why_) \
    {.path = path_, .type = type_, .use = KEY_ACCEPTED, .min = -INFINITY, .max = INFINITY, \
     .why = why_},
#define BF16_SCALE "bf16 has no loss scale"
/* Sections whose "enabled" must not be true. */
#define REFUSE_ENABLED(path_, why_) \
    {.path = path_, .type = KEY_ANY, .use = KEY_UNSUPPORTED, .by_enabled = true, .why = why_},
/* Keys that must have their default, and why. */
#define REFUSE(path_, type_, number_, why_) \
    {.path = path_, .type = type_, .use = KEY_UNSUPPORTED, .number = number_, \
     .min = -INFINITY, .max = INFINITY, .second = number_, .why = why_},
/* Keys that training can do without: a warning, with a remedy. */
#define WARN(path_, type_, number_, why_) \
    {.path = path_, .type = type_, .use = KEY_UNSUPPORTED, .warns = true, .number = number_, \
     .min = -INFINITY, .max = INFINITY, .second = number_, .why = why_},
/* clang-format on */

#endif
