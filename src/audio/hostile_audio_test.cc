// Damaged files of every format: each gives samples or one error line, in little time. Prints the seed of a failure.
#include <ctime>

#include "audio/test_audio.h"
#include "audio/tone_files.h"

namespace situ {
namespace {

using namespace test_audio;

// Files of each format; SITU_FUZZ_FILES gives another number.
int files() {
  const char* wanted = std::getenv("SITU_FUZZ_FILES");
  return wanted ? std::atoi(wanted) : 300;
}

// Bytes changed, cut out, put in, doubled, cut off.
std::string damaged(std::string bytes, const std::string& other, std::mt19937& random) {
  const auto below = [&](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  // The header is where most of the decisions are made.
  const auto place = [&] { return below(random() % 2 == 0 ? std::min<size_t>(bytes.size(), 128) : bytes.size()); };
  for (size_t change = 1 + below(8); change > 0 && !bytes.empty(); --change) {
    const size_t at = place(), count = 1 + below(64);
    switch (random() % 8) {
      case 0:
        bytes.erase(at, count);
        break;
      case 1:
        bytes.insert(at, std::string(count, static_cast<char>(random())));
        break;
      case 2:
        bytes.insert(at, bytes.substr(place(), count));
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(at, other.substr(below(other.size()), 1 + below(2000)));
        break;
      case 5:
        for (size_t i = at; i < std::min(at + 4, bytes.size()); ++i) bytes[i] = static_cast<char>(0xff);
        break;
      default:
        bytes[at] = static_cast<char>(random() % 3 == 0 ? bytes[at] ^ (1 << random() % 8) : random());
    }
  }
  return bytes;
}

TEST(HostileAudioTest, DamagedFiles) {
  std::vector<std::string> seeds{pcm16(sine(440, 44100, 3000), 44100).bytes()};
  Wav wav{.tag = 3, .channels = 2, .bits = 64, .rate = 8000};
  seeds.push_back(wav.put(std::span<const double>(std::vector<double>(500, 0.25))).bytes());
  for (const auto base64 : {kFlacTone, kOggFlacTone, kMp3Tone, kVorbisTone, kOpusTone}) {
    seeds.push_back(from_base64(base64));
  }
  seeds.push_back(seeds[5] + seeds[6]);  // chained
  const uint32_t first = std::random_device()();
  int good = 0;
  for (int i = 0; i < files(); ++i) {
    for (size_t s = 0; s < seeds.size(); ++s) {
      const uint32_t seed = first + static_cast<uint32_t>(i) * 16 + static_cast<uint32_t>(s);
      SCOPED_TRACE("seed " + std::to_string(seed) + " of format " + std::to_string(s));
      std::mt19937 random(seed);
      const std::string bytes = damaged(seeds[s], seeds[random() % seeds.size()], random);
      const std::clock_t start = std::clock();
      Result<AudioReader> reader = open(bytes);
      size_t samples = 0;
      if (reader.is_ok()) {
        std::vector<float> part(10000);
        for (size_t count = part.size(); count == part.size(); samples += count) {
          const Result<size_t> read = reader->read(part);
          if (!read.is_ok()) {
            EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
            EXPECT_NE(read.status().code(), Code::kInternal) << read.status().message();
            break;
          }
          count = *read;
          for (size_t k = 0; k < count; ++k) ASSERT_TRUE(std::isfinite(part[k]));
        }
        good += samples > 0 ? 1 : 0;
      } else {
        EXPECT_EQ(reader.status().message().find('\n'), std::string::npos);
        EXPECT_NE(reader.status().code(), Code::kInternal) << reader.status().message();
      }
      // Of a few thousand bytes: less than an hour of samples, and far less than this of a processor's seconds.
      EXPECT_LT(samples, 60U << 20);
      EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 20);
    }
  }
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace situ
