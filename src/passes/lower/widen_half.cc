// Half-precision activations become float. No kernel computes in half precision, so every operator would convert its
// operands and round its result, and recognition would have to tell rounding from meaning. Weights and states stay
// half, because memory is what they cost: they are read as they are by the operators that take them
// (Node::mixed_floats), also where the file casts them to float first. Results differ from the file's by the rounding
// that is left out; where bfloat16 rounds integers, as positions beyond 256, they stay rounded. With
// float activations (PassContext) states become float too.
#include <algorithm>
#include <map>
#include <set>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"

namespace situ {
namespace {

bool half(DType t) { return t == DType::kF16 || t == DType::kBF16; }

// Operands that may stay half while the others are float, as a bit set: those that weights and states go into. The
// last bit stands for all operands behind it.
uint32_t mixed_operands(const Node& n) {
  if (n.is("MatMul") || n.is("Gemm") || n.is("FusedMatMul", "com.microsoft")) return 1u << 1;
  if (n.is("MatMulNBits", "com.microsoft")) return ~1u;     // B, scales, zero points, bias
  if (n.is("ExpertMatMul", "situ")) return ~3u;             // bias, and weights: all from bit 2 on
  if (n.is("Attention", "situ")) return 1u << 1 | 1u << 2;  // K, V
  if (n.is("Rotary", "situ")) return 1u << 1 | 1u << 2;     // tables
  return 0;
}

// The operand whose type the output has, of operators that read stored data; -1: no such operator.
int storage_operand(const Node& n) {
  if (n.is("Gather")) return 0;
  if (n.is("GatherBlockQuantized", "com.microsoft")) return 2;
  return n.op == "DequantizeLinear" ? 1 : -1;
}

class Widener {
 public:
  explicit Widener(PassContext& context) : context_(context), graph_(context.graph), builder_(graph_) {}

  Status run() {
    bool any = false;
    for (const Value& v : graph_.values) any = any || half(v.info.type);
    if (!any) return Status::ok();
    context_.half_values = true;
    if (context_.float_activations)
      for (const StatePair& s : context_.binding.states)
        if (s.past != kNoValue && half(type(s.past))) graph_.values[s.past].info.type = DType::kF32;
    std::vector<DType> types;  // as the file has them
    for (const Value& v : graph_.values) types.push_back(v.info.type);
    stays_.assign(graph_.values.size(), 0);
    for (size_t v = 0; v < graph_.values.size(); ++v)
      stays_[v] = half(graph_.values[v].info.type) && graph_.values[v].producer < 0;
    for (size_t v = 0; v < graph_.values.size(); ++v)
      if (half(graph_.values[v].info.type) && graph_.values[v].constant.present())
        weights_.insert(static_cast<ValueId>(v));
    for (const StatePair& s : context_.binding.states)
      if (s.present != kNoValue && half(type(s.present)) && !context_.float_activations) states_[s.present] = &s;
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& n : nodes) rewrite(std::move(n));
    SITU_RETURN_IF_ERROR(builder_.finish());
    graph_.remove_dead_nodes();
    find_rounded(types);
    return Status::ok();
  }

 private:
  // What is made of constants alone was rounded where it, or what it is made of, was in half precision.
  void find_rounded(const std::vector<DType>& types) {
    std::vector<char> fixed(graph_.values.size(), 0);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      fixed[v] = graph_.values[v].constant.present();
      if (fixed[v] && half(type(static_cast<ValueId>(v))))
        context_.rounded[static_cast<ValueId>(v)] = type(static_cast<ValueId>(v));
    }
    for (const Node& n : graph_.nodes) {
      const auto known = [&](ValueId v) { return v == kNoValue || fixed[static_cast<size_t>(v)]; };
      if (n.in.empty() || !std::all_of(n.in.begin(), n.in.end(), known)) continue;
      DType in = DType::kNone;
      for (const ValueId v : n.in)
        if (const auto it = context_.rounded.find(v); it != context_.rounded.end() && in != DType::kBF16)
          in = it->second;
      for (const ValueId v : n.out) {
        if (v == kNoValue) continue;
        fixed[static_cast<size_t>(v)] = 1;
        const DType was = static_cast<size_t>(v) < types.size() ? types[static_cast<size_t>(v)] : DType::kNone;
        if (half(was) || in != DType::kNone) context_.rounded[v] = half(was) ? was : in;
      }
    }
  }

  DType type(ValueId v) const { return graph_.values[v].info.type; }
  bool stays(ValueId v) const { return v != kNoValue && static_cast<size_t>(v) < stays_.size() && stays_[v]; }

  // x as float; the cast is made where it is first needed.
  ValueId wide(ValueId x) {
    if (!stays(x)) return x;
    auto [it, fresh] = wide_.try_emplace(x, kNoValue);
    if (fresh) it->second = builder_.cast(x, DType::kF32);
    return it->second;
  }

  // The stored constant that `x` is a cast of, or views of it in between; kNoValue: none.
  ValueId narrow(ValueId x) const {
    const auto it = narrow_.find(x);
    return it == narrow_.end() ? kNoValue : it->second;
  }

  // Casts of stored constants, and views of them, have a twin in half precision for those who read it so.
  void add_twin(const Node& n) {
    if (n.in.empty() || n.out.size() != 1) return;
    if (n.def && n.def->placement == Placement::kView && weights_.count(n.in[0])) weights_.insert(n.out[0]);
    if (n.is("Cast") && type(n.out[0]) == DType::kF32 && weights_.count(n.in[0])) narrow_[n.out[0]] = n.in[0];
    if (!n.def || n.def->placement != Placement::kView || n.is("Cast") || narrow(n.in[0]) == kNoValue) return;
    Node twin = n;
    twin.in[0] = narrow(n.in[0]);
    twin.out[0] = graph_.add_value(graph_.values[n.out[0]].name + "/half", type(twin.in[0]));
    graph_.values[twin.out[0]].info = graph_.values[n.out[0]].info;
    graph_.values[twin.out[0]].info.type = type(twin.in[0]);
    narrow_[n.out[0]] = twin.out[0];
    builder_.keep(std::move(twin));
  }

  bool rounds_integers(const Node& n) const {
    const DType from = type(n.in[0]);
    return type(n.out[0]) == DType::kBF16 && (from == DType::kI64 || from == DType::kI32);
  }

  // Whether the result is the same half-precision data elsewhere.
  bool keeps(const Node& n) const {
    if (n.in.empty()) return false;
    if (n.is("Cast") && rounds_integers(n)) return true;
    if (n.def && n.def->placement == Placement::kView) return stays(n.in[0]);
    if (!n.is("Concat")) {
      const int i = storage_operand(n);
      return i >= 0 && n.has_input(static_cast<size_t>(i)) && stays(n.in[static_cast<size_t>(i)]);
    }
    const auto state = states_.find(n.out[0]);
    if (state != states_.end() && state->second->rule == StateRule::kAppend) return true;
    for (ValueId v : n.in)
      if (!stays(v)) return false;
    return true;
  }

  // Attributes that say which type comes out.
  static void retype_attributes(Node* n) {
    if (n->is("CastLike") && n->in.size() == 2) {
      n->op = "Cast";
      n->opset = 13;
      n->in.resize(1);
      n->set_int("to", static_cast<int64_t>(DType::kF32));
    }
    for (const char* key : {"to", "dtype"})
      if (n->attr(key) && half(static_cast<DType>(n->attr_int(key, 0))))
        n->set_int(key, static_cast<int64_t>(DType::kF32));
    if (!n->is("ConstantOfShape")) return;
    const auto it = n->attrs.find("value");
    if (it == n->attrs.end() || !half(it->second.tensor.type()) || it->second.tensor.count() != 1) return;
    Tensor one = Tensor::allocate(DType::kF32, {1});
    one.view().as<float>()[0] = static_cast<float>(it->second.tensor.to_f64()[0]);
    it->second.tensor = one;
  }

  void rewrite(Node n) {
    builder_.start(n);
    if (n.is("CastLike") && n.in.size() == 2 && rounds_integers(n)) {
      n.op = "Cast";
      n.opset = 13;
      n.in.resize(1);
      n.set_int("to", static_cast<int64_t>(type(n.out[0])));
      n.def = find_op("", "Cast", 13);
    }
    add_twin(n);
    if (const int i = storage_operand(n);
        i == 0 && narrow(n.in[0]) != kNoValue && n.out.size() == 1) {  // rows of a table: cast when they are read
      const ValueId rows = graph_.add_value(graph_.values[n.out[0]].name + "/half", type(narrow(n.in[0]))),
                    result = n.out[0];
      graph_.values[rows].info = graph_.values[result].info;
      graph_.values[rows].info.type = type(rows);
      n.in[0] = narrow(n.in[0]);
      n.out[0] = rows;
      builder_.keep(std::move(n));
      builder_.cast(rows, DType::kF32, result);
      return;
    }
    const bool half_out = n.has_output(0) && half(type(n.out[0]));
    if (keeps(n)) {
      // New rows of a state are rounded to its type; everything else is half already.
      if (n.is("Concat"))
        for (ValueId& v : n.in)
          if (!half(type(v))) v = builder_.cast(v, type(n.out[0]));
      for (ValueId v : n.out)
        if (v != kNoValue) stays_[v] = half(type(v));
      builder_.keep(std::move(n));
      return;
    }
    if (!n.is("Cast") && !n.is("Shape") && !n.is("Size")) {
      const uint32_t mixed = mixed_operands(n);
      for (size_t i = 0; i < n.in.size(); ++i) {
        if (n.in[i] == kNoValue) continue;
        const bool may = (mixed >> std::min<size_t>(i, 31) & 1) != 0;
        if (may && narrow(n.in[i]) != kNoValue) n.in[i] = narrow(n.in[i]);
        if (!half(type(n.in[i]))) continue;
        if (may)
          n.mixed_floats = true;
        else
          n.in[i] = wide(n.in[i]);
      }
    }
    if (half_out) retype_attributes(&n);
    // A state that is replaced keeps its type, and so does what it is read from in the next step.
    std::vector<std::pair<ValueId, ValueId>> narrowed;
    for (ValueId& v : n.out) {
      if (v == kNoValue || !half(type(v))) continue;
      if (states_.count(v)) {
        const ValueId f = graph_.add_value(graph_.values[v].name + "/float", DType::kF32);
        graph_.values[f].info = graph_.values[v].info;
        graph_.values[f].info.type = DType::kF32;
        wide_[v] = f;
        stays_[v] = 1;
        narrowed.emplace_back(f, v);
        v = f;
      } else {
        graph_.values[v].info.type = DType::kF32;
      }
    }
    builder_.keep(std::move(n));
    for (const auto& [f, v] : narrowed) builder_.cast(f, type(v), v);
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  std::vector<char> stays_;  // by value: half-precision data that is stored
  std::map<ValueId, ValueId> wide_;
  std::set<ValueId> weights_;                   // constants in half precision, and views of them
  std::map<ValueId, ValueId> narrow_;           // by what the file casts to float: where it stands in half precision
  std::map<ValueId, const StatePair*> states_;  // by present
};

}  // namespace

Status widen_half(PassContext& context) { return Widener(context).run(); }

}  // namespace situ
