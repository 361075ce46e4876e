#include "pipelines/model_folder.h"

#include "base/assign.h"
#include "pipelines/nested_folders.h"
#include "pipelines/sentence_files.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// A number of tokens: absent (0 stays) or a positive integer that fits, else an error.
Status token_count(const fs::path& file, const Json& json, const char* key, int64_t* result) {
  auto it = json.find(key);
  if (it == json.end() || it->is_null()) return Status::ok();
  const bool fits = it->is_number_integer() && !(it->is_number_unsigned() && it->get<uint64_t>() > uint64_t{INT64_MAX});
  if (!fits || it->get<int64_t>() <= 0)
    return Status::error(file.string() + ": " + key + " should be a positive integer, is " + shown(*it));
  *result = it->get<int64_t>();
  return Status::ok();
}

std::string text(const Json& json, const char* key) {
  auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

// One id or a list of them. Negative ids, which some configurations write for "none", match no token.
Status read_eos(const fs::path& file, const Json& json, std::vector<int64_t>* ids) {
  auto it = json.find("eos_token_id");
  if (it == json.end() || it->is_null()) return Status::ok();
  std::vector<int64_t> found;
  const Json list = it->is_array() ? *it : Json::array({*it});
  for (const Json& id : list) {
    if (!id.is_number_integer())
      return Status::error(file.string() + ": eos_token_id should be a token id or a list of them, is " + shown(*it));
    found.push_back(id.get<int64_t>());
  }
  if (!found.empty()) *ids = found;
  return Status::ok();
}

const Json& child(const Json& json, const char* key) {
  static const Json empty = Json::object();
  auto it = json.find(key);
  return it != json.end() && it->is_object() ? *it : empty;
}

// A name that may be absent, as "" and null say too.
Status read_name(const fs::path& config, const std::string& where, const Json& json, const char* key,
                 std::string* name) {
  const auto it = json.find(key);
  if (it != json.end() && !it->is_string() && !it->is_null())
    return Status::error(config.string() + ": " + where + key + " should be a string, is " + shown(*it));
  *name = text(json, key);
  return Status::ok();
}

// model.PART.filename, else `usual`. File names come from the configuration: they must stay inside the folder.
Status read_file_name(const fs::path& config, const Json& model, const std::string& part, const char* usual,
                      fs::path* file) {
  std::string name;
  const std::string where = "model." + part + ".";
  SITU_RETURN_IF_ERROR(read_name(config, where, child(model, part.c_str()), "filename", &name));
  if (name.empty()) name = usual;
  const fs::path p(name);
  const bool climbs = std::any_of(p.begin(), p.end(), [](const fs::path& each) { return each == ".."; });
  if (p.is_absolute() || climbs)
    return Status::error(config.string() + ": " + where + "filename '" + name + "' is not a file of this folder");
  *file = config.parent_path() / name;
  return Status::ok();
}

// Of config.json, or `model` of genai_config.json: image_token_id or image_token_index, audio_token_id or
// audio_token_index. Errors name the field.
Status read_media_tokens(const std::string& where, const Json& config, MediaTokens* tokens) {
  const auto read = [&](const Json& from, const char* key, int64_t* to) {
    const auto it = from.find(key);
    if (it == from.end() || it->is_null() || *to > 0) return Status::ok();
    const bool fits = it->is_number_integer() &&
                      !(it->is_number_unsigned() && it->get<uint64_t>() > uint64_t{INT32_MAX}) &&
                      it->get<int64_t>() >= 0 && it->get<int64_t>() <= INT32_MAX;
    if (!fits) return Status::error(where + ": " + key + " should be a small integer of at least 0, is " + shown(*it));
    *to = it->get<int64_t>();
    return Status::ok();
  };
  for (const char* key : {"image_token_id", "image_token_index"})
    SITU_RETURN_IF_ERROR(read(config, key, &tokens->image));
  for (const char* key : {"audio_token_id", "audio_token_index"})
    SITU_RETURN_IF_ERROR(read(config, key, &tokens->audio));
  SITU_RETURN_IF_ERROR(read(config, "vision_start_token_id", &tokens->vision_start));
  return read(child(config, "vision_config"), "spatial_merge_size", &tokens->spatial_merge);
}

// A decoder of embeddings, what makes them, and encoders of pictures and sound.
Status read_genai_media(const fs::path& config, const Json& model, ModelFolder* m) {
  for (const char* part : {"vision", "speech"}) {
    if (!model.contains(part)) continue;
    MediaFile& media = m->media_files.emplace_back();
    media.sound = std::string_view(part) == "speech";
    SITU_RETURN_IF_ERROR(read_file_name(config, model, part, media.sound ? "speech.onnx" : "vision.onnx", &media.file));
  }
  if (m->media_files.empty()) return Status::ok();
  if (!model.contains("embedding"))
    return Status::error(Code::kUnsupportedModel,
                         config.string() + ": no object 'model.embedding': what joins the rows of " +
                             m->media_files[0].file.filename().string() + " and text is not said");
  SITU_RETURN_IF_ERROR(read_file_name(config, model, "embedding", "embedding.onnx", &m->lookup_file));
  SITU_RETURN_IF_ERROR(read_media_tokens(config.string() + ": model", model, &m->media));
  return token_count(config, child(model, "vision"), "spatial_merge_size", &m->media.spatial_merge);
}

// Of a provider whose long ropes stand behind the short ones in one table. Its kernels count the rows; so does Situ.
Status read_rotary_offset(const fs::path& config, const Json& decoder, int64_t* offset) {
  const Json& session = child(decoder, "session_options");
  const auto providers = session.find("provider_options");
  for (const Json& provider : providers == session.end() ? Json() : *providers)
    for (const Json& options : provider)
      for (const char* key : {"multiRotaryCacheConcatOffset", "multi_rotary_cache_concat_offset",
                              "nv_multi_rotary_cache_concat_offset"}) {
        if (!options.is_object() || !options.contains(key)) continue;
        const Json& given = options[key];
        const std::string number = given.is_string() ? given.get<std::string>() : given.dump();
        const int64_t before = *offset;
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *offset);
        const std::string where = config.string() + ": model.decoder.session_options.provider_options: " + key + " is ";
        if (error != std::errc() || end != number.data() + number.size() || *offset < 0)
          return Status::error(where + given.dump() + ", should be a number of rows");
        if (before != 0 && before != *offset)
          return Status::error(where + given.dump() + ", and of another provider " + std::to_string(before));
      }
  return Status::ok();
}

Status read_genai(const fs::path& config, ModelFolder* m) {
  SITU_TAKE(json, read_json_object(config));
  if (!json.contains("model") || !json["model"].is_object())
    return Status::error(config.string() + ": no object 'model'");
  const Json& model = child(json, "model");
  const Json& decoder = child(model, "decoder");
  for (const char* part : {"decoder", "vision", "speech"})
    if (child(model, part).contains("pipeline"))
      return Status::error(Code::kUnsupportedModel, config.string() + ": model." + part +
                                                        ".pipeline, a graph in several files, is not supported");
  SITU_RETURN_IF_ERROR(read_genai_media(config, model, m));
  if (model.contains("encoder")) {
    SITU_RETURN_IF_ERROR(read_file_name(config, model, "encoder", "encoder.onnx", &m->encoder_file));
    m->generation.encoder_decoder = true;
    read_generation_fields(config.string() + ": model.", model, &m->generation);  // what a text begins with
  }
  SITU_RETURN_IF_ERROR(read_file_name(config, model, "decoder", "model.onnx", &m->model_file));
  InputNames& n = m->names;
  for (const auto& [key, name] : {std::pair{"input_ids", &n.input_ids},
                                  {"attention_mask", &n.attention_mask},
                                  {"position_ids", &n.position_ids},
                                  {"past_key_names", &n.past_key},
                                  {"past_value_names", &n.past_value}})
    SITU_RETURN_IF_ERROR(read_name(config, "model.decoder.inputs.", child(decoder, "inputs"), key, name));
  for (const auto& [key, name] : {std::pair{"logits", &n.logits},
                                  {"present_key_names", &n.present_key},
                                  {"present_value_names", &n.present_value}})
    SITU_RETURN_IF_ERROR(read_name(config, "model.decoder.outputs.", child(decoder, "outputs"), key, name));
  SITU_RETURN_IF_ERROR(read_rotary_offset(config, decoder, &n.rotary_offset));
  SITU_RETURN_IF_ERROR(token_count(config, model, "context_length", &m->context_length));
  SITU_RETURN_IF_ERROR(read_eos(config, model, &m->eos_ids));
  read_generation_fields(config.string() + ": search.", child(json, "search"), &m->generation);
  return Status::ok();
}

// A number of tokens that is only compared with what the graph does: 0 where it is none.
int64_t told_count(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number_unsigned() ? static_cast<int64_t>(it->get<uint64_t>()) : 0;
}

// Windows as Mistral, Qwen 2 and Gemma 3 declare them, long ropes as Phi 3 does, in both spellings of transformers.
void read_attention_facts(const Json& config, ModelFolder* m) {
  const auto used = config.find("use_sliding_window");
  const auto layers = config.find("layer_types");
  const bool unused = used != config.end() && *used == Json(false),
             none = layers != config.end() && layers->is_array() &&
                    std::none_of(layers->begin(), layers->end(),
                                 [](const Json& layer) { return layer == "sliding_attention"; });
  if (!unused && !none) m->window = told_count(config, "sliding_window");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json& rope = child(config, key);
    for (const char* type : {"type", "rope_type"}) {
      if (text(rope, type) != "longrope" && text(rope, type) != "su") continue;
      m->long_rope = std::max(told_count(rope, "original_max_position_embeddings"),
                              told_count(config, "original_max_position_embeddings"));
    }
  }
}

Status read_transformers(ModelFolder* m) {
  const fs::path config = m->folder / "config.json", generation = m->folder / "generation_config.json";
  if (there(config)) {
    SITU_TAKE(json, read_json_object(config));
    read_model_config(config.string() + ": ", json, there(generation), &m->generation);
    const Json& text_config = json.contains("text_config") ? child(json, "text_config") : json;
    // T5's n_positions bounds nothing: its attention has distances, no positions.
    const bool encoder = m->generation.encoder_decoder;
    int64_t declared = 0;
    for (const char* key : {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"})
      if (declared == 0 && !(encoder && std::string_view(key) == "n_positions"))
        SITU_RETURN_IF_ERROR(token_count(config, text_config, key, &declared));
    if (declared > 0 && (m->context_length == 0 || declared < m->context_length)) m->context_length = declared;
    if (m->context_length == 0 && encoder)
      for (const char* key : {"max_decoder_position_embeddings", "max_target_positions"})
        SITU_RETURN_IF_ERROR(token_count(config, json, key, &m->context_length));
    for (const char* key : {"max_source_positions", "max_encoder_position_embeddings"})
      if (encoder) SITU_RETURN_IF_ERROR(token_count(config, json, key, &m->source_length));
    read_attention_facts(text_config, m);
    SITU_RETURN_IF_ERROR(read_eos(config, json, &m->eos_ids));
    if (!m->lookup_file.empty()) SITU_RETURN_IF_ERROR(read_media_tokens(config.string(), json, &m->media));
  }
  if (there(generation)) {
    SITU_TAKE(json, read_json_object(generation));
    SITU_RETURN_IF_ERROR(read_eos(generation, json, &m->eos_ids));
    read_generation_fields(generation.string() + ": ", json, &m->generation);
  }
  return Status::ok();
}

Status put(const GraphFiles& files, const char* graph, fs::path* to) {
  Result<fs::path> file = files.choose(graph);
  if (file.is_ok()) *to = *file;
  return file.status();
}

Status no_decoder(const ModelFolder& m);

// A merged decoder is preferred to a pair, which holds its weights twice.
Status find_encoder_decoder(const GraphFiles& files, ModelFolder* m) {
  SITU_RETURN_IF_ERROR(put(files, "encoder_model", &m->encoder_file));
  if (files.has("decoder_model_merged")) return put(files, "decoder_model_merged", &m->model_file);
  if (files.has("decoder_with_past_model")) {
    SITU_RETURN_IF_ERROR(put(files, "decoder_with_past_model", &m->model_file));
    return files.has("decoder_model") ? put(files, "decoder_model", &m->first_file) : Status::ok();
  }
  // Perhaps an encoder that gives embeddings: what config.json says of it is read later.
  if (std::none_of(files.all().begin(), files.all().end(),
                   [](const auto& graph) { return graph.first.rfind("decoder", 0) == 0; })) {
    std::swap(m->model_file, m->encoder_file);
    return Status::ok();
  }
  return no_decoder(*m);
}

Status no_decoder(const ModelFolder& m) {
  return Status::error(Code::kNotFound,
                       m.folder.string() + ": encoder_model.onnx has no decoder with a cache beside it " +
                           "(decoder_model_merged.onnx, or decoder_model.onnx and decoder_with_past_model.onnx)");
}

// The layout of transformers.js: a decoder of embeddings, and what makes them.
Status find_media_model(const GraphFiles& files, ModelFolder* m) {
  if (files.has("encoder_model"))
    return Status::error(Code::kUnsupportedModel,
                         m->folder.string() + ": embed_tokens.onnx beside encoder_model.onnx: encoder-decoders whose " +
                             "encoder takes embeddings (Florence-2) are not supported");
  const Result<fs::path> lookup = files.choose("embed_tokens", true);  // exporters quantise it less than other graphs
  if (!lookup.is_ok()) return lookup.status();
  m->lookup_file = *lookup;
  for (const char* name : {"vision_encoder", "audio_encoder"}) {
    if (!files.has(name)) continue;
    MediaFile& media = m->media_files.emplace_back();
    media.sound = std::string_view(name) == "audio_encoder";
    SITU_RETURN_IF_ERROR(put(files, name, &media.file));
  }
  return put(files, files.has("decoder_model_merged") ? "decoder_model_merged" : "decoder_model", &m->model_file);
}

// Whether export.json, as transformers' exporter writes it, names every graph of the folder as a part of one model.
bool parts_of_export(const GraphFiles& files, const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / "export.json", error)) return false;
  const Result<Json> json = read_json_object(folder / "export.json");
  if (!json.is_ok() || !json->contains("components") || !(*json)["components"].is_object()) return false;
  return std::all_of(files.all().begin(), files.all().end(),
                     [&](const auto& graph) { return (*json)["components"].contains(graph.first); });
}

}  // namespace

Status find_model_file(const GraphFiles& files, ModelFolder* m) {
  const bool decoder = files.has("decoder_model_merged") || files.has("decoder_model");
  if (files.has("embed_tokens") && decoder) return find_media_model(files, m);
  for (const char* part : {"embed_tokens", "vision_encoder", "audio_encoder"})
    if (files.has(part))
      return Status::error(Code::kNotFound, m->folder.string() + ": " +
                                                (decoder ? "embed_tokens.onnx" : "decoder_model_merged.onnx") +
                                                " is missing beside " + part + ".onnx");
  if (files.has("encoder_model")) return find_encoder_decoder(files, m);
  for (const char* name : {"model", "decoder_model_merged", "decoder_with_past_model"})
    if (files.has(name)) return put(files, name, &m->model_file);
  if (files.all().size() == 1) return put(files, files.all().begin()->first.c_str(), &m->model_file);
  // As transformers' own exporter writes a decoder: a first call without a cache, and one with a cache, often of one
  // token. Of a model with media they stand beside the parts that text does without.
  if (files.has("decode") && ((files.all().size() == 2 && files.has("prefill")) || parts_of_export(files, m->folder))) {
    if (files.has("prefill")) SITU_RETURN_IF_ERROR(put(files, "prefill", &m->first_file));
    return put(files, "decode", &m->model_file);
  }
  std::string names;
  for (const auto& [graph, variants] : files.all())
    for (const auto& [variant, paths] : variants)
      for (const fs::path& p : paths) names += (names.empty() ? "" : ", ") + p.filename().string();
  if (!names.empty())
    return Status::error(Code::kInvalidArgument,
                         m->folder.string() + ": which of these should run? Name one: " + names);
  return Status::error(Code::kNotFound, m->folder.string() + ": no .onnx file in this folder");
}

Result<ModelFolder> open_model_folder(const fs::path& path, const std::vector<std::string>& variants) {
  std::error_code error;
  ModelFolder m;
  if (!fs::exists(path, error))
    return Status::error(Code::kNotFound, "'" + path.string() + "': no such file or folder");
  if (fs::is_directory(path, error)) {
    if (const std::vector<fs::path> below = nested_folders(path); below.size() == 1)
      return open_model_folder(below[0], variants);
    else if (!below.empty())
      return Status::error(Code::kInvalidArgument,
                           path.string() + ": which of these folders should run? Name one: " + shown(below));
    m.folder = transformer_folder(path);
    m.graphs = m.modules = path;
    Result<VariantChoice> choice = VariantChoice::parse(variants);
    if (!choice.is_ok()) return choice.status().with_context(path.string());
    GraphFiles files(path, *choice);
    if (m.folder != path && files.all().empty()) files = GraphFiles(m.graphs = m.folder, *choice);
    SITU_RETURN_IF_ERROR(files.check_choice());
    if (there(path / "genai_config.json"))
      SITU_RETURN_IF_ERROR(read_genai(path / "genai_config.json", &m));
    else
      SITU_RETURN_IF_ERROR(find_model_file(files, &m));
  } else {
    m.model_file = path;
    m.folder = m.graphs = m.modules = path.has_parent_path() ? path.parent_path() : fs::path(".");
  }
  SITU_RETURN_IF_ERROR(read_transformers(&m));
  if (m.generation.encoder_decoder && m.encoder_file.empty() && graph_of(m.model_file) == "encoder_model" &&
      fs::is_directory(path, error) && !there(m.modules / "modules.json"))
    return no_decoder(m);
  if (m.generation.encoder_decoder && m.encoder_file.empty() &&
      m.model_file.filename().string().rfind("decoder_", 0) == 0)
    return Status::error(Code::kNotFound, m.folder.string() +
                                              ": the encoder is missing: config.json says is_encoder_decoder, and no " +
                                              "encoder_model.onnx is beside " + m.model_file.filename().string());
  // What the tokenizer reads later: a pipe would wait for its writer, a device has no end.
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.json",
                           "chat_template.jinja", "source.spm", "target.spm", "sentencepiece.bpe.model", "vocab.json",
                           "merges.txt", "added_tokens.json"})
    if (const fs::path file = m.folder / name; there(file) && !fs::is_regular_file(file, error))
      return Status::error(file.string() + ": " + (error ? error.message() : "not a regular file"));
  return m;
}

}  // namespace situ
