#include <lipgrad/core/data_folders.h>

#include <cstdlib>

namespace lipgrad {

std::vector<std::string> data_folders(const std::string& root) {
  if (!root.empty()) return {root};
  std::vector<std::string> folders;
  if (const char* data = std::getenv("LIPGRAD_DATA"); data && *data) folders.emplace_back(data);
  if (const char* home = std::getenv("HOME"); home && *home)
    folders.push_back(std::string(home) + "/.cache/lipgrad");
  return folders;
}

}  // namespace lipgrad
