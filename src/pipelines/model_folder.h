// What a model folder says beside the graph: which file to run, how its inputs are called, when to stop.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "passes/pass.h"

namespace situ {

// A field of a configuration as it stands there. Whether it can be used is decided where it is.
struct ConfigField {
  std::string where;             // "FOLDER/generation_config.json: top_p"
  std::string text;              // its JSON, the beginning of it
  std::optional<double> number;  // when it is one
  bool is_integer = false;
};

struct ModelFolder {
  std::filesystem::path model_file;                // the decoder's, of an encoder-decoder
  std::filesystem::path encoder_file, first_file;  // empty: none; first_file: the decoder's first call
  std::filesystem::path folder;                    // of tokenizer and configuration
  bool has_tokenizer = false;                      // tokenizer.json
  InputNames names;
  int64_t context_length = 0;  // 0: not declared
  int64_t source_length = 0;   // most tokens that an encoder takes; 0: not declared
  std::vector<int64_t> eos_ids;
  // How to sample, by the names of generation_config.json: what that file says, else "search" in genai_config.json.
  std::map<std::string, ConfigField> sampling;
};

// `path`: a folder in onnxruntime-genai or Optimum layout, or a .onnx file. Reads genai_config.json,
// config.json and generation_config.json where they are there. Errors name the file and the field.
Result<ModelFolder> open_model_folder(const std::filesystem::path& path);

}  // namespace situ
