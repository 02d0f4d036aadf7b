#include <lipgrad/graph/features.h>

#include <doctest/doctest.h>

#include <vector>

#include <lipgrad/core/error.h>

namespace lipgrad {

TEST_CASE("features: dense and sparse ones") {
  const Tensor dense = from_values<float>({3, 2}, {1, 3, 0, 0, -2, 0});
  const Features a = dense, b = CsrMatrix::from_dense(dense);
  CHECK(!a.is_sparse());
  CHECK(b.is_sparse());
  for (const Features& x : {a, b}) {
    CHECK(x.rows() == 3);
    CHECK(x.cols() == 2);
    CHECK(x.dtype() == f32);
    CHECK(bitwise_equal(x.to_dense(), dense));
    CHECK(x.to(f64).dtype() == f64);
    CHECK(x.to(f64).is_sparse() == x.is_sparse());
    CHECK(row_normalize(x).is_sparse() == x.is_sparse());
    CHECK(row_normalize(x).to_dense().to_vector<float>() ==
          std::vector<float>{0.25f, 0.75f, 0, 0, -1, 0});
    CHECK(row_normalize(x.to(f64)).to_dense().to_vector<double>() ==
          std::vector<double>{0.25, 0.75, 0, 0, -1, 0});
    CHECK_THROWS_AS(x.to(i32), Error);
  }
  CHECK(b.sparse().nnz() == 3);
  CHECK_THROWS_WITH_AS(a.sparse(), "features: sparse ones are wanted, these are dense", Error);
  CHECK_THROWS_WITH_AS(b.dense(), "features: dense ones are wanted, these are sparse", Error);
  CHECK_THROWS_AS(Features(ones({3})), Error);
  CHECK_THROWS_AS(Features{Tensor()}, Error);
  CHECK_THROWS_AS(Features{CsrMatrix()}, Error);
  CHECK_THROWS_AS(Features(ones({3, 2}, i32)), Error);
  CHECK(!Features().defined());
}

}  // namespace lipgrad
