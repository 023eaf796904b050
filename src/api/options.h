/*
 * options: what a user may ask for, one row each. Of a row are made: how its value is read and
 * checked, `zinf help`, the lists of the manual pages, the words that shells complete, the
 * arguments of the library's door and those of Python. A row whose value is a key of the
 * configuration names the key: its range and its words are the key's, and nothing else needs to
 * know of the option.
 *
 * Rows stand in groups, and each command names the groups that it takes. Nothing is abbreviated: a
 * script that works today works when options are added. Names of other programs that mean exactly
 * the same are taken as well (aliases); one that does not is an error that names ours.
 */
#ifndef ZINF_API_OPTIONS_H
#define ZINF_API_OPTIONS_H

#include "base/base.h"
#include "config/config.h"

enum option_kind {                 /* what stands at the row's offset */
                   OPTION_FLAG,    /* bool */
                   OPTION_TEXT,    /* const char * */
                   OPTION_MAYBE,   /* const char *: a text after '=', or "" */
                   OPTION_TEXTS,   /* struct zinf_words: repeats, and takes words up to the next
                                      option */
                   OPTION_WORD,    /* an enum: the place of the value in words */
                   OPTION_INTEGER, /* int64_t */
                   OPTION_NUMBER,  /* double */
                   OPTION_SIZE,    /* uint64_t: 4GiB */
};
#define ZINF_MOST_WORDS 256
struct zinf_words {
    const char *items[ZINF_MOST_WORDS];
    int n;
};

struct option {
    const char *flag; /* "--seq-len"; in the library "seq-len" or "seq_len" */
    enum option_kind kind;
    size_t offset;            /* of the value in what the group fills; of a row with a key: of a
                               * struct zinf_config_settings there */
    const char *value;        /* what help calls the value: "N", "FILE..." */
    const char *help;         /* what it does, in a part of a sentence */
    double min, max;          /* of numbers, inclusive; both 0: the key's range, or any */
    const char *usual;        /* the value where none is given, read like one that is */
    const char *otherwise;    /* or what decides then, in words */
    const char *key;          /* of the configuration (config.h: struct zinf_config_setting) */
    const char *const *words; /* what the value may be, with a NULL behind; NULL: the key's */
    const char *(*word)(size_t i); /* the same as a function; NULL is the last */
    bool open;                     /* values beside the words are good, too: they are but offered */
    const char *aliases;           /* "learning_rate": names of other programs with blanks between;
                                    * "bf16=bf16": one that takes no value and means that word */
    bool is_length;     /* an integer that may end in K or M: 1,024 or 1,048,576 times as much */
    const char *manual; /* paragraph of the manual pages, in mdoc; NULL: help as a sentence */
};
/* A row: at is its .offset. */
#define OPTION(flag_, kind_, at, value_, help_, ...)                                               \
    {                                                                                              \
        .flag = flag_, .kind = OPTION_##kind_, at, .value = value_, .help = help_, __VA_ARGS__     \
    }
struct option_group {
    const struct option *rows; /* the last has no flag */
    size_t at;                 /* of what they fill, in the caller's struct */
    const char *title;         /* of the part of the help that begins here, or NULL */
    bool door; /* what is given of them goes to a session as it is (api.h), and is read there */
};

/* Groups come as an array whose last has no rows. The rows of all, one after the other: NULL behind
 * the last. *group: the row's. */
const struct option *option_at(const struct option_group *groups, size_t i,
                               const struct option_group **group);
/* The row of a name of length characters: with or without dashes before it, - and _ are alike.
 * *fixed: the value that an alias stands for, else NULL. NULL: there is none. */
const struct option *option_find(const struct option_group *groups, const char *name, size_t length,
                                 const struct option_group **group, const char **fixed);
/* Reads text into base (the caller's struct) as the row says; said: the option's name in messages,
 * which a setting keeps. -EINVAL with a sentence. */
int option_read(const struct option *option, const struct option_group *group, const char *text,
                const char *said, void *base);
/* Puts the usual value of every row into base; to be called before values are read. */
int option_read_usual(const struct option_group *groups, void *base);
/* -EINVAL and why: no row has the name; the nearest one, or what to use instead of a name that
 * another program has. what: "unknown option". */
int option_fail_unknown(const struct option_group *groups, const char *what, const char *name);
/* The words of a row, one by one; NULL behind the last. */
const char *option_word(const struct option *option, size_t i);

/* The nearest of n words to word, or NULL if none is near (edit distance). */
const char *zinf_nearest(const char *word, const char *const *words, size_t n);

#endif
