// How many images a second one processor decodes and augments: JPEGs of 500 x 375 pixels, made up
// first and written to a folder of classes, to crops of 224 x 224. Then the loader, all threads.
//
//   lipgrad_bench_image_rate [IMAGES]
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <jpeglib.h>

#include <lipgrad/core/file.h>
#include <lipgrad/core/threads.h>
#include <lipgrad/vision/image_file.h>
#include <lipgrad/vision/loader.h>

namespace {

using namespace lipgrad;

constexpr std::int64_t kHeight = 375, kWidth = 500;

double processor_seconds() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Waves of all lengths with noise, so that the file is about as large as a photograph's.
std::vector<std::uint8_t> picture(std::uint64_t seed) {
  ImageRandom random(seed, 0, 0);
  std::vector<double> values(kHeight * kWidth * 3, 128);
  for (int wave = 0; wave < 12; ++wave) {
    const double fx = random.uniform(-0.5, 0.5) / (wave + 1), fy = random.uniform(-0.5, 0.5),
                 shift = random.uniform(0, 6);
    for (std::int64_t y = 0, i = 0; y < kHeight; ++y)
      for (std::int64_t x = 0; x < kWidth; ++x)
        for (int c = 0; c < 3; ++c, ++i)
          values[i] +=
              12 * std::sin(fx * static_cast<double>(x) + fy * static_cast<double>(y) + shift + c);
  }
  std::vector<std::uint8_t> pixels;
  for (const double v : values)
    pixels.push_back(
        static_cast<std::uint8_t>(std::fmin(255, std::fmax(0, v + random.uniform(-11, 11)))));
  return pixels;
}

std::vector<std::byte> encode(std::vector<std::uint8_t> pixels) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);
  info.image_width = kWidth;
  info.image_height = kHeight;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = pixels.data() + std::size_t{info.next_scanline} * kWidth * 3;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  jpeg_destroy_compress(&info);
  std::free(data);
  return bytes;
}

template <class F>
void measure(const char* what, std::int64_t images, F&& f) {
  const double wall = wall_seconds(), processor = processor_seconds();
  f();
  const double used = processor_seconds() - processor, waited = wall_seconds() - wall;
  std::printf("%-44s %7.0f images/s a core  %7.0f images/s\n", what,
              static_cast<double>(images) / used, static_cast<double>(images) / waited);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t images = argc > 1 ? std::atoll(argv[1]) : 512;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("lipgrad-images-" + std::to_string(::getpid()));
  std::vector<std::vector<std::byte>> files;
  double bytes = 0;
  for (std::uint64_t i = 0; i < 32; ++i) {
    files.push_back(encode(picture(i)));
    bytes += static_cast<double>(files.back().size());
    const auto place = folder / "train" / (i % 2 ? "a" : "b");
    std::filesystem::create_directories(place);
    write_file((place / (std::to_string(i) + ".jpg")).string(), files.back());
  }
  std::printf("%lld images of 500 x 375 pixels, %.0f kB each on average\n",
              static_cast<long long>(images), bytes / 32e3);
  const ImageData data = load_image_data(folder.string(), {.test = 0});
  const ImageTransform transform(data.train->info(), {}, {});
  std::vector<float> out(static_cast<std::size_t>(transform.numel(true)));
  TransformScratch scratch;
  Image image;
  measure("decoding", images, [&] {
    for (std::int64_t i = 0; i < images; ++i) decode_image(files[i % 32], "x.jpg", image);
  });
  measure("crop, resize, flip, normalise", images, [&] {
    for (std::int64_t i = 0; i < images; ++i) transform.train(image, 1, 0, i, scratch, out.data());
  });
  measure("file to crop (training)", images, [&] {
    for (std::int64_t i = 0; i < images; ++i) {
      data.train->read(i % 32, image);
      transform.train(image, 1, 0, i, scratch, out.data());
    }
  });
  measure("file to middle of 256 (evaluation)", images, [&] {
    for (std::int64_t i = 0; i < images; ++i) {
      data.train->read(i % 32, image);
      transform.evaluate(image, scratch, out.data());
    }
  });
  ImageLoader loader(data.train, {.batch_size = 32});
  loader.next();
  measure(("loader, " + std::to_string(num_threads()) + " threads").c_str(), images, [&] {
    for (std::int64_t i = 0; i < images; i += 32) loader.next();
  });
  std::filesystem::remove_all(folder);
}
