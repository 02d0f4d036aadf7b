#include <lipgrad/graph/csv_gz.h>

#include <doctest/doctest.h>

#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include <lipgrad/core/error.h>
#include <lipgrad/core/philox.h>
#include <support/gz.h>

namespace lipgrad {
namespace {

Tensor floats(const std::string& text, bool missing = false) {
  const std::string bytes = test::gz(text);
  GzText gz(std::as_bytes(std::span(bytes)), "x.csv.gz");
  return read_csv_floats(gz, missing);
}

}  // namespace

TEST_CASE("csv: numbers are those of from_chars, whatever their form") {
  std::vector<std::string> texts{"0",
                                 "-0",
                                 "7.",
                                 ".5",
                                 "-.5",
                                 "1e5",
                                 "1E-5",
                                 "0.1",
                                 "1e-46",
                                 "1e-400",
                                 "3e38",
                                 "007.50",
                                 "9007199254740993",
                                 "9007199254740992",
                                 "123456789012345678",
                                 "1234567890123456789",
                                 "12345678901234567890123",
                                 "0.1234567890123456789",
                                 "16777217",
                                 "0.00000000000000000000000000000001",
                                 "1.17549435e-38"};
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const PhiloxBlock r = philox(3, 0, i);
    char text[64];
    const double value = (r.word[0] / 4294967296.0 - 0.5) * (1 << r.word[2] % 20);
    std::snprintf(text, sizeof text, i % 3 == 0 ? "%.*e" : "%.*f", static_cast<int>(r.word[1] % 20),
                  value);
    texts.emplace_back(text);
  }
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  const Tensor values = floats(all);
  REQUIRE(values.shape() == Shape({static_cast<std::int64_t>(texts.size()), 1}));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    double expected = 0;
    std::from_chars(texts[i].data(), texts[i].data() + texts[i].size(), expected);
    if (values.data<float>()[i] != static_cast<float>(expected)) {
      ++wrong;
      MESSAGE(texts[i]);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("csv: what is no number") {
  for (const char* text : {"", "-", ".", "+1", "1e", "1x", " 1", "1 ", "0x10", "--1", "1,", ",1",
                           "1e5000", "nan", "-inf", "1\r", "\0"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(floats(std::string(text) + "\n"), Error);
  }
  CHECK(floats(",nan\n1,\n", true).shape() == Shape({2, 2}));
  CHECK_THROWS_AS(floats("inf\n", true), Error);
}

TEST_CASE("csv: pieces end where lines do, for lines and files of any length") {
  // Of lines that do not fit a piece, and ones whose ends fall on every place in it.
  for (const int width : {1, 7, 1000, 40000}) {
    std::string text;
    std::int64_t rows = 0;
    for (; text.size() < 900000; ++rows)
      for (int c = 0; c < width; ++c)
        text += std::to_string((rows * 31 + c) % 100003) + (c + 1 < width ? "," : "\n");
    const Tensor values = floats(text);
    REQUIRE(values.shape() == Shape({rows, width}));
    bool equal = true;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        equal = equal &&
                values.data<float>()[r * width + c] == static_cast<float>((r * 31 + c) % 100003);
    CHECK(equal);
  }
  CHECK(floats("").numel() == 0);
  CHECK(floats("5").to_vector<float>() == std::vector<float>{5});
}

TEST_CASE("csv: ids of every length") {
  std::string text;
  std::vector<std::int32_t> expected;
  for (std::int64_t i = 1; i < (std::int64_t{1} << 31); i = i * 3 + 1) {
    text += std::to_string(i) + "," + std::to_string(i / 2) + "\n";
    expected.push_back(static_cast<std::int32_t>(i));
  }
  text += "2147483647,0000000000000012\n";
  expected.push_back(2147483647);
  const std::string bytes = test::gz(text);
  GzText gz(std::as_bytes(std::span(bytes)), "x.csv.gz");
  std::int64_t told = 0;
  const CsvRows rows{.count = static_cast<std::int64_t>(expected.size()),
                     .source = "the test",
                     .progress = [&](std::int64_t lines) { told = lines; }};
  const std::vector<Tensor> ids = read_csv_ids(gz, 2, std::int64_t{1} << 31, rows);
  CHECK(ids[0].to_vector<std::int32_t>() == expected);
  CHECK(ids[1].to_vector<std::int32_t>().back() == 12);
  CHECK(told == rows.count);
}

}  // namespace lipgrad
