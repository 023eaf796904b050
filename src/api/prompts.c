/* prompts: what a training is asked on its way (option sample-prompts), as tokens. */
#include "api/texts.h"

#include <stdlib.h>

struct job_prompts {
    struct zinf_run_prompts run;
    struct text_setup setup;
    struct zinf_chat *chat;
    struct text *at; /* [run.n] */
    struct zinf_text *texts;
};

void job_prompts_close(struct job_prompts *p)
{
    if (!p)
        return;
    for (int i = 0; p->at && i < p->run.n; i++)
        text_free(&p->at[i]);
    free(p->at);
    free(p->texts);
    zinf_chat_close(p->chat);
    free(p);
}

static int begin(struct job_prompts *p, int i)
{
    const struct zinf_session *s = p->setup.s;
    const char *prompt = p->run.prompts[i];
    const struct zinf_chat_message message = {"user", prompt, false};
    p->at[i].number = i;
    int code = p->chat ? text_begin_chat(&p->setup, &p->at[i], &message, 1)
                       : text_begin(&p->setup, &p->at[i], prompt);
    p->texts[i] = p->at[i].made;
    if (!code && p->texts[i].n_prompt >= s->seq_len)
        code = zinf_fail(-EINVAL,
                         "--sample-prompts: prompt %d has %lld tokens, and a sequence has %lld: "
                         "there is no room for an answer",
                         i + 1, (long long)p->texts[i].n_prompt, (long long)s->seq_len);
    return code;
}

static int open_all(struct job_prompts *p, struct zinf_session *s)
{
    const int32_t end = zinf_tokenizer_end_of_text(s->tokenizer);
    struct generate_settings *settings = &p->setup.settings;
    int code = job_task_need_tokenizer(s);
    if (!code && s->chats) /* as what it is trained on */
        code = text_open_chat(s, &p->chat);
    p->setup.chat = p->chat;
    if (!code)
        code = text_setup_fill(&p->setup);
    if (code)
        return code;
    settings->temperature = 0;
    if (!settings->n_ends && end >= 0)
        settings->ends[settings->n_ends++] = end;
    p->run.generate = generate_options(settings, 0);
    for (int i = 0; !code && i < p->run.n; i++)
        code = begin(p, i);
    return code;
}

int job_prompts_open(struct zinf_session *s)
{
    const struct zinf_job *c = &s->job;
    const int n = c->sample_prompts.n;
    if (!n && !c->sample_every)
        return 0;
    if (!n)
        return zinf_fail(-EINVAL, "--sample-every needs --sample-prompts: give at least one");
    if (!job_makes_texts(s->task))
        return zinf_fail(-EINVAL, "--sample-prompts: the task %s makes no texts",
                         zinf_task_name(s->task));
    struct job_prompts *p = s->prompts = calloc(1, sizeof *p);
    if (!p)
        return zinf_fail(-ENOMEM, "no memory for prompts");
    p->setup = (struct text_setup){.s = s, .settings = c->texts.settings};
    p->at = calloc((size_t)n, sizeof *p->at);
    p->texts = calloc((size_t)n, sizeof *p->texts);
    if (!p->at || !p->texts)
        return zinf_fail(-ENOMEM, "no memory for %d prompts", n);
    p->run = (struct zinf_run_prompts){.prompts = c->sample_prompts.items,
                                       .texts = p->texts,
                                       .n = n,
                                       .every = (uint64_t)c->sample_every,
                                       .tokenizer = s->tokenizer};
    return open_all(p, s);
}

const struct zinf_run_prompts *job_prompts_of(const struct zinf_session *s)
{
    return s->prompts ? &s->prompts->run : NULL;
}
