#include <lipgrad/vision/loader.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include <lipgrad/core/error.h>

namespace lipgrad {
namespace {

// n images of 4 x 4 pixels of value 10 i; image i is of class i modulo 3.
std::shared_ptr<const ImageSet> small_set(std::int64_t n) {
  std::vector<std::uint8_t> pixels, labels;
  for (std::int64_t i = 0; i < n; ++i) {
    pixels.insert(pixels.end(), 16, static_cast<std::uint8_t>(10 * i));
    labels.push_back(static_cast<std::uint8_t>(i % 3));
  }
  return array_images({.name = "small",
                       .class_names = {"a", "b", "c"},
                       .channels = 1,
                       .height = 4,
                       .width = 4,
                       .mean = {0},
                       .stddev = {10.0 / 255}},
                      std::move(pixels), std::move(labels));
}

// As the set it is made of, but some images cannot be read.
class BrokenSet final : public ImageSet {
 public:
  BrokenSet(std::shared_ptr<const ImageSet> set, std::set<std::int64_t> broken, bool odd = false)
      : ImageSet(set->info()), set_(std::move(set)), broken_(std::move(broken)), odd_(odd) {}
  std::int64_t size() const override { return set_->size(); }
  std::int64_t label(std::int64_t i) const override { return set_->label(i); }
  std::string name(std::int64_t i) const override { return set_->name(i); }
  void read(std::int64_t i, Image& image) const override {
    if (broken_.count(i) && odd_) throw std::runtime_error("odd");
    if (broken_.count(i)) throw Error("image " + std::to_string(i) + ": broken");
    set_->read(i, image);
  }

 private:
  std::shared_ptr<const ImageSet> set_;
  std::set<std::int64_t> broken_;
  bool odd_;
};

ImageLoaderOptions options(std::int64_t batch, bool train) {
  ImageLoaderOptions result;
  result.batch_size = batch;
  result.train = train;
  result.augment = {.height = 4, .width = 4, .crop = ImageCrop::none};
  result.evaluation = {.height = 4, .width = 4};
  return result;
}

// Which images a batch holds.
std::vector<int> ids(const ImageBatch& batch) {
  std::vector<int> result;
  for (std::int64_t i = 0; i < batch.images.size(0); ++i)
    result.push_back(static_cast<int>(batch.images.data<float>()[16 * i] + 0.5f));
  return result;
}

TEST_CASE("ImageLoader: evaluation is in order, every image once") {
  ImageLoader loader(small_set(7), options(3, false));
  CHECK(loader.steps() == 3);
  CHECK(ids(loader.next()) == std::vector<int>{0, 1, 2});
  const ImageBatch second = loader.next(), third = loader.next();
  CHECK(ids(second) == std::vector<int>{3, 4, 5});
  CHECK(second.labels.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 2});
  CHECK(second.images.shape() == Shape{3, 1, 4, 4});
  CHECK(second.step == 1);
  CHECK_FALSE(second.targets.defined());
  CHECK(ids(third) == std::vector<int>{6});
  CHECK(loader.position() == ImagePosition{1, 0});
  CHECK(ids(loader.next()) == std::vector<int>{0, 1, 2});
}

TEST_CASE("ImageLoader: training orders are drawn anew, and nothing comes twice") {
  ImageLoader loader(small_set(10), options(3, true));
  CHECK(loader.steps() == 3);
  std::vector<std::vector<int>> epochs;
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::vector<int> seen;
    for (int step = 0; step < 3; ++step) {
      const ImageBatch batch = loader.next();
      CHECK(batch.epoch == epoch);
      for (std::int64_t i = 0; i < 3; ++i)
        CHECK(batch.labels.data<std::int64_t>()[i] == ids(batch)[i] % 3);
      const auto part = ids(batch);
      seen.insert(seen.end(), part.begin(), part.end());
    }
    CHECK(std::set<int>(seen.begin(), seen.end()).size() == 9);
    epochs.push_back(seen);
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  // Fewer images than a batch: all of them.
  ImageLoader few(small_set(2), options(3, true));
  CHECK(few.steps() == 1);
  CHECK(few.next().images.size(0) == 2);
}

TEST_CASE("ImageLoader: neither the number of threads nor where it began changes a batch") {
  ImageLoaderOptions all = options(4, true);
  all.seed = 5;
  all.augment = {.height = 6, .width = 6, .erase = 0.5};
  all.mix = {.mixup = 0.8, .cutmix = 1, .label_smoothing = 0.1};
  std::vector<ImageBatch> expected;
  {
    all.workers = 1;
    all.ahead = 0;
    ImageLoader loader(small_set(25), all);
    for (int i = 0; i < 15; ++i) expected.push_back(loader.next());
  }
  const auto same = [](const ImageBatch& a, const ImageBatch& b) {
    return bitwise_equal(a.images, b.images) && bitwise_equal(a.labels, b.labels) &&
           bitwise_equal(a.targets, b.targets) && a.epoch == b.epoch && a.step == b.step;
  };
  for (const int workers : {1, 2, 5}) {
    all.workers = workers;
    all.ahead = workers;
    ImageLoader loader(small_set(25), all);
    for (int i = 0; i < 8; ++i) CHECK(same(loader.next(), expected[i]));
    loader.seek({2, 1});
    CHECK(loader.position() == ImagePosition{2, 1});
    CHECK(same(loader.next(), expected[13]));
    loader.seek({0, 0});
    CHECK(same(loader.next(), expected[0]));
  }
  CHECK(expected[0].targets.shape() == Shape{4, 3});
  all.seed = 6;
  CHECK_FALSE(same(ImageLoader(small_set(25), all).next(), expected[0]));
  // The same pixels in the other layout.
  all.seed = 5;
  all.channels_last = true;
  const ImageBatch last = ImageLoader(small_set(25), all).next();
  CHECK(last.images.shape() == Shape{4, 6, 6, 1});
  CHECK(last.images.to_vector<float>() == expected[0].images.to_vector<float>());
}

TEST_CASE("ImageLoader: images that cannot be read are refused or skipped, and counted") {
  const auto set =
      std::make_shared<const BrokenSet>(small_set(10), std::set<std::int64_t>{4, 1, 2});
  ImageLoaderOptions refuse = options(3, false);
  ImageLoader strict(set, refuse);
  CHECK_THROWS_WITH_AS(strict.next(), "image 1: broken", Error);
  CHECK_THROWS_WITH_AS(strict.next(), "image 1: broken", Error);
  CHECK(strict.position() == ImagePosition{0, 0});
  strict.seek({0, 2});
  CHECK(ids(strict.next()) == std::vector<int>{6, 7, 8});

  ImageLoaderOptions skip = refuse;
  skip.skip_corrupt = true;
  ImageLoader loader(set, skip);
  for (int epoch = 0; epoch < 2; ++epoch) {
    CHECK(ids(loader.next()) == std::vector<int>{0});
    const ImageBatch second = loader.next();
    CHECK(ids(second) == std::vector<int>{3, 5});
    CHECK(second.labels.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 2});
    loader.next();
    loader.next();
    CHECK(loader.corrupt().count == 3);
    CHECK(loader.corrupt().errors ==
          std::vector<std::string>{"image 1: broken", "image 2: broken", "image 4: broken"});
  }
  skip.batch_size = 2;
  const auto whole = std::make_shared<const BrokenSet>(small_set(4), std::set<std::int64_t>{2, 3});
  ImageLoader empty(whole, skip);
  CHECK(ids(empty.next()) == std::vector<int>{0, 1});
  CHECK_THROWS_WITH_AS(
      empty.next(),
      "ImageLoader: none of the 2 images of batch 1 can be read; the first: image 2: broken",
      Error);
  // Any other exception comes through as it is, whatever is skipped.
  const auto odd = std::make_shared<const BrokenSet>(small_set(4), std::set<std::int64_t>{0}, true);
  ImageLoader thrown(odd, skip);
  CHECK_THROWS_WITH_AS(thrown.next(), "odd", std::runtime_error);
}

TEST_CASE("ImageLoader ends whatever its threads are doing; refuses what makes no sense") {
  ImageLoaderOptions busy = options(4, true);
  busy.workers = 3;
  for (int i = 0; i < 20; ++i) {
    ImageLoader loader(small_set(25), busy);
    for (int k = 0; k < i % 3; ++k) loader.next();
  }
  const auto of = [](std::int64_t batch) {
    return ImageLoader(small_set(3), options(batch, true));
  };
  CHECK_THROWS_WITH_AS(of(0), "ImageLoader: batch_size must be from 1 to 2^24, got 0", Error);
  ImageLoader loader(small_set(3), options(2, true));
  CHECK_THROWS_WITH_AS(loader.seek({0, 1}),
                       "ImageLoader: step 1 of epoch 0, expected a step in [0, 1)", Error);
  CHECK_THROWS_WITH_AS(ImageLoader(image_subset(small_set(3), {}), options(2, true)),
                       "ImageLoader: small holds no images", Error);
}

}  // namespace
}  // namespace lipgrad
