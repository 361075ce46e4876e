#include "audio/audio_reader.h"

#include <algorithm>
#include <array>
#include <limits>

#include "audio/test_audio.h"
#include "audio/tone_files.h"

namespace situ {
namespace {

using namespace test_audio;

double db(double ratio) { return 20 * std::log10(std::max(ratio, 1e-12)); }

// Without what a filter's ends reach.
std::span<const float> middle(const std::vector<float>& samples, size_t border = 1600) {
  return std::span(samples).subspan(border, samples.size() - 2 * border);
}

std::vector<float> read_all(const std::string& bytes, int rate = 16000, size_t piece = 1000) {
  Result<Audio> audio = read(bytes, rate, piece);
  EXPECT_TRUE(audio.is_ok()) << audio.status().message();
  if (!audio.is_ok()) return {};
  EXPECT_EQ(audio->cut, "");
  return std::move(audio->samples);
}

TEST(AudioReaderTest, WavOfEveryKindOfSample) {
  const auto first = [](Wav wav, std::span<const float> expected, double tolerance) {
    const std::vector<float> samples = read_all(wav.bytes());
    ASSERT_EQ(samples.size(), expected.size());
    for (size_t i = 0; i < samples.size(); ++i) EXPECT_NEAR(samples[i], expected[i], tolerance) << i;
  };
  const std::array expected{0.5F, -0.25F, 0.0F};
  first(Wav{.bits = 8}.put(std::span<const uint8_t>(std::array<uint8_t, 3>{192, 96, 128})), expected, 1e-6);
  first(Wav{.bits = 16}.put(std::span<const int16_t>(std::array<int16_t, 3>{16384, -8192, 0})), expected, 1e-6);
  first(Wav{.bits = 24}.put(std::span<const int32_t>(std::array{4194304, -2097152, 0}), 3), expected, 1e-6);
  first(Wav{.bits = 32}.put(std::span<const int32_t>(std::array{1 << 30, -(1 << 29), 0})), expected, 1e-6);
  first(Wav{.tag = 3, .bits = 32}.put(std::span<const float>(expected)), expected, 0);
  first(Wav{.tag = 3, .bits = 64}.put(std::span<const double>(std::array{0.5, -0.25, 0.0})), expected, 0);
  // ITU-T G.711: 0xd5 and 0xff are the smallest positive values, 0xaa and 0x80 the largest.
  first(Wav{.tag = 6, .bits = 8}.put(std::span<const uint8_t>(std::array<uint8_t, 2>{0xd5, 0xaa})),
        std::array{8 / 32768.0F, 32256 / 32768.0F}, 1e-6);
  first(Wav{.tag = 7, .bits = 8}.put(std::span<const uint8_t>(std::array<uint8_t, 2>{0xff, 0x80})),
        std::array{0.0F, 32124 / 32768.0F}, 1e-6);
}

TEST(AudioReaderTest, ChannelsAreAveraged) {
  Wav wav{.channels = 2};
  wav.put(std::span<const int16_t>(std::array<int16_t, 4>{16384, 0, -16384, -8192}));
  const std::vector<float> samples = read_all(wav.bytes());
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_FLOAT_EQ(samples[0], 0.25F);
  EXPECT_FLOAT_EQ(samples[1], -0.375F);
}

TEST(AudioReaderTest, EveryFormat) {
  const std::vector<float> expected = sine(1000, 16000, 4000);
  const auto check = [&](std::string_view base64, const std::string& format, int rate, double tolerance) {
    SCOPED_TRACE(format);
    const std::string bytes = from_base64(base64);
    const Result<AudioReader> reader = open(bytes);
    ASSERT_TRUE(reader.is_ok()) << reader.status().message();
    EXPECT_EQ(reader->info().format, format);
    EXPECT_EQ(reader->info().rate, rate);
    EXPECT_EQ(reader->info().channels, 1);
    const std::vector<float> samples = read_all(bytes);
    ASSERT_EQ(samples.size(), 4000U);  // an encoder's delay and padding are gone
    std::vector<float> rest(4000);
    for (size_t i = 0; i < 4000; ++i) rest[i] = samples[i] - expected[i];
    EXPECT_LT(rms(middle(rest)) / rms(expected), tolerance);
    EXPECT_EQ(read_all(bytes, 16000, 1), samples);
    EXPECT_EQ(read_all(bytes, 16000, 100000), samples);
  };
  check(kFlacTone, "flac", 16000, 1e-4);
  check(kOggFlacTone, "ogg flac", 16000, 1e-4);
  check(kMp3Tone, "mp3", 16000, 0.1);
  check(kVorbisTone, "ogg vorbis", 16000, 0.2);
  check(kOpusTone, "ogg opus", 48000, 0.4);
}

TEST(AudioReaderTest, TonesThatTheRateCannotHoldAreGone) {
  for (const int rate : {44100, 48000, 22050, 96000, 44101}) {
    const auto heard = [&](double hz) {
      // The filter of a rate that has no common factor is 1 s long.
      const std::vector<float> samples = sine(hz, rate, 4 * static_cast<size_t>(rate));
      Wav wav{.tag = 3, .bits = 32, .rate = static_cast<uint32_t>(rate)};
      const std::vector<float> read = read_all(wav.put(std::span<const float>(samples)).bytes());
      EXPECT_EQ(read.size(), 64000U) << rate;
      return db(rms(middle(read, 24000)) / rms(middle(samples)));
    };
    EXPECT_NEAR(heard(100), 0, 0.01) << rate;
    EXPECT_NEAR(heard(1000), 0, 0.01) << rate;
    EXPECT_NEAR(heard(7500), 0, 0.1) << rate;
    EXPECT_LT(heard(8200), -100) << rate;
    if (rate > 30000) {
      EXPECT_LT(heard(12000), -100) << rate;
    }
  }
}

TEST(AudioReaderTest, AHigherRateKeepsTheWave) {
  for (const int rate : {8000, 11025}) {
    const std::vector<float> samples = sine(440, rate, static_cast<size_t>(rate)), expected = sine(440, 16000, 16000);
    Wav wav{.tag = 3, .bits = 32, .rate = static_cast<uint32_t>(rate)};
    const std::vector<float> read = read_all(wav.put(std::span<const float>(samples)).bytes());
    ASSERT_EQ(read.size(), 16000U);
    for (size_t i = 4000; i < 12000; ++i) ASSERT_NEAR(read[i], expected[i], 1e-3) << rate << ", " << i;
  }
}

TEST(AudioReaderTest, CountsOfSamples) {
  for (const size_t count : {1U, 2U, 3U, 4095U, 4096U, 4097U, 44100U, 100001U}) {
    const std::vector<float> samples = noise(count, 0.1);
    EXPECT_EQ(read_all(pcm16(samples, 16000).bytes()).size(), count);
    EXPECT_EQ(read_all(pcm16(samples, 44100).bytes()).size(), (count * 160 + 440) / 441);
    EXPECT_EQ(read_all(pcm16(samples, 8000).bytes()).size(), count * 2);
  }
}

// A clock of one sample is where it was after the rate was converted.
TEST(AudioReaderTest, ConvertingTheRateDelaysNothing) {
  std::vector<float> samples(48000);
  samples[24000] = 0.9F;
  const std::vector<float> read = read_all(pcm16(samples, 48000).bytes());
  EXPECT_EQ(std::max_element(read.begin(), read.end()) - read.begin(), 8000);
}

TEST(AudioReaderTest, Recordings) {
  if (recording("jfk.flac").empty()) GTEST_SKIP() << "no jfk.flac in the shared folder (SITU_SHARED)";
  const auto check = [](const std::string& name, size_t count, double level) {
    const Result<Audio> audio = read_audio(recording(name));
    ASSERT_TRUE(audio.is_ok()) << audio.status().message();
    EXPECT_EQ(audio->samples.size(), count) << name;
    EXPECT_EQ(audio->cut, "");
    // By libsndfile 1.2 and soxr's best quality.
    EXPECT_NEAR(rms(audio->samples), level, 1e-4) << name;
  };
  check("1272-141231-0002.mp3", 213360, 0.088356);
  check("common_voice_en_59751.mp3", 57600, 0.004870);
  check("jfk.flac", 176000, 0.142100);
}

TEST(AudioReaderTest, Mp3sInARowAreReadToTheEnd) {
  const std::string one = from_base64(kMp3Tone);
  EXPECT_GT(read_all(one + one).size(), 7900U);
}

TEST(AudioReaderTest, WhatStandsAroundTheAudio) {
  const std::string mp3 = from_base64(kMp3Tone), tag = std::string("ID3\4\0\0\0\0\1\0", 10) + std::string(128, '\xff');
  EXPECT_EQ(read_all(tag + tag + std::string(1000, '\0') + mp3 + "TAG" + std::string(125, ' ')).size(), 4000U);
  EXPECT_EQ(read_all(tag + from_base64(kFlacTone)).size(), 4000U);
  // A chunk that nobody knows, of an odd size, and a size of the whole that is too small.
  Wav wav = pcm16(sine(440, 16000, 100), 16000);
  wav.riff_size = 4;
  std::string bytes = wav.bytes();
  bytes.insert(36, std::string("junk\3\0\0\0abc\0", 12));
  EXPECT_EQ(read_all(bytes).size(), 100U);
  // As ffmpeg writes to a pipe: no size is known.
  wav.riff_size = wav.data_size = 0xffffffff;
  EXPECT_EQ(read_all(wav.bytes()).size(), 100U);
  EXPECT_EQ(open(wav.bytes())->info().samples, std::nullopt);
}

// As a writer lays it out: `format` is the body of its format chunk.
std::string wav_of(const std::string& format, const std::string& before, uint32_t data_size, const std::string& data) {
  const auto size = [](size_t n) {
    const auto value = static_cast<uint32_t>(n);
    return std::string(reinterpret_cast<const char*>(&value), 4);
  };
  return "RIFF" + size(0) + "WAVE" + before + "fmt " + size(format.size()) + format + "data" + size(data_size) + data;
}

TEST(AudioReaderTest, FormatChunksOfEverySize) {
  const std::vector<float> samples = sine(440, 16000, 100);
  const auto check = [&](const Wav& wav, std::string format, double tolerance) {
    const auto size = static_cast<uint32_t>(wav.data.size());
    const std::vector<float> read = read_all(wav_of(format, "", size, wav.data));
    ASSERT_EQ(read.size(), 100U) << format.size();
    for (size_t i = 0; i < 100; ++i) EXPECT_NEAR(read[i], samples[i], tolerance) << format.size();
  };
  const Wav pcm = pcm16(samples, 16000);
  Wav floats{.tag = 3, .bits = 32};
  floats.put(std::span<const float>(samples));
  // The same samples in the upper 20 of 24 bits.
  Wav upper{.bits = 24};
  for (const float x : samples) {
    const auto value = static_cast<int32_t>(std::lround(x * 524287)) << 4;
    upper.put(std::span(&value, 1), 3);
  }
  const auto head = [](uint16_t tag, uint16_t bits) {
    const Wav wav{.tag = tag, .bits = bits};
    return wav.bytes().substr(20, 16);
  };
  for (const size_t size : {0U, 2U, 4U, 24U, 30U}) {
    std::string extra = size > 0 ? std::string("\2\0", 2) + std::string(size - 2, '\1') : "";
    check(pcm, head(1, 16) + extra, 1e-4);
    check(floats, head(3, 32) + extra, 0);
    check(upper, head(1, 20) + extra, 1e-5);
  }
  const auto extended = [&](uint16_t bits, uint16_t valid, char tag, char size) {
    const std::string guid("\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71", 15);
    return head(0xfffe, bits) + std::string{size, '\0', static_cast<char>(valid), '\0'} + "\xff\xff\xff\xff" + tag +
           guid;
  };
  check(pcm, extended(16, 16, 1, 22), 1e-4);
  check(pcm, extended(16, 0, 1, 0) + "more", 1e-4);
  check(floats, extended(32, 24, 3, 22), 0);
  check(upper, extended(24, 20, 1, 22), 1e-5);
  for (const uint16_t tag : {6, 7})
    for (const size_t size : {0U, 2U, 4U, 24U})
      EXPECT_EQ(read_all(wav_of(head(tag, 8) + std::string(size, '\0'), "", 100, std::string(100, '\x55'))).size(),
                100U);
}

TEST(AudioReaderTest, ChunksThatWritersLeaveUnfinished) {
  const std::string format = Wav().bytes().substr(20, 16), data = pcm16(sine(440, 16000, 100), 16000).data;
  // Of no size, as ffmpeg, sox, arecord and others leave it when they cannot go back.
  for (const uint32_t size : {0U, 0xffffffffU, 0x7ffff000U, 0x7fffffdbU, 0x80000000U, 0x7fffffffU}) {
    const std::string bytes = wav_of(format, "", size, data);
    EXPECT_EQ(read_all(bytes).size(), 100U) << size;
    EXPECT_EQ(open(bytes)->info().samples, std::nullopt) << size;
  }
  // Chunks of an odd size, with the byte that follows them and without.
  const std::string odd("junk\3\0\0\0abc", 11), even("LIST\4\0\0\0INFO", 12);
  for (const std::string& before :
       {odd + '\0', odd, odd + '\0' + odd + '\0' + even, odd + odd + even, even + odd, std::string("fact\0\0\0\0", 8)})
    EXPECT_EQ(read_all(wav_of(format, before, 200, data)).size(), 100U) << before.size();
  // What follows the samples is no sound.
  EXPECT_EQ(read_all(wav_of(format, "", 200, data + even)).size(), 100U);
  const auto refused = [](const std::string& bytes) { return read(bytes).status().message(); };
  EXPECT_EQ(refused(wav_of(format, "", 0, "")), "x: has no audio samples");
  EXPECT_EQ(refused(wav_of(format.substr(0, 14), "", 200, data)), "x: is damaged: its format chunk has 14 bytes");
  EXPECT_EQ(refused("RIFF....WAVEdata...." + data), "x: is damaged: a wav without a format chunk");
}

TEST(AudioReaderTest, AnMp3FromTheMiddleOfAFrame) {
  const std::string mp3 = from_base64(kMp3Tone).substr(45);  // without its tag
  const std::vector<float> whole = read_all(mp3);
  ASSERT_EQ(whole.size(), 4000U);
  const std::string tag = std::string("ID3\4\0\0\0\0\1\0", 10) + std::string(128, ' ');
  std::mt19937 random(1);
  std::string junk(1000, '\0'), long_tag = std::string("ID3\4\0\0\0\0\0\x7f", 10) + std::string(200000, 'x');
  for (char& c : junk) c = static_cast<char>(random());
  const auto check = [&](const std::string& bytes, size_t left_out) {
    const Result<Audio> audio = read(bytes);
    ASSERT_TRUE(audio.is_ok()) << audio.status().message();
    EXPECT_EQ(audio->note,
              std::to_string(left_out) + " bytes in front of the first mp3 frame are no audio and were left out");
    // The end is what it was.
    ASSERT_GT(audio->samples.size(), 2500U);
    for (size_t i = 1; i < 1000; ++i) ASSERT_NEAR(audio->samples.end()[-i], whole.end()[-i], 1e-6);
  };
  // The first frame has a tag that says how much padding there is: an mp3 that keeps it is what it was.
  for (const std::string& before : {std::string("abc\1"), junk, junk + tag, tag + junk, long_tag}) {
    const size_t tags = before.starts_with("ID3") ? (before == long_tag ? 137 : tag.size()) : 0;
    check(before + mp3, before.size() - tags);
  }
  EXPECT_EQ(read(mp3)->note, "");
  EXPECT_EQ(read_all(tag + tag + mp3 + "APETAGEX" + std::string(200, 'x') + "TAG" + std::string(125, ' ')), whole);
  // Without it, the padding stays, and a frame that needs those before it is silence.
  for (const size_t gone : {20U, 300U, 500U}) {
    const Result<Audio> cut = read(mp3.substr(gone));
    ASSERT_TRUE(cut.is_ok()) << cut.status().message();
    EXPECT_GT(cut->samples.size(), gone == 20 ? 4000U : 3000U);
    EXPECT_LT(rms(std::span(cut->samples).subspan(1400, 1500)) / rms(std::span(whole).subspan(1400, 1500)), 1.01);
    EXPECT_NE(cut->note, "") << gone;
  }
  const std::string convert = "; convert it: ffmpeg -i x -vn -ac 1 -ar 16000 x.flac";
  EXPECT_EQ(read(std::string("\xff\xfb\x00\x64", 4) + junk).status().message(),
            "x: mp3 of a free bit rate is not supported" + convert);
}

// Pages of an Ogg file.
struct OggPage {
  std::string bytes;
  int64_t position() const {
    int64_t value = 0;
    std::copy_n(bytes.data() + 6, 8, reinterpret_cast<char*>(&value));
    return value;
  }
  bool is_last() const { return (bytes[5] & 4) != 0; }
  void set_position(int64_t value) {
    bytes.replace(6, 8, std::string(reinterpret_cast<const char*>(&value), 8));
    bytes.replace(22, 4, std::string(4, '\0'));
    uint32_t sum = 0;
    for (const char c : bytes) {
      sum ^= static_cast<uint32_t>(static_cast<unsigned char>(c)) << 24;
      for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ (sum >> 31 ? 0x04c11db7U : 0U);
    }
    bytes.replace(22, 4, std::string(reinterpret_cast<const char*>(&sum), 4));
  }
};

std::vector<OggPage> pages_of(const std::string& file) {
  std::vector<OggPage> pages;
  for (size_t at = 0; at < file.size();) {
    const size_t segments = static_cast<unsigned char>(file[at + 26]);
    size_t size = 27 + segments;
    for (size_t i = 0; i < segments; ++i) size += static_cast<unsigned char>(file[at + 27 + i]);
    pages.push_back({file.substr(at, size)});
    at += size;
  }
  return pages;
}

// A page that says a wrong number of samples cuts nothing off.
TEST(AudioReaderTest, OggPagesWithWrongPositions) {
  const std::string wrong = "pages that say a wrong number of samples: ",
                    read_on = "; all samples that are there were read";
  for (const std::string_view base64 : {kVorbisTone, kOpusTone, kOggFlacTone}) {
    const std::string file = from_base64(base64);
    std::vector<OggPage> pages = pages_of(file);
    ASSERT_TRUE(pages.back().is_last());
    const int64_t end = pages.back().position();
    for (const int64_t position : {int64_t{0}, int64_t{-1}, int64_t{-5}, std::numeric_limits<int64_t>::min()}) {
      pages.back().set_position(position);
      std::string bytes;
      for (const OggPage& p : pages) bytes += p.bytes;
      for (const std::string& after : {std::string(), file}) {  // and the next stream is what it is alone
        const Result<Audio> audio = read(bytes + after);
        ASSERT_TRUE(audio.is_ok()) << audio.status().message();
        const size_t own = audio->samples.size() - (after.empty() ? 0 : 4000);
        EXPECT_GE(own, 4000U) << position;
        EXPECT_LE(own, 4800U) << position;
        EXPECT_EQ(audio->note, wrong + "1" + read_on);
        EXPECT_EQ(audio->cut, "");
      }
    }
    pages.back().set_position(end - 800);  // as good as any other
    std::string bytes;
    for (const OggPage& p : pages) bytes += p.bytes;
    const Result<Audio> audio = read(bytes);
    ASSERT_TRUE(audio.is_ok());
    EXPECT_EQ(audio->note, "");
    if (base64 != kOggFlacTone) {
      EXPECT_EQ(audio->samples.size(), base64 == kOpusTone ? 3734U : 3200U);
    }
  }
}

// What is damaged is left out, and said; also where the audio begins.
TEST(AudioReaderTest, OggPagesThatAreDamaged) {
  for (const std::string_view base64 : {kVorbisTone, kOpusTone}) {
    const std::string file = from_base64(base64);
    std::string bad = file;
    bad[file.size() - 50] ^= 1;
    Result<Audio> audio = read(bad + file);
    ASSERT_TRUE(audio.is_ok()) << audio.status().message();
    EXPECT_EQ(audio->samples.size() > 4000, base64 == kOpusTone);  // which has one page more
    EXPECT_LT(audio->samples.size(), 7000U);
    EXPECT_EQ(audio->note, "pages that are missing or damaged, and were left out: 1");
    audio = read(file + std::string(5000, 'x') + "OggS and more of it" + file);
    ASSERT_TRUE(audio.is_ok()) << audio.status().message();
    EXPECT_EQ(audio->samples.size(), 8000U);
    EXPECT_EQ(audio->note, "");
  }
}

TEST(AudioReaderTest, ATruncatedFileGivesWhatWasDecoded) {
  Wav wav = pcm16(noise(16000, 0.1), 16000);
  wav.data_size = 64000;
  Result<Audio> audio = read(wav.bytes());
  ASSERT_TRUE(audio.is_ok());
  EXPECT_EQ(audio->samples.size(), 16000U);
  EXPECT_EQ(audio->cut, "is cut off or damaged: 1.00 s of 2.00 s were read");
  for (const std::string_view base64 : {kFlacTone, kOggFlacTone, kMp3Tone, kVorbisTone, kOpusTone}) {
    // What has one page or frame is nothing when it is cut off: so two files where the format allows that.
    const bool chained = base64 != kMp3Tone && base64 != kFlacTone;
    const std::string bytes = from_base64(base64), before = chained ? bytes : "";
    size_t most = 0;
    for (size_t size = 41; size < bytes.size(); size += 41) {
      audio = read(before + bytes.substr(0, size));
      if (!audio.is_ok()) continue;
      // Part of a header behind a complete Ogg file is taken for something else.
      if (!chained || audio->samples.size() > 4000) {
        EXPECT_NE(audio->cut, "") << size << " of " << bytes.size();
      }
      most = std::max(most, audio->samples.size());
    }
    EXPECT_TRUE(base64 == kFlacTone || (most > 3000 && most < 8000)) << most;
  }
}

TEST(AudioReaderTest, ChainedOgg) {
  const std::string vorbis = from_base64(kVorbisTone), opus = from_base64(kOpusTone);
  EXPECT_EQ(read_all(vorbis + vorbis).size(), 8000U);
  EXPECT_EQ(read_all(opus + opus).size(), 8000U);
  EXPECT_EQ(read_all(vorbis + from_base64(kOggFlacTone)).size(), 8000U);
  const Status status = read(vorbis + opus).status();
  EXPECT_EQ(status.code(), Code::kBadFile);
  EXPECT_EQ(
      status.message(),
      "x: changes its rate from 16000 to 48000 Hz after 0.25 s; convert it: ffmpeg -i x -vn -ac 1 -ar 16000 x.flac");
}

TEST(AudioReaderTest, SamplesThatAreNoAudio) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN(), 2e9F}) {
    std::vector<float> samples = noise(5000, 0.1);
    samples[4321] = bad;
    Wav wav{.tag = 3, .channels = 2, .bits = 32};
    const std::string bytes = wav.put(std::span<const float>(samples)).bytes();
    Result<AudioReader> reader = open(bytes);
    ASSERT_TRUE(reader.is_ok());
    std::vector<float> out(10000);
    const Status status = reader->read(out).status();
    EXPECT_EQ(status.code(), Code::kBadFile);
    EXPECT_TRUE(status.message().starts_with("x: sample 2160 of channel 1 is ")) << status.message();
    EXPECT_EQ(reader->read(out).status().message(), status.message());
  }
}

TEST(AudioReaderTest, Refusals) {
  const auto expect = [](const std::string& bytes, Code code, const std::string& message) {
    const Status status = read(bytes).status();
    EXPECT_EQ(status.message(), message);
    EXPECT_EQ(status.code(), code) << message;
  };
  const std::string convert = "; convert it: ffmpeg -i x -vn -ac 1 -ar 16000 x.flac";
  expect("", Code::kBadFile, "x: is empty");
  expect("hello, this is no audio\n", Code::kBadFile, "x: is a text file, not audio");
  expect(Wav().bytes(), Code::kBadFile, "x: has no audio samples");
  expect(Wav().bytes().substr(0, 30), Code::kBadFile, "x: is cut off in its header");
  expect(from_base64(kVorbisTone).substr(0, 40), Code::kBadFile,
         "x: is cut off in its header, or has no Vorbis, Opus or flac");
  expect(std::string("ID3\4\0\0\x7f\x7f\x7f\x7f", 10) + "x", Code::kBadFile,
         "x: has no audio after 11 bytes of tags and zeros");
  expect(std::string(1 << 20, '\0'), Code::kBadFile,
         "x: is not a known audio format (wav, flac, mp3, ogg vorbis, ogg opus)" + convert);
  Wav wav = pcm16(noise(100, 0.1), 16000);
  wav.rate = 0;
  expect(wav.bytes(), Code::kBadFile, "x: has a rate of 0 Hz; 1000 to 384000 Hz are read");
  wav.rate = 1U << 31;
  expect(wav.bytes(), Code::kBadFile, "x: has a rate of 2147483648 Hz; 1000 to 384000 Hz are read");
  wav.rate = 16000;
  wav.channels = 65535;
  expect(wav.bytes(), Code::kBadFile, "x: has 65535 channels; 1 to 32 are read");
  const auto unsupported = [&](const std::string& bytes, const std::string& name) {
    expect(bytes, Code::kUnsupportedModel, "x: " + name + " is not supported" + convert);
  };
  unsupported(std::string("\0\0\0\x20", 4) + "ftypM4A ", "MP4 (m4a, AAC or video)");
  unsupported("\x1a\x45\xdf\xa3", "Matroska or WebM");
  unsupported(std::string("RIFF\0\0\0\0", 8) + "AVI LIST", "AVI video");
  unsupported("\xff\xf1\x50\x80", "AAC");
  unsupported("FORM....AIFF", "AIFF");
  unsupported("RIFX....WAVE", "RIFX wav");
  EXPECT_EQ(open(pcm16(noise(9, 0.1), 16000).bytes(), 0).status().code(), Code::kInvalidArgument);
}

TEST(AudioReaderTest, Files) {
  EXPECT_EQ(AudioReader::open("/nowhere/x.wav").status().message(), "/nowhere/x.wav: no such file");
  EXPECT_EQ(AudioReader::open("/nowhere/x.wav").status().code(), Code::kNotFound);
  EXPECT_EQ(AudioReader::open("/tmp").status().message(), "/tmp: is a directory, not an audio file");
  const std::string path = testing::TempDir() + "situ audio's.m4a";
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fwrite(
      "\0\0\0\x20"
      "ftypM4A ",
      1, 12, file);
  std::fclose(file);
  const std::string quoted = testing::TempDir() + "situ audio'\\''s.";
  EXPECT_EQ(AudioReader::open(path).status().message(),
            path + ": MP4 (m4a, AAC or video) is not supported; convert it: ffmpeg -i '" + quoted +
                "m4a' -vn -ac 1 -ar 16000 '" + quoted + "flac'");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace situ
