#include <lipgrad/models/image_classification.h>

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/models/swin.h>
#include <lipgrad/ops/loss.h>
#include <lipgrad/ops/optimizers.h>
#include <lipgrad/ops/schedules.h>
#include <support/temporary_directory.h>

namespace lipgrad {
namespace {

// Noisy 8 x 8 images of two classes: bright in the upper half, or in the lower one.
std::shared_ptr<const ImageSet> halves(std::int64_t count) {
  std::vector<std::uint8_t> pixels, labels;
  Generator rng{7};
  const Tensor noise = rand_int({count * 64}, 120, rng);
  for (std::int64_t i = 0; i < count; ++i) {
    labels.push_back(static_cast<std::uint8_t>(i % 2));
    for (std::int64_t p = 0; p < 64; ++p)
      pixels.push_back(static_cast<std::uint8_t>(noise.data<std::int64_t>()[i * 64 + p] +
                                                 ((p < 32) == (i % 2 == 0) ? 60 : 0)));
  }
  ImageSetInfo info{.name = "halves", .class_names = {"upper", "lower"}, .channels = 1};
  info.height = info.width = 8;
  return array_images(std::move(info), std::move(pixels), std::move(labels));
}

std::shared_ptr<ImageLoader> loader(std::int64_t count, bool train, MixOptions mix = {}) {
  ImageLoaderOptions options{.batch_size = 16, .train = train, .seed = 3};
  options.augment = {.height = 8, .width = 8, .crop = ImageCrop::padded, .padding = 1, .flip = 0.5};
  options.evaluation = {.height = 8, .width = 8};
  options.mix = mix;
  return std::make_shared<ImageLoader>(halves(count), options);
}

SwinOptions tiny() {
  SwinOptions o = swin_options("lipsformer_swin_micro");
  o.image_height = o.image_width = 8;
  o.classes = 2;
  o.width = 8;
  o.depths = {1, 1};
  o.heads = {1, 2};
  o.block.kernel = 3;
  return o;
}

struct Run {
  Swin model{tiny()};
  Generator rng{1};
  std::optional<AdamW> optimizer;
  std::optional<LrSchedule> schedule;

  Run() {
    model.initialize(rng);
    optimizer.emplace(model, AdamWOptions{.lr = 0.01, .groups = vision_groups(0)});
    schedule.emplace(*optimizer, cosine_decay({.steps = 64}));
  }
  TrainResult train(TrainOptions options, MixOptions mix = {}) {
    options.progress = false;
    options.schedule_per_update = true;
    const Task task =
        image_classification(model, {loader(130, true, mix), nullptr, loader(37, false)});
    CHECK(task.steps == 8);
    return lipgrad::train(task, *optimizer, &*schedule, rng, options);
  }
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("a model of images learns, with labels and with mixed targets") {
  for (const MixOptions& mix :
       {MixOptions{}, MixOptions{.mixup = 0.4, .cutmix = 1, .label_smoothing = 0.1}}) {
    Run run;
    const TrainResult result = run.train({.epochs = 8, .select = Selection::last}, mix);
    CHECK(result.at_best("test_accuracy") >= 0.9);
    // What is measured is the mean over all images, whatever the batches.
    ImageLoader all(halves(37),
                    {.batch_size = 37, .train = false, .evaluation = {.height = 8, .width = 8}});
    const ImageBatch batch = all.next();
    const Tensor logits = run.model.forward(batch.images, Mode::eval());
    CHECK(result.at_best("test_loss") ==
          doctest::Approx(cross_entropy(logits, batch.labels).item()).epsilon(1e-5));
    CHECK(result.at_best("test_accuracy") == accuracy(logits, batch.labels));
  }
}

TEST_CASE("a run that stops within an epoch and resumes ends with the same bits") {
  test::TemporaryDirectory whole, parts;
  const TrainOptions options{.epochs = 3,
                             .select = Selection::last,
                             .resume = true,
                             .accumulate = 2,
                             .clip_norm = 1,
                             .average_decay = 0.9};
  const MixOptions mix{.mixup = 0.4, .label_smoothing = 0.1};
  Run one;
  TrainOptions all = options;
  all.out = whole.path();
  one.train(all, mix);
  for (int part = 0;; ++part) {
    REQUIRE(part < 10);
    Run run;
    TrainOptions some = options;
    some.out = parts.path();
    int asked = 0;
    some.interrupted = [&] { return ++asked >= 5; };
    if (!run.train(some, mix).interrupted) break;
  }
  CHECK(text_of(parts / "metrics.jsonl") == text_of(whole / "metrics.jsonl"));
  CHECK(text_of(parts / "last.lip") == text_of(whole / "last.lip"));
  CHECK(text_of(parts / "best.lip") == text_of(whole / "best.lip"));
}

TEST_CASE("image_classification names what it lacks") {
  Swin model(tiny());
  CHECK_THROWS_WITH_AS(image_classification(model, {}),
                       "image_classification: there are no training images", Error);
}

}  // namespace
}  // namespace lipgrad
