/*
 * A training is killed in the middle of its steps; one of the files that it left is damaged in one
 * way; then it is started again with --resume. Either it refuses, names what is wrong and leaves
 * everything where it is, or it ends with the bits of the run that nobody touched: the weights and
 * all that the last checkpoint holds in fp32. It never ends with others, and never begins anew
 * where steps were finished, without a word. After some refusals what they say is done, and `zinf
 * verify --repair`, with the same two ways to end.
 *
 * ZINF_TEST_SETTINGS trainings from ZINF_TEST_FIRST on, with ZINF_TEST_DAMAGES each that
 * ZINF_TEST_SEED draws; the table at the end counts outcomes. BUILDDIR may lie in memory.
 */
#include "outcomes.h"

#include "aio/steps.h"
#include "train/checkpoints.h"

#define SETTINGS 4
#define PER_SETTING 12
#define FOLLOWED 6 /* one in so many refusals is: what it says is done */

static int untouched;
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
static uint64_t last_step(void)
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
static bool live_until(const struct fault_setting *s, int lines)
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
    return WIFSIGNALED(status) && faults_log_lines(faults_out) < atoi(FAULT_STEPS);
}

/* Kept as "whole", "earlier" and "killed"; false: it could not be killed in its steps. */
static bool make_setting(const struct fault_setting *s)
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

static uint64_t list_steps(void)
{
    listing = 0;
    nftw(faults_drive, add_to_listing, 8, FTW_PHYS);
    nftw(faults_out, add_to_listing, 8, FTW_PHYS);
    return listing;
}

/* The message names the file, or a folder above it that is the training's. */
static bool is_named(const char *said, const struct victim *v)
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

static enum outcome judge(int status, uint64_t last, uint64_t before, const struct victim *v)
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

/* The checkpoint that the last refusal named as a way on; false: it named none. */
static bool find_way_on(char way[700])
{
    char *said = faults_what_was_said();
    const char *found = strstr(said, "--resume=/");
    if (found)
        snprintf(way, 700, "%.*s", (int)strcspn(found, ";, \n"), found);
    free(said);
    return found != NULL;
}

/* What a refusal says is done: another checkpoint, or the newest step that verify finds whole. Then
 * too it ends with the same bits, or is refused. */
static void follow(const struct fault_setting *s, int setting, const struct victim *v)
{
    char way[700];
    bool named = find_way_on(way);
    int repaired = named ? 0 : faults_verify(true);
    faults_resume = named ? way : "--resume";
    int status = faults_wait(faults_train(s, FAULT_STEPS));
    faults_resume = "--resume";
    enum outcome outcome = status ? REFUSED : faults_same_end("whole", FAULT_STEPS) ? SAME : WRONG;
    outcomes_followed[named][outcome]++;
    CHECKF(outcome != WRONG && repaired < 2 && status < 2,
           "setting %d, %s: verify --repair ends with %d, %s with %d: %s", setting, v->path,
           repaired, named ? way : "--resume", status, outcome_names[outcome]);
}

/* One of those that are in the folder, or any. */
static struct victim *draw_victim(const char *part)
{
    struct victim *v = NULL;
    for (int tries = 0; tries < 60 && (!v || !strstr(v->path, part)); tries++)
        v = &victims[faults_draw((uint64_t)n_victims)];
    return v;
}

/* One damage; false if it changed nothing. */
static bool damage_once(const struct fault_setting *s, int setting, uint64_t last)
{
    /* More often where more depends on it. */
    static const char *const parts[] = {"", "", "/extents", "/extents", ".steps-", "/checkpoint-"};
    uint64_t number = faults_drawn;
    enum damage damage = (enum damage)faults_draw(DAMAGES);
    faults_put_back("killed");
    damage_list();
    struct victim *v = draw_victim(parts[faults_draw(sizeof parts / sizeof *parts)]);
    if (!damage_do(v, damage))
        return false;
    uint64_t before = list_steps();
    int status = faults_wait(faults_train(s, FAULT_STEPS));
    enum outcome outcome = judge(status, last, before, v);
    outcomes_count(damage, setting % FAULT_PLACES, v->path, outcome);
    CHECKF(outcome <= UNNAMED && status < 2,
           "setting %d, draw %llu: %s of %s: %s (status %d, last step %llu)", setting,
           (unsigned long long)number, damage_names[damage], v->path + strlen(work),
           outcome_names[outcome], status, (unsigned long long)last);
    if (outcome == UNNAMED)
        printf("# setting %d: %s of %s is refused without a name\n", setting, damage_names[damage],
               v->path + strlen(work));
    if (outcome == REFUSED && !faults_draw(FOLLOWED))
        follow(s, setting, v);
    return true;
}

static int number_from(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void test_damage(void)
{
    int settings = number_from("ZINF_TEST_SETTINGS", SETTINGS);
    int damages = number_from("ZINF_TEST_DAMAGES", PER_SETTING);
    int first = number_from("ZINF_TEST_FIRST", 0);
    for (int i = first; i < first + settings && tap_case_failures < 20; i++) {
        struct fault_setting s = fault_setting_of(i);
        char text[200];
        faults_seed = (uint64_t)number_from("ZINF_TEST_SEED", 1) * 1000 + (uint64_t)i;
        faults_drawn = 0;
        bool ready = make_setting(&s);
        uint64_t last = ready ? last_step() : 0;
        printf("# setting %d: %s; %s %llu\n", i, fault_setting_text(&s, text),
               ready ? "killed after step" : "not killed in time", (unsigned long long)last);
        for (int n = 0; ready && n < damages && tap_case_failures < 20;)
            if (damage_once(&s, i, last))
                n++;
            else
                untouched++;
        fflush(stdout);
    }
    outcomes_print();
    printf("# %d draws changed nothing\n", untouched);
}

int main(void)
{
    faults_begin("damage");
    TAP_RUN(test_damage);
    remove_work();
    return tap_done();
}
