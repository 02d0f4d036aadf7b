#include <lipgrad/vision/raw_images.h>

#include <algorithm>

#include <lipgrad/core/check.h>
#include <lipgrad/core/gzip.h>

namespace lipgrad::detail {
namespace {

constexpr std::int64_t kLargestIdx = std::int64_t{16} << 30;
constexpr std::int64_t kSide = 32, kPlane = kSide * kSide;

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes, const std::string& file, int dimensions) {
  std::vector<std::byte> inflated;
  if (is_gzip(bytes)) {
    inflated = gunzip(bytes, file, kLargestIdx);
    bytes = inflated;
  }
  const auto byte = [&](std::size_t i) { return std::to_integer<std::int64_t>(bytes[i]); };
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(dimensions);
  LIPGRAD_CHECK(bytes.size() >= header,
                "{}: truncated: {} bytes, an IDX file of {} dimensions has {} before its elements",
                file, bytes.size(), dimensions, header);
  LIPGRAD_CHECK(byte(0) == 0 && byte(1) == 0 && byte(2) == 8 && byte(3) == dimensions,
                "{}: begins with {:#04x} {:#04x} {:#04x} {:#04x}, expected an IDX file of bytes "
                "in {} dimensions, 0x00 0x00 0x08 {:#04x}",
                file, byte(0), byte(1), byte(2), byte(3), dimensions, dimensions);
  IdxArray array;
  const auto held = static_cast<std::int64_t>(bytes.size() - header);
  std::int64_t total = 1;
  for (std::size_t d = 0; d < static_cast<std::size_t>(dimensions); ++d) {
    std::int64_t size = 0;
    for (std::size_t k = 0; k < 4; ++k) size = size << 8 | byte(4 + 4 * d + k);
    array.sizes.push_back(size);
    // Each size is below 2^32, so the product cannot overflow while the total is.
    LIPGRAD_CHECK(size > 0 && total <= std::int64_t{1} << 31,
                  "{}: an IDX file of {} elements in dimension {}", file, size, d);
    total *= size;
  }
  LIPGRAD_CHECK(total == held, "{}: holds {} elements, its sizes {} say {}", file, held,
                fmt::format("({})", fmt::join(array.sizes, ", ")), total);
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data()) + header;
  array.values.assign(first, first + held);
  return array;
}

std::shared_ptr<const ImageSet> parse_idx_images(std::span<const std::byte> images,
                                                 const std::string& images_file,
                                                 std::span<const std::byte> labels,
                                                 const std::string& labels_file,
                                                 ImageSetInfo info) {
  IdxArray pixels = parse_idx(images, images_file, 3);
  IdxArray classes = parse_idx(labels, labels_file, 1);
  LIPGRAD_CHECK(classes.sizes[0] == pixels.sizes[0], "{}: holds {} labels, but {} holds {} images",
                labels_file, classes.sizes[0], images_file, pixels.sizes[0]);
  for (std::size_t i = 0; i < classes.values.size(); ++i)
    LIPGRAD_CHECK(classes.values[i] < info.class_names.size(),
                  "{}: label {} of image {} is not in [0, {})", labels_file, classes.values[i], i,
                  info.class_names.size());
  info.channels = 1;
  info.height = pixels.sizes[1];
  info.width = pixels.sizes[2];
  return array_images(std::move(info), std::move(pixels.values), std::move(classes.values));
}

void parse_cifar(std::span<const std::byte> bytes, const std::string& file,
                 std::int64_t label_bytes, std::int64_t classes, std::vector<std::uint8_t>& pixels,
                 std::vector<std::uint8_t>& labels) {
  const std::int64_t record = label_bytes + 3 * kPlane;
  const auto size = static_cast<std::int64_t>(bytes.size());
  LIPGRAD_CHECK(size > 0 && size % record == 0,
                "{}: holds {} bytes, expected a multiple of {} (a CIFAR image)", file, size,
                record);
  const std::int64_t count = size / record;
  const std::size_t before = pixels.size();
  pixels.resize(before + static_cast<std::size_t>(count * 3 * kPlane));
  std::uint8_t* out = pixels.data() + before;
  const auto* in = reinterpret_cast<const std::uint8_t*>(bytes.data());
  for (std::int64_t i = 0; i < count; ++i, in += record) {
    const std::uint8_t label = in[label_bytes - 1];
    LIPGRAD_CHECK(label < classes, "{}: label {} of image {} is not in [0, {})", file, label, i,
                  classes);
    labels.push_back(label);
    const std::uint8_t* plane = in + label_bytes;
    for (std::int64_t p = 0; p < kPlane; ++p)
      for (std::int64_t c = 0; c < 3; ++c) *out++ = plane[c * kPlane + p];
  }
}

}  // namespace lipgrad::detail
