#include "runtime/compile.h"

#include <algorithm>
#include <utility>

#include "base/assign.h"
#include "base/reasons.h"
#include "passes/compile/pass_list.h"
#include "passes/compile/token_order.h"
#include "passes/context/pass_context.h"
#include "passes/host/room.h"
#include "passes/module/specialise.h"
#include "passes/pack/align_constants.h"
#include "passes/pack/pack_store.h"
#include "passes/window/fixed_window.h"
#include "passes/window/limit_window.h"
#include "runtime/literal.h"
#include "runtime/switches.h"

namespace situ {
namespace {

// A state that is replaced as a whole is allocated at once, twice, and a token of an appended one in every step. The
// largest of real models have 0.25 GiB (Mamba-2 8B) and 10 MiB (GPT-3 175B).
constexpr int64_t kMaxReplacedBytes = int64_t{1} << 30, kMaxTokenBytes = int64_t{16} << 20;

Status check_states(const Graph& graph, const Binding& binding, Phase phase) {
  SymbolValues one;
  one[kSymS] = one[kSymP] = one[kSymW] = 1;
  const Dim tokens = phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS);
  int64_t replaced = 0, token = 0;
  for (const StatePair& s : binding.states) {
    if (!s.here()) continue;
    const Value& past = graph.values[s.past != kNoValue ? s.past : s.present];
    // Slots are counted in tokens: rows beyond would lie over the next token's, and past the end of the state.
    const auto rows = [&](const Value& v) { return v.info.shape[static_cast<size_t>(s.axis)]; };
    if (s.rule == StateRule::kAppend && s.past != kNoValue && s.present != kNoValue &&
        rows(graph.values[s.present]) != rows(past) + tokens) {
      const Value& present = graph.values[s.present];
      return Status::error("state '" + past.name + "' " + shape_str(past.info.shape, &graph.symbol_names()) + " -> '" +
                           present.name + "' " + shape_str(present.info.shape, &graph.symbol_names()) + ": " +
                           (rows(present) - rows(past)).str(&graph.symbol_names()) +
                           " rows are appended in a step of " + tokens.str() +
                           " tokens; one for each token was expected")
          .or_reason(Reason::Kind::kState);
    }
    int64_t bytes = std::max<int64_t>(1, dtype_bytes(past.info.type));
    bool overflow = false;
    Shape row = past.info.shape;
    if (s.rule != StateRule::kReplace) row[static_cast<size_t>(s.axis)] = Dim(1);
    for (const Dim& d : row) overflow = __builtin_mul_overflow(bytes, d.eval(one), &bytes) || overflow;
    int64_t& sum = s.rule == StateRule::kReplace ? replaced : token;
    const int64_t most = s.rule == StateRule::kReplace ? kMaxReplacedBytes : kMaxTokenBytes;
    if (overflow || bytes < 0 || __builtin_add_overflow(sum, bytes, &sum) || sum > most)
      return Status::error("state '" + past.name + "' of shape " + shape_str(past.info.shape, &graph.symbol_names()) +
                           " is too large: the states " +
                           (s.rule == StateRule::kReplace ? "take" : "take for each token") + " more than " +
                           std::to_string(most) + " bytes")
          .or_reason(Reason::Kind::kSize);
  }
  return Status::ok();
}

}  // namespace

bool lacks_operators(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
    return find_op(n.domain, n.op, n.opset) == nullptr ||
           std::any_of(n.attrs.begin(), n.attrs.end(),
                       [](const auto& a) { return a.second.graph && lacks_operators(*a.second.graph); });
  });
}

int64_t context_of(const EngineOptions& options) {
  if (options.context_length > 0) return options.context_length;
  return options.declared_context > 0 ? options.declared_context : kDefaultContext;
}
int64_t source_length_of(const EngineOptions& options) {
  return options.source_length > 0 ? options.source_length : context_of(options);
}

int64_t ModelFiles::weight_bytes() const {
  int64_t bytes = 0;
  each([&](const ImportedModel& m) { bytes += m.weight_bytes; });
  return bytes;
}

// What a program of one output has to place: behind views that keep the rows as they are, what computes them.
static ValueId rows_of(const Graph& graph, ValueId output, bool literal) {
  for (const Node* n = graph.producer(output); n && !literal; n = graph.producer(output)) {
    const bool same =
        n->is("Reshape") || n->is("Squeeze") || n->is("Unsqueeze") || n->is("Flatten") || n->is("Identity");
    const Shape &from = graph.values[n->in[0]].info.shape, &to = graph.values[output].info.shape;
    if (!same || from.empty() || to.empty() || from.back() != to.back() || !graph.producer(n->in[0])) break;
    output = n->in[0];
  }
  return output;
}

namespace {

CompileTrace* new_trace(const EngineOptions& options, const GraphUse& use, bool literal) {
  if (!options.traces) return nullptr;
  const char* graph = use.encoder && !use.texts && use.rows.empty() ? "encoder"
                      : use.texts                                   ? "texts"
                      : !use.rows.empty()                           ? "media"
                                                                    : "decoder";
  return &options.traces->emplace_back(CompileTrace{graph, use.phase, literal});
}

// What a graph is compiled for.
struct Lengths {
  int64_t length = 0;  // tokens that there is room for; of an encoder: of a source
  int64_t limit = 0;   // tokens that the model is declared for
  int64_t source = 0;  // rows of a source
};

}  // namespace

// `holds`: PassContext::holds, where it fails.
static Result<Compiled> compile_graph(const Graph& imported, const EngineOptions& options, PackStore* packs,
                                      const GraphUse& use, const Lengths& lengths,
                                      std::map<int64_t, std::string>* holds) {
  const bool literal = packs == nullptr;
  const auto [length, limit, source] = lengths;
  const ScopedSymbols symbols(StepLimits{.tokens = limit, .source = source});
  ThreadPool one(1);  // probing runs thousands of tiny kernels: waking workers would cost more than they do
  Evaluator evaluator(one, Evaluator::kMaxProbeBytes);
  Compiled c;
  c.graph = imported;
  SITU_RETURN_IF_ERROR(resolve_ops(c.graph, NodesOf::kFile));
  leave_out_unread(c.graph);
  c.graph.rebuild_links();
  align_constants(c.graph, packs, literal);
  PassContext context{c.graph, evaluator, c.binding, options.names, limit, length};
  if (use.encoder) context.names = {};  // those of the decoder
  context.phase = use.phase;
  context.literal = literal;
  context.float_activations = options.float_activations;
  context.encoder = use.encoder;
  context.sources = use.sources;
  context.fed = use.fed;
  context.texts = use.texts;
  context.source_length = use.source_length;
  context.packs = packs;
  context.kv_type = options.kv_type;
  context.length = length;
  context.endless = options.window > 0 && !literal && !use.encoder;
  const Status passed = run_passes(context, literal, new_trace(options, use, literal));
  if (!passed.is_ok()) *holds = std::move(context.holds);
  SITU_RETURN_IF_ERROR(passed);
  SITU_RETURN_IF_ERROR(check_states(c.graph, c.binding, use.phase));
  align_constants(c.graph, packs, true);
  if (context.endless) {
    SITU_RETURN_IF_ERROR(limit_window(context, options.window, options.first));
    SITU_RETURN_IF_ERROR(check_positions(context));
  }
  if (!use.rows.empty()) c.binding.rows = rows_of(c.graph, c.graph.outputs[0], literal);
  // Outputs that nobody asked for (hidden states) are not computed.
  if (!literal) {
    std::vector<ValueId> outputs;
    if (c.binding.logits != kNoValue) outputs.push_back(c.binding.logits);
    if (use.encoder && c.binding.rows != kNoValue) outputs.push_back(c.binding.rows);
    for (const StatePair& s : c.binding.states)
      if (s.present != kNoValue) outputs.push_back(s.present);
    c.graph.outputs = outputs;
    c.graph.remove_dead_nodes();
  }
  if ((!literal || c.binding.mask.unsure) && !use.encoder)
    c.order = token_order(c.graph, c.binding, evaluator, use.phase, limit);
  if (use.texts) {
    c.order = text_order(c.graph, c.binding, evaluator, limit);
    c.found = std::move(context.found);
    c.packed_bytes = evaluator.ledger().packed;
    c.context = length;
    return c;
  }
  // Ones, if its rows are keys'; a row for each query would have to hide the later ones.
  if (c.binding.mask.unsure && !c.order.mixing.empty())
    return Status::error("input '" + imported.values[c.binding.mask.value].name + "' " +
                         shape_str(imported.values[c.binding.mask.value].info.shape, &imported.symbol_names()) +
                         " may be a mask with a row for each query, that the host would have to make: by " +
                         c.order.mixing +
                         " tokens see later ones, and its first dim is not the batch of the token ids");
  if (context.lifted && !c.order.mixing.empty())
    return Status::error("the graph depends on its fixed extents: by " + c.order.mixing +
                         " a token depends on rows that its mask does not hide");
  if (literal) c.order = {};
  if (!c.order.recurrence.empty() && (!c.order.mixing.empty() || !same_in_parts(c, evaluator))) {
    if (c.order.mixing.empty()) c.order.mixing = c.order.recurrence;
    c.order.recurrence.clear();
  }
  if (!c.order.recurrence.empty())
    context.note("recurrence", c.order.recurrence, "prompts in parts give what they give at once");
  if (!c.order.mixing.empty()) context.note("prompt in one step", c.order.mixing, "tokens may depend on later ones");
  if (use.rows.empty()) c.embeddings = std::exchange(c.binding.rows, kNoValue);
  c.found = std::move(context.found);
  c.packed_bytes = evaluator.ledger().packed;
  c.context = length;
  return c;
}

static Result<Compiled> try_compile(const Graph& imported, const EngineOptions& options, PackStore* packs,
                                    const GraphUse& use, const Lengths& lengths,
                                    std::map<int64_t, std::string>* holds) {
  return or_error("to prepare the model", [&] { return compile_graph(imported, options, packs, use, lengths, holds); });
}

Result<Compiled> compile(const Graph& imported, const EngineOptions& options, PackStore* packs, const GraphUse& use) {
  constexpr int kMostTries = 6;
  const int64_t source = source_length_of(options), wanted = use.encoder ? source : context_of(options);
  Lengths lengths{wanted, use.encoder ? source : std::max(wanted, options.declared_context), source};
  const bool asked = !use.encoder && options.context_length > 0;
  std::map<int64_t, std::string> holds;
  Result<Compiled> compiled = try_compile(imported, options, packs, use, lengths, &holds);
  const Status first = compiled.status();
  // Shorter ones have reasons of their own where a longer one only had no room.
  const auto failed = [&] {
    const bool room = first.code() == Code::kContextExceeded;
    return room && !compiled.is_ok() && compiled.status().code() != Code::kContextExceeded ? compiled.status() : first;
  };
  for (int i = 0; !compiled.is_ok() && i < kMostTries; ++i) {
    const auto next = holds.lower_bound(lengths.limit);  // behind the longest of those that are shorter
    if (next == holds.begin()) return failed();
    const auto [length, bound] = *std::prev(next);
    if (asked && length < wanted && first.code() == Code::kContextExceeded) return first;
    lengths.limit = length;
    lengths.length = std::min(wanted, length);
    if (use.encoder) lengths.source = length;
    holds.clear();
    compiled = try_compile(imported, options, packs, use, lengths, &holds);
    if (!compiled.is_ok() || length >= wanted) continue;
    if (asked)
      return Status::error(Code::kContextExceeded,
                           "a context of " + std::to_string(wanted) + " tokens does not fit: " + bound)
          .or_reason(Reason::Kind::kSize);
    compiled->bound = bound;
  }
  return compiled.is_ok() ? std::move(compiled) : failed();
}

const Value* fixed_tokens(const Graph& graph, const InputNames& names) {
  const std::string name = names.input_ids.empty() ? "input_ids" : names.input_ids;
  for (const ValueId v : graph.inputs)
    if (const Value& ids = graph.values[v];
        ids.name == name && ids.info.shape.size() == 2 && ids.info.shape[1].is_const())
      return &ids;
  return nullptr;
}

Status with_fixed_tokens(const Graph& graph, const EngineOptions& options, const Status& problem) {
  const Value* ids = fixed_tokens(graph, options.names);
  if (!ids) return problem;
  const std::string count = ids->info.shape[1].str();
  return Status::error("input '" + ids->name + "' " + shape_str(ids->info.shape, &graph.symbol_names()) +
                       " declares steps of exactly " + count + (count == "1" ? " token" : " tokens") +
                       "; prompts need any number of them. As it is, " + problem.message())
      .because(problem.reasons());
}

Status not_of_one_decoder(const ModelFiles& files) {
  const bool pair = files.first.has_value();
  return Status::error((pair ? files.first_name + " and " + files.decoder_name + " are"
                             : "the branches of " + files.decoder_name + " are") +
                       " not two calls of one decoder: a token behind the first call has other logits than in a longer "
                       "first call");
}

ModuleFiles module_files(const ModelFiles& files, const std::map<std::string, std::vector<int64_t>>& fed) {
  return {files.encoder_name,
          files.decoder_name,
          files.first_name,
          files.encoder ? &files.encoder->graph : nullptr,
          &files.decoder.graph,
          files.first ? &files.first->graph : nullptr,
          fed};
}

namespace {

// Programs of a module have the same states in the same order; one that a graph does not touch has no values there.
Status order_states(const std::vector<StatePair>& of_module, Binding& binding) {
  std::vector<StatePair> ordered;
  for (const StatePair& s : of_module) {
    StatePair here{kNoValue, kNoValue, s.rule, s.axis, s.name};
    for (const StatePair& own : binding.states)
      if (own.name == s.name) here = own;
    ordered.push_back(here);
  }
  for (const StatePair& own : binding.states)
    if (std::none_of(of_module.begin(), of_module.end(), [&](const StatePair& s) { return s.name == own.name; }))
      return Status::error("state '" + own.name + "' is in one graph of the model only");
  binding.states = std::move(ordered);
  return Status::ok();
}

// Whether programs that were compiled apart store sources and rows of tokens in one type (store_states). A first call
// has no past: what it appends says it.
bool same_types(const Binding& a, const Graph& of_a, const Binding& b, const Graph& of_b) {
  const auto type = [](const StatePair& s, const Graph& g) {
    const ValueId v = s.past == kNoValue && s.rule == StateRule::kAppend ? s.present : s.past;
    return v == kNoValue ? DType::kNone : g.values[v].info.type;
  };
  for (const StatePair& x : a.states)
    for (const StatePair& y : b.states) {
      if (x.name != y.name || (x.rule != StateRule::kSource && x.rule != StateRule::kAppend)) continue;
      const DType of_x = type(x, of_a), of_y = type(y, of_b);
      if (of_x != DType::kNone && of_y != DType::kNone && of_x != of_y) return false;
    }
  return true;
}

// The graph holds for any step: one compilation serves prompts and single tokens, with S = L = 1 for the latter.
CompiledModule for_any_step(Compiled any, bool literal, Evaluator& evaluator) {
  CompiledModule both;
  both.token.graph = literal ? any.graph : *specialise(any.graph, {{}, {{kSymS, Dim(1)}, {kSymL, Dim(1)}}}, evaluator);
  both.token.binding = any.binding;
  both.token.context = any.context;
  both.token.bound = any.bound;
  both.prompt = std::move(any);
  return both;
}

}  // namespace

bool steps_by_token(const Binding& decode) {
  return std::any_of(decode.states.begin(), decode.states.end(),
                     [](const StatePair& s) { return s.rule == StateRule::kReplace; });
}

// Whether states that were replaced at every step are appended rows by now (append_windows).
static bool convolves_by_token(const Graph& decode) {
  return std::any_of(decode.nodes.begin(), decode.nodes.end(),
                     [](const Node& n) { return n.is("CausalConv", "situ"); });
}

static bool has_fixed_window(const Graph& imported, const InputNames& names) {
  const Result<std::optional<FixedWindow>> window = find_fixed_window(imported, names);
  return !window.is_ok() || *window;
}

bool declares_one_token(const Graph& imported, const InputNames& names, const Compiled& compiled) {
  const bool one = std::any_of(imported.inputs.begin(), imported.inputs.end(), [&](ValueId v) {
    const auto bound = compiled.binding.inputs.find(v);
    return bound != compiled.binding.inputs.end() && bound->second == InputRole::kTokenIds &&
           imported.values[v].info.shape.back() == Dim(1);
  });
  return one && !has_fixed_window(imported, names);
}

Result<CompiledModule> compile_module(const ModelFiles& files, const EngineOptions& options, PackStore* packs) {
  ThreadPool one(1);
  Evaluator evaluator(one, Evaluator::kMaxProbeBytes);
  Result<Module> bound = bind_module(module_files(files, {}), evaluator);
  if (!bound.is_ok()) return bound.status().or_reason(Reason::Kind::kInput);
  Module& module = *bound;
  const auto use = [&](Phase phase) { return GraphUse{phase, false, module.sources, {}, module.source_length}; };
  SITU_RETURN_IF_ERROR(check_source_length(module, options, evaluator).or_reason(Reason::Kind::kInput));
  // Whether the cached branch without past is the first call, so that it serves all steps.
  bool as_first = true;
  if (module.first) {
    SITU_TAKE(says, compare_first_call(module, options, evaluator));
    if (says == FirstCall::kOther) return not_of_one_decoder(files);
    // Steps that the file declares for one token alone are taken for no others.
    as_first = says == FirstCall::kSame && fixed_tokens(module.decode, options.names) == nullptr;
  }
  Result<Compiled> any = Status::error("the cached branch holds for single tokens only");
  if (as_first) any = compile(module.decode, options, packs, use(Phase::kAny));
  if (!any.is_ok() && holds_for_any_step(any.status())) return any.status();
  const auto one_token = [&](const Compiled& c) {
    return !module.first && declares_one_token(module.decode, options.names, c);
  };
  CompiledModule both;
  if (any.is_ok() && !one_token(*any)) {
    both = for_any_step(std::move(*any), packs == nullptr, evaluator);
  } else {
    Result<Compiled> decode = compile(module.decode, options, packs, use(Phase::kDecode));
    // Of the first, the others only fail in its wake; but steps of one token are all that some exports are meant for.
    const Value* ids = fixed_tokens(module.decode, options.names);
    const bool alone =
        !decode.is_ok() && ids && ids->info.shape[1] == Dim(1) && !has_fixed_window(module.decode, options.names);
    const Status wrong = as_first && !any.is_ok()
                             ? with_fixed_tokens(module.decode, options, alone ? decode.status() : any.status())
                             : decode.status();
    if (!decode.is_ok()) return wrong;
    const Graph& prompt = module.first ? *module.first : module.decode;
    Result<Compiled> first = Status::error("the export declares steps of one token");
    const bool one = one_token(*decode);
    if (!one) first = compile(prompt, options, packs, use(Phase::kFirst));
    const bool by_token = steps_by_token(decode->binding) || convolves_by_token(decode->graph);
    if (one || (!first.is_ok() && !module.first && by_token)) {
      both.one_token = true;
      both.token = std::move(*decode);
      both.token.order.one_sequence = "the export takes one token at a time";
      both.prompt = both.token;
      both.module = std::move(module);
      return both;
    }
    if (!first.is_ok()) return as_first ? wrong : first.status();
    if (options.kv_type == DType::kNone && !same_types(first->binding, first->graph, decode->binding, decode->graph)) {
      EngineOptions as_exported = options;
      as_exported.kv_type = DType::kF32;
      return compile_module(files, as_exported, packs);
    }
    std::vector<StatePair> all = decode->binding.states;
    for (const StatePair& s : first->binding.states)
      if (std::none_of(all.begin(), all.end(), [&](const StatePair& o) { return o.name == s.name; })) {
        if (s.rule != StateRule::kSource) return wrong;
        all.push_back({kNoValue, kNoValue, s.rule, s.axis, s.name});
      }
    SITU_RETURN_IF_ERROR(order_states(all, decode->binding));
    if (Status same = order_states(all, first->binding); !same.is_ok()) return as_first ? wrong : same;
    SITU_RETURN_IF_ERROR(same_switches(first->binding, decode->binding));
    both.prompt = std::move(*first);
    both.token = std::move(*decode);
    both.first_only = true;
  }
  both.module = std::move(module);
  return both;
}

// The decoder was compiled for the mask of an input of source_length() frames: this one must be among those of as many
// rows.
static Status check_frames(const Module& module, const ModelFiles& files, const Compiled& encode,
                           Evaluator& evaluator) {
  const std::optional<Dim> frames = masked_length(*module.encoder);
  const Dim length = source_length(files.encoder->graph, module.encoder_output, evaluator);
  if (!frames || !frames->is_const() || length == Dim::symbol(kSymE)) return Status::ok();
  for (const StatePair& s : encode.binding.states) {
    if (s.present == kNoValue) continue;
    const Dim& rows = encode.graph.values[s.present].info.shape[static_cast<size_t>(s.axis)];
    if (!rows.is_const()) continue;
    const Dim first = length.substitute(kSymE, rows), next = length.substitute(kSymE, rows + Dim(1));
    if (frames->value() < first.value() || frames->value() >= next.value())
      return Status::error("encoder: " + frames->str() + " frames become " + rows.str() +
                           " rows, and as many come of " + first.str() + " to " + (next - Dim(1)).str() +
                           " frames by its shapes");
  }
  return Status::ok();
}

Result<Compiled> compile_encoder(const ModelFiles& files, const EngineOptions& options, PackStore* packs,
                                 const Compiled& decoder, const std::map<std::string, std::vector<int64_t>>& fed) {
  ThreadPool one(1);
  Evaluator evaluator(one, Evaluator::kMaxProbeBytes);
  SITU_TAKE(module, bind_module(module_files(files, fed), evaluator));
  GraphUse use{Phase::kFirst, true, {}, {}};
  for (const auto& [name, dims] : fed) use.fed.insert(name);
  // Sources that no program reads are not written.
  Graph& graph = *module.encode;
  std::vector<ValueId> outputs;
  for (const SourceRows& s : module.sources)
    for (const StatePair& read : decoder.binding.states)
      if (read.name == s.name && read.rule == StateRule::kSource) {
        use.sources.push_back(s);
        // A first call writes sources too, and reads none of those.
        if (read.past != kNoValue) use.sources.back().stored = decoder.graph.values[read.past].info.type;
        for (const ValueId v : graph.outputs)
          if (graph.values[v].name == s.output) outputs.push_back(v);
      }
  slice(graph, outputs);
  Result<Compiled> encode = compile(graph, options, packs, use);
  if (!encode.is_ok()) return encode.status().with_context("encoder");
  SITU_RETURN_IF_ERROR(order_states(decoder.binding.states, encode->binding));
  SITU_RETURN_IF_ERROR(check_frames(module, files, *encode, evaluator));
  return encode;
}

}  // namespace situ
