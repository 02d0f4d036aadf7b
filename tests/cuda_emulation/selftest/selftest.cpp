#include "selftest.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace lipgrad::cuda {

// What launch.h and reduce.cuh need of the backend.
cudaStream_t stream() { return nullptr; }
void throw_error(cudaError_t error, const char* what) { selftest::must(error, what), std::abort(); }

}  // namespace lipgrad::cuda

namespace selftest {

std::vector<Bug>& bugs() {
  static std::vector<Bug> all;
  return all;
}

Registered::Registered(const char* name, const char* seen_by, void (*run)()) {
  bugs().push_back({name, seen_by, run});
}

void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Seen{std::string(what) + ": " + cudaGetErrorName(error)};
}

Array::Array(int n) : n_(n) { must(cudaMalloc(&data_, n * sizeof(float)), "cudaMalloc"); }
Array::Array(const std::vector<float>& values) : Array(static_cast<int>(values.size())) {
  must(cudaMemcpy(data_, values.data(), n_ * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
}
Array::~Array() { cudaFree(data_); }

std::vector<float> Array::values() const {
  std::vector<float> host(n_);
  must(cudaMemcpy(host.data(), data_, n_ * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return host;
}

std::vector<float> count_up(int n) {
  std::vector<float> values(n);
  for (int i = 0; i < n; ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

void check_values(const Array& array, const std::vector<float>& expected) {
  const std::vector<float> got = array.values();
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!(std::fabs(got[i] - expected[i]) <= 1e-4f * (1 + std::fabs(expected[i]))))
      throw Seen{"wrong value " + std::to_string(got[i]) + " at " + std::to_string(i) +
                 ", should be " + std::to_string(expected[i])};
}

OwnStream::OwnStream() {
  must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}
OwnStream::~OwnStream() { cudaStreamDestroy(stream_); }

}  // namespace selftest

// selftest --list: the bugs, "NAME: LAYERS". selftest NAME: plants it; exit status 0 when nothing
// was seen, 1 when something was.
int main(int argc, char** argv) {
  for (const selftest::Bug& bug : selftest::bugs()) {
    if (argc == 2 && !std::strcmp(argv[1], "--list")) {
      std::printf("%s: %s\n", bug.name, bug.seen_by);
      continue;
    }
    if (argc != 2 || std::strcmp(argv[1], bug.name) != 0) continue;
    try {
      bug.run();
    } catch (const selftest::Seen& seen) {
      std::printf("seen: %s\n", seen.how.c_str());
      return 1;
    }
    std::printf("unseen\n");
    return 0;
  }
  return argc == 2 && !std::strcmp(argv[1], "--list") ? 0 : 2;
}
