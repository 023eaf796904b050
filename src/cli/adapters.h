/*
 * adapters: --adapter DIR... of commands that do not train. Several adapters are added up, with
 * weights by DIR=WEIGHT, into one adapter in a temporary folder.
 */
#ifndef ZINF_CLI_ADAPTERS_H
#define ZINF_CLI_ADAPTERS_H

#include "cli/cli.h"
#include "cli/folder.h"

struct cli_adapters {
    struct zinf_words words;
    char joined[CLI_FOLDER_BYTES]; /* the temporary folder; "": none */
};
/* Sets *folder to the one adapter's folder, the temporary one, or NULL. It is valid until
 * cli_adapters_close. */
int cli_adapters_open(struct cli_adapters *adapters, const char **folder);
void cli_adapters_close(struct cli_adapters *adapters);
/* Adds up the adapters that the words name into a folder. */
int cli_adapters_join(const struct zinf_words *words, const char *output);

#endif
