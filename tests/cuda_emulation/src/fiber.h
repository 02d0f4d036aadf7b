#pragma once

// Stacks of their own for the threads of a block, and the switch between them.

#include <cstddef>

namespace lipgrad_emulation {

struct Stack {
  char* base;
  std::size_t bytes;
};

// Overflow of it faults.
Stack make_stack(std::size_t bytes);
// What lipgrad_emulation_switch() loads to call entry(), which must not return, on the stack.
void* new_context(const Stack& stack, void (*entry)());

}  // namespace lipgrad_emulation

// Saves the registers that a call keeps, and the floating-point modes, on this stack, and where
// they are in *save; goes on with what was saved at `load`.
extern "C" void lipgrad_emulation_switch(void** save, void* load);
