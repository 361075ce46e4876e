#include "vision/families.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;
using Pieces = std::vector<ExpansionPiece>;

// What the classes' constructors have in transformers 4.57.6.
constexpr const char* kClip = R"({"do_resize": true, "size": {"shortest_edge": 224}, "resample": 3,
  "do_center_crop": true, "crop_size": {"height": 224, "width": 224},
  "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
  "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]})";
constexpr const char* kSiglip = R"({"do_resize": true, "size": {"height": 224, "width": 224}, "resample": 3,
  "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
  "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})";
constexpr const char* kIdefics3 = R"({"do_resize": true, "size": {"longest_edge": 1456}, "resample": 1,
  "do_image_splitting": true, "max_image_size": {"longest_edge": 364},
  "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
  "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})";
constexpr const char* kQwen2Vl = R"({"do_resize": true, "size": {"shortest_edge": 3136, "longest_edge": 1003520},
  "min_pixels": null, "max_pixels": null, "resample": 3, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
  "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
  "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]})";
constexpr const char* kGemma3 = R"({"do_resize": true, "size": {"height": 224, "width": 224}, "resample": 2,
  "do_pan_and_scan": null, "pan_and_scan_min_crop_size": null, "pan_and_scan_max_num_crops": null,
  "pan_and_scan_min_ratio_to_activate": null,
  "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
  "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})";
constexpr const char* kPixtral = R"({"do_resize": true, "size": {"longest_edge": 1024}, "resample": 3,
  "patch_size": {"height": 16, "width": 16},
  "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
  "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]})";

constexpr const char* kVit = R"({"do_resize": true, "size": {"height": 224, "width": 224}, "resample": 2,
  "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
  "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})";
constexpr const char* kDeit = R"({"do_resize": true, "size": {"height": 256, "width": 256}, "resample": 3,
  "do_center_crop": true, "crop_size": {"height": 224, "width": 224},
  "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
  "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})";

constexpr ImageRule kImageRules[] = {
    {"ViTImageProcessor", kVit, prepare_fixed, fixed_tensors},
    {"DeiTImageProcessor", kDeit, prepare_fixed, fixed_tensors},
    {"CLIPImageProcessor", kClip, prepare_fixed, fixed_tensors},
    {"SiglipImageProcessor", kSiglip, prepare_fixed, fixed_tensors},
    {"Idefics3ImageProcessor", kIdefics3, prepare_idefics3, idefics3_tensors},
    {"SmolVLMImageProcessor", kIdefics3, prepare_idefics3, idefics3_tensors},
    {"Qwen2VLImageProcessor", kQwen2Vl, prepare_qwen2_vl, qwen2_vl_tensors},
    {"Gemma3ImageProcessor", kGemma3, prepare_gemma3, fixed_tensors},
    {"PixtralImageProcessor", kPixtral, prepare_pixtral, pixtral_tensors},
};

Status missing(const char* what) { return Status::error(Code::kUnsupportedModel, std::string("no file says ") + what); }

// patches of the tile, and the class token where it is kept.
Result<int64_t> llava_rows(const SideFiles& files, const ImageSettings&, const RgbImage& tile) {
  std::optional<int64_t> patch = whole_number(files.processor, "patch_size");
  if (!patch) patch = whole_number(files.config, "vision_config.patch_size");
  if (!patch || *patch < 1) {
    const std::optional<int64_t> fixed = whole_number(files.config, "image_seq_length");
    return fixed ? Result<int64_t>(*fixed) : missing("the vision encoder's patch_size");
  }
  const int64_t patches = (tile.height / *patch) * (tile.width / *patch);
  const Json& from = files.processor.contains("vision_feature_select_strategy") ? files.processor : files.config;
  const bool without_class = from.value("vision_feature_select_strategy", Json("default")) == "default";
  if (const auto extra = whole_number(files.processor, "num_additional_image_tokens")) {
    return patches + *extra - (without_class ? 1 : 0);
  }
  const Json vision = files.config.value("vision_config", Json::object());
  const bool has_class =
      vision.is_object() && vision.value("model_type", Json("clip_vision_model")) == "clip_vision_model";
  return patches + (has_class && !without_class ? 1 : 0);
}

// (image_size / patch_size / scale_factor)^2
Result<int64_t> idefics3_rows(const SideFiles& files, const ImageSettings&, const RgbImage&) {
  if (const auto given = whole_number(files.processor, "image_seq_len")) return *given;
  const auto size = whole_number(files.config, "vision_config.image_size");
  const auto patch = whole_number(files.config, "vision_config.patch_size");
  const auto scale = whole_number(files.config, "scale_factor");
  if (!size || !patch || !scale || *patch < 1 || *scale < 1) return missing("image_seq_len");
  const int64_t patches = *size / *patch;
  return patches * patches / (*scale * *scale);
}

Result<int64_t> qwen2_vl_rows(const SideFiles&, const ImageSettings& settings, const RgbImage& tile) {
  const int64_t edge = settings.patch_size.height * settings.merge_size;
  return (tile.height / edge) * (tile.width / edge);
}

Result<int64_t> paligemma_rows(const SideFiles& files, const ImageSettings&, const RgbImage&) {
  for (const Json* file : {&files.preprocessor, &files.processor}) {
    if (const auto given = whole_number(*file, "image_seq_length")) return *given;
  }
  if (const auto given = whole_number(files.config, "vision_config.num_image_tokens")) return *given;
  return missing("image_seq_length");
}

Result<int64_t> gemma3_rows(const SideFiles& files, const ImageSettings&, const RgbImage&) {
  for (const Json* file : {&files.processor, &files.preprocessor}) {
    if (const auto given = whole_number(*file, "image_seq_length")) return *given;
  }
  return whole_number(files.config, "mm_tokens_per_image").value_or(256);
}

// Of one line of tokens.
Result<int64_t> pixtral_rows(const SideFiles&, const ImageSettings& settings, const RgbImage& tile) {
  return tile.width / settings.patch_size.width;
}

Pieces image_alone(const SideFiles&, const PreparedImage&, const ExpansionPiece& image) { return {image}; }

// Idefics3: each tile between marks of its row and column, a line's end after each row, the whole at last.
Pieces expand_idefics3(const SideFiles&, const PreparedImage& prepared, const ExpansionPiece& image) {
  const ExpansionPiece around{.text = "<fake_token_around_image>"};
  Pieces pieces;
  for (int row = 1; row <= prepared.rows; ++row) {
    for (int column = 1; column <= prepared.columns; ++column) {
      pieces.push_back(around);
      pieces.push_back({.text = "<row_" + std::to_string(row) + "_col_" + std::to_string(column) + ">"});
      pieces.push_back(image);
    }
    pieces.push_back({.text = row < prepared.rows ? "\n" : "\n\n"});
  }
  pieces.insert(pieces.end(), {around, {.text = "<global-img>"}, image, around});
  return pieces;
}

// Gemma 3: the image, and after it its crops, each as a paragraph of its own.
Pieces expand_gemma3(const SideFiles& files, const PreparedImage& prepared, const ExpansionPiece& image) {
  const auto id = [&](const char* name) { return whole_number(files.config, name).value_or(-1); };
  const Pieces one{{.text = "\n\n"},
                   {.text = "<start_of_image>", .id = id("boi_token_index")},
                   image,
                   {.text = "<end_of_image>", .id = id("eoi_token_index")},
                   {.text = "\n\n"}};
  if (prepared.columns == 0) return one;
  Pieces pieces{{.text = "Here is the original image "}};
  pieces.insert(pieces.end(), one.begin(), one.end());
  pieces.push_back({.text = " and here are some crops to help you see better "});
  for (int i = 0; i < prepared.columns; ++i) {
    if (i > 0) pieces.push_back({.text = " "});
    pieces.insert(pieces.end(), one.begin(), one.end());
  }
  return pieces;
}

// Pixtral: lines of tokens, each with an end; the last one has the image's end.
Pieces expand_pixtral(const SideFiles&, const PreparedImage& prepared, const ExpansionPiece& image) {
  Pieces pieces;
  for (int row = 1; row <= prepared.rows; ++row) {
    pieces.push_back(image);
    pieces.push_back({.text = row < prepared.rows ? "[IMG_BREAK]" : "[IMG_END]"});
  }
  return pieces;
}

// The processor's patches, which may be several of the encoder's.
void adjust_pixtral(const SideFiles& files, ImageSettings* settings) {
  const auto patch = whole_number(files.processor, "patch_size");
  auto merge = whole_number(files.processor, "spatial_merge_size");
  if (!merge) merge = whole_number(files.config, "spatial_merge_size");
  if (patch && *patch > 0) settings->patch_size.height = settings->patch_size.width = *patch;
  settings->patch_size.height *= std::max<int64_t>(merge.value_or(1), 1);
  settings->patch_size.width *= std::max<int64_t>(merge.value_or(1), 1);
}

// Order of columns: struct Family.
constexpr Family kFamilies[] = {
    {"llava", "llava", "LlavaProcessor", "CLIPImageProcessor SiglipImageProcessor", "<image>", "<image>", "<image>", 0,
     false, false, false, llava_rows, image_alone, nullptr},
    {"idefics3", "idefics3 smolvlm", "Idefics3Processor SmolVLMProcessor",
     "Idefics3ImageProcessor SmolVLMImageProcessor", "<image>", "<image>", "<image>", 0, false, false, false,
     idefics3_rows, expand_idefics3, nullptr},
    {"qwen2_vl", "qwen2_vl qwen2_5_vl", "Qwen2VLProcessor Qwen2_5_VLProcessor", "Qwen2VLImageProcessor",
     "<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>", "<|image_pad|>", 0, false, false, false,
     qwen2_vl_rows, image_alone, nullptr},
    {"paligemma", "paligemma", "PaliGemmaProcessor", "SiglipImageProcessor", "<image>", "<image>", "<image>", 1, true,
     true, true, paligemma_rows, image_alone, nullptr},
    {"gemma3", "gemma3", "Gemma3Processor", "Gemma3ImageProcessor", "<start_of_image>", "<start_of_image>",
     "<image_soft_token>", 0, true, true, false, gemma3_rows, expand_gemma3, nullptr},
    {"pixtral", "llava pixtral mistral3", "PixtralProcessor", "PixtralImageProcessor", "[IMG]", "[IMG]", "[IMG]", 0,
     false, false, false, pixtral_rows, expand_pixtral, adjust_pixtral},
    {"vision_encoder_decoder", "vision-encoder-decoder", "TrOCRProcessor", "ViTImageProcessor DeiTImageProcessor", "",
     "", "", 0, true, false, false, nullptr, nullptr, nullptr},
};

bool is_among(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    const size_t space = words.find(' ');
    if (words.substr(0, space) == word) return true;
    words = space == std::string_view::npos ? std::string_view() : words.substr(space + 1);
  }
  return false;
}

std::string text_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Without "Fast": the slow class of the same name is what is followed. Old files have the class's old name.
std::string image_processor_type(const SideFiles& files) {
  constexpr std::string_view kOld = "FeatureExtractor";
  std::string type = text_at(files.preprocessor, "image_processor_type");
  if (type.empty()) type = text_at(files.preprocessor, "feature_extractor_type");
  if (type.ends_with("Fast")) type.resize(type.size() - 4);
  if (type.ends_with(kOld)) type.replace(type.size() - kOld.size(), kOld.size(), "ImageProcessor");
  return type;
}

std::string in_quotes(const std::string& word) { return shown(Json(word)); }

}  // namespace

Result<const Family*> find_family(const SideFiles& files) {
  std::string processor = text_at(files.processor, "processor_class");
  if (processor.empty()) processor = text_at(files.preprocessor, "processor_class");
  const std::string model = text_at(files.config, "model_type"), type = image_processor_type(files);
  for (const bool by_class : {true, false}) {
    for (const Family& family : kFamilies) {
      const bool named = by_class ? is_among(processor, family.processor_classes) : is_among(model, family.model_types);
      if (named && (type.empty() || is_among(type, family.image_rules))) return &family;
    }
  }
  return Status::error(Code::kUnsupportedModel, "images of this model family are not known (model_type " +
                                                    in_quotes(model) + ", processor_class " + in_quotes(processor) +
                                                    ", image_processor_type " + in_quotes(type) +
                                                    "); only --encoder-input works");
}

Result<const ImageRule*> find_image_rule(const Family& family, const SideFiles& files) {
  std::string type = image_processor_type(files);
  const std::string_view rules = family.image_rules;
  if (type.empty()) type = rules.substr(0, rules.find(' '));
  for (const ImageRule& rule : kImageRules) {
    if (type == rule.name && is_among(type, rules)) return &rule;
  }
  return Status::error(Code::kUnsupportedModel, "image_processor_type " + in_quotes(type) + " is not known for " +
                                                    std::string(family.name) + "; only --encoder-input works");
}

int64_t image_token_id(const SideFiles& files) {
  for (const char* name : {"image_token_id", "image_token_index"}) {
    if (const auto id = whole_number(files.config, name)) return *id;
  }
  return -1;
}

}  // namespace situ
