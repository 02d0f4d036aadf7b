#pragma once

// C++17. Convolutions of each channel by its own kernel.

#include <cstdint>

#include <lipgrad/core/kernel.h>
#include <lipgrad/ops/kernels/conv_shape.h>

LIPGRAD_KERNELS(
    // y(batch, out_height, out_width, channels) from x(batch, height, width, channels): the sum
    // over the taps of weight(channels, kernel_height, kernel_width) x, plus bias(channels), which
    // may be null.
    template <class T>
    void depthwise_conv(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y);
    // gx from gy.
    template <class T>
    void depthwise_conv_backward_input(const ConvShape& s, const T* weight, const T* gy, T* gx);
    // gweight, summed over all outputs in an order that depends on the shape alone.
    template <class T>
    void depthwise_conv_backward_weight(const ConvShape& s, const T* x, const T* gy, T* gweight);)
