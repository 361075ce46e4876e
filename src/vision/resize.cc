#include "vision/resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace situ {
namespace {

// Of a coefficient: 8 bits of a sample and 2 of overshoot fit beside them into 32.
constexpr int kPrecisionBits = 32 - 8 - 2;
constexpr double kPi = 3.14159265358979323846;

struct Filter {
  double (*weight)(double x);
  double support;  // weight(x) = 0 for |x| > support
};

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= kPi;
  return std::sin(x) / x;
}

double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
double bilinear(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}
double hamming(double x) {
  x = std::fabs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x *= kPi;
  return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
}
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}
double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

Filter filter_of(Resample resample) {
  switch (resample) {
    case Resample::kLanczos:
      return {lanczos, 3.0};
    case Resample::kBilinear:
      return {bilinear, 1.0};
    case Resample::kBicubic:
      return {bicubic, 2.0};
    case Resample::kHamming:
      return {hamming, 1.0};
    default:
      return {box, 0.5};
  }
}

// Along one axis, for each of the `out` samples: which samples of the `in` are added up, and with which weights.
struct Taps {
  int most = 0;                   // weights of one sample at most
  std::vector<int> first, count;  // [out]
  std::vector<int32_t> weights;   // [out, most], times 2^kPrecisionBits
};

Taps make_taps(int in, int out, const Filter& filter) {
  const double scale = static_cast<double>(in) / out;
  const double widened = std::max(scale, 1.0);
  const double support = filter.support * widened;
  Taps taps;
  taps.most = static_cast<int>(std::ceil(support)) * 2 + 1;
  taps.first.resize(static_cast<size_t>(out));
  taps.count.resize(static_cast<size_t>(out));
  taps.weights.resize(static_cast<size_t>(out) * static_cast<size_t>(taps.most));
  std::vector<double> weights(static_cast<size_t>(taps.most));
  const double step = 1.0 / widened;
  for (int o = 0; o < out; ++o) {
    const double center = (o + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::min(static_cast<int>(center + support + 0.5), in) - first;
    double sum = 0.0;
    for (int i = 0; i < count; ++i) {
      weights[static_cast<size_t>(i)] = filter.weight((i + first - center + 0.5) * step);
      sum += weights[static_cast<size_t>(i)];
    }
    taps.first[static_cast<size_t>(o)] = first;
    taps.count[static_cast<size_t>(o)] = count;
    int32_t* row = &taps.weights[static_cast<size_t>(o) * static_cast<size_t>(taps.most)];
    for (int i = 0; i < count; ++i) {
      const double weight = weights[static_cast<size_t>(i)] / (sum != 0.0 ? sum : 1.0);
      row[i] = static_cast<int32_t>(weight * (1 << kPrecisionBits) + (weight < 0 ? -0.5 : 0.5));
    }
  }
  return taps;
}

uint8_t rounded(int32_t sum) {
  const int32_t value = sum >> kPrecisionBits;
  return static_cast<uint8_t>(std::clamp(value, 0, 255));
}

// image [H, W, 3] to [to - from, width, 3]: of its rows from..to - 1 alone.
RgbImage resize_rows(const RgbImage& image, int width, const Filter& filter, int from, int to) {
  const Taps taps = make_taps(image.width, width, filter);
  RgbImage out(width, to - from);
  for (int y = from; y < to; ++y) {
    const uint8_t* row = image.row(y);
    uint8_t* target = out.row(y - from);
    for (int x = 0; x < width; ++x, target += 3) {
      const int32_t* weights = &taps.weights[static_cast<size_t>(x) * static_cast<size_t>(taps.most)];
      const uint8_t* samples = row + static_cast<ptrdiff_t>(taps.first[static_cast<size_t>(x)]) * 3;
      int32_t red = 1 << (kPrecisionBits - 1), green = red, blue = red;
      for (int i = 0; i < taps.count[static_cast<size_t>(x)]; ++i, samples += 3) {
        red += samples[0] * weights[i];
        green += samples[1] * weights[i];
        blue += samples[2] * weights[i];
      }
      target[0] = rounded(red), target[1] = rounded(green), target[2] = rounded(blue);
    }
  }
  return out;
}

// image to [height, W, 3], by `taps`, which count rows of an image whose row `from` is this one's first.
RgbImage resize_columns(const RgbImage& image, int height, const Taps& taps, int from) {
  RgbImage out(image.width, height);
  const size_t samples = static_cast<size_t>(image.width) * 3;
  std::vector<int32_t> sums(samples);
  for (int y = 0; y < height; ++y) {
    const int32_t* weights = &taps.weights[static_cast<size_t>(y) * static_cast<size_t>(taps.most)];
    std::fill(sums.begin(), sums.end(), 1 << (kPrecisionBits - 1));
    for (int i = 0; i < taps.count[static_cast<size_t>(y)]; ++i) {
      const uint8_t* row = image.row(taps.first[static_cast<size_t>(y)] + i - from);
      const int32_t weight = weights[i];
      for (size_t s = 0; s < samples; ++s) sums[s] += row[s] * weight;
    }
    uint8_t* target = out.row(y);
    for (size_t s = 0; s < samples; ++s) target[s] = rounded(sums[s]);
  }
  return out;
}

// Pillow's affine transform: places are added up, so that they round as Pillow's do.
RgbImage nearest(const RgbImage& image, int width, int height) {
  const auto places = [](int in, int out) {
    std::vector<int> found(static_cast<size_t>(out));
    const double step = static_cast<double>(in) / out;
    double place = step * 0.5;
    for (int& at : found) {
      at = std::min(static_cast<int>(place), in - 1);
      place += step;
    }
    return found;
  };
  const std::vector<int> columns = places(image.width, width), rows = places(image.height, height);
  RgbImage out(width, height);
  for (int y = 0; y < height; ++y) {
    const uint8_t* row = image.row(rows[static_cast<size_t>(y)]);
    uint8_t* target = out.row(y);
    for (int x = 0; x < width; ++x, target += 3) {
      const uint8_t* pixel = row + static_cast<ptrdiff_t>(columns[static_cast<size_t>(x)]) * 3;
      target[0] = pixel[0], target[1] = pixel[1], target[2] = pixel[2];
    }
  }
  return out;
}

}  // namespace

RgbImage resize(const RgbImage& image, int width, int height, Resample resample) {
  if (width == image.width && height == image.height) return image;
  if (resample == Resample::kNearest) return nearest(image, width, height);
  const Filter filter = filter_of(resample);
  if (width == image.width) return resize_columns(image, height, make_taps(image.height, height, filter), 0);
  if (height == image.height) return resize_rows(image, width, filter, 0, height);
  const Taps taps = make_taps(image.height, height, filter);
  const int rows_less = image.height - height, columns_less = image.width - width;
  if (rows_less > 0 && rows_less > 2 * columns_less) {
    return resize_rows(resize_columns(image, height, taps, 0), width, filter, 0, height);
  }
  // Only the rows that the second pass reads.
  const int from = taps.first.front(), to = taps.first.back() + taps.count.back();
  return resize_columns(resize_rows(image, width, filter, from, to), height, taps, from);
}

}  // namespace situ
