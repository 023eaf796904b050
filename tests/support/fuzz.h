/* fuzz: what a target of tests/fuzz gives its driver, and how it says that something is wrong. */
#ifndef ZINF_TESTS_FUZZ_H
#define ZINF_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* libFuzzer's entry point (LLVM, "libFuzzer"): one input; 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool condition)
{
    if (!condition)
        abort();
}

#endif
