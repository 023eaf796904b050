/*
 * spelling: sentences of the library call options as the command has them: --seq-len. Who calls
 * them by their names reads "option seq-len" instead. What stands within a command that is
 * proposed, such as zinf eval --task reward, stays.
 */
#include "api/rows.h"

#include <ctype.h>

/* Bytes of the option's name at text, behind its dashes; 0: there is none. */
static size_t option_bytes(const char *text)
{
    const struct option_group *group;
    const char *fixed;
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
    while (n && text[n - 1] == '-')
        n--;
    return n && option_find(job_groups, text, n, &group, &fixed) ? n : 0;
}

/* From the last stop on a command has been named. */
static bool is_in_command(const char *text, const char *at)
{
    static const char *const commands[] = {"zinf ", "-cli ", "mpirun ", "srun ", "torchrun "};
    const char *begin = at;
    while (begin > text && !strchr(";:,(", begin[-1]))
        begin--;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (memmem(begin, (size_t)(at - begin), commands[i], strlen(commands[i])))
            return true;
    return false;
}

static void spell(char *out, size_t out_bytes, const char *text)
{
    size_t used = 0;
    for (const char *at = text; *at && used + 1 < out_bytes;) {
        const bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '-');
        const bool dashes = begins && at[0] == '-' && at[1] == '-';
        const size_t n = dashes && !is_in_command(text, at) ? option_bytes(at + 2) : 0;
        if (n) {
            used += (size_t)snprintf(out + used, out_bytes - used, "option %.*s", (int)n, at + 2);
            at += 2 + n;
        } else {
            out[used++] = *at++;
        }
    }
    out[used < out_bytes ? used : out_bytes - 1] = 0;
}

void option_spell_names(bool by_name)
{
    zinf_spell_by(by_name ? spell : NULL);
}
