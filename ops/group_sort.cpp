#include <lipgrad/ops/group_sort.h>

#include <lipgrad/core/check.h>
#include <lipgrad/core/launch.h>
#include <lipgrad/core/op.h>
#include <lipgrad/ops/kernels/group_sort.h>

namespace lipgrad {
namespace {

struct GroupSort {
  static constexpr auto name = "group_sort";

  Tensor forward(Ctx& ctx, Inputs in) const {
    const Tensor& x = in[0];
    ctx.save(x);
    Tensor y = empty_like(x);
    visit_float(name, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(x.device(), group_sort, x.numel() / 2, x.data<T>(), y.mutable_data<T>());
    });
    return y;
  }
  void backward(Ctx& ctx, const Tensor& gy, Grads gx) const {
    Tensor g = empty_like(gy);
    visit_float(name, gy.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      LIPGRAD_LAUNCH(gy.device(), group_sort_backward, gy.numel() / 2, ctx.saved(0).data<T>(),
                     gy.data<T>(), g.mutable_data<T>());
    });
    gx[0] = std::move(g);
  }
};

}  // namespace

Tensor group_sort(const Tensor& x) {
  check_same_kind(GroupSort::name, {&x});
  LIPGRAD_CHECK(x.rank() >= 1 && x.size(-1) % 2 == 0,
                "group_sort: expects an even number of channels, got {}", x.shape());
  return apply(GroupSort{}, x);
}

}  // namespace lipgrad
