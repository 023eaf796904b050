/*
 * A training is killed in the middle of its steps; one of the files that it left is damaged in one
 * way; then it is started again with --resume. Either it refuses, names what is wrong and leaves
 * everything where it is, or it ends with the bits of the run that nobody touched. It never ends
 * with others, and never begins anew where steps were finished, without a word.
 *
 * ZINF_TEST_SETTINGS trainings with ZINF_TEST_DAMAGES each, from ZINF_TEST_SEED on; the table at
 * the end counts outcomes.
 */
#include "damage.h"

#include "aio/steps.h"
#include "train/checkpoints.h"

#define SETTINGS 3
#define PER_SETTING 14

enum outcome {
    SAME,    /* went on, or began where nothing was finished, and has the same bits */
    SAID,    /* the same, from an earlier step than the last, and said so */
    REFUSED, /* by name, and everything is still there */
    UNNAMED, /* refused, but the message names neither the file nor its folder */
    REMOVED, /* refused, but something is gone */
    LOST,    /* finished steps were made again without a word */
    WRONG,   /* other bits */
    OUTCOMES,
};
static const char *const outcome_names[] = {"same bits", "said",       "refused", "unnamed",
                                            "removed",   "steps lost", "WRONG"};
static int table[DAMAGES][OUTCOMES], totals[OUTCOMES], untouched;

static uint64_t committed;

static void see_steps(void *arg, const struct zinf_steps_info *info)
{
    uint64_t step;
    (void)arg;
    if (info->committed && zinf_checkpoint_step_of(info->payload, info->payload_bytes, &step))
        committed = step > committed ? step : committed;
}

static void see_checkpoint(void *arg, const struct zinf_checkpoint_info *info)
{
    (void)arg;
    committed = !info->problem && info->step > committed ? info->step : committed;
}

/* The last step that is there to go on from. */
static uint64_t last_step(void)
{
    char path[700];
    faults_path(path, 0);
    committed = 0;
    zinf_steps_list(path, see_steps, NULL);
    zinf_checkpoint_list(faults_out, see_checkpoint, NULL);
    return committed;
}

/* Runs until the log has so many lines, and kills. */
static void live_until(const struct fault_setting *s, int lines)
{
    int found = 0, status;
    pid_t child = faults_train(s, FAULT_STEPS);
    for (int waited = 0; found < lines && waited < 60000; waited++) {
        siginfo_t info = {0};
        usleep(1000);
        faults_sum_of_log(faults_out, &found);
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
            break;
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

static void make_setting(const struct fault_setting *s)
{
    faults_write_config(s);
    faults_clear();
    int status = faults_wait(faults_train(s, FAULT_STEPS));
    char *said = status ? faults_what_was_said() : NULL;
    CHECKF(!status, "the whole run ends with %d: %s", status, said);
    free(said);
    faults_keep("whole");
    faults_clear();
    live_until(s, 6);
    faults_keep("earlier");
    live_until(s, 13);
    faults_keep("killed");
}

static uint64_t listing;

static int add_to_listing(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)at;
    if (type == FTW_F && !strstr(path, ".tmp."))
        for (const char *c = path; *c; c++)
            listing += ((uint64_t)*c * 1099511628211u) ^ (uint64_t)info->st_size;
    return 0;
}

static uint64_t list_drive(void)
{
    listing = 0;
    nftw(faults_drive, add_to_listing, 8, FTW_PHYS);
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
    char a[700], b[700];
    char *said = faults_what_was_said();
    const char *from = strstr(said, "going on after step ");
    uint64_t step = from ? strtoull(from + strlen("going on after step "), NULL, 10) : 0;
    bool word = strstr(said, "made again") || strstr(said, "goes for the newest") ||
                strstr(said, "did not survive") || strstr(said, "is given up for");
    snprintf(a, sizeof a, "%s/model/model.safetensors", faults_out);
    snprintf(b, sizeof b, "%s/whole/left/out/model/model.safetensors", work);
    enum outcome outcome;
    if (status)
        outcome = list_drive() != before ? REMOVED : is_named(said, v) ? REFUSED : UNNAMED;
    else if (!faults_same(a, b))
        outcome = WRONG;
    else if (step < last)
        outcome = word ? SAID : LOST;
    else
        outcome = SAME;
    const char *last_line = strstr(said, "zinf train: ");
    if (outcome > REFUSED)
        printf("# said: %s\n", last_line ? last_line : from ? from : "nothing");
    free(said);
    return outcome;
}

/* One damage; false if it changed nothing. */
static bool damage_once(const struct fault_setting *s, int setting, uint64_t last)
{
    uint64_t number = faults_drawn;
    enum damage damage = (enum damage)faults_draw(DAMAGES);
    faults_put_back("killed");
    damage_list();
    struct victim *v = &victims[faults_draw((uint64_t)n_victims)];
    /* Half of them in what only the drives have. */
    for (int i = 0; i < 8 && faults_draw(2) && !strstr(v->path, "/zinf-train"); i++)
        v = &victims[faults_draw((uint64_t)n_victims)];
    if (!damage_do(v, damage))
        return false;
    uint64_t before = list_drive();
    int status = faults_wait(faults_train(s, FAULT_STEPS));
    enum outcome outcome = judge(status, last, before, v);
    table[damage][outcome]++;
    totals[outcome]++;
    CHECKF(outcome <= UNNAMED && status < 2,
           "setting %d, draw %llu: %s of %s: %s (status %d, last step %llu)", setting,
           (unsigned long long)number, damage_names[damage], v->path + strlen(work),
           outcome_names[outcome], status, (unsigned long long)last);
    if (outcome == UNNAMED)
        printf("# setting %d: %s of %s is refused without a name\n", setting, damage_names[damage],
               v->path + strlen(work));
    return true;
}

static void print_table(void)
{
    printf("# %-12s", "");
    for (int o = 0; o < OUTCOMES; o++)
        printf("%11s", outcome_names[o]);
    for (int d = 0; d < DAMAGES; d++) {
        printf("\n# %-12s", damage_names[d]);
        for (int o = 0; o < OUTCOMES; o++)
            printf("%11d", table[d][o]);
    }
    printf("\n# %-12s", "all");
    for (int o = 0; o < OUTCOMES; o++)
        printf("%11d", totals[o]);
    printf("\n# %d draws changed nothing\n", untouched);
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
        faults_seed = (uint64_t)number_from("ZINF_TEST_SEED", 1) * 1000 + (uint64_t)i;
        faults_drawn = 0;
        make_setting(&s);
        uint64_t last = last_step();
        for (int n = 0; n < damages && tap_case_failures < 20;)
            if (damage_once(&s, i, last))
                n++;
            else
                untouched++;
        fflush(stdout);
    }
    print_table();
}

int main(void)
{
    faults_begin("damage");
    TAP_RUN(test_damage);
    remove_work();
    return tap_done();
}
