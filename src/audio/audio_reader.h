// Audio files as mono float samples of one rate, read in pieces.
//
// Reads wav (PCM of 8, 16, 24 and 32 bits, float of 32 and 64, a-law, mu-law, extensible), flac, mp3, and Ogg with
// Vorbis, Opus or flac. Channels are averaged, the rate is converted without aliases, an encoder's delay and padding
// are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace situ {

struct AudioInfo {
  std::string format;  // "wav", "flac", "mp3", "ogg vorbis", "ogg opus", "ogg flac"
  int rate = 0;        // Hz, in the file
  int channels = 0;    // in the file
  // Samples that reading gives, at the rate that was asked for, where the file says so: not in Ogg, some wav, some mp3.
  // What a file says may be wrong.
  std::optional<int64_t> samples;
};

// Owner of an open file. Used by one thread at a time. Holds some 100 KiB, whatever the length of the audio.
class AudioReader {
 public:
  static constexpr const char* kStdin = "-";

  // path: a file, a pipe, or kStdin. rate: of the samples that read() gives, in Hz.
  // Errors, one line each that begins with the path: kNotFound (no such file); kBadFile (a directory; an empty file;
  // text; not audio; damaged before the first sample; rate not in 1,000..384,000 Hz; more than 32 channels);
  // kUnsupportedModel (m4a, video and other formats, with the ffmpeg command that converts them); kInvalidArgument
  // (rate).
  static Result<AudioReader> open(const std::string& path, int rate = 16000);
  // The same from bytes, which must live as long as the reader. name: stands for the path in messages.
  static Result<AudioReader> open_memory(std::span<const std::byte> bytes, const std::string& name, int rate = 16000);

  AudioReader(AudioReader&&) noexcept;
  AudioReader& operator=(AudioReader&&) noexcept;
  ~AudioReader();

  const AudioInfo& info() const { return info_; }
  // What errors begin with: the path.
  const std::string& name() const { return name_; }

  // Writes up to out.size() samples to `out` [n] and returns how many: fewer than out.size() only at the end, 0 after
  // it. Errors: kBadFile: a sample that is not finite or beyond 1e9; Ogg whose later part has another rate; no sample
  // at all. After an error every call gives that error.
  Result<size_t> read(std::span<float> out);

  // Why the audio ended before it should have, or "": "is cut off or damaged: 12.50 s of 20.00 s were read". Valid once
  // read() gave fewer samples than it was asked for.
  const std::string& cut() const { return cut_; }
  // What was wrong in the file so far and was put right or left out, or "": "13 bytes in front of the first mp3 frame
  // are no audio and were left out".
  const std::string& note() const { return note_; }
  // Packets so far that could not be decoded and were left out.
  int64_t damaged_packets() const { return damaged_packets_; }
  // Bytes of the file read so far, and all of them (0 when unknown: a pipe), for a progress bar.
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes_total() const { return bytes_total_; }

 private:
  struct Closer {
    void operator()(void* reader) const;
  };
  AudioReader() = default;
  static Result<AudioReader> finish(void* reader, const std::string& name);

  std::unique_ptr<void, Closer> reader_;
  std::string name_, cut_, note_;
  AudioInfo info_;
  int64_t damaged_packets_ = 0, bytes_read_ = 0, bytes_total_ = 0;
  std::optional<Status> failed_;
};

// All samples of a short file, at most `most` of them (0: no limit); `cut` and `note` as AudioReader has them.
struct Audio {
  std::vector<float> samples;
  std::string cut, note;
};
Result<Audio> read_audio(const std::string& path, int rate = 16000, size_t most = 0);
Result<Audio> read_audio(Result<AudioReader> reader, size_t most);

}  // namespace situ
