// The float functions of math.h against double, over a sample of all bit patterns.
#include "kernels/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace situ::SITU_ISA {
namespace {

// Largest error in units of the last place of the exact result, over floats within [low, high].
double worst_ulp(float (*f)(float), double (*exact)(double), float low, float high) {
  double worst = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 3001) {
    const float x = bits_float(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double want = exact(static_cast<double>(x)), got = f(x);
    if (std::isnan(want) || std::fabs(want) > std::numeric_limits<float>::max()) {
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : std::fabs(got) > 3.4e38) << x;
      continue;
    }
    const float size = std::max(std::fabs(static_cast<float>(want)), std::numeric_limits<float>::min());
    worst = std::max(worst, std::fabs(got - want) / (std::nextafter(size, INFINITY) - size));
  }
  return worst;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Math, errors_are_within_their_bounds) {
  EXPECT_LE(worst_ulp(fast_exp, [](double x) { return std::exp(x); }, -kInfinity, kInfinity), 2);
  EXPECT_LE(worst_ulp(fast_expm1, [](double x) { return std::expm1(x); }, -kInfinity, kInfinity), 3);
  EXPECT_LE(worst_ulp(fast_log, [](double x) { return std::log(x); }, -kInfinity, kInfinity), 2);
  EXPECT_LE(worst_ulp(fast_tanh, [](double x) { return std::tanh(x); }, -kInfinity, kInfinity), 3);
  EXPECT_LE(worst_ulp(fast_sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -87, kInfinity), 3);
  EXPECT_LE(worst_ulp(fast_erf, [](double x) { return std::erf(x); }, -kInfinity, kInfinity), 2);
  EXPECT_LE(worst_ulp(fast_softplus, [](double x) { return std::log1p(std::exp(x)); }, -80, 80), 4);
  EXPECT_LE(worst_ulp(fast_sin, [](double x) { return std::sin(x); }, -1000, 1000), 2);
  EXPECT_LE(worst_ulp(fast_cos, [](double x) { return std::cos(x); }, -1000, 1000), 2);
}

TEST(Math, angles_of_long_contexts) {
  for (float x = 1; x < kMaxFastAngle; x *= 1.0003f) {
    ASSERT_NEAR(fast_sin(x), std::sin(static_cast<double>(x)), 2e-7) << x;
    ASSERT_NEAR(fast_cos(x), std::cos(static_cast<double>(x)), 2e-7) << x;
  }
}

TEST(Math, halves_round_trip_and_round_to_even) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float f = to_float(Half{static_cast<uint16_t>(bits)});
    if (std::isnan(f))
      ASSERT_TRUE(std::isnan(to_float(to_half(f))));
    else
      ASSERT_EQ(to_half(f).bits, bits);
    const float g = to_float(BFloat{static_cast<uint16_t>(bits)});
    if (std::isnan(g))
      ASSERT_TRUE(std::isnan(to_float(to_bfloat(g))));
    else
      ASSERT_EQ(to_bfloat(g).bits, bits);
  }
  EXPECT_EQ(to_float(to_half(1.00048828125f)), 1.0f);
  EXPECT_EQ(to_float(to_half(1.00146484375f)), 1.001953125f);
  EXPECT_EQ(to_float(to_half(65519.0f)), 65504.0f);
  EXPECT_EQ(to_float(to_half(65520.0f)), kInfinity);
  EXPECT_EQ(to_float(to_bfloat(3.4e38f)), kInfinity);
}

}  // namespace
}  // namespace situ::SITU_ISA
