#include "audio/audio_reader.h"

#include <algorithm>
#include <limits>

#include "audio/situ_audio.h"

namespace situ {
namespace {

// Samples that read_audio asks for at once: 4 s at 16 kHz.
constexpr size_t kPiece = 1 << 16;
constexpr const char* kStdinName = "stdin";

Code code_of(int code) {
  switch (code) {
    case SITU_AUDIO_BAD_FILE:
      return Code::kBadFile;
    case SITU_AUDIO_NOT_FOUND:
      return Code::kNotFound;
    case SITU_AUDIO_UNSUPPORTED:
      return Code::kUnsupportedModel;
    case SITU_AUDIO_ARGUMENT:
      return Code::kInvalidArgument;
    default:
      return Code::kInternal;
  }
}

// A word of a command line, quoted where a shell would not take it as it is.
std::string shell_word(const std::string& word) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/+,@%-";
  if (word.find_first_not_of(plain) == std::string::npos && !word.starts_with('-')) return word;
  std::string quoted = word.starts_with('-') ? "'./" : "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Names the file in the command that converts it.
std::string with_file(std::string text, const std::string& name) {
  const std::string from = "-i FILE ", to = " OUT.flac";
  const size_t in = text.find(from), out = text.rfind(to);
  if (in == std::string::npos || out == std::string::npos || name == kStdinName) return text;
  const size_t dot = name.find_last_of("./");
  const bool has_suffix = dot != std::string::npos && dot > 0 && name[dot] == '.' && name[dot - 1] != '/';
  const std::string stem = has_suffix && !name.ends_with(".flac") ? name.substr(0, dot) : name;
  text.replace(out + 1, to.size() - 1, shell_word(stem + ".flac"));
  return text.replace(in, from.size(), "-i " + shell_word(name) + " ");
}

Status failed(int code, const situ_audio_text& text, const std::string& name) {
  return Status::error(code_of(code), with_file(text.text, name)).with_context(name);
}

situ_audio_reader* as_reader(void* reader) { return static_cast<situ_audio_reader*>(reader); }

uint32_t as_rate(int rate) { return rate < 0 ? 0 : static_cast<uint32_t>(rate); }

}  // namespace

void AudioReader::Closer::operator()(void* reader) const { situ_audio_free(as_reader(reader)); }

AudioReader::AudioReader(AudioReader&&) noexcept = default;
AudioReader& AudioReader::operator=(AudioReader&&) noexcept = default;
AudioReader::~AudioReader() = default;

Result<AudioReader> AudioReader::open(const std::string& path, int rate) {
  situ_audio_reader* reader = nullptr;
  situ_audio_text error{};
  const std::string name = path == kStdin ? kStdinName : path.empty() ? "''" : path;
  const int code = situ_audio_open_path(path.data(), path.size(), as_rate(rate), &reader, &error);
  if (code != 0) return failed(code, error, name);
  return finish(reader, name);
}

Result<AudioReader> AudioReader::open_memory(std::span<const std::byte> bytes, const std::string& name, int rate) {
  situ_audio_reader* reader = nullptr;
  situ_audio_text error{};
  const int code = situ_audio_open_bytes(bytes.data(), bytes.size(), as_rate(rate), &reader, &error);
  if (code != 0) return failed(code, error, name);
  return finish(reader, name);
}

Result<AudioReader> AudioReader::finish(void* reader, const std::string& name) {
  AudioReader opened;
  opened.reader_.reset(reader);
  opened.name_ = name;
  situ_audio_info_t info{};
  situ_audio_info(as_reader(reader), &info);
  opened.info_.format = info.format.text;
  opened.info_.rate = static_cast<int>(info.rate);
  opened.info_.channels = static_cast<int>(info.channels);
  if (info.samples >= 0) opened.info_.samples = info.samples;
  opened.bytes_total_ = static_cast<int64_t>(info.bytes);
  return opened;
}

Result<size_t> AudioReader::read(std::span<float> out) {
  if (failed_) return *failed_;
  situ_audio_text error{};
  size_t written = 0;
  const int code = situ_audio_read(as_reader(reader_.get()), out.data(), out.size(), &written, &error);
  situ_audio_state_t state{};
  situ_audio_state(as_reader(reader_.get()), &state);
  cut_ = state.cut.text;
  note_ = state.note.text;
  damaged_packets_ = static_cast<int64_t>(state.damaged);
  bytes_read_ = static_cast<int64_t>(state.bytes);
  if (code != 0) {
    failed_ = failed(code, error, name_);
    return *failed_;
  }
  return written;
}

Result<Audio> read_audio(const std::string& path, int rate, size_t most) {
  return read_audio(AudioReader::open(path, rate), most);
}

Result<Audio> read_audio(Result<AudioReader> reader, size_t most) {
  if (!reader.is_ok()) return reader.status();
  if (most == 0) most = std::numeric_limits<size_t>::max();
  Audio audio;
  size_t size = 0;
  while (size < most) {
    const size_t wanted = std::min(kPiece, most - size);
    audio.samples.resize(size + wanted);
    const Result<size_t> read = reader->read(std::span(audio.samples).subspan(size));
    if (!read.is_ok()) return read.status();
    size += *read;
    if (*read < wanted) break;
  }
  audio.samples.resize(size);
  audio.cut = reader->cut();
  audio.note = reader->note();
  return audio;
}

}  // namespace situ
