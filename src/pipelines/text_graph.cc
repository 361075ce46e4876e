#include "pipelines/text_graph.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace situ {
namespace {

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

// The integer of a constant that has one element.
std::optional<int64_t> one_integer(const Graph& graph, ValueId v) {
  const Tensor& t = graph.values[v].constant;
  const bool integer = t.present() && (t.type() == DType::kI64 || t.type() == DType::kI32);
  return integer && t.count() == 1 ? std::optional(t.to_i64()[0]) : std::nullopt;
}

// What is added to the count of tokens that CumSum makes, where v is such a sum; masks may be multiplied to it.
std::optional<int64_t> added_to_count(const Graph& graph, ValueId v, int depth) {
  constexpr int kDeepest = 16;
  const Node* n = v == kNoValue || depth > kDeepest ? nullptr : graph.producer(v);
  if (!n) return std::nullopt;
  if (n->is("CumSum")) return 0;
  const bool adds = n->is("Add"), subtracts = n->is("Sub");
  for (const char* same : {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Mul", "Add", "Sub"}) {
    if (!n->is(same)) continue;
    const size_t operands = n->is("Mul") || adds || subtracts ? n->in.size() : 1;
    for (size_t i = 0; i < std::min<size_t>(operands, 2); ++i) {
      const std::optional<int64_t> before = added_to_count(graph, n->in[i], depth + 1);
      if (!before || (subtracts && i == 1)) continue;
      if (!adds && !subtracts) return before;
      const std::optional<int64_t> more = one_integer(graph, n->in[1 - i]);
      if (more) return *before + (adds ? *more : -*more);
    }
  }
  return std::nullopt;
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

std::optional<int64_t> most_positions(const Graph& graph) {
  std::optional<int64_t> most;
  for (const Node& n : graph.nodes) {
    const bool fused = n.op == "EmbedLayerNormalization";
    const size_t index = fused ? 8 : 1, table = fused ? 3 : 0;
    if (!looks_up(n) || !n.has_input(index) || !n.has_input(table)) continue;
    const int64_t rows = rows_of(graph, origin(graph, n.in[table]));
    const std::optional<int64_t> before = rows > 0 ? added_to_count(graph, n.in[index], 0) : std::nullopt;
    // The first token has the count 1.
    if (before) most = std::min(most.value_or(rows), rows - 1 - *before);
  }
  return most;
}

}  // namespace situ
