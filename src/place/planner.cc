// The planner. Every value is either a root (a block of its own) or lives inside another value:
//   forward   - the output of a view operator is a view of its input;
//   backward  - an operand of a Concat is produced straight into its slice of the destination, and the
//               input of an elementwise operator that nobody reads again is produced where the output goes.
// A root's layout (the order of its axes in memory) is free, and chosen so that the views that hang on it
// can be expressed. What still cannot be expressed becomes a visible move.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "place/arena.h"
#include "place/plan.h"
#include "place/row_groups.h"

namespace situ {

const char* region_name(RegionKind region) {
  static constexpr const char* kNames[] = {"none", "weights", "state", "arena", "io", "port"};
  return kNames[static_cast<size_t>(region)];
}

namespace {

// Where the value is produced into, told by one of its consumers.
struct Destination {
  int node = -1;          // Concat, or the elementwise node whose output takes over
  size_t operand = 0;     // which operand of it
  std::vector<int> path;  // view nodes from the value to that operand, first applied first
  bool in_place = false;
};

class Planner {
 public:
  Planner(const Graph& graph, const Binding& binding, const PlanBounds& bounds)
      : graph_(graph), binding_(binding), bounds_(bounds), n_values_(graph.values.size()) {}

  Result<Plan> run() {
    plan_.values.resize(n_values_);
    plan_.placed.resize(graph_.nodes.size());
    view_of_.assign(n_values_, -1);
    broken_view_.assign(n_values_, 0);
    order_.assign(n_values_, {});
    destination_.assign(n_values_, {});
    moved_operand_.assign(graph_.nodes.size(), {});
    users_ = graph_.users();
    SITU_RETURN_IF_ERROR(lay_out_states());
    for (const Node& n : graph_.nodes)
      if (n.is("Select", "situ") && runs(n)) SITU_RETURN_IF_ERROR(check_select(n));
    find_views();
    find_destinations();
    choose_layouts();
    resolve_all();
    SITU_RETURN_IF_ERROR(make_steps());
    SITU_RETURN_IF_ERROR(find_encodings());
    find_row_groups(graph_, &plan_);
    SITU_RETURN_IF_ERROR(allocate_blocks(graph_, binding_, bounds_, &plan_));
    SITU_RETURN_IF_ERROR(check_lifetimes(graph_, binding_, plan_));
    return std::move(plan_);
  }

 private:
  const Value& value(ValueId v) const { return graph_.values[v]; }
  bool is_constant(ValueId v) const { return value(v).constant.present(); }
  bool host_known(ValueId v) const { return value(v).info.content.has_value() && !is_constant(v); }
  bool runs(const Node& n) const {
    return !std::all_of(n.out.begin(), n.out.end(),
                        [&](ValueId v) { return v == kNoValue || host_known(v) || is_constant(v); });
  }
  int state_of(ValueId v) const {
    for (size_t k = 0; k < plan_.states.size() && v != kNoValue; ++k)
      if (plan_.states[k].pair.past == v || plan_.states[k].pair.present == v) return static_cast<int>(k);
    return -1;
  }

  Status lay_out_states() {
    for (const StatePair& p : binding_.states) {
      StateLayout s;
      s.pair = p;
      if (!p.here()) {
        plan_.states.push_back(s);
        continue;
      }
      const Value& past = value(p.past != kNoValue ? p.past : p.present);  // whichever there is
      s.type = past.info.type;
      if (p.rule == StateRule::kReplace &&
          (past.info.type != value(p.present).info.type || !(past.info.shape == value(p.present).info.shape)))
        return Status::error("state '" + past.name + "' " + shape_str(past.info.shape) + " is replaced by '" +
                             value(p.present).name + "' " + shape_str(value(p.present).info.shape));
      if (p.rule == StateRule::kPassThrough)
        return Status::error("state '" + past.name + "': the rule " + state_rule_name(p.rule) +
                             " is not supported yet");
      Dim elements = 1;
      for (size_t i = 0; i < past.info.shape.size(); ++i)
        if (p.rule == StateRule::kReplace || static_cast<int>(i) != p.axis) elements = elements * past.info.shape[i];
      if (!elements.is_const() || elements.value() <= 0 || elements.value() > (int64_t{1} << 32) ||
          dtype_bytes(s.type) == 0)
        return Status::error("state '" + past.name + "' " + dtype_name(s.type) +
                             shape_str(past.info.shape, &graph_.symbol_names()) +
                             ": its size per token is not a known number of bytes");
      s.slot_elements = elements.value();
      plan_.states.push_back(s);
    }
    return Status::ok();
  }

  Status find_encodings() {
    for (const Node& n : graph_.nodes)
      for (size_t operand = 1; n.is("Attention", "situ") && operand < 3; ++operand) {
        const Home& home = plan_.values[static_cast<size_t>(n.in[operand])];
        if (home.region != RegionKind::kState) continue;
        StateLayout& s = plan_.states[static_cast<size_t>(home.root)];
        const StateEncoding read = state_encoding(n, operand);
        if (!s.encoding.plain() && s.encoding.rows() != read.rows())
          return Status::error(n.label() + ": reads rows of " + read.str() + ", and others read " + s.encoding.str());
        s.encoding = read;
      }
    return Status::ok();
  }

  // Slot-major: one token's rows of all heads stand together, so that appending is one contiguous write
  // and growth never moves anything.
  Home state_home(int k, ValueId v) const {
    const StateLayout& s = plan_.states[static_cast<size_t>(k)];
    const Shape& dims = value(v).info.shape;
    Home h{RegionKind::kState, k, SymView::contiguous(dims)};
    const bool reads = v == s.pair.past;
    if (s.pair.rule == StateRule::kReplace) {
      h.view.offset = Dim(s.slot_elements) * Dim::symbol(reads ? kSymRead : kSymWrite);
      return h;
    }
    Dim stride = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      if (static_cast<int>(i) == s.pair.axis) continue;
      h.view.strides[i] = stride;
      stride = stride * dims[i];
    }
    h.view.strides[static_cast<size_t>(s.pair.axis)] = Dim(s.slot_elements);
    const Dim first = s.pair.rule == StateRule::kSource ? Dim::symbol(reads ? kSymX : kSymW)
                                                        : Dim::symbol(kSymW) - Dim::symbol(kSymP);
    h.view.offset = first * Dim(s.slot_elements);
    return h;
  }

  // -- forward: outputs of view operators
  void find_views() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!runs(node) || !node.def || !node.def->view) continue;
      ViewContext c = view_context(node, SymView::contiguous(value(node.in[0]).info.shape));
      if (node.def->placement != Placement::kView && !node.def->view(c)) continue;
      for (ValueId v : node.out)
        if (v != kNoValue && state_of(v) < 0 && v != binding_.rows) view_of_[v] = static_cast<int>(n);
    }
  }
  ViewContext view_context(const Node& node, SymView source) const {
    ViewContext c{node, {}, {}, {}, std::move(source), {}};
    for (ValueId v : node.in) {
      c.in.push_back(v == kNoValue ? nullptr : &value(v).info);
      c.constants.push_back(v == kNoValue || !is_constant(v) ? nullptr : &value(v).constant);
    }
    for (ValueId v : node.out) c.out.push_back(v == kNoValue ? nullptr : &value(v).info);
    return c;
  }

  // The value that owns v's bytes on the forward side, and the view nodes from it to v.
  ValueId forward_root(ValueId v, std::vector<int>* path) const {
    while (view_of_[v] >= 0 && !broken_view_[v]) {
      if (path) path->insert(path->begin(), view_of_[v]);
      v = graph_.nodes[static_cast<size_t>(view_of_[v])].in[0];
    }
    return v;
  }

  // -- backward
  static bool bijective(const Node& n) {
    return n.domain.empty() && (n.op == "Reshape" || n.op == "Transpose" || n.op == "Squeeze" || n.op == "Unsqueeze" ||
                                n.op == "Flatten" || n.op == "Identity");
  }
  bool free_root(ValueId r) const {
    return !is_constant(r) && !host_known(r) && value(r).producer >= 0 && state_of(r) < 0 && destination_[r].node < 0 &&
           r != binding_.logits && r != binding_.rows;
  }

  // Whether r can be computed where what `path` makes of it should be.
  bool may_move(ValueId r, const std::vector<int>& path) const {
    return free_root(r) && std::all_of(path.begin(), path.end(),
                                       [&](int p) { return bijective(graph_.nodes[static_cast<size_t>(p)]); });
  }
  void find_destinations() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!runs(node) || !node.def || node.def->placement != Placement::kConcat) continue;
      moved_operand_[n].assign(node.in.size(), 0);
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (is_state_past(node, i)) continue;
        std::vector<int> path;
        const ValueId r = forward_root(node.in[i], &path);
        if (may_move(r, path) && !reaches(r, n))
          destination_[r] = {static_cast<int>(n), i, path, false};
        else
          moved_operand_[n][i] = 1;
      }
    }
    for (const StateLayout& s : plan_.states)
      if (s.pair.rule == StateRule::kReplace) find_state_destination(s.pair.present);
    // Replaced states: the producer of `present` writes into the state's other half.
    for (size_t n = graph_.nodes.size(); n-- > 0;) find_in_place(n);
  }

  // What a view operator makes a state of is computed in the state's slot.
  void find_state_destination(ValueId present) {
    const int n = present == kNoValue ? -1 : value(present).producer;
    if (n < 0 || !bijective(graph_.nodes[static_cast<size_t>(n)])) return;
    std::vector<int> path;
    const ValueId r = forward_root(graph_.nodes[static_cast<size_t>(n)].in[0], &path);
    path.push_back(n);
    if (may_move(r, path)) destination_[r] = {n, 0, path, true};
  }
  bool is_state_past(const Node& node, size_t i) const {
    if (i != 0) return false;
    const int k = state_of(node.out[0]);
    return k >= 0 && plan_.states[static_cast<size_t>(k)].pair.past == node.in[0];
  }
  // True when r's block would be part of itself: Concat c's own output flows into c.
  bool reaches(ValueId r, size_t n) const {
    for (int hops = 0; hops < 64; ++hops) {
      if (value(r).producer == static_cast<int>(n)) return true;
      if (destination_[r].node < 0) return false;
      r = graph_.nodes[static_cast<size_t>(destination_[r].node)].out[0];
    }
    return true;
  }

  // Output 0 of a node takes over the block of an operand that it may overwrite and that nobody reads afterwards.
  void find_in_place(size_t n) {
    const Node& node = graph_.nodes[n];
    if (!node.def || !runs(node) || node.out.empty()) return;
    const ValueId y = node.out[0];
    for (size_t i = 0; i < node.in.size(); ++i) {
      const ValueId x = node.in[i];
      if (x == kNoValue || !may_overwrite(node.def->placement, i) || value(x).info.type != value(y).info.type ||
          !(value(x).info.shape == value(y).info.shape))
        continue;
      std::vector<int> path;
      const ValueId r = forward_root(x, &path);
      if (!may_move(r, path) || parts_read(r, n)) continue;
      // Several outputs of one node would each want a place; only the first may be steered here.
      if (last_reader(r) != static_cast<int>(n)) continue;
      bool other_view = false;
      for (size_t j = 0; j < node.in.size(); ++j)
        other_view = other_view ||
                     (j != i && node.in[j] != kNoValue && (node.in[j] != x || !may_overwrite(node.def->placement, j)) &&
                      forward_root(node.in[j], nullptr) == r);
      if (other_view) continue;
      destination_[r] = {static_cast<int>(n), i, path, true};
      return;
    }
  }

  // What lies in a Concat's result r is read by node n or behind it, by itself.
  bool parts_read(ValueId r, size_t n) const {
    const int p = value(r).producer;
    if (graph_.nodes[static_cast<size_t>(p)].def->placement != Placement::kConcat) return false;
    for (ValueId v : graph_.nodes[static_cast<size_t>(p)].in) {
      const ValueId part = forward_root(v, nullptr);
      if (destination_[part].node == p && (last_reader(part) >= static_cast<int>(n) || parts_read(part, n)))
        return true;
    }
    return false;
  }

  // The last node that reads r or any view of it.
  int last_reader(ValueId r) const {
    int last = -1;
    std::vector<ValueId> open{r};
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (graph_.is_output(v)) return std::numeric_limits<int>::max();
      for (const auto& [u, operand] : users_[v]) {
        const Node& n = graph_.nodes[static_cast<size_t>(u)];
        bool view = false;
        for (ValueId o : n.out)
          if (o != kNoValue && view_of_[o] == u && operand == 0) {
            view = true;
            open.push_back(o);
          }
        if (!view && runs(n)) last = std::max(last, u);
      }
    }
    return last;
  }

  // -- homes
  // Finds where v lives, and before it what it lives in, and so on. Marks views and destinations that cannot be
  // expressed in `failures`.
  Home& home_of(ValueId v) {
    placed_.push_back(v);
    return plan_.values[v];
  }
  void resolve(ValueId v) {
    std::vector<ValueId> open;  // each lives in the next one
    while (plan_.values[v].region == RegionKind::kNone && !resolve_root(v)) {
      open.push_back(v);
      v = is_view(v) ? graph_.nodes[static_cast<size_t>(view_of_[v])].in[0]
                     : graph_.nodes[static_cast<size_t>(destination_[v].node)].out[0];
      if (open.size() > plan_.values.size()) {  // a circle, which no valid plan has
        home_of(v) = new_root(v);
        failures_ += kMove;
      }
    }
    for (; !open.empty(); open.pop_back())
      is_view(open.back()) ? resolve_view(open.back()) : resolve_destination(open.back());
  }
  bool is_view(ValueId v) const { return view_of_[v] >= 0 && !broken_view_[v]; }

  // False: v lives in another value.
  bool resolve_root(ValueId v) {
    Home& h = home_of(v);
    const int k = state_of(v), p = value(v).producer;
    if (is_constant(v))
      h = {RegionKind::kWeights, v, SymView::contiguous(value(v).info.shape)};
    else if (k >= 0)
      h = state_home(k, v);
    else if (p >= 0 && graph_.nodes[static_cast<size_t>(p)].is("Select", "situ"))
      h = select_home(graph_.nodes[static_cast<size_t>(p)]);
    else if (is_view(v) || destination_[v].node >= 0)
      return false;
    else
      h = new_root(v);
    return true;
  }
  void resolve_view(ValueId v) {
    const Node& node = graph_.nodes[static_cast<size_t>(view_of_[v])];
    const Home source = plan_.values[node.in[0]];
    if (viewed_.node != &node || !same_place(viewed_.source, source)) {  // once for all parts of a Split
      ViewContext c = view_context(node, source.view);
      viewed_ = {&node, source, node.def->view(c) ? std::move(c.result) : std::vector<SymView>{}};
    }
    if (viewed_.parts.empty()) {
      failures_ += kMove;
      broken_.push_back(v);
      home_of(v) = new_root(v);
      return;
    }
    for (size_t o = 0; o < node.out.size(); ++o)
      if (node.out[o] == v) home_of(v) = {source.region, source.root, viewed_.parts[o]};
  }
  void resolve_destination(ValueId v) {
    const Destination d = destination_[v];
    const Node& node = graph_.nodes[static_cast<size_t>(d.node)];
    Home h = plan_.values[node.out[0]];
    if (!d.in_place) h.view = slice_of(node, d.operand, h.view);
    for (size_t i = d.path.size(); i-- > 0;) {
      const Node& p = graph_.nodes[static_cast<size_t>(d.path[i])];
      SymView inverse;
      if (!invert(p, h.view, &inverse)) {
        failures_ += d.in_place ? 1 : kMove;
        lost_.push_back(v);
        home_of(v) = new_root(v);
        return;
      }
      h.view = inverse;
    }
    home_of(v) = h;
  }

  // Operand `i`'s part of a Concat's output.
  SymView slice_of(const Node& node, size_t i, const SymView& whole) {
    const int rank = static_cast<int>(whole.dims.size());
    int64_t axis = node.attr_int("axis", 0);
    if (axis < 0) axis += rank;
    SymView part = whole;
    std::vector<Dim>& begins = begins_[node.out[0]];
    for (size_t j = begins.size(); j <= i; ++j)
      begins.push_back(j == 0 ? Dim(0) : begins.back() + value(node.in[j - 1]).info.shape[static_cast<size_t>(axis)]);
    part.offset = part.offset + begins[i] * part.strides[static_cast<size_t>(axis)];
    part.dims = value(node.in[i]).info.shape;
    return part;
  }
  bool invert(const Node& p, const SymView& out, SymView* in) const {
    if (p.op == "Identity") {
      *in = out;
      return true;
    }
    if (p.op != "Transpose") return reshape_view(out, value(p.in[0]).info.shape, in);
    const size_t rank = out.dims.size();
    const std::vector<int64_t> perm = p.permutation(rank);
    in->offset = out.offset;
    in->dims.resize(rank);
    in->strides.resize(rank);
    for (size_t i = 0; i < rank; ++i) {
      in->dims[static_cast<size_t>(perm[i])] = out.dims[i];
      in->strides[static_cast<size_t>(perm[i])] = out.strides[i];
    }
    return true;
  }

  bool io_value(ValueId v) const {
    return v == binding_.logits || v == binding_.rows || host_known(v) ||
           std::find(graph_.inputs.begin(), graph_.inputs.end(), v) != graph_.inputs.end();
  }

  Home new_root(ValueId v) {
    const auto role = binding_.inputs.find(v);
    const bool handed_in = role != binding_.inputs.end() && role->second == InputRole::kFeatures;
    const RegionKind region = handed_in || v == binding_.logits || v == binding_.rows ? RegionKind::kPort
                              : io_value(v)                                           ? RegionKind::kIo
                                                                                      : RegionKind::kArena;
    std::vector<Root>& roots = region == RegionKind::kPort ? plan_.ports
                               : region == RegionKind::kIo ? plan_.io
                                                           : plan_.arena;
    Root r{v, value(v).info.type, value(v).info.shape};
    Home h{region, static_cast<int>(roots.size()), SymView::contiguous(r.dims)};
    if (!order_[v].empty()) {
      Dim stride = 1;
      for (size_t i = order_[v].size(); i-- > 0;) {
        const size_t axis = static_cast<size_t>(order_[v][i]);
        h.view.strides[axis] = stride;
        stride = stride * r.dims[axis];
      }
    }
    roots.push_back(std::move(r));
    return h;
  }

  // -- layouts: for every root that some view cannot follow, try the other orders of its axes.
  void choose_layouts() {
    std::vector<std::vector<ValueId>> members(n_values_);
    std::vector<ValueId> tops(n_values_, kNoValue);
    for (size_t v = 0; v < n_values_; ++v)
      if (has_home(static_cast<ValueId>(v)))
        members[static_cast<size_t>(top(static_cast<ValueId>(v), &tops))].push_back(static_cast<ValueId>(v));
    for (size_t r = 0; r < n_values_; ++r) {
      const ValueId root = static_cast<ValueId>(r);
      if (members[r].size() < 2 || is_constant(root) || state_of(root) >= 0 || io_value(root)) continue;
      const size_t rank = value(root).info.shape.size();
      if (rank < 2 || rank > 6) continue;
      int best = failures_of(members[r]);
      std::vector<int> best_order;
      // Orders whose innermost axis is the last one come first: kernels read and write rows of unit stride several
      // times faster. (Queries stored as [heads, size, tokens] made a prompt of 2,048 tokens 10% slower.)
      for (size_t innermost = rank; best > 0 && innermost-- > 0;) {
        std::vector<int> order(rank);
        std::iota(order.begin(), order.end(), 0);
        std::rotate(order.begin() + static_cast<int64_t>(innermost),
                    order.begin() + static_cast<int64_t>(innermost) + 1, order.end());
        do {
          order_[r] = order;
          const int f = failures_of(members[r]);
          if (f < best) {
            best = f;
            best_order = order;
          }
        } while (best > 0 && std::next_permutation(order.begin(), order.end() - 1));
      }
      order_[r] = best_order;
    }
  }

  bool has_home(ValueId v) const {
    const int p = value(v).producer;
    return !host_known(v) && !is_constant(v) && (p >= 0 || io_value(v));
  }
  // The value that v lives in at last; `known` has those that were found before.
  ValueId top(ValueId v, std::vector<ValueId>* known) const {
    std::vector<ValueId> path;
    auto next = [&](ValueId x) {
      if (state_of(x) >= 0) return kNoValue;
      if (is_view(x)) return graph_.nodes[static_cast<size_t>(view_of_[x])].in[0];
      return destination_[x].node >= 0 ? graph_.nodes[static_cast<size_t>(destination_[x].node)].out[0] : kNoValue;
    };
    while ((*known)[v] == kNoValue && path.size() <= n_values_) {
      path.push_back(v);
      const ValueId n = next(v);
      if (n == kNoValue) break;
      v = n;
    }
    const ValueId last = (*known)[v] == kNoValue ? v : (*known)[v];
    for (ValueId x : path) (*known)[x] = last;
    return last;
  }
  int failures_of(const std::vector<ValueId>& members) {
    forget();
    for (ValueId v : members) resolve(v);
    const int f = failures_;
    forget();
    return f;
  }
  void forget() {
    for (const ValueId v : placed_) plan_.values[v] = Home{};
    placed_.clear();
    plan_.arena.clear();
    plan_.io.clear();
    plan_.ports.clear();
    failures_ = 0;
    broken_.clear();
    lost_.clear();
  }

  // Resolves everything; what failed loses its tie and gets a block of its own, until all is consistent.
  void resolve_all() {
    while (true) {
      forget();
      for (const Node& n : graph_.nodes) {
        if (!runs(n)) continue;
        for (ValueId v : n.out)
          if (v != kNoValue) resolve(v);
        for (ValueId v : n.in)
          if (v != kNoValue && !host_known(v)) resolve(v);
      }
      if (broken_.empty() && lost_.empty()) return;
      for (ValueId v : broken_) broken_view_[v] = 1;
      for (ValueId v : lost_) {
        const Destination& d = destination_[v];
        if (!d.in_place) moved_operand_[static_cast<size_t>(d.node)][d.operand] = 1;
        destination_[v] = {};
      }
    }
  }

  // -- steps
  Status make_steps() {
    std::vector<char> in_place(graph_.nodes.size(), 0);
    for (const Destination& d : destination_)
      if (d.in_place && d.node >= 0) in_place[static_cast<size_t>(d.node)] = 1;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!runs(node)) {
        plan_.placed[n] = "host";
        continue;
      }
      if (node.is("Select", "situ")) {
        plan_.placed[n] = "view";
        continue;
      }
      if (view_of_node(n)) {
        SITU_RETURN_IF_ERROR(place_view(node, n));
        continue;
      }
      if (node.def && node.def->placement == Placement::kConcat) {
        place_concat(node, n);
        continue;
      }
      Step s;
      s.node = static_cast<int>(n);
      s.reason = moved_by_kernel(node);
      plan_.placed[n] = in_place[n] ? "in place" : !s.reason.empty() ? "copied: " + s.reason : region_of_output(node);
      plan_.steps.push_back(std::move(s));
      for (ValueId v : node.in)
        if (v != kNoValue && host_known(v) && plan_.values[v].region == RegionKind::kNone) home_of(v) = new_root(v);
    }
    return Status::ok();
  }

  bool view_of_node(size_t n) const {
    for (ValueId v : graph_.nodes[n].out)
      if (v != kNoValue && view_of_[v] == static_cast<int>(n)) return true;
    return graph_.nodes[n].def && graph_.nodes[n].def->placement == Placement::kView;
  }
  // Why the node's kernel moves bytes of operand 0 (kernels that call move_bytes, and Call::moves); "": it
  // does not.
  std::string moved_by_kernel(const Node& node) const {
    if (!node.has_output(0) || node.in.empty()) return "";
    if (node.is("Tile") || node.is("Pad")) return "repeats or extends its operand";
    const bool gather = node.is("Gather") || node.is("GatherElements") || node.is("GatherND");
    if (gather && !is_constant(node.in[0]) && (is_constant(node.in[1]) || host_known(node.in[1])))
      return "its indices are known before the step, but no view chooses alike";
    const bool apart = !same_home(node.in[0], node.out[0]);
    if ((node.is("ScatterND") || node.is("ScatterElements")) && apart)
      return "the result may not take its operand's place";
    const Shape& x = value(node.in[0]).info.shape;
    const bool same_type = value(node.in[0]).info.type == value(node.out[0]).info.type;
    if (node.is("Rotary", "situ") && apart && same_type && x.back() != Dim(node.attr_int("rotary_dim", 0)))
      return "the numbers that are not rotated are elsewhere than the result";
    return "";
  }
  bool same_home(ValueId a, ValueId b) const { return same_place(plan_.values[a], plan_.values[b]); }
  static bool same_place(const Home& x, const Home& y) {
    bool same = x.region == y.region && x.root == y.root && x.view.offset == y.view.offset;
    for (size_t i = 0; same && i < x.view.dims.size(); ++i)
      same = x.view.dims[i] == Dim(1) || x.view.strides[i] == y.view.strides[i];
    return same;
  }
  std::string region_of_output(const Node& node) const {
    for (ValueId v : node.out)
      if (v != kNoValue) return plan_.values[v].region == RegionKind::kState ? "computed into state" : "computed";
    return "computed";
  }

  Status place_view(const Node& node, size_t n) {
    plan_.placed[n] = "view";
    for (size_t o = 0; o < node.out.size(); ++o) {
      const ValueId v = node.out[o];
      if (v == kNoValue || (view_of_[v] >= 0 && !broken_view_[v])) continue;
      // A broken view is moved; the state's output named by a view operator likewise.
      ViewContext c = view_context(node, SymView::contiguous(value(node.in[0]).info.shape));
      c.source = plan_.values[node.in[0]].view;
      Home from = plan_.values[node.in[0]];
      Home to = plan_.values[v];
      if (node.def->view(c)) {
        from.view = c.result[o];
        if (same_place(from, to)) continue;
      } else if (SymView inverse; bijective(node) && invert(node, to.view, &inverse)) {
        to.view = inverse;
      } else {
        return Status::error(node.label() + " of " + layout_text(plan_.values[node.in[0]]) +
                             " cannot be moved: its extents are not those of its output " +
                             shape_str(value(v).info.shape));
      }
      add_move(n, node.in[0], v, from, to,
               node.op + " of " + layout_text(plan_.values[node.in[0]]) + " has no strides");
    }
    return Status::ok();
  }

  void place_concat(const Node& node, size_t n) {
    plan_.placed[n] = "in place";
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!moved_operand_[n][i]) continue;
      Home to = plan_.values[node.out[0]];
      to.view = slice_of(node, i, to.view);
      if (host_known(node.in[i]) && plan_.values[node.in[i]].region == RegionKind::kNone)
        home_of(node.in[i]) = new_root(node.in[i]);
      const std::string why = is_constant(node.in[i])
                                  ? "a constant"
                                  : std::string("already placed in ") + region_name(plan_.values[node.in[i]].region);
      add_move(n, node.in[i], node.out[0], plan_.values[node.in[i]], to, "operand " + std::to_string(i) + " is " + why);
    }
  }

  // Two constants and a predicate on the host: the offset between their addresses, chosen at each step.
  Home select_home(const Node& node) const {
    const ValueId a = node.in[1], b = node.in[2];
    const int64_t size = std::max<int64_t>(1, dtype_bytes(value(a).info.type));
    const int64_t distance = value(b).constant.view().data - value(a).constant.view().data;
    Home h{RegionKind::kWeights, a, SymView::contiguous(value(node.out[0]).info.shape)};
    h.view.offset = dim_select((*value(node.in[0]).info.content)[0], Dim(0), Dim(distance / size));
    return h;
  }
  Status check_select(const Node& node) const {
    const auto& condition = value(node.in[0]).info.content;
    const bool constants = is_constant(node.in[1]) && is_constant(node.in[2]);
    if (!condition || condition->size() != 1 || !constants)
      return Status::error(node.label() + ": the condition is not known on the host");
    const int64_t size = dtype_bytes(value(node.in[1]).info.type);
    const int64_t distance = value(node.in[2]).constant.view().data - value(node.in[1]).constant.view().data;
    if (size == 0 || distance % size != 0) return Status::error(node.label() + ": the branches are not aligned alike");
    return Status::ok();
  }

  static std::string layout_text(const Home& h) {
    return std::string(region_name(h.region)) + " strides " + shape_str(h.view.strides);
  }

  void add_move(size_t n, ValueId from, ValueId to, const Home& from_home, const Home& to_home,
                const std::string& why) {
    Step s;
    s.node = static_cast<int>(n);
    s.move = true;
    s.from = from;
    s.to = to;
    s.from_home = from_home;
    s.to_home = to_home;
    s.reason = why;
    plan_.steps.push_back(s);
    plan_.placed[n] = "copied: " + why;
  }

  const Graph& graph_;
  const Binding& binding_;
  const PlanBounds bounds_;
  const size_t n_values_;
  Plan plan_;
  std::vector<int> view_of_;             // by value: the view node that makes it, or -1
  std::vector<char> broken_view_;        // by value: that view cannot be expressed
  std::vector<std::vector<int>> order_;  // by root value: axes from outermost to innermost; empty: as they stand
  std::vector<Destination> destination_;
  struct {
    const Node* node = nullptr;
    Home source;
    std::vector<SymView> parts;
  } viewed_;                                      // the node that resolve_view() looked at last
  std::map<ValueId, std::vector<Dim>> begins_;    // of the parts of a Concat, along its axis
  std::vector<std::vector<char>> moved_operand_;  // by Concat node
  std::vector<std::vector<std::pair<int, int>>> users_;
  // Of a layout: moves, and operands that a result cannot take the place of, which costs a block and no move.
  static constexpr int kMove = 64;
  int failures_ = 0;
  std::vector<ValueId> broken_, lost_, placed_;
};

}  // namespace

Result<Plan> make_plan(const Graph& graph, const Binding& binding, const PlanBounds& bounds) {
  return Planner(graph, binding, bounds).run();
}

}  // namespace situ
