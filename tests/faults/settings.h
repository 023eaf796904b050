/*
 * settings: tiny trainings, no two alike. The n-th takes each of its traits in a cycle of a length
 * that shares no factor with most others', so that a few hundred meet nearly all pairs.
 */
#ifndef ZINF_TESTS_FAULTS_SETTINGS_H
#define ZINF_TESTS_FAULTS_SETTINGS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum fault_model {
    FAULT_DENSE,
    FAULT_ADAPTED, /* frozen, with adapters of rank 4 */
    FAULT_EXPERTS,
    FAULT_MIXED, /* a recurrent mixer beside attention: not drawn */
    FAULT_MODELS,
};
struct fault_setting {
    enum fault_model model;
    const char *param, *optimizer, *schedule;
    double sub_group;
    int paths, accumulation, seats;
    bool saves, async, flush;
    const char *pack;     /* zinf.pack */
    const char *number;   /* bf16, fp16 or fp32 */
    const char *kind;     /* of the optimizer */
    const char *engine;   /* of I/O; NULL: auto */
    const char *quantize; /* of the frozen base: nf4, int8; NULL: none */
    const char *extra;    /* further keys of "zinf", each after a comma; NULL: none */
};

/* Those whose steps outlive a process are drawn twice as often, and that with all on the drive
 * three times. 13 has no factor in common with any other length below. */
static const struct {
    const char *param, *optimizer;
} fault_places[] = {
    {"nvme", "nvme"}, {"cpu", "nvme"},  {"none", "nvme"}, {"nvme", "cpu"},  {"nvme", "nvme"},
    {"cpu", "cpu"},   {"none", "nvme"}, {"none", "cpu"},  {"nvme", "none"}, {"cpu", "nvme"},
    {"nvme", "nvme"}, {"cpu", "none"},  {"none", "none"},
};
#define FAULT_PLACES ((int)(sizeof fault_places / sizeof *fault_places))

static inline bool fault_keeps_steps(const struct fault_setting *s)
{
    return !strcmp(s->optimizer, "nvme") && strcmp(s->schedule, "update-in-place") != 0;
}

static inline struct fault_setting fault_setting_of(int n)
{
    static const char *const schedules[] = {"prefetch", "update-in-backward", "serial",
                                            "update-in-forward", "update-in-place"};
    static const char *const kinds[] = {"AdamW", "Adam",    "AdamW8bit", "Lion",
                                        "AdamW", "Adagrad", "SGD"};
    static const char *const numbers[] = {"bf16", "fp32", "fp16", "bf16"};
    static const char *const packs[] = {"off", "state", "all"};
    static const double sizes[] = {100000, 1000, 1e9, 10000};
    static const enum fault_model models[] = {FAULT_DENSE,   FAULT_DENSE, FAULT_ADAPTED,
                                              FAULT_EXPERTS, FAULT_DENSE, FAULT_ADAPTED,
                                              FAULT_EXPERTS};
    struct fault_setting s = {
        .model = models[n % 7],
        .param = fault_places[n % FAULT_PLACES].param,
        .optimizer = fault_places[n % FAULT_PLACES].optimizer,
        .schedule = schedules[n % 5],
        .sub_group = sizes[n % 4],
        .paths = 1 + n / 2 % 2,
        .accumulation = 1 + n / 3 % 2,
        .seats = 1,
        .saves = n % 3 == 1,
        .async = n / 3 % 2 == 1,
        .flush = n % 8 == 6,
        .pack = packs[n % 11 % 3],
        .number = numbers[n / 4 % 4],
        .kind = kinds[n / 5 % 7],
        .engine = n % 3 == 2 ? "threads" : NULL,
    };
    s.saves = s.saves || !fault_keeps_steps(&s);
    /* Several seats keep steps of one piece each, where parameters are offloaded too. */
    if (n % 5 == 1 && fault_keeps_steps(&s) && strcmp(s.param, "none") != 0) {
        s.seats = 2;
        s.async = false;
    }
    if (!strcmp(s.schedule, "update-in-place") && !strcmp(s.number, "fp16"))
        s.number = "bf16";
    return s;
}

/* For a line of a report. */
static inline const char *fault_setting_text(const struct fault_setting *s, char text[200])
{
    static const char *const models[] = {"dense", "adapted", "experts", "mixed"};
    snprintf(text, 200, "%s%s%s %s/%s %s %s %s group %.0f, %d path%s, x%d%s%s%s%s, pack %s%s%s",
             models[s->model], s->quantize ? " " : "", s->quantize ? s->quantize : "", s->param,
             s->optimizer, s->schedule, s->kind, s->number, s->sub_group, s->paths,
             s->paths == 2 ? "s" : "", s->accumulation, s->seats > 1 ? ", 2 seats" : "",
             s->saves ? ", saves" : "", s->async ? " async" : "", s->flush ? ", flushed" : "",
             s->pack, s->engine ? ", " : "", s->engine ? s->engine : "");
    return text;
}

#endif
