/*
 * serve_answer: JSON of each dialect. A stream is server-sent events: "data: {...}" and an empty
 * line each.
 */
#include "cli/serve/serve.h"

#include <stdlib.h>

/* ---- bytes ---- */

int serve_bytes_add(struct serve_bytes *b, const void *more, size_t n)
{
    if (b->room - b->n < n) {
        const size_t room = 2 * (b->n + n) + 256;
        char *moved = realloc(b->at, room);
        if (!moved)
            return zinf_fail(-ENOMEM, "no memory for an answer of %zu bytes", room);
        b->at = moved;
        b->room = room;
    }
    if (n)
        memcpy(b->at + b->n, more, n);
    b->n += n;
    return 0;
}

void serve_bytes_free(struct serve_bytes *b)
{
    free(b->at);
    *b = (struct serve_bytes){0};
}

static int add_text(struct serve_bytes *out, const char *text)
{
    return serve_bytes_add(out, text, strlen(text));
}

/* Frees json; event: of a stream. */
static int add_json(struct serve_bytes *out, cJSON *json, bool event)
{
    char *text = json ? cJSON_PrintUnformatted(json) : NULL;
    int code = text ? 0 : zinf_fail(-ENOMEM, "no memory for an answer");
    if (!code && event)
        code = add_text(out, "data: ");
    if (!code)
        code = add_text(out, text);
    if (!code)
        code = add_text(out, event ? "\n\n" : "\n");
    cJSON_free(text);
    cJSON_Delete(json);
    return code;
}

static cJSON *add_object(cJSON *list)
{
    cJSON *object = cJSON_CreateObject();
    return cJSON_AddItemToArray(list, object) ? object : NULL;
}

/* ---- numbers ---- */

static const char *finish_openai(const struct serve_text *t)
{
    const enum zinf_finish finish = t->text.made.finish;
    return finish == ZINF_FINISH_END || finish == ZINF_FINISH_STOP ? "stop" : "length";
}

static const char *finish_tgi(const struct serve_text *t)
{
    const enum zinf_finish finish = t->text.made.finish;
    return finish == ZINF_FINISH_END    ? "eos_token"
           : finish == ZINF_FINISH_STOP ? "stop_sequence"
                                        : "length";
}

static int64_t prompt_tokens(const struct zinf_text *made)
{
    return made->source ? made->n_source : made->n_prompt;
}

/* Of copies of a prompt the first counts its tokens. */
static void add_usage(const struct serve_request *r, cJSON *to)
{
    int64_t prompts = 0, new_tokens = 0;
    for (int i = 0; i < r->n_texts; i++) {
        prompts += i % r->ask.copies ? 0 : prompt_tokens(&r->texts[i].text.made);
        new_tokens += r->texts[i].text.made.n_new;
    }
    cJSON *usage = cJSON_AddObjectToObject(to, "usage");
    cJSON_AddNumberToObject(usage, "prompt_tokens", (double)prompts);
    cJSON_AddNumberToObject(usage, "completion_tokens", (double)new_tokens);
    cJSON_AddNumberToObject(usage, "total_tokens", (double)(prompts + new_tokens));
}

/* ---- OpenAI ---- */

static cJSON *openai_head(const struct serve_request *r, bool event)
{
    cJSON *head = cJSON_CreateObject();
    const char *kind = r->ask.dialect != SERVE_CHAT ? "text_completion"
                       : event                      ? "chat.completion.chunk"
                                                    : "chat.completion";
    cJSON_AddStringToObject(head, "id", r->id);
    cJSON_AddStringToObject(head, "object", kind);
    cJSON_AddNumberToObject(head, "created", (double)r->created);
    cJSON_AddStringToObject(head, "model", r->model->name);
    return head;
}

/* What a choice of an event or of an answer says. */
struct choice {
    bool role;
    const char *text; /* of so many bytes; NULL: none */
    size_t bytes;
    const char *finish; /* NULL: it goes on */
};

static void add_choice(cJSON *choices, const struct serve_text *t, const char *part,
                       const struct choice *c)
{
    cJSON *choice = add_object(choices);
    cJSON *holder = choice;
    cJSON_AddNumberToObject(choice, "index", (double)t->index);
    if (t->request->ask.dialect == SERVE_CHAT) {
        holder = cJSON_AddObjectToObject(choice, part);
        if (c->role)
            cJSON_AddStringToObject(holder, "role", "assistant");
        if (c->text)
            zinf_json_add_text(holder, "content", c->text, c->bytes);
    } else
        zinf_json_add_text(holder, "text", c->text ? c->text : "", c->bytes);
    cJSON_AddItemToObject(choice, "logprobs", cJSON_CreateNull());
    cJSON_AddItemToObject(choice, "finish_reason",
                          c->finish ? cJSON_CreateString(c->finish) : cJSON_CreateNull());
}

static int say_chunk(const struct serve_text *t, bool role, const char *text, size_t bytes,
                     const char *finish, struct serve_bytes *out)
{
    cJSON *head = openai_head(t->request, true);
    add_choice(cJSON_AddArrayToObject(head, "choices"), t, "delta",
               &(struct choice){role, text, bytes, finish});
    return add_json(out, head, true);
}

static int say_openai(const struct serve_request *r, struct serve_bytes *out)
{
    cJSON *head = openai_head(r, false);
    cJSON *choices = cJSON_AddArrayToObject(head, "choices");
    for (int i = 0; i < r->n_texts; i++) {
        const struct text *t = &r->texts[i].text;
        const size_t begin = text_new(t);
        const struct choice c = {true, t->all + begin, t->end - begin, finish_openai(&r->texts[i])};
        add_choice(choices, &r->texts[i], "message", &c);
    }
    add_usage(r, head);
    return add_json(out, head, false);
}

/* ---- TGI ---- */

static cJSON *tgi_details(const struct serve_text *t)
{
    cJSON *details = cJSON_CreateObject();
    cJSON_AddStringToObject(details, "finish_reason", finish_tgi(t));
    cJSON_AddNumberToObject(details, "generated_tokens", (double)t->text.made.n_new);
    cJSON_AddNumberToObject(details, "seed", (double)t->options.sampler.seed);
    cJSON_AddNumberToObject(details, "input_length", (double)prompt_tokens(&t->text.made));
    return details;
}

static void put_generated(cJSON *to, const struct serve_text *t)
{
    const size_t begin = t->request->ask.whole ? 0 : text_new(&t->text);
    zinf_json_add_text(to, "generated_text", t->text.all + begin, t->text.end - begin);
}

/* Whose probability is not told. */
static int say_token(const struct serve_text *t, const char *text, size_t bytes, bool ends,
                     struct serve_bytes *out)
{
    const struct zinf_text *made = &t->text.made;
    const bool special = ends && made->finish == ZINF_FINISH_END;
    const int64_t n = made->n_prompt + made->n_new;
    const int32_t id = special && t->options.n_ends ? t->options.ends[0] : made->ids[n - 1];
    cJSON *event = cJSON_CreateObject();
    cJSON_AddNumberToObject(event, "index", (double)(made->n_new + special));
    cJSON *token = cJSON_AddObjectToObject(event, "token");
    cJSON_AddNumberToObject(token, "id", id);
    zinf_json_add_text(token, "text", text, bytes);
    cJSON_AddItemToObject(token, "logprob", cJSON_CreateNull());
    cJSON_AddBoolToObject(token, "special", special && !bytes);
    if (ends) {
        put_generated(event, t);
        cJSON_AddItemToObject(event, "details", tgi_details(t));
    } else {
        cJSON_AddItemToObject(event, "generated_text", cJSON_CreateNull());
        cJSON_AddItemToObject(event, "details", cJSON_CreateNull());
    }
    return add_json(out, event, true);
}

static int say_tgi(const struct serve_request *r, struct serve_bytes *out)
{
    cJSON *list = r->ask.listed ? cJSON_CreateArray() : NULL;
    cJSON *answer = list ? add_object(list) : cJSON_CreateObject();
    put_generated(answer, &r->texts[0]);
    if (r->ask.details) {
        cJSON *details = tgi_details(&r->texts[0]);
        cJSON_AddItemToObject(details, "prefill", cJSON_CreateArray());
        cJSON_AddItemToObject(details, "tokens", cJSON_CreateArray());
        cJSON_AddItemToObject(answer, "details", details);
    }
    return add_json(out, list ? list : answer, false);
}

/* ---- the door ---- */

int serve_say_begin(const struct serve_text *t, struct serve_bytes *out)
{
    return t->request->ask.dialect == SERVE_CHAT ? say_chunk(t, true, "", 0, NULL, out) : 0;
}

int serve_say_piece(const struct serve_text *t, const char *piece, size_t bytes,
                    struct serve_bytes *out)
{
    if (t->request->ask.dialect == SERVE_TGI)
        return say_token(t, piece, bytes, false, out);
    return bytes ? say_chunk(t, false, piece, bytes, NULL, out) : 0;
}

int serve_say_end(const struct serve_text *t, struct serve_bytes *out)
{
    const struct text *text = &t->text;
    const size_t from = text->told < text->end ? text->told : text->end;
    const char *rest = text->all + from;
    if (t->request->ask.dialect == SERVE_TGI)
        return say_token(t, rest, text->end - from, true, out);
    int code = text->end > from ? say_chunk(t, false, rest, text->end - from, NULL, out) : 0;
    return code ? code : say_chunk(t, false, NULL, 0, finish_openai(t), out);
}

int serve_say_all(const struct serve_request *r, struct serve_bytes *out)
{
    int code = 0;
    if (!r->ask.streams)
        return r->ask.dialect == SERVE_TGI ? say_tgi(r, out) : say_openai(r, out);
    if (r->ask.dialect == SERVE_TGI)
        return 0;
    if (r->ask.counts) {
        cJSON *head = openai_head(r, true);
        cJSON_AddArrayToObject(head, "choices");
        add_usage(r, head);
        code = add_json(out, head, true);
    }
    return code ? code : add_text(out, "data: [DONE]\n\n");
}

static const struct {
    int status;
    const char *type, *code;
} errors[] = {
    {400, "invalid_request_error", NULL},
    {401, "authentication_error", "invalid_api_key"},
    {403, "permission_error", NULL},
    {404, "invalid_request_error", "model_not_found"},
    {413, "invalid_request_error", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_exceeded"},
    {503, "server_error", "shutting_down"},
    {504, "server_error", "timeout"},
};

int serve_say_error(int status, const char *message, bool event, struct serve_bytes *out)
{
    const char *type = status < 500 ? "invalid_request_error" : "server_error", *name = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == status) {
            type = errors[i].type;
            name = errors[i].code;
        }
    cJSON *root = cJSON_CreateObject();
    cJSON *error = cJSON_AddObjectToObject(root, "error");
    zinf_json_add_text(error, "message", message, strlen(message));
    cJSON_AddStringToObject(error, "type", type);
    cJSON_AddItemToObject(error, "param", cJSON_CreateNull());
    cJSON_AddItemToObject(error, "code", name ? cJSON_CreateString(name) : cJSON_CreateNull());
    return add_json(out, root, event);
}

static void put_model(cJSON *to, const struct serve_model *model)
{
    cJSON_AddStringToObject(to, "id", model->name);
    cJSON_AddStringToObject(to, "object", "model");
    cJSON_AddNumberToObject(to, "created", 0);
    cJSON_AddStringToObject(to, "owned_by", "zinf");
}

int serve_say_models(const struct serve_options *o, const char *only, struct serve_bytes *out)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *list = NULL;
    if (!only) {
        cJSON_AddStringToObject(root, "object", "list");
        list = cJSON_AddArrayToObject(root, "data");
    }
    bool found = !only;
    for (int i = 0; i < o->n_models; i++)
        if (!only)
            put_model(add_object(list), &o->models[i]);
        else if (!found && !strcmp(only, o->models[i].name)) {
            put_model(root, &o->models[i]);
            found = true;
        }
    if (found)
        return add_json(out, root, false);
    cJSON_Delete(root);
    return zinf_fail(-ENOENT, "there is no model of this name: GET /v1/models lists them");
}

int serve_say_info(const struct serve_options *o, struct serve_bytes *out)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "model_id", o->models[0].name);
    cJSON_AddNumberToObject(root, "max_total_tokens", (double)o->limits.total_tokens);
    cJSON_AddNumberToObject(root, "max_concurrent_requests", (double)o->limits.requests);
    cJSON_AddStringToObject(root, "router", "zinf");
    return add_json(out, root, false);
}
