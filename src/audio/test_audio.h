// What the tests of this folder share: signals, wav files made in memory, files of the shared folder.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "audio/audio_reader.h"

namespace situ::test_audio {

// Of one shared recording, or "" where the folder is not there.
inline std::string recording(const std::string& name) {
  const char* shared = std::getenv("SITU_SHARED");
  const std::string path = std::string(shared ? shared : SITU_SHARED_DEFAULT) + "/audio/" + name;
  return std::filesystem::exists(path) ? path : "";
}

inline std::vector<float> sine(double hz, int rate, size_t count, double amplitude = 0.5) {
  std::vector<float> samples(count);
  for (size_t i = 0; i < count; ++i) {
    samples[i] = static_cast<float>(amplitude * std::sin(2 * std::numbers::pi * hz * static_cast<double>(i) / rate));
  }
  return samples;
}

inline std::vector<float> noise(size_t count, double rms, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, rms);
  std::vector<float> samples(count);
  for (float& sample : samples) sample = static_cast<float>(normal(random));
  return samples;
}

inline double rms(std::span<const float> samples) {
  double sum = 0;
  for (const float sample : samples) sum += static_cast<double>(sample) * sample;
  return samples.empty() ? 0 : std::sqrt(sum / static_cast<double>(samples.size()));
}

// A wav file. The sizes may lie.
struct Wav {
  uint16_t tag = 1, channels = 1, bits = 16;  // tag: 1 PCM, 3 float, 6 a-law, 7 mu-law
  uint32_t rate = 16000;
  std::string data;
  int64_t data_size = -1, riff_size = -1;  // -1: as they are

  template <typename T>
  Wav& put(std::span<const T> values, size_t bytes = sizeof(T)) {
    for (const T& value : values) data.append(reinterpret_cast<const char*>(&value), bytes);
    return *this;
  }

  std::string bytes() const {
    std::string file = "RIFF";
    const auto u16 = [&](uint16_t value) { file.append(reinterpret_cast<const char*>(&value), 2); };
    const auto u32 = [&](uint32_t value) { file.append(reinterpret_cast<const char*>(&value), 4); };
    const bool extended = tag == 6 || tag == 7;
    u32(static_cast<uint32_t>(riff_size < 0 ? 36 + (extended ? 2 : 0) + static_cast<int64_t>(data.size()) : riff_size));
    file += "WAVEfmt ";
    u32(extended ? 18 : 16);
    u16(tag);
    u16(channels);
    u32(rate);
    u32(rate * channels * (bits / 8));
    u16(static_cast<uint16_t>(channels * (bits / 8)));
    u16(bits);
    if (extended) u16(0);
    file += "data";
    u32(static_cast<uint32_t>(data_size < 0 ? static_cast<int64_t>(data.size()) : data_size));
    return file + data;
  }
};

inline Wav pcm16(std::span<const float> samples, uint32_t rate) {
  Wav wav;
  wav.rate = rate;
  for (const float sample : samples) {
    const auto value = static_cast<int16_t>(std::lround(sample * 32767));
    wav.put(std::span(&value, 1));
  }
  return wav;
}

inline Result<AudioReader> open(const std::string& bytes, int rate = 16000) {
  return AudioReader::open_memory(std::as_bytes(std::span(bytes)), "x", rate);
}

// All samples of a file in memory, read in pieces of `piece`.
inline Result<Audio> read(const std::string& bytes, int rate = 16000, size_t piece = 1000) {
  Result<AudioReader> reader = open(bytes, rate);
  if (!reader.is_ok()) return reader.status();
  Audio audio;
  std::vector<float> part(piece);
  for (size_t count = piece; count == piece;) {
    const Result<size_t> read = reader->read(part);
    if (!read.is_ok()) return read.status();
    count = *read;
    audio.samples.insert(audio.samples.end(), part.begin(), part.begin() + static_cast<int64_t>(count));
  }
  audio.cut = reader->cut();
  audio.note = reader->note();
  return audio;
}

}  // namespace situ::test_audio
