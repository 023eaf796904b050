/*
 * chat_jinja: a built-in template in the notation of transformers, for the folder of a model that
 * was trained by it. The same text is recognised when such a folder is opened.
 */
#include "text/chat/chat_template.h"

/* Pieces of text, to a NULL. */
static int add(struct text_buffer *out, const char *const *pieces)
{
    int code = 0;
    for (; !code && *pieces; pieces++)
        code = text_buffer_add(out, *pieces, strlen(*pieces));
    return code;
}
#define ADD(out, ...) add(out, (const char *const[]){__VA_ARGS__, NULL})

/* A string of a template as an expression: 'text' + (eos_token or '') + ... */
static int add_expression(struct text_buffer *out, const char *string)
{
    int code = ADD(out, "'");
    for (; !code && *string; string++) {
        if (*string == '\n')
            code = ADD(out, "\\n");
        else if (*string == *CHAT_BEGIN)
            code = ADD(out, "' + (bos_token or '') + '");
        else if (*string == *CHAT_END)
            code = ADD(out, "' + (eos_token or '') + '");
        else if (*string == *CHAT_ROLE)
            code = ADD(out, "' + m['role'] + '");
        else /* no template has quotes or backslashes */
            code = text_buffer_add(out, string, 1);
    }
    return code ? code : ADD(out, "'");
}

static int add_print(struct text_buffer *out, const char *string)
{
    int code = ADD(out, "{{ ");
    if (!code)
        code = add_expression(out, string ? string : "");
    return code ? code : ADD(out, " }}");
}

/* One role's branch of the loop; a role without one is refused behind them. */
static int add_turn(struct text_buffer *out, const struct chat_template *t, const char *role,
                    const struct chat_turn *turn)
{
    bool holds_system = t->system_in_user[0] && turn == &t->user;
    if (!turn->before)
        return 0;
    int code = ADD(out, "{% elif m['role'] == '", role, "' %}{{ ");
    if (!code)
        code = add_expression(out, turn->before);
    if (!code)
        code = ADD(out, holds_system ? " + (s.text + m['content'])" : " + m['content']",
                   t->trims ? " | trim + " : " + ");
    if (!code)
        code = add_expression(out, turn->stop);
    if (!code)
        code = ADD(out, " + ");
    if (!code)
        code = add_expression(out, turn->after);
    return code ? code : ADD(out, " }}", holds_system ? "{% set s.text = '' %}" : "");
}

/* The system's turn, or its words put aside for the first user's; then the others. */
static int add_loop(struct text_buffer *out, const struct chat_template *t)
{
    int code = ADD(out,
                   "{% set s = namespace(text='') %}{% for m in messages %}"
                   "{% if m['role'] == 'system' and ",
                   t->system_in_user[0] ? "true" : "false", " %}{% set s.text = ");
    if (!code)
        code = add_expression(out, t->system_in_user[0] ? t->system_in_user[0] : "");
    if (!code)
        code = ADD(out, " + m['content'] + ");
    if (!code)
        code = add_expression(out, t->system_in_user[0] ? t->system_in_user[1] : "");
    if (!code)
        code = ADD(out, " %}");
    if (!code)
        code = add_turn(out, t, "system", &t->system);
    if (!code)
        code = add_turn(out, t, "user", &t->user);
    if (!code)
        code = add_turn(out, t, "assistant", &t->assistant);
    if (!code)
        code = add_turn(out, t, "tool", &t->tool);
    return code ? code
                : ADD(out, "{% else %}{{ raise_exception('no turns of ' + m['role']) }}{% endif %}"
                           "{% endfor %}");
}

int chat_write_jinja(struct text_buffer *out, const struct chat_template *t)
{
    if (t->separate)
        return zinf_fail(-ENOTSUP, "the chat template \"%s\" is one of ids, not of text", t->name);
    int code = add_print(out, t->begin);
    if (!code)
        code = ADD(out, "{% if messages[0]['role'] != 'system' %}");
    if (!code)
        code = add_print(out, t->no_system);
    if (!code)
        code = ADD(out, "{% endif %}");
    if (!code)
        code = add_loop(out, t);
    if (!code)
        code = ADD(out, "{% if add_generation_prompt %}");
    if (!code)
        code = add_print(out, t->answer);
    if (!code)
        code = ADD(out, "{% else %}");
    if (!code)
        code = add_print(out, t->end);
    return code ? code : ADD(out, "{% endif %}");
}

int zinf_chat_jinja(const struct zinf_chat *chat, char **text)
{
    struct text_buffer out = {0};
    int code = chat_write_jinja(&out, chat->template);
    if (!code)
        code = text_buffer_add(&out, "\n", 2); /* with its NUL */
    if (code) {
        text_buffer_free(&out);
        return code;
    }
    *text = out.bytes;
    return 0;
}
