#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lipgrad/vision/image.h>

namespace lipgrad {

// What holds for all images of a set.
struct ImageSetInfo {
  std::string name = {};                      // of the set, as in "cifar10"
  std::vector<std::string> class_names = {};  // one for each class
  std::int64_t channels = 3;                  // 1 or 3
  std::int64_t height = 0, width = 0;         // 0 where images differ in size
  // Of each channel, of values from 0 to 1: what images are normalised with.
  std::vector<double> mean = {}, stddev = {};
};

// Labelled images to be classified. Images are numbered from 0; all functions may be called by
// several threads at a time.
class ImageSet {
 public:
  explicit ImageSet(ImageSetInfo info) : info_(std::move(info)) {}
  virtual ~ImageSet() = default;
  ImageSet(const ImageSet&) = delete;
  ImageSet& operator=(const ImageSet&) = delete;

  const ImageSetInfo& info() const { return info_; }
  std::int64_t classes() const { return static_cast<std::int64_t>(info_.class_names.size()); }

  virtual std::int64_t size() const = 0;
  // In [0, classes()).
  virtual std::int64_t label(std::int64_t i) const = 0;
  // What an error or a person calls the image: "train/tench/n01440764_18.JPEG".
  virtual std::string name(std::int64_t i) const = 0;
  // Decodes the image into `image`, whose memory is used again: info().channels channels, of
  // whatever size. Error, which names the file, when it cannot be read.
  virtual void read(std::int64_t i, Image& image) const = 0;

 protected:
  // Error unless i is in [0, size()).
  void check_index(std::int64_t i) const;

 private:
  ImageSetInfo info_;
};

// The training images, and others. `validation` and `test` may be null.
struct ImageData {
  std::shared_ptr<const ImageSet> train, validation, test;
};

struct ImageDataOptions {
  // The folder with the data sets. Empty: $LIPGRAD_DATA, then ~/.cache/lipgrad.
  std::string root = {};
  // The share of the training images, of each class, that is set aside for validation.
  double validation = 0;
  // The same for tests, of a folder that has no test images of its own.
  double test = 0.2;
  // Decides which images are set aside.
  std::uint64_t seed = 0;
  // Of images in files, 1 or 3; other sets have those they have.
  std::int64_t channels = 3;
  // Images of more pixels are refused when they are read.
  std::int64_t max_pixels = std::int64_t{1} << 26;
};

// A data set by name or path.
//   fashion-mnist, mnist  {train,t10k}-{images-idx3,labels-idx1}-ubyte, .gz or not, in the folder
//                         of that name; fashion-mnist also where Debian's package
//                         dataset-fashion-mnist puts it
//   cifar10, cifar100     the binary version: the folder cifar-10-batches-bin or
//                         cifar-100-binary, or the archive cifar-10-binary.tar.gz or
//                         cifar-100-binary.tar.gz as it is published
//   imagenette            the folder imagenette2, imagenette2-320 or imagenette2-160, or the
//                         archive of that name (.tgz)
// Any other name is a folder, a .tar, .tar.gz or .tgz, as it is or in a data folder or its
// subfolder images. It holds one of the above, or
//   train/<class>/..., test/<class>/... or val/<class>/..., or both: JPEG and PNG images at any
//   depth (where there is no test/, val/ are the test images), or
//   <class>/...: options.test of the images of each class are set aside as test images, if that
//   is as much as one image of any.
// Classes are numbered by their names' order, images by that of their paths, in bytes. Mean and
// deviation of IDX and CIFAR sets are those of the training images, others have ImageNet's.
// Archives are read whole into memory. Files in an archive or folder that are not images by their
// names are left alone. Error when nothing is found, with the folders looked into, and for files
// that are not what they must be.
ImageData load_image_data(const std::string& name_or_path, const ImageDataOptions& options = {});

// The names that load_image_data() knows, whether or not their files are there.
std::vector<std::string> known_image_data();

// Where the files of such a name or path are; empty when they are not there.
std::string find_image_data(const std::string& name_or_path, const ImageDataOptions& options = {});

// Images that lie in memory one after the other, all of one size, as in Image. Mean and deviation
// are those of the images where info has none.
std::shared_ptr<const ImageSet> array_images(ImageSetInfo info, std::vector<std::uint8_t> pixels,
                                             std::vector<std::uint8_t> labels);

// Some images of another set, in the order given.
std::shared_ptr<const ImageSet> image_subset(std::shared_ptr<const ImageSet> set,
                                             std::vector<std::int64_t> ids);

// Sets `share` of the images of each class (rounded) aside, chosen by the seed: the numbers of
// those that stay, and of those set aside, both ascending.
struct ImageSplit {
  std::vector<std::int64_t> kept = {}, aside = {};
};
ImageSplit split_images(const ImageSet& set, double share, std::uint64_t seed);

// Images that cannot be read.
struct CorruptImages {
  std::int64_t count = 0;
  std::vector<std::string> errors = {};  // the first hundred
};
// Reads every image of the set, on all threads, and tells which cannot be read.
CorruptImages find_corrupt_images(const ImageSet& set);

}  // namespace lipgrad
