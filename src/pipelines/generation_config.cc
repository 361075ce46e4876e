#include "pipelines/generation_config.h"

#include <nlohmann/json.hpp>

#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;

constexpr const char* kFields[] = {"do_sample",
                                   "temperature",
                                   "top_k",
                                   "top_p",
                                   "min_p",
                                   "typical_p",
                                   "repetition_penalty",
                                   "encoder_repetition_penalty",
                                   "no_repeat_ngram_size",
                                   "encoder_no_repeat_ngram_size",
                                   "bad_words_ids",
                                   "min_length",
                                   "max_length",
                                   "min_new_tokens",
                                   "max_new_tokens",
                                   "forced_bos_token_id",
                                   "forced_eos_token_id",
                                   "suppress_tokens",
                                   "begin_suppress_tokens",
                                   "num_beams",
                                   "num_beam_groups",
                                   "length_penalty",
                                   "early_stopping",
                                   "diversity_penalty"};

// What tells a decoder how to begin: config.json says so where generation_config.json does not.
constexpr const char* kStarts[] = {"decoder_start_token_id", "bos_token_id"};

// Fields of transformers' GenerationConfig that change tokens, with the JSON that changes none beside null.
struct LeftOut {
  const char *name, *neutral;
  enum class When { kAlways, kSampling, kBeams } when = When::kAlways;
};
constexpr LeftOut kLeftOut[] = {{"sequence_bias", ""},
                                {"exponential_decay_length_penalty", ""},
                                {"guidance_scale", "1"},
                                {"renormalize_logits", "false", LeftOut::When::kBeams},
                                {"watermarking_config", ""},
                                {"penalty_alpha", "0"},
                                {"dola_layers", ""},
                                {"constraints", ""},
                                {"force_words_ids", ""},
                                {"stop_strings", ""},
                                {"max_time", ""},
                                {"token_healing", "false"},
                                {"epsilon_cutoff", "0", LeftOut::When::kSampling},
                                {"eta_cutoff", "0", LeftOut::When::kSampling}};

std::optional<int64_t> id_of(const Json& json) {
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}))
    return std::nullopt;
  return json.get<int64_t>();
}

std::optional<std::vector<int64_t>> ids_of(const Json& json) {
  std::vector<int64_t> ids;
  const size_t count = json.is_array() ? json.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    const std::optional<int64_t> id = id_of(json.is_array() ? json[i] : json);
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

std::optional<std::vector<std::vector<int64_t>>> words_of(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<std::vector<int64_t>> words;
  for (const Json& word : json) {
    std::optional<std::vector<int64_t>> ids = word.is_array() ? ids_of(word) : std::nullopt;
    if (!ids) return std::nullopt;
    words.push_back(std::move(*ids));
  }
  return words;
}

void read_field(const std::string& where, const Json& json, const char* name, GenerationConfig* config) {
  const auto it = json.find(name);
  if (it == json.end()) return;
  ConfigField field;
  field.where = where + name;
  field.text = shown(*it);
  if (it->is_number()) field.number = it->get<double>();
  field.is_integer = it->is_number_integer();
  field.ids = ids_of(*it);
  field.words = words_of(*it);
  config->fields[name] = std::move(field);
}

// Where nothing has said it yet, and null says nothing.
void complete(const std::string& where, const Json& json, bool starts_only, GenerationConfig* config) {
  GenerationConfig found;
  if (!starts_only) read_generation_fields(where, json, &found);
  for (const char* name : kStarts) read_field(where, json, name, &found);
  for (auto& [name, field] : found.fields)
    if (field.text != "null") config->fields.emplace(name, std::move(field));
}

}  // namespace

void read_generation_fields(const std::string& where, const Json& json, GenerationConfig* config) {
  for (const char* name : kFields) read_field(where, json, name, config);
  for (const LeftOut& field : kLeftOut) read_field(where, json, field.name, config);
  for (const char* name : kStarts) {
    const auto it = json.find(name);
    if (it != json.end() && !it->is_null()) read_field(where, json, name, config);
  }
}

void read_model_config(const std::string& where, const Json& json, bool has_generation_config,
                       GenerationConfig* config) {
  const auto flag = json.find("is_encoder_decoder");
  config->encoder_decoder = flag != json.end() && flag->is_boolean() && flag->get<bool>();
  if (!config->encoder_decoder) return;
  complete(where, json, has_generation_config, config);
  const auto decoder = json.find("decoder");
  if (decoder != json.end() && decoder->is_object())
    complete(where + "decoder.", *decoder, has_generation_config, config);
}

const ConfigField* decoder_start(const GenerationConfig& config) {
  const ConfigField* start = config.find(kStarts[0]);
  return start ? start : config.find(kStarts[1]);
}

std::vector<std::string> fields_left_out(const GenerationConfig& config, bool sampling, bool beams) {
  std::vector<std::string> names;
  for (const LeftOut& left : kLeftOut) {
    const ConfigField* field = config.find(left.name);
    if (!field || field->text == "null" || field->text == left.neutral ||
        field->text == left.neutral + std::string(".0"))
      continue;
    if (left.when == LeftOut::When::kSampling && !sampling) continue;
    if (left.when == LeftOut::When::kBeams && !beams) continue;
    names.push_back(field->where);
  }
  return names;
}

}  // namespace situ
