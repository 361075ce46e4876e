#include "audio/sample_windows.h"

#include <algorithm>
#include <array>

#include "audio/test_audio.h"

namespace situ {
namespace {

using namespace test_audio;

constexpr int64_t kWindow = 16000, kContext = 200;

MelConfig config() {
  MelConfig config;
  config.chunk_seconds = 1;
  return config;
}

SampleWindows::Read reading(AudioReader from) {
  const auto reader = std::make_shared<AudioReader>(std::move(from));
  return [reader](std::span<float> out) { return reader->read(out); };
}

void expect_window(SampleWindows& windows, const std::vector<float>& all, int64_t start) {
  SCOPED_TRACE(start);
  const Result<MelWindow> window = windows.at(start);
  ASSERT_TRUE(window.is_ok()) << window.status().message();
  const auto size = static_cast<int64_t>(all.size());
  const auto equal = [&](std::span<const float> part, int64_t from, int64_t to) {
    ASSERT_EQ(static_cast<int64_t>(part.size()), std::max(to - from, int64_t{0}));
    for (int64_t i = from; i < to; ++i) ASSERT_EQ(part[static_cast<size_t>(i - from)], all[static_cast<size_t>(i)]);
  };
  equal(window->samples, start, std::min(start + kWindow, size));
  if (start >= size) return;
  equal(window->before, start - kContext, start >= kContext ? start : start - kContext);
  const int64_t end = start + kWindow;
  equal(window->after, end, end + kContext <= size ? end + kContext : end);
}

TEST(SampleWindowsTest, GoForwardAndALittleBack) {
  const std::vector<float> all = noise(10 * kWindow + 77, 0.1);
  Wav wav{.tag = 3, .bits = 32};
  const std::string bytes = wav.put(std::span<const float>(all)).bytes();
  SampleWindows windows(reading(std::move(*open(bytes))), config());
  for (const int64_t start : {0, 100, 16000, 0, 15840, 15999, 40000, 33000, 64000, 120000, 104001, 144000, 144077,
                              160000, 160076, 160077, 1000000}) {
    expect_window(windows, all, start);
  }
  EXPECT_TRUE(windows.ended());
  EXPECT_EQ(windows.samples(), static_cast<int64_t>(all.size()));
  EXPECT_EQ(windows.at(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(windows.at(-1).status().code(), Code::kInvalidArgument);
}

TEST(SampleWindowsTest, AShortFileIsOneWindow) {
  const std::string bytes = Wav().put(std::span<const int16_t>(std::array<int16_t, 1>{9})).bytes();
  SampleWindows windows(reading(std::move(*open(bytes))), config());
  const Result<MelWindow> window = windows.at(0);
  ASSERT_TRUE(window.is_ok());
  EXPECT_EQ(window->samples.size(), 1U);
  EXPECT_TRUE(window->before.empty() && window->after.empty());
}

TEST(SampleWindowsTest, ErrorsOfTheFileComeThrough) {
  std::vector<float> samples = noise(40000, 0.1);
  samples[39999] = std::nanf("");
  const std::string bytes = Wav{.tag = 3, .bits = 32}.put(std::span<const float>(samples)).bytes();
  SampleWindows windows(reading(std::move(*open(bytes))), config());
  EXPECT_TRUE(windows.at(0).is_ok());
  EXPECT_EQ(windows.at(24000).status().code(), Code::kBadFile);
}

}  // namespace
}  // namespace situ
