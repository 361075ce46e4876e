#include "place/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "place/row_groups.h"

namespace situ {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 33;  // of one view that a kernel reads or writes
constexpr int64_t kAlign = 64;                      // bytes; a cache line, and the widest vector

// Offsets of all blocks that live, greedily by size, each at the lowest offset that is free during its life. Returns
// the bytes of all together.
int64_t pack_arena(std::vector<Root>& roots) {
  std::vector<size_t> by_size(roots.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return roots[a].bytes > roots[b].bytes; });
  struct Placed {
    int64_t begin, end;
    int first, last;
  };
  std::vector<Placed> placed;  // by where they begin
  int64_t total = 0;
  for (size_t r : by_size) {
    Root& root = roots[r];
    if (root.first < 0) continue;
    int64_t offset = 0;
    for (const Placed& p : placed) {
      if (offset + root.bytes <= p.begin) break;
      if (p.first <= root.last && root.first <= p.last) offset = std::max(offset, p.end);
    }
    root.offset = offset;
    total = std::max(total, offset + root.bytes);
    const Placed block{offset, offset + root.bytes, root.first, root.last};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), block,
                                   [](const Placed& x, const Placed& y) { return x.begin < y.begin; }),
                  block);
  }
  return total;
}

class Allocator {
 public:
  Allocator(const Graph& graph, const Binding& binding, const PlanBounds& bounds, Plan* plan)
      : graph_(graph), binding_(binding), bounds_(bounds), plan_(*plan) {}

  Status run() {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& s = plan_.steps[i];
      const Node& node = graph_.nodes[static_cast<size_t>(s.node)];
      auto touch = [&](const Home& h) {
        if (h.region != RegionKind::kArena) return;
        Root& r = plan_.arena[static_cast<size_t>(h.root)];
        if (r.first < 0) r.first = static_cast<int>(i);
        r.last = std::max(r.last, static_cast<int>(i));
      };
      if (s.move) {
        touch(s.from_home);
        touch(s.to_home);
        continue;
      }
      for (const std::vector<ValueId>* list : {&node.in, &node.out})
        for (ValueId v : *list) {
          if (v == kNoValue) continue;
          SITU_RETURN_IF_ERROR(check_extent(v));
          touch(plan_.values[v]);
        }
    }
    for (size_t i = 0, end = 0; i < plan_.steps.size(); i = end) {
      end = end_of_row_group(plan_, i);
      if (end - i > 1) share_life(static_cast<int>(i), static_cast<int>(end) - 1);
    }
    // The host reads the logits after the step, and what else is kept.
    std::vector<ValueId> kept = binding_.kept;
    if (binding_.logits != kNoValue) kept.push_back(binding_.logits);
    for (const ValueId v : kept)
      if (const Home& h = plan_.values[v]; h.region == RegionKind::kArena)
        plan_.arena[static_cast<size_t>(h.root)].last = static_cast<int>(plan_.steps.size());
    for (std::vector<Root>* roots : {&plan_.arena, &plan_.io, &plan_.ports})
      for (Root& r : *roots) SITU_RETURN_IF_ERROR(measure(r));
    int64_t end = 0;
    for (Root& r : plan_.io) {
      r.offset = end;
      end += r.bytes;
    }
    for (Root& r : plan_.ports) {
      if (value(r.value).producer < 0) continue;
      r.offset = end;
      end += r.bytes;
    }
    plan_.io_bytes = end;
    plan_.arena_bytes = pack_arena(plan_.arena);
    return Status::ok();
  }

 private:
  const Value& value(ValueId v) const { return graph_.values[v]; }

  // Of steps [first, last] of a group a thread may be at the last while another one is at the first: what any of them
  // touches is there during all.
  void share_life(int first, int last) {
    for (Root& r : plan_.arena) {
      if (r.first < 0 || r.first > last || r.last < first) continue;
      r.first = std::min(r.first, first);
      r.last = std::max(r.last, last);
    }
  }

  SymbolValues corner(int64_t tokens, int64_t past) const {
    SymbolValues s;
    s[kSymE] = bounds_.source;
    s[kSymS] = tokens;
    s[kSymL] = std::min(tokens, bounds_.wanted);
    s[kSymP] = s[kSymW] = std::max<int64_t>(0, past);
    return s;
  }

  SymbolValues corner_of_short_source() const {
    SymbolValues s = corner(1, 0);
    s[kSymE] = 1;
    return s;
  }

  // An Expand costs no memory, but what reads it would run for hours: elements are bounded as bytes are.
  Status check_extent(ValueId v) const {
    const Home& h = plan_.values[v];
    if (!is_of_step(h.region) && h.region != RegionKind::kWeights) return Status::ok();
    if (value(v).constant.present()) return Status::ok();
    int64_t elements = 1;
    for (const Dim& d : h.view.dims)
      if (__builtin_mul_overflow(elements, std::max<int64_t>(1, largest(d)), &elements) || elements > kMaxElements)
        return Status::error(
            (value(v).producer < 0 ? "" : graph_.nodes[static_cast<size_t>(value(v).producer)].label() + ": ") +
            "value '" + value(v).name + "' of shape " + shape_str(h.view.dims, &graph_.symbol_names()) +
            " is too large");
    return Status::ok();
  }

  // The most that a dim is in any allowed step: at a corner of these, or no more than its bounds where it bends in
  // between (T mod 50). -1: negative in one of the corners.
  int64_t largest(const Dim& d) const {
    int64_t most = 0;
    for (const SymbolValues& s : {corner(bounds_.tokens, bounds_.capacity - bounds_.tokens), corner(bounds_.tokens, 0),
                                  corner(1, bounds_.capacity - 1), corner(1, 0), corner_of_short_source()}) {
      const int64_t extent = d.eval(s);
      if (extent < 0) return -1;
      most = std::max(most, extent);
    }
    if (d.linear()) return most;
    const ScopedSymbols symbols(StepLimits{bounds_.capacity, bounds_.tokens, bounds_.source});
    return d.upper_bound();
  }

  Status measure(Root& r) {
    int64_t bytes = std::max<int64_t>(1, dtype_bytes(r.type));
    for (const Dim& d : r.dims) {
      // At a step it would count 0.
      for (const int id : d.symbols())
        if (id >= kFirstFileSymbol)
          return Status::error("value '" + value(r.value).name + "' of shape " +
                               shape_str(r.dims, &graph_.symbol_names()) + ": nothing tells what '" +
                               Dim::symbol(id).str(&graph_.symbol_names()) + "' is");
      const int64_t extent = largest(d);
      if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes) || bytes > (int64_t{1} << 46))
        return Status::error("value '" + value(r.value).name + "' of shape " +
                             shape_str(r.dims, &graph_.symbol_names()) + " is too large");
    }
    r.bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    return Status::ok();
  }

  const Graph& graph_;
  const Binding& binding_;
  const PlanBounds bounds_;
  Plan& plan_;
};

}  // namespace

Status allocate_blocks(const Graph& graph, const Binding& binding, const PlanBounds& bounds, Plan* plan) {
  return Allocator(graph, binding, bounds, plan).run();
}

}  // namespace situ
