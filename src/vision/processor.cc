#include "vision/processor.h"

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/json_file.h"
#include "vision/families.h"

namespace situ {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// A file that may be missing: then an empty object.
Result<Json> read_optional(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return Json(Json::object());
  Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status().or_code(Code::kBadFile);
  return json;
}

std::string name_of(const ImageInput& input, size_t index) {
  return input.path.empty() ? "image " + std::to_string(index + 1) : input.path;
}

// The text before the first placeholder, between two, ..., behind the last one.
std::vector<std::string_view> split_at(std::string_view text, std::string_view placeholder) {
  std::vector<std::string_view> parts;
  for (size_t at = text.find(placeholder); at != std::string_view::npos; at = text.find(placeholder)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + placeholder.size());
  }
  parts.push_back(text);
  return parts;
}

void append_expansion(const ProcessedImage& image, std::string* text) {
  for (const ExpansionPiece& piece : image.expansion) {
    for (int64_t i = 0; i < piece.count; ++i) *text += piece.text;
  }
}

}  // namespace

struct ImageProcessor::Model {
  Json config, processor, preprocessor;
  const Family* family = nullptr;
  const ImageRule* rule = nullptr;
  Json defaults;
  PromptRules prompt;

  SideFiles files() const { return {config, processor, preprocessor}; }
  Result<ImageSettings> settings(const std::map<std::string, std::string>& overrides) const;
  // Decoded, or as given, and resized.
  Result<PreparedImage> prepare(ImageInput input, const std::string& name, const ImageSettings& settings,
                                const ImageLimits& limits) const;
  Result<PreparedImage> prepare_if_room(ImageInput input, const std::string& name, const ImageSettings& settings,
                                        const ImageLimits& limits) const;
  Result<ProcessedImage> describe(const PreparedImage& prepared, const ImageSettings& settings) const;
};

Result<ImageSettings> ImageProcessor::Model::settings(const std::map<std::string, std::string>& overrides) const {
  Result<ImageSettings> settings = make_settings(defaults, preprocessor, overrides);
  if (settings.is_ok() && family->adjust) family->adjust(files(), &*settings);
  return settings;
}

Result<PreparedImage> ImageProcessor::Model::prepare(ImageInput input, const std::string& name,
                                                     const ImageSettings& settings, const ImageLimits& limits) const {
  RgbImage image = std::move(input.pixels);
  if (!input.path.empty()) {
    Result<RgbImage> read = read_image(input.path, limits);
    if (!read.is_ok()) return read.status();
    image = std::move(*read);
  } else {
    SITU_RETURN_IF_ERROR(check_pixels(image.width, image.height, limits).with_context(name));
    if (image.pixels.size() != image.offset(0, image.height)) {
      return Status::error(Code::kInvalidArgument, name + ": has " + std::to_string(image.pixels.size()) +
                                                       " bytes, not " + std::to_string(image.offset(0, image.height)));
    }
  }
  Result<PreparedImage> prepared = rule->prepare(std::move(image), settings, limits);
  if (!prepared.is_ok()) return prepared.status().with_context(name);
  return prepared;
}

// The limit of pixels is the caller's, and may be more than there is memory for.
Result<PreparedImage> ImageProcessor::Model::prepare_if_room(ImageInput input, const std::string& name,
                                                             const ImageSettings& settings,
                                                             const ImageLimits& limits) const {
  try {
    return prepare(std::move(input), name, settings, limits);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kNoRoom, name + ": there is no memory for its pixels, of which " +
                                            std::to_string(limits.max_pixels) + " are allowed");
  }
}

Result<ProcessedImage> ImageProcessor::Model::describe(const PreparedImage& prepared,
                                                       const ImageSettings& settings) const {
  ProcessedImage image;
  image.width = prepared.width;
  image.height = prepared.height;
  if (!family->rows) return image;
  const Result<int64_t> rows = family->rows(files(), settings, prepared.tiles.front());
  if (!rows.is_ok()) return rows.status();
  const ExpansionPiece piece{.text = family->image_token, .id = prompt.image_token_id, .count = *rows, .image = true};
  image.expansion = family->expand(files(), prepared, piece);
  for (const ExpansionPiece& part : image.expansion) image.tokens += part.image ? part.count : 0;
  return image;
}

Result<ImageProcessor> ImageProcessor::open(const fs::path& folder) {
  auto model = std::make_shared<Model>();
  const std::pair<const char*, Json*> files[] = {{"config.json", &model->config},
                                                 {"processor_config.json", &model->processor},
                                                 {"preprocessor_config.json", &model->preprocessor}};
  for (const auto& [name, json] : files) {
    Result<Json> read = read_optional(folder / name);
    if (!read.is_ok()) return read.status();
    *json = std::move(*read);
  }
  // As newer files have it.
  const auto inner = model->processor.find("image_processor");
  if (model->preprocessor.empty() && inner != model->processor.end() && inner->is_object())
    model->preprocessor = *inner;
  if (model->preprocessor.empty()) {
    return Status::error(Code::kNotFound,
                         folder.string() + ": there is no preprocessor_config.json, so only --encoder-input works");
  }
  const Result<const Family*> family = find_family(model->files());
  if (!family.is_ok()) return family.status().with_context(folder.string());
  const Result<const ImageRule*> rule = find_image_rule(**family, model->files());
  if (!rule.is_ok()) return rule.status().with_context(folder.string());
  model->family = *family;
  model->rule = *rule;
  model->defaults = Json::parse((*rule)->defaults);
  model->prompt = {.placeholder = (*family)->placeholder,
                   .inserted = (*family)->inserted,
                   .image_token_id = image_token_id(model->files()),
                   .first_position = (*family)->first_position,
                   .in_one_call = (*family)->in_one_call,
                   .token_type_ids = (*family)->token_type_ids,
                   .images_first = (*family)->images_first};
  const Result<ImageSettings> settings = model->settings({});
  if (!settings.is_ok()) return Status::error(Code::kBadFile, folder.string() + ": " + settings.status().message());
  ImageProcessor processor;
  processor.model_ = std::move(model);
  return processor;
}

std::string_view ImageProcessor::family() const { return model_->family->name; }
const PromptRules& ImageProcessor::prompt() const { return model_->prompt; }

Result<Processed> ImageProcessor::process(std::vector<ImageInput> images, const ProcessorOptions& options) const {
  if (images.empty()) return Status::error(Code::kInvalidArgument, "there is no image");
  const Result<ImageSettings> settings = model_->settings(options.overrides);
  if (!settings.is_ok()) return settings.status();
  Processed processed;
  std::vector<PreparedImage> prepared;
  int64_t tokens = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string name = name_of(images[i], i);
    Result<PreparedImage> one = model_->prepare_if_room(std::move(images[i]), name, *settings, options.limits);
    if (!one.is_ok()) return one.status();
    Result<ProcessedImage> image = model_->describe(*one, *settings);
    if (!image.is_ok()) return image.status();
    tokens += image->tokens;
    if (tokens > options.most_tokens) {
      const std::string before = i == 0 ? "" : " with the images before it";
      return Status::error(Code::kContextExceeded, name + ": becomes " + std::to_string(tokens) + " tokens" + before +
                                                       ", which do not fit the context of " +
                                                       std::to_string(options.most_tokens));
    }
    prepared.push_back(std::move(*one));
    processed.images.push_back(std::move(*image));
  }
  Result<std::vector<PixelTensor>> tensors = model_->rule->tensors(prepared, *settings);
  if (!tensors.is_ok()) return tensors.status();
  processed.tensors = std::move(*tensors);
  return processed;
}

Result<std::string> ImageProcessor::expand(std::string_view prompt, std::span<const ProcessedImage> images,
                                           std::string_view begin) const {
  const PromptRules& rules = model_->prompt;
  if (rules.placeholder.empty()) return std::string(prompt);
  std::vector<std::string_view> parts = split_at(prompt, rules.placeholder);
  if (rules.images_first && parts.size() == 1) parts.insert(parts.begin(), images.size(), std::string_view());
  if (parts.size() != images.size() + 1) {
    return Status::error(Code::kInvalidArgument, "the prompt has " + std::to_string(parts.size() - 1) +
                                                     " places for images (" + rules.placeholder + "), and there are " +
                                                     std::to_string(images.size()) + " images");
  }
  std::string text(parts[0]);
  for (size_t i = 0; i < images.size(); ++i) {
    append_expansion(images[i], &text);
    if (rules.images_first && i + 1 == images.size()) text += begin;
    text += parts[i + 1];
  }
  return rules.images_first ? text + "\n" : text;
}

}  // namespace situ
