examplesdir = $(docdir)/examples
dist_examples_SCRIPTS = examples/gpt2-xl-low-memory.sh examples/large-model.sh examples/chat.sh examples/summarise-flan-t5.sh \
	examples/seq2seq-blenderbot.sh examples/classify-mrpc.sh
dist_examples_DATA = examples/adamw_step.c examples/copy_file.c examples/train.c
chatexampledir = $(examplesdir)/chat
dist_chatexample_DATA = examples/chat/capitals.jsonl examples/chat/held-out.jsonl
xlexampledir = $(examplesdir)/gpt2-xl-24gb
dist_xlexample_SCRIPTS = examples/gpt2-xl-24gb/run.sh
dist_xlexample_DATA = examples/gpt2-xl-24gb/xl.json examples/gpt2-xl-24gb/13b.json
EXTRA_DIST += examples/quickstart.sh scripts/install-deps.sh scripts/build.sh
seq2seqexampledir = $(examplesdir)/seq2seq
dist_seq2seqexample_DATA = examples/seq2seq/dialogues-train.jsonl examples/seq2seq/dialogues-eval.jsonl \
	examples/seq2seq/answers-train.tsv examples/seq2seq/answers-eval.tsv
classifyexampledir = $(examplesdir)/classify
dist_classifyexample_DATA = examples/classify/pairs-train.tsv examples/classify/pairs-eval.tsv \
	examples/classify/tokenizer.json
