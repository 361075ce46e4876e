// What a model folder says beside the graph: which file to run, how its inputs are called, when to stop.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "passes/context/binding.h"
#include "pipelines/generation_config.h"
#include "pipelines/graph_files.h"

namespace situ {

// An encoder whose rows stand for tokens of the prompt: of pictures, or of sound.
struct MediaFile {
  std::filesystem::path file;
  bool sound = false;
};

// Which token ids stand for rows of encoders: what no graph states.
struct MediaTokens {
  int64_t image = -1, audio = -1;  // -1: config.json does not say
  int64_t vision_start = -1;       // vision_start_token_id
  int64_t spatial_merge = 0;       // vision_config.spatial_merge_size; 0: it does not say
};

struct ModelFolder {
  std::filesystem::path model_file;                // the decoder's, of an encoder-decoder
  std::filesystem::path encoder_file, first_file;  // empty: none; first_file: the decoder's first call
  std::filesystem::path lookup_file;               // of embeddings, which the decoder takes; empty: it takes ids
  std::vector<MediaFile> media_files;
  MediaTokens media;
  std::filesystem::path folder;   // of tokenizer and configuration
  std::filesystem::path graphs;   // where .onnx files are looked for
  std::filesystem::path modules;  // of sentence-transformers' files, which may name another folder for the tokenizer
  std::string no_tokenizer;       // why there is no text, the beginning of a line; "": there is a tokenizer
  InputNames names;
  int64_t context_length = 0;  // 0: not declared
  int64_t source_length = 0;   // most tokens that an encoder takes, or rows that it makes; 0: not declared
  // What config.json says of attention and rotary factors, which the graph has or has lost: tokens that each token
  // sees, and the length from which on factors are other ones. 0: nothing.
  int64_t window = 0, long_rope = 0;
  std::vector<int64_t> eos_ids;
  GenerationConfig generation;
  std::vector<std::string> notes = {};  // what the files say and is not so: part of Generation::notes

  // A decoder alone takes prompts too, be it token by token.
  bool first_is_optional() const { return !first_file.empty() && encoder_file.empty(); }
};

// `variants`: which precision of the graphs to run, where a folder has several (graph_files.h). `path`: a folder in
// onnxruntime-genai or Optimum layout, or a .onnx file. Reads genai_config.json, config.json and generation_config.json
// where they are there. Errors name the file and the field.
Result<ModelFolder> open_model_folder(const std::filesystem::path& path, const std::vector<std::string>& variants = {});

// Which of `files` are the graphs of `folder`, which has its name for errors, where no genai_config.json says it.
Status find_model_file(const GraphFiles& files, ModelFolder* folder);

}  // namespace situ
