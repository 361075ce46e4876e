#include "passes/module/module.h"

#include <algorithm>
#include <set>

#include "ops/op.h"
#include "passes/context/binding.h"

namespace situ {

std::string state_suffix(const std::string& name) {
  // As transformers' exporter tells a cache before a step from the one behind it.
  for (const std::string side : {"input.", "output."})
    for (const char* const kept : {"cache", "past", "state"})
      if (name.starts_with(side + kept)) return name.substr(side.size());
  if (name.starts_with("cache.")) return name;  // of a first call, which has no other side
  for (const char* prefix : {"past_key_values", "present_key_values", "past_", "present_", "past", "present"})
    if (name.rfind(prefix, 0) == 0) return name.substr(std::string(prefix).size());
  return "";
}

namespace {

ValueId named(const Graph& graph, const std::vector<ValueId>& list, const std::string& name) {
  for (const ValueId v : list)
    if (graph.values[v].name == name) return v;
  return kNoValue;
}
ValueId with_suffix(const Graph& graph, const std::vector<ValueId>& list, const std::string& suffix) {
  for (const ValueId v : list)
    if (!suffix.empty() && state_suffix(graph.values[v].name) == suffix) return v;
  return kNoValue;
}

// The inputs that a value is made of; an extent of an input is not its data.
std::set<ValueId> reads(const Graph& graph, ValueId from) {
  std::set<ValueId> seen{from}, inputs;
  std::vector<ValueId> open{from};
  const auto visit = [&](ValueId v) {
    if (v != kNoValue && seen.insert(v).second) open.push_back(v);
  };
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    const int p = graph.values[v].producer;
    if (p < 0) {
      if (std::find(graph.inputs.begin(), graph.inputs.end(), v) != graph.inputs.end()) inputs.insert(v);
      continue;
    }
    const Node& n = graph.nodes[static_cast<size_t>(p)];
    if (n.is("Shape") || n.is("Size")) continue;
    for (const ValueId x : n.in) visit(x);
    for (const auto& [key, a] : n.attrs)
      if (a.graph)
        for (const auto& [inner, outer] : a.graph->captures) visit(outer);
  }
  return inputs;
}
std::set<std::string> names_read(const Graph& graph) {
  std::set<std::string> names;
  for (const ValueId out : graph.outputs)
    for (const ValueId v : reads(graph, out)) names.insert(graph.values[v].name);
  return names;
}

bool is_float(const Value& v) { return dtype_is_float(v.info.type); }

class ModuleBinder {
 public:
  ModuleBinder(const ModuleFiles& files, Evaluator& evaluator) : files_(files), evaluator_(evaluator) {}

  Result<Module> run() {
    SITU_RETURN_IF_ERROR(find_calls());
    module_.literal_decode = module_.decode = cached_;
    if (first_) slice(*first_, std::vector<ValueId>(first_->outputs));
    module_.literal_first = module_.first = first_;
    if (!files_.encoder) return std::move(module_);
    SITU_RETURN_IF_ERROR(specialise_encoder());
    SITU_RETURN_IF_ERROR(find_hidden());
    module_.source_length = source_length(*module_.encoder, module_.encoder_output, evaluator_);
    SITU_RETURN_IF_ERROR(find_sources());
    open_declared();
    return std::move(module_);
  }

 private:
  // cached_ and first_: two files, the two values of a flag, or one graph for all calls.
  Status find_calls() {
    const Graph& decoder = *files_.decoder;
    if (files_.first) {
      first_ = *files_.first;
      first_->rebuild_links();
      cached_ = decoder;
      cached_.rebuild_links();
      return Status::ok();
    }
    const std::vector<ValueId> flags = find_flags(decoder);
    if (flags.empty()) return find_calls_by_extents();
    if (flags.size() > 1)
      return Status::error(files_.decoder_name + ": inputs " + decoder.describe(flags[0]) + " and " +
                           decoder.describe(flags[1]) + " both choose between branches; one flag is supported");
    const std::string& name = module_.flag = decoder.values[flags[0]].name;
    Graph with[2];
    std::set<std::string> read[2];
    for (int value = 0; value < 2; ++value) {
      Result<Graph> graph = specialise(decoder, {{{name, value}}, {}}, evaluator_);
      if (!graph.is_ok()) return graph.status().with_context(files_.decoder_name);
      with[value] = std::move(*graph);
      for (const std::string& input : names_read(with[value]))
        if (is_past(with[value], input)) read[value].insert(input);
    }
    if (read[0].size() == read[1].size())
      return Status::error(files_.decoder_name + ": input '" + name +
                           "' chooses between two computations, and nothing says which: value 0 reads " +
                           list(read[0]) + ", value 1 reads " + list(read[1]));
    const int cached = read[1].size() > read[0].size();
    cached_ = std::move(with[cached]);
    first_ = std::move(with[1 - cached]);
    return Status::ok();
  }
  // A first call is one whose past has no rows, where an If asks for that.
  Status find_calls_by_extents() {
    const Graph& decoder = *files_.decoder;
    Assignment none, some;
    for (const ValueId in : decoder.inputs) {
      const Value& value = decoder.values[in];
      if (!is_float(value) || !is_past(decoder, value.name)) continue;
      for (size_t a = 1; a < value.info.shape.size(); ++a)
        if (const int id = value.info.shape[a].lone_symbol(); id >= 0) {
          none.in_predicates[id] = Dim(0);
          some.in_predicates[id] = Dim::symbol(id) + Dim(1);  // a symbol is 0 or more
        }
    }
    if (!told_apart(decoder, none, some, evaluator_)) {
      cached_ = decoder;
      cached_.rebuild_links();
      return Status::ok();
    }
    Result<Graph> first = specialise(decoder, none, evaluator_), cached = specialise(decoder, some, evaluator_);
    for (const Result<Graph>* graph : {&first, &cached})
      if (!graph->is_ok()) return graph->status().with_context(files_.decoder_name);
    first_ = std::move(*first);
    cached_ = std::move(*cached);
    return Status::ok();
  }
  // An input that an output goes by the same name as.
  static bool is_past(const Graph& graph, const std::string& input) {
    return with_suffix(graph, graph.outputs, state_suffix(input)) != kNoValue;
  }
  static std::string list(const std::set<std::string>& names) {
    std::string all;
    for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
    return all.empty() ? "no past" : all;
  }

  // Arrays that the caller feeds give the extents of the encoder's inputs.
  Status specialise_encoder() {
    const Graph& encoder = *files_.encoder;
    Assignment assignment;
    for (const auto& [name, dims] : files_.fed) {
      const ValueId v = named(encoder, encoder.inputs, name);
      if (v == kNoValue) continue;  // of another graph; who feeds it has checked the name
      const Shape& shape = encoder.values[v].info.shape;
      if (shape.size() != dims.size())
        return Status::error("encoder input " + encoder.describe(v) + ": an array of " + std::to_string(dims.size()) +
                             " dims is given");
      for (size_t i = 0; i < dims.size(); ++i)
        if (const int id = shape[i].lone_symbol(); id >= 0) assignment.symbols[id] = Dim(dims[i]);
    }
    Result<Graph> graph = specialise(encoder, assignment, evaluator_);
    if (!graph.is_ok()) return graph.status().with_context(files_.encoder_name);
    module_.encoder = std::move(*graph);
    module_.encoder->rebuild_links();
    return Status::ok();
  }

  // The decoder's input that takes what the encoder computes.
  Status find_hidden() {
    const Graph& encoder = *module_.encoder;
    const Graph& taker = first_ ? *first_ : cached_;
    for (const ValueId in : taker.inputs) {
      const Value& value = taker.values[in];
      if (!is_float(value) || value.info.shape.size() != 3 || is_past(taker, value.name) ||
          with_suffix(encoder, encoder.outputs, state_suffix(value.name)) != kNoValue)
        continue;
      if (!module_.hidden.empty())
        return Status::error(files_.decoder_name + ": inputs '" + module_.hidden + "' and '" + value.name +
                             "' could both take the encoder's output");
      module_.hidden = value.name;
    }
    if (module_.hidden.empty()) return Status::ok();
    const ValueId in = named(taker, taker.inputs, module_.hidden);
    const Value& value = taker.values[in];
    std::vector<ValueId> fitting, floats;
    for (const ValueId out : encoder.outputs) {
      const Value& made = encoder.values[out];
      if (!is_float(made) || (made.info.ranked && made.info.shape.size() != 3)) continue;
      floats.push_back(out);
      if (made.info.type != value.info.type) continue;
      const Shape &a = made.info.shape, &b = value.info.shape;
      // A file may leave out what its outputs look like.
      if (!made.info.ranked || !a[2].is_const() || !b[2].is_const() || a[2] == b[2]) fitting.push_back(out);
    }
    const ValueId usual = named(encoder, fitting, "last_hidden_state");
    if (usual != kNoValue) fitting = {usual};
    if (fitting.size() == 1) {
      module_.encoder_output = encoder.values[fitting[0]].name;
      return Status::ok();
    }
    std::string outputs;
    for (const ValueId out : fitting.empty() ? floats : fitting)
      outputs += (outputs.empty() ? "" : ", ") + encoder.describe(out);
    return Status::error(files_.decoder_name + ": input " + taker.describe(in) + " is to take the output of " +
                         files_.encoder_name + "; " +
                         (fitting.empty() ? "none fits: " : "which of these is not said: ") +
                         (outputs.empty() ? "it has none of 3 dims" : outputs));
  }

  // A past that this graph itself goes on: not one that it only reads.
  bool goes_on(ValueId input) const {
    const std::string suffix = state_suffix(cached_.values[input].name);
    const ValueId out = with_suffix(cached_, cached_.outputs, suffix);
    if (out == kNoValue || passed_on(cached_, out) == input) return false;
    return reads(cached_, out).count(input) != 0;
  }
  // Through Identity.
  static ValueId passed_on(const Graph& graph, ValueId v) {
    while (const Node* n = graph.producer(v, "Identity")) v = n->in[0];
    return v;
  }

  // The source's rows: inputs of the cached graph that depend on the encoder's output alone. What writes them is cut
  // out of the first call's graph and linked behind the encoder.
  Status find_sources() {
    Graph encode = *module_.encoder;
    const ValueId hidden_out = named(encode, encode.outputs, module_.encoder_output);
    std::vector<ValueId> outputs, kept;
    std::set<std::string> read = names_read(cached_);
    std::vector<ValueId> cross;  // outputs of the first graph
    for (const ValueId in : cached_.inputs) {
      const Value& value = cached_.values[in];
      if (!read.count(value.name) || !is_float(value) || value.info.shape.size() < 3 || goes_on(in)) continue;
      SourceRows rows{state_suffix(value.name), value.name, "", -1};
      if (rows.name.empty()) rows.name = value.name;
      for (size_t a = 1; a < value.info.shape.size() && rows.axis < 0; ++a)
        if (!value.info.shape[a].is_const()) rows.axis = static_cast<int>(a);
      if (rows.axis < 0) rows.axis = static_cast<int>(value.info.shape.size()) - 2;
      ValueId made = kNoValue;
      const ValueId from_first = first_ ? with_suffix(*first_, first_->outputs, state_suffix(value.name)) : kNoValue;
      if (from_first != kNoValue) {
        SITU_RETURN_IF_ERROR(check_cross(from_first));
        cross.push_back(from_first);
      } else if (value.name == module_.hidden) {
        made = hidden_out;
      } else {
        made = with_suffix(encode, encode.outputs, state_suffix(value.name));
        if (made == kNoValue)
          return Status::error(files_.decoder_name + ": input " + cached_.describe(in) +
                               " is not continued by an output, and nothing writes it: no output of " +
                               (first_ ? "the first call or of " : "") + files_.encoder_name + " goes by its name");
      }
      module_.sources.push_back(rows);
      outputs.push_back(made);
    }
    if (!cross.empty()) {
      Graph part = *first_;
      slice(part, cross);
      std::map<ValueId, ValueId> joined;
      for (const ValueId in : part.inputs) {
        if (part.values[in].name == module_.hidden)
          joined[in] = hidden_out;
        else
          joined[in] = extent_only(encode, part.values[in]);
      }
      const std::vector<ValueId> linked = link(encode, part, joined, "cross/");
      size_t next = 0;
      for (ValueId& v : outputs)
        if (v == kNoValue) v = linked[next++];
    }
    if (outputs.empty())
      return Status::error(files_.decoder_name + ": nothing of it depends on the output of " + files_.encoder_name);
    for (size_t i = 0; i < outputs.size(); ++i) {
      encode.values[outputs[i]].name = module_.sources[i].output = "source" + module_.sources[i].name;
      for (size_t j = 0; j < i; ++j)
        if (outputs[j] == outputs[i])
          return Status::error(files_.decoder_name + ": '" + module_.sources[i].input + "' and '" +
                               module_.sources[j].input + "' are one value of " + files_.encoder_name);
    }
    slice(encode, outputs);
    module_.encode = std::move(encode);
    cut_decode(module_.decode);
    if (module_.first) SITU_RETURN_IF_ERROR(cut_first(*module_.first));
    return Status::ok();
  }

  // What the first call makes of the encoder's output beside the rows that the cached ones read: it reads that too.
  void keep_hidden(const Graph& first) {
    const bool taken = std::any_of(module_.sources.begin(), module_.sources.end(),
                                   [&](const SourceRows& s) { return s.input == module_.hidden; });
    if (taken || named(first, first.inputs, module_.hidden) == kNoValue) return;
    Graph& encode = *module_.encode;
    const ValueId hidden = encode.find(module_.encoder_output);
    module_.sources.push_back({module_.hidden, module_.hidden, module_.encoder_output, 1});
    encode.outputs.push_back(hidden);
  }

  // Of an input whose data nothing reads, only its extents: a batch of one. A constant stands for it.
  static ValueId extent_only(Graph& graph, const Value& input) {
    std::vector<int64_t> dims;
    for (const Dim& d : input.info.shape) dims.push_back(d.is_const() ? d.value() : 1);
    const Tensor zeros = Tensor::allocate(input.info.type, dims);
    return graph.add_constant("extent/" + input.name, zeros);
  }

  Status check_cross(ValueId out) const {
    for (const ValueId in : reads(*first_, out))
      if (first_->values[in].name != module_.hidden)
        return Status::error((files_.first ? files_.first_name : files_.decoder_name) + ": output " +
                             first_->describe(out) + " is to depend on the encoder alone, and depends on input '" +
                             first_->values[in].name + "'");
    return Status::ok();
  }

  bool is_source(const std::string& suffix) const {
    return std::any_of(module_.sources.begin(), module_.sources.end(),
                       [&](const SourceRows& s) { return !suffix.empty() && s.name == suffix; });
  }
  // Logits, and the states that the decoder goes on itself.
  void cut_decode(Graph& graph) const {
    std::vector<ValueId> outputs;
    for (const ValueId v : graph.outputs)
      if (!is_source(state_suffix(graph.values[v].name))) outputs.push_back(v);
    slice(graph, outputs);
  }
  // The first call, which reads the source's rows as the cached ones do.
  Status cut_first(Graph& graph) {
    for (const SourceRows& s : module_.sources) {
      if (s.input == module_.hidden) continue;
      const ValueId out = with_suffix(graph, graph.outputs, s.name);
      if (out == kNoValue) continue;
      const ValueId in = graph.add_value(s.input, graph.values[out].info.type);
      const ValueId as_cached = named(cached_, cached_.inputs, s.input);
      graph.values[in].info = graph.values[out].info;
      graph.values[in].info.content.reset();
      // Its symbols are those of another graph: by name.
      graph.values[in].info.shape.clear();
      graph.values[in].info.ranked = true;
      for (const Dim& d : cached_.values[as_cached].info.shape) {
        if (d.is_const()) {
          graph.values[in].info.shape.push_back(d);
          continue;
        }
        const int id = graph.symbol(d.str(&cached_.symbol_names()));
        if (id < 0)
          return Status::error(files_.decoder_name + ": input " + cached_.describe(as_cached) +
                               " needs one more symbol than the " + std::to_string(kMostFileSymbols) + " that " +
                               (files_.first ? files_.first_name : files_.decoder_name) + " may have");
        graph.values[in].info.shape.push_back(Dim::symbol(id));
      }
      for (Node& n : graph.nodes)
        for (ValueId& v : n.in)
          if (v == out) v = in;
      graph.inputs.push_back(in);
    }
    cut_decode(graph);
    keep_hidden(graph);
    return Status::ok();
  }

  // A decoder may declare other numbers of rows of its source than the encoder makes: those of one example. What the
  // encoder makes is right.
  void open_declared() {
    std::vector<std::pair<std::string, size_t>> inputs;  // and the axis of their rows
    std::vector<std::string> outputs;
    for (const SourceRows& s : module_.sources) {
      inputs.emplace_back(s.input, s.axis);
      outputs.push_back(s.output);
    }
    if (std::none_of(inputs.begin(), inputs.end(),
                     [&](const auto& in) { return declares_number(in.first, in.second); }) &&
        !declares_number(module_.hidden, 1) && !declares_number(kSourceMask, 1))
      return;
    const std::vector<ValueInfo> rows = shapes_of(*module_.encode, outputs, evaluator_),
                                 hidden = shapes_of(*module_.encoder, {module_.encoder_output}, evaluator_);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].second < rows[i].shape.size())
        open(inputs[i].first, inputs[i].second, rows[i].shape[inputs[i].second]);
    if (hidden[0].shape.size() < 2) return;
    open(module_.hidden, 1, hidden[0].shape[1]);
    if (module_.source_length == Dim::symbol(kSymE)) open(kSourceMask, 1, hidden[0].shape[1]);
  }
  static constexpr const char* kSourceMask = "encoder_attention_mask";
  std::vector<Graph*> decoders() {
    std::vector<Graph*> graphs{&module_.decode, &module_.literal_decode};
    if (module_.first) graphs.insert(graphs.end(), {&*module_.first, &*module_.literal_first});
    return graphs;
  }
  bool declares_number(const std::string& input, size_t axis) {
    const std::vector<Graph*> graphs = decoders();
    return std::any_of(graphs.begin(), graphs.end(), [&](const Graph* graph) {
      const ValueId v = named(*graph, graph->inputs, input);
      return v != kNoValue && axis < graph->values[v].info.shape.size() && graph->values[v].info.shape[axis].is_const();
    });
  }
  // A symbol in place of a number that is not `made`.
  void open(const std::string& input, size_t axis, const Dim& made) {
    for (Graph* graph : decoders()) {
      const ValueId v = named(*graph, graph->inputs, input);
      if (v == kNoValue || axis >= graph->values[v].info.shape.size()) continue;
      const Dim declared = graph->values[v].info.shape[axis];
      if (!declared.is_const() || declared == made) continue;
      if (const int id = graph->symbol("rows of " + input); id >= 0)
        graph->values[v].info.shape[axis] = Dim::symbol(id);
    }
  }

  const ModuleFiles& files_;
  Evaluator& evaluator_;
  Module module_;
  Graph cached_;
  std::optional<Graph> first_;
};

}  // namespace

Result<Module> bind_module(const ModuleFiles& files, Evaluator& evaluator) {
  return ModuleBinder(files, evaluator).run();
}

}  // namespace situ
