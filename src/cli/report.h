/*
 * report: the parts of `zinf report`. Each adds facts, a string for each key, in the order of
 * printing. A fact that cannot be found says so; the report itself cannot fail.
 */
#ifndef ZINF_CLI_REPORT_H
#define ZINF_CLI_REPORT_H

#include "base/json.h"
#include "cli/cli.h"

void report_add(cJSON *facts, const char *key, const char *format, ...) ZINF_PRINTF(3, 4);

void report_machine(cJSON *facts); /* kernel, processor, NUMA, memory */
void report_limits(cJSON *facts);  /* limits of this process */

/* Reads the first line of a small text file, without its newline; false: it does not exist. */
bool report_read_line(const char *path, char *buffer, size_t bytes);
/* Reads the text behind NAME, blanks and sep in the first line that begins with NAME; false: there
 * is none. */
bool report_read_field(const char *path, const char *name, char sep, char *buffer, size_t bytes);

/* Copies text without the home folder, the user's name in paths and the host's name, so that it can
 * be published. Returns out. */
const char *report_redact(const char *text, char *out, size_t out_bytes);

#endif
