/* data_show: data as `zinf data` shows it. */
#ifndef ZINF_CLI_DATA_SHOW_H
#define ZINF_CLI_DATA_SHOW_H

#include "cli/cli.h"

/* Prints tokens as text on standard output, those that count in green, or in brackets without
 * colour. counts: whether each counts; NULL: all do. */
int data_show_tokens(const struct zinf_tokenizer *tokenizer, const int32_t *ids, const bool *counts,
                     size_t n, bool color);
/* Prints a histogram of sample lengths. */
int data_show_lengths(const struct zinf_samples *samples);
/* Says in a sentence or two how many rows became samples and why others did not. */
void data_show_rows(char text[512], const struct zinf_samples *samples, const char *windows);

#endif
