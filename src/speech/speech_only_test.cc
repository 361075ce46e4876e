#include "speech/speech_only.h"

#include <algorithm>

#include "audio/test_audio.h"

namespace situ {
namespace {

using namespace test_audio;

constexpr int64_t kRate = 16000;

// Bursts of a tone, 4 a second, over faint noise.
std::vector<float> bursts(double seconds) {
  const auto count = static_cast<size_t>(seconds * kRate);
  std::vector<float> samples = noise(count, 1e-3, 7);
  const std::vector<float> tone = sine(500, kRate, count);
  for (size_t i = 0; i < count; ++i)
    if (i % (kRate / 4) < kRate / 8) samples[i] += tone[i];
  return samples;
}

// Two seconds of bursts from second 3 and from second 9 on, in 14 seconds.
std::vector<float> recording() {
  std::vector<float> samples = noise(14 * kRate, 1e-3);
  const std::vector<float> some = bursts(2);
  for (const int64_t at : {3 * kRate, 9 * kRate})
    for (size_t i = 0; i < some.size(); ++i) samples[static_cast<size_t>(at) + i] = some[i];
  return samples;
}

SpeechOnly only(const std::vector<float>& samples, size_t* left) {
  return SpeechOnly(
      [&samples, left](std::span<float> out) -> Result<size_t> {
        const size_t count = std::min(out.size(), *left), from = samples.size() - *left;
        for (size_t i = 0; i < count; ++i) out[i] = samples[from + i];
        *left -= count;
        return count;
      },
      VoiceActivity::create().value());
}

// All that is left, read in pieces.
std::vector<float> read_all(SpeechOnly& speech, size_t piece) {
  std::vector<float> all, part(piece);
  for (;;) {
    const Result<size_t> count = speech.read(part);
    EXPECT_TRUE(count.is_ok());
    if (!count.is_ok()) return all;
    all.insert(all.end(), part.begin(), part.begin() + static_cast<int64_t>(*count));
    if (*count < piece) return all;
  }
}

TEST(SpeechOnly, GivesTheSamplesOfItsSpansAndKnowsWhereTheyStood) {
  const std::vector<float> samples = recording();
  const std::vector<VoiceSpan> spans = find_speech(samples).value();
  ASSERT_EQ(spans.size(), 2u);
  std::vector<float> want;
  for (const VoiceSpan& s : spans) want.insert(want.end(), samples.begin() + s.begin, samples.begin() + s.end);
  for (const size_t piece : {size_t{1000}, size_t{16384}, size_t{1000000}}) {
    size_t left = samples.size();
    SpeechOnly speech = only(samples, &left);
    EXPECT_EQ(read_all(speech, piece), want) << piece;
    const int64_t first = spans[0].end - spans[0].begin, all = static_cast<int64_t>(want.size());
    EXPECT_EQ(speech.original(0, false), spans[0].begin);
    EXPECT_EQ(speech.original(first - 1, false), spans[0].end - 1);
    // Where the first piece ends, the second begins.
    EXPECT_EQ(speech.original(first, true), spans[0].end);
    EXPECT_EQ(speech.original(first, false), spans[1].begin);
    EXPECT_EQ(speech.original(all, true), spans[1].end);
    for (int64_t i = 0; i < all; i += 997)
      EXPECT_EQ(samples[static_cast<size_t>(speech.original(i, false))], want[static_cast<size_t>(i)]);
  }
}

TEST(SpeechOnly, ThereMayBeNothing) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{5 * kRate}}) {
    const std::vector<float> samples(count);
    size_t left = count;
    SpeechOnly speech = only(samples, &left);
    EXPECT_TRUE(read_all(speech, 4096).empty());
    EXPECT_EQ(left, 0u);
    EXPECT_EQ(speech.original(0, false), 0);
  }
}

// Three pieces of 100 samples: [0, 100), [1000, 1100), [2000, 2100).
TEST(KeptPieces, WithoutEdges) {
  const KeptPieces kept{{{0, 0}, {100, 1000}, {200, 2000}}};
  const auto of = [&](int64_t begin, int64_t end, int64_t before, int64_t behind) {
    const KeptPieces::Span s = kept.without_edges({begin, end}, before, behind);
    return std::pair(kept.original(s.begin, false), kept.original(s.end, true));
  };
  EXPECT_EQ(of(90, 150, 10, 10), std::pair(int64_t{1000}, int64_t{1050}));  // begins a little early
  EXPECT_EQ(of(89, 150, 10, 10), std::pair(int64_t{89}, int64_t{1050}));
  EXPECT_EQ(of(50, 110, 10, 10), std::pair(int64_t{50}, int64_t{100}));  // ends a little late
  EXPECT_EQ(of(50, 111, 10, 10), std::pair(int64_t{50}, int64_t{1011}));
  EXPECT_EQ(of(95, 205, 10, 10), std::pair(int64_t{1000}, int64_t{1100}));
  EXPECT_EQ(of(100, 200, 10, 10), std::pair(int64_t{1000}, int64_t{1100}));
  EXPECT_EQ(of(95, 105, 10, 10).first, 1000);  // on both edges: a place of the recording, and no more
  EXPECT_EQ(of(250, 260, 10, 10), std::pair(int64_t{2050}, int64_t{2060}));
  EXPECT_EQ(of(120, 120, 10, 10), std::pair(int64_t{1020}, int64_t{1020}));
  EXPECT_EQ(KeptPieces{}.without_edges({5, 9}, 10, 10).begin, 5);
}

TEST(SpeechOnly, AnErrorOfReadingIsHandedOn) {
  SpeechOnly speech([](std::span<float>) -> Result<size_t> { return Status::error(Code::kBadFile, "torn"); },
                    VoiceActivity::create().value());
  std::vector<float> out(10);
  const Result<size_t> count = speech.read(out);
  ASSERT_FALSE(count.is_ok());
  EXPECT_EQ(count.status().message(), "torn");
}

}  // namespace
}  // namespace situ
