#include "passes/window/fixed_window.h"

#include <algorithm>
#include <string>

#include "passes/context/binding.h"
#include "passes/module/input_names.h"
#include "passes/module/module.h"

namespace situ {
namespace {

// Nodes between a present output and the past input that it continues.
constexpr int kMostSteps = 16;

bool is_integer(DType t) { return t == DType::kI64 || t == DType::kI32; }

class Finder {
 public:
  Finder(const Graph& graph, const InputNames& names) : graph_(graph), names_(names) {}

  Result<std::optional<FixedWindow>> run() {
    FixedWindow w;
    w.ids = named_input(graph_, names_.input_ids, {"input_ids", "decoder_input_ids", "tokens"});
    if (w.ids == kNoValue || !fixed(w.ids, 2) || !is_integer(type(w.ids)) || extent(w.ids, 0) != 1)
      return std::optional<FixedWindow>();
    std::vector<ValueId> pasts;
    for (const ValueId v : graph_.inputs)
      if (dtype_is_float(type(v)) && shape(v).size() >= 3) pasts.push_back(v);
    if (pasts.empty() || !std::all_of(pasts.begin(), pasts.end(), [&](ValueId v) { return shape_is_const(shape(v)); }))
      return std::optional<FixedWindow>();
    // Caches that are written at their place, and recurrences: no rows move.
    if (std::all_of(pasts.begin(), pasts.end(), [&](ValueId v) { return keeps_shape(v); }))
      return std::optional<FixedWindow>();
    w.tokens = extent(w.ids, 1);
    w.mask = named_input(graph_, names_.attention_mask, {"attention_mask"});
    if (w.mask == kNoValue)
      return Status::error(
          "all extents are fixed, and no input is an attention mask, which would tell the rows of the past that hold "
          "tokens from those that do not yet");
    if (shape(w.mask).size() != 2 || !shape_is_const(shape(w.mask)))
      return shape_is_const(shape(w.mask)) ? Result<std::optional<FixedWindow>>(wrong(w.mask, "is not [1, T]"))
                                           : std::optional<FixedWindow>();
    w.length = extent(w.mask, 1);
    if (extent(w.mask, 0) != 1 || w.tokens < 1 || w.length <= w.tokens)
      return wrong(w.mask, "is not [1, T] with T greater than the " + std::to_string(w.tokens) + " tokens of a step");
    for (const ValueId v : graph_.inputs)
      if (v != w.ids && v != w.mask && is_integer(type(v)) && !shape(v).empty() && shape_is_const(shape(v)) &&
          shape(v).back().value() == w.tokens && names_positions(v))
        w.positions.push_back(v);
    SITU_RETURN_IF_ERROR(find_states(pasts, w));
    return std::optional<FixedWindow>(std::move(w));
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  DType type(ValueId v) const { return graph_.values[v].info.type; }
  int64_t extent(ValueId v, size_t axis) const { return shape(v)[axis].value(); }
  bool fixed(ValueId v, size_t rank) const { return shape(v).size() == rank && shape_is_const(shape(v)); }
  std::string text(ValueId v) const { return "'" + graph_.values[v].name + "' " + shape_str(shape(v)); }
  Status wrong(ValueId v, const std::string& why) const {
    return Status::error("all extents are fixed, and " + text(v) + " " + why);
  }

  bool names_positions(ValueId v) const {
    const std::string& name = graph_.values[v].name;
    return names_.position_ids.empty() ? name.find("pos") != std::string::npos : name == names_.position_ids;
  }

  // An output of the same name as a state's is as large.
  bool keeps_shape(ValueId past) const {
    const std::string suffix = state_suffix(graph_.values[past].name);
    return !suffix.empty() && std::any_of(graph_.outputs.begin(), graph_.outputs.end(), [&](ValueId out) {
      return state_suffix(graph_.values[out].name) == suffix && shape(out) == shape(past);
    });
  }

  // The axis of `past` on which `present` has T rows and it has T - W; -1: none, or there is another difference.
  int grown_axis(const FixedWindow& w, ValueId past, ValueId present) const {
    const Shape &before = shape(past), &after = shape(present);
    int axis = -1;
    if (before.size() != after.size() || type(past) != type(present) || !shape_is_const(after)) return -1;
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] == after[i]) continue;
      if (axis >= 0 || before[i] != Dim(w.past()) || after[i] != Dim(w.length)) return -1;
      axis = static_cast<int>(i);
    }
    return axis;
  }

  // What an output is made of, through first operands.
  ValueId made_of(ValueId v) const {
    for (int step = 0; step < kMostSteps; ++step) {
      const Node* n = graph_.producer(v);
      if (!n || n->in.empty() || n->in[0] == kNoValue) break;
      v = n->in[0];
    }
    return v;
  }

  Status find_states(const std::vector<ValueId>& pasts, FixedWindow& w) const {
    for (const ValueId past : pasts) {
      std::vector<FixedWindow::State> found;
      bool made = false;
      for (const ValueId out : graph_.outputs) {
        const int axis = grown_axis(w, past, out);
        if (axis < 0) continue;
        const bool continues = made_of(out) == past;
        if (continues && !made) found.clear();
        made = made || continues;
        const bool taken = std::any_of(w.states.begin(), w.states.end(),
                                       [&](const FixedWindow::State& s) { return s.present == out; });
        if (continues || (!made && !taken)) found.push_back({past, out, axis});
      }
      if (found.empty())
        return wrong(past, "has no output with " + std::to_string(w.length) + " rows where it has " +
                               std::to_string(w.past()) + " = T - W, of a mask of T = " + std::to_string(w.length) +
                               " and steps of W = " + std::to_string(w.tokens) +
                               (w.tokens == 1 ? " token" : " tokens"));
      w.states.push_back(found[0]);
    }
    return Status::ok();
  }

  const Graph& graph_;
  const InputNames& names_;
};

}  // namespace

Result<std::optional<FixedWindow>> find_fixed_window(const Graph& graph, const InputNames& names) {
  return Finder(graph, names).run();
}

}  // namespace situ
