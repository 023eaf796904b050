/* folder: a folder for the time of one command, in $TMPDIR, else in /tmp; and those of drives. */
#ifndef ZINF_CLI_FOLDER_H
#define ZINF_CLI_FOLDER_H

#include "base/json.h"

#define CLI_FOLDER_BYTES 400

/* Makes zinf-NAME-xxxxxx. A negative errno with a sentence that names it, and then path is "". */
int cli_folder_make(char path[CLI_FOLDER_BYTES], const char *name);
/* With all that is in it; "": nothing. */
void cli_folder_remove(const char *path);

/* nvme_path of a section of a configuration, offload_optimizer or offload_param: a string or a list
 * of them, borrowed. How many; at most so many. */
int cli_drive_paths(const cJSON *config, const char *section, const char **paths, int most);

#endif
