# The Python package: pip installs it from here (pyproject.toml); the tests read it where it is.
PYTHON_FILES = python/zinf/__init__.py python/zinf/__main__.py python/zinf/_calls.py python/zinf/_interrupt.py \
	python/zinf/_library.py python/zinf/_drive.py python/zinf/_optim.py python/zinf/aio/__init__.py python/zinf/aio/__main__.py python/zinf/_options.py python/zinf/_results.py python/zinf/_rows.py python/zinf/_sentences.py \
	python/zinf/_trainer.py python/zinf/py.typed \
	python/zinf/integrations/__init__.py python/zinf/integrations/_arguments.py python/zinf/integrations/_mixin.py \
	python/zinf/integrations/transformers.py python/zinf/integrations/trl.py
EXTRA_DIST += $(PYTHON_FILES) python/tests/run.py python/tests/common.py python/tests/test_options.py python/tests/test_streaming.py \
	python/tests/test_train.py python/tests/test_wheel.py python/tests/test_optim.py python/tests/test_aio.py \
	python/tests/test_integrations.py python/tests/test_frames.py python/tests/test_examples.py python/examples/finetune.py \
	python/examples/lora_chat.py python/examples/sums.ipynb python/examples/torch_optimizer.py python/README.md python/pyproject.toml \
	python/backend/zinf_build.py
script_tests += tests/python/python_test.sh
