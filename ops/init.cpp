#include <lipgrad/ops/init.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <lipgrad/core/check.h>
#include <lipgrad/core/random.h>
#include <lipgrad/ops/spectral_norm.h>

namespace lipgrad::init {
namespace {

// The quantile function of the standard normal distribution, to 1e-16 relative: Wichura 1988,
// algorithm AS 241 (PPND16). 0 < p < 1.
double normal_quantile(double p) {
  const auto ratio = [](double r, const double(&a)[8], const double(&b)[8]) {
    double top = a[7], bottom = b[7];
    for (int i = 6; i >= 0; --i) {
      top = top * r + a[i];
      bottom = bottom * r + b[i];
    }
    return top / bottom;
  };
  static constexpr double middle_top[] = {3.3871328727963666080,   1.3314166789178437745e2,
                                          1.9715909503065514427e3, 1.3731693765509461125e4,
                                          4.5921953931549871457e4, 6.7265770927008700853e4,
                                          3.3430575583588128105e4, 2.5090809287301226727e3};
  static constexpr double middle_bottom[] = {1.0,
                                             4.2313330701600911252e1,
                                             6.8718700749205790830e2,
                                             5.3941960214247511077e3,
                                             2.1213794301586595867e4,
                                             3.9307895800092710610e4,
                                             2.8729085735721942674e4,
                                             5.2264952788528545610e3};
  static constexpr double near_top[] = {1.42343711074968357734,    4.63033784615654529590,
                                        5.76949722146069140550,    3.64784832476320460504,
                                        1.27045825245236838258,    2.41780725177450611770e-1,
                                        2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double near_bottom[] = {1.0,
                                           2.05319162663775882187,
                                           1.67638483018380384940,
                                           6.89767334985100004550e-1,
                                           1.48103976427480074590e-1,
                                           1.51986665636164571966e-2,
                                           5.47593808499534494600e-4,
                                           1.05075007164441684324e-9};
  static constexpr double far_top[] = {6.65790464350110377720,    5.46378491116411436990,
                                       1.78482653991729133580,    2.96560571828504891230e-1,
                                       2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                       2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double far_bottom[] = {1.0,
                                          5.99832206555887937690e-1,
                                          1.36929880922735805310e-1,
                                          1.48753612908506148525e-2,
                                          7.86869131145613259100e-4,
                                          1.84631831751005468180e-5,
                                          1.42151175831644588870e-7,
                                          2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) return q * ratio(0.180625 - q * q, middle_top, middle_bottom);
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double x =
      r <= 5 ? ratio(r - 1.6, near_top, near_bottom) : ratio(r - 5, far_top, far_bottom);
  return q < 0 ? -x : x;
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

Initializer scaled_uniform(double variance) {
  const double bound = std::sqrt(3 * variance);
  return uniform(-bound, bound);
}

double xavier_variance(const Shape& shape, double gain) {
  const Fans fans = fans_of(shape);
  return gain * gain * 2 / std::max<double>(1, static_cast<double>(fans.in + fans.out));
}

double kaiming_variance(const Shape& shape, KaimingOptions options) {
  const Fans fans = fans_of(shape);
  const std::int64_t fan = options.mode == Fan::in ? fans.in : fans.out;
  return options.gain * options.gain / std::max<double>(1, static_cast<double>(fan));
}

// Draws by `base` and divides by a norm of what was drawn.
Initializer divided_by(double (*norm_of)(const Tensor&), Initializer base) {
  LIPGRAD_CHECK(base != nullptr, "init: spectral needs an initialiser to draw by");
  return [norm_of, base = std::move(base)](Tensor& x, Generator& rng) {
    base(x, rng);
    const double norm = norm_of(x);
    if (norm == 0) return;
    visit_float("init", x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* value = x.mutable_data<T>();
      for (std::int64_t i = 0; i < x.numel(); ++i)
        value[i] = static_cast<T>(static_cast<double>(value[i]) / norm);
    });
  };
}

}  // namespace

Fans fans_of(const Shape& shape) {
  LIPGRAD_CHECK(shape.rank() >= 2, "init: {} has no fans; a weight is (out, in, ...)", shape);
  const std::int64_t rest = shape.trailing(2);
  return {shape[1] * rest, shape[0] * rest};
}

Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer constant(double value) {
  return [value](Tensor& x, Generator&) { copy_into(x, full(x.shape(), value, x.dtype())); };
}

Initializer uniform(double low, double high) {
  LIPGRAD_CHECK(low <= high && std::isfinite(low) && std::isfinite(high),
                "init: uniform from {} to {}", low, high);
  return [low, high](Tensor& x, Generator& rng) {
    copy_into(x, rand_uniform(x.shape(), low, high, x.dtype(), rng));
  };
}

Initializer normal(double mean, double deviation) {
  LIPGRAD_CHECK(deviation >= 0, "init: normal with deviation {}", deviation);
  return [mean, deviation](Tensor& x, Generator& rng) {
    const Tensor unit = randn(x.shape(), f64, rng);
    visit_float("init", x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = x.mutable_data<T>();
      for (std::int64_t i = 0; i < x.numel(); ++i)
        to[i] = static_cast<T>(mean + deviation * unit.data<double>()[i]);
    });
  };
}

Initializer truncated_normal(double mean, double deviation, double bound) {
  LIPGRAD_CHECK(deviation >= 0 && bound > 0, "init: truncated normal with deviation {}, bound {}",
                deviation, bound);
  return [=](Tensor& x, Generator& rng) {
    // By the quantile function: one number a value, however much is cut off.
    const double low = normal_cdf(-bound);
    const Tensor unit = rand_uniform(x.shape(), 0, 1, f64, rng);
    visit_float("init", x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = x.mutable_data<T>();
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        const double p = low + unit.data<double>()[i] * (1 - 2 * low);
        const double z = p > 0 ? normal_quantile(p) : -bound;
        to[i] = static_cast<T>(mean + deviation * std::clamp(z, -bound, bound));
      }
    });
  };
}

Initializer xavier_uniform(double gain) {
  return [gain](Tensor& x, Generator& rng) {
    scaled_uniform(xavier_variance(x.shape(), gain))(x, rng);
  };
}

Initializer xavier_normal(double gain) {
  return [gain](Tensor& x, Generator& rng) {
    normal(0, std::sqrt(xavier_variance(x.shape(), gain)))(x, rng);
  };
}

Initializer kaiming_uniform(KaimingOptions options) {
  return [options](Tensor& x, Generator& rng) {
    scaled_uniform(kaiming_variance(x.shape(), options))(x, rng);
  };
}

Initializer kaiming_normal(KaimingOptions options) {
  return [options](Tensor& x, Generator& rng) {
    normal(0, std::sqrt(kaiming_variance(x.shape(), options)))(x, rng);
  };
}

Initializer spectral(Initializer base) { return divided_by(spectral_norm, std::move(base)); }

Initializer spectral_depthwise(Initializer base) {
  return divided_by(depthwise_spectral_norm, std::move(base));
}

Initializer fan_uniform(std::int64_t fan) {
  const double bound = 1 / std::sqrt(std::max<double>(1, static_cast<double>(fan)));
  return uniform(-bound, bound);
}

}  // namespace lipgrad::init
