// Positions that the graph counts in its mask, CumSum(mask) - 1 of the last tokens, take as much work as there are keys
// and belong to one sequence. What is proved to be P .. P + S - 1 at every step becomes an input that the host feeds:
//
//   Slice(Max(CumSum(ones [1, P + S]) - 1, 0), [P], [P + S])  ->  situ.positions [1, S]
#include <algorithm>

#include "passes/context/pass_context.h"
#include "passes/host/index_form.h"
#include "passes/host/probe.h"
#include "passes/module/passes.h"

namespace situ {
namespace {

class Positions {
 public:
  explicit Positions(PassContext& context)
      : context_(context),
        graph_(context.graph),
        prober_(graph_, context.binding, context.evaluator),
        most_(context.context_length),
        forms_(graph_, context.binding, prober_, context.evaluator, 0, most_ - 1) {}

  Status run() {
    std::vector<std::pair<ValueId, ValueId>> replaced;
    for (const auto& [v, role] : context_.binding.inputs)
      if (role == InputRole::kPositions) follow(v);
    for (const Node& n : graph_.nodes)
      for (const ValueId v : n.out)
        if (v != kNoValue && !fed_.count(v) && counts_tokens(v)) {
          const ValueId by = graph_.values[v].info.content ? kNoValue : input(graph_.values[v].info);
          if (by == kNoValue) continue;
          replaced.emplace_back(v, by);
          follow(v);
        }
    for (const auto& [v, by] : replaced) {
      context_.note("positions", graph_.values[v].name, "counted in the mask -> fed by the host");
      graph_.replace_uses(v, by);
    }
    if (!replaced.empty()) graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  // Element i along the last axis, which has a row for each token, is P + i.
  bool counts_tokens(ValueId v) {
    const ValueInfo& info = graph_.values[v].info;
    if ((info.type != DType::kI64 && info.type != DType::kI32) || info.shape.empty() || !prober_.changes(v))
      return false;
    for (size_t a = 0; a < info.shape.size(); ++a)
      if (info.shape[a] != (a + 1 == info.shape.size() ? Dim::symbol(kSymS) : Dim(1))) return false;
    const std::optional<IndexForm> form = forms_.find(v);
    if (!form || form->steps.back() != 1 || form->offset != Dim::symbol(kSymP)) return false;
    if (!form->has_table()) return true;
    if (context_.endless || form->table.count() != most_) return false;
    const std::vector<int64_t> numbers = form->table.to_i64();
    for (int64_t i = 0; i < most_; ++i)
      if (numbers[static_cast<size_t>(i)] != i) return false;
    return true;
  }

  // What is made of v is made of an input then.
  void follow(ValueId v) {
    fed_.insert(v);
    for (const Node& n : graph_.nodes)
      if (std::any_of(n.in.begin(), n.in.end(), [&](ValueId x) { return fed_.count(x) != 0; }))
        fed_.insert(n.out.begin(), n.out.end());
  }

  ValueId input(const ValueInfo& info) {
    for (const auto& [v, role] : context_.binding.inputs)
      if (role == InputRole::kPositions && graph_.values[v].info.type == info.type &&
          graph_.values[v].info.shape == info.shape)
        return v;
    const ValueId v = graph_.add_value("situ.positions", info.type);
    graph_.values[v].info = {info.type, true, info.shape, std::nullopt};
    graph_.inputs.push_back(v);
    context_.binding.inputs[v] = InputRole::kPositions;
    return v;
  }

  PassContext& context_;
  Graph& graph_;
  Prober prober_;
  const int64_t most_;
  IndexForms forms_;
  std::set<ValueId> fed_;  // made of position inputs
};

}  // namespace

Status computed_positions(PassContext& context) {
  if (context.phase != Phase::kAny || context.binding.mask.value == kNoValue) return Status::ok();
  return Positions(context).run();
}

}  // namespace situ
