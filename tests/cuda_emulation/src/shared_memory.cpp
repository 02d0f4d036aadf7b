// Shared memory of the running block: variables with memory between them that nobody may touch.

#include <sys/mman.h>

#include "block.h"
#include "sanitizers.h"

namespace lipgrad_emulation {
namespace {

constexpr std::size_t kMemory = 2 * kSharedOptIn;  // with room for what lies between variables
constexpr std::size_t kGap = 64;

// memset() would be taken for an access of the kernel.
void fill_with_nan(char* p, std::size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep stosb" : "+D"(p), "+c"(bytes) : "a"(0xff) : "memory");
#else
  for (volatile char* at = p; bytes > 0; --bytes) *at++ = static_cast<char>(0xff);
#endif
}

}  // namespace

void Block::reset_shared() {
  constexpr int protection = PROT_READ | PROT_WRITE;
  if (!memory_) {
    memory_ =
        static_cast<char*>(mmap(nullptr, kMemory, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    poison(memory_, kMemory);
  }
  poison(memory_, dirty_);
  if (under_tsan() && dirty_ > 0)  // so that ThreadSanitizer forgets the last block's accesses
    mmap(memory_, (dirty_ + 4095) / 4096 * 4096, protection,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  used_ = dirty_ = static_bytes_ = 0;
  variable_count_ = 0;
  dynamic_ = nullptr;
}

void* Block::shared(const void* site, std::size_t bytes, std::size_t align) {
  for (int i = 0; i < variable_count_; ++i)
    if (variables_[i].site == site) return variables_[i].begin;
  if (site != &dynamic_) static_bytes_ += bytes;
  const auto over = [&](const char* what) {
    abort(what);
    throw Aborted{};
  };
  if (static_bytes_ > kSharedDefault) over("more than 48 KB of static shared memory");
  if (static_bytes_ + dynamic_bytes_ > shared_limit_)
    over("static and dynamic shared memory are together more than the kernel may have");
  const std::size_t begin = (used_ + kGap + align - 1) / align * align;
  if (begin + bytes + kGap > kMemory || variable_count_ == kVariables)
    over("too many shared variables for the emulation");
  char* p = memory_ + begin;
  used_ = begin + (bytes + 7) / 8 * 8;
  dirty_ = used_ + kGap;
  unpoison(p, bytes);
  if (config().poison) fill_with_nan(p, bytes);
  variables_[variable_count_++] = {site, p};
  return p;
}

void* Block::dynamic(std::size_t align) {
  if (!dynamic_)
    dynamic_ = static_cast<char*>(shared(&dynamic_, dynamic_bytes_, align < 16 ? 16 : align));
  return dynamic_;
}

void* shared_memory(const void* site, std::size_t bytes, std::size_t align) {
  return block.shared(site, bytes, align);
}
void* dynamic_shared(std::size_t align) { return block.dynamic(align); }

}  // namespace lipgrad_emulation
