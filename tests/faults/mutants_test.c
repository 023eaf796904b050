/*
 * What the tests of damage are worth: each obligation that keeps a training from going on with
 * wrong bytes is taken away once, by another function in its place, and the damage that it stands
 * against must then do harm that the judgement sees. (The order of a commit's writes and flushes
 * has mutants of its own, in commit_test.)
 */
#include "killed.h"

#include "aio/aio_store.h"
#include "train/save/checkpoint.h"

#define PACKED_SETTING 140 /* AdamW, all on the drive and packed */
#define TRIES 60           /* a damage may lie where nothing depends on it */

enum mutant {
    FAITHFUL,
    COMPARES_NO_PAGE,       /* of what is read from a drive */
    COMPARES_NO_CHECKPOINT, /* with its list of sums */
    SUMS_NO_PAGE,           /* of what is written */
    REMOVES_THE_UNREADABLE, /* folders of others on its path */
    REMOVES_BEFORE,         /* a checkpoint, before the next was read back */
};
static enum mutant mutant;

bool __real_zinf_store_sums_verify(const struct zinf_aio_request *request, uint64_t from,
                                   uint64_t bytes, uint64_t *bad);
bool __wrap_zinf_store_sums_verify(const struct zinf_aio_request *request, uint64_t from,
                                   uint64_t bytes, uint64_t *bad);
bool __wrap_zinf_store_sums_verify(const struct zinf_aio_request *request, uint64_t from,
                                   uint64_t bytes, uint64_t *bad)
{
    return mutant == COMPARES_NO_PAGE || __real_zinf_store_sums_verify(request, from, bytes, bad);
}

void __real_zinf_store_sums_record(const struct zinf_aio_request *request, uint64_t from,
                                   uint64_t bytes);
void __wrap_zinf_store_sums_record(const struct zinf_aio_request *request, uint64_t from,
                                   uint64_t bytes);
void __wrap_zinf_store_sums_record(const struct zinf_aio_request *request, uint64_t from,
                                   uint64_t bytes)
{
    if (mutant != SUMS_NO_PAGE)
        __real_zinf_store_sums_record(request, from, bytes);
}

int __real_checkpoint_verify(const struct checkpoint *c, const char *folder);
int __wrap_checkpoint_verify(const struct checkpoint *c, const char *folder);
int __wrap_checkpoint_verify(const struct checkpoint *c, const char *folder)
{
    return mutant == COMPARES_NO_CHECKPOINT ? 0 : __real_checkpoint_verify(c, folder);
}

int __real_zinf_steps_plan_read(struct zinf_steps_plan *plan, const char *folder);
int __wrap_zinf_steps_plan_read(struct zinf_steps_plan *plan, const char *folder);
int __wrap_zinf_steps_plan_read(struct zinf_steps_plan *plan, const char *folder)
{
    int code = __real_zinf_steps_plan_read(plan, folder);
    if (mutant != REMOVES_THE_UNREADABLE || !code)
        return code;
    memset(plan, 0, sizeof *plan);
    return 0;
}

int __real_output_publish(const char *output, const char *fresh, const char *name);
int __wrap_output_publish(const char *output, const char *fresh, const char *name);
int __wrap_output_publish(const char *output, const char *fresh, const char *name)
{
    char command[1200];
    snprintf(command, sizeof command, "rm -rf '%s'/checkpoint-*", output);
    if (mutant == REMOVES_BEFORE && (system(command) || kill(getpid(), SIGKILL)))
        return -EIO;
    return __real_output_publish(output, fresh, name);
}

/* The outcome of one damage of this kind to such a file, or OUTCOMES: it changed nothing. */
static enum outcome damage_one(const struct fault_setting *s, uint64_t last, enum damage damage,
                               const char *part)
{
    faults_put_back("killed");
    damage_list();
    struct victim *v = damage_draw_victim(part);
    if (!strstr(v->path, part) || !damage_do(v, damage))
        return OUTCOMES;
    uint64_t before = list_steps();
    int status = faults_wait(faults_train(s, FAULT_STEPS));
    return judge(status, last, before, v);
}

/* With nothing taken away none of these damages does harm, and with it one does. */
static void check_mutant(enum mutant which, int setting, enum damage damage, const char *part)
{
    struct fault_setting s = fault_setting_of(setting);
    int harm[2] = {0};
    faults_seed = (uint64_t)which;
    CHECK(make_setting(&s));
    uint64_t last = last_step();
    for (int mutated = 0; mutated < 2; mutated++) {
        mutant = mutated ? which : FAITHFUL;
        for (int n = 0; n < (mutated ? TRIES : TRIES / 6) && !harm[mutated]; n++) {
            enum outcome o = damage_one(&s, last, damage, part);
            harm[mutated] += o != OUTCOMES && o > UNNAMED;
        }
        mutant = FAITHFUL;
    }
    CHECKF(!harm[0] && harm[1], "%d without it, %d with it", harm[0], harm[1]);
}

static void test_pages_that_are_not_compared(void)
{
    check_mutant(COMPARES_NO_PAGE, 0, DAMAGE_PAGE, "/extents");
}

/* Of packed images the payload has no checksums but those of the store's pages. */
static void test_packed_pages_that_are_not_compared(void)
{
    check_mutant(COMPARES_NO_PAGE, PACKED_SETTING, DAMAGE_BIT, "/extents");
}

/* A bit: of a page of other bytes most are NaN, which loading refuses anyway. */
static void test_checkpoints_that_are_not_compared(void)
{
    check_mutant(COMPARES_NO_CHECKPOINT, 3, DAMAGE_BIT, "/optimizer/");
}

/* Such a step must not be committed: nobody could tell later whether it is whole. */
static void test_pages_without_a_sum(void)
{
    struct fault_setting s = fault_setting_of(0);
    faults_write_config(&s);
    faults_clear();
    mutant = SUMS_NO_PAGE;
    int status = faults_wait(faults_train(&s, FAULT_STEPS));
    mutant = FAITHFUL;
    char *said = faults_what_was_said();
    CHECKF(status == 1 && strstr(said, "was never written whole"), "status %d: %s", status, said);
    free(said);
}

/* Beside a run whose description is of a newer version another one begins. */
static bool neighbours_steps_stay(void)
{
    struct fault_setting s = fault_setting_of(0);
    char ours[600];
    CHECK(make_setting(&s));
    snprintf(ours, sizeof ours, "%s", faults_out);
    faults_put_back("killed");
    damage_list();
    struct victim *v = damage_draw_victim("/steps");
    CHECK(damage_do(v, DAMAGE_VERSION));
    uint64_t before = list_steps();
    in_work(faults_out, "other");
    CHECK(!zinf_make_dirs(faults_out) && folders_empty(faults_out));
    CHECK(!faults_wait(faults_train(&s, "2")));
    snprintf(faults_out, sizeof faults_out, "%s", ours);
    return !access(v->path, F_OK) && list_steps() == before;
}

static void test_removing_what_cannot_be_read(void)
{
    CHECK(neighbours_steps_stay());
    mutant = REMOVES_THE_UNREADABLE;
    CHECK(!neighbours_steps_stay());
    mutant = FAITHFUL;
}

/* A process that dies between the two has neither the old nor the new one. */
static void test_removing_a_checkpoint_too_early(void)
{
    struct fault_setting s = fault_setting_of(5);
    faults_seed = REMOVES_BEFORE;
    CHECK(make_setting(&s));
    uint64_t last = last_step();
    faults_put_back("killed");
    CHECK(last > 0);
    mutant = REMOVES_BEFORE;
    CHECK(faults_wait(faults_train(&s, FAULT_STEPS)) == 1000 + SIGKILL);
    mutant = FAITHFUL;
    CHECK(last_step() < last);
}

int main(void)
{
    faults_begin("mutants");
    TAP_RUN(test_pages_that_are_not_compared);
    TAP_RUN(test_packed_pages_that_are_not_compared);
    TAP_RUN(test_checkpoints_that_are_not_compared);
    TAP_RUN(test_pages_without_a_sum);
    TAP_RUN(test_removing_what_cannot_be_read);
    TAP_RUN(test_removing_a_checkpoint_too_early);
    remove_work();
    return tap_done();
}
