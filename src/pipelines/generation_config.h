// What a model's folder says of generation, by the names of generation_config.json.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace situ {

// A field of a configuration as it stands there. Whether it can be used is decided where it is.
struct ConfigField {
  std::string where;             // "FOLDER/generation_config.json: top_p"
  std::string text;              // its JSON, the beginning of it
  std::optional<double> number;  // when it is one
  bool is_integer = false;
  std::optional<std::vector<int64_t>> ids;                 // of an integer, or a list of integers
  std::optional<std::vector<std::vector<int64_t>>> words;  // of a list of lists of integers
};

struct GenerationConfig {
  // A field is what the first of these has of it: generation_config.json; "search" in genai_config.json; in the folder
  // of an encoder-decoder config.json and its "decoder" (all fields where there is no generation_config.json, as
  // transformers reads folders from before that file; else the decoder's first token only).
  std::map<std::string, ConfigField> fields;
  bool encoder_decoder = false;  // config.json: is_encoder_decoder

  const ConfigField* find(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? nullptr : &found->second;
  }
};

// Every known field of `json`, in place of what an earlier file said. `where`: in front of the names.
void read_generation_fields(const std::string& where, const nlohmann::json& json, GenerationConfig* config);
// config.json. To be read before generation_config.json; `has_generation_config`: there is one.
void read_model_config(const std::string& where, const nlohmann::json& json, bool has_generation_config,
                       GenerationConfig* config);

// The first token of an encoder-decoder's decoder: decoder_start_token_id, else bos_token_id, as in transformers.
// nullptr: neither is there, or both are null.
const ConfigField* decoder_start(const GenerationConfig& config);

// Fields that make transformers' generate choose other tokens and that Situ leaves out, with another value than the
// one that changes nothing. `sampling`, `beams`: what is to be done, since some apply to one of them only.
std::vector<std::string> fields_left_out(const GenerationConfig& config, bool sampling, bool beams);

}  // namespace situ
