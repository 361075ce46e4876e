// The verifier's question for plans of any size: does a step write over what a later one reads? It is answered from
// intervals: what lives when, and which parts of a block a view covers, in axes that all views of the block share.
// Where steps read states is not looked at.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "place/plan.h"
#include "place/row_groups.h"

namespace situ {
namespace {

constexpr size_t kMostBeside = 1024;        // results in a block; of more, each element is followed
constexpr int64_t kMostElements = 1 << 20;  // of views that are compared element by element

// The numbers of an axis that a view covers: first, last, and how far they are apart (0: one alone).
struct Span {
  int64_t first = 0, last = 0, step = 0;
  bool meets(const Span& other) const {
    const int64_t step_of_both = std::gcd(step, other.step);
    return first <= other.last && other.first <= last &&
           (step_of_both <= 1 || (first - other.first) % step_of_both == 0);
  }
};
// What a view covers of its block: by axis, for the block's own axes and then for finer ones. Empty: nothing.
using Box = std::vector<std::vector<Span>>;
bool meet(const Box& a, const Box& b) {
  bool both = !a.empty() && !b.empty();
  for (size_t i = 0; both && i < a.size(); ++i)  // apart in one axis: apart
    for (size_t axis = 0; axis < a[i].size(); ++axis) both = both && a[i][axis].meets(b[i][axis]);
  return both;
}

// A step's result, in a block of the step.
struct Piece {
  SymView view;
  Box box;
  int over = -1;  // the step that wrote over it
};

class Lifetimes {
 public:
  Lifetimes(const Graph& graph, const Binding& binding, const Plan& plan)
      : graph_(graph), binding_(binding), plan_(plan), made_of_(graph.values.size()) {
    // Extents of some step, none like another.
    symbols_[kSymS] = 37;
    symbols_[kSymP] = 23;
    symbols_[kSymL] = 11;
    symbols_[kSymE] = 41;
    short_[kSymS] = 3;
    short_[kSymP] = short_[kSymL] = 2;
    short_[kSymE] = 5;
  }

  Status run() {
    SITU_RETURN_IF_ERROR(blocks_apart());
    find_axes();
    size_t next = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const size_t first = next;
      for (; next < plan_.steps.size() && plan_.steps[next].node == static_cast<int>(n); ++next)
        SITU_RETURN_IF_ERROR(plan_.steps[next].move ? move(next) : kernel(graph_.nodes[n], next));
      if (first == next || plan_.steps[first].move) stands_for(graph_.nodes[n], first, next);
    }
    std::vector<ValueId> kept = binding_.kept;
    kept.insert(kept.end(), {binding_.logits, binding_.rows});
    for (const ValueId v : kept)
      if (v != kNoValue) SITU_RETURN_IF_ERROR(read(v, static_cast<int>(plan_.steps.size()), "after the step"));
    return Status::ok();
  }

 private:
  using Block = std::pair<RegionKind, int>;
  const std::string& name(ValueId v) const { return graph_.values[v].name; }

  // -- blocks of the arena that live at once lie apart
  Status blocks_apart() const {
    struct Life {
      int first = -1, last = -1;
    };
    std::vector<Life> lives(plan_.arena.size());
    const auto touch = [&](const Home& h, int begin, int end) {
      if (h.region != RegionKind::kArena) return;
      Life& life = lives[static_cast<size_t>(h.root)];
      life.first = life.first < 0 ? begin : std::min(life.first, begin);
      life.last = std::max(life.last, end);
    };
    const int steps = static_cast<int>(plan_.steps.size());
    // Of a row group, a thread may be at any step while another one is at any other.
    for (int begin = 0, end = 0; begin < steps; begin = end) {
      end = static_cast<int>(end_of_row_group(plan_, static_cast<size_t>(begin)));
      for (int i = begin; i < end; ++i) {
        const Step& s = plan_.steps[static_cast<size_t>(i)];
        const Node& node = graph_.nodes[static_cast<size_t>(s.node)];
        for (const Home* h : {&s.from_home, &s.to_home})
          if (s.move) touch(*h, begin, end - 1);
        for (const std::vector<ValueId>* list : {&node.in, &node.out})
          for (const ValueId v : *list)
            if (!s.move && v != kNoValue) touch(plan_.values[v], begin, end - 1);
      }
    }
    std::vector<ValueId> kept = binding_.kept;
    kept.push_back(binding_.logits);
    for (const ValueId v : kept)
      if (v != kNoValue) touch(plan_.values[v], steps, steps);

    std::vector<size_t> by_first;
    for (size_t r = 0; r < lives.size(); ++r)
      if (lives[r].first >= 0) by_first.push_back(r);
    std::sort(by_first.begin(), by_first.end(), [&](size_t a, size_t b) { return lives[a].first < lives[b].first; });
    std::set<std::pair<int, size_t>> ending;  // (last step, block)
    std::map<int64_t, size_t> living;         // by offset
    for (const size_t r : by_first) {
      const Root& root = plan_.arena[r];
      for (; !ending.empty() && ending.begin()->first < lives[r].first; ending.erase(ending.begin()))
        living.erase(plan_.arena[ending.begin()->second].offset);
      const auto behind = living.lower_bound(root.offset);
      size_t other = lives.size();
      if (behind != living.end() && behind->first < root.offset + root.bytes) other = behind->second;
      if (behind != living.begin())
        if (const Root& before = plan_.arena[std::prev(behind)->second]; before.offset + before.bytes > root.offset)
          other = std::prev(behind)->second;
      if (other < lives.size() || root.offset < 0 || root.offset + root.bytes > plan_.arena_bytes)
        return Status::error("block of '" + name(root.value) + "' at " + std::to_string(root.offset) + " of " +
                             std::to_string(root.bytes) + " bytes " +
                             (other < lives.size() ? "lies over that of '" + name(plan_.arena[other].value) + "'"
                                                   : "leaves the arena of " + std::to_string(plan_.arena_bytes)) +
                             ", step " + std::to_string(lives[r].first));
      living.emplace(root.offset, r);
      ending.emplace(lives[r].last, r);
    }
    return Status::ok();
  }

  // -- axes of a block: its own strides, largest first, and finer ones: with those of its views that fit in between.
  // Each divides the one before it.
  void find_axes() {
    std::map<Block, std::set<int64_t>> strides;
    const auto add = [&](const Home& h) {
      if (!is_of_step(h.region)) return;
      std::set<int64_t>& here = strides[{h.region, h.root}];
      for (const Dim& d : h.view.strides)
        if (const int64_t stride = d.eval(symbols_); stride > 0) here.insert(stride);
    };
    for (const Home& h : plan_.values) add(h);
    for (const Step& s : plan_.steps)
      if (s.move) add(s.from_home), add(s.to_home);
    for (const auto& [block, all] : strides) {
      std::vector<int64_t> own;
      if (const Home& h = plan_.values[plan_.root_of({block.first, block.second, {}})->value];
          block == Block{h.region, h.root})
        for (const Dim& d : h.view.strides) own.push_back(d.eval(symbols_));
      std::set<int64_t> axes{1};
      for (const auto& list : {own, std::vector<int64_t>(all.begin(), all.end())}) {
        for (const int64_t s : list) {
          const auto above = axes.lower_bound(s);
          if (s > 0 && (above == axes.end() || *above % s == 0) &&
              (above == axes.begin() || s % *std::prev(above) == 0))
            axes.insert(s);
        }
        axes_[block].emplace_back(axes.rbegin(), axes.rend());
      }
    }
  }

  Box box_of(const Home& h) const {
    Box box;
    for (const std::vector<int64_t>& axes : axes_.at({h.region, h.root})) {
      box.push_back(spans_of(h, axes));
      if (box.back().empty()) return {};
    }
    return box;
  }
  // Numbers in between are taken for covered where a view does not follow the axes.
  std::vector<Span> spans_of(const Home& h, const std::vector<int64_t>& axes) const {
    std::vector<Span> box(axes.size());
    int64_t offset = h.view.offset.eval(symbols_);
    for (size_t a = 0; a < axes.size(); ++a, offset %= axes[a - 1]) box[a].first = box[a].last = offset / axes[a];
    for (size_t d = 0; d < h.view.dims.size(); ++d) {
      const int64_t extent = h.view.dims[d].eval(symbols_), stride = h.view.strides[d].eval(symbols_);
      if (extent <= 0) return {};
      if (extent == 1 || stride <= 0) continue;
      size_t a = 0;
      while (axes[a] > stride || stride % axes[a] != 0) ++a;
      box[a].last += (extent - 1) * (stride / axes[a]);
      box[a].step = std::gcd(box[a].step, stride / axes[a]);
    }
    for (size_t a = axes.size() - 1; a > 0; --a) {
      const int64_t extent = axes[a - 1] / axes[a];
      if (box[a].last < extent) continue;
      box[a - 1].last += box[a].last / extent;
      box[a - 1].step = 1;
      box[a] = {0, extent - 1, 1};
    }
    return box;
  }

  // -- what values are made of
  Status kernel(const Node& node, size_t step) {
    for (const ValueId v : node.in)
      if (v != kNoValue) SITU_RETURN_IF_ERROR(read(v, static_cast<int>(step), "read by " + node.label()));
    for (const ValueId v : node.out)
      if (v != kNoValue) write(plan_.values[v], static_cast<int>(step), &made_of_[v]);
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.in[i] == kNoValue || takes_place(node, i)) continue;
      for (const size_t p : made_of_[node.in[i]])
        if (pieces_[p].over == static_cast<int>(step))
          return Status::error(node.label() + ": its output lies over its operand '" + name(node.in[i]) + "'");
    }
    return Status::ok();
  }

  // Threads write outputs while others still read operands: they may share bytes only element by element.
  bool takes_place(const Node& node, size_t i) const {
    if (!may_overwrite(node.def->placement, i) || !node.has_output(0)) return false;
    const Home &x = plan_.values[node.in[i]], &y = plan_.values[node.out[0]];
    if (x.region != y.region || x.root != y.root || !(x.view.offset == y.view.offset) || x.view.dims != y.view.dims)
      return false;
    for (size_t d = 0; d < x.view.dims.size(); ++d)
      if (!(x.view.dims[d] == Dim(1)) && !(x.view.strides[d] == y.view.strides[d])) return false;
    return true;
  }

  Status move(size_t step) {
    const Step& s = plan_.steps[step];
    SITU_RETURN_IF_ERROR(read(s.from, static_cast<int>(step), "moved"));
    write(s.to_home, static_cast<int>(step), &made_of_[s.to]);
    return Status::ok();
  }

  // Views are what their operand is; a Concat is what lies in it.
  void stands_for(const Node& node, size_t first, size_t end) {
    if (!node.def || node.in.empty()) return;
    const auto moved = [&](ValueId v) {
      return std::any_of(plan_.steps.begin() + static_cast<std::ptrdiff_t>(first),
                         plan_.steps.begin() + static_cast<std::ptrdiff_t>(end),
                         [&](const Step& s) { return s.to == v; });
    };
    if (node.def->placement == Placement::kConcat) {
      const Home& whole = plan_.values[node.out[0]];
      const int64_t given = node.attr_int("axis", 0), rank = static_cast<int64_t>(whole.view.dims.size());
      const size_t axis = static_cast<size_t>(given < 0 ? given + rank : given);
      Dim begin = whole.view.offset;
      for (const ValueId v : node.in) {
        const Home& part = plan_.values[v];
        if (is_of_step(whole.region) && part.region == whole.region && part.root == whole.root &&
            begin == part.view.offset)
          add_parts(v, node.out[0]);
        if (is_of_step(whole.region)) begin = begin + graph_.values[v].info.shape[axis] * whole.view.strides[axis];
      }
      return;
    }
    for (const ValueId v : node.out)
      if (v != kNoValue && node.in[0] != kNoValue && !moved(v)) add_parts(node.in[0], v);
  }
  void add_parts(ValueId from, ValueId to) {
    made_of_[to].insert(made_of_[to].end(), made_of_[from].begin(), made_of_[from].end());
  }

  // Views that follow no common axes, by their elements in a short step.
  bool share_elements(const SymView& a, const SymView& b) const {
    if (a.offset == b.offset) return true;
    const std::vector<int64_t> x = elements(a), y = elements(b);
    std::vector<int64_t> both;
    std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
    return !both.empty() || x.empty() || y.empty();
  }
  // Ascending; empty: too many.
  std::vector<int64_t> elements(const SymView& v) const {
    std::vector<int64_t> all{v.offset.eval(short_)};
    for (size_t d = 0; d < v.dims.size(); ++d) {
      const int64_t extent = v.dims[d].eval(short_), stride = v.strides[d].eval(short_);
      const size_t before = all.size();
      if (extent > kMostElements / static_cast<int64_t>(before)) return {};
      for (int64_t i = 1; i < extent; ++i)
        for (size_t k = 0; k < before; ++k) all.push_back(all[k] + i * stride);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  void write(const Home& h, int step, std::vector<size_t>* parts) {
    if (!is_of_step(h.region)) return;
    Piece piece{h.view, box_of(h)};
    std::vector<size_t>& here = living_[{h.region, h.root}];
    parts->push_back(pieces_.size());
    pieces_.push_back(std::move(piece));
    if (here.size() >= kMostBeside) return write_elements(here, &owners_[{h.region, h.root}], step);
    std::erase_if(here, [&](size_t p) {
      if (!meet(pieces_[p].box, pieces_.back().box) || !share_elements(pieces_[p].view, pieces_.back().view))
        return false;
      pieces_[p].over = step;
      return true;
    });
    here.push_back(pieces_.size() - 1);
  }
  // The last piece, in a block of many: whose each element is.
  void write_elements(const std::vector<size_t>& first, std::vector<int>* owners, int step) {
    const auto take = [&](size_t piece) {
      for (const int64_t e : elements(pieces_[piece].view)) {
        if (static_cast<size_t>(e) >= owners->size()) owners->resize(static_cast<size_t>(e) + 1, -1);
        const int before = std::exchange((*owners)[static_cast<size_t>(e)], static_cast<int>(piece));
        if (before >= 0 && pieces_[static_cast<size_t>(before)].over < 0)
          pieces_[static_cast<size_t>(before)].over = step;
      }
    };
    if (owners->empty()) std::for_each(first.begin(), first.end(), take);
    take(pieces_.size() - 1);
  }

  Status read(ValueId v, int step, const std::string& where) const {
    for (const size_t p : made_of_[v])
      if (const Piece& piece = pieces_[p]; piece.over >= 0 && piece.over < step) {
        const Step& over = plan_.steps[static_cast<size_t>(piece.over)];
        return Status::error("'" + name(v) + "', " + where + ", was written over by " +
                             graph_.nodes[static_cast<size_t>(over.node)].label());
      }
    return Status::ok();
  }

  const Graph& graph_;
  const Binding& binding_;
  const Plan& plan_;
  SymbolValues symbols_, short_;
  std::map<Block, std::vector<std::vector<int64_t>>> axes_;
  std::vector<Piece> pieces_;
  std::map<Block, std::vector<size_t>> living_;  // pieces that nothing was written over
  std::map<Block, std::vector<int>> owners_;     // of blocks of many pieces: by element in a short step
  std::vector<std::vector<size_t>> made_of_;     // pieces of each value
};

}  // namespace

Status check_lifetimes(const Graph& graph, const Binding& binding, const Plan& plan) {
  return Lifetimes(graph, binding, plan).run().with_context("placement");
}

}  // namespace situ
