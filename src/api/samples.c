/*
 * samples: data of samples as the commands open it: the format that the rows have, the chat
 * template that the model's folder or --chat-template names, and what became of the rows.
 */
#include "api/session.h"

#include <stdlib.h>

struct zinf_dataset_options job_rows_stream(const struct zinf_session *s,
                                            const struct zinf_tokenizer *tokenizer)
{
    return (struct zinf_dataset_options){
        .text_column = s->job.text_column,
        .skip_bad_rows = s->job.skip_bad_rows,
        .tokenizer = tokenizer,
        .why_no_tokenizer = job_task_no_tokenizer,
        .seq_len = (uint32_t)s->seq_len,
        .vocab = (uint32_t)zinf_model_facts(s->model)->vocab,
        .seed = (uint64_t)s->job.seed,
    };
}

const struct zinf_tokenizer *job_rows_tokenizer(const struct zinf_session *s)
{
    const bool foreign =
        !strcmp(zinf_tokenizer_kind(s->tokenizer), "bytes") && !job_task_has_bytes(s);
    return foreign ? NULL : s->tokenizer;
}

int job_samples_tell(const struct zinf_job *c, const char *const *files, int n,
                     enum zinf_format *out)
{
    *out = ZINF_FORMAT_STREAM;
    if (c->format)
        return zinf_format_parse(c->format, out);
    for (int i = 0; i < n && !c->text_column; i++) {
        enum zinf_format format;
        int code = zinf_format_tell(files[i], &format);
        if (code)
            return code;
        if (i && format != *out)
            return zinf_fail(-EINVAL,
                             "%s is of the format \"%s\", and %s of \"%s\": give files of one, or "
                             "--format",
                             files[0], zinf_format_name(*out), files[i], zinf_format_name(format));
        *out = format;
    }
    return 0;
}

int job_samples_check(const struct zinf_session *s, const char *file, enum zinf_format format)
{
    const bool single = format == ZINF_FORMAT_UNPAIRED;
    const bool pairs = format == ZINF_FORMAT_PREFERENCE || single, asked = job_has_pairs(s->task);
    if (pairs && s->job.task.looks)
        return 0;
    if (!asked && s->config && strcmp(s->config->preference, "dpo"))
        return zinf_fail(
            -EINVAL,
            "zinf.preference is \"%s\", but the task is %s, which would learn %s as it "
            "stands: --task preference",
            s->config->preference, zinf_task_name(s->task), file);
    if (asked && s->config && single != !strcmp(s->config->preference, "kto"))
        return zinf_fail(-EINVAL,
                         "--preference %s: %s is of the format \"%s\": kto takes rows of prompt, "
                         "completion and label, other losses a prompt with what was chosen and "
                         "rejected",
                         s->config->preference, file, zinf_format_name(format));
    if (pairs == asked)
        return 0;
    if (asked)
        return zinf_fail(-EINVAL,
                         "--task %s: %s is of the format \"%s\": rows have a prompt, and what was "
                         "chosen and rejected",
                         zinf_task_name(s->task), file, zinf_format_name(format));
    if (single)
        return zinf_fail(-EINVAL,
                         "%s has rows of prompt, completion and label: train on them with "
                         "--preference kto",
                         file);
    return zinf_fail(-EINVAL,
                     "%s has rows of what was chosen and rejected: train on them with --task "
                     "preference, or --task reward",
                     file);
}

/* A folder without a template will do where the format has no conversations, or one that models
 * without a template know. */
static int open_chat(const struct zinf_job *c, enum zinf_format format,
                     const struct zinf_tokenizer *tokenizer, struct zinf_chat **out)
{
    *out = NULL;
    if (format == ZINF_FORMAT_TEXT || format == ZINF_FORMAT_GDGPT || format == ZINF_FORMAT_IDS)
        return 0;
    int code = zinf_chat_open(out, c->model, c->chat_template, tokenizer);
    bool optional = format == ZINF_FORMAT_ALPACA || format == ZINF_FORMAT_PROMPT ||
                    format == ZINF_FORMAT_PREFERENCE || format == ZINF_FORMAT_UNPAIRED;
    return code == -ENOENT && optional && !c->chat_template ? 0 : code;
}

/* Rows among which KTO's answers are turned: a micro-batch's, or, where that has one row, a step's.
 */
static uint32_t rotation_of(const struct zinf_config *c)
{
    return !c ? 0 : (uint32_t)(c->micro_batch > 1 ? c->micro_batch : c->train_batch_size);
}

/* As a data set. Rows without a token to learn are kept where others of their batch have some. */
static int give_samples(struct zinf_samples *samples, const struct zinf_samples_options *given,
                        bool scores, struct zinf_dataset **out)
{
    const struct zinf_samples_facts *facts = zinf_samples_facts(samples);
    *out = NULL;
    if (!facts->n_samples) {
        zinf_samples_close(samples);
        return 0;
    }
    if (!facts->n_counted && !scores && !given->may_be_empty) {
        zinf_samples_close(samples);
        return zinf_fail(-EINVAL, "%s: no row has a label that counts: all are -100",
                         given->files[0]);
    }
    return zinf_dataset_of_samples(out, samples);
}

int job_samples_open(struct zinf_session *s, const struct zinf_samples_options *given,
                     enum zinf_format format, struct zinf_dataset **out)
{
    const struct zinf_job *c = &s->job;
    struct zinf_samples_options options = *given;
    struct zinf_samples *samples = NULL;
    struct zinf_chat *chat = NULL;
    struct zinf_format_recipe *recipe = NULL;
    int32_t end = zinf_tokenizer_end_of_text(s->tokenizer);
    const bool scores = s->task == ZINF_TASK_REWARD;
    int code = scores ? job_classes_settle_scores(s) : 0;
    if (!code && format != ZINF_FORMAT_IDS)
        code = job_task_need_tokenizer(s);
    if (!code)
        code = open_chat(c, format, given->tokenizer, &chat);
    if (!given->may_be_empty) /* groups of rows are opened beside the training, which knows it */
        s->chats |= format == ZINF_FORMAT_SHAREGPT || format == ZINF_FORMAT_MESSAGES;
    const struct zinf_format_options form = {
        .format = format,
        .chat = chat,
        .tokenizer = given->tokenizer,
        .folder = c->model,
        .text_column = c->text_column,
        .train_on_prompt = c->train_on_prompt,
        .margins = scores,
        .bare = s->config &&
                (!strcmp(s->config->preference, "orpo") || !strcmp(s->config->preference, "simpo")),
    };
    if (!code)
        code = zinf_format_open(&recipe, &form);
    if (!code) {
        options.recipe = zinf_format_recipe(recipe);
        options.tokenizer = s->tokenizer; /* rows of ids need none, and may have that of bytes */
        options.vocab = (uint32_t)zinf_model_facts(s->model)->vocab;
        options.seq_len = (uint32_t)s->seq_len;
        options.cut = c->truncate;
        options.min_ids = (uint32_t)c->min_tokens;
        options.skip_bad_rows = c->skip_bad_rows;
        options.packed = c->pack;
        /* Scores see the last token, too; others' batches have rows that were masked as a whole. */
        options.unlabelled = scores || (format == ZINF_FORMAT_IDS && !c->pack);
        options.seed = given->may_be_empty ? given->seed : (uint64_t)c->seed;
        options.likelihood = s->config && !strcmp(s->config->preference, "orpo");
        options.rotate = rotation_of(s->config);
        options.rotates_files = s->config && job_gives_references(s);
        options.pad = end < 0 || (uint32_t)end >= options.vocab ? 0 : end;
        code = zinf_samples_open(&samples, &options);
    }
    if (!code)
        code = give_samples(samples, given, scores, out);
    zinf_format_close(recipe);
    zinf_chat_close(chat);
    return code;
}

static int write_template(const struct zinf_chat *chat, const char *folder)
{
    char *path = zinf_path_join(folder, "chat_template.jinja"), *text = NULL;
    int code = path ? zinf_chat_jinja(chat, &text) : -ENOMEM;
    if (!code)
        code = zinf_file_write_atomic(path, text, strlen(text));
    free(text);
    free(path);
    return code == -ENOTSUP ? 0 : code; /* no text says what that one means */
}

int job_samples_keep_template(const struct zinf_session *s, const char *folder)
{
    const char *name = s->job.chat_template;
    struct zinf_chat *chat = NULL, *there = NULL;
    if (!name)
        return 0;
    int code = zinf_chat_open(&chat, folder, name, s->tokenizer);
    bool same = !code && !zinf_chat_open(&there, folder, NULL, s->tokenizer) &&
                !strcmp(zinf_chat_name(chat), zinf_chat_name(there));
    if (!code && !same)
        code = write_template(chat, folder);
    zinf_chat_close(there);
    zinf_chat_close(chat);
    return code;
}
