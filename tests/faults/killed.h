/*
 * killed: a training that was killed in the middle of its steps, kept beside one that was not; and
 * the judgement of what it does when it goes on after something happened to it.
 */
#ifndef ZINF_TESTS_FAULTS_KILLED_H
#define ZINF_TESTS_FAULTS_KILLED_H

#include "outcomes.h"

#include "aio/steps.h"
#include "train/checkpoints.h"

static uint64_t on_drive, saved;

static void see_steps(void *arg, const struct zinf_steps_info *info)
{
    uint64_t step;
    (void)arg;
    if (info->committed && zinf_checkpoint_step_of(info->payload, info->payload_bytes, &step))
        on_drive = step;
}

static void see_checkpoint(void *arg, const struct zinf_checkpoint_info *info)
{
    (void)arg;
    saved = !info->problem && info->step > saved ? info->step : saved;
}

/* The last step that is there to go on from, and of which anybody was told. */
static inline uint64_t last_step(void)
{
    char path[700];
    faults_path(path, 0);
    on_drive = saved = 0;
    zinf_steps_list(path, see_steps, NULL);
    zinf_checkpoint_list(faults_out, see_checkpoint, NULL);
    uint64_t logged = (uint64_t)faults_log_lines(faults_out);
    on_drive = on_drive < logged ? on_drive : logged;
    return on_drive > saved ? on_drive : saved;
}

/* Runs until the log has so many lines and a moment longer, and kills; false: it had ended. */
static inline bool live_until(const struct fault_setting *s, int lines)
{
    int status = 0;
    bool ended = false;
    pid_t child = faults_train(s, FAULT_STEPS);
    for (int waited = 0; waited < 300000 && !ended && faults_log_lines(faults_out) < lines;
         waited++) {
        siginfo_t info = {0};
        usleep(200);
        ended = waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
    }
    usleep(faults_draw(3000));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    faults_end_ranks(child);
    return WIFSIGNALED(status) && faults_log_lines(faults_out) < atoi(FAULT_STEPS);
}

/* Kept as "whole", "earlier" and "killed"; false: it could not be killed in its steps. */
static inline bool make_setting(const struct fault_setting *s)
{
    faults_write_config(s);
    faults_clear();
    int status = faults_wait(faults_train(s, FAULT_STEPS));
    char *said = status ? faults_what_was_said() : NULL;
    char text[200];
    CHECKF(!status, "%s: the whole run ends with %d: %s", fault_setting_text(s, text), status,
           said);
    free(said);
    faults_keep("whole");
    faults_clear();
    bool killed = !status;
    for (int part = 0; part < 2 && killed; part++) {
        killed = false;
        for (int tries = 0; tries < 20 && !killed; tries++) {
            if (tries && part)
                faults_put_back("earlier");
            else if (tries)
                faults_clear();
            killed = live_until(s, part ? 7 : 3);
        }
        if (killed)
            faults_keep(part ? "killed" : "earlier");
    }
    return killed;
}

static uint64_t listing;

/* Of steps and checkpoints: what else a killed run left may go. */
static int add_to_listing(const char *path, const struct stat *info, int type, struct FTW *at)
{
    const char *name = path + strlen(work);
    (void)at;
    if (type == FTW_F && !strstr(name, ".tmp.") && !strstr(name, "tmp-") &&
        (strstr(name, ".steps-") || strstr(name, "/checkpoint-")))
        for (const char *c = path; *c; c++)
            listing += ((uint64_t)*c * 1099511628211u) ^ (uint64_t)info->st_size;
    return 0;
}

static inline uint64_t list_steps(void)
{
    listing = 0;
    nftw(faults_drive, add_to_listing, 8, FTW_PHYS);
    nftw(faults_out, add_to_listing, 8, FTW_PHYS);
    return listing;
}

/* The message names the file, or a folder above it that is the training's. */
static inline bool is_named(const char *said, const struct victim *v)
{
    char path[900];
    const char *error = strstr(said, "zinf train: ");
    snprintf(path, sizeof path, "%s", v->path);
    for (char *slash; error && (slash = strrchr(path, '/')) && strlen(path) > strlen(work);
         *slash = 0)
        if (strstr(error, path))
            return true;
    return false;
}

static inline enum outcome judge(int status, uint64_t last, uint64_t before, const struct victim *v)
{
    char *said = faults_what_was_said();
    const char *from = strstr(said, "going on after step ");
    uint64_t step = from ? strtoull(from + strlen("going on after step "), NULL, 10) : 0;
    bool word = strstr(said, "made again") || strstr(said, " is newer") ||
                strstr(said, "did not survive") || strstr(said, "is given up for");
    enum outcome outcome;
    if (status)
        outcome = list_steps() != before ? REMOVED : is_named(said, v) ? REFUSED : UNNAMED;
    else if (!faults_same_end("whole", FAULT_STEPS))
        outcome = WRONG;
    else if (step < last)
        outcome = word ? SAID : LOST;
    else
        outcome = SAME;
    const char *last_line = strstr(said, "zinf train: ");
    if (outcome > REFUSED)
        printf("# said: %s\n", last_line ? last_line : from ? from : "nothing");
    if (outcome == WRONG)
        printf("# differs: %s\n", folders_differing);
    free(said);
    return outcome;
}

#endif
