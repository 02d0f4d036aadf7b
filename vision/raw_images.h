#pragma once

// Private: the formats of images that are not compressed one by one.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lipgrad/vision/image_data.h>

namespace lipgrad::detail {

// An array in IDX, the format of MNIST: 0, 0, 8 (bytes), the number of dimensions, each dimension
// (32 bits, big-endian), the elements. `bytes` may be gzip data of it.
struct IdxArray {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> values;
};
// Error "<file>: ..." unless it has `dimensions` of them and its size is what they say.
IdxArray parse_idx(std::span<const std::byte> bytes, const std::string& file, int dimensions);
// A set of grey images; info gets their size. Error when the labels are not as many, or not in
// [0, classes).
std::shared_ptr<const ImageSet> parse_idx_images(std::span<const std::byte> images,
                                                 const std::string& images_file,
                                                 std::span<const std::byte> labels,
                                                 const std::string& labels_file, ImageSetInfo info);

// A file of the binary version of CIFAR-10 (label_bytes 1) or CIFAR-100 (2: the last counts): for
// each image its labels and 32 x 32 values of red, green and blue. Appends to pixels (interleaved)
// and labels.
void parse_cifar(std::span<const std::byte> bytes, const std::string& file,
                 std::int64_t label_bytes, std::int64_t classes, std::vector<std::uint8_t>& pixels,
                 std::vector<std::uint8_t>& labels);

}  // namespace lipgrad::detail
