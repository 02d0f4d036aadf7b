#include <lipgrad/graph/datasets.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <lipgrad/core/file.h>
#include <support/environment.h>
#include <support/temporary_directory.h>

namespace lipgrad {

namespace fs = std::filesystem;

TEST_CASE("node data: where its files are, without reading them") {
  test::TemporaryDirectory dir;
  const NodeDataOptions options{.root = dir.path()};
  CHECK(node_data_folders(options) == std::vector<std::string>{dir.path()});
  CHECK(!find_node_data("cora", options));
  for (const char* part : {"x", "y", "tx", "ty", "allx", "ally", "graph"})
    write_file(dir / ("ind.cora." + std::string(part)), {});
  CHECK(!find_node_data("cora", options));  // test.index is missing
  write_file(dir / "ind.cora.test.index", {});
  CHECK(find_node_data("cora", options) == dir / "ind.cora.");
  fs::create_directory(dir / "npz");
  write_file(dir / "npz/texas.npz", {});
  CHECK(find_node_data("texas", options) == dir / "npz/texas.npz");
  CHECK(!find_node_data("cornell", options));
  CHECK(!find_node_data("generated", options));
  CHECK(!find_node_data("../npz/texas", options));

  const test::EnvironmentVariable home("HOME", dir / "home"), data("LIPGRAD_DATA", dir.path());
  CHECK(node_data_folders() ==
        std::vector<std::string>{dir.path(), dir / "home" + "/.cache/lipgrad"});
  CHECK(find_node_data("texas") == dir / "npz/texas.npz");
}

}  // namespace lipgrad
