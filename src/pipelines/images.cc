// Images of a prompt: files to arrays of the vision encoder, and to tokens of the text around them.
#include <nlohmann/json.hpp>

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

Result<std::string> chat_text(const Model::Impl& m, std::span<const ImageMessage> turns) {
  if (!m.tokenizer || !m.tokenizer->has_chat_template()) return Status::error(Code::kNotFound, m.no_chat_template());
  using Json = nlohmann::json;
  Json messages = Json::array();
  for (const ImageMessage& turn : turns) {
    Json content = Json::array();
    for (size_t i = 0; i < turn.images; ++i) content.push_back({{"type", "image"}});
    content.push_back({{"type", "text"}, {"text", turn.text}});
    messages.push_back({{"role", turn.role}, {"content", content}});
  }
  Result<std::string> rendered =
      m.tokenizer->apply_chat_template_json(messages.dump(-1, ' ', false, Json::error_handler_t::replace), true);
  if (!rendered.is_ok()) return rendered.status().or_code(Code::kInvalidArgument);
  return rendered;
}

Status need_tokenizer(const Model::Impl& m) {
  if (m.tokenizer) return Status::ok();
  return Status::error(Code::kNotFound, m.folder.no_tokenizer + "; give token ids instead of text");
}

// The ids of a text with placeholders. `templated`: it has the special tokens that begin a text.
Result<std::vector<int64_t>> expand_and_encode(const Model::Impl& m, const ReadImages& read, const std::string& words,
                                               bool templated) {
  std::string begin;
  const std::map<std::string, std::string>& special = m.tokenizer->config().special_tokens;
  if (const auto bos = special.find("bos_token"); read.processor.prompt().images_first && bos != special.end())
    begin = bos->second;
  Result<std::string> expanded = read.processor.expand(words, read.processed.images, begin);
  if (!expanded.is_ok()) return expanded.status();
  // A chat template and images that come first write the special tokens themselves.
  Result<std::vector<int64_t>> ids = m.tokenizer->encode(*expanded, !templated && begin.empty());
  if (!ids.is_ok()) return ids.status().or_code(Code::kInvalidArgument);
  return ids;
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
  return expand_and_encode(m, *read, words, false);
}

Result<std::vector<int64_t>> encode_with_images(const Model& model, std::span<const ImageMessage> messages,
                                                const Images& images) {
  const Model::Impl& m = impl_of(model);
  SITU_RETURN_IF_ERROR(need_tokenizer(m));
  const auto* read = static_cast<const ReadImages*>(images.memory.get());
  if (!read) return Status::error(Code::kInvalidArgument, "there is no image");
  Result<std::string> words = chat_text(m, messages);
  if (!words.is_ok()) return words.status();
  return expand_and_encode(m, *read, *words, true);
}

}  // namespace situ
