#include <lipgrad/vision/window_attention.h>

#include <memory>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/ops/activation.h>
#include <lipgrad/ops/elementwise.h>
#include <lipgrad/ops/init.h>
#include <lipgrad/vision/relative_position.h>

namespace lipgrad {

// Swin-V2's table as a function of the offset.
class WindowAttention::PositionNetwork : public Module {
 public:
  PositionNetwork(Module& parent, const MultiHeadAttentionOptions& o, const AttentionWindow& window)
      : Module(parent, "cpb_mlp"),
        first_(*this, "0", 2, hidden, {.activation = Activation::relu, .dtype = o.dtype}),
        second_(*this, "2", hidden, o.heads, {.bias = false, .dtype = o.dtype}),
        coordinates_(
            parent, "relative_coords_table", {(2 * window.height - 1) * (2 * window.width - 1), 2},
            [window](Tensor& to, Generator&) {
              copy_into(to, relative_position_coordinates(window.height, window.width, to.dtype()));
            },
            o.dtype) {
    coordinates_.set_trainable(false);
  }

  Tensor table() const {
    return mul(sigmoid(second_.forward(first_.forward(coordinates_.value()))), 16);
  }

 private:
  static constexpr std::int64_t hidden = 512;
  Linear first_, second_;
  Parameter coordinates_;
};

WindowAttention::WindowAttention(Module& parent, std::string name,
                                 const MultiHeadAttentionOptions& options,
                                 const AttentionWindow& window)
    : MultiHeadAttention(parent, std::move(name), options),
      height_(window.height),
      width_(window.width) {
  LIPGRAD_CHECK(height_ >= 1 && width_ >= 1,
                "WindowAttention: the window must be at least 1 x 1, got {} x {}", height_, width_);
  if (window.position == PositionBias::table)
    relative_position_bias_table.emplace(
        *this, "relative_position_bias_table",
        Shape{(2 * height_ - 1) * (2 * width_ - 1), options.heads},
        window.table_initializer ? window.table_initializer : init::normal(0, 0.02), options.dtype);
  if (window.position == PositionBias::continuous)
    network_ = std::make_unique<PositionNetwork>(*this, options, window);
}

WindowAttention::~WindowAttention() = default;

Tensor WindowAttention::forward(const Tensor& x, const Tensor& regions, Mode mode) const {
  const ModuleScope scope(path());
  LIPGRAD_CHECK(x.defined() && x.rank() == 3 && x.size(1) == height_ * width_,
                "WindowAttention: x must be (windows, {}, C), got {}", height_ * width_, x.shape());
  Tensor bias;
  if (relative_position_bias_table)
    bias = relative_position_bias(*relative_position_bias_table, height_, width_);
  if (network_) bias = relative_position_bias(network_->table(), height_, width_);
  return attend(x, bias, regions, mode);
}

}  // namespace lipgrad
