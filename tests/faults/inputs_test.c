/*
 * What a training stands on is changed between its lives: it is killed in the middle of its steps,
 * one byte of its configuration, its data or a file of its model becomes another one, and it is
 * verified and started again with --resume. Either it ends with the bits of the run that nobody
 * touched, or it refuses and names the file; what verify calls whole goes on. One draw in eight
 * changes nothing: that one goes on. Then what the whole run left is used in all ways, with a byte
 * of that or of its base changed: the same bits are made of it, or none and the file is named.
 *
 * ZINF_TEST_DRAWS changes, PER_SETTING in each training, from the ZINF_TEST_FIRST-th training on,
 * which ZINF_TEST_SEED draws; the table at the end counts outcomes. BUILDDIR may lie in memory.
 */
#include "uses.h"

#define DRAWS 192
#define PER_SETTING 16 /* half of them are uses */

static const char *const kinds[] = {"configuration", "data",      "config.json",    "weights",
                                    "nothing",       "tokenizer", "tokenizer.json", "template"};
enum { KINDS = sizeof kinds / sizeof *kinds };
static int counts[KINDS][OUTCOMES], n_accepted, n_verified;

static void path_of(const struct fault_setting *s, int kind, char path[900])
{
    const char *model = faults_models[s->model];
    static const char *const names[KINDS] = {
        [2] = "config.json",    [3] = "model.safetensors",   [5] = "tokenizer_config.json",
        [6] = "tokenizer.json", [7] = "chat_template.jinja",
    };
    if (names[kind])
        snprintf(path, 900, "%s/%s", model, names[kind]);
    else
        snprintf(path, 900, "%s", kind ? faults_text : faults_config);
}

/* Another byte; of a text one that may be there, so that it is not only the parser that refuses. */
static void change(char *data, size_t bytes, bool text)
{
    size_t at = faults_draw(bytes);
    static const char letters[] = "0123456789aetrue.,\"-";
    char old = data[at];
    while (data[at] == old)
        data[at] = text ? letters[faults_draw(sizeof letters - 1)] : (char)faults_draw(256);
}

static bool was_accepted(void)
{
    char *said = faults_what_was_said();
    bool yes = strstr(said, "was saved under other values of") != NULL;
    free(said);
    return yes;
}

/* Of configurations verify compares what decides results, and no weights that a run needs no more;
 * both may yet be refused for another reason. */
static void check_verified(int setting, int kind, int verified, enum outcome outcome)
{
    char *said = faults_what_was_said(), *error = strstr(said, "zinf train: ");
    bool good = verified ? kind != 4 : kind == 0 || kind == 2 || kind == 3 || outcome <= SAID;
    n_verified += verified != 0;
    CHECKF(good && verified < 2, "setting %d: %s: verify ends with %d, and --resume: %s", setting,
           kinds[kind], verified, error ? error : outcome_names[outcome]);
    free(said);
}

static void change_once(const struct fault_setting *s, int setting, uint64_t last)
{
    uint64_t number = faults_drawn;
    int kind = faults_draw(8) ? (int)faults_draw(KINDS) : 4;
    struct victim v = {.bytes = 0};
    char *data = NULL, *changed = NULL;
    size_t bytes = 0;
    path_of(s, kind, v.path);
    CHECKF(!zinf_file_read(v.path, 1u << 24, &data, &bytes), "%s", zinf_error());
    changed = malloc(bytes + 1);
    CHECK(changed && data);
    memcpy(changed, data, bytes);
    if (kind != 4)
        change(changed, bytes, kind != 3);
    CHECK(!zinf_file_write_atomic(v.path, changed, bytes));
    faults_put_back("killed");
    uint64_t before = list_steps();
    int verified = faults_verify(false);
    int status = faults_wait(faults_train(s, FAULT_STEPS));
    enum outcome outcome = judge(status, last, before, &v);
    bool accepted = outcome == WRONG && was_accepted();
    n_accepted += accepted;
    counts[kind][outcome] += !accepted;
    CHECKF(accepted || (outcome <= UNNAMED && status < 2 && (kind != 4 || outcome <= SAID)),
           "setting %d, draw %llu: %s: %s (status %d, last step %llu)", setting,
           (unsigned long long)number, kinds[kind], outcome_names[outcome], status,
           (unsigned long long)last);
    if (!accepted)
        check_verified(setting, kind, verified, outcome);
    if (outcome == UNNAMED) {
        char *said = faults_what_was_said(), *error = strstr(said, "zinf train: ");
        printf("# setting %d: %s is refused without its name: %s\n", setting, kinds[kind],
               error ? error : said);
        free(said);
    }
    CHECK(!zinf_file_write_atomic(v.path, data, bytes));
    free(changed);
    free(data);
}

/* One byte of one file, one use. */
static void use_once(const struct fault_setting *s, int setting)
{
    const bool adapted = s->model == FAULT_ADAPTED;
    uint64_t number = faults_drawn;
    enum use use = (enum use)(adapted ? faults_draw(USES - 1)
                                      : ADAPTERS_ALONE + faults_draw(USES - ADAPTERS_ALONE));
    if (adapted && use == USE_EXPORT)
        use = USE_VERIFY;
    const struct use_target *t = &use_targets[faults_draw((uint64_t)n_use_targets)];
    /* Data of an evaluation are its own, and the template of what was trained may be its user's. */
    const bool template = strstr(t->path, "chat_template.jinja") != NULL;
    const bool exports = use == USE_MERGE || use == USE_MERGE_CHECKPOINT || use == USE_EXPORT;
    const bool their_own =
        ((use == USE_EVAL || use == USE_MORE) && !strcmp(t->path, faults_text)) ||
        ((use == USE_ADD_UP || use == USE_VERIFY) && template) ||
        (exports && template && !strncmp(t->path, faults_out, strlen(faults_out)));
    char *data = NULL, *changed = NULL;
    size_t bytes = 0;
    CHECKF(!zinf_file_read(t->path, 1u << 24, &data, &bytes), "%s", zinf_error());
    changed = malloc(bytes + 1);
    CHECK(changed && data);
    memcpy(changed, data, bytes);
    if (!their_own)
        change(changed, bytes, !strstr(t->path, ".safetensors"));
    CHECK(!zinf_file_write_atomic(t->path, changed, bytes));
    int status = run_use(use, s);
    enum outcome outcome = their_own && !status ? SAME : judge_use(use, status, t);
    counts_of_uses[use][outcome]++;
    if (outcome > REFUSED)
        say_use(setting, use, t, outcome);
    CHECKF(outcome <= UNNAMED && status < 2, "setting %d, draw %llu: %s of %s: %s (status %d)",
           setting, (unsigned long long)number, use_names[use], t->path + strlen(work),
           outcome_names[outcome], status);
    CHECK(!zinf_file_write_atomic(t->path, data, bytes));
    free(changed);
    free(data);
}

static int number_from(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* What a folder may have beside its weights: all of it decides what rows become. */
static void write_tokenizers(void)
{
    static const char text[] = "{\"chat_template\": \"none\", \"model_max_length\": 32}\n";
    static const char template[] = "{% for message in messages %}{{ message.content }}{% endfor %}";
    char made[600], path[2000], to[2500];
    const char *const words[] = {
        "",          "init", "--arch",      "gpt2",  "--size",   "small",
        "--layers",  "1",    "--hidden",    "16",    "--heads",  "2",
        "--context", "32",   "--tokenizer", "bytes", "--output", in_work(made, "bytes"),
        NULL};
    struct stat info;
    CHECK(!faults_wait(faults_start(words)));
    snprintf(path, sizeof path, "%s/tokenizer.json", made);
    CHECK(!stat(path, &info));
    for (int i = 0; i < FAULT_MODELS; i++) {
        snprintf(to, sizeof to, "%s/tokenizer.json", faults_models[i]);
        CHECK(folders_copy_file(path, to, &info));
        snprintf(to, sizeof to, "%s/tokenizer_config.json", faults_models[i]);
        CHECK(!zinf_file_write_atomic(to, text, sizeof text - 1));
        snprintf(to, sizeof to, "%s/chat_template.jinja", faults_models[i]);
        CHECK(!zinf_file_write_atomic(to, template, sizeof template - 1));
    }
}

/* As the damage tests', and frozen bases in every form, and processes where those can keep steps.
 */
static struct fault_setting inputs_setting(int n)
{
    static const char *const forms[] = {NULL, "nf4", "int8"};
    struct fault_setting s = fault_setting_of(n);
    if (s.model == FAULT_ADAPTED)
        s.quantize = forms[n / 7 % 3];
    const bool may = fault_keeps_steps(&s) && strcmp(s.param, "none") != 0;
    faults_ranks = s.seats == 1 && n % 4 == 2 && may ? 2 : 1;
    return s;
}

static void one_setting(int i, int changes)
{
    struct fault_setting s = inputs_setting(i);
    char text[200];
    faults_seed = (uint64_t)number_from("ZINF_TEST_SEED", 1) * 1000 + (uint64_t)i;
    faults_drawn = 0;
    bool ready = make_setting(&s);
    uint64_t last = ready ? last_step() : 0;
    printf("# setting %d: %s%s; %s %llu\n", i, fault_setting_text(&s, text),
           faults_ranks > 1 ? ", 2 processes" : "",
           ready ? "killed after step" : "not killed in time", (unsigned long long)last);
    for (int n = 0; ready && n < changes / 2 && tap_case_failures < 20; n++)
        change_once(&s, i, last);
    ready = ready && make_uses(&s, i);
    for (int n = 0; ready && n < changes / 2 && tap_case_failures < 20; n++)
        use_once(&s, i);
    fflush(stdout);
}

static void test_inputs(void)
{
    int draws = number_from("ZINF_TEST_DRAWS", DRAWS), first = number_from("ZINF_TEST_FIRST", 0);
    write_tokenizers();
    for (int i = 0; i * PER_SETTING < draws && tap_case_failures < 20; i++)
        one_setting(first + i, PER_SETTING);
    for (int k = 0; k < KINDS; k++)
        outcomes_print_line("input", kinds[k], counts[k]);
    for (int k = 0; k < USES; k++)
        outcomes_print_line("use", use_names[k], counts_of_uses[k]);
    printf("# %d with another number of samples went on with a warning; verify saw %d\n",
           n_accepted, n_verified);
}

int main(void)
{
    faults_begin("inputs");
    TAP_RUN(test_inputs);
    remove_work();
    return tap_done();
}
