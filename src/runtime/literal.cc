#include "runtime/literal.h"

#include <algorithm>
#include <cmath>

#include "base/assign.h"
#include "runtime/host_integers.h"

namespace situ {
namespace {

// What the host makes for an input: token ids, positions, the source's mask, integers that shapes tell.
Result<Tensor> host_input(const Compiled& compiled, ValueId v, const SymbolValues& symbols, const LiteralStep& step) {
  const Value& value = compiled.graph.values[v];
  const DType type = value.info.type;
  if (!host_writes(type))
    return Status::error("'" + value.name + "' is " + dtype_name(type) + ": the host makes int64, int32 and bool only");
  const auto fed = compiled.binding.inputs.find(v);
  const bool mask = fed != compiled.binding.inputs.end() && fed->second == InputRole::kSourceMask;
  std::vector<int64_t> dims = shape_eval(value.info.shape, symbols);
  if (mask && step.source_length > 0) dims.back() = step.source_length;
  Tensor t = Tensor::allocate(type, dims);
  auto put = [&](int64_t i, int64_t x) { write_integer(t.view().data, type, i, x); };
  if (value.info.content) {
    for (size_t i = 0; i < value.info.content->size(); ++i)
      put(static_cast<int64_t>(i), (*value.info.content)[i].eval(symbols));
    return t;
  }
  const int64_t count = static_cast<int64_t>(step.tokens.size());
  for (int64_t i = 0; i < t.count(); ++i)
    put(i, mask                                    ? 1
           : fed->second == InputRole::kTokenTypes ? 0
           : fed->second == InputRole::kTokenIds   ? step.tokens[static_cast<size_t>(i % count)]
           : step.positions                        ? step.positions[i / count % 3 * step.position_stride + i % count]
                            : (step.first_position < 0 ? symbols[kSymP] : step.first_position) + i % count);
  return t;
}

// Rows like those that a norm leaves: uniform in [-1, 1).
Tensor random_rows(DType type, const std::vector<int64_t>& dims, uint32_t seed) {
  Tensor t = Tensor::allocate(type, dims);
  uint32_t x = seed * 2654435761u + 12345u;
  for (int64_t i = 0; i < t.count(); ++i) {
    x = x * 1664525u + 1013904223u;
    if (type == DType::kF32)
      t.view().as<float>()[i] = static_cast<float>(x >> 8) / 8388608.0f - 1.0f;
    else if (type == DType::kF16)  // +-1: the sign and an exponent of 15
      t.view().as<uint16_t>()[i] = static_cast<uint16_t>(0x3c00u | ((x >> 16) & 0x8000u));
  }
  return t;
}

std::vector<double> last_row(const Tensor& logits) {
  const std::vector<double> all = logits.to_f64();
  const int64_t width = logits.rank() > 0 ? logits.dims().back() : 1;
  return {all.end() - std::min<int64_t>(width, static_cast<int64_t>(all.size())), all.end()};
}

// Largest difference, as a part of the largest number.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(a[i]));
  }
  return most / largest;
}

constexpr int64_t kProbedRows = 11;  // of a source
constexpr double kSame = 1e-4;       // sums in another order; another mask or other weights differ by far more
constexpr size_t kMostReach = 256;   // in tokens, of which about six times as many are run

bool alike(const std::vector<double>& a, const std::vector<double>& b) { return difference(a, b) < kSame; }

// How far apart logits of graphs may be that mean the same: those that compute in halves round at other places where
// other operators were fused.
double rounding_of(const Graph& graph) {
  constexpr double kHalf = 1e-2, kShort = 5e-2;
  double most = kSame;
  for (const Node& n : graph.nodes)
    for (const ValueId v : n.out)
      if (const DType type = v == kNoValue ? DType::kNone : graph.values[v].info.type; type == DType::kF16)
        most = std::max(most, kHalf);
      else if (type == DType::kBF16)
        most = std::max(most, kShort);
  return most;
}

// The cached calls of a module's decoder, for any step, or else for single tokens.
Result<Compiled> compile_cached(const Module& module, const EngineOptions& options, Phase* phase) {
  Result<Compiled> cached = compile_literally(module.literal_decode, module, options, *phase = Phase::kAny);
  return cached.is_ok() ? std::move(cached)
                        : compile_literally(module.literal_decode, module, options, *phase = Phase::kDecode);
}

std::map<std::string, Tensor> random_sources(const Compiled& compiled) {
  SymbolValues symbols;
  symbols[kSymE] = kProbedRows;
  std::map<std::string, Tensor> sources;
  for (const StatePair& s : compiled.binding.states)
    if (s.rule == StateRule::kSource && s.past != kNoValue) {
      const ValueInfo& info = compiled.graph.values[s.past].info;
      sources[s.name] = random_rows(info.type, shape_eval(info.shape, symbols), 1);
    }
  return sources;
}

}  // namespace

bool same_in_parts(const Compiled& compiled, Evaluator& evaluator) {
  std::vector<int64_t> ids{1, 2, 4, 3, 6, 1, 5, 2, 0, 3, 3, 6, 4};
  const size_t few = ids.size(), reach = static_cast<size_t>(std::max<int64_t>(0, compiled.order.reach));
  if (reach > kMostReach) return false;
  for (size_t i = few; i < 2 * reach + few; ++i) ids.push_back(static_cast<int64_t>((i * i + i / 2) % 7));
  const auto feed = [&](const std::vector<size_t>& parts) -> Result<LiteralResult> {
    LiteralResult so_far;
    size_t past = 0;
    for (const size_t count : parts) {
      Result<LiteralResult> made = run_literally(
          compiled, {std::span(ids).subspan(past, count), static_cast<int64_t>(past), 1, &so_far.states, nullptr},
          evaluator);
      if (!made.is_ok()) return made;
      so_far = std::move(*made);
      past += count;
    }
    return so_far;
  };
  std::vector<std::pair<size_t, std::vector<size_t>>> prompts{
      {2, {1, 1}}, {7, {4, 3}}, {few, {1, 11, 1}}, {few, {6, 1, 6}}};
  if (reach > few / 2) {
    prompts.push_back({reach + few, {reach + few - 1, 1}});
    prompts.push_back({2 * reach + few, {reach + 7, reach + few - 7}});
  }
  for (const auto& [whole, parts] : prompts) {
    const Result<LiteralResult> a = feed({whole}), b = feed(parts);
    if (!a.is_ok() || !b.is_ok() || !alike(last_row(a->logits), last_row(b->logits))) return false;
    for (const auto& [name, state] : a->states) {
      const auto other = b->states.find(name);
      if (other == b->states.end() || !alike(state.to_f64(), other->second.to_f64())) return false;
    }
  }
  return true;
}

const char* const kHidden = "encoder's output";

// The states of a host's graph that depend on the source: the encoder's output, and rows that the first call writes
// (`writes`) and cached ones read.
static std::vector<SourceRows> source_states(const Graph& graph, const Module& module, bool writes) {
  std::vector<SourceRows> rows;
  for (const ValueId v : graph.inputs)
    if (graph.values[v].name == module.hidden) rows.push_back({kHidden, module.hidden, "", 1});
  for (const SourceRows& s : module.sources) {
    if (s.input == module.hidden) continue;
    if (!writes) {
      rows.push_back({s.name, s.input, "", s.axis});
      continue;
    }
    for (const ValueId v : graph.outputs)
      if (state_suffix(graph.values[v].name) == s.name) rows.push_back({s.name, "", graph.values[v].name, s.axis});
  }
  return rows;
}

Result<Compiled> compile_literally(const Graph& graph, const Module& module, const EngineOptions& options,
                                   Phase phase) {
  return compile(graph, options, nullptr,
                 {phase, false, source_states(graph, module, phase == Phase::kFirst), {}, module.source_length});
}

Result<LiteralResult> run_literally(const Compiled& compiled, const LiteralStep& step, Evaluator& evaluator) {
  const Graph& graph = compiled.graph;
  const Binding& binding = compiled.binding;
  SymbolValues symbols;
  symbols[kSymS] = std::max<int64_t>(1, static_cast<int64_t>(step.tokens.size()));
  symbols[kSymP] = symbols[kSymW] = step.past;
  symbols[kSymT] = symbols[kSymS] + step.past;
  symbols[kSymE] = step.source_rows;
  std::map<ValueId, Tensor> feeds;
  for (const StatePair& s : binding.states) {
    if (s.past == kNoValue) continue;
    const auto held = step.states ? step.states->find(s.name) : std::map<std::string, Tensor>::const_iterator{};
    if (step.states && held != step.states->end())
      feeds[s.past] = held->second;
    else  // nothing so far
      feeds[s.past] =
          Tensor::allocate(graph.values[s.past].info.type, shape_eval(graph.values[s.past].info.shape, symbols));
  }
  // A past that no call gives on, as where a decoder makes embeddings, stays empty.
  for (const auto& [v, role] : binding.inputs)
    if (role == InputRole::kState && !feeds.count(v))
      feeds[v] = Tensor::allocate(graph.values[v].info.type, shape_eval(graph.values[v].info.shape, symbols));
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const bool host = value.info.content && !value.constant.present() && value.producer < 0;
    const auto role = binding.inputs.find(static_cast<ValueId>(v));
    if (role != binding.inputs.end() && role->second == InputRole::kFeatures) {
      const auto given = step.fed ? step.fed->find(value.name) : std::map<std::string, Tensor>::const_iterator{};
      if (!step.fed || given == step.fed->end())
        return Status::error("input '" + value.name + "' of the encoder is not given");
      feeds[static_cast<ValueId>(v)] = given->second;
      continue;
    }
    const bool fed = role != binding.inputs.end() && role->second != InputRole::kState;
    if (!host && !fed) continue;
    SITU_TAKE(t, host_input(compiled, static_cast<ValueId>(v), symbols, step));
    feeds[static_cast<ValueId>(v)] = t;
  }
  SITU_TAKE(outputs, evaluator.graph(graph, feeds));
  LiteralResult result;
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    for (const StatePair& s : binding.states)
      if (s.present == graph.outputs[o]) result.states[s.name] = outputs[o];
    if (graph.outputs[o] == binding.logits) result.logits = outputs[o];
    if (graph.outputs[o] == binding.rows) result.rows = outputs[o];
  }
  return result;
}

Result<FirstCall> compare_first_call(const Module& module, const EngineOptions& options, Evaluator& evaluator) {
  SITU_TAKE(first, compile_literally(*module.literal_first, module, options, Phase::kFirst));
  Phase phase = Phase::kAny;
  SITU_TAKE(cached, compile_cached(module, options, &phase));
  const std::vector<int64_t> tokens{5, 7, 4, 8, 6};  // no usual padding (0 .. 2): some decoders give it no position
  std::map<std::string, Tensor> sources = random_sources(first);
  const auto run = [&](const Compiled& c, std::span<const int64_t> ids, int64_t past,
                       const std::map<std::string, Tensor>& states) {
    return run_literally(c, {ids, past, kProbedRows, &states, nullptr}, evaluator);
  };
  SITU_TAKE(both, run(first, tokens, 0, sources));
  const std::vector<double> wanted = last_row(both.logits);
  // What the first call made of the source, and no past.
  for (const auto& [name, t] : both.states)
    if (std::any_of(first.binding.states.begin(), first.binding.states.end(),
                    [&, &n = name](const StatePair& s) { return s.name == n && s.rule == StateRule::kSource; }))
      sources[name] = t;
  if (phase == Phase::kAny) {
    Result<LiteralResult> at_once = run(cached, tokens, 0, sources);
    // One of them may give logits of the last token alone.
    if (at_once.is_ok() && alike(wanted, last_row(at_once->logits)) &&
        (at_once->logits.count() != both.logits.count() || alike(both.logits.to_f64(), at_once->logits.to_f64())))
      return FirstCall::kSame;
  }
  const size_t before = tokens.size() - 1;
  SITU_TAKE(one, run(first, std::span(tokens).first(before), 0, sources));
  std::map<std::string, Tensor> states = sources;
  for (const auto& [name, t] : one.states) states[name] = t;
  SITU_TAKE(two, run(cached, std::span(tokens).last(1), static_cast<int64_t>(before), states));
  const double most = std::max(rounding_of(first.graph), rounding_of(cached.graph));
  return difference(wanted, last_row(two.logits)) < most ? FirstCall::kOneToken : FirstCall::kOther;
}

Status check_source_length(const Module& module, const EngineOptions& options, Evaluator& evaluator) {
  if (module.source_length == Dim::symbol(kSymE)) return Status::ok();
  Phase phase = Phase::kAny;
  SITU_TAKE(cached, compile_cached(module, options, &phase));
  const std::map<std::string, Tensor> sources = random_sources(cached);
  SymbolValues symbols;
  symbols[kSymE] = kProbedRows;
  const int64_t token = 5, shortest = module.source_length.eval(symbols);
  symbols[kSymE] += 1;
  const int64_t longest = module.source_length.eval(symbols) - 1;
  std::vector<double> wanted;
  for (const int64_t length : {shortest, shortest + (longest - shortest) / 3, (shortest + longest + 1) / 2, longest}) {
    SITU_TAKE(made, run_literally(cached, {{&token, 1}, 0, kProbedRows, &sources, nullptr, length}, evaluator));
    const std::vector<double> row = last_row(made.logits);
    if (wanted.empty()) wanted = row;
    if (!alike(wanted, row))
      return Status::error("of the encoder's inputs of " + std::to_string(shortest) + " and of " +
                           std::to_string(length) + " frames, which become " + std::to_string(kProbedRows) +
                           " rows each, the decoder makes other logits by their masks: programs in place know the "
                           "number of rows alone");
  }
  return Status::ok();
}

}  // namespace situ
