#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include <lipgrad/core/device.h>

namespace lipgrad {

class Parameter;

// The bytes behind tensors. Shared by reference count; freed into the allocator's cache.
struct Storage {
  std::atomic<std::int32_t> references{0};
  Device device;
  std::atomic<std::uint32_t> version{0};  // raised by every Tensor::mutable_data()
  std::int64_t bytes = 0;                 // as asked for
  std::int64_t block = 0;                 // size of the allocator's block
  void* data = nullptr;
  std::atomic<Parameter*> parameter{nullptr};  // the parameter whose value this is
};

// Allocates at least `bytes` bytes, 64-byte aligned, contents undefined, with no reference yet.
Storage* allocate_storage(Device device, std::int64_t bytes);
void free_storage(Storage* storage) noexcept;

// A counted reference to a storage, or none.
class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(Storage* storage) : storage_(storage) { retain(); }
  StorageRef(const StorageRef& other) : storage_(other.storage_) { retain(); }
  StorageRef(StorageRef&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  StorageRef& operator=(StorageRef other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~StorageRef() {
    if (storage_ && storage_->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
      free_storage(storage_);
  }

  Storage* get() const { return storage_; }
  Storage* operator->() const { return storage_; }
  explicit operator bool() const { return storage_ != nullptr; }
  bool unique() const {
    return storage_ && storage_->references.load(std::memory_order_acquire) == 1;
  }

 private:
  void retain() {
    if (storage_) storage_->references.fetch_add(1, std::memory_order_relaxed);
  }
  Storage* storage_ = nullptr;
};

}  // namespace lipgrad
