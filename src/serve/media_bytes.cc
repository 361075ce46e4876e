#include "serve/media_bytes.h"

#include <nlohmann/json.hpp>

#include "audio/audio_reader.h"
#include "serve/body_reader.h"
#include "serve/data_url.h"
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
  Media(const Limits& limits, MediaFiles& files) : limits_(limits), files_(files) {}

  OrRefusal<int64_t> bytes(const Json& messages) {
    if (messages.is_array())
      for (const Json& message : messages) {
        const Json& content = at(message, "content");
        if (!content.is_array()) continue;
        for (const Json& part : content) {
          const Json& image = at(part, "image_url");
          take_image(image.is_object() ? at(image, "url") : image);
          take_sound(at(at(part, "input_audio"), "data"));
        }
      }
    if (refusal_) return std::move(*refusal_);
    return bytes_;
  }

 private:
  void take_image(const Json& url) {
    if (!url.is_string() || refusal_) return;
    const std::string& whole = url.get_ref<const std::string&>();
    if (whole.starts_with("file:") && files_.allowed()) return take_file(whole);
    if (const std::optional<std::vector<uint8_t>> bytes = bytes_of_data_url(whole))
      take_pixels(std::as_bytes(std::span(*bytes)));
  }

  void take_file(const std::string& url) {
    const OrRefusal<const std::vector<uint8_t>*> read = files_.read(url, limits_);
    if (const Refusal* refusal = std::get_if<Refusal>(&read))
      refusal_ = *refusal;
    else if (const std::vector<uint8_t>* bytes = std::get<const std::vector<uint8_t>*>(read))
      take_pixels(std::as_bytes(std::span(*bytes)));
  }

  void take_pixels(std::span<const std::byte> file) {
    const Result<ImageSize> size = image_size(file, "image");
    if (!size.is_ok()) return;
    if (size->width > limits_.image_pixels / std::max<int64_t>(1, size->height))
      return refuse("an image has " + std::to_string(size->width) + " x " + std::to_string(size->height) +
                    " pixels, more than " + std::to_string(limits_.image_pixels) + ", the limit 'image-pixels'");
    bytes_ += size->width * size->height * kBytesOfPixel;
  }

  void take_sound(const Json& data) {
    if (!data.is_string() || refusal_) return;
    const std::optional<std::vector<uint8_t>> file = from_base64(data.get_ref<const std::string&>());
    if (!file) return;
    const Result<AudioReader> reader = AudioReader::open_memory(std::as_bytes(std::span(*file)), "sound", kRate);
    if (!reader.is_ok()) return;
    const int64_t most = limits_.sound_seconds * kRate, guess = std::ssize(*file) * 8 * kRate / kLeastBitRate;
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
  MediaFiles& files_;
  int64_t bytes_ = 0;
  std::optional<Refusal> refusal_;
};

}  // namespace

OrRefusal<int64_t> bytes_of_media(const Json& body, const Limits& limits, MediaFiles& files) {
  return Media(limits, files).bytes(at(body, "messages"));
}

}  // namespace situ::serve
