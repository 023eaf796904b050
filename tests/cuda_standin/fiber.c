/*
 * fiber: switching stacks by hand: ucontext asks the kernel for the signal mask at every switch,
 * which is 80 times the cost, and a small test makes some million switches. The thread sanitizer
 * is told of none: to it a kernel is one thread's work, the stream's.
 */
#include "fiber.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 256 << 10 }; /* a sanitizer's report is written on it */

void fiber_swap(void **save, void *load);
void fiber_first(void);

/* System V x86-64: what a called function must keep, and its return address. */
__asm__(".text\n"
        ".type fiber_swap,@function\n"
        "fiber_swap:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size fiber_swap,.-fiber_swap\n"
        ".type fiber_first,@function\n"
        "fiber_first:\n" /* entry in rbx, argument in r12 */
        "  movq %r12, %rdi\n"
        "  callq *%rbx\n"
        "  ud2\n"
        ".size fiber_first,.-fiber_first\n");

/* The first function on a stack. The sanitizer goes on with what it kept of the stack's last life:
 * frames that were left in it are below this one, and it takes them back by itself. */
static void begin(void *argument)
{
    struct fiber *fiber = argument;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fiber->sanitizer, NULL, NULL);
#endif
    fiber->entry(fiber->argument);
}

int fiber_prepare(struct fiber *fiber, void (*entry)(void *), void *argument)
{
    if (!fiber->stack) {
        void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED)
            return -ENOMEM;
        fiber->stack = stack;
        fiber->stack_bytes = STACK_BYTES;
    }
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes); /* frames it was left in */
#endif
    fiber->entry = entry;
    fiber->argument = argument;
    /* fiber_first begins with the stack at top + 7, a multiple of 16. */
    void **top = (void **)((char *)fiber->stack + fiber->stack_bytes) - 9;
    top[0] = top[1] = top[2] = top[5] = NULL; /* r15, r14, r13, rbp */
    top[3] = fiber;                           /* r12 */
    top[4] = (void *)(uintptr_t)begin;        /* rbx */
    top[6] = (void *)(uintptr_t)fiber_first;
    top[7] = NULL;
    fiber->pointer = top;
    return 0;
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->stack_bytes);
#endif
    fiber_swap(&from->pointer, to->pointer);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->sanitizer, NULL, NULL);
#endif
}
