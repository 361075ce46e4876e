// Texts to embeddings, and pairs of texts to scores: folder, tokenizer, encoder, pooling and what follows it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipelines/model_folder.h"
#include "pipelines/sentence_files.h"
#include "pipelines/text_graph.h"
#include "pipelines/text_inputs.h"
#include "runtime/text_encoder.h"
#include "situ/generation.h"
#include "situ/load_options.h"
#include "text/tokenizer.h"

namespace situ {

// Whether a folder is loaded for embeddings: its one graph gives hidden states or labels, and no logits of tokens.
bool is_for_embeddings(const ModelFolder& folder, const Graph& graph);

class Embedder {
 public:
  // `model`, `folder` and `tokenizer` (or null) must outlive the embedder. `dry`, `traces`: EngineOptions.
  static Result<std::unique_ptr<Embedder>> create(const ModelFolder& folder, const ImportedModel& model,
                                                  const FolderTokenizer* tokenizer, const LoadOptions& options,
                                                  std::shared_ptr<ThreadPool> pool, bool dry = false,
                                                  std::shared_ptr<CompileTraces> traces = nullptr);

  // Errors name the text by its number: no tokens, an embedding with NaN. Also: no texts; a prompt of an unknown name;
  // a size to which embeddings are not cut; a model that gives scores.
  Result<Embeddings> embed(std::span<const std::string> texts, const EmbedOptions& options);
  // The same of ids as they are, without prompts and special tokens.
  Result<Embeddings> embed(std::span<const std::vector<int64_t>> ids, const EmbedOptions& options);
  // Errors: as above; a model that gives no scores.
  Result<PairScores> score(std::span<const TextPair> pairs, const EmbedOptions& options);

  // The same in parts, for who waits in no thread: begin(), add() of every text, take_row() of each one's rows, end().
  struct Reading {
    EmbedOptions options;
    std::string prompt;
    int64_t skipped = 0, size = 0;
    std::vector<EncodedTexts> texts;
    Embeddings made;
  };
  // `of_ids`: add() gets ids.
  Result<Reading> begin(const EmbedOptions& options, bool of_ids) const;
  // Errors name the text by its number in `reading`, which is left as it was.
  Status add(Reading& reading, const std::string& text) const;
  Status add(Reading& reading, const std::vector<int64_t>& ids) const;
  // Of the text of this number.
  Status take_row(Reading& reading, size_t text, std::span<const float> rows) const;
  Embeddings end(Reading reading) const { return cut(std::move(reading.made), reading.size, reading.options); }

  // Gives the rows of texts that a client asks for: called by the functions above. Set before these.
  std::function<Status(std::span<const TextTokens>, const std::string&, const TextEncoder::RowsOf&)> run_texts;

  bool scores_pairs() const { return graph_.kind == EncoderOutput::kLabels || files_.cross_encoder; }
  int64_t size() const { return dims_; }  // of an embedding; of scores: labels
  TextEncoder& encoder() { return *encoder_; }
  int64_t max_tokens() const { return most_; }
  const SentenceFiles& files() const { return files_; }
  const std::string& output() const { return graph_.output; }  // of the graph: what the encoder computes

 private:
  Embedder(const ModelFolder& folder, const FolderTokenizer* tokenizer) : folder_(folder), tokenizer_(tokenizer) {}
  Status choose_output(const TextGraph& graph);
  Status check_widths();
  void choose_pooling();
  Status check_sizes();
  Status check_embeds(size_t texts) const;
  Result<int64_t> size_of(const EmbedOptions& options) const;
  // Of rows that run() made.
  Embeddings cut(Embeddings made, int64_t size, const EmbedOptions& options) const;
  const char* result() const { return scores_pairs() ? kScores : kSentenceEmbedding; }
  TextInputs inputs() const { return TextInputs(folder_, *tokenizer_, files_, most_); }
  Status run(const std::vector<EncodedTexts>& inputs, int64_t skipped, const std::string& client,
             std::vector<std::vector<float>>* rows);
  template <typename Texts>
  Result<Embeddings> embed_all(const Texts& texts, const EmbedOptions& options, bool of_ids);
  Status put_row(size_t text, std::span<const float> made, int64_t skipped, std::vector<float>* row) const;

  const ModelFolder& folder_;
  const FolderTokenizer* tokenizer_;
  SentenceFiles files_;
  TextGraph graph_;
  Activation activation_ = Activation::kIdentity;
  std::string note_;  // of scores
  SmallerSizes smaller_;
  bool normalizes_ = false;  // the last module does
  std::unique_ptr<TextEncoder> encoder_;
  int64_t most_ = 0, dims_ = 0;
};

}  // namespace situ
