// What the files of sentence-transformers say beside a graph: modules.json with pooling, normalisation and dense
// layers, the longest text, prompts; and what config.json says of a cross-encoder's scores.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace situ {

enum class PoolingMode { kCls, kMax, kMean, kMeanSqrtLength, kWeightedMean, kLastToken };

struct Pooling {
  std::vector<PoolingMode> modes;  // side by side, in this order
  int64_t width = 0;               // numbers of a token that the file declares; 0: it does not
  bool include_prompt = true;      // else tokens of the prompt are left out
  std::string file;                // for errors

  // Of rows [tokens, width] of one text, of which the first `skipped` are a prompt's.
  std::vector<float> pool(std::span<const float> rows, int64_t width, int64_t skipped) const;
};

// A torch.nn activation, by its class.
enum class Activation { kIdentity, kTanh, kSigmoid, kRelu, kGelu, kSoftmax };
void apply_activation(Activation activation, std::span<float> row);

// What is done to a pooled row.
struct SentenceLayer {
  enum class Kind { kNormalize, kDense, kLayerNorm } kind = Kind::kNormalize;
  std::string name;                 // for errors: "2_Dense"
  int64_t in = 0, out = 0;          // kDense, kLayerNorm
  std::vector<float> weight, bias;  // [out, in] and [out], or empty; of kLayerNorm [in] both
  Activation activation = Activation::kIdentity;

  // Error: the row has another width.
  Status apply(std::vector<float>* row) const;
};

struct SentenceFiles {
  bool has_modules = false;
  std::optional<Pooling> pooling;  // none: the graph's output is what the layers take
  std::vector<SentenceLayer> layers;
  Status missing = Status::ok();  // a layer whose weights are not there
  int64_t max_seq_length = 0;     // 0: not said
  bool do_lower_case = false;
  std::map<std::string, std::string> prompts;
  std::string default_prompt;
};
// Where the first module of `folder`/modules.json has its configuration and its tokenizer: a folder of its own, or
// `folder`: also where the tokenizer is there alone, as exporters write it beside a graph, and where the file says
// something else than read_sentence_files takes.
std::filesystem::path transformer_folder(const std::filesystem::path& folder);
// Errors name the file, the module and the field.
Result<SentenceFiles> read_sentence_files(const std::filesystem::path& folder);

// The activation function that CrossEncoder.predict applies to `labels` logits.
Result<Activation> score_activation(const std::filesystem::path& folder, int64_t labels);

// A text as sentence-transformers hands it to its tokenizer: without white space around it, as Python's str.strip
// leaves out.
std::string strip_text(const std::string& text);

}  // namespace situ
