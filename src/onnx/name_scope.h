// Which name means which value. A file may use one name in several scopes: both branches of an If, every
// function body, the graphs around them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "graph/graph.h"

namespace situ::onnx {

// Hands out names that no other value (or node) of a graph has.
class UniqueNames {
 public:
  // `base`, or `base` with a number behind it when that is taken.
  std::string take(std::string_view base);

 private:
  std::unordered_map<std::string, int64_t> used_;  // -> last number given
};

// One Graph in the making.
struct GraphInMaking {
  Graph& graph;
  UniqueNames value_names, node_names;
  int depth = 0;  // 0: the model's graph
};

// The names of a graph, or of one inlined call of a function (whose values live in the caller's graph).
class NameScope {
 public:
  // `outer`: the scope around a subgraph, whose values it may capture; null for the model's graph and for functions.
  NameScope(GraphInMaking& target, NameScope* outer) : target_(target), outer_(outer) {}

  // False when the scope has the name already.
  bool declare(std::string_view name, ValueId id) { return names_.emplace(name, id).second; }
  // The value in this scope's own graph; a value of an outer scope gets a placeholder here, listed in
  // Graph::captures of every graph between. Nothing: nobody has such a name.
  std::optional<ValueId> resolve(std::string_view name);
  // Only this scope itself.
  std::optional<ValueId> find_own(std::string_view name) const;

  GraphInMaking& target() { return target_; }

 private:
  GraphInMaking& target_;
  NameScope* outer_;
  std::unordered_map<std::string_view, ValueId> names_;  // keys stand in the mapped file
};

}  // namespace situ::onnx
