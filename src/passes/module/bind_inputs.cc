// Gives the graph's inputs their meaning and its symbols their names: one sequence (B = 1), S new
// tokens, P past tokens. The attention mask is all ones (sequences are never padded here), so it
// becomes a node that later passes can see through.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/reasons.h"
#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/module/cache_places.h"
#include "passes/module/embeddings.h"
#include "passes/module/input_names.h"
#include "passes/module/module.h"
#include "passes/module/passes.h"
#include "passes/module/window_extents.h"

namespace situ {
namespace {

// Nodes between a past and what tells which of its axes grows.
constexpr int kMostSteps = 16;

bool is_integer(DType t) { return t == DType::kI64 || t == DType::kI32; }

class Binder {
 public:
  explicit Binder(PassContext& context) : context_(context), graph_(context.graph) {}

  Status run() {
    SITU_RETURN_IF_ERROR(check_configured_names());
    const ValueId ids = find_ids();
    if (ids == kNoValue && !context_.encoder) return refuse(no_token_ids(graph_));
    if (ids != kNoValue) SITU_RETURN_IF_ERROR(bind_ids(ids));
    if (!context_.encoder)
      for (ValueId v : graph_.inputs) SITU_RETURN_IF_ERROR(bind_source(v));
    if (!context_.encoder) SITU_RETURN_IF_ERROR(drop_handed_through());
    find_used();
    users_ = graph_.users();
    for (ValueId v : graph_.inputs) bind_places(v);
    for (ValueId v : graph_.inputs) {
      growth_[v] = growth_axis(v);
      if (is_handed_on(v)) handed_on_.insert(v);
    }
    for (ValueId v : graph_.outputs) context_.declared_outputs.emplace_back(v, graph_.values[v].info.type);
    std::vector<ValueId> kept;
    ReasonList refused;
    for (ValueId v : graph_.inputs) {
      bool keep = true;
      refused.add(bind(v, ids, &keep), Reason::Kind::kInput);
      if (keep) kept.push_back(v);
    }
    if (!refused.empty()) return all_refused(refused);
    graph_.inputs = std::move(kept);
    if (!context_.encoder) SITU_RETURN_IF_ERROR(bind_logits());
    if (!context_.names.rows.empty()) context_.binding.rows = graph_.find(context_.names.rows);
    SITU_RETURN_IF_ERROR(resolve_ops(graph_));
    return graph_.sort();
  }

 private:
  // With what the inputs are, which the reason leaves out.
  Status refuse(const std::string& what) const {
    return Status::error(describe(what)).because({{.kind = Reason::Kind::kInput, .op = "", .detail = what}});
  }
  // Adapters that the host would choose for each call.
  std::optional<Status> adapters() const {
    size_t count = 0;
    std::string first;
    for (const ValueId v : graph_.inputs)
      if (const std::string& name = graph_.values[v].name; names_adapter(name) && count++ == 0) first = name;
    if (count == 0) return std::nullopt;
    const std::string what = std::to_string(count) + (count == 1 ? " input is a weight" : " inputs are weights") +
                             " of LoRA adapters, which nothing here gives; first '" + first + "'";
    const char* advice = "merge the adapter into the model before the export, or export the weights as constants";
    Reason reason{.kind = Reason::Kind::kInput, .op = "", .detail = what};
    reason.advice = advice;
    return Status::error(describe(what + ": " + advice)).because({reason});
  }
  Status all_refused(const ReasonList& refused) const {
    if (std::optional<Status> told = adapters()) return *told;
    if (refused.reasons().size() == 1) return refused.status();
    std::string text;
    for (const Reason& r : refused.reasons()) text += (text.empty() ? "" : "; ") + r.detail;
    return Status::error(describe(text)).because(refused.reasons());
  }
  std::string describe(const std::string& what) const {
    std::string inputs;
    for (ValueId v : graph_.inputs)
      inputs += (inputs.empty() ? "" : ", ") + graph_.values[v].name + " " + dtype_name(graph_.values[v].info.type) +
                shape_str(graph_.values[v].info.shape, &graph_.symbol_names());
    return what + "; inputs are: " + inputs;
  }

  // A name that the configuration gives must be there: a guess in its place would be a wrong answer.
  Status check_configured_names() const {
    const InputNames& n = context_.names;
    const std::pair<const char*, const std::string*> inputs[] = {{"input_ids", &n.input_ids}};
    for (const auto& [role, name] : inputs)
      if (!name->empty() && !has(graph_.inputs, *name))
        return refuse(std::string("the configuration calls ") + role + " '" + *name +
                      "', which the graph does not have");
    if (!n.logits.empty() && !has(graph_.outputs, n.logits))
      return refuse("the configuration calls the logits '" + n.logits + "', which is no output of the graph");
    for (const auto& [name_template, list] :
         {std::pair<const std::string*, const std::vector<ValueId>*>{&n.past_key, &graph_.inputs},
          {&n.past_value, &graph_.inputs},
          {&n.present_key, &graph_.outputs},
          {&n.present_value, &graph_.outputs}})
      SITU_RETURN_IF_ERROR(check_template(*name_template, *list));
    if (!n.attention_mask.empty() && !has(graph_.inputs, n.attention_mask) && has(graph_.inputs, "attention_mask"))
      return refuse("the configuration calls attention_mask '" + n.attention_mask + "', which the graph does not have");
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
    return found ? Status::ok()
                 : refuse("the configuration calls states '" + name + "', which names nothing in the graph");
  }
  bool has(const std::vector<ValueId>& list, const std::string& name) const {
    return std::any_of(list.begin(), list.end(), [&](ValueId v) { return graph_.values[v].name == name; });
  }

  // Numbers that an output hands back to the host as they came, which nothing else reads: exporters make states of what
  // their caches know of themselves.
  Status drop_handed_through() {
    const auto all = graph_.users();
    const auto read = [&](ValueId first) {  // by what is no Identity
      std::vector<ValueId> open{first};
      while (!open.empty()) {
        const ValueId v = open.back();
        open.pop_back();
        for (const auto& [user, operand] : all[static_cast<size_t>(v)]) {
          if (user < 0 || !graph_.nodes[static_cast<size_t>(user)].is("Identity")) return true;
          for (const ValueId same : graph_.nodes[static_cast<size_t>(user)].out)
            if (same != kNoValue) open.push_back(same);
        }
      }
      return false;
    };
    const size_t dropped = std::erase_if(graph_.outputs, [&](ValueId out) {
      const ValueId v = graph_.behind(out, {"Identity"});
      const ValueInfo& info = graph_.values[v].info;
      return is_integer(info.type) && info.ranked && info.shape.size() < 2 && !read(v) &&
             std::find(graph_.inputs.begin(), graph_.inputs.end(), v) != graph_.inputs.end();
    });
    if (dropped == 0) return Status::ok();
    SITU_RETURN_IF_ERROR(graph_.sort());
    graph_.remove_dead_nodes();
    return Status::ok();
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

  // By name, else the one integer matrix that indexes a table.
  ValueId find_ids() const {
    const ValueId v = named_input(graph_, context_.names.input_ids, {"input_ids", "decoder_input_ids", "tokens"});
    if (v != kNoValue) return v;
    for (const Node& n : graph_.nodes) {
      if ((n.op != "Gather" && n.op != "GatherBlockQuantized") || n.in.size() < 2) continue;
      const ValueId index =
          graph_.behind(n.in[1], {"Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Clip"});
      const Value &input = graph_.values[index],
                  &table = graph_.values[graph_.behind(n.in[0], {"Identity", "Cast", "DequantizeLinear", "Transpose"})];
      if (std::find(graph_.inputs.begin(), graph_.inputs.end(), index) != graph_.inputs.end() &&
          is_integer(input.info.type) && table.constant.present() && table.constant.rank() == 2 &&
          input.name.find("position") == std::string::npos && !names_positions(input.name))
        return index;
    }
    return kNoValue;
  }
  Status bind_ids(ValueId ids) {
    const ValueInfo& info = graph_.values[ids].info;
    if (!is_integer(info.type) || !info.ranked || info.shape.size() != 2)
      return refuse("input '" + graph_.values[ids].name + "' should be an integer tensor of shape [batch, sequence]");
    if (info.shape[0].is_const() && info.shape[0] != Dim(1))
      return refuse("input '" + graph_.values[ids].name + "' holds a batch of " + info.shape[0].str() +
                    " sequences, only 1 is supported");
    if (!info.shape[0].is_const() && info.shape[0] == info.shape[1])
      return refuse("both dims of input '" + graph_.values[ids].name +
                    "' have the same name, so that one cannot be told from the other");
    replace_symbol(info.shape[0], Dim(1));
    // As many as an array of the caller has numbers.
    if (const Dim& count = graph_.values[ids].info.shape[1]; !context_.fed.empty() && count.is_const()) tokens_ = count;
    // Rows for fewer or more tokens than a step has would be read, or written, where there are none.
    if (const Dim& count = graph_.values[ids].info.shape[1];
        !context_.encoder && count.is_const() && count.value() > 1 && count != tokens())
      return refuse("input '" + graph_.values[ids].name + "' takes " + count.str() + " tokens in every step");
    replace_symbol(graph_.values[ids].info.shape[1], tokens());
    graph_.values[ids].info.shape[0] = Dim(1);
    context_.binding.inputs[ids] = InputRole::kTokenIds;
    return Status::ok();
  }

  Dim tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : tokens_; }
  Dim past() const { return context_.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP); }

  // Substitutes a dimension that is a lone file symbol in every input and output.
  void replace_symbol(const Dim symbol, const Dim& by) {
    const int id = symbol.lone_symbol();
    if (id < kFirstFileSymbol) return;
    for (const auto* list : {&graph_.inputs, &graph_.outputs})
      for (ValueId v : *list)
        for (Dim& d : graph_.values[v].info.shape) d = d.substitute(id, by);
  }

  // Rows of a source: [batch, heads, rows, size] of keys or values, or [batch, rows, width] of an encoder's output.
  Status bind_source(ValueId v) {
    Value& value = graph_.values[v];
    for (const SourceRows& s : context_.sources) {
      if (s.input != value.name) continue;
      const size_t axis = static_cast<size_t>(s.axis);
      if (axis >= value.info.shape.size())
        return refuse("input '" + value.name + "' has no axis " + std::to_string(axis));
      replace_symbol(Dim(value.info.shape[axis]), Dim::symbol(kSymE));
      if (!value.info.shape[0].is_const()) value.info.shape[0] = Dim(1);
      context_.binding.inputs[v] = InputRole::kState;
    }
    return Status::ok();
  }

  // Ones for all rows of the source, or for all of the encoder's input: nothing is padded.
  bool masks_source(const Value& value) const {
    if (context_.sources.empty() || context_.encoder || value.info.shape.size() != 2) return false;
    return value.info.shape[1] == Dim::symbol(kSymE) || plain_name(value.name) == "encoderattentionmask";
  }

  // What the caller feeds to an encoder, in extents that are known; a mask that he does not feed shows all.
  Status bind_features(ValueId v, bool* keep) {
    Value& value = graph_.values[v];
    Shape& shape = value.info.shape;
    if (!shape.empty() && !shape[0].is_const()) shape[0] = Dim(1);
    if (!value.info.ranked || !shape_is_const(shape))
      return refuse("input '" + value.name + "' " + shape_str(shape, &graph_.symbol_names()) +
                    " of the encoder: its extents are known when an array is given for it");
    if (names_mask(value.name) && !context_.fed.count(value.name)) {
      *keep = false;
      return make_ones(v, shape);
    }
    context_.binding.inputs[v] = InputRole::kFeatures;
    return Status::ok();
  }

  Status bind(ValueId v, ValueId ids, bool* keep) {
    if (v == ids || context_.binding.inputs.count(v)) return Status::ok();
    Value& value = graph_.values[v];
    const std::string& name = value.name;
    const ValueInfo& info = value.info;
    // Declared, but nothing reads it. What looks like a state is refused below: something must have been meant by it.
    if (!used_.count(v) && (is_integer(info.type) || info.shape.size() < 3)) {
      *keep = false;
      return Status::ok();
    }
    if (context_.encoder && (ids == kNoValue || context_.fed.count(name))) return bind_features(v, keep);
    if (masks_source(value)) {
      const Shape shape{Dim(1), info.shape[1].is_const() ? info.shape[1] : context_.source_length};
      if (context_.literal && shape[1] != Dim::symbol(kSymE) && !shape_is_const(shape) && !dtype_is_float(info.type)) {
        value.info.shape = shape;
        context_.binding.inputs[v] = InputRole::kSourceMask;
        return Status::ok();
      }
      *keep = false;
      return make_ones(v, shape);
    }
    bool is_mask = false;
    SITU_RETURN_IF_ERROR(bind_mask(v, &is_mask));
    if (is_mask) {
      *keep = false;
      if (context_.binding.mask.told && masks_places(v)) {
        context_.binding.mask = {};
        show_written(graph_, v, past(), tokens());
        return Status::ok();
      }
      return make_ones(v, {Dim(1), past() + tokens()});
    }
    if (names_kept_logits(name) && is_integer(info.type)) {
      *keep = false;
      return bind_kept_logits(v);
    }
    bool is_place = false;
    SITU_RETURN_IF_ERROR(bind_place(v, &is_place));
    if (is_place) {
      *keep = context_.binding.inputs.count(v) != 0;
      return Status::ok();
    }
    const bool is_positions =
        context_.names.position_ids.empty() ? names_positions(name) : name == context_.names.position_ids;
    if (is_positions && is_integer(info.type) && !info.shape.empty()) return bind_positions(v);
    if (names_token_types(name) && is_integer(info.type) && context_.texts) return bind_types_of_tokens(v);
    if (names_token_types(name) && is_integer(info.type) && context_.names.rows.empty()) {
      *keep = false;
      return bind_token_types(v);
    }
    if (bind_window(graph_, users_, v, growth_.at(v))) growth_[v] = -1;
    const int axis = growth_.at(v);
    if (!handed_on_.count(v) && !is_row_of_state(v) &&
        (info.shape.size() < 2 || (info.shape.size() < 3 && (axis < 0 || is_integer(info.type)))))
      return refuse("input '" + name + "' has no known meaning" +
                    (context_.names.attention_mask.empty()
                         ? ""
                         : " (the configuration calls the attention mask '" + context_.names.attention_mask + "')"));
    Shape shape = info.shape;
    for (size_t i = 0; i < shape.size(); ++i)
      if (static_cast<int>(i) == axis)
        shape[i] = past();
      else if (i == 0 && !shape[i].is_const())
        shape[i] = Dim(1);
    graph_.values[v].info.shape = shape;
    if (context_.texts && axis >= 0 && shape_is_const(shape)) {  // a past of no rows
      *keep = false;
      return make_filled(v, shape, false);
    }
    context_.binding.inputs[v] = InputRole::kState;
    return Status::ok();
  }

  // Numbers [1, C] that an output of the same name as a state's continues.
  bool is_row_of_state(ValueId v) const {
    const ValueInfo& info = graph_.values[v].info;
    const std::string suffix = state_suffix(graph_.values[v].name);
    return !suffix.empty() && dtype_is_float(info.type) && info.shape.size() == 2 && info.shape[1].is_const() &&
           std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](ValueId out) { return state_suffix(graph_.values[out].name) == suffix; });
  }

  // An output of the same name as a state's is this input.
  bool is_handed_on(ValueId v) const {
    const std::string suffix = state_suffix(graph_.values[v].name);
    return !suffix.empty() && std::any_of(graph_.outputs.begin(), graph_.outputs.end(), [&](ValueId out) {
      return state_suffix(graph_.values[out].name) == suffix && graph_.behind(out, {"Identity"}) == v;
    });
  }

  // A mask of [batch, tokens], past ones included: ones. Called attention_mask, it is one; other names are checked by
  // what they do.
  Status bind_mask(ValueId v, bool* is_mask) {
    const ValueInfo& info = graph_.values[v].info;
    const std::string &name = graph_.values[v].name, &configured = context_.names.attention_mask;
    const bool told = configured.empty() ? name == "attention_mask" : name == configured;
    if (!told && (!configured.empty() || has(graph_.inputs, "attention_mask") || !names_mask(name) ||
                  context_.binding.mask.value != kNoValue))
      return Status::ok();
    // A row for each new token: the host would have to say which keys each may see. Ones would show it later ones.
    const bool by_query = info.shape.size() == 2 && !info.shape[0].is_const() && info.shape[0] == tokens();
    const bool fits =
        (info.shape.size() == 2 && !by_query && (told || (!info.shape[1].is_const() && info.shape[1] != tokens()))) ||
        (told && shows_places(v));
    if (told && !fits)
      return refuse("input '" + name + "' " + shape_str(info.shape, &graph_.symbol_names()) + " is a mask of " +
                    std::to_string(info.shape.size()) +
                    " dims that the host would have to make; masks of [batch, tokens] are supported");
    *is_mask = fits;
    if (fits) context_.binding.mask = {v, told, info.shape[0] != Dim(1)};
    return Status::ok();
  }

  // -- caches of a fixed size, which steps write into

  // A symbol for the places of such a cache: as many as the context has tokens.
  void bind_places(ValueId v) {
    const Shape& shape = graph_.values[v].info.shape;
    int found = -1;
    for (size_t i = 1; i < shape.size(); ++i) {
      if (shape[i].is_const()) continue;
      if (found >= 0) return;
      found = static_cast<int>(i);
    }
    if (found < 0 || shape.size() < 3 || !is_scattered_into(graph_, users_, v)) return;
    if (bind_numbered(graph_, users_, v, static_cast<size_t>(found))) return;
    const Dim places = shape[static_cast<size_t>(found)];
    const bool grows = std::any_of(graph_.inputs.begin(), graph_.inputs.end(), [&](ValueId other) {
      const int axis = told_axis(other);
      return axis >= 0 && graph_.values[other].info.shape[static_cast<size_t>(axis)] == places;
    });
    if (grows) return;
    replace_symbol(places, Dim(context_.context_length));
  }

  // A mask with a column for each place of such a cache, of a usual name.
  bool masks_places(ValueId v) const {
    const Dim& places = graph_.values[v].info.shape.back();
    return places.is_const() && std::any_of(graph_.inputs.begin(), graph_.inputs.end(), [&](ValueId state) {
             const Shape& shape = graph_.values[state].info.shape;
             return shape.size() >= 3 && std::find(shape.begin(), shape.end(), places) != shape.end() &&
                    is_scattered_into(graph_, users_, state);
           });
  }
  // The same with a row for each token [batch, 1, tokens, places]: whether it sees a place.
  bool shows_places(ValueId v) const {
    const ValueInfo& info = graph_.values[v].info;
    return info.shape.size() == 4 && !dtype_is_float(info.type) && info.shape[1] == Dim(1) &&
           info.shape[2] == tokens() && masks_places(v);
  }
  // What a host says of such a cache, told by who reads it: the place of a step's first row, how many rows there are
  // behind a step, or the place of each row.
  Status bind_place(ValueId v, bool* is_place) {
    const ValueInfo& info = graph_.values[v].info;
    if (!is_integer(info.type) || !info.ranked) return Status::ok();
    // One number; of [batch, 1] where that is no row of one token.
    const bool column = info.shape.size() == 2 && info.shape[1] == Dim(1) && tokens() != Dim(1);
    const bool batch = (info.shape.size() == 1 || column) && !info.shape[0].is_const() && info.shape[0] != tokens();
    const bool one = batch || info.shape.empty() || (info.shape[0] == Dim(1) && (info.shape.size() == 1 || column));
    const PlaceUse use = place_use(graph_, users_, v);
    const bool counts = one && (use == PlaceUse::kLength || use == PlaceUse::kBehind),
               begins = one && !counts && use != PlaceUse::kNone;
    if (counts || begins) {
      *is_place = true;
      if (batch) graph_.values[v].info.shape[0] = Dim(1);
      say_number(graph_, v, counts ? past() + tokens() : past());
      if (use != PlaceUse::kLength) context_.told_by_use.push_back(v);
      return Status::ok();
    }
    const bool row = !info.shape.empty() && info.shape.size() <= 2 && info.shape.back() == tokens();
    if (!row || names_token_types(graph_.values[v].name) || use != PlaceUse::kIndex) return Status::ok();
    *is_place = true;
    if (!names_positions(graph_.values[v].name)) context_.told_by_use.push_back(v);
    return bind_positions(v);
  }

  // [tokens], [1, tokens], or three or four rows of those (M-RoPE), which are equal for text.
  Status bind_positions(ValueId v) {
    const ValueInfo& info = graph_.values[v].info;
    const size_t rank = info.shape.size();
    const auto fits = [](const Dim& d, std::initializer_list<int64_t> extents) {
      return !d.is_const() || std::count(extents.begin(), extents.end(), d.value()) != 0;
    };
    const auto refuse = [&](const std::string& why) {
      return this->refuse("input '" + graph_.values[v].name + "' " + shape_str(info.shape, &graph_.symbol_names()) +
                          " is not a position for each token: " + why);
    };
    if (info.shape.back().is_const() ? info.shape.back() != tokens() : (info.shape.back() != tokens() && counts_on(v)))
      return refuse("where a step begins, or another thing");
    if (rank > 3 || (rank > 1 && !fits(info.shape[rank - 2], {1})) || (rank > 2 && !fits(info.shape[0], {1, 3, 4})))
      return refuse("that is [tokens], [1, tokens] or [3 or 4, 1, tokens]");
    Shape shape(rank, Dim(1));
    if (rank == 3) shape[0] = info.shape[0].is_const() ? info.shape[0] : Dim(3);
    shape.back() = tokens();
    graph_.values[v].info.shape = shape;
    context_.binding.inputs[v] = InputRole::kPositions;
    return Status::ok();
  }

  // How many of the last tokens have logits: those that are wanted. Literally, and where a step has one token, the
  // last one.
  Status bind_kept_logits(ValueId v) {
    Value& value = graph_.values[v];
    if (value.info.shape.size() > 1 || (value.info.shape.size() == 1 && indexes(v)))
      return refuse("input '" + value.name + "' " + shape_str(value.info.shape, &graph_.symbol_names()) +
                    " is not how many of the last tokens have logits, one number");
    const Shape shape = value.info.shape.empty() ? Shape{} : Shape{Dim(1)};
    if (context_.literal || context_.phase == Phase::kDecode) return make_ones(v, shape);
    value.info.shape = shape;
    value.info.content = Shape{Dim::symbol(kSymL)};
    return Status::ok();
  }
  // Whether a Gather takes elements by it.
  bool indexes(ValueId v) const {
    std::set<ValueId> same{v};
    for (const Node& n : graph_.nodes) {
      if (n.in.empty() || n.out.empty()) continue;
      if (n.op.starts_with("Gather") && n.in.size() > 1 && same.count(n.in[1])) return true;
      const bool moves = n.is("Cast") || n.is("Identity") || n.is("Reshape") || n.is("Unsqueeze");
      if (moves && same.count(n.in[0])) same.insert(n.out[0]);
    }
    return false;
  }

  // [tokens] or [1, tokens], which the host writes.
  Status bind_types_of_tokens(ValueId v) {
    SITU_RETURN_IF_ERROR(check_token_types(v));
    Shape& shape = graph_.values[v].info.shape;
    shape = Shape(shape.size(), Dim(1));
    shape.back() = tokens();
    context_.binding.inputs[v] = InputRole::kTokenTypes;
    return Status::ok();
  }
  Status check_token_types(ValueId v) const {
    const ValueInfo& info = graph_.values[v].info;
    const size_t rank = info.shape.size();
    if (rank < 1 || rank > 2 || (rank == 2 && info.shape[0].is_const() && info.shape[0] != Dim(1)))
      return refuse("input '" + graph_.values[v].name + "' " + shape_str(info.shape, &graph_.symbol_names()) +
                    " is not a type for each token: that is [tokens] or [1, tokens]");
    return Status::ok();
  }
  // [tokens], [1, tokens] or [1, past + tokens]: zeros.
  Status bind_token_types(ValueId v) {
    SITU_RETURN_IF_ERROR(check_token_types(v));
    const ValueInfo& info = graph_.values[v].info;
    const size_t rank = info.shape.size();
    Shape shape(rank, Dim(1));
    shape.back() = info.shape.back();
    if (!shape.back().is_const()) shape.back() = names_all_tokens(shape.back()) ? past() + tokens() : tokens();
    return make_filled(v, shape, false);
  }
  // "total_sequence_length", "past_sequence_length + 1"
  bool names_all_tokens(const Dim& extent) const {
    const std::string name = extent.str(&graph_.symbol_names());
    return name.find("total") != std::string::npos || name.find("past") != std::string::npos;
  }

  // Whether the graph adds a row of numbers to `v`, as it does to the position of a step's first token.
  bool counts_on(ValueId v) const {
    static const std::set<std::string> same{"Identity", "Cast",   "Unsqueeze", "Squeeze",
                                            "Reshape",  "Expand", "Flatten",   "Transpose"};
    std::set<ValueId> moved{v};
    for (size_t before = 0; before != moved.size();) {
      before = moved.size();
      for (const Node& n : graph_.nodes) {
        if (n.in.empty() || n.out.empty()) continue;
        if (same.count(n.op) && moved.count(n.in[0])) moved.insert(n.out[0]);
        if (n.op != "Add" || n.in.size() != 2) continue;
        for (int i = 0; i < 2; ++i)
          if (const Tensor& number = graph_.values[n.in[1 - i]].constant;
              moved.count(n.in[i]) && !(number.present() && number.count() == 1))
            return true;
      }
    }
    return false;
  }

  // A constant where the shape is known, else a ConstantOfShape node whose shape operand has content.
  Status make_ones(ValueId v, Shape shape) { return make_filled(v, std::move(shape), true); }
  Status make_filled(ValueId v, Shape shape, bool with_ones) {
    const DType type = graph_.values[v].info.type;
    const bool known = shape_is_const(shape);
    const Tensor filled = Tensor::allocate(type, known ? shape_values(shape) : std::vector<int64_t>{1});
    const auto fill = [&](auto one) {
      std::fill_n(filled.view().as<decltype(one)>(), filled.count(), with_ones ? one : decltype(one){});
    };
    switch (type) {
      case DType::kI64:
        fill(int64_t{1});
        break;
      case DType::kI32:
        fill(int32_t{1});
        break;
      case DType::kF32:
        fill(1.0f);
        break;
      case DType::kF16:
        fill(uint16_t{0x3C00});
        break;
      case DType::kBF16:
        fill(uint16_t{0x3F80});
        break;
      case DType::kBool:
      case DType::kI8:
      case DType::kU8:
        fill(uint8_t{1});
        break;
      default:
        return refuse("input '" + graph_.values[v].name + "' of type " + dtype_name(type) + " is not supported");
    }
    if (known) {
      graph_.values[v].constant = filled;
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
    value.tensor = filled;
    n.attrs["value"] = value;
    graph_.nodes.push_back(std::move(n));  // users_ counts those before it
    return Status::ok();
  }

  // The axis of a past input that grows: told by the Concat or the fused operator that it feeds; else by
  // the name of its symbol; else axis 2 of [batch, heads, past, size]. -1: none.
  int growth_axis(ValueId v) const {
    const Shape& shape = graph_.values[v].info.shape;
    const int rank = static_cast<int>(shape.size());
    if (const int told = told_axis(v); told >= 0) return told;
    for (int i = 0; i < rank; ++i) {
      const std::string symbol =
          shape[static_cast<size_t>(i)].is_const() ? "" : shape[static_cast<size_t>(i)].str(&graph_.symbol_names());
      if (symbol.find("past") != std::string::npos && symbol.find("batch") == std::string::npos) return i;
    }
    return rank == 4 && !shape[2].is_const() ? 2 : -1;
  }
  int told_axis(ValueId v) const {
    const Shape& shape = graph_.values[v].info.shape;
    std::vector<int> axes(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    return axis_of_user(v, axes, shape, kMostSteps);
  }
  // `axes`: which of the past's, of shape `past`, those of v are; v may be a part of it, or all of it in another
  // layout.
  int axis_of_user(ValueId v, const std::vector<int>& axes, const Shape& past, int steps) const {
    const int64_t rank = static_cast<int64_t>(axes.size());
    for (const auto& [user, operand] : users_[v]) {
      if (user < 0) continue;
      const Node& n = graph_.nodes[static_cast<size_t>(user)];
      const bool fused = n.op == "GroupQueryAttention" || n.op == "MultiHeadAttention" || n.op == "Attention";
      if (fused && rank >= 4) return axes[axes.size() - 2];
      if (operand != 0) continue;
      int told = -1;
      if (n.is("Concat")) {
        const int64_t a = n.attr_int("axis", 0), axis = a < 0 ? a + rank : a;
        // A known extent does not grow: the last rows of a convolution are as many before and after.
        if (axis >= 0 && axis < rank) told = axes[static_cast<size_t>(axis)];
        if (told >= 0 && past[static_cast<size_t>(told)].is_const() && past[static_cast<size_t>(told)].value() > 0)
          told = -1;
      } else if (const std::optional<std::vector<int>> inner = steps > 0 ? axes_behind(n, axes) : std::nullopt) {
        for (size_t o = 0; o < n.out.size() && told < 0; ++o)
          if (n.has_output(o)) told = axis_of_user(n.out[o], *inner, past, steps - 1);
      }
      if (told >= 0) return told;
    }
    return -1;
  }
  // The axes of what a node makes of its first operand, where it leaves out some of them or puts them in another order.
  std::optional<std::vector<int>> axes_behind(const Node& n, const std::vector<int>& axes) const {
    const int64_t rank = static_cast<int64_t>(axes.size());
    if (n.is("Identity") || n.is("Cast") || n.is("Split") || n.is("Slice")) return axes;
    std::vector<int> behind;
    if (n.is("Transpose")) {
      for (const int64_t axis : n.permutation(axes.size()))
        if (axis >= 0 && axis < rank) behind.push_back(axes[static_cast<size_t>(axis)]);
      return behind.size() == axes.size() ? std::optional(behind) : std::nullopt;
    }
    std::vector<int64_t> left_out;
    if (n.is("Gather") && n.has_input(1) && graph_.values[n.in[1]].constant.present()) {
      const Tensor& index = graph_.values[n.in[1]].constant;
      if (index.rank() > 1) return std::nullopt;
      if (index.rank() == 0) left_out.push_back(n.attr_int("axis", 0));
    } else if (n.is("Squeeze")) {
      const bool operand = n.has_input(1) && graph_.values[n.in[1]].constant.present();
      left_out = operand ? graph_.values[n.in[1]].constant.to_i64() : n.attr_ints("axes");
      if (left_out.empty()) return std::nullopt;
    } else {
      return std::nullopt;
    }
    for (int64_t& axis : left_out) axis += axis < 0 ? rank : 0;
    for (int64_t axis = 0; axis < rank; ++axis)
      if (std::find(left_out.begin(), left_out.end(), axis) == left_out.end())
        behind.push_back(axes[static_cast<size_t>(axis)]);
    return behind;
  }

  // Those that are called so. Others are found when it is known how wide they are, and which outputs are states.
  Status bind_logits() {
    if (graph_.outputs.empty()) return Status::error("the graph has no outputs");
    for (ValueId v : graph_.outputs)
      if (graph_.values[v].name == (context_.names.logits.empty() ? "logits" : context_.names.logits))
        context_.binding.logits = v;
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  Dim tokens_ = Dim::symbol(kSymS);
  std::set<ValueId> used_;
  std::vector<std::vector<std::pair<int, int>>> users_;  // before nodes are added
  std::map<ValueId, int> growth_;                        // the axis that grows
  std::set<ValueId> handed_on_;                          // states that every step leaves as they are
};

}  // namespace

Status bind_inputs(PassContext& context) { return Binder(context).run(); }

}  // namespace situ
