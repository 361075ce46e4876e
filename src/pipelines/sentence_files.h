// What the files of sentence-transformers say beside a graph: modules.json with pooling, normalisation and dense
// layers, the longest text, prompts, sizes of embeddings; and what becomes of a cross-encoder's scores.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipelines/sentence_layers.h"

namespace situ {

// The score of a decoder: the logit of a token behind the text, less that of another one.
struct LogitScore {
  int64_t true_id = 0;
  std::optional<int64_t> false_id;
};

// Texts as messages for the chat template.
struct TemplatedTexts {
  bool lists = false;              // contents are lists of parts
  bool generation_prompt = false;  // what an answer follows stands behind the messages
  bool restores_end = true;        // where a text is cut, the template's end stays
  std::string variables_json;      // others of the template; "": none
};

struct SentenceFiles {
  bool has_modules = false;
  std::optional<Pooling> pooling;  // none: the graph's output is what the layers take
  std::vector<SentenceLayer> layers;
  std::optional<LogitScore> logit_score;
  std::optional<TemplatedTexts> templated;
  std::string text_output;        // what of the model a text becomes; "": the last hidden state, or logits
  Status missing = Status::ok();  // a layer whose weights are not there
  int64_t max_seq_length = 0;     // 0: not said
  bool do_lower_case = false;
  bool cross_encoder = false;  // the last module makes scores
  std::map<std::string, std::string> prompts;
  std::string default_prompt;
  std::string activation;    // the class that config_sentence_transformers.json names for scores; "": none
  std::string config_file;   // that file, for errors
  int64_t truncate_dim = 0;  // so many numbers of an embedding are given; 0: all
};
// Where the first module of `folder`/modules.json has its configuration and its tokenizer: a folder of its own, or
// `folder`: also where the tokenizer is there alone, as exporters write it beside a graph, and where the file says
// something else than read_sentence_files takes.
std::filesystem::path transformer_folder(const std::filesystem::path& folder);
// `labels`: the graph gives labels, so that config_sentence_transformers.json counts only where a CrossEncoder wrote
// it. Errors name the file, the module and the field.
Result<SentenceFiles> read_sentence_files(const std::filesystem::path& folder, bool labels = false);
// Whether the last module of `folder`/modules.json makes scores of a decoder's logits.
bool scores_by_logits(const std::filesystem::path& folder);

// The activation function that CrossEncoder.predict applies to `labels` scores: of `files`, else of config.json in
// `folder`, else the sigmoid of one label. `note`: why it is not the one that a file names.
Result<Activation> score_activation(const SentenceFiles& files, const std::filesystem::path& folder, int64_t labels,
                                    std::string* note);

// Sizes below its own to which config.json says that an embedding may be cut.
struct SmallerSizes {
  bool any = false;
  std::vector<int64_t> sizes;  // these alone, unless `any`
};
Result<SmallerSizes> smaller_sizes(const std::filesystem::path& folder);

}  // namespace situ
