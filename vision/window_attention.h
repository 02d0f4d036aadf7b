#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <lipgrad/vision/multi_head_attention.h>

namespace lipgrad {

// What is added to the scores by the relative position of two tokens of a window.
enum class PositionBias : std::uint8_t {
  none,
  table,      // a learned number for each offset and head: relative_position_bias()
  continuous  // of a network that is given the offset (Swin-V2)
};

struct AttentionWindow {
  std::int64_t height = 7, width = 7;  // in tokens
  PositionBias position = PositionBias::table;
  Initializer table_initializer{};  // unset: normal with deviation 0.02
};

// Self-attention within windows of tokens (Liu et al.: Swin Transformer, ICCV 2021, section 3.2),
// with the parameters and names of Swin's published code: those of MultiHeadAttention, and
// relative_position_bias_table ((2 height - 1) (2 width - 1), H).
//
//   Swin        the options as they are
//   LipsFormer  .attention = {.score = AttentionScore::cosine, .tau = 10}: its published code; with
//               .normalise_v, .eps and .eps_mode = LengthEps::inside_root, and tau and nu, fixed or
//               learned: scaled cosine similarity attention as its paper has it
//   Swin-V2     .attention = {.score = AttentionScore::cosine, .tau = 10}, .learn_tau =
//               Learned::each_head, .tau_ceiling = 100, .qkv_bias = QkvBias::queries_and_values,
//               and .position = PositionBias::continuous of the window: the bias is 16 sigmoid(W2
//               relu(W1 offset + b1)) of relative_position_coordinates(), with parameters cpb_mlp.0
//               (weight (512, 2), bias) and cpb_mlp.2.weight (H, 512); relative_coords_table, which
//               is not trained, holds the offsets
class WindowAttention : public MultiHeadAttention {
 public:
  WindowAttention(Module& parent, std::string name, const MultiHeadAttentionOptions& options,
                  const AttentionWindow& window = {});
  ~WindowAttention() override;

  // x: (windows, T, C), T = height width, row by row. regions: (W, T) labels on x's device, where
  // tokens of different labels do not attend to each other, window b having those of b % W; or
  // undefined. Returns the shape of x.
  Tensor forward(const Tensor& x, const Tensor& regions, Mode mode) const;

  std::optional<Parameter> relative_position_bias_table;

 private:
  class PositionNetwork;
  std::int64_t height_, width_;
  std::unique_ptr<PositionNetwork> network_;
};

}  // namespace lipgrad
