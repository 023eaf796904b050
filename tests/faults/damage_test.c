/*
 * A training is killed in the middle of its steps; one of the files that it left is damaged in one
 * way; then it is started again with --resume. Either it refuses, names what is wrong and leaves
 * everything where it is, or it ends with the bits of the run that nobody touched: the weights and
 * all that the last checkpoint holds in fp32. It never ends with others, and never begins anew
 * where steps were finished, without a word. After some refusals what they say is done, and `zinf
 * verify --repair`, with the same two ways to end.
 *
 * ZINF_TEST_SETTINGS trainings from ZINF_TEST_FIRST on, with ZINF_TEST_DAMAGES each that
 * ZINF_TEST_SEED draws, all with zinf.pack as ZINF_TEST_PACK says, if it is set. The table at the
 * end counts outcomes; its lines "packed" say which parts of packed images were met, and what
 * damages several, such as a page, counts for each. BUILDDIR may lie in memory.
 */
#include "killed.h"

#define SETTINGS 4
#define PER_SETTING 12
#define FOLLOWED 6 /* one in so many refusals is: what it says is done */

static int untouched;

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

/* One damage; false if it changed nothing. */
static bool damage_once(const struct fault_setting *s, int setting, uint64_t last)
{
    /* More often where more depends on it. */
    static const char *const parts[] = {"", "", "/extents", "/extents", ".steps-", "/checkpoint-"};
    uint64_t number = faults_drawn;
    enum damage damage = (enum damage)faults_draw(DAMAGES);
    faults_put_back("killed");
    damage_list();
    struct victim *v = damage_draw_victim(parts[faults_draw(sizeof parts / sizeof *parts)]);
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
        s.pack = getenv("ZINF_TEST_PACK") ? getenv("ZINF_TEST_PACK") : s.pack;
        region_moments = !strncmp(s.kind, "Adam", 4) ? 2 : 1;
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
