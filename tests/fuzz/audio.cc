// An audio file: wav, flac, mp3, Ogg.
#include "audio/audio_reader.h"

#include <cmath>

#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  Result<AudioReader> reader = AudioReader::open_memory(std::as_bytes(std::span(data, size)), "x");
  if (fuzz::refused_with_code(reader.status())) return 0;
  std::vector<float> part(10000);
  // An input of kilobytes cannot hold an hour of sound; Ogg's pages may leave an hour out.
  for (size_t count = part.size(), all = 0; count == part.size() && all < 60U << 20; all += count) {
    const Result<size_t> read = reader->read(part);
    if (fuzz::refused_with_code(read.status())) return 0;
    count = *read;
    for (size_t i = 0; i < count; ++i) EXPECT_TRUE(std::isfinite(part[i]));
  }
  return 0;
}
