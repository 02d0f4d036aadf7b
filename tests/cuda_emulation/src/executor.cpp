// The executor: one block at a time, one fiber per CUDA thread.
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>
#include <cuda_runtime.h>
#include "memory.h"
#include "sanitizers.h"
#include "state.h"
#include "streams.h"

extern "C" {
void cuemu_switch(void** save, void* load);
}
// Save the callee-saved registers and FP control words on this stack, continue on the other one.
#if defined(__x86_64__)
asm(".text\n.globl cuemu_switch\n.type cuemu_switch,@function\ncuemu_switch:\n"
    " pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n subq $8,%rsp\n stmxcsr (%rsp)\n fnstcw 4(%rsp)\n"
    " movq %rsp,(%rdi)\n movq %rsi,%rsp\n"
    " ldmxcsr (%rsp)\n fldcw 4(%rsp)\n addq $8,%rsp\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n popq %rdx\n jmp *%rdx\n.size cuemu_switch,.-cuemu_switch\n");
static void* make_frame(char* top, void (*entry)()) {
  auto sp = (uint64_t*)((uintptr_t)top & ~15ull);
  *--sp = 0; *--sp = (uint64_t)entry;            // return address slot; entry sees rsp = 16n+8 as after a call
  for (int i = 0; i < 6; i++) *--sp = 0;
  *--sp = 0x0000037f00001f80ull;                 // x87 CW | MXCSR defaults
  return sp;
}
#elif defined(__aarch64__)
asm(".text\n.globl cuemu_switch\n.type cuemu_switch,%function\ncuemu_switch:\n"
    " sub sp,sp,#160\n stp x19,x20,[sp]\n stp x21,x22,[sp,#16]\n stp x23,x24,[sp,#32]\n stp x25,x26,[sp,#48]\n stp x27,x28,[sp,#64]\n stp x29,x30,[sp,#80]\n"
    " stp d8,d9,[sp,#96]\n stp d10,d11,[sp,#112]\n stp d12,d13,[sp,#128]\n stp d14,d15,[sp,#144]\n mov x9,sp\n str x9,[x0]\n mov sp,x1\n"
    " ldp x19,x20,[sp]\n ldp x21,x22,[sp,#16]\n ldp x23,x24,[sp,#32]\n ldp x25,x26,[sp,#48]\n ldp x27,x28,[sp,#64]\n ldp x29,x30,[sp,#80]\n"
    " ldp d8,d9,[sp,#96]\n ldp d10,d11,[sp,#112]\n ldp d12,d13,[sp,#128]\n ldp d14,d15,[sp,#144]\n add sp,sp,#160\n ret\n");
static void* make_frame(char* top, void (*entry)()) { auto sp = (uint64_t*)((uintptr_t)top & ~15ull) - 20; std::fill(sp, sp + 20, 0); sp[11] = (uint64_t)entry; return sp; }  // not tried
#else
#error "cuemu: add a context switch for this processor"
#endif

uint3 threadIdx, blockIdx; dim3 blockDim, gridDim;


namespace lipgrad_emulation {
namespace {
Stats st;
size_t page_up(size_t n) { return (n + 4095) & ~size_t(4095); }
// ---------------------------------------------------------------- fibers and the block executor
enum State : uint8_t { NEW, READY, RUNNING, WAITING, DONE };
struct Stack { char* base; size_t size; };
constexpr int kMaxThreads = 1024; constexpr size_t kTsanReset = 16 << 10;      // how much of a stack's top instrumented frames may use
// What runs on fibers below uses no allocation, libc or STL algorithm that a sanitizer runtime would intercept and take for the kernel's.
void fill_ff(char* p, size_t n) { asm volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(0xFF) : "memory"); }
struct Thread {
  uint3 tid; int lin; State state; Op op; int pred, param, width, line; unsigned mask; const char* file; uint64_t val, res;
  void* sp; Stack* stk; void* fake; void* tsan;
};
struct Group { unsigned mask, arrived; Op op; };
struct Warp { unsigned gone; int ngroups; Group g[32]; };
struct Shared { const void* site; char* p; };
struct Aborted {};
struct Exec {
  std::vector<Thread> t; std::vector<Warp> w; std::vector<int> ring; size_t head = 0, tail = 0; int nthreads = 0, live = 0; uint64_t rnd = 1;
  unsigned random(unsigned n) { rnd ^= rnd << 13; rnd ^= rnd >> 7; rnd ^= rnd << 17; return unsigned(rnd >> 33) % n; }
  int arrived = 0, preds = 0, bar_res[2] = {}; unsigned gen = 0; char* sync = nullptr; char done_sync[8];   // sync: addresses that stand for this block's barriers towards TSan
  Thread* cur = nullptr; void* main_sp = nullptr; void* main_fake = nullptr; const void* main_bottom = nullptr; size_t main_size = 0; void* main_tsan = nullptr;
  bool abort = false; std::string err; const std::function<void()>* fn = nullptr;
  char* smem = nullptr; size_t smem_cap = 0, smem_used = 0, smem_dirty = 0, dyn_bytes = 0, static_bytes = 0; char* dyn = nullptr; Shared shared[64]; int nshared = 0;
  Stack stacks[kMaxThreads + 1]; int pool[kMaxThreads + 1], npool = 0, nstacks = 0; size_t stack_size = 0;
} E;
const char* op_name(Op o) { static const char* n[] = {"?", "__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or", "__syncwarp", "__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync", "__all_sync", "__match_any_sync", "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync"}; return n[(int)o]; }
void push(Thread* t) { t->state = t->state == NEW ? NEW : READY; E.ring[E.tail] = t->lin; if (++E.tail == E.ring.size()) E.tail = 0; }
Thread* pop() {
  for (;;) {
    if (E.head == E.tail) return nullptr;
    if (config().order >= 2) { size_t n = (E.tail + E.ring.size() - E.head) % E.ring.size(), k = (E.head + E.random(n)) % E.ring.size(); int x = E.ring[E.head]; E.ring[E.head] = E.ring[k]; E.ring[k] = x; }
    Thread* t = &E.t[E.ring[E.head]]; if (++E.head == E.ring.size()) E.head = 0;
    if (E.abort && t->state == NEW) { t->state = DONE; continue; }
    return t;
  }
}
std::string where(const Thread* t) { const char* s = strrchr(t->file, '/'); return std::string(op_name(t->op)) + " (" + (s ? s + 1 : t->file) + ":" + std::to_string(t->line) + ")"; }
std::string at() { char b[96]; snprintf(b, sizeof b, "block (%u,%u,%u): ", blockIdx.x, blockIdx.y, blockIdx.z); return b; }
void abort_block(const std::string& m) {
  if (E.abort) return;
  E.abort = true; E.err = at() + m;
  for (auto& t : E.t) if (t.state == WAITING) push(&t);
}
void deadlock() {
  std::string m = "deadlock, no thread can go on:"; int i = 0, n = E.nthreads;
  while (i < n) {                                       // runs of threads in the same state
    int j = i; auto same = [&](int k) { return E.t[k].state == E.t[i].state && (E.t[i].state != WAITING || (E.t[k].op == E.t[i].op && E.t[k].line == E.t[i].line && E.t[k].mask == E.t[i].mask)); };
    while (j + 1 < n && same(j + 1)) j++;
    char b[64]; snprintf(b, sizeof b, " threads %d-%d ", i, j); m += b;
    if (E.t[i].state == DONE) m += "returned;"; else { m += "wait at " + where(&E.t[i]); if (E.t[i].op >= Op::syncwarp) { snprintf(b, sizeof b, " mask %08x", E.t[i].mask); m += b; } m += ";"; }
    i = j + 1;
  }
  abort_block(m);
}
Stack* new_stack() {
  if (!E.stack_size) E.stack_size = __asan_poison_memory_region || __tsan_create_fiber ? 256 << 10 : 64 << 10;
  char* b = (char*)mmap(nullptr, E.stack_size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  mprotect(b, 4096, PROT_NONE);                         // overflow of a fiber stack faults
  Stack& s = E.stacks[E.nstacks++]; s.base = b + 4096; s.size = E.stack_size; return &s;
}
// Under TSan every thread of a block has its own stack; otherwise a stack is taken when a thread starts and given back when it ends.
Stack* get_stack(Thread* t) { return __tsan_create_fiber ? &E.stacks[t->lin] : E.npool ? &E.stacks[E.pool[--E.npool]] : new_stack(); }
void remap(char* p, size_t n) { mmap(p, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); }   // makes TSan forget older accesses
void fiber_entry();
// Leave the current context (saved in *save) for thread n, or for the main context when n is null.
void go(void** save, void** fake, Thread* n) {
  st.switches++;
  void* load; Stack* s = nullptr;
  if (!n) load = E.main_sp;
  else if (n->state == NEW) { s = n->stk = get_stack(n); unpoison(s->base, s->size); load = make_frame(s->base + s->size, fiber_entry); }
  else { s = n->stk; load = n->sp; }
  E.cur = n; if (n) { if (n->state != NEW) n->state = RUNNING; threadIdx = n->tid; }
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(fake, n ? s->base : E.main_bottom, n ? s->size : E.main_size);
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(n ? n->tsan : E.main_tsan, 1);
  cuemu_switch(save, load);
}
void landed(void* fake) { if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
void release_block_barrier();
void complete_groups(Warp& w);
void on_exit(Thread* t) {
  t->state = DONE; E.live--;
  if (E.abort) return;
  Warp& w = E.w[t->lin / 32]; w.gone |= 1u << (t->lin % 32);
  if (E.arrived && E.arrived == E.live) release_block_barrier();
  if (w.ngroups) complete_groups(w);
}
void fiber_entry() {
  if (__sanitizer_finish_switch_fiber) { const void* b; size_t n; __sanitizer_finish_switch_fiber(nullptr, &b, &n); if (!E.main_bottom) { E.main_bottom = b; E.main_size = n; } }
  for (;;) {
    Thread* t = E.cur; t->state = RUNNING; threadIdx = t->tid;
    try { (*E.fn)(); } catch (Aborted&) {} catch (std::exception& e) { abort_block(std::string("exception in kernel: ") + e.what()); }
    if (__tsan_release) __tsan_release(E.done_sync);
    on_exit(t);
    Thread* n = pop();
    if (!n && E.live > 0 && !E.abort) { deadlock(); n = pop(); }
    if (n && n->state == NEW && !__tsan_switch_to_fiber) {  // no switch: the next thread starts on this stack
      n->stk = t->stk; E.cur = n; continue;
    }
    E.pool[E.npool++] = int(t->stk - E.stacks); void* dead; go(&dead, nullptr, n);
  }
}
void wait(Thread* me) {
  me->state = WAITING;
  Thread* n = pop();
  if (!n) { deadlock(); n = pop(); }
  if (n != me) { go(&me->sp, &me->fake, n); landed(me->fake); } else me->state = RUNNING;
  if (E.abort) throw Aborted{};
}
void release_block_barrier() {
  const Thread* first = nullptr; int res = E.preds;
  for (auto& t : E.t) if (t.state == WAITING || &t == E.cur) { if (t.state == DONE || t.op > Op::sync_or || t.op == Op::none) continue; if (!first) first = &t;
    else if (t.line != first->line || t.op != first->op || t.file != first->file) return abort_block("divergent barrier: thread " + std::to_string(first->lin) + " waits at " + where(first) + ", thread " + std::to_string(t.lin) + " at " + where(&t)); }
  if (config().strict_exit && E.live != E.nthreads) return abort_block(std::to_string(E.nthreads - E.live) + " threads returned before " + where(first) + " (strict_exit)");
  E.bar_res[E.gen & 1] = res; E.gen++; E.arrived = E.preds = 0;
  auto wake = [&](Thread& t) { if (t.state == WAITING && t.op <= Op::sync_or) push(&t); };
  if (config().order == 1) for (auto it = E.t.rbegin(); it != E.t.rend(); ++it) wake(*it); else for (auto& t : E.t) wake(t);
}
void resolve(Warp& w, Group& g) {
  Thread* base = &E.t[(&w - E.w.data()) * 32]; uint64_t all = ~0ull, any = 0, add = 0; int64_t mn = INT64_MAX, mx = INT64_MIN; uint64_t umn = ~0ull, umx = 0, x = 0; unsigned bal = 0;
  for (unsigned m = g.arrived; m; m &= m - 1) { int l = __builtin_ctz(m); uint64_t v = base[l].val; all &= v; any |= v; add += v; x ^= v; umn = std::min(umn, v); umx = std::max(umx, v); mn = std::min(mn, (int64_t)v); mx = std::max(mx, (int64_t)v); if (v & 1) bal |= 1u << l; }
  for (unsigned m = g.arrived; m; m &= m - 1) {
    int l = __builtin_ctz(m); Thread& t = base[l]; int seg = l & ~(t.width - 1), end = seg + t.width - 1, src = l;
    switch (g.op) {
      case Op::shfl: src = seg + (t.param & (t.width - 1)); break;
      case Op::shfl_up: src = l - t.param < seg ? l : l - t.param; break;
      case Op::shfl_down: src = l + t.param > end ? l : l + t.param; break;
      case Op::shfl_xor: src = (l ^ t.param) > end ? l : l ^ t.param; break;
      case Op::ballot: t.res = bal; continue;
      case Op::any: t.res = any & 1; continue;
      case Op::all: t.res = all & 1; continue;
      case Op::match_any: { unsigned r = 0; for (unsigned k = g.arrived; k; k &= k - 1) if (base[__builtin_ctz(k)].val == t.val) r |= 1u << __builtin_ctz(k); t.res = r; continue; }
      case Op::reduce_add: t.res = add; continue;
      case Op::reduce_min: t.res = (uint64_t)mn; continue;
      case Op::reduce_max: t.res = (uint64_t)mx; continue;
      case Op::reduce_umin: t.res = umn; continue;
      case Op::reduce_umax: t.res = umx; continue;
      case Op::reduce_and: t.res = all; continue;
      case Op::reduce_or: t.res = any; continue;
      case Op::reduce_xor: t.res = x; continue;
      default: continue;
    }
    if (!(g.arrived >> src & 1)) return abort_block("lane " + std::to_string(l) + " reads lane " + std::to_string(src) + ", which does not take part, in " + where(&t));
    t.res = base[src].val;
  }
}
bool complete(Warp& w, int gi) {
  Group& g = w.g[gi]; if (((g.arrived | w.gone) & g.mask) != g.mask) return false;
  st.collectives++; Group done = g; w.g[gi] = w.g[--w.ngroups]; resolve(w, done);
  if (!E.abort) { Thread* base = &E.t[(&w - E.w.data()) * 32]; for (unsigned m = done.arrived; m; m &= m - 1) { Thread& t = base[__builtin_ctz(m)]; if (t.state == WAITING) push(&t); } }
  return true;
}
void complete_groups(Warp& w) { for (int i = 0; i < w.ngroups && !E.abort;) if (!complete(w, i)) i++; }

void run_block() {
  int n = E.nthreads; E.head = E.tail = 0; E.live = n; E.arrived = E.preds = 0; E.nshared = 0; E.smem_used = 0; E.dyn = nullptr; E.static_bytes = 0;
  poison(E.smem, E.smem_dirty ? E.smem_dirty : E.smem_cap);
  if (__tsan_create_fiber) {
    constexpr size_t kSync = 512, kSyncs = 2048;             // fresh addresses per block, or one block's barriers would order another's accesses
    static char* sync = (char*)mmap(nullptr, kSync * kSyncs, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (st.blocks % kSyncs == 0) remap(sync, kSync * kSyncs);
    E.sync = sync + st.blocks % kSyncs * kSync;
    remap(E.smem, page_up(E.smem_dirty + 1));
    while (E.nstacks < n) new_stack();
    for (int i = 0; i < n; i++) remap(E.stacks[i].base + E.stacks[i].size - kTsanReset, kTsanReset);
  }
  E.smem_dirty = 0;
  for (auto& w : E.w) { w.gone = 0; w.ngroups = 0; }
  if (n % 32) E.w.back().gone = ~0u << (n % 32);
  for (int i = 0; i < n; i++) { Thread& t = E.t[config().order == 1 ? n - 1 - i : i]; t.state = NEW; t.op = Op::none; if (__tsan_create_fiber) t.tsan = __tsan_create_fiber(0); push(&t); }
  st.blocks++; st.threads += n;
  go(&E.main_sp, &E.main_fake, pop()); landed(E.main_fake);
  E.smem_dirty = E.smem_used + 128 < E.smem_cap ? E.smem_used + 128 : E.smem_cap; if (__tsan_create_fiber) E.npool = 0;
  if (__tsan_destroy_fiber) {      // TSan can only report a race with a thread that it still knows, so the last blocks' fibers stay for a while
    static std::deque<void*> old; static const size_t keep = environment("TSAN_FIBERS", 1024);
    for (auto& t : E.t) old.push_back(t.tsan);
    while (old.size() > keep) { __tsan_destroy_fiber(old.front()); old.pop_front(); }
  }
}
std::map<std::pair<const void*, int>, int> max_dyn;


void run_kernel(dim3 g, dim3 b, size_t dyn, const std::function<void()>& fn) {
  DeviceAccess dm; st.launches++; gridDim = g; blockDim = b;
  int n = b.x * b.y * b.z; E.nthreads = n; E.t.resize(n); E.w.resize((n + 31) / 32); E.ring.assign(n + 1, 0); E.fn = &fn; E.dyn_bytes = dyn; E.abort = false; E.err.clear();
  for (int i = 0; i < n; i++) { E.t[i].lin = i; E.t[i].tid = {i % b.x, i / b.x % b.y, i / (b.x * b.y)}; }
  if (!E.smem) { E.smem_cap = 2 * kSharedOptIn; E.smem = (char*)mmap(nullptr, E.smem_cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
  if (__tsan_get_current_fiber) E.main_tsan = __tsan_get_current_fiber();
  E.main_bottom = nullptr; E.rnd = 0x9E3779B97F4A7C15ull * (config().order + 7919 * st.launches + 1);
  uint64_t nb = (uint64_t)g.x * g.y * g.z; std::vector<uint64_t> order;
  if (config().order) { order.resize(nb); for (uint64_t i = 0; i < nb; i++) order[i] = config().order == 1 ? nb - 1 - i : i; if (config().order >= 2) for (uint64_t i = nb; i > 1; i--) std::swap(order[i - 1], order[E.random((unsigned)i)]); }
  for (uint64_t i = 0; i < nb && !E.abort; i++) { uint64_t k = order.empty() ? i : order[i]; blockIdx = {unsigned(k % g.x), unsigned(k / g.x % g.y), unsigned(k / ((uint64_t)g.x * g.y))}; run_block(); }
  if (__tsan_acquire) __tsan_acquire(E.done_sync);
  if (E.abort) report_sticky(cudaErrorLaunchFailure, E.err);
}

}  // namespace

Stats& stats() { return st; }
int block_op(Op op, int pred, const char* file, int line) {
  Thread* me = E.cur; me->op = op; me->file = file; me->line = line;
  unsigned g = E.gen & 1; if (__tsan_release) __tsan_release(E.sync + 8 * g);
  E.preds += pred != 0; int n = E.live;
  if (++E.arrived == E.live) { release_block_barrier(); if (E.abort) throw Aborted{}; } else wait(me);
  if (__tsan_acquire) __tsan_acquire(E.sync + 8 * g);
  int c = E.bar_res[g]; return op == Op::sync_and ? c == n : op == Op::sync_or ? c != 0 : c;
}
uint64_t warp_op(Op op, unsigned mask, uint64_t val, int param, int width, const char* file, int line) {
  Thread* me = E.cur; Warp& w = E.w[me->lin / 32]; unsigned bit = 1u << (me->lin % 32);
  me->op = op; me->mask = mask; me->val = val; me->param = param; me->width = width; me->file = file; me->line = line;
  auto die = [&](const std::string& m) { abort_block(m + " in " + where(me)); throw Aborted{}; };
  if (!(mask & bit)) die("thread " + std::to_string(me->lin) + " is not in the mask it passed");
  if (width <= 0 || width > 32 || (width & (width - 1))) die("width is no power of two up to 32");
  int i = 0; while (i < w.ngroups && w.g[i].mask != mask) i++;
  if (i == w.ngroups) w.g[w.ngroups++] = {mask, 0, op};
  if (w.g[i].op != op) die("lanes of one mask meet in different intrinsics: " + std::string(op_name(w.g[i].op)) + " and " + op_name(op));
  w.g[i].arrived |= bit;
  if (op == Op::syncwarp && __tsan_release) __tsan_release(E.sync + 16 + me->lin / 32 * 8);
  if (complete(w, i)) { if (E.abort) throw Aborted{}; } else wait(me);
  if (op == Op::syncwarp && __tsan_acquire) __tsan_acquire(E.sync + 16 + me->lin / 32 * 8);
  return me->res;
}
void fence() { if (__tsan_acquire) { static char s[8]; __tsan_acquire(s); __tsan_release(s); } }
void* shared_memory(const void* site, size_t bytes, size_t align) {
  for (int i = 0; i < E.nshared; i++) if (E.shared[i].site == site) return E.shared[i].p;
  if (E.static_bytes + bytes > kSharedDefault && site != &E.dyn) { abort_block("over 48 KB of static shared memory"); throw Aborted{}; }
  size_t o = (E.smem_used + 64 + align - 1) / align * align; char* p = E.smem + o;        // 64-byte redzones
  E.smem_used = o + (bytes + 7) / 8 * 8; if (site != &E.dyn) E.static_bytes += bytes;
  if (o + bytes + 64 > E.smem_cap || E.nshared == 64) { abort_block("out of shared memory"); throw Aborted{}; }
  unpoison(p, bytes); if (config().poison) fill_ff(p, bytes);
  E.shared[E.nshared].site = site; E.shared[E.nshared++].p = p; return p;
}
void* dynamic_shared(size_t align) { if (!E.dyn) E.dyn = (char*)shared_memory(&E.dyn, E.dyn_bytes, std::max<size_t>(align, 16)); return E.dyn; }

cudaError_t set_dynamic_shared_limit(const void* kernel, int bytes) {
  LIPGRAD_EMULATION_ENTRY;
  if (bytes < 0 || static_cast<size_t>(bytes) > kSharedOptIn) return fail(cudaErrorInvalidValue);
  max_dyn[{kernel, current_device()}] = bytes;
  return cudaSuccess;
}

cudaError_t enqueue_launch(const cudaLaunchConfig_t& c, const void* kernel,
                           const void* const* pointers, int count, std::function<void()> run) {
  LIPGRAD_EMULATION_ENTRY;
  const dim3 g = c.gridDim, b = c.blockDim;
  const auto stream = state_of(c.stream);
  const int device = stream->device;
  if (device != current_device())
    return report(cudaErrorInvalidResourceHandle, "launch: the stream belongs to device " + std::to_string(device) + ", the current device is " + std::to_string(current_device()));
  if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || b.x > 1024 || b.y > 1024 || b.z > 64 || (uint64_t)b.x * b.y * b.z > 1024)
    return report(cudaErrorInvalidConfiguration, "invalid launch: grid (" + std::to_string(g.x) + "," + std::to_string(g.y) + "," + std::to_string(g.z) + ") block (" + std::to_string(b.x) + "," + std::to_string(b.y) + "," + std::to_string(b.z) + ")");
  const auto it = max_dyn.find({kernel, device});
  const size_t limit = it == max_dyn.end() ? kSharedDefault : std::max<size_t>(it->second, kSharedDefault);
  if (c.dynamicSmemBytes > limit)
    return report(cudaErrorInvalidValue, "dynamic shared memory " + std::to_string(c.dynamicSmemBytes) + " over the kernel's limit " + std::to_string(limit));
  auto usable = [device](const std::vector<const void*>& all) {
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] && !check_range(all[i], 0, ("kernel argument " + std::to_string(i)).c_str(), device)) return false;
    return true;
  };
  std::vector<const void*> arguments(pointers, pointers + count);
  if (!usable(arguments)) return fail(cudaErrorIllegalAddress);
  return push(stream, {NodeKind::kernel, "kernel", [=, run = std::move(run), shared = c.dynamicSmemBytes] {
    if (sticky_error()) return;
    if (!usable(arguments)) { report_sticky(cudaErrorIllegalAddress, "a kernel's argument was freed before it ran"); return; }
    run_kernel(g, b, shared, run);
  }});
}
}  // namespace lipgrad_emulation
