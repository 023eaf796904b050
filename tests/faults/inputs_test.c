/*
 * What a training stands on is changed between its lives: it is killed in the middle of its steps,
 * one byte of its configuration, its data or a file of its model becomes another one, and it is
 * started again with --resume. Either it ends with the bits of the run that nobody touched, or it
 * refuses and names the file. One draw in eight changes nothing: that one goes on.
 *
 * ZINF_TEST_SETTINGS trainings from ZINF_TEST_FIRST on, with ZINF_TEST_CHANGES each that
 * ZINF_TEST_SEED draws; the table at the end counts outcomes. BUILDDIR may lie in memory.
 */
#include "killed.h"

#define SETTINGS 3
#define PER_SETTING 8

static const char *const kinds[] = {"configuration", "data",    "config.json",
                                    "weights",       "nothing", "tokenizer"};
enum { KINDS = sizeof kinds / sizeof *kinds };
static int counts[KINDS][OUTCOMES], n_accepted;

static void path_of(const struct fault_setting *s, int kind, char path[900])
{
    const char *model = faults_models[s->model];
    static const char *const names[KINDS] = {
        [2] = "config.json", [3] = "model.safetensors", [5] = "tokenizer_config.json"};
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
    int status = faults_wait(faults_train(s, FAULT_STEPS));
    enum outcome outcome = judge(status, last, before, &v);
    bool accepted = outcome == WRONG && was_accepted();
    n_accepted += accepted;
    counts[kind][outcome] += !accepted;
    CHECKF(accepted || (outcome <= UNNAMED && status < 2 && (kind != 4 || outcome == SAME)),
           "setting %d, draw %llu: %s: %s (status %d, last step %llu)", setting,
           (unsigned long long)number, kinds[kind], outcome_names[outcome], status,
           (unsigned long long)last);
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

static int number_from(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void write_tokenizer_configs(void)
{
    static const char text[] = "{\"chat_template\": \"none\", \"model_max_length\": 32}\n";
    char path[2000];
    for (int i = 0; i < FAULT_MODELS; i++) {
        snprintf(path, sizeof path, "%s/tokenizer_config.json", faults_models[i]);
        CHECK(!zinf_file_write_atomic(path, text, sizeof text - 1));
    }
}

static void test_inputs(void)
{
    int settings = number_from("ZINF_TEST_SETTINGS", SETTINGS);
    int changes = number_from("ZINF_TEST_CHANGES", PER_SETTING);
    int first = number_from("ZINF_TEST_FIRST", 0);
    write_tokenizer_configs();
    for (int i = first; i < first + settings && tap_case_failures < 20; i++) {
        struct fault_setting s = fault_setting_of(i);
        char text[200];
        faults_seed = (uint64_t)number_from("ZINF_TEST_SEED", 1) * 1000 + (uint64_t)i;
        faults_drawn = 0;
        bool ready = make_setting(&s);
        uint64_t last = ready ? last_step() : 0;
        printf("# setting %d: %s; %s %llu\n", i, fault_setting_text(&s, text),
               ready ? "killed after step" : "not killed in time", (unsigned long long)last);
        for (int n = 0; ready && n < changes && tap_case_failures < 20; n++)
            change_once(&s, i, last);
        fflush(stdout);
    }
    for (int k = 0; k < KINDS; k++)
        outcomes_print_line("input", kinds[k], counts[k]);
    printf("# %d with another number of samples went on with a warning\n", n_accepted);
}

int main(void)
{
    faults_begin("inputs");
    TAP_RUN(test_inputs);
    remove_work();
    return tap_done();
}
