#include <lipgrad/ops/kernels/depthwise_conv.h>
#include <lipgrad/ops/kernels/linear.h>

#include "column_sums.cuh"

namespace lipgrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 32, kSlots = kThreads / kLanes;  // channels, and rows at a time

// Where item i of (images, rows, runs of columns, channels) lies.
struct Place {
  std::int64_t image, row;
  int run, channel;

  __device__ Place(std::int64_t i, std::int64_t rows, std::int64_t runs, std::int64_t channels) {
    const std::int64_t line = i / channels;
    channel = static_cast<int>(i - line * channels);
    const std::int64_t up = line / runs;
    run = static_cast<int>(line - up * runs);
    image = up / rows;
    row = up - image * rows;
  }
};

// A thread kRun neighbouring outputs of a row and a channel, for stride 1: each pixel is read once
// for up to kTaps of them. weight(taps, channels), from its last tap where `turn`.
template <int kTaps, int kRun, class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(ConvShape s, std::int64_t n, std::int64_t runs, bool turn, const T* x,
                   const T* weight, const T* bias, T* y) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const Place at(i, s.out_height, runs, s.channels);
  const std::int64_t ox = static_cast<std::int64_t>(at.run) * kRun, left = ox - s.pad_right;
  const std::int64_t step = turn ? -s.channels : s.channels;
  const T* w = weight + at.channel + (turn ? (s.taps() - 1) * s.channels : 0);
  T sum[kRun];
#pragma unroll
  for (int r = 0; r < kRun; ++r) sum[r] = bias ? bias[at.channel] : T(0);
  for (std::int64_t ky = 0; ky < s.kernel_height; ++ky, w += kTaps * step) {
    const std::int64_t iy = at.row - s.pad_down + ky;
    if (iy < 0 || iy >= s.height) continue;
    const T* from = x + ((at.image * s.height + iy) * s.width + left) * s.channels + at.channel;
    T tap[kTaps];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) tap[k] = w[k * step];
#pragma unroll
    for (int j = 0; j < kRun + kTaps - 1; ++j) {
      const T v = left + j >= 0 && left + j < s.width ? from[j * s.channels] : T(0);
#pragma unroll
      for (int r = 0; r < kRun; ++r)
        if (j >= r && j - r < kTaps) sum[r] += v * tap[j - r];
    }
  }
  T* to = y + ((at.image * s.out_height + at.row) * s.out_width + ox) * s.channels + at.channel;
#pragma unroll
  for (int r = 0; r < kRun; ++r)
    if (ox + r < s.out_width) to[r * s.channels] = sum[r];
}

// A thread an output, any stride.
template <class T>
__global__ void forward_any_kernel(ConvShape s, std::int64_t n, bool turn, const T* x,
                                   const T* weight, const T* bias, T* y) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const Place at(i, s.out_height, s.out_width, s.channels);
  T sum = bias ? bias[at.channel] : T(0);
  for (std::int64_t ky = 0; ky < s.kernel_height; ++ky) {
    const std::int64_t iy = at.row * s.stride_down - s.pad_down + ky;
    if (iy < 0 || iy >= s.height) continue;
    for (std::int64_t kx = 0; kx < s.kernel_width; ++kx) {
      const std::int64_t ix = at.run * s.stride_right - s.pad_right + kx,
                         tap = ky * s.kernel_width + kx;
      if (ix < 0 || ix >= s.width) continue;
      sum += x[((at.image * s.height + iy) * s.width + ix) * s.channels + at.channel] *
             weight[(turn ? s.taps() - 1 - tap : tap) * s.channels + at.channel];
    }
  }
  y[i] = sum;
}

// A thread an element of gx, any stride.
template <class T>
__global__ void backward_any_kernel(ConvShape s, std::int64_t n, const T* weight, const T* gy,
                                    T* gx) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const Place at(i, s.height, s.width, s.channels);
  T sum = 0;
  for (std::int64_t ky = 0; ky < s.kernel_height; ++ky) {
    const std::int64_t down = at.row + s.pad_down - ky, oy = down / s.stride_down;
    if (down < 0 || oy * s.stride_down != down || oy >= s.out_height) continue;
    for (std::int64_t kx = 0; kx < s.kernel_width; ++kx) {
      const std::int64_t right = at.run + s.pad_right - kx, ox = right / s.stride_right;
      if (right < 0 || ox * s.stride_right != right || ox >= s.out_width) continue;
      sum += gy[((at.image * s.out_height + oy) * s.out_width + ox) * s.channels + at.channel] *
             weight[(ky * s.kernel_width + kx) * s.channels + at.channel];
    }
  }
  gx[i] = sum;
}

// How the sums over the outputs' rows (of all images) are cut.
struct WeightCut {
  std::int64_t tiles, lines, chunks, length;  // of channels, of taps, of rows; rows of a chunk
  WeightCut(std::int64_t channels, std::int64_t tap_lines, std::int64_t rows)
      : tiles((channels + kLanes - 1) / kLanes), lines(tap_lines) {
    constexpr std::int64_t least = 4 * kSlots;
    std::int64_t wanted = kReduceBlocks / (tiles * lines);
    if (wanted < 1) wanted = 1;
    length = (rows + wanted - 1) / wanted;
    if (length < least) length = least;
    chunks = (rows + length - 1) / length;
  }
};

// The sum of a block's slots for each channel, in order: valid in slot 0.
__device__ inline double sum_of_slots(double value, int slot, int lane) {
  LIPGRAD_SHARED(double, part, [kSlots][kLanes]);
  __syncthreads();
  part[slot][lane] = value;
  __syncthreads();
  double sum = 0;
  if (slot == 0)
    for (int k = 0; k < kSlots; ++k) sum += part[k][lane];
  return sum;
}

// partial(chunks, taps, channels) for stride 1: a block the taps of one row of the kernel for
// kLanes channels, from `length` rows of outputs. Sums of a row are added in double.
template <int kTaps, class T>
__global__ void __launch_bounds__(kThreads)
    weight_kernel(ConvShape s, WeightCut cut, const T* x, const T* gy, double* partial) {
  constexpr int kRun = sizeof(T) == 4 ? 8 : 4;  // longer ones of doubles would spill
  const int lane = static_cast<int>(threadIdx.x) % kLanes,
            slot = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t tile = blockIdx.x % cut.tiles, rest = blockIdx.x / cut.tiles,
                     ky = rest % cut.lines, chunk = rest / cut.lines;
  const std::int64_t channel = tile * kLanes + lane, rows = s.batch * s.out_height,
                     begin = chunk * cut.length,
                     end = begin + cut.length < rows ? begin + cut.length : rows;
  double sum[kTaps];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) sum[k] = 0;
  if (channel < s.channels) {
    for (std::int64_t row = begin + slot; row < end; row += kSlots) {
      const std::int64_t image = row / s.out_height,
                         iy = row - image * s.out_height - s.pad_down + ky;
      if (iy < 0 || iy >= s.height) continue;
      const T* from = x + (image * s.height + iy) * s.width * s.channels + channel;
      const T* g = gy + row * s.out_width * s.channels + channel;
      T part[kTaps];
#pragma unroll
      for (int k = 0; k < kTaps; ++k) part[k] = 0;
      for (std::int64_t ox = 0; ox < s.out_width; ox += kRun) {
        const std::int64_t left = ox - s.pad_right;
        T along[kRun];
#pragma unroll
        for (int r = 0; r < kRun; ++r)
          along[r] = ox + r < s.out_width ? g[(ox + r) * s.channels] : T(0);
#pragma unroll
        for (int j = 0; j < kRun + kTaps - 1; ++j) {
          const T v = left + j >= 0 && left + j < s.width ? from[(left + j) * s.channels] : T(0);
#pragma unroll
          for (int r = 0; r < kRun; ++r)
            if (j >= r && j - r < kTaps) part[j - r] += v * along[r];
        }
      }
#pragma unroll
      for (int k = 0; k < kTaps; ++k) sum[k] += static_cast<double>(part[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    const double total = sum_of_slots(sum[k], slot, lane);
    if (slot == 0 && channel < s.channels)
      partial[(chunk * s.taps() + ky * kTaps + k) * s.channels + channel] = total;
  }
}

// The same for any stride, a block one tap.
template <class T>
__global__ void weight_any_kernel(ConvShape s, WeightCut cut, const T* x, const T* gy,
                                  double* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes,
            slot = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t tile = blockIdx.x % cut.tiles, rest = blockIdx.x / cut.tiles,
                     tap = rest % cut.lines, chunk = rest / cut.lines, ky = tap / s.kernel_width,
                     kx = tap - ky * s.kernel_width;
  const std::int64_t channel = tile * kLanes + lane, rows = s.batch * s.out_height,
                     begin = chunk * cut.length,
                     end = begin + cut.length < rows ? begin + cut.length : rows;
  double sum = 0;
  if (channel < s.channels) {
    for (std::int64_t row = begin + slot; row < end; row += kSlots) {
      const std::int64_t image = row / s.out_height,
                         iy = (row - image * s.out_height) * s.stride_down - s.pad_down + ky;
      if (iy < 0 || iy >= s.height) continue;
      const T* from = x + (image * s.height + iy) * s.width * s.channels + channel;
      const T* g = gy + row * s.out_width * s.channels + channel;
      T part = 0;
      for (std::int64_t ox = 0; ox < s.out_width; ++ox) {
        const std::int64_t ix = ox * s.stride_right - s.pad_right + kx;
        if (ix >= 0 && ix < s.width) part += from[ix * s.channels] * g[ox * s.channels];
      }
      sum += static_cast<double>(part);
    }
  }
  const double total = sum_of_slots(sum, slot, lane);
  if (slot == 0 && channel < s.channels)
    partial[(chunk * s.taps() + tap) * s.channels + channel] = total;
}

template <int kTaps, int kRun, class T>
void forward_of(const ConvShape& s, bool turn, const T* x, const T* weight, const T* bias, T* y) {
  const std::int64_t runs = (s.out_width + kRun - 1) / kRun,
                     n = s.batch * s.out_height * runs * s.channels;
  launch(forward_kernel<kTaps, kRun, T>, blocks_for(n, kThreads), kThreads, 0, s, n, runs, turn, x,
         weight, bias, y);
}

// By the length of runs that computes fewest outputs beside the row's.
template <int kTaps, class T>
void forward_by_run(const ConvShape& s, bool turn, const T* x, const T* weight, const T* bias,
                    T* y) {
  const auto computed = [&](std::int64_t run) { return (s.out_width + run - 1) / run * run; };
  if (computed(8) <= computed(7) && computed(8) <= computed(4))
    return forward_of<kTaps, 8>(s, turn, x, weight, bias, y);
  if (computed(7) <= computed(4)) return forward_of<kTaps, 7>(s, turn, x, weight, bias, y);
  forward_of<kTaps, 4>(s, turn, x, weight, bias, y);
}

template <class T>
void forward(const ConvShape& s, bool turn, const T* x, const T* weight, const T* bias, T* y) {
  if (s.stride_down == 1 && s.stride_right == 1) {
    if (s.kernel_width == 7) return forward_by_run<7>(s, turn, x, weight, bias, y);
    if (s.kernel_width == 5) return forward_by_run<5>(s, turn, x, weight, bias, y);
    if (s.kernel_width == 3) return forward_by_run<3>(s, turn, x, weight, bias, y);
  }
  const std::int64_t n = s.outputs() * s.channels;
  launch(forward_any_kernel<T>, blocks_for(n, kThreads), kThreads, 0, s, n, turn, x, weight, bias,
         y);
}

template <int kTaps, class T>
void weight_sums(const ConvShape& s, const WeightCut& cut, const T* x, const T* gy,
                 double* partial) {
  launch(weight_kernel<kTaps, T>, blocks_for(cut.tiles * cut.lines * cut.chunks, 1), kThreads, 0, s,
         cut, x, gy, partial);
}

}  // namespace

template <class T>
void depthwise_conv(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y) {
  const Scratch<T> by_taps(s.taps() * s.channels);
  transpose(s.channels, s.taps(), weight, by_taps.get());
  forward(s, false, x, static_cast<const T*>(by_taps.get()), bias, y);
}

template <class T>
void depthwise_conv_backward_input(const ConvShape& s, const T* weight, const T* gy, T* gx) {
  const Scratch<T> by_taps(s.taps() * s.channels);
  transpose(s.channels, s.taps(), weight, by_taps.get());
  const T *w = by_taps.get(), *none = nullptr;
  if (turns(s)) return forward(turned(s), true, gy, w, none, gx);
  const std::int64_t n = s.batch * s.height * s.width * s.channels;
  launch(backward_any_kernel<T>, blocks_for(n, kThreads), kThreads, 0, s, n, w, gy, gx);
}

template <class T>
void depthwise_conv_backward_weight(const ConvShape& s, const T* x, const T* gy, T* gweight) {
  const std::int64_t taps = s.taps(), size = taps * s.channels;
  const bool by_lines = s.stride_down == 1 && s.stride_right == 1 &&
                        (s.kernel_width == 3 || s.kernel_width == 5 || s.kernel_width == 7);
  const WeightCut cut(s.channels, by_lines ? s.kernel_height : taps, s.batch * s.out_height);
  const Scratch<double> partial(cut.chunks * size);
  const Scratch<T> sums(size);
  if (!by_lines) {
    launch(weight_any_kernel<T>, blocks_for(cut.tiles * cut.lines * cut.chunks, 1), kThreads, 0, s,
           cut, x, gy, partial.get());
  } else if (s.kernel_width == 7) {
    weight_sums<7>(s, cut, x, gy, partial.get());
  } else if (s.kernel_width == 5) {
    weight_sums<5>(s, cut, x, gy, partial.get());
  } else {
    weight_sums<3>(s, cut, x, gy, partial.get());
  }
  column_sums(cut.chunks, size, static_cast<const double*>(partial.get()), sums.get());
  transpose(taps, s.channels, static_cast<const T*>(sums.get()), gweight);
}

#define LIPGRAD_INSTANTIATE(T)                                                           \
  template void depthwise_conv(const ConvShape&, const T*, const T*, const T*, T*);      \
  template void depthwise_conv_backward_input(const ConvShape&, const T*, const T*, T*); \
  template void depthwise_conv_backward_weight(const ConvShape&, const T*, const T*, T*);
LIPGRAD_INSTANTIATE(float)
LIPGRAD_INSTANTIATE(double)
#undef LIPGRAD_INSTANTIATE

}  // namespace lipgrad::cuda
