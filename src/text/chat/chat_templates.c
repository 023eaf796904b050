/*
 * chat_templates: the built-in templates, as data. Each renders what the chat_template of its
 * models does in transformers; chat_folder.c knows the texts of those.
 */
#include "text/chat/chat_template.h"

#define CHATML_TURN                                                                                \
    {                                                                                              \
        "<|im_start|>" CHAT_ROLE "\n", "<|im_end|>", "\n"                                          \
    }
#define HEADER_TURN                                                                                \
    {                                                                                              \
        "<|start_header_id|>" CHAT_ROLE "<|end_header_id|>\n\n", "<|eot_id|>", ""                  \
    }
#define BAR_TURN(stop)                                                                             \
    {                                                                                              \
        "<|" CHAT_ROLE "|>\n", stop, "\n"                                                          \
    }
#define CHATML(label, otherwise, tools)                                                            \
    {                                                                                              \
        .name = label, .no_system = otherwise, .system = CHATML_TURN, .user = CHATML_TURN,         \
        .assistant = CHATML_TURN, .tool = tools, .answer = "<|im_start|>assistant\n"               \
    }
#define NO_TURN                                                                                    \
    {                                                                                              \
        NULL, NULL, NULL                                                                           \
    }

const struct chat_template chat_templates[] = {
    CHATML("chatml", NULL, CHATML_TURN),
    CHATML("qwen2", "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n", CHATML_TURN),
    CHATML("qwen2.5",
           "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
           "assistant.<|im_end|>\n",
           NO_TURN),
    {
        .name = "llama2",
        .user = {CHAT_BEGIN "[INST] ", "", " [/INST]"},
        .assistant = {" ", " " CHAT_END, ""},
        .system_in_user = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
        .trims = true,
    },
    {
        .name = "llama3",
        .begin = CHAT_BEGIN,
        .system = HEADER_TURN,
        .user = HEADER_TURN,
        .assistant = HEADER_TURN,
        .tool = HEADER_TURN,
        .answer = "<|start_header_id|>assistant<|end_header_id|>\n\n",
        .trims = true,
    },
    {
        .name = "mistral",
        .begin = CHAT_BEGIN,
        .user = {"[INST] ", "", " [/INST]"},
        .assistant = {"", CHAT_END, ""},
    },
    {
        .name = "mistral-v0.1",
        .begin = CHAT_BEGIN,
        .user = {"[INST] ", "", " [/INST]"},
        .assistant = {"", CHAT_END, " "},
    },
    {
        .name = "gemma",
        .begin = CHAT_BEGIN,
        .user = {"<start_of_turn>user\n", "<end_of_turn>", "\n"},
        .assistant = {"<start_of_turn>model\n", "<end_of_turn>", "\n"},
        .answer = "<start_of_turn>model\n",
        .trims = true,
    },
    {
        .name = "phi3",
        .system = BAR_TURN("<|end|>"),
        .user = BAR_TURN("<|end|>"),
        .assistant = BAR_TURN("<|end|>"),
        .answer = "<|assistant|>\n",
        .end = CHAT_END,
    },
    {
        .name = "zephyr",
        .system = BAR_TURN(CHAT_END),
        .user = BAR_TURN(CHAT_END),
        .assistant = BAR_TURN(CHAT_END),
        .answer = "<|assistant|>\n",
    },
    {
        /* Its stop is the role of the turn that follows, or the end of the text. */
        .name = "chatglm3",
        .begin = "[gMASK]" CHAT_BREAK "sop",
        .system = {"<|system|>" CHAT_BREAK "\n", "", ""},
        .user = {"<|user|>" CHAT_BREAK "\n", "", ""},
        .assistant = {"<|assistant|>" CHAT_BREAK "\n", CHAT_END, ""},
        .answer = "<|assistant|>",
        .separate = true,
        .stops_by_role = true,
    },
    {
        .name = "baichuan2",
        .system = {"", "", ""},
        .user = {"#195", "", ""},
        .assistant = {"#196", CHAT_END, ""},
        .answer = "#196",
        .separate = true,
    },
    {
        /* Without tokens of its own: for models that know none. */
        .name = "alpaca",
        .no_system = "Below is an instruction that describes a task. Write a response that "
                     "appropriately completes the request.\n\n",
        .system = {"", "", "\n\n"},
        .user = {"### Instruction:\n", "", "\n\n### Response:"},
        .assistant = {"", CHAT_END, ""},
        .framed = true,
    },
};
const int n_chat_templates = sizeof chat_templates / sizeof *chat_templates;
