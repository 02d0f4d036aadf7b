#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lipgrad/core/tensor.h>

// Compressed comma-separated numbers, as OGB's data sets consist of; not for users.
namespace lipgrad {

// The text of a gzip file (RFC 1952, of one or more members), inflated piece by piece: memory does
// not depend on its size. Every Error starts with the file's name.
class GzText {
 public:
  // Error when it is not a regular file that can be read.
  explicit GzText(const std::string& path);
  // The same from memory, which must live as long; errors start with `file`.
  GzText(std::span<const std::byte> bytes, std::string file);
  ~GzText();
  GzText(const GzText&) = delete;
  GzText& operator=(const GzText&) = delete;

  const std::string& file() const;
  // Of the compressed file.
  std::int64_t size() const;
  // CRC-32C of the compressed bytes, once next() has returned nothing.
  std::uint32_t crc() const;

  // The next lines, whole and each with its '\n', which the last line of the file gets if it lacks
  // it; eight bytes behind them may be read. Empty at the end. Error for damaged or truncated data,
  // and for a line of more than 16 MiB.
  std::string_view next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// How many lines a file must have, and who says so.
struct CsvRows {
  std::int64_t count = -1;  // any number when negative
  std::string source = {};  // "num-edge-list.csv.gz"
  // Told the number of lines done, now and then.
  std::function<void(std::int64_t)> progress = {};
};

// Lines of whole numbers in [0, bound), column by column: `columns` tensors (rows), i32. Memory
// grows with what was read. Errors name file and line.
std::vector<Tensor> read_csv_ids(GzText& text, int columns, std::int64_t bound,
                                 const CsvRows& rows = {});

// Lines of numbers: (rows, columns) f32, as many columns as the first line has. A number is what
// std::from_chars takes, rounded to double and then to float. Error for those that are not finite,
// unless `missing`: then an empty field and "nan" are NaN.
Tensor read_csv_floats(GzText& text, bool missing, const CsvRows& rows = {});

// Lines of row, column, value with row in [0, rows), ascending (so are the columns of a row), and
// column in [0, 2^24).
struct CsvTriples {
  Tensor offsets;  // (rows + 1), i64
  Tensor columns;  // i32
  Tensor values;   // f32
  std::int64_t num_columns = 0;
};
CsvTriples read_csv_triples(GzText& text, std::int64_t rows);

}  // namespace lipgrad
