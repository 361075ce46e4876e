#include "serve/media_bytes.h"

#include <nlohmann/json.hpp>

#include "audio/audio_reader.h"
#include "serve/media_files.h"
#include "vision/image_file.h"

namespace situ::serve {
namespace {

// Decoding takes 8 bytes a pixel, and a model's processor 12 (three floats) for those that it keeps; a sample is two
// floats, and one of spectrograms.
constexpr int64_t kBytesOfPixel = 20, kBytesOfSample = 12;
constexpr int kRate = 16000;             // of what models take
constexpr int64_t kLeastBitRate = 8000;  // of a compressed file that does not say how long it is

const Json& at(const Json& json, const char* name) {
  static const Json kNone;
  const auto found = json.find(name);
  return found == json.end() ? kNone : *found;
}

class Media {
 public:
  explicit Media(const Limits& limits) : limits_(limits) {}

  OrRefusal<int64_t> bytes(const Prompt& conversation) {
    for (const Message& message : conversation.messages)
      for (const Part& part : message.parts) {
        const std::span bytes(static_cast<const std::byte*>(part.data.get()), part.size);
        if (part.kind == Part::Kind::kImage) take_pixels(bytes);
        if (part.kind == Part::Kind::kAudio) take_sound(bytes);
      }
    if (refusal_) return std::move(*refusal_);
    return bytes_;
  }

 private:
  void take_pixels(std::span<const std::byte> file) {
    const Result<ImageSize> size = image_size(file, "image");
    if (!size.is_ok()) return;
    if (size->width > limits_.image_pixels / std::max<int64_t>(1, size->height))
      return refuse("an image has " + std::to_string(size->width) + " x " + std::to_string(size->height) +
                    " pixels, more than " + std::to_string(limits_.image_pixels) + ", the limit 'image-pixels'");
    bytes_ += size->width * size->height * kBytesOfPixel;
  }

  void take_sound(std::span<const std::byte> file) {
    const Result<AudioReader> reader = AudioReader::open_memory(file, "sound", kRate);
    if (!reader.is_ok()) return;
    const int64_t most = limits_.sound_seconds * kRate, guess = std::ssize(file) * 8 * kRate / kLeastBitRate;
    const int64_t samples = reader->info().samples.value_or(std::min(guess, most));
    if (samples > most)
      return refuse("a sound has " + std::to_string(samples / kRate) + " s, more than " +
                    std::to_string(limits_.sound_seconds) + ", the limit 'sound-seconds'");
    bytes_ += std::max<int64_t>(0, samples) * kBytesOfSample;
  }

  void refuse(const std::string& why) {
    if (!refusal_) refusal_ = Refusal{Refusal::Kind::kLimit, "messages", "messages: " + why};
  }

  const Limits& limits_;
  int64_t bytes_ = 0;
  std::optional<Refusal> refusal_;
};

}  // namespace

OrRefusal<int64_t> bytes_of_media(const Prompt& conversation, const Limits& limits) {
  return Media(limits).bytes(conversation);
}

std::optional<Refusal> read_files(const Json& body, const Limits& limits, MediaFiles& files) {
  const Json& messages = at(body, "messages");
  if (!files.allowed() || !messages.is_array()) return std::nullopt;
  for (const Json& message : messages) {
    const Json& content = at(message, "content");
    if (!content.is_array()) continue;
    for (const Json& part : content) {
      const Json& image = at(part, "image_url");
      const Json& url = image.is_object() ? at(image, "url") : image;
      if (!url.is_string() || !url.get_ref<const std::string&>().starts_with("file:")) continue;
      const OrRefusal<const std::vector<uint8_t>*> read = files.read(url.get_ref<const std::string&>(), limits);
      if (const Refusal* refusal = std::get_if<Refusal>(&read)) return *refusal;
    }
  }
  return std::nullopt;
}

}  // namespace situ::serve
