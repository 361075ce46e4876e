#include "speech/speech_windows.h"

#include <algorithm>
#include <cmath>

#include "audio/test_audio.h"

namespace situ {
namespace {

using namespace test_audio;

constexpr int64_t kSampleRate = 16000;

// Bursts of a tone, 4 a second, from `begin` to `end` (seconds).
void add_bursts(std::vector<float>& samples, double begin, double end) {
  const std::vector<float> tone = sine(500, kSampleRate, samples.size());
  for (auto i = static_cast<size_t>(begin * kSampleRate); i < static_cast<size_t>(end * kSampleRate); ++i)
    if (i % (kSampleRate / 4) < kSampleRate / 8) samples[i] += tone[i];
}

struct Found {
  std::vector<SpeechWindow> windows;
  size_t most_ahead = 0;  // samples read beyond the end of a window, at most
};

Found all_windows(const std::vector<float>& samples, int64_t longest) {
  size_t at = 0;
  SpeechWindows speech(
      [&](std::span<float> out) -> Result<size_t> {
        const size_t count = std::min(out.size(), samples.size() - at);
        for (size_t i = 0; i < count; ++i) out[i] = samples[at + i];
        at += count;
        return count;
      },
      VoiceActivity::create().value(), kSampleRate, longest);
  Found found;
  for (;;) {
    Result<std::optional<SpeechWindow>> window = speech.next();
    EXPECT_TRUE(window.is_ok());
    if (!window.is_ok() || !*window) return found;
    const auto count = static_cast<int64_t>((*window)->samples.size());
    const auto end = static_cast<size_t>((*window)->pieces.original(count, true));
    found.most_ahead = std::max(found.most_ahead, at - end);
    // Every sample stands where its piece says.
    for (int64_t i = 0; i < count; i += 997)
      EXPECT_EQ((*window)->samples[static_cast<size_t>(i)],
                samples[static_cast<size_t>((*window)->pieces.original(i, false))]);
    found.windows.push_back(std::move(**window));
  }
}

TEST(SpeechWindows, HoldAsManySpansAsFitAndThePausesThatAreShort) {
  std::vector<float> samples = noise(40 * kSampleRate, 1e-3);
  for (const auto& [begin, end] : {std::pair{3.0, 5.0}, {6.0, 8.0}, {14.0, 17.0}, {22.0, 26.0}})
    add_bursts(samples, begin, end);
  const Found found = all_windows(samples, 10 * kSampleRate);
  ASSERT_EQ(found.windows.size(), 2u);
  // 5 s with a pause of one, and 3 s behind a pause of six, which is left out; 4 s more do not fit.
  ASSERT_EQ(found.windows[0].pieces.pieces.size(), 2u);
  EXPECT_NEAR(static_cast<double>(found.windows[0].begin()) / kSampleRate, 3, 0.35);
  EXPECT_NEAR(static_cast<double>(found.windows[0].samples.size()) / kSampleRate, 8.6, 0.5);
  EXPECT_NEAR(static_cast<double>(found.windows[0].pieces.pieces[1].original) / kSampleRate, 14, 0.35);
  EXPECT_NEAR(static_cast<double>(found.windows[1].begin()) / kSampleRate, 22, 0.35);
}

TEST(SpeechWindows, SpeechThatDoesNotEndIsCutWhereItIsQuietest) {
  std::vector<float> samples = noise(200 * kSampleRate, 1e-3);
  add_bursts(samples, 1, 199);
  const Found found = all_windows(samples, 10 * kSampleRate);
  ASSERT_GT(found.windows.size(), 19u);
  int64_t end = found.windows[0].begin();
  for (const SpeechWindow& w : found.windows) {
    EXPECT_EQ(w.begin(), end);  // nothing is lost
    ASSERT_EQ(w.pieces.pieces.size(), 1u);
    EXPECT_LE(w.samples.size(), 10u * kSampleRate);
    end += static_cast<int64_t>(w.samples.size());
    if (end > 198 * kSampleRate) break;
    EXPECT_GE(w.samples.size(), 6u * kSampleRate);
    EXPECT_GT(end % (kSampleRate / 4), kSampleRate / 8) << "within a burst";
  }
  EXPECT_NEAR(static_cast<double>(end) / kSampleRate, 199, 0.5);
  EXPECT_LT(found.most_ahead, 15u * kSampleRate);  // not the whole recording
}

TEST(SpeechWindows, SilenceHasNone) {
  EXPECT_TRUE(all_windows(std::vector<float>(5 * kSampleRate), 10 * kSampleRate).windows.empty());
  EXPECT_TRUE(all_windows({}, 10 * kSampleRate).windows.empty());
}

}  // namespace
}  // namespace situ
