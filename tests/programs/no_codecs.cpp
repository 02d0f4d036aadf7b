// Linked with vision/jpeg.cpp and vision/png.cpp as they are in a build without the two libraries:
// each kind of image is refused with the name of what is missing.
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

#include <lipgrad/core/error.h>
#include <lipgrad/vision/image_codecs.h>
#include <lipgrad/vision/image_file.h>

namespace {

using Decode = void (*)(std::span<const std::byte>, const std::string&, lipgrad::Image&,
                        std::int64_t);

bool refuses(Decode decode, const std::string& library, const std::string& option) {
  lipgrad::Image image;
  try {
    decode({}, "cat.img", image, 1);
  } catch (const lipgrad::Error& error) {
    const std::string text = error.what();
    if (text.starts_with("cat.img: ") && text.find(library) != std::string::npos &&
        text.find(option) != std::string::npos)
      return true;
    std::printf("says: %s\n", text.c_str());
  }
  return false;
}

}  // namespace

int main() {
  const bool right =
      !lipgrad::has_jpeg() && !lipgrad::has_png() &&
      refuses(lipgrad::detail::decode_jpeg, "no libjpeg-turbo", "-DLIPGRAD_JPEG=ON") &&
      refuses(lipgrad::detail::decode_png, "no libpng", "-DLIPGRAD_PNG=ON");
  std::printf("%s\n", right ? "ok" : "wrong");
  return right ? 0 : 1;
}
