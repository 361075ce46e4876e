// Embeddings of texts and scores of pairs, by encoders of whole texts (Model::embed, Model::score).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace situ {

// Texts are prepared as sentence-transformers does, by the files of the folder: docs/embeddings.md.
struct EmbedOptions {
  std::optional<std::string> prompt;       // in front of every text; default: that of the folder, if it names one
  std::optional<std::string> prompt_name;  // one of `prompts` in config_sentence_transformers.json; not with `prompt`
};

struct Embeddings {
  std::vector<std::vector<float>> rows;  // by text, of `dims` numbers each
  int64_t dims = 0;
  std::vector<int64_t> tokens;     // by text, special ones included
  std::vector<std::string> notes;  // texts that were cut
};

// A question and a text that may answer it, say: the first text of the pair and the second.
struct TextPair {
  std::string first, second;
};

struct PairScores {
  std::vector<std::vector<float>> rows;  // by pair, of `labels` numbers each, behind the folder's activation function
  int64_t labels = 0;
  std::vector<int64_t> tokens;
  std::vector<std::string> notes;
};

}  // namespace situ
