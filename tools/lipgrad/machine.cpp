#include "lipgrad/machine.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string_view>

namespace lipgrad::cli {
namespace {

// The value of the first line "name<spaces>: value" or "name: value".
std::string entry(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.find_first_not_of(" \t", name.size()) != colon) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? std::string() : line.substr(value);
  }
  return {};
}

double number(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

std::int64_t kibibytes(const char* name) {
  return static_cast<std::int64_t>(number(entry("/proc/meminfo", name))) * 1024;
}

// The first words of a control group's file.
struct Words {
  std::string first, second;
};
Words words(const char* path) {
  Words w;
  std::ifstream file(path);
  file >> w.first >> w.second;
  return w;
}

}  // namespace

Processor processor() {
  Processor p;
  p.model = entry("/proc/cpuinfo", "model name");
  p.mhz = number(entry("/proc/cpuinfo", "cpu MHz"));
  p.online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  p.allowed = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : p.online;
#ifdef __x86_64__
  p.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  p.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#endif
  p.load = number(words("/proc/loadavg").first);
  const Words v2 = words("/sys/fs/cgroup/cpu.max");
  const double quota = v2.second.empty()
                           ? number(words("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").first)
                           : number(v2.first);  // "max" is no number: 0
  const double period = v2.second.empty()
                            ? number(words("/sys/fs/cgroup/cpu/cpu.cfs_period_us").first)
                            : number(v2.second);
  if (quota > 0 && period > 0) p.quota = quota / period;
  return p;
}

Memory machine_memory() {
  Memory m;
  m.total = kibibytes("MemTotal");
  m.available = kibibytes("MemAvailable");
  double limit = number(words("/sys/fs/cgroup/memory.max").first);
  if (limit <= 0) limit = number(words("/sys/fs/cgroup/memory/memory.limit_in_bytes").first);
  if (limit > 0 && limit < static_cast<double>(m.total)) m.limit = static_cast<std::int64_t>(limit);
  return m;
}

}  // namespace lipgrad::cli
