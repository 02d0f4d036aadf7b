// Fuzzes the formats that image sets come in: IDX and CIFAR's binary version, archives of folders.
// The images of an archive are left to image_fuzz.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include <lipgrad/vision/image_folder.h>
#include <lipgrad/vision/image_tree.h>
#include <lipgrad/vision/raw_images.h>

#include "allocation_limit.h"
#include "attempt.h"

namespace {

using lipgrad::fuzz::attempt;
using Bytes = std::vector<std::byte>;

// What deflate can make of a byte; in a vector that doubles and is copied.
constexpr std::size_t kFactor = 4 * 1032;

void look_at(const std::shared_ptr<const lipgrad::ImageSet>& set) {
  if (!set) return;
  for (std::int64_t i = 0; i < set->size(); ++i) {
    if (set->label(i) < 0 || set->label(i) >= set->classes()) std::abort();
    if (i < 20) set->name(i);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const Bytes bytes(begin, begin + size);
  const lipgrad::fuzz::AllocationLimit limit((std::size_t{1} << 20) + kFactor * size);
  for (const int dimensions : {1, 3})
    attempt([&] {
      const auto array = lipgrad::detail::parse_idx(bytes, "fuzz.idx", dimensions);
      std::int64_t total = 1;
      for (const std::int64_t n : array.sizes) total *= n;
      if (total != static_cast<std::int64_t>(array.values.size())) std::abort();
    });
  attempt([&] {
    const std::size_t half = size / 2;
    look_at(lipgrad::detail::parse_idx_images(std::span(bytes).first(half), "images",
                                              std::span(bytes).subspan(half), "labels",
                                              {.name = "fuzz", .class_names = {"a", "b"}}));
  });
  for (const std::int64_t labels : {1, 2})
    attempt([&] {
      std::vector<std::uint8_t> pixels, classes;
      lipgrad::detail::parse_cifar(bytes, "fuzz.bin", labels, 10, pixels, classes);
      if (pixels.size() != 3072 * classes.size()) std::abort();
    });
  attempt([&] {
    const auto tree = std::make_shared<const lipgrad::detail::ImageTree>(bytes, "fuzz.tar");
    std::vector<std::byte> buffer;
    for (std::int64_t i = 0; i < tree->size(); ++i) {
      const auto file = tree->read(i, buffer, INT64_MAX);
      std::uint8_t sum = 0;  // reads all of it
      for (const std::byte b : file) sum = static_cast<std::uint8_t>(sum + std::to_integer<int>(b));
      if (tree->find(tree->path(i)) != i || (sum == 0 && file.size() > SIZE_MAX / 2)) std::abort();
    }
    const lipgrad::ImageData set = lipgrad::detail::parse_image_folder(tree, "fuzz", {});
    for (const auto& part : {set.train, set.validation, set.test}) look_at(part);
  });
  return 0;
}
