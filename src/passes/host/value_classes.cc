#include "passes/host/value_classes.h"

#include "passes/context/node_key.h"

namespace situ {

ValueClasses::ValueClasses(const Graph& graph) : class_(graph.values.size(), -1) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.producer >= 0 && !value.constant.present()) continue;
    const std::string numbers = numbers_key(value);
    class_[v] = number(numbers.empty() ? "#" + std::to_string(v) : numbers);
  }
  for (const Node& n : graph.nodes) {
    const std::string key = node_key(n, [&](ValueId v) { return std::to_string(of(v)); });
    for (size_t o = 0; o < n.out.size(); ++o)
      if (n.has_output(o)) class_[static_cast<size_t>(n.out[o])] = number(key + ":" + std::to_string(o));
  }
}

}  // namespace situ
