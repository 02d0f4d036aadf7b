#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lipgrad/models/trainer.h>
#include <lipgrad/models/vision_block.h>
#include <lipgrad/vision/loader.h>

namespace lipgrad {

// The images that a model learns from and is measured on, batch by batch; validation and test may
// be null. One loader must not be in two places.
struct ImageLoaders {
  std::shared_ptr<ImageLoader> train, validation, test;
};

// The mean cross entropy and the share of images classified rightly, "<part>_accuracy" and
// "<part>_loss", in evaluation mode over all of a loader's images.
std::vector<Measurement> measure_image_classification(const ImageClassifier& model,
                                                      ImageLoader& images, const std::string& part,
                                                      Device device);

// The task of fitting model.forward(images, mode) -> logits to the labels, or to the mixed targets
// that the loader gives. An epoch has a step for each batch; batches come in the loader's order,
// whatever the generator is. Without validation images "valid_..." are not among the metrics:
// train with Selection::last. The model must outlive the task and be on `device`.
Task image_classification(ImageClassifier& model, ImageLoaders images, Device device = cpu_device);

}  // namespace lipgrad
