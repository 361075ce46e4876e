// Finds the states: outputs that are made of an input and new rows (append), or that have a namesake
// among the inputs. The pairs come from what the graph computes; names only settle what is left.
#include "passes/states/find_states.h"

#include <algorithm>
#include <tuple>

#include "base/reasons.h"
#include "passes/context/pass_context.h"
#include "passes/host/equal_operand.h"
#include "passes/module/module.h"
#include "passes/states/passes.h"

namespace situ {

Status no_past() {
  const std::string what =
      "the graph has no past inputs: it was exported without a cache, and every step would see one token alone";
  return Status::error(what).because({{.kind = Reason::Kind::kState,
                                       .op = "",
                                       .detail = what,
                                       .advice = "export with a cache: optimum-cli export onnx --task "
                                                 "text-generation-with-past, or onnxruntime-genai's builder"}});
}

namespace {

// Through nodes that change nothing.
ValueId origin(const Graph& graph, ValueId v) {
  while (graph.values[v].producer >= 0) {
    const ValueId x = equal_operand(graph, graph.nodes[graph.values[v].producer]);
    if (x == kNoValue) break;
    v = x;
  }
  return v;
}

// Where a value comes from through casts between floats of different width, which change nothing that a state has been
// through, and transposes. axes[i]: the axis of `value` that axis i of the other end is.
struct Origin {
  ValueId value = kNoValue;
  std::vector<int> axes;
};
Origin stored_origin(const Graph& graph, ValueId v) {
  auto real = [&](ValueId x) {
    return dtype_is_float(graph.values[x].info.type) && dtype_bytes(graph.values[x].info.type) >= 2;
  };
  Origin o;
  for (size_t i = 0; i < graph.values[v].info.shape.size(); ++i) o.axes.push_back(static_cast<int>(i));
  for (v = origin(graph, v); graph.values[v].producer >= 0; v = origin(graph, v)) {
    const Node& n = graph.nodes[graph.values[v].producer];
    const bool cast = n.is("Cast") && real(v) && real(n.in[0]) &&
                      dtype_bytes(graph.values[v].info.type) != dtype_bytes(graph.values[n.in[0]].info.type);
    const std::vector<int64_t> perm = n.is("Transpose") ? n.permutation(o.axes.size()) : std::vector<int64_t>{};
    if (!cast && perm.size() != o.axes.size()) break;
    if (!cast)
      for (int& axis : o.axes) axis = static_cast<int>(perm[static_cast<size_t>(axis)]);
    v = n.in[0];
  }
  o.value = v;
  return o;
}

std::string made_by(const Graph& graph, ValueId out) {
  const int p = graph.values[origin(graph, out)].producer;
  return p < 0 ? "an input" : graph.nodes[p].label();
}

// Whether a DequantizeLinear gives what a step hands on (round_states): rows that were rounded are so once more.
bool rounds_anew(const Graph& graph, ValueId out) {
  const Node* back = graph.producer(origin(graph, out), "DequantizeLinear");
  return back && graph.producer(back->in[0], "QuantizeLinear");
}

// "past_key_values.%d.key" and "past_key_values.3.key" -> "3"; "" where the name is none of the template's.
std::string layer_in(const std::string& name_template, const std::string& name) {
  const size_t at = name_template.find("%d");
  if (at == std::string::npos) return "";
  const std::string before = name_template.substr(0, at), after = name_template.substr(at + 2);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return "";
  const std::string layer = name.substr(at, name.size() - before.size() - after.size());
  return layer.find_first_not_of("0123456789") == std::string::npos ? layer : "";
}

// What a name says: whether it is of a key or of a value, or neither, and the numbers in it, without zeros before them.
struct Said {
  std::string kind;
  std::vector<std::string> numbers;
  bool operator==(const Said&) const = default;
};
Said said_by(const std::string& suffix) {
  Said said;
  const bool key = suffix.find("key") != std::string::npos, value = suffix.find("value") != std::string::npos;
  if (key != value) said.kind = key ? "key" : "value";
  bool digit = false;
  for (const char c : suffix) {
    const bool before = digit;
    digit = c >= '0' && c <= '9';
    if (!digit) continue;
    if (!before) said.numbers.emplace_back();
    if (said.numbers.back() == "0") said.numbers.back().clear();
    said.numbers.back() += c;
  }
  return said;
}

// A host that goes by the names would hand another state back, where these say in a circle who continues whom: "past.0"
// and "past.1" as each other's. Names that only count otherwise (from 1, with the element type) say nothing.
Status check_circles(const Graph& graph, const std::vector<StatePair>& states) {
  std::vector<size_t> next(states.size());  // the state whose present has the name that this one's past asks for
  for (size_t i = 0; i < states.size(); ++i) {
    next[i] = states.size();
    if (states[i].past == kNoValue || states[i].present == kNoValue) continue;
    const Said wanted = said_by(state_suffix(graph.values[states[i].past].name));
    next[i] = states.size();
    for (size_t j = 0; j < states.size() && !(wanted.kind.empty() && wanted.numbers.empty()); ++j)
      if (states[j].present != kNoValue && said_by(state_suffix(graph.values[states[j].present].name)) == wanted &&
          (next[i] == states.size() || j == i))
        next[i] = j;
  }
  for (size_t i = 0; i < states.size(); ++i) {
    size_t end = next[i];
    for (size_t steps = 0; steps < states.size() && end != states.size() && end != i; ++steps) end = next[end];
    if (end == i && next[i] != i)
      return Status::error("state '" + graph.values[states[i].past].name + "' is continued by '" +
                           graph.values[states[i].present].name + "' in the graph; by their names it is by '" +
                           graph.values[states[next[i]].present].name + "'");
  }
  return Status::ok();
}

// The pairs of the configuration must be those of the graph.
Status check_configuration(const Graph& graph, const StatePair& s, const InputNames& names) {
  if (s.past == kNoValue || s.present == kNoValue) return Status::ok();
  const std::string &past = graph.values[s.past].name, &present = graph.values[s.present].name;
  for (const auto& [of_past, of_present, of_other] :
       {std::tuple{names.past_key, names.present_key, names.present_value},
        {names.past_value, names.present_value, names.present_key}}) {
    const std::string layer = layer_in(of_past, past);
    if (!layer.empty() && of_other != of_present && !layer_in(of_other, present).empty() &&
        layer_in(of_present, present).empty())
      return Status::error("state '" + past + "' is continued by '" + present + "' in the graph, and by '" +
                           of_present + "' in the configuration");
    if (layer.empty() || of_present.empty() || layer_in(of_present, present) == layer) continue;
    return Status::error("state '" + past + "' is continued by '" + present + "' in the graph, and by layer " + layer +
                         " of '" + of_present + "' in the configuration");
  }
  return Status::ok();
}

// A past has as many rows as there were tokens, along the axis on which rows are appended; its other extents are known.
Status check_growth(const PassContext& context, const StatePair& s) {
  if (s.past == kNoValue) return Status::ok();
  const Value& past = context.graph.values[s.past];
  const Dim tokens = context.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP);
  for (size_t i = 0; i < past.info.shape.size() && s.rule != StateRule::kPassThrough; ++i) {
    const bool grows = s.rule == StateRule::kAppend && static_cast<int>(i) == s.axis;
    if (grows ? past.info.shape[i] == tokens : past.info.shape[i].is_const()) continue;
    const std::string extent = "its extent " + past.info.shape[i].str(&context.graph.symbol_names());
    return Status::error("state '" + past.name + "' " + shape_str(past.info.shape, &context.graph.symbol_names()) +
                         ": " +
                         (grows ? "'" + context.graph.values[s.present].name + "' appends along axis " +
                                      std::to_string(i) + ", and " + extent + " is not told to be the tokens before"
                                : extent + " on axis " + std::to_string(i) + " is not known"));
  }
  return Status::ok();
}

bool configures_states(const InputNames& names) {
  return !names.past_key.empty() && !names.present_key.empty() && !names.past_value.empty() &&
         !names.present_value.empty();
}

}  // namespace

// Rows of output `out` that SetRows writes along `axis` of a state.
static ValueId set_rows(Graph& graph, ValueId out, int axis) {
  Node n;
  n.name = graph.values[out].name;
  n.op = "SetRows";
  n.domain = "situ";
  n.opset = 1;
  n.in = {out};
  n.set_int("axis", axis);
  const ValueId rows = graph.add_value(n.name, graph.values[out].info.type);
  graph.values[rows].info = graph.values[out].info;
  n.out = {rows};
  graph.add_node(std::move(n));
  return rows;
}

// An encoder's outputs are rows of sources: written where they will be read.
static Status write_sources(PassContext& context) {
  Graph& graph = context.graph;
  for (const SourceRows& s : context.sources)
    for (ValueId& out : graph.outputs) {
      if (graph.values[out].name != s.output) continue;
      if (s.axis >= static_cast<int>(graph.values[out].info.shape.size()))
        return Status::error("output '" + s.output + "' " + shape_str(graph.values[out].info.shape) + " has no axis " +
                             std::to_string(s.axis));
      if (context.literal) {
        context.binding.states.push_back({kNoValue, out, StateRule::kSource, s.axis, s.name});
        continue;
      }
      out = set_rows(graph, out, s.axis);
      graph.values[out].name += "/rows";
      context.binding.states.push_back({kNoValue, out, StateRule::kSource, s.axis, s.name});
    }
  SITU_RETURN_IF_ERROR(resolve_ops(graph));
  return graph.sort();
}

// The rows of a first call, where the graph has no past inputs: a state for each output that has a row for each token.
static Status start_states(PassContext& context) {
  Graph& graph = context.graph;
  for (ValueId& out : graph.outputs) {
    const bool source = std::any_of(context.sources.begin(), context.sources.end(),
                                    [&](const SourceRows& s) { return s.output == graph.values[out].name; });
    if (source) continue;
    const Shape shape = graph.values[out].info.shape;
    int axis = -1;
    for (size_t a = 1; a < shape.size(); ++a)
      if (shape[a] == Dim::symbol(kSymS)) axis = static_cast<int>(a);
    const std::string name = state_suffix(graph.values[out].name);
    if (out == context.binding.logits || axis < 0 || name.empty()) continue;
    if (context.literal) {
      context.binding.states.push_back({kNoValue, out, StateRule::kAppend, axis, name});
      continue;
    }
    out = set_rows(graph, out, axis);
    context.binding.states.push_back({kNoValue, out, StateRule::kAppend, axis, name});
  }
  SITU_RETURN_IF_ERROR(resolve_ops(graph));
  return graph.sort();
}

constexpr int64_t kMostZeros = int64_t{1} << 30;  // bytes

// A state that every step hands on as it is stays what a sequence begins with: zeros. Nothing is kept for it.
static Status leave_out_passed(PassContext& context) {
  Graph& graph = context.graph;
  std::vector<StatePair>& states = context.binding.states;
  for (const StatePair& s : states) {
    if (s.rule != StateRule::kPassThrough) continue;
    std::erase(graph.outputs, s.present);
    std::erase(graph.inputs, s.past);
    context.binding.inputs.erase(s.past);
  }
  graph.remove_dead_nodes();
  const auto readers = graph.users();
  for (const StatePair& s : states) {
    if (s.rule != StateRule::kPassThrough) continue;
    Value& past = graph.values[s.past];
    const bool read = !readers[static_cast<size_t>(s.past)].empty();
    const std::string what = "state '" + past.name + "' " + shape_str(past.info.shape, &graph.symbol_names());
    if (read && !shape_is_const(past.info.shape))
      return Status::error(what + " is handed on as it is: its extents are not known");
    int64_t bytes = std::max<int64_t>(1, dtype_bytes(past.info.type));
    for (size_t i = 0; read && i < past.info.shape.size(); ++i)
      if (__builtin_mul_overflow(bytes, past.info.shape[i].value(), &bytes) || bytes < 0 || bytes > kMostZeros)
        return Status::error(what + " is too large: it takes more than " + std::to_string(kMostZeros) + " bytes");
    context.note("state handed on", past.name, "zeros at every step");
    if (!read) continue;
    past.constant = Tensor::allocate(past.info.type, shape_values(past.info.shape));
    past.info = info_of(past.constant);
  }
  std::erase_if(states, [](const StatePair& s) { return s.rule == StateRule::kPassThrough; });
  return Status::ok();
}

// A state without numbers, as a convolution of one tap has, holds nothing: what reads it reads a constant.
static void drop_empty_states(PassContext& context) {
  Graph& graph = context.graph;
  Binding& binding = context.binding;
  const auto is_empty = [&](ValueId v) {
    const ValueInfo& info = graph.values[v].info;
    return info.ranked && shape_is_const(info.shape) && shape_count(info.shape) == Dim(0);
  };
  std::erase_if(graph.inputs, [&](ValueId v) {
    const auto role = binding.inputs.find(v);
    if (role == binding.inputs.end() || role->second != InputRole::kState || !is_empty(v)) return false;
    Value& value = graph.values[v];
    value.constant = Tensor::allocate(value.info.type, shape_values(value.info.shape));
    binding.inputs.erase(role);
    return true;
  });
  std::erase_if(graph.outputs, [&](ValueId v) { return v != binding.logits && is_empty(v); });
}

Status find_states(PassContext& context) {
  Graph& graph = context.graph;
  Binding& binding = context.binding;
  binding.states.clear();
  if (!context.literal) drop_empty_states(context);
  if (context.encoder) return write_sources(context);
  for (const auto& [v, declared] : context.declared_outputs) {
    const Value& value = graph.values[v];
    if (declared != DType::kNone && value.info.type != DType::kNone && value.info.type != declared)
      return Status::error("output '" + value.name + "' is declared " + dtype_name(declared) + " and computed as " +
                           dtype_name(value.info.type));
  }
  std::vector<ValueId> unpaired;
  std::vector<StatePair> sources;
  for (const SourceRows& s : context.sources)
    for (const auto& [v, role] : binding.inputs)
      if (graph.values[v].name == s.input) sources.push_back({v, kNoValue, StateRule::kSource, s.axis, s.name});
  for (const SourceRows& s : context.sources)  // of a first call, which makes them
    for (const ValueId out : graph.outputs)
      if (s.input.empty() && graph.values[out].name == s.output)
        sources.push_back({kNoValue, out, StateRule::kSource, s.axis, s.name});
  for (const auto& [v, role] : binding.inputs)
    if (role == InputRole::kState &&
        std::none_of(sources.begin(), sources.end(), [&, in = v](const StatePair& s) { return s.past == in; }))
      unpaired.push_back(v);
  if (unpaired.empty() && context.phase == Phase::kFirst) SITU_RETURN_IF_ERROR(start_states(context));

  std::vector<StatePair> candidates;
  auto pair_up = [&](ValueId past, ValueId present, StateRule rule, int axis) {
    const std::string suffix = state_suffix(graph.values[past].name);
    binding.states.push_back({past, present, rule, axis, suffix.empty() ? graph.values[past].name : suffix});
    unpaired.erase(std::remove(unpaired.begin(), unpaired.end(), past), unpaired.end());
  };
  for (ValueId out : graph.outputs) {
    if (out == binding.logits) continue;
    const ValueId made = origin(graph, out);
    if (std::find(unpaired.begin(), unpaired.end(), made) != unpaired.end()) {
      candidates.push_back({made, out, StateRule::kPassThrough, 0});
      continue;
    }
    const Origin grown = stored_origin(graph, out);
    if (graph.values[grown.value].producer < 0) continue;
    const Node& n = graph.nodes[graph.values[grown.value].producer];
    if (!n.is("Concat") || n.in.size() != 2) continue;
    const Origin past = stored_origin(graph, n.in[0]);
    if (std::find(unpaired.begin(), unpaired.end(), past.value) == unpaired.end() ||
        past.axes.size() != grown.axes.size())
      continue;
    if (graph.values[past.value].info.type != graph.values[out].info.type) continue;
    // The way out must undo the layout of the way in.
    const int rank = static_cast<int>(past.axes.size());
    const int64_t axis = n.attr_int("axis", 0);
    int outer = -1;
    bool undone = true;
    for (int i = 0; i < rank; ++i) {
      undone = undone && past.axes[static_cast<size_t>(grown.axes[static_cast<size_t>(i)])] == i;
      if (grown.axes[static_cast<size_t>(i)] == (axis < 0 ? axis + rank : axis)) outer = i;
    }
    if (undone && outer >= 0) candidates.push_back({past.value, out, StateRule::kAppend, outer});
  }
  // Of several outputs that continue one input the namesake; nothing else tells which of them a host would hand back.
  for (const StatePair& c : candidates) {
    if (std::find(unpaired.begin(), unpaired.end(), c.past) == unpaired.end()) continue;
    std::vector<StatePair> same, namesakes;
    const std::string suffix = state_suffix(graph.values[c.past].name);
    for (const StatePair& o : candidates) {
      if (o.past != c.past) continue;
      same.push_back(o);
      if (!suffix.empty() && state_suffix(graph.values[o.present].name) == suffix) namesakes.push_back(o);
    }
    if (same.size() > 1 && namesakes.size() != 1)
      return Status::error("outputs '" + graph.values[same[0].present].name + "' and '" +
                           graph.values[same[1].present].name + "' both continue the state '" +
                           graph.values[c.past].name + "'");
    const StatePair& chosen = same.size() > 1 ? namesakes[0] : c;
    pair_up(chosen.past, chosen.present, chosen.rule, chosen.axis);
  }
  ReasonList refused;
  const std::vector<ValueId> rest = unpaired;
  for (ValueId past : rest) {
    const std::string suffix = state_suffix(graph.values[past].name);
    for (ValueId out : graph.outputs) {
      const bool taken = std::any_of(binding.states.begin(), binding.states.end(),
                                     [&](const StatePair& s) { return s.present == out; });
      if (out == binding.logits || taken || suffix.empty() || state_suffix(graph.values[out].name) != suffix) continue;
      const Value &before = graph.values[past], &after = graph.values[out];
      if (before.info.type != after.info.type)
        refused.add(Status::error("state '" + before.name + "' is " + dtype_name(before.info.type) + " and '" +
                                  after.name + "', which continues it, " + dtype_name(after.info.type) +
                                  ": the host would have to convert all of it after every step"),
                    Reason::Kind::kState);
      else if (!(before.info.shape == after.info.shape))
        refused.add(Status::error("state '" + before.name + "' " + shape_str(before.info.shape) + " -> '" + after.name +
                                  "' " + shape_str(after.info.shape) +
                                  " neither appends along one axis nor keeps its shape: " + made_by(graph, out) +
                                  (rounds_anew(graph, out) ? " rounds all of it anew at each step, by other numbers"
                                                           : " does not append to it")),
                    Reason::Kind::kState);
      pair_up(past, out, StateRule::kReplace, 0);
      break;
    }
  }
  for (const ValueId past : unpaired)
    refused.add(Status::error("input '" + graph.values[past].name + "' " + shape_str(graph.values[past].info.shape) +
                              " looks like a state, but no output continues it: appends to it along one axis or "
                              "keeps its shape"),
                Reason::Kind::kState);
  if (!refused.empty()) return refused.status();
  for (const StatePair& s : binding.states) SITU_RETURN_IF_ERROR(check_growth(context, s));
  for (const StatePair& s : binding.states) SITU_RETURN_IF_ERROR(check_configuration(graph, s, context.names));
  if (!configures_states(context.names)) SITU_RETURN_IF_ERROR(check_circles(graph, binding.states));
  if (!context.literal) SITU_RETURN_IF_ERROR(leave_out_passed(context));
  const bool cache = !binding.states.empty();
  binding.states.insert(binding.states.end(), sources.begin(), sources.end());
  if (!cache) return no_past();
  return Status::ok();
}

}  // namespace situ
