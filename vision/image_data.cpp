#include <lipgrad/vision/image_data.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <lipgrad/core/check.h>
#include <lipgrad/core/data_folders.h>
#include <lipgrad/core/file.h>
#include <lipgrad/core/printable.h>
#include <lipgrad/vision/image_folder.h>
#include <lipgrad/vision/image_tree.h>
#include <lipgrad/vision/raw_images.h>

namespace lipgrad {
namespace {

using detail::ImageTree;
using Names = std::vector<std::string>;

constexpr std::int64_t kLargestFile = std::int64_t{16} << 30;

// What a set's files are called where it lies: as a folder or an archive.
struct Known {
  const char* name;
  Names places;
  const char* advice;
};

const std::vector<Known>& known_sets() {
  static const std::vector<Known> sets = {
      {"fashion-mnist",
       {"fashion-mnist", "FashionMNIST/raw"},
       "install Debian's package dataset-fashion-mnist, or get them with tools/fetch_data "
       "fashion-mnist"},
      {"mnist", {"mnist", "MNIST/raw"}, "put its four IDX files there"},
      {"cifar10",
       {"cifar-10-batches-bin", "cifar-10-binary.tar.gz"},
       "get them with tools/fetch_data cifar10"},
      {"cifar100",
       {"cifar-100-binary", "cifar-100-binary.tar.gz"},
       "get them with tools/fetch_data cifar100"},
      {"imagenette",
       {"imagenette2", "imagenette2.tgz", "imagenette2-320", "imagenette2-320.tgz",
        "imagenette2-160", "imagenette2-160.tgz"},
       "get them with tools/fetch_data imagenette"}};
  return sets;
}

const Known* find_known(const std::string& name) {
  for (const Known& set : known_sets())
    if (name == set.name) return &set;
  return nullptr;
}

Names search_folders(const ImageDataOptions& options) {
  Names folders;
  for (const std::string& folder : data_folders(options.root)) {
    folders.push_back(folder);
    folders.push_back(folder + "/images");
  }
  return folders;
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Names names_of_fashion() {
  return {"T-shirt", "Trouser", "Pullover", "Dress", "Coat",
          "Sandal",  "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
}

Names digits(int count) {
  Names names;
  for (int i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// Where in a tree a file of that name lies, whatever folder it is in; -1 when there is none.
std::int64_t find_file(const ImageTree& tree, std::string_view name) {
  for (std::int64_t i = 0; i < tree.size(); ++i) {
    const std::string_view path = tree.path(i);
    if (path == name || (path.ends_with(name) && path[path.size() - name.size() - 1] == '/'))
      return i;
  }
  return -1;
}

std::int64_t need_file(const ImageTree& tree, const std::string& name) {
  const std::int64_t found = find_file(tree, name);
  LIPGRAD_CHECK(found >= 0, "{}: holds no {}", tree.name(), name);
  return found;
}

// A text with one name a line; empty when there is no such file, or not as many.
Names read_names(const ImageTree& tree, const char* file, std::size_t count) {
  const std::int64_t id = find_file(tree, file);
  if (id < 0) return {};
  std::vector<std::byte> buffer;
  const auto bytes = tree.read(id, buffer, 1 << 16);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Names names;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t end = line.find_last_not_of(" \r\t");
    if (end != line.npos) names.push_back(printable(line.substr(0, end + 1)));
  }
  return names.size() == count ? names : Names{};
}

std::shared_ptr<const ImageSet> read_idx(const ImageTree& tree, const char* part,
                                         ImageSetInfo info) {
  const auto id_of = [&](const char* kind) {
    const std::string name = fmt::format("{}-{}-ubyte", part, kind);
    const std::int64_t plain = find_file(tree, name);
    return plain >= 0 ? plain : need_file(tree, name + ".gz");
  };
  const std::int64_t images = id_of("images-idx3"), labels = id_of("labels-idx1");
  std::vector<std::byte> image_bytes, label_bytes;
  const auto image_view = tree.read(images, image_bytes, kLargestFile);
  const auto label_view = tree.read(labels, label_bytes, kLargestFile);
  return detail::parse_idx_images(image_view, tree.full_path(images), label_view,
                                  tree.full_path(labels), std::move(info));
}

// The test images are normalised with the mean and deviation of the training images.
ImageData idx_data(const ImageTree& tree, const std::string& name) {
  ImageSetInfo info{.name = name};
  const bool fashion = name == "fashion-mnist" || tree.name().find("fashion") != std::string::npos;
  info.class_names = fashion ? names_of_fashion() : digits(10);
  ImageData data;
  data.train = read_idx(tree, "train", info);
  info.mean = data.train->info().mean;
  info.stddev = data.train->info().stddev;
  data.test = read_idx(tree, "t10k", std::move(info));
  LIPGRAD_CHECK(data.test->info().height == data.train->info().height &&
                    data.test->info().width == data.train->info().width,
                "{}: training images of {} x {} pixels, test images of {} x {}", tree.name(),
                data.train->info().width, data.train->info().height, data.test->info().width,
                data.test->info().height);
  return data;
}

std::shared_ptr<const ImageSet> read_cifar(const ImageTree& tree, const Names& files,
                                           std::int64_t label_bytes, ImageSetInfo info) {
  std::vector<std::uint8_t> pixels, labels;
  for (const std::string& file : files) {
    const std::int64_t id = need_file(tree, file);
    std::vector<std::byte> buffer;
    detail::parse_cifar(tree.read(id, buffer, kLargestFile), tree.full_path(id), label_bytes,
                        static_cast<std::int64_t>(info.class_names.size()), pixels, labels);
  }
  return array_images(std::move(info), std::move(pixels), std::move(labels));
}

ImageData cifar_data(const ImageTree& tree, const std::string& name, bool hundred) {
  ImageSetInfo info{.name = name, .channels = 3, .height = 32, .width = 32};
  info.class_names =
      read_names(tree, hundred ? "fine_label_names.txt" : "batches.meta.txt", hundred ? 100 : 10);
  if (info.class_names.empty())
    info.class_names =
        hundred ? digits(100) : Names{"airplane", "automobile", "bird",  "cat",  "deer",
                                      "dog",      "frog",       "horse", "ship", "truck"};
  ImageData data;
  const Names train = hundred ? Names{"train.bin"}
                              : Names{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                      "data_batch_4.bin", "data_batch_5.bin"};
  data.train = read_cifar(tree, train, hundred ? 2 : 1, info);
  info.mean = data.train->info().mean;
  info.stddev = data.train->info().stddev;
  data.test =
      read_cifar(tree, {hundred ? "test.bin" : "test_batch.bin"}, hundred ? 2 : 1, std::move(info));
  return data;
}

}  // namespace

std::string find_image_data(const std::string& name, const ImageDataOptions& options) {
  const Names folders = search_folders(options);
  if (const Known* known = find_known(name)) {
    for (const std::string& folder : folders)
      for (const std::string& place : known->places)
        if (exists(folder + "/" + place)) return folder + "/" + place;
    const std::string debian = "/usr/share/datasets/" + name;
    return exists(debian) ? debian : std::string();
  }
  if (exists(name)) return name;
  if (name.empty() || name.starts_with('/')) return "";
  for (const std::string& folder : folders)
    for (const char* ending : {"", ".tar", ".tar.gz", ".tgz"})
      if (exists(folder + "/" + name + ending)) return folder + "/" + name + ending;
  return "";
}

std::vector<std::string> known_image_data() {
  Names names;
  for (const Known& set : known_sets()) names.emplace_back(set.name);
  return names;
}

ImageData load_image_data(const std::string& name, const ImageDataOptions& options) {
  LIPGRAD_CHECK(
      options.validation >= 0 && options.validation < 1 && options.test >= 0 && options.test < 1,
      "load_image_data: shares must lie in [0, 1), got validation {} and test {}",
      options.validation, options.test);
  LIPGRAD_CHECK(options.channels == 1 || options.channels == 3,
                "load_image_data: channels must be 1 or 3, got {}", options.channels);
  const std::string place = find_image_data(name, options);
  const Known* known = find_known(name);
  if (place.empty())
    fail("{}: not found {}in {}{}{}", printable(name, 400), known ? "" : "as it is, nor ",
         fmt::join(search_folders(options), ", "), known ? "; " : "; known are ",
         known ? known->advice : fmt::format("{}", fmt::join(known_image_data(), ", ")));

  const auto tree = std::make_shared<const ImageTree>(place);
  const std::string label = known ? name : std::filesystem::path(tree->name()).filename().string();
  ImageData data;
  if (find_file(*tree, "train-images-idx3-ubyte") >= 0 ||
      find_file(*tree, "train-images-idx3-ubyte.gz") >= 0)
    data = idx_data(*tree, label);
  else if (find_file(*tree, "data_batch_1.bin") >= 0)
    data = cifar_data(*tree, label, false);
  else if (find_file(*tree, "train.bin") >= 0 && find_file(*tree, "test.bin") >= 0)
    data = cifar_data(*tree, label, true);
  else
    data = detail::parse_image_folder(tree, label, options);
  if (options.validation > 0) {
    // Of another stream of random numbers than a test set.
    const ImageSplit split = split_images(*data.train, options.validation, options.seed + 1);
    data.validation = image_subset(data.train, split.aside);
    data.train = image_subset(data.train, split.kept);
  }
  return data;
}

}  // namespace lipgrad
