/*
 * signals: how signals end a command that has something to finish first, such as a step or a file.
 * What a signal does is said at once on standard error.
 */
#ifndef ZINF_CLI_SIGNALS_H
#define ZINF_CLI_SIGNALS_H

#include "base/base.h"

#include <signal.h>

/* From now on SIGINT, SIGTERM, SIGHUP, SIGUSR2 and SIGXCPU set cli_stop to their number; a second
 * SIGINT, SIGTERM or SIGHUP ends the process at once. doing: a literal that is printed behind
 * "zinf: SIGTERM: ", such as "stopping after this step"; NULL: nothing is printed. ends_work: the
 * process's pulse ends as well (base/pulse.h). */
extern volatile sig_atomic_t cli_stop;
void cli_signals_listen(const char *doing, bool ends_work);
/* The exit status of a command that the signal has ended. */
int cli_signals_status(int number);
/* A progress bar is on the screen and must be wiped before a message. Set by progress.c. */
extern volatile sig_atomic_t cli_bar_stands;
/* For train and eval if a seat hangs (train/seats.h): prints a message and ends the process. */
void cli_signals_stuck(void);

#endif
