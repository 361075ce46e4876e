#include "audio/voice_activity.h"

#include "audio/test_audio.h"
#include "base/sweep_for_tests.h"

namespace situ {
namespace {

using namespace test_audio;

constexpr int64_t kRate = 16000;

std::vector<VoiceSpan> spans(const std::vector<float>& samples) {
  Result<std::vector<VoiceSpan>> found = find_speech(samples);
  EXPECT_TRUE(found.is_ok()) << found.status().message();
  return found.is_ok() ? *found : std::vector<VoiceSpan>();
}

void append(std::vector<float>& to, const std::vector<float>& more) { to.insert(to.end(), more.begin(), more.end()); }

// Bursts of vowel-like sound, 4 a second, over faint noise.
std::vector<float> babble(double seconds) {
  std::vector<float> samples = noise(static_cast<size_t>(seconds * kRate), 1e-3, 7);
  for (size_t i = 0; i < samples.size(); ++i) {
    const double t = static_cast<double>(i) / kRate, level = std::max(0.0, std::sin(2 * std::numbers::pi * 4 * t));
    for (int h = 1; h <= 20; ++h) {
      samples[i] += static_cast<float>(0.1 * level / h * std::sin(2 * std::numbers::pi * 140 * h * t));
    }
  }
  return samples;
}

TEST(VoiceActivityTest, NothingInSilenceAndInSteadyNoise) {
  EXPECT_TRUE(spans({}).empty());
  EXPECT_TRUE(spans({0.5F}).empty());
  EXPECT_TRUE(spans(std::vector<float>(10 * kRate)).empty());
  EXPECT_TRUE(spans(noise(20 * kRate, 0.1)).empty());
  EXPECT_TRUE(spans(sine(1000, kRate, 10 * kRate)).empty());
}

TEST(VoiceActivityTest, EdgesOfSpeechInSilence) {
  std::vector<float> samples = noise(3 * kRate, 1e-3);
  append(samples, babble(4));
  append(samples, noise(3 * kRate, 1e-3, 2));
  const std::vector<VoiceSpan> found = spans(samples);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NEAR(static_cast<double>(found[0].begin) / kRate, 3.0, 0.3);
  EXPECT_NEAR(static_cast<double>(found[0].end) / kRate, 7.0, 0.3);
}

TEST(VoiceActivityTest, PiecesOfAnySizeGiveTheSame) {
  std::vector<float> samples = babble(3);
  append(samples, noise(4 * kRate, 0.02));
  append(samples, babble(2));
  const std::vector<VoiceSpan> expected = spans(samples);
  ASSERT_GE(expected.size(), 2U);
  for (const size_t piece : sweeping() ? std::vector<size_t>{1, 7, 160, 4000, 1000000} : std::vector<size_t>{7, 4000}) {
    Result<VoiceActivity> activity = VoiceActivity::create();
    ASSERT_TRUE(activity.is_ok());
    std::vector<VoiceSpan> found;
    int64_t decided = 0;
    const auto take = [&] {
      while (const std::optional<VoiceSpan> span = activity->next()) {
        EXPECT_GE(span->begin, decided);
        found.push_back(*span);
      }
    };
    for (size_t at = 0; at < samples.size(); at += piece) {
      activity->push(std::span(samples).subspan(at, std::min(piece, samples.size() - at)));
      take();
      if (found.empty()) continue;
      decided = std::max(decided, found.back().end);
    }
    activity->finish();
    take();
    ASSERT_EQ(found.size(), expected.size()) << piece;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].begin, expected[i].begin);
      EXPECT_EQ(found[i].end, expected[i].end);
    }
  }
}

// A recording, 20 s of noise 10 dB below it, and the recording again.
TEST(VoiceActivityTest, NoSpeechInANoisyGap) {
  const std::string path = recording("jfk.flac");
  if (path.empty()) GTEST_SKIP() << "no jfk.flac in the shared folder (SITU_SHARED)";
  const Result<Audio> jfk = read_audio(path);
  ASSERT_TRUE(jfk.is_ok()) << jfk.status().message();
  const double speech = static_cast<double>(jfk->samples.size()) / kRate, gap = 20;
  std::vector<float> samples = jfk->samples;
  append(samples, noise(static_cast<size_t>(gap * kRate), rms(jfk->samples) * std::pow(10, -10.0 / 20)));
  append(samples, jfk->samples);
  double first = 1e9, before = 0, after = 1e9, last = 0;
  for (const VoiceSpan& span : spans(samples)) {
    const double begin = static_cast<double>(span.begin) / kRate, end = static_cast<double>(span.end) / kRate;
    EXPECT_TRUE(end < speech + 0.3 || begin > speech + gap - 0.3) << begin << " to " << end;
    first = std::min(first, begin);
    last = std::max(last, end);
    if (end < speech + gap / 2) before = std::max(before, end);
    if (begin > speech + gap / 2) after = std::min(after, begin);
  }
  // The first word begins at 0.30 s; the last one and what echoes of it end with the recording.
  EXPECT_NEAR(first, 0.30, 0.3);
  EXPECT_NEAR(before, speech, 0.3);
  EXPECT_NEAR(after, speech + gap + 0.30, 0.3);
  EXPECT_NEAR(last, 2 * speech + gap, 0.3);
}

TEST(VoiceActivityTest, Refusals) {
  VoiceOptions options;
  options.rate = 0;
  EXPECT_EQ(VoiceActivity::create(options).status().message(), "a rate of 0 Hz; 1000 to 384000 Hz are allowed");
  options = {};
  options.hangover = -1;
  EXPECT_EQ(VoiceActivity::create(options).status().code(), Code::kInvalidArgument);
  options = {};
  options.threshold_db = std::nan("");
  EXPECT_FALSE(VoiceActivity::create(options).is_ok());
}

}  // namespace
}  // namespace situ
