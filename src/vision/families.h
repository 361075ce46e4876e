// The one table of model families: what no graph states about images in prompts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "vision/rules.h"

namespace situ {

// The JSON files of a model folder; empty objects where there is none.
struct SideFiles {
  const nlohmann::json& config;        // config.json
  const nlohmann::json& processor;     // processor_config.json
  const nlohmann::json& preprocessor;  // preprocessor_config.json, or what processor_config.json has as image_processor
};

struct Family {
  const char* name;
  // Names in the files, separated by a space: config.json's model_type; the processor_class of processor_config.json or
  // preprocessor_config.json; the image processors (ImageRule::name) that the family goes with.
  const char* model_types;
  const char* processor_classes;
  const char* image_rules;
  const char* placeholder;  // in a prompt's text, one for each image; "": the image is an encoder-decoder's source
  const char* inserted;     // what stands for an image in front of a text without placeholders
  const char* image_token;  // whose embeddings the encoder's rows replace
  int first_position;       // of a prompt's first token
  bool in_one_call;         // see PromptRules
  bool token_type_ids;
  bool images_first;
  // Rows of the encoder's output for one tile (or one image, where it has no tiles), as the files say; null: no token
  // stands for them.
  Result<int64_t> (*rows)(const SideFiles& files, const ImageSettings& settings, const RgbImage& tile);
  // What the placeholder becomes. image: {image_token, its id, `rows` times}.
  std::vector<ExpansionPiece> (*expand)(const SideFiles& files, const PreparedImage& prepared,
                                        const ExpansionPiece& image);
  // What the processor's files say over the image processor's settings; null: nothing.
  void (*adjust)(const SideFiles& files, ImageSettings* settings);
};

// By processor_class, or else by model_type; among several, by the image processor. Error kUnsupportedModel: none.
Result<const Family*> find_family(const SideFiles& files);
Result<const ImageRule*> find_image_rule(const Family& family, const SideFiles& files);
// -1: no file says it.
int64_t image_token_id(const SideFiles& files);

}  // namespace situ
