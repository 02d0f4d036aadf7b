// Some of this is shared among threads, so ThreadSanitizer looks at it too.
#include <lipgrad/vision/image_data.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <lipgrad/core/error.h>
#include <lipgrad/core/file.h>
#include <lipgrad/vision/image_file.h>
#include <lipgrad/vision/image_tree.h>
#include <lipgrad/vision/raw_images.h>

#include "support/data.h"
#include "support/errors.h"
#include "support/gz.h"
#include "support/temporary_directory.h"

namespace lipgrad {
namespace {

using test::contains;
using test::error_of;
using test::TemporaryDirectory;
using Bytes = std::vector<std::byte>;

Bytes golden(const std::string& name) { return read_file(test::golden(name)); }

void put(const std::string& path, const Bytes& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_file(path, bytes);
}

Bytes bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(begin, begin + text.size());
}

std::string idx(std::initializer_list<unsigned char> sizes, const std::string& values) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const unsigned char size : sizes) text += std::string(3, '\0') + static_cast<char>(size);
  return text + values;
}

// Four IDX files of 2 + 1 images of 2 x 3 pixels.
void put_idx(const std::string& folder, bool gz) {
  const auto one = [&](const std::string& name, const std::string& text) {
    put(folder + "/" + name + (gz ? ".gz" : ""), bytes_of(gz ? test::gz(text) : text));
  };
  one("train-images-idx3-ubyte", idx({2, 2, 3}, std::string("\x00\x33\x66\x99\xcc\xff", 6) +
                                                    std::string("\xff\xcc\x99\x66\x33\x00", 6)));
  one("train-labels-idx1-ubyte", idx({2}, std::string("\x09\x00", 2)));
  one("t10k-images-idx3-ubyte", idx({1, 2, 3}, "abcdef"));
  one("t10k-labels-idx1-ubyte", idx({1}, "\x03"));
}

TEST_CASE("load_image_data: IDX files, compressed or not") {
  for (const bool gz : {false, true}) {
    const TemporaryDirectory dir;
    put_idx(dir / "fashion-mnist", gz);
    const ImageData data = load_image_data("fashion-mnist", {.root = dir.path()});
    REQUIRE(data.train->size() == 2);
    CHECK(data.test->size() == 1);
    CHECK(data.validation == nullptr);
    CHECK(data.train->classes() == 10);
    CHECK(data.train->info().class_names[9] == "Ankle boot");
    CHECK(data.train->info().channels == 1);
    CHECK(data.train->info().height == 2);
    CHECK(data.train->info().width == 3);
    CHECK(data.train->label(0) == 9);
    CHECK(data.test->label(0) == 3);
    Image image;
    data.train->read(1, image);
    CHECK(image.pixels == std::vector<std::uint8_t>{255, 204, 153, 102, 51, 0});
    CHECK(data.train->info().mean[0] == doctest::Approx(0.5));
    CHECK(data.train->info().stddev[0] == doctest::Approx(std::sqrt(0.7 / 6)));
    CHECK(data.test->info().mean == data.train->info().mean);
    CHECK_THROWS_WITH_AS(data.train->read(2, image), "fashion-mnist: image 2 is not in [0, 2)",
                         Error);
  }
}

TEST_CASE("IDX files that are damaged are errors that name them") {
  const auto error = [](const std::string& text, int dimensions = 3) {
    return error_of([&] { detail::parse_idx(bytes_of(text), "x.idx", dimensions); });
  };
  const std::string good = idx({2, 2, 3}, "abcdefghijkl");
  CHECK(error(good).empty());
  CHECK(contains(error(good.substr(0, 10)), "x.idx: truncated: 10 bytes"));
  CHECK(error(good.substr(0, 20)) == "x.idx: holds 4 elements, its sizes (2, 2, 3) say 12");
  CHECK(error(good + "m") == "x.idx: holds 13 elements, its sizes (2, 2, 3) say 12");
  CHECK(contains(error(idx({2}, "ab")), "x.idx: truncated"));
  CHECK(contains(error(idx({2}, "abcdefghijklmnop")),
                 "begins with 0x00 0x00 0x08 0x01, expected an IDX file of bytes in 3 dimensions"));
  CHECK(contains(error(idx({2, 0, 3}, "")), "elements in dimension 1"));
  std::string huge = good;
  for (std::size_t i = 4; i < 16; ++i) huge[i] = '\xff';
  CHECK(contains(error(huge), "x.idx: an IDX file of 4294967295 elements"));
  CHECK(contains(error(test::gz(good).substr(0, 20)), "x.idx: truncated"));
  const auto pair = [&](const std::string& labels) {
    return error_of([&] {
      detail::parse_idx_images(bytes_of(good), "images", bytes_of(labels), "labels",
                               {.name = "x", .class_names = {"a", "b"}});
    });
  };
  CHECK(pair(idx({2}, std::string("\0\1", 2))).empty());
  CHECK(pair(idx({3}, "abc")) == "labels: holds 3 labels, but images holds 2 images");
  CHECK(pair(idx({2}, "\1\2")) == "labels: label 2 of image 1 is not in [0, 2)");
}

TEST_CASE("load_image_data: CIFAR's binary version") {
  const TemporaryDirectory dir;
  const Bytes two = golden("image_set/cifar10.bin");
  for (const char* file : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"})
    put(dir / ("cifar-10-batches-bin/" + std::string(file)), two);
  const ImageData data = load_image_data("cifar10", {.root = dir.path()});
  CHECK(data.train->size() == 10);
  CHECK(data.test->size() == 2);
  CHECK(data.train->info().class_names[3] == "cat");
  CHECK(data.test->label(0) == 3);
  CHECK(data.test->label(1) == 9);
  Image image;
  data.test->read(0, image);
  CHECK(image.channels == 3);
  // Pixel 1 of the red plane, then of the green and the blue one.
  CHECK(int(image.pixels[3]) == (3 + 1) % 256);
  CHECK(int(image.pixels[4]) == (3 + 1024 + 1) % 256);
  CHECK(int(image.pixels[5]) == (3 + 2048 + 1) % 256);

  // CIFAR-100 has two labels, of which the second counts.
  Bytes hundred(3074);
  hundred[0] = std::byte{7};
  hundred[1] = std::byte{99};
  put(dir / "cifar-100-binary/train.bin", hundred);
  put(dir / "cifar-100-binary/test.bin", hundred);
  const ImageData fine = load_image_data("cifar100", {.root = dir.path()});
  CHECK(fine.train->classes() == 100);
  CHECK(fine.train->label(0) == 99);
  // Without contrast there is nothing to scale.
  CHECK(fine.train->info().stddev[0] == 1);

  hundred[1] = std::byte{100};
  put(dir / "cifar-100-binary/test.bin", hundred);
  const std::string folder = dir / "cifar-100-binary";
  CHECK(error_of([&] { load_image_data("cifar100", {.root = dir.path()}); }) ==
        folder + "/test.bin: label 100 of image 0 is not in [0, 100)");
  hundred.pop_back();
  put(dir / "cifar-100-binary/test.bin", hundred);
  CHECK(error_of([&] { load_image_data("cifar100", {.root = dir.path()}); }) ==
        folder + "/test.bin: holds 3073 bytes, expected a multiple of 3074 (a CIFAR image)");
}

TEST_CASE("load_image_data: a folder of classes") {
  const TemporaryDirectory dir;
  const Bytes jpg = golden("image/rgb.jpg"), png = golden("image/grey.png");
  for (const char* part : {"train", "val"})
    for (const char* label : {"b", "a"}) {
      put(dir / (std::string("set/") + part + "/" + label + "/2.png"), png);
      put(dir / (std::string("set/") + part + "/" + label + "/deeper/1.JPEG"), jpg);
      put(dir / (std::string("set/") + part + "/" + label + "/.hidden.jpg"), jpg);
      put(dir / (std::string("set/") + part + "/" + label + "/notes.txt"), jpg);
    }
  put(dir / "set/val/unlabelled.jpg", jpg);
  std::filesystem::create_directory_symlink(dir.path(), dir / "set/train/a/loop");
  const ImageData data = load_image_data("set", {.root = dir.path()});
  CHECK(data.train->size() == 4);
  CHECK(data.train->info().class_names == std::vector<std::string>{"a", "b"});
  CHECK(data.train->name(0) == "train/a/2.png");
  CHECK(data.train->name(1) == "train/a/deeper/1.JPEG");
  CHECK(data.train->label(2) == 1);
  // Without test/ the images of val/ are the test images.
  CHECK(data.test->size() == 4);
  CHECK(data.validation == nullptr);
  if (has_jpeg() && has_png()) {
    CHECK(find_corrupt_images(*data.train).count == 0);
    put(dir / "set/train/b/deeper/1.JPEG", bytes_of("oops"));
    const CorruptImages corrupt = find_corrupt_images(*data.train);
    CHECK(corrupt.count == 1);
    CHECK(corrupt.errors == std::vector<std::string>{
                                (dir / "set") + "/train/b/deeper/1.JPEG: neither a JPEG nor a PNG "
                                                "image"});
  }
  put(dir / "set/test/c/1.jpg", jpg);
  CHECK(error_of([&] { load_image_data(dir / "set"); }) ==
        (dir / "set") + "/test/c/1.jpg: a class that the training images do not have");
}

TEST_CASE("load_image_data: one folder is split by the seed, the same for each class") {
  const TemporaryDirectory dir;
  const Bytes png = golden("image/grey.png");
  for (int i = 0; i < 20; ++i) {
    put(dir / ("set/cat/" + std::to_string(i) + ".png"), png);
    if (i < 10) put(dir / ("set/dog/" + std::to_string(i) + ".png"), png);
  }
  const auto names = [&](const ImageDataOptions& options) {
    const ImageData data = load_image_data(dir / "set", options);
    std::set<std::string> test;
    std::int64_t dogs = 0;
    for (std::int64_t i = 0; i < data.test->size(); ++i) {
      test.insert(data.test->name(i));
      dogs += data.test->label(i);
    }
    CHECK(data.train->size() + data.test->size() == 30);
    CHECK(dogs == 2);
    for (std::int64_t i = 0; i < data.train->size(); ++i)
      CHECK(test.count(data.train->name(i)) == 0);
    return test;
  };
  const auto first = names({});
  CHECK(first.size() == 6);
  CHECK(first == names({}));
  CHECK(first != names({.seed = 1}));
  const ImageData three = load_image_data(dir / "set", {.validation = 0.25});
  CHECK(three.test->size() == 6);
  CHECK(three.validation->size() == 6);
  CHECK(three.train->size() == 18);
  // A fifth of two images is none: all are for training.
  const ImageDataOptions few{.test = 0.2};
  for (const char* name : {"few/cat/0.png", "few/cat/1.png", "few/dog/0.png"}) put(dir / name, png);
  CHECK(load_image_data(dir / "few", few).train->size() == 3);
  CHECK(!load_image_data(dir / "few", few).test);
  put(dir / "flat/1.png", png);
  CHECK(contains(error_of([&] { load_image_data(dir / "flat"); }),
                 "images must lie in a folder for each class"));
  CHECK(contains(error_of([&] { load_image_data(dir / "none"); }), "not found"));
  std::filesystem::create_directory(dir / "none");
  CHECK(contains(error_of([&] { load_image_data(dir / "none"); }), "holds no .jpg"));
}

TEST_CASE("load_image_data: archives, compressed or not") {
  if (!has_jpeg() || !has_png()) return;
  const TemporaryDirectory dir;
  for (const char* kind : {"ustar", "gnu", "pax"}) {
    CAPTURE(kind);
    const Bytes tar = golden(std::string("image_set/") + kind + ".tar");
    put(dir / "a.tar", tar);
    const std::string text(reinterpret_cast<const char*>(tar.data()), tar.size());
    put(dir / "b.tar.gz", bytes_of(test::gz(text)));
    for (const char* name : {"a", "b"}) {
      const ImageData data = load_image_data(name, {.root = dir.path()});
      CHECK(data.train->size() == 2);
      CHECK(data.test->size() == 1);
      CHECK(data.train->info().class_names == std::vector<std::string>{"a", "b"});
      CHECK(data.train->name(0).ends_with("/rgb.jpg"));
      CHECK(data.train->name(0).size() == (kind == std::string("ustar") ? 19 : 140));
      Image image;
      data.train->read(1, image);
      CHECK(image.height == 22);
      CHECK(image.channels == 3);
    }
    for (const std::size_t size : {100, 600, 700, 1500, 2000}) {
      CAPTURE(size);
      const std::string error =
          error_of([&] { detail::read_tar(std::span(tar).first(size), "x.tar"); });
      CHECK(error.starts_with("x.tar: "));
    }
    Bytes damaged = tar;
    damaged[3] ^= std::byte{1};
    CHECK(error_of([&] { detail::read_tar(damaged, "x.tar"); }) ==
          "x.tar: not a tar archive at offset 0: a header's checksum is wrong");
  }
}

TEST_CASE("array_images, image_subset and split_images") {
  const ImageSetInfo info{
      .name = "x", .class_names = {"a", "b"}, .channels = 1, .height = 1, .width = 2};
  const auto set = array_images(info, {0, 255, 10, 20, 30, 40}, {1, 0, 1});
  CHECK(set->info().mean[0] == doctest::Approx(355.0 / 6 / 255));
  const auto part = image_subset(set, {2, 0, 2});
  CHECK(part->size() == 3);
  CHECK(part->label(1) == 1);
  CHECK(part->name(0) == "x, image 2");
  Image image;
  part->read(0, image);
  CHECK(image.pixels == std::vector<std::uint8_t>{30, 40});
  CHECK_THROWS_WITH_AS(image_subset(set, {3}), "image_subset: image 3 is not in [0, 3)", Error);
  CHECK_THROWS_WITH_AS(array_images(info, {1, 2, 3}, {0}),
                       "array_images: 3 bytes of pixels for 1 images of 2", Error);
  CHECK_THROWS_WITH_AS(array_images(info, {1, 2}, {2}), "array_images: label 2 is not in [0, 2)",
                       Error);
  const ImageSplit split = split_images(*set, 1, 0);
  CHECK(split.kept.empty());
  CHECK(split.aside == std::vector<std::int64_t>{0, 1, 2});
}

TEST_CASE("load_image_data says what it knows and where it looked") {
  const TemporaryDirectory dir;
  CHECK(error_of([&] { load_image_data("cifar10", {.root = dir.path()}); }) ==
        "cifar10: not found in " + dir.path() + ", " + dir.path() +
            "/images; get them with tools/fetch_data cifar10");
  CHECK(error_of([&] { load_image_data("coral", {.root = dir.path()}); }) ==
        "coral: not found as it is, nor in " + dir.path() + ", " + dir.path() +
            "/images; known are fashion-mnist, mnist, cifar10, cifar100, imagenette");
}

TEST_CASE("load_image_data: the real files") {
  if (find_image_data("fashion-mnist").empty()) {
    MESSAGE("skipped: no fashion-mnist (Debian's package dataset-fashion-mnist)");
  } else {
    const ImageData data = load_image_data("fashion-mnist");
    CHECK(data.train->size() == 60000);
    CHECK(data.test->size() == 10000);
    CHECK(data.train->info().mean[0] == doctest::Approx(0.2860).epsilon(1e-3));
    CHECK(data.train->info().stddev[0] == doctest::Approx(0.3530).epsilon(1e-3));
    std::vector<int> count(10);
    for (std::int64_t i = 0; i < 60000; ++i) ++count[data.train->label(i)];
    CHECK(count == std::vector<int>(10, 6000));
  }
  if (!has_jpeg()) return;
  if (const std::string path = test::find_data("images/cifar10_subset.tar.gz"); !path.empty()) {
    const ImageData data = load_image_data("cifar10_subset");
    CHECK(data.train->size() == 25000);
    CHECK(data.test->size() == 5000);
    CHECK(data.train->info().class_names[0] == "airplane");
    Image image;
    data.train->read(12345, image);
    CHECK(image.width == 32);
  }
  if (const std::string path = test::find_data("images/imagenette_mini224.tar"); !path.empty()) {
    const ImageData data = load_image_data(path);
    CHECK(data.train->size() == 1000);
    CHECK(data.test->size() == 300);
    CHECK(data.train->info().class_names[0] == "n01440764");
    CHECK(find_corrupt_images(*data.test).count == 0);
  }
}

}  // namespace
}  // namespace lipgrad
