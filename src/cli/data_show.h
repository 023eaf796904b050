/* data_show: data as `zinf data` shows it. */
#ifndef ZINF_CLI_DATA_SHOW_H
#define ZINF_CLI_DATA_SHOW_H

#include "cli/data.h"

/* Tokens as text on standard output, those that count green; without color they stand in brackets.
 * counts: of each, or NULL: all do. */
int data_show_tokens(const struct zinf_tokenizer *tokenizer, const int32_t *ids, const bool *counts,
                     size_t n, bool color);
/* How many samples are how long, as bars. */
int data_show_lengths(const struct zinf_samples *samples);
/* What became of the rows, in a sentence or two; text has 512 bytes. */
void data_show_rows(char text[512], const struct zinf_samples *samples, const char *windows);

#endif
