#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include <lipgrad/core/check.h>
#include <lipgrad/core/philox.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/vision/image_data.h>

namespace lipgrad {

void ImageSet::check_index(std::int64_t i) const {
  LIPGRAD_CHECK(i >= 0 && i < size(), "{}: image {} is not in [0, {})", info_.name, i, size());
}

namespace {

class ArrayImages final : public ImageSet {
 public:
  ArrayImages(ImageSetInfo info, std::vector<std::uint8_t> pixels, std::vector<std::uint8_t> labels)
      : ImageSet(std::move(info)),
        pixels_(std::move(pixels)),
        labels_(std::move(labels)),
        bytes_(static_cast<std::size_t>(this->info().height * this->info().width *
                                        this->info().channels)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  std::int64_t label(std::int64_t i) const override {
    check_index(i);
    return labels_[static_cast<std::size_t>(i)];
  }
  std::string name(std::int64_t i) const override {
    return fmt::format("{}, image {}", info().name, i);
  }
  void read(std::int64_t i, Image& image) const override {
    check_index(i);
    image.reset(info().height, info().width, info().channels);
    std::memcpy(image.pixels.data(), pixels_.data() + static_cast<std::size_t>(i) * bytes_, bytes_);
  }

 private:
  std::vector<std::uint8_t> pixels_, labels_;
  std::size_t bytes_;
};

// Sums of bytes are exact: the result depends on nothing but the pixels.
void take_statistics(ImageSetInfo& info, const std::vector<std::uint8_t>& pixels) {
  const auto channels = static_cast<std::size_t>(info.channels);
  info.mean.clear();
  info.stddev.clear();
  for (std::size_t c = 0; c < channels; ++c) {
    std::uint64_t sum = 0, squares = 0;
    for (std::size_t i = c; i < pixels.size(); i += channels) {
      const std::uint64_t value = pixels[i];
      sum += value;
      squares += value * value;
    }
    const double count = static_cast<double>(pixels.size() / channels),
                 mean = static_cast<double>(sum) / count,
                 variance = static_cast<double>(squares) / count - mean * mean;
    info.mean.push_back(mean / 255);
    // Of images without any contrast nothing needs to be scaled.
    info.stddev.push_back(variance > 1e-6 ? std::sqrt(variance) / 255 : 1);
  }
}

class Subset final : public ImageSet {
 public:
  Subset(std::shared_ptr<const ImageSet> set, std::vector<std::int64_t> ids)
      : ImageSet(set->info()), set_(std::move(set)), ids_(std::move(ids)) {
    for (const std::int64_t id : ids_)
      LIPGRAD_CHECK(id >= 0 && id < set_->size(), "image_subset: image {} is not in [0, {})", id,
                    set_->size());
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t label(std::int64_t i) const override { return set_->label(id(i)); }
  std::string name(std::int64_t i) const override { return set_->name(id(i)); }
  void read(std::int64_t i, Image& image) const override { set_->read(id(i), image); }

 private:
  std::int64_t id(std::int64_t i) const {
    check_index(i);
    return ids_[static_cast<std::size_t>(i)];
  }

  std::shared_ptr<const ImageSet> set_;
  std::vector<std::int64_t> ids_;
};

}  // namespace

std::shared_ptr<const ImageSet> array_images(ImageSetInfo info, std::vector<std::uint8_t> pixels,
                                             std::vector<std::uint8_t> labels) {
  LIPGRAD_CHECK((info.channels == 1 || info.channels == 3) && info.height > 0 && info.width > 0,
                "array_images: images of {} x {} pixels and {} channels", info.width, info.height,
                info.channels);
  const auto bytes = static_cast<std::size_t>(info.height * info.width * info.channels);
  LIPGRAD_CHECK(pixels.size() % bytes == 0 && pixels.size() / bytes == labels.size(),
                "array_images: {} bytes of pixels for {} images of {}", pixels.size(),
                labels.size(), bytes);
  LIPGRAD_CHECK(!labels.empty(), "array_images: no images");
  for (const std::uint8_t label : labels)
    LIPGRAD_CHECK(label < info.class_names.size(), "array_images: label {} is not in [0, {})",
                  label, info.class_names.size());
  if (info.mean.empty()) take_statistics(info, pixels);
  return std::make_shared<ArrayImages>(std::move(info), std::move(pixels), std::move(labels));
}

std::shared_ptr<const ImageSet> image_subset(std::shared_ptr<const ImageSet> set,
                                             std::vector<std::int64_t> ids) {
  LIPGRAD_CHECK(set != nullptr, "image_subset: no set is given");
  return std::make_shared<Subset>(std::move(set), std::move(ids));
}

ImageSplit split_images(const ImageSet& set, double share, std::uint64_t seed) {
  LIPGRAD_CHECK(share >= 0 && share <= 1, "split_images: the share must lie in [0, 1], got {}",
                share);
  // In each class those with the smallest random numbers.
  std::vector<std::vector<std::pair<std::uint64_t, std::int64_t>>> ranks(
      static_cast<std::size_t>(set.classes()));
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const PhiloxBlock block = philox(seed, 0, static_cast<std::uint64_t>(i));
    ranks[static_cast<std::size_t>(set.label(i))].emplace_back(
        std::uint64_t{block.word[0]} << 32 | block.word[1], i);
  }
  ImageSplit split;
  for (auto& rank : ranks) {
    std::sort(rank.begin(), rank.end());
    const auto aside =
        static_cast<std::size_t>(std::llround(share * static_cast<double>(rank.size())));
    for (std::size_t k = 0; k < rank.size(); ++k)
      (k < aside ? split.aside : split.kept).push_back(rank[k].second);
  }
  std::sort(split.kept.begin(), split.kept.end());
  std::sort(split.aside.begin(), split.aside.end());
  return split;
}

CorruptImages find_corrupt_images(const ImageSet& set) {
  constexpr std::size_t most = 100;
  std::mutex mutex;
  std::int64_t count = 0;
  std::map<std::int64_t, std::string> errors;  // those of the smallest numbers
  parallel_for(set.size(), 16, [&](std::int64_t begin, std::int64_t end) {
    Image image;
    for (std::int64_t i = begin; i < end; ++i) {
      try {
        set.read(i, image);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        ++count;
        errors.emplace(i, error.what());
        if (errors.size() > most) errors.erase(std::prev(errors.end()));
      }
    }
  });
  CorruptImages result{.count = count};
  for (auto& [id, error] : errors) result.errors.push_back(std::move(error));
  return result;
}

}  // namespace lipgrad
