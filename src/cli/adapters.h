/*
 * adapters: --adapter DIR... of commands that only compute: several add up, DIR=WEIGHT by that
 * weight, as one adapter that lies in a folder of its own for the time of the command.
 */
#ifndef ZINF_CLI_ADAPTERS_H
#define ZINF_CLI_ADAPTERS_H

#include "cli/cli.h"
#include "cli/folder.h"

struct cli_adapters {
    struct zinf_words words;
    char joined[CLI_FOLDER_BYTES]; /* "": there is none */
};
/* *folder: of the one adapter, of the joined one, or NULL. Borrowed; until close. */
int cli_adapters_open(struct cli_adapters *adapters, const char **folder);
void cli_adapters_close(struct cli_adapters *adapters);
/* What the words name, joined into a folder. */
int cli_adapters_join(const struct zinf_words *words, const char *output);

#endif
