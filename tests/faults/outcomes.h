/* outcomes: what a damaged training may do then, and how often which damage to what led to each. */
#ifndef ZINF_TESTS_FAULTS_OUTCOMES_H
#define ZINF_TESTS_FAULTS_OUTCOMES_H

#include "damage.h"

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

/* Kinds of files, by a part of the path; the first that fits. */
static const char *const outcome_files[] = {
    "/extents",     "/commit",         "/steps",  "/lock",
    "run-id",       "log.jsonl",       ".tokens", "/optimizer/",
    ".safetensors", "trainer_state",   "/model",  "/checkpoint-",
    "latest",       "config.resolved", "ledger",  "/"};
#define OUTCOME_FILES ((int)(sizeof outcome_files / sizeof *outcome_files))

static int outcomes_by_damage[DAMAGES][OUTCOMES], outcomes_by_place[FAULT_PLACES][OUTCOMES];
static int outcomes_by_file[OUTCOME_FILES][OUTCOMES],
    outcomes_followed[2][OUTCOMES] /* verify --repair, --resume=DIR */,
    outcomes_by_region[REGION_THINGS][REGION_PARTS][OUTCOMES];

static inline void outcomes_count(enum damage damage, int place, const char *path, enum outcome o)
{
    int file = 0;
    while (!strstr(path + strlen(work) + strlen("/left"), outcome_files[file]))
        file++;
    outcomes_by_damage[damage][o]++;
    outcomes_by_place[place][o]++;
    outcomes_by_file[file][o]++;
    for (int i = 0; i < n_regions; i++)
        if (region_meets(&regions[i], damage_at, damage_n))
            outcomes_by_region[regions[i].thing][regions[i].part][o]++;
}

/* Each line by itself, so that those of several runs can be added up. */
static inline void outcomes_print_line(const char *table, const char *name, const int counts[])
{
    int sum = 0;
    for (int o = 0; o < OUTCOMES; o++)
        sum += counts[o];
    if (!sum)
        return;
    printf("# %-9s %-18s", table, name);
    for (int o = 0; o < OUTCOMES; o++)
        printf(" %9d", counts[o]);
    printf("\n");
}

static inline void outcomes_print(void)
{
    char place[32];
    printf("# %-9s %-18s", "", "");
    for (int o = 0; o < OUTCOMES; o++)
        printf(" %9s", outcome_names[o]);
    printf("\n");
    for (int d = 0; d < DAMAGES; d++)
        outcomes_print_line("damage", damage_names[d], outcomes_by_damage[d]);
    for (int p = 0; p < FAULT_PLACES; p++) {
        snprintf(place, sizeof place, "%s/%s", fault_places[p].param, fault_places[p].optimizer);
        outcomes_print_line("placement", place, outcomes_by_place[p]);
    }
    for (int f = 0; f < OUTCOME_FILES; f++)
        outcomes_print_line("file", outcome_files[f], outcomes_by_file[f]);
    for (int i = 0; i < REGION_THINGS * REGION_PARTS; i++) {
        const int thing = i / REGION_PARTS, part = i % REGION_PARTS;
        snprintf(place, sizeof place, "%s %s", region_things[thing], region_parts[part]);
        outcomes_print_line("packed", place, outcomes_by_region[thing][part]);
    }
    outcomes_print_line("then", "verify --repair", outcomes_followed[0]);
    outcomes_print_line("then", "--resume=DIR", outcomes_followed[1]);
}

#endif
