// What a generation goes on from: token ids, and arrays for an encoder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "situ/status.h"

namespace situ {

class Model;

// An array of the caller, in C order and the machine's byte order. float32 for an input of float16 is rounded to it.
struct NamedArray {
  enum class Type { kBool, kInt32, kInt64, kFloat16, kFloat32 };
  std::string name;  // of the graph's input; GRAPH.NAME ("vision_encoder.pixel_values") where several have it
  Type type = Type::kFloat32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // must stay until the call that it is given to returns
};

// What a generation goes on from.
struct Prompt {
  std::vector<int64_t> ids;          // of an encoder-decoder: the encoder's, where that takes ids, else the decoder's
  std::vector<NamedArray> arrays;    // inputs of the encoder: a spectrogram, pixels
  std::vector<int64_t> decoder_ids;  // of an encoder-decoder; empty: its start token
};

// Images of a prompt as the model's vision encoder reads them.
struct Images {
  struct Image {
    int64_t width = 0, height = 0;  // of the file, upright
    int64_t tokens = 0;             // of the prompt that stand for rows of the encoder
  };
  std::vector<NamedArray> arrays;  // for Prompt::arrays; they point into `memory`
  std::vector<Image> images;
  std::shared_ptr<const void> memory;
};
// One image: a file, or pixels [height, width, 3] where `file` is empty. `rgb` is not read after the call.
struct ImageSource {
  std::string file;
  const uint8_t* rgb = nullptr;
  int64_t width = 0, height = 0;
};
struct ImageOptions {
  int64_t max_pixels = 64'000'000;  // width times height of a file
  // Settings of preprocessor_config.json that hold for this call: "do_image_splitting" -> "false". Values are JSON.
  std::map<std::string, std::string> processor;
};

// Reads files (png, jpeg, webp, the first frame of a gif) as the processor of the model's family does (docs/vision.md).
// Errors: the model has no vision encoder, or its family is not known; a file that cannot be read, has too many pixels,
// or is refused by the family's rules; a setting that is not known.
Result<Images> read_images(const Model& model, std::span<const std::string> files, const ImageOptions& options = {});
Result<Images> read_images(const Model& model, std::span<const ImageSource> sources, const ImageOptions& options = {});

// Token ids of a text with its images: each placeholder ("<image>") becomes the tokens of an image, in order. Before a
// text without placeholders stand all images. chat: by the model's chat template, where the images come before the
// user's text; `system` is then the first message, if it is not empty.
// Errors: those of Model::encode and Model::encode_chat; another number of placeholders than of images.
struct ImageText {
  std::string text, system;
  bool chat = false;
};
Result<std::vector<int64_t>> encode_with_images(const Model& model, const ImageText& text, const Images& images);

// Sound files of a prompt as the model's audio encoder reads them.
struct Sounds {
  struct Sound {
    double duration_s = 0;
    int64_t tokens = 0;  // of the prompt that stand for rows of the encoder
  };
  std::vector<NamedArray> arrays;  // for Prompt::arrays; they point into `memory`
  std::vector<Sound> sounds;
  std::shared_ptr<const void> memory;
};
// Reads files (wav, flac, mp3, ogg) as the processor of the model's family does (docs/vision.md). Errors: the model has
// no audio encoder, or its family is not known; a file that cannot be read or is cut off; more tokens than the context.
Result<Sounds> read_sounds(const Model& model, std::span<const std::string> files);
// The text in which each placeholder ("[AUDIO]") is the tokens of a sound, in order; in front of a text without
// placeholders stand all sounds. Error: another number of placeholders than of sounds.
Result<std::string> expand_sounds(const std::string& text, const Sounds& sounds);

// The prompt of a conversation by the model's chat template. `images` has those of all messages, in order; those of a
// message stand before its text. Errors: those of Model::encode_chat; another number of images than messages have.
struct ImageMessage {
  std::string role, text;
  size_t images = 0;
};
Result<std::vector<int64_t>> encode_with_images(const Model& model, std::span<const ImageMessage> messages,
                                                const Images& images);

}  // namespace situ
