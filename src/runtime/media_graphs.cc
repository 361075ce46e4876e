#include "runtime/media_graphs.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/assign.h"
#include "passes/module/specialise.h"

namespace situ {
namespace {

// Only what is left of the graph is bound.
void bind_what_is_left(Compiled& c) {
  const std::set<ValueId> inputs(c.graph.inputs.begin(), c.graph.inputs.end());
  std::erase_if(c.binding.inputs, [&](const auto& input) { return inputs.count(input.first) == 0; });
  std::erase_if(c.binding.rotary, [&](const auto& input) { return inputs.count(input.first) == 0; });
}

// Of a step's tokens, for the nodes that are left; a graph of the naive mode has none.
TokenOrder order_of(const Compiled& whole, const Graph& left) {
  std::map<ValueId, char> by_sequence;  // by what the node makes
  for (size_t i = 0; i < whole.order.by_sequence.size(); ++i)
    for (const ValueId v : whole.graph.nodes[i].out) by_sequence[v] = whole.order.by_sequence[i];
  TokenOrder order = whole.order;
  order.by_sequence.clear();
  for (const Node& n : left.nodes)
    order.by_sequence.push_back(by_sequence[*std::max_element(n.out.begin(), n.out.end())]);
  return order;
}

}  // namespace

Result<CutGraphs> cut_at_embeddings(const Compiled& whole) {
  const ValueId x = whole.embeddings;
  const auto none = [&](const std::string& why) {
    return Status::error("no rows of encoders among the embeddings: " + why);
  };
  if (x == kNoValue || whole.graph.values[x].producer < 0) return none("no value of the compiled graph is they");
  const ValueInfo& info = whole.graph.values[x].info;
  if (info.shape.size() != 3 || info.shape[0] != Dim(1) || info.shape[1] != Dim::symbol(kSymS) ||
      !info.shape[2].is_const())
    return none(whole.graph.describe(x) + " is not a row for each token");
  CutGraphs cut{whole, whole};
  cut.lookup.binding.logits = kNoValue;
  cut.lookup.binding.kept.clear();
  for (StatePair& s : cut.lookup.binding.states) s.past = s.present = kNoValue;
  cut.lookup.binding.rows = x;
  slice(cut.lookup.graph, {x});
  bind_what_is_left(cut.lookup);
  if (cut.lookup.binding.inputs.size() != 1 || cut.lookup.binding.inputs.begin()->second != InputRole::kTokenIds)
    return none("by its lookup they depend on more than token ids");
  Graph& rest = cut.decoder.graph;
  const size_t made_by = static_cast<size_t>(rest.values[x].producer);
  if (rest.nodes[made_by].out.size() != 1) return none(rest.nodes[made_by].label() + " makes more than they");
  rest.nodes.erase(rest.nodes.begin() + static_cast<long>(made_by));
  rest.inputs.push_back(x);
  rest.rebuild_links();
  slice(rest, std::vector<ValueId>(rest.outputs));
  rest.rebuild_links();
  cut.decoder.binding.inputs[x] = InputRole::kFeatures;
  bind_what_is_left(cut.decoder);
  if (!cut.decoder.binding.inputs.count(x)) return none("nothing reads them");
  for (Compiled* part : {&cut.lookup, &cut.decoder}) part->order = order_of(whole, part->graph);
  return cut;
}

namespace {

// Operators that make activations: what depends on them is not known before the encoder runs.
bool heavy(const Node& n) {
  static const std::set<std::string> names{"MatMul",        "Gemm",        "Conv",          "ConvInteger",
                                           "MatMulInteger", "MatMulNBits", "Attention",     "LSTM",
                                           "GRU",           "Softmax",     "QLinearMatMul", "QLinearConv",
                                           "Einsum",        "If",          "Loop",          "MultiHeadAttention"};
  const Attribute* const body = n.is("Scan") ? n.attr("body") : nullptr;
  return names.count(n.op) != 0 ||
         (body && body->graph && std::any_of(body->graph->nodes.begin(), body->graph->nodes.end(), heavy));
}

// Values that have as many elements as their operand's data says, whatever its extents are; and what loops make.
std::vector<ValueId> sized_by_data(const Graph& graph) {
  std::vector<ValueId> values;
  for (const Node& n : graph.nodes)
    if (n.is("NonZero") || n.is("Scan"))
      for (const ValueId v : n.out)
        if (v != kNoValue) values.push_back(v);
  return values;
}

}  // namespace

MediaKey MediaKey::of(const std::map<std::string, Tensor>& arrays) {
  MediaKey key;
  for (const auto& [name, array] : arrays) {
    key.extents[name] = array.dims();
    if (!dtype_is_float(array.type())) key.numbers[name] = array.to_i64();
  }
  return key;
}

Result<MediaGraph> MediaGraph::bind(const MediaEncoder& encoder, const std::map<std::string, Tensor>& arrays,
                                    int64_t width, Evaluator& evaluator) {
  MediaGraph m;
  const Graph& imported = encoder.model.graph;
  Assignment assignment;
  for (const ValueId v : imported.inputs) {
    const auto given = arrays.find(imported.values[v].name);
    if (given == arrays.end()) continue;
    const std::vector<int64_t> dims = given->second.dims();
    m.key_.extents[given->first] = dims;
    const Shape& shape = imported.values[v].info.shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      const int id = shape[i].lone_symbol();
      if (id < 0) continue;
      const auto [known, fresh] = assignment.symbols.emplace(id, Dim(dims[i]));
      if (!fresh && known->second != Dim(dims[i]))
        return Status::error(Code::kInvalidArgument, "encoder input " + imported.describe(v) + ": axis " +
                                                         std::to_string(i) + " of the array is " +
                                                         std::to_string(dims[i]) + ", and " + known->second.str() +
                                                         " in another input");
    }
  }
  SITU_RETURN_IF_ERROR(assign(&m.graph_, specialise(imported, assignment, evaluator)).with_context(encoder.name));
  Graph& graph = m.graph_;
  std::vector<ValueId> outputs, open;  // open: the file leaves open how wide it is, which compiling tells
  for (const ValueId v : graph.outputs) {
    const ValueInfo& info = graph.values[v].info;
    if (!dtype_is_float(info.type)) continue;
    if (!info.ranked || (!info.shape.empty() && !info.shape.back().is_const()))
      open.push_back(v);
    else if (!info.shape.empty() && info.shape.back() == Dim(width))
      outputs.push_back(v);
  }
  if (outputs.empty()) outputs = std::move(open);
  if (outputs.size() != 1)
    return Status::error(encoder.name + ": " + std::to_string(outputs.size()) + " of its outputs have rows of " +
                         std::to_string(width) + " numbers, as the decoder's embeddings have; one was expected");
  m.rows_ = graph.values[outputs[0]].name;
  slice(graph, outputs);
  SITU_RETURN_IF_ERROR(resolve_ops(graph, NodesOf::kFile).with_context(encoder.name));
  std::map<ValueId, Tensor> feeds;
  for (const ValueId v : std::vector<ValueId>(graph.inputs)) {
    Value& value = graph.values[v];
    const auto given = arrays.find(value.name);
    if (given == arrays.end()) continue;
    feeds[v] = given->second;
    if (dtype_is_float(value.info.type)) continue;
    m.key_.numbers[value.name] = given->second.to_i64();
    value.constant = aligned_copy(given->second, false);  // of this program, which outlives the caller's array
    value.info = info_of(value.constant);
    std::erase(graph.inputs, v);
  }
  graph.rebuild_links();
  // The prologue.
  const std::vector<ValueId> sized = sized_by_data(graph);
  if (sized.empty()) return m;
  Graph prologue = graph;
  slice(prologue, sized);
  for (const Node& n : prologue.nodes)
    if (heavy(n))
      return Status::error(Code::kUnsupportedModel, encoder.name + ": what " + graph.producer(sized.back())->label() +
                                                        " makes has as many elements as activations say (by " +
                                                        n.label() + "), which is not known before it runs");
  for (const ValueId v : prologue.inputs)
    if (!feeds.count(v))
      return Status::error(Code::kInvalidArgument, "encoder input " + prologue.describe(v) + " is not given");
  std::erase_if(feeds, [&](const auto& f) {
    return std::find(prologue.inputs.begin(), prologue.inputs.end(), f.first) == prologue.inputs.end();
  });
  prologue.rebuild_links();
  Result<std::vector<Tensor>> made = evaluator.graph(prologue, feeds);
  if (!made.is_ok()) return made.status().with_context(encoder.name);
  for (size_t i = 0; i < sized.size(); ++i) {
    Value& value = graph.values[sized[i]];
    std::vector<int64_t>& numbers = m.key_.numbers["/" + value.name];
    if (dtype_is_float((*made)[i].type()))
      for (const double x : (*made)[i].to_f64()) numbers.push_back(std::bit_cast<int64_t>(x));
    else
      numbers = (*made)[i].to_i64();
    if ((*made)[i].count() == 0)
      return Status::error(Code::kInvalidArgument, encoder.name + ": " + graph.producer(sized[i])->label() +
                                                       " finds nothing in the arrays: no row would be left");
    value.constant = (*made)[i];
    value.info = info_of(value.constant);
  }
  const std::set<ValueId> known(sized.begin(), sized.end());
  std::erase_if(graph.nodes, [&](const Node& n) {
    return std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) { return known.count(v) != 0; });
  });
  graph.rebuild_links();
  slice(graph, std::vector<ValueId>(graph.outputs));
  graph.rebuild_links();
  return m;
}

Result<std::vector<int64_t>> MediaGraph::take_order(Evaluator& evaluator) {
  using Order = std::vector<int64_t>;
  const Node* gather = graph_.producer(graph_.outputs[0]);
  while (gather && gather->is("Identity")) gather = graph_.producer(gather->in[0]);
  if (!gather || !gather->is("Gather") || gather->attr_int("axis", 0) != 0 ||
      graph_.values[graph_.outputs[0]].info.shape.size() != 2 || graph_.values[gather->in[0]].producer < 0)
    return Order();
  const ValueId x = gather->in[0], indices = gather->in[1];
  Graph prologue = graph_;
  slice(prologue, {indices});
  if (!prologue.inputs.empty() || std::any_of(prologue.nodes.begin(), prologue.nodes.end(), heavy)) return Order();
  prologue.rebuild_links();
  SITU_TAKE(made, evaluator.graph(prologue, {}));
  const Order from = made[0].to_i64();
  Order to(from.size(), -1);
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t row = static_cast<size_t>(from[i]);
    if (from[i] < 0 || row >= to.size() || to[row] >= 0) return Order();
    to[row] = static_cast<int64_t>(i);
  }
  if (made[0].rank() != 1) return Order();
  rows_ = graph_.values[x].name;
  slice(graph_, {x});
  graph_.rebuild_links();
  return to;
}

Result<Compiled> MediaGraph::compile(const EngineOptions& options, PackStore* packs) const {
  GraphUse use{Phase::kFirst, true, {}, {}};
  for (const auto& [name, dims] : key_.extents) use.fed.insert(name);
  use.rows = rows_;
  return situ::compile(graph_, options, packs, use);
}

}  // namespace situ
