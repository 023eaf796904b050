/* cli: options, nearest words, charts, progress lines and what a report may show. */
#include "cli/report.h"

#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    bool flag;
    const char *string;
    struct zinf_words strings;
    int64_t steps, count;
    double rate;
    uint64_t bytes;
    int side;
    struct zinf_config_settings settings;
} it;
static struct zinf_words words;
#define AT(field) .offset = offsetof(__typeof__(it), field)
static const char *const sides[] = {"end", "beginning", NULL};
static const struct option options[] = {
    OPTION("--no-shuffle", FLAG, AT(flag), NULL, "in order"),
    OPTION("--prompt", TEXT, AT(string), "TEXT", "text"),
    OPTION("--data", TEXTS, AT(strings), "FILE...", "files"),
    OPTION("--steps", INTEGER, AT(steps), "N", "steps", .min = 1, .max = 0x1p62,
           .aliases = "max_steps -n"),
    OPTION("--lr", NUMBER, AT(rate), "X", "rate", .min = 0, .max = 1, .aliases = "learning_rate"),
    OPTION("--device-memory", SIZE, AT(bytes), "SIZE", "size"),
    OPTION("--side", WORD, AT(side), "SIDE", "side", .words = sides),
    OPTION("--count", INTEGER, AT(count), "N", "count", .usual = "7"),
    OPTION("--quantize", TEXT, AT(settings), "FORM", "bits", .key = "zinf.quantize",
           .aliases = "load_in_4bit=nf4"),
    OPTION("--smooth", NUMBER, AT(settings), "X", "share", .key = "zinf.label_smoothing"),
    OPTION("--group", FLAG, AT(settings), NULL, "group", .key = "zinf.group_by_length"),
    {.flag = NULL},
};
static const struct option_group groups[] = {{.rows = options}, {.rows = NULL}};
static struct cli_command command = {.name = "train", .usage = "usage: test\n", .groups = groups};

/* Parses a line of words without blanks in them; positional words are allowed when asked for. */
static int parse(const char *line, bool allow_words)
{
    static char buffer[512]; /* the values point into it */
    char *argv[64] = {"train"}, *rest;
    int argc = 1;
    memset(&it, 0, sizeof it);
    words.n = 0;
    it.steps = -1;
    it.rate = -1;
    snprintf(buffer, sizeof buffer, "%s", line);
    for (char *word = strtok_r(buffer, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    struct cli_call call = {.command = &command, .options = &it};
    command.takes_words = allow_words;
    int code = cli_parse(&call, argc, argv);
    words = call.words;
    return code;
}

static bool refuses(const char *line, const char *a, const char *b)
{
    int code = parse(line, false);
    if (code == -EINVAL && strstr(zinf_error(), a) && strstr(zinf_error(), b))
        return true;
    printf("# '%s' gives %d: %s\n", line, code, code < 0 ? zinf_error() : "");
    return false;
}

static void test_values(void)
{
    CHECK(!parse("--steps 7 --lr=2.5e-4 --no-shuffle --device-memory 4GiB --prompt=a=b", false));
    CHECK(it.steps == 7 && it.rate == 2.5e-4 && it.flag && it.bytes == 4ull << 30 &&
          !strcmp(it.string, "a=b"));
    CHECK(!parse("--data a b --steps 1 --data c --data=d", false) && it.strings.n == 4);
    CHECK(!strcmp(it.strings.items[1], "b") && !strcmp(it.strings.items[3], "d") && it.steps == 1);
    CHECK(!parse("--steps 1 --steps 2", false) && it.steps == 2);
    CHECK(!parse("--prompt -x", false) && !strcmp(it.string, "-x"));
    CHECK(!parse("", false));
}

static void test_words(void)
{
    CHECK(!parse("one --no-shuffle two - -- --steps", true) && words.n == 4 && it.flag);
    CHECK(!strcmp(words.items[2], "-") && !strcmp(words.items[3], "--steps"));
    CHECK(refuses("--steps 3 four", "unexpected word", "four"));
    CHECK(refuses("steps", "unexpected word 'steps'", "--steps"));
}

static void test_refusals(void)
{
    CHECK(refuses("--steps 12x", "--steps", "12x"));
    CHECK(refuses("--steps 1.5", "--steps", "whole"));
    CHECK(refuses("--steps=", "--steps", "whole"));
    CHECK(refuses("--steps 0", "--steps 0", "at least 1"));
    CHECK(refuses("--steps 99999999999999999999", "--steps", "too large"));
    CHECK(refuses("--lr 1.5", "--lr 1.5", "from 0 to 1"));
    CHECK(refuses("--lr nan", "--lr", "not a number"));
    CHECK(refuses("--lr 1e-3s", "--lr", "1e-3s"));
    CHECK(refuses("--device-memory 4parsecs", "--device-memory", "parsecs"));
    CHECK(refuses("--no-shuffle=1", "--no-shuffle", "no value"));
    CHECK(refuses("--steps", "--steps", "needs a value"));
    CHECK(refuses("--prompt --steps 3", "--prompt", "needs a value"));
    CHECK(refuses("--data --lr 1", "--data", "needs a value"));
    CHECK(it.steps == -1 && it.rate == -1);
}

static void test_unknown_option_offers_the_nearest(void)
{
    CHECK(refuses("--stesp 3", "--stesp", "--steps"));
    CHECK(refuses("--device-memroy=4GiB", "unknown option", "--device-memory?"));
    CHECK(refuses("--device 1", "--device", "--device-memory?"));
    CHECK(parse("--zzzzzz 1", false) == -EINVAL && !strstr(zinf_error(), "did you mean"));
    CHECK(refuses("-s", "unknown option", "-s"));
}

static void test_help(void)
{
    printf("# "); /* the usage goes to standard output, where each line is TAP */
    CHECK(parse("--help --zzzzzz", false) == 1);
    printf("# ");
    CHECK(parse("--steps 3 -h", false) == 1);
}

/* Words, usual values, and settings of the configuration. */
static void test_kinds_of_rows(void)
{
    const struct zinf_config_setting *set;
    CHECK(!parse("--side beginning", false) && it.side == 1 && it.count == 7);
    CHECK(!parse("--count 9", false) && it.count == 9 && it.side == 0);
    CHECK(refuses("--side middle", "--side middle", "use end or beginning"));
    CHECK(!parse("--quantize int8 --smooth 0.1 --smooth 0.2 --group", false));
    CHECK(it.settings.n == 3);
    set = zinf_config_settings_find(&it.settings, "zinf.label_smoothing");
    CHECK(set && !strcmp(set->text, "0.2") && !strcmp(set->name, "--smooth"));
    CHECK(!zinf_config_settings_find(&it.settings, "zinf.dropout"));
    CHECK(refuses("--quantize int3", "--quantize int3", "none, nf4 or int8"));
    CHECK(refuses("--smooth x", "--smooth", "not a number"));
}

/* Names that other programs have, and what they say of truth. */
static void test_other_programs_names(void)
{
    CHECK(!parse("--learning_rate 0.5 --max-steps=3 --no_shuffle", false));
    CHECK(it.rate == 0.5 && it.steps == 3 && it.flag);
    CHECK(!parse("-n 4 --no-shuffle True --count 2", false) && it.steps == 4 && it.count == 2);
    CHECK(!parse("--no-shuffle False", false) && !it.flag);
    CHECK(!parse("--load_in_4bit --count 1", false) && it.settings.n == 1 && it.count == 1);
    CHECK(!strcmp(it.settings.item[0].text, "nf4"));
    CHECK(!parse("--load_in_4bit True", false) && it.settings.n == 1);
    CHECK(!parse("--load_in_4bit false --count 3", false) && !it.settings.n && it.count == 3);
    CHECK(refuses("-lr 1", "unknown option", "-lr"));
    CHECK(refuses("--np 1", "unknown option", "--np"));
    CHECK(refuses("--gradient_checkpointing True", "--gradient_checkpointing", "planned"));
    CHECK(refuses("--adam-beta1 0.9", "--adam-beta1", "betas"));
    CHECK(refuses("--hlep", "--hlep", "--help?"));
}

static void test_nearest(void)
{
    const char *names[] = {"init", "train", "eval", "generate", "gradients", "inspect"};
    CHECK(!strcmp(zinf_nearest("trian", names, 6), "train"));
    CHECK(!strcmp(zinf_nearest("Inspet", names, 6), "inspect"));
    CHECK(!strcmp(zinf_nearest("gradient", names, 6), "gradients"));
    CHECK(!strcmp(zinf_nearest("gen", names, 6), "generate"));
    CHECK(!zinf_nearest("g", names, 6) && !zinf_nearest("", names, 6));
    CHECK(!zinf_nearest("bench", names, 6) && !zinf_nearest("train", names, 0));
}

/* The chart as text; the caller frees. */
static char *chart(const char *locale, const double *values, size_t n, int rows, int cols)
{
    char *text = NULL;
    size_t text_bytes = 0;
    setenv("LC_ALL", locale, 1);
    FILE *out = open_memstream(&text, &text_bytes);
    cli_chart(out, "loss", values, n, rows, cols);
    fclose(out);
    return text;
}

static void check_chart(const char *locale, const double *values, size_t n, const char *wanted)
{
    char *text = chart(locale, values, n, 3, 21);
    CHECKF(!strcmp(text, wanted), "chart is\n%s", text);
    free(text);
}

static void test_chart_of_known_values(void)
{
    const double down[] = {4, 3, 2, 1, 0}, hill[] = {0, 1, 0}, flat[] = {2, 2};
    check_chart("C", down, 5,
                "loss\n        4 |***       \n          |   ****   \n        0 |       ***\n"
                "          +----------\n           1        5\n");
    check_chart("C", hill, 3,
                "loss\n        1 |    **    \n          |  **  **  \n        0 |**      **\n"
                "          +----------\n           1        3\n");
    check_chart("C", flat, 2,
                "loss\n        2 |          \n          |**********\n        2 |          \n"
                "          +----------\n           1        2\n");
}

static void test_chart_in_braille(void)
{
    const double down[] = {11, 0};
    check_chart("C.UTF-8", down, 2,
                "loss\n       11 │⠑⠢⢄⡀⠀⠀⠀⠀⠀⠀\n          │⠀⠀⠀⠈⠒⠤⡀⠀⠀⠀\n        0 │⠀⠀⠀⠀⠀⠀⠈⠑⠢⢄\n"
                "          └──────────\n           1        2\n");
}

static void test_chart_of_odd_values(void)
{
    double many[5000];
    const double holes[] = {NAN, 1, INFINITY, -1e308, 1e308}, none[] = {NAN, NAN};
    for (int i = 0; i < 5000; i++)
        many[i] = i % 2 ? 1 : 0;
    char *text = chart("C", many, 5000, 3, 21);
    CHECK(strstr(text, "1 |**********\n") && strstr(text, "0 |**********\n"));
    free(text);
    text = chart("C", holes, 5, -5, -5);
    CHECK(strstr(text, "1e+308") && strchr(text, '*'));
    free(text);
    text = chart("C", none, 2, 3, 30);
    CHECK(strstr(text, "no values"));
    free(text);
    text = chart("C", none, 0, 3, 30);
    CHECK(strstr(text, "no values"));
    free(text);
}

/* ---- progress: standard error goes to a file while a bar runs ---- */

static char *captured(enum cli_progress_mode mode)
{
    static char text[8192];
    struct cli_progress outer, inner;
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    cli_progress_begin(&outer, mode, "train", 10);
    cli_progress_update(&outer, 5, "loss 2.5", true);
    zinf_log(ZINF_LOG_WARN, "a line of the log");
    cli_progress_begin(&inner, mode, "eval", 0);
    cli_progress_end(&inner);
    cli_progress_update(&outer, 6, "loss 2.4  norm 1.234  lr 0.00125", false);
    cli_progress_end(&outer);
    zinf_log(ZINF_LOG_WARN, "after");
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void test_progress(void)
{
    setenv("LC_ALL", "C", 1);
    char *text = captured(CLI_PROGRESS_PLAIN);
    CHECK(!strncmp(text, "train 5/10  loss 2.5", 20));
    CHECK(!strstr(text, "2.4") && !strchr(text, '\r') && !strstr(text, "eval"));
    text = captured(CLI_PROGRESS_AUTO); /* a file is no terminal */
    CHECK(!strchr(text, '\r') && strstr(text, "a line of the log\n"));
    text = captured(CLI_PROGRESS_BAR);
    CHECK(strstr(text, "\r\x1b[Kzinf: warning: a line of the log\n"));
    CHECK(strstr(text, "train  60% |############        | 6/10") && strstr(text, "loss 2.4"));
    CHECK(strstr(text, "norm 1.234") && !strstr(text, "lr")); /* what is cut is cut whole */
    CHECK(strstr(text, "\nzinf: warning: after\n"));          /* the sink is gone */
    text = captured(CLI_PROGRESS_NONE);
    CHECK(!strstr(text, "train") && strstr(text, "after"));
    CHECK(!strcmp(cli_progress_words[CLI_PROGRESS_PLAIN], "plain"));
}

static void test_report_names_nobody(void)
{
    char out[256], path[300], host[128] = "";
    setenv("HOME", "/data/people/jane", 1);
    CHECK(!strcmp(report_redact("/data/people/jane/x: ext4", out, sizeof out), "~/x: ext4"));
    CHECK(!strcmp(report_redact("/data/people/janet", out, sizeof out), "/data/people/janet"));
    CHECK(!strcmp(report_redact("(/home/bob): no", out, sizeof out), "(/home/USER): no"));
    CHECK(!strcmp(report_redact("/home/bob/a b", out, sizeof out), "/home/USER/a b"));
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0;
    if (strlen(host) > 1) {
        snprintf(path, sizeof path, "/mnt/%s/x", host);
        CHECK(!strcmp(report_redact(path, out, sizeof out), "/mnt/HOST/x"));
    }
    CHECK(!strcmp(report_redact("abcdef", out, 4), "abc"));
}

/* ---- words ---- */

static void test_numbers_for_people(void)
{
    char out[32];
    CHECK(!strcmp(cli_count(out, 0), "0") && !strcmp(cli_count(out, 999), "999"));
    CHECK(!strcmp(cli_count(out, 1234567), "1,234,567"));
    CHECK(!strcmp(cli_count(out, UINT64_MAX), "18,446,744,073,709,551,615"));
    CHECK(!strcmp(cli_duration(out, 0.0025), "2.5 ms") && !strcmp(cli_duration(out, 42), "42 s"));
    CHECK(!strcmp(cli_duration(out, 1420), "23.7 min"));
    CHECK(!strcmp(cli_duration(out, 9000), "2.5 h") &&
          !strcmp(cli_duration(out, 864000), "10 days"));
}

static char *lines_at(const char *columns, const char *text, bool field)
{
    char *out = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&out, &size);
    setenv("COLUMNS", columns, 1);
    if (field)
        cli_print_field(stream, "label", 7, text);
    else
        cli_print_lines(stream, text);
    unsetenv("COLUMNS");
    fclose(stream);
    return out;
}

static void test_lines_are_cut_at_words(void)
{
    static const char row[] =
        "  device activations of a block    584.00 KiB  train_micro_batch_size\n";
    char *out = lines_at("50", "one two three four five six seven eight nine ten", true);
    CHECKF(!strcmp(out, "label    one two three four five six seven eight\n         nine ten\n"),
           "%s", out);
    free(out);
    out = lines_at("50", row, false);
    CHECKF(!strcmp(out, "  device activations of a block    584.00 KiB\n"
                        "         train_micro_batch_size\n"),
           "%s", out);
    free(out);
    out = lines_at("200", row, false);
    CHECKF(!strcmp(out, row), "%s", out);
    free(out);
    char wide[200];
    memset(wide, 'x', sizeof wide - 1);
    wide[sizeof wide - 1] = 0;
    out = lines_at("50", wide, false); /* one word: nowhere to cut */
    CHECK(strlen(out) == sizeof wide);
    free(out);
    out = lines_at("50", wide, true);
    CHECK(strstr(out, wide));
    free(out);
}

int main(void)
{
    zinf_log_to_stderr();
    TAP_RUN(test_values);
    TAP_RUN(test_words);
    TAP_RUN(test_refusals);
    TAP_RUN(test_kinds_of_rows);
    TAP_RUN(test_other_programs_names);
    TAP_RUN(test_unknown_option_offers_the_nearest);
    TAP_RUN(test_help);
    TAP_RUN(test_nearest);
    TAP_RUN(test_chart_of_known_values);
    TAP_RUN(test_chart_in_braille);
    TAP_RUN(test_chart_of_odd_values);
    TAP_RUN(test_progress);
    TAP_RUN(test_report_names_nobody);
    TAP_RUN(test_numbers_for_people);
    TAP_RUN(test_lines_are_cut_at_words);
    return tap_done();
}
