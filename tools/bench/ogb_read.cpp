// How fast OGB's compressed text is read: an edge file of 40 million lines (ogbn-proteins has
// 39.6), made up first, and one of features. Prints megabytes of text a second of one processor's
// time, and what inflating alone takes of it.
//
//   lipgrad_bench_ogb_read [LINES [FOLDER]]
#include <sys/resource.h>
#include <zlib.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <lipgrad/core/philox.h>
#include <lipgrad/graph/csv_gz.h>

namespace {

using namespace lipgrad;

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

// Writes `lines` lines, each appended by line(i, text); returns the bytes of text.
template <class Line>
double write_gz(const std::string& path, std::int64_t lines, Line line) {
  const gzFile file = gzopen(path.c_str(), "wb1");
  if (!file) throw std::runtime_error(path + ": cannot be written");
  std::string text;
  double bytes = 0;
  for (std::int64_t i = 0; i <= lines; ++i) {
    if (i < lines) line(i, text);
    if (text.size() < (1 << 20) && i < lines) continue;
    bytes += static_cast<double>(text.size());
    if (!text.empty() && gzwrite(file, text.data(), static_cast<unsigned>(text.size())) <= 0)
      throw std::runtime_error(path + ": cannot be written");
    text.clear();
  }
  if (gzclose(file) != Z_OK) throw std::runtime_error(path + ": cannot be written");
  return bytes;
}

template <class F>
void measure(const char* what, double bytes, F&& f) {
  const double wall = wall_seconds(), processor = processor_seconds();
  f();
  const double used = processor_seconds() - processor;
  std::printf("%-28s %8.1f MB of text  %6.2f s processor  %6.2f s wall  %7.1f MB/s a core\n", what,
              bytes / 1e6, used, wall_seconds() - wall, bytes / 1e6 / used);
}

void inflate_only(const std::string& path) {
  GzText text(path);
  while (!text.next().empty()) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t lines = argc > 1 ? std::atoll(argv[1]) : 40'000'000;
  const std::filesystem::path folder =
      argc > 2 ? std::filesystem::path(argv[2]) : std::filesystem::temp_directory_path();
  constexpr std::int64_t nodes = 132534;
  const std::string edges = folder / "lipgrad_edge.csv.gz",
                    features = folder / "lipgrad_edge-feat.csv.gz";
  try {
    const double edge_bytes = write_gz(edges, lines, [&](std::int64_t i, std::string& text) {
      const PhiloxBlock r = philox(1, 0, static_cast<std::uint64_t>(i));
      text += std::to_string(i * nodes / lines);
      text += ',';
      text += std::to_string(r.word[0] % nodes);
      text += '\n';
    });
    measure("edges, inflating alone", edge_bytes, [&] { inflate_only(edges); });
    measure("edges", edge_bytes, [&] {
      GzText text(edges);
      read_csv_ids(text, 2, nodes, {.count = lines, .source = "the benchmark"});
    });
    std::filesystem::remove(edges);
    const double feature_bytes =
        write_gz(features, lines / 10, [&](std::int64_t i, std::string& text) {
          for (std::uint64_t c = 0; c < 8; ++c) {
            const PhiloxBlock r = philox(2, c, static_cast<std::uint64_t>(i));
            char number[16];
            std::snprintf(number, sizeof number, "%.3f", (r.word[0] % 1000) / 1000.0);
            text += number;
            text += c + 1 < 8 ? ',' : '\n';
          }
        });
    measure("features, inflating alone", feature_bytes, [&] { inflate_only(features); });
    measure("features", feature_bytes, [&] {
      GzText text(features);
      read_csv_floats(text, false, {.count = lines / 10, .source = "the benchmark"});
    });
    std::filesystem::remove(features);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
