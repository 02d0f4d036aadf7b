#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lipgrad/core/tensor.h>
#include <lipgrad/vision/augment.h>
#include <lipgrad/vision/image_data.h>
#include <lipgrad/vision/mixup.h>

namespace lipgrad {

struct ImageBatch {
  Tensor images = {};   // (B, C, H, W), or (B, H, W, C) with channels_last; f32
  Tensor labels = {};   // (B), i64
  Tensor targets = {};  // (B, classes), f32: soft targets; undefined where labels tell all
  std::int64_t epoch = 0, step = 0;
};

// Which batch comes next: the whole state of a loader.
struct ImagePosition {
  std::int64_t epoch = 0, step = 0;
  bool operator==(const ImagePosition&) const = default;
};

struct ImageLoaderOptions {
  std::int64_t batch_size = 32;
  // Training: in an order drawn anew for every epoch, augmented and mixed; the last images of an
  // epoch that fill no batch are left out (all are used when there are fewer than batch_size).
  // Otherwise: in order, every image once, the last batch with those that are left.
  bool train = true;
  std::uint64_t seed = 0;
  AugmentOptions augment = {};
  EvaluationOptions evaluation = {};
  MixOptions mix = {};  // of training batches
  bool channels_last = false;
  // Threads that decode; 0: as many as num_threads(). Results do not depend on it.
  int workers = 0;
  // Batches made ahead of the one that is taken.
  std::int64_t ahead = 3;
  // Images that cannot be read are left out of their batch, which then is smaller, and counted. If
  // not: next() throws the error of the first one.
  bool skip_corrupt = false;
};

// Makes batches of a set's images in threads of its own, ahead of those that are taken. What a
// batch holds depends on the set, the options and the batch's place alone: training that stops and
// resumes by seek() gets the same batches. All functions are called by one thread.
class ImageLoader {
 public:
  // Error when the set is empty, or options make no sense.
  ImageLoader(std::shared_ptr<const ImageSet> set, const ImageLoaderOptions& options);
  // Ends the threads; waits for the images they are at.
  ~ImageLoader();
  ImageLoader(const ImageLoader&) = delete;
  ImageLoader& operator=(const ImageLoader&) = delete;

  const ImageSet& set() const;
  // Batches of an epoch.
  std::int64_t steps() const;
  // The batch at position(), which moves on to the next, at an epoch's end to the next epoch. Waits
  // for it. Error when an image of it cannot be read and skip_corrupt is off, or none of them can;
  // the position stays, and seek() can leave it behind.
  ImageBatch next();
  ImagePosition position() const;
  // Error unless 0 <= step < steps() and epoch >= 0.
  void seek(ImagePosition position);

  // The images that could not be read so far, in the batches taken; each counts once.
  CorruptImages corrupt() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lipgrad
