/*
 * chat_render: turns by a template. A conversation is a system's turn or none, then users (or
 * tools) and assistants in turn, users first: what is in another order no template means the same
 * by, so it is refused here for all of them.
 */
#include "text/chat/chat_template.h"

#include <stdlib.h>

/* ---- the script ---- */

int chat_script_add(struct chat_script *s, const char *text, size_t bytes, bool counts)
{
    size_t begin = s->text.count;
    if (!bytes)
        return 0;
    if (s->n_parts == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 16;
        void *grown = realloc(s->parts, capacity * sizeof *s->parts);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a conversation");
        s->parts = grown;
        s->capacity = capacity;
    }
    int code = text_buffer_add(&s->text, text, bytes);
    if (!code)
        s->parts[s->n_parts++] = (struct chat_part){begin, s->text.count, -1, counts};
    return code;
}

void chat_script_free(struct chat_script *s)
{
    text_buffer_free(&s->text);
    free(s->parts);
    *s = (struct chat_script){0};
}

/* ---- turns ---- */

struct turn_writer {
    struct chat_script *script;
    const struct zinf_chat *chat;
    const struct chat_template *template;
};

/* A string of the template; of one that is "#ID", the part is that token. */
static int put(const struct turn_writer *w, const char *string, const char *role, bool counts)
{
    static const char marks[] = CHAT_BEGIN CHAT_END CHAT_ROLE CHAT_BREAK;
    int code = 0;
    while (!code && string && *string) {
        size_t plain = strcspn(string, marks);
        code = chat_script_add(w->script, string, plain, counts);
        if (!code && *string == '#')
            w->script->parts[w->script->n_parts - 1].id = atoi(string + 1);
        string += plain;
        if (code || !*string)
            break;
        const char *word = *string == *CHAT_BEGIN  ? w->chat->begin
                           : *string == *CHAT_END  ? w->chat->end
                           : *string == *CHAT_ROLE ? role
                                                   : "";
        code = chat_script_add(w->script, word, strlen(word), counts);
        string++;
    }
    return code;
}

/* As Python's str.strip() has it. */
static bool is_space(int32_t c)
{
    return text_is_white_space(c) || (c >= 0x1c && c <= 0x1f);
}

static void trim(const char **text, size_t *bytes)
{
    size_t begin = 0, end = *bytes, used, start;
    while (begin < end && is_space(text_utf8_next(*text + begin, end - begin, &used)))
        begin += used;
    while (begin < end && is_space(text_utf8_previous(*text, begin, end, &start)))
        end = start;
    *text += begin;
    *bytes = end - begin;
}

/* The system's words, where they stand at the beginning of the user's, are trimmed with them. */
static int put_content(const struct turn_writer *w, const char *system, const char *content,
                       bool counts)
{
    const struct chat_template *t = w->template;
    const char *const parts[] = {t->system_in_user[0], system, t->system_in_user[1], content};
    struct text_buffer joined = {0};
    int code = 0;
    for (int i = system ? 0 : 3; !code && i < 4; i++)
        code = text_buffer_add(&joined, parts[i], strlen(parts[i]));
    const char *text = joined.bytes;
    size_t bytes = joined.count;
    if (!code && t->trims && bytes)
        trim(&text, &bytes);
    if (!code)
        code = chat_script_add(w->script, text, bytes, counts);
    text_buffer_free(&joined);
    return code;
}

static const struct chat_turn *turn_of(const struct chat_template *t, const char *role)
{
    return !strcmp(role, "system")      ? &t->system
           : !strcmp(role, "user")      ? &t->user
           : !strcmp(role, "assistant") ? &t->assistant
           : !strcmp(role, "tool")      ? &t->tool
                                        : NULL;
}

static int put_turn(const struct turn_writer *w, const struct zinf_chat_message *m,
                    const char *system, bool last)
{
    const struct chat_turn *turn = turn_of(w->template, m->role);
    bool counts = turn == &w->template->assistant && !m->silent;
    bool by_role = w->template->stops_by_role && !last;
    int code = put(w, turn->before, m->role, false);
    if (!code)
        code = put_content(w, system, m->content, counts);
    if (!code && !by_role)
        code = put(w, turn->stop, m->role, counts);
    return code ? code : put(w, turn->after, m->role, false);
}

/* ---- the order ---- */

static int check_roles(const struct chat_template *t, const struct zinf_chat_message *messages,
                       size_t n)
{
    bool asked = false; /* the last turn wants an answer */
    for (size_t i = 0; i < n; i++) {
        const char *role = messages[i].role;
        bool is_system = !strcmp(role, "system"), is_answer = !strcmp(role, "assistant");
        bool is_tool = !strcmp(role, "tool");
        const struct chat_turn *turn = turn_of(t, role);
        if (!turn)
            return zinf_fail(-EINVAL, "the role \"%s\" is not one of system, user, assistant, tool",
                             role);
        if (!turn->before && !(is_system && t->system_in_user[0]))
            return zinf_fail(-EINVAL, "the chat template \"%s\" has no turns of \"%s\"", t->name,
                             role);
        if (is_system ? i > 0 : is_answer != asked && !(is_tool && asked && i))
            return zinf_fail(-EINVAL,
                             "roles out of order: turn %zu is of \"%s\"; system, if any, comes "
                             "first, then user and assistant by turns",
                             i + 1, role);
        asked = !is_system && !is_answer;
    }
    return n ? 0 : zinf_fail(-EINVAL, "the conversation has no turns");
}

int chat_write(struct chat_script *script, const struct zinf_chat *chat,
               const struct zinf_chat_message *messages, size_t n, bool answers)
{
    const struct chat_template *t = chat->template;
    const struct turn_writer w = {script, chat, t};
    const char *system = NULL; /* where the first user's turn holds it */
    int code = check_roles(t, messages, n);
    bool has_system = !code && !strcmp(messages[0].role, "system");
    if (!code)
        code = put(&w, t->begin, NULL, false);
    if (!code && !has_system)
        code = put(&w, t->no_system, NULL, false);
    for (size_t i = 0; !code && i < n; i++) {
        if (!i && has_system && t->system_in_user[0]) {
            system = messages[0].content;
            continue;
        }
        size_t before = script->n_parts;
        code = put_turn(&w, &messages[i], system, i + 1 == n);
        system = NULL;
        if (!code && t->stops_by_role && i && before < script->n_parts)
            script->parts[before].counts =
                !strcmp(messages[i - 1].role, "assistant") && !messages[i - 1].silent;
    }
    if (!code)
        code = put(&w, answers ? t->answer : t->end, NULL, false);
    return code;
}
