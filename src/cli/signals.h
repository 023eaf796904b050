/*
 * signals: how a person at a terminal and a scheduler end a command. A command that has something
 * to bring to its end first (a step, a file) listens; what it hears is said at once on standard
 * error.
 */
#ifndef ZINF_CLI_SIGNALS_H
#define ZINF_CLI_SIGNALS_H

#include "base/base.h"

#include <signal.h>

/* SIGINT, SIGTERM, SIGHUP, SIGUSR2 and SIGXCPU from here on leave their number in cli_stop, once
 * more of the first three ends the process at once. doing: what follows "zinf: SIGTERM: ", such as
 * "stopping after this step"; a literal. NULL: nothing is said. ends_work: the process's
 * pulse ends too (base/pulse.h). */
extern volatile sig_atomic_t cli_stop;
void cli_signals_listen(const char *doing, bool ends_work);
/* Of a command that such a signal has ended. */
int cli_signals_status(int number);
/* A bar stands, which is wiped before anything is said: for progress.c to set. */
extern volatile sig_atomic_t cli_bar_stands;
/* What train and eval do where a seat hangs (train/seats.h): say it and end the process. */
void cli_signals_stuck(void);

#endif
