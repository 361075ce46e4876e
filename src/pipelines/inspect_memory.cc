#include "pipelines/inspect_memory.h"

#include <algorithm>
#include <map>

#include "pipelines/inspect_module.h"
#include "pipelines/inspect_program.h"

namespace situ {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Constants that kernels read, views of them included, each once and with the operator that reads it first: [{op,
// tensors, bytes}], the largest first. Where two begin at one address, the longer one counts.
OrderedJson constants_json(const InPlaceEngine& e) {
  std::map<const void*, std::pair<int64_t, std::string>> at;  // bytes, operator
  const auto add = [&](const Graph& g, const Home& home, const std::string& op) {
    if (home.region != RegionKind::kWeights || home.root < 0) return;
    const Tensor& t = g.values[home.root].constant;
    if (!t.present()) return;
    int64_t& bytes = at.try_emplace(t.view().data, 0, op).first->second.first;
    bytes = std::max(bytes, t.bytes());
  };
  for (const ProgramFacts& p : programs_of(e)) {
    if (!p.plan) continue;
    const Graph& g = p.compiled->graph;
    for (const Step& s : p.plan->steps) {
      if (s.move) add(g, s.from_home, "copy");
      const Node& node = g.nodes[static_cast<size_t>(s.node)];
      for (const ValueId v : node.in)
        if (v != kNoValue && !s.move) add(g, p.plan->values[v], operator_name(node));
    }
  }
  std::map<std::string, std::pair<int64_t, int64_t>> by_op;  // tensors, bytes
  for (const auto& [where, constant] : at) {
    auto& [tensors, bytes] = by_op[constant.second];
    ++tensors;
    bytes += constant.first;
  }
  OrderedJson list = OrderedJson::array();
  for (const auto& [op, sum] : by_op) list.push_back({{"op", op}, {"tensors", sum.first}, {"bytes", sum.second}});
  std::stable_sort(list.begin(), list.end(),
                   [](const OrderedJson& a, const OrderedJson& b) { return a["bytes"] > b["bytes"]; });
  return list;
}

// What fits beside arenas of `arena` bytes; 0: nothing, or states do not grow with tokens.
int64_t slots_in(const InPlaceEngine& e, int64_t budget, int64_t arena) {
  if (e.states().bytes_per_slot() == 0) return 0;
  const Result<int64_t> slots = e.slots_in(budget, arena);
  return slots.is_ok() ? *slots : 0;
}

}  // namespace

OrderedJson memory_json(const Model::Impl& m, int64_t budget) {
  const InPlaceEngine& e = *m.in_place;
  const int64_t per_token = e.states().bytes_per_slot();
  const int64_t shared = e.planned_arena_bytes(), unshared = e.unshared_arena_bytes();
  OrderedJson memory;
  memory["weights"] = m.files.weight_bytes();
  memory["computed"] = e.computed_bytes();
  memory["constants"] = constants_json(e);
  memory["arena"] = shared;
  memory["arena_decode"] = e.decode_plan().arena_bytes;
  memory["arena_bytes"] = shared;
  memory["arena_bytes_unshared"] = unshared;
  memory["io"] = e.io_bytes();
  memory["chunk"] = e.chunk();
  memory["state_bytes_per_token"] = per_token;
  memory["state_fixed_bytes"] = e.fixed_state_bytes();
  memory["context"] = m.context_length;
  memory["slots"] = m.context_length;  // of one sequence
  if (budget > 0) {
    memory["budget"] = budget;
    memory["slots_in_budget"] = slots_in(e, budget, shared);
    memory["slots_gained"] = slots_in(e, budget, shared) - slots_in(e, budget, unshared);
  } else {
    memory["slots_gained"] = per_token > 0 ? (unshared - shared) / per_token : 0;
  }
  memory["bytes"] = m.files.weight_bytes() + e.computed_bytes() + shared + e.io_bytes() + per_token * m.context_length +
                    e.fixed_state_bytes();
  return memory;
}

}  // namespace situ
