#pragma once

// Private: copies of something immutable on other devices, each made once and shared as long as
// somebody holds it.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <lipgrad/core/device.h>

namespace lipgrad {

template <class T>
class DeviceCopies {
 public:
  // The copy on `device`; make() is called when there is none.
  template <class F>
  std::shared_ptr<T> get(Device device, F&& make) {
    const std::lock_guard lock(mutex_);
    std::erase_if(copies_, [](const auto& copy) { return copy.second.expired(); });
    for (const auto& [where, copy] : copies_)
      if (where == device)
        if (std::shared_ptr<T> found = copy.lock()) return found;
    std::shared_ptr<T> made = make();
    copies_.emplace_back(device, made);
    return made;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Device, std::weak_ptr<T>>> copies_;
};

}  // namespace lipgrad
