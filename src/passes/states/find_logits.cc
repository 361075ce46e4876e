// Which output holds the logits, where none is called so: of those that are no states the one as wide as the table that
// token ids index. One that is called logits must not be much narrower: hidden states and scores of classes are no
// logits.
#include <algorithm>
#include <cctype>
#include <set>

#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

class LogitsFinder {
 public:
  explicit LogitsFinder(PassContext& context) : context_(context), graph_(context.graph) { find_tables(); }

  Status run() {
    ValueId& logits = context_.binding.logits;
    if (logits == kNoValue) {
      std::vector<ValueId> found = candidates([&](ValueId v) { return as_wide_as_a_table(v); });
      if (found.size() > 1 && std::count_if(found.begin(), found.end(), [&](ValueId v) { return named(v); }) == 1)
        found = candidates([&](ValueId v) { return as_wide_as_a_table(v) && named(v); });
      // A table may have rows that no token has.
      if (found.empty()) found = candidates([&](ValueId v) { return named(v) ? !too_narrow(v) : nearly_as_wide(v); });
      if (found.size() > 1)
        return Status::error("which output holds the logits? None is called 'logits', and these may be: " +
                             list(found));
      if (found.empty())
        return Status::error("no output holds logits: none is called so, " + tables() +
                             ", and beside states there is " + list(others()));
      logits = found[0];
    }
    if (too_narrow(logits))
      return Status::error("output '" + graph_.values[logits].name + "' " + text(logits) +
                           " cannot be logits: " + tables() + ", and a score for each token is wanted");
    for (const Node& n : graph_.nodes)
      if (keeps_others(n))
        return Status::error(n.label() + " keeps as many tokens as have logits, but not the last ones of the step: " +
                             text(n.in[0]) + " from " + content_of(graph_, n, 1)->front().str());
    return Status::ok();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  std::string text(ValueId v) const {
    return dtype_name(graph_.values[v].info.type) + shape_str(shape(v), &graph_.symbol_names());
  }

  // A Slice of one axis to the number of tokens whose logits are wanted, other than the last ones.
  bool keeps_others(const Node& n) const {
    const auto begin = n.is("Slice") ? content_of(graph_, n, 1) : std::nullopt;
    if (!begin || begin->size() != 1) return false;
    const Shape &x = shape(n.in[0]), &y = shape(n.out[0]);
    for (size_t a = 0; a < x.size(); ++a) {
      if (y[a] != Dim::symbol(kSymL) || x[a] == y[a]) continue;
      const Dim first = begin->front().upper_bound() < 0 ? x[a] + begin->front() : begin->front();
      return first + y[a] != x[a];
    }
    return false;
  }

  // Rows of the tables that are indexed by the ids, or by integers made of them one by one.
  void find_tables() {
    std::set<ValueId> ids;
    for (const auto& [v, role] : context_.binding.inputs)
      if (role == InputRole::kTokenIds) ids.insert(v);
    for (const Node& n : graph_.nodes) {
      const bool one_by_one =
          n.def && (n.def->placement == Placement::kElementwise || n.def->placement == Placement::kView ||
                    n.is("Cast") || n.is("Clip") || n.is("Where"));
      if (one_by_one && n.out.size() == 1 && !dtype_is_float(graph_.values[n.out[0]].info.type) &&
          graph_.values[n.out[0]].info.type != DType::kBool &&
          std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) { return ids.count(v) != 0; }))
        ids.insert(n.out[0]);
      if ((n.op != "Gather" && n.op != "GatherBlockQuantized") || n.in.size() < 2 || !ids.count(n.in[1]) ||
          ids.count(n.in[0]))
        continue;
      const Shape& table = shape(n.in[0]);
      const int64_t axis = n.attr_int("axis", n.attr_int("gather_axis", 0)), rank = static_cast<int64_t>(table.size());
      if (axis < -rank || axis >= rank) continue;
      const Dim& extent = table[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
      if (extent.is_const()) rows_.insert(extent.value());
    }
  }

  // Outputs that are no states.
  std::vector<ValueId> others() const {
    std::vector<ValueId> found;
    for (ValueId v : graph_.outputs)
      if (std::none_of(context_.binding.states.begin(), context_.binding.states.end(),
                       [&](const StatePair& s) { return s.present == v; }))
        found.push_back(v);
    return found;
  }
  template <typename Wanted>
  std::vector<ValueId> candidates(Wanted wanted) const {
    std::vector<ValueId> found;
    for (ValueId v : others())
      if (dtype_is_float(graph_.values[v].info.type) && !shape(v).empty() && shape(v).size() <= 3 && wanted(v))
        found.push_back(v);
    return found;
  }

  // 0: not known before a step.
  int64_t width(ValueId v) const {
    return shape(v).empty() || !shape(v).back().is_const() ? 0 : shape(v).back().value();
  }
  bool as_wide_as_a_table(ValueId v) const { return rows_.count(width(v)) != 0; }
  bool nearly_as_wide(ValueId v) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](int64_t rows) { return width(v) >= rows - rows / 8 && width(v) <= rows + rows / 8; });
  }
  bool too_narrow(ValueId v) const { return !rows_.empty() && width(v) < (*rows_.begin() + 1) / 2; }
  bool named(ValueId v) const {
    std::string lower;
    for (const char c : graph_.values[v].name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower.find("logit") != std::string::npos;
  }

  std::string tables() const {
    if (rows_.empty()) return "no table is indexed by the token ids";
    std::string text;
    for (int64_t rows : rows_) text += (text.empty() ? "" : ", ") + std::to_string(rows);
    return "the table that token ids index has " + text + " rows";
  }
  std::string list(const std::vector<ValueId>& values) const {
    std::string names;
    for (ValueId v : values) names += (names.empty() ? "" : ", ") + graph_.values[v].name + " " + text(v);
    return names.empty() ? "none" : names;
  }

  PassContext& context_;
  const Graph& graph_;
  std::set<int64_t> rows_;
};

}  // namespace

Status find_logits(PassContext& context) {
  if (context.encoder) return Status::ok();
  return LogitsFinder(context).run();
}

}  // namespace situ
