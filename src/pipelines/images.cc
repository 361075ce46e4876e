// Images of a prompt: files to arrays of the vision encoder, and to tokens of the text around them.
#include <nlohmann/json.hpp>

#include "pipelines/conversation.h"
#include "pipelines/encoder_inputs.h"
#include "pipelines/llm.h"
#include "vision/processor.h"

namespace situ {
namespace {

// What Images::memory holds.
struct ReadImages {
  ImageProcessor processor;
  Processed processed;
};

// The encoder of pictures, whose rows stand for tokens or are an encoder-decoder's source; null: there is none.
const Graph* vision_encoder(const Model::Impl& m) {
  for (const MediaEncoder& e : m.files.media)
    if (!e.sound) return &e.model.graph;
  return m.has_encoder() && !m.encoder_takes_ids() ? &m.files.encoder->graph : nullptr;
}

// The graph's name of a processor's tensor: the same, or the one that is the end of it ("image_grid_thw" for
// "grid_thw"). "": the graph has no such input.
std::string input_name(const Graph& graph, const std::string& tensor) {
  std::string found;
  for (const ValueId v : graph.inputs) {
    const std::string& name = graph.values[v].name;
    if (name == tensor) return name;
    if (tensor.size() > name.size() &&
        tensor.compare(tensor.size() - name.size() - 1, std::string::npos, "_" + name) == 0)
      found = name;
  }
  return found;
}

Status need_tokenizer(const Model::Impl& m) {
  if (m.tokenizer) return Status::ok();
  return Status::error(Code::kNotFound, m.folder.no_tokenizer + "; give token ids instead of text");
}

}  // namespace

Result<Images> read_images(const Model& model, std::span<const std::string> files, const situ::ImageOptions& options) {
  std::vector<ImageSource> sources;
  for (const std::string& file : files) sources.push_back({file});
  return read_images(model, sources, options);
}

Result<Images> read_images(const Model& model, std::span<const ImageSource> sources,
                           const situ::ImageOptions& options) {
  const Model::Impl& m = impl_of(model);
  const std::string folder = m.folder.folder.string();
  const Graph* encoder = vision_encoder(m);
  if (!encoder) return Status::error(Code::kInvalidArgument, folder + ": the model has no vision encoder for images");
  Result<ImageProcessor> processor = ImageProcessor::open(m.folder.folder);
  if (!processor.is_ok()) return processor.status();
  std::vector<ImageInput> inputs;
  for (const ImageSource& source : sources) {
    ImageInput& input = inputs.emplace_back();
    input.path = source.file;
    if (!source.file.empty()) continue;
    if (!source.bytes.empty()) {
      Result<RgbImage> read = read_image(std::as_bytes(std::span(source.bytes)),
                                         "image " + std::to_string(inputs.size() - 1), {options.max_pixels});
      if (!read.is_ok()) return read.status();
      input.pixels = std::move(*read);
      continue;
    }
    SITU_RETURN_IF_ERROR(check_pixels(source.width, source.height, {options.max_pixels})
                             .with_context("image " + std::to_string(inputs.size() - 1)));
    input.pixels.width = static_cast<int>(source.width);
    input.pixels.height = static_cast<int>(source.height);
    input.pixels.pixels.assign(source.rgb, source.rgb + 3 * source.width * source.height);
  }
  ProcessorOptions settings;
  settings.limits.max_pixels = options.max_pixels;
  settings.most_tokens = m.context_length;
  settings.overrides = options.processor;
  Result<Processed> processed = processor->process(std::move(inputs), settings);
  if (!processed.is_ok()) return processed.status();
  const auto held = std::make_shared<ReadImages>(ReadImages{std::move(*processor), std::move(*processed)});
  Images images;
  for (const ProcessedImage& image : held->processed.images)
    images.images.push_back({image.width, image.height, image.tokens});
  for (const PixelTensor& t : held->processed.tensors) {
    const std::string name = input_name(*encoder, t.name);
    if (!name.empty()) images.arrays.push_back(named_array(name, t.tensor));
  }
  images.memory = held;
  return images;
}

Result<std::vector<int64_t>> encode_prompt(const Model::Impl& m, const PromptText& prompt, const Images& images) {
  const auto* read = static_cast<const ReadImages*>(images.memory.get());
  if (!read || read->processor.prompt().placeholder.empty()) return encode_prompt(m, prompt);
  std::string begin;
  const std::map<std::string, std::string>& special = m.tokenizer->config().special_tokens;
  if (const auto bos = special.find("bos_token"); read->processor.prompt().images_first && bos != special.end())
    begin = bos->second;
  Result<std::string> expanded = read->processor.expand(prompt.text, read->processed.images, begin);
  if (!expanded.is_ok()) return expanded.status();
  // Images that come first write the special tokens themselves.
  return encode_prompt(m, {std::move(*expanded), prompt.mark, prompt.templated || !begin.empty()});
}

Result<std::vector<int64_t>> encode_with_images(const Model& model, const ImageText& text, const Images& images) {
  const Model::Impl& m = impl_of(model);
  SITU_RETURN_IF_ERROR(need_tokenizer(m));
  const auto* read = static_cast<const ReadImages*>(images.memory.get());
  if (!read) return Status::error(Code::kInvalidArgument, "there is no image");
  const size_t count = images.images.size();
  if (text.chat || !text.system.empty()) {
    std::vector<ImageMessage> turns;
    if (!text.system.empty()) turns.push_back({"system", text.system, 0});
    turns.push_back({"user", text.text, count});
    return encode_with_images(model, turns, images);
  }
  const PromptRules& rules = read->processor.prompt();
  std::string words = text.text;
  if (rules.placeholder.empty()) return model.encode(words);
  if (!rules.images_first && words.find(rules.placeholder) == std::string::npos) {
    std::string before;
    for (size_t i = 0; i < count; ++i) before += rules.inserted;
    words = before + words;
  }
  return encode_prompt(m, {words, 0, false}, images);
}

Result<std::vector<int64_t>> encode_with_images(const Model& model, std::span<const ImageMessage> messages,
                                                const Images& images) {
  const Model::Impl& m = impl_of(model);
  SITU_RETURN_IF_ERROR(need_tokenizer(m));
  if (!images.memory) return Status::error(Code::kInvalidArgument, "there is no image");
  std::vector<Turn> turns;
  for (const ImageMessage& message : messages) {
    nlohmann::ordered_json content = nlohmann::ordered_json::array();
    for (size_t i = 0; i < message.images; ++i) content.push_back({{"type", "image"}});
    content.push_back({{"type", "text"}, {"text", message.text}});
    nlohmann::ordered_json turn = {{"role", message.role}, {"content", std::move(content)}};
    turns.push_back(Turn{std::move(turn), {}});
  }
  const Result<PromptText> prompt = render_conversation(m, std::move(turns));
  if (!prompt.is_ok()) return prompt.status();
  return encode_prompt(m, *prompt, images);
}

}  // namespace situ
