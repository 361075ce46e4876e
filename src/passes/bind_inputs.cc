// Gives the graph's inputs their meaning and its symbols their names: one sequence (B = 1), S new
// tokens, P past tokens. The attention mask is all ones (sequences are never padded here), so it
// becomes a node that later passes can see through.
#include <algorithm>
#include <set>

#include "ops/op.h"
#include "passes/pass.h"

namespace situ {
namespace {

bool is_integer(DType t) { return t == DType::kI64 || t == DType::kI32; }

// Nothing but the name tells positions from other integers that tokens have, such as timesteps or positions within a block.
bool names_positions(const std::string& name) {
  static const std::set<std::string> names{"position_ids", "cache_position", "positions", "position", "position_id", "pos", "pos_ids", "input_pos", "input_positions", "token_positions", "cache_positions"};
  return names.count(name) != 0;
}

// Ones say "attend to all" in an attention mask; in a padding mask they may say the contrary.
bool names_attention_mask(const std::string& name) { return name.find("att") != std::string::npos && name.find("mask") != std::string::npos && name.find("pad") == std::string::npos && name.find("global") == std::string::npos && name.find("inv") == std::string::npos; }

// "past_key_values.0.key", "present_0_value"
bool names_state(const std::string& name) { return name.starts_with("past") || name.starts_with("present"); }

class Binder {
 public:
  explicit Binder(PassContext& context) : context_(context), graph_(context.graph) {}

  Status run() {
    SITU_RETURN_IF_ERROR(check_configured_names());
    const ValueId ids = find_ids();
    if (ids == kNoValue) return Status::error(describe("no input takes token ids (an integer tensor of shape [batch, sequence])"));
    SITU_RETURN_IF_ERROR(bind_ids(ids));
    find_used();
    for (ValueId v : graph_.outputs) context_.declared_outputs.emplace_back(v, graph_.values[v].info.type);
    std::vector<ValueId> kept;
    for (ValueId v : graph_.inputs) {
      bool keep = true;
      SITU_RETURN_IF_ERROR(bind(v, ids, &keep));
      if (keep) kept.push_back(v);
    }
    graph_.inputs = std::move(kept);
    SITU_RETURN_IF_ERROR(bind_logits(ids));
    SITU_RETURN_IF_ERROR(resolve_ops(graph_));
    return graph_.sort();
  }

 private:
  std::string describe(const std::string& what) const {
    std::string inputs;
    for (ValueId v : graph_.inputs)
      inputs += (inputs.empty() ? "" : ", ") + graph_.values[v].name + " " + dtype_name(graph_.values[v].info.type) +
                shape_str(graph_.values[v].info.shape, &graph_.symbol_names);
    return what + "; inputs are: " + inputs;
  }

  // A name that the configuration gives must be there: a guess in its place would be a wrong answer.
  Status check_configured_names() const {
    const InputNames& n = context_.names;
    const std::pair<const char*, const std::string*> inputs[] = {{"input_ids", &n.input_ids}};
    for (const auto& [role, name] : inputs)
      if (!name->empty() && !has(graph_.inputs, *name)) return Status::error(describe(std::string("the configuration calls ") + role + " '" + *name + "', which the graph does not have"));
    if (!n.logits.empty() && !has(graph_.outputs, n.logits)) return Status::error(describe("the configuration calls the logits '" + n.logits + "', which is no output of the graph"));
    for (const auto& [name_template, list] : {std::pair<const std::string*, const std::vector<ValueId>*>{&n.past_key, &graph_.inputs}, {&n.past_value, &graph_.inputs},
                                              {&n.present_key, &graph_.outputs}, {&n.present_value, &graph_.outputs}})
      SITU_RETURN_IF_ERROR(check_template(*name_template, *list));
    if (!n.attention_mask.empty() && !has(graph_.inputs, n.attention_mask) && has(graph_.inputs, "attention_mask"))
      return Status::error(describe("the configuration calls attention_mask '" + n.attention_mask + "', which the graph does not have"));
    return Status::ok();
  }
  // "past_key_values.%d.key" must name something for some layer.
  Status check_template(const std::string& name, const std::vector<ValueId>& list) const {
    constexpr int kMostLayers = 1024;
    if (name.empty()) return Status::ok();
    const size_t at = name.find("%d");
    bool found = false;
    for (int layer = 0; layer < kMostLayers && at != std::string::npos && !found; ++layer)
      found = has(list, name.substr(0, at) + std::to_string(layer) + name.substr(at + 2));
    return found ? Status::ok() : Status::error(describe("the configuration calls states '" + name + "', which names nothing in the graph"));
  }
  bool has(const std::vector<ValueId>& list, const std::string& name) const {
    return std::any_of(list.begin(), list.end(), [&](ValueId v) { return graph_.values[v].name == name; });
  }

  // What nodes (those of branches too) and outputs read.
  void find_used() {
    used_.insert(graph_.outputs.begin(), graph_.outputs.end());
    for (const Node& n : graph_.nodes) {
      used_.insert(n.in.begin(), n.in.end());
      for (const auto& [key, a] : n.attrs)
        if (a.graph)
          for (const auto& [inner, outer] : a.graph->captures) used_.insert(outer);
    }
  }

  ValueId named(const std::string& configured, std::initializer_list<const char*> usual) const {
    for (ValueId v : graph_.inputs) {
      const std::string& name = graph_.values[v].name;
      if (!configured.empty() ? name == configured
                              : std::any_of(usual.begin(), usual.end(), [&](const char* u) { return name == u; }))
        return v;
    }
    return kNoValue;
  }

  // By name, else the one integer matrix that indexes a table.
  ValueId find_ids() const {
    const ValueId v = named(context_.names.input_ids, {"input_ids", "decoder_input_ids", "tokens"});
    if (v != kNoValue) return v;
    for (const Node& n : graph_.nodes) {
      if ((n.op != "Gather" && n.op != "GatherBlockQuantized") || n.in.size() < 2) continue;
      const bool input = std::find(graph_.inputs.begin(), graph_.inputs.end(), n.in[1]) != graph_.inputs.end();
      const Value& table = graph_.values[n.in[0]];
      if (input && is_integer(graph_.values[n.in[1]].info.type) && table.constant.present() && table.constant.rank() == 2 &&
          graph_.values[n.in[1]].name.find("position") == std::string::npos && !names_positions(graph_.values[n.in[1]].name))
        return n.in[1];
    }
    return kNoValue;
  }

  Status bind_ids(ValueId ids) {
    const ValueInfo& info = graph_.values[ids].info;
    if (!is_integer(info.type) || !info.ranked || info.shape.size() != 2)
      return Status::error(describe("input '" + graph_.values[ids].name + "' should be an integer tensor of shape [batch, sequence]"));
    if (info.shape[0].is_const() && info.shape[0] != Dim(1))
      return Status::error(describe("input '" + graph_.values[ids].name + "' holds a batch of " + info.shape[0].str() + " sequences, only 1 is supported"));
    if (!info.shape[0].is_const() && info.shape[0] == info.shape[1])
      return Status::error(describe("both dims of input '" + graph_.values[ids].name + "' have the same name, so that one cannot be told from the other"));
    replace_symbol(info.shape[0], Dim(1));
    replace_symbol(graph_.values[ids].info.shape[1], tokens());
    graph_.values[ids].info.shape[0] = Dim(1);
    context_.binding.inputs[ids] = InputRole::kTokenIds;
    return Status::ok();
  }

  Dim tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }
  Dim past() const { return context_.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP); }

  // Substitutes a dimension that is a lone file symbol in every input and output.
  void replace_symbol(const Dim symbol, const Dim& by) {
    if (symbol.is_const()) return;
    int id = -1;
    for (int s = kFirstFileSymbol; s < kMaxSymbols && id < 0; ++s)
      if (symbol == Dim::symbol(s)) id = s;
    if (id < 0) return;
    for (const auto* list : {&graph_.inputs, &graph_.outputs})
      for (ValueId v : *list)
        for (Dim& d : graph_.values[v].info.shape) d = d.substitute(id, by);
  }

  Status bind(ValueId v, ValueId ids, bool* keep) {
    if (v == ids) return Status::ok();
    Value& value = graph_.values[v];
    const std::string& name = value.name;
    const ValueInfo& info = value.info;
    const Dim total = past() + tokens();
    // Declared, but nothing reads it. What looks like a state is refused below: something must have been meant by it.
    if (!used_.count(v) && (is_integer(info.type) || info.shape.size() < 3)) {
      *keep = false;
      return Status::ok();
    }
    const bool is_mask = context_.names.attention_mask.empty() ? name == "attention_mask" : name == context_.names.attention_mask;
    // A row for each new token: the host would have to say which keys each may see. Ones would show it later ones.
    const bool by_query = info.shape.size() == 2 && !info.shape[0].is_const() && info.shape[0] == tokens();
    if (is_mask && info.shape.size() == 2 && !by_query) {
      *keep = false;
      return make_ones(v, {Dim(1), total});
    }
    if (is_mask)
      return Status::error(describe("input '" + name + "' " + shape_str(info.shape, &graph_.symbol_names) + " is a mask of " + std::to_string(info.shape.size()) + " dims that the host would have to make; masks of [batch, tokens] are supported"));
    const bool is_positions = context_.names.position_ids.empty() ? names_positions(name) : name == context_.names.position_ids;
    if (is_positions && is_integer(info.type) && !info.shape.empty()) {
      const Dim& given = info.shape.back();
      if (given.is_const() && given != graph_.values[ids].info.shape[1])
        return Status::error(describe("input '" + name + "' " + shape_str(info.shape, &graph_.symbol_names) + " is not a position for each token: where a step begins, or another thing"));
      Shape shape(info.shape.size(), Dim(1));
      if (info.shape.size() == 3) shape[0] = info.shape[0].is_const() ? info.shape[0] : Dim(3);
      shape.back() = tokens();
      graph_.values[v].info.shape = shape;
      context_.binding.inputs[v] = InputRole::kPositions;
      return Status::ok();
    }
    if (name == "use_cache_branch" && info.type == DType::kBool) {
      *keep = false;
      return make_ones(v, info.shape.empty() ? Shape{} : Shape{Dim(1)});
    }
    if (name == "num_logits_to_keep" && is_integer(info.type)) {
      *keep = false;
      return make_ones(v, info.shape.empty() ? Shape{} : Shape{Dim(1)});
    }
    // A name like that, where nothing else is possible: integers for more tokens than the new ones, which no output continues, and
    // which go into the scores of an attention.
    if (is_integer(info.type) && info.shape.size() == 2 && context_.names.attention_mask.empty() && !has(graph_.inputs, "attention_mask") && !info.shape[1].is_const() &&
        info.shape[1] != tokens() && !by_query && names_attention_mask(name) && axis_of_user(v, 2) < 0 && masks_scores(v)) {
      context_.note("attention mask", name, "by its name and its shape");
      *keep = false;
      return make_ones(v, {Dim(1), total});
    }
    const int axis = growth_axis(v);
    if (info.shape.size() < 2 || (info.shape.size() < 3 && (axis < 0 || is_integer(info.type))))
      return Status::error(describe("input '" + name + "' has no known meaning" + (context_.names.attention_mask.empty() ? "" : " (the configuration calls the attention mask '" + context_.names.attention_mask + "')")));
    Shape shape = info.shape;
    for (size_t i = 0; i < shape.size(); ++i)
      if (static_cast<int>(i) == axis) shape[i] = past();
      else if (i == 0 && !shape[i].is_const()) shape[i] = Dim(1);
    graph_.values[v].info.shape = shape;
    context_.binding.inputs[v] = InputRole::kState;
    return Status::ok();
  }

  // Whether it reaches a softmax or an attention without a product on the way; sums of it are lengths.
  bool masks_scores(ValueId mask) const {
    std::set<ValueId> of_it{mask};
    for (size_t before = 0; before != of_it.size();) {
      before = of_it.size();
      for (const Node& n : graph_.nodes) {
        if (std::none_of(n.in.begin(), n.in.end(), [&](ValueId x) { return of_it.count(x) != 0; })) continue;
        if (n.op == "Softmax" || n.op == "GroupQueryAttention" || n.op == "MultiHeadAttention" || n.op == "Attention") return true;
        const bool mixes = n.op.find("MatMul") != std::string::npos || n.op == "Gemm" || n.op.find("Norm") != std::string::npos || (n.op.rfind("Reduce", 0) == 0 && n.op != "ReduceSum");
        if (!mixes) of_it.insert(n.out.begin(), n.out.end());
      }
    }
    return false;
  }

  // A constant where the shape is known, else a ConstantOfShape node whose shape operand has content.
  Status make_ones(ValueId v, Shape shape) {
    const DType type = graph_.values[v].info.type;
    Tensor one = Tensor::allocate(type, {1});
    switch (type) {
      case DType::kI64: *one.view().as<int64_t>() = 1; break;
      case DType::kI32: *one.view().as<int32_t>() = 1; break;
      case DType::kF32: *one.view().as<float>() = 1; break;
      case DType::kBool: *one.view().as<uint8_t>() = 1; break;
      default:
        return Status::error(describe("input '" + graph_.values[v].name + "' of type " + dtype_name(type) + " is not supported"));
    }
    if (shape_is_const(shape)) {
      graph_.values[v].constant = one.reshaped(shape_values(shape));
      graph_.values[v].info = info_of(graph_.values[v].constant);
      return Status::ok();
    }
    const ValueId dims = graph_.add_value(graph_.values[v].name + "/shape", DType::kI64);
    ValueInfo& info = graph_.values[dims].info;
    info.ranked = true;
    info.shape = {Dim(static_cast<int64_t>(shape.size()))};
    info.content = shape;
    Node n;
    n.name = graph_.values[v].name;
    n.op = "ConstantOfShape";
    n.opset = 9;
    n.in = {dims};
    n.out = {v};
    Attribute value;
    value.kind = Attribute::Kind::kTensor;
    value.tensor = one;
    n.attrs["value"] = value;
    graph_.nodes.insert(graph_.nodes.begin(), std::move(n));
    return Status::ok();
  }

  // The axis of a past input that grows: told by the Concat or the fused operator that it feeds; else by
  // the name of its symbol; else axis 2 of [batch, heads, past, size]. -1: none.
  int growth_axis(ValueId v) const {
    const Shape& shape = graph_.values[v].info.shape;
    const int rank = static_cast<int>(shape.size()), told = axis_of_user(v, rank);
    if (told >= 0) return told;
    for (int i = 0; i < rank; ++i)
      if (!shape[static_cast<size_t>(i)].is_const() && shape[static_cast<size_t>(i)].str(&graph_.symbol_names).find("past") != std::string::npos) return i;
    return rank == 4 && !shape[2].is_const() ? 2 : -1;
  }
  bool known_extent(ValueId v, int64_t axis) const {
    const ValueInfo& info = graph_.values[v].info;
    return info.ranked && axis < static_cast<int64_t>(info.shape.size()) && info.shape[static_cast<size_t>(axis)].is_const() && info.shape[static_cast<size_t>(axis)].value() > 0;
  }
  int axis_of_user(ValueId v, int rank) const {
    for (const Node& n : graph_.nodes) {
      if (n.is("Concat") && !n.in.empty() && n.in[0] == v) {
        const int64_t a = n.attr_int("axis", 0);
        const int64_t axis = a < 0 ? a + rank : a;
        // A known extent does not grow: the last rows of a convolution are as many before and after.
        if (axis >= 0 && axis < rank && !known_extent(v, axis)) return static_cast<int>(axis);
      }
      if (n.is("Transpose") && !n.in.empty() && n.in[0] == v) {  // a cache in another layout than the attention's
        const std::vector<int64_t> perm = n.permutation(static_cast<size_t>(rank));
        const int inner = static_cast<int>(perm.size()) == rank ? axis_of_user(n.out[0], rank) : -1;
        if (inner >= 0) return static_cast<int>(perm[static_cast<size_t>(inner)]);
      }
      const bool fused = n.op == "GroupQueryAttention" || n.op == "MultiHeadAttention" || n.op == "Attention";
      if (fused && std::find(n.in.begin(), n.in.end(), v) != n.in.end() && rank >= 4) return rank - 2;
    }
    return -1;
  }

  // Rows of the table that the ids index; 0: not known here.
  int64_t vocabulary(ValueId ids) const {
    for (const Node& n : graph_.nodes) {
      if ((n.op != "Gather" && n.op != "GatherBlockQuantized") || n.in.size() < 2 || n.in[1] != ids) continue;
      const Shape& table = graph_.values[n.in[0]].info.shape;
      if (!table.empty() && table[0].is_const()) return table[0].value();
    }
    return 0;
  }

  // By name, else the one float output of at most 3 dims that is not named like a state; of several, the one as wide as the vocabulary.
  Status bind_logits(ValueId ids) {
    ValueId logits = kNoValue;
    for (ValueId v : graph_.outputs) {
      const std::string& name = graph_.values[v].name;
      if (context_.names.logits.empty() ? name == "logits" : name == context_.names.logits) logits = v;
    }
    std::vector<ValueId> others, wide;
    for (ValueId v : graph_.outputs) {
      const ValueInfo& info = graph_.values[v].info;
      if (logits != kNoValue || names_state(graph_.values[v].name) || info.shape.size() > 3 || !(info.type == DType::kNone || dtype_is_float(info.type))) continue;
      others.push_back(v);
      if (!info.shape.empty() && info.shape.back() == Dim(vocabulary(ids))) wide.push_back(v);
    }
    const std::vector<ValueId>& found = others.size() > 1 ? wide : others;
    if (found.size() == 1) logits = found[0];
    else if (others.size() > 1) {
      std::string names;
      for (ValueId v : others) names += (names.empty() ? "" : ", ") + graph_.values[v].name + " " + shape_str(graph_.values[v].info.shape, &graph_.symbol_names);
      return Status::error("which output holds the logits? None is called 'logits', and these may be: " + names);
    }
    if (logits == kNoValue && !graph_.outputs.empty()) logits = graph_.outputs[0];
    if (logits == kNoValue) return Status::error("the graph has no outputs");
    context_.binding.logits = logits;
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  std::set<ValueId> used_;
};

}  // namespace

Status bind_inputs(PassContext& context) { return Binder(context).run(); }

}  // namespace situ
