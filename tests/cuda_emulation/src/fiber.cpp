#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
asm(R"(
.text
.globl lipgrad_emulation_switch
.type lipgrad_emulation_switch,@function
lipgrad_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8,%rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rdx
  jmp *%rdx
.size lipgrad_emulation_switch,.-lipgrad_emulation_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl lipgrad_emulation_switch
.type lipgrad_emulation_switch,%function
lipgrad_emulation_switch:
  sub sp,sp,#160
  stp x19,x20,[sp]
  stp x21,x22,[sp,#16]
  stp x23,x24,[sp,#32]
  stp x25,x26,[sp,#48]
  stp x27,x28,[sp,#64]
  stp x29,x30,[sp,#80]
  stp d8,d9,[sp,#96]
  stp d10,d11,[sp,#112]
  stp d12,d13,[sp,#128]
  stp d14,d15,[sp,#144]
  mov x9,sp
  str x9,[x0]
  mov sp,x1
  ldp x19,x20,[sp]
  ldp x21,x22,[sp,#16]
  ldp x23,x24,[sp,#32]
  ldp x25,x26,[sp,#48]
  ldp x27,x28,[sp,#64]
  ldp x29,x30,[sp,#80]
  ldp d8,d9,[sp,#96]
  ldp d10,d11,[sp,#112]
  ldp d12,d13,[sp,#128]
  ldp d14,d15,[sp,#144]
  add sp,sp,#160
  ret
.size lipgrad_emulation_switch,.-lipgrad_emulation_switch
)");
#else
#error "the CUDA emulation lacks a context switch for this processor"
#endif

namespace lipgrad_emulation {

Stack make_stack(std::size_t bytes) {
  constexpr std::size_t guard = 4096;
  void* p = mmap(nullptr, bytes + guard, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) std::abort();
  mprotect(p, guard, PROT_NONE);
  return {static_cast<char*>(p) + guard, bytes};
}

void* new_context(const Stack& stack, void (*entry)()) {
  auto* top = reinterpret_cast<std::uint64_t*>(
      reinterpret_cast<std::uintptr_t>(stack.base + stack.bytes) & ~std::uintptr_t{15});
#if defined(__x86_64__)
  *--top = 0;  // where a call would leave its return address, so that entry's stack is aligned
  *--top = reinterpret_cast<std::uint64_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
  *--top = 0x0000037f00001f80;  // the floating-point modes that a program starts with
#else
  top -= 20;
  for (int i = 0; i < 20; ++i) top[i] = 0;
  top[11] = reinterpret_cast<std::uint64_t>(entry);
#endif
  return top;
}

}  // namespace lipgrad_emulation
