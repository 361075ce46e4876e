// Texts to embeddings, and pairs of texts to scores: folder, tokenizer, encoder, pooling and what follows it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipelines/model_folder.h"
#include "pipelines/sentence_files.h"
#include "runtime/text_encoder.h"
#include "situ/generation.h"
#include "situ/load_options.h"
#include "text/tokenizer.h"

namespace situ {

// What a graph gives for a text.
enum class EncoderOutput {
  kNone,
  kTokens,    // a row for each token: last_hidden_state, token_embeddings
  kSentence,  // one row: sentence_embedding, pooler_output
  kLabels,    // logits of a text or a pair: a cross-encoder
};
struct TextGraph {
  EncoderOutput kind = EncoderOutput::kNone;
  std::string output;       // its name
  std::string sentence;     // of a graph with rows for tokens: the output that is one row, if there is one
  bool has_logits = false;  // of each token: it generates
  int64_t table_rows = 0;   // of the table that token ids index; where that is not seen, of the largest table
};
// Rows of the table that token ids index, which are called so where there are other integers; 0: none is seen.
int64_t rows_of_tokens(const Graph& graph);
TextGraph text_graph(const Graph& graph);

// Whether a folder is loaded for embeddings: its one graph gives hidden states or labels, and no logits of tokens.
bool is_for_embeddings(const ModelFolder& folder, const Graph& graph);

class Embedder {
 public:
  // `model`, `folder` and `tokenizer` (or null) must outlive the embedder. `dry`: EngineOptions::dry.
  static Result<std::unique_ptr<Embedder>> create(const ModelFolder& folder, const ImportedModel& model,
                                                  const FolderTokenizer* tokenizer, const LoadOptions& options,
                                                  std::shared_ptr<ThreadPool> pool, bool dry = false);

  // Errors name the text by its number: no tokens, an embedding with NaN. Also: no texts; a prompt of an unknown name;
  // a model that gives labels.
  Result<Embeddings> embed(std::span<const std::string> texts, const EmbedOptions& options);
  // The same of ids as they are, without prompts and special tokens.
  Result<Embeddings> embed(std::span<const std::vector<int64_t>> ids);
  // Errors: as above; a model that gives no labels.
  Result<PairScores> score(std::span<const TextPair> pairs);

  // Computes texts, as TextEncoder::run does: called by the functions above. Set before these.
  std::function<Status(std::span<const TextTokens>, const TextEncoder::RowsOf&)> run_texts;

  bool scores_pairs() const { return graph_.kind == EncoderOutput::kLabels; }
  TextEncoder& encoder() { return *encoder_; }
  int64_t max_tokens() const { return most_; }
  const SentenceFiles& files() const { return files_; }
  const std::string& output() const { return graph_.output; }  // of the graph: what the encoder computes
  // "mean", "cls + max"; "" where the graph pools.
  std::string pooling_text() const;

 private:
  Embedder(const ModelFolder& folder, const FolderTokenizer* tokenizer) : folder_(folder), tokenizer_(tokenizer) {}
  Status choose_output(const TextGraph& graph);
  Status check_widths();
  void choose_pooling();
  Result<std::string> prompt_of(const EmbedOptions& options) const;
  Result<std::string> prepared(const std::string& text) const;
  Result<int64_t> prompt_tokens(const std::string& prompt) const;
  Result<EncodedTexts> tokens_of(std::span<const std::string> texts, size_t number,
                                 std::vector<std::string>* notes) const;
  Status run(const std::vector<EncodedTexts>& inputs, int64_t skipped, std::vector<std::vector<float>>* rows);

  const ModelFolder& folder_;
  const FolderTokenizer* tokenizer_;
  SentenceFiles files_;
  TextGraph graph_;
  Activation activation_ = Activation::kIdentity;
  std::unique_ptr<TextEncoder> encoder_;
  int64_t most_ = 0, dims_ = 0;
};

}  // namespace situ
