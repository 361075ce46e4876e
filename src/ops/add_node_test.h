// Nodes of graphs that tests write.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "ops/op.h"

namespace situ::test {

// Names `n`, finds its operator, infers its one output, and adds both.
inline ValueId add_node(Graph& graph, Node n) {
  n.name = n.op + std::to_string(graph.nodes.size());
  n.def = find_op(n.domain, n.op, n.opset);
  std::vector<ValueInfo> infos(1);
  InferContext infer{n, {}, {}, infos};
  for (ValueId v : n.in) {
    infer.in.push_back(&graph.values[v].info);
    infer.constants.push_back(graph.values[v].constant.present() ? &graph.values[v].constant : nullptr);
  }
  const Status inferred = n.def->infer(infer);
  EXPECT_TRUE(inferred.is_ok()) << inferred.message();
  const ValueId v = graph.add_value("v" + std::to_string(graph.values.size()), infos[0].type);
  graph.values[v].info = infos[0];
  n.out.push_back(v);
  graph.add_node(std::move(n));
  return v;
}

}  // namespace situ::test
