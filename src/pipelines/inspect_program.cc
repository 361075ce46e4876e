#include "pipelines/inspect_program.h"

#include <algorithm>
#include <vector>

namespace situ {
namespace {

using OrderedJson = nlohmann::ordered_json;

// By root of the arena: its place in blocks_json, where blocks that no call touches are left out.
std::vector<int> block_numbers(const Plan& plan) {
  std::vector<int> numbers;
  int next = 0;
  for (const Root& r : plan.arena) numbers.push_back(r.first < 0 ? -1 : next++);
  return numbers;
}

// As the graph that writes the state names it, where the module does not.
std::string state_name(const Graph& graph, const StatePair& s) {
  return !s.name.empty() ? s.name : graph.values[s.present != kNoValue ? s.present : s.past].name;
}

OrderedJson written_json(const Graph& graph, const Plan& plan, const std::vector<int>& blocks, ValueId v,
                         const Home& home) {
  const auto root = static_cast<size_t>(home.root);
  OrderedJson j{{"region", region_name(home.region)}};
  if (home.region == RegionKind::kArena)
    j["block"] = blocks[root];
  else if (home.region == RegionKind::kState)
    j["state"] = state_name(graph, plan.states[root].pair);
  else
    j["value"] = graph.values[v].name;
  return j;
}

}  // namespace

std::string operator_name(const Node& node) { return (node.domain.empty() ? "" : node.domain + ".") + node.op; }

int64_t copied_bytes(const Graph& graph, const Plan& plan, const SymbolValues& step) {
  int64_t sum = 0;
  for (const Step& s : plan.steps) {
    if (s.reason.empty()) continue;
    const Node& node = graph.nodes[static_cast<size_t>(s.node)];
    const ValueInfo& info = graph.values[s.move ? s.from : node.out[0]].info;
    Shape dims = s.move ? s.from_home.view.dims : info.shape;
    // Of a rotary embedding, the numbers that are not rotated.
    if (!s.move && node.is("Rotary", "situ")) dims.back() = dims.back() - Dim(node.attr_int("rotary_dim", 0));
    sum += shape_count(dims).eval(step) * dtype_bits(info.type) / 8;
  }
  return sum;
}

OrderedJson calls_json(const Graph& graph, const Plan& plan) {
  const std::vector<int> blocks = block_numbers(plan);
  OrderedJson list = OrderedJson::array();
  for (const Step& s : plan.steps) {
    const Node& node = graph.nodes[static_cast<size_t>(s.node)];
    OrderedJson writes = OrderedJson::array();
    const auto add = [&](ValueId v, const Home& home) {
      if (home.region == RegionKind::kNone || home.root < 0) return;
      OrderedJson one = written_json(graph, plan, blocks, v, home);
      if (std::find(writes.begin(), writes.end(), one) == writes.end()) writes.push_back(std::move(one));
    };
    if (s.move)
      add(s.to, s.to_home);
    else
      for (const ValueId v : node.out)
        if (v != kNoValue) add(v, plan.values[v]);
    list.push_back({{"op", s.move ? "copy" : operator_name(node)}, {"node", node.name}, {"writes", std::move(writes)}});
  }
  return list;
}

OrderedJson blocks_json(const Graph& graph, const Plan& plan) {
  OrderedJson list = OrderedJson::array();
  for (const Root& r : plan.arena)
    if (r.first >= 0)
      list.push_back({{"value", graph.values[r.value].name},
                      {"offset", r.offset},
                      {"bytes", r.bytes},
                      {"first", r.first},
                      {"last", r.last}});
  return list;
}

}  // namespace situ
