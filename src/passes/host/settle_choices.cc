// What the host chooses is one thing where the choice is the same at every step:
//   Where(c, x, y), c false at every step  ->  y      rows of a mask that hides all keys, where none does
// The condition is shown at the steps that tell all others.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "passes/context/pass_context.h"
#include "passes/host/passes.h"
#include "passes/host/turning_points.h"

namespace situ {
namespace {

class Choices {
 public:
  explicit Choices(PassContext& context)
      : context_(context), graph_(context.graph), prober_(graph_, context.binding, context.evaluator) {}

  Status run() {
    std::map<ValueId, ValueId> settled;
    for (const Node& n : graph_.nodes) {
      if (!n.is("Where") || !prober_.changes(n.in[0])) continue;
      const ValueInfo& y = graph_.values[n.out[0]].info;
      const std::optional<bool> always = same_everywhere(n.in[0]);
      if (!always) continue;
      const ValueId chosen = n.in[*always ? 1 : 2];
      if (graph_.values[chosen].info.type == y.type && graph_.values[chosen].info.shape == y.shape)
        settled.emplace(n.out[0], chosen);
    }
    for (const auto& [v, by] : settled) {
      ValueId last = by;
      for (auto next = settled.find(last); next != settled.end(); next = settled.find(last)) last = next->second;
      context_.note("choice", graph_.values[v].name, "the same at every step");
      graph_.replace_uses(v, last);
    }
    if (!settled.empty()) graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  // What all elements of a condition are at every step; nothing: not one of the two, or that is not known.
  std::optional<bool> same_everywhere(ValueId condition) {
    const auto [at, fresh] = known_.try_emplace(condition);
    if (!fresh) return at->second;
    const Result<Tensor> sample = prober_.host_value(condition, context_.probe_tokens(), context_.probe_past());
    const std::optional<bool> one = sample.is_ok() ? common(*sample) : std::nullopt;
    if (!one || !of_steps(condition)) return std::nullopt;
    const TellingSteps telling =
        telling_steps(graph_, prober_, {condition}, context_.phase, context_.context_length, Judged::kByValue);
    if (telling.told && std::all_of(telling.steps.begin(), telling.steps.end(), [&](const auto& step) {
          const Result<Tensor> t = prober_.host_value(condition, step.first, step.second);
          return t.is_ok() && common(*t) == one;
        }))
      at->second = one;
    return at->second;
  }
  // Whether steps are all that it changes with: not a source's length, or another one of the file.
  bool of_steps(ValueId condition) const {
    std::vector<ValueId> open{condition};
    for (std::set<ValueId> seen; !open.empty();) {
      const ValueId v = open.back();
      open.pop_back();
      if (v == kNoValue || !seen.insert(v).second) continue;
      const ValueInfo& info = graph_.values[v].info;
      Shape dims = info.shape;
      if (info.content) dims.insert(dims.end(), info.content->begin(), info.content->end());
      for (int id = 0; id < std::ssize(graph_.symbol_names()); ++id)
        if (id != kSymS && id != kSymP &&
            std::any_of(dims.begin(), dims.end(), [&](const Dim& d) { return d.depends_on(id); }))
          return false;
      const Node* n = info.content ? nullptr : graph_.producer(v);
      if (n) open.insert(open.end(), n->in.begin(), n->in.end());
    }
    return true;
  }
  static std::optional<bool> common(const Tensor& t) {
    const std::vector<double> x = t.to_f64();
    if (x.empty() || std::any_of(x.begin(), x.end(), [&](double e) { return e != x[0]; })) return std::nullopt;
    return x[0] != 0;
  }

  PassContext& context_;
  Graph& graph_;
  Prober prober_;
  std::map<ValueId, std::optional<bool>> known_;
};

}  // namespace

Status settle_choices(PassContext& context) {
  const auto chooses = [](const Node& n) { return n.is("Where"); };
  // A switch asks for the length that a sequence will have, too.
  if (!context.binding.switches.empty() ||
      std::none_of(context.graph.nodes.begin(), context.graph.nodes.end(), chooses))
    return Status::ok();
  return Choices(context).run();
}

}  // namespace situ
