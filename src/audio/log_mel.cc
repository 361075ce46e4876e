#include "audio/log_mel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>
#include <string>

#include "audio/mel_filters.h"
#include "audio/spectrum.h"

namespace situ {
namespace {

// Frames that a thread takes at once: their spectra (100 KiB at n_fft 400) stay in its cache.
constexpr size_t kBlock = 64;
// The smallest power, the depth below the peak, and the scale of the result (feature_extraction_whisper.py).
constexpr double kLeast = 1e-10;
constexpr float kDepth = 8, kShift = 4, kScale = 4;

Status invalid(std::string text) { return Status::error(Code::kInvalidArgument, std::move(text)); }

// The window between `half` samples before and `half` after it [window + 2 half]; reflected where the file has none.
std::vector<float> with_borders(const MelWindow& window, size_t size, size_t half) {
  std::vector<float> all(size + 2 * half);
  const auto put = [&](std::span<const float> from, size_t at) {
    for (size_t i = 0; i < from.size(); ++i) all[at + i] = from[i];
  };
  put(window.samples, half);
  put(window.before, 0);
  put(window.after, half + size);
  for (size_t i = 1; i <= half; ++i) {
    if (window.before.empty()) all[half - i] = all[half + i];
    if (window.after.empty()) all[half + size - 1 + i] = all[half + size - 1 - i];
  }
  return all;
}

bool all_finite(std::span<const float> samples) {
  // The product is 0 exactly if all are finite: no branch for each.
  float product = 0;
  for (const float sample : samples) product += sample * 0;
  return product == 0;
}

}  // namespace

struct LogMel::Plan {
  Spectrum spectrum;
  std::vector<MelFilter> filters;
};

LogMel::LogMel(const MelConfig& config) : config_(config), plan_(std::make_unique<Plan>()) {}
LogMel::LogMel(LogMel&&) noexcept = default;
LogMel& LogMel::operator=(LogMel&&) noexcept = default;
LogMel::~LogMel() = default;

Result<LogMel> LogMel::create(const MelConfig& config) {
  SITU_RETURN_IF_ERROR(config.check());
  LogMel mel(config);
  mel.plan_->filters = make_mel_filters(config.mels, config.fft, config.rate);
  std::vector<double> hann(static_cast<size_t>(config.fft));
  for (size_t n = 0; n < hann.size(); ++n) {
    hann[n] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(n) / config.fft);
  }
  situ_audio_spectrum* spectrum = nullptr;
  situ_audio_text error{};
  if (situ_audio_spectrum_create(hann.data(), hann.size(), &spectrum, &error) != 0) return Status::error(error.text);
  mel.plan_->spectrum.reset(spectrum);
  return mel;
}

Status LogMel::window(const MelWindow& window, std::span<float> out, ThreadPool* pool, float* peak) const {
  const size_t size = config_.window_samples(), half = static_cast<size_t>(config_.fft) / 2;
  const size_t frames = config_.frames(), mels = static_cast<size_t>(config_.mels), bins = half + 1;
  if (window.samples.size() > size) {
    return invalid("a window has " + std::to_string(window.samples.size()) + " samples, at most " +
                   std::to_string(size) + " are allowed");
  }
  for (const auto& border : {window.before, window.after}) {
    if (!border.empty() && border.size() != half) {
      return invalid(std::to_string(border.size()) + " samples stand beside a window, not " + std::to_string(half));
    }
  }
  if (out.size() != mels * frames) {
    return invalid("a spectrogram has " + std::to_string(mels * frames) + " values, not " + std::to_string(out.size()));
  }
  const std::vector<float> all = with_borders(window, size, half);
  if (!all_finite(all)) return invalid("a sample is not finite");

  std::atomic<size_t> next{0};
  std::mutex mutex;  // for `largest` and `failure`
  float largest = -std::numeric_limits<float>::infinity();
  Status failure = Status::ok();
  auto work = [&](int, int) {
    std::vector<double> power(kBlock * bins);
    float most = -std::numeric_limits<float>::infinity();
    Status failed = Status::ok();
    for (size_t first; failed.is_ok() && (first = next.fetch_add(kBlock)) < frames;) {
      const size_t count = std::min(kBlock, frames - first), hop = static_cast<size_t>(config_.hop);
      situ_audio_text error{};
      const int code =
          situ_audio_spectrum_power(plan_->spectrum.get(), all.data() + first * hop, hop, count, power.data(), &error);
      if (code != 0) failed = Status::error(error.text);
      for (size_t m = 0; m < mels; ++m) {
        const MelFilter& filter = plan_->filters[m];
        float* row = out.data() + m * frames + first;
        for (size_t t = 0; t < count; ++t) {
          const double* bin = power.data() + t * bins + filter.first;
          double sum = 0;
          for (size_t k = 0; k < filter.weights.size(); ++k) sum += filter.weights[k] * bin[k];
          row[t] = static_cast<float>(std::log10(std::max(sum, kLeast)));
          most = std::max(most, row[t]);
        }
      }
    }
    const std::lock_guard lock(mutex);
    largest = std::max(largest, most);
    if (!failed.is_ok()) failure = failed;
  };
  if (pool) {
    pool->run(work);
  } else {
    work(0, 1);
  }
  SITU_RETURN_IF_ERROR(failure);
  if (peak) largest = *peak = std::max(*peak, largest);
  for (float& value : out) value = (std::max(value, largest - kDepth) + kShift) / kScale;
  return Status::ok();
}

}  // namespace situ
