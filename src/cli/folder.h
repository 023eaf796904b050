/* folder: a temporary folder for one command, in $TMPDIR or /tmp; and the drive folders of a
 * configuration. */
#ifndef ZINF_CLI_FOLDER_H
#define ZINF_CLI_FOLDER_H

#include "base/json.h"

#define CLI_FOLDER_BYTES 400

/* Makes zinf-NAME-xxxxxx. After an error path is "". */
int cli_folder_make(char path[CLI_FOLDER_BYTES], const char *name);
/* Removes a folder with its content; "": does nothing. */
void cli_folder_remove(const char *path);

/* Reads nvme_path, a string or a list, of a configuration's section offload_optimizer or
 * offload_param. The strings are borrowed. Returns their number, at most `most`. */
int cli_drive_paths(const cJSON *config, const char *section, const char **paths, int most);

#endif
