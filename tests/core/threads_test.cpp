#include <lipgrad/core/threads.h>

#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include <lipgrad/core/error.h>

namespace lipgrad {

TEST_CASE("parallel_for covers every index once, whatever the number of threads") {
  const int before = num_threads();
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    for (std::int64_t n : {0, 1, 7, 64, 1000}) {
      std::vector<int> hits(n);
      parallel_for(n, 13, [&](std::int64_t begin, std::int64_t end) {
        CHECK(begin % 13 == 0);
        for (std::int64_t i = begin; i < end; ++i) ++hits[i];
      });
      CHECK(std::accumulate(hits.begin(), hits.end(), 0) == n);
      for (int hit : hits) CHECK(hit == 1);
    }
  }
  set_num_threads(before);
}

TEST_CASE("parallel_for rethrows, nests and goes on working") {
  const int before = num_threads();
  set_num_threads(3);
  CHECK_THROWS_WITH_AS(parallel_for(100, 1,
                                    [](std::int64_t begin, std::int64_t) {
                                      if (begin == 42) throw Error("stop");
                                    }),
                       "stop", Error);
  std::atomic<int> sum = 0;
  parallel_for(10, 1, [&](std::int64_t, std::int64_t) {
    parallel_for(10, 1, [&](std::int64_t, std::int64_t) { ++sum; });
  });
  CHECK(sum == 100);
  CHECK_THROWS_AS(set_num_threads(0), Error);
  set_num_threads(before);
}

}  // namespace lipgrad
