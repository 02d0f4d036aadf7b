#pragma once

// Private: the tape's containers.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace lipgrad {

// A vector in pieces: growing moves no element, and the pieces are kept for the next use when it is
// emptied.
template <class T>
class Segmented {
 public:
  Segmented() = default;
  Segmented(const Segmented&) = delete;
  Segmented& operator=(const Segmented&) = delete;
  ~Segmented() {
    truncate(0);
    for (T* segment : segments_)
      ::operator delete(static_cast<void*>(segment), std::align_val_t(alignof(T)));
  }

  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) { return segments_[i >> shift][i & mask]; }
  const T& operator[](std::int64_t i) const { return segments_[i >> shift][i & mask]; }
  T& back() { return (*this)[size_ - 1]; }

  // The new element has its default value.
  T& append() {
    if (size_ >> shift == static_cast<std::int64_t>(segments_.size())) {
      segments_.push_back(nullptr);
      segments_.back() =
          static_cast<T*>(::operator new(sizeof(T) << shift, std::align_val_t(alignof(T))));
    }
    T* place = &segments_[size_ >> shift][size_ & mask];
    new (place) T();
    ++size_;
    return *place;
  }

  // Drops the elements from `size` on, the last one first.
  void truncate(std::int64_t size) noexcept {
    while (size_ > size) {
      --size_;
      (*this)[size_].~T();
    }
  }

 private:
  static constexpr int shift = 10;
  static constexpr std::int64_t mask = (1 << shift) - 1;
  std::vector<T*> segments_;
  std::int64_t size_ = 0;
};

}  // namespace lipgrad
