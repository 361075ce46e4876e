// Groups of products, such as those from one attention to the next, of which row r of a result depends on row r of the
// others alone. A thread may take a few rows through a whole group while these are in its cache, and waits for no other
// thread.
#include "place/row_groups.h"

#include <algorithm>

namespace situ {
namespace {

struct Access {
  const Home* home;
  bool written;
};

class RowGroups {
 public:
  RowGroups(const Graph& graph, Plan* plan) : graph_(graph), plan_(*plan) {}

  void run() {
    std::vector<Access> group;
    bool open = false;
    for (Step& s : plan_.steps) {
      const std::vector<Access> own =
          s.move ? std::vector<Access>{} : accesses(graph_.nodes[static_cast<size_t>(s.node)]);
      const bool rows = !s.move && takes_all_rows(graph_.nodes[static_cast<size_t>(s.node)]);
      s.same_rows = open && rows && std::all_of(own.begin(), own.end(), [&](const Access& a) {
                      return std::all_of(group.begin(), group.end(), [&](const Access& b) { return apart(a, b); });
                    });
      if (!s.same_rows) group.clear();
      group.insert(group.end(), own.begin(), own.end());
      open = rows;
    }
  }

 private:
  // One row for each token of the step.
  bool takes_all_rows(const Node& n) const {
    if (!is_row_product(n)) return false;
    const Shape& x = graph_.values[n.in[0]].info.shape;
    for (size_t a = 0; a + 1 < x.size(); ++a)
      if (x[a] != (a + 2 == x.size() ? Dim::symbol(kSymS) : Dim(1))) return false;
    return x.size() >= 2;
  }

  std::vector<Access> accesses(const Node& n) const {
    std::vector<Access> list;
    for (const auto* values : {&n.in, &n.out})
      for (ValueId v : *values)
        if (v != kNoValue) list.push_back({&plan_.values[v], values == &n.out});
    return list;
  }

  // Threads that are at different rows do not meet.
  static bool apart(const Access& a, const Access& b) {
    if (a.home->region != b.home->region || a.home->root != b.home->root || (!a.written && !b.written)) return true;
    const int64_t width = row_width(a.home->view), row = first_row(a.home->view, width);
    return width > 0 && row_width(b.home->view) == width && row >= 0 && first_row(b.home->view, width) == row;
  }

  // Elements from one row of [1 .., S, N] to the next; 0: it is no such view, or nothing that is known.
  static int64_t row_width(const SymView& v) {
    if (v.dims.size() < 2) return 0;
    for (size_t a = 0; a + 1 < v.dims.size(); ++a)
      if (v.dims[a] != (a + 2 == v.dims.size() ? Dim::symbol(kSymS) : Dim(1))) return 0;
    const Dim& step = v.strides[v.dims.size() - 2];
    return step.is_const() ? step.value() : 0;
  }
  // The row of the block where all columns of the first row lie; -1: in several, or unknown.
  static int64_t first_row(const SymView& v, int64_t width) {
    const Dim &count = v.dims.back(), &step = v.strides.back();
    if (width <= 0 || !v.offset.is_const() || !count.is_const() || !step.is_const() || v.offset.value() < 0 ||
        step.value() < 0)
      return -1;
    const int64_t row = v.offset.value() / width, last = v.offset.value() + (count.value() - 1) * step.value();
    return last / width == row ? row : -1;
  }

  const Graph& graph_;
  Plan& plan_;
};

}  // namespace

bool is_row_product(const Node& node) {
  return node.is("PackedMatMul", "situ") || node.is("PackedProjections", "situ") || node.is("DenseMatMul", "situ") ||
         node.is("IntegerMatMul", "situ");
}

void find_row_groups(const Graph& graph, Plan* plan) { RowGroups(graph, plan).run(); }

size_t end_of_row_group(const Plan& plan, size_t first) {
  size_t end = first + 1;
  while (end < plan.steps.size() && plan.steps[end].same_rows) ++end;
  return end;
}

}  // namespace situ
