/*
 * config_private: the key table, and what the files of this folder share.
 *
 * The table has a row for every key: where its value is in struct zinf_config, its default, what
 * "auto" means, and whether it has an effect. Reading, resolving, printing and writing all go by
 * the table, so a new key is one row. Entry i of a configuration belongs to row i.
 */
#ifndef ZINF_CONFIG_PRIVATE_H
#define ZINF_CONFIG_PRIVATE_H

#include "base/base.h"
#include "base/json.h"
#include "config/config.h"

enum key_type {
    KEY_BOOL,   /* bool; with choices: the two words for false and true */
    KEY_INT,    /* int64_t; 5e8 is an integer */
    KEY_NUMBER, /* double */
    KEY_SIZE,   /* uint64_t bytes, a number or "4GiB" */
    KEY_TEXT,   /* char *, one of choices if there are any */
    KEY_NAME,   /* char[16], one of choices, in their spelling */
    KEY_CHOICE, /* an enum: the index into choices */
    KEY_PAIR,   /* double[2] */
    /* nvme_path of the struct zinf_config_offload at offset: a string or a list of strings */
    KEY_PATHS,
    KEY_JSON, /* char *, the text of an object or list, whose members are not checked here */
    KEY_ANY,  /* accepted unchecked and not stored */
};

enum key_use {
    KEY_USED,
    KEY_ACCEPTED,    /* known, without effect here; listed in a note */
    KEY_UNSUPPORTED, /* an error, unless the value is one that zinf has anyway */
    KEY_IGNORED,     /* known, ignored silently */
};

/* What "auto" means. Keys that are not used accept "auto" in any case. */
enum auto_rule {
    AUTO_ERROR,   /* an error */
    AUTO_DEFAULT, /* as if the key were absent */
    AUTO_BATCH,   /* from the other two of the batch triple and the command line */
    AUTO_LR,      /* from the command line */
    AUTO_MAX_LR,  /* optimizer.params.lr */
    AUTO_DTYPE,   /* true if the model folder has this number type */
    AUTO_CHUNK,   /* by the sequence length */
    AUTO_PREFETCH,
    AUTO_PERSISTENCE,
    AUTO_WARMUP_STEPS,
    AUTO_TOTAL_STEPS,
    AUTO_VALUE, /* .number, as Hugging Face's training arguments define it */
};

/* Bits of zinf_config_key.takers: 1 << enum zinf_scheduler_kind, then the optimizers. */
enum {
    TAKER_ADAMW = 1 << 16,
    TAKER_ADAM = 1 << 17,
    TAKER_LION = 1 << 18,
    TAKER_ADAGRAD = 1 << 19,
    TAKER_SGD = 1 << 20,
    TAKER_ADAFACTOR = 1 << 21,
    TAKER_ADAMW8BIT = 1 << 22,
    TAKER_MUON = 1 << 23,
    TAKER_NORMUON = 1 << 24,
    TAKER_GALORE = 1 << 25,
    TAKER_APOLLO = 1 << 26,
    TAKER_APOLLO_MINI = 1 << 27,
    TAKER_OPTIMIZERS = 0xfff0000,
};

struct zinf_config_key {
    const char *path; /* "a.b.c"; a last part "*" stands for every other member of the section */
    enum key_type type;
    enum key_use use;
    enum auto_rule rule;
    /* optimizers or schedulers that have this parameter; 0: it is no such parameter */
    unsigned takers;
    bool loose;      /* numbers and booleans may be written as strings */
    bool below_max;  /* max is not allowed */
    bool list;       /* KEY_JSON: a list */
    bool above_min;  /* min is not allowed */
    bool by_enabled; /* KEY_UNSUPPORTED: only if its member "enabled" is true */
    bool warns;      /* KEY_UNSUPPORTED: a warning, and training goes on without it */
    size_t offset;   /* in struct zinf_config, of a used key */
    double number;   /* default: a number, 0 or 1, or the index of a choice */
    double second;   /* KEY_PAIR: second default; KEY_UNSUPPORTED: another acceptable value */
    double min, max;
    const char *text; /* default of KEY_TEXT, KEY_NAME */
    const char *const *choices;
    /* KEY_UNSUPPORTED: rest of the sentence that begins "KEY is VALUE: "; KEY_ACCEPTED: why it has
     * no effect */
    const char *why;
};
extern const struct zinf_config_key zinf_config_keys[];
extern const size_t zinf_config_n_keys;

/* Another spelling of a key. */
enum alias_change {
    ALIAS_SAME,
    ALIAS_CPU,   /* true means "cpu", false means nothing */
    ALIAS_STAGE, /* true means 1, false means 0 */
};
struct zinf_config_alias {
    const char *path, *key;
    enum alias_change change;
};
extern const struct zinf_config_alias zinf_config_aliases[];
extern const size_t zinf_config_n_aliases;

enum entry_state {
    ENTRY_DEFAULT,
    ENTRY_AUTO, /* "auto", not resolved yet */
    ENTRY_FILE,
    ENTRY_CONTEXT,  /* command line */
    ENTRY_RESOLVED, /* by an auto rule, or from other keys */
};
struct config_entry {
    enum entry_state state;
    bool in_file; /* present and not null, even if another source won */
    bool is_auto; /* present as "auto" */
    /* value in the file of a key that is not stored: 0 or 1, number, index of a choice */
    double number;
    int line; /* 0: unknown */
    /* option that would resolve an "auto" that is only shown; its value is a placeholder */
    const char *wanted;
    char *source; /* NULL: default */
};
struct zinf_config_entries {
    char *what; /* the file's name in messages */
    struct config_entry *item;
};

/* A value between JSON and the struct; texts and paths are borrowed from the document. */
struct config_value {
    double number;
    int64_t integer;
    uint64_t size;
    double pair[2];
    const char *text;
    const cJSON *object;
    const char *paths[ZINF_CONFIG_MAX_PATHS];
    int n_paths;
};

/* The state of one load. */
struct config_loader {
    struct zinf_config *config;
    const struct zinf_config_context *context;
    const char *text;
    size_t bytes;
    const char *what;
    cJSON *document; /* NULL: no file */
    char *unknown;   /* a line for each unknown key; NULL: none */
    int n_unknown;
    char *accepted; /* "a, b, c": known keys without effect */
    char *renamed;  /* "old -> new, ..." */
    char *comments; /* keys that begin with _, which are comments */
};

/* config_names.c */
const struct zinf_config_key *zinf_config_key_find(const char *path);
const struct zinf_config_alias *zinf_config_alias_find(const char *path);
bool zinf_config_section_known(const char *path);
/* Whether no key of the section that path is in has an effect here; and whether no key with this
 * last name has. */
bool zinf_config_section_idle(const char *path);
bool zinf_config_name_idle(const char *name);
/* Writes the end of the message about an unknown key, with what was probably meant. False: unknown.
 */
bool zinf_config_key_suggest(const char *path, char *out, size_t out_bytes);
int zinf_config_edit_distance(const char *a, const char *b);

/* config_yaml.c: whether a file is YAML, by its name and lines; and its conversion to plain JSON,
 * which the caller frees. Each value keeps its line. */
bool zinf_config_is_yaml(const char *text, size_t bytes, const char *what);
int zinf_config_yaml(const char *text, size_t bytes, const char *what, char **out,
                     size_t *out_bytes);
/* config_foreign.c: converts *json, on the heap, to DeepSpeed's keys if it is a file of Accelerate
 * or gdGPT. quiet: does not log what is left out. */
int zinf_config_foreign(char **json, size_t *bytes, const char *what, bool quiet);
/* Options of the command that such a file has (zinf_config_job). */
int zinf_config_job_of(const cJSON *document,
                       int (*take)(void *arg, const char *option, const char *text), void *arg);

/* config_hjson.c: converts Hjson to plain JSON, which the caller frees. Each value keeps its line.
 */
int zinf_config_hjson(const char *text, size_t bytes, const char *what, char **out,
                      size_t *out_bytes);

/* config_value.c */
/* Messages begin with `where`, such as "ds.json:12". */
int zinf_config_value_parse(const struct zinf_config_key *key, const cJSON *json, const char *where,
                            struct config_value *out);
int zinf_config_value_store(struct zinf_config *config, const struct zinf_config_key *key,
                            const struct config_value *value);
int zinf_config_value_default(struct zinf_config *config, const struct zinf_config_key *key);
/* The present value as JSON text, which the caller frees; NULL: no memory. */
char *zinf_config_value_text(const struct zinf_config *config, const struct zinf_config_key *key);
/* The present value for people: sizes in bytes also in larger units. */
char *zinf_config_value_shown(const struct zinf_config *config, const struct zinf_config_key *key);
bool zinf_config_value_is_default(const struct zinf_config_key *key,
                                  const struct config_value *value);

/* config_auto.c: handles an "auto" that only `option` could resolve, in a configuration that is
 * only shown. */
int zinf_config_leave_open(struct config_loader *loader, struct config_entry *entry,
                           const char *option, const char *otherwise);

/* config_entry.c; path must be a known key. */
struct config_entry *zinf_config_entry(const struct zinf_config *config, const char *path);
/* Sets state and source; -ENOMEM. */
int zinf_config_entry_mark(struct config_entry *entry, enum entry_state state, const char *format,
                           ...) ZINF_PRINTF(3, 4);
/* "ds.json:12: zero_optimization.stage", to begin a message. One static buffer for each thread. */
const char *zinf_config_where(const struct zinf_config *config, const char *path);
/* zinf_log, unless the load is quiet. */
void zinf_config_note(const struct config_loader *loader, enum zinf_log_level level,
                      const char *format, ...) ZINF_PRINTF(3, 4);
/* Appends to a heap string with separator; -ENOMEM. */
int zinf_config_list_append(char **list, const char *separator, const char *item);
/* Whether the configuration's optimizer or scheduler has this parameter. */
bool zinf_config_key_applies(const struct zinf_config *config, const struct zinf_config_key *key);
/* config_print.c: the text that zinf_config_write writes, freed with cJSON_free. NULL: no memory.
 */
char *zinf_config_text(const struct zinf_config *config, bool with_sources);

/* The steps of a load, in order. */
int zinf_config_read(struct config_loader *loader);          /* config_read.c */
int zinf_config_apply_context(struct config_loader *loader); /* config_context.c */
int zinf_config_check_optimizer_type(struct config_loader *loader, const cJSON *type);
int zinf_config_resolve_kinds(struct config_loader *loader);    /* config_check.c */
int zinf_config_resolve_trainer(struct config_loader *loader);  /* config_trainer.c */
int zinf_config_resolve_auto(struct config_loader *loader);     /* config_auto.c */
int zinf_config_resolve_defaults(struct config_loader *loader); /* config_auto.c */
int zinf_config_resolve_batch(struct config_loader *loader);    /* config_batch.c */
int zinf_config_check(struct config_loader *loader);            /* config_check.c */

#endif
