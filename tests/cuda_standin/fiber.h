/* fiber: a stack that code runs on and leaves in the middle. One thread runs them all. */
#ifndef STANDIN_FIBER_H
#define STANDIN_FIBER_H

#include <stddef.h>

struct fiber {
    void *stack; /* NULL: the thread's own */
    size_t stack_bytes;
    void *pointer;   /* where it was left */
    void *sanitizer; /* what the address sanitizer knows it by */
    void (*entry)(void *);
    void *argument;
};

/* entry(argument) begins at the next switch to the fiber, which is zeroed at first and stays where
 * it is, and must never return. A fiber that has been left can begin anew. */
int fiber_prepare(struct fiber *fiber, void (*entry)(void *), void *argument);
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
