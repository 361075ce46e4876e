#include "pipelines/embedder.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/assign.h"

namespace situ {
namespace {

// Tokens of a text where no file and no table bounds them.
constexpr int64_t kMostTokens = 8192;

// "last_hidden_state" -> "lasthiddenstate"
std::string plain(const std::string& name) {
  std::string p;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      p += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return p;
}

bool one_of(const std::string& name, std::initializer_list<const char*> names) {
  const std::string p = plain(name);
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return p == n; });
}

// Of files that declare no shapes: 0.
size_t rank_of(const Graph& graph, ValueId v) {
  return graph.values[v].info.ranked ? graph.values[v].info.shape.size() : 0;
}

bool looks_up(const Node& n) {
  return (n.is("Gather") && n.attr_int("axis", 0) == 0) || n.op == "EmbedLayerNormalization" ||
         (n.op == "GatherBlockQuantized" && n.attr_int("gather_axis", 0) == 0);
}

// What a value is made of by operators that leave elements where they are, or their numbers what they stand for.
ValueId origin(const Graph& graph, ValueId v) {
  return graph.behind(v, {"Reshape", "Cast", "Identity", "Flatten", "Squeeze", "Unsqueeze", "DequantizeLinear"});
}

int64_t rows_of(const Graph& graph, ValueId v) {
  const Tensor& t = graph.values[v].constant;
  return t.present() && t.rank() == 2 ? t.dims()[0] : 0;
}

// Rows of the largest table that anything indexes.
int64_t most_rows(const Graph& graph) {
  int64_t most = 0;
  for (const Node& n : graph.nodes)
    if (looks_up(n))
      for (const ValueId v : n.in)
        if (v != kNoValue) most = std::max(most, rows_of(graph, v));
  return most;
}

Status not_for_this(const std::string& file, const std::string& what) {
  return Status::error(Code::kInvalidArgument, file + ": " + what);
}

const char* mode_name(PoolingMode mode) {
  constexpr const char* kNames[] = {"cls", "max", "mean", "mean / sqrt(tokens)", "weighted mean", "last token"};
  return kNames[static_cast<int>(mode)];
}

}  // namespace

int64_t rows_of_tokens(const Graph& graph) {
  const auto is_ids = [&](ValueId v) { return graph.values[v].name == "input_ids"; };
  const bool named = std::any_of(graph.inputs.begin(), graph.inputs.end(), is_ids);
  int64_t rows = 0;
  for (const Node& n : graph.nodes) {
    const bool fused = n.op == "EmbedLayerNormalization";  // ids, segments, and their tables
    const size_t index = fused ? 0 : 1, table = fused ? 2 : 0;
    if (!looks_up(n) || !n.has_input(index) || !n.has_input(table)) continue;
    const ValueId ids = origin(graph, n.in[index]);
    const bool input = std::find(graph.inputs.begin(), graph.inputs.end(), ids) != graph.inputs.end();
    if (!input || dtype_is_float(graph.values[ids].info.type) || (named && !is_ids(ids))) continue;
    rows = std::max(rows, rows_of(graph, origin(graph, n.in[table])));
  }
  return rows;
}

TextGraph text_graph(const Graph& graph) {
  TextGraph t;
  t.table_rows = rows_of_tokens(graph);
  if (t.table_rows == 0) t.table_rows = most_rows(graph);
  std::string encoder, tokens, last_layer, other_tokens, sentence, pooler, other_row, labels;
  for (const ValueId v : graph.outputs) {
    const Value& value = graph.values[v];
    if (!dtype_is_float(value.info.type) || !state_suffix(value.name).empty()) continue;
    const size_t rank = rank_of(graph, v);
    if (one_of(value.name, {"logits", "lmlogits", "predictionlogits", "scores"})) {
      (rank == 2 ? labels : other_tokens) = value.name;
      t.has_logits = t.has_logits || rank != 2;
    } else if (one_of(value.name, {"encoderlasthiddenstate"})) {
      encoder = value.name;  // of an encoder-decoder in one graph
    } else if (one_of(value.name, {"lasthiddenstate", "tokenembeddings", "lasthiddenstates", "hiddenstate"}) &&
               rank != 2) {
      tokens = value.name;
    } else if (plain(value.name).rfind("hiddenstates", 0) == 0 && rank != 2) {
      last_layer = value.name;  // of several the last one stands behind all layers
    } else if (one_of(value.name, {"sentenceembedding", "sentenceembeddings", "textembeds", "textembedding",
                                   "embedding", "embeddings", "denseembeddings"}) &&
               (rank == 2 || rank == 0)) {
      sentence = value.name;
    } else if (one_of(value.name, {"pooleroutput", "pooledoutput"})) {
      pooler = value.name;
    } else if (rank == 3) {
      const Dim& width = value.info.shape[2];
      // As wide as the vocabulary, or nearly: logits.
      if (width.is_const() && 8 * width.value() < 7 * t.table_rows) other_tokens = value.name;
    } else if (rank == 2) {
      other_row = value.name;
    }
  }
  if (t.has_logits) other_tokens.clear();
  if (sentence.empty() && encoder.empty() && tokens.empty() && last_layer.empty() && labels.empty() &&
      other_tokens.empty())
    sentence = pooler.empty() ? other_row : pooler;
  for (const auto& [name, kind] : {std::pair{&encoder, EncoderOutput::kTokens},
                                   {&tokens, EncoderOutput::kTokens},
                                   {&last_layer, EncoderOutput::kTokens},
                                   {&other_tokens, EncoderOutput::kTokens},
                                   {&sentence, EncoderOutput::kSentence},
                                   {&labels, EncoderOutput::kLabels}}) {
    if (name->empty() || t.kind != EncoderOutput::kNone) continue;
    t.kind = kind;
    t.output = *name;
  }
  if (!labels.empty()) {
    t.kind = EncoderOutput::kLabels;
    t.output = labels;
  }
  if (t.kind == EncoderOutput::kTokens) t.sentence = sentence;
  return t;
}

bool is_for_embeddings(const ModelFolder& folder, const Graph& graph) {
  if (!folder.encoder_file.empty() || !folder.first_file.empty() || !folder.lookup_file.empty() ||
      !folder.media_files.empty() || !folder.names.logits.empty())
    return false;
  const TextGraph t = text_graph(graph);
  return t.kind != EncoderOutput::kNone && !t.has_logits;
}

Result<std::unique_ptr<Embedder>> Embedder::create(const ModelFolder& folder, const ImportedModel& model,
                                                   const FolderTokenizer* tokenizer, const LoadOptions& options,
                                                   std::shared_ptr<ThreadPool> pool, bool dry) {
  std::unique_ptr<Embedder> e(new Embedder(folder, tokenizer));
  SITU_RETURN_IF_ERROR(assign(&e->files_, read_sentence_files(folder.modules)).or_code(Code::kBadFile));
  const std::string file = folder.model_file.string();
  SITU_RETURN_IF_ERROR(e->choose_output(text_graph(model.graph)).with_context(file));
  const int64_t declared = folder.context_length, of_tokenizer = tokenizer ? tokenizer->config().model_max_length : 0;
  int64_t most = e->files_.max_seq_length;
  if (most == 0 || e->scores_pairs()) {
    most = declared > 0 ? declared : kMostTokens;
    if (of_tokenizer > 0) most = std::min(most, of_tokenizer);
  }
  if (options.context_length > 0) most = std::min(most, options.context_length);
  EngineOptions engine;
  engine.names = folder.names;
  engine.source_length = most;
  engine.chunk = options.chunk;
  engine.pool = std::move(pool);
  engine.pack_cache = options.pack_cache && !dry;
  engine.dry = dry;
  SITU_RETURN_IF_ERROR(assign(&e->encoder_, TextEncoder::create(model, e->graph_.output, engine))
                           .or_code(Code::kUnsupportedModel)
                           .with_context(file));
  e->most_ = std::min(most, e->encoder_->most_tokens());
  e->choose_pooling();
  SITU_RETURN_IF_ERROR(e->check_widths());
  if (!e->scores_pairs()) return e;
  Result<Activation> activation = score_activation(folder.folder, e->encoder_->width());
  if (!activation.is_ok()) return activation.status();
  e->activation_ = *activation;
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
    if (graph_.kind == EncoderOutput::kSentence) files_.layers.clear();  // the graph has them
    return;
  }
  if (files_.pooling) return;
  files_.pooling.emplace();
  files_.pooling->modes = {encoder_->is_causal() ? PoolingMode::kLastToken : PoolingMode::kMean};
}

Status Embedder::check_widths() {
  dims_ = encoder_->width();
  if (files_.pooling) {
    if (files_.pooling->width > 0 && files_.pooling->width != dims_)
      return Status::error(Code::kBadFile, files_.pooling->file + ": word_embedding_dimension is " +
                                               std::to_string(files_.pooling->width) + ", and output '" +
                                               graph_.output + "' has " + std::to_string(dims_) + " numbers a token");
    dims_ *= std::ssize(files_.pooling->modes);
  }
  for (const SentenceLayer& layer : files_.layers) {
    if (layer.in > 0 && layer.in != dims_)
      return Status::error(Code::kBadFile, layer.name + ": takes " + std::to_string(layer.in) +
                                               " numbers, and what stands before it gives " + std::to_string(dims_));
    if (layer.out > 0) dims_ = layer.out;
  }
  return Status::ok();
}

std::string Embedder::pooling_text() const {
  std::string text;
  if (files_.pooling)
    for (const PoolingMode m : files_.pooling->modes) text += (text.empty() ? "" : " + ") + std::string(mode_name(m));
  return text;
}

Result<std::string> Embedder::prompt_of(const EmbedOptions& options) const {
  if (options.prompt) return *options.prompt;
  if (!options.prompt_name) return files_.default_prompt;
  const auto found = files_.prompts.find(*options.prompt_name);
  if (found != files_.prompts.end()) return found->second;
  std::string names;
  for (const auto& [name, text] : files_.prompts) names += (names.empty() ? "" : ", ") + name;
  return not_for_this(folder_.folder.string(), "no prompt is called '" + *options.prompt_name + "'; there " +
                                                   (names.empty() ? "are none" : "are " + names));
}

Result<std::string> Embedder::prepared(const std::string& text) const {
  const std::string stripped = strip_text(text);
  return files_.do_lower_case ? lower_text(stripped) : Result<std::string>(stripped);
}

// Of a prompt that pooling leaves out; a special token at its end is the text's.
Result<int64_t> Embedder::prompt_tokens(const std::string& prompt) const {
  if (prompt.empty() || !files_.pooling || files_.pooling->include_prompt) return 0;
  const Result<std::string> text = prepared(prompt);
  if (!text.is_ok()) return text.status();
  const std::string_view one[] = {*text};
  const Result<EncodedTexts> tokens = tokenizer_->encode_texts(one, most_);
  if (!tokens.is_ok()) return tokens.status();
  const int64_t count = std::ssize(tokens->ids);
  return count > 0 && tokenizer_->is_special(tokens->ids.back()) ? count - 1 : count;
}

// `number`: of the text, from 0 on.
Result<EncodedTexts> Embedder::tokens_of(std::span<const std::string> texts, size_t number,
                                         std::vector<std::string>* notes) const {
  const std::string name = (texts.size() > 1 ? "pair " : "text ") + std::to_string(number + 1);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  Result<EncodedTexts> tokens = tokenizer_->encode_texts(views, most_);
  if (!tokens.is_ok()) return tokens.status().or_code(Code::kInvalidArgument).with_context(name);
  if (tokens->cut) notes->push_back(name + " is longer than " + std::to_string(most_) + " tokens, and was cut");
  if (tokens->ids.empty()) return Status::error(Code::kInvalidArgument, name + " has no tokens");
  if (!tokenizer_->config().has_token_types) tokens->types.clear();
  return tokens;
}

Status Embedder::run(const std::vector<EncodedTexts>& inputs, int64_t skipped, std::vector<std::vector<float>>* rows) {
  std::vector<TextTokens> texts;
  for (const EncodedTexts& input : inputs) texts.push_back({input.ids, input.types});
  rows->resize(inputs.size());
  const auto each = [&](size_t i, std::span<const float> made) {
    std::vector<float>& row = (*rows)[i];
    row = files_.pooling ? files_.pooling->pool(made, encoder_->width(), skipped)
                         : std::vector<float>(made.begin(), made.end());
    for (const SentenceLayer& layer : files_.layers) SITU_RETURN_IF_ERROR(layer.apply(&row));
    const auto bad = std::find_if(row.begin(), row.end(), [](float x) { return !std::isfinite(x); });
    if (bad == row.end()) return Status::ok();
    return Status::error(Code::kInternal, "number " + std::to_string(bad - row.begin()) + " of " +
                                              (scores_pairs() ? "pair " : "text ") + std::to_string(i + 1) + " is " +
                                              std::to_string(*bad) + ": the model's numbers overflow");
  };
  return run_texts(texts, each).with_context(folder_.model_file.string());
}

Result<Embeddings> Embedder::embed(std::span<const std::string> texts, const EmbedOptions& options) {
  const std::string file = folder_.model_file.string();
  if (scores_pairs())
    return not_for_this(file, "the model scores pairs of texts, it gives no embeddings: --pair, Model::score");
  if (texts.empty()) return not_for_this(file, "no text is given");
  if (!tokenizer_) return Status::error(Code::kNotFound, folder_.no_tokenizer + "; give token ids instead of texts");
  if (options.prompt && options.prompt_name)
    return not_for_this(file, "a prompt and the name of one are given: either of them");
  const Result<std::string> prompt = prompt_of(options);
  if (!prompt.is_ok()) return prompt.status();
  const Result<int64_t> skipped = prompt_tokens(*prompt);
  if (!skipped.is_ok()) return skipped.status().or_code(Code::kInvalidArgument).with_context("the prompt");
  Embeddings made;
  std::vector<EncodedTexts> inputs;
  for (size_t i = 0; i < texts.size(); ++i) {
    SITU_RETURN_IF_ERROR(check_utf8(texts[i], "text " + std::to_string(i + 1)).or_code(Code::kInvalidArgument));
    const Result<std::string> text = prepared(*prompt + texts[i]);
    if (!text.is_ok()) return text.status();
    Result<EncodedTexts> tokens = tokens_of({&*text, 1}, i, &made.notes);
    if (!tokens.is_ok()) return tokens.status();
    made.tokens.push_back(std::ssize(tokens->ids));
    if (tokens->cut) made.cut.push_back(i);
    inputs.push_back(std::move(*tokens));
  }
  SITU_RETURN_IF_ERROR(run(inputs, *skipped, &made.rows));
  made.dims = dims_;
  return made;
}

Result<Embeddings> Embedder::embed(std::span<const std::vector<int64_t>> ids) {
  const std::string file = folder_.model_file.string();
  if (scores_pairs())
    return not_for_this(file, "the model scores pairs of texts, it gives no embeddings: --pair, Model::score");
  if (ids.empty()) return not_for_this(file, "no text is given");
  Embeddings made;
  std::vector<EncodedTexts> inputs;
  for (const std::vector<int64_t>& each : ids) {
    const std::string name = "text " + std::to_string(inputs.size() + 1);
    if (each.empty()) return Status::error(Code::kInvalidArgument, name + " has no tokens");
    if (std::ssize(each) > most_)
      return Status::error(Code::kContextExceeded, name + " has " + std::to_string(each.size()) +
                                                       " tokens, the model takes " + std::to_string(most_));
    for (const int64_t id : each)
      if (id < 0 || (graph_.table_rows > 0 && id >= graph_.table_rows))
        return Status::error(Code::kInvalidArgument, name + ": id " + std::to_string(id) + " is not in the vocabulary");
    made.tokens.push_back(std::ssize(each));
    inputs.push_back({each, {}, false});
  }
  SITU_RETURN_IF_ERROR(run(inputs, 0, &made.rows));
  made.dims = dims_;
  return made;
}

Result<PairScores> Embedder::score(std::span<const TextPair> pairs) {
  const std::string file = folder_.model_file.string();
  if (!scores_pairs()) return not_for_this(file, "the model gives embeddings, it scores no pairs of texts");
  if (pairs.empty()) return not_for_this(file, "no pair of texts is given");
  if (!tokenizer_) return Status::error(Code::kNotFound, folder_.no_tokenizer + ", which pairs of texts need");
  PairScores made;
  std::vector<EncodedTexts> inputs;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::string both[] = {pairs[i].first, pairs[i].second};
    for (const std::string& text : both)
      SITU_RETURN_IF_ERROR(check_utf8(text, "pair " + std::to_string(i + 1)).or_code(Code::kInvalidArgument));
    Result<EncodedTexts> tokens = tokens_of(both, i, &made.notes);
    if (!tokens.is_ok()) return tokens.status();
    made.tokens.push_back(std::ssize(tokens->ids));
    inputs.push_back(std::move(*tokens));
  }
  SITU_RETURN_IF_ERROR(run(inputs, 0, &made.rows));
  for (std::vector<float>& row : made.rows) apply_activation(activation_, row);
  made.labels = encoder_->width();
  return made;
}

}  // namespace situ
