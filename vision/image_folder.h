#pragma once

// Private: images in files whose folders tell their classes.

#include <memory>

#include <lipgrad/vision/image_data.h>
#include <lipgrad/vision/image_tree.h>

namespace lipgrad::detail {

// The data set in a tree of files, in one of the layouts that load_image_data() describes.
ImageData parse_image_folder(std::shared_ptr<const ImageTree> tree, const std::string& name,
                             const ImageDataOptions& options);

}  // namespace lipgrad::detail
