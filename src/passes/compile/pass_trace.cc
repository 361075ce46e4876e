#include "passes/compile/pass_trace.h"

#include "graph/digest.h"

namespace situ {

uint64_t digest_of(const PassContext& context) {
  const GraphDigest graph(context.graph);
  const Binding& b = context.binding;
  WordSum sum;
  sum.add(graph.whole());
  uint64_t inputs = 0;  // in any order
  for (const auto& [v, role] : b.inputs) {
    WordSum one;
    one.add(graph.of(v));
    one.add(static_cast<uint64_t>(role));
    inputs += one.sum();
  }
  sum.add(inputs);
  for (const ValueId v : {b.logits, b.rows, b.mask.value}) sum.add(graph.of(v));
  for (const ValueId v : b.kept) sum.add(graph.of(v));
  for (const StatePair& s : b.states) {
    sum.add(graph.of(s.past));
    sum.add(graph.of(s.present));
    sum.add(static_cast<uint64_t>(s.rule));
    sum.add(static_cast<uint64_t>(s.axis));
    sum.add(s.name);
  }
  for (const int64_t length : b.switches) sum.add(static_cast<uint64_t>(length));
  sum.add(static_cast<uint64_t>(b.circle));
  return sum.sum();
}

}  // namespace situ
