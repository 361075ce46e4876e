#include "passes/host/follows_past.h"

#include <algorithm>
#include <vector>

namespace situ {

bool FollowsPast::operator()(ValueId root) {
  const auto any = [](const std::vector<Dim>& dims) {
    return std::any_of(dims.begin(), dims.end(),
                       [](const Dim& d) { return d.depends_on(kSymP) || d.depends_on(kSymW) || d.depends_on(kSymT); });
  };
  // Without recursion: a file says how many nodes stand in a row.
  for (std::vector<ValueId> open{root}; !open.empty();) {
    const ValueId v = open.back();
    const Value& value = graph_.values[static_cast<size_t>(v)];
    const Node* n = graph_.producer(v);
    if (known_.count(v) || value.constant.present() || value.info.content || any(value.info.shape) || !n) {
      // Positions are inputs.
      known_.try_emplace(v, !value.constant.present() &&
                                (value.info.content ? any(*value.info.content) : any(value.info.shape) || !n));
      open.pop_back();
      continue;
    }
    const size_t before = open.size();
    for (const ValueId x : n->in)
      if (x != kNoValue && !known_.count(x)) open.push_back(x);
    if (open.size() > before) continue;
    known_[v] = std::any_of(n->in.begin(), n->in.end(), [&](ValueId x) { return x != kNoValue && known_.at(x); });
    open.pop_back();
  }
  return known_.at(root);
}

}  // namespace situ
