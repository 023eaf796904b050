/*
 * report: the parts of `zinf report`. Each adds facts, one string a key, in the order in which they
 * are printed. A fact that cannot be found out says so: a report never fails over one.
 */
#ifndef ZINF_CLI_REPORT_H
#define ZINF_CLI_REPORT_H

#include "base/json.h"
#include "cli/cli.h"

void report_add(cJSON *facts, const char *key, const char *format, ...) ZINF_PRINTF(3, 4);

void report_machine(cJSON *facts); /* kernel, processor, NUMA, memory */
void report_limits(cJSON *facts);  /* what this process may take of them */

/* First line of a small text file without its newline into buffer; false: not there. */
bool report_read_line(const char *path, char *buffer, size_t bytes);
/* The text after "NAME", blanks and sep on the first line that begins with NAME; false: none. */
bool report_read_field(const char *path, const char *name, char sep, char *buffer, size_t bytes);

/* text without the home folder, the user's name in paths and the host's name, so that it can be
 * shown in public. Returns out. */
const char *report_redact(const char *text, char *out, size_t out_bytes);

#endif
