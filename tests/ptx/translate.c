/*
 * translate: an entry's text into instructions: declarations give registers their rows, statements
 * become operands and words of an opcode, for which lanes.h, access.c and warp.c have the code.
 */
#include "builder.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool ptx_has_word(const struct ptx_statement *s, const char *word)
{
    for (int i = 1; i < s->n_words; i++)
        if (!strcmp(s->words[i], word))
            return true;
    return false;
}

/* ---- statements ---- */

/* Splits "op.words a, {b, c}, [d+1]". The words are cut out of text, which must last. */
static bool read_statement(struct ptx_builder *b, char *text, struct ptx_statement *s)
{
    char *rest = text + strcspn(text, " \t\n");
    memset(s, 0, sizeof *s);
    if (*rest)
        *rest++ = 0;
    char *save = NULL;
    for (char *word = strtok_r(text, ".", &save); word; word = strtok_r(NULL, ".", &save)) {
        if (s->n_words == PTX_MOST_WORDS)
            return false;
        s->words[s->n_words++] = word;
        enum ptx_type type = ptx_type_of(word, strlen(word));
        s->type = type ? type : s->type;
    }
    for (char *at = rest; *at;) {
        int depth = 0;
        char *end = at;
        for (; *end && (depth || *end != ','); end++)
            depth += (*end == '{' || *end == '[') - (*end == '}' || *end == ']');
        const char *start = at;
        size_t n = (size_t)(end - at);
        builder_trim(&start, &n);
        if (n && (s->n == PTX_MOST_OPERANDS || !builder_operand(b, start, n, &s->operands[s->n++])))
            return false;
        at = end + (*end == ',');
    }
    return s->n_words > 0;
}

static struct ptx_instr *new_instr(struct ptx_builder *b)
{
    struct ptx_kernel *k = b->kernel;
    if (k->n_code == b->room) {
        b->room = 2 * b->room + 256;
        k->code = realloc(k->code, (size_t)b->room * sizeof *k->code);
    }
    struct ptx_instr *i = &k->code[k->n_code++];
    memset(i, 0, sizeof *i);
    i->guard = -1;
    return i;
}

static void add_statement(struct ptx_builder *b, char *text)
{
    struct ptx_statement s;
    struct ptx_instr *i = new_instr(b);
    i->text = b->statement;
    if (*text == '@') {
        char *blank = text + strcspn(text, " \t\n");
        struct ptx_operand guard;
        if (*blank)
            *blank++ = 0;
        memset(&guard, 0, sizeof guard);
        i->guard_not = text[1] == '!';
        const char *name = text + 1 + i->guard_not;
        if (!builder_register(b, name, strlen(name), &guard))
            builder_refuse(b, "a guard that is no register");
        i->guard = guard.at;
        text = blank + strspn(blank, " \t\n");
    }
    if (!read_statement(b, text, &s)) {
        builder_refuse(b, "operands that are not known");
        return;
    }
    ptx_choose_lanes(b, &s, i);
    if (!i->run && i->kind == PTX_PLAIN)
        ptx_choose_access(b, &s, i);
    if (!i->run && i->kind == PTX_PLAIN)
        ptx_choose_warp(b, &s, i);
    if (!i->run && i->kind == PTX_PLAIN)
        builder_refuse(b, "an instruction that the interpreter does not know");
}

/* Skips blanks, comments and the braces of inline assembly. */
static const char *skip_to_statement(const char *at, const char *end)
{
    for (;;) {
        while (at < end && (isspace((unsigned char)*at) || *at == '{' || *at == '}'))
            at++;
        if (at + 1 < end && at[0] == '/' && at[1] == '/')
            at += strcspn(at, "\n");
        else if (at + 1 < end && at[0] == '/' && at[1] == '*')
            at = strstr(at, "*/") + 2;
        else
            return at;
    }
}

/* A label "$NAME:"; its length, or 0. */
static size_t label_at(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == '$'))
        n++;
    return n && at + n < end && at[n] == ':' ? n : 0;
}

/* The statements, or only where the labels will be. */
static void walk(struct ptx_builder *b, bool labels)
{
    int place = 0;
    char text[4096];
    for (const char *at = skip_to_statement(b->kernel->body, b->kernel->end);
         at < b->kernel->end && !b->failed; at = skip_to_statement(at, b->kernel->end)) {
        size_t n = label_at(at, b->kernel->end);
        if (n) {
            if (labels)
                builder_add_label(b, at, n, place);
            at += n + 1;
            continue;
        }
        const char *semicolon = memchr(at, ';', (size_t)(b->kernel->end - at));
        size_t length = semicolon ? (size_t)(semicolon - at) : 0;
        b->statement = at;
        if (!semicolon || length >= sizeof text) {
            builder_refuse(b, "a statement without an end");
            return;
        }
        place += *at != '.';
        if (!labels) {
            memcpy(text, at, length);
            text[length] = 0;
            *at == '.' ? builder_declare(b, text) : add_statement(b, text);
        }
        at = semicolon + 1;
    }
}

/* Registers come behind the constants, whose number is known now. */
static void place_registers(struct ptx_builder *b)
{
    struct ptx_kernel *k = b->kernel;
    unsigned base = (b->image_bytes + 63) / 64 * 64;
    for (int i = 0; i < k->n_code; i++) {
        struct ptx_instr *in = &k->code[i];
        int32_t *rows[] = {in->d, in->a, in->b, in->c};
        for (int r = 0; r < 16; r++) {
            int32_t *row = &rows[r / 4][r % 4];
            if (*row >= 0 && *row & IS_REGISTER)
                *row = (int32_t)base + (*row & ~IS_REGISTER);
        }
        if (in->guard >= 0)
            in->guard = (int32_t)base + (in->guard & ~IS_REGISTER);
    }
    k->constants = b->image;
    k->constant_bytes = b->image_bytes;
    k->file_bytes = base + b->file_bytes;
}

bool ptx_translate(struct ptx_kernel *kernel)
{
    struct ptx_builder *b = calloc(1, sizeof *b);
    int32_t at;
    free(kernel->code);
    free(kernel->constants);
    kernel->code = NULL;
    kernel->n_code = 0;
    kernel->shared_bytes = kernel->local_bytes = 0;
    b->kernel = kernel;
    for (int i = 0; i < PTX_SPECIALS; i++)
        builder_row(b, 4, &at);
    if (!kernel->end || !kernel->good)
        builder_refuse(b, "an entry that is cut off, or parameters that are not known");
    if (!b->failed)
        walk(b, true);
    if (!b->failed)
        walk(b, false);
    place_registers(b);
    kernel->translated = true;
    kernel->good = !b->failed;
    kernel->planted = 0;
    builder_free(b);
    if (kernel->good)
        ptx_plant(kernel);
    return kernel->good;
}
