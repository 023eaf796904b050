/* folder: a folder for the time of one command, in $TMPDIR, else in /tmp. */
#ifndef ZINF_CLI_FOLDER_H
#define ZINF_CLI_FOLDER_H

#define CLI_FOLDER_BYTES 400

/* Makes zinf-NAME-xxxxxx. A negative errno with a sentence that names it, and then path is "". */
int cli_folder_make(char path[CLI_FOLDER_BYTES], const char *name);
/* With all that is in it; "": nothing. */
void cli_folder_remove(const char *path);

#endif
