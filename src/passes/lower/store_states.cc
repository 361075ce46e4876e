// The element type in which attention states are kept (--kv-type). Rows that attention alone reads can be stored in
// half precision: half the memory, and half the bytes that every later token reads; or as bytes with a scale for each
// row, half of that again (situ.EncodeRows), which nothing but a user asks for. `auto` stores halves where the rows
// come from products that round their activations to 8 bits, whose error is ten times that of a half, and where there
// is enough of them to matter: a small cache is read from a core's own memory, and stays exact. So are the rows of a
// source that cross-attention reads, and those that attention reads from the arena: many rows of halves are multiplied
// as integers (kernels/attention_pairs.h).
#include <algorithm>

#include "ops/state_encoding.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"

namespace situ {
namespace {

// SmolLM2-135M has 45 KiB a token: at 2,048 tokens that is more than its weights. 8 KiB are 16 MiB there, a fifth.
constexpr int64_t kSmallRow = 8 << 10;

int64_t bytes_per_row(const PassContext& context, StateRule rule) {
  int64_t bytes = 0;
  for (const StatePair& s : context.binding.states) {
    if (s.rule != rule || s.past == kNoValue) continue;
    int64_t elements = 1;
    const Shape& shape = context.graph.values[s.past].info.shape;
    for (size_t i = 0; i < shape.size(); ++i)
      if (static_cast<int>(i) != s.axis && shape[i].is_const()) elements *= shape[i].value();
    bytes += elements * dtype_bytes(context.graph.values[s.past].info.type);
  }
  return bytes;
}

bool rounds(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) {
    return (n.is("PackedMatMul", "situ") && n.attr_int("accuracy_level", 0) == 4) || n.is("IntegerMatMul", "situ");
  });
}

class Storer {
 public:
  Storer(PassContext& context, DType type)
      : context_(context),
        graph_(context.graph),
        users_(graph_.users()),
        type_(type),
        encoding_(type == DType::kI8 ? StateEncoding{0, 8, ScaleOf::kRow} : StateEncoding{}) {}

  Status run() {
    std::map<int, StatePair*> concats;
    for (StatePair& s : context_.binding.states) {
      Readers readers;
      const int c = concat_of(s, &readers);
      if (c < 0) continue;
      concats[c] = &s;
      StateEncoding stored = encoding_;
      if (!stored.plain()) stored.size = graph_.values[s.past].info.shape.back().value();
      for (const auto& [node, operand] : readers)
        set_state_encoding(&graph_.nodes[static_cast<size_t>(node)], static_cast<size_t>(operand), stored);
    }
    if (concats.empty()) return Status::ok();
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto it = concats.find(static_cast<int>(i));
      if (it != concats.end()) {
        for (const ValueId v : {it->second->past, it->second->present}) {
          ValueInfo& state = graph_.values[v].info;
          state.type = type_;
          if (!encoding_.plain()) state.shape.back() = encoding_.stored_size(state.shape.back());
        }
        builder.start(nodes[i]);
        for (size_t o = 1; o < nodes[i].in.size(); ++o) nodes[i].in[o] = stored_rows_of(builder, nodes[i].in[o]);
      }
      builder.keep(std::move(nodes[i]));
    }
    context_.note("states", "", std::to_string(concats.size()) + " stored as " + dtype_name(type_));
    return builder.finish();
  }

  // Sources that attention alone reads become halves.
  int read_sources() {
    int count = 0;
    for (const StatePair& s : context_.binding.states) {
      if (s.rule != StateRule::kSource || s.past == kNoValue || s.present != kNoValue) continue;
      ValueInfo& state = graph_.values[s.past].info;
      Readers readers;
      if (state.type != DType::kF32 || !attention_only(s.past, 0, &readers)) continue;
      state.type = type_;
      ++count;
    }
    return count;
  }

  // Keys and values that a product of bytes makes for attention alone.
  Status narrow_products() {
    std::map<int, std::vector<size_t>> found;  // operands of attention nodes
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (size_t o = 1; o < 3; ++o)
        if (graph_.nodes[i].is("Attention", "situ") && made_by_bytes(graph_.nodes[i].in[o]))
          found[static_cast<int>(i)].push_back(o);
    if (found.empty()) return Status::ok();
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t i = 0; i < nodes.size(); ++i) {
      builder.start(nodes[i]);
      if (const auto it = found.find(static_cast<int>(i)); it != found.end())
        for (const size_t o : it->second) nodes[i].in[o] = builder.cast(nodes[i].in[o], type_);
      builder.keep(std::move(nodes[i]));
    }
    context_.note("attention", "", std::to_string(found.size()) + " read keys and values in " + dtype_name(type_));
    return builder.finish();
  }

 private:
  using Readers = std::vector<std::pair<int, int>>;  // operands of attention nodes

  ValueId stored_rows_of(Builder& builder, ValueId rows) const {
    if (encoding_.plain()) return builder.cast(rows, type_);
    const ValueId stored = builder.op("EncodeRows", {rows}, kNoValue, "situ");
    set_state_encoding(&builder.last(), 0, encoding_);
    return stored;
  }

  bool made_by_bytes(ValueId v) const {
    while (graph_.values[v].info.type == DType::kF32 && graph_.values[v].producer >= 0 && users_[v].size() == 1 &&
           !graph_.is_output(v)) {
      const Node& n = graph_.nodes[graph_.values[v].producer];
      if (n.is("IntegerMatMul", "situ")) return true;
      if (!n.def || n.def->placement != Placement::kView || n.out.size() != 1) return false;
      v = n.in[0];
    }
    return false;
  }

  // The Concat that appends to this float state, if attention is all that reads it; else -1.
  int concat_of(const StatePair& s, Readers* readers) const {
    if (s.past == kNoValue || s.present == kNoValue) return -1;
    const int p = graph_.values[s.present].producer;
    const DType own = graph_.values[s.past].info.type;
    const bool appended = s.rule == StateRule::kAppend && dtype_is_float(own) && own != type_ && p >= 0;
    if (!appended || !graph_.nodes[p].is("Concat") || graph_.nodes[p].in[0] != s.past) return -1;
    const Shape& shape = graph_.values[s.past].info.shape;
    if (!encoding_.plain() && (shape.size() != 4 || s.axis == 3 || !shape[3].is_const())) return -1;
    for (const auto& [u, operand] : users_[s.past])
      if (u != p && !sees_shape(graph_.nodes[u])) return -1;
    return attention_only(s.present, 0, readers) ? p : -1;
  }

  // Encoded rows are longer than the graph has them.
  bool sees_shape(const Node& n) const { return n.is("Shape") && encoding_.plain(); }
  bool keeps_rows(const Node& n) const { return encoding_.plain() || (n.is("Transpose") && n.permutation(4)[3] == 3); }

  bool attention_only(ValueId v, int depth, Readers* readers) const {
    return depth < 8 && std::all_of(
                            users_[v].begin(), users_[v].end(),
                            [&](const auto& use) {
                              const Node& n = graph_.nodes[use.first];
                              if (n.is("Attention", "situ")) {
                                readers->push_back(use);
                                return use.second == 1 || use.second == 2;
                              }
                              const bool view = n.def && n.def->placement == Placement::kView && use.second == 0 &&
                                                n.out.size() == 1 && !graph_.is_output(n.out[0]);
                              return sees_shape(n) ||
                                     (view && keeps_rows(n) && attention_only(n.out[0], depth + 1, readers));
                            });
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  const DType type_;
  const StateEncoding encoding_;  // what integers are; without a size, which each state has of its own
};

// The rows that an encoder writes have the type that the decoder reads.
Status write_sources(PassContext& context) {
  Graph& graph = context.graph;
  std::map<int, DType> found;  // by the node that writes them
  for (const SourceRows& rows : context.sources)
    for (const StatePair& s : context.binding.states) {
      if (s.name != rows.name || s.present == kNoValue || rows.stored == DType::kNone) continue;
      ValueInfo& state = graph.values[s.present].info;
      const int p = graph.values[s.present].producer;
      if (state.type == rows.stored || p < 0 || !graph.nodes[p].is("SetRows", "situ")) continue;
      state.type = rows.stored;
      found[p] = rows.stored;
    }
  if (found.empty()) return Status::ok();
  Builder builder(graph);
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (size_t i = 0; i < nodes.size(); ++i) {
    builder.start(nodes[i]);
    if (const auto it = found.find(static_cast<int>(i)); it != found.end())
      nodes[i].in[0] = builder.cast(nodes[i].in[0], it->second);
    builder.keep(std::move(nodes[i]));
  }
  context.note("states", "", std::to_string(found.size()) + " of sources written as they are stored");
  return builder.finish();
}

}  // namespace

Status store_states(PassContext& context) {
  if (context.encoder) SITU_RETURN_IF_ERROR(write_sources(context));
  if (context.kv_type == DType::kNone) {
    if (!rounds(context.graph) || context.half_values) return Status::ok();
    if (bytes_per_row(context, StateRule::kAppend) >= kSmallRow)
      SITU_RETURN_IF_ERROR(Storer(context, DType::kF16).run());
    if (bytes_per_row(context, StateRule::kSource) >= kSmallRow)
      if (const int count = Storer(context, DType::kF16).read_sources(); count > 0)
        context.note("states", "", std::to_string(count) + " of sources stored as " + dtype_name(DType::kF16));
    return Storer(context, DType::kF16).narrow_products();
  }
  SITU_RETURN_IF_ERROR(Storer(context, context.kv_type).run());
  for (const StatePair& s : context.binding.states) {
    if (s.past == kNoValue) continue;
    if (const Value& v = context.graph.values[s.past]; s.rule == StateRule::kAppend && v.info.type != context.kv_type)
      return Status::error("state '" + v.name + "' cannot be stored as " + dtype_name(context.kv_type) + ": " +
                           (context.kv_type == DType::kI8
                                ? "its rows lie along another axis than the last, or more than attention reads it"
                                : "more than attention reads it as " + std::string(dtype_name(v.info.type))));
  }
  return Status::ok();
}

}  // namespace situ
