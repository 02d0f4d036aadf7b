#include <lipgrad/vision/image_folder.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <lipgrad/core/check.h>
#include <lipgrad/core/printable.h>
#include <lipgrad/vision/image_file.h>

namespace lipgrad::detail {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{256} << 20;

class FileImages final : public ImageSet {
 public:
  struct File {
    std::int64_t id, label;
  };
  FileImages(ImageSetInfo info, std::shared_ptr<const ImageTree> tree, std::vector<File> files,
             std::int64_t max_pixels)
      : ImageSet(std::move(info)),
        tree_(std::move(tree)),
        files_(std::move(files)),
        max_pixels_(max_pixels) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  std::int64_t label(std::int64_t i) const override { return file(i).label; }
  std::string name(std::int64_t i) const override {
    return printable(tree_->path(file(i).id), 400);
  }
  void read(std::int64_t i, Image& image) const override {
    std::vector<std::byte> buffer;
    const std::string path = printable(tree_->full_path(file(i).id), 400);
    decode_image(tree_->read(file(i).id, buffer, kLargestFile), path, image,
                 {.channels = info().channels, .max_pixels = max_pixels_});
  }

 private:
  const File& file(std::int64_t i) const {
    check_index(i);
    return files_[static_cast<std::size_t>(i)];
  }

  std::shared_ptr<const ImageTree> tree_;
  std::vector<File> files_;
  std::int64_t max_pixels_;
};

bool is_image(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot == path.npos) return false;
  std::string extension(path.substr(dot));
  for (char& c : extension) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  for (const char* known : {".jpg", ".jpeg", ".jpe", ".png"})
    if (extension == known) return true;
  return false;
}

// An image file: where it stands in the tree, and the path that is left of it.
struct Found {
  std::int64_t id;
  std::string_view path;
};

std::string_view folder_of(std::string_view path) {
  const std::size_t end = path.find('/');
  return end == path.npos ? std::string_view() : path.substr(0, end);
}

enum Part { kTrain, kValidation, kTest, kOther };

Part part_of(std::string_view folder) {
  if (folder == "train" || folder == "training") return kTrain;
  if (folder == "val" || folder == "valid" || folder == "validation") return kValidation;
  if (folder == "test" || folder == "testing") return kTest;
  return kOther;
}

void leave(std::vector<Found>& files) {
  for (Found& file : files) file.path.remove_prefix(folder_of(file.path).size() + 1);
}

// Leaves a folder that everything lies in, as in an archive, if it is not one of images.
void leave_outer(std::vector<Found>& files) {
  while (!files.empty()) {
    const std::string_view outer = folder_of(files.front().path);
    if (outer.empty() || part_of(outer) != kOther) return;
    for (const Found& file : files)
      if (folder_of(file.path) != outer || folder_of(file.path.substr(outer.size() + 1)).empty())
        return;
    leave(files);
  }
}

}  // namespace

ImageData parse_image_folder(std::shared_ptr<const ImageTree> tree, const std::string& name,
                             const ImageDataOptions& options) {
  std::vector<Found> all;
  for (std::int64_t i = 0; i < tree->size(); ++i)
    if (is_image(tree->path(i))) all.push_back({i, tree->path(i)});
  LIPGRAD_CHECK(!all.empty(), "{}: holds no .jpg, .jpeg or .png image", tree->name());
  leave_outer(all);
  std::array<std::vector<Found>, 3> parts;
  for (const Found& file : all)
    if (const Part part = part_of(folder_of(file.path)); part != kOther)
      parts[part].push_back(file);
  if (parts[kTrain].empty()) {
    parts = {all};
  } else {
    for (auto& part : parts) leave(part);
  }

  // What lies in no class's folder is not labelled.
  for (auto& part : parts)
    std::erase_if(part, [](const Found& file) { return folder_of(file.path).empty(); });
  ImageSetInfo info{.name = name, .channels = options.channels};
  for (const Found& file : parts[kTrain]) {
    const std::string_view folder = folder_of(file.path);
    if (info.class_names.empty() || info.class_names.back() != folder)
      info.class_names.emplace_back(folder);
  }
  auto& classes = info.class_names;
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  LIPGRAD_CHECK(!classes.empty(),
                "{}: images must lie in a folder for each class, <class>/... or train/<class>/...",
                tree->name());
  // ImageNet's, as usual for photographs.
  info.mean = {0.485, 0.456, 0.406};
  info.stddev = {0.229, 0.224, 0.225};
  if (options.channels == 1) {
    info.mean = {0.449};
    info.stddev = {0.226};
  }

  const auto set_of = [&](const std::vector<Found>& part) -> std::shared_ptr<const ImageSet> {
    if (part.empty()) return nullptr;
    std::vector<FileImages::File> files;
    for (const Found& file : part) {
      const std::string_view folder = folder_of(file.path);
      const auto found = std::lower_bound(classes.begin(), classes.end(), folder);
      LIPGRAD_CHECK(found != classes.end() && *found == folder,
                    "{}: a class that the training images do not have",
                    printable(tree->full_path(file.id), 400));
      files.push_back({file.id, found - classes.begin()});
    }
    return std::make_shared<FileImages>(info, tree, std::move(files), options.max_pixels);
  };
  ImageData data{set_of(parts[kTrain]), set_of(parts[kValidation]), set_of(parts[kTest])};
  if (!data.test) std::swap(data.test, data.validation);
  if (!data.test && options.test > 0) {
    const ImageSplit split = split_images(*data.train, options.test, options.seed);
    if (split.aside.empty()) return data;  // too few of each class
    data.test = image_subset(data.train, split.aside);
    data.train = image_subset(data.train, split.kept);
  }
  return data;
}

}  // namespace lipgrad::detail
