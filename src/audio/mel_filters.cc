#include "audio/mel_filters.h"

#include <algorithm>
#include <cmath>

namespace situ {
namespace {

// Of the slaney scale: 3 mels to 200 Hz, and from 1,000 Hz, which is 15 mels, 27 mels to a factor of 6.4.
constexpr double kLinearHz = 200.0 / 3, kBreakHz = 1000, kBreakMel = 15;
const double kLogStep = std::log(6.4) / 27;

double to_mel(double hz) { return hz < kBreakHz ? hz / kLinearHz : kBreakMel + std::log(hz / kBreakHz) / kLogStep; }

double to_hz(double mel) {
  return mel < kBreakMel ? mel * kLinearHz : kBreakHz * std::exp(kLogStep * (mel - kBreakMel));
}

}  // namespace

std::vector<MelFilter> make_mel_filters(int mels, int fft, int rate) {
  const double top = to_mel(rate / 2.0), step = top / (mels + 1);
  std::vector<MelFilter> filters(static_cast<size_t>(mels));
  for (int m = 0; m < mels; ++m) {
    MelFilter& filter = filters[static_cast<size_t>(m)];
    const double left = to_hz(m * step), centre = to_hz((m + 1) * step), right = to_hz((m + 2) * step);
    const double height = 2 / (right - left);
    for (int bin = 0; bin <= fft / 2; ++bin) {
      const double hz = static_cast<double>(bin) * rate / fft;
      const double weight = std::min((hz - left) / (centre - left), (right - hz) / (right - centre)) * height;
      if (weight <= 0) continue;
      if (filter.weights.empty()) filter.first = bin;
      filter.weights.push_back(weight);
    }
  }
  return filters;
}

}  // namespace situ
