#include "pipelines/embedder.h"

#include <algorithm>
#include <cmath>

#include "base/assign.h"
#include "base/context_words.h"

namespace situ {
namespace {

// Tokens of a text where no file and no table bounds them.
constexpr int64_t kMostTokens = 8192;

Status not_for_this(const std::string& file, const std::string& what) {
  return Status::error(Code::kInvalidArgument, file + ": " + what);
}

}  // namespace

bool is_for_embeddings(const ModelFolder& folder, const Graph& graph) {
  if (!folder.encoder_file.empty() || !folder.first_file.empty() || !folder.lookup_file.empty() ||
      !folder.media_files.empty() || !folder.names.logits.empty())
    return false;
  const TextGraph t = text_graph(graph);
  return t.kind != EncoderOutput::kNone && !t.has_logits;
}

Result<std::unique_ptr<Embedder>> Embedder::create(const ModelFolder& folder, const ImportedModel& model,
                                                   const FolderTokenizer* tokenizer, const LoadOptions& options,
                                                   std::shared_ptr<ThreadPool> pool, bool dry,
                                                   std::shared_ptr<CompileTraces> traces) {
  std::unique_ptr<Embedder> e(new Embedder(folder, tokenizer));
  const TextGraph graph = text_graph(model.graph);
  const bool labels = graph.kind == EncoderOutput::kLabels;
  SITU_RETURN_IF_ERROR(assign(&e->files_, read_sentence_files(folder.modules, labels)).or_code(Code::kBadFile));
  const std::string file = folder.model_file.string();
  if (e->files_.logit_score)
    return graph.has_logits
               ? not_for_this(file, "the model scores pairs of texts, it gives no embeddings: --pair, Model::score")
               : Status::error(Code::kUnsupportedModel,
                               file + ": LogitScore of modules.json takes logits of tokens, which no output holds");
  if (graph.kind == EncoderOutput::kTokens && !e->files_.text_output.empty())
    return Status::error(Code::kUnsupportedModel, file + ": texts are '" + e->files_.text_output +
                                                      "' by modality_config, and the graph gives rows of tokens");
  e->normalizes_ = !e->files_.layers.empty() && e->files_.layers.back().kind == SentenceLayer::Kind::kNormalize;
  SITU_RETURN_IF_ERROR(e->choose_output(graph).with_context(file));
  const int64_t declared = folder.context_length, of_tokenizer = tokenizer ? tokenizer->config().model_max_length : 0;
  int64_t most = e->files_.max_seq_length;
  if (most == 0 || (labels && !e->files_.has_modules)) {
    most = declared > 0 ? declared : kMostTokens;
    if (of_tokenizer > 0) most = std::min(most, of_tokenizer);
  }
  if (const std::optional<int64_t> positions = most_positions(model.graph)) {
    if (*positions < 1)
      return Status::error(Code::kUnsupportedModel, file + ": the table of positions has no row for a token");
    most = std::min(most, *positions);
  }
  if (options.context_length > 0) most = std::min(most, options.context_length);
  EngineOptions engine;
  engine.names = folder.names;
  engine.source_length = most;
  engine.chunk = options.chunk;
  engine.pool = std::move(pool);
  engine.pack_cache = options.pack_cache && !dry;
  engine.dry = dry;
  engine.traces = std::move(traces);
  SITU_RETURN_IF_ERROR(assign(&e->encoder_, TextEncoder::create(model, e->graph_.output, engine))
                           .or_code(Code::kUnsupportedModel)
                           .with_context(file));
  e->most_ = std::min(most, e->encoder_->most_tokens());
  const bool pools = e->files_.pooling.has_value();
  e->choose_pooling();
  if (e->graph_.kind == EncoderOutput::kTokens && e->files_.cross_encoder && !pools)
    return Status::error(Code::kBadFile, (folder.modules / "modules.json").string() +
                                             ": no Pooling makes a row of a pair out of rows of tokens");
  SITU_RETURN_IF_ERROR(e->check_widths());
  if (!e->scores_pairs()) {
    SITU_RETURN_IF_ERROR(e->check_sizes());
    return e;
  }
  SITU_RETURN_IF_ERROR(
      assign(&e->activation_, score_activation(e->files_, folder.folder, e->dims_, &e->note_)).or_code(Code::kBadFile));
  return e;
}

// A graph with both outputs gives the one that the folder's modules go on from; without modules, or where the weights
// of one are not there, its own embedding of the text, which holds them.
Status Embedder::choose_output(const TextGraph& graph) {
  graph_ = graph;
  if (graph.kind == EncoderOutput::kNone)
    return Status::error(Code::kUnsupportedModel,
                         graph.has_logits
                             ? "the graph gives logits of tokens, and no hidden states to make embeddings of"
                             : "no output is a row for each token, or one for the text");
  if (graph.kind != EncoderOutput::kTokens || graph.sentence.empty() || (files_.has_modules && files_.missing.is_ok()))
    return graph.kind == EncoderOutput::kTokens ? files_.missing : Status::ok();
  graph_.kind = EncoderOutput::kSentence;
  graph_.output = graph.sentence;
  return Status::ok();
}

// Without files of sentence-transformers: the mean, as sentence-transformers takes it, and the last token of decoders.
void Embedder::choose_pooling() {
  if (graph_.kind != EncoderOutput::kTokens || !encoder_->by_token()) {
    files_.pooling.reset();
    if (graph_.kind == EncoderOutput::kTokens) graph_.kind = EncoderOutput::kSentence;
    // The graph has them, but for scores of a row that exporters do not know.
    if (graph_.kind == EncoderOutput::kSentence && !files_.cross_encoder) files_.layers.clear();
    return;
  }
  if (files_.pooling) return;
  files_.pooling.emplace();
  files_.pooling->modes = {encoder_->is_causal() ? PoolingMode::kLastToken : PoolingMode::kMean};
}

Status Embedder::check_widths() {
  int64_t width = encoder_->width();
  if (files_.pooling) {
    if (files_.pooling->width > 0 && files_.pooling->width != width)
      return Status::error(Code::kBadFile, files_.pooling->file + ": word_embedding_dimension is " +
                                               std::to_string(files_.pooling->width) + ", and output '" +
                                               graph_.output + "' has " + std::to_string(width) + " numbers a token");
    width *= std::ssize(files_.pooling->modes);
  }
  std::map<std::string, int64_t> widths{{graph_.kind == EncoderOutput::kLabels ? kScores : kSentenceEmbedding, width}};
  for (const SentenceLayer& layer : files_.layers) SITU_RETURN_IF_ERROR(layer.apply(&widths));
  const auto made = widths.find(result());
  if (made == widths.end())
    return Status::error(Code::kBadFile, folder_.modules.string() + ": no module makes '" + result() + "'");
  dims_ = made->second;
  return Status::ok();
}

// Sizes of config.json below the embedding's own, which is what the modules give.
Status Embedder::check_sizes() {
  SITU_RETURN_IF_ERROR(assign(&smaller_, smaller_sizes(folder_.folder)).or_code(Code::kBadFile));
  std::erase_if(smaller_.sizes, [&](int64_t size) { return size >= dims_; });
  std::sort(smaller_.sizes.begin(), smaller_.sizes.end());
  if (files_.truncate_dim > dims_) files_.truncate_dim = 0;
  return Status::ok();
}

// Whose files say nothing of sizes, but whose embeddings have the length 1, tells directions: those of the first
// numbers are directions too.
Result<int64_t> Embedder::size_of(const EmbedOptions& options) const {
  if (!options.dimensions) return files_.truncate_dim > 0 ? files_.truncate_dim : dims_;
  const int64_t size = *options.dimensions;
  const bool listed = std::find(smaller_.sizes.begin(), smaller_.sizes.end(), size) != smaller_.sizes.end() ||
                      (size > 0 && size == files_.truncate_dim);
  const bool open = smaller_.any || (smaller_.sizes.empty() && (files_.truncate_dim > 0 || normalizes_));
  if (size == dims_ || listed || (open && size > 0 && size < dims_)) return size;
  std::string why = "embeddings have " + std::to_string(dims_) + " numbers, and dimensions is " + std::to_string(size);
  const std::string file = folder_.model_file.string();
  if (open)
    return not_for_this(file, why + "; from 1 to " + std::to_string(dims_) + " are possible").or_option("dimensions");
  std::string sizes;
  for (const int64_t s : smaller_.sizes) sizes += (sizes.empty() ? "" : ", ") + std::to_string(s);
  return not_for_this(file, why + (sizes.empty() ? "; nothing in the folder's files says that they may be cut"
                                                 : "; they may be cut to " + sizes))
      .or_option("dimensions");
}

Status Embedder::put_row(size_t text, std::span<const float> made, int64_t skipped, std::vector<float>* row) const {
  SentenceRows named;
  named[graph_.kind == EncoderOutput::kLabels ? kScores : kSentenceEmbedding] =
      files_.pooling ? files_.pooling->pool(made, encoder_->width(), skipped)
                     : std::vector<float>(made.begin(), made.end());
  for (const SentenceLayer& layer : files_.layers) SITU_RETURN_IF_ERROR(layer.apply(&named));
  *row = std::move(named[result()]);
  const auto bad = std::find_if(row->begin(), row->end(), [](float x) { return !std::isfinite(x); });
  if (bad == row->end()) return Status::ok();
  return Status::error(Code::kInternal, "number " + std::to_string(bad - row->begin()) + " of " +
                                            (scores_pairs() ? "pair " : "text ") + std::to_string(text + 1) + " is " +
                                            std::to_string(*bad) + ": the model's numbers overflow");
}

Status Embedder::run(const std::vector<EncodedTexts>& inputs, int64_t skipped, const std::string& client,
                     std::vector<std::vector<float>>* rows) {
  std::vector<TextTokens> texts;
  for (const EncodedTexts& input : inputs) texts.push_back({input.ids, input.types});
  rows->resize(inputs.size());
  const auto each = [&](size_t i, std::span<const float> made) { return put_row(i, made, skipped, &(*rows)[i]); };
  return run_texts(texts, client, each).with_context(folder_.model_file.string());
}

// As encode of sentence-transformers: truncate_dim cuts alone. A row of a size that is asked for has the length 1.
Embeddings Embedder::cut(Embeddings made, int64_t size, const EmbedOptions& options) const {
  made.dims = size;
  if (size == dims_) return made;
  for (std::vector<float>& row : made.rows) {
    row.resize(static_cast<size_t>(size));
    if (options.dimensions) normalize(row);
  }
  return made;
}

Status Embedder::check_embeds(size_t texts) const {
  if (scores_pairs())
    return not_for_this(folder_.model_file.string(),
                        "the model scores pairs of texts, it gives no embeddings: --pair, Model::score");
  return texts > 0 ? Status::ok() : not_for_this(folder_.model_file.string(), "no text is given");
}

Result<Embedder::Reading> Embedder::begin(const EmbedOptions& options, bool of_ids) const {
  SITU_RETURN_IF_ERROR(check_embeds(1));
  if (!of_ids && !tokenizer_)
    return Status::error(Code::kNotFound, folder_.no_tokenizer + "; give token ids instead of texts");
  if (of_ids && (options.prompt || options.prompt_name))
    return not_for_this(folder_.model_file.string(), "a prompt is for texts, not for token ids");
  Reading reading;
  reading.options = options;
  SITU_RETURN_IF_ERROR(assign(&reading.size, size_of(options)));
  if (of_ids) return reading;
  SITU_RETURN_IF_ERROR(assign(&reading.prompt, TextInputs::prompt_of(folder_, files_, options)));
  Result<int64_t> skipped = inputs().prompt_tokens(reading.prompt);
  if (!skipped.is_ok()) return skipped.status().or_code(Code::kInvalidArgument).with_context("the prompt");
  reading.skipped = *skipped;
  return reading;
}

Status Embedder::add(Reading& reading, const std::string& text) const {
  const size_t number = reading.texts.size();
  SITU_TAKE(tokens, inputs().tokens_of({&text, 1}, reading.prompt, number, &reading.made.notes));
  reading.made.tokens.push_back(std::ssize(tokens.ids));
  if (tokens.cut) reading.made.cut.push_back(number);
  reading.texts.push_back(std::move(tokens));
  return Status::ok();
}

Status Embedder::add(Reading& reading, const std::vector<int64_t>& ids) const {
  const std::string name = "text " + std::to_string(reading.texts.size() + 1);
  if (ids.empty()) return Status::error(Code::kInvalidArgument, name + " has no tokens");
  if (std::ssize(ids) > most_)
    return Status::error(Code::kContextExceeded, name + ": " + context_words(most_, std::ssize(ids)));
  for (const int64_t id : ids)
    if (id < 0 || (graph_.table_rows > 0 && id >= graph_.table_rows))
      return Status::error(Code::kInvalidArgument, name + ": id " + std::to_string(id) + " is not in the vocabulary");
  reading.made.tokens.push_back(std::ssize(ids));
  reading.texts.push_back({ids, {}, false});
  return Status::ok();
}

Status Embedder::take_row(Reading& reading, size_t text, std::span<const float> rows) const {
  reading.made.rows.resize(reading.texts.size());
  return put_row(text, rows, reading.skipped, &reading.made.rows[text]);
}

Result<Embeddings> Embedder::embed(std::span<const std::string> texts, const EmbedOptions& options) {
  return embed_all(texts, options, false);
}

Result<Embeddings> Embedder::embed(std::span<const std::vector<int64_t>> ids, const EmbedOptions& options) {
  return embed_all(ids, options, true);
}

template <typename Texts>
Result<Embeddings> Embedder::embed_all(const Texts& texts, const EmbedOptions& options, bool of_ids) {
  SITU_RETURN_IF_ERROR(check_embeds(texts.size()));
  SITU_TAKE(reading, begin(options, of_ids));
  for (const auto& text : texts) SITU_RETURN_IF_ERROR(add(reading, text));
  SITU_RETURN_IF_ERROR(run(reading.texts, reading.skipped, options.client, &reading.made.rows));
  return end(std::move(reading));
}

Result<PairScores> Embedder::score(std::span<const TextPair> pairs, const EmbedOptions& options) {
  if (!scores_pairs())
    return not_for_this(folder_.model_file.string(), "the model gives embeddings, it scores no pairs of texts");
  SITU_RETURN_IF_ERROR(TextInputs::check_pairs(folder_, tokenizer_, pairs, options));
  const Result<std::string> prompt = TextInputs::prompt_of(folder_, files_, options);
  if (!prompt.is_ok()) return prompt.status();
  const TextInputs reader = inputs();
  const Result<int64_t> skipped = reader.prompt_tokens(*prompt);
  if (!skipped.is_ok()) return skipped.status().or_code(Code::kInvalidArgument).with_context("the prompt");
  PairScores made;
  if (!note_.empty()) made.notes.push_back(note_);
  SITU_TAKE(read, reader.tokens_of_pairs(pairs, *prompt, &made));
  SITU_RETURN_IF_ERROR(run(read, *skipped, options.client, &made.rows));
  for (std::vector<float>& row : made.rows) apply_activation(activation_, row);
  made.labels = dims_;
  return made;
}

}  // namespace situ
