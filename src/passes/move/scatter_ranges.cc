#include "passes/move/scatter_ranges.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "eval/interpreter.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"

namespace situ {
namespace {

constexpr int64_t kMostTraced = 4096;  // elements whose way is followed one by one,
constexpr int kMostSteps = 32;         // through so many nodes

bool is_scatter(const Node& n) {
  return (n.is("ScatterND") || n.is("ScatterElements")) && n.in.size() == 3 &&
         n.attr_string("reduction", "none") == "none";
}

// Rows first .. end of an axis.
struct Stretch {
  int64_t axis = 0;
  Dim first, end;
  ValueId rows = kNoValue;  // kNoValue: of what was there before the first scatter
};

class Ranges {
 public:
  explicit Ranges(PassContext& context) : context_(context), graph_(context.graph), builder_(graph_) {}

  Status run() {
    if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), is_scatter)) return Status::ok();
    const std::vector<Node> nodes = graph_.nodes;
    for (const Node& n : nodes) {
      if (!is_scatter(n)) {
        builder_.keep(n);
        if (n.is("Gather")) read_before(&builder_.last());
      } else if (writes_what_is_there(n)) {
        builder_.start(n);
        builder_.op("Identity", {n.in[0]}, n.out[0]);
      } else if (const std::vector<Stretch>* all = written(n); all && covers(n, *all)) {
        builder_.start(n);
        std::vector<ValueId> rows;
        for (const Stretch& s : *all) rows.push_back(s.rows);
        builder_.op("Concat", rows, n.out[0]);
        builder_.last().set_int("axis", (*all)[0].axis);
      } else {
        builder_.keep(n);
      }
    }
    return builder_.finish();
  }

 private:
  const ValueInfo& info(ValueId v) const { return graph_.values[static_cast<size_t>(v)].info; }

  // -- what is there
  bool writes_what_is_there(const Node& n) {
    const Shape& updates = info(n.in[2]).shape;
    if (info(n.in[2]).ranked && std::find(updates.begin(), updates.end(), Dim(0)) != updates.end()) return true;
    const Tensor &at = graph_.values[static_cast<size_t>(n.in[1])].constant, data = classes(n.in[0], 0),
                 read = classes(n.in[2], 0);
    if (!at.present() || !data.present() || !read.present()) return false;
    const std::optional<Tensor> result = moved(n, {data, at, read});
    return result && result->to_i64() == data.to_i64();
  }

  // A number for each element: those that have the same one are the same, whatever the step. Through what moves
  // elements to known places, and what computes each by itself. Absent: there are too many, or none.
  Tensor classes(ValueId v, int depth) {
    if (const auto known = classes_.find(v); known != classes_.end()) return known->second;
    return classes_[v] = classify(v, depth);
  }
  Tensor classify(ValueId v, int depth) {
    const ValueInfo& own = info(v);
    if (!own.ranked || !shape_is_const(own.shape)) return {};
    const int64_t count = shape_count(own.shape).value();
    if (count == 0 || count > kMostTraced) return {};
    const Node* n = depth < kMostSteps ? graph_.producer(v) : nullptr;
    if (n && n->domain.empty() && n->def && n->out.size() == 1 && !n->in.empty()) {
      const bool moves = n->def->placement == Placement::kView || n->is("Gather");
      const Tensor made = moves                                          ? classes_moved(*n, depth + 1)
                          : n->def->placement == Placement::kElementwise ? classes_computed(*n, depth + 1)
                                                                         : Tensor();
      if (made.present()) return made;
    }
    Tensor each = Tensor::allocate(DType::kI64, shape_values(own.shape));
    std::iota(each.view().as<int64_t>(), each.view().as<int64_t>() + count, next_class_);
    next_class_ += count;
    return each;
  }
  Tensor classes_moved(const Node& n, int depth) {
    std::vector<Tensor> operands{classes(n.in[0], depth)};
    if (!operands[0].present()) return {};
    for (size_t i = 1; i < n.in.size(); ++i) {
      const std::optional<Tensor> t = n.in[i] == kNoValue ? Tensor() : integers(n.in[i]);
      if (!t) return {};
      operands.push_back(*t);
    }
    return moved(n, operands).value_or(Tensor());
  }
  Tensor classes_computed(const Node& n, int depth) {
    Node expand;
    expand.op = "Expand";
    expand.opset = 13;
    expand.in = {0, 1};
    expand.out = {0};
    expand.def = find_op("", "Expand", 13);
    const std::vector<int64_t> dims = shape_values(info(n.out[0]).shape);
    std::vector<std::vector<int64_t>> of_operands;
    for (const ValueId x : n.in) {
      const Tensor own = x == kNoValue ? Tensor() : classes(x, depth);
      const std::optional<Tensor> all = own.present() ? moved(expand, {own, Tensor::vector_i64(dims)}) : std::nullopt;
      if (!all) return {};
      of_operands.push_back(all->to_i64());
    }
    Tensor each = Tensor::allocate(DType::kI64, dims);
    std::map<std::vector<int64_t>, int64_t> known;
    for (size_t i = 0; i < static_cast<size_t>(each.count()); ++i) {
      std::vector<int64_t> key;
      for (const std::vector<int64_t>& c : of_operands) key.push_back(c[i]);
      const auto [at, fresh] = known.try_emplace(std::move(key), next_class_);
      next_class_ += fresh;
      each.view().as<int64_t>()[i] = at->second;
    }
    return each;
  }
  std::optional<Tensor> integers(ValueId v) const {
    const Value& value = graph_.values[static_cast<size_t>(v)];
    if (value.constant.present()) return value.constant;
    if (!value.info.content || !shape_is_const(*value.info.content)) return std::nullopt;
    return Tensor::vector_i64(shape_values(*value.info.content)).reshaped(shape_values(value.info.shape));
  }
  std::optional<Tensor> moved(const Node& n, const std::vector<Tensor>& operands) {
    Result<std::vector<Tensor>> made = context_.evaluator.node(n, operands);
    return made.is_ok() && made->size() == 1 ? std::optional(made->front()) : std::nullopt;
  }

  // -- stretches
  // What a scatter and those before it write; null: not in stretches of the first axis.
  const std::vector<Stretch>* written(const Node& n) {
    if (const auto known = written_.find(n.out[0]); known != written_.end())
      return known->second ? &*known->second : nullptr;
    written_[n.out[0]] = std::nullopt;
    const std::optional<Stretch> own = stretch_of(n);
    if (!own) return nullptr;
    const ValueId data = without_turns(n.in[0]);
    const Node* before = graph_.producer(data);
    std::vector<Stretch> stretches;
    if (before && is_scatter(*before) && info(data).shape == info(n.out[0]).shape) {
      const std::vector<Stretch>* earlier = written(*before);
      if (!earlier) return nullptr;
      for (const Stretch& s : *earlier) {
        if (s.axis != own->axis) return nullptr;
        if (s.first == own->first && s.end == own->end) continue;  // written over
        const Dim gap = s.end - own->first, behind = own->end - s.first;
        const bool apart = gap.upper_bound() <= 0 || behind.upper_bound() <= 0;
        if (!apart) return nullptr;
        stretches.push_back(s);
      }
    }
    stretches.push_back(*own);
    std::sort(stretches.begin(), stretches.end(),
              [](const Stretch& a, const Stretch& b) { return (a.first - b.first).upper_bound() < 0; });
    written_[n.out[0]] = std::move(stretches);
    return &*written_[n.out[0]];
  }
  std::optional<Stretch> stretch_of(const Node& n) const {
    if (n.is("ScatterElements")) return slab_of(n);
    const Shape &places = info(n.in[1]).shape, &all = info(n.in[0]).shape;
    const std::optional<Tensor> at = integers(n.in[1]);
    if (places.size() != 2 || places[1] != Dim(1) || !at || at->count() == 0 || all.empty()) return std::nullopt;
    const std::vector<int64_t> rows = at->to_i64();
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i] != rows[0] + static_cast<int64_t>(i)) return std::nullopt;
    int64_t first = rows[0];
    if (first < 0) {  // from the end; [-1, 0] do not follow each other
      if (!all[0].is_const() || rows.back() >= 0) return std::nullopt;
      first += all[0].value();
    }
    return Stretch{0, Dim(first), Dim(first + std::ssize(rows)), n.in[2]};
  }
  // All of one place of an axis, as torch writes state[:, :, i] = x.
  std::optional<Stretch> slab_of(const Node& n) const {
    Shape slab = info(n.in[0]).shape;
    const int64_t rank = std::ssize(slab), given = n.attr_int("axis", 0), axis = given < 0 ? given + rank : given;
    const Tensor& places = graph_.values[static_cast<size_t>(n.in[1])].constant;
    if (axis < 0 || axis >= rank || !places.present() || places.count() == 0) return std::nullopt;
    slab[static_cast<size_t>(axis)] = Dim(1);
    const std::vector<int64_t> at = places.to_i64();
    if (info(n.in[1]).shape != slab || info(n.in[2]).shape != slab || at[0] < 0 ||
        !std::all_of(at.begin(), at.end(), [&](int64_t i) { return i == at[0]; }))
      return std::nullopt;
    return Stretch{axis, Dim(at[0]), Dim(at[0] + 1), n.in[2]};
  }
  // What stands at one place of an axis, of which scatters wrote others or all.
  void read_before(Node* gather) const {
    const Tensor& index = graph_.values[static_cast<size_t>(gather->in[1])].constant;
    const int64_t rank = std::ssize(info(gather->in[0]).shape), given = gather->attr_int("axis", 0),
                  axis = given < 0 ? given + rank : given;
    if (!index.present() || index.count() != 1 || index.to_i64()[0] < 0) return;
    const Dim at(index.to_i64()[0]);
    for (const Node* n = graph_.producer(gather->in[0]); n && is_scatter(*n); n = graph_.producer(gather->in[0])) {
      const std::optional<Stretch> s = stretch_of(*n);
      if (!s || s->axis != axis) return;
      const bool inside = at == s->first && s->end == at + Dim(1);
      if (!inside && at.value() >= s->first.value() && at.value() < s->end.value()) return;
      gather->in[0] = inside ? s->rows : n->in[0];
      if (!inside) continue;
      gather->in[1] = graph_.add_constant(gather->name + "/first", Tensor::vector_i64({0}).reshaped(index.dims()));
      return;
    }
  }
  // Behind transpositions that turn nothing together.
  ValueId without_turns(ValueId v) const {
    const size_t rank = info(v).shape.size();
    std::vector<int64_t> axes(rank);
    std::iota(axes.begin(), axes.end(), int64_t{0});
    const std::vector<int64_t> straight = axes;
    ValueId behind = v, x = v;
    for (const Node* n = graph_.producer(x); n && n->is("Transpose"); n = graph_.producer(x)) {
      const std::vector<int64_t> perm = n->permutation(rank);
      for (int64_t& a : axes) a = perm[static_cast<size_t>(a)];
      x = n->in[0];
      if (axes == straight) behind = x;
    }
    return behind;
  }
  bool covers(const Node& n, const std::vector<Stretch>& all) const {
    Dim at = 0;
    for (const Stretch& s : all) {
      if (s.first != at) return false;
      at = s.end;
    }
    return at == info(n.out[0]).shape[static_cast<size_t>(all[0].axis)];
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  std::map<ValueId, Tensor> classes_;
  int64_t next_class_ = 0;
  std::map<ValueId, std::optional<std::vector<Stretch>>> written_;  // by what a scatter returns
};

}  // namespace

Status scatter_ranges(PassContext& context) { return Ranges(context).run(); }

}  // namespace situ
