#include "audio/log_mel.h"

#include <limits>

#include "audio/log_mel_numbers.h"
#include "audio/mel_filters.h"
#include "audio/test_audio.h"

namespace situ {
namespace {

using namespace test_audio;

constexpr float kNone = -std::numeric_limits<float>::infinity();

LogMel make(int mels = 80) {
  MelConfig config;
  config.mels = mels;
  Result<LogMel> mel = LogMel::create(config);
  EXPECT_TRUE(mel.is_ok()) << mel.status().message();
  return std::move(mel).value();
}

std::vector<float> features(const LogMel& mel, const MelWindow& window, ThreadPool* pool = nullptr,
                            float* peak = nullptr) {
  std::vector<float> out(static_cast<size_t>(mel.config().mels) * mel.config().frames());
  const Status status = mel.window(window, out, pool, peak);
  EXPECT_TRUE(status.is_ok()) << status.message();
  return out;
}

// As tests/log_mel_oracle.py.
std::vector<float> signal(const std::string& name) {
  if (name == "silence") return std::vector<float>(16000);
  if (name == "sine") return sine(440, 16000, 160000);
  if (name == "one") return {0.25F};
  if (name == "long") return sine(3000, 16000, 480160);
  std::vector<float> samples(480000);
  uint32_t state = 1;
  for (float& sample : samples) {
    state = state * 1664525U + 1013904223U;
    sample = static_cast<float>((static_cast<double>(state >> 8) / 16777216 - 0.5) * 0.2);
  }
  return samples;
}

TEST(LogMelTest, EqualsTransformers) {
  for (const LogMelNumbers& numbers : kLogMelNumbers) {
    SCOPED_TRACE(std::string(numbers.signal) + " " + std::to_string(numbers.mels));
    const LogMel mel = make(numbers.mels);
    std::vector<float> samples = signal(numbers.signal);
    if (samples.size() > 480000) samples.resize(480000);  // as truncation=True does
    const std::vector<float> out = features(mel, {samples, {}, {}});
    double sum = 0;
    for (const float value : out) sum += value;
    EXPECT_NEAR(sum / static_cast<double>(out.size()), numbers.mean, 2e-6);
    size_t at = 0;
    for (const double share : {0.0, 0.1, 0.3, 0.5, 0.99}) {
      for (const size_t column : {0, 1, 7, 500, 999, 1001, 2998, 2999}) {
        const auto row = static_cast<size_t>(share * numbers.mels);
        EXPECT_NEAR(out[row * 3000 + column], numbers.values[at++], 2e-6) << row << ", " << column;
      }
    }
  }
}

TEST(LogMelTest, ThreadsGiveTheSame) {
  const LogMel mel = make();
  const std::vector<float> samples = noise(480000, 0.1);
  ThreadPool pool(3);
  EXPECT_EQ(features(mel, {samples, {}, {}}, &pool), features(mel, {samples, {}, {}}));
}

// The windows of a recording with its own samples beside them are columns of the whole recording's spectrogram.
TEST(LogMelTest, WindowsWithContextJoin) {
  MelConfig small;
  small.chunk_seconds = 1;
  MelConfig large;
  large.chunk_seconds = 3;
  const Result<LogMel> mel = LogMel::create(small), whole = LogMel::create(large);
  std::vector<float> samples = noise(48000, 0.1);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] *= static_cast<float>(i < 16000 ? 1 : 0.5);
  const std::span<const float> all(samples);
  const std::vector<float> expected = features(*whole, {all, {}, {}});
  float peak = kNone;
  for (size_t w = 0; w < 3; ++w) {
    MelWindow window{all.subspan(w * 16000, 16000), {}, {}};
    if (w > 0) window.before = all.subspan(w * 16000 - 200, 200);
    if (w < 2) window.after = all.subspan((w + 1) * 16000, 200);
    const std::vector<float> out = features(*mel, window, nullptr, &peak);
    for (size_t m = 0; m < 80; ++m) {
      for (size_t t = 0; t < 100; ++t) ASSERT_NEAR(out[m * 100 + t], expected[m * 300 + w * 100 + t], 1e-6);
    }
  }
}

TEST(LogMelTest, PeakIsCarriedOnAndTheFirstWindowIsTheShortForm) {
  const LogMel mel = make();
  const std::vector<float> loud = sine(440, 16000, 480000), quiet = noise(480000, 1e-4);
  float peak = kNone;
  EXPECT_EQ(features(mel, {loud, {}, {}}, nullptr, &peak), features(mel, {loud, {}, {}}));
  const float before = peak;
  const std::vector<float> carried = features(mel, {quiet, {}, {}}, nullptr, &peak);
  EXPECT_EQ(peak, before);
  EXPECT_GT(*std::min_element(carried.begin(), carried.end()), (peak - 8 + 4) / 4 - 1e-6F);
}

TEST(LogMelTest, FiltersAreSlaney) {
  const std::vector<MelFilter> filters = make_mel_filters(80, 400, 16000);
  ASSERT_EQ(filters.size(), 80U);
  // librosa.filters.mel(sr=16000, n_fft=400, n_mels=80)[0] is 0, 0.02486259, 0.
  EXPECT_EQ(filters[0].first, 1);
  ASSERT_EQ(filters[0].weights.size(), 1U);
  EXPECT_NEAR(filters[0].weights[0], 0.02486259, 1e-7);
}

TEST(LogMelTest, Refusals) {
  const LogMel mel = make();
  std::vector<float> out(80 * 3000), samples(480001);
  EXPECT_EQ(mel.window({samples, {}, {}}, out).message(), "a window has 480001 samples, at most 480000 are allowed");
  samples.resize(480000);
  EXPECT_EQ(mel.window({samples, {}, {}}, std::span(out).first(7)).message(), "a spectrogram has 240000 values, not 7");
  EXPECT_EQ(mel.window({samples, std::span(samples).first(3), {}}, out).message(),
            "3 samples stand beside a window, not 200");
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    samples[479999] = bad;
    const Status status = mel.window({samples, {}, {}}, out);
    EXPECT_EQ(status.message(), "a sample is not finite");
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
  }
}

TEST(MelConfigTest, ReadsTheFile) {
  const Result<MelConfig> config = MelConfig::from_json(
      R"({"feature_size": 128, "n_fft": 512, "hop_length": 128, "sampling_rate": 8000, "chunk_length": 10.0})");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->mels, 128);
  EXPECT_EQ(config->fft, 512);
  EXPECT_EQ(config->hop, 128);
  EXPECT_EQ(config->window_samples(), 80000U);
  EXPECT_EQ(config->frames(), 625U);
  const Result<MelConfig> inner = MelConfig::from_json(R"({"feature_extractor": {"feature_size": 64}})");
  ASSERT_TRUE(inner.is_ok());
  EXPECT_EQ(inner->mels, 64);
  EXPECT_EQ(inner->frames(), 3000U);
}

TEST(MelConfigTest, Refusals) {
  const auto message = [](const char* text) { return MelConfig::from_json(text).status().message(); };
  EXPECT_EQ(message("["), "no JSON object");
  EXPECT_EQ(message(R"({"n_fft": "400"})"), "n_fft is \"400\", not a whole number");
  EXPECT_EQ(message(R"({"hop_length": 1.5})"), "hop_length is 1.5, not a whole number");
  EXPECT_EQ(message(R"({"feature_size": 100000})"), "feature_size is 100000; 1 to 512 are supported");
  EXPECT_EQ(message(R"({"n_fft": 401})"), "n_fft is 401; even sizes are supported");
  EXPECT_EQ(message(R"({"chunk_length": 1, "sampling_rate": 1000, "n_fft": 2048})"),
            "a window of 1000 samples is shorter than n_fft, 2048");
}

}  // namespace
}  // namespace situ
