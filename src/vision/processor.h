// Images as the tensors of a vision encoder, and as what stands for them in a prompt: what the slow (Pillow) processors
// of transformers 4.57.6 make of them. docs/vision.md lists the families.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "vision/image.h"
#include "vision/image_file.h"

namespace situ {

// One image of a request: a file, or pixels where `path` is empty.
struct ImageInput {
  std::string path;
  RgbImage pixels;
};

struct ProcessorOptions {
  ImageLimits limits;
  int64_t most_tokens = INT64_MAX;  // of all images: what more would show is refused before tensors are made of it
  // Settings of preprocessor_config.json that hold for this call: "do_image_splitting" -> "false", "size" ->
  // "{\"longest_edge\": 512}", "size.longest_edge" -> "512". Values are JSON; True and False are read too.
  std::map<std::string, std::string> overrides;
};

struct PixelTensor {
  // transformers' name: pixel_values, pixel_attention_mask, image_grid_thw, image_sizes. Graphs may leave "image_" out.
  std::string name;
  Tensor tensor;
};

// `count` times the same token.
struct ExpansionPiece {
  std::string text;
  int64_t id = -1;  // where the model's files say it; -1: by the tokenizer
  int64_t count = 1;
  bool image = false;  // a row of the encoder's output stands in its place
};

struct ProcessedImage {
  int width = 0, height = 0;  // upright, before any resize
  int64_t tokens = 0;         // pieces with `image`: rows of the encoder's output
  // What the placeholder in a prompt becomes. Texts of neighbours are joined before they are encoded.
  std::vector<ExpansionPiece> expansion;
};

struct Processed {
  std::vector<PixelTensor> tensors;
  std::vector<ProcessedImage> images;  // in the order of the request
};

// What else a family's prompts ask for, which no graph states.
struct PromptRules {
  std::string placeholder;      // stands for one image in a prompt's text; "": images are no part of it, but the source
  std::string inserted;         // what stands for an image in front of a text without placeholders
  int64_t image_token_id = -1;  // as in the model's files
  int first_position = 0;       // of the prompt's first token
  bool in_one_call = false;     // image tokens see one another both ways: a prompt cannot come in chunks
  bool token_type_ids = false;  // the decoder wants 1 where an image token stands, 0 elsewhere
  bool images_first =
      false;  // the expansions, then the token that begins a text, the text, and a line's end (PaliGemma)
};

class ImageProcessor {
 public:
  // Reads config.json, preprocessor_config.json and processor_config.json. Errors: kNotFound (no
  // preprocessor_config.json); kBadFile (not JSON, wrong types); kUnsupportedModel: a family or an image processor that
  // is not in the table.
  static Result<ImageProcessor> open(const std::filesystem::path& folder);

  std::string_view family() const;
  const PromptRules& prompt() const;

  // Tensors of all images of one prompt, in order. Images are decoded one after the other, so that no two of them are
  // in memory at full size. Errors: those of read_image; kInvalidArgument: no image, an override that is not known or
  // does not fit, an image that the rules of the family refuse (aspect ratio; resized, more pixels than the limit);
  // kContextExceeded: more tokens than `most_tokens`; kNoRoom: no memory for the pixels of an image.
  Result<Processed> process(std::vector<ImageInput> images, const ProcessorOptions& options = {}) const;

  // A prompt's text with the expansions in it, in the place of the placeholders. begin: the text of the token that
  // begins every text, which PaliGemma wants behind its images; they come first where its prompt has no placeholder.
  // Error kInvalidArgument: the placeholders are not as many as the images.
  Result<std::string> expand(std::string_view prompt, std::span<const ProcessedImage> images,
                             std::string_view begin = {}) const;

 private:
  struct Model;
  std::shared_ptr<const Model> model_;
};

}  // namespace situ
