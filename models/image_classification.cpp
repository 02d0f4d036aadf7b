#include <lipgrad/models/image_classification.h>

#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/tape.h>
#include <lipgrad/ops/loss.h>

namespace lipgrad {
namespace {

struct Batch {
  Tensor images, labels, targets;
};

Batch moved(const ImageBatch& batch, Device device) {
  return {batch.images.to(device), batch.labels.to(device),
          batch.targets.defined() ? batch.targets.to(device) : Tensor()};
}

}  // namespace

std::vector<Measurement> measure_image_classification(const ImageClassifier& model,
                                                      ImageLoader& images, const std::string& part,
                                                      Device device) {
  const NoGrad off;
  double loss = 0, right = 0, count = 0;
  // Every epoch is in the same order, so that what is ready already may be used.
  if (images.position().step != 0) images.seek({0, 0});
  for (std::int64_t step = 0; step < images.steps(); ++step) {
    const Batch batch = moved(images.next(), device);
    const auto size = static_cast<double>(batch.labels.numel());
    if (size == 0) continue;
    const Tensor logits = model.forward(batch.images, Mode::eval());
    loss += size * cross_entropy(logits, batch.labels).item();
    right += correct(logits, batch.labels).item();
    count += size;
  }
  LIPGRAD_CHECK(count > 0, "image_classification: there are no {} images", part);
  return {{part + "_accuracy", full({}, right, f64), count},
          {part + "_loss", full({}, loss, f64), count}};
}

Task image_classification(ImageClassifier& model, ImageLoaders images, Device device) {
  LIPGRAD_CHECK(images.train, "image_classification: there are no training images");
  const auto now = std::make_shared<Batch>();
  Task task{model,
            [&model, now](Mode mode) {
              const Tensor logits = model.forward(now->images, mode);
              return now->targets.defined() ? soft_cross_entropy(logits, now->targets)
                                            : cross_entropy(logits, now->labels);
            },
            [&model, images, device] {
              std::vector<Measurement> all;
              const auto add = [&](const std::shared_ptr<ImageLoader>& part, const char* name) {
                if (!part) return;
                for (Measurement& one : measure_image_classification(model, *part, name, device))
                  all.push_back(std::move(one));
              };
              add(images.validation, "valid");
              add(images.test, "test");
              return all;
            }};
  task.steps = images.train->steps();
  task.start = [loader = images.train](std::int64_t epoch, std::int64_t step) {
    loader->seek({epoch, step});
  };
  task.begin_step = [loader = images.train, now, device](std::int64_t step, Generator&) {
    *now = {};  // the last batch goes before the next one comes
    const ImageBatch batch = loader->next();
    LIPGRAD_CHECK(batch.step == step, "image_classification: batch {} came in step {}", batch.step,
                  step);
    *now = moved(batch, device);
    return true;
  };
  return task;
}

}  // namespace lipgrad
