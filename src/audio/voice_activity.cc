// The rule, by frames of 10 ms and bands b:
//   level[b, t] = 10 log10(mean power of the band in 5 frames around t), at least kSilence
//   floor[b, t] = max(min level[b, t - w .. t], min level[b, t .. t + w])           w = floor_seconds
//   score[t]    = mean of the kBest largest of level[b, t] - floor[b, t]
//   speech[t]   = score[t] > threshold_db
// Noise that stays the same has levels near its floor, also right after it began: there the later minimum is that of
// the noise. Speech falls to the noise in some band several times a second, so both minima lie below it. Where the
// recording begins or ends within w, only the other minimum counts. Speech that pauses for no longer than `hangover` is
// one span; with less than min_speech of speech it is none. Source of the idea: minimum statistics (R. Martin, 2001),
// and long-term spectral divergence (J. Ramirez et al., 2004).
#include "audio/voice_activity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <numbers>
#include <string>

#include "audio/spectrum.h"

namespace situ {
namespace {

// Edges in Hz. Below 150 Hz hum and wind are louder than speech.
constexpr std::array kEdges{150.0, 400.0, 800.0, 1400.0, 2200.0, 3200.0, 4500.0, 7000.0};
constexpr size_t kBands = kEdges.size() - 1;
constexpr size_t kBest = 3;
constexpr int64_t kSmooth = 2;    // frames on either side
constexpr double kSilence = -75;  // dB below full scale: what is quieter is silence, and no floor is lower
constexpr double kFrame = 0.01;   // seconds between frames; a frame has three times as many
constexpr size_t kAtOnce = 64;    // frames of one call of the transform

using Levels = std::array<double, kBands>;

int64_t to_frames(double seconds) { return std::llround(seconds / kFrame); }

}  // namespace

struct VoiceActivity::State {
  VoiceOptions options;
  size_t hop = 0, size = 0;
  Spectrum spectrum;
  std::array<size_t, kBands + 1> bins{};  // first bin of each band, and the end of the last one
  double scale = 1;                       // from power of the transform to power of samples

  std::vector<float> pending;  // samples of frames that are not complete
  int64_t samples = 0;
  std::deque<Levels> powers;  // of frames [first_power, ...)
  int64_t first_power = 0;
  std::deque<Levels> levels;  // of frames [first_level, ...)
  int64_t first_level = 0;
  int64_t decided_frames = 0;  // speech or not is known of frames before this one
  bool ended = false;

  // The span that is open: first and last frame of speech, and how many frames are speech.
  int64_t begin = -1, last = -1, count = 0;
  std::deque<VoiceSpan> done;

  int64_t power_end() const { return first_power + static_cast<int64_t>(powers.size()); }
  int64_t level_end() const { return first_level + static_cast<int64_t>(levels.size()); }

  void transform();
  void smooth();
  void decide();
  bool is_speech(int64_t frame, int64_t width) const;
  bool is_long_enough() const { return count >= to_frames(options.min_speech); }
  VoiceSpan padded() const;
  void close();
};

// Takes complete frames from `pending`.
void VoiceActivity::State::transform() {
  std::vector<double> power(kAtOnce * (size / 2 + 1));
  size_t from = 0;
  while (pending.size() - from >= size) {
    const size_t count = std::min(kAtOnce, (pending.size() - from - size) / hop + 1);
    // Its only failure is an internal one; silence then.
    if (situ_audio_spectrum_power(spectrum.get(), pending.data() + from, hop, count, power.data(), nullptr) != 0) {
      std::fill(power.begin(), power.end(), 0.0);
    }
    for (size_t t = 0; t < count; ++t) {
      const double* row = power.data() + t * (size / 2 + 1);
      Levels sums{};
      for (size_t b = 0; b < kBands; ++b) {
        for (size_t k = bins[b]; k < bins[b + 1]; ++k) sums[b] += row[k] * scale;
      }
      powers.push_back(sums);
    }
    from += count * hop;
  }
  pending.erase(pending.begin(), pending.begin() + static_cast<int64_t>(from));
}

void VoiceActivity::State::smooth() {
  for (int64_t t = level_end(); t < power_end() && (ended || t + kSmooth < power_end()); ++t) {
    const int64_t from = std::max(t - kSmooth, int64_t{0}), to = std::min(t + kSmooth + 1, power_end());
    Levels level{};
    for (size_t b = 0; b < kBands; ++b) {
      double sum = 0;
      for (int64_t s = from; s < to; ++s) sum += powers[static_cast<size_t>(s - first_power)][b];
      const double mean = sum / static_cast<double>(to - from);
      level[b] = std::max(kSilence, 10 * std::log10(std::max(mean, 1e-30)));
    }
    levels.push_back(level);
    while (first_power < t - kSmooth) {
      powers.pop_front();
      ++first_power;
    }
  }
}

bool VoiceActivity::State::is_speech(int64_t frame, int64_t width) const {
  const int64_t from = std::max(frame - width, int64_t{0}), to = std::min(frame + width + 1, level_end());
  const bool has_past = frame - width >= 0, has_future = frame + width < level_end();
  Levels above{};
  for (size_t b = 0; b < kBands; ++b) {
    const auto lowest = [&](int64_t first, int64_t end) {
      double least = 1e9;
      for (int64_t t = first; t < end; ++t) least = std::min(least, levels[static_cast<size_t>(t - first_level)][b]);
      return least;
    };
    const double past = lowest(from, frame + 1), future = lowest(frame, to);
    // In a recording shorter than both, all of it counts.
    const double floor = has_past == has_future ? (has_past ? std::max(past, future) : std::min(past, future))
                                                : (has_past ? past : future);
    above[b] = levels[static_cast<size_t>(frame - first_level)][b] - floor;
  }
  std::partial_sort(above.begin(), above.begin() + kBest, above.end(), std::greater<>());
  double sum = 0;
  for (size_t i = 0; i < kBest; ++i) sum += above[i];
  return sum / kBest > options.threshold_db;
}

void VoiceActivity::State::decide() {
  const int64_t width = to_frames(options.floor_seconds), pause = to_frames(options.hangover);
  for (; decided_frames < level_end() && (ended || decided_frames + width < level_end()); ++decided_frames) {
    if (is_speech(decided_frames, width)) {
      if (begin < 0) begin = decided_frames;
      last = decided_frames;
      ++count;
    } else if (begin >= 0 && decided_frames - last > pause) {
      close();
    }
    while (first_level < decided_frames - width) {
      levels.pop_front();
      ++first_level;
    }
  }
  if (ended && begin >= 0) close();
}

// The open span as far as it goes, padded.
VoiceSpan VoiceActivity::State::padded() const {
  const auto padding = static_cast<int64_t>(options.padding * options.rate);
  const auto step = static_cast<int64_t>(hop), centre = static_cast<int64_t>(size) / 2;
  return {std::max(begin * step + centre - padding, int64_t{0}),
          std::min((last + 1) * step + centre + padding, samples)};
}

// Ends the open span, and joins it with the one before where they meet.
void VoiceActivity::State::close() {
  if (is_long_enough()) {
    const VoiceSpan span = padded();
    if (!done.empty() && span.begin <= done.back().end) {
      done.back().end = span.end;
    } else {
      done.push_back(span);
    }
  }
  begin = last = -1;
  count = 0;
}

VoiceActivity::VoiceActivity(const VoiceOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
}
VoiceActivity::VoiceActivity(VoiceActivity&&) noexcept = default;
VoiceActivity& VoiceActivity::operator=(VoiceActivity&&) noexcept = default;
VoiceActivity::~VoiceActivity() = default;

Result<VoiceActivity> VoiceActivity::create(const VoiceOptions& options) {
  const auto invalid = [](const std::string& text) { return Status::error(Code::kInvalidArgument, text); };
  if (options.rate < 1000 || options.rate > 384000) {
    return invalid("a rate of " + std::to_string(options.rate) + " Hz; 1000 to 384000 Hz are allowed");
  }
  for (const double seconds : {options.floor_seconds, options.hangover, options.min_speech, options.padding}) {
    if (!(seconds >= 0 && seconds <= 60)) {
      return invalid("a time of " + std::to_string(seconds) + " s; 0 to 60 s are allowed");
    }
  }
  if (!std::isfinite(options.threshold_db)) return invalid("the threshold is not finite");
  VoiceActivity activity(options);
  State& state = *activity.state_;
  state.hop = static_cast<size_t>(options.rate * kFrame);
  state.size = 3 * state.hop;
  std::vector<double> hann(state.size);
  double energy = 0;
  for (size_t n = 0; n < hann.size(); ++n) {
    hann[n] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(n) / static_cast<double>(state.size));
    energy += hann[n] * hann[n];
  }
  state.scale = 2 / (energy * static_cast<double>(state.size));
  for (size_t e = 0; e < kEdges.size(); ++e) {
    const double bin = std::ceil(kEdges[e] * static_cast<double>(state.size) / options.rate);
    state.bins[e] = std::min(static_cast<size_t>(bin), state.size / 2 + 1);
  }
  situ_audio_spectrum* spectrum = nullptr;
  situ_audio_text error{};
  if (situ_audio_spectrum_create(hann.data(), hann.size(), &spectrum, &error) != 0) return Status::error(error.text);
  state.spectrum.reset(spectrum);
  return activity;
}

void VoiceActivity::push(std::span<const float> samples) {
  // In pieces: what is held does not grow with what is given.
  const size_t piece = kAtOnce * state_->hop;
  for (size_t at = 0; at < samples.size(); at += piece) {
    const auto part = samples.subspan(at, std::min(piece, samples.size() - at));
    state_->pending.insert(state_->pending.end(), part.begin(), part.end());
    state_->samples += static_cast<int64_t>(part.size());
    state_->transform();
    state_->smooth();
    state_->decide();
  }
}

void VoiceActivity::finish() {
  if (state_->ended) return;
  state_->pending.resize(state_->pending.size() + state_->size);
  state_->transform();
  state_->ended = true;
  state_->smooth();
  state_->decide();
}

std::optional<VoiceSpan> VoiceActivity::next() {
  State& state = *state_;
  if (state.done.empty()) return std::nullopt;
  // A later span may still join this one, by its padding.
  if (state.done.size() == 1 && !state.ended && decided() <= state.done.front().end) return std::nullopt;
  const VoiceSpan span = state.done.front();
  state.done.pop_front();
  return span;
}

std::optional<VoiceSpan> VoiceActivity::open() const {
  const State& state = *state_;
  if (!state.done.empty()) return state.done.front();
  if (state.begin < 0 || !state.is_long_enough()) return std::nullopt;
  return state.padded();
}

int64_t VoiceActivity::decided() const {
  const State& state = *state_;
  if (state.ended) return state.samples;
  const int64_t frame = state.begin >= 0 ? state.begin : state.decided_frames;
  const auto padding = static_cast<int64_t>(state.options.padding * state.options.rate);
  return std::max(frame * static_cast<int64_t>(state.hop) - padding, int64_t{0});
}

Result<std::vector<VoiceSpan>> find_speech(std::span<const float> samples, const VoiceOptions& options) {
  Result<VoiceActivity> activity = VoiceActivity::create(options);
  if (!activity.is_ok()) return activity.status();
  activity->push(samples);
  activity->finish();
  std::vector<VoiceSpan> spans;
  while (const std::optional<VoiceSpan> span = activity->next()) spans.push_back(*span);
  return spans;
}

}  // namespace situ
